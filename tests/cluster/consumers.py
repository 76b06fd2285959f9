"""Consumer groups for tests: what they read, where they stand, who is in them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, KafkaException, Message, TopicPartition

from heliograph.lab import LabCluster
from tests.cluster.mirror import admin, wait_until


def consumer(cluster: LabCluster, group: str, **config: Any) -> Consumer:
    """A consumer of a group that commits when told to; underscores stand for dots."""
    given = {name.replace("_", "."): value for name, value in config.items()}
    return Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.wait.max.ms": 50,
            "log_level": 0,
            **given,
        }
    )


def consume(
    cluster: LabCluster, group: str, topic: str, count: int, *, timeout_s: float = 30.0, **config: Any
) -> list[Message]:
    """Join the group, read so many records, commit behind the last one of each partition, leave."""
    reader = consumer(cluster, group, **config)
    try:
        reader.subscribe([topic])
        found = read(reader, count, timeout_s=timeout_s)
        last = {partition: offset + 1 for partition, offset in map(place_of, found)}
        reader.commit(
            offsets=[TopicPartition(topic, partition, offset) for partition, offset in last.items()], asynchronous=False
        )
        return found
    finally:
        reader.close()


def read(reader: Consumer, count: int, *, timeout_s: float = 30.0) -> list[Message]:
    found: list[Message] = []
    while len(found) < count:
        batch = reader.consume(count - len(found), timeout_s)
        assert batch, f"{len(found)} of {count} records came"
        for message in batch:
            assert message.error() is None, message.error()
        found += batch
    return found


def place_of(message: Message) -> tuple[int, int]:
    """Partition and offset of what a broker sent; only a message that is yet to be sent may have none."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return partition, offset


def commit(cluster: LabCluster, group: str, offsets: Mapping[tuple[str, int], int], *, metadata: str = "") -> None:
    """Set the offsets of a group without members."""
    places = [TopicPartition(topic, partition, offset, metadata) for (topic, partition), offset in offsets.items()]
    writer = consumer(cluster, group)
    try:
        wait_until(lambda: _commits(writer, places), 30, what=f"the commit of {group}")
    finally:
        writer.close()


def _commits(writer: Consumer, places: list[TopicPartition]) -> bool:
    """False while the group's coordinator is not there yet."""
    try:
        return all(place.error is None for place in writer.commit(offsets=places, asynchronous=False))
    except KafkaException:
        return False


def committed(cluster: LabCluster, group: str) -> dict[tuple[str, int], int]:
    """What a group has committed."""
    _wait_for_coordinator(cluster.bootstrap, group)
    request = [ConsumerGroupTopicPartitions(group)]
    [future] = admin(cluster).list_consumer_group_offsets(request).values()
    return {(place.topic, place.partition): place.offset for place in future.result(30).topic_partitions}


@functools.cache
def _wait_for_coordinator(bootstrap: str, group: str) -> None:
    """Once for a group: asked while its coordinator still loads, librdkafka's list of offsets ends in a segfault."""
    asking = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})

    def answers() -> bool:
        try:
            return bool(asking.committed([TopicPartition("any", 0)], 10))
        except KafkaException:
            return False

    try:
        wait_until(answers, 60, what=f"the coordinator of {group}")
    finally:
        asking.close()


def delete_group(cluster: LabCluster, group: str) -> None:
    admin(cluster).delete_consumer_groups([group])[group].result(30)
