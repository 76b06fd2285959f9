"""Helpers of the tests on real brokers: a mirror as a real process, and an independent look at both clusters.

Everything here reads and writes Kafka through confluent-kafka, which checks every batch's CRC, or straight from
the broker's log files: nothing of the mirror's own code judges the mirror.
"""

from __future__ import annotations

import functools
import os
import signal
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

import psutil
from confluent_kafka import (
    OFFSET_BEGINNING,
    TIMESTAMP_CREATE_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
)

from heliograph.config.files.properties import property_line
from heliograph.lab import LabCluster
from heliograph.lab.keeper import die_with_parent

HELIOGRAPH = str(Path(sys.executable).with_name("heliograph"))
FORKED = str(Path(__file__).parent.parent / "forked.py")
ALL_ON_SPARK = "HELIOGRAPH_TESTS_ON_SPARK"
"""Set by `pytest --spark`: every mirror of the tests has its lanes on Spark."""
Headers = list[tuple[str, str | bytes | None]]


def unique(name: str) -> str:
    """A name that no other test and no earlier run has used."""
    return f"{name}-{uuid.uuid4().hex[:8]}"


def java_options(temporary: Path) -> str:
    """A Java that starts with little CPU, and makes its temporary files in a folder of the test."""
    return f"-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Djava.io.tmpdir={temporary}"


def wait_until(condition: Callable[[], object], timeout_s: float = 60.0, *, what: str = "it") -> float:
    """Wait for a condition and give the seconds it took; AssertionError when it does not come true."""
    began = time.monotonic()
    while not condition():
        assert time.monotonic() - began < timeout_s, f"{what} did not happen within {timeout_s:.0f} s"
        time.sleep(0.05)
    return time.monotonic() - began


# -- the mirror as a process


class Stopped(NamedTuple):
    seconds: float
    code: int


