"""Tells our own work on the target from others', where the ledger does not: it may have lost its newest records.

A partition that has no entry may have been begun: its last batch on the target tells. Of one that has an entry, the
stored position may be ahead.

Lanes write an entry before its position. So a position that is ahead is another tool's, or the ledger lost its newest
records. The target's log tells which:

    nothing beyond the entry              nobody copied anything since: the copy goes on from the entry
    batches of this copy beyond it        the ledger lost its tail: the copy goes on from the entry, settling finds them
    batches of others only                another tool had the flow: a new count begins at its position
    ours, and others behind ours          ours if they reach the position, else the other tool's
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing
from typing import NamedTuple

from heliograph.errors import DataError, HeliographError, NotAuthorized
from heliograph.kafka.admin.topics import LATEST, list_offsets
from heliograph.kafka.batch import BatchHeader
from heliograph.kafka.batch_headers import first_batches
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.lane.batches.provenance import marks_of_count
from heliograph.lane.settling import settle
from heliograph.lane.settling_logs import SourceLog, TargetLog
from heliograph.ledger.model import SEQUENCE_MODULUS, Assignment, FlowTerms, PartitionName
from heliograph.ledger.partition_remap import ROWS_OF_A_TURN, count_of, row_of
from heliograph.ledger.tail import Unsettled, read_tails

AT_A_TIME = 8
"""Partitions whose logs are read at the same time."""
READ_BYTES = 1024 * 1024
MOST_STRANGE_BYTES = 32 * 1024 * 1024
"""Ours stand near the entry: behind so many bytes of others there are none."""


async def find_ours(
    ahead: Mapping[PartitionName, tuple[Assignment, int]], terms: FlowTerms, *, source: Cluster, target: Cluster
) -> dict[PartitionName, bool]:
    """Whether the copy of each partition goes on from its entry; those that cannot be told now are left out.

    `ahead` has each partition's entry, as an assignment, and its stored position.
    """
    ends = await list_offsets(target, {assignment.target for assignment, _ in ahead.values()}, LATEST)
    turn = asyncio.Semaphore(AT_A_TIME)
    found: dict[PartitionName, bool] = {}

    async def look(where: PartitionName, assignment: Assignment, stored: int) -> None:
        end = ends[assignment.target]
        if end.error_code:
            return
        async with turn:
            try:
                found[where] = await _is_ours(assignment, stored, end.offset, terms, source=source, target=target)
            except NotAuthorized:
                found[where] = False  # what cannot be read proves nothing: copying is at-least-once there
            except HeliographError:
                return

    await asyncio.gather(*(look(where, *given) for where, given in ahead.items()))
    return found


async def _is_ours(
    assignment: Assignment, stored: int, target_end: int, terms: FlowTerms, *, source: Cluster, target: Cluster
) -> bool:
    if target_end <= assignment.entry.target_offset:
        return True
    copy = Unsettled.of(assignment, assignment.entry, terms)
    log = _NearOurs(TargetLog(target, assignment, max_bytes=READ_BYTES), terms.producer_ids)
    [tail] = await read_tails([copy], target_end, ours=terms.producer_ids, target=log)
    if isinstance(tail, DataError):
        return True  # whoever wrote since: the lane finds out what was lost, and names it
    if not tail.has_ours:
        return False
    reader = SourceLog(source, assignment, read_committed=terms.reads_committed(assignment.entry))
    try:
        settled = await settle(copy, tail, target_end, reader, marks_of_count(assignment, terms))
    except DataError:
        return True  # the lane names it, with the number of records that may repeat
    return not settled.foreign or settled.entry.source_offset >= stored


class Used(NamedTuple):
    """A count of which the ledger knows nothing, as its last batch on the target shows it."""

    number: int
    records: int
    """How many the count has copied."""


class Ended(NamedTuple):
    """Where the copy of a partition is to stand on the target: the partition, its topic's modulo, its log's end."""

    target: TopicPartition
    modulo: int
    end: int


async def find_used(
    ended: Mapping[PartitionName, Ended], producer_ids: Mapping[int, int], *, target: Cluster
) -> dict[PartitionName, Used]:
    """Find the counts of partitions whose target's log ends with a batch of theirs; `producer_ids` are by row."""
    batches = await first_batches(target, {log.target: log.end - 1 for log in ended.values() if log.end > 0})
    rows = {producer_id: row for row, producer_id in producer_ids.items()}
    found: dict[PartitionName, Used] = {}
    for where, (remote, modulo, _) in ended.items():
        header = batches[remote].header if remote in batches else None
        row = rows.get(header.producer_id) if header is not None else None
        if header is not None and row is not None and row % ROWS_OF_A_TURN == row_of(where[1], modulo):
            records = (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS + 1
            found[where] = Used(count_of(row, header.producer_epoch), records)
    return found


class _NearOurs:
    """Reads a target's log up to where nothing of ours is to be expected any more."""

    def __init__(self, log: TargetLog, ours: tuple[int, ...]) -> None:
        self._log = log
        self._ours = ours

    async def batches(self, start: int, end: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        strange_bytes = 0
        async with aclosing(self._log.batches(start, end)) as batches:
            async for header, view in batches:
                yield header, view
                strange_bytes = 0 if header.producer_id in self._ours else strange_bytes + len(view)
                if strange_bytes > MOST_STRANGE_BYTES:
                    return
