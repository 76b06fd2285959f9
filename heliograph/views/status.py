"""How flows stand, by what is written on their targets: needs neither the source nor a running mirror.

Ages are judged by the mirror's clock, since its times are what the ledger holds. Where the lease says that the mirror's
clock and ours agree, to within the lease's time, ours is taken for it. Where it seems to have run out, or to be of the
future, the ledger is watched for as long as a renewal may take: who renews leads, and tells his time.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.config.files.parts import ConnectorState
from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError, NotAuthorized
from heliograph.flow import lease_holder
from heliograph.flow.leader_epochs import target_epochs
from heliograph.flow.throttling import QUIET_S, shown
from heliograph.kafka.admin.topics import LATEST, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import read_tail
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.copy_names import maybe_remote
from heliograph.ledger.exposure import Exposure, exposure_of
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat
from heliograph.ledger.process_identity import is_gone, this_process
from heliograph.ledger.records.group_pass import GroupPass, PassKind
from heliograph.ledger.records.lease import Lease, LeaseState
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.translation import neighbours_in
from heliograph.names.policies import HEARTBEATS
from heliograph.views.conditions import (
    Facts,
    FlowCondition,
    conditions_before_start,
    conditions_of,
    conditions_without_target,
    worst,
)
from heliograph.views.rows import Row

STANDBY_S = 3 * lease_holder.STANDBY_S
"""One who has not said for so long that he waits does not."""
WATCH_S = 6.0
"""A lease that seems to have run out is watched for a renewal: for its own time, and not longer than this."""
_LOOK_S = 0.25
SOURCE_S = 5.0
"""A source that the mirror has not heard of lately, and that does not answer us within this time, is unreachable."""
HEARTBEATS_READ = 2_000
"""Offsets of the heartbeats topic among which the last heartbeat of a flow is looked for: all pairs share it."""
DISABLED = "disabled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Leader:
    """The process that leads a flow, or led it last, by its own clock."""

    host: str
    pid: int
    since_ms: int
    until_ms: int
    """When the lease runs out if it is not renewed, or when it ran out or was given back."""
    now_ms: int

    @classmethod
    def of(cls, lease: Lease, *, now_ms: int) -> Leader:
        is_over = lease.state is LeaseState.RELEASED
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
    """The leader's restarts by `auto.restart`."""
    lacks: tuple[str, ...] = ()
    failing: tuple[str, ...] = ()
    """What the leader does beside the copying and did not succeed with when it last said so."""
    throttled: tuple[str, ...] = ()
    """By which cluster's quota, or by the flow's own limit, at the moment."""
    losses: tuple[Loss, ...] = ()
    """Those that nobody has acknowledged."""
    commits_read: GroupPass | None = None
    """The last time that the groups' commits were read, and how often they are."""
    commits_read_s: float | None = None
    conditions: tuple[FlowCondition, ...] = ()
    """None of a flow that is not to run."""
    problem: str = ""
    """Why nothing is known of a flow that is not to run; of others a condition says it."""

    @property
    def is_to_run(self) -> bool:
        return self.state == ConnectorState.RUNNING

    @property
    def is_ready(self) -> bool:
        return bool(self.conditions) and all(condition.is_true for condition in self.conditions)

    @property
    def faults(self) -> list[FlowCondition]:
        """The conditions that keep the flow from being ready."""
        return worst(self.conditions)

    @property
    def rank(self) -> tuple[bool, bool, int]:
        """The worst first: flows that are not ready, those that are, those that are not to run."""
        return not self.is_to_run, self.is_ready, -len(self.faults)

    def row(self) -> dict[str, str | int | float | None]:
        exposure = self.exposure
        return {
            "flow": self.flow,
            "state": self.state,
            "ready": ("yes" if self.is_ready else "no") if self.is_to_run else None,
            "reason": ", ".join(dict.fromkeys(condition.reason for condition in self.faults)) or None,
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
            "commits read": self._reading(),
            "trouble": "; ".join([*self.lacks, *self.failing, *self.throttled, *(loss.short() for loss in self.losses)])
            or self.problem
            or None,
        }

    def _reading(self) -> str | None:
        if self.commits_read is None:
            return None
        return f"{_ago(self.commits_read_s)}, every {self.commits_read.every_ms / 1000:.3g} s"

    def full_row(self) -> Row:
        """Return the status for programs, with every condition and every loss in full."""
        conditions = [condition.row() for condition in self.conditions]
        return {**self.row(), "conditions": conditions, "losses": [loss.row() for loss in self.losses]}


