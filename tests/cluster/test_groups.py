"""Consumer groups on real brokers: 4.3.1, 3.9.1 and 2.4.1; classic, new-protocol and simple ones."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as Position

from heliograph.errors import BrokerRefused, GroupAlive
from heliograph.kafka.admin.commits import Commit, commit_offsets, fetch_commits
from heliograph.kafka.admin.groups import CLASSIC, CONSUMER, GroupDescription, describe_groups, list_groups
from heliograph.kafka.cluster import Cluster as Client
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.lab import LabCluster
from tests.cluster.mirror import admin, create_topic, unique, wait_until

T = TypeVar("T")

SENT_ALONG = "\0"
"""confluent-kafka counts the end of a C string as metadata."""


def ask(lab: LabCluster, question: Callable[[Client], Awaitable[T]]) -> T:
    async def answer() -> T:
        addresses = [BrokerAddress.parse(text) for text in lab.bootstrap.split(",")]
        client = Client(lab.alias, addresses, client_id="test")
        try:
            async with asyncio.timeout(30):
                return await question(client)
        finally:
            client.close()

    return asyncio.run(answer())


def commit(lab: LabCluster, group: str, commits: dict[TopicPartition, Commit]) -> None:
    ask(lab, lambda client: commit_offsets(client, {group: commits})).the(group)


def committed(lab: LabCluster, group: str) -> dict[TopicPartition, Commit]:
    return ask(lab, lambda client: fetch_commits(client, [group])).the(group)


def described(lab: LabCluster, group: str, kind: str = "") -> GroupDescription:
    return ask(lab, lambda client: describe_groups(client, {group: kind})).the(group)


def consumer(lab: LabCluster, group: str, **config: Any) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": lab.bootstrap,
            "group.id": group,
            "client.id": "the-app",
            "enable.auto.commit": False,
            "log_level": 0,
            **{name.replace("_", "."): value for name, value in config.items()},
        }
    )


@contextmanager
def member(lab: LabCluster, group: str, topic: str, **config: Any) -> Iterator[Consumer]:
    """A consumer that has joined and has its partitions."""
    joined = consumer(lab, group, **config)
    try:
        joined.subscribe([topic])
        wait_until(lambda: joined.poll(0.1) is None and joined.assignment(), what="the assignment")
        yield joined
    finally:
        joined.close()


@pytest.fixture(scope="module", params=["primary", "mid", "old"])
def broker(request: pytest.FixtureRequest) -> LabCluster:
    cluster: LabCluster = request.getfixturevalue(request.param)
    return cluster


@pytest.fixture(scope="module")
def topic(broker: LabCluster) -> str:
    return create_topic(broker, unique("groups"), 3)


def partitions(topic: str) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(topic, index) for index in range(3))


def test_a_group_is_made_by_commits_and_keeps_what_they_carry(broker: LabCluster, topic: str) -> None:
    group = unique("simple-ü")
    first, second, third = partitions(topic)
    commits = {first: Commit(5), second: Commit(0, "Größe ≠ 0", 3), third: Commit(2**40, "x" * 1000)}
    commit(broker, group, commits)
    assert committed(broker, group) == commits

    everything = ask(broker, list_groups)
    assert everything[group].state == ("" if broker.alias == "old" else "Empty")
    assert everything[group].kind == ("" if broker.alias == "old" else CLASSIC)
    found = described(broker, group, everything[group].kind)
    assert (found.state, found.kind, found.members) == ("Empty", CLASSIC, ())

    reader = consumer(broker, group)
    positions = reader.committed([Position(*where) for where in partitions(topic)], timeout=30)
    assert [position.offset for position in positions] == [5, 0, 2**40]
    reader.close()


def test_commits_of_other_clients_are_fetched(broker: LabCluster, topic: str) -> None:
    group = unique("other")
    first, second, _ = partitions(topic)
    writer = consumer(broker, group)
    writer.commit(offsets=[Position(*first, 4, metadata="by hand"), Position(*second, 9)], asynchronous=False)
    writer.close()
    fetched = committed(broker, group)
    assert {where: found.offset for where, found in fetched.items()} == {first: 4, second: 9}
    assert fetched[first].metadata.rstrip(SENT_ALONG) == "by hand"
    some = ask(broker, lambda client: fetch_commits(client, [group], partitions=partitions(topic)[1:]))
    assert set(some.the(group)) == {second}


def test_a_classic_group_with_a_member(broker: LabCluster, topic: str) -> None:
    group = unique("classic")
    with member(broker, group, topic) as joined:
        joined.commit(offsets=[Position(topic, 0, 7)], asynchronous=False)
        found = described(broker, group, CLASSIC)
        assert (found.state, found.kind) == ("Stable", CLASSIC)
        [alive] = found.members
        assert alive.client_id == "the-app"
        assert "127.0.0.1" in alive.host
        assert sorted(alive.partitions) == list(partitions(topic))
        assert committed(broker, group)[TopicPartition(topic, 0)].offset == 7
        with pytest.raises(GroupAlive):
            commit(broker, group, {TopicPartition(topic, 0): Commit(8)})
    assert committed(broker, group)[TopicPartition(topic, 0)].offset == 7
    commit(broker, group, {TopicPartition(topic, 0): Commit(8)})
    assert committed(broker, group)[TopicPartition(topic, 0)].offset == 8


def test_unknown_groups_are_dead_and_have_no_commits(broker: LabCluster) -> None:
    group = unique("unknown")
    for kind in ("", CLASSIC, CONSUMER):
        found = described(broker, group, kind)
        assert (found.state, found.members) == ("Dead", ())
    assert committed(broker, group) == {}
    assert group not in ask(broker, list_groups)


def test_many_groups_in_one_call(broker: LabCluster, topic: str) -> None:
    name = unique("many")
    offsets = {
        f"{name}-{index}": {where: Commit(index + where.partition, str(index)) for where in partitions(topic)}
        for index in range(300)
    }
    written = ask(broker, lambda client: commit_offsets(client, offsets))
    assert set(written.found) == set(offsets)
    assert written.failed == {}
    assert ask(broker, list_groups).keys() >= offsets.keys()
    assert ask(broker, lambda client: fetch_commits(client, offsets)).found == offsets
    states = ask(broker, lambda client: describe_groups(client, dict.fromkeys(offsets, ""))).found
    assert {found.state for found in states.values()} == {"Empty"}


def test_a_partition_that_is_not_there_fails_its_group_and_no_other(broker: LabCluster, topic: str) -> None:
    group, other = unique("odd"), unique("even")
    missing = TopicPartition(unique("no-such-topic"), 0)
    commits = {group: {missing: Commit(1)}, other: {TopicPartition(topic, 0): Commit(1)}}
    answers = ask(broker, lambda client: commit_offsets(client, commits))
    assert set(answers.found) == {other}
    with pytest.raises(BrokerRefused, match=f"OffsetCommit of {missing} for group"):
        answers.the(group)


def test_a_group_of_the_new_protocol(primary: LabCluster) -> None:
    group, topic = unique("new"), create_topic(primary, unique("groups"), 3)
    first, second, third = partitions(topic)
    with member(primary, group, topic, group_protocol="consumer") as joined:
        joined.commit(offsets=[Position(*first, 7, metadata="mine")], asynchronous=False)
        listed = ask(primary, list_groups)[group]
        assert (listed.state, listed.kind) == ("Stable", CONSUMER)
        for kind in (CONSUMER, CLASSIC, ""):  # whatever the listing said
            found = described(primary, group, kind)
            assert (found.state, found.kind) == ("Stable", CONSUMER)
            [alive] = found.members
            assert alive.client_id == "the-app"
            assert sorted(alive.partitions) == [first, second, third]
        theirs = committed(primary, group)[first]
        assert (theirs.offset, theirs.metadata.rstrip(SENT_ALONG)) == (7, "mine")
        with pytest.raises(GroupAlive):
            commit(primary, group, {first: Commit(8)})
    assert described(primary, group, CONSUMER).state == "Empty"
    commit(primary, group, {first: Commit(8), second: Commit(3, "ours")})
    assert committed(primary, group) == {first: Commit(8), second: Commit(3, "ours")}
    assert ask(primary, list_groups)[group].kind == CONSUMER


def test_a_group_that_was_deleted_is_gone(primary: LabCluster) -> None:
    group, topic = unique("deleted"), create_topic(primary, unique("groups"), 3)
    commit(primary, group, {TopicPartition(topic, 0): Commit(1)})
    admin(primary).delete_consumer_groups([group])[group].result(30)
    assert group not in ask(primary, list_groups)
    assert committed(primary, group) == {}
    commit(primary, group, {TopicPartition(topic, 0): Commit(2)})
    assert committed(primary, group) == {TopicPartition(topic, 0): Commit(2)}


def test_groups_follow_their_coordinators_when_a_broker_stops(trio: LabCluster) -> None:
    name, topic = unique("moving"), create_topic(trio, unique("groups"), 3, replicas=3)

    async def stop_one_in_between(client: Client) -> None:
        def offsets(start: int) -> dict[str, dict[TopicPartition, Commit]]:
            return {f"{name}-{index}": {TopicPartition(topic, 0): Commit(start + index)} for index in range(30)}

        assert not (await commit_offsets(client, offsets(100))).failed
        assert (await list_groups(client)).keys() >= offsets(100).keys()
        await asyncio.to_thread(trio.stop_broker, client.coordinators[f"{name}-0"])
        fetched = await fetch_commits(client, offsets(100))
        assert (fetched.found, fetched.failed) == (offsets(100), {})
        assert not (await commit_offsets(client, offsets(200))).failed

    ask(trio, stop_one_in_between)
