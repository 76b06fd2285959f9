"""The rules beside the copying: which checkpoints are news, which offsets are written, what was seen of the source."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.checkpoints import GroupPosition, last_of, plan_checkpoints
from heliograph.control.source_watch import LogEndSync, plan_log_ends
from heliograph.errors import Unreachable
from heliograph.kafka.admin.commits import Commit
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.exposure import Exposure, exposure_of
from heliograph.ledger.group_commits import plan_sync
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.ledger.mm2.offset_syncs import SyncStore
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.entry import Entry, encode_entry, encode_entry_key
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.log_ends import LogEnd
from heliograph.loop import Loop
from heliograph.recovery.translate import Move, as_reset_file
from tests.unit.helpers.flows import flow_between

WHERE = TopicPartition("A.t", 0)
KEY = ("g", WHERE)


def checkpoint(upstream: int, downstream: int, metadata: str = "") -> Checkpoint:
    return Checkpoint(group="g", topic="A.t", partition=0, upstream=upstream, downstream=downstream, metadata=metadata)


def news(upstream: int, downstream: int, before: Checkpoint | None, *, end: int = 10_000) -> list[Checkpoint]:
    last = {} if before is None else last_of([before])
    return plan_checkpoints({KEY: GroupPosition(upstream, downstream, "", end)}, last)


# -- checkpoints


def test_a_first_checkpoint_is_news() -> None:
    assert news(5, 105, None) == [checkpoint(5, 105)]


def test_a_checkpoint_goes_forward_only() -> None:
    assert news(6, 106, checkpoint(5, 105)) == [checkpoint(6, 106)]
    assert news(5, 105, checkpoint(5, 105)) == []
    assert news(6, 104, checkpoint(5, 105)) == []


def test_a_checkpoint_goes_back_when_the_group_did() -> None:
    assert news(4, 104, checkpoint(5, 105)) == [checkpoint(4, 104)]


def test_a_checkpoint_past_what_is_mirrored_is_taken_back() -> None:
    assert news(5, 10, checkpoint(5, 105), end=10) == [checkpoint(5, 10)]


def test_a_checkpoint_that_the_ledger_knows_to_lead_too_far_is_taken_back() -> None:
    """The target's topic was made anew, and filled again from a source that had lost its first 300 records."""
    refilled = GroupPosition(500, 200, "", 700, is_exact=True)
    assert plan_checkpoints({KEY: refilled}, last_of([checkpoint(500, 500)])) == [checkpoint(500, 200)]
    assert plan_checkpoints({KEY: refilled}, last_of([checkpoint(500, 200)])) == []


def test_after_a_restart_a_worse_translation_by_syncs_is_withheld() -> None:
    """The vector of MM2's own test: syncs at 175, 275, 375, 475, the last checkpoint at 201."""
    store = SyncStore()
    for offset in (175, 275, 375, 475):
        store.insert(offset, offset)
    last = checkpoint(200, 201)
    found = {offset: store.translate(offset) for offset in (250, 370, 400)}
    assert found == {250: 176, 370: 176, 400: 376}
    assert news(250, 176, last) == []
    assert news(370, 176, last) == []
    assert news(400, 376, last) == [checkpoint(400, 376)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=30))
def test_checkpoints_are_monotonic_unless_the_group_goes_back(steps: list[tuple[int, int]]) -> None:
    last: dict[tuple[str, TopicPartition], Checkpoint] = {}
    for upstream, downstream in steps:
        before = last.get(KEY)
        for item in plan_checkpoints({KEY: GroupPosition(upstream, downstream, "", 100)}, last):
            assert before is None or item.downstream > before.downstream or item.upstream < before.upstream
            last |= last_of([item])


# -- group sync


def test_offsets_are_written_forward_only() -> None:
    there = {"g": {WHERE: Commit(7)}}
    for offset, is_written in ((6, False), (7, False), (8, True)):
        plan = plan_sync({"g": {WHERE: Commit(offset, "m")}}, states={"g": "Empty"}, there=there)
        assert plan == ({"g": {WHERE: Commit(offset, "m")}} if is_written else {})


