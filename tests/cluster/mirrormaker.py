"""The real MirrorMaker 2 as a process, on the keys that a `MirrorProcess` takes."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Mapping
from pathlib import Path

from heliograph.kafka.admin.groups import CLASSIC, describe_groups
from heliograph.kafka.cluster import Cluster as Client
from heliograph.kafka.types import BrokerAddress
from heliograph.lab import Jvm, Lab, LabCluster
from tests.cluster.mirror import MirrorProcess, wait_until

_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
_SMALL = Jvm(heap="256m")


class MirrorMaker(MirrorProcess):
    """Runs the flows into one cluster."""

    def __init__(
        self, lab: Lab, folder: Path, clusters: Mapping[str, LabCluster | str], keys: Mapping[str, str], *, target: str
    ) -> None:
        self._java = lab.java(_CLASS, jvm=_SMALL)
        self._target = target
        # Else the worker of a second start waits minutes for the one of the first to come back.
        patience = {f"{target}.scheduled.rebalance.max.delay.ms": "0"}
        super().__init__(folder, clusters, {**keys, **patience}, environment=self._java.env)

    def command(self) -> list[str]:
        return [*self._java.argv, str(self.config), "--clusters", self._target]

    def stop_cleanly(self, cluster: LabCluster, group: str) -> None:
        """It commits what it has copied, and Java ends as the signal asks; its group may outlive it for a while."""
        assert self.stop(signal.SIGTERM).code == 128 + signal.SIGTERM
        wait_until(lambda: not _members(cluster, group), 30, what=f"the end of group {group}")


def _members(cluster: LabCluster, group: str) -> int:
    """By our own client: confluent-kafka describes no groups but consumers'."""

    async def ask() -> int:
        client = Client(cluster.alias, [BrokerAddress.parse(cluster.bootstrap)], client_id="test")
        with contextlib.closing(client):
            return len((await describe_groups(client, {group: CLASSIC})).the(group).members)

    return asyncio.run(ask())
