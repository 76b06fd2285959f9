"""What the source holds is what the target holds: record for record, whatever was written and however.

One mirror serves all tests. It has five flows between the same two clusters, told apart by their aliases: MM2
gives isolation level, naming and compression per alias or flow, so each kind has one of its own.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from confluent_kafka import TIMESTAMP_LOG_APPEND_TIME, Producer

from heliograph.lab import LabCluster
from tests.cluster.mirror import (
    Headers,
    MirrorProcess,
    Record,
    View,
    assert_numbered,
    create_topic,
    produce,
    producer,
    read_batches,
    set_broker_config,
    topics,
    unique,
    wait_until,
)

HOUR_MS = 3_600_000
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
SOURCES = ("plain", "committed", "same", "dashed", "zipped")


@pytest.fixture(scope="module")
def mirror(
    tmp_path_factory: pytest.TempPathFactory, primary: LabCluster, backup: LabCluster
) -> Iterator[MirrorProcess]:
    # One cluster under several aliases is refused, so each has another way to write the same address.
    spellings = ("127.0.0.1", "127.0.1", "127.1", "localhost", "2130706433")
    ports = [cluster.bootstrap.rpartition(":")[2] for cluster in (primary, backup)]
    clusters = {alias: f"{host}:{ports[0]}" for alias, host in zip(SOURCES, spellings, strict=True)}
    clusters |= {"backup": f"127.0.0.1:{ports[1]}", "squeezed": f"127.1:{ports[1]}"}
    keys = {
        "plain->backup.topics": "plain-.*",
        "committed->backup.topics": "committed-.*",
        "committed.consumer.isolation.level": "read_committed",
        "same->backup.topics": "same-.*",
        "same->backup.replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "dashed->backup.topics": "dashed-.*",
        "dashed->backup.replication.policy.separator": "_",
        "zipped->squeezed.topics": "zipped-.*",
        "squeezed.producer.compression.type": "zstd",
        "config.properties.exclude": ".*",  # targets have the settings that a test gives them
    }
    with MirrorProcess(tmp_path_factory.mktemp("fidelity"), clusters, keys, on_spark=True) as mirror:
        yield mirror


def text(size: int, seed: int) -> bytes:
    """Bytes that compress to about half."""
    return random.Random(seed).randbytes(size // 2).hex().encode()


def flushed(sender: Producer) -> None:
    assert sender.flush(60) == 0


def gaps(records: list[Record]) -> int:
    return sum(after.offset - before.offset != 1 for before, after in pairwise(records))


def test_keys_values_headers_and_times(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("plain-variety"), 3)
    now = int(time.time() * 1000)
    sender = producer(primary)
    many: Headers = [("trace", str(index).encode()) for index in range(300)]
    contents: list[tuple[bytes | None, bytes | None, Headers, int]] = [
        (b"k", b"v", [], now),
        (None, b"no key", [], now),
        (b"deleted", None, [], now),
        (None, None, [], now),
        (b"", b"", [], now),
        (b"\x00\xff", bytes(range(256)), [("h", b"\x00\xff")], now),
        (b"order", b"v", [("b", b"1"), ("a", b"2"), ("b", b"3"), ("b", b"1")], now),
        (b"null and empty", b"v", [("null", None), ("empty", b""), ("", b"no name"), ("ü", "ü".encode())], now),
        (b"many headers", b"v", many, now),
        (b"big key" * 5000, b"v", [("big", b"x" * 50_000)], now),
        (b"out of order", b"v", [], now - 5),
        (b"yesterday", b"v", [], now - 26 * HOUR_MS),
        (b"five days old", b"v", [], now - 120 * HOUR_MS),
        (b"soon", b"v", [], now + HOUR_MS // 2),
        (b"now again", b"v", [], now),
    ]
    for key, value, headers, timestamp in contents:
        sender.produce(topic, value, key, 0, timestamp=timestamp, headers=headers)
    sender.produce(topic, b"alone in its partition", b"k", 1)
    flushed(sender)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    assert View(backup, f"plain.{topic}").counts() == [15, 1, 0]
    assert_numbered(read_batches(backup, f"plain.{topic}"))


def test_every_codec_is_kept(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("plain-codecs"), len(CODECS))
    for partition, codec in enumerate(CODECS):
        values = [text(1000, seed) for seed in range(300)]
        produce(primary, topic, values, partition=partition, compression_type=codec)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    for partition, codec in enumerate(CODECS):
        assert {batch.codec for batch in read_batches(primary, topic, partition)} == {codec}
        copied = read_batches(backup, f"plain.{topic}", partition)
        assert {batch.codec for batch in copied} == {codec}
        assert_numbered(copied)


def test_large_records(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """As large as the default limit allows, and larger where both sides were told to."""
    topic, larger = unique("plain-mb"), unique("plain-larger")
    limit = {"max.message.bytes": "4000000"}
    create_topic(primary, topic)
    create_topic(backup, f"plain.{larger}", config=limit)
    create_topic(primary, larger, config=limit)
    values = [b"before", random.Random(1).randbytes(1_048_500), b"after"]
    produce(primary, topic, values, message_max_bytes=3_500_000)
    values = [b"before", random.Random(2).randbytes(3_000_000), b"after"]
    produce(primary, larger, values, message_max_bytes=3_500_000)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    mirror.wait_mirrored(View(primary, larger), View(backup, f"plain.{larger}"))


def test_compacted_topic_with_gaps(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """The cleaner has worked before the mirror sees the topic: batches have holes, whole batches are gone."""
    set_broker_config(primary, log_cleaner_backoff_ms="200")
    topic = unique("plain-compacted")
    config = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01", "segment.ms": "50"}
    with mirror.frozen():
        create_topic(primary, topic, 2, config=config)
        for partition, codec in ((0, "none"), (1, "lz4")):
            for turn in range(4):
                keys = [f"key-{index * (turn + 1) % 60}".encode() for index in range(200)]
                values = [None if index % 17 == 3 else text(100, turn * 1000 + index) for index in range(200)]
                produce(primary, topic, values, partition=partition, keys=keys, compression_type=codec)
                time.sleep(0.1)  # longer than segment.ms: the next write begins a new segment
        wait_until(lambda: all(gaps(records) > 5 for records in View(primary, topic).read()), what="the cleaner's work")
    for partition in (0, 1):
        batches = read_batches(primary, topic, partition)
        assert any(batch.count <= batch.last_offset_delta for batch in batches)
        assert any(batch.attributes & 0x40 for batch in batches), "no delete horizon"
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    for partition in (0, 1):
        assert_numbered(read_batches(backup, f"plain.{topic}", partition))


def test_log_append_time(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """The broker's stamps of the source become the records' own times."""
    topic = create_topic(primary, unique("plain-stamped"), 2, config={"message.timestamp.type": "LogAppendTime"})
    for partition, codec in ((0, "none"), (1, "zstd")):
        produce(primary, topic, [text(200, n) for n in range(200)], partition=partition, compression_type=codec)
    source = View(primary, topic)
    assert all(record.timestamp_type == TIMESTAMP_LOG_APPEND_TIME for records in source.read() for record in records)
    mirror.wait_mirrored(source, View(backup, f"plain.{topic}"))
    assert_numbered(read_batches(backup, f"plain.{topic}"))


def test_target_that_stamps_time(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """Everything but the time arrives when the target topic is set to LogAppendTime."""
    topic = unique("plain-restamped")
    target = create_topic(backup, f"plain.{topic}", config={"message.timestamp.type": "LogAppendTime"})
    create_topic(primary, topic)
    produce(primary, topic, [text(200, n) for n in range(500)])
    mirror.wait_until(lambda: View(backup, target).counts() == [500], what="the copy")
    (wanted,), (found,) = View(primary, topic).read(), View(backup, target).read()
    assert [record.content[1:] for record in found] == [record.content[1:] for record in wanted]


def transactional(cluster: LabCluster) -> Producer:
    sender = producer(cluster, transactional_id=unique("tx"))
    sender.init_transactions(30)
    sender.begin_transaction()
    return sender


def write(sender: Producer, topic: str, name: str, count: int) -> None:
    for index in range(count):
        sender.produce(topic, f"{name}-{index}".encode(), name.encode(), 0)
    flushed(sender)


def write_transactions(cluster: LabCluster, topic: str) -> Producer:
    """Committed, aborted and plain records, transactions side by side; the transaction returned is still open."""
    plain, one, other = producer(cluster), transactional(cluster), transactional(cluster)
    for turn in range(3):
        write(one, topic, f"committed-{turn}", 20)
        write(other, topic, f"aborted-{turn}", 20)
        write(plain, topic, f"plain-{turn}", 5)
    other.abort_transaction(30)
    write(plain, topic, "between", 5)
    one.commit_transaction(30)
    for turn in range(3):
        one.begin_transaction()
        write(one, topic, f"again-{turn}", 10)
        if turn == 1:
            one.abort_transaction(30)
        else:
            one.commit_transaction(30)
    other.begin_transaction()
    write(other, topic, "open", 10)
    write(plain, topic, "behind the open one", 10)
    return other


def test_transactions_read_committed(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("committed-tx"))
    source, target = View(primary, topic, "read_committed"), View(backup, f"committed.{topic}")
    pending = write_transactions(primary, topic)
    (visible,) = source.read()
    assert len(visible) == 3 * 20 + 3 * 5 + 5 + 2 * 10
    mirror.wait_mirrored(source, target)

    later = create_topic(primary, unique("committed-later"))
    produce(primary, later, [b"v"])
    mirror.wait_mirrored(View(primary, later), View(backup, f"committed.{later}"))
    assert target.counts() == [len(visible)], "a record behind an open transaction was copied"

    pending.commit_transaction(30)
    wait_until(lambda: len(source.read()[0]) == len(visible) + 20, what="the commit")
    mirror.wait_mirrored(source, target)
    assert_numbered(read_batches(backup, f"committed.{topic}"))


def test_transactions_read_uncommitted(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """MM2's default: records of aborted and open transactions are copied like any other, markers are not."""
    topic = create_topic(primary, unique("plain-tx"))
    pending = write_transactions(primary, topic)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    pending.abort_transaction(30)
    produce(primary, topic, [b"after the abort"])
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    assert_numbered(read_batches(backup, f"plain.{topic}"))


