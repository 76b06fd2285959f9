"""Measures how long a group's translation by a large ledger takes, and how much memory."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from bench.works import LedgerWork
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import append
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.ledger.records.entry import Entry, encode_entry, encode_entry_key
from heliograph.ledger.records.page import Run, encode_page
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.seen_group import GroupCommit, SeenGroup
from heliograph.ledger.runs import PAGE_RUNS, OpenPage
from heliograph.ledger.store import wait_for_topics

GROUP = "reader"
_RUN = 3
_STEP = _RUN + 1
"""Offsets from one run to the next: three records and a marker, as from a source with small transactions."""
_TIMED = """
import json, re, sys, time
from pathlib import Path
from heliograph.client import MirrorClient
bootstrap, alias, group = sys.argv[1:]
client = MirrorClient({"bootstrap.servers": bootstrap})
started = time.perf_counter()
found = client.translate_offsets(alias, group, by="ledger")
seconds = time.perf_counter() - started
exact = sum(translated.grade == "exact" for translated in found.values())
# Not getrusage: its peak includes that of the process that started this one.
peak_kb = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
print(json.dumps([seconds, peak_kb / 1000, exact]))
"""


def write_ledger(bootstrap: str, work: LedgerWork, alias: str, topic: str) -> None:
    """Writes the ledger of a flow whose partitions have many short runs, and a group in the middle of each."""
    asyncio.run(_write(bootstrap, work, alias, topic))


async def _write(bootstrap: str, work: LedgerWork, alias: str, topic: str) -> None:
    cluster = Cluster("bench", [BrokerAddress.parse(text) for text in bootstrap.split(",")], client_id="bench")
    try:
        await wait_for_topics(cluster, {f"mm2-ledger.{alias}.internal": 1, f"{alias}.{topic}": 1})
        await append(cluster, f"mm2-ledger.{alias}.internal", 0, list(_records(work, alias, topic)), now_ms=0)
    finally:
        cluster.close()


def _records(work: LedgerWork, alias: str, topic: str) -> Iterator[tuple[bytes, bytes | None]]:
    group_id = f"{alias}-mm2"
    claim = ProducerClaim(token="t", producer_id=1, source_cluster_id="s", target_cluster_id="t")
    yield claim.encode(group_id)
    end, target = work.runs * _STEP, work.runs * _RUN
    for partition in range(work.partitions):
        runs = [Run(index * _STEP, index * _RUN, _RUN) for index in range(work.runs)]
        for page in OpenPage(0, runs).pages(0, end, target):
            yield encode_page(group_id, topic, partition, page.start, page)
        entry = Entry(
            source_topic_id="0" * 32,
            target_topic_id="0" * 32,
            count=0,
            n=target,
            source_offset=end,
            target_offset=target,
            our_end=target,
            run_source=end,
            run_target=target,
        )
        yield encode_entry_key(group_id, topic, partition), encode_entry(entry)
    middle = GroupCommit(end // 2 + 1, "")
    commits = {TopicPartition(topic, partition): middle for partition in range(work.partitions)}
    seen = SeenGroup(group=GROUP, state="Empty", kind="classic", time_ms=1, commits=commits)
    yield seen.encode(group_id)


def measure_ledger(work: LedgerWork, bootstrap: str, alias: str) -> dict[str, Any]:
    """Measures in a fresh interpreter; its imports count for the memory and not for the time."""
    command = [sys.executable, "-c", _TIMED, bootstrap, alias, GROUP]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    seconds, megabytes, exact = json.loads(done.stdout)
    assert exact == work.partitions, f"{exact} of {work.partitions} translations are exact"
    return {
        "translate_s": round(seconds, 3),
        "peak_mb": round(megabytes, 1),
        "partitions": work.partitions,
        "runs": work.partitions * work.runs,
        "pages": work.partitions * -(-work.runs // PAGE_RUNS),
    }
