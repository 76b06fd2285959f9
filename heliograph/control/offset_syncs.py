"""Offset syncs: MirrorMaker 2's record of which source offset is which target offset, made from the ledger.

A lane writes the ledger every flush interval; that is when MirrorMaker 2 commits, and
when it publishes what its rule held back. So the rule runs here, on the driver, over
the runs that the lanes wrote down, and costs the copying nothing.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.flow.flow import FlowDriver
from heliograph.flow.required_topics import offset_syncs_topic
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import append
from heliograph.ledger import store
from heliograph.ledger.ledger import PartitionLedger, PartitionName
from heliograph.ledger.mm2_offset_syncs import SyncRule, SyncStore
from heliograph.ledger.mm2_records import OffsetSync
from heliograph.ledger.model import Entry


class _Seen(NamedTuple):
    """How far the rule has seen the records of a partition."""

    rule: SyncRule
    offset: int
    entry: Entry


class OffsetSyncs:
    """Of one flow: what was published, and what MirrorMaker 2 would make of it."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow
        self._rules: dict[PartitionName, _Seen] = {}
        self._stores: dict[PartitionName, SyncStore] = {}
        self._is_ready = self._has_begun = False
        self.skipped = 0
        """Records of the topic that are no offset syncs."""

    async def publish(self) -> None:
        """Publish what the rule asks for since the last time."""
        flow = self._flow
        await self.prepare()
        flow.epochs.flushed.clear()
        seen: dict[PartitionName, _Seen] = {}
        syncs: list[OffsetSync] = []
        for where, known in flow.ledger.partitions.items():
            entry = known.entry
            if entry is None or where not in flow.entries or flow.ledger.target_partition(where) != where[1]:
                continue  # a sync means two partitions of one number
            before = self._rules.get(where)
            if before is not None and before.entry is entry:
                seen[where] = before
                continue
            before = before or _Seen(
                # What was copied before this start had its syncs; a partition that appears later had none.
                SyncRule(flow.flow.offset_syncs.lag_max),
                0 if self._has_begun else entry.source_offset,
                entry,
            )
            rule = copy.copy(before.rule)
            rule.lag_max = flow.flow.offset_syncs.lag_max
            is_anew = entry.source_topic_id != before.entry.source_topic_id or entry.source_offset < before.offset
            offset = entry.run_source if is_anew else before.offset
            if entry.source_offset != offset:
                syncs += (_sync(where, *pair) for pair in _due(rule, known, offset))
            seen[where] = _Seen(rule, entry.source_offset, entry)
        if syncs:
            await append(
                self._cluster,
                flow.flow.offset_syncs_topic,
                0,
                [sync.encode() for sync in syncs],
                now_ms=wall_ms(),
            )
        self._rules, self._has_begun = seen, True
        self._take(syncs)

    @property
    def _cluster(self) -> Cluster:
        return self._flow.source if self._flow.flow.offset_syncs.location == "source" else self._flow.target

    async def prepare(self) -> None:
        """Make the topic, and read what it has: translation by MirrorMaker 2's rule goes on after a restart."""
        if self._is_ready:
            return
        topic = self._flow.flow.offset_syncs_topic
        await store.ensure_topics(self._cluster, [offset_syncs_topic(self._flow.flow)], vital={topic})
        if self._flow.flow.offset_translation == "mm2":
            syncs, refused = await store.read_parsed(self._cluster, topic, OffsetSync.parse)
            self._take(syncs)
            self.skipped = refused.number
            store.tell_refused(self._flow.name, refused)
        self._is_ready = True

    def _take(self, syncs: Iterable[OffsetSync]) -> None:
        for sync in syncs:
            self._stores.setdefault((sync.topic, sync.partition), SyncStore()).insert(sync.upstream, sync.downstream)

    def translate(self, where: PartitionName, offset: int) -> int | None:
        """As MirrorMaker 2 does: the last sync kept at or below the offset; None if there is none."""
        found = self._stores.get(where)
        return found.translate(offset) if found is not None else None


def _due(rule: SyncRule, known: PartitionLedger, offset: int) -> Iterable[tuple[int, int]]:
    """The syncs of what was copied since, with the one that the rule holds back until the flush."""
    for run in known.runs_since(offset):
        yield from rule.advance(*run)
    tail = rule.tail()
    if tail is not None:
        yield tail


def _sync(where: PartitionName, upstream: int, downstream: int) -> OffsetSync:
    return OffsetSync(topic=where[0], partition=where[1], upstream=upstream, downstream=downstream)
