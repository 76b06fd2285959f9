"""Topics come, grow, go and are refused while a mirror runs; `heliograph topics` tells how each stands."""

from __future__ import annotations

import csv
import io
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource

from heliograph.lab import LabCluster
from tests.cluster.load import Load
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    admin,
    create_topic,
    delete_topic,
    grow_topic,
    produce,
    topics,
    unique,
)
from tests.cluster.swarm import STANDSTILL_S, Pulse, Swarm, read_values
from tests.cluster.test_changes import edit

AT_ONCE_S = 15.0
"""Until a lane has met a change, told it with a flush, and the driver has looked; the interval is 600 s."""
SWARM = 30

Property = Callable[[str, object], None]


def ask(mirror: MirrorProcess, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [HELIOGRAPH, "topics", str(mirror.config), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def rows(mirror: MirrorProcess, *arguments: str) -> dict[str, dict[str, Any]]:
    found = ask(mirror, *arguments, "-o", "json")
    assert found.stdout, found.stderr
    return {row["topic"]: row for row in json.loads(found.stdout)}


def set_config(cluster: LabCluster, topic: str, key: str, value: str) -> None:
    entry = ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin(cluster).incremental_alter_configs([resource])[resource].result(30)


@pytest.mark.timeout(300)
def test_topics_come_and_go_while_others_are_copied(
    primary: LabCluster, backup: LabCluster, tmp_path: Path, record_property: Property
) -> None:
    prefix = unique("topics")
    steady, doomed, excluded = (f"{prefix}-{name}" for name in ("steady", "doomed", "secret"))
    too_long = f"{prefix}-long".ljust(249, "x")
    for topic in (steady, doomed):
        create_topic(primary, topic, 2)
    for topic in (excluded, too_long):
        create_topic(primary, topic)
    produce(primary, doomed, [b"%d" % number for number in range(50)])
    keys = {
        "primary->backup.topics": f"{prefix}.*",
        "primary->backup.topics.exclude": ".*-secret",
        "refresh.topics.interval.seconds": "600",
        "sync.topic.configs.enabled": "false",
    }
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        mirror.wait_mirrored(View(primary, doomed), View(backup, f"primary.{doomed}"))
        with Load(primary, [steady], partitions=2, per_second=500), Pulse(backup, f"primary.{steady}") as pulse:
            mirror.wait_until(
                lambda: sum(View(backup, f"primary.{steady}").counts() or ()) > 500, what="flowing records"
            )
            shown = check_views(mirror, primary, steady=steady, doomed=doomed, excluded=excluded, too_long=too_long)

            # Deleted: a lane meets it, nobody waits for the interval, and the copy stays.
            delete_topic(primary, doomed)
            gone_s = mirror.wait_for(f"no longer mirrored: {doomed} (deleted on the source)", AT_ONCE_S)
            assert View(backup, f"primary.{doomed}").counts() == [50, 0]
            assert rows(mirror)[doomed]["state"] == "deleted on the source"

            # New, grown, and many at once: with a short interval, each from its first record on.
            edit(mirror.config, "refresh.topics.interval.seconds = 1")
            mirror.wait_for("refresh topics interval s: takes effect now")
            with Swarm(primary, prefix, topics=SWARM, partitions=2, records=10, seconds=6.0) as swarm:
                grow_topic(primary, steady, 3)
                produce(primary, steady, [b"in the new one"] * 5, partition=2)
                swarm.stop()
            copies = {(f"primary.{topic}", index): values for (topic, index), values in swarm.expected.items()}
            mirror.wait_until(lambda: {topic for topic, _ in copies} <= topics(backup), 60, what="all copies")
            late_s = mirror.wait_until(lambda: read_values(backup, copies) == copies, 60, what="the records of all")
        mirror.wait_mirrored(View(primary, steady), View(backup, f"primary.{steady}"))
        assert "Traceback" not in mirror.output

        # Without the source its columns are what was last seen.
        primary.stop_broker(1)
        dead = rows(mirror)
        assert dead[steady]["position"] == dead[steady]["source end"] > shown[steady]["position"]
        assert (dead[steady]["source partitions"], dead[steady]["target partitions"]) == (3, 3)
        assert re.fullmatch(r"\d+ s ago", dead[steady]["source seen"])
        assert ask(mirror, "--diff").returncode == 1
        mirror.stop()
    last = mirror.stdout[-1]
    stopped = re.search(r"stopped after ([\d,]+) epochs", last)
    assert stopped is not None, last
    figures = {
        "gone_s": round(gone_s, 1),
        "late_s": round(late_s, 1),
        "standstills_s": pulse.standstills,
        "last": last,
    }
    record_property("figures", figures)
    assert max(pulse.standstills, default=0.0) < 2 * STANDSTILL_S, "nothing else is disturbed"


def check_views(
    mirror: MirrorProcess, primary: LabCluster, *, steady: str, doomed: str, excluded: str, too_long: str
) -> dict[str, dict[str, Any]]:
    """All topics as they stand; what was seen."""
    set_config(primary, steady, "retention.ms", "7200000")
    found = rows(mirror)
    row = found[steady]
    assert (row["state"], row["target topic"], row["source seen"]) == ("copying", f"primary.{steady}", "now")
    assert (row["source partitions"], row["target partitions"]) == (2, 2)
    assert 200 < row["records/s"] < 1500
    assert 0 <= row["lag"] < 2000
    assert row["configs that differ"] == "retention.ms"
    assert (found[doomed]["position"], found[doomed]["lag"], found[doomed]["records/s"]) == (50, 0, 0.0)
    assert found[excluded]["state"] == "not mirrored: excluded by topics.exclude"
    assert found[too_long]["state"] == "refused"
    assert "NAME_REFUSED" in found[too_long]["last error"]
    assert "1 refused" in ask(mirror).stdout.splitlines()[-1]
    parts = csv.DictReader(io.StringIO(ask(mirror, "--partitions", "-o", "csv").stdout))
    assert [(part["partition"], part["state"]) for part in parts if part["topic"] == steady] == [
        ("0", "copying"),
        ("1", "copying"),
    ]
    diff = json.loads(ask(mirror, "--diff", "-o", "json", "--flow", "primary->backup").stdout)
    assert [(item["topic"], item["setting"], item["source"], item["action"]) for item in diff] == [
        (steady, "retention.ms", "7200000", "set")
    ]
    return found