def test_batches_over_the_target_limit_are_split(
    mirror: MirrorProcess, primary: LabCluster, backup: LabCluster
) -> None:
    topic = unique("plain-split")
    limit = 10_000
    target = create_topic(backup, f"plain.{topic}", 2, config={"max.message.bytes": str(limit)})
    create_topic(primary, topic, 2)
    for partition, codec in ((0, "none"), (1, "gzip")):
        values = [text(500, n) for n in range(500)]
        produce(primary, topic, values, partition=partition, compression_type=codec, linger_ms=300)
        assert max(batch.size for batch in read_batches(primary, topic, partition)) > 5 * limit
    mirror.wait_mirrored(View(primary, topic), View(backup, target))
    for partition in (0, 1):
        assert max(batch.size for batch in read_batches(backup, target, partition)) <= limit
        assert_numbered(read_batches(backup, target, partition))


def test_small_batches_are_merged_under_backlog(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = unique("plain-small")
    with mirror.frozen():
        create_topic(primary, topic, 2)
        for partition, codec in ((0, "none"), (1, "lz4")):
            values = [text(200, n) for n in range(3000)]
            produce(
                primary, topic, values, partition=partition, linger_ms=0, batch_num_messages=1, compression_type=codec
            )
    assert len(read_batches(primary, topic)) == 3000
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    for partition in (0, 1):
        copied = read_batches(backup, f"plain.{topic}", partition)
        assert_numbered(copied)
    assert len(read_batches(backup, f"plain.{topic}")) < 300


def test_old_records_arrive_once_and_in_order(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """Two days old: the broker may forget the producer at any moment, order and number must hold all the same."""
    topic = create_topic(primary, unique("plain-old"))
    sender = producer(primary, batch_num_messages=20)
    past = int(time.time() * 1000) - 48 * HOUR_MS
    for index in range(2000):
        sender.produce(topic, f"{index}".encode(), b"k", 0, timestamp=past + index)
    flushed(sender)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"plain.{topic}"))
    assert_numbered(read_batches(backup, f"plain.{topic}"))


def test_compression_asked_for(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("zipped-asked"), len(CODECS))
    for partition, codec in enumerate(CODECS):
        produce(primary, topic, [text(500, n) for n in range(200)], partition=partition, compression_type=codec)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"zipped.{topic}"))
    for partition in range(len(CODECS)):
        copied = read_batches(backup, f"zipped.{topic}", partition)
        assert {batch.codec for batch in copied} == {"zstd"}
        assert_numbered(copied)


def test_identity_policy_keeps_names(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("same-name"), 2)
    produce(primary, topic, [text(100, n) for n in range(100)], partition=1)
    mirror.wait_mirrored(View(primary, topic), View(backup, topic))
    assert f"same.{topic}" not in topics(backup)


def test_separator_of_ones_own(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("dashed-name"), 2)
    produce(primary, topic, [text(100, n) for n in range(100)], partition=1)
    mirror.wait_mirrored(View(primary, topic), View(backup, f"dashed_{topic}"))
