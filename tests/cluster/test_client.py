"""The client for applications on real brokers; Java's own client and formatters are the judges."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import kafka
import pytest
from confluent_kafka.admin import NewTopic

from heliograph.client import (
    Decision,
    MirrorClient,
    Translated,
    mirrored_listener,
    mirrored_on_assign,
    seek_to_mirrored,
)
from heliograph.errors import BrokerRefused
from heliograph.kafka.types import TopicPartition
from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat, OffsetSync
from tests.cluster.consumers import place_of
from tests.cluster.judge import MIRROR, Judge
from tests.cluster.mirror import admin, create_topic, produce, topics, unique, wait_until

Record = tuple[bytes, bytes | None]

IDENTITY = {"replication.policy.class": f"{MIRROR}IdentityReplicationPolicy"}
DASHES = {"replication.policy.separator": "__"}
POLICIES = {
    "default": {},
    "separator": DASHES,
    "dotted-internal": {**DASHES, "replication.policy.internal.topic.separator.enabled": "false"},
    "flag-alone": {"replication.policy.internal.topic.separator.enabled": "false"},
    "identity": {**IDENTITY, "source.cluster.alias": "us"},
    "identity-without-alias": IDENTITY,
    "identity-separator": {**IDENTITY, **DASHES},
}


def properties(cluster: LabCluster, **more: str) -> dict[str, str]:
    return {"bootstrap.servers": cluster.bootstrap, **more}


def create_all(cluster: LabCluster, names: set[str]) -> None:
    """Those that are not there."""
    missing = names - topics(cluster)
    for made in admin(cluster).create_topics([NewTopic(name, 1, 1) for name in missing]).values():
        made.result(30)
    wait_until(lambda: names <= topics(cluster), what="the topics")


def write(cluster: LabCluster, topic: str, records: list[Record]) -> None:
    produce(cluster, topic, [value for _, value in records], keys=[key for key, _ in records])


def checkpoint(group: str, topic: str, partition: int, downstream: int, metadata: str = "") -> Record:
    made = Checkpoint(
        group=group, topic=topic, partition=partition, upstream=99, downstream=downstream, metadata=metadata
    )
    return made.encode()


# -- Java is the judge of names


@pytest.fixture(scope="module")
def named(backup: LabCluster) -> LabCluster:
    """With topics of all kinds of names; a broker refuses names that differ in dots and underscores alone."""
    chains = {"us", "eu.us", "us.eu", "asia.eu.us", "x.y.x.z", ""}
    names = {f"{chain}.heartbeats" for chain in chains} | {"heartbeats", "dev__heartbeats", "dev__us__heartbeats"}
    names |= {"prod-heartbeats", "us.prod-heartbeats", "us.orders", "eu.us.orders", "dev__orders", "plain"}
    names |= {"us.checkpoints.internal", "eu.us.checkpoints.internal", "checkpoints.internal"}
    names |= {"dev__checkpoints__internal", "mm2-offsets.us.internal", "mm2-offset-syncs.us.internal", "own.internal"}
    create_all(backup, names)
    return backup


@pytest.mark.parametrize("policy", POLICIES)
def test_names_tell_us_what_they_tell_java(java: Judge, named: LabCluster, policy: str) -> None:
    keys = properties(named, **POLICIES[policy])
    ours, theirs = MirrorClient(keys), java.mirror("RemoteClusterUtils")
    assert ours.heartbeat_topics() == set(theirs.heartbeatTopics(keys))
    assert ours.checkpoint_topics() == set(theirs.checkpointTopics(keys))
    upstream = ours.upstream_clusters()
    assert upstream == set(theirs.upstreamClusters(keys))
    for alias in upstream | {"nobody", "heartbeats"}:
        assert ours.replication_hops(alias) == theirs.replicationHops(keys, alias), alias
    their_client = java.mirror("MirrorClient")(keys)
    assert ours.remote_topics() == set(their_client.remoteTopics())
    for alias in (*upstream, "nobody"):
        assert ours.remote_topics(alias) == set(their_client.remoteTopics(alias)), alias
    their_client.close()


# -- Java is the judge of translation


def _java_offsets(offsets: Any) -> dict[TopicPartition, tuple[int, str]]:
    return {
        TopicPartition(entry.getKey().topic(), entry.getKey().partition()): (
            entry.getValue().offset(),
            entry.getValue().metadata(),
        )
        for entry in offsets.entrySet()
    }


def _without_upstream(offsets: dict[TopicPartition, Translated]) -> dict[TopicPartition, tuple[int, str]]:
    return {where: (translated.offset, translated.metadata) for where, translated in offsets.items()}


@pytest.mark.parametrize("policy", ["default", "separator", "identity"])
def test_offsets_are_translated_as_by_java(java: Judge, backup: LabCluster, policy: str) -> None:
    alias, keys = unique("us"), properties(backup, **POLICIES[policy])
    with MirrorClient(keys) as client:
        topic = create_topic(backup, client.replication_policy.checkpoints_topic(alias))
        key, value = checkpoint("billing", f"{alias}.orders", 2, 30)
        assert value is not None
        skipped: list[Record] = [(b"garbage", b"x"), (key, value[:5]), (key[:4], value), (b"", b"")]
        records = [
            checkpoint("billing", f"{alias}.orders", 0, 10, "md"),
            *skipped[:2],
            checkpoint("billing", f"{alias}.orders", 0, 20, "md \u00e9"),
            checkpoint("billing-2", "orders", 0, 5),
            *skipped[2:],
            checkpoint("billing", f"{alias}.orders", 1, 7),
            (key, b"\0\7" + value[2:]),  # a version that is not known yet
            checkpoint("billing", f"{alias}.orders", 1, 3),
        ]
        write(backup, topic, records)
        utils, minute = java.mirror("RemoteClusterUtils"), java.jvm.java.time.Duration.ofSeconds(60)
        ours = client.translate_offsets(alias, "billing")
        assert _without_upstream(ours) == _java_offsets(utils.translateOffsets(keys, alias, "billing", minute))
        assert ours[TopicPartition(f"{alias}.orders", 0)] == Translated(20, "md \u00e9", 99)
        assert client.translate_offsets(alias, "nobody") == {}
        pattern = java.jvm.java.util.regex.Pattern.compile("bill.*g|other")
        theirs = utils.translateOffsets(keys, alias, pattern, minute)
        found = client.translate_offsets(alias, re.compile("bill.*g|other"))
        assert {group: _without_upstream(offsets) for group, offsets in found.items()} == {
            entry.getKey(): _java_offsets(entry.getValue()) for entry in theirs.entrySet()
        }
        assert set(found) == {"billing"}
        assert client.skipped == {topic: 3 * len(skipped)}


def test_what_java_fails_on_is_passed_over(backup: LabCluster, caplog: pytest.LogCaptureFixture) -> None:
    alias = unique("us")
    topic = create_topic(backup, f"{alias}.checkpoints.internal")
    deleted = checkpoint("g", "orders", 1, 5)
    records: list[Record] = [
        checkpoint("g", "orders", 0, 5),
        checkpoint("g", "orders", 0, -1),
        deleted,
        (deleted[0], None),
    ]
    write(backup, topic, records)
    client = MirrorClient(properties(backup))
    for _ in range(2):
        assert client.translate_offsets(alias, "g") == {TopicPartition("orders", 0): Translated(5, "", 99)}
    assert client.skipped == {topic: 4}
    assert caplog.text.count("are no checkpoints") == 1


def test_without_checkpoints_there_is_an_error_at_once(backup: LabCluster) -> None:
    """Java's client waits for a minute, whatever its time limit, and then fails too."""
    client = MirrorClient(properties(backup))
    with pytest.raises(BrokerRefused, match=r'there is no topic "nobody\.checkpoints\.internal".*alias'):
        client.translate_offsets("nobody", "g")
    empty = create_topic(backup, f"{unique('us')}.checkpoints.internal")
    assert client.translate_offsets(empty.partition(".")[0], "g") == {}


