"""Offset syncs: MirrorMaker 2's record of which source offset is which target offset, made from the ledger.

A lane writes the ledger every flush interval; that is when MirrorMaker 2 commits, and
when it publishes what its rule held back. So the rule runs here, on the driver, over
the runs that the lanes wrote down, and costs the copying nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.flow.flow import FlowDriver
from heliograph.flow.required_topics import offset_syncs_topic
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import append
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import OffsetSync
from heliograph.ledger.mm2.offset_syncs import SyncRule, SyncStore
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_ledger import PartitionLedger
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.translation import Syncs, keep_syncs

SYNC_S = 0.2
"""Shortest interval between offset syncs, which follow the lanes' flushes."""


class SeenPartition(NamedTuple):
    """How far the rule has seen the records of a partition."""

    rule: SyncRule
    offset: int
    entry: Entry


class OffsetSyncPlan(NamedTuple):
    """What to publish, and how far the rule has seen each partition then."""

    syncs: list[OffsetSync]
    seen: dict[PartitionName, SeenPartition]


def plan_offset_syncs(
    ledger: Ledger,
    copied: Container[PartitionName],
    before: Mapping[PartitionName, SeenPartition],
    *,
    lag_max: int,
    is_first: bool,
) -> OffsetSyncPlan:
    """Decide what MirrorMaker 2's rule publishes of what lanes copied since.

    `is_first`: what was copied before this start had its syncs; a partition that appears later had none.
    """
    seen: dict[PartitionName, SeenPartition] = {}
    syncs: list[OffsetSync] = []
    for where, known in ledger.partitions.items():
        entry = known.entry
        if entry is None or where not in copied or ledger.target_partition(where) != where[1]:
            continue  # a sync means two partitions of one number
        last = before.get(where)
        if last is not None and last.entry is entry:
            seen[where] = last
            continue
        last = last or SeenPartition(SyncRule(lag_max), entry.source_offset if is_first else 0, entry)
        rule = copy.copy(last.rule)
        rule.lag_max = lag_max
        is_recreated = entry.source_topic_id != last.entry.source_topic_id or entry.source_offset < last.offset
        offset = entry.run_source if is_recreated else last.offset
        if entry.source_offset != offset:
            syncs += (_sync(where, *pair) for pair in _due(rule, known, offset))
        seen[where] = SeenPartition(rule, entry.source_offset, entry)
    return OffsetSyncPlan(syncs, seen)


async def apply_offset_syncs(cluster: Cluster, topic: str, syncs: Sequence[OffsetSync]) -> None:
    """Write offset syncs into their topic."""
    if syncs:
        await append(cluster, topic, 0, [sync.encode() for sync in syncs], now_ms=wall_ms())


class OffsetSyncSync:
    """Publishes the offset syncs of one flow, and translates offsets by them as MirrorMaker 2 does."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow
        self._seen: dict[PartitionName, SeenPartition] = {}
        self._stores: dict[PartitionName, SyncStore] = {}
        self._is_ready = self._has_begun = False
        self.skipped = 0
        """Records of the topic that are no offset syncs."""

    def interval_s(self) -> float | None:
        """Return how often to sync at most; None while offset syncs are off."""
        flow = self._flow.flow
        return SYNC_S if flow.is_running and flow.offset_syncs.enabled else None

    async def sync(self) -> None:
        """Publish what the rule asks for since the last time."""
        flow, settings = self._flow, self._flow.flow
        await self.prepare()
        flow.epochs.flushed.clear()
        lag_max, is_first = settings.offset_syncs.lag_max, not self._has_begun
        plan = plan_offset_syncs(flow.ledger, flow.entries, self._seen, lag_max=lag_max, is_first=is_first)
        await apply_offset_syncs(self._cluster, settings.offset_syncs_topic, plan.syncs)
        self._seen, self._has_begun = plan.seen, True
        keep_syncs(self._stores, plan.syncs)

    @property
    def _cluster(self) -> Cluster:
        return self._flow.source if self._flow.flow.offset_syncs.location == "source" else self._flow.target

    async def prepare(self) -> None:
        """Make the topic, and read what it has: translation by MirrorMaker 2's rule goes on after a restart."""
        if self._is_ready:
            return
        topic = self._flow.flow.offset_syncs_topic
        await store.ensure_topics(self._cluster, [offset_syncs_topic(self._flow.flow)], vital={topic})
        if self._flow.flow.translates_by_syncs:
            syncs, refused = await store.read_parsed(self._cluster, topic, OffsetSync.parse)
            keep_syncs(self._stores, syncs)
            self.skipped = refused.number
            store.tell_refused(self._flow.name, refused)
        self._is_ready = True

    @property
    def stores(self) -> Syncs:
        """The syncs that MirrorMaker 2 would keep, to translate by."""
        return self._stores


def _due(rule: SyncRule, known: PartitionLedger, offset: int) -> Iterable[tuple[int, int]]:
    """Give the syncs of what was copied since, with the one that the rule holds back until the flush."""
    for run in known.runs_since(offset):
        yield from rule.advance(*run)
    tail = rule.tail()
    if tail is not None:
        yield tail


def _sync(where: PartitionName, upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(topic=where[0], partition=where[1], upstream=upstream, downstream=downstream)
