"""Lanes that copy more partitions than the target has: each once and in order, whatever goes wrong."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.kafka.batch import NewRecord
from heliograph.lane import settler
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import Assignment, LedgerRow
from heliograph.ledger.partition_remap import COUNTS_OF_AN_ID, ROWS_OF_A_TURN, row_of, target_partition
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import FETCH, LIST_OFFSETS, PRODUCE, Call, Cut
from tests.unit.helpers.lanes import (
    GROUP,
    HEAVY,
    LEDGER,
    PRODUCER_ID,
    LaneOnFakes,
    Running,
    is_data,
    numbers,
    recent,
    run,
)

pytestmark = pytest.mark.usefixtures("own_worker")

SOURCES, TARGETS = 7, 3
FURTHER_IDS = ((1, 5001), (2, 5002))
IDS = (PRODUCER_ID, 5001, 5002)


class Spread(LaneOnFakes):
    """Seven partitions of the source over three of the target."""

    def __init__(self, *, sources: int = SOURCES, targets: int = TARGETS, brokers: int = 1) -> None:
        super().__init__(partitions=sources, targets=targets, brokers=brokers)
        self.sources, self.targets = sources, targets

    def produce(
        self, partition: int, start: int, count: int = 1, *, size: int = 0, timestamp: int | None = None
    ) -> None:
        """A batch of records that tell their partition and number."""
        records = [
            NewRecord(record.timestamp if timestamp is None else timestamp, b"%d" % partition, record.value)
            for record in recent(start, count, size=size)
        ]
        self.source.append("t", partition, records)

    def arrived(self) -> dict[int, list[int]]:
        """The numbers of the records on the target, by source partition, in the order of the target's log."""
        found: dict[int, list[int]] = {partition: [] for partition in range(self.sources)}
        for index in range(self.targets):
            for record in self.target.partition("a.t", index).records():
                if record.key is not None and record.key.isdigit():
                    assert target_partition(int(record.key), self.targets) == index
                    found[int(record.key)].append(int((record.value or b"-1").split()[0]))
        return found

    def begin(self, **fields: Any) -> list[Assignment]:
        return self.assignments(*(self.entry(modulo=self.targets, **fields) for _ in range(self.sources)))

    def go_on(self, rows: list[LedgerRow]) -> list[Assignment]:
        """What the driver gives to the next lane."""
        by_partition = {row.partition: row for row in rows}
        return [
            Assignment(
                flow=row.flow,
                topic="t",
                partition=partition,
                target_topic="a.t",
                entry=row.entry,
                max_message_bytes=1_000_000,
                page=row.page,
                late_ms=row.late_ms,
            )
            for partition, row in sorted(by_partition.items())
        ]

    @asynccontextmanager
    async def spread_lane(self, assignments: list[Assignment] | None = None, **terms: Any) -> AsyncIterator[Running]:
        async with self.lane(assignments or self.begin(), further_ids=FURTHER_IDS, **terms) as lane:
            yield lane

    def written(self) -> Ledger:
        ledger = Ledger(group_id=GROUP)
        for record in self.target.partition(LEDGER, 0).records():
            ledger.take(record.key, record.value)
        return ledger

    def troubles(self) -> list[str]:
        return [word.code for word in self.ledger() if isinstance(word, Trouble) and word.code]

    def is_exact(self, count: int) -> bool:
        return self.arrived() == {partition: numbers(count) for partition in range(self.sources)}

    def check_translations(self) -> None:
        """What the ledger says of every source offset is where its record stands."""
        ledger = self.written()
        for index in range(self.targets):
            for record in self.target.partition("a.t", index).records():
                if record.key is not None and record.key.isdigit():
                    where = ("t", int(record.key))
                    found = ledger.translate(where, int((record.value or b"-1").split()[0]))
                    assert found is not None
                    assert (ledger.target_partition(where), found.offset) == (index, record.offset)


async def until_exact(lane: Running, world: Spread, count: int) -> None:
    await lane.until(lambda: all(len(found) >= count for found in world.arrived().values()))
    assert world.is_exact(count)