def test_a_client_works_beside_an_event_loop_and_from_a_configuration(backup: LabCluster, tmp_path: Path) -> None:
    alias = unique("us")
    create_all(backup, {f"{alias}.heartbeats"})
    file = tmp_path / "mm2.properties"
    file.write_text(
        f"clusters = {alias}, b\n{alias}.bootstrap.servers = k:1\nb.bootstrap.servers = {backup.bootstrap}\n"
        f"{alias}->b.enabled = true\n"
    )

    async def ask() -> set[str]:
        return MirrorClient.from_config(file, "b").upstream_clusters()

    assert alias in asyncio.run(ask())


# -- Java is the judge of bytes


@pytest.mark.parametrize(
    ("formatter", "record", "expected"),
    [
        (
            "OffsetSyncFormatter",
            OffsetSync(topic="orders", partition=2, upstream=5, downstream=6),
            "OffsetSync{topicPartition=orders-2, upstreamOffset=5, downstreamOffset=6}\n",
        ),
        (
            "CheckpointFormatter",
            Checkpoint(group="\u00e9", topic="t", partition=2, upstream=5, downstream=6),
            "Checkpoint{consumerGroupId=\u00e9, topicPartition=t-2, upstreamOffset=5, downstreamOffset=6, metadata=}\n",
        ),
        (
            "HeartbeatFormatter",
            Heartbeat(source="A", target="B", time_ms=1_700_000_000_000),
            "Heartbeat{sourceClusterAlias=A, targetClusterAlias=B, timestamp=1700000000000}\n",
        ),
    ],
)
def test_javas_formatters_print_our_records(
    java: Judge, formatter: str, record: OffsetSync | Checkpoint | Heartbeat, expected: str
) -> None:
    taken = java.jvm.java.io.ByteArrayOutputStream()
    printer = java.jvm.java.io.PrintStream(taken, True, "UTF-8")
    consumed = java.jvm.org.apache.kafka.clients.consumer.ConsumerRecord("t", 0, 0, *record.encode())
    getattr(java.jvm.org.apache.kafka.connect.mirror.formatters, formatter)().writeTo(consumed, printer)
    assert taken.toString("UTF-8") == expected


