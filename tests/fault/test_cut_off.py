"""A broker that is cut off from its controllers and replicas answers its clients as if it still led.

Its log ends where it was cut off; the others have a new leader, and what is acknowledged stands there. Nothing that
the deposed leader says of its log is to be believed by who knows a later leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from heliograph.lab import Cluster
from heliograph.lab.probe import fetch_broker_ids
from tests.cluster.mirror import MirrorProcess, View, admin, create_topic, produce, unique, wait_until
from tests.fault.checker import false_names
from tests.fault.conftest import Start
from tests.fault.lost_tail import batches_in
from tests.fault.network import Network
from tests.fault.world import spec

PATIENCE_S = 180.0
REPLICATED = {
    f"{name}replication.factor": "3"
    for name in (
        "",
        "offset.storage.",
        "config.storage.",
        "status.storage.",
        "heartbeats.topic.",
        "offset-syncs.topic.",
        "checkpoints.topic.",
    )
}
SINGLE = dict.fromkeys(REPLICATED, "1")
pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def network(start_clusters: Start) -> Network:
    return start_clusters([spec("apart", brokers=3)])["apart"]


def leader_of(cluster: Cluster, topic: str) -> int:
    return admin(cluster).list_topics(topic, timeout=30).topics[topic].partitions[0].leader


def bootstrap(cluster: Cluster, *brokers: int) -> str:
    return ",".join(f"127.0.0.1:{cluster.port(broker)}" for broker in brokers)


class Divided:
    """A cluster of which one broker, the leader of a topic, is cut off."""

    def __init__(self, network: Network, topic: str) -> None:
        self.cluster = network.cluster
        self.topic = topic
        self.deposed = leader_of(self.cluster, topic)
        self.others = [node.node_id for node in self.cluster.brokers if node.node_id != self.deposed]
        self._network = network

    @contextmanager
    def divided(self) -> Iterator[None]:
        with self._network.cut_off(self.deposed):
            yield
        wait_until(self._is_whole, PATIENCE_S, what="the return to the replicas in sync")

    @property
    def majority(self) -> str:
        return bootstrap(self.cluster, *self.others)

    @property
    def view(self) -> View:
        """As the majority has it."""
        return View(self.cluster, self.topic, access={"bootstrap.servers": self.majority})

    def numbers(self) -> list[int]:
        return numbers(self.view)

    def _is_whole(self) -> bool:
        partition = admin(self.cluster).list_topics(self.topic, timeout=30).topics[self.topic].partitions[0]
        return len(partition.isrs) == 3


def numbers(view: View) -> list[int]:
    return [int(record.value or b"-1") for record in view.read()[0]]


def values(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def test_the_others_elect_a_leader_and_the_one_that_is_cut_off_does_not_know(network: Network) -> None:
    cluster = network.cluster
    topic = create_topic(cluster, unique("cut"), replicas=3)
    produce(cluster, topic, values(0, 50))
    cut = Divided(network, topic)
    with cut.divided():
        assert fetch_broker_ids(cluster.port(cut.deposed)) == frozenset({1, 2, 3})
        for other in cut.others:
            assert fetch_broker_ids(cluster.port(other)) == frozenset(cut.others)
        produce(cluster, topic, values(50, 80), bootstrap_servers=cut.majority)
        assert cut.numbers() == list(range(80))
        assert end_on_disk(cluster, cut.deposed, topic) == 50
    wait_until(lambda: all(end_on_disk(cluster, broker, topic) == 80 for broker in (1, 2, 3)), 60, what="equal logs")


def end_on_disk(cluster: Cluster, broker: int, topic: str) -> int:
    [node] = [node for node in cluster.brokers if node.node_id == broker]
    return batches_in(node.folder / "log" / f"{topic}-0")[-1].end


def test_a_source_leader_that_is_cut_off_is_not_believed(network: Network, backup: Cluster, tmp_path: Path) -> None:
    """By a mirror that reads from it when it happens, nor by one that asks it first when it starts."""
    source = network.cluster
    topic = create_topic(source, unique("deposed"), replicas=3)
    produce(source, topic, values(0, 50))
    copy = View(backup, f"apart.{topic}")
    keys = {**SINGLE, "offset-syncs.topic.replication.factor": "3", "apart->backup.topics": topic}
    mirror = MirrorProcess(tmp_path, {"apart": source, "backup": backup}, keys)
    cut = Divided(network, topic)
    with mirror:
        mirror.wait_until(lambda: copy.counts() == [50], PATIENCE_S, what="the first copy")
        with cut.divided():
            produce(source, topic, values(50, 80), bootstrap_servers=cut.majority)
            mirror.wait_until(lambda: copy.counts() == [80], PATIENCE_S, what="the copy of the new leader's records")
            mirror.stop()
            mirror.write({**mirror.keys, "apart.bootstrap.servers": bootstrap(source, cut.deposed)})
            mirror.start()
            produce(source, topic, values(80, 100), bootstrap_servers=cut.majority)
            mirror.wait_until(
                lambda: copy.counts() == [100] or false_names(mirror.output), PATIENCE_S, what="the copy of the rest"
            )
        mirror.wait_until(lambda: 99 in numbers(copy), PATIENCE_S, what="the last copy")
    assert numbers(copy) == list(range(100)), mirror.output
    assert not false_names(mirror.output)


def test_a_target_leader_that_is_cut_off_is_not_believed(network: Network, primary: Cluster, tmp_path: Path) -> None:
    """By a mirror that writes to it when it happens, nor by one that asks it first when it starts."""
    target = network.cluster
    topic = create_topic(primary, unique("deposed"))
    produce(primary, topic, values(0, 50))
    copy = View(target, f"primary.{topic}")
    keys = {**REPLICATED, "offset-syncs.topic.replication.factor": "1", "primary->apart.topics": topic}
    mirror = MirrorProcess(tmp_path, {"primary": primary, "apart": target}, keys)
    with mirror:
        mirror.wait_until(lambda: copy.counts() == [50], PATIENCE_S, what="the first copy")
        cut = Divided(network, copy.topic)
        with cut.divided():
            produce(primary, topic, values(50, 80))
            mirror.wait_until(lambda: cut.view.counts() == [80], PATIENCE_S, what="the copy on the new leader")
            mirror.stop()
            mirror.write({**mirror.keys, "apart.bootstrap.servers": bootstrap(target, cut.deposed)})
            mirror.start()
            produce(primary, topic, values(80, 100))
            mirror.wait_until(
                lambda: cut.view.counts() == [100] or false_names(mirror.output),
                PATIENCE_S,
                what="the copy of the rest",
            )
        mirror.wait_until(lambda: 99 in numbers(copy), PATIENCE_S, what="the last copy")
    assert numbers(copy) == list(range(100)), mirror.output
    assert not false_names(mirror.output)
