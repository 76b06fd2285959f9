"""A broker that is cut off from its controllers and replicas answers its clients as if it still led.

Its log ends where it was cut off; the others have a new leader, and what is acknowledged stands there. Nothing that
the deposed leader says of its log is to be believed by who knows a later leader epoch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from heliograph.lab.probe import fetch_broker_ids
from tests.cluster.mirror import MirrorProcess, View, admin, create_topic, leader_of, produce, unique, wait_until
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


def bootstrap(cluster: LabCluster, *brokers: int) -> str:
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


def end_on_disk(cluster: LabCluster, broker: int, topic: str) -> int:
    [node] = [node for node in cluster.brokers if node.node_id == broker]
    return batches_in(node.folder / "log" / f"{topic}-0")[-1].end


class Story:
    """A topic of numbers that is mirrored from or to a cluster whose leader of it is cut off."""

    def __init__(self, network: Network, source: LabCluster, target: LabCluster, folder: Path) -> None:
        self.network = network
        self.source = source
        self.is_source = source is network.cluster
        self.topic = create_topic(source, unique("deposed"), replicas=source.spec.brokers)
        self.copy = View(target, f"{source.alias}.{self.topic}")
        keys = {
            **(SINGLE if self.is_source else REPLICATED),
            "offset-syncs.topic.replication.factor": str(source.spec.brokers),
            f"{source.alias}->{target.alias}.topics": self.topic,
        }
        self.mirror = MirrorProcess(folder, {source.alias: source, target.alias: target}, keys)
        self.written = 0

    def divide(self) -> Divided:
        return Divided(self.network, self.topic if self.is_source else self.copy.topic)

    def write(self, number: int, cut: Divided | None = None) -> None:
        """Where the source is divided, to the majority."""
        addresses = cut.majority if cut and self.is_source else self.source.bootstrap
        wanted = values(self.written, self.written + number)
        produce(self.source, self.topic, wanted, bootstrap_servers=addresses)
        self.written += number

    def reach_by(self, addresses: str) -> None:
        """From its next start on the mirror knows only these of the cluster that is divided."""
        self.mirror.write({**self.mirror.keys, "apart.bootstrap.servers": addresses})

    def wait_copied(self, cut: Divided | None = None) -> None:
        copy = cut.view if cut and not self.is_source else self.copy
        self.mirror.wait_until(
            lambda: copy.counts() == [self.written] or false_names(self.mirror.output),
            PATIENCE_S,
            what=f"the copy of {self.written} records",
        )

    def assert_exact(self) -> None:
        last = self.written - 1
        self.mirror.wait_until(lambda: last in numbers(self.copy), PATIENCE_S, what="the last copy")
        assert numbers(self.copy) == list(range(self.written)), self.mirror.output
        assert not false_names(self.mirror.output), self.mirror.output


@pytest.fixture(params=["source", "target"])
def story(
    network: Network, primary: LabCluster, backup: LabCluster, tmp_path: Path, request: pytest.FixtureRequest
) -> Story:
    source, target = (network.cluster, backup) if request.param == "source" else (primary, network.cluster)
    return Story(network, source, target, tmp_path)


def test_a_running_mirror_goes_on_with_the_new_leader_while_the_old_one_still_answers(story: Story) -> None:
    with story.mirror:
        story.write(50)
        story.wait_copied()
        cut = story.divide()
        with cut.divided():
            story.write(30, cut)
            story.wait_copied(cut)
        story.write(20)
        story.assert_exact()


def test_a_start_that_asks_a_deposed_leader_first_believes_the_others(story: Story) -> None:
    with story.mirror:
        story.write(50)
        story.wait_copied()
    cut = story.divide()
    with ExitStack() as stack:
        with cut.divided():
            story.reach_by(cut.majority)
            with story.mirror:
                story.write(30, cut)
                story.wait_copied(cut)
            story.reach_by(bootstrap(story.network.cluster, cut.deposed))
            stack.enter_context(story.mirror)
            story.write(20, cut)
            story.wait_copied(cut)
        story.assert_exact()