def _ago(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:.0f} s ago"


async def read_status(settings: Settings) -> list[FlowStatus]:
    """All flows of the file, disabled ones too."""
    return list(await asyncio.gather(*(_flow_status(flow, settings) for flow in settings.flows)))


async def _flow_status(flow: Flow, settings: Settings) -> FlowStatus:
    if not flow.enabled:
        return FlowStatus(flow=flow.name, state=DISABLED)
    cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{flow.name}|status")
    try:
        await asyncio.wait_for(cluster.refresh(), flow.stall_timeout_ms / 1000)
        ledger = await store.find_ledger(cluster, flow)
        if ledger is None:
            return _unread(flow, conditions_before_start(flow, settings.file), "it has not run yet")
        return await _status(flow, settings, cluster, ledger)
    except (HeliographError, TimeoutError) as error:
        conditions = conditions_without_target(flow, error)
        return _unread(flow, conditions, worst(conditions)[0].message)
    finally:
        cluster.close()


def _unread(flow: Flow, conditions: tuple[FlowCondition, ...], problem: str) -> FlowStatus:
    """Return the status of a flow that the target tells nothing of."""
    if flow.is_running:
        return FlowStatus(flow=flow.name, state=flow.state, conditions=conditions)
    return FlowStatus(flow=flow.name, state=flow.state, problem=problem)


async def _status(flow: Flow, settings: Settings, target: Cluster, ledger: Ledger) -> FlowStatus:
    entries, condition = ledger.entries, ledger.condition
    losses = sorted((loss for loss in ledger.losses.values() if loss.is_open), key=lambda loss: loss.key)
    alone = entries.keys() - neighbours_in(ledger.entries).keys()  # what shares a log cannot be told by its end
    names = {
        TopicPartition(remote, index): (topic, index)
        for topic, index in alone
        if (remote := maybe_remote(flow, topic)) is not None
    }
    await target.heed(target_epochs(entries, flow))
    answers = await list_offsets(target, names, LATEST)
    ends = {names[where]: answer.offset for where, answer in answers.items() if not answer.error_code}
    facts = await _facts(flow, settings, target, ledger)
    now_ms, lease = facts.now_ms, facts.lease
    commits_read = ledger.passes.get(PassKind.COMMITS)
    written = max([entry.time_ms for entry in entries.values()], default=0)
    return FlowStatus(
        flow=flow.name,
        state=flow.state,
        partitions=len(entries),
        records_behind=sum(max(0, entry.source_end - entry.source_offset) for entry in entries.values()),
        last_written_s=_since(written, now_ms),
        last_contact_s=_since(ledger.contact_ms, now_ms),
        heartbeat_s=_since(await _heartbeat_from_source(flow, target), now_ms),
        checkpoint_s=_since(await _last_checkpoint(flow, target), now_ms),
        exposure=exposure_of(ledger, ends),
        leader=Leader.of(lease, now_ms=now_ms) if lease is not None else None,
        restarts=lease.restarts if lease is not None else 0,
        standbys=sum(now_ms - standby.time_ms < STANDBY_S * 1000 for standby in ledger.standbys.values()),
        lacks=condition.lacks if condition else (),
        failing=condition.failing if condition else (),
        throttled=_throttled(ledger, now_ms),
        losses=tuple(losses),
        commits_read=commits_read,
        commits_read_s=_since(commits_read.time_ms, now_ms) if commits_read is not None else None,
        conditions=conditions_of(facts) if flow.is_running else (),
    )


def _throttled(ledger: Ledger, now_ms: int) -> tuple[str, ...]:
    """Clients tell it every few seconds while it lasts."""
    fresh = [item for item in ledger.throttles.values() if now_ms - item.time_ms < QUIET_S * 1000]
    return tuple(map(shown, sorted({item.cluster for item in fresh})))


def _since(time_ms: int, now_ms: int) -> float | None:
    return max(0, now_ms - time_ms) / 1000 if time_ms else None


