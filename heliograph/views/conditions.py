"""Whether a flow is ready, as conditions with reason, message and since, as Kubernetes has them. Pure.

They are made from what the ledger on the target tells and from what the command asked itself. Ages are by the clock of
the mirror (`Facts.now_ms`), whose times the ledger holds.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from heliograph.config.files.parts import ConnectorState
from heliograph.config.settings import Flow
from heliograph.errors import HeliographError
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.loss_outcomes import FLOW_STOPPED, PARTITION_STOPPED
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.group_pass import PassKind
from heliograph.ledger.records.lease import Lease, LeaseState
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.trouble import WHOLE_TOPIC
from heliograph.text import some_of

MISSED = 3
"""Number of intervals that may go by without a pass over the groups or a heartbeat, plus the stall timeout."""
NAMED = 3
"""Maximum number of topics, partitions, losses or rights listed in a message."""


class ConditionKind(StrEnum):
    """The conditions that are true of a flow that is ready."""

    LEADING = "Leading"
    SOURCE_REACHABLE = "SourceReachable"
    TARGET_REACHABLE = "TargetReachable"
    PROGRESSING = "Progressing"
    GROUPS_SYNCED = "GroupsSynced"
    NO_LOSSES = "NoLosses"


class Status(StrEnum):
    TRUE = "True"
    FALSE = "False"
    UNKNOWN = "Unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowCondition:
    kind: ConditionKind
    status: Status
    reason: str
    """One word in CamelCase, for programs."""
    message: str
    """For people: what, and if it is not true also what to do."""
    since_ms: int = 0
    """0: since when is not known."""

    @property
    def is_true(self) -> bool:
        return self.status is Status.TRUE

    @property
    def since(self) -> str | None:
        """Return the time as Kubernetes writes it."""
        time = datetime.fromtimestamp(self.since_ms / 1000, UTC)
        return time.strftime("%Y-%m-%dT%H:%M:%SZ") if self.since_ms else None

    def row(self) -> dict[str, str | None]:
        return {
            "type": str(self.kind),
            "status": str(self.status),
            "reason": self.reason,
            "message": self.message,
            "since": self.since,
        }

    def __str__(self) -> str:
        since = f" since {self.since}" if self.since else ""
        return f"{self.kind} is {self.status}{since}: {self.reason}: {self.message}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """The facts about one flow whose target answers."""

    flow: Flow
    file: str
    """The configuration's, for commands that are advised."""
    ledger: Ledger
    now_ms: int
    """By the mirror's clock, as far as that is known."""
    is_led: bool
    """Somebody holds the lease."""
    is_leader_dead: bool = False
    """Whoever held it last ran on this host and is gone."""
    source_answers: bool | None = None
    """Whether the source answered the command; None: it was not asked."""
    heartbeat_interval_s: int | None = None
    """None: no heartbeats are to be written for the flow, or they may not be read."""
    heartbeat_ms: int = 0
    """Time of the last one; 0 if there is none."""

    @property
    def lease(self) -> Lease | None:
        return self.ledger.leadership.lease

    @property
    def stall_ms(self) -> int:
        return self.flow.stall_timeout_ms

    @property
    def led_since_ms(self) -> int:
        return self.lease.since_ms if self.lease is not None and self.is_led else 0

    def age_s(self, time_ms: int) -> str:
        return f"{max(0, self.now_ms - time_ms) / 1000:.0f} s"


def conditions_of(facts: Facts) -> tuple[FlowCondition, ...]:
    """All conditions of a flow whose target answers."""
    return (_leading(facts), _source(facts), _target(facts), _progressing(facts), _groups(facts), _losses(facts))


