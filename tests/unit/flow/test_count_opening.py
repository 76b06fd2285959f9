"""A flow's leader between two fake clusters: which entry each partition gets, and what is written for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.flow import enrolment, log_offsets
from heliograph.flow.flow import FlowDriver
from heliograph.flow.partition_table import resume_of
from heliograph.kafka.batch import NewRecord
from heliograph.ledger.counts import Past, Start
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.ledger.mm2.internal_records import OffsetSync
from heliograph.ledger.mm2.positions import encode_position_key, encode_position_value
from heliograph.ledger.model import LedgerRow, PartitionName
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.page import PageRecord
from heliograph.ledger.records.table import parse_ledger
from tests.fake_cluster import LIST_OFFSETS, PRODUCE, Call, FakeCluster
from tests.unit.helpers.logs import ENTRY, new_records, row_of
from tests.unit.helpers.placed import leading

GROUP, LEDGER, OFFSETS, SYNCS = (
    "a-mm2",
    "mm2-ledger.a.internal",
    "mm2-offsets.a.internal",
    "mm2-offset-syncs.b.internal",
)


class CountsOnFakes:
    """Topic `t` with two partitions on cluster "a", ten records in the first; its mirror on cluster "b"."""

    def __init__(self) -> None:
        self.source = FakeCluster("a", topics={"t": 2, SYNCS: 1})
        self.target = FakeCluster("b", topics={"a.t": 2, LEDGER: 1, OFFSETS: 1})

    @asynccontextmanager
    async def leader(self) -> AsyncIterator[FlowDriver]:
        """One that has just come to lead, with nothing in memory."""
        source, target = (cluster.bootstrap[0].port for cluster in (self.source, self.target))
        settings = parse_settings(
            "clusters = a, b\na->b.enabled = true\na->b.topics = t\n"
            f"a.bootstrap.servers = 127.0.0.1:{source}\nb.bootstrap.servers = 127.0.0.1:{target}\n"
        )
        async with leading(settings) as flow:
            yield flow

    def entries(self) -> list[tuple[int, int, int]]:
        """(partition, count, source offset) of every entry in the ledger, as written."""
        found = [parse_ledger(GROUP, r.key, r.value) for r in self.target.partition(LEDGER, 0).records()]
        return [
            (word.partition, word.entry.count, word.entry.source_offset)
            for word in found
            if isinstance(word, EntryRecord)
        ]

    def store_position(self, partition: int, position: int) -> None:
        key = encode_position_key("a", "t", partition)
        self.target.append(OFFSETS, 0, [NewRecord(0, key, encode_position_value(position))])


@asynccontextmanager
async def a_world() -> AsyncIterator[CountsOnFakes]:
    world = CountsOnFakes()
    async with world.source, world.target:
        world.source.append("t", 0, new_records(0, 10))
        yield world


def released(flow: FlowDriver, code: str, **details: Any) -> LedgerRow:
    """The row of a lane that gave partition 0 back when all ten records were copied."""
    entry = flow.entries["t", 0].moved(n=10, source_offset=10, target_offset=10, our_end=10)
    return row_of(entry=entry, records=10, state="released", error_code=code, error_text=code, details=details)


def test_partitions_that_nobody_copied_begin_at_the_start_of_their_log() -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            assert {where: (entry.count, entry.source_offset) for where, entry in flow.entries.items()} == {
                ("t", 0): (0, 0),
                ("t", 1): (0, 0),
            }
            assert flow.topics.is_complete
            assert flow.entries["t", 0].source_end == 10
            assert sorted(world.entries()) == [(0, 0, 0), (1, 0, 0)]

    asyncio.run(test())


def test_the_next_leader_goes_on_with_the_entries_of_the_ledger() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                first = dict(flow.entries)
            async with world.leader() as flow:
                assert {where: entry.moved(time_ms=0) for where, entry in flow.entries.items()} == first
            assert len(world.entries()) == 2

    asyncio.run(test())


def test_a_position_ahead_of_the_ledger_is_another_tools_and_a_new_count_begins_there(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph")

    async def test() -> None:
        async with a_world() as world:
            async with world.leader():
                world.target.append("a.t", 0, new_records(0, 7))
                world.store_position(0, 7)
            async with world.leader() as flow:
                assert (flow.entries["t", 0].count, flow.entries["t", 0].source_offset) == (1, 7)
                assert flow.entries["t", 1].count == 0
            assert world.entries()[2:] == [(0, 1, 7)]

    asyncio.run(test())
    text = "another tool mirrored this partition: its position is 7, the ledger's 0; resuming at its position"
    assert f"a->b t-0: {text}" in caplog.messages


def test_a_position_without_a_ledger_is_taken_and_the_past_rebuilt_from_offset_syncs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with a_world() as world:
            world.target.append("a.t", 0, new_records(0, 7))
            world.store_position(0, 7)
            sync = OffsetSync(topic="t", partition=0, upstream=5, downstream=5)
            world.source.append(SYNCS, 0, [NewRecord(0, *sync.encode()), NewRecord(0, b"no", b"sync")])
            async with world.leader() as flow:
                assert flow.entries["t", 0].source_offset == flow.entries["t", 0].target_offset == 7
            pages = [
                page
                for record in world.target.partition(LEDGER, 0).records()
                if isinstance(page := parse_ledger(GROUP, record.key, record.value), PageRecord)
            ]
            assert [(page.partition, page.start) for page in pages] == [(0, 5)]

    asyncio.run(test())
    assert "1 partitions were copied before" in caplog.text
    assert "rebuilt from 1 offset syncs (1 records were none)" in caplog.text


def test_after_a_loss_a_new_count_begins_and_its_position_is_stored_first() -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            before = world.target.partition(OFFSETS, 0).end
            await flow.epochs.take_rows([released(flow, "DATA_LOST", position=10, log_start=12, log_end=20)])
            assert (flow.entries["t", 0].count, flow.entries["t", 0].source_offset) == (1, 12)
            assert flow.topics.is_complete
            assert world.entries()[2:] == [(0, 1, 12)]
            assert world.target.partition(OFFSETS, 0).end == before + 1

    asyncio.run(test())


def test_a_count_is_durable_before_a_plan_can_have_it() -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            could_plan: list[bool] = []

            async def look(call: Call) -> Any:
                """When the entry stands in the ledger, and the leader does not know that yet."""
                answer = await call.proceed()
                if (0, 1, 10) in world.entries():
                    could_plan.append(("t", 0) in flow.entries)
                return answer

            world.target.control(PRODUCE, look)
            await flow.epochs.take_rows([released(flow, "SECOND_WRITER")])
            assert could_plan
            assert not any(could_plan)
            assert flow.entries["t", 0].count == 1

    asyncio.run(test())


def test_a_partition_whose_leader_does_not_answer_is_left_for_the_next_look(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_offsets, "LEADER_PAUSE_S", 0.0)

    async def test() -> None:
        async with a_world() as world:
            world.target.refuse(LIST_OFFSETS, "a.t", 1, 6, times=2)
            async with world.leader() as flow:
                assert (set(flow.entries), flow.topics.is_complete) == ({("t", 0)}, False)
                assert await flow.topics.discover()
                assert flow.topics.is_complete
            assert sorted(world.entries()) == [(0, 0, 0), (1, 0, 0)]

    asyncio.run(test())


def test_a_topic_made_anew_is_answered_by_the_policies() -> None:
    same = {"source_id": ENTRY.source_topic_id, "target_id": ENTRY.target_topic_id}
    other = "f" * 32
    assert resume_of(ENTRY, None, **same) == ENTRY
    assert resume_of(ENTRY, 5, **same) == Start(5, Past.OTHERS)
    for side, code in (("source_id", "TOPIC_RECREATED"), ("target_id", "TARGET_TOPIC_LOST")):
        found = resume_of(ENTRY, 5, **{**same, side: other})
        assert isinstance(found, Outcome)
        assert found.code == code


def test_a_cluster_that_has_no_topic_ids_says_nothing_against_a_topic() -> None:
    found = resume_of(ENTRY, None, source_id="0" * 32, target_id=ENTRY.target_topic_id)
    assert found == ENTRY.moved(source_topic_id="0" * 32)


def test_a_look_for_topics_leaves_partitions_alone_whose_count_is_being_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            may_end = asyncio.Event()

            async def slowly(*asked: Any) -> dict[PartitionName, int]:
                await may_end.wait()
                return await log_offsets.source_offsets(*asked)

            monkeypatch.setattr(enrolment, "source_offsets", slowly)
            opening_one = asyncio.ensure_future(flow.epochs.take_rows([released(flow, "SECOND_WRITER")]))
            await asyncio.sleep(0)
            assert ("t", 0) not in flow.entries
            looking = asyncio.ensure_future(flow.topics.discover())
            await opening_one
            may_end.set()
            await looking
            assert flow.entries["t", 0].count == 1
            assert world.entries() == [(0, 0, 0), (1, 0, 0), (0, 1, 10)]

    asyncio.run(test())


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_topic_that_is_deleted_while_its_count_is_opened_is_left_for_the_next_look(side: str) -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            before = world.entries()
            gone = (world.source, flow.source, "t") if side == "source" else (world.target, flow.target, "a.t")

            async def delete(call: Call) -> Any:
                response = await call.proceed()
                fake, cluster, topic = gone
                fake.topics.pop(topic, None)
                await cluster.refresh()
                return response

            other = world.target if side == "source" else world.source
            other.control(LIST_OFFSETS, delete)
            await flow.epochs.take_rows([released(flow, "SECOND_WRITER")])
            assert ("t", 0) not in flow.entries
            assert not flow.topics.is_complete
            assert flow.opening.changed.is_set(), "that look follows at once"
            assert world.entries() == before

    asyncio.run(test())