# -- a consumer that comes over


class Come:
    """A group whose offsets on this cluster and from two others differ from partition to partition."""

    starts: dict[int, int] = {0: 12, 1: 9, 2: 7, 3: 0}  # noqa: RUF012
    lines = (
        "-0: seeking to mirrored offset 12, local offset is 5",
        "-1: keeping local offset 9, mirrored offset is 5",
        "-2: no local offset, seeking to mirrored offset 7",
        "-3: no mirrored offset exists, left as it is",
    )

    def __init__(self, cluster: LabCluster) -> None:
        self.cluster = cluster
        self.client = MirrorClient(properties(cluster))
        near, far, self.group = unique("near"), unique("far"), unique("group")
        create_all(cluster, {f"{alias}.{kind}" for alias in (near, far) for kind in ("heartbeats", CHECKPOINTS)})
        self.topic = create_topic(cluster, f"{near}.orders", 4)
        for partition in range(4):
            produce(cluster, self.topic, [b"%d" % number for number in range(20)], partition=partition)
        mirrored = {near: {0: 12, 1: 5}, far: {0: 8, 2: 7}}
        for alias, offsets in mirrored.items():
            records = [checkpoint(self.group, self.topic, partition, offset) for partition, offset in offsets.items()]
            write(cluster, f"{alias}.{CHECKPOINTS}", records)
        local = [confluent_kafka.TopicPartition(self.topic, *one) for one in ((0, 5), (1, 9))]
        consumer = self.confluent()
        consumer.commit(offsets=local, asynchronous=False)
        consumer.close()

    def confluent(self, **config: str) -> confluent_kafka.Consumer:
        own = {"group.id": self.group, "auto.offset.reset": "earliest", "enable.auto.commit": False}
        given = {name.replace("_", "."): value for name, value in config.items()}
        return confluent_kafka.Consumer({"bootstrap.servers": self.cluster.bootstrap, **own, **given})

    def kafka_python(self) -> kafka.KafkaConsumer:
        return kafka.KafkaConsumer(
            bootstrap_servers=self.cluster.bootstrap,
            group_id=self.group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        )


