"""What a look at the topics finds, and what it leaves alone: rules, and a flow's leader between two fake clusters."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import parse_settings
from heliograph.flow import target_topics
from heliograph.flow.discovery import as_known, counts_of, tell_gone
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.catalogue import Catalogue, PartitionMeta, TopicMeta
from heliograph.kafka.log import APPEND_BYTES
from heliograph.ledger.records.topic_change import ChangeKind, TopicChange, change_of
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import CREATE_TOPICS, DESCRIBE_CONFIGS, LIST_OFFSETS, METADATA, FakeCluster
from tests.unit.helpers.logs import new_records

COUNTS = st.dictionaries(st.sampled_from("abcdef"), st.integers(1, 4))


def catalogue(counts: dict[str, int], *, leader: int = 1, epoch: int = 0) -> Catalogue:
    meta = PartitionMeta(leader, epoch, (1,), (1,))
    return Catalogue(
        cluster_id="c",
        brokers={},
        topics={name: TopicMeta(name, UUID(int=1), (meta,) * count) for name, count in counts.items()},
    )


def partitions(counts: dict[str, int]) -> set[tuple[str, int]]:
    return {(name, index) for name, count in counts.items() for index in range(count)}


# -- rules -----------------------------------------------------------------------------------


@given(COUNTS, COUNTS)
def test_what_is_known_and_what_is_new_make_up_the_source(before: dict[str, int], now: dict[str, int]) -> None:
    source = catalogue(now)
    known = partitions(counts_of(as_known(source, before)))
    assert known == partitions(before) & partitions(now)


def test_what_is_gone_is_told_with_its_reason_and_of_many_a_few_are_named() -> None:
    source = catalogue({"kept": 1, "other": 1, **{f"t{index}": 1 for index in range(9)}})
    gone = [("dead", 0), ("kept", 1), ("other", 0), *((f"t{index}", 0) for index in range(9))]
    wanted = {"kept": "a.kept", **{f"t{index}": f"a.t{index}" for index in range(9)}}
    assert list(tell_gone(gone, source, wanted)) == [
        "no longer mirrored: dead, kept (deleted on the source); what was copied stays",
        "no longer mirrored: other (not selected any more); what was copied stays",
        "no longer mirrored: t0, t1, t2, t3, t4 and 4 more (not on the target any more); what was copied stays",
    ]


@pytest.mark.parametrize(
    ("before", "now", "change"),
    [
        ({"t": 2}, {"t": 2}, None),
        ({}, {"t": 2}, None),
        ({"t": 2}, {}, ChangeKind.GONE),
        ({}, {}, ChangeKind.GONE),
        ({"t": 2}, {"t": 3}, ChangeKind.RESIZED),
        ({"t": 2}, {"t": 1}, ChangeKind.RESIZED),
    ],
)
def test_a_lane_sees_that_a_topic_is_gone_or_has_other_partitions(
    before: dict[str, int], now: dict[str, int], change: ChangeKind | None
) -> None:
    assert change_of(catalogue(before).topics.get("t"), catalogue(now).topics.get("t")) is change


def test_a_lane_sees_another_leader_and_another_leader_epoch() -> None:
    first = catalogue({"t": 2}).topics["t"]
    assert change_of(first, catalogue({"t": 2}, leader=2).topics["t"]) is ChangeKind.MOVED
    assert change_of(first, catalogue({"t": 2}, epoch=1).topics["t"]) is ChangeKind.MOVED


# -- a leader --------------------------------------------------------------------------------


class TopicsOnFakes:
    """Topics `t` and `u` with two partitions each on cluster "a", nothing on cluster "b"."""

    def __init__(self) -> None:
        self.source = FakeCluster("a", topics={"t": 2, "u": 2})
        self.target = FakeCluster("b")

    def settings(self, more: str) -> str:
        source, target = (cluster.bootstrap[0].port for cluster in (self.source, self.target))
        factors = "".join(f"{kind}.storage.replication.factor = 1\n" for kind in ("offset", "config", "status"))
        return (
            "clusters = a, b\na->b.enabled = true\na->b.topics = [t-z].*\nreplication.factor = 1\n"
            f"a.bootstrap.servers = 127.0.0.1:{source}\nb.bootstrap.servers = 127.0.0.1:{target}\n{factors}{more}"
        )

    @asynccontextmanager
    async def leader(self, more: str = "") -> AsyncIterator[FlowDriver]:
        settings = parse_settings(self.settings(more))
        flow = FlowDriver(settings.flows[0], settings, is_local=True)
        try:
            await flow.opening.open()
            await flow.prepare()
            yield flow
        finally:
            flow.close()

    def asked(self, api_key: int) -> int:
        return sum(call.api_key == api_key for cluster in (self.source, self.target) for call in cluster.calls)


@asynccontextmanager
async def a_world() -> AsyncIterator[TopicsOnFakes]:
    world = TopicsOnFakes()
    async with world.source, world.target:
        yield world


def test_a_new_topic_and_new_partitions_are_copied_from_their_start_and_nothing_else_is_touched() -> None:
    """Whatever the start position is: what came after the first look has no past that anybody left out."""

    async def test() -> None:
        async with a_world() as world, world.leader("a.consumer.auto.offset.reset = latest\n") as flow:
            before = dict(flow.entries)
            world.source.append("t", 0, new_records(0, 10))
            world.source.create("v", 1)
            world.source.grow("u", 3)
            for topic, partition in (("v", 0), ("u", 2)):
                world.source.append(topic, partition, new_records(0, 5))
            assert await flow.topics.discover()
            assert {where for where in flow.entries if where not in before} == {("v", 0), ("u", 2)}
            assert all(flow.entries[where] is entry for where, entry in before.items())
            assert [flow.entries[where].source_offset for where in (("v", 0), ("u", 2))] == [0, 0]
            assert {name: len(topic.partitions) for name, topic in world.target.topics.items() if "a." in name[:2]} == {
                "a.t": 2,
                "a.u": 3,
                "a.v": 1,
            }
            assert not await flow.topics.discover()

    asyncio.run(test())


def test_with_latest_only_what_was_there_at_the_first_look_begins_at_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new partition whose target is refused, or that has no leader at first, is still new when it is copied."""
    monkeypatch.setattr("heliograph.flow.log_offsets.LEADER_PAUSE_S", 0.0)

    async def test() -> None:
        async with a_world() as world:
            world.source.append("t", 0, new_records(0, 10))
            async with world.leader("a.consumer.auto.offset.reset = latest\n") as flow:
                assert flow.entries["t", 0].source_offset == 10
                for topic in ("v", "w"):
                    world.source.create(topic)
                    world.source.append(topic, 0, new_records(0, 5))
                world.target.refuse(CREATE_TOPICS, "a.v", 0, 44)
                world.source.refuse(LIST_OFFSETS, "w", 0, 6, times=2)
                await flow.topics.discover()
                assert not {("v", 0), ("w", 0)} & flow.entries.keys()
                assert await flow.topics.discover()
                assert [flow.entries[topic, 0].source_offset for topic in ("v", "w")] == [0, 0]

    asyncio.run(test())