class MirrorProcess:
    """`heliograph run` on a properties file of the test, in a session of its own.

        with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, {"primary->backup.topics": "x-.*"}):
            ...

    A cluster is a lab cluster or a text for `bootstrap.servers`. Flows are enabled by naming them in `keys`. Lanes run
    in forked processes (`tests/forked.py`) unless the test is about Spark, or names a master.
    """

    def __init__(
        self,
        folder: Path,
        clusters: Mapping[str, LabCluster | str],
        keys: Mapping[str, str],
        *,
        arguments: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
        on_spark: bool = False,
    ) -> None:
        self._environment = dict(environment or {})
        self._on_spark = on_spark or "--master" in arguments or ALL_ON_SPARK in os.environ
        self.folder = folder / unique("mirror")
        self.config = self.folder / "mm2.properties"
        self.keys = {**_defaults(clusters), **self._of_executors(arguments), **_enabled(keys), **keys}
        self.arguments = tuple(arguments)
        self._process: subprocess.Popen[bytes] | None = None
        self.folder.mkdir()
        (self.folder / "tmp").mkdir()
        self.write(self.keys)

    def _of_executors(self, arguments: Sequence[str]) -> dict[str, str]:
        """Executors of a standalone Spark start as cheaply as the mirror's own JVM, and leave files only here."""
        is_standalone = any(argument.startswith("spark://") for argument in arguments)
        return {"spark.executor.extraJavaOptions": java_options(self.folder / "tmp")} if is_standalone else {}

    def command(self) -> list[str]:
        program = [HELIOGRAPH] if self._on_spark else [sys.executable, FORKED]
        return [*program, "run", str(self.config), *self.arguments]

    def write(self, keys: Mapping[str, str]) -> None:
        """The configuration as a property file."""
        self.config.write_text("".join(f"{property_line(key, value)}\n" for key, value in keys.items()))

    def start(self) -> Self:
        """Start; output is appended to that of earlier starts."""
        assert self._process is None or self._process.poll() is not None
        with (self.folder / "stdout").open("ab") as out, (self.folder / "stderr").open("ab") as err:
            self._process = subprocess.Popen(
                self.command(),
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                env={**os.environ, **self._temporary_files(), **self._environment},
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (calls the kernel, and takes no lock)
            )
        return self

    def _temporary_files(self) -> dict[str, str]:
        """The variables by which Python and Spark's JVM make theirs in the mirror's own folder."""
        folder = str(self.folder / "tmp")
        return {"TMPDIR": folder, "SPARK_SUBMIT_OPTS": f"-Djava.io.tmpdir={folder}"}

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with suppress(subprocess.TimeoutExpired):
            if self.is_running:
                self.stop()
        self.kill()

    @property
    def process(self) -> subprocess.Popen[bytes]:
        assert self._process is not None, "the mirror was never started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    @property
    def stdout(self) -> list[str]:
        return (self.folder / "stdout").read_text(errors="replace").splitlines()

    @property
    def stderr(self) -> list[str]:
        return (self.folder / "stderr").read_text(errors="replace").splitlines()

    @property
    def output(self) -> str:
        return "\n".join([*self.stdout, *self.stderr])

    @property
    def spark_log(self) -> str:
        """What Spark has written, in all starts."""
        self._keep_spark_log()
        return "".join(log.read_text(errors="replace") for log in self.folder.glob("heliograph-spark-*.log"))

    def processes(self) -> list[psutil.Process]:
        """All that lives in the mirror's session: itself, Spark's JVM, the Python workers."""
        found = []
        for process in psutil.process_iter(["status"]):
            with suppress(ProcessLookupError, PermissionError):
                if os.getsid(process.pid) == self.process.pid and process.info["status"] != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def lanes(self) -> list[psutil.Process]:
        """The worker processes that lanes run in, and what forks them."""
        if not self._on_spark:
            return [process for process in self.processes() if process.pid != self.process.pid]
        return [process for process in self.processes() if "pyspark.daemon" in " ".join(process.cmdline())]

    def commands(self) -> str:
        """The command lines of all these processes."""
        lines = []
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                lines.append(" ".join(process.cmdline()))
        return "\n".join(lines)

    def send_signal(self, number: int) -> None:
        """To the mirror itself, as a terminal or a service manager would."""
        self._keep_spark_log()
        self.process.send_signal(number)

    def stop(self, number: int = signal.SIGTERM, *, timeout_s: float = 20.0) -> Stopped:
        began = time.monotonic()
        self.send_signal(number)
        code = self.process.wait(timeout_s)
        return Stopped(time.monotonic() - began, code)

    def kill(self) -> None:
        """kill -9 of the whole process tree at once."""
        self._keep_spark_log()
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.kill()
        self.process.wait(10)
        wait_until(lambda: not self.processes(), 10, what="the end of the killed processes")

    def _keep_spark_log(self) -> None:
        """Spark's log goes with the mirror; a second name keeps it, with all that is still written to it."""
        for log in self.folder.glob("tmp/heliograph-spark-*/spark.log"):
            with suppress(FileExistsError, FileNotFoundError):
                (self.folder / f"{log.parent.name}.log").hardlink_to(log)

    @contextmanager
    def until_killed(self) -> Iterator[None]:
        """Start, and end by kill -9 whatever happens."""
        self.start()
        try:
            yield
        finally:
            self.kill()

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """Stop the whole tree's clock for a while: what is produced meanwhile is backlog."""
        processes = self.processes()
        for process in processes:
            process.suspend()
        try:
            yield
        finally:
            for process in processes:
                process.resume()

    def wait_exit(self, timeout_s: float = 30.0) -> int:
        try:
            return self.process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it still runs after {timeout_s:.0f} s\n{self.output}") from None

    def wait_until(self, condition: Callable[[], object], timeout_s: float = 90.0, *, what: str = "it") -> float:
        """As `wait_until`, and fails at once when the mirror ends."""

        def alive_and() -> object:
            assert self.is_running, f"the mirror ended with {self.process.returncode}\n{self.output}"
            return condition()

        try:
            return wait_until(alive_and, timeout_s, what=what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.output}") from None

    def wait_for(self, text: str, timeout_s: float = 90.0) -> float:
        """Wait until a line of the mirror's output holds the text."""
        return self.wait_until(lambda: text in self.output, timeout_s, what=f'a line with "{text}"')

    def wait_mirrored(self, source: View, target: View, *, timeout_s: float = 90.0) -> None:
        """Wait for the copy and compare it, record by record, with what the source holds now."""
        wanted = source.read()
        counts = [len(records) for records in wanted]

        def is_copied() -> bool:
            copied = target.counts() or []
            return len(copied) == len(counts) and all(map(int.__ge__, copied, counts))

        self.wait_until(
            is_copied,
            timeout_s,
            what=f"the copy of {sum(counts)} records of {source.topic}",
        )
        assert_equal(wanted, target.read())


def _defaults(clusters: Mapping[str, LabCluster | str]) -> dict[str, str]:
    return {
        "clusters": ", ".join(clusters),
        **{
            f"{alias}.bootstrap.servers": cluster if isinstance(cluster, str) else cluster.bootstrap
            for alias, cluster in clusters.items()
        },
        **{f"{alias}.group.id": unique("mirror") for alias in clusters},
        "replication.factor": "1",
        "offset.storage.replication.factor": "1",
        "config.storage.replication.factor": "1",
        "status.storage.replication.factor": "1",
        "refresh.topics.interval.seconds": "1",
        "spark.heliograph.warmUpJobs": "1",
        "emit.heartbeats.enabled": "false",
        "heartbeats.topic.replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
    }


