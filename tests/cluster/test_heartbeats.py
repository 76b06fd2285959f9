"""Heartbeats on real brokers: written for both directions, carried to the other side, found as MirrorMaker 2's.

And, on the same clusters, topics that the target's broker makes for whoever asks for them, before the mirror can.
"""

from __future__ import annotations

import json
import struct
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError
from confluent_kafka.admin import ConfigResource

from heliograph.lab import ClusterSpec, Lab, LabCluster
from tests.cluster.consumers import consumer
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    Record,
    View,
    admin,
    create_topic,
    partition_count,
    produce,
    topics,
    unique,
    wait_until,
)

EARLY, LATE = "awaited-before-the-start", "awaited-later"
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


@pytest.fixture(scope="module")
def sides(lab: Lab) -> dict[str, LabCluster]:
    """Two clusters of their own: heartbeats of other tests' mirrors would be in the way. The target's broker makes
    topics that a client asks for, and internal topics are none the worse for it."""
    lab.start([ClusterSpec(alias="east"), ClusterSpec(alias="west", config={"auto.create.topics.enable": "true"})])
    return {alias: lab.cluster(alias) for alias in ("east", "west")}


def key_of(source: str, target: str) -> bytes:
    return b"".join(struct.pack(">h", len(alias)) + alias.encode() for alias in (source, target))


def beats(cluster: LabCluster, topic: str, source: str, target: str) -> list[Record]:
    """A pair's heartbeats in a topic; all records there must be some pair's."""
    if not partition_count(cluster, topic):
        return []
    [records] = View(cluster, topic).read()
    return [record for record in records if record.key == key_of(source, target)]


def fill(cluster: LabCluster, topic: str) -> set[bytes]:
    """Make a topic of three partitions with records, each with another value."""
    create_topic(cluster, topic, 3)
    values = [[b"%d-%d" % (partition, number) for number in range(10)] for partition in range(3)]
    for partition in range(3):
        produce(cluster, topic, values[partition], partition=partition)
    return {value for found in values for value in found}


def subscribe(cluster: LabCluster, topic: str) -> Consumer:
    """A consumer of a topic that is not there, for which the broker makes it."""
    soon = {"allow_auto_create_topics": True, "topic_metadata_refresh_interval_ms": 500}
    reader = consumer(cluster, unique("early"), **soon)
    reader.subscribe([topic])
    reader.list_topics(topic, timeout=30)  # as Java's consumers ask again and again
    return reader


@pytest.fixture(scope="module")
def early(sides: dict[str, LabCluster]) -> Iterator[Consumer]:
    """Waits for a copy before there is a mirror."""
    fill(sides["east"], EARLY)
    reader = subscribe(sides["west"], EARLY)
    try:
        wait_until(lambda: partition_count(sides["west"], EARLY), what="the broker's own topic")
        assert partition_count(sides["west"], EARLY) == 1
        yield reader
    finally:
        reader.close()


@pytest.fixture(scope="module")
def mirror(
    sides: dict[str, LabCluster], early: Consumer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MirrorProcess]:
    keys = {
        "east->west.topics": f"{EARLY}, {LATE}",
        "east->west.replication.policy.class": IDENTITY,
        "emit.heartbeats.enabled": "true",
        "east->west.emit.heartbeats.interval.seconds": "3",
    }
    with MirrorProcess(tmp_path_factory.mktemp("heartbeats"), sides, keys) as mirror:
        yield mirror


def assert_mm2s(records: list[Record]) -> None:
    for record in records:
        assert record.value is not None
        version, time_ms = struct.unpack(">hq", record.value)
        assert (record.partition, version, time_ms, record.headers) == (0, 0, record.timestamp, ())
        assert abs(time_ms - time.time() * 1000) < 180_000


def assert_compacted(cluster: LabCluster) -> None:
    assert partition_count(cluster, "heartbeats") == 1
    resource = ConfigResource(ConfigResource.Type.TOPIC, "heartbeats")
    found = admin(cluster).describe_configs([resource])[resource].result(30)
    assert found["cleanup.policy"].value == "compact"


