"""A ledger that is lost, or that another tool's work is not in, rebuilt as far as it can be.

Offset syncs tell of single records where they stand. Between two of them that are equally far apart on both sides
every record stands where it must, if the target's batches there are all of one producer: then their sequences are
as far apart as their offsets. What cannot be proved so stays unknown, and its translation goes back to the last sync.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from heliograph.config.settings import Flow
from heliograph.errors import HeliographError
from heliograph.kafka.batch import BatchHeader, iter_batches
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import fetch_partition
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.mm2.internal_records import OffsetSync
from heliograph.ledger.mm2.offset_syncs import Sync, rebuild_runs
from heliograph.ledger.model import SEQUENCE_MODULUS, PartitionName
from heliograph.ledger.partition_remap import target_partition
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page, Run

log = logging.getLogger("heliograph")

MOST_SYNCS = 200
"""Maximum number of syncs read of one partition, the last ones: their topic is compacted, unless not yet."""
HEADER_BYTES = 1024


async def rebuild_ledger(
    flow: Flow, opened: Mapping[PartitionName, Entry], *, source: Cluster, target: Cluster
) -> dict[PartitionName, dict[int, Page | None]]:
    """Find what offset syncs prove about records before new entries; translations there are degraded."""
    unknown = {where: entry for where, entry in opened.items() if entry.source_offset}
    if not unknown:
        return {}
    syncs, skipped = await _read_syncs(flow, source if flow.offset_syncs.location == "source" else target)
    by_partition: dict[PartitionName, list[Sync]] = {}
    for sync in syncs:
        by_partition.setdefault((sync.topic, sync.partition), []).append((sync.upstream, sync.downstream))
    pages = {
        where: await rebuild_pages(
            target,
            TopicPartition(flow.remote_topic(where[0]), target_partition(where[1], entry.modulo)),
            by_partition.get(where, []),
            position=entry.source_offset,
            target_end=entry.target_offset,
            count=entry.count,
        )
        for where, entry in unknown.items()
    }
    log.warning(
        "%s: %d partitions were copied before, and the ledger does not say how: it was rebuilt from %d offset "
        "syncs (%d records were none); groups that stand there may read records again, and their translation is "
        "said to be degraded",
        *(flow.name, len(unknown), len(syncs), skipped),
    )
    return pages


async def _read_syncs(flow: Flow, cluster: Cluster) -> tuple[list[OffsetSync], int]:
    """Read all offset syncs, and count the records that are none; nothing where they cannot be read."""
    topic = flow.offset_syncs_topic
    if topic not in cluster.catalogue.topics:
        return [], 0
    try:
        found, refused = await store.read_parsed(cluster, topic, OffsetSync.parse)
    except HeliographError as error:
        log.warning('%s: the offset syncs in "%s" cannot be read: %s', flow.name, topic, error)
        return [], 0
    store.tell_refused(flow.name, refused)
    return found, refused.number


async def rebuild_pages(
    target: Cluster, where: TopicPartition, syncs: Sequence[Sync], *, position: int, target_end: int, count: int
) -> dict[int, Page | None]:
    """Make pages of what syncs prove about the source offsets below a position; `where` is the target partition."""
    known = [sync for sync in syncs if sync[0] < position and sync[1] < target_end][-MOST_SYNCS:]
    ends = []
    if known and position - known[-1][0] == target_end - known[-1][1] > 1:
        ends = [(position - 1, target_end - 1)]  # where the last record must stand, if nothing came between
    pages: dict[int, Page | None] = {}
    for run in rebuild_runs([*known, *ends], []):
        for proved in [run] if await _is_one_producers(target, where, run) else _apart(run, known):
            pages[proved.source] = Page.of(
                proved.source, proved.source_end, count, [proved], target=proved.target, is_rebuilt=True
            )
    return pages


def _apart(run: Run, syncs: Sequence[Sync]) -> list[Run]:
    """Give the single records of a run that syncs prove."""
    return [Run(*sync, 1) for sync in syncs if run.source <= sync[0] < run.source_end]


async def _is_one_producers(target: Cluster, where: TopicPartition, run: Run) -> bool:
    """Whether all batches from the first to the last record of a run are one producer's, by their headers."""
    if run.length == 1:
        return True
    try:
        first = await _batch_at(target, where, run.target)
        last = await _batch_at(target, where, run.target_end - 1)
    except HeliographError:
        return False
    if first is None or last is None or first.producer_id < 0:
        return False
    same = (first.producer_id, first.producer_epoch) == (last.producer_id, last.producer_epoch)
    distance = (last.base_sequence - first.base_sequence) % SEQUENCE_MODULUS
    return same and distance == last.base_offset - first.base_offset


async def _batch_at(target: Cluster, where: TopicPartition, offset: int) -> BatchHeader | None:
    """Read the header of the batch that holds an offset; None if that is gone."""
    answer = await fetch_partition(target, *where, offset, max_bytes=HEADER_BYTES)
    for header, _ in iter_batches(answer.records):
        if header.base_offset <= offset < header.next_offset:
            return header
    return None
