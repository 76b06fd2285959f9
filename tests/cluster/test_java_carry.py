"""Groups and signs of life against Java: its client and formatters read what a real run wrote, we read what the real
MirrorMaker 2 wrote, and each goes on where the other stopped.

    es-cp4i --> target     first heliograph, on a target where nothing is yet
    src ------> dst        the same two clusters: MirrorMaker 2, then heliograph, then MirrorMaker 2 again
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import ConfigResource

from heliograph.client import MirrorClient, Offsets
from heliograph.lab import ClusterSpec, Lab, LabCluster
from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat, OffsetSync
from tests.cluster.consumers import commit, committed
from tests.cluster.judge import Judge
from tests.cluster.mirror import (
    MirrorProcess,
    Record,
    View,
    admin,
    assert_equal,
    create_topic,
    partition_count,
    producer,
    unique,
)
from tests.cluster.mirrormaker import MirrorMaker

EVERY_SECOND = {
    "emit.heartbeats.enabled": "true",
    "emit.heartbeats.interval.seconds": "1",
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
}


@pytest.fixture(scope="module")
def sides(lab: Lab) -> tuple[LabCluster, LabCluster]:
    """Two clusters of their own: the target is to be new."""
    lab.start([ClusterSpec(alias="es-cp4i"), ClusterSpec(alias="target")])
    return lab.cluster("es-cp4i"), lab.cluster("target")


# -- what is written, and where it belongs


def write_transactions(cluster: LabCluster, topic: str, sizes: Sequence[int], *, partition: int = 0) -> None:
    """Behind each transaction its marker takes an offset of the source that the copy does not have."""
    name = unique("tx")
    sender = producer(cluster, transactional_id=name)
    sender.init_transactions(30)
    for turn, size in enumerate(sizes):
        sender.begin_transaction()
        for index in range(size):
            sender.produce(topic, f"{name}-{turn}-{index}".encode(), b"k", partition)
        sender.commit_transaction(30)


def true_offset(source: Sequence[Record], target: Sequence[Record], offset: int) -> int:
    """Where the first record from a source offset on stands on the target, found by its content; else the end."""
    following = next((record for record in source if record.offset >= offset), None)
    if following is None:
        return target[-1].offset + 1
    [found] = [record.offset for record in target if record.content == following.content]
    return found


def checkpoints(cluster: LabCluster, alias: str) -> list[Checkpoint]:
    """All there are, in their order."""
    topic = f"{alias}.checkpoints.internal"
    if not partition_count(cluster, topic):
        return []
    [records] = View(cluster, topic).read()
    found = [Checkpoint.parse(record.key, record.value) for record in records]
    return [checkpoint for checkpoint in found if checkpoint is not None]


Places = dict[tuple[str, int], tuple[int, int]]
"""By group and partition: offset on the source, offset on the target."""


def last_places(found: Iterable[Checkpoint]) -> Places:
    return {(one.group, one.partition): (one.upstream, one.downstream) for one in found}


def assert_never_back(found: Iterable[Checkpoint]) -> None:
    """No checkpoint of a group is below an earlier one of it."""
    last: Places = {}
    for one in found:
        upstream, downstream = last.get((one.group, one.partition), (0, 0))
        assert one.upstream >= upstream, one
        assert one.downstream >= downstream, one
        last[one.group, one.partition] = one.upstream, one.downstream


# -- Java asked, and heliograph

Plain = dict[str, dict[tuple[str, int], tuple[int, str]]]
"""By group and partition: offset and metadata."""


class Answers(NamedTuple):
    """Of a cluster, to all that RemoteClusterUtils can be asked."""

    heartbeat_topics: set[str]
    checkpoint_topics: set[str]
    upstream: set[str]
    hops: dict[str, int]
    one_by_one: Plain
    by_pattern: Plain


def java_answers(java: Judge, cluster: LabCluster, alias: str, groups: Sequence[str]) -> Answers:
    keys, utils = {"bootstrap.servers": cluster.bootstrap}, java.mirror("RemoteClusterUtils")
    minute = java.jvm.java.time.Duration.ofSeconds(60)
    pattern = java.jvm.java.util.regex.Pattern.compile("|".join(groups))
    upstream = set(utils.upstreamClusters(keys))

    def plain(offsets: Any) -> dict[tuple[str, int], tuple[int, str]]:
        pairs = [(entry.getKey(), entry.getValue()) for entry in offsets.entrySet()]
        return {(where.topic(), where.partition()): (found.offset(), found.metadata()) for where, found in pairs}

    return Answers(
        heartbeat_topics=set(utils.heartbeatTopics(keys)),
        checkpoint_topics=set(utils.checkpointTopics(keys)),
        upstream=upstream,
        hops={name: utils.replicationHops(keys, name) for name in (*upstream, "nobody")},
        one_by_one={group: plain(utils.translateOffsets(keys, alias, group, minute)) for group in groups},
        by_pattern={
            entry.getKey(): plain(entry.getValue())
            for entry in utils.translateOffsets(keys, alias, pattern, minute).entrySet()
        },
    )


def plain(offsets: Offsets) -> dict[tuple[str, int], tuple[int, str]]:
    return {(where.topic, where.partition): (found.offset, found.metadata) for where, found in offsets.items()}


def our_answers(cluster: LabCluster, alias: str, groups: Sequence[str]) -> Answers:
    client = MirrorClient({"bootstrap.servers": cluster.bootstrap})
    upstream = client.upstream_clusters()
    found = client.translate_offsets(alias, re.compile("|".join(groups)))
    answers = Answers(
        heartbeat_topics=client.heartbeat_topics(),
        checkpoint_topics=client.checkpoint_topics(),
        upstream=upstream,
        hops={name: client.replication_hops(name) for name in (*upstream, "nobody")},
        one_by_one={group: plain(client.translate_offsets(alias, group)) for group in groups},
        by_pattern={group: plain(offsets) for group, offsets in found.items()},
    )
    assert not client.skipped
    return answers


Kind = type[OffsetSync | Checkpoint | Heartbeat]


def printed_by_java(java: Judge, cluster: LabCluster, topic: str, kind: Kind) -> list[str]:
    """What the console consumer shows with the formatter: all records of the topic, read by Java's own consumer."""
    clients = java.jvm.org.apache.kafka.clients.consumer
    deserializer = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
    consumer = clients.KafkaConsumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "key.deserializer": deserializer,
            "value.deserializer": deserializer,
            "enable.auto.commit": "false",
        }
    )
    taken = java.jvm.java.io.ByteArrayOutputStream()
    printer = java.jvm.java.io.PrintStream(taken, True, "UTF-8")
    shown = getattr(java.jvm.org.apache.kafka.connect.mirror.formatters, f"{kind.__name__}Formatter")()
    partition = java.jvm.org.apache.kafka.common.TopicPartition(topic, 0)
    try:
        consumer.assign([partition])
        consumer.seekToBeginning([partition])
        end = consumer.endOffsets([partition]).get(partition)
        while consumer.position(partition) < end:
            records = consumer.poll(java.jvm.java.time.Duration.ofMillis(200)).iterator()
            while records.hasNext():
                shown.writeTo(records.next(), printer)
    finally:
        consumer.close()
    return str(taken.toString("UTF-8")).splitlines()


