"""A flow on the driver between two fake clusters, for tests of what it asks and orders there."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from heliograph.config import parse_settings
from heliograph.flow.flow import FlowDriver
from tests.fake_cluster import FakeCluster


@dataclass(frozen=True, slots=True)
class FlowOnFakes:
    source: FakeCluster
    target: FakeCluster
    flow: FlowDriver

    def apply(self, more: str) -> None:
        """Go on with changed settings."""
        settings = parse_settings(_config(self.source, self.target, more))
        self.flow.apply(settings.flows[0], settings)

    def calls(self, api_key: int) -> int:
        """How many such requests the target has got."""
        return sum(call.api_key == api_key for call in self.target.calls)


@asynccontextmanager
async def flow_between(
    topics: dict[str, int] | None = None, remotes: dict[str, int] | None = None, more: str = "", *, brokers: int = 1
) -> AsyncIterator[FlowOnFakes]:
    """From "a", which has topics with these numbers of partitions, to "b"."""
    async with (
        FakeCluster("a", topics=topics, brokers=brokers) as source,
        FakeCluster("b", topics=remotes, brokers=brokers) as target,
    ):
        settings = parse_settings(_config(source, target, more))
        flow = FlowDriver(settings.flows[0], settings, is_local=True)
        try:
            yield FlowOnFakes(source, target, flow)
        finally:
            flow.close()


def _config(source: FakeCluster, target: FakeCluster, more: str) -> str:
    addresses = {cluster.alias: ", ".join(map(str, cluster.bootstrap)) for cluster in (source, target)}
    lines = [f"{alias}.bootstrap.servers = {text}" for alias, text in addresses.items()]
    factors = [f"{name}.storage.replication.factor = 1" for name in ("offset", "config", "status")]
    return "\n".join(["clusters = a, b", *lines, *factors, "replication.factor = 1", "a->b.enabled = true", more, ""])
