"""Mirroring from and to older brokers: round 2.4.1, 4.3.1 and 3.9.1 by one mirror, further pairs in long runs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from tests.cluster.carried import CARRY, numbered
from tests.cluster.consumers import committed, consume
from tests.cluster.kills import mirror_through_kills
from tests.cluster.mirror import Headers, MirrorProcess, View, create_topic, grow_topic, produce, producer, unique

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def mirror(
    tmp_path_factory: pytest.TempPathFactory, old: LabCluster, primary: LabCluster, mid: LabCluster
) -> Iterator[MirrorProcess]:
    clusters = {"old": old, "primary": primary, "mid": mid}
    keys = {f"{flow}.topics": "versions-.*" for flow in ("old->primary", "primary->mid", "mid->old")}
    with MirrorProcess(tmp_path_factory.mktemp("versions"), clusters, keys) as mirror:
        yield mirror


def check(mirror: MirrorProcess, source: LabCluster, target: LabCluster) -> None:
    """Codecs, headers, tombstones, a merged backlog and a topic that grows; then records that come one by one."""
    topic = unique("versions")
    with mirror.frozen():
        create_topic(source, topic, len(CODECS))
        for partition, codec in enumerate(CODECS):
            values = [None if index % 10 == 7 else f"{index}-{codec}".encode() * 20 for index in range(500)]
            size = 1 if partition == 0 else 100
            produce(source, topic, values, partition=partition, compression_type=codec, batch_num_messages=size)
    copy = View(target, f"{source.alias}.{topic}")
    mirror.wait_mirrored(View(source, topic), copy)

    grow_topic(source, topic, len(CODECS) + 1)
    sender = producer(source, linger_ms=0)
    now = int(time.time() * 1000)
    for index in range(50):
        headers: Headers = [("a", None), ("b", b""), ("a", str(index).encode())]
        sender.produce(topic, str(index).encode(), None, len(CODECS), timestamp=now - index, headers=headers)
        assert sender.flush(30) == 0
    mirror.wait_mirrored(View(source, topic), copy)


def test_from_2_4_1_to_4_3_1(mirror: MirrorProcess, old: LabCluster, primary: LabCluster) -> None:
    check(mirror, old, primary)


def test_from_4_3_1_to_3_9_1(mirror: MirrorProcess, primary: LabCluster, mid: LabCluster) -> None:
    check(mirror, primary, mid)


def test_from_3_9_1_to_2_4_1(mirror: MirrorProcess, mid: LabCluster, old: LabCluster) -> None:
    check(mirror, mid, old)
    assert 'mid->old: "old" has brokers before 2.5: copying is at-least-once' in mirror.output


def check_place(mirror: MirrorProcess, source: LabCluster, target: LabCluster) -> None:
    """A group that has read 20 of 105 records reads the 21st on the target."""
    topic, group = create_topic(source, unique("versions")), unique("app")
    remote = f"{source.alias}.{topic}"
    produce(source, topic, numbered(105))
    consume(source, group, topic, 20)
    mirror.wait_mirrored(View(source, topic), View(target, remote))
    mirror.wait_until(lambda: committed(target, group) == {(remote, 0): 20}, 60, what="the group's place")
    assert [message.value() for message in consume(target, group, remote, 85)] == numbered(85, 20)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("pair", [("old", "mid"), ("mid", "mid_too")], ids="->".join)
def test_fidelity_translation_and_five_kills_hold_between_versions(
    pair: tuple[str, str],
    request: pytest.FixtureRequest,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    source, target = map(request.getfixturevalue, pair)
    flow = f"{source.alias}->{target.alias}"
    keys = {f"{flow}.topics": "versions-.*", f"{flow}.groups": "app-.*", **CARRY}
    with MirrorProcess(tmp_path, {source.alias: source, target.alias: target}, keys) as mirror:
        check(mirror, source, target)
        check_place(mirror, source, target)
    record_property("records_compared_after_kills", mirror_through_kills(source, target, tmp_path, [0.0] * 5))