@pytest.mark.parametrize("state", ["Stable", "PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"])
def test_a_group_that_lives_on_the_target_is_not_touched(state: str) -> None:
    assert plan_sync({"g": {WHERE: Commit(8)}}, states={"g": state}, there={}) == {}


def test_a_group_or_partition_that_the_target_does_not_know_is_written_even_at_offset_0() -> None:
    assert plan_sync({"g": {WHERE: Commit(0)}}, states={}, there={}) == {"g": {WHERE: Commit(0)}}
    assert plan_sync({"g": {WHERE: Commit(0)}}, states={"g": "Empty"}, there={"g": {}}) == {"g": {WHERE: Commit(0)}}


# -- the source, last seen


@pytest.mark.parametrize(
    ("end", "position", "known", "wanted"),
    [
        (10, 10, None, LogEnd(10, 0)),
        (10, 7, None, LogEnd(10, 500)),
        (10, 7, LogEnd(7, 0), LogEnd(10, 500)),
        (10, 7, LogEnd(9, 300), LogEnd(10, 300)),
        (10, 9, LogEnd(8, 300), LogEnd(10, 500)),
        (-1, 7, LogEnd(9, 300), LogEnd(9, 300)),
        (-1, 7, None, LogEnd(-1, 0)),
    ],
    ids=["reached", "new", "came since", "still behind", "moved on", "no answer", "never an answer"],
)
def test_a_log_end_says_since_when_it_is_not_reached(
    end: int, position: int, known: LogEnd | None, wanted: LogEnd
) -> None:
    where = ("t", 0)
    ends = plan_log_ends(
        {where: end}, positions={where: position}, known={where: known} if known else {}, last_look_ms=500
    )
    assert ends == {where: wanted}


@pytest.mark.parametrize(
    ("end", "position", "position_then", "known", "still_ms"),
    [
        (10, 7, 7, LogEnd(9, 300), 500),
        (10, 7, 7, LogEnd(9, 300, 400), 400),
        (10, 8, 7, LogEnd(9, 300, 400), 0),
        (10, 7, 7, LogEnd(7, 0), 0),
        (10, 10, 10, LogEnd(10, 0), 0),
        (10, 7, None, LogEnd(9, 300, 400), 400),
        (10, 7, None, None, 0),
        (-1, 7, 7, LogEnd(9, 300, 400), 400),
    ],
    ids=["began", "goes on", "moves", "came since", "reached", "new leader", "first look", "no answer"],
)
def test_a_log_end_says_since_when_its_copy_stands_still(
    end: int, position: int, position_then: int | None, known: LogEnd | None, still_ms: int
) -> None:
    where = ("t", 0)
    ends = plan_log_ends(
        {where: end},
        positions={where: position},
        known={where: known} if known else {},
        last_look_ms=500,
        positions_then=None if position_then is None else {where: position_then},
    )
    assert ends[where].still_ms == still_ms


def test_a_contact_says_since_when_the_source_has_answered_without_a_stall() -> None:
    first = Contact.after(None, now_ms=100, stall_ms=50)
    assert first == Contact(time_ms=100, since_ms=100)
    assert Contact.after(first, now_ms=150, stall_ms=50) == Contact(time_ms=150, since_ms=100)
    assert Contact.after(first, now_ms=151, stall_ms=50) == Contact(time_ms=151, since_ms=151)
    assert Contact.after(Contact(time_ms=100), now_ms=120, stall_ms=50) == Contact(time_ms=120, since_ms=120)


def test_a_source_of_which_nothing_is_copied_is_asked_before_it_is_said_to_answer() -> None:
    async def test() -> None:
        async with flow_between({}) as world:
            await world.flow.opening.open()
            await world.flow.prepare()
            watch = LogEndSync(world.flow)
            await watch.sync()
            await store.read_on(world.flow.target, world.flow.ledger_topic, world.flow.ledger)
            answered = world.flow.ledger.contact
            assert answered is not None
            await world.source.brokers[1].stop()
            with pytest.raises(Unreachable):
                await watch.sync()
            await store.read_on(world.flow.target, world.flow.ledger_topic, world.flow.ledger)
            assert world.flow.ledger.contact == answered

    asyncio.run(test())