def conditions_without_target(flow: Flow, error: HeliographError | TimeoutError) -> tuple[FlowCondition, ...]:
    """The target does not answer: nothing else is known."""
    code = error.code if isinstance(error, HeliographError) else "NO_ANSWER"
    text = str(error) or f'"{flow.target}" did not answer within {flow.stall_timeout_ms / 1000:.0f} s'
    reason = "".join(word.capitalize() for word in code.split("_"))
    found = FlowCondition(kind=ConditionKind.TARGET_REACHABLE, status=Status.FALSE, reason=reason, message=text)
    unknown = f'"{flow.target}", which tells it, does not answer'
    return _with_unknown(found, reason="TargetUnreachable", message=unknown)


def conditions_before_start(flow: Flow, file: str) -> tuple[FlowCondition, ...]:
    """The target has nothing of the flow."""
    message = f'it has never run, or its ledger on "{flow.target}" is gone; {_start(file)}'
    found = FlowCondition(kind=ConditionKind.LEADING, status=Status.FALSE, reason="NeverRun", message=message)
    return _with_unknown(found, reason="NeverRun", message="the flow has never run")


def _with_unknown(found: FlowCondition, *, reason: str, message: str) -> tuple[FlowCondition, ...]:
    """All conditions, of which one is known."""
    return tuple(
        found if kind is found.kind else FlowCondition(kind=kind, status=Status.UNKNOWN, reason=reason, message=message)
        for kind in ConditionKind
    )


def worst(conditions: Iterable[FlowCondition]) -> list[FlowCondition]:
    """Those that keep the flow from being ready: what is false; what is not known only if nothing is false."""
    found = [condition for condition in conditions if not condition.is_true]
    return [condition for condition in found if condition.status is Status.FALSE] or found


def _start(file: str) -> str:
    return f'start "heliograph run {file}"'


# -- one by one


def _leading(facts: Facts) -> FlowCondition:
    lease, kind = facts.lease, ConditionKind.LEADING
    if lease is None:
        message = f"nobody has led it since leases are kept; {_start(facts.file)}"
        return FlowCondition(kind=kind, status=Status.FALSE, reason="NoLease", message=message)
    if facts.is_led:
        restarts = f", {lease.restarts} restarts" if lease.restarts else ""
        message = f"{lease.holder.name} leads{restarts}"
        return FlowCondition(
            kind=kind, status=Status.TRUE, reason="LeaseHeld", message=message, since_ms=lease.since_ms
        )
    if lease.state is LeaseState.RELEASED:
        reason, what, since_ms = "LeaseReleased", "stopped", lease.time_ms
    elif facts.is_leader_dead:
        reason, what, since_ms = "LeaderDead", "led, and its process is gone", lease.time_ms
    else:
        reason, what, since_ms = "LeaseExpired", "led, and does not renew its lease", lease.time_ms + lease.lease_ms
    message = f"nobody leads: {lease.holder.name} {what}, {facts.age_s(since_ms)} ago; {_start(facts.file)}"
    return FlowCondition(kind=kind, status=Status.FALSE, reason=reason, message=message, since_ms=since_ms)


def _source(facts: Facts) -> FlowCondition:
    contact, source, kind = facts.ledger.contact, facts.flow.source, ConditionKind.SOURCE_REACHABLE
    if contact is not None and facts.now_ms - contact.time_ms <= facts.stall_ms:
        message = f'"{source}" answered {facts.age_s(contact.time_ms)} ago'
        return FlowCondition(
            kind=kind, status=Status.TRUE, reason="Answering", message=message, since_ms=contact.since_ms
        )
    since_ms = contact.time_ms if contact is not None else 0
    silence = f"answered last {facts.age_s(since_ms)} ago" if contact is not None else "never answered"
    if facts.source_answers and not facts.is_led:
        message = f'nobody leads, so the mirror does not ask "{source}", which {silence}; it answers this command'
        return FlowCondition(kind=kind, status=Status.TRUE, reason="AnswersCommand", message=message)
    if facts.source_answers:
        reason, what = "UnreachableFromMirror", "it answers this command: see to the network between the mirror and it"
    else:
        reason, what = "NoAnswer", "it does not answer this command either: see to its brokers, or plan a failover"
    message = f'"{source}" {silence}; {what}'
    return FlowCondition(kind=kind, status=Status.FALSE, reason=reason, message=message, since_ms=since_ms)


