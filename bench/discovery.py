"""Measures a refresh of many topics, without and with new ones, and the plan that follows.

The driver's side of a flow (`FlowDriver`) runs in an interpreter of its own, without Spark. Its clusters are the
benchmark's, or the tests' fake ones in a third process, whose time to encode an answer counts.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.end_offsets import OffsetsError
from bench.works import DISCOVERY_WORKS, DiscoveryWork
from heliograph.config import parse_settings
from heliograph.driver.plan import plan_epoch
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.admin.topics import NewTopic, create_topics
from heliograph.kafka.cluster import Cluster
from heliograph.ledger.store import wait_for_topics
from tests.fake_cluster import FakeCluster

_REPOSITORY = Path(__file__).resolve().parent.parent
_AT_ONCE = 250
_SLOTS = 2
_FACTORS = ("", "offset.storage.", "config.storage.", "status.storage.")


def measure_discovery(work: DiscoveryWork, source: str, target: str, alias: str) -> dict[str, Any]:
    """Measures on running clusters; makes the work's topics, the refresh itself makes the copies."""
    command = [sys.executable, "-m", "bench.discovery", work.name, source, target, alias]
    done = subprocess.run(command, cwd=_REPOSITORY, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OffsetsError(f"{work.name}: {done.stderr.strip()[-500:]}")
    result: dict[str, Any] = json.loads(done.stdout)
    assert result["partitions"] == (work.topics + work.new) * work.partitions, result
    return result


@contextmanager
def fake_clusters() -> Iterator[tuple[str, str]]:
    """Starts two empty clusters with three brokers each; yields their bootstrap addresses."""
    command = [sys.executable, "-m", "bench.discovery", "serve"]
    with subprocess.Popen(command, cwd=_REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        source, target = server.stdout.readline().split()
        try:
            yield source, target
        finally:
            server.communicate()  # closes its input, which ends it


# -- in processes of their own -----------------------------------------------------------------


async def _serve() -> None:
    async with FakeCluster("a", brokers=3) as source, FakeCluster("b", brokers=3) as target:
        print(*(f"{cluster.bootstrap[0]}" for cluster in (source, target)), flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)


async def _measure(work: DiscoveryWork, source: str, target: str, alias: str) -> dict[str, Any]:
    flow = _flow(source, target, alias)
    try:
        await _make(flow.source, [f"{alias}-{index:05d}" for index in range(work.topics)], work.partitions)
        await flow.opening.open()
        _, first_s = await _timed(flow.prepare())
        idle = [(await _timed(flow.topics.discover()))[1] for _ in range(work.looks)]
        await _make(flow.source, [f"{alias}-new-{index:05d}" for index in range(work.new)], work.partitions)
        has_changed, new_s = await _timed(flow.topics.discover())
        assert has_changed
        began = time.perf_counter()
        assignments = flow.assignments.all()
        plan_epoch(1, assignments, rates={}, tasks_max={flow.name: flow.flow.tasks_max}, slots=_SLOTS)
        plan_s = time.perf_counter() - began
    finally:
        flow.close()
    peak_kb = int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0])
    return {
        "topics": work.topics + work.new,
        "partitions": len(assignments),
        "first_look_s": round(first_s, 3),
        "refresh_s": round(max(idle), 3),
        "looks_s": [round(seconds, 3) for seconds in idle],
        "new_topics": work.new,
        "look_with_new_s": round(new_s, 3),
        "plan_s": round(plan_s, 3),
        "peak_mb": round(peak_kb / 1000, 1),
    }


def _flow(source: str, target: str, alias: str) -> FlowDriver:
    lines = [
        f"clusters = {alias}, copies",
        f"{alias}.bootstrap.servers = {source}",
        f"copies.bootstrap.servers = {target}",
        f"{alias}->copies.enabled = true",
        f"{alias}->copies.topics = {alias}-.*",
        *(f"{kind}replication.factor = 1" for kind in _FACTORS),
    ]
    settings = parse_settings("\n".join(lines))
    return FlowDriver(settings.flows[0], settings, is_local=True)


async def _make(cluster: Cluster, names: list[str], partitions: int) -> None:
    await cluster.refresh()
    for at in range(0, len(names), _AT_ONCE):
        chunk = names[at : at + _AT_ONCE]
        made = await create_topics(
            cluster, [NewTopic(name=name, partitions=partitions, replication_factor=1) for name in chunk]
        )
        assert not any(made.values()), made
    await wait_for_topics(cluster, dict.fromkeys(names, partitions))


async def _timed(work: Any) -> tuple[Any, float]:
    began = time.perf_counter()
    result = await work
    return result, time.perf_counter() - began


def main(arguments: list[str]) -> None:
    if arguments == ["serve"]:
        asyncio.run(_serve())
        return
    name, source, target, alias = arguments
    [work] = [work for work in DISCOVERY_WORKS if work.name == name]
    print(json.dumps(asyncio.run(_measure(work, source, target, alias))))


if __name__ == "__main__":
    main(sys.argv[1:])
