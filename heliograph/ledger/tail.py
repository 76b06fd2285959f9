"""Reads our own batches on the target beyond an entry: those of the copy's producer id and count.

The ledger may be behind: whatever was sent after its last entry and before a
crash, a lost answer or a refusal is found here by reading the target's tail.

    ledger's entry                target's log end
          v                              v
    ..][..][ ours ][ ours ][foreign][ ours ]
          n                              n'   (n' counts ours only)

The batches of our producer id and count give n'. Whether the source proves it is asked in `lane.settling`.
Knows no sockets: it reads through a `LogReader`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import NamedTuple, Protocol

from heliograph.errors import DataError, PositionUnproven, SecondWriter, TargetTruncated
from heliograph.kafka.batch import BatchHeader, check_crc
from heliograph.ledger.model import SEQUENCE_MODULUS, Assignment, FlowTerms
from heliograph.ledger.records.entry import Entry

Buffer = bytes | memoryview
KEPT_BYTES = 1024 * 1024
"""A batch up to this is copied from the answer that it came in. A larger one goes on standing there, where it counts
as received: the next one of that size waits until it is given up."""
_USED_UP = -1
"""Any count of a producer id that the copy has used up."""


class LogReader(Protocol):
    """Reads the batches of one partition that reach into [start, end)."""

    def batches(self, start: int, end: int) -> AsyncIterator[tuple[BatchHeader, memoryview]]: ...


class Unsettled(NamedTuple):
    """A copy of which is to be found out how far it got."""

    assignment: Assignment
    entry: Entry
    producer_id: int
    former_ids: tuple[int, ...] = ()
    """Those that the copy has used up (`partition_remap`)."""

    @classmethod
    def of(cls, assignment: Assignment, entry: Entry, terms: FlowTerms) -> Unsettled:
        """`entry` is where the copy stands by now."""
        return cls(assignment, entry, terms.producer_id_of(assignment), terms.former_ids_of(assignment))


class Tail:
    """The batches that one copy finds beyond its entry."""

    def __init__(self, copy: Unsettled, ours: Collection[int], *, intact: int = 0) -> None:
        """`ours` are all producer ids of the flow. Up to `intact` the log is known to be as it was when the entry was
        written: no batch of the copy stands between its last one and the entry's target offset."""
        self.copy = copy
        self.entry = entry = copy.entry
        self.n = self.last_base_n = entry.n
        self.foreign = 0
        self.last: tuple[BatchHeader, Buffer] | None = None
        self.spans: list[tuple[int, int]] = []
        """(target offset, length) of our batches beyond the entry."""
        self.strangers: dict[int, None] = {}
        self._ours = ours
        self._broken = ""
        self._of_counts: dict[int, int] = {}
        """How many records of other counts than the entry's stand there."""
        own_start = entry.our_end - 1 if entry.n else entry.our_end
        self.start = max(own_start, min(entry.target_offset, intact))
        """The target offset from which it has to be read."""

    @property
    def is_oversized(self) -> bool:
        return self.last is not None and len(self.last[1]) > KEPT_BYTES

    @property
    def held_bytes(self) -> int:
        """Kept in memory until the tail is proved: its last batch, and about as much of the source then."""
        return 2 * len(self.last[1]) if self.last is not None else 0

    def take(self, header: BatchHeader, view: memoryview) -> None:
        """The next batch of the log; one before the start is for others to see."""
        entry, producer_id = self.entry, self.copy.producer_id
        if header.next_offset <= self.start:
            return
        if header.base_offset < entry.our_end:
            # If compaction or retention took our last batch, the sequence of the next one speaks for itself.
            _check_anchor(self.copy, header)
            return
        if header.producer_id in self.copy.former_ids:
            self._pass_over(header, _USED_UP)
            return
        if header.producer_id != producer_id:
            if not header.is_control and header.base_offset >= entry.target_offset:
                self._pass_by(header)
            return
        if header.producer_epoch != entry.producer_epoch:
            self._pass_over(header, entry.count - entry.producer_epoch + header.producer_epoch)
            return
        if header.base_sequence != self.n % SEQUENCE_MODULUS and not self._broken:
            self._broken = f"sequence {header.base_sequence} follows {self.n}"
        self.last_base_n = self.n
        self.n += header.last_offset_delta + 1
        self.spans.append((header.base_offset, header.last_offset_delta + 1))
        self.last = (header, kept(view))

    def _pass_by(self, header: BatchHeader) -> None:
        if header.producer_id not in self._ours:
            self.foreign += header.last_offset_delta + 1
            self.strangers[header.producer_id] = None

    def _pass_over(self, header: BatchHeader, count: int) -> None:
        self._of_counts[count] = self._of_counts.get(count, 0) + header.last_offset_delta + 1

    @property
    def has_ours(self) -> bool:
        """Whether batches of this copy stand beyond its entry, of any count."""
        return self.last is not None or bool(self._of_counts)

    def check(self) -> None:
        """Whether all that was taken follows each other, and is of one count."""
        assignment, entry, found = self.copy.assignment, self.entry, self.n - self.entry.n
        others = sum(self._of_counts.values())
        if (latest := max(self._of_counts, default=entry.count)) > entry.count:
            which = f"count {latest}" if len(self._of_counts) == 1 else f"counts up to {latest}"
            raise SecondWriter(
                f"the target has {others} records of {which}, this lane works in count {entry.count}: "
                f"{others + found} may repeat from source offset {entry.source_offset} on",
                where=assignment.name,
                why="another driver opened a new count, or the ledger lost its newest records",
                records=others + found,
                count=latest,
            )
        if self._of_counts:
            late = others
            raise unproven(assignment, entry, late + found, f"{late} of them are of an earlier count and came late")
        if self._broken:
            raise unproven(assignment, entry, found, self._broken)


