"""How flows stand, by what is written on their targets: needs neither the source nor a running mirror."""

from __future__ import annotations

import time
from dataclasses import dataclass

from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError, NotAuthorized
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import BrokerAddress
from heliograph.mirror import store
from heliograph.mirror.access import Role, security_of
from heliograph.mirror.ledger import Ledger


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """One flow as the ledger on its target tells it."""

    flow: str
    state: str
    partitions: int = 0
    records_behind: int = 0
    last_written_s: float | None = None
    """Seconds since something was written down; None if nothing ever was."""
    lacks: tuple[str, ...] = ()
    is_ready: bool = False
    problem: str = ""

    def row(self) -> dict[str, str | int | None]:
        return {
            "flow": self.flow,
            "state": self.state,
            "ready": "yes" if self.is_ready else "no",
            "partitions": self.partitions,
            "records behind": self.records_behind,
            "last written": None if self.last_written_s is None else f"{self.last_written_s:.0f} s ago",
            "trouble": "; ".join(self.lacks) or self.problem or None,
        }


async def read_status(settings: Settings) -> list[FlowStatus]:
    return [await _flow_status(flow, settings) for flow in settings.enabled_flows]


async def _flow_status(flow: Flow, settings: Settings) -> FlowStatus:
    bootstrap = [BrokerAddress.parse(text) for text in settings.clusters[flow.target].bootstrap_servers]
    security = security_of(settings, flow, Role.TARGET_ADMIN)
    cluster = Cluster(flow.target, bootstrap, client_id=f"{flow.name}|status", security=security)
    try:
        await cluster.refresh()
        ledger = await _read(cluster, flow)
    except HeliographError as error:
        return FlowStatus(flow=flow.name, state=flow.state, problem=str(error))
    finally:
        cluster.close()
    if ledger is None:
        return FlowStatus(flow=flow.name, state=flow.state, problem="it has not run yet")
    entries, condition = ledger.entries.values(), ledger.condition
    written = max([entry.time_ms for entry in entries], default=0)
    return FlowStatus(
        flow=flow.name,
        state=flow.state,
        partitions=len(ledger.entries),
        records_behind=sum(max(0, entry.source_end - entry.source_offset) for entry in entries),
        last_written_s=time.time() - written / 1000 if written else None,
        lacks=condition.lacks if condition else (),
        is_ready=ledger.claim is not None and not (condition is not None and condition.is_blocked),
    )


async def _read(cluster: Cluster, flow: Flow) -> Ledger | None:
    """From the ledger's topic, or from beside the positions where that is not allowed; the newer of two."""
    found = []
    for topic in (flow.ledger_topic, flow.offset_storage_topic):
        if topic not in cluster.catalogue.topics:
            continue
        try:
            ledger = await store.read_ledger(cluster, topic, flow.group_id)
        except NotAuthorized:
            continue
        if ledger.claim is not None:
            found.append(ledger)
    return max(found, key=lambda ledger: ledger.condition.time_ms if ledger.condition else 0, default=None)