def test_both_pairs_have_their_heartbeats_and_take_up_changes(
    mirror: MirrorProcess, sides: dict[str, LabCluster]
) -> None:
    """The pair without a flow has the interval of one second, the other its own of three; then both are changed."""
    east, west = sides["east"], sides["west"]

    def fast() -> list[Record]:
        return beats(east, "heartbeats", "west", "east")

    def slow() -> list[Record]:
        return beats(west, "heartbeats", "east", "west")

    mirror.wait_until(lambda: len(fast()) >= 5 and slow(), 40, what="five heartbeats")
    found = fast()
    assert len(slow()) < len(found) / 2 + 1
    assert_mm2s([*found, *slow()])
    second, *_, last = found[1:]  # the first one waited for its topic
    assert 600 < (last.timestamp - second.timestamp) / (len(found) - 2) < 2500
    assert_compacted(east)
    assert_compacted(west)

    off = {"west->east.emit.heartbeats.enabled": "false", "west->east.enabled": "false"}
    mirror.write({**mirror.keys, **off, "east->west.emit.heartbeats.interval.seconds": "1"})
    mirror.wait_for("east->west: heartbeats: takes effect now")
    mirror.wait_for("heartbeats of west->east: takes effect now")
    before_off, before = len(fast()), len(slow())
    mirror.wait_until(lambda: len(slow()) >= before + 3, 40, what="three more heartbeats")
    assert len(fast()) <= before_off + 1

    mirror.write(mirror.keys)
    mirror.wait_until(lambda: len(fast()) > before_off + 1, 40, what="heartbeats again")


def test_heartbeats_are_carried_over_although_no_pattern_names_them(
    mirror: MirrorProcess, sides: dict[str, LabCluster]
) -> None:
    """Under identity naming too they have the source's prefix. The age of the last one is a flow's sign of life."""
    east, west = sides["east"], sides["west"]
    mirror.wait_until(
        lambda: len(beats(west, "east.heartbeats", "west", "east")) >= 2, 60, what="the copied heartbeats"
    )
    copied = beats(west, "east.heartbeats", "west", "east")
    assert [record.content for record in copied] == [
        record.content for record in beats(east, "heartbeats", "west", "east")[: len(copied)]
    ]
    assert "east.east.heartbeats" not in topics(west)
    command = [HELIOGRAPH, "status", str(mirror.config), "-o", "json"]
    [status] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert int(status["heartbeat"].removesuffix(" s ago")) < 20
    assert not [line for line in mirror.stderr if "WARNING" in line or "ERROR" in line]


def test_a_topic_that_the_broker_made_for_a_consumer_is_grown_before_it_is_copied(
    mirror: MirrorProcess, early: Consumer, sides: dict[str, LabCluster]
) -> None:
    """One was made before the mirror's start, one about when the mirror would make it. Who waited reads all, once."""
    east, west = sides["east"], sides["west"]
    late = subscribe(west, LATE)
    try:
        wanted = fill(east, LATE)
        for topic, reader in ((EARLY, early), (LATE, late)):
            mirror.wait_mirrored(View(east, topic), View(west, topic))
            found = read_or_wait(reader, len(wanted))
            assert (len(found), set(found)) == (len(wanted), wanted)
            assert reader.poll(0.5) is None
    finally:
        late.close()


def read_or_wait(reader: Consumer, count: int) -> list[bytes | None]:
    """So many values, by a consumer that may first hear that there is no such topic."""
    found: list[bytes | None] = []

    def has_all() -> bool:
        for message in reader.consume(count - len(found), 1.0):
            error = message.error()
            assert error is None or error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART, error
            found.extend([] if error else [message.value()])
        return len(found) >= count

    wait_until(has_all, what=f"{count} records")
    return found


def test_without_a_flow_heartbeats_alone_go_into_the_clusters_named(
    sides: dict[str, LabCluster], tmp_path: Path
) -> None:
    """No Spark is started for them."""
    odd, even = unique("odd"), unique("even")
    clusters = {odd: sides["east"], even: sides["west"]}
    keys = {"emit.heartbeats.enabled": "true"}
    with MirrorProcess(tmp_path, clusters, keys, arguments=("--clusters", even), on_spark=True) as alone:
        alone.wait_until(lambda: len(beats(sides["west"], "heartbeats", odd, even)) >= 2, 30, what="two heartbeats")
        assert beats(sides["east"], "heartbeats", even, odd) == []
        assert [process.pid for process in alone.processes()] == [alone.process.pid]
        assert "only heartbeats are written" in alone.output
        stopped = alone.stop()
    assert (stopped.code, stopped.seconds < 2.0) == (0, True)


def test_without_heartbeats_and_flows_there_is_nothing_to_run(sides: dict[str, LabCluster], tmp_path: Path) -> None:
    with MirrorProcess(tmp_path, sides, {"emit.heartbeats.enabled": "false"}) as idle:
        assert idle.wait_exit() == 3
    assert "nothing to run" in idle.output
