"""`heliograph run` as its users meet it: what it mirrors, how it stops and goes on, what it says and refuses.

Most tests share one mirror, `steady`; those about starting and stopping have their own.
"""

from __future__ import annotations

import re
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from heliograph.lab import LabCluster
from tests.cluster.load import Load
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    create_topic,
    groups,
    grow_topic,
    partition_count,
    produce,
    producer,
    replica_counts,
    topics,
    unique,
    wait_until,
)
from tests.cluster.test_changes import edit

STOP_S = 2.0
KNOWN = "known-from-the-start"
"""A topic of the flow that looks for no new ones."""
OUR_LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (INFO|WARNING|ERROR) \S.*")


@contextmanager
def silent_port() -> Iterator[int]:
    """A port of this machine where nobody listens, and nobody else can."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield bound.getsockname()[1]


@pytest.fixture(scope="module")
def steady(
    tmp_path_factory: pytest.TempPathFactory,
    primary: LabCluster,
    backup: LabCluster,
    trio: LabCluster,
) -> Iterator[MirrorProcess]:
    keys = {
        "primary->backup.topics": r"run-.*, __run.*, \.run.*, mm2-run.*, .*\.run-.*",
        "primary->backup.topics.exclude": "run-excluded.*",
        "primary->trio.topics": "run-fan.*",
        "primary->trio.replication.factor": "-1",
        "backup->trio.topics": "known-.*",
        "backup->trio.refresh.topics.enabled": "false",
        "backup->primary.topics": "run-.*",
        "offset-syncs.topic.location": "target",
        "config.properties.exclude": "max.message.bytes",
    }
    only = ("--clusters", "backup", "--clusters", "trio")
    create_topic(backup, KNOWN)
    with silent_port() as one, silent_port() as other:
        servers = f"127.0.0.1:{one},{primary.bootstrap},127.0.0.1:{other}"
        clusters: dict[str, LabCluster | str] = {"primary": servers, "backup": backup, "trio": trio}
        with MirrorProcess(tmp_path_factory.mktemp("run"), clusters, keys, arguments=only, on_spark=True) as mirror:
            yield mirror


# -- what is mirrored


def test_topic_created_later(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    steady.wait_for("primary->backup: ")
    topic = create_topic(primary, unique("run-later"), 3)
    for partition in range(3):
        produce(primary, topic, [f"{partition}-{index}".encode() for index in range(100)], partition=partition)
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))


def test_new_partitions(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("run-grows"), 1)
    produce(primary, topic, [b"one", b"two"])
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
    grow_topic(primary, topic, 4)
    for partition in range(4):
        produce(primary, topic, [b"three", b"four"], partition=partition)
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))


def test_fan_out_with_a_factor_of_its_own(
    steady: MirrorProcess, primary: LabCluster, backup: LabCluster, trio: LabCluster
) -> None:
    """Several flows in one process; partitions are the source's, replicas what each flow asks for: one, and what the
    brokers there have as their default."""
    topic = create_topic(primary, unique("run-fan"), 3)
    produce(primary, topic, [f"{index}".encode() for index in range(500)], partition=2)
    for target in (backup, trio):
        steady.wait_mirrored(View(primary, topic), View(target, f"primary.{topic}"))
    assert replica_counts(backup, f"primary.{topic}") == [1, 1, 1]
    assert replica_counts(trio, f"primary.{topic}") == [2, 2, 2]


def test_without_refresh_a_topic_that_comes_later_is_left_out(
    steady: MirrorProcess, primary: LabCluster, backup: LabCluster, trio: LabCluster
) -> None:
    """Two more of another flow into the same cluster come and are taken; with the setting changed it is taken too."""
    produce(backup, KNOWN, [b"v"] * 10)
    steady.wait_mirrored(View(backup, KNOWN), View(trio, f"backup.{KNOWN}"))
    later = create_topic(backup, unique("known-later"))
    produce(backup, later, [b"v"])
    for _ in range(2):
        other = create_topic(primary, unique("run-fan"))
        produce(primary, other, [b"v"])
        steady.wait_mirrored(View(primary, other), View(trio, f"primary.{other}"))
    assert f"backup.{later}" not in topics(trio)
    edit(steady.config, "backup->trio.refresh.topics.enabled = true")
    steady.wait_mirrored(View(backup, later), View(trio, f"backup.{later}"))


def test_internal_excluded_and_returning_topics_stay_at_home(
    steady: MirrorProcess, primary: LabCluster, backup: LabCluster
) -> None:
    """The filter asks for all of these; only the last one may go."""
    tail = unique("run")
    at_home = [
        f"__{tail}",
        f".{tail}",
        f"mm2-{tail}.internal",
        f"other.{tail}.checkpoints.internal",
        f"run-excluded-{tail}",
        f"backup.{tail}",
        f"other.backup.{tail}",
    ]
    ordinary = f"{tail}.internal"
    for topic in [*at_home, ordinary]:
        create_topic(primary, topic)
        produce(primary, topic, [b"v"])
    steady.wait_mirrored(View(primary, ordinary), View(backup, f"primary.{ordinary}"))
    assert {f"primary.{topic}" for topic in at_home} & topics(backup) == set()


def test_only_the_flows_into_the_clusters_named(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """The file has backup->primary too, but `--clusters` names the other two."""
    create_topic(backup, unique("run-back"))
    topic = create_topic(primary, unique("run-forth"))
    produce(primary, topic, [b"v"])
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
    assert not any(topic.startswith("backup.run-back") for topic in topics(primary))
    assert "backup->primary" not in "\n".join(steady.stdout)


def test_one_topic_at_fault_leaves_the_others_alone(
    steady: MirrorProcess, primary: LabCluster, backup: LabCluster
) -> None:
    """One has a name that is too long with its prefix, one a record that its target does not take."""
    too_long = unique("run-long").ljust(249, "x")
    create_topic(primary, too_long)
    refusing, sound = unique("run-refused"), unique("run-sound")
    create_topic(backup, f"primary.{refusing}", 2, config={"max.message.bytes": "1000"})
    create_topic(primary, refusing, 2)
    create_topic(primary, sound)
    produce(primary, refusing, [b"fits", b"x" * 5000, b"fits again"])
    produce(primary, refusing, [b"fits"], partition=1)
    produce(primary, sound, [b"one"])
    steady.wait_for(f'"primary.{too_long}"')
    steady.wait_for(f"RECORD_REFUSED: primary->backup {refusing}-0")
    produce(primary, refusing, [b"later"], partition=1)
    produce(primary, sound, [b"two"])
    steady.wait_mirrored(View(primary, sound), View(backup, f"primary.{sound}"))
    steady.wait_until(lambda: View(backup, f"primary.{refusing}").counts() == [1, 2], what="the sound partition")


# -- what is written where


def test_positions_are_those_of_mm2(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """Key bytes, value bytes and partition as MirrorMaker 2 would have written them."""
    topic = create_topic(primary, unique("run-positions"), 3)
    produce(primary, topic, [b"v"] * 42, partition=0)
    produce(primary, topic, [b"v"] * 7, partition=2)
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
    keys = [
        f'["MirrorSourceConnector",{{"cluster":"primary","partition":{partition},"topic":"{topic}"}}]'.encode()
        for partition in range(3)
    ]

    def stored() -> dict[bytes | None, tuple[int, bytes | None]]:
        records = [record for part in View(backup, "mm2-offsets.primary.internal").read() for record in part]
        return {
            record.key: (record.partition, record.value) for record in records if topic.encode() in (record.key or b"")
        }

    def values() -> list[bytes | None]:
        return [stored().get(key, (-1, None))[1] for key in keys]

    steady.wait_until(lambda: values() == [b'{"offset":41}', None, b'{"offset":6}'], 20, what="the positions")
    found = stored()
    assert set(found) <= set(keys)
    scratch = create_topic(backup, unique("murmur"), partition_count(backup, "mm2-offsets.primary.internal"))
    java_like = producer(backup, partitioner="murmur2")
    for key in found:
        java_like.produce(scratch, b"", key)
    assert java_like.flush(30) == 0
    judged = {record.key: record.partition for part in View(backup, scratch).read() for record in part}
    assert judged == {key: partition for key, (partition, _) in found.items()}


def test_nothing_is_written_to_the_source(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """The configuration asks for nothing there: no heartbeats, and offset syncs on the target."""
    topic = create_topic(primary, unique("run-reads-only"))
    before, known = topics(primary), groups(primary)
    produce(primary, topic, [b"v"] * 100)
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
    steady.wait_until(
        lambda: any(
            topic.encode() in (record.key or b"")
            for part in View(backup, "mm2-offsets.primary.internal").read()
            for record in part
        ),
        what="the position",
    )
    assert groups(primary) == known
    assert topics(primary) == before
    syncs = "mm2-offset-syncs.backup.internal"  # other mirrors of this run have theirs on the source
    found = View(primary, syncs).read()[0] if partition_count(primary, syncs) else []
    assert not [record for record in found if topic.encode() in (record.key or b"")]


def test_terminal_shows_our_lines_only(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    """Spark has started, run epochs and been told about new topics: none of its chatter shows."""
    topic = create_topic(primary, unique("run-quiet"))
    produce(primary, topic, [b"v"])
    steady.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
    steady.wait_for("records/s")
    assert [line for line in [*steady.stdout, *steady.stderr] if not OUR_LINE.fullmatch(line)] == []
    flowing = r"\S+ INFO primary->backup: [\d,]+ records/s, [\d.]+ MB/s, lag [\d,]+ records, .+"
    assert any(re.fullmatch(flowing, line) for line in steady.stdout)


# -- stopping and going on


def assert_nothing_left(mirror: MirrorProcess) -> None:
    wait_until(lambda: not mirror.processes(), 15, what="the end of Spark")
    assert list((mirror.folder / "tmp").iterdir()) == []


def assert_stops(mirror: MirrorProcess, number: signal.Signals) -> None:
    stopped = mirror.stop(number)
    assert stopped.code == 0, mirror.output
    assert stopped.seconds < STOP_S
    assert_nothing_left(mirror)
    assert "Traceback" not in mirror.output


def test_a_start_finds_the_classes_that_were_kept(tmp_path: Path, primary: LabCluster, backup: LabCluster) -> None:
    made = subprocess.run([HELIOGRAPH, "prepare"], capture_output=True, text=True, timeout=200, check=True)
    archive = made.stdout.partition(".jsa")[0] + ".jsa"
    keys = {"primary->backup.topics": "nothing"}
    mirror = MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys, on_spark=True)

    def is_mapped() -> bool:
        javas = [process for process in mirror.processes() if process.name() == "java"]
        return any(archive in Path(f"/proc/{java.pid}/maps").read_text() for java in javas)

    with mirror.until_killed():
        mirror.wait_until(is_mapped, 60, what=f"a Java with {archive}")


@pytest.mark.timeout(400)  # three starts of Spark
def test_stopped_mirror_goes_on_where_it_stopped(tmp_path: Path, primary: LabCluster, backup: LabCluster) -> None:
    """Stopped twice in the middle of a stream of records and started again; at last stopped when all is quiet."""
    topic = create_topic(primary, unique("again"), 4)
    source, target = View(primary, topic), View(backup, f"primary.{topic}")
    clusters = {"primary": primary, "backup": backup}
    with MirrorProcess(tmp_path, clusters, {"primary->backup.topics": topic}) as mirror:
        reached = 0

        def is_flowing() -> bool:
            return sum(target.counts() or []) > reached + 2000

        with Load(primary, [topic], partitions=4, per_second=2000, linger_ms=5):
            for number in (signal.SIGTERM, signal.SIGINT):
                mirror.wait_until(is_flowing, what="a flow of records")
                assert_stops(mirror, number)
                reached = sum(target.counts() or [])
                mirror.start()
            mirror.wait_until(is_flowing, what="a flow of records")
        mirror.wait_mirrored(source, target)
        assert_stops(mirror, signal.SIGTERM)
        assert target.counts() == source.counts()
        assert not any("UNPROVEN" in line or "ERROR" in line for line in mirror.stderr)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT], ids=["term", "int"])
def test_stop_while_spark_starts(
    number: signal.Signals, tmp_path: Path, primary: LabCluster, backup: LabCluster
) -> None:
    clusters = {"primary": primary, "backup": backup}
    with MirrorProcess(tmp_path, clusters, {"primary->backup.topics": unique("none")}, on_spark=True) as mirror:
        mirror.wait_until(lambda: "org.apache.spark.deploy.SparkSubmit" in mirror.commands(), what="Spark's JVM")
        assert_stops(mirror, number)


# -- clusters that are not there


class Forwarder:
    """A port that can be opened later on, and then leads to a broker."""

    def __init__(self, port: int) -> None:
        self._to = port
        self._server = socket.socket()
        self._server.bind(("127.0.0.1", 0))
        self._sockets: list[socket.socket] = [self._server]

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._server.getsockname()[1]}"

    def open(self) -> None:
        self._server.listen()
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for item in self._sockets:
            with suppress(OSError):
                item.shutdown(socket.SHUT_RDWR)
            item.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._server.accept()
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                return
            self._sockets += [near, far]
            for one, other in ((near, far), (far, near)):
                threading.Thread(target=self._pipe, args=(one, other), daemon=True).start()

    @staticmethod
    def _pipe(one: socket.socket, other: socket.socket) -> None:
        with suppress(OSError):
            while data := one.recv(65536):
                other.sendall(data)


@pytest.fixture
def forwarder(primary: LabCluster) -> Iterator[Forwarder]:
    forwarder = Forwarder(primary.port(1))
    yield forwarder
    forwarder.close()


def test_unreachable_cluster_is_waited_for(
    forwarder: Forwarder, tmp_path: Path, primary: LabCluster, backup: LabCluster
) -> None:
    topic = create_topic(primary, unique("waiting"))
    produce(primary, topic, [b"v"] * 10)
    clusters: dict[str, LabCluster | str] = {"primary": forwarder.address, "backup": backup}
    with MirrorProcess(tmp_path, clusters, {"primary->backup.topics": topic}) as mirror:
        mirror.wait_for(f'UNREACHABLE: "primary" broker {forwarder.address}: no connection', 15)
        forwarder.open()
        mirror.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
        assert sum("UNREACHABLE" in line for line in mirror.stderr) == 1
        assert_stops(mirror, signal.SIGINT)


def test_stop_while_waiting_for_a_cluster(tmp_path: Path, backup: LabCluster) -> None:
    with silent_port() as port:
        clusters: dict[str, LabCluster | str] = {"primary": f"127.0.0.1:{port}", "backup": backup}
        with MirrorProcess(tmp_path, clusters, {"primary->backup.topics": ".*"}) as mirror:
            mirror.wait_for("UNREACHABLE", 15)
            assert_stops(mirror, signal.SIGTERM)


def test_clusters_go_away_and_come_back(steady: MirrorProcess, primary: LabCluster, backup: LabCluster) -> None:
    topic = create_topic(primary, unique("run-comes-back"), 2)
    source, target = View(primary, topic), View(backup, f"primary.{topic}")
    produce(primary, topic, [b"before"] * 50)
    steady.wait_mirrored(source, target)
    backup.stop_broker(1)
    produce(primary, topic, [b"while the target was away"] * 50)
    backup.start_broker(1)
    steady.wait_mirrored(source, target)
    primary.kill_broker(1)
    primary.start_broker(1)
    produce(primary, topic, [b"after"] * 50, partition=1)
    steady.wait_mirrored(source, target)


# -- what is refused


def refused(mirror: MirrorProcess, *texts: str) -> None:
    """It ended with 3, said why in one message, and no traceback."""
    assert mirror.wait_exit() == 3, mirror.output
    for text in texts:
        assert text in mirror.output
    assert "Traceback" not in mirror.output


@pytest.mark.parametrize(
    ("key", "value", "texts"),
    [
        ("primary->backup.topcs", ".*", ('"primary->backup.topcs" is not a known key', 'did you mean "topics"?')),
        ("primary->bakcup.topics", ".*", ('the unknown cluster "bakcup"', 'did you mean "backup"?')),
        ("primary.bootstrap.servers", "", ('cluster "primary" has no bootstrap servers', "host:port")),
        ("primary->backup.enabled", "false", ("nothing to run", "A->B.enabled = true")),
        ("replication.factor", "two", ("replication.factor", "two")),
    ],
    ids=["misspelt", "cluster", "servers", "nothing", "number"],
)
def test_file_that_cannot_be_used(key: str, value: str, texts: tuple[str, ...], tmp_path: Path) -> None:
    keys = {"primary->backup.topics": ".*", key: value}
    with MirrorProcess(tmp_path, {"primary": "127.0.0.1:1", "backup": "127.0.0.1:2"}, keys) as mirror:
        refused(mirror, "CONFIG", "mm2.properties", *texts)


def test_cluster_option_must_name_a_cluster(tmp_path: Path) -> None:
    clusters = {"primary": "127.0.0.1:1", "backup": "127.0.0.1:2"}
    keys = {"primary->backup.topics": ".*"}
    with MirrorProcess(tmp_path, clusters, keys, arguments=["--clusters", "bakcup"]) as mirror:
        refused(mirror, '--clusters names the unknown cluster "bakcup"')


def test_port_that_does_not_speak_kafka_is_named_and_tried_again(tmp_path: Path, backup: LabCluster) -> None:
    """A web server stands where the configuration says a broker is; so does a proxy whose broker is away."""

    def answer(server: socket.socket) -> None:
        with suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(4096)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")

    before = topics(backup)
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=answer, args=(server,), daemon=True).start()
        web = f"127.0.0.1:{server.getsockname()[1]}"
        with MirrorProcess(tmp_path, {"web": web, "backup": backup}, {"web->backup.topics": ".*"}) as mirror:
            mirror.wait_for("does not seem to speak Kafka", 30)
            [line] = [line for line in mirror.stderr if "PROTOCOL" in line]
            assert "not started yet" in line
            assert web in line
            assert "check bootstrap.servers and security.protocol" in line
            assert mirror.stop().code == 0
        server.shutdown(socket.SHUT_RDWR)
    assert topics(backup) == before


@pytest.mark.parametrize("key", ["replication.factor", "offset.storage.replication.factor"])
def test_more_replicas_than_brokers(key: str, tmp_path: Path, primary: LabCluster, backup: LabCluster) -> None:
    topic, alias = create_topic(primary, unique("three")), unique("source")
    before = topics(backup)
    keys = {f"{alias}->backup.topics": topic, key: "3"}
    with MirrorProcess(tmp_path, {alias: primary, "backup": backup}, keys) as mirror:
        refused(mirror, '"backup" has 1 broker', "needs 3", key.rpartition("storage.")[2])
    assert topics(backup) == before


def test_cluster_mirrored_to_itself(tmp_path: Path, primary: LabCluster) -> None:
    before = topics(primary)
    clusters: dict[str, LabCluster | str] = {"one": primary, "other": f"localhost:{primary.port(1)}"}
    with MirrorProcess(tmp_path, clusters, {"one->other.topics": ".*"}) as mirror:
        refused(mirror, "one->other", '"one" and "other" are the same cluster', "bootstrap.servers")
    assert topics(primary) == before


def test_group_with_a_live_member_is_somebody_elses(tmp_path: Path, primary: LabCluster, backup: LabCluster) -> None:
    """MirrorMaker 2 runs as a group of that name on the target; a consumer stands in for it."""
    topic, alias, group = create_topic(primary, unique("taken")), unique("source"), unique("taken-mm2")
    watched = create_topic(backup, unique("watched"))
    member = Consumer({"bootstrap.servers": backup.bootstrap, "group.id": group, "client.id": "worker-7"})
    try:
        member.subscribe([watched])
        wait_until(lambda: member.poll(0.1) is None and member.assignment(), what="the member's assignment")
        before = topics(backup)
        keys = {f"{alias}->backup.topics": topic, "backup.group.id": group}
        with MirrorProcess(tmp_path, {alias: primary, "backup": backup}, keys) as mirror:
            refused(mirror, f'the group "{group}" is alive on "backup"', "MirrorMaker 2", "worker-7", "stop it first")
        assert topics(backup) == before
    finally:
        member.close()
