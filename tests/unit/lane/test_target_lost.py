"""A target that lost records is noticed whatever was written in their place, and is filled again from there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from uuid import uuid4

import pytest

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.lane import settler
from heliograph.ledger.records.entry import Entry
from tests.fake_cluster import FETCH, PRODUCE, Call
from tests.fake_cluster.partition import FakePartition
from tests.unit.flow.test_lost_tails import WHERE, add, copied, copy_to
from tests.unit.helpers import lanes
from tests.unit.helpers.lanes import HEAVY, numbers, recent, run
from tests.unit.helpers.logs import new_records, row_of
from tests.unit.helpers.placed import LEDGER, a_world, counts, places
from tests.unit.lane.test_used_up_ids import copy_until, has_given_back

pytestmark = pytest.mark.usefixtures("own_worker")


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settler, "LATE_S", 0.05)


def strangers(partition: FakePartition, *sizes: int) -> None:
    """Others write batches of so many records."""
    for size in sizes:
        partition.store(encode_batch([NewRecord(0, b"", b"900") for _ in range(size)]))


# -- in a lane -------------------------------------------------------------------------------


async def copied_entry(world: lanes.LaneOnFakes, count: int) -> Entry:
    for number in range(count):
        world.source.append("t", 0, recent(number, size=HEAVY))
    async with world.lane() as lane:
        await lane.until_copied(count)
        await lane.until_entry(count)
    return lane.rows[0].entry


@pytest.mark.parametrize("sizes", [(2,), (1, 1)], ids=["one batch", "two"])
def test_as_many_records_of_others_as_were_lost_are_noticed_at_the_first_settle_of_a_term(
    sizes: tuple[int, ...],
) -> None:
    async def test() -> None:
        async with lanes.LaneOnFakes() as world:
            entry = await copied_entry(world, 5)
            partition = world.target.partition("a.t", 0)
            partition.truncate(3)
            strangers(partition, *sizes)
            world.source.append("t", 0, recent(5))
            async with world.lane(world.assignments(entry, first_of_term=True)) as lane:
                await lane.until_trouble()
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "TARGET_TRUNCATED")
            assert partition.end == 5, "nothing is sent behind them"

    run(test())


def test_they_are_noticed_after_a_sequence_is_refused() -> None:
    """The lane runs on under the same term; the broker knows from its log what it lost."""

    async def test() -> None:
        async with lanes.LaneOnFakes() as world:
            entry = await copied_entry(world, 5)
            async with world.lane(world.assignments(entry)) as lane:
                world.source.append("t", 0, recent(5, size=HEAVY))
                await lane.until_entry(6)
                partition = world.target.partition("a.t", 0)
                partition.truncate(3)
                strangers(partition, 1, 2)
                world.source.append("t", 0, recent(6, size=HEAVY))
                await lane.until_trouble()
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "TARGET_TRUNCATED")
            assert partition.end == 6

    run(test())


def reads(world: lanes.LaneOnFakes) -> list[Call]:
    """Fetches of the target's data; those of the ledger are a lane's listening."""
    names = {world.target.topics["a.t"].topic_id}
    return [
        call
        for call in world.target.calls
        if call.api_key == FETCH and any(topic.topic_id in names for topic in call.request.topics)
    ]


def test_a_thousand_partitions_are_looked_at_in_a_few_requests_once_a_term() -> None:
    async def test() -> None:
        count = 300
        async with lanes.LaneOnFakes(partitions=count) as world:
            for partition in range(count):
                world.source.append("t", partition, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(*[3] * count)
                await lane.until(lambda: True)
            entries = [row.entry for row in lane.rows]
            assert {entry.n for entry in entries} == {3}
            assert {row.unseen for row in lane.rows} == {False}
            world.target.calls.clear()
            async with world.lane(world.assignments(*entries, first_of_term=True)) as lane:
                world.source.append("t", 0, recent(3))
                await lane.until_copied(4)
            assert 0 < len(reads(world)) <= 4
            assert {row.unseen for row in lane.rows} == {False}
            world.target.calls.clear()
            async with world.lane(world.assignments(*(row.entry for row in lane.rows))) as lane:
                world.source.append("t", 0, recent(4))
                await lane.until_copied(5)
            assert not reads(world)

    run(test())


def cut_off(partition: FakePartition) -> None:
    partition.expire(partition.end)


def clean(partition: FakePartition) -> None:
    partition.batches.clear()


@pytest.mark.parametrize("change", [cut_off, clean], ids=["retention", "compaction"])
def test_a_target_whose_retention_or_compaction_took_our_last_batch_has_lost_nothing(
    change: Callable[[FakePartition], None],
) -> None:
    async def test() -> None:
        async with lanes.LaneOnFakes() as world:
            entry = await copied_entry(world, 5)
            change(world.target.partition("a.t", 0))
            world.source.append("t", 0, recent(5))
            async with world.lane(world.assignments(entry, first_of_term=True)) as lane:
                await lane.until_entry(6)
            assert world.copied() == [5]
            assert lane.rows[0].state == "copying"

    run(test())


def test_a_target_that_may_not_be_read_is_copied_to_all_the_same() -> None:
    async def test() -> None:
        async with lanes.LaneOnFakes() as world:
            entry = await copied_entry(world, 5)
            world.target.refuse(FETCH, "a.t", 0, 29, times=1000)
            world.source.append("t", 0, recent(5))
            async with world.lane(world.assignments(entry, first_of_term=True)) as lane:
                await lane.until_entry(6)
            assert world.copied() == numbers(6)

    run(test())


# -- driver and lane -------------------------------------------------------------------------


@pytest.mark.parametrize("is_known", [True, False], ids=["same leader", "next leader"])
@pytest.mark.parametrize(
    ("left", "sizes"),
    [(15, (5,)), (15, (1, 1, 1, 1, 1)), (12, (2, 2)), (12, ()), (10, (3, 7)), (4, (2,) * 8), (0, (3,) * 7), (19, (4,))],
)
def test_whatever_stands_in_the_place_of_what_was_lost_all_of_it_is_copied_again_and_nothing_else(
    left: int, sizes: tuple[int, ...], is_known: bool
) -> None:
    async def test() -> None:
        async with a_world() as world:
            partition = world.target.partition("a.t", 0)
            world.source.create("t", 1)
            add(world, 0, 12)
            world.source.append("t", 0, recent(13, size=HEAVY), gap=1)
            add(world, 14, 7)
            async with world.leader() as flow:
                await copy_to(world, flow, 20)
                if is_known:
                    lose_and_write(partition)
                    add(world, 21, 1)
                    await copy_until(world, flow, lambda: has_given_back(world))
            if not is_known:
                lose_and_write(partition)
                add(world, 21, 1)
            async with world.leader() as flow:
                if not is_known:
                    await copy_until(world, flow, lambda: has_given_back(world))
                assert counts(flow)[WHERE] == 1
                await copy_until(world, flow, lambda: copied(world)[-1] == 21)
            assert [number for number in copied(world) if number != 900] == [*range(12), *range(13, 22)]
            [loss] = world.ledger().losses.values()
            assert (loss.code, loss.start, loss.end) == ("TARGET_TRUNCATED", left, 20)

    def lose_and_write(partition: FakePartition) -> None:
        nonlocal left
        left = max((end for header in partition.headers() if (end := header.next_offset) <= left), default=0)
        partition.truncate(left)
        strangers(partition, *sizes)

    run(test())


# -- made anew under a lane ------------------------------------------------------------------


BY_NAME = (3, 12)
"""Versions of Produce that name topics: what is on its way arrives in the new topic."""


@pytest.mark.parametrize("before", [1, 10])
@pytest.mark.parametrize("is_lost", [False, True], ids=["answered", "the leader dies before it has heard"])
def test_what_was_on_its_way_into_a_topic_made_anew_is_counted_and_all_is_copied_once_behind_it(
    before: int, is_lost: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def test() -> None:
        async with a_world() as world:
            world.target.versions[PRODUCE] = BY_NAME
            world.source.create("t", 1)
            add(world, 0, before)
            async with world.leader() as flow:
                lane = asyncio.ensure_future(copy_until(world, flow, lambda: has_given_back(world)))
                await world.target.wait_until(lambda: world.target.partition("a.t", 0).end == before)
                world.target.create("a.t", 2)
                add(world, before, 8)
                await world.target.wait_until(lambda: has_given_back(world))
                strays = copied(world)
                if is_lost:
                    lane.cancel()
                await asyncio.gather(lane, return_exceptions=True)
            assert strays
            async with world.leader() as flow:
                assert (counts(flow)[WHERE], places(flow)[WHERE]) == (1, 0)
                await copy_to(world, flow, len(strays) + before + 8)
                assert counts(flow)[WHERE] == 1
            assert copied(world) == [*strays, *range(before + 8)]
            [loss] = world.ledger().losses.values()
            assert (loss.code, loss.times) == ("TARGET_TOPIC_LOST", 1)
            assert f"; {len(strays)} records that were on their way" in loss.text

    run(test())


def test_a_topic_made_anew_in_which_nothing_stands_tells_of_nothing() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await copy_to(world, flow, 10)
            world.target.create("a.t", 2)
            world.target.append("a.t", 0, new_records(900, 3))
            async with world.leader() as flow:
                await copy_to(world, flow, 13)
            assert copied(world) == [900, 901, 902, *range(10)]
            assert all("on their way" not in loss.text for loss in world.ledger().losses.values())

    run(test())


def test_where_topics_have_no_ids_what_was_on_its_way_is_not_taken_for_the_copy() -> None:
    """It stands at the start of the log, where other records of ours were."""

    async def test() -> None:
        async with a_world() as world:
            world.source.create("t", 1)
            add(world, 0, 10)
            async with world.leader() as flow:
                await copy_to(world, flow, 10)
                ids = flow.assignments.terms().producer_id
            partition = world.target.partition("a.t", 0)
            partition.truncate(0)
            partition.forget()
            batch = encode_batch(recent(10, 3), producer_id=ids, producer_epoch=0, base_sequence=10)
            assert partition.produce(bytes(batch)).error_code == 0
            add(world, 10, 3)
            async with world.leader() as flow:
                await copy_until(world, flow, lambda: has_given_back(world))
                await copy_to(world, flow, 16)
            assert copied(world) == [10, 11, 12, *range(13)]
            [loss] = world.ledger().losses.values()
            assert (loss.code, loss.start) == ("TARGET_TRUNCATED", 0)
            assert "; 3 records that were on their way" in loss.text

    run(test())


@pytest.mark.parametrize("is_flushed", [True, False], ids=["flushed", "not flushed"])
@pytest.mark.parametrize("is_known", [True, False], ids=["same leader", "next leader"])
def test_a_topic_made_anew_before_the_first_batch_arrived_has_the_whole_copy_and_is_not_filled_twice(
    is_known: bool, is_flushed: bool
) -> None:
    async def test() -> None:
        async with a_world() as world:
            world.target.versions[PRODUCE] = BY_NAME
            async with world.leader() as flow:
                opened = world.target.partition(LEDGER, 0).end
                lane = asyncio.ensure_future(
                    copy_until(world, flow, lambda: world.target.partition("a.t", 0).end == 12)
                )
                await world.target.wait_until(lambda: world.target.partition("a.t", 0).end == 10)
                add(world, 10, 2)
                await lane
                entry = flow.entries[WHERE]
                world.target.topics["a.t"].topic_id = uuid4()  # it was so before the first batch arrived
                if not is_flushed:
                    world.target.partition(LEDGER, 0).truncate(opened)
                if is_known:
                    await flow.epochs.take_rows(
                        [row_of(entry=entry, state="released", error_code="TARGET_TOPIC_LOST", error_text="anew")]
                    )
                    assert (counts(flow)[WHERE], places(flow)[WHERE]) == (0, 12)
            async with world.leader() as flow:
                assert counts(flow)[WHERE] == 0
                add(world, 12, 1)
                await copy_to(world, flow, 13)
            assert copied(world) == [*range(13)]
            assert WHERE not in {(loss.topic, loss.partition) for loss in world.ledger().losses.values()}

    run(test())
