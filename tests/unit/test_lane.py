"""A lane between two fake clusters: it copies, and whatever fails, nothing is lost and nothing comes twice."""

from __future__ import annotations

import asyncio
import json
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from heliograph.kafka.batch import NewRecord, encode_batch, parse_header
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.mirror import fetcher, formats
from heliograph.mirror import lane as lane_module
from heliograph.mirror.lane import CORRUPT_TRIES, Lane
from heliograph.mirror.model import Assignment, Entry, EpochTerms, FlowTerms, LedgerRow
from tests.fake_cluster import FETCH, LIST_OFFSETS, METADATA, PRODUCE, SILENCE, Call, Cut, FakeCluster
from tests.fake_cluster.partition import as_transactional

FLOW, GROUP, OWNER, CONNECTOR = "a->b", "a-mm2", "owner", "MirrorSourceConnector"
LEDGER, OFFSETS = "mm2-ledger.a.internal", "mm2-offsets.a.internal"
PRODUCER_ID = 4711
HEAVY = 40_000
"""Values of this size keep a batch from being merged with its neighbours."""
PATIENCE_S = 10.0


def recent(start: int, count: int = 1, *, size: int = 0) -> list[NewRecord]:
    """Records of today that carry their number."""
    now_ms = int(time.time() * 1000)
    return [NewRecord(now_ms, b"key", b"%d " % number + bytes(size)) for number in range(start, start + count)]


class World:
    """Topic `t` on cluster "a", its mirror `a.t` and the internal topics on cluster "b"."""

    def __init__(self, *, partitions: int = 1, brokers: int = 1) -> None:
        self.source = FakeCluster("a", brokers=brokers, topics={"t": partitions})
        self.target = FakeCluster("b", brokers=brokers, topics={"a.t": partitions, LEDGER: 1, OFFSETS: 5})

    async def __aenter__(self) -> World:
        await self.source.__aenter__()
        await self.target.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for cluster in lane_module._worker._clusters.values():
            await asyncio.gather(*cluster._opening.values(), return_exceptions=True)
            cluster.close()
        await self.source.__aexit__()
        await self.target.__aexit__()

    def entry(self, **fields: Any) -> Entry:
        """A count that has just been opened."""
        start = {"source_offset": 0, "target_offset": 0, "count": 0, "n": 0, **fields}
        return Entry(
            **{
                "source_topic_id": self.source.topics["t"].topic_id.hex,
                "target_topic_id": self.target.topics["a.t"].topic_id.hex,
                "our_end": start["target_offset"],
                "run_source": start["source_offset"],
                "run_target": start["target_offset"],
                **start,
            }
        )

    def assignments(self, *entries: Entry, **fields: Any) -> list[Assignment]:
        """All partitions of the topic; an entry is given for each, or all begin."""
        count = len(self.source.topics["t"].partitions)
        return [
            Assignment(
                flow=FLOW,
                topic="t",
                partition=index,
                target_topic="a.t",
                entry=entries[index] if entries else self.entry(),
                **{"max_message_bytes": 1_000_000, **fields},
            )
            for index in range(count)
        ]

    def terms(self, *, duration_ms: int, **fields: Any) -> EpochTerms:
        flow = FlowTerms(
            **{
                "name": FLOW,
                "source": "a",
                "target": "b",
                "source_bootstrap": self.source.bootstrap,
                "target_bootstrap": self.target.bootstrap,
                "group_id": GROUP,
                "connector": CONNECTOR,
                "client_id": "test",
                "producer_id": PRODUCER_ID,
                "ledger_topic": LEDGER,
                "ledger_end": self.target.partition(LEDGER, 0).end,
                "offset_topic": OFFSETS,
                "offset_partitions": 5,
                "flush_ms": 20,
                "fetch_max_wait_ms": 100,
                **fields,
            }
        )
        return EpochTerms(owner=OWNER, epoch_id=3, duration_ms=duration_ms, flows=(flow,))

    @asynccontextmanager
    async def lane(
        self, assignments: list[Assignment] | None = None, *, duration_ms: int = 60_000, **terms: Any
    ) -> AsyncIterator[Running]:
        """A lane at work; at the end of the block the driver's order ends it, and its rows are there."""
        lane = Lane(0, assignments or self.assignments(), self.terms(duration_ms=duration_ms, **terms))
        running = Running(self, asyncio.ensure_future(lane.run()))
        try:
            yield running
            self.order()
            await running.end()
        finally:
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)

    def order(self, *, owner: str = OWNER, end_epoch: int = 3) -> None:
        key, value = formats.encode_order(GROUP, formats.Order(owner=owner, end_epoch=end_epoch))
        self.target.append(LEDGER, 0, [NewRecord(0, key, value)])

    def copied(self, partition: int = 0) -> list[int]:
        """The numbers of the records on the target."""
        return [int((value or b"-1").split()[0]) for value in self.target.partition("a.t", partition).values()]

    def ledger(self) -> list[formats.LedgerRecord | None]:
        return [
            formats.parse_ledger(GROUP, record.key, record.value)
            for record in self.target.partition(LEDGER, 0).records()
        ]