def test_a_deleted_topic_leaves_the_plan_is_named_once_and_its_copy_stays(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            before = dict(flow.entries)
            flow.epochs.note_trouble(
                Trouble(topic="u", partition=0, code="BROKER_REFUSED", text="no such topic", final=False)
            )
            flow.epochs.note_change(TopicChange(topic="u", what=ChangeKind.GONE))
            assert flow.opening.changed.is_set()
            world.source.delete("u")
            assert await flow.topics.discover()
            assert {where: entry for where, entry in before.items() if where[0] == "t"} == flow.entries
            assert all(flow.entries[where] is before[where] for where in flow.entries)
            assert {assignment.topic for assignment in flow.assignments.all()} == {"t"}
            assert not flow.topics.missed
            assert "a.u" in world.target.topics
            assert not await flow.topics.discover()

    caplog.set_level(logging.INFO, "heliograph")
    asyncio.run(test())
    assert caplog.messages == [
        "a->b: waiting: no such topic",
        "a->b: no longer mirrored: u (deleted on the source); what was copied stays",
    ]


def test_a_topic_that_lanes_do_not_find_is_looked_at_until_they_do() -> None:
    """The broker that the driver asks may be behind the one that the lane asked."""

    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            flow.epochs.note_change(TopicChange(topic="t", what=ChangeKind.GONE))
            flow.epochs.note_change(TopicChange(topic="u", what=ChangeKind.MOVED))
            await flow.topics.discover()
            assert flow.topics.missed == {"t"}
            flow.epochs.note_trouble(Trouble(topic="t", partition=1, code="", text="", final=False))
            assert not flow.topics.missed

    asyncio.run(test())


def test_without_refresh_nothing_new_is_mirrored_and_what_had_no_leader_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("heliograph.flow.log_offsets.LEADER_PAUSE_S", 0.0)

    async def test() -> None:
        async with a_world() as world:
            world.source.refuse(LIST_OFFSETS, "t", 1, 6, times=2)
            async with world.leader("refresh.topics.enabled = false\n") as flow:
                assert not flow.topics.is_complete
                world.source.create("v")
                world.source.grow("u", 3)
                assert await flow.topics.discover()
                assert flow.entries.keys() == {("t", 0), ("t", 1), ("u", 0), ("u", 1)}
                world.source.delete("u")
                assert await flow.topics.discover()
                assert flow.entries.keys() == {("t", 0), ("t", 1)}
                assert "a.v" not in world.target.topics
                assert len(world.target.topics["a.u"].partitions) == 2

    asyncio.run(test())


def test_without_refresh_changed_settings_are_followed_once() -> None:
    async def test() -> None:
        async with a_world() as world, world.leader("refresh.topics.enabled = false\n") as flow:
            world.source.create("v")
            settings = parse_settings(world.settings("refresh.topics.enabled = false\ntasks.max = 3\n"))
            flow.apply(settings.flows[0], settings)
            await flow.topics.discover()
            assert ("v", 0) in flow.entries
            world.source.create("w")
            await flow.topics.discover()
            assert ("w", 0) not in flow.entries

    asyncio.run(test())


def test_a_look_asks_no_more_of_many_topics_than_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits are read of new topics, and of all now and then."""

    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            for index in range(100):
                world.source.create(f"v{index}")
            await flow.topics.discover()
            described = world.asked(DESCRIBE_CONFIGS)
            asked = len(world.source.calls) + len(world.target.calls)
            metadata = world.asked(METADATA)
            await flow.topics.discover()
            assert world.asked(METADATA) - metadata == 2 == len(world.source.calls) + len(world.target.calls) - asked
            world.target.topics["a.v7"].configs["max.message.bytes"] = "77"
            monkeypatch.setattr(target_topics, "LIMITS_S", 0.0)
            await flow.topics.discover()
            assert world.asked(DESCRIBE_CONFIGS) == described + 1
            assert flow.topics.targets.limits("a.v7").max_message_bytes == 77

    asyncio.run(test())


@pytest.mark.parametrize("topic", ["ledger_topic", "offset_storage_topic"])
def test_lanes_are_told_how_large_a_batch_the_internal_topics_take(topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            assert flow.assignments.terms().append_bytes == APPEND_BYTES
            world.target.topics[getattr(flow.flow, topic)].configs["max.message.bytes"] = "70000"
            monkeypatch.setattr(target_topics, "LIMITS_S", 0.0)
            await flow.topics.discover()
            assert flow.assignments.terms().append_bytes == 70_000

    asyncio.run(test())


def test_limits_of_a_target_made_anew_are_read_at_once() -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            world.target.create("a.t", 2).configs["max.message.bytes"] = "77"
            await flow.topics.discover()
            assert flow.topics.targets.limits("a.t").max_message_bytes == 77

    asyncio.run(test())
