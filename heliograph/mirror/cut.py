"""Finds where a target that lost records was cut: up to where it still has what was copied there.

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

from heliograph.kafka.admin import EARLIEST, LATEST, list_offsets
from heliograph.kafka.batch import BatchHeader
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.headers import first_batches
from heliograph.kafka.types import TopicPartition
from heliograph.mirror.counts import runs_back
from heliograph.mirror.model import SEQUENCE_MODULUS, Entry
from heliograph.mirror.remap import producer_epoch_of
from heliograph.mirror.runs import OpenPage, Page, Run

_OFFSET_OUT_OF_RANGE = 1


class Copied(NamedTuple):
    """A run, and what the target's batches must say that hold it."""

    run: Run
    number: int
    """Of its count."""
    first_n: int | None
    """Which record of its count the first one is; None of earlier counts, where that is not known."""

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
    """All that was copied, oldest first; `page` is the one being filled, `pages` those that are written."""
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
    """Where the target was cut; None if all that was copied is there.

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
    """As `find_cut`, in a partition of the target."""

    async def batch_from(offset: int) -> BatchHeader | None:
        found = (await first_batches(target, {where: offset}))[where]
        if found.error_code and found.error_code != _OFFSET_OUT_OF_RANGE:
            raise refused(found.error_code, "Fetch", where=f'"{target.alias}" {where.topic}-{where.partition}')
        return found.header

    start, end = [(await list_offsets(target, [where], which))[where] for which in (EARLIEST, LATEST)]
    for answer in (start, end):
        if answer.error_code:
            raise refused(answer.error_code, "ListOffsets", where=f'"{target.alias}" {where.topic}-{where.partition}')
    return await find_cut(copied, batch_from, log_start=start.offset, log_end=end.offset, producer_id_of=producer_id_of)