def _enabled(keys: Mapping[str, str]) -> dict[str, str]:
    flows = {key.split(".", 1)[0] for key in keys if "->" in key}
    return {f"{flow}.enabled": "true" for flow in sorted(flows)}


# -- an independent look at a cluster


@functools.cache
def _admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": "0"})


def admin(cluster: LabCluster) -> AdminClient:
    return _admin(cluster.bootstrap)


def create_topic(
    cluster: LabCluster, topic: str, partitions: int = 1, *, replicas: int = 1, config: Mapping[str, str] | None = None
) -> str:
    created = admin(cluster).create_topics([NewTopic(topic, partitions, replicas, config=dict(config or {}))])
    created[topic].result(30)
    wait_until(lambda: partition_count(cluster, topic) == partitions, what=f"the metadata of {topic}")
    return topic


def delete_topic(cluster: LabCluster, topic: str) -> None:
    delete_topics(cluster, {topic})


def delete_topics(cluster: LabCluster, names: set[str]) -> None:
    for deleted in admin(cluster).delete_topics(sorted(names)).values() if names else ():
        deleted.result(30)
    wait_until(lambda: not names & topics(cluster), what="the end of the topics")


def delete_records(cluster: LabCluster, topic: str, before: int) -> None:
    """Of partition 0, all below an offset, as retention does."""
    [deleted] = admin(cluster).delete_records([TopicPartition(topic, 0, before)]).values()
    assert deleted.result(30).low_watermark == before


def grow_topic(cluster: LabCluster, topic: str, partitions: int) -> None:
    admin(cluster).create_partitions([NewPartitions(topic, partitions)])[topic].result(30)
    wait_until(lambda: partition_count(cluster, topic) == partitions, what=f"the new partitions of {topic}")


def topics(cluster: LabCluster) -> set[str]:
    """All topics but those that a broker makes for itself."""
    return set(admin(cluster).list_topics(timeout=30).topics) - {"__consumer_offsets", "__transaction_state"}


def partition_count(cluster: LabCluster, topic: str) -> int:
    """0 when there is no such topic."""
    found = admin(cluster).list_topics(timeout=30).topics.get(topic)
    return len(found.partitions) if found and not found.error else 0


def leader_of(cluster: LabCluster, topic: str) -> int:
    """The broker that leads partition 0."""
    return int(admin(cluster).list_topics(topic, timeout=30).topics[topic].partitions[0].leader)


def replica_counts(cluster: LabCluster, topic: str) -> list[int]:
    partitions = admin(cluster).list_topics(topic, timeout=30).topics[topic].partitions
    return [len(partitions[index].replicas) for index in sorted(partitions)]


def groups(cluster: LabCluster) -> set[str]:
    listing = admin(cluster).list_consumer_groups(request_timeout=30).result(30)
    assert not listing.errors
    return {group.group_id for group in listing.valid}


def set_broker_config(cluster: LabCluster, **config: str) -> None:
    """Change settings of a running cluster's brokers, each of them; underscores stand for dots."""
    entries = [
        ConfigEntry(name.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
        for name, value in config.items()
    ]
    for node in cluster.brokers:
        resource = ConfigResource(ConfigResource.Type.BROKER, str(node.node_id), incremental_configs=entries)
        admin(cluster).incremental_alter_configs([resource])[resource].result(30)


def producer(cluster: LabCluster, **config: Any) -> Producer:
    """A producer that waits a little so that records share batches; underscores stand for dots."""
    given = {name.replace("_", "."): value for name, value in config.items()}
    return Producer(
        {"bootstrap.servers": cluster.bootstrap, "linger.ms": 20, "enable.idempotence": True, "log_level": 0, **given}
    )


def produce(
    cluster: LabCluster,
    topic: str,
    values: Sequence[bytes | None],
    *,
    partition: int = 0,
    keys: Sequence[bytes | None] | None = None,
    **config: Any,
) -> None:
    """Write values, in order, to one partition; done when all are acknowledged."""
    sender = producer(cluster, **config)
    for index, value in enumerate(values):
        while True:
            try:
                sender.produce(topic, value, keys[index] if keys else f"k{index}".encode(), partition)
                break
            except BufferError:
                sender.poll(0.1)
    assert sender.flush(60) == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    partition: int
    offset: int
    timestamp: int
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]

    @property
    def content(self) -> tuple[object, ...]:
        """All that a copy must keep."""
        return (self.timestamp, self.key, self.value, self.headers)


