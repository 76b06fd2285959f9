"""Finds what a target still has of a copy: where it was cut, and what of ours stands where it does not belong.

Where the log ends says little: others may have written since, as much as was lost or more. What was copied is known
by the runs, and each of our batches tells by its producer id, epoch and sequence which records it holds:

    copied     ][ ours ][ ours ][ ours ][ ours ]
    now        ][ ours ][ ours ][ others' ][ others' ][ ...
                               ^ cut

A log is cut at its end only, so all before a batch that is still there is there too: the cut is found by bisection,
with one batch read at a time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Awaitable, Callable, Iterable, Sequence
from itertools import accumulate
from typing import NamedTuple

from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.batch import BatchHeader
from heliograph.kafka.batch_headers import FirstBatch, first_batches
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.error_codes import Code
from heliograph.kafka.log import read_batches
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.counts import runs_back
from heliograph.ledger.model import SEQUENCE_MODULUS
from heliograph.ledger.partition_remap import producer_epoch_of
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.runs import OpenPage
from heliograph.ledger.tail import Unsettled, is_last_of_ours

READ_BYTES = 1024 * 1024
MOST_READ_BYTES = 32 * 1024 * 1024
"""More than what is on its way to a partition at a time, by far."""


class Copied(NamedTuple):
    """A run, and what the target's batches must say that hold it."""

    run: Run
    number: int
    """The number of its count."""
    first_n: int | None
    """Which record of its count the first one is; None in earlier counts, where that is not known."""

    def is_held_by(self, header: BatchHeader, target_offset: int, producer_id: int | None) -> bool:
        """Whether a batch holds the record that was copied to a target offset."""
        at = target_offset - header.base_offset
        is_ours = (header.producer_id, header.producer_epoch) == (producer_id, producer_epoch_of(self.number))
        if not is_ours or not 0 <= at <= header.last_offset_delta:
            return False
        if self.first_n is None:
            return True
        n = self.first_n + target_offset - self.run.target
        return (header.base_sequence + at - n) % SEQUENCE_MODULUS == 0


def copied_of(entry: Entry, page: OpenPage | None, pages: Iterable[Page]) -> list[Copied]:
    """List all that was copied, oldest first; `page` is the one being filled, `pages` those that are written."""
    copied: list[Copied] = []
    n = entry.n
    for run, count in runs_back(entry, page, pages):
        n -= run.length
        copied.append(Copied(run, count, n if count == entry.count and n >= 0 else None))
    copied.reverse()
    return [one for one in copied if one.run.length]


class Cut(NamedTuple):
    """The first record that is gone: where it stood on the target, and on the source."""

    target_offset: int
    source_offset: int


async def find_cut(
    copied: Sequence[Copied],
    batch_from: Callable[[int], Awaitable[BatchHeader | None]],
    *,
    log_start: int,
    log_end: int,
    producer_id_of: Callable[[int], int | None],
) -> Cut | None:
    """Find where the target was truncated; None if all that was copied is there.

    `batch_from` reads the first batch that reaches an offset, `producer_id_of` tells the id of a count. What expired
    at the log's start is not gone.
    """
    ends = list(accumulate(one.run.length for one in copied))

    def at(index: int) -> tuple[Copied, int]:
        found = bisect_right(ends, index)
        one = copied[found]
        return one, one.run.target_end - (ends[found] - index)

    async def is_there(index: int) -> bool:
        one, offset = at(index)
        if offset < log_start or offset >= log_end:
            return offset < log_start
        header = await batch_from(offset)
        if header is None:
            return False
        if header.base_offset > offset:  # compaction took this one: the next one tells
            offset = header.base_offset
            later = [other for other in copied if other.run.target <= offset < other.run.target_end]
            return any(other.is_held_by(header, offset, producer_id_of(other.number)) for other in later)
        return one.is_held_by(header, offset, producer_id_of(one.number))

    there, gone = 0, ends[-1] if ends else 0
    while there < gone:
        middle = (there + gone) // 2
        if await is_there(middle):
            there = middle + 1
        else:
            gone = middle
    if not ends or there == ends[-1]:
        return None
    one, offset = at(there)
    return Cut(offset, one.run.source + offset - one.run.target)


async def look_for_cut(
    target: Cluster, where: TopicPartition, copied: Sequence[Copied], producer_id_of: Callable[[int], int | None]
) -> Cut | None:
    """Find where a partition of the target was truncated, by `find_cut`."""
    extent = await _extent(target, where)
    return await find_cut(
        copied,
        lambda offset: _batch_from(target, where, offset),
        log_start=extent[0],
        log_end=extent[1],
        producer_id_of=producer_id_of,
    )


async def count_strays(target: Cluster, where: TopicPartition, copy: Unsettled, start: int = 0) -> int:
    """Count the records of the copy's count from an offset on, up to `MOST_READ_BYTES`.

    Where Produce names topics, what was on its way to a topic arrives in the one that was made in its place.
    """
    log_start, log_end = await _extent(target, where)
    strays = size = 0
    async for header, view in read_batches(target, *where, max(start, log_start), log_end, max_bytes=READ_BYTES):
        if (header.producer_id, header.producer_epoch) == (copy.producer_id, copy.entry.producer_epoch):
            strays += header.last_offset_delta + 1
        size += len(view)
        if size > MOST_READ_BYTES:
            break
    return strays


async def has_whole_count(target: Cluster, where: TopicPartition, copy: Unsettled) -> bool:
    """Whether a partition has all that the copy's count wrote, from its first offset on, as the entry says.

    So it is if the topic was made anew before the count's first batch arrived.
    """
    entry = copy.entry
    log_start, log_end = await _extent(target, where)
    if entry.n != entry.our_end or log_start or log_end < max(1, entry.our_end):
        return False
    first = await _batch_from(target, where, 0)
    if first is None or _origin(first) != (copy.producer_id, entry.producer_epoch, 0):
        return False
    last = await _batch_from(target, where, entry.our_end - 1) if entry.n else None
    return not entry.n or (last is not None and is_last_of_ours(copy, last))


def _origin(header: BatchHeader) -> tuple[int, int, int]:
    return header.producer_id, header.producer_epoch, header.base_sequence - header.base_offset


async def _batch_from(target: Cluster, where: TopicPartition, offset: int) -> BatchHeader | None:
    found = (await first_batches(target, {where: offset})).get(where, FirstBatch(Code.UNKNOWN_TOPIC_OR_PARTITION))
    if found.error_code and found.error_code != Code.OFFSET_OUT_OF_RANGE:
        raise refused(found.error_code, "Fetch", where=f'"{target.alias}" {where.topic}-{where.partition}')
    return found.header


async def _extent(target: Cluster, where: TopicPartition) -> tuple[int, int]:
    """Ask where the log starts and ends."""
    offsets = []
    for which in (EARLIEST, LATEST):
        answer = (await list_offsets(target, [where], which))[where]
        if answer.error_code:
            raise refused(answer.error_code, "ListOffsets", where=f'"{target.alias}" {where.topic}-{where.partition}')
        offsets.append(answer.offset)
    return offsets[0], offsets[1]
