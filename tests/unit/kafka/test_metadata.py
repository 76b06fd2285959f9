"""Whose word about leaders a client believes: fake clusters of which some brokers are cut off, or told otherwise."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import pytest

from heliograph.kafka import cluster as cluster_module
from heliograph.kafka.admin.topics import EARLIEST, LATEST, end_offsets, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import fetch_partition
from heliograph.kafka.types import TopicPartition
from tests.fake_cluster import LIST_OFFSETS, METADATA, Call, FakeCluster
from tests.leader_epochs import UNNAMED, ask_under, expected
from tests.unit.helpers.logs import new_records

WHERE = TopicPartition("t", 0)
OLD_METADATA = (0, 9)
"""Without topic ids."""


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(15):
            await test

    asyncio.run(in_time())


@asynccontextmanager
async def client(fake: FakeCluster, *first: int) -> AsyncIterator[Cluster]:
    """Who knows only these brokers at first, or all."""
    bootstrap = [fake.brokers[node].address for node in first or fake.brokers]
    cluster = Cluster(fake.alias, bootstrap, client_id="test", connect_timeout_s=2.0, timeout_s=5.0)
    try:
        yield cluster
    finally:
        cluster.close()


def asked(fake: FakeCluster) -> list[int]:
    """The brokers that were asked for metadata, in order."""
    return [call.node_id for call in fake.calls if call.api_key == METADATA]


def topic_id(fake: FakeCluster) -> str:
    return fake.topics["t"].topic_id.hex


# -- which broker is asked -------------------------------------------------------------------


def test_metadata_is_not_always_asked_of_the_same_broker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster_module, "SAME_BROKER_S", 0.0)

    async def test() -> None:
        async with FakeCluster("a", brokers=3, topics={"t": 1}) as fake, client(fake) as cluster:
            for _ in range(6):
                await cluster.refresh(["t"])
            nodes = asked(fake)
            assert all(one != other for one, other in pairwise(nodes))

    run(test())


def test_for_a_moment_the_same_broker_is_asked_unless_another_is_wanted() -> None:
    """Another one may not have heard yet of a topic that was just made."""

    async def test() -> None:
        async with FakeCluster("a", brokers=3, topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            await cluster.refresh()
            await cluster.refresh(elsewhere=True)
            one, same, other = asked(fake)
            assert one == same != other

    run(test())


def test_metadata_that_is_old_is_asked_for_again() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2, topics={"t": 1, "u": 1}) as fake, client(fake) as cluster:
            cluster.metadata_max_age_s = 0.05
            await cluster.refresh()
            await cluster.refresh(["u"])
            assert not await cluster.refresh_if_old(["t", "u"])
            await asyncio.sleep(0.06)
            assert await cluster.refresh_if_old(["t"])
            assert not await cluster.refresh_if_old(["t"])
            assert cluster.age_s(["u"]) >= 0.06
            first, _, last = asked(fake)
            assert first != last

    run(test())


# -- who is believed -------------------------------------------------------------------------


def test_a_broker_that_is_cut_off_is_not_believed_once_a_newer_leader_is_known() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=3, topics={"t": 1}) as fake, client(fake, 1, 2) as cluster:
            await cluster.refresh()
            fake.cut_off(1)
            fake.create("new")
            await cluster.refresh(elsewhere=True)
            for _ in range(4):
                catalogue = await cluster.refresh(elsewhere=True)
                assert catalogue.leadership_of("t", 0) == (2, 1)
                assert "new" in catalogue.topics

    run(test())


def test_a_leader_epoch_that_was_seen_elsewhere_makes_older_leaders_unbelievable() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2, topics={"t": 1}) as fake, client(fake, 1) as cluster:
            fake.append("t", 0, new_records(0, 3))
            fake.cut_off(1)
            fake.append("t", 0, new_records(3, 3))
            await cluster.refresh()
            assert await end_offsets(cluster, [WHERE]) == {WHERE: 3}
            cluster.saw_epoch(WHERE, 1, topic_id(fake))
            assert cluster.catalogue.leader_of(*WHERE) is None
            assert "no broker names the partition's leader of epoch 1" in str(
                cluster.no_leader(*WHERE, "Fetch", where="t-0")
            )
            assert await end_offsets(cluster, [WHERE]) == {WHERE: 6}
            assert (await fetch_partition(cluster, *WHERE, 3)).high_watermark == 6

    run(test())


def test_seen_epochs_are_heeded_with_one_more_look() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2, topics={"t": 1, "u": 1}) as fake, client(fake, 1) as cluster:
            fake.cut_off(1)
            await cluster.refresh()
            await cluster.heed([(WHERE, 1, topic_id(fake)), (TopicPartition("gone", 0), 1, topic_id(fake))])
            assert cluster.catalogue.leadership_of(*WHERE) == (2, 1)
            looks = len(asked(fake))
            await cluster.heed([(WHERE, 1, topic_id(fake))])
            assert len(asked(fake)) == looks

    run(test())


@pytest.mark.parametrize("metadata", [OLD_METADATA, (0, 12)], ids=["without topic ids", "with topic ids"])
def test_leader_epochs_that_went_back_are_believed_when_all_brokers_say_so(metadata: tuple[int, int]) -> None:
    """As after a restore from a backup, or of a recreated topic where brokers tell no ids."""

    async def test() -> None:
        async with FakeCluster("a", brokers=3, topics={"t": 1}) as fake, client(fake) as cluster:
            fake.versions[METADATA] = metadata
            await cluster.refresh()
            cluster.saw_epoch(WHERE, 7, topic_id(fake))
            other = next(broker for node, broker in fake.brokers.items() if node != asked(fake)[-1])
            await other.stop()
            await cluster.refresh()
            assert cluster.catalogue.leadership_of(*WHERE) == (None, 7)
            await other.start()
            await cluster.refresh()
            assert cluster.catalogue.leadership_of(*WHERE) == (1, 0)
            cluster.saw_epoch(WHERE, 7, topic_id(fake))
            assert cluster.catalogue.leader_of(*WHERE) == 1
            cluster.saw_epoch(WHERE, 8, topic_id(fake))
            assert cluster.catalogue.leader_of(*WHERE) is None

    run(test())


def test_a_recreated_topic_begins_with_the_first_epoch() -> None:
    async def test() -> None:
        async with FakeCluster("a", brokers=2, topics={"t": 1}) as fake, client(fake) as cluster:
            fake.partition("t", 0).begin_epoch(7)
            before = topic_id(fake)
            await cluster.refresh()
            fake.create("t")
            await cluster.refresh()
            cluster.saw_epoch(WHERE, 7, before)
            assert cluster.catalogue.leadership_of(*WHERE) == (1, 0)

    run(test())


def test_a_cluster_that_tells_no_leader_epochs_is_believed() -> None:
    async def no_epochs(call: Call) -> Any:
        response = await call.proceed()
        for partition in response.topics[0].partitions:
            partition.leader_epoch = -1
        return response

    async def test() -> None:
        async with FakeCluster("a", brokers=2, topics={"t": 1}) as fake, client(fake) as cluster:
            await cluster.refresh()
            fake.control(METADATA, no_epochs)
            await cluster.refresh()
            cluster.saw_epoch(WHERE, 7, topic_id(fake))
            assert cluster.catalogue.leadership_of(*WHERE) == (1, -1)
            assert await end_offsets(cluster, [WHERE]) == {WHERE: 0}

    run(test())


# -- what leaders answer ---------------------------------------------------------------------


@pytest.mark.parametrize("named", [UNNAMED, 1, 2, 3])
def test_a_fake_leader_answers_under_its_own_epoch_only(named: int) -> None:
    """As real ones do: `tests/cluster/test_leader_epochs.py`."""

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            fake.partition("t", 0).begin_epoch(2)
            await cluster.refresh()
            assert await ask_under(cluster, WHERE, named) == expected(named, 2)

    run(test())


def test_a_last_offset_that_is_told_under_an_older_epoch_is_not_believed() -> None:
    """By a broker that does not look at the epoch in the question."""

    async def older(call: Call) -> Any:
        for topic in call.request.topics:
            for partition in topic.partitions:
                partition.current_leader_epoch = -1
        response = await call.proceed()
        response.topics[0].partitions[0].leader_epoch = 1
        return response

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake, client(fake) as cluster:
            fake.partition("t", 0).begin_epoch(2)
            await cluster.refresh()
            fake.control(LIST_OFFSETS, older)
            assert (await list_offsets(cluster, [WHERE], LATEST))[WHERE] == (75, -1, -1)
            assert (await list_offsets(cluster, [WHERE], EARLIEST))[WHERE] == (0, 0, 1)

    run(test())