async def _heartbeat_from_source(flow: Flow, target: Cluster) -> int:
    """Of what the source's heartbeats topic brought over: it proves that records come through."""
    topic = flow.remote_topic(flow.policy.heartbeats_topic())
    if topic not in target.catalogue.topics:
        return 0
    found = [Heartbeat.parse(record.key, record.value) for record in await read_tail(target, topic, 0)]
    return max([heartbeat.time_ms for heartbeat in found if heartbeat is not None], default=0)


async def _last_checkpoint(flow: Flow, target: Cluster) -> int:
    topic = flow.checkpoints_topic
    if topic not in target.catalogue.topics:
        return 0
    records = await read_tail(target, topic, 0)
    return max([item.timestamp for item in records if Checkpoint.parse(item.key, item.value)], default=0)


# -- what conditions are made from


class _Lead(NamedTuple):
    is_held: bool
    is_leader_dead: bool
    now_ms: int
    """By the leader's clock, as far as that is known."""


async def _facts(flow: Flow, settings: Settings, target: Cluster, ledger: Ledger) -> Facts:
    lead = await _look_at_lease(target, ledger)
    is_silent = lead.now_ms - ledger.contact_ms > flow.stall_timeout_ms
    interval_s, heartbeat_ms = await _own_heartbeat(flow, settings, target)
    return Facts(
        flow=flow,
        file=settings.file,
        ledger=ledger,
        now_ms=lead.now_ms,
        is_led=lead.is_held,
        is_leader_dead=lead.is_leader_dead,
        source_answers=await _source_answers(flow, settings) if is_silent and flow.is_running else None,
        heartbeat_interval_s=interval_s,
        heartbeat_ms=heartbeat_ms,
    )


async def _look_at_lease(target: Cluster, ledger: Ledger) -> _Lead:
    lease, now_ms = ledger.leadership.lease, wall_ms()
    if lease is None or lease.state is LeaseState.RELEASED:
        return _Lead(False, False, now_ms)
    if is_gone(lease.holder, this_process()):
        return _Lead(False, True, now_ms)
    if abs(now_ms - lease.time_ms) < lease.lease_ms:
        return _Lead(True, False, now_ms)
    renewed = await _renewed(target, ledger, lease)
    return _Lead(renewed is not None, False, renewed.time_ms if renewed is not None else wall_ms())


async def _renewed(target: Cluster, ledger: Ledger, lease: Lease) -> Lease | None:
    """The next record of the lease; None if none comes in time, or if it is given back."""
    clock = asyncio.get_running_loop().time
    give_up = clock() + min(lease.lease_ms / 1000, WATCH_S)
    while ledger.leadership.lease is lease and clock() < give_up:
        await asyncio.sleep(_LOOK_S)
        await store.read_on(target, ledger.topic, ledger)
    found = ledger.leadership.lease
    return found if found is not lease and found is not None and found.state is not LeaseState.RELEASED else None


async def _source_answers(flow: Flow, settings: Settings) -> bool:
    cluster = cluster_of(settings, flow, Role.SOURCE_ADMIN, client_id=f"{flow.name}|status")
    try:
        await asyncio.wait_for(cluster.refresh([]), SOURCE_S)
    except (HeliographError, TimeoutError):
        return False
    finally:
        cluster.close()
    return True


async def _own_heartbeat(flow: Flow, settings: Settings, target: Cluster) -> tuple[int | None, int]:
    """How often a heartbeat is to be written for the flow, None if never, and when the last one was."""
    wanted = settings.heartbeat_pairs().get((flow.source, flow.target))
    if wanted is None or wanted.state is not ConnectorState.RUNNING:
        return None, 0
    if HEARTBEATS not in target.catalogue.topics:
        return wanted.interval_s, 0
    try:
        records = await read_tail(target, HEARTBEATS, 0, offsets=HEARTBEATS_READ)
    except NotAuthorized:
        return None, 0
    found = [Heartbeat.parse(record.key, record.value) for record in records]
    mine = [beat.time_ms for beat in found if beat and (beat.source, beat.target) == (flow.source, flow.target)]
    return wanted.interval_s, max(mine, default=0)