def _target(facts: Facts) -> FlowCondition:
    """It has just answered; and a leader who holds his lease has been answered within the lease's time."""
    message = f'"{facts.flow.target}" answers'
    since_ms = facts.led_since_ms
    return FlowCondition(
        kind=ConditionKind.TARGET_REACHABLE, status=Status.TRUE, reason="Answering", message=message, since_ms=since_ms
    )


def _progressing(facts: Facts) -> FlowCondition:
    return next(_obstacles(facts)) if facts.is_led else next(_lasting_obstacles(facts), _not_led(facts))


def _not_led(facts: Facts) -> FlowCondition:
    message = f"nobody leads, so nothing is copied; {_start(facts.file)}"
    return FlowCondition(kind=ConditionKind.PROGRESSING, status=Status.UNKNOWN, reason="NobodyLeads", message=message)


def _obstacles(facts: Facts) -> Iterator[FlowCondition]:
    """Yield what keeps records from being copied, the worst first; then that nothing does."""
    yield from _lasting_obstacles(facts)
    still = stalled(facts)
    if still:
        first = next((trouble.text for where in still if (trouble := facts.ledger.troubles.get(where))), "")
        why = f" ({first})" if first else ""
        names = [f"{topic}-{partition}" for topic, partition in still]
        message = (
            f"{some_of(names, NAMED)}: records wait, and none was copied for "
            f"{facts.stall_ms / 1000:.0f} s{why}; see the mirror's log"
        )
        since_ms = min(facts.ledger.log_ends[where].still_ms for where in still)
        yield _false("Stalled", message, since_ms)
    yield FlowCondition(
        kind=ConditionKind.PROGRESSING, status=Status.TRUE, reason="Copying", message="no partition stands still"
    )


def _lasting_obstacles(facts: Facts) -> Iterator[FlowCondition]:
    """Yield what stays so until somebody acts, whether or not the flow is led."""
    ledger = facts.ledger
    stopped = sorted(
        (loss for loss in ledger.losses.values() if loss.is_open and loss.answer in (PARTITION_STOPPED, FLOW_STOPPED)),
        key=lambda loss: loss.key,
    )
    if stopped:
        message = (
            f"stopped: {some_of([loss.short() for loss in stopped], NAMED)}; mend the cause, then {_acknowledge(facts)}"
        )
        yield _false("PartitionsStopped", message, min(loss.last_ms for loss in stopped))
    if ledger.condition is not None and ledger.condition.is_blocked:
        message = (
            f'{some_of(ledger.condition.lacks, NAMED)}; "heliograph check {facts.file} --print-acls" lists all rights'
        )
        yield _false("RightsMissing", message, ledger.condition.time_ms)
    refused = sorted(topic for topic, partition in ledger.troubles if partition == WHOLE_TOPIC)
    if refused:
        first = ledger.troubles[refused[0], WHOLE_TOPIC].text
        yield _false("TopicsRefused", f"not copied: {some_of(refused, NAMED)}: {first}", 0)


def _false(reason: str, message: str, since_ms: int) -> FlowCondition:
    return FlowCondition(
        kind=ConditionKind.PROGRESSING, status=Status.FALSE, reason=reason, message=message, since_ms=since_ms
    )


def stalled(facts: Facts) -> list[PartitionName]:
    """Partitions with records to copy whose positions have stood still for too long.

    The ledger has a position once a flush interval, so that much more time is given.
    """
    ledger = facts.ledger
    latest_ms = facts.now_ms - facts.stall_ms - facts.flow.offset_flush_interval_ms
    return sorted(
        where for where, end in ledger.log_ends.items() if where in ledger.partitions and 0 < end.still_ms <= latest_ms
    )


