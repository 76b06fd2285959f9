"""Cases that defeat simpler schemes, each by itself: the target has what the source has, once and in order.

The target forgets the producer of records that are two days old within seconds, not within ten minutes: from then on
it takes any sequence, also that of a batch which it has.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from kafka import KafkaAdminClient
from kafka import TopicPartition as Place

from heliograph.lab import Lab, LabCluster
from heliograph.lab.listeners import DETOUR, DETOUR_ENTRY
from tests.cluster.load import Load
from tests.cluster.mirror import (
    MirrorProcess,
    Record,
    View,
    admin,
    create_topic,
    delete_records,
    produce,
    producer,
    read_batches,
    unique,
    wait_until,
)
from tests.fault.proxy import FINE, Proxy, Weather
from tests.fault.world import TWO_DAYS_MS, spec

SLOW_START_S = 180
LONG_MS = "3600000"
pytestmark = pytest.mark.timeout(600)


class Hard(NamedTuple):
    source: LabCluster
    target: LabCluster
    proxy: Proxy
    mirror: MirrorProcess

    def mirrored(self, topic: str) -> View:
        return View(self.target, f"hard.{topic}")

    def wait_equal(self, topic: str) -> None:
        self.mirror.wait_mirrored(View(self.source, topic), self.mirrored(topic), timeout_s=SLOW_START_S)
        assert "UNPROVEN" not in self.mirror.output
        for partition in range(len(self.mirrored(topic).counts() or [])):
            batches = read_batches(self.target, f"hard.{topic}", partition)
            assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1


@pytest.fixture(scope="module")
def clusters(lab: Lab) -> tuple[LabCluster, LabCluster]:
    lab.start([spec("hard"), spec("lapse", forgets=True)])
    return lab.cluster("hard"), lab.cluster("lapse")


@pytest.fixture(scope="module")
def hard(clusters: tuple[LabCluster, LabCluster], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hard]:
    source, target = clusters
    [broker] = target.brokers
    with Proxy(broker.extra_ports[DETOUR_ENTRY], broker.extra_ports[DETOUR]) as proxy:
        detour = f"127.0.0.1:{broker.extra_ports[DETOUR_ENTRY]}"
        keys = {"hard->lapse.topics": "hard-old-.*", "tasks.max": "2"}
        folder = tmp_path_factory.mktemp("hard")
        with MirrorProcess(folder, {"hard": source, "lapse": detour}, keys) as mirror:
            yield Hard(source, target, proxy, mirror)


def old_load(cluster: LabCluster, topic: str) -> Load:
    return Load(cluster, [topic], partitions=2, per_second=400, age_ms=TWO_DAYS_MS)


def wait_for_more(hard: Hard, topic: str) -> None:
    before = sum(hard.mirrored(topic).counts() or [])
    hard.mirror.wait_until(
        lambda: sum(hard.mirrored(topic).counts() or []) > before + 100, SLOW_START_S, what="progress"
    )


def is_forgotten(cluster: LabCluster, topic: str) -> bool:
    """Whether the broker knows no producer of the topic any more."""
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        states = client.describe_producers([Place(topic, 0), Place(topic, 1)])
        return not any(state.active_producers for state in states.values())
    finally:
        client.close()


def test_old_records_survive_lost_answers(hard: Hard) -> None:
    topic = create_topic(hard.source, unique("hard-old"), 2)
    with old_load(hard.source, topic):
        wait_for_more(hard, topic)
        for _ in range(4):
            hard.proxy.become(Weather(loses_answers=True))
            time.sleep(0.7)  # some batches are written meanwhile, and nobody hears of it
            hard.proxy.become(Weather(is_cut=True))
            hard.proxy.become(FINE)
            wait_for_more(hard, topic)
    hard.wait_equal(topic)


def test_old_records_survive_a_restart_of_the_target(hard: Hard) -> None:
    topic = create_topic(hard.source, unique("hard-old"), 2)
    with old_load(hard.source, topic):
        wait_for_more(hard, topic)
        hard.target.stop_broker(1)
        hard.target.start_broker(1)
        wait_for_more(hard, topic)
        hard.target.kill_broker(1)
        hard.target.start_broker(1)
        wait_for_more(hard, topic)
    hard.wait_equal(topic)


def test_old_records_go_on_behind_those_that_the_target_has_forgotten(hard: Hard) -> None:
    topic = create_topic(hard.source, unique("hard-old"), 2)
    for _ in range(2):
        with old_load(hard.source, topic):
            wait_for_more(hard, topic)
        hard.wait_equal(topic)
        wait_until(lambda: is_forgotten(hard.target, f"hard.{topic}"), 120, what="the target's forgetting")
    with old_load(hard.source, topic):
        wait_for_more(hard, topic)
    hard.wait_equal(topic)


# -- other rules, other records


def transactions(cluster: LabCluster, topic: str, numbers: range) -> None:
    """One record to a transaction; every third is aborted."""
    writer = producer(cluster, transactional_id=unique("tx"))
    writer.init_transactions()
    for number in numbers:
        writer.begin_transaction()
        writer.produce(topic, b"%d" % number, partition=0)
        if number % 3:
            writer.commit_transaction()
        else:
            writer.flush()
            writer.abort_transaction()


def values(records: list[Record]) -> list[int]:
    return [int(record.value or b"-1") for record in records]


def test_two_mirrors_that_take_other_records_do_not_mix_their_counts(
    primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """One stands still while another with read_committed takes over, and wakes in the middle of its copying."""
    topic = create_topic(primary, unique("rules"))
    remote = View(backup, f"primary.{topic}")
    clusters = {"primary": primary, "backup": backup}
    keys = {"primary->backup.topics": topic, "backup.group.id": unique("rules")}
    transactions(primary, topic, range(60))
    first = MirrorProcess(tmp_path, clusters, {**keys, "backup.offset.flush.interval.ms": LONG_MS})
    second = MirrorProcess(tmp_path, clusters, {**keys, "primary.consumer.isolation.level": "read_committed"})
    with first:
        first.wait_until(lambda: remote.counts() == [60], SLOW_START_S, what="the first copy")
        with second:
            second.wait_for("waits for a flow to copy", SLOW_START_S)
            with first.frozen():
                transactions(primary, topic, range(60, 120))
                second.wait_for("a new count begins at source offset", SLOW_START_S)
                second.wait_until(lambda: (remote.counts() or [0])[0] >= 90, SLOW_START_S, what="the second copy")
            transactions(primary, topic, range(120, 150))
            second.wait_until(lambda: (remote.counts() or [0])[0] >= 120, SLOW_START_S, what="the rest")
            time.sleep(2)  # for what the first may still want to write
    [copied] = remote.read()
    assert values(copied) == [*range(60), *(number for number in range(60, 150) if number % 3)]


def test_a_source_compacted_between_crash_and_resume_is_copied_to_its_last_values(
    clusters: tuple[LabCluster, LabCluster], tmp_path: Path
) -> None:
    """What the target has beyond the ledger cannot be proved any more: repeats are announced, with their number."""
    source, target = clusters
    topic = create_topic(
        source,
        unique("compacted"),
        config={
            "cleanup.policy": "compact",
            "segment.ms": "1000",
            "min.cleanable.dirty.ratio": "0.01",
            "max.compaction.lag.ms": "1000",
        },
    )
    remote = View(target, f"hard.{topic}")
    keys = {
        "hard->lapse.topics": topic,
        "lapse.offset.flush.interval.ms": LONG_MS,
        "config.properties.exclude": ".*",  # the target keeps all that was copied
    }
    mirror = MirrorProcess(tmp_path, {"hard": source, "lapse": target}, keys)

    def write(start: int) -> None:
        wanted = range(start, start + 60)
        produce(source, topic, [b"%d" % n for n in wanted], keys=[b"key %d" % (n % 5) for n in wanted])

    write(0)
    with mirror.until_killed():
        mirror.wait_until(lambda: remote.counts() == [60], SLOW_START_S, what="the first copy")
    for start in range(60, 300, 60):  # the cleaner leaves the last segment alone
        write(start)
        time.sleep(1.2)
    wait_until(lambda: View(source, topic).read()[0][0].offset >= 60, 60, what="the compaction")
    with mirror:
        mirror.wait_for("POSITION_UNPROVEN", SLOW_START_S)
        assert "60 records on the target beyond the ledger's entry" in mirror.output
        newest = {record.key: record.value for record in View(source, topic).read()[0]}
        mirror.wait_until(
            lambda: {record.key: record.value for record in remote.read()[0]} == newest, 60, what="the last values"
        )
    numbers = values(remote.read()[0])[60:]
    assert numbers == sorted(numbers)


def test_an_emptied_target_partition_that_moves_to_a_new_replica_goes_on(
    primary: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    """Its new broker has never seen a record of ours."""
    topic = create_topic(primary, unique("moved"))
    remote = View(trio, f"primary.{topic}")
    keys = {"primary->trio.topics": topic, "trio.offset.storage.replication.factor": "1"}
    produce(primary, topic, [b"%d" % number for number in range(50)])
    with MirrorProcess(tmp_path, {"primary": primary, "trio": trio}, keys) as mirror:
        mirror.wait_until(lambda: remote.counts() == [50], SLOW_START_S, what="the first copy")
        empty_and_move(trio, remote.topic, 50)
        produce(primary, topic, [b"%d" % number for number in range(50, 120)])
        mirror.wait_until(lambda: remote.counts() == [120], 60, what="the rest")
        assert values(remote.read()[0]) == list(range(50, 120))
        assert "TRUNCATED" not in mirror.output
        assert "UNPROVEN" not in mirror.output


def empty_and_move(cluster: LabCluster, topic: str, end: int) -> None:
    delete_records(cluster, topic, end)
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        place = Place(topic, 0)
        before = replicas(cluster, topic)
        after = [broker for broker in (1, 2, 3) if broker not in before][:1]
        assert client.alter_partition_reassignments({place: after}) == {place: None}
        wait_until(lambda: replicas(cluster, topic) == after, 60, what="the move")
    finally:
        client.close()


def replicas(cluster: LabCluster, topic: str) -> list[int]:
    return list(admin(cluster).list_topics(topic, timeout=30).topics[topic].partitions[0].replicas)