@dataclass(frozen=True, slots=True)
class View:
    """A topic of a cluster as an ordinary consumer sees it."""

    cluster: LabCluster
    topic: str
    isolation: str = "read_uncommitted"
    access: Mapping[str, str] = field(default_factory=dict)
    """Keys of librdkafka to come in by another listener than the plain one."""

    def read(self) -> list[list[Record]]:
        """Every record there is now, by partition, CRCs checked."""
        partitions = partition_count(self.cluster, self.topic)
        assert partitions, f"{self.topic} does not exist"
        consumer = Consumer(
            {
                "bootstrap.servers": self.cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "enable.partition.eof": True,
                "isolation.level": self.isolation,
                "check.crcs": True,
                "fetch.wait.max.ms": 50,
                "log_level": 0,
                **self.access,
            }
        )
        try:
            consumer.assign([TopicPartition(self.topic, index, OFFSET_BEGINNING) for index in range(partitions)])
            return _read_to_end(consumer, partitions)
        finally:
            consumer.close()

    def counts(self) -> list[int] | None:
        """End offsets by partition; None while the topic is not there."""
        partitions = partition_count(self.cluster, self.topic)
        wanted = {TopicPartition(self.topic, index): _latest() for index in range(partitions)}
        if not wanted:
            return None
        try:
            ends = _list_offsets(self, wanted)
        except KafkaException:
            return None
        return [ends[index] for index in range(partitions)]


_latest: Callable[[], OffsetSpec] = OffsetSpec.latest  # which confluent-kafka leaves without a type


def _list_offsets(view: View, wanted: Mapping[TopicPartition, OffsetSpec]) -> dict[int, int]:
    """By a client of its own where the view has its own way in: an old one asks any broker that it has met."""
    way_in = view.access.get("bootstrap.servers")
    client = AdminClient({"bootstrap.servers": way_in, "log_level": "0"}) if way_in else admin(view.cluster)
    found = client.list_offsets(dict(wanted), request_timeout=30)
    return {where.partition: future.result(30).offset for where, future in found.items()}


def _read_to_end(consumer: Consumer, partitions: int) -> list[list[Record]]:
    found: list[list[Record]] = [[] for _ in range(partitions)]
    waiting = set(range(partitions))
    deadline = time.monotonic() + 60
    while waiting:
        assert time.monotonic() < deadline, f"partitions {waiting} were not read to their end"
        for message in consumer.consume(1000, timeout=0.2):
            error = message.error()
            if error is None:
                record = record_of(message)
                found[record.partition].append(record)
            elif error.code() == KafkaError._PARTITION_EOF:
                waiting.discard(message.partition())
            else:
                raise KafkaException(error)
    return found


def record_of(message: Any) -> Record:
    kind, timestamp = message.timestamp()
    return Record(
        partition=message.partition(),
        offset=message.offset(),
        timestamp=timestamp,
        timestamp_type=kind,
        key=message.key(),
        value=message.value(),
        headers=tuple(message.headers() or ()),
    )


def assert_equal(source: list[list[Record]], target: list[list[Record]]) -> None:
    """Record for record: time, key, value, headers and order in every partition, and no target offset left out."""
    assert [len(records) for records in target] == [len(records) for records in source]
    for wanted, found in zip(source, target, strict=True):
        assert [record.offset for record in found] == list(range(len(found)))
        assert all(record.timestamp_type == TIMESTAMP_CREATE_TIME for record in found)
        for one, other in zip(wanted, found, strict=True):
            assert other.content == one.content, f"source offset {one.offset}, target offset {other.offset}"


# -- the broker's own files


@dataclass(frozen=True, slots=True)
class Batch:
    """The header of a batch as the broker stored it."""

    base_offset: int
    size: int
    attributes: int
    last_offset_delta: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    count: int

    @property
    def end(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> str:
        return ("none", "gzip", "snappy", "lz4", "zstd")[self.attributes & 7]


_BATCH = struct.Struct(">qiibIhiqqqhii")


def read_batches(cluster: LabCluster, topic: str, partition: int = 0) -> list[Batch]:
    """The batches in a partition's log, from the files of the cluster's first broker."""
    folder = cluster.brokers[0].folder / "log" / f"{topic}-{partition}"
    return [batch for file in sorted(folder.glob("*.log")) for batch in batches_of_file(file)]


def batches_of_file(file: Path) -> list[Batch]:
    """The batches in one segment of a log."""
    batches = []
    data, at = file.read_bytes(), 0
    while at + _BATCH.size <= len(data):
        base, length, _, _, _, attributes, delta, _, _, owner, epoch, sequence, count = _BATCH.unpack_from(data, at)
        if length <= 0:
            break  # the file is longer than its content
        batches.append(Batch(base, length + 12, attributes, delta, owner, epoch, sequence, count))
        at += length + 12
    return batches


def assert_numbered(batches: Sequence[Batch]) -> None:
    """One producer id and epoch, sequences without a hole, nothing but the codec in the attributes."""
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
    for batch in batches:
        assert batch.attributes & ~7 == 0
        assert batch.last_offset_delta == batch.count - 1
        assert batch.base_sequence == batch.base_offset