def test_every_source_partition_arrives_once_and_in_order_under_an_id_of_its_row() -> None:
    async def test() -> None:
        async with Spread() as world:
            for number in range(10):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 10)
            assert {row.entry.n for row in lane.rows} == {10}
            assert not world.troubles()
            for index in range(TARGETS):
                sequences: dict[int, int] = {}
                for header in world.target.partition("a.t", index).headers():
                    assert header.base_sequence == sequences.get(header.producer_id, 0)
                    sequences[header.producer_id] = header.base_sequence + header.record_count
                rows = {row_of(p, TARGETS) for p in range(SOURCES) if target_partition(p, TARGETS) == index}
                assert set(sequences) == {IDS[row] for row in rows}
            world.check_translations()

    run(test())


def test_copies_that_have_used_up_ids_and_others_share_a_partition_also_from_lane_to_lane() -> None:
    """What neighbours wrote under any of their ids is passed by, and nothing of it counts as a stranger's."""
    turns = [0, 1, 0, 1, 0, 2, 0]
    further = tuple((turn * ROWS_OF_A_TURN + row, 6000 + 10 * turn + row) for turn in range(3) for row in range(3))[1:]

    async def test() -> None:
        async with Spread() as world:
            entries = [world.entry(modulo=TARGETS, count=turn * COUNTS_OF_AN_ID + turn) for turn in turns]
            assignments = world.assignments(*entries)
            for count in (5, 10):
                for number in range(count - 5, count):
                    for partition in range(SOURCES):
                        world.produce(partition, number, size=HEAVY)
                async with world.lane(assignments, further_ids=further) as lane:
                    await until_exact(lane, world, count)
                # What the second lane begins with is older than what stands on the target.
                assignments = [
                    item if item.partition % 2 else world.go_on(lane.rows)[item.partition] for item in assignments
                ]
            assert not world.troubles()
            for index in range(TARGETS):
                used = {
                    (header.producer_id, header.producer_epoch)
                    for header in world.target.partition("a.t", index).headers()
                }
                rows = {(row_of(p, TARGETS, turn), turn) for p, turn in enumerate(turns) if p % TARGETS == index}
                ids = {0: PRODUCER_ID, **dict(further)}
                assert used == {(ids[row], turn) for row, turn in rows}

    run(test())


def test_copies_that_share_a_partition_do_not_doubt_each_other() -> None:
    """At full speed the log's end is asked for once, and no tail is read."""

    async def test() -> None:
        async with Spread() as world:
            for number in range(40):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 40)
            asked = [call for call in world.target.calls if call.api_key == LIST_OFFSETS]
            assert len(asked) == 1
            assert not _tail_reads(world)

    run(test())


def test_a_copy_sends_several_batches_before_the_next_has_its_turn() -> None:
    async def test() -> None:
        async with Spread(sources=3, targets=1) as world:
            for number in range(12):
                for partition in range(3):
                    world.produce(partition, number, size=5 * HEAVY)  # never merged, however slow the target is
            async with world.spread_lane(world.begin()) as lane:
                await until_exact(lane, world, 12)
            headers = world.target.partition("a.t", 0).headers()
            turns = sum(one.producer_id != other.producer_id for one, other in itertools.pairwise(headers))
            assert len(headers) == 36
            assert turns < len(headers) / 2

    run(test())


def test_the_next_epoch_begins_without_a_look_at_the_tail() -> None:
    """Also for copies that had nothing to copy while the others went on."""

    async def test() -> None:
        async with Spread() as world:
            world.produce(0, 0, 2)
            world.produce(6, 0, 2)
            async with world.spread_lane() as lane:
                await lane.until(lambda: len(world.arrived()[0]) + len(world.arrived()[6]) == 4)
                world.produce(3, 0, 5)
                await lane.until(lambda: len(world.arrived()[3]) == 5)
            ends = [world.target.partition("a.t", index).end for index in range(TARGETS)]
            assert [row.entry.target_offset for row in lane.rows] == [ends[p % TARGETS] for p in range(SOURCES)]
            world.target.calls.clear()
            world.produce(0, 2)
            async with world.spread_lane(world.go_on(lane.rows)) as lane:
                await lane.until(lambda: len(world.arrived()[0]) == 3)
            assert not _tail_reads(world)
            world.check_translations()

    run(test())