class Running:
    """A lane that runs beside the test."""

    def __init__(self, world: World, task: asyncio.Task[list[LedgerRow]]) -> None:
        self.task = task
        self.rows: list[LedgerRow] = []
        self._world = world

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something while the lane runs; if the lane ends before, its error is raised."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the lane ended")
                await self._world.target.wait_for_change(0.02)

    async def until_copied(self, *numbers: int) -> None:
        """Wait until each partition has so many records, or more."""
        await self.until(lambda: all(len(self._world.copied(i)) >= number for i, number in enumerate(numbers)))

    async def until_entry(self, n: int) -> None:
        """Wait until the ledger says that so many records were copied."""
        await self.until(
            lambda: any(isinstance(r, formats.EntryRecord) and r.entry.n == n for r in self._world.ledger())
        )

    async def until_trouble(self) -> None:
        """Wait until the lane has told in the ledger that it gave a partition back."""
        await self.until(lambda: any(isinstance(r, formats.Trouble) and r.final for r in self._world.ledger()))

    async def end(self) -> list[LedgerRow]:
        self.rows = await asyncio.wait_for(self.task, PATIENCE_S)
        return self.rows


@pytest.fixture(autouse=True)
def _own_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has connections of its own, and waits for moments only."""
    monkeypatch.setattr(lane_module, "_worker", lane_module._Worker())
    monkeypatch.setattr(lane_module, "MIN_PAUSE_S", 0.005)
    monkeypatch.setattr(lane_module, "DRAIN_S", 0.2)
    monkeypatch.setattr(lane_module, "PARENT_CHECK_S", 0.05)
    monkeypatch.setattr(fetcher, "_MIN_PAUSE_S", 0.005)


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await test

    asyncio.run(in_time())


def is_data(call: Call) -> bool:
    """A lane's own Produce names topics by id; those of ledger and positions do not."""
    return call.version >= 13


def numbers(count: int) -> list[int]:
    return list(range(count))


# -- copying ---------------------------------------------------------------------------------


def test_a_plain_copy() -> None:
    async def test() -> None:
        async with World(partitions=2) as world:
            world.source.append("t", 0, recent(0, 5))
            async with world.lane() as lane:
                await lane.until_copied(5, 0)
                world.source.append("t", 0, recent(5, 3))
                world.source.append("t", 1, recent(0, 4))
                await lane.until_copied(8, 4)
            assert (world.copied(0), world.copied(1)) == (numbers(8), numbers(4))
            first, second = lane.rows
            assert (first.records, second.records) == (8, 4)
            assert (first.state, first.error_code) == ("copying", "")
            assert first.entry == world.entry(
                n=8,
                source_offset=8,
                target_offset=8,
                run_source=0,
                run_target=0,
                bytes_copied=sum(map(len, world.target.partition("a.t", 0).batches)),
                source_end=8,
            )

    run(test())


def test_every_batch_carries_the_flows_producer_id_and_the_next_sequence() -> None:
    async def test() -> None:
        async with World() as world:
            entry = world.entry(n=(1 << 31) - 3, count=7)
            async with world.lane(world.assignments(entry)) as lane:
                for number in range(0, 12, 2):
                    world.source.append("t", 0, recent(number, 2, size=HEAVY))
                await lane.until_copied(12)
            headers = world.target.partition("a.t", 0).headers()
            assert {(header.producer_id, header.producer_epoch) for header in headers} == {(PRODUCER_ID, 7)}
            n = entry.n
            for header in headers:
                assert header.base_sequence == n % (1 << 31)
                n += header.record_count
            assert lane.rows[0].entry.n == n == entry.n + 12

    run(test())


