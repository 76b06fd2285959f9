"""How flows stand, by what is written on their targets: needs neither the source nor a running mirror."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError
from heliograph.kafka.admin import LATEST, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import read_tail
from heliograph.kafka.types import TopicPartition
from heliograph.mirror import store, tenure
from heliograph.mirror.access import Role, cluster_of
from heliograph.mirror.copynames import maybe_remote
from heliograph.mirror.exposure import Exposure, exposure_of
from heliograph.mirror.joint import neighbours_in
from heliograph.mirror.leader_epochs import target_epochs
from heliograph.mirror.lease import Lease, Tenancy
from heliograph.mirror.ledger import Ledger
from heliograph.mirror.losses import Loss
from heliograph.mirror.mm2 import Checkpoint, Heartbeat
from heliograph.mirror.throttling import QUIET_S, shown
from heliograph.render import Row

STANDBY_S = 3 * tenure.STANDBY_S
"""One who has not said for so long that he waits does not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """Who leads a flow, or led it last, by his own clock."""

    host: str
    pid: int
    since_ms: int
    until_ms: int
    """When the lease runs out if it is not renewed, or when it ran out or was given back."""
    now_ms: int

    @classmethod
    def of(cls, lease: Lease, *, now_ms: int) -> Leader:
        is_over = lease.tenancy is Tenancy.RELEASED
        return cls(
            host=lease.holder.host,
            pid=lease.holder.pid,
            since_ms=lease.since_ms,
            until_ms=lease.time_ms if is_over else lease.time_ms + lease.lease_ms,
            now_ms=now_ms,
        )

    @property
    def since(self) -> str:
        return _at(self.since_ms)

    @property
    def until(self) -> str:
        return _at(self.until_ms)

    def __str__(self) -> str:
        if self.until_ms > self.now_ms:
            return f"{self.host} (pid {self.pid})"
        return f"nobody ({self.host} until {(self.now_ms - self.until_ms) / 1000:.0f} s ago)"