def _groups(facts: Facts) -> FlowCondition:
    overdue = _overdue(facts)
    if overdue is not None:
        return overdue
    checkpoints, kind = facts.flow.checkpoints, ConditionKind.GROUPS_SYNCED
    if checkpoints is None or checkpoints.state is not ConnectorState.RUNNING:
        state = "not wished" if checkpoints is None else checkpoints.state
        message = f"groups are not carried over: that is {state}"
        return FlowCondition(kind=kind, status=Status.TRUE, reason="NotCarriedOver", message=message)
    last = facts.ledger.passes[PassKind.CHECKPOINTS]
    message = f"{last.groups} groups carried over {facts.age_s(last.time_ms)} ago"
    return FlowCondition(kind=kind, status=Status.TRUE, reason="InStep", message=message)


def _overdue(facts: Facts) -> FlowCondition | None:
    """The first pass or heartbeat that is missing."""
    checkpoints, kind = facts.flow.checkpoints, ConditionKind.GROUPS_SYNCED
    is_carried = checkpoints is not None and checkpoints.state is ConnectorState.RUNNING
    for pass_kind, what in _PASSES.items() if is_carried else ():
        last = facts.ledger.passes.get(pass_kind)
        if last is None:
            message = f"{what} not yet; if that lasts, see the mirror's log"
            since_ms = facts.led_since_ms
            return FlowCondition(kind=kind, status=Status.FALSE, reason="NoPassYet", message=message, since_ms=since_ms)
        if _is_overdue(facts, last.time_ms, last.every_ms):
            message = (
                f"{what} {facts.age_s(last.time_ms)} ago, and is to be every {last.every_ms / 1000:g} s; "
                "see the mirror's log"
            )
            return FlowCondition(
                kind=kind, status=Status.FALSE, reason="PassOverdue", message=message, since_ms=last.time_ms
            )
    interval_s = facts.heartbeat_interval_s
    if interval_s is not None and _is_overdue(facts, facts.heartbeat_ms, interval_s * 1000):
        when = f"{facts.age_s(facts.heartbeat_ms)} ago" if facts.heartbeat_ms else "never"
        message = (
            f"the last heartbeat was written {when}, and is to be every {interval_s} s; see the mirror's log, or set "
            f"{facts.flow.name}.emit.heartbeats.enabled = false"
        )
        reason = "HeartbeatOverdue" if facts.heartbeat_ms else "NoHeartbeat"
        return FlowCondition(
            kind=kind, status=Status.FALSE, reason=reason, message=message, since_ms=facts.heartbeat_ms
        )
    return None


_PASSES = {
    PassKind.COMMITS: "the commits of groups were read",
    PassKind.CHECKPOINTS: "groups were carried over",
}


def _is_overdue(facts: Facts, time_ms: int, every_ms: int) -> bool:
    return facts.now_ms - time_ms > MISSED * every_ms + facts.stall_ms


def _losses(facts: Facts) -> FlowCondition:
    kind = ConditionKind.NO_LOSSES
    found = sorted((loss for loss in facts.ledger.losses.values() if loss.blocks), key=lambda loss: loss.key)
    if not found:
        message, since_ms = "no loss is unacknowledged", _acknowledged_ms(facts.ledger.losses.values())
        return FlowCondition(kind=kind, status=Status.TRUE, reason="NoLosses", message=message, since_ms=since_ms)
    message = f"{some_of([loss.short() for loss in found], NAMED)}; take note with {_acknowledge(facts)}"
    since_ms = min(loss.first_ms for loss in found)
    return FlowCondition(
        kind=kind, status=Status.FALSE, reason="LossesUnacknowledged", message=message, since_ms=since_ms
    )


def _acknowledged_ms(losses: Iterable[Loss]) -> int:
    return max((loss.acknowledged_ms for loss in losses), default=0)


def _acknowledge(facts: Facts) -> str:
    return f"\"heliograph acknowledge {facts.file} --flow '{facts.flow.name}'\""