CHECKPOINTS = "checkpoints.internal"


@pytest.fixture(scope="module")
def come(backup: LabCluster) -> Come:
    """For all tests: none of them commits anything."""
    return Come(backup)


@pytest.fixture
def said(come: Come, caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[], bool]]:
    """Whether all four kinds of decisions were logged."""
    with caplog.at_level(logging.INFO, logger="heliograph.client"):
        yield lambda: all(f"group {come.group}, {come.topic}{line}" in caplog.text for line in Come.lines)


def _first_of_confluent(consumer: confluent_kafka.Consumer) -> dict[int, int]:
    first: dict[int, int] = {}

    def is_full() -> bool:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            first.setdefault(*place_of(message))
        return len(first) == 4

    wait_until(is_full, 30, what="a record of each partition")
    consumer.close()
    return first


def _first_of_kafka_python(consumer: kafka.KafkaConsumer) -> dict[int, int]:
    first: dict[int, int] = {}

    def is_full() -> bool:
        for where, records in consumer.poll(timeout_ms=1000).items():
            first.setdefault(where.partition, records[0].offset)
        return len(first) == 4

    wait_until(is_full, 30, what="a record of each partition")
    consumer.close()
    return first


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_confluent_consumer_goes_on_when_it_gets_its_partitions(
    come: Come, said: Callable[[], bool], strategy: str
) -> None:
    consumer = come.confluent(partition_assignment_strategy=strategy)
    consumer.subscribe([come.topic], on_assign=mirrored_on_assign(come.client, come.group))
    assert _first_of_confluent(consumer) == Come.starts
    assert said()


def test_confluent_consumer_goes_on_after_it_has_its_partitions(come: Come, said: Callable[[], bool]) -> None:
    consumer = come.confluent()
    consumer.assign([confluent_kafka.TopicPartition(come.topic, partition) for partition in range(4)])
    decisions = seek_to_mirrored(consumer, come.client, come.group)
    where = TopicPartition(come.topic, 0)
    assert decisions[where] == Decision(partition=where, mirrored=12, local=5)
    assert {where.partition: decision.seeks_to for where, decision in decisions.items()} == {
        0: 12, 1: None, 2: 7, 3: None,
    }  # fmt: skip
    assert _first_of_confluent(consumer) == Come.starts
    assert said()


def test_kafka_python_consumer_goes_on_when_it_gets_its_partitions(come: Come, said: Callable[[], bool]) -> None:
    consumer = come.kafka_python()
    consumer.subscribe([come.topic], listener=mirrored_listener(consumer, come.client, come.group))
    assert _first_of_kafka_python(consumer) == Come.starts
    assert said()


def test_kafka_python_consumer_goes_on_after_it_has_its_partitions(come: Come, said: Callable[[], bool]) -> None:
    consumer = come.kafka_python()
    consumer.assign([kafka.TopicPartition(come.topic, partition) for partition in range(4)])
    seek_to_mirrored(consumer, come.client, come.group)
    assert _first_of_kafka_python(consumer) == Come.starts
    assert said()


def test_a_consumer_is_not_disturbed_by_a_mirror_that_cannot_be_asked(
    backup: LabCluster, caplog: pytest.LogCaptureFixture
) -> None:
    topic = create_topic(backup, unique("lonely"))
    produce(backup, topic, [b"x"])
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": backup.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    client = MirrorClient({"bootstrap.servers": "127.0.0.1:1"})
    with caplog.at_level(logging.INFO, logger="heliograph.client"):
        consumer.subscribe([topic], on_assign=mirrored_on_assign(client, topic))
        wait_until(lambda: consumer.poll(1.0) is not None, 30, what="the record")
    consumer.close()
    assert "upstream clusters are not known: UNREACHABLE" in caplog.text
    assert f"{topic}-0: no mirrored offset exists" in caplog.text
