"""Five hundred topics within a minute, under load: all are mirrored, none misses a record, the rest goes on."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.lab import ClusterSpec, Lab, LabCluster
from tests.cluster.load import Load
from tests.cluster.mirror import MirrorProcess, View, create_topic, topics, unique
from tests.cluster.swarm import STANDSTILL_S, Pulse, Swarm, read_values

TOPICS, PARTITIONS, RECORDS, SECONDS = 500, 2, 20, 60.0
PLAN_S, DRIVER_MB = 1.0, 1000.0
NEWS_S = 3.0
"""An epoch lasts so long at least, whatever is new."""

Property = Callable[[str, object], None]


@pytest.fixture(scope="module")
def wide(lab: Lab) -> tuple[LabCluster, LabCluster]:
    """A pair of its own; index files of the usual size would cost more than the test."""
    config = {"log.index.size.max.bytes": str(256 * 1024)}
    lab.start([ClusterSpec(alias="many", config=config), ClusterSpec(alias="copies", config=config)])
    return lab.cluster("many"), lab.cluster("copies")


def peak_mb(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1000


@pytest.mark.long
@pytest.mark.timeout(600)
def test_five_hundred_topics_in_a_minute(
    wide: tuple[LabCluster, LabCluster], tmp_path: Path, record_property: Property
) -> None:
    source, target = wide
    prefix = unique("swarm")
    steady = create_topic(source, f"{prefix}-steady", 4)
    keys = {"many->copies.topics": f"{prefix}.*", "refresh.topics.interval.seconds": "1"}
    with MirrorProcess(tmp_path, {"many": source, "copies": target}, keys) as mirror:
        mirror.wait_until(lambda: View(target, f"many.{steady}").counts(), what="the first copy")
        mirror.wait_for("Spark is up")
        with Load(source, [steady], partitions=4, per_second=1000) as load:
            mirror.wait_until(lambda: sum(View(target, f"many.{steady}").counts() or ()) > 1000, what="flowing records")
            with Pulse(target, f"many.{steady}") as pulse:
                with Swarm(
                    source, prefix, topics=TOPICS, partitions=PARTITIONS, records=RECORDS, seconds=SECONDS
                ) as swarm:
                    swarm.stop()
                copies = {(f"many.{topic}", index): values for (topic, index), values in swarm.expected.items()}
                late_s = mirror.wait_until(
                    lambda: all_there(target, copies) and read_values(target, copies) == copies,
                    120,
                    what="the copies of all topics",
                )
        mirror.wait_mirrored(View(source, steady), View(target, f"many.{steady}"))
        memory_mb = peak_mb(mirror.process.pid)
        mirror.stop()
    last = mirror.stdout[-1]
    stopped = re.search(r"stopped after ([\d,]+) epochs.* plans made in at most ([\d.]+) s", last)
    assert stopped is not None, last
    epochs, plan_s = int(stopped[1].replace(",", "")), float(stopped[2])
    figures = {
        "made_s": round(swarm.took_s, 1),
        "late_s": round(late_s, 1),
        "epochs": epochs,
        "plan_s": plan_s,
        "driver_mb": round(memory_mb, 1),
        "standstills_s": pulse.standstills,
        "records_per_partition_of_the_load": load.written,
    }
    record_property("figures", figures)
    assert read_values(target, copies) == copies, "once each, in order"
    assert plan_s < PLAN_S
    assert memory_mb < DRIVER_MB
    assert epochs <= (SECONDS + late_s) / NEWS_S + 10
    assert max(pulse.standstills, default=0.0) < STANDSTILL_S


def all_there(cluster: LabCluster, places: dict[tuple[str, int], list[bytes]]) -> bool:
    """A consumer of a topic that is not there yet would wait for it."""
    return {topic for topic, _ in places} <= topics(cluster)