def printed_by_us(cluster: LabCluster, topic: str, kind: Kind) -> list[str]:
    """The same texts from our own reading; every record must be one of that kind."""
    assert partition_count(cluster, topic) == 1
    [records] = View(cluster, topic).read()
    return [_text_of(kind.parse(record.key, record.value)) for record in records]


def _text_of(found: OffsetSync | Checkpoint | Heartbeat | None) -> str:
    match found:
        case OffsetSync():
            where = f"topicPartition={found.topic}-{found.partition}"
            return f"OffsetSync{{{where}, upstreamOffset={found.upstream}, downstreamOffset={found.downstream}}}"
        case Checkpoint():
            where = f"consumerGroupId={found.group}, topicPartition={found.topic}-{found.partition}"
            offsets = f"upstreamOffset={found.upstream}, downstreamOffset={found.downstream}"
            return f"Checkpoint{{{where}, {offsets}, metadata={found.metadata}}}"
        case Heartbeat():
            pair = f"sourceClusterAlias={found.source}, targetClusterAlias={found.target}"
            return f"Heartbeat{{{pair}, timestamp={found.time_ms}}}"
    raise AssertionError("a record of another kind")


# -- heliograph on a new target

PRODUCTS = {f"products-app-{offset}": offset for offset in (0, 1, 7, 8, 20, 33, 47, 48)}
"""Groups of the source by their offset: at the start, in runs, on markers, at the end."""
PRODUCTS_SIZES = (7, 12, 1, 24)  # markers at 7, 20, 22 and 47: the log ends at 48


