"""Runs the demo: two real Kafka clusters, a mirror between them, and a consumer that continues when one is lost.

    make demo

Writes 105 products to the topic `products` of the cluster `es-src`, lets `heliograph run` mirror it to
`es-src.products` on the cluster `es-tgt`, and compares both topics record by record with a client that shares
no code with the mirror. A group reads twenty products; then `es-src` is killed, and the group continues on `es-tgt`.
Exit code 0 means that every record is equal, and that the group's next record there is the 21st. Nothing is left
behind.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from heliograph.errors import HeliographError, LabError
from heliograph.lab.cluster import Lab, LabCluster
from heliograph.lab.progress import show_progress
from heliograph.lab.spec import ClusterSpec

try:
    from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic
except ImportError:
    raise SystemExit("The demo compares with confluent-kafka: pip install 'heliograph[dev]'") from None

SOURCE, TARGET, TOPIC = "es-src", "es-tgt", "products"
COPY = f"{SOURCE}.{TOPIC}"

FIELDS = ("product_id", "description", "target_temperature", "target_humidity_level", "content_type")
FIVE_PRODUCTS = [
    ("P01", "Sourdough starter, wakes up hungry", 26, 7, 1),
    ("P02", "Orchid seedlings, tray of twelve", 22, 8, 2),
    ("P03", "Dark chocolate, 85 percent", 17, 4, 1),
    ("P04", "Violin, spruce and maple", 20, 5, 3),
    ("P05", "Oysters on ice, two dozen", 2, 9, 1),
]
RANDOM_PRODUCTS = 100

CONFIG = """\
clusters = es-src, es-tgt
es-src.bootstrap.servers = {source}
es-tgt.bootstrap.servers = {target}
es-src->es-tgt.enabled = true
es-src->es-tgt.topics = products
replication.factor = 1
offset.storage.replication.factor = 1
config.storage.replication.factor = 1
status.storage.replication.factor = 1
heartbeats.topic.replication.factor = 1
offset-syncs.topic.replication.factor = 1
checkpoints.topic.replication.factor = 1
emit.checkpoints.interval.seconds = 1
sync.group.offsets.enabled = true
sync.group.offsets.interval.seconds = 1
refresh.groups.interval.seconds = 1
"""
COPY_TIMEOUT_S = 90.0
GROUP, CONSUMED = "ProductConsumer", 20
CARRY_TIMEOUT_S = 30.0

Partition = list[tuple[object, ...]]
"""The fields of each record of a partition that must be equal, in order: timestamp, key, value, headers."""


def main() -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # ends as Ctrl-C does
    try:
        return run_demo()
    except (HeliographError, KafkaException) as error:
        print(error, file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted; all is stopped and removed", file=sys.stderr)
        return 130


def run_demo() -> int:
    began = time.monotonic()
    with (
        tempfile.TemporaryDirectory(prefix="heliograph-demo-", ignore_cleanup_errors=True) as folder,
        show_progress() as progress,
        Lab(Path(folder, "lab"), progress=progress) as lab,
    ):
        lab.start([ClusterSpec(alias=SOURCE), ClusterSpec(alias=TARGET)])
        source, target = lab.cluster(SOURCE), lab.cluster(TARGET)
        progress(TOPIC, f"writing {len(FIVE_PRODUCTS)} products and {RANDOM_PRODUCTS} random ones to {SOURCE}")
        write_products(source)
        written = read_topic(source, TOPIC)
        progress("mirror", "heliograph run: starting Spark")
        mirror_began = time.monotonic()
        with mirror(Path(folder), source, target) as process:
            copied = wait_for_copy(process, Path(folder, "mirror.log"), target, count(written))
            mirror_s = time.monotonic() - mirror_began
            progress("mirror", f"{count(copied)} records in {COPY} on {TARGET}")
            consumed = consume(source, TOPIC, CONSUMED)
            progress(GROUP, f"read {len(consumed)} products on {SOURCE}")
            carried_s = wait_for_group(target, len(consumed))
            progress(GROUP, f"stands at {len(consumed)} on {TARGET} too, {carried_s:.1f} s later")
            lost_at = time.monotonic()
            for broker in source.brokers:
                source.kill_broker(broker.node_id)
            progress(SOURCE, "killed with -9")
            following = consume(target, COPY, count(written) - len(consumed))
            failover_s = time.monotonic() - lost_at
        progress(GROUP, f"read the other {len(following)} on {TARGET}")
    result = show_copy(written, copied, mirror_s=mirror_s, total_s=time.monotonic() - began)
    return result or show_failover(written[0], consumed, following, failover_s=failover_s)


@contextmanager
def mirror(folder: Path, source: LabCluster, target: LabCluster) -> Iterator[subprocess.Popen[bytes]]:
    """Runs `heliograph run` as a child; its output goes to a log file."""
    config = folder / "mm2.properties"
    config.write_text(CONFIG.format(source=source.bootstrap, target=target.bootstrap))
    program = "import sys; from heliograph.cli import main; sys.exit(main())"
    with (folder / "mirror.log").open("wb") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", program, "run", str(config)],
            stdout=log,
            stderr=log,
            env={**os.environ, "TMPDIR": str(folder)},
        )
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def wait_for_copy(process: subprocess.Popen[bytes], log: Path, target: LabCluster, records: int) -> list[Partition]:
    """Returns the copy, once it has as many records as it should."""
    deadline = time.monotonic() + COPY_TIMEOUT_S
    while count(copied := read_topic(target, COPY)) < records:
        if process.poll() is not None or time.monotonic() > deadline:
            lines = log.read_text(errors="replace").splitlines()[-15:]
            raise LabError(f"{count(copied)} of {records} records were mirrored", why="\n  ".join(["it said:", *lines]))
        time.sleep(0.2)
    return copied


def show_copy(written: list[Partition], copied: list[Partition], *, mirror_s: float, total_s: float) -> int:
    equal = sum(
        one == other
        for here, there in zip(written, copied, strict=False)
        for one, other in zip(here, there, strict=False)
    )
    different = max(count(written), count(copied)) - equal
    table = Table(title=f"{TOPIC} on {SOURCE}, {COPY} on {TARGET}", title_justify="left")
    for heading in ("partitions", "records", "copied", "equal", "different", "mirror, s", "in all, s"):
        table.add_column(heading, justify="right")
    numbers = (len(written), count(written), count(copied), equal, different)
    table.add_row(*map(str, numbers), f"{mirror_s:.1f}", f"{total_s:.1f}")
    Console(highlight=False).print(table)
    if different or not written or len(written) != len(copied):
        print("The copy is not equal.")
        return 1
    print(f"All {equal} records are equal: order, timestamp, key, value and headers.")
    return 0


def show_failover(written: Partition, consumed: Partition, following: Partition, *, failover_s: float) -> int:
    """Shows what the loss of the source cost the group."""
    read = [*consumed, *following]
    lost = sum(record not in read for record in written)
    again = sum(record in consumed for record in following)
    first = written.index(following[0]) + 1 if following else 0
    table = Table(title=f"{GROUP}: {SOURCE} is lost, on to {TARGET}", title_justify="left")
    for heading in ("read before", "first record after", "read after", "lost", "read again", "took, s"):
        table.add_column(heading, justify="right")
    table.add_row(*map(str, (len(consumed), first, len(following), lost, again)), f"{failover_s:.1f}")
    Console(highlight=False).print(table)
    if lost or again or first != len(consumed) + 1:
        print("The group did not go on where it was.")
        return 1
    print(f"The group went on at record {first}, its next one: nothing lost, nothing read again.")
    return 0


def count(partitions: list[Partition]) -> int:
    return sum(map(len, partitions))


# -- an independent client, so that the mirror does not judge itself


def write_products(cluster: LabCluster) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
    invented = [
        (f"R{n:03}", f"Random product {n}", random.randint(-20, 30), random.randint(1, 10), random.randint(1, 3))
        for n in range(1, RANDOM_PRODUCTS + 1)
    ]
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for product in [*FIVE_PRODUCTS, *invented]:
        producer.produce(TOPIC, json.dumps(dict(zip(FIELDS, product, strict=True))), str(product[0]))
    if left := producer.flush(30):
        raise LabError(f'{left} products could not be written to "{cluster.alias}"')


def consume(cluster: LabCluster, topic: str, number: int) -> Partition:
    """Joins the group, reads this number of records, commits, leaves."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.auto.offset.store": False,
        }
    )
    found: Partition = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + CARRY_TIMEOUT_S
        while len(found) < number and time.monotonic() < deadline:
            for message in consumer.consume(number - len(found), timeout=1.0):
                if message.error() is None:
                    found.append((message.timestamp(), message.key(), message.value(), message.headers()))
                    consumer.store_offsets(message)
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def wait_for_group(cluster: LabCluster, offset: int) -> float:
    """Waits until the group's offset in the copy is this one; returns the seconds that took."""
    began = time.monotonic()
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": GROUP})
    try:
        while (found := consumer.committed([TopicPartition(COPY, 0)], timeout=30)[0].offset) != offset:
            if time.monotonic() > began + CARRY_TIMEOUT_S:
                raise LabError(f'"{GROUP}" stands at {found} on "{cluster.alias}", not at {offset}')
            time.sleep(0.1)
        return time.monotonic() - began
    finally:
        consumer.close()


def read_topic(cluster: LabCluster, topic: str) -> list[Partition]:
    """Reads all records of a topic by partition; empty while the topic does not exist."""
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
        }
    )
    try:
        found = consumer.list_topics(timeout=30).topics.get(topic)
        partitions: list[Partition] = [[] for _ in found.partitions] if found else []
        consumer.assign([TopicPartition(topic, index, 0) for index in range(len(partitions))])
        waiting = len(partitions)
        while waiting:
            for message in consumer.consume(500, timeout=1.0):
                error = message.error()
                if error is None:
                    content = (message.timestamp(), message.key(), message.value(), message.headers())
                    partitions[message.partition() or 0].append(content)
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting -= 1
                else:
                    raise KafkaException(error)
        return partitions
    finally:
        consumer.close()


if __name__ == "__main__":
    sys.exit(main())