def test_old_brokers_are_addressed_by_name() -> None:
    async def test() -> None:
        async with World() as world:
            for cluster in (world.source, world.target):
                cluster.versions.update({PRODUCE: (3, 8), FETCH: (4, 11), LIST_OFFSETS: (1, 5), METADATA: (0, 9)})
            entry = world.entry(source_topic_id=NO_TOPIC_ID.hex, target_topic_id=NO_TOPIC_ID.hex)
            world.source.append("t", 0, recent(0, 5))
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until_copied(5)
            assert world.copied() == numbers(5)
            assert {call.version for call in world.source.calls if call.api_key == FETCH} == {11}

    run(test())


def test_committed_records_only() -> None:
    async def test() -> None:
        async with World() as world:
            log = world.source.partition("t", 0)
            log.store(as_transactional(encode_batch(recent(90, 2)), 8))
            log.store(as_transactional(encode_batch(recent(0, 2)), 9))
            log.end_transaction(8, commit=False)
            log.end_transaction(9, commit=True)
            log.store(as_transactional(encode_batch(recent(91)), 8))
            async with world.lane(read_committed=True) as lane:
                await lane.until_copied(2)
                log.end_transaction(8, commit=False)
                world.source.append("t", 0, recent(2))
                await lane.until_copied(3)
            assert world.copied() == numbers(3)
            assert lane.rows[0].entry.source_offset == log.end

    run(test())


def test_the_preferred_read_replica_is_followed() -> None:
    async def test() -> None:
        async with World(brokers=2) as world:
            world.source.partition("t", 0).preferred_replica = 2
            world.source.append("t", 0, recent(0, 3))
            async with world.lane(client_rack="near") as lane:
                await lane.until_copied(3)
                world.source.append("t", 0, recent(3))
                await lane.until_copied(4)
            nodes = [call.node_id for call in world.source.calls if call.api_key == FETCH]
            assert nodes[0] == 1
            assert set(nodes[1:]) == {2}
            assert world.copied() == numbers(4)

    run(test())


# -- positions and ledger --------------------------------------------------------------------


def test_positions_and_ledger_are_written_in_their_formats_and_the_ledger_first() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 5))
            async with world.lane() as lane:
                await lane.until_copied(5)
            entries = [record for record in world.ledger() if isinstance(record, formats.EntryRecord)]
            last = entries[-1]
            assert (last.topic, last.partition) == ("t", 0)
            assert last.entry.moved(time_ms=0) == lane.rows[0].entry
            assert last.entry.time_ms > 0
            assert [item.entry.n for item in entries] == sorted(item.entry.n for item in entries)
            key = b'["MirrorSourceConnector",{"cluster":"a","partition":0,"topic":"t"}]'
            stored = [
                (index, record)
                for index in range(5)
                for record in world.target.partition(OFFSETS, index).records()
                if record.key == key
            ]
            assert {index for index, _ in stored} == {formats.partition_for(key, 5)}
            assert stored[-1][1].value == b'{"offset":4}'
            written = [
                topic.name
                for call in world.target.calls
                if call.api_key == PRODUCE and not is_data(call)
                for topic in call.request.topic_data
            ]
            assert OFFSETS in written
            assert {before for before, name in pairwise(written) if name == OFFSETS} == {LEDGER}

    run(test())


def test_nothing_is_written_while_nothing_moves() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(2)
                await lane.until_entry(2)
                before = world.target.partition(LEDGER, 0).end
                await asyncio.sleep(0.1)
                assert world.target.partition(LEDGER, 0).end == before

    run(test())


def test_a_flush_that_fails_is_made_up_for() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 2))
            world.target.refuse(PRODUCE, LEDGER, 0, 87, times=4)
            async with world.lane() as lane:
                await lane.until_entry(2)

    run(test())


# -- the end ---------------------------------------------------------------------------------


