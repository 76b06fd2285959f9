"""Measures how long a sync of many groups takes, as the mirror logs it, and checks that it syncs all of them."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from bench.systems import RunningSystem, SystemFailed
from bench.works import FIRST_RECORD_LIMIT_S, GroupsWork
from heliograph.kafka.admin.commits import Commit, commit_offsets, fetch_commits
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.ledger.records.group_pass import PassKind
from heliograph.ledger.store import read_ledgers

T = TypeVar("T")
_PASS = re.compile(r"([\d,]+) groups synced in ([\d.]+) s")
_LOOK_S = 0.2


def commit_groups(bootstrap: str, work: GroupsWork, topic: str, offset: int) -> None:
    """Commits one offset for all groups of the source."""
    commits = {TopicPartition(topic, index): Commit(offset) for index in range(work.partitions)}
    answers = _ask(bootstrap, lambda cluster: commit_offsets(cluster, dict.fromkeys(work.names(), commits)))
    if answers.failed:
        raise SystemFailed(f"{len(answers.failed)} groups were not committed: {next(iter(answers.failed.values()))}")


def measure_groups(
    running: RunningSystem, work: GroupsWork, *, source_bootstrap: str, target_bootstrap: str, topic: str, copy: str
) -> dict[str, Any]:
    """Waits for the first sync, which creates the groups, then moves all of them on a few times."""
    _wait(running, work, target_bootstrap, copy, 1)
    first = max(_passes(running, work), default=0.0)
    arrived = []
    for turn in range(2, work.turns + 2):
        commit_groups(source_bootstrap, work, topic, turn)
        began = time.monotonic()
        _wait(running, work, target_bootstrap, copy, turn)
        arrived.append(round(time.monotonic() - began, 2))
    time.sleep(2 * work.interval_s)  # the mirror logs a sync with its next line
    passes = _passes(running, work)
    if not passes:
        raise SystemFailed(f"groups: the log has no sync of all groups: {running.log_tail()}")
    return {
        "groups": work.groups,
        "offsets": work.groups * work.partitions,
        "first_pass_s": first,
        "pass_s": max(passes[1:] or passes),
        "passes_s": passes,
        "commit_to_target_s": arrived,
        "commits_read_every_s": _ask(target_bootstrap, _commits_read_every_s),
        "cpu_s": round(running.tree.sample().cpu_s, 2),
    }


async def _commits_read_every_s(cluster: Cluster) -> float:
    """Returns how often the mirror reads commits, so that they cost no more than their share of a core."""
    topics = [topic for topic in cluster.catalogue.topics if topic.startswith("mm2-ledger.")]
    ledgers = [ledger for topic in topics for ledger in await read_ledgers(cluster, topic)]
    passes = [ledger.passes[PassKind.COMMITS] for ledger in ledgers if PassKind.COMMITS in ledger.passes]
    return max(passes, key=lambda last: last.time_ms).every_ms / 1000


def _passes(running: RunningSystem, work: GroupsWork) -> list[float]:
    text = running.log_file.read_text(errors="replace")
    return [float(seconds) for number, seconds in _PASS.findall(text) if int(number.replace(",", "")) == work.groups]


def _wait(running: RunningSystem, work: GroupsWork, bootstrap: str, copy: str, offset: int) -> None:
    """Waits until every group of the target has this offset in every partition."""
    wanted = {TopicPartition(copy, index): offset for index in range(work.partitions)}
    deadline = time.monotonic() + FIRST_RECORD_LIMIT_S
    while True:
        found = _ask(bootstrap, lambda cluster: fetch_commits(cluster, work.names())).found
        there = sum({where: commit.offset for where, commit in commits.items()} == wanted for commits in found.values())
        if there == work.groups:
            return
        if time.monotonic() > deadline:
            raise SystemFailed(f"groups: {there} of {work.groups} stand at {offset}: {running.log_tail()}")
        running.check_alive()
        time.sleep(_LOOK_S)


def _ask(bootstrap: str, question: Callable[[Cluster], Awaitable[T]]) -> T:
    async def ask() -> T:
        addresses = [BrokerAddress.parse(text) for text in bootstrap.split(",")]
        cluster = Cluster("bench", addresses, client_id="bench")
        try:
            await cluster.refresh()
            return await question(cluster)
        finally:
            cluster.close()

    return asyncio.run(ask())
