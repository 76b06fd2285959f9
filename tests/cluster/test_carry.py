"""Consumer groups keep their place: checkpoints, group sync and translation on real clusters."""

from __future__ import annotations

from pathlib import Path

from heliograph.lab import Cluster
from tests.cluster.consumers import commit, committed, consume
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique

CARRY = {
    "emit.checkpoints.interval.seconds": "1",
    "refresh.groups.interval.seconds": "1",
    "sync.group.offsets.enabled": "true",
    "sync.group.offsets.interval.seconds": "1",
}


def numbered(count: int, start: int = 0) -> list[bytes]:
    return [b"%d" % number for number in range(start, start + count)]


def test_the_first_record_on_the_target_is_the_next_one_on_every_partition(
    primary: Cluster, backup: Cluster, tmp_path: Path
) -> None:
    """The Strimzi lab's rule: first target offset = last source offset + 1, identity naming, every 5 s."""
    topic, group = create_topic(primary, unique("active"), 3), unique("app")
    keys = {
        "primary->backup.topics": topic,
        "primary->backup.replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
        "primary->backup.offset.lag.max": "0",
        "primary->backup.groups": group,
        **CARRY,
        "emit.checkpoints.interval.seconds": "5",
        "sync.group.offsets.interval.seconds": "5",
    }
    for partition in range(3):
        produce(primary, topic, numbered(40 + 7 * partition), partition=partition)
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        last = {0: 12, 1: 28, 2: 53}
        wanted = {(topic, partition): offset + 1 for partition, offset in last.items()}
        commit(primary, group, wanted)
        mirror.wait_mirrored(View(primary, topic), View(backup, topic))
        mirror.wait_until(lambda: committed(backup, group) == wanted, 30, what="the group's offsets")
        mirror.stop()
    first: dict[int, int] = {}
    produce(backup, topic, numbered(1), partition=2)
    for message in consume(backup, group, topic, 27 + 18 + 1):
        first.setdefault(message.partition(), message.offset())
    assert first == {partition: offset + 1 for partition, offset in last.items()}


def test_every_group_goes_on_at_its_next_record_where_the_targets_numbers_differ(
    primary: Cluster, backup: Cluster, tmp_path: Path
) -> None:
    """The target begins at 30; groups stand at the start, in the middle, at the end."""
    topic = create_topic(primary, unique("shifted"))
    remote = create_topic(backup, f"primary.{topic}")
    produce(backup, remote, numbered(30))
    produce(primary, topic, numbered(7))
    groups = {unique(f"at-{offset}"): offset for offset in (0, 4, 7)}
    for group, offset in groups.items():
        commit(primary, group, {(topic, 0): offset}, metadata="note")
    keys = {"primary->backup.topics": topic, "primary->backup.groups": ",".join(groups), **CARRY}
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        for group, offset in groups.items():
            wanted = {(remote, 0): 30 + offset}
            mirror.wait_until(lambda g=group, w=wanted: committed(backup, g) == w, 40, what=group)