@dataclass(frozen=True, slots=True)
class Topic:
    partitions: int
    cleanup: str


def wait_for_heartbeats(mirror: MirrorProcess, view: View) -> None:
    mirror.wait_until(lambda: sum(view.counts() or []) >= 2, 40, what=f"heartbeats in {view.topic}")


@pytest.fixture(scope="module")
def lab_two(sides: tuple[LabCluster, LabCluster], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Topic]:
    """A run with the aliases and topic of the published lab; all topics of the target after it."""
    source, target = sides
    create_topic(source, "products")
    write_transactions(source, "products", PRODUCTS_SIZES)
    for group, offset in PRODUCTS.items():
        commit(source, group, {("products", 0): offset}, metadata=f"md {offset}")
    keys = {
        "es-cp4i->target.topics": "products",
        "es-cp4i->target.groups": ",".join(PRODUCTS),
        "sync.topic.acls.enabled": "false",
        **EVERY_SECOND,
    }
    clusters = {"es-cp4i": source, "target": target}
    with MirrorProcess(tmp_path_factory.mktemp("lab-two"), clusters, keys) as mirror:
        mirror.wait_mirrored(View(source, "products"), View(target, "es-cp4i.products"))
        mirror.wait_until(lambda: len(checkpoints(target, "es-cp4i")) >= len(PRODUCTS), 40, what="the checkpoints")
        mirror.wait_until(lambda: all(committed(target, group) for group in PRODUCTS), 40, what="the groups")
        for cluster, topic in ((source, "heartbeats"), (target, "heartbeats"), (target, "es-cp4i.heartbeats")):
            wait_for_heartbeats(mirror, View(cluster, topic))
        assert mirror.stop().code == 0
    assert not [line for line in mirror.stderr if "WARNING" in line or "ERROR" in line], mirror.output
    return described_topics(target)


def described_topics(cluster: LabCluster) -> dict[str, Topic]:
    counts = {name: len(found.partitions) for name, found in admin(cluster).list_topics(timeout=30).topics.items()}
    resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in counts]
    configs = {one.name: future.result(30) for one, future in admin(cluster).describe_configs(resources).items()}
    return {name: Topic(count, configs[name]["cleanup.policy"].value) for name, count in counts.items()}


def test_the_target_has_the_topics_of_the_published_lab(lab_two: dict[str, Topic]) -> None:
    """And one more, heliograph's own."""
    partitions = lab_two["__consumer_offsets"].partitions  # the broker's affair
    assert lab_two == {
        "__consumer_offsets": Topic(partitions, "compact"),
        "es-cp4i.checkpoints.internal": Topic(1, "compact"),
        "es-cp4i.heartbeats": Topic(1, "compact"),
        "es-cp4i.products": Topic(1, "delete"),
        "heartbeats": Topic(1, "compact"),
        "mm2-configs.es-cp4i.internal": Topic(1, "compact"),
        "mm2-ledger.es-cp4i.internal": Topic(1, "compact"),
        "mm2-offsets.es-cp4i.internal": Topic(25, "compact"),
        "mm2-status.es-cp4i.internal": Topic(5, "compact"),
    }


