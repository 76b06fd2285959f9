"""The published examples, to the record: S0 (IBM's lab 3), S2 (the failover blog), S3 (Strimzi's lab)."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import OffsetSync
from tests.cluster.carried import CARRY, IDENTITY, numbered
from tests.cluster.consumers import commit, committed, consume
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    create_topic,
    partition_count,
    produce,
    unique,
    wait_until,
)


def test_s3_the_first_record_on_the_target_is_the_next_one_on_every_partition(
    primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """First target offset = last source offset + 1: identity naming, offset.lag.max 0, every 5 s."""
    topic, group = create_topic(primary, unique("active"), 3), unique("app")
    keys = {
        "primary->backup.topics": topic,
        "primary->backup.replication.policy.class": IDENTITY,
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
        first.setdefault(message.partition() or 0, message.offset() or 0)
    assert first == {partition: offset + 1 for partition, offset in last.items()}


PROCESSED = {"mm2": [6, 7, 8, 9, 11, 12, 13, 14], "exact": [9, 11, 12, 13, 14]}


@pytest.mark.parametrize("translation", PROCESSED)
def test_s2_ten_records_eight_consumed_nine_mirrored(
    translation: str, primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """MM2's lists with its rule: the sync of record 5 is out when the group has read 8. Exact has nothing to repeat.

    Syncs that the rule holds back are published at a flush: with long intervals the test has time between two.
    """
    topic, group = create_topic(primary, unique("ten")), unique("app")
    processed = PROCESSED[translation]
    position = processed[0] - 1
    keys = {
        "primary->backup.topics": topic,
        "primary->backup.groups": group,
        "primary->backup.offset.translation": translation,
        "primary->backup.replication.policy.class": IDENTITY,
        "epoch.ms": "120000",
        "backup.offset.flush.interval.ms": "12000" if translation == "mm2" else "1000",
        **CARRY,
    }
    produce(primary, topic, [b"%d" % number for number in range(1, 6)])
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        mirror.wait_until(lambda: (4, 4) in syncs(primary, topic), 60, what="the sync of record 5")
        produce(primary, topic, [b"%d" % number for number in range(6, 10)])
        commit(primary, group, {(topic, 0): 8})
        mirror.wait_mirrored(View(primary, topic), View(backup, topic), timeout_s=9)
        mirror.wait_until(lambda: committed(backup, group) == {(topic, 0): position}, 9, what="the group's place")
        mirror.kill()
    produce(primary, topic, [b"10"])
    produce(backup, topic, [b"%d" % number for number in range(11, 15)])
    [records] = View(backup, topic).read()
    assert [int(record.value or 0) for record in records] == [*range(1, 10), 11, 12, 13, 14]
    assert [int(message.value() or 0) for message in consume(backup, group, topic, len(processed))] == processed
    assert committed(backup, group) == {(topic, 0): 13}


def syncs(cluster: LabCluster, topic: str, *, target: str = "backup") -> list[tuple[int, int]]:
    name = f"mm2-offset-syncs.{target}.internal"
    if not partition_count(cluster, name):
        return []
    parsed = [OffsetSync.parse(record.key, record.value) for record in View(cluster, name).read()[0]]
    return [(item.upstream, item.downstream) for item in parsed if item is not None and item.topic == topic]


def test_s0_twenty_of_105_are_consumed_the_source_is_killed_and_the_21st_is_next(
    primary: LabCluster, backup: LabCluster, mid: LabCluster, tmp_path: Path
) -> None:
    """To one target by `translate --execute`, with group sync off as it is by default; to the other with it on.

    What is asked after the loss is answered by the targets alone. The second flow writes no offset syncs: exact
    positions do not need them. The file sets no intervals: a group is known on the target 10 s after it committed.
    """
    topic, group = create_topic(primary, unique("products")), unique("ProductConsumer")
    keys = {
        "topics": topic,
        "groups": group,
        "stall.timeout.ms": "2000",
        "primary->backup.enabled": "true",
        "primary->mid.enabled": "true",
        "primary->mid.sync.group.offsets.enabled": "true",
        "primary->mid.emit.offset-syncs.enabled": "false",
    }
    remote = f"primary.{topic}"
    produce(primary, topic, numbered(105))
    mirror = MirrorProcess(tmp_path, {"primary": primary, "backup": backup, "mid": mid}, keys)
    mirror.write({key: value for key, value in mirror.keys.items() if "interval" not in key})
    with mirror:
        mirror.wait_mirrored(View(primary, topic), View(backup, remote))
        consume(primary, group, topic, 20)
        mirror.wait_until(lambda: "20" in translate(mirror, group, "-o", "csv").stdout, 10, what="the group's place")
        mirror.wait_until(lambda: committed(mid, group) == {(remote, 0): 20}, 30, what="the group on mid")
        mirror.wait_until(lambda: status(mirror).returncode == 0, 30, what="readiness")
        assert syncs(primary, topic, target="mid") == []
        primary.kill_broker(primary.brokers[0].node_id)
        mirror.kill()
    assert committed(backup, group) == {}
    assert "nothing was written" in translate(mirror, group).stdout
    assert committed(backup, group) == {}
    done = translate(mirror, group, "--execute")
    assert (done.returncode, "written" in done.stdout) == (0, True)
    for cluster in (backup, mid):
        values = [message.value() for message in consume(cluster, group, remote, 85)]
        assert values == numbered(85, 20)
    wait_until(lambda: "SourceReachable is False" in status(mirror).stdout, 30, what="the source's absence")
    shown = status(mirror, "-o", "json")
    flows = json.loads(shown.stdout)
    for flow in flows:
        found = {condition["type"]: condition for condition in flow["conditions"]}
        assert (shown.returncode, flow["ready"]) == (1, "no")
        assert (found["Leading"]["status"], found["Leading"]["reason"]) == ("False", "LeaderDead")
        assert (found["SourceReachable"]["status"], found["SourceReachable"]["reason"]) == ("False", "NoAnswer")
        assert found["SourceReachable"]["since"] is not None
        assert f"heliograph run {mirror.config}" in found["Leading"]["message"]
        assert found["TargetReachable"]["status"] == "True"
    assert [(flow["flow"], flow["exposed records"]) for flow in flows] == [("primary->backup", 0), ("primary->mid", 0)]
    command = [HELIOGRAPH, "groups", str(mirror.config), "-o", "json"]
    rows = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    seen = {row["flow"]: row for row in rows if row["kind"] == "group"}
    assert all(row["seen"].endswith("s ago") and row["would re-read now"] == 0 for row in seen.values())
    places = [row for row in rows if row["kind"] == "partition"]
    assert {(row["source committed"], row["source end"], row["translated"]) for row in places} == {(20, 105, 20)}


def status(mirror: MirrorProcess, *more: str) -> subprocess.CompletedProcess[str]:
    command = [HELIOGRAPH, "status", str(mirror.config), *more]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def translate(mirror: MirrorProcess, group: str, *more: str) -> subprocess.CompletedProcess[str]:
    command = [HELIOGRAPH, "translate", str(mirror.config), "--from", "primary", "--to", "backup", "--group", group]
    return subprocess.run([*command, *more], capture_output=True, text=True, check=False)