async def read_tails(
    copies: Sequence[Unsettled], target_end: int, *, ours: Collection[int], target: LogReader, intact: int = 0
) -> list[Tail | DataError]:
    """Read one target partition once, for all the copies in it; return what each finds.

    Reads even where the log ends at an entry's target offset: records of others may be gone from there, and as many
    of ours stand in their place. Of copies that share the partition the one that wrote last reads from its last batch
    on. If that is still there, so is all before it, and the others begin where their entries end, however long ago
    they wrote something; if it is not, each reads for itself.
    """
    last = max(copies, key=lambda copy: copy.entry.our_end if copy.entry.n else -1)
    anchored = max(intact, last.entry.our_end if last.entry.n else 0)
    tails = [Tail(copy, ours, intact=intact if copy is last else anchored) for copy in copies]
    found = await _read(tails, target_end, target)
    if len(copies) == 1 or not any(isinstance(item, TargetTruncated) for item in found):
        return found
    return [item for copy in copies for item in await _read([Tail(copy, ours)], target_end, target)]


async def _read(tails: Sequence[Tail], target_end: int, target: LogReader) -> list[Tail | DataError]:
    found: list[Tail | DataError] = [
        tail if tail.entry.target_offset <= target_end else _truncated(tail.copy.assignment, tail.entry, target_end)
        for tail in tails
    ]
    starts = [tail.start for tail in found if isinstance(tail, Tail)]
    if not starts:
        return found
    async for header, view in target.batches(min(starts), target_end):
        if view:  # what holds nothing to see comes without its bytes, checked
            check_crc(view, where=tails[0].copy.assignment.name)
        for index, tail in enumerate(found):
            if isinstance(tail, Tail):
                found[index] = _taken(tail, header, view)
    return found


def _taken(tail: Tail, header: BatchHeader, view: memoryview) -> Tail | DataError:
    try:
        tail.take(header, view)
    except DataError as error:
        return error.bare()
    return tail


async def look_between(copy: Unsettled, base_offset: int, *, target: LogReader) -> None:
    """Make sure that between our last batch and the one at `base_offset` there is none of ours; raises if there is.

    Where the last one was acknowledged, that it still stands there; where others followed, settling has seen it.
    """
    entry = copy.entry
    is_next = entry.n > 0 and entry.our_end == entry.target_offset
    async for header, _ in target.batches(entry.our_end - 1 if is_next else entry.target_offset, base_offset):
        if header.base_offset < entry.our_end:
            _check_anchor(copy, header)
        elif header.producer_id in (copy.producer_id, *copy.former_ids) and header.base_offset < base_offset:
            raise SecondWriter(
                f"a batch of ours at target offset {header.base_offset} that this lane did not send",
                where=copy.assignment.name,
            )


def is_last_of_ours(copy: Unsettled, header: BatchHeader) -> bool:
    """Whether a batch is the last one that the copy wrote in its count, by the entry."""
    entry = copy.entry
    sequence = (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
    return (
        header.next_offset == entry.our_end
        and header.producer_id == copy.producer_id
        and header.producer_epoch == entry.producer_epoch
        and sequence == (entry.n - 1) % SEQUENCE_MODULUS
    )


def _check_anchor(copy: Unsettled, header: BatchHeader) -> None:
    """The batch that reaches up to where ours ended must be the last one of the count."""
    if not is_last_of_ours(copy, header):
        raise TargetTruncated(
            f"the batch before target offset {copy.entry.our_end} is not the one we wrote",
            where=copy.assignment.name,
            why="the target lost records and others took their place",
            target_end=header.base_offset,
        )


def kept(view: memoryview) -> Buffer:
    return view if len(view) > KEPT_BYTES else bytes(view)


def unproven(assignment: Assignment, entry: Entry, records: int, why: str) -> PositionUnproven:
    return PositionUnproven(
        f"{records} records on the target beyond the ledger's entry (source offset {entry.source_offset}) cannot be "
        f"matched with the source and may repeat",
        where=assignment.name,
        why=why,
        records=records,
    )


def _truncated(assignment: Assignment, entry: Entry, target_end: int) -> TargetTruncated:
    return TargetTruncated(
        f"the target ends at offset {target_end}, the ledger says {entry.target_offset}: "
        f"{entry.target_offset - target_end} records are gone",
        where=assignment.name,
        remedy="they are copied again as far as the source still has them",
        target_end=target_end,
    )