@pytest.mark.parametrize("after", [True, False], ids=["after the append", "before the append"])
def test_a_lost_answer(after: bool) -> None:
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if is_data(call):
            sent += 1
            await asyncio.sleep(0.002)
            if sent % 7 == 4 and sent < 30:
                if after:
                    await call.proceed()
                raise Cut
        return await call.proceed()

    async def test() -> None:
        async with Spread() as world:
            world.target.control(PRODUCE, cut)
            for number in range(20):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 20)
            assert {row.entry.n for row in lane.rows} == {20}
            assert not set(world.troubles()) & {"FOREIGN_WRITES", "SECOND_WRITER", "POSITION_UNPROVEN"}
            world.check_translations()

    run(test())


@pytest.mark.parametrize("code", [6, 7, 19, 45, 47])
def test_a_batch_that_the_target_refuses(code: int) -> None:
    sent = 0

    async def refuse(call: Call) -> Any:
        nonlocal sent
        if is_data(call):
            sent += 1
            if sent % 10 == 3 and sent < 40:
                call.cluster.refuse(PRODUCE, "a.t", 0, code)
        return await call.proceed()

    async def test() -> None:
        async with Spread() as world:
            world.target.control(PRODUCE, refuse)
            for number in range(20):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 20)
            world.check_translations()

    run(test())