@pytest.mark.usefixtures("lab_two")
def test_javas_client_answers_as_ours_after_our_run(java: Judge, sides: tuple[LabCluster, LabCluster]) -> None:
    """And both as the ledger, whose answers are those of the records' content."""
    source, target = sides
    ours = our_answers(target, "es-cp4i", list(PRODUCTS))
    assert ours == java_answers(java, target, "es-cp4i", list(PRODUCTS))
    assert ours.hops.items() >= {"es-cp4i": 1, "nobody": -1}.items()
    assert "es-cp4i.checkpoints.internal" in ours.checkpoint_topics
    assert {"heartbeats", "es-cp4i.heartbeats"} <= ours.heartbeat_topics

    client = MirrorClient({"bootstrap.servers": target.bootstrap})
    known = client.translate_offsets("es-cp4i", re.compile(".*"), by="ledger")
    assert {group: plain(offsets) for group, offsets in known.items()} == ours.by_pattern == ours.one_by_one
    assert {found.grade for offsets in known.values() for found in offsets.values()} == {"exact"}
    [wanted], [copied] = View(source, "products").read(), View(target, "es-cp4i.products").read()
    true = {group: true_offset(wanted, copied, offset) for group, offset in PRODUCTS.items()}
    place = "es-cp4i.products", 0
    assert {group: offsets[place][0] for group, offsets in ours.by_pattern.items()} == true
    assert {group: committed(target, group)[place] for group in PRODUCTS} == true


@pytest.mark.usefixtures("lab_two")
@pytest.mark.parametrize(
    ("side", "topic", "kind"),
    [
        ("es-cp4i", "mm2-offset-syncs.target.internal", OffsetSync),
        ("target", "es-cp4i.checkpoints.internal", Checkpoint),
        ("target", "heartbeats", Heartbeat),
        ("es-cp4i", "heartbeats", Heartbeat),
        ("target", "es-cp4i.heartbeats", Heartbeat),
    ],
)
def test_javas_formatters_print_every_record_of_our_run(
    java: Judge, lab: Lab, side: str, topic: str, kind: Kind
) -> None:
    ours = printed_by_us(lab.cluster(side), topic, kind)
    assert len(ours) >= 2
    assert printed_by_java(java, lab.cluster(side), topic, kind) == ours


# -- the real MirrorMaker 2, and heliograph in its place

ORDERS = {"orders-start": 0, "orders-middle": 35, "orders-marker": 60, "orders-late": 70, "orders-end": 94}
"""Groups by their offset in both partitions while MirrorMaker 2 runs."""
ORDERS_SIZES = (10, 49, 32)  # markers at 10, 60 and 93: the log ends at 94
ORDERS_COPY = 91
MM2_GROUP = "src-mm2"