def test_an_order_in_the_ledger_ends_the_lane_at_once() -> None:
    async def test() -> None:
        async with World() as world, world.lane() as lane:
            await lane.until(lambda: any(call.api_key == FETCH for call in world.target.calls))
            began = time.monotonic()
            world.order()
            await lane.end()
            assert time.monotonic() - began < 1.0

    run(test())


def test_orders_to_others_are_not_obeyed() -> None:
    async def test() -> None:
        async with World() as world, world.lane() as lane:
            world.order(owner="another")
            world.order(end_epoch=2)
            world.target.append(LEDGER, 0, [NewRecord(0, b"nonsense", b"{"), NewRecord(0, b"", None)])
            world.source.append("t", 0, recent(0, 2))
            await lane.until_copied(2)
            await asyncio.sleep(0.05)
            assert not lane.task.done()

    run(test())


def test_the_deadline_ends_the_lane() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 2))
            lane = Lane(0, world.assignments(), world.terms(duration_ms=300))
            began = time.monotonic()
            (row,) = await lane.run()
            assert 0.3 <= time.monotonic() - began < 2.0
            assert row.entry.n == 2
            assert row.active_ms >= 300

    run(test())


def test_a_lane_whose_worker_is_gone_ends_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with World() as world, world.lane() as lane:
            world.source.append("t", 0, recent(0, 2))
            await lane.until_copied(2)
            monkeypatch.setattr(os, "getppid", lambda: 1)
            began = time.monotonic()
            (row,) = await lane.end()
            assert time.monotonic() - began < 2.0
            assert row.entry.n == 2

    run(test())


def test_nothing_of_a_lane_arrives_after_its_end() -> None:
    """A target that takes a request and stays silent: the connection is closed, what was sent is settled next time."""
    held = asyncio.Event()

    async def hold(call: Call) -> Any:
        if is_data(call):
            await held.wait()
        return await call.proceed()

    async def test() -> None:
        async with World() as world:
            world.target.control(PRODUCE, hold)
            world.source.append("t", 0, recent(0, 2))
            lane = Lane(0, world.assignments(), world.terms(duration_ms=200))
            (row,) = await lane.run()
            assert row.entry.n == 0
            held.set()
            await asyncio.sleep(0)
            async with world.lane(world.assignments(row.entry)) as again:
                await again.until_copied(2)
            assert world.copied() == numbers(2)

    run(test())


def test_among_many_partitions_a_slow_one_holds_up_only_those_of_its_channel() -> None:
    """A broker works through a connection's requests in turn: with 130 partitions the lane has three."""
    held = asyncio.Event()

    async def hold_partition_0(call: Call) -> Any:
        if is_data(call) and any(p.index == 0 for topic in call.request.topic_data for p in topic.partition_data):
            await held.wait()
        return await call.proceed()

    async def test() -> None:
        async with World(partitions=130) as world:
            world.target.control(PRODUCE, hold_partition_0)
            for partition in (0, 1, 2):
                world.source.append("t", partition, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(0, 2, 2)
                held.set()
                await lane.until_copied(2, 2, 2)
            assert [world.copied(partition) for partition in (0, 1, 2)] == [numbers(2)] * 3

    run(test())


# -- doubt: settled from the target's log, nothing lost, nothing twice -----------------------


@pytest.mark.parametrize("code", [7, 19, 45, 47, 59])
def test_a_batch_refused_in_the_middle_of_the_pipeline(code: int) -> None:
    sent, answers = 0, []

    async def refuse_third(call: Call) -> Any:
        nonlocal sent
        if is_data(call):
            sent += 1
            if sent == 3:
                call.cluster.refuse(PRODUCE, "a.t", 0, code)
            await asyncio.sleep(0.005)
        response = await call.proceed()
        if is_data(call):
            answers.append(response.responses[0].partition_responses[0].error_code)
        return response

    async def test() -> None:
        async with World() as world:
            world.target.control(PRODUCE, refuse_third)
            for number in range(20):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane() as lane:
                await lane.until_copied(20)
            assert answers[:4] == [0, 0, code, 45], "what followed in the pipeline was refused too"
            assert world.copied() == numbers(20)
            assert lane.rows[0].records == 20
            assert lane.rows[0].entry.n == 20

    run(test())


@pytest.mark.parametrize("after", [True, False], ids=["after the append", "before the append"])
@pytest.mark.parametrize("which", [1, 4])
def test_a_lost_answer(after: bool, which: int) -> None:
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if is_data(call):
            sent += 1
            await asyncio.sleep(0.002)
            if sent == which:
                if after:
                    await call.proceed()
                raise Cut
        return await call.proceed()

    async def test() -> None:
        async with World() as world:
            world.target.control(PRODUCE, cut)
            for number in range(10):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane() as lane:
                await lane.until_copied(10)
            assert world.copied() == numbers(10)
            assert lane.rows[0].records == 10

    run(test())


def test_a_broker_that_forgot_us_and_lost_answers() -> None:
    """Old records: the target accepts any sequence, so that only settling keeps a second copy out."""
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if not is_data(call):
            return await call.proceed()
        call.cluster.partition("a.t", 0).forget()
        sent += 1
        response = await call.proceed()
        if sent % 3 == 0:
            raise Cut
        return response

    async def test() -> None:
        async with World() as world:
            world.target.control(PRODUCE, cut)
            for number in range(12):
                record = recent(number, size=HEAVY)[0]._replace(timestamp=1_000)
                world.source.append("t", 0, [record])
            async with world.lane() as lane:
                await lane.until_copied(12)
            assert world.copied() == numbers(12)

    run(test())


def test_an_entry_that_is_behind_is_settled_from_the_targets_tail() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 6))
            async with world.lane() as lane:
                await lane.until_copied(6)
            world.source.append("t", 0, recent(6, 2))
            async with world.lane() as lane:  # the driver knows nothing of the first lane
                await lane.until_copied(8)
            assert world.copied() == numbers(8)
            assert lane.rows[0].entry.n == 8
            assert lane.rows[0].records == 8

    run(test())


