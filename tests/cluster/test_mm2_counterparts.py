"""MirrorMaker 2's own integration tests, retold: the same names, the same observable outcome, on real brokers.

One mirror of a variant serves nearly all of them. It has flows from one cluster under several aliases, because
MM2 gives the settings that differ per alias or flow. The default naming runs always; identity naming, sources
written in transactions and a target behind TLS are variants of the long run, as they are variants there.
The tests of new topics' settings, access rules and altered positions are in `test_topic_configs.py`, `test_acls.py`
and `test_positions.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path

import pytest
from confluent_kafka import TopicPartition

from heliograph.client import MirrorClient
from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import Checkpoint
from tests.cluster.carried import CARRY, IDENTITY
from tests.cluster.consumers import commit, committed, consume, consumer, read
from tests.cluster.mirror import (
    MirrorProcess,
    View,
    create_topic,
    grow_topic,
    partition_count,
    produce,
    producer,
    topics,
    unique,
    wait_until,
)
from tests.cluster.settings import (
    Setting,
    change_settings,
    own_settings,
    settings_of,
    wait_changes,
    wait_own,
    wait_set,
)

PARTITIONS = 10
RECORDS = 10
"""In each partition, as there."""
LAG = 10
"""offset.lag.max, as there."""
SPELLINGS = {
    "primary": "127.0.0.1",
    "seldom": "127.0.1",
    "often": "127.1",
    "mute": "localhost",
    "there": "2130706433",
    "late": "late.localhost",
}
"""One cluster under several aliases is refused, so each has another way to write the same address."""
ONE_WAY = ("seldom", "often")
EXCLUDED, FOLLOWED = "delete.retention.ms", "retention.bytes"
"""Settings of topics."""


@dataclass(frozen=True)
class Variant:
    """How the tests differ from those of the default naming."""

    name: str
    keys: Mapping[str, str] = field(default_factory=dict)
    keeps_names: bool = False
    in_transactions: bool = False


class World:
    """A mirror with all flows, and what the tests do with it."""

    def __init__(self, folder: Path, primary: LabCluster, backup: LabCluster, variant: Variant) -> None:
        self.variant = variant
        self.primary, self.backup = primary, backup
        self.run = unique("like-mm2")
        ports = [cluster.bootstrap.rpartition(":")[2] for cluster in (primary, backup)]
        clusters = {alias: f"{host}:{ports[0]}" for alias, host in SPELLINGS.items()}
        clusters["backup"] = f"127.0.0.1:{ports[1]}"
        keys = {f"{alias}->backup.topics": f"{self.run}-{alias}-.*" for alias in SPELLINGS}
        keys |= {f"{alias}->backup.groups": f"{self.run}-{alias}-.*" for alias in SPELLINGS}
        # Patterns take what came from the other side too: copies stay where they are by their names alone.
        keys["primary->backup.topics"] = f"{self.run}-primary-.*, .*{self.run}-back-.*"
        keys["backup->primary.topics"] = f"{self.run}-back-.*, .*{self.run}-primary-.*"
        keys["backup->primary.groups"] = f"{self.run}-back-.*"
        keys["backup->primary.enabled"] = "false" if variant.keeps_names else "true"
        for alias in ONE_WAY:
            keys |= {f"backup->{alias}.topics": f"{self.run}-{alias}-.*", f"backup->{alias}.enabled": "false"}
        self.mirror = MirrorProcess(folder, clusters, {**keys, **FLOWS, **variant.keys})
        self.before = self.topic("late", partitions=1)
        """With records that were there before the mirror."""
        produce(primary, self.before, [b"before"] * 5)

    def remote(self, alias: str, topic: str) -> str:
        return topic if self.variant.keeps_names else f"{alias}.{topic}"

    def topic(self, alias: str, cluster: LabCluster | None = None, *, partitions: int = PARTITIONS) -> str:
        """A new one that the flow from this alias takes."""
        return create_topic(cluster or self.primary, unique(f"{self.run}-{alias}"), partitions)

    def group(self, alias: str) -> str:
        return unique(f"{self.run}-{alias}")

    def write(self, topic: str, cluster: LabCluster | None = None, *, partitions: int = PARTITIONS) -> None:
        """Ten records into each partition."""
        for partition in range(partitions):
            values = [b"%d-%d" % (partition, number) for number in range(RECORDS)]
            if self.variant.in_transactions:
                _in_transactions(cluster or self.primary, topic, partition, values)
            else:
                produce(cluster or self.primary, topic, values, partition=partition)

    def values(self, cluster: LabCluster, topic: str) -> list[list[bytes | None]]:
        return [[record.value for record in records] for records in View(cluster, topic).read()]

    def wait_copied(
        self, alias: str, topic: str, source: LabCluster | None = None, target: LabCluster | None = None
    ) -> None:
        """Until the copy has what an ordinary reader of the source sees."""
        wanted = self.values(source or self.primary, topic)
        copy, there = self.remote(alias, topic), target or self.backup
        self.mirror.wait_until(
            lambda: sum(View(there, copy).counts() or [0]) >= sum(map(len, wanted)), 90, what=f"the copy {copy}"
        )
        assert self.values(there, copy) == wanted

    def has_sync(self, cluster: LabCluster, syncs: str, topic: str) -> bool:
        """Whether the offset-syncs topic has one of the topic."""
        [records] = View(cluster, syncs).read() if partition_count(cluster, syncs) else [[]]
        return any(topic.encode() in (record.key or b"") for record in records)

    def read_all(
        self, topic: str, group: str, cluster: LabCluster | None = None, *, partitions: int = PARTITIONS
    ) -> None:
        consume(cluster or self.primary, group, topic, partitions * RECORDS)

    def client(self, alias: str = "backup") -> MirrorClient:
        return MirrorClient.from_config(self.mirror.config, alias)

    def wait_committed(self, group: str, wanted: dict[tuple[str, int], int]) -> None:
        """Until the group stands there on the target, among other places."""
        self.mirror.wait_until(
            lambda: wanted.items() <= committed(self.backup, group).items(), 60, what=f"{group} at {wanted}"
        )

    def wait_checkpoints(
        self, alias: str, group: str, partitions: int, *, at: str = "backup", wanted: dict[int, int] | None = None
    ) -> dict[int, int]:
        """By partition, once a group has a checkpoint for so many, or just these."""
        found: dict[int, int] = {}

        def has_all() -> bool:
            found.clear()
            offsets = self.client(at).translate_offsets(alias, group) if self._has_checkpoints(alias, at) else {}
            found.update({where.partition: translated.offset for where, translated in offsets.items()})
            return len(found) == partitions and wanted in (None, found)

        self.mirror.wait_until(has_all, 60, what=f"{wanted or partitions} as checkpoints of {group}")
        return dict(found)

    def _has_checkpoints(self, alias: str, at: str) -> bool:
        cluster = self.backup if at == "backup" else self.primary
        return f"{alias}.checkpoints.internal" in topics(cluster)

    def checkpoints(self, alias: str, group: str) -> list[Checkpoint]:
        [records] = View(self.backup, f"{alias}.checkpoints.internal").read()
        parsed = [Checkpoint.parse(record.key, record.value) for record in records]
        return [item for item in parsed if item is not None and item.group == group]

    def assert_monotonic(self, alias: str, group: str) -> None:
        found = self.checkpoints(alias, group)
        for partition in {item.partition for item in found}:
            offsets = [item.downstream for item in found if item.partition == partition]
            assert all(before <= after for before, after in pairwise(offsets)), (group, partition, offsets)


FLOWS = {
    **CARRY,
    "offset.lag.max": str(LAG),
    "sync.group.offsets.enabled": "false",
    "primary->backup.emit.heartbeats.enabled": "true",
    "backup->primary.emit.heartbeats.enabled": "true",
    "emit.heartbeats.interval.seconds": "1",
    "seldom->backup.sync.group.offsets.enabled": "true",
    "often->backup.sync.group.offsets.enabled": "true",
    "often->backup.offset.lag.max": "0",
    "mute->backup.emit.offset-syncs.enabled": "false",
    "mute->backup.emit.checkpoints.enabled": "false",
    "there->backup.offset-syncs.topic.location": "target",
    "there->backup.use.defaults.from": "source",
    "late.consumer.auto.offset.reset": "latest",
    "sync.topic.configs.interval.seconds": "1",
    "config.properties.exclude": r"delete\.retention\.ms, min\.insync.*",
}


def _in_transactions(cluster: LabCluster, topic: str, partition: int, values: list[bytes]) -> None:
    """A marker behind every few records, so that the source's offsets have gaps."""
    writer = producer(cluster, transactional_id=unique("tx"))
    writer.init_transactions()
    for start in range(0, len(values), 4):
        writer.begin_transaction()
        for value in values[start : start + 4]:
            writer.produce(topic, value, b"k", partition)
        writer.commit_transaction()


