"""The life of one assignment inside a lane. No sockets, no clock.

    SETTLING  --settled-->  COPYING  --refused, lost or doubtful answer-->  DRAINING
       ^                                                                       |
       +--------------- WAITING (backing off) <------- nothing in flight ------+
    SETTLING, WAITING  --given back to the driver, who decides-->  RELEASED

Fetched batches wait in a queue as they came. What leaves the queue is a *piece*:
one batch ready for the target, made by the express path or the record path, with
the next sequence of the count. Pieces are acknowledged in order; the entry moves
on only then. After any doubt everything not acknowledged is dropped: settling
finds out from the target's log how far the copy really got.
"""

from __future__ import annotations

from asyncio import Task
from collections import deque
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import UUID

from heliograph.errors import CorruptBatch, HeliographError, RecordRefused
from heliograph.kafka.batch import BatchHeader, iter_batches, leader_epoch_of, rewrite_header
from heliograph.kafka.codec.k01_fetch import FetchedPartition
from heliograph.kafka.isolation import visible_batches
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.lane.batches.paths import next_parts
from heliograph.lane.batches.provenance import Marks
from heliograph.lane.batches.records import Chunk, reencode
from heliograph.lane.batches.singles import merge_singles
from heliograph.ledger.lineage import UNKNOWN, Lineage, Stretch
from heliograph.ledger.model import MEMORY_MS, NOT_LATE, SEQUENCE_MODULUS, Assignment
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.runs import OpenPage, OpenRun, follow

if TYPE_CHECKING:
    from heliograph.lane.shared_target import SharedTarget

Spawn = Callable[[Coroutine[Any, Any, None]], Task[None]]
"""Starts a task of the lane's, which sees to it that a crash in it is noticed."""

MOST_FETCH_BYTES = 2 * 1024 * 1024
LEAST_FETCH_BYTES = 128 * 1024
BATCHES_PER_FETCH = 1024
MAX_IN_FLIGHT = 5
"""The broker remembers the last five batches of a producer and no more."""


def may_be_forgotten(entry: Entry, now_ms: int, *, memory_ms: int = MEMORY_MS) -> bool:
    """Whether the target's broker may not remember us in this partition, and would take what it has once more.

    A count that has just begun goes by the one before it. `memory_ms` is from when on its memory is in doubt.
    """
    has_written = entry.n > 0 or entry.newest_ms >= 0
    return entry.is_unfenced or (has_written and entry.newest_ms < now_ms - memory_ms)


class CopyState(Enum):
    SETTLING = "settling"
    COPYING = "copying"
    DRAINING = "draining"
    WAITING = "waiting"
    RELEASED = "released"


TRANSITIONS: dict[CopyState, frozenset[CopyState]] = {
    CopyState.SETTLING: frozenset({CopyState.COPYING, CopyState.WAITING, CopyState.RELEASED}),
    CopyState.COPYING: frozenset({CopyState.DRAINING}),
    CopyState.DRAINING: frozenset({CopyState.WAITING}),
    CopyState.WAITING: frozenset({CopyState.SETTLING, CopyState.RELEASED}),
    CopyState.RELEASED: frozenset(),
}


class Piece(NamedTuple):
    """One batch on its way to the target."""

    data: memoryview
    records: int
    base_n: int
    target_offset: int
    source_start: int
    source_end: int
    max_timestamp: int
    runs: tuple[tuple[int, int], ...]
    """(source offset, length) of its records, in order."""
    is_made: bool = False
    """It was put together here; else it stands in a receive buffer."""


@dataclass(slots=True)
class Unsure:
    """What is open about the batches that were sent since the copy was settled."""

    misplaced: bool = False
    """An answer named another target offset than expected: where the target's log ends proves nothing then."""
    late: bool = False
    """One had no answer, and may arrive at the target yet."""
    appended: bool = False
    """One had no answer, or one that says no more than that it failed, and may stand in its leader's log alone."""
    forestalled: bool = False
    """By the first answer that was not as expected another wrote before us."""
    refused: bool = False
    """The broker's memory of us does not fit what was sent, by that answer."""
    unseen: bool = False
    """Nobody has seen under this lease that our last batch is still there."""

    @property
    def must_see_last(self) -> bool:
        """Whether an unchanged end of the log is not enough: records of ours may be lost, and others in their place."""
        return self.refused or self.unseen


