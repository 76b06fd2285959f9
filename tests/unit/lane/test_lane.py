"""A lane at work: it copies, writes down how far it got, and ends in time."""

from __future__ import annotations

import asyncio
import os
import time
from itertools import pairwise
from typing import Any

import pytest

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.kafka.partitioner import partition_for
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.lane.lane import Lane
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.page import PageRecord
from tests.fake_cluster import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Call
from tests.fake_cluster.partition import as_transactional
from tests.unit.helpers.lanes import HEAVY, LEDGER, OFFSETS, PRODUCER_ID, LaneOnFakes, is_data, numbers, recent, run

pytestmark = pytest.mark.usefixtures("own_worker")


# -- copying ---------------------------------------------------------------------------------


def test_a_plain_copy() -> None:
    async def test() -> None:
        async with LaneOnFakes(partitions=2) as world:
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
            assert first.entry.moved(newest_ms=-1) == world.entry(
                n=8,
                source_offset=8,
                target_offset=8,
                run_source=0,
                run_target=0,
                bytes_copied=sum(map(len, world.target.partition("a.t", 0).batches)),
                source_end=8,
                lineage="0:0",
                target_leader_epoch=0,
            )

    run(test())


def test_every_batch_carries_the_flows_producer_id_and_the_next_sequence() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
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
        async with LaneOnFakes() as world:
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
        async with LaneOnFakes() as world:
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
        async with LaneOnFakes(brokers=2) as world:
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
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 5))
            async with world.lane() as lane:
                await lane.until_copied(5)
            entries = [record for record in world.ledger() if isinstance(record, EntryRecord)]
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
            assert {index for index, _ in stored} == {partition_for(key, 5)}
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


def test_a_flush_that_is_larger_than_the_ledger_takes_at_once_is_cut_before_it_is_sent() -> None:
    count, limit = 40, 6_000
    refused: list[int] = []

    async def note(call: Call) -> Any:
        answer = await call.proceed()
        refused.extend(
            code for topic in answer.responses for item in topic.partition_responses if (code := item.error_code)
        )
        return answer

    async def test() -> None:
        async with LaneOnFakes(partitions=count) as world:
            world.target.partition(LEDGER, 0).max_message_bytes = limit
            world.target.control(PRODUCE, note)
            for index in range(count):
                world.source.append("t", index, recent(0, 1, size=HEAVY))
                world.source.append("t", index, recent(1, 1, size=HEAVY), gap=1)  # a gap ends a run: a page is written
            async with world.lane(append_bytes=limit) as lane:
                await lane.until_copied(*[2] * count)
                await lane.until(lambda: sum(isinstance(item, PageRecord) for item in world.ledger()) >= count)
            log, names = world.target.partition(LEDGER, 0), world.ledger()
            for header in log.headers():
                batch = [item for item in names[header.base_offset : header.next_offset] if item is not None]
                pages = {item.partition for item in batch if isinstance(item, PageRecord)}
                assert pages <= {item.partition for item in batch if isinstance(item, EntryRecord)}
            assert refused == []
            assert max(map(len, log.batches)) <= limit

    run(test())


def test_nothing_is_written_while_nothing_moves() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
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
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 2))
            world.target.refuse(PRODUCE, LEDGER, 0, 87, times=4)
            async with world.lane() as lane:
                await lane.until_entry(2)

    run(test())


# -- the end ---------------------------------------------------------------------------------


def test_an_order_in_the_ledger_ends_the_lane_at_once() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world, world.lane() as lane:
            await lane.until(lambda: any(call.api_key == FETCH for call in world.target.calls))
            began = time.monotonic()
            world.order()
            await lane.end()
            assert time.monotonic() - began < 5.0, "its epoch lasts a minute"

    run(test())


def test_orders_to_others_are_not_obeyed() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world, world.lane() as lane:
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
        async with LaneOnFakes() as world:
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
        async with LaneOnFakes() as world, world.lane() as lane:
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
        async with LaneOnFakes() as world:
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
        async with LaneOnFakes(partitions=130) as world:
            world.target.control(PRODUCE, hold_partition_0)
            for partition in (0, 1, 2):
                world.source.append("t", partition, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(0, 2, 2)
                held.set()
                await lane.until_copied(2, 2, 2)
            assert [world.copied(partition) for partition in (0, 1, 2)] == [numbers(2)] * 3

    run(test())


def test_an_error_in_a_callback_ends_the_lane() -> None:
    def fail() -> None:
        raise ValueError("a fault of our own")

    async def test() -> None:
        async with LaneOnFakes() as world, world.lane() as lane:
            await lane.until(lambda: any(call.api_key == FETCH for call in world.target.calls))
            asyncio.get_running_loop().call_soon(fail)
            await lane.end()

    with pytest.raises(ValueError, match="a fault of our own"):
        run(test())
