"""Prove from the source how far a copy really got, by what stands of it on the target.

`ledger.tail` has the batches of ours beyond the ledger's entry. The last of them is made
again from the source, record by record, with its marks if the count has such and
without what comes home by them; only if it is equal is the new position believed.
Knows no sockets: it reads through a `SourceReader`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from heliograph.errors import (
    CorruptBatch,
    DataError,
)
from heliograph.kafka.batch import BatchHeader, Record, check_crc, iter_records
from heliograph.lane.batches.provenance import Marks
from heliograph.ledger.lineage import Lineage, Stretch
from heliograph.ledger.model import Assignment
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Run
from heliograph.ledger.runs import OpenRun, follow, join_spans
from heliograph.ledger.tail import Buffer, Tail, Unsettled, kept, unproven


class SourceReader(Protocol):
    """Reads what a lane would copy from an offset on; aborted and control batches have a record count of 0."""

    def batches(self, start: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]: ...


class Settled(NamedTuple):
    entry: Entry
    found: int
    """Records of ours on the target beyond the entry."""
    foreign: int
    """Records of others among them."""
    closed: tuple[Run, ...] = ()
    """Runs that this broke; the open one is in the entry."""
    strangers: tuple[int, ...] = ()
    """The producer ids of others among them; -1: they have none."""


class _Origin(NamedTuple):
    """A source batch that the target's last batch was made of."""

    header: BatchHeader
    data: Buffer
    first_n: int
    """Of its first record that was copied."""


class _Proof(NamedTuple):
    position: int
    spans: list[tuple[int, int]]
    """(source offset, length) of the records that these batches hold."""
    epochs: list[Stretch]
    """The source's leader epochs on the way."""


async def settle(
    copy: Unsettled, tail: Tail, target_end: int, source: SourceReader, marks: Marks | None = None
) -> Settled:
    """The entry as the target's log shows it; raises what the driver has to decide.

    `marks` are those of the entry's count, if it has such.
    """
    tail.check()
    entry, strangers = copy.entry, tuple(tail.strangers)
    if tail.last is None:
        moved, closed = _followed(entry, [], entry.source_offset, target_end)
        return Settled(moved, 0, tail.foreign, closed, strangers)
    proof = await _prove(copy.assignment, entry, tail, source, marks)
    moved, closed = _followed(entry, join_spans(proof.spans, tail.spans), proof.position, target_end)
    header = tail.last[0]
    lineage = Lineage.parse(entry.lineage).until(entry.source_offset).grown(proof.epochs)
    moved = moved.moved(n=tail.n, our_end=header.next_offset, newest_ms=header.max_timestamp, lineage=lineage.pack())
    return Settled(moved, tail.n - entry.n, tail.foreign, closed, strangers)


def _followed(entry: Entry, copied: list[Run], position: int, target_end: int) -> tuple[Entry, tuple[Run, ...]]:
    """The entry after what was found, with the runs that this broke; others' records end the open run."""
    before = OpenRun(entry.run_source, entry.run_target, entry.source_offset, entry.target_offset)
    closed, now = follow(before, copied, position)
    if now.target_end != target_end:
        if now.source_end > now.source:
            closed.append(Run(now.source, now.target, now.source_end - now.source))
        now = OpenRun(now.source_end, target_end, now.source_end, target_end)
    moved = entry.moved(
        source_offset=now.source_end, target_offset=now.target_end, run_source=now.source, run_target=now.target
    )
    return moved, tuple(closed)


async def _prove(assignment: Assignment, entry: Entry, tail: Tail, source: SourceReader, marks: Marks | None) -> _Proof:
    """Make the last target batch again from the source; the position after it, and where all of the tail stood.

    Records are decoded when all of the source has been read: as objects they take several times their bytes, and many
    partitions wait for their source at the same time.
    """
    assert tail.last is not None
    origin: list[_Origin] = []
    spans: list[tuple[int, int]] = []
    epochs: list[Stretch] = []
    n = entry.n
    position = read_to = entry.source_offset
    try:
        async for source_header, source_view in source.batches(entry.source_offset):
            epochs.append(Stretch(source_header.leader_epoch, read_to))
            read_to = source_header.next_offset
            if not source_header.record_count:
                continue  # nothing to see; its checksum was looked at where that was found
            check_crc(source_view, where=assignment.name)
            copied = _spans_of(source_header, source_view, entry.source_offset, marks, most=tail.n - n)
            if copied:
                first_n, n = n, n + sum(length for _, length in copied)
                position = sum(copied[-1])
                spans += copied
                if n > tail.last_base_n:
                    origin.append(_Origin(source_header, kept(source_view), first_n))
            if n >= tail.n:
                break
    except CorruptBatch:
        raise  # it may come whole the next time
    except DataError as error:
        raise unproven(assignment, entry, tail.n - entry.n, str(error)) from error
    if n != tail.n or not _is_made_of(tail, origin, marks, same_time=not assignment.target_stamps_time):
        raise unproven(assignment, entry, tail.n - entry.n, "the target's last batch is not what the source has")
    return _Proof(position, spans, epochs)


def _spans_of(
    header: BatchHeader, view: memoryview, start: int, marks: Marks | None, *, most: int
) -> list[tuple[int, int]]:
    """(source offset, length) of the first so many records of a source batch that are copied; it is decoded only where
    its header does not tell."""
    if marks or header.record_count != header.last_offset_delta + 1 or header.base_offset < start:
        return [(offset, 1) for offset, _ in islice(_copied(header, view, start, marks), most)]
    return [(header.base_offset, min(header.record_count, most))]


def _copied(header: BatchHeader, view: memoryview, start: int, marks: Marks | None) -> Iterator[tuple[int, Record]]:
    """The source offset of each record from `start` on that does not come home, and its copy."""
    for record in iter_records(header, view):
        copied = marks.of(record) if marks else record
        if record.offset >= start and copied is not None:
            yield record.offset, copied


def _is_made_of(tail: Tail, origin: Sequence[_Origin], marks: Marks | None, *, same_time: bool) -> bool:
    """Whether the target's last batch holds what these source batches give."""
    assert tail.last is not None
    header, data = tail.last
    found = [
        copied
        for source_header, source_data, first_n in origin
        for n, (_, copied) in enumerate(
            _copied(source_header, memoryview(source_data), tail.entry.source_offset, marks), first_n
        )
        if tail.last_base_n <= n < tail.n
    ]
    expected = list(iter_records(header, memoryview(data)))
    same_time = same_time and not header.is_log_append_time
    return len(found) == tail.n - tail.last_base_n and _equal(found, expected, header, same_time=same_time)


def _equal(found: list[Record], expected: list[Record], header: BatchHeader, *, same_time: bool) -> bool:
    """Compare the source's records with the target's; a compacted target has fewer, at their own offsets."""
    by_delta = {record.offset - header.base_offset: record for record in expected}
    if not by_delta:
        return False
    for delta, record in by_delta.items():
        if delta >= len(found):
            return False
        other = found[delta]
        if (record.key, record.value, record.headers) != (other.key, other.value, other.headers):
            return False
        if same_time and record.timestamp != other.timestamp:
            return False
    return True
