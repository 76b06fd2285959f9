"""Where the partitions of a flow begin, between two fake clusters."""

from __future__ import annotations

import asyncio
import logging

import pytest

from heliograph.flow import log_offsets
from heliograph.kafka.batch import NewRecord
from heliograph.ledger.records.selection_seen import SelectionSeen
from tests.fake_cluster import LIST_OFFSETS
from tests.unit.helpers.logs import new_records
from tests.unit.helpers.placed import LEDGER, PositionsOnFakes, a_world, places
from tests.unit.helpers.samples import patterns_of


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("", (0, 0, 0)),
        ("a.consumer.auto.offset.reset = latest\n", (10, 4, 3)),
        ("start.position = latest\n", (10, 4, 3)),
        ("start.position = 1970-01-01T00:00:01.006Z\n", (6, 4, 3)),
        ("start.position = 1970-01-01\n", (0, 0, 0)),
        ("start.position = 2100-01-01\n", (10, 4, 3)),
        ("start.position.1.topics = t\nstart.position.1.from = 0:7,1:99\n", (7, 4, 0)),
        ("start.position.1.topics = u\nstart.position.1.from = earliest\nstart.position = latest\n", (10, 4, 0)),
    ],
)
def test_a_new_flow_begins_where_its_start_positions_say(more: str, wanted: tuple[int, int, int]) -> None:
    async def test() -> None:
        async with a_world() as world, world.leader(more) as flow:
            assert tuple(places(flow).values()) == wanted

    asyncio.run(test())


def test_what_a_start_position_leaves_out_and_what_it_cannot_mean_is_said_once_for_each_topic(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    more = "start.position = latest\nstart.position.1.topics = t\nstart.position.1.from = 0:7,1:99\n"

    async def test() -> None:
        async with a_world() as world:
            async with world.leader(more) as flow:
                await flow.topics.discover()
            async with world.leader(more):
                pass

    asyncio.run(test())
    assert [message for message in caplog.messages if "begins" in message] == [
        "a->b: start position: t-1: 99 is beyond the end of the log, 4: it begins there",
        "a->b: t begins at its offsets: 11 records before that, in 2 of its partitions, are not copied",
        "a->b: u begins at latest: 3 records before that, in 1 of its partitions, are not copied",
    ]


def test_an_offset_before_the_log_means_its_start(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with a_world() as world:
            world.source.partition("t", 0).expire(5)
            async with world.leader("start.position.1.topics = t\nstart.position.1.from = 0:2,1:0\n") as flow:
                assert places(flow)["t", 0] == 5

    asyncio.run(test())
    assert "t-0: 2 is before the start of the log, 5: it begins there" in caplog.text


def test_committed_reading_begins_at_the_last_stable_offset() -> None:
    async def test() -> None:
        async with a_world() as world:
            world.source.partition("t", 0)._open[77] = 8  # a transaction that is open since offset 8
            committed = "a.consumer.isolation.level = read_committed\n"
            async with world.leader("start.position = latest\n" + committed) as flow:
                assert places(flow)["t", 0] == 8

    asyncio.run(test())


@pytest.mark.parametrize("restarts", [False, True], ids=["running", "after a restart"])
def test_what_appears_later_is_copied_from_its_first_record_although_latest_was_asked_for(restarts: bool) -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader("start.position = latest\n") as flow:
                before = places(flow)
                _appear(world)
                if not restarts:
                    assert await flow.topics.discover()
                    assert places(flow) == {**before, ("t", 2): 0, ("v", 0): 0}
            async with world.leader("start.position = latest\n") as flow:
                assert places(flow) == {**before, ("t", 2): 0, ("v", 0): 0}

    asyncio.run(test())


def _appear(world: PositionsOnFakes) -> None:
    """A new topic and a new partition, with records that were written before anybody looked."""
    for cluster, prefix in ((world.source, ""), (world.target, "a.")):
        cluster.create(f"{prefix}v", 1)
        topic = cluster.topics[f"{prefix}t"]
        topic.partitions.append(type(topic.partitions[0])(1, [1]))
    world.source.append("v", 0, new_records(0, 5))
    world.source.append("t", 2, new_records(0, 5))


def test_topics_that_a_changed_selection_adds_begin_at_their_start_position() -> None:
    async def test() -> None:
        async with a_world() as world:
            more = "start.position = latest\na->b.topics = t\n"
            async with world.leader(more) as flow:
                assert places(flow) == {("t", 0): 10, ("t", 1): 4}
                wanted = world.settings(more.replace("topics = t", "topics = t, u"))
                flow.apply(wanted.flows[0], wanted)
                assert await flow.topics.discover()
                assert places(flow)["u", 0] == 3
            _appear(world)
            async with world.leader(more.replace("topics = t", "topics = t, u, v")) as flow:
                assert places(flow) == {("t", 0): 10, ("t", 1): 4, ("t", 2): 0, ("u", 0): 3, ("v", 0): 5}

    asyncio.run(test())


def test_partitions_that_could_not_begin_at_the_first_look_still_have_their_start_position(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log_offsets, "LEADER_PAUSE_S", 0.0)

    async def test() -> None:
        async with a_world() as world:
            world.source.refuse(LIST_OFFSETS, "t", 1, 6, times=4)
            async with world.leader("start.position = latest\n") as flow:
                assert places(flow) == {("t", 0): 10, ("u", 0): 3}
                topics = patterns_of(flow.flow.topics)
                assert world.ledger().asked == SelectionSeen(
                    include=topics.include, exclude=topics.exclude, waiting={"t": 2}
                )
            world.source.relent()
            _appear(world)
            async with world.leader("start.position = latest\n") as flow:
                assert places(flow) == {("t", 0): 10, ("t", 1): 4, ("t", 2): 0, ("u", 0): 3, ("v", 0): 0}
            asked = world.ledger().asked
            assert asked is not None
            assert asked.waiting == {}

    asyncio.run(test())


def test_a_ledger_that_does_not_say_what_was_asked_for_takes_all_for_asked_before() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader("a->b.topics = t\n"):
                pass
            log = world.target.partition(LEDGER, 0)
            kept = [r for r in log.records() if r.key is not None and not r.key.startswith(b'["asked"')]
            world.target.create(LEDGER, 1)
            for record in kept:
                world.target.append(LEDGER, 0, [NewRecord(0, record.key, record.value)])
            async with world.leader("start.position = latest\n") as flow:
                assert places(flow)["u", 0] == 0

    asyncio.run(test())


def test_what_is_asked_for_is_written_down_once() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await flow.topics.discover()
            async with world.leader():
                pass
            written = [
                r for r in world.target.partition(LEDGER, 0).records() if r.key and r.key.startswith(b'["asked"')
            ]
            assert len(written) == 1

    asyncio.run(test())
