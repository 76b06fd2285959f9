"""Sources that lose what was copied, and those that only look like it: lanes between fake clusters."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.lane import fetcher
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import Call
from tests.unit.helpers.lanes import LaneOnFakes, numbers, recent, run

PRODUCE, FETCH, OFFSET_FOR_LEADER_EPOCH = 0, 1, 23
VERSIONS = pytest.mark.parametrize("fetch_version", [11, 16])


def world_of(fetch_version: int, **fields: Any) -> LaneOnFakes:
    """A source whose brokers are as old as this version of Fetch."""
    world = LaneOnFakes(**fields)
    world.source.versions[FETCH] = (4, fetch_version)
    return world


def lose(world: LaneOnFakes, end: int, new: int, partition: int = 0) -> None:
    """The source loses its last records, and under a new leader gets others."""
    log = world.source.partition("t", partition)
    log.truncate(end)
    log.begin_epoch()
    if new:
        world.source.append("t", partition, recent(100, new))
    world.source.notify()


async def copied_again(world: LaneOnFakes, row: LedgerRow, count: int) -> LedgerRow:
    """The driver's answer: a new count from where the logs part."""
    end = row.details["log_end"]
    at = world.target.partition("a.t", 0).end
    entry = world.entry(source_offset=end, target_offset=at, count=row.entry.count + 1, lineage=row.entry.lineage)
    async with world.lane(world.assignments(entry)) as lane:
        await lane.until_copied(count)
    return lane.rows[0]


@VERSIONS
@pytest.mark.parametrize("new", [0, 1, 2, 50])
def test_copied_records_that_the_source_lost_are_named_however_long_its_log_is_now(
    fetch_version: int, new: int
) -> None:
    async def test() -> None:
        async with world_of(fetch_version) as world:
            for number in range(0, 6, 2):
                world.source.append("t", 0, recent(number, 2))
            async with world.lane() as lane:
                await lane.until_copied(6)
                lose(world, 4, new)
                await lane.until_trouble()
            row = lane.rows[0]
            assert (row.state, row.error_code) == ("released", "LOG_TRUNCATED")
            assert row.details == {"position": 6, "log_end": 4, "leader_epoch": 0, "copied_epoch": 0}
            assert "offsets 4 to 5 (2 records)" in row.error_text
            if new:
                row = await copied_again(world, row, 6 + new)
                assert row.entry.lineage == "0:0 1:4"
            assert world.copied() == [*numbers(6), *range(100, 100 + new)]

    run(test())


@VERSIONS
def test_what_was_lost_while_no_lane_ran_is_named(fetch_version: int) -> None:
    async def test() -> None:
        async with world_of(fetch_version, partitions=3) as world:
            for partition in range(3):
                world.source.append("t", partition, recent(0, 6))
            async with world.lane() as lane:
                await lane.until_copied(6, 6, 6)
            lose(world, 0, 9, partition=1)
            world.source.calls.clear()
            async with world.lane(world.assignments(*(row.entry for row in lane.rows))) as lane:
                await lane.until_trouble()
            assert [row.error_code for row in lane.rows] == ["", "LOG_TRUNCATED", ""]
            assert lane.rows[1].details["log_end"] == 0
            questions = [call.request for call in world.source.calls if call.api_key == OFFSET_FOR_LEADER_EPOCH]
            asked = [len(topic.partitions) for request in questions for topic in request.topics]
            assert asked == ([3, 1] if fetch_version == 11 else [])  # all at once, and the one that has a new leader

    run(test())