def test_two_lanes_on_one_partition_do_not_double_records() -> None:
    async def test() -> None:
        async with World() as world:
            async with world.lane() as first, world.lane() as second:
                for number in range(30):
                    world.source.append("t", 0, recent(number, size=HEAVY))
                    await asyncio.sleep(0.001)
                await first.until_copied(30)
            assert world.copied() == numbers(30)
            assert {row.state for lane in (first, second) for row in lane.rows} != {"released"}

    run(test())


def test_foreign_records_in_the_target() -> None:
    async def test() -> None:
        async with World() as world:
            world.target.append("a.t", 0, recent(1000, 2))
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(5)
                world.target.append("a.t", 0, recent(2000, 2))
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(10)
                await lane.until_entry(6)
            copied = world.copied()
            assert [number for number in copied if number < 1000] == numbers(6)
            assert len(copied) == 10
            entry = lane.rows[0].entry
            assert (entry.n, entry.source_offset, entry.target_offset) == (6, 6, 10)

    run(test())


def test_a_leader_change_on_the_source() -> None:
    async def test() -> None:
        async with World(brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                for leader in (2, 1, 2):
                    world.source.move_leader("t", 0, leader)
                    at = len(world.copied())
                    world.source.append("t", 0, recent(at, 2))
                    await lane.until_copied(at + 2)
            assert world.copied() == numbers(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")

    run(test())


def test_a_leader_change_on_the_target() -> None:
    async def test() -> None:
        async with World(brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                for leader in (2, 1, 2):
                    world.target.move_leader("a.t", 0, leader)
                    at = len(world.copied())
                    world.source.append("t", 0, recent(at, 2))
                    await lane.until_copied(at + 2)
            assert world.copied() == numbers(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")

    run(test())


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_goes_and_comes_back(side: str) -> None:
    async def test() -> None:
        async with World() as world:
            cluster: FakeCluster = getattr(world, side)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                await cluster.brokers[1].stop()
                world.source.append("t", 0, recent(3, 3))
                await asyncio.sleep(0.05)
                await cluster.brokers[1].start()
                await lane.until_copied(6)
            assert world.copied() == numbers(6)

    run(test())


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, LIST_OFFSETS, METADATA])
def test_connections_cut_again_and_again(api_key: int) -> None:
    seen = 0

    async def cut(call: Call) -> Any:
        nonlocal seen
        seen += 1
        response = await call.proceed()
        if seen % 3 == 2:
            raise Cut
        return response

    async def test() -> None:
        async with World(partitions=2) as world:
            for cluster in (world.source, world.target):
                cluster.control(api_key, cut)
            async with world.lane() as lane:
                for number in range(10):
                    world.source.append("t", number % 2, recent(number // 2, size=HEAVY))
                await lane.until_copied(5, 5)
            assert (world.copied(0), world.copied(1)) == (numbers(5), numbers(5))

    run(test())


# -- one partition's trouble -----------------------------------------------------------------


def test_one_failing_partition_does_not_stop_the_others() -> None:
    async def test() -> None:
        async with World(partitions=3) as world:
            world.target.refuse(PRODUCE, "a.t", 1, 87, times=1_000)
            for partition in range(3):
                world.source.append("t", partition, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_trouble()
                world.source.append("t", 0, recent(3, 2))
                world.source.append("t", 2, recent(3, 2))
                await lane.until_copied(5, 0, 5)
            assert [row.state for row in lane.rows] == ["copying", "released", "copying"]
            refused = lane.rows[1]
            assert (refused.error_code, refused.entry.n) == ("RECORD_REFUSED", 0)
            assert (refused.details["source_start"], refused.details["source_end"]) == (0, 3)
            assert (world.copied(0), world.copied(1), world.copied(2)) == (numbers(5), [], numbers(5))

    run(test())


def test_what_was_released_keeps_its_cause_when_the_source_goes_away() -> None:
    async def test() -> None:
        async with World(partitions=2) as world:
            world.target.refuse(PRODUCE, "a.t", 1, 87, times=1_000)
            world.source.append("t", 1, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_trouble()
                await world.source.brokers[1].stop()
                await world.source.brokers[1].start()
                world.source.append("t", 0, recent(0, 3))
                await lane.until_copied(3, 0)
            assert (lane.rows[1].state, lane.rows[1].error_code) == ("released", "RECORD_REFUSED")

    run(test())


async def released(world: World, *entries: Entry, **terms: Any) -> LedgerRow:
    """The row of the first partition, which the lane gives back."""
    async with world.lane(world.assignments(*entries), **terms) as lane:
        await lane.until_trouble()
    assert lane.rows[0].state == "released"
    trouble = next(record for record in world.ledger() if isinstance(record, formats.Trouble) and record.final)
    assert (trouble.topic, trouble.partition, trouble.code) == ("t", 0, lane.rows[0].error_code)
    assert trouble.text == lane.rows[0].error_text
    return lane.rows[0]


def test_records_that_expired_uncopied_are_data_lost() -> None:
    async def test() -> None:
        async with World() as world:
            for number in range(0, 10, 2):
                world.source.append("t", 0, recent(number, 2))
            world.source.partition("t", 0).expire(6)
            row = await released(world)
            assert row.error_code == "DATA_LOST"
            assert row.details == {"position": 0, "log_start": 6, "log_end": 10}
            assert "offsets 0 to 5 (6 records)" in row.error_text

    run(test())


def test_a_source_that_ends_before_the_position_is_log_truncated() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 4))
            row = await released(world, world.entry(source_offset=9))
            assert row.error_code == "LOG_TRUNCATED"
            assert row.details == {"position": 9, "log_start": 0, "log_end": 4}

    run(test())


def test_a_recreated_source_topic() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 4))
            async with world.lane() as lane:
                await lane.until_copied(4)
                new = world.source.create("t")
                world.source.append("t", 0, recent(0, 9))
                await lane.until_trouble()
            row = lane.rows[0]
            assert (row.state, row.error_code) == ("released", "TOPIC_RECREATED")
            assert row.details["source_topic_id"] == new.topic_id.hex
            assert world.copied() == numbers(4)

    run(test())


def test_a_target_that_is_shorter_than_the_ledger_says() -> None:
    async def test() -> None:
        async with World() as world:
            world.target.append("a.t", 0, recent(0, 3))
            row = await released(world, world.entry(n=5, source_offset=5, target_offset=5))
            assert row.error_code == "TARGET_TRUNCATED"
            assert row.details["target_end"] == 3

    run(test())


def test_a_recreated_target_topic() -> None:
    async def test() -> None:
        async with World() as world:
            row = await released(world, world.entry(target_topic_id=UUID(int=5).hex))
            assert row.error_code == "TARGET_TOPIC_LOST"

    run(test())


def test_a_tail_that_the_source_does_not_have_is_unproven() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 3))
            forged = encode_batch(recent(70, 3), producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
            world.target.partition("a.t", 0).produce(bytes(forged))
            row = await released(world)
            assert (row.error_code, row.details["records"]) == ("POSITION_UNPROVEN", 3)

    run(test())


def test_a_batch_that_is_corrupt_once_is_fetched_again() -> None:
    spoilt = 0

    async def spoil(call: Call) -> Any:
        nonlocal spoilt
        response = await call.proceed()
        answer = response.responses[0].partitions[0]
        if answer.records and spoilt < CORRUPT_TRIES:
            spoilt += 1
            answer.records = answer.records[:-1] + bytes([answer.records[-1] ^ 1])
        return response

    async def test() -> None:
        async with World() as world:
            world.source.control(FETCH, spoil)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            assert spoilt == CORRUPT_TRIES
            assert world.copied() == numbers(3)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")

    run(test())


def test_a_batch_that_stays_corrupt_is_given_back() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 3, size=HEAVY))
            world.source.append("t", 0, recent(3, 3, size=HEAVY))
            world.source.partition("t", 0).batches[1][-1] ^= 1
            row = await released(world)
            assert row.error_code == "CORRUPT_BATCH"
            assert row.details["base_offset"] == 3
            assert world.copied() == numbers(3)
            assert (row.entry.n, row.entry.source_offset) == (3, 3)

    run(test())