def ledger(*, end: int, since_ms: int) -> Ledger:
    entry = Entry(
        source_topic_id="0" * 32,
        target_topic_id="0" * 32,
        count=0,
        n=10,
        source_offset=10,
        target_offset=40,
        our_end=40,
        run_source=0,
        run_target=30,
        bytes_copied=1000,
        source_end=12,
        time_ms=1_000,
    )
    found = Ledger(group_id="g", contact=Contact(time_ms=9_000))
    found.partition(("t", 0)).entry = entry
    found.log_ends["t", 0] = LogEnd(end, since_ms)
    return found


def test_exposure_is_what_the_source_had_at_the_last_contact_and_the_target_has_not() -> None:
    assert exposure_of(ledger(end=15, since_ms=7_000), {("t", 0): 40}) == Exposure(records=5, bytes=500, seconds=2.0)


def test_what_was_copied_and_not_yet_written_down_is_not_exposed() -> None:
    assert exposure_of(ledger(end=15, since_ms=7_000), {("t", 0): 44}) == Exposure(records=1, bytes=100, seconds=2.0)
    assert exposure_of(ledger(end=15, since_ms=7_000), {("t", 0): 45}) == Exposure(records=0, bytes=0, seconds=0.0)


@pytest.mark.parametrize(
    ("topics", "exposed"),
    [((), Exposure(records=0, bytes=0, seconds=0.0)), (("t",), Exposure(records=5, bytes=500, seconds=2.0))],
    ids=["gone", "stopped, and there"],
)
def test_a_topic_that_is_not_mirrored_any_more_exposes_nothing(
    topics: tuple[str, ...], exposed: Exposure, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = ledger(end=15, since_ms=7_000)
    wanted = {topic: f"a.{topic}" for topic in topics}
    flow: Any = SimpleNamespace(
        ledger=known,
        topics=SimpleNamespace(names=SimpleNamespace(plan=lambda: SimpleNamespace(wanted=wanted))),
        target=None,
        ledger_topic="l",
        flow=SimpleNamespace(group_id="g"),
    )

    async def write_entries(
        _: object, __: str, group_id: str, entries: dict[tuple[str, int], Entry], ___: object
    ) -> None:
        for where, entry in entries.items():
            known.take(encode_entry_key(group_id, *where), encode_entry(entry))

    async def write_records(_: object, __: str, group_id: str, seen: list[LedgerRecord], *, now_ms: int) -> None:
        assert now_ms == 9_500
        for item in seen:
            known.take(*item.encode(group_id))

    monkeypatch.setattr(store, "write_entries", write_entries)
    monkeypatch.setattr(store, "write_records", write_records)
    asyncio.run(LogEndSync(flow)._forget_absent(9_500))
    assert exposure_of(known, {("t", 0): 40}) == exposed


# -- loops


def test_a_loop_tells_a_fault_once_and_that_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    outcomes = [Unreachable("x", where="a"), Unreachable("x", where="a"), None, None]

    async def step() -> None:
        if not outcomes:
            raise asyncio.CancelledError
        outcome = outcomes.pop(0)
        if outcome is not None:
            raise outcome

    loop = Loop("a->b", "job")
    with caplog.at_level(logging.INFO, "heliograph"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("heliograph.loop.MIN_PAUSE_S", 0.0)
        with pytest.raises(asyncio.CancelledError):
            asyncio.run(loop.repeat(step, interval_s=lambda: 0.0))
    assert loop.failures == 2
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "works again" in caplog.text


# -- translate


def move(group: str, topic: str, offset: int) -> Move:
    return Move(group=group, topic=topic, partition=1, offset=offset, metadata="", grade="exact", source_offset=5)


def test_the_reset_file_names_the_group_only_if_there_are_several() -> None:
    assert as_reset_file([move("g", "A.t", 7), move("g", "A.u", 8)]) == "A.t,1,7\nA.u,1,8\n"
    assert as_reset_file([move("g", "A.t", 7), move("h,i", "A.t", 8)]) == 'g,A.t,1,7\n"h,i",A.t,1,8\n'
