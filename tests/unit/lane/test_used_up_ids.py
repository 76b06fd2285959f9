"""A copy whose producer id has no count left goes on under a further one, and the others do not notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from heliograph.flow.flow import FlowDriver
from heliograph.kafka.batch import NewRecord, encode_batch, parse_header
from heliograph.lane import settler
from heliograph.lane.lane import Lane
from heliograph.lane.partition_copy import may_be_forgotten
from heliograph.ledger.model import Assignment, EpochTerms, FlowTerms
from heliograph.ledger.partition_remap import COUNTS_OF_AN_ID, ROWS_OF_A_TURN
from heliograph.ledger.records.entry import Entry, encode_entry, encode_entry_key
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster.partition import FakePartition
from tests.unit.helpers import lanes
from tests.unit.helpers.lanes import PRODUCER_ID, numbers, recent, run
from tests.unit.helpers.logs import ASSIGNMENT, ENTRY, new_records
from tests.unit.helpers.placed import GROUP, LEDGER, PositionsOnFakes, a_world, counts
from tests.unit.lane.test_refused_records import number_of, refuse_records

pytestmark = pytest.mark.usefixtures("own_worker")

LAST = COUNTS_OF_AN_ID - 1
FURTHER_ID = 5000
SKIP = "on.record.error = skip\n"


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "LATE_S", 0.05)


# -- the rule ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "turn", "epoch"), [(0, 0, 0), (LAST, 0, 32767), (LAST + 1, 1, 0), (LAST + 2, 1, 1), (3 * LAST + 3, 3, 0)]
)
def test_behind_the_last_epoch_of_an_id_comes_the_first_of_the_next(count: int, turn: int, epoch: int) -> None:
    entry = ENTRY.moved(count=count)
    assert (entry.turn, entry.producer_epoch) == (turn, epoch)


def test_what_comes_late_is_waited_for_where_no_later_epoch_shuts_it_out() -> None:
    fresh, now_ms = ENTRY.moved(newest_ms=999), 1000
    unfenced = [fresh.moved(count=LAST), fresh.moved(count=LAST, n=5), fresh.moved(count=LAST + 1)]
    fenced = [fresh, fresh.moved(count=LAST - 1, n=5), fresh.moved(count=LAST + 1, n=5), fresh.moved(count=LAST + 2)]
    assert [may_be_forgotten(entry, now_ms) for entry in unfenced + fenced] == [True] * 3 + [False] * 4


def test_a_copy_has_the_id_of_its_turn_and_knows_those_that_it_used_up() -> None:
    terms = lanes_terms(further_ids=((1, 11), (ROWS_OF_A_TURN, 20), (ROWS_OF_A_TURN + 1, 21), (2 * ROWS_OF_A_TURN, 30)))
    found = {
        (partition, turn): (terms.producer_id_of(item), terms.former_ids_of(item))
        for partition, turn in ((0, 0), (4, 0), (0, 1), (4, 1), (2, 2))
        for item in [assigned(partition, ENTRY.moved(count=turn * COUNTS_OF_AN_ID, modulo=3))]
    }
    first = PRODUCER_ID
    assert found == {(0, 0): (first, ()), (4, 0): (11, ()), (0, 1): (20, (first,)), (4, 1): (21, (11,))} | {
        (2, 2): (30, (first, 20))
    }


def lanes_terms(**fields: Any) -> FlowTerms:
    return lanes.LaneOnFakes().terms(duration_ms=1, **fields).flows[0]


def assigned(partition: int, entry: Entry) -> Assignment:
    item = ASSIGNMENT
    return Assignment(
        flow=item.flow, topic="t", partition=partition, target_topic="a.t", entry=entry, max_message_bytes=1 << 20
    )


# -- a flow --------------------------------------------------------------------------------


async def use_up(world: PositionsOnFakes, partition: int = 0) -> None:
    """The next leader finds the partition of "t" at the last count of its id."""
    async with world.leader() as flow:
        entry = flow.entries["t", partition].moved(count=LAST)
    key = encode_entry_key(GROUP, "t", partition)
    world.target.append(LEDGER, 0, [NewRecord(0, key, encode_entry(entry))])


async def copy_until(world: PositionsOnFakes, flow: FlowDriver, is_done: Callable[[], bool]) -> None:
    """An epoch of one lane."""
    terms = EpochTerms(owner="o", epoch_id=1, duration_ms=20_000, flows=(flow.assignments.terms(),))
    lane = Lane(0, flow.assignments.all(), terms)
    task = asyncio.ensure_future(lane.run())
    await world.target.wait_until(is_done)
    lane.end()
    await flow.epochs.take_rows(await task)


def producers(partition: FakePartition) -> list[tuple[int, int]]:
    """Id and epoch of its batches, each pair where it begins."""
    found = [(header.producer_id, header.producer_epoch) for header in map(parse_header, partition.batches)]
    return [pair for index, pair in enumerate(found) if not index or pair != found[index - 1]]


def has_given_back(world: PositionsOnFakes) -> bool:
    """Whether a lane has told that it gave a partition back."""
    records = world.target.partition(LEDGER, 0).records()
    words = (parse_ledger(GROUP, record.key, record.value) for record in records)
    return any(isinstance(word, Trouble) and word.final for word in words)


def rows(world: PositionsOnFakes) -> list[int]:
    """Those that have an id."""
    return sorted(world.ledger().producer_ids)


def test_a_copy_goes_on_under_a_further_id_and_every_record_arrives_once() -> None:
    async def test() -> None:
        async with a_world() as world:
            await use_up(world)
            refuse_records(world, lambda record: number_of(record) == 5, code=87, names_them=True)
            first, second = world.target.partition("a.t", 0), world.target.partition("a.t", 1)
            async with world.leader(SKIP) as flow:
                assert rows(world) == [0]
                await copy_until(world, flow, lambda: has_given_back(world) and second.end == 4)
                assert counts(flow) == {("t", 0): LAST + 1, ("t", 1): 0, ("u", 0): 0}
                assert rows(world) == [0, ROWS_OF_A_TURN]
                await copy_until(world, flow, lambda: first.end == 9)
                ids = flow.assignments.terms().producer_ids
            async with world.leader(SKIP) as flow:
                assert flow.assignments.terms().producer_ids == ids
                world.source.append("t", 0, new_records(10, 5))
                await copy_until(world, flow, lambda: first.end == 14)
                assert counts(flow)["t", 0] == LAST + 1
            assert [int(record.value or b"") for record in first.records()] == [*range(5), *range(6, 15)]
            assert producers(first) == [(ids[0], LAST), (ids[1], 0)]
            assert {pid for pid, _ in producers(second)} == {ids[0]}
            assert rows(world) == [0, ROWS_OF_A_TURN]
            ledger = world.ledger()
            translated = [ledger.translate(("t", 0), offset) for offset in (4, 5, 6, 14)]
            assert [found.offset for found in translated if found] == [4, 5, 5, 13]

    run(test())


def test_a_copy_that_goes_on_in_its_last_count_claims_nothing() -> None:
    async def test() -> None:
        async with a_world() as world:
            await use_up(world)
            async with world.leader() as flow:
                await copy_until(world, flow, lambda: world.target.partition("a.t", 0).end == 10)
                assert counts(flow)["t", 0] == LAST
            assert rows(world) == [0]

    run(test())


def test_copies_that_use_up_their_ids_one_after_the_other_share_the_further_one() -> None:
    async def test() -> None:
        async with a_world() as world:
            for partition in (0, 1):
                await use_up(world, partition)
                world.target.create("a.t", 2)  # made anew: all begin a new count
            async with world.leader() as flow:
                assert counts(flow) == {("t", 0): LAST + 2, ("t", 1): LAST + 1, ("u", 0): 0}
                used = {(item.target, flow.assignments.terms().producer_id_of(item)) for item in flow.assignments.all()}
                assert len(used) == 3
            assert rows(world) == [0, ROWS_OF_A_TURN]

    run(test())


# -- what comes late -----------------------------------------------------------------------


def used_up(world: lanes.LaneOnFakes, **fields: Any) -> dict[str, Any]:
    """A lane that begins under the further id, behind five records."""
    entry = world.entry(count=LAST + 1, source_offset=5, target_offset=5)
    return {
        "assignments": world.assignments(entry, **fields),
        "further_ids": ((ROWS_OF_A_TURN, FURTHER_ID),),
    }


def send_before(world: lanes.LaneOnFakes, start: int, count: int) -> None:
    batch = encode_batch(recent(start, count), producer_id=PRODUCER_ID, producer_epoch=LAST, base_sequence=start)
    assert world.target.partition("a.t", 0).produce(bytes(batch)).error_code == 0


def test_a_lane_copies_behind_what_stands_there_under_the_id_before() -> None:
    async def test() -> None:
        async with lanes.LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 9))
            send_before(world, 0, 5)
            async with world.lane(**used_up(world)) as lane:
                await lane.until_copied(9)
            assert world.copied() == numbers(9)
            assert producers(world.target.partition("a.t", 0)) == [(PRODUCER_ID, LAST), (FURTHER_ID, 0)]
            assert lane.rows[0].state == "copying"

    run(test())


def test_what_came_late_under_the_id_before_is_named_and_nothing_is_sent_behind_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broker does not refuse it: the lane waits for it before it begins."""
    monkeypatch.setattr(settler, "LATE_S", 0.3)

    async def test() -> None:
        async with lanes.LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 9))
            send_before(world, 0, 5)
            async with world.lane(**used_up(world, late_ms=0)) as lane:
                await asyncio.sleep(0.1)
                send_before(world, 5, 2)
                await lane.until_trouble()
            assert world.copied() == numbers(7)
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "POSITION_UNPROVEN")
            assert "2 of them are of an earlier count and came late" in row.error_text

    run(test())
