"""When a flow is ready, and if it is not why: each reason of each condition, with its remedy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.config.settings import Flow
from heliograph.errors import AuthenticationFailed, Unreachable
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.loss_outcomes import PARTITION_STOPPED
from heliograph.ledger.records.condition import Condition
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.group_pass import GroupPass, PassKind
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.log_ends import LogEnd
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.trouble import WHOLE_TOPIC, Trouble
from heliograph.views.conditions import (
    ConditionKind,
    Facts,
    FlowCondition,
    Status,
    conditions_before_start,
    conditions_of,
    conditions_without_target,
    worst,
)
from tests.unit.control.test_checkpoints import ledger as one_partition
from tests.unit.ledger.test_formats import LOSS

NOW = 1_700_000_000_000
STALL = 30_000
FILE = "mm2.properties"


def flow_of(more: str = "") -> Flow:
    base = "clusters = a, b\na.bootstrap.servers = x:1\nb.bootstrap.servers = y:1\na->b.enabled = true\n"
    return parse_settings(base + more).flows[0]


def lease(**more: Any) -> Lease:
    holder = Process(owner="x", host="h1", pid=77)
    fields: dict[str, Any] = {"state": LeaseState.HELD, "since_ms": NOW - 900_000, "time_ms": NOW - 1000}
    return Lease(holder=holder, term=3, lease_ms=6000, **fields | more)


def a_ledger() -> Ledger:
    """Of a flow with which all is well."""
    ledger = one_partition(end=10, since_ms=0)
    ledger.contact = Contact(time_ms=NOW - 1500, since_ms=NOW - 800_000)
    ledger.leadership.lease = lease()
    for kind, every_ms in ((PassKind.COMMITS, 1000), (PassKind.CHECKPOINTS, 5000)):
        ledger.passes[kind] = GroupPass(kind=kind, time_ms=NOW - 2000, every_ms=every_ms, groups=4)
    return ledger


def facts(change: Callable[[Ledger], None] = lambda _: None, **more: Any) -> Facts:
    ledger = a_ledger()
    change(ledger)
    known: dict[str, Any] = {"flow": flow_of(), "is_led": True, "heartbeat_interval_s": 1, "heartbeat_ms": NOW - 500}
    return Facts(file=FILE, ledger=ledger, now_ms=NOW, **known | more)


def the(kind: ConditionKind, known: Facts) -> FlowCondition:
    [found] = [condition for condition in conditions_of(known) if condition.kind is kind]
    return found


def seen(kind: ConditionKind, known: Facts) -> tuple[Status, str, int]:
    found = the(kind, known)
    return found.status, found.reason, found.since_ms


def test_a_flow_with_which_all_is_well_is_ready() -> None:
    found = conditions_of(facts())
    assert [condition.kind for condition in found] == list(ConditionKind)
    assert all(condition.is_true for condition in found)
    assert [condition.reason for condition in found] == [
        "LeaseHeld", "Answering", "Answering", "Copying", "InStep", "NoLosses",
    ]  # fmt: skip
    assert worst(found) == []
    assert found[0].row() == {
        "type": "Leading",
        "status": "True",
        "reason": "LeaseHeld",
        "message": "host h1 (pid 77) leads",
        "since": "2023-11-14T21:58:20Z",
    }


# -- Leading


def test_nobody_leads_when_the_lease_ran_out_was_given_back_or_its_holder_is_dead() -> None:
    old = NOW - 45_000

    def expired(ledger: Ledger) -> None:
        ledger.leadership.lease = lease(time_ms=old)

    def released(ledger: Ledger) -> None:
        ledger.leadership.lease = lease(time_ms=old, state=LeaseState.RELEASED)

    def nobody(ledger: Ledger) -> None:
        ledger.leadership.lease = None

    run = 'start "heliograph run mm2.properties"'
    for change, more, reason, since_ms in (
        (expired, {}, "LeaseExpired", old + 6000),
        (released, {}, "LeaseReleased", old),
        (expired, {"is_leader_dead": True}, "LeaderDead", old),
        (nobody, {}, "NoLease", 0),
    ):
        known = facts(change, is_led=False, **more)
        assert seen(ConditionKind.LEADING, known) == (Status.FALSE, reason, since_ms)
        assert the(ConditionKind.LEADING, known).message.endswith(run)
    assert (
        "host h1 (pid 77) led, and does not renew its lease, 39 s ago"
        in the(ConditionKind.LEADING, facts(expired, is_led=False)).message
    )


def test_restarts_are_told_with_the_leader() -> None:
    def restarted(ledger: Ledger) -> None:
        ledger.leadership.lease = lease(restarts=3)

    assert the(ConditionKind.LEADING, facts(restarted)).message == "host h1 (pid 77) leads, 3 restarts"


def test_a_flow_that_never_ran_is_not_led_and_the_rest_is_unknown() -> None:
    found = conditions_before_start(flow_of(), FILE)
    assert [condition.kind for condition in found] == list(ConditionKind)
    assert (found[0].status, found[0].reason) == (Status.FALSE, "NeverRun")
    assert {condition.status for condition in found[1:]} == {Status.UNKNOWN}
    assert worst(found) == [found[0]]


# -- SourceReachable


@pytest.mark.parametrize(
    ("age_ms", "is_led", "answers", "expected"),
    [
        (STALL, True, None, (Status.TRUE, "Answering")),
        (STALL + 1, True, False, (Status.FALSE, "NoAnswer")),
        (STALL + 1, True, True, (Status.FALSE, "UnreachableFromMirror")),
        (STALL + 1, False, True, (Status.TRUE, "AnswersCommand")),
        (STALL + 1, False, False, (Status.FALSE, "NoAnswer")),
    ],
)
def test_a_source_is_reachable_if_it_answered_within_the_stall_timeout(
    age_ms: int, is_led: bool, answers: bool | None, expected: tuple[Status, str]
) -> None:
    def silent(ledger: Ledger) -> None:
        ledger.contact = Contact(time_ms=NOW - age_ms, since_ms=NOW - 800_000)

    found = the(ConditionKind.SOURCE_REACHABLE, facts(silent, is_led=is_led, source_answers=answers))
    assert (found.status, found.reason) == expected
    if expected[0] is Status.FALSE:
        assert found.since_ms == NOW - age_ms
        assert "see to" in found.message
    elif expected[1] == "Answering":
        assert found.since_ms == NOW - 800_000


def test_a_source_that_never_answered_is_not_reachable() -> None:
    def never(ledger: Ledger) -> None:
        ledger.contact = None

    found = the(ConditionKind.SOURCE_REACHABLE, facts(never, source_answers=False))
    assert (found.status, found.reason, found.since) == (Status.FALSE, "NoAnswer", None)
    assert '"a" never answered' in found.message


def test_the_stall_timeout_is_the_flows() -> None:
    def silent(ledger: Ledger) -> None:
        ledger.contact = Contact(time_ms=NOW - 40_000)

    patient = facts(silent, flow=flow_of("a->b.stall.timeout.ms = 60000\n"))
    assert the(ConditionKind.SOURCE_REACHABLE, patient).is_true
    assert not the(ConditionKind.SOURCE_REACHABLE, facts(silent, source_answers=False)).is_true


# -- TargetReachable


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (Unreachable("no connection", where='"b"'), "Unreachable"),
        (AuthenticationFailed("no", where='"b"'), "AuthenticationFailed"),
        (TimeoutError(), "NoAnswer"),
    ],
)
def test_a_target_that_does_not_answer_is_all_that_is_said(error: Any, reason: str) -> None:
    found = conditions_without_target(flow_of(), error)
    assert [condition.kind for condition in found] == list(ConditionKind)
    [fault] = worst(found)
    assert (fault.kind, fault.status, fault.reason) == (ConditionKind.TARGET_REACHABLE, Status.FALSE, reason)
    assert "\n" not in str(fault)
    assert {condition.reason for condition in found} == {reason, "TargetUnreachable"}


def test_a_target_is_known_to_answer_for_as_long_as_its_leader_holds_the_lease() -> None:
    assert seen(ConditionKind.TARGET_REACHABLE, facts()) == (Status.TRUE, "Answering", NOW - 900_000)
    assert seen(ConditionKind.TARGET_REACHABLE, facts(is_led=False)) == (Status.TRUE, "Answering", 0)


# -- Progressing


def test_a_stopped_partition_a_refused_topic_and_a_missing_right_are_no_progress() -> None:
    stopped = replace(LOSS, answer=PARTITION_STOPPED, acknowledged_ms=0)

    def stop(ledger: Ledger) -> None:
        ledger.losses[stopped.key] = stopped

    def refuse(ledger: Ledger) -> None:
        text = "BROKER_REFUSED: a policy; ask for it"
        ledger.take_troubles([Trouble(topic="t", partition=WHOLE_TOPIC, code="BROKER_REFUSED", text=text, final=False)])

    def forbid(ledger: Ledger) -> None:
        ledger.condition = Condition(lacks=("User:m lacks Write",), is_blocked=True, time_ms=NOW - 9)

    for change, reason, since_ms, remedy in (
        (stop, "PartitionsStopped", stopped.last_ms, "heliograph acknowledge mm2.properties --flow 'a->b'"),
        (refuse, "TopicsRefused", 0, "ask for it"),
        (forbid, "RightsMissing", NOW - 9, "heliograph check mm2.properties --print-acls"),
    ):
        for is_led in (True, False):
            known = facts(change, is_led=is_led)
            assert seen(ConditionKind.PROGRESSING, known) == (Status.FALSE, reason, since_ms)
            assert remedy in the(ConditionKind.PROGRESSING, known).message


def test_rights_that_are_missing_and_stop_nothing_are_no_fault() -> None:
    def forbid(ledger: Ledger) -> None:
        ledger.condition = Condition(lacks=("x",), is_blocked=False, time_ms=NOW)

    assert the(ConditionKind.PROGRESSING, facts(forbid)).is_true


@pytest.mark.parametrize(
    ("still_ms", "status"),
    [(0, Status.TRUE), (NOW - STALL - 1000, Status.FALSE), (NOW - STALL - 999, Status.TRUE)],
    ids=["moves", "too long", "not yet"],
)
def test_records_that_wait_without_progress_are_a_stall(still_ms: int, status: Status) -> None:
    """A flush interval more than `stall.timeout.ms`: positions are known that often."""

    def wait(ledger: Ledger) -> None:
        ledger.log_ends["t", 0] = LogEnd(15, NOW - 90_000, still_ms)
        text = "no leader"
        ledger.take_troubles([Trouble(topic="t", partition=0, code="X", text=text, final=False)])

    found = the(ConditionKind.PROGRESSING, facts(wait))
    assert found.status is status
    if status is Status.FALSE:
        assert (found.reason, found.since_ms) == ("Stalled", still_ms)
        assert found.message.startswith("t-0: records wait, and none was copied for 30 s (no leader)")


def test_without_a_leader_progress_is_unknown() -> None:
    found = the(ConditionKind.PROGRESSING, facts(is_led=False))
    assert (found.status, found.reason) == (Status.UNKNOWN, "NobodyLeads")
    assert "heliograph run mm2.properties" in found.message


# -- GroupsSynced


@pytest.mark.parametrize("kind", list(PassKind))
def test_groups_are_in_step_if_the_last_pass_is_younger_than_three_intervals_and_a_stall(kind: PassKind) -> None:
    every_ms = 5000
    for age_ms, is_true in ((3 * every_ms + STALL, True), (3 * every_ms + STALL + 1, False)):

        def late(ledger: Ledger, time_ms: int = NOW - age_ms) -> None:
            ledger.passes[kind] = GroupPass(kind=kind, time_ms=time_ms, every_ms=every_ms, groups=0)

        found = the(ConditionKind.GROUPS_SYNCED, facts(late))
        assert found.is_true is is_true
        if not is_true:
            assert (found.reason, found.since_ms) == ("PassOverdue", NOW - age_ms)
            assert "every 5 s" in found.message
            assert "see the mirror's log" in found.message


def test_before_the_first_pass_groups_are_not_in_step() -> None:
    def first(ledger: Ledger) -> None:
        del ledger.passes[PassKind.CHECKPOINTS]

    assert seen(ConditionKind.GROUPS_SYNCED, facts(first)) == (Status.FALSE, "NoPassYet", NOW - 900_000)


def test_heartbeats_are_judged_by_their_own_interval() -> None:
    for interval_s, age_ms, reason in (
        (1, 3000 + STALL, "InStep"),
        (1, 3001 + STALL, "HeartbeatOverdue"),
        (60, 180_000 + STALL, "InStep"),
        (None, 10**9, "InStep"),
    ):
        known = facts(heartbeat_interval_s=interval_s, heartbeat_ms=NOW - age_ms)
        assert the(ConditionKind.GROUPS_SYNCED, known).reason == reason
    found = the(ConditionKind.GROUPS_SYNCED, facts(heartbeat_ms=0))
    assert (found.reason, found.since) == ("NoHeartbeat", None)
    assert "a->b.emit.heartbeats.enabled = false" in found.message


@pytest.mark.parametrize("more", ["a->b.emit.checkpoints.enabled = false\n", "a->b.checkpoints.state = paused\n"])
def test_groups_that_are_not_carried_over_are_no_fault(more: str) -> None:
    def none(ledger: Ledger) -> None:
        ledger.passes.clear()

    assert seen(ConditionKind.GROUPS_SYNCED, facts(none, flow=flow_of(more))) == (Status.TRUE, "NotCarriedOver", 0)


# -- NoLosses


def test_a_loss_counts_until_it_is_acknowledged() -> None:
    def lose(*losses: Loss) -> Callable[[Ledger], None]:
        return lambda ledger: ledger.losses.update({loss.key: loss for loss in losses})

    opened = replace(LOSS, acknowledged_ms=0)
    known = facts(lose(*(replace(opened, partition=number) for number in range(5))))
    assert seen(ConditionKind.NO_LOSSES, known) == (Status.FALSE, "LossesUnacknowledged", LOSS.first_ms)
    message = the(ConditionKind.NO_LOSSES, known).message
    assert "and 2 more; take note with" in message
    assert "\"heliograph acknowledge mm2.properties --flow 'a->b'\"" in message
    assert seen(ConditionKind.NO_LOSSES, facts(lose(replace(opened, acknowledged_ms=NOW)))) == (
        Status.TRUE,
        "NoLosses",
        NOW,
    )
    assert the(ConditionKind.NO_LOSSES, facts(lose(replace(opened, code="FOREIGN_WRITES")))).is_true
