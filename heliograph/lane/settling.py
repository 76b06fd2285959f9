"""Proves from the source how far a copy got, by its batches on the target.

`ledger.tail` has our batches beyond the ledger's entry. The last of them is built again from
the source, record by record, with provenance headers if the count has them, and without the
records that these headers exclude. Only if both are equal is the new position accepted.
Knows no sockets: it reads through a `SourceReader`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

from heliograph.errors import CorruptBatch, DataError
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
    """Holds the entry that the target's log proves, and what was found on the way."""

    entry: Entry
    found: int
    """Records of ours on the target beyond the entry."""
    foreign: int
    """Records of other producers among them."""
    closed: tuple[Run, ...] = ()
    """Runs that this closed; the open one is in the entry."""
    strangers: tuple[int, ...] = ()
    """Producer ids of those others; -1 stands for none."""


class _Origin(NamedTuple):
    """Holds a source batch that the target's last batch was made of."""

    header: BatchHeader
    data: Buffer
    first_n: int
    """Number in the count of its first copied record."""


class _Proof(NamedTuple):
    """Holds what the source tells about the tail."""

    position: int
    spans: list[tuple[int, int]]
    """(source offset, length) of the records that the tail holds."""
    epochs: list[Stretch]
    """The source's leader epochs of these records."""


async def settle(
    copy: Unsettled, tail: Tail, target_end: int, source: SourceReader, marks: Marks | None = None
) -> Settled:
    """Return the entry that the target's log proves; raise an error if the driver has to decide.

    `marks` are the provenance headers of the entry's count, if it has any.
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
    """Return the entry after what was found, and the runs that this closed; records of others close the open run."""
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
    """Build the last target batch again from the source; return the position after it and the tail's source offsets.

    Records are decoded after all of the source has been read: as objects they take several times their bytes, and many
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
                continue  # nothing to copy; its checksum was checked before
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
        raise  # it is fetched again
    except DataError as error:
        raise unproven(assignment, entry, tail.n - entry.n, str(error)) from error
    if n != tail.n or not _is_made_of(tail, origin, marks, same_time=not assignment.target_stamps_time):
        raise unproven(assignment, entry, tail.n - entry.n, "the target's last batch is not what the source has")
    return _Proof(position, spans, epochs)


def _spans_of(
    header: BatchHeader, view: memoryview, start: int, marks: Marks | None, *, most: int
) -> list[tuple[int, int]]:
    """Return (source offset, length) of the first `most` copied records of a source batch.

    The batch is decoded only if its header does not tell.
    """
    if marks or header.record_count != header.last_offset_delta + 1 or header.base_offset < start:
        return [(offset, 1) for offset, _ in islice(_copied(header, view, start, marks), most)]
    return [(header.base_offset, min(header.record_count, most))]


def _copied(header: BatchHeader, view: memoryview, start: int, marks: Marks | None) -> Iterator[tuple[int, Record]]:
    """Yield the source offset and the copy of each record from `start` on that is copied."""
    for record in iter_records(header, view):
        copied = marks.of(record) if marks else record
        if record.offset >= start and copied is not None:
            yield record.offset, copied


def _is_made_of(tail: Tail, origin: Sequence[_Origin], marks: Marks | None, *, same_time: bool) -> bool:
    """Return whether the target's last batch holds the records of these source batches."""
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