def test_old_records_whose_producers_the_target_forgets(monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes any sequence then: nothing but the log tells how far each copy got."""
    monkeypatch.setattr(settler, "LATE_S", 0.05)
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if not is_data(call):
            return await call.proceed()
        for index in range(TARGETS):
            call.cluster.partition("a.t", index).forget()
        sent += 1
        response = await call.proceed()
        if sent % 5 == 0:
            raise Cut
        return response

    async def test() -> None:
        async with Spread() as world:
            world.target.control(PRODUCE, cut)
            for number in range(6):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY, timestamp=1_000)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 6)

    run(test())


def test_a_leader_that_moves() -> None:
    async def test() -> None:
        async with Spread(brokers=2) as world:
            for number in range(10):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane() as lane:
                await lane.until(lambda: len(world.arrived()[0]) >= 3)
                for index in range(TARGETS):
                    world.target.move_leader("a.t", index, 3 - world.target.partition("a.t", index).leader)
                for number in range(10, 20):
                    for partition in range(SOURCES):
                        world.produce(partition, number, size=HEAVY)
                await until_exact(lane, world, 20)
            world.check_translations()

    run(test())


def test_records_of_strangers_are_named_and_those_of_neighbours_are_not() -> None:
    async def test() -> None:
        async with Spread() as world:
            for partition in range(SOURCES):
                world.produce(partition, 0)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 1)
                world.target.append("a.t", 0, [NewRecord(1, b"stranger", b"x")] * 2)
                for partition in range(SOURCES):
                    world.produce(partition, 1)
                await until_exact(lane, world, 2)
                await lane.until(lambda: bool(world.troubles()))
            assert set(world.troubles()) == {"FOREIGN_WRITES"}
            told = [word for word in world.ledger() if isinstance(word, Trouble) and word.code]
            assert {word.partition for word in told} <= {0, 3, 6}
            assert {word.details["records"] for word in told} == {2}
            world.check_translations()

    run(test())


def test_a_record_that_the_target_refuses_stops_its_own_partition_alone() -> None:
    async def refuse(call: Call) -> Any:
        if is_data(call) and any(
            b"poison" in item.records for t in call.request.topic_data for item in t.partition_data
        ):
            call.cluster.refuse(PRODUCE, "a.t", 0, 87)
        return await call.proceed()

    async def test() -> None:
        async with Spread(sources=2, targets=1) as world:
            world.target.control(PRODUCE, refuse)
            world.source.append("t", 1, [NewRecord(recent(0)[0].timestamp, None, b"poison")])
            world.produce(0, 0, size=HEAVY)
            async with world.spread_lane(world.begin()) as lane:
                await lane.until_trouble()
                for number in range(1, 6):
                    world.produce(0, number, size=HEAVY)
                await lane.until(lambda: len(world.arrived()[0]) == 6)
            assert world.arrived()[0] == numbers(6)
            assert [row.error_code for row in lane.rows] == ["", "RECORD_REFUSED"]

    run(test())


def test_after_a_crash_the_tail_is_read_once_for_all_and_every_copy_goes_on_where_it_was() -> None:
    async def test() -> None:
        async with Spread() as world:
            for number in range(5):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane() as lane:
                await until_exact(lane, world, 5)
            stale = world.go_on(lane.rows)
            for number in range(5, 9):
                for partition in range(SOURCES):
                    world.produce(partition, number, size=HEAVY)
            async with world.spread_lane(stale) as lane:
                await until_exact(lane, world, 9)
            world.target.calls.clear()
            for partition in range(SOURCES):
                world.produce(partition, 9, size=HEAVY)
            async with world.spread_lane(stale) as lane:  # as after a kill: nothing of the last lane is known
                await until_exact(lane, world, 10)
            assert {row.entry.n for row in lane.rows} == {10}
            starts = [offset for _, offset in _tail_reads(world)]
            assert len(starts) <= 2 * TARGETS, "once for each target partition, not for each copy"
            assert not world.troubles()

    run(test())


def test_a_copy_that_wrote_long_ago_does_not_read_all_that_its_neighbours_wrote_since() -> None:
    async def test() -> None:
        async with Spread(sources=2, targets=1) as world:
            world.produce(0, 0)
            world.produce(1, 0)
            async with world.spread_lane(world.begin()) as lane:
                await until_exact(lane, world, 1)
                for number in range(1, 30):
                    world.produce(1, number, size=HEAVY)
                await lane.until(lambda: len(world.arrived()[1]) == 30)
            before = world.go_on(lane.rows)
            world.produce(1, 30, size=HEAVY)
            async with world.spread_lane(before) as lane:
                await lane.until(lambda: len(world.arrived()[1]) == 31)
            world.target.calls.clear()
            world.produce(0, 1)
            async with world.spread_lane(before) as lane:
                await lane.until(lambda: len(world.arrived()[0]) == 2)
            [idle, busy] = [assignment.entry for assignment in before]
            assert idle.our_end <= 2
            assert min(offset for _, offset in _tail_reads(world)) == busy.our_end - 1
            assert world.arrived() == {0: numbers(2), 1: numbers(31)}

    run(test())


def test_a_target_that_lost_the_last_batches_of_all_is_read_by_each_for_itself() -> None:
    async def test() -> None:
        async with Spread(sources=2, targets=1) as world:
            for number in range(4):
                world.produce(0, number, size=HEAVY)
                world.produce(1, number, size=HEAVY)
            async with world.spread_lane(world.begin()) as lane:
                await until_exact(lane, world, 4)
            last = max(row.entry.our_end for row in lane.rows)
            world.target.partition("a.t", 0).truncate(last - 1)
            world.target.append("a.t", 0, [NewRecord(1, b"stranger", b"x")] * 3)
            async with world.spread_lane(world.go_on(lane.rows)) as lane:
                await lane.until_trouble()
            states = {row.error_code for row in lane.rows}
            assert "TARGET_TRUNCATED" in states

    run(test())


def _tail_reads(world: Spread) -> list[tuple[int, int]]:
    """(partition, offset) of every fetch from the mirrored topic."""
    topic_id = world.target.topics["a.t"].topic_id
    return [
        (partition.partition, partition.fetch_offset)
        for call in world.target.calls
        if call.api_key == FETCH
        for topic in call.request.topics
        if topic_id == topic.topic_id or topic.topic == "a.t"
        for partition in topic.partitions
    ]


def test_an_entry_tells_where_the_next_copy_stands_though_its_own_source_is_idle() -> None:
    """Or a group that has read all of an idle partition would be sent back by it."""

    async def test() -> None:
        async with Spread(sources=2, targets=1) as world:
            world.produce(0, 0)
            async with world.spread_lane(world.begin()) as lane:
                await lane.until(lambda: len(world.arrived()[0]) == 1)
                for number in range(10):
                    world.produce(1, number)
                await lane.until(lambda: len(world.arrived()[1]) == 10)

                def is_level() -> bool:
                    entries: dict[tuple[str, int], Entry] = world.written().entries
                    return all(entry.target_offset == 11 for entry in entries.values()) and len(entries) == 2

                await lane.until(is_level)
            world.check_translations()

    run(test())