class Flow:
    """`src->dst`: one set of keys for both tools, and all that is between the two topics."""

    def __init__(self, lab: Lab, sides: tuple[LabCluster, LabCluster], folder: Path) -> None:
        self.source, self.target = sides
        self.topic = create_topic(self.source, unique("orders"), 2)
        self.views = View(self.source, self.topic), View(self.target, f"src.{self.topic}")
        clusters = {"src": self.source, "dst": self.target}
        keys = {
            "src->dst.topics": self.topic,
            "src->dst.groups": "orders-.*",
            "src->dst.offset-syncs.topic.location": "target",
            "dst.group.id": MM2_GROUP,
            "dst.offset.flush.interval.ms": "1000",  # when MirrorMaker 2 writes the last offset syncs
            **EVERY_SECOND,
        }
        self.theirs = MirrorMaker(lab, folder, clusters, keys, target="dst")
        self.ours = MirrorProcess(folder, clusters, keys)

    def write(self, sizes: Sequence[int]) -> None:
        for partition in range(2):
            write_transactions(self.source, self.topic, sizes, partition=partition)

    def commit(self, group: str, offset: int) -> None:
        commit(self.source, group, {(self.topic, partition): offset for partition in range(2)})

    def places(self) -> Places:
        return last_places(checkpoints(self.target, "src"))

    def wait_for_place(self, tool: MirrorProcess, group: str, place: tuple[int, int]) -> None:
        wanted = {(group, partition): place for partition in range(2)}
        tool.wait_until(lambda: self.places().items() >= wanted.items(), 60, what=f"the checkpoints of {group}")

    def true_places(self, groups: Iterable[str]) -> Places:
        """By content, for all that the groups have committed on the source."""
        wanted, copied = (view.read() for view in self.views)
        return {
            (group, partition): (offset, true_offset(wanted[partition], copied[partition], offset))
            for group in groups
            for (_, partition), offset in committed(self.source, group).items()
        }

    def synced(self) -> dict[tuple[str, int], int]:
        """By group and partition, what is committed on the target."""
        return {
            (group, partition): offset
            for group in ALL_GROUPS
            for (_, partition), offset in committed(self.target, group).items()
        }

    def by_ledger(self) -> dict[tuple[str, int], tuple[int, str]]:
        client = MirrorClient({"bootstrap.servers": self.target.bootstrap})
        found = client.translate_offsets("src", re.compile("orders-.*"), by="ledger")
        return {
            (group, where.partition): (translated.offset, translated.grade)
            for group, offsets in found.items()
            for where, translated in offsets.items()
        }


@dataclass(frozen=True, slots=True)
class TheirRun:
    """What MirrorMaker 2 left."""

    flow: Flow
    answers: tuple[Answers, Answers]
    places: Places


@pytest.fixture(scope="module")
def their_run(
    lab: Lab,
    lab_two: dict[str, Topic],
    sides: tuple[LabCluster, LabCluster],
    java: Judge,
    tmp_path_factory: pytest.TempPathFactory,
) -> TheirRun:
    assert lab_two  # the target is not new any more
    flow = Flow(lab, sides, tmp_path_factory.mktemp("take-over"))
    flow.write(ORDERS_SIZES)
    for group, offset in ORDERS.items():
        flow.commit(group, offset)
    with flow.theirs as mm2:
        mm2.wait_mirrored(*flow.views)
        flow.wait_for_place(mm2, "orders-end", (ORDERS["orders-end"], ORDERS_COPY))
        mm2.wait_until(lambda: partition_count(flow.target, "src.heartbeats"), what="their copy of the heartbeats")
        mm2.stop_cleanly(flow.target, MM2_GROUP)
    groups = list(ORDERS)
    answers = our_answers(flow.target, "src", groups), java_answers(java, flow.target, "src", groups)
    return TheirRun(flow, answers, flow.places())


def test_our_client_answers_as_javas_after_their_run(their_run: TheirRun) -> None:
    ours, theirs = their_run.answers
    assert ours == theirs
    assert ours.hops.items() >= {"src": 1, "es-cp4i": 1, "nobody": -1}.items()
    assert {"src.checkpoints.internal", "es-cp4i.checkpoints.internal"} <= ours.checkpoint_topics
    remote = their_run.flow.views[1].topic
    assert {where: place[0] for where, place in ours.one_by_one["orders-end"].items()} == {
        (remote, partition): ORDERS_COPY for partition in range(2)
    }
    assert ours.by_pattern == {group: offsets for group, offsets in ours.one_by_one.items() if offsets}


# -- each goes on where the other stopped

AFTER = (5, 20)  # from 94 on; markers at 99 and 120: the log ends at 121
AFTER_COPY = ORDERS_COPY + sum(AFTER)
NEW_PLACES = {"orders-end": (121, AFTER_COPY), "orders-new": (110, ORDERS_COPY + 5 + 10)}
"""Groups that commit while heliograph runs; the others have not moved."""
ALL_GROUPS = [*ORDERS, "orders-new"]