class PartitionCopy:
    """One assignment: its queue, its pieces in flight, and the entry as acknowledged."""

    def __init__(
        self,
        assignment: Assignment,
        *,
        producer_id: int,
        read_committed: bool,
        codec: int | None,
        marks: Marks | None = None,
        memory_ms: int = MEMORY_MS,
    ) -> None:
        # Behind a record older than `memory_ms`, or of unknown age, the broker may not remember us. Then only one batch
        # is in flight, since the next must not pass if it is refused.
        self.assignment, self.memory_ms = assignment, memory_ms
        self.source, self.target = assignment.source, assignment.target
        self.shared: SharedTarget | None = None  # set where others of the lane write to the same target partition
        self.entry: Entry = assignment.entry
        self.page = OpenPage.unpack(assignment.page) if assignment.page else OpenPage(self.entry.run_source)
        """Runs that are broken; the open one is in the entry."""
        self.source_id = UUID(assignment.entry.source_topic_id)
        self.target_id = UUID(assignment.entry.target_topic_id)
        self.has_source_id = self.source_id != NO_TOPIC_ID
        self.has_target_id = self.target_id != NO_TOPIC_ID
        self.state = CopyState.SETTLING
        self._error: HeliographError | None = None
        self.told = ""
        self.fetch_offset = self.entry.source_offset
        self.fetch_leader_epoch = UNKNOWN
        """The leader epoch of the last batch before `fetch_offset`."""
        self.checked_leader_epoch = UNKNOWN
        """The leader epoch under which the source's log is known to hold what was copied, where that must be asked."""
        self.strange = 0
        """How often in a row an offset was refused that the source has."""
        self.fetch_node: int | None = None
        self.target_node: int | None = None
        self.in_flight: deque[Piece] = deque()
        self.queued_bytes = 0
        self.wanted_bytes = MOST_FETCH_BYTES
        """How much to fetch at a time; little where batches are small, so that they stay in the processor's cache."""
        self.room_bytes = MOST_FETCH_BYTES // 2
        """With less than this in its queue it is fetched again."""
        self.records = self.bytes = 0
        self.dirty = False
        self.flushed = self.entry.source_offset
        """The position that is written down on the target."""
        self.failures = self.refusals = 0  # refusals: of our sequence or epoch, in a row, at an unchanged log end
        is_late = assignment.late_ms != NOT_LATE
        self.unsure = Unsure(late=is_late, appended=is_late, unseen=assignment.first_of_term)
        self.wall: RecordRefused | None = None
        """A record that cannot be copied: what stands before it is, then the partition is given back."""
        self.producer_id = producer_id
        self._read_committed = read_committed
        self._codec = codec
        self.marks = marks  # set where records get a mark; others write the target's topic too then
        self._queue: deque[tuple[BatchHeader, memoryview]] = deque()
        self._parts: deque[Chunk] = deque()
        self._next_n = self.entry.n
        self._next_target = self.entry.target_offset
        self._remembered_ms = -1
        """Timestamp of the last record acknowledged to this copy."""
        self._oldest_sent_ms: int | None = None
        """Of the pieces sent since it was settled."""

    # -- state ---------------------------------------------------------------------------

    @property
    def error(self) -> HeliographError | None:
        """What keeps it from being copied now; gone with the next good fetch."""
        return self._error

    @error.setter
    def error(self, error: HeliographError | None) -> None:
        self._error = None if error is None else error.bare()

    def enter(self, state: CopyState) -> None:
        assert state in TRANSITIONS[self.state], (self.assignment.name, self.state, state)
        self.state = state

    def settled(self, entry: Entry, closed: Sequence[Run] = ()) -> None:
        """The target's log says how far the copy got, and which runs that broke: go on from there."""
        assert not self.in_flight
        if entry != self.entry:
            self.dirty = True
        if (entry.n, entry.target_offset) != (self.entry.n, self.entry.target_offset):
            self.refusals = 0
        for run in closed:
            self.page.close(run)
        self._drop_queue()
        self.fetch_offset = entry.source_offset
        lineage = Lineage.parse(entry.lineage).until(entry.source_offset)
        self.fetch_leader_epoch = lineage.before(entry.source_offset)
        self.entry = entry.moved(lineage=lineage.pack())
        self._next_n, self._next_target = entry.n, entry.target_offset
        self.unsure = Unsure()
        self._oldest_sent_ms = None
        self.enter(CopyState.COPYING)

    @property
    def seen_leader_epoch(self) -> int:
        """The highest leader epoch of the source that is known to us or to the driver."""
        copied = Lineage.parse(self.entry.lineage).before(self.entry.source_offset)
        return max(copied, self.fetch_leader_epoch, self.assignment.source_leader_epoch)

    def note_target_epoch(self, epoch: int) -> None:
        """The target's metadata names a leader of this epoch; -1: it names none."""
        if epoch not in (UNKNOWN, self.entry.target_leader_epoch):
            self.entry = self.entry.moved(target_leader_epoch=epoch)
            self.dirty = True

    def doubt(self, error: HeliographError) -> None:
        """Something is not as expected: send no more, let answers come in, then settle."""
        if self.state is CopyState.RELEASED:
            return  # the cause of that stands
        self.error = error
        self._drop_queue()
        if self.state is CopyState.COPYING:
            self.enter(CopyState.DRAINING)

    def release(self, error: HeliographError) -> None:
        """Give the partition back to the driver, who decides what the error means."""
        self.error = error
        self._drop_queue()
        self.enter(CopyState.RELEASED)

    def isolate(self, refusal: RecordRefused) -> bool:
        """Try again up to a record that cannot be copied, or with less at a time; False if nothing stands before it."""
        start, size = refusal.details.get("source_start"), refusal.details.get("piece_bytes")
        if start is not None:
            self.wall = refusal.bare() if start > self.entry.source_offset else None
            return self.wall is not None
        if size is not None:
            self.assignment = replace(self.assignment, max_message_bytes=size // 2)
        return size is not None

    @property
    def is_at_wall(self) -> bool:
        return (
            self.wall is not None
            and not self.in_flight
            and not self._parts
            and self.entry.source_offset >= self.wall.details["source_start"]
        )

    def may_be_forgotten(self, now_ms: int) -> bool:
        """Whether the target's broker may not remember what we sent it last."""
        sent_ms = self._oldest_sent_ms
        is_old = sent_ms is not None and sent_ms < now_ms - self.memory_ms
        return is_old or may_be_forgotten(self.entry, now_ms, memory_ms=self.memory_ms)

    @property
    def is_copying(self) -> bool:
        return self.state is CopyState.COPYING

    @property
    def is_drained(self) -> bool:
        return not self.in_flight

    def _drop_queue(self) -> None:
        self._queue.clear()
        self._parts.clear()
        self.queued_bytes = 0

    # -- source side ---------------------------------------------------------------------

    def take(self, answer: FetchedPartition) -> None:
        """Queue what a fetch brought; control batches and aborted records are passed over."""
        end = answer.last_stable_offset if self._read_committed else answer.high_watermark
        if end != self.entry.source_end:
            self.entry = self.entry.moved(source_end=end)
            self.dirty = True
        if self.wall is not None:
            self._take_up_to(self.wall.details["source_start"], answer)
            return
        queue = self._queue
        size, count = (0, 0) if queue or (self._read_committed and answer.aborted) else self._take_singles(answer)
        if size:
            answer = answer._replace(records=answer.records[size:])
        header = None
        # Behind what is merged already nothing may go back; without that the first batch may begin before the position.
        following, start = (self.fetch_offset, 0) if size else (-1, self.fetch_offset)
        for batch in visible_batches(answer, start, read_committed=self._read_committed, where=self.assignment.name):
            header, view = batch
            if header[0] < following:
                raise _out_of_order(header, following, self.assignment)
            following = header[0] + header[6] + 1
            count += 1
            if header[12] or queue or self._parts:
                queue.append(batch)
                size += len(view)
                self.queued_bytes += len(view)
            else:
                self._pass_over(header.next_offset)
        if header is not None:
            if header.leader_epoch != self.fetch_leader_epoch:
                self._follow_epochs(answer)
            self.fetch_offset = following
        elif answer.records and not count:
            raise _no_batch(answer, self.fetch_offset, self.assignment)
        if count:
            self.wanted_bytes = min(max(LEAST_FETCH_BYTES, size // count * BATCHES_PER_FETCH), MOST_FETCH_BYTES)
            self.room_bytes = self.wanted_bytes // 2

    def _take_singles(self, answer: FetchedPartition) -> tuple[int, int]:
        """Merge one-record batches at the head of an answer at once: their bytes and their number."""
        if self._codec or self.marks is not None:
            return 0, 0
        chunks, size = merge_singles(
            answer.records,
            position=self.fetch_offset,
            max_bytes=self.assignment.max_message_bytes,
            where=self.assignment.name,
        )
        if not chunks:
            return 0, 0
        self._parts.extend(chunks)
        self.queued_bytes += sum(len(chunk.data) for chunk in chunks)
        epoch = leader_epoch_of(answer.records)
        if epoch != self.fetch_leader_epoch:
            self._grow([Stretch(epoch, self.fetch_offset)])
        self.fetch_offset = chunks[-1].source_end
        return size, sum(chunk.record_count for chunk in chunks)

    def _follow_epochs(self, answer: FetchedPartition) -> None:
        """Another leader wrote the last of these batches: which one is the first of its epoch?"""
        batches = []
        end = self.fetch_offset
        for header, _ in iter_batches(answer.records, where=self.assignment.name):
            if header.next_offset > end:
                batches.append(Stretch(header.leader_epoch, end))
                end = header.next_offset
        self._grow(batches)

    def _grow(self, batches: Sequence[Stretch]) -> None:
        self.entry = self.entry.moved(lineage=Lineage.parse(self.entry.lineage).grown(batches).pack())
        self.fetch_leader_epoch = batches[-1].epoch

    def _take_up_to(self, wall: int, answer: FetchedPartition) -> None:
        """Make chunks at once of what stands before an offset, and nothing of what follows."""
        for header, view in visible_batches(
            answer, self.fetch_offset, read_committed=self._read_committed, where=self.assignment.name
        ):
            start, end = self.fetch_offset, min(header.next_offset, wall)
            if start >= wall:
                return
            chunks: list[Chunk] = []
            if header.record_count and header.base_offset < wall:
                chunks = reencode(
                    [(header, view)],
                    position=start,
                    end=wall,
                    max_bytes=self.assignment.max_message_bytes,
                    codec=self._codec,
                    marks=self.marks,
                    where=self.assignment.name,
                )
            if chunks:
                self._parts.extend(chunks)
                self.queued_bytes += sum(len(chunk.data) for chunk in chunks)
            elif self._parts:
                self._parts[-1] = self._parts[-1]._replace(source_end=end)
            else:
                self._pass_over(end)
            self.fetch_offset = end

    def _pass_over(self, next_offset: int) -> None:
        """Source offsets up to `next_offset` hold nothing to copy."""
        if self.in_flight:
            self.in_flight[-1] = self.in_flight[-1]._replace(source_end=next_offset)
        else:
            self._move_position(next_offset)

    def _move_position(self, position: int) -> None:
        """Step over source offsets that hold nothing to copy; the next run begins after them."""
        self._follow((), position)
        self.dirty = True

    def _follow(self, copied: Sequence[Run], source_end: int, **changes: int) -> None:
        """Move the entry over what was copied, and keep the runs that this breaks."""
        entry = self.entry
        before = OpenRun(entry.run_source, entry.run_target, entry.source_offset, entry.target_offset)
        closed, now = follow(before, copied, source_end)
        for run in closed:
            self.page.close(run)
        self.entry = entry.moved(
            run_source=now.source,
            run_target=now.target,
            source_offset=now.source_end,
            target_offset=now.target_end,
            **changes,
        )

    def keep_up(self, target_end: int) -> None:
        """Other copies of ours wrote to the target up to an offset: if nothing of this one is on its way, its next
        batch comes behind that."""
        entry = self.entry
        if self.in_flight or not self.is_copying or target_end <= entry.target_offset:
            return
        self.page.close(Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source))
        self.entry = entry.moved(run_source=entry.source_offset, run_target=target_end, target_offset=target_end)
        self.dirty = True

    # -- the ledger ----------------------------------------------------------------------

    def pages(self) -> list[Page]:
        """What of the runs is to be written with the entry."""
        pages = self.page.pages(self.entry.count, self.entry.run_source, self.entry.run_target)
        return [replace(page, by_lane=True) for page in pages]

    # -- target side ---------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        return bool(self._queue or self._parts)

    @property
    def made_bytes(self) -> int:
        """In batches that were put together here, queued or in flight; the others stand in receive buffers."""
        if not self._parts and not self.in_flight:
            return 0
        queued = sum(len(part.data) for part in self._parts if isinstance(part.data, bytearray))
        return queued + sum(piece.data.nbytes for piece in self.in_flight if piece.is_made)

    @property
    def is_idle(self) -> bool:
        """All that was fetched stands on the target."""
        return not self.in_flight and not self.has_work

    def next_piece(self, *, now_ms: int, small_bytes: int) -> Piece | None:
        """The next batch to send, or None if there is none or the pipeline is full."""
        if self.state is not CopyState.COPYING or len(self.in_flight) >= MAX_IN_FLIGHT:
            return None
        if not self._parts:
            self._fill_parts(small_bytes)
            if not self._parts:
                return None
        if self.in_flight and self._remembered_ms < now_ms - self.memory_ms:
            return None
        plain = self._parts.popleft()
        view = memoryview(plain.data)
        self.queued_bytes -= len(view)
        rewrite_header(
            view,
            producer_id=self.producer_id,
            producer_epoch=self.entry.producer_epoch,
            base_sequence=self._next_n % SEQUENCE_MODULUS,
        )
        piece = Piece(
            view,
            plain.record_count,
            self._next_n,
            self._next_target,
            plain.source_start,
            plain.source_end,
            plain.max_timestamp,
            plain.runs,
            isinstance(plain.data, bytearray),
        )
        self._next_n += plain.record_count
        self._next_target += plain.record_count
        if self._oldest_sent_ms is None or plain.max_timestamp < self._oldest_sent_ms:
            self._oldest_sent_ms = plain.max_timestamp
        self.in_flight.append(piece)
        return piece

    def _fill_parts(self, small_bytes: int) -> None:
        queue = self._queue
        while queue and not self._parts:
            if queue[0][0].record_count == 0:
                header, view = queue.popleft()
                self.queued_bytes -= len(view)
                self._pass_over(header.next_offset)
                continue
            position = self.in_flight[-1].source_end if self.in_flight else self.entry.source_offset
            taken, parts = next_parts(
                queue,
                position=position,
                max_bytes=self.assignment.max_message_bytes,
                codec=self._codec,
                small_bytes=small_bytes,
                marks=self.marks,
                where=self.assignment.name,
            )
            for _ in range(taken):
                header, view = queue.popleft()
                self.queued_bytes -= len(view)
            if not parts:
                self._pass_over(header.next_offset)
            self._parts.extend(parts)
            self.queued_bytes += sum(len(part.data) for part in parts)

    def must_look(self, base_offset: int, now_ms: int) -> bool:
        """Whether what stands between our last piece and the oldest one in flight, which is there, has to be read.

        Where records are marked the topic belongs to others too, and their records come between ours. That none of
        ours is among them is known from the broker, which takes no batch out of order while it remembers us.
        """
        return base_offset > self.entry.target_offset and self._remembered_ms < now_ms - self.memory_ms

    def acknowledged(self, base_offset: int) -> None:
        """The oldest piece in flight stands on the target at `base_offset`."""
        piece = self.in_flight.popleft()
        entry = self.entry
        n, target_end = piece.base_n + piece.records, base_offset + piece.records
        size = entry.bytes_copied + piece.data.nbytes
        is_next = piece.source_start == entry.source_offset and base_offset == entry.target_offset
        if is_next and piece.source_end - piece.source_start == piece.records:
            self.entry = entry.moved(
                n=n,
                source_offset=piece.source_end,
                target_offset=target_end,
                our_end=target_end,
                bytes_copied=size,
                newest_ms=piece.max_timestamp,
            )
        else:
            copied, at = [], base_offset
            for source, length in piece.runs:
                copied.append(Run(source, at, length))
                at += length
            self._follow(
                copied, piece.source_end, n=n, our_end=target_end, bytes_copied=size, newest_ms=piece.max_timestamp
            )
        self._remembered_ms = piece.max_timestamp
        self.records += piece.records
        self.bytes += piece.data.nbytes
        self.failures = self.refusals = 0
        self.error = None
        self.dirty = True


def _out_of_order(header: BatchHeader, following: int, assignment: Assignment) -> CorruptBatch:
    """Base offsets are outside the checksum: that batches follow each other is all that can be told of them."""
    return CorruptBatch(
        f"a batch begins at offset {header.base_offset}, the one before it ends at {following - 1}",
        where=assignment.name,
        base_offset=header.base_offset,
    )


def _no_batch(answer: FetchedPartition, offset: int, assignment: Assignment) -> CorruptBatch:
    return CorruptBatch(
        f"{len(answer.records)} bytes were fetched at offset {offset}, and no whole batch that reaches it",
        where=assignment.name,
        base_offset=offset,
    )