@pytest.fixture(
    scope="module",
    params=["default", *(pytest.param(name, marks=pytest.mark.long) for name in ("identity", "transactions", "ssl"))],
)
def world(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, primary: LabCluster
) -> Iterator[World]:
    target: LabCluster = request.getfixturevalue("south" if request.param == "ssl" else "backup")
    variants = {
        "default": Variant("default"),
        "identity": Variant("identity", {"replication.policy.class": IDENTITY}, keeps_names=True),
        "transactions": Variant("transactions", in_transactions=True),
        "ssl": Variant("ssl", _behind_tls(target)),
    }
    world = World(tmp_path_factory.mktemp("like-mm2"), primary, target, variants[request.param])
    with world.mirror:
        yield world


def _behind_tls(cluster: LabCluster) -> dict[str, str]:
    if cluster.secured is None:
        return {}
    found = cluster.secured.client_properties("MTLS", mechanism="", stores="PEM")
    return {f"backup.{key}": value for key, value in found.items()}


def test_replication(world: World) -> None:
    """Both ways; heartbeats; checkpoints for all partitions; groups go on at the other side, and at this one again."""
    topic, group = world.topic("primary"), world.group("primary")
    world.write(topic)
    world.wait_copied("primary", topic)
    _changes_sides(world, topic, group, there=world.backup)
    ends = View(world.backup, world.remote("primary", topic)).counts()
    assert ends == [RECORDS] * PARTITIONS
    world.assert_monotonic("primary", group)
    client = world.client()
    world.mirror.wait_until(lambda: "primary" in client.upstream_clusters(), 30, what="the heartbeats of primary")
    assert client.replication_hops("primary") == 1
    if not world.variant.keeps_names:
        _goes_back(world)
    assert {name for name in topics(world.primary) if topic in name} == {topic}, "a copy came home"