def _at(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowStatus:
    """One flow as its target tells it; ages are in seconds, None if there was never such a thing."""

    flow: str
    state: str
    partitions: int = 0
    records_behind: int = 0
    last_written_s: float | None = None
    last_contact_s: float | None = None
    """Since the source last answered."""
    heartbeat_s: float | None = None
    """Age of the newest heartbeat that came over from the source."""
    checkpoint_s: float | None = None
    exposure: Exposure | None = None
    leader: Leader | None = None
    standbys: int = 0
    """Processes that wait for the leader's end, as far as they said so of late."""
    restarts: int = 0
    """Of this leader's, by `auto.restart`."""
    lacks: tuple[str, ...] = ()
    throttled: tuple[str, ...] = ()
    """By which cluster's quota, or by the flow's own limit, at the moment."""
    losses: tuple[Loss, ...] = ()
    """Those that nobody has acknowledged."""
    is_ready: bool = False
    problem: str = ""

    def row(self) -> dict[str, str | int | float | None]:
        exposure = self.exposure
        return {
            "flow": self.flow,
            "state": self.state,
            "ready": "yes" if self.is_ready else "no",
            "partitions": self.partitions,
            "records behind": self.records_behind,
            "exposed records": exposure.records if exposure else None,
            "exposed bytes": exposure.bytes if exposure else None,
            "exposed seconds": round(exposure.seconds, 1) if exposure else None,
            "leader": str(self.leader) if self.leader else None,
            "leads since": self.leader.since if self.leader else None,
            "leads until": self.leader.until if self.leader else None,
            "standbys": self.standbys,
            "restarts": self.restarts,
            "last written": _ago(self.last_written_s),
            "source answered": _ago(self.last_contact_s),
            "heartbeat": _ago(self.heartbeat_s),
            "checkpoint": _ago(self.checkpoint_s),
            "trouble": "; ".join([*self.lacks, *self.throttled, *(loss.short() for loss in self.losses)])
            or self.problem
            or None,
        }

    def full_row(self) -> Row:
        """For programs: with every loss in full."""
        return {**self.row(), "losses": [loss.row() for loss in self.losses]}


def _ago(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.0f} s ago"


async def read_status(settings: Settings) -> list[FlowStatus]:
    return list(await asyncio.gather(*(_flow_status(flow, settings) for flow in settings.enabled_flows)))


async def _flow_status(flow: Flow, settings: Settings) -> FlowStatus:
    cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{flow.name}|status")
    try:
        await cluster.refresh()
        ledger = await store.find_ledger(cluster, flow)
        if ledger is None:
            return FlowStatus(flow=flow.name, state=flow.state, problem="it has not run yet")
        return await _status(flow, cluster, ledger)
    except HeliographError as error:
        return FlowStatus(flow=flow.name, state=flow.state, problem=str(error))
    finally:
        cluster.close()


async def _status(flow: Flow, target: Cluster, ledger: Ledger) -> FlowStatus:
    entries, condition = ledger.entries, ledger.condition
    losses = sorted((loss for loss in ledger.losses.values() if loss.is_open), key=lambda loss: loss.key)
    alone = entries.keys() - neighbours_in(ledger).keys()  # what shares a log cannot be told by its end
    names = {
        TopicPartition(remote, index): (topic, index)
        for topic, index in alone
        if (remote := maybe_remote(flow, topic)) is not None
    }
    await target.heed(target_epochs(entries, flow))
    answers = await list_offsets(target, names, LATEST)
    ends = {names[where]: answer.offset for where, answer in answers.items() if not answer.error_code}
    now_ms, lease = int(time.time() * 1000), ledger.leadership.lease
    written = max([entry.time_ms for entry in entries.values()], default=0)
    return FlowStatus(
        flow=flow.name,
        state=flow.state,
        partitions=len(entries),
        records_behind=sum(max(0, entry.source_end - entry.source_offset) for entry in entries.values()),
        last_written_s=_since(written),
        last_contact_s=_since(ledger.contact_ms),
        heartbeat_s=await _heartbeat_age(flow, target),
        checkpoint_s=await _checkpoint_age(flow, target),
        exposure=exposure_of(ledger, ends),
        leader=Leader.of(lease, now_ms=now_ms) if lease is not None else None,
        restarts=lease.restarts if lease is not None else 0,
        standbys=sum(now_ms - standby.time_ms < STANDBY_S * 1000 for standby in ledger.standbys.values()),
        lacks=condition.lacks if condition else (),
        throttled=_throttled(ledger),
        losses=tuple(losses),
        is_ready=ledger.claim is not None
        and not (condition is not None and condition.is_blocked)
        and not any(loss.blocks for loss in losses),
    )


def _throttled(ledger: Ledger) -> tuple[str, ...]:
    """Clients tell it every few seconds while it lasts."""
    fresh = [item for item in ledger.throttles.values() if time.time() - item.time_ms / 1000 < QUIET_S]
    return tuple(map(shown, sorted({item.cluster for item in fresh})))


def _since(time_ms: int) -> float | None:
    return max(0.0, time.time() - time_ms / 1000) if time_ms else None


async def _heartbeat_age(flow: Flow, target: Cluster) -> float | None:
    """Of what the source's heartbeats topic brought over: it proves that records come through."""
    topic = flow.remote_topic(flow.policy.heartbeats_topic())
    if topic not in target.catalogue.topics:
        return None
    found = [Heartbeat.parse(record.key, record.value) for record in await read_tail(target, topic, 0)]
    return _since(max([heartbeat.time_ms for heartbeat in found if heartbeat is not None], default=0))


async def _checkpoint_age(flow: Flow, target: Cluster) -> float | None:
    topic = flow.checkpoints_topic
    if topic not in target.catalogue.topics:
        return None
    records = await read_tail(target, topic, 0)
    return _since(max([item.timestamp for item in records if Checkpoint.parse(item.key, item.value)], default=0))