@VERSIONS
def test_new_leaders_expired_batches_and_restarts_are_no_truncation(fetch_version: int) -> None:
    async def test() -> None:
        async with world_of(fetch_version, brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                world.source.move_leader("t", 0, 2)
                world.source.partition("t", 0).begin_epoch()
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(6)
            world.source.partition("t", 0).expire(6)
            world.source.partition("t", 0).begin_epoch()
            async with world.lane(world.assignments(lane.rows[0].entry)) as lane:
                world.source.append("t", 0, recent(6, 3))
                await lane.until_copied(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")
            assert lane.rows[0].entry.lineage == "0:0 2:3 3:6"
            assert world.copied() == numbers(9)

    run(test())


@pytest.mark.parametrize("size", [0, 200])
def test_the_lineage_follows_leaders_within_one_answer(size: int) -> None:
    """One-record batches, which are merged on their way, and others."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            for epoch in range(3):
                for number in range(5):
                    world.source.append("t", 0, recent(5 * epoch + number, size=size))
                world.source.partition("t", 0).begin_epoch()
            async with world.lane() as lane:
                await lane.until_copied(15)
                await lane.until_entry(15)
            assert lane.rows[0].entry.lineage == "0:0 1:5 2:10"
            assert world.copied() == numbers(15)

    run(test())


@VERSIONS
def test_a_marker_at_the_end_is_of_the_epoch_that_counts(fetch_version: int) -> None:
    async def test() -> None:
        async with world_of(fetch_version) as world:
            world.source.append("t", 0, recent(0, 3))
            log = world.source.partition("t", 0)
            log._open[7] = 3
            log.begin_epoch()
            log.end_transaction(7, commit=True)
            async with world.lane() as lane:
                await lane.until_copied(3)
                await lane.until(lambda: lane_position(world) == 4)
            assert lane.rows[0].entry.lineage == "0:0 1:3"
            lose(world, 3, 4)
            async with world.lane(world.assignments(lane.rows[0].entry)) as lane:
                await lane.until_trouble()
            assert lane.rows[0].details["log_end"] == 3

    run(test())


def lane_position(world: LaneOnFakes) -> int:
    entries = [record.entry for record in world.ledger() if isinstance(record, EntryRecord)]
    return entries[-1].source_offset if entries else -1


def test_what_was_read_before_the_truncation_is_written_down_first() -> None:
    """Else the records between the last copied one and the cut would be left out."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            gate = asyncio.Event()

            async def hold(call: Call) -> Any:
                if call.version >= 13:
                    await gate.wait()
                return await call.proceed()

            world.target.control(PRODUCE, hold)
            for number in range(4):
                world.source.append("t", 0, recent(number, size=40_000))
            async with world.lane() as lane:
                await lane.until(lambda: any(call.version >= 13 for call in data_calls(world)))
                lose(world, 2, 10)
                fetches = len(world.source.calls)
                await lane.until(lambda: len(world.source.calls) > fetches + 2)
                gate.set()
                await lane.until_trouble()
            row = lane.rows[0]
            assert row.error_code == "LOG_TRUNCATED"
            assert (row.entry.source_offset, row.details["position"], row.details["log_end"]) == (4, 4, 2)
            await copied_again(world, row, 14)
            assert world.copied() == [*numbers(4), *range(100, 110)]

    run(test())


def data_calls(world: LaneOnFakes) -> list[Call]:
    return [call for call in world.target.calls if call.api_key == PRODUCE]


@VERSIONS
def test_a_leader_that_does_not_know_the_epoch_is_asked_again_and_then_taken_for_another_log(
    fetch_version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetcher, "UNKNOWN_EPOCH_TRIES", 2)

    async def test() -> None:
        async with world_of(fetch_version) as world:
            world.source.append("t", 0, recent(0, 9))
            entry = world.entry(source_offset=4, lineage="7:0")
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until_trouble()
            row = lane.rows[0]
            assert (row.error_code, row.details["log_end"]) == ("LOG_TRUNCATED", 0)
            assert "does not know leader epoch 7" in row.error_text

    run(test())


@VERSIONS
def test_a_leader_that_learns_of_the_epoch_goes_on(fetch_version: int) -> None:
    async def test() -> None:
        async with world_of(fetch_version) as world:
            world.source.append("t", 0, recent(0, 4))
            entry = world.entry(source_offset=4, lineage="7:0")
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until(lambda: any("does not know leader epoch 7" in text for text in told(world)))
                log = world.source.partition("t", 0)
                log.epochs, log.leader_epoch = [(7, 0)], 7
                world.source.append("t", 0, recent(0, 3))
                await lane.until_copied(3)
            assert lane.rows[0].error_code == ""

    run(test())


def told(world: LaneOnFakes) -> list[str]:
    return [record.text for record in world.ledger() if isinstance(record, Trouble | Loss)]


def test_a_broker_that_knows_no_leader_epochs_is_copied_from() -> None:
    async def test() -> None:
        async with world_of(11) as world:
            del world.source.versions[OFFSET_FOR_LEADER_EPOCH]
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            async with world.lane(world.assignments(lane.rows[0].entry)) as lane:
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(6)
            assert world.copied() == numbers(6)

    run(test())