# -- brokers that misbehave: the lane goes on, and says what keeps it ----------------------


async def reported(world: World, *, duration_ms: int = 250) -> LedgerRow:
    """The row of a lane that ran to its deadline."""
    (row,) = await Lane(0, world.assignments(), world.terms(duration_ms=duration_ms)).run()
    return row


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_cluster_that_is_away_is_named_in_the_row(side: str) -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 3))
            await getattr(world, side).brokers[1].stop()
            row = await reported(world)
            assert row.error_code == "UNREACHABLE"
            assert row.entry == world.entry()

    run(test())


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, LIST_OFFSETS, METADATA])
def test_nonsense_from_a_broker_never_ends_a_lane(side: str, api_key: int) -> None:
    async def garble(call: Call) -> bytes:
        frame = call.encode(await call.proceed())
        return frame[:8] + bytes(byte ^ 0xA5 for byte in frame[8:])

    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 3))
            world.source.partition("t", 0).expire(1)
            getattr(world, side).control(api_key, garble)
            row = await reported(world)
            assert row.entry.n in (0, 3)

    run(test())


def test_a_lost_source_offset_that_cannot_be_diagnosed_yet() -> None:
    async def forget(call: Call) -> Any:
        response = await call.proceed()
        response.topics = []
        return response

    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0, 3))
            world.source.partition("t", 0).expire(3)
            world.source.control(LIST_OFFSETS, forget)
            row = await reported(world)
            assert row.state == "copying"
            assert row.error_code == "PROTOCOL"

    run(test())


def test_a_target_without_a_common_produce_version_is_named_in_the_row() -> None:
    async def test() -> None:
        async with World() as world:
            world.target.versions[PRODUCE] = (0, 7)
            world.source.append("t", 0, recent(0, 3))
            row = await reported(world)
            assert row.error_code == "UNSUPPORTED_VERSION"

    run(test())


def test_a_silent_source_is_waited_for_without_a_crash() -> None:
    async def silent(call: Call) -> bytes:
        return SILENCE

    async def test() -> None:
        async with World() as world:
            world.source.control(FETCH, silent)
            row = await reported(world)
            assert row.state == "copying"

    run(test())


def test_keys_in_the_ledger_name_the_group() -> None:
    async def test() -> None:
        async with World() as world:
            world.source.append("t", 0, recent(0))
            async with world.lane() as lane:
                await lane.until_copied(1)
            keys = {record.key for record in world.target.partition(LEDGER, 0).records()}
            kinds = {tuple(json.loads(key or b"[]")[:2]) for key in keys}
            assert kinds == {("entry", GROUP), ("order", GROUP)}
            assert all(parse_header(batch).producer_id == -1 for batch in world.target.partition(LEDGER, 0).batches)

    run(test())