def _goes_back(world: World) -> None:
    """The other direction of two clusters that mirror each other."""
    topic, group = world.topic("back", world.backup), world.group("back")
    world.write(topic, world.backup)
    world.wait_copied("backup", topic, world.backup, world.primary)
    _changes_sides(world, topic, group, there=world.primary)
    client = world.client("primary")
    world.mirror.wait_until(lambda: "backup" in client.upstream_clusters(), 30, what="the heartbeats of backup")
    assert client.replication_hops("backup") == 1
    assert {name for name in topics(world.backup) if topic in name} == {topic}, "a copy came home"


def _changes_sides(world: World, topic: str, group: str, *, there: LabCluster) -> None:
    """A group reads a part; where its checkpoints say, a consumer reads the others there, and the group does so here.
    In the end all checkpoints stand behind the last record."""
    here, alias, at = (
        (world.primary, "primary", "backup") if there is world.backup else (world.backup, "backup", "primary")
    )
    every = Counter(value for values in world.values(here, topic) for value in values)
    part = consume(here, group, topic, sum(every.values()) // 2)
    read_here = Counter(message.value() for message in part)
    marks = world.wait_checkpoints(alias, group, len({message.partition() for message in part}), at=at)
    reader = consumer(there, group)
    try:
        copy = world.remote(alias, topic)
        reader.assign([TopicPartition(copy, number, marks.get(number, 0)) for number in range(PARTITIONS)])
        read_there = Counter(message.value() for message in read(reader, (every - read_here).total()))
        assert reader.poll(0.5) is None, "more than was left"
    finally:
        reader.close()
    assert read_here + read_there == every
    consume(here, group, topic, read_there.total())
    world.wait_checkpoints(alias, group, PARTITIONS, at=at, wanted=dict.fromkeys(range(PARTITIONS), RECORDS))


def test_single_node_cluster(world: World) -> None:
    """One process, one way: a topic that is made later is copied."""
    topic = world.topic("mute", partitions=2)
    world.write(topic, partitions=2)
    world.wait_copied("mute", topic)


def test_replication_with_empty_partition(world: World) -> None:
    """A partition without records keeps the group's offset 0."""
    topic, group = world.topic("seldom", partitions=2), world.group("seldom")
    world.write(topic, partitions=1)
    world.wait_copied("seldom", topic)
    end = _end_of(world, topic, 0)
    commit(world.primary, group, {(topic, 0): end, (topic, 1): 0})
    copy = world.remote("seldom", topic)
    world.wait_committed(group, {(copy, 0): RECORDS, (copy, 1): 0})


def _end_of(world: World, topic: str, partition: int) -> int:
    counts = View(world.primary, topic).counts()
    assert counts is not None
    return counts[partition]


@pytest.mark.parametrize("alias", ONE_WAY, ids=["auto_offset_sync", "frequent_offset_syncs"])
def test_one_way_replication_with(world: World, alias: str) -> None:
    """Group offsets reach the target, not beyond its end; nothing is read again; a later topic is taken up too. The way
    back is disabled, whatever its pattern would take."""
    group, home = world.group(alias), world.topic(alias, world.backup, partitions=1)
    produce(world.backup, home, [b"at home"])
    for _ in range(2):
        topic = world.topic(alias)
        copy = world.remote(alias, topic)
        world.write(topic)
        world.wait_copied(alias, topic)
        world.read_all(topic, group)
        world.wait_committed(group, {(copy, partition): RECORDS for partition in range(PARTITIONS)})
        assert View(world.backup, copy).counts() == [RECORDS] * PARTITIONS
        assert {name for name in topics(world.primary) if topic in name} == {topic}
    world.assert_monotonic(alias, group)
    assert not [name for name in topics(world.primary) if home in name]


def test_replication_without_offset_sync_will_not_create_offset_syncs_topic(world: World) -> None:
    """Also MM2's testClusterWithEmitOffsetDisabled: data and heartbeats go on without syncs and checkpoints. The topic
    in which this flow would have its syncs is there for other flows, and has none of this one."""
    syncs = "mm2-offset-syncs.backup.internal"
    topic, other = world.topic("mute", partitions=2), world.topic("primary", partitions=1)
    world.write(topic, partitions=2)
    world.wait_copied("mute", topic)
    world.write(other, partitions=1)
    world.mirror.wait_until(lambda: world.has_sync(world.primary, syncs, other), 60, what="another flow's sync")
    assert not world.has_sync(world.primary, syncs, topic)
    assert not {"mute.checkpoints.internal", "mm2-offset-syncs.mute.internal"} & topics(world.backup)


def test_offset_syncs_topics_on_target(world: World) -> None:
    """And none on the source, where other flows have theirs."""
    topic, group = world.topic("there", partitions=2), world.group("there")
    world.write(topic, partitions=2)
    world.wait_copied("there", topic)
    world.read_all(topic, group, partitions=2)
    assert set(world.wait_checkpoints("there", group, 2).values()) == {RECORDS}
    assert world.has_sync(world.backup, "mm2-offset-syncs.there.internal", topic)
    assert not world.has_sync(world.primary, "mm2-offset-syncs.backup.internal", topic)


def test_no_checkpoints_if_no_records_are_mirrored(world: World) -> None:
    """A committed topic without a record gets no checkpoint before there is data. Ours may say 0, which is exact."""
    topic, group = world.topic("primary", partitions=1), world.group("primary")
    commit(world.primary, group, {(topic, 0): 0})
    wait_until(lambda: View(world.backup, world.remote("primary", topic)).counts() == [0], 60, what="the empty copy")
    assert {item.downstream for item in world.checkpoints("primary", group)} <= {0}
    world.write(topic, partitions=1)
    world.wait_copied("primary", topic)
    world.read_all(topic, group, partitions=1)
    world.wait_checkpoints("primary", group, 1, wanted={0: RECORDS})


def test_offset_translation_behind_replication_flow(world: World) -> None:
    """A group that lags gets checkpoints that go forward; one that goes back takes its checkpoints along."""
    topic, group = world.topic("primary", partitions=1), world.group("primary")
    for _ in range(30):
        world.write(topic, partitions=1)
    world.wait_copied("primary", topic)
    [source] = View(world.primary, topic).read()
    [target] = View(world.backup, world.remote("primary", topic)).read()
    for number in (20, 150, 290, 40):
        commit(world.primary, group, {(topic, 0): source[number].offset})
        world.wait_checkpoints("primary", group, 1, wanted={0: number})
        assert target[number].value == source[number].value


def test_replicate_from_latest(world: World) -> None:
    """Only what is written after the start, of topics that were there before it."""
    world.mirror.wait_for(f"{world.before} begins at latest: 5 records before that")
    produce(world.primary, world.before, [b"after"] * 5)
    copy = View(world.backup, world.remote("late", world.before))
    world.mirror.wait_until(lambda: sum(copy.counts() or [0]) >= 5, 60, what="the copy")
    assert [record.value for record in copy.read()[0]] == [b"after"] * 5


def test_sync_topic_configs(world: World) -> None:
    """Drift on the target is repaired, an excluded setting is left alone, and nothing is sent twice."""
    topic = unique(f"{world.run}-primary")
    given = {EXCLUDED: "2000", FOLLOWED: "2000"}
    remote = create_topic(world.backup, world.remote("primary", topic), config=given)
    create_topic(world.primary, topic, config={EXCLUDED: "1000", FOLLOWED: "1000"})
    wait_own(world.mirror, world.backup, remote, {EXCLUDED: "2000", FOLLOWED: "1000"})
    change_settings(world.backup, remote, {FOLLOWED: "5", "segment.ms": "60000"})
    wait_own(world.mirror, world.backup, remote, {EXCLUDED: "2000", FOLLOWED: "1000"})
    first, second = wait_changes(world.mirror, remote, 2)
    assert first == f"{FOLLOWED} 2000 -> 1000"
    assert set(second.split("; ")) == {f"{FOLLOWED} 5 -> 1000", "segment.ms 60000 -> default"}


def test_replicate_target_default(world: World) -> None:
    """An override that is removed on the source is removed on the target."""
    topic = create_topic(world.primary, unique(f"{world.run}-primary"), config={FOLLOWED: "1000"})
    remote = world.remote("primary", topic)
    wait_own(world.mirror, world.backup, remote, {FOLLOWED: "1000"})
    change_settings(world.primary, topic, {FOLLOWED: None})
    wait_set(world.mirror, world.backup, remote, FOLLOWED, Setting("-1", False))
    assert wait_changes(world.mirror, remote, 1) == [f"{FOLLOWED} 1000 -> default"]


def test_replicate_source_default(world: World) -> None:
    """The source's defaults replace what is set on the target, and are set there themselves."""
    topic = unique(f"{world.run}-there")
    given = {EXCLUDED: "2000", FOLLOWED: "2000"}
    remote = create_topic(world.backup, world.remote("there", topic), config=given)
    create_topic(world.primary, topic)
    wait_set(world.mirror, world.backup, remote, FOLLOWED, Setting("-1", True))
    found = own_settings(world.backup, remote)
    assert found[EXCLUDED] == "2000"
    assert found["segment.bytes"] == settings_of(world.primary, topic)["segment.bytes"].value
    assert not found.keys() & {"min.insync.replicas", "message.timestamp.before.max.ms"}


def test_create_partitions(world: World) -> None:
    """Growth on the source reaches the target."""
    topic = world.topic("primary")
    world.write(topic)
    world.wait_copied("primary", topic)
    grow_topic(world.primary, topic, PARTITIONS + 1)
    produce(world.primary, topic, [b"in the new one"] * 3, partition=PARTITIONS)
    copy = View(world.backup, world.remote("primary", topic))
    world.mirror.wait_until(lambda: (copy.counts() or [])[PARTITIONS:] == [3], 60, what="the new partition")


def test_restart_replication(world: World) -> None:
    """A restart keeps the translation complete and monotonic."""
    topic, group = world.topic("primary"), world.group("primary")
    world.write(topic)
    world.wait_copied("primary", topic)
    world.read_all(topic, group)
    world.wait_checkpoints("primary", group, PARTITIONS)
    world.mirror.stop()
    world.write(topic)
    world.mirror.start()
    world.read_all(topic, group)
    world.wait_copied("primary", topic)
    world.wait_checkpoints("primary", group, PARTITIONS, wanted=dict.fromkeys(range(PARTITIONS), 2 * RECORDS))
    world.assert_monotonic("primary", group)


def test_multi_node_cluster(primary: LabCluster, backup: LabCluster, tmp_path: Path) -> None:
    """Two processes of one file; topics come one by one while each in turn is stopped, and started with a changed
    setting. The odd characters in that test's alias are refused here, where an alias may get into a topic's name."""
    prefix, alias = unique("nodes"), "B-_2"
    keys = {
        f"primary->{alias}.topics": f"{prefix}-.*",
        f"primary->{alias}.offset-syncs.topic.location": "target",
        f"primary->{alias}.replication.policy.class": IDENTITY,
        f"{alias}.exactly.once.source.support": "enabled",
    }
    nodes = [MirrorProcess(tmp_path, {"primary": primary, alias: backup}, keys) for _ in range(2)]
    for node in nodes[1:]:
        node.write(nodes[0].keys)
    try:
        for number in range(2):
            topic = create_topic(primary, f"{prefix}-{number}", 2)
            produce(primary, topic, [b"%d" % index for index in range(RECORDS)], partition=1)
            node = nodes[number].start()
            if number:
                nodes[0].stop()
                nodes[0].write({**nodes[0].keys, "tasks.max": "2"})
                nodes[0].start()
            node.wait_mirrored(View(primary, topic), View(backup, topic))
        nodes[1].stop()
        last = create_topic(primary, f"{prefix}-last", 2)
        produce(primary, last, [b"last"])
        nodes[0].wait_mirrored(View(primary, last), View(backup, last))
    finally:
        for node in nodes:
            if node.is_running:
                node.stop()