@dataclass(frozen=True, slots=True)
class OurTurn:
    """What heliograph left, which went on with the same names where MirrorMaker 2 stopped."""

    before: TheirRun
    true: Places
    by_ledger: dict[tuple[str, int], tuple[int, str]]
    by_checkpoint: Places
    synced: dict[tuple[str, int], int]
    """What the groups have committed on the target."""


@pytest.fixture(scope="module")
def our_turn(their_run: TheirRun) -> OurTurn:
    flow = their_run.flow
    flow.write(AFTER)
    with flow.ours as mirror:
        mirror.wait_mirrored(*flow.views)
        for group, (offset, _) in NEW_PLACES.items():
            flow.commit(group, offset)
        true = flow.true_places(ALL_GROUPS)
        mirror.wait_until(lambda: flow.synced().keys() == true.keys(), 60, what="the groups on the target")
        for group, place in NEW_PLACES.items():
            flow.wait_for_place(mirror, group, place)
        assert mirror.stop().code == 0
    return OurTurn(their_run, true, flow.by_ledger(), flow.places(), flow.synced())


def test_no_group_is_led_past_its_next_record_after_the_take_over(our_turn: OurTurn) -> None:
    """In MirrorMaker 2's time translation is degraded, and still not worse than its own; after that it is exact."""
    assert our_turn.by_ledger.keys() == our_turn.by_checkpoint.keys() == our_turn.true.keys()
    for where, (upstream, true) in our_turn.true.items():
        offset, grade = our_turn.by_ledger[where]
        if upstream < ORDERS["orders-end"]:
            _, theirs = our_turn.before.places.get(where, (0, 0))
            assert grade == "degraded", where
            assert theirs <= offset <= true, where
        else:
            assert (offset, grade) == (true, "exact"), where
        assert our_turn.by_checkpoint[where][1] <= true, where
        assert our_turn.synced[where] <= true, where
    assert_never_back(checkpoints(our_turn.before.flow.target, "src"))


def test_javas_formatter_prints_the_offset_syncs_of_both_on_the_target(java: Judge, our_turn: OurTurn) -> None:
    flow, topic = our_turn.before.flow, "mm2-offset-syncs.src.internal"
    ours = printed_by_us(flow.target, topic, OffsetSync)
    for theirs_and_ours in ("upstreamOffset=92, downstreamOffset=90", "upstreamOffset=119, downstreamOffset=115"):
        assert f"OffsetSync{{topicPartition={flow.topic}-1, {theirs_and_ours}}}" in ours
    assert printed_by_java(java, flow.target, topic, OffsetSync) == ours


def test_javas_client_answers_as_ours_after_both(java: Judge, our_turn: OurTurn) -> None:
    target = our_turn.before.flow.target
    ours = our_answers(target, "src", ALL_GROUPS)
    assert ours == java_answers(java, target, "src", ALL_GROUPS)
    assert all(ours.one_by_one.values())


def test_mirrormaker_goes_on_where_heliograph_stopped(our_turn: OurTurn) -> None:
    """Without a gap, without a record twice, and no checkpoint goes back."""
    flow = our_turn.before.flow
    flow.write((3, 8))  # from 121 on; markers at 124 and 133: the log ends at 134
    flow.commit("orders-end", 134)
    with flow.theirs as mm2:
        mm2.wait_mirrored(*flow.views)
        flow.wait_for_place(mm2, "orders-end", (134, AFTER_COPY + 11))
        mm2.stop_cleanly(flow.target, MM2_GROUP)
    source, target = (view.read() for view in flow.views)
    assert_equal(source, target)
    assert_never_back(checkpoints(flow.target, "src"))
    true = flow.true_places(ALL_GROUPS)
    assert all(downstream <= true[where][1] for where, (_, downstream) in flow.places().items())
