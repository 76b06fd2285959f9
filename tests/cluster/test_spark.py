"""Spark does the work: its own record says so, and without executors nothing moves."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from heliograph.lab import Cluster
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique
from tests.cluster.spark import Standalone, kill_tree

SLOW_START_S = 120


def events_of(folder: Path) -> list[dict[str, Any]]:
    """Spark's own record of the application, from its event log."""
    return [
        json.loads(line)
        for file in sorted(folder.rglob("*"))
        if file.is_file() and not file.name.startswith((".", "appstatus"))
        for line in file.read_text().splitlines()
    ]


@pytest.mark.timeout(300)
def test_one_job_per_epoch_and_its_tasks_moved_everything(primary: Cluster, backup: Cluster, tmp_path: Path) -> None:
    topic = create_topic(primary, unique("jobs"), 4)
    log = tmp_path / "events"
    log.mkdir()
    conf = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": log.as_uri(),
    }
    keys = {"primary->backup.topics": topic, "epoch.ms": "1500", "tasks.max": "2", **conf}
    target = View(backup, f"primary.{topic}")
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        for part in range(4):
            for partition in range(4):
                produce(primary, topic, [f"{part}-{number}".encode() for number in range(100)], partition=partition)
            mirror.wait_until(
                lambda part=part: (target.counts() or [0]) == [100 * (part + 1)] * 4, SLOW_START_S, what="the copy"
            )
            time.sleep(1.5)
        mirror.stop()
    epochs, records = _summary(mirror)
    assert records == 1600
    events = events_of(log)
    started = [event for event in events if event["Event"] == "SparkListenerJobStart"]
    jobs = [job for job in started if "warm-up" not in job["Properties"]["spark.job.description"]]
    told = [str(job["Properties"]["spark.job.description"]) for job in jobs]
    assert len(jobs) == epochs > 2
    assert [line.split(":")[0] for line in told] == [f"heliograph epoch {index + 1}" for index in range(epochs)]
    stages = {stage for job in jobs for stage in job["Stage IDs"]}
    tasks = [event for event in events if event["Event"] == "SparkListenerTaskEnd" and event["Stage ID"] in stages]
    assert len(tasks) == 2 * epochs
    assert all(task["Task End Reason"]["Reason"] == "Success" for task in tasks)


def _summary(mirror: MirrorProcess) -> tuple[int, int]:
    """Epochs and records from the mirror's last line, made of the rows that came back from Spark."""
    words = mirror.stdout[-1].replace(",", "").split()
    assert words[1:3] == ["stopped", "after"], mirror.output
    return int(words[3]), int(words[5])


@pytest.mark.timeout(400)
def test_without_executors_nothing_is_copied_until_one_returns(
    primary: Cluster, backup: Cluster, tmp_path: Path
) -> None:
    topic = create_topic(primary, unique("standalone"), 2)
    target = View(backup, f"primary.{topic}")
    produce(primary, topic, [b"before"] * 100)
    with Standalone(tmp_path) as spark:
        worker = spark.start_worker("first")
        keys = {
            "primary->backup.topics": topic,
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.executor.memory": "512m",
        }
        arguments = ("--master", spark.master)
        with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys, arguments=arguments) as mirror:
            mirror.wait_until(lambda: target.counts() == [100, 0], SLOW_START_S, what="the first copy")
            kill_tree(worker)
            produce(primary, topic, [b"meanwhile"] * 100)
            time.sleep(5)
            assert target.counts() == [100, 0]
            spark.start_worker("second")
            mirror.wait_mirrored(View(primary, topic), target, timeout_s=SLOW_START_S)
            assert mirror.is_running
            assert "Traceback" not in mirror.output
