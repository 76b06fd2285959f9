"""A lane whose target's topic others write too: marks, what comes home, and records between ours."""

from __future__ import annotations

import asyncio
import time
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.lane.batches.provenance import KEY, mark_of
from heliograph.ledger.mm2.positions import encode_position_key
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import FETCH, LIST_OFFSETS, PRODUCE, Call, Cut
from tests.unit.helpers.lanes import HEAVY, PRODUCER_ID, LaneOnFakes, Running, is_data, recent, run

pytestmark = pytest.mark.usefixtures("own_worker")

MARKED: dict[str, Any] = {"marks": True, "source_cluster_id": "id-a", "target_cluster_id": "id-b"}
FROM_SOURCE, FROM_TARGET = (KEY, mark_of("id-a", "t")), (KEY, mark_of("id-b", "a.t"))
DAYS_MS = 2 * 24 * 3600 * 1000


def shared_lane(world: LaneOnFakes) -> AbstractAsyncContextManager[Running]:
    return world.lane(world.assignments(world.entry(rule="all marked")), **MARKED)


def local(number: int) -> list[NewRecord]:
    """A record of the target's own producers."""
    return [record._replace(value=b"local") for record in recent(number)]


def come_home(number: int, count: int = 1, *, size: int = 0) -> list[NewRecord]:
    return [record._replace(headers=[FROM_TARGET]) for record in recent(number, count, size=size)]


def old(number: int) -> list[NewRecord]:
    return [record._replace(timestamp=record.timestamp - DAYS_MS) for record in recent(number, size=HEAVY)]


def copied(world: LaneOnFakes) -> list[int]:
    """The numbers of the records that the lane brought, each with its one mark."""
    found = [record for record in world.target.partition("a.t", 0).records() if record.value != b"local"]
    assert all(record.headers == (FROM_SOURCE,) for record in found)
    return [int((record.value or b"").split()[0]) for record in found]


def assert_runs_are_exact(world: LaneOnFakes, row: LedgerRow) -> None:
    """The open run ends where the last of ours stands."""
    last = [record.offset for record in world.target.partition("a.t", 0).records() if record.headers][-1]
    assert row.entry.our_end == last + 1


def troubles(world: LaneOnFakes) -> set[str]:
    return {record.code for record in world.ledger() if isinstance(record, Trouble)}


def test_records_of_others_between_ours_cost_no_settling() -> None:
    """One before each batch of ours: the copy goes on, reads the target once and the source never again."""
    reads: list[Call] = []

    async def write_first(call: Call) -> Any:
        if is_data(call):
            call.cluster.append("a.t", 0, local(0))
        return await call.proceed()

    async def note(call: Call) -> Any:
        if call.request.isolation_level == 0 and any(topic.topic_id for topic in call.request.topics):
            reads.append(call)
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, write_first)
            world.target.control(FETCH, note)
            for number in range(40):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with shared_lane(world) as lane:
                await lane.until(lambda: len(copied(world)) == 40)
                await lane.until_entry(40)
            assert copied(world) == list(range(40))
            [row] = lane.rows
            assert (row.records, row.entry.n, row.error_code) == (40, 40, "")
            assert row.entry.source_offset == 40
            assert_runs_are_exact(world, row)
            assert troubles(world) == set(), "that others write the topic is as it should be"
            of_topic = world.target.topics["a.t"].topic_id
            looks = [call for call in reads if any(topic.topic_id == of_topic for topic in call.request.topics)]
            assert len(looks) <= 2, "only before the broker is known to remember us"

    run(test())


def test_old_records_are_looked_at_one_by_one_and_not_settled() -> None:
    """The broker may have forgotten us: what others wrote before each batch is read before it is believed."""
    ends = 0

    async def write_first(call: Call) -> Any:
        if is_data(call):
            call.cluster.append("a.t", 0, local(0))
            call.cluster.partition("a.t", 0).forget()
        return await call.proceed()

    async def count(call: Call) -> Any:
        nonlocal ends
        ends += call.request.topics[0].name == "a.t" and call.request.topics[0].partitions[0].timestamp == -1
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, write_first)
            world.target.control(LIST_OFFSETS, count)
            for number in range(12):
                world.source.append("t", 0, old(number))
            async with shared_lane(world) as lane:
                await lane.until(lambda: len(copied(world)) == 12)
                await lane.until_entry(12)
            assert copied(world) == list(range(12))
            assert ends == 1, "settled at the start and never again"

    run(test())


def test_a_second_writer_among_others_is_found_behind_old_records() -> None:
    """The broker forgot us and takes the same records twice: the look between finds those that we did not send."""
    world = LaneOnFakes()

    async def forestall(call: Call) -> Any:
        if is_data(call) and not copied(world):
            call.cluster.append("a.t", 0, local(0))
            partition = call.cluster.partition("a.t", 0)
            zombie = [record._replace(headers=[FROM_SOURCE]) for record in old(0)]
            partition.store(encode_batch(zombie, producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0))
            partition.forget()
        return await call.proceed()

    async def test() -> None:
        async with world:
            world.target.control(PRODUCE, forestall)
            world.source.append("t", 0, old(0))
            async with shared_lane(world) as lane:
                await lane.until_trouble()
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "POSITION_UNPROVEN")

    run(test())


