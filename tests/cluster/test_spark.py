"""Spark does the work: its own record says so, and without executors nothing moves."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from heliograph.lab import Cluster
from tests.cluster.load import Load
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique
from tests.cluster.spark import Standalone, bare_python, executors_of, kill_tree

SLOW_START_S = 180


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


class Stalls(threading.Thread):
    """Looks at a topic's ends again and again; the longest time that a partition did not grow."""

    def __init__(self, view: View) -> None:
        super().__init__(daemon=True)
        self._view = view
        self._over = threading.Event()
        self._ends: list[int] = []
        self._moved: list[float] = []
        self.longest: list[float] = []

    def run(self) -> None:
        while not self._over.wait(0.1):
            ends, now = self._view.counts() or [], time.monotonic()
            if len(self._ends) != len(ends):
                self._ends, self._moved, self.longest = ends, [now] * len(ends), [0.0] * len(ends)
            for index, end in enumerate(ends):
                self.longest[index] = max(self.longest[index], now - self._moved[index])
                if end > self._ends[index]:
                    self._ends[index], self._moved[index] = end, now

    def take(self) -> list[float]:
        """Since the last time, in seconds for each partition."""
        longest, self.longest = self.longest, [0.0] * len(self.longest)
        return [round(seconds, 1) for seconds in longest]

    def stop(self) -> None:
        self._over.set()
        self.join()


def executors_at_once(log: Path) -> set[str]:
    """The executors of the newest job with more than one lane, from Spark's record so far."""
    stages: dict[int, list[str]] = {}
    for event in events_of(log):
        if event["Event"] == "SparkListenerTaskStart":
            stages.setdefault(event["Stage ID"], []).append(event["Task Info"]["Executor ID"])
    return set(stages[max(stages)]) if stages else set()


@pytest.mark.timeout(900)
def test_bare_workers_come_die_and_return_and_nothing_is_lost_or_repeated(
    primary: Cluster, backup: Cluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """The workers' Python has no package at all: ours and those that it needs are shipped."""
    topic = create_topic(primary, unique("workers"), 4)
    target = View(backup, f"primary.{topic}")
    log = tmp_path / "events"
    log.mkdir()
    keys = {
        "primary->backup.topics": topic,
        "tasks.max": "2",
        "epoch.ms": "20000",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.executor.memory": "512m",
        "spark.pyspark.python": bare_python(tmp_path),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": log.as_uri(),
    }
    stalls = Stalls(target)
    with Standalone(tmp_path) as spark:
        first = spark.start_worker("first")
        mirror = MirrorProcess(
            tmp_path, {"primary": primary, "backup": backup}, keys, arguments=("--master", spark.master)
        )
        with mirror, Load(primary, [topic], partitions=4, per_second=2000):
            mirror.wait_for("packages of this machine are shipped", SLOW_START_S)
            mirror.wait_until(lambda: all(target.counts() or [0]), SLOW_START_S, what="the first copies")
            stalls.start()

            def wait_for_both(what: str) -> float:
                return mirror.wait_until(lambda: len(executors_at_once(log)) == 2, SLOW_START_S, what=what)

            second = spark.start_worker("second")
            took = wait_for_both("lanes on both workers")
            figures = {"joined": (took, stalls.take())}
            [executor] = executors_of(first)
            psutil.Process(executor).kill()
            mirror.wait_for("the next epoch follows", 30)
            figures["executor killed"] = (wait_for_both("lanes on both after an executor was killed"), stalls.take())
            kill_tree(second)
            time.sleep(10)
            figures["worker killed"] = (0.0, stalls.take())
            spark.start_worker("third")
            figures["worker returned"] = (wait_for_both("lanes on both after a worker was killed"), stalls.take())
        for what, figure in figures.items():
            print(what, figure)
        print(mirror.output)
        stalls.stop()
