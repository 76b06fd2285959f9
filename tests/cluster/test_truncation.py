"""Sources that lose records which were copied, on real brokers: by a disk that lost them, by an unclean election."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from heliograph.lab import ClusterSpec, Lab, LabCluster
from tests.cluster.mirror import (
    MirrorProcess,
    View,
    admin,
    create_topic,
    leader_of,
    produce,
    read_batches,
    unique,
    wait_until,
)

PATIENCE_S = 300.0
pytestmark = pytest.mark.timeout(900)  # brokers are waited for until their sessions are over


def values(name: str, start: int, end: int) -> list[bytes]:
    return [f"{name} {number}".encode() for number in range(start, end)]


def write(cluster: LabCluster, topic: str, wanted: list[bytes]) -> None:
    """In batches of ten."""
    for at in range(0, len(wanted), 10):
        produce(cluster, topic, wanted[at : at + 10], enable_idempotence=False, acks=1)


def copied(cluster: LabCluster, topic: str) -> list[bytes | None]:
    return [record.value for [*records] in View(cluster, topic).read() for record in records]


def create_on_first(cluster: LabCluster, topic: str) -> str:
    """With its one replica on the first broker."""
    made = NewTopic(topic, 1, replica_assignment=[[cluster.brokers[0].node_id]])
    admin(cluster).create_topics([made])[topic].result(30)
    wait_until(lambda: View(cluster, topic).counts() == [0], what=f"the leader of {topic}")
    return topic


def lose(cluster: LabCluster, topic: str, end: int) -> None:
    """Kill the first broker, take its last writes from its disk, start it again."""
    size = sum(batch.size for batch in read_batches(cluster, topic) if batch.base_offset < end)
    node = cluster.brokers[0]
    cluster.kill_broker(node.node_id)
    folder = node.folder / "log" / f"{topic}-0"
    [log] = folder.glob("*.log")
    with log.open("r+b") as file:
        file.truncate(size)
    for index in (*folder.glob("*.index"), *folder.glob("*.timeindex")):
        index.unlink()
    cluster.start_broker(node.node_id)
    wait_until(lambda: View(cluster, topic).counts() == [end], what="the shorter log")


@pytest.fixture(scope="module")
def two_old(lab: Lab) -> LabCluster:
    """Before 4.0 a broker that is its own, only controller keeps its leader epochs when it restarts."""
    lab.start([ClusterSpec(alias="two-old", version="2.4.1", brokers=2)])
    return lab.cluster("two-old")


@pytest.fixture(scope="module")
def three_mid(lab: Lab) -> LabCluster:
    """Two controllers are left when one is killed."""
    lab.start([ClusterSpec(alias="three-mid", version="3.9.1", brokers=3)])
    return lab.cluster("three-mid")


@pytest.mark.parametrize(
    "version",
    ["primary", pytest.param("three_mid", marks=pytest.mark.long), pytest.param("two_old", marks=pytest.mark.long)],
)
def test_copied_records_that_the_source_lost_are_named_and_the_new_ones_copied(
    version: str, backup: LabCluster, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """First while the mirror is away and the log grows past its position, then while it runs and the log is shorter."""
    source: LabCluster = request.getfixturevalue(version)
    topic = create_on_first(source, unique("cut"))
    first, second, third = values("first", 0, 100), values("second", 60, 160), values("third", 120, 130)
    write(source, topic, first)
    mirror = MirrorProcess(tmp_path, {"a": source, "b": backup}, {"a->b.topics": topic})
    with mirror:
        mirror.wait_until(lambda: View(backup, f"a.{topic}").counts() == [100], what="the copy", timeout_s=PATIENCE_S)
    lose(source, topic, 60)
    write(source, topic, second)
    with mirror:
        mirror.wait_until(
            lambda: View(backup, f"a.{topic}").counts() == [200], what="the copy of the new log", timeout_s=PATIENCE_S
        )
        assert "LOG_TRUNCATED" in mirror.output
        assert "offsets 60 to 99 (40 records)" in mirror.output
        assert copied(backup, f"a.{topic}") == first + second
        lose(source, topic, 120)
        mirror.wait_for("offsets 120 to 159 (40 records)", PATIENCE_S)
        write(source, topic, third)
        mirror.wait_until(
            lambda: View(backup, f"a.{topic}").counts() == [210],
            what="the copy of what came then",
            timeout_s=PATIENCE_S,
        )
        assert copied(backup, f"a.{topic}") == first + second + third
        assert mirror.output.count("LOG_TRUNCATED") == 2
        assert "POSITION_UNPROVEN" not in mirror.output


def test_an_unclean_election_is_named_also_when_the_log_has_grown_past_the_position(
    trio: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    create_topic(trio, topic := unique("unclean"), replicas=2, config=config)
    partition = admin(trio).list_topics(topic, timeout=30).topics[topic].partitions[0]
    leader = partition.leader
    [follower] = set(partition.replicas) - {leader}
    kept, lost, new = values("kept", 0, 50), values("lost", 50, 80), values("new", 50, 150)
    write(trio, topic, kept)
    wait_until(lambda: len(admin(trio).list_topics(topic, timeout=30).topics[topic].partitions[0].isrs) == 2)
    with MirrorProcess(tmp_path, {"trio": trio, "backup": backup}, {"trio->backup.topics": topic}) as mirror:
        mirror.wait_until(
            lambda: View(backup, f"trio.{topic}").counts() == [50], what="the first copy", timeout_s=PATIENCE_S
        )
        trio.stop_broker(follower)
        write(trio, topic, lost)
        mirror.wait_until(
            lambda: View(backup, f"trio.{topic}").counts() == [80],
            what="the copy of what gets lost",
            timeout_s=PATIENCE_S,
        )
        with mirror.frozen():
            trio.kill_broker(leader)
            trio.start_broker(follower)
            wait_until(lambda: leader_of(trio, topic) == follower, 90, what="the unclean election")
            write(trio, topic, new)
        mirror.wait_until(
            lambda: View(backup, f"trio.{topic}").counts() == [180],
            what="the copy of the new log",
            timeout_s=PATIENCE_S,
        )
        assert "LOG_TRUNCATED" in mirror.output
        assert "offsets 50 to 79 (30 records)" in mirror.output
        assert copied(backup, f"trio.{topic}") == kept + lost + new
        trio.start_broker(leader)
        write(trio, topic, values("more", 0, 10))
        mirror.wait_until(
            lambda: View(backup, f"trio.{topic}").counts() == [190],
            what="the copy of what came then",
            timeout_s=PATIENCE_S,
        )
        assert mirror.output.count("LOG_TRUNCATED") == 1