def test_a_target_that_lost_ours_and_has_more_of_others_is_found() -> None:
    """As after an unclean election: the log is longer than it was, and the broker does not know our last batch."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 2))
            async with shared_lane(world) as lane:
                await lane.until_entry(2)
                world.source.append("t", 0, recent(2, size=HEAVY))
                await lane.until_entry(3)
                target = world.target.partition("a.t", 0)
                target.truncate(2)
                for number in range(5):
                    world.target.append("a.t", 0, local(number))
                world.source.append("t", 0, recent(3, size=HEAVY))
                await lane.until_trouble()
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "TARGET_TRUNCATED")

    run(test())


def test_an_answer_before_our_last_batch_is_not_believed() -> None:
    answers = 0

    async def misplace(call: Call) -> Any:
        nonlocal answers
        response = await call.proceed()
        if is_data(call):
            answers += 1
            if answers == 3:
                response.responses[0].partition_responses[0].base_offset = 0
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, misplace)
            for number in range(6):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with shared_lane(world) as lane:
                await lane.until(lambda: len(copied(world)) == 6)
                await lane.until_entry(6)
            assert copied(world) == list(range(6))
            assert_runs_are_exact(world, lane.rows[0])

    run(test())


@pytest.mark.parametrize("after", [True, False], ids=["after the append", "before the append"])
def test_a_lost_answer_among_records_of_others(after: bool) -> None:
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if not is_data(call):
            return await call.proceed()
        call.cluster.append("a.t", 0, local(0))
        sent += 1
        if sent in (2, 5):
            if after:
                await call.proceed()
            raise Cut
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, cut)
            for number in range(10):
                world.source.append("t", 0, recent(number, size=HEAVY))
                world.source.append("t", 0, come_home(500 + number))
            async with shared_lane(world) as lane:
                await lane.until(lambda: len(copied(world)) >= 10)
                await lane.until_entry(10)
            assert copied(world) == list(range(10))
            assert lane.rows[0].records == 10

    run(test())


def test_the_position_passes_what_comes_home_and_is_stored() -> None:
    """Much more than a copy's queue holds: what is left out makes room for what follows."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            for number in range(150):
                world.source.append("t", 0, come_home(number, size=HEAVY))
            async with shared_lane(world) as lane:
                await lane.until(
                    lambda: any(isinstance(r, EntryRecord) and r.entry.source_offset == 150 for r in world.ledger())
                )
                world.source.append("t", 0, [*come_home(150), *recent(151), *come_home(152)])
                await lane.until_entry(1)
            [row] = lane.rows
            assert copied(world) == [151]
            assert (row.entry.source_offset, row.entry.source_end, row.unwritten) == (153, 153, 0)
            assert row.left_out == 152
            key = encode_position_key("a", "t", 0, connector="MirrorSourceConnector")
            offsets = world.target.topics["mm2-offsets.a.internal"].partitions
            stored = [record.value for part in offsets for record in part.records() if record.key == key]
            assert stored[-1] == b'{"offset":152}'

    run(test())


def test_a_count_of_another_rule_is_given_back() -> None:
    async def test(rule: str, is_given_back: bool) -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 2))
            assignments = world.assignments(world.entry(rule=rule))
            async with world.lane(assignments, **MARKED) as lane:
                if is_given_back:
                    await lane.until_trouble()
                else:
                    await lane.until_entry(2)
            [row] = lane.rows
            assert (row.error_code == "RULES_CHANGED") is is_given_back
            assert bool(copied(world)) is not is_given_back

    for rule, is_given_back in (("", True), ("all", True), ("committed marked", True), ("all marked", False)):
        run(test(rule, is_given_back))


def test_the_end_of_an_epoch_waits_for_a_look() -> None:
    looked_at = 0.0

    async def write_first(call: Call) -> Any:
        if is_data(call):
            call.cluster.append("a.t", 0, local(0))
        return await call.proceed()

    async def slow(call: Call) -> Any:
        nonlocal looked_at
        of_topic = call.cluster.topics["a.t"].topic_id
        if any(topic.topic_id == of_topic for topic in call.request.topics):
            looked_at = time.monotonic()
            await asyncio.sleep(0.1)
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, write_first)
            world.target.control(FETCH, slow)
            world.source.append("t", 0, recent(0, 2))
            async with shared_lane(world) as lane:
                await lane.until(lambda: looked_at > 0)
            [row] = lane.rows
            assert (row.entry.n, row.late_ms) == (2, -1)

    run(test())
