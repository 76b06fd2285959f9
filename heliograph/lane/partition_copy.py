"""Copies one assignment inside a lane: its states, its queue and its ledger entry. No sockets, no clock.

    SETTLING  --settled-->  COPYING  --refused, lost or doubtful answer-->  DRAINING
       ^                                                                       |
       +--------------- WAITING (backing off) <------- nothing in flight ------+
    SETTLING, WAITING  --released to the driver, which decides-->  RELEASED

Fetched batches wait in a queue as they came. What leaves the queue is a *piece*:
one batch ready for the target, made by the express path or the record path, with
the next sequence of the count. Pieces are acknowledged in order, and only then does the
entry advance. When a copy comes in doubt, everything not acknowledged is dropped: settling
finds out from the target's log how far the copy got.

Fetcher, sender, settler and flusher read the fields of a copy and change them only through
the methods below, which are named for what happened; `fetch_node` alone is the fetcher's own.
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
"""Starts a task that ends with the lane; a crash in it ends the lane."""

MOST_FETCH_BYTES = 2 * 1024 * 1024
LEAST_FETCH_BYTES = 128 * 1024
BATCHES_PER_FETCH = 1024
MAX_IN_FLIGHT = 5
"""A broker remembers the last five batches of a producer, no more."""


def may_be_forgotten(entry: Entry, now_ms: int, *, memory_ms: int = MEMORY_MS) -> bool:
    """Return whether the target's broker may have forgotten our producer id and would append a batch twice.

    A count without records yet is judged by the count before it. The broker remembers our producer id for at least
    `memory_ms` after our newest record's timestamp.
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
    """Holds one batch that is ready for the target or on its way to it."""

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
    """True if the batch was built here; else its bytes are part of a receive buffer."""


@dataclass(slots=True)
class Unsure:
    """Holds what is not known about the batches sent since the copy was settled."""

    misplaced: bool = False
    """An answer named an unexpected target offset: the end of the target's log proves nothing then."""
    late: bool = False
    """A batch had no answer and may still arrive at the target."""
    appended: bool = False
    """A batch had no answer, or an error that leaves it open, and may be in its leader's log, not yet replicated."""
    forestalled: bool = False
    """The first unexpected answer says that another producer wrote before us."""
    refused: bool = False
    """That answer says that the broker remembers another sequence or producer epoch of ours than the one we sent."""
    unseen: bool = False
    """Nobody has checked under this lease that our last batch is still on the target."""

    @property
    def must_see_last(self) -> bool:
        """Return whether our last batch must be read although the log's end is unchanged.

        Records of ours may be lost and as many of others written at their offsets.
        """
        return self.refused or self.unseen


class PartitionCopy:
    """Holds the state of one assignment: its queue, its pieces in flight, and the entry as acknowledged."""

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
        # After a record older than `memory_ms`, or of unknown age, the broker may not remember our producer id. Then
        # only one batch is in flight, since the next one must not be appended if it is refused.
        self.assignment, self.memory_ms = assignment, memory_ms
        self.source, self.target = assignment.source, assignment.target
        self.shared: SharedTarget | None = None  # set if other copies of the lane write to the same target partition
        self.entry: Entry = assignment.entry
        self.page = OpenPage.unpack(assignment.page) if assignment.page else OpenPage(self.entry.run_source)
        """Closed runs; the open one is in the entry."""
        self.source_id = UUID(assignment.entry.source_topic_id)
        self.target_id = UUID(assignment.entry.target_topic_id)
        self.has_source_id = self.source_id != NO_TOPIC_ID
        self.has_target_id = self.target_id != NO_TOPIC_ID
        self.state = CopyState.SETTLING
        self._error: HeliographError | None = None
        self.reported = ""  # the error text last reported to the driver
        self.fetch_offset = self.entry.source_offset
        self.fetch_leader_epoch = UNKNOWN
        """The leader epoch of the last batch before `fetch_offset`."""
        self.checked_leader_epoch = UNKNOWN
        """The leader epoch for which the source's log was found to hold what was copied (brokers before 3.1)."""
        self.unknown_epochs = 0
        """How often in a row the source's leader did not know the leader epoch of what was copied."""
        self.fetch_node: int | None = None  # the broker that the copy is fetched from; set by the fetcher
        self.target_node: int | None = None  # the broker that the copy is sent to
        self.in_flight: deque[Piece] = deque()
        self.queued_bytes = 0
        self.wanted_bytes = MOST_FETCH_BYTES
        """Maximum bytes per fetch; small where batches are small, so that they stay in the processor's cache."""
        self.room_bytes = MOST_FETCH_BYTES // 2
        """The copy is fetched again when its queue holds fewer bytes than this."""
        self.records = self.bytes = 0  # copied in this epoch
        self.dirty = False  # True if the entry changed since the last flush
        self.flushed = self.entry.source_offset
        """The position that is stored on the target."""
        # Failures in a row (the back-off doubles with each), and among them refusals of our sequence or producer epoch
        # at an unchanged end of the target's log.
        self.failures = self.refusals = 0
        is_late = assignment.late_ms != NOT_LATE
        self.unsure = Unsure(late=is_late, appended=is_late, unseen=assignment.first_of_term)
        self.refused_record: RecordRefused | None = None
        """A record that cannot be copied: the records before it are, then the partition is released to the driver."""
        self.producer_id = producer_id
        self._read_committed = read_committed
        self._codec = codec
        self.marks = marks  # set if records get provenance headers; others write to the target's topic too then
        self._queue: deque[tuple[BatchHeader, memoryview]] = deque()
        self._parts: deque[Chunk] = deque()
        self._next_n = self.entry.n
        self._next_target = self.entry.target_offset
        self._remembered_ms = -1
        """Maximum timestamp of the last piece acknowledged to this copy."""
        self._oldest_sent_ms: int | None = None
        """Lowest of the maximum timestamps of the pieces sent since the copy was settled."""

    # -- state ---------------------------------------------------------------------------

    @property
    def error(self) -> HeliographError | None:
        """The error that keeps the partition from being copied now; the next good answer clears it."""
        return self._error

    def note_error(self, error: HeliographError) -> None:
        """Keep an error that the lane retries, for the report to the driver."""
        self._error = error.bare()

    def enter(self, state: CopyState) -> None:
        """Change the state, as `TRANSITIONS` allows."""
        assert state in TRANSITIONS[self.state], (self.assignment.name, self.state, state)
        self.state = state

    def wait(self, error: HeliographError | None = None) -> None:
        """Back off after a failure; the settler ends the pause."""
        if error is not None:
            self.note_error(error)
        self.failures += 1
        self.enter(CopyState.WAITING)

    def wait_for_late_batch(self, error: HeliographError) -> None:
        """Wait until a batch without an answer cannot arrive any more; this is no failure."""
        if self._error is None:
            self.note_error(error)
        self.enter(CopyState.WAITING)

    def settled(self, entry: Entry, closed: Sequence[Run] = (), *, found: int = 0) -> None:
        """Continue from the entry that the target's log proves.

        `closed` are the runs that this closes, `found` the records of ours beyond the former entry.
        """
        assert not self.in_flight
        self.records += found
        self.target_node = None
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
        """Keep the leader epoch that the target's metadata names; -1 means that it names none."""
        if epoch not in (UNKNOWN, self.entry.target_leader_epoch):
            self.entry = self.entry.moved(target_leader_epoch=epoch)
            self.dirty = True

    def doubt(self, error: HeliographError) -> None:
        """Put the copy in doubt: send nothing more, wait for outstanding answers, then settle."""
        if self.state is CopyState.RELEASED:
            return  # it keeps the error that it was released with
        self.note_error(error)
        self._drop_queue()
        if self.state is CopyState.COPYING:
            self.enter(CopyState.DRAINING)

    def release(self, error: HeliographError) -> None:
        """Give the partition back to the driver, which decides what to do about the error."""
        self.note_error(error)
        self._drop_queue()
        self.enter(CopyState.RELEASED)

    def isolate(self, refusal: RecordRefused) -> bool:
        """Plan to copy up to the refused record, or in smaller batches until it is known; False if it is next."""
        start, size = refusal.details.get("source_start"), refusal.details.get("piece_bytes")
        if start is not None:
            self.refused_record = refusal.bare() if start > self.entry.source_offset else None
            is_isolated = self.refused_record is not None
        else:
            is_isolated = size is not None
            if size is not None:
                self.assignment = replace(self.assignment, max_message_bytes=size // 2)
        if is_isolated:
            self.failures = 1
        return is_isolated

    @property
    def is_at_refused_record(self) -> bool:
        """Return whether all records before the refused one are on the target."""
        return (
            self.refused_record is not None
            and not self.in_flight
            and not self._parts
            and self.entry.source_offset >= self.refused_record.details["source_start"]
        )

    def may_be_forgotten(self, now_ms: int) -> bool:
        """Return whether the target's broker may have forgotten what we sent last."""
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

    def fetch_answered(self, high_watermark: int) -> None:
        """Note an answer without an error; the copy's own error is over unless failures of sending caused it."""
        self.unknown_epochs = 0
        if not self.failures or (not self.has_work and self.fetch_offset >= high_watermark):
            self._error, self.failures = None, 0

    def epoch_checked(self, leader_epoch: int) -> None:
        """Note that the log of the leader of this epoch holds what was copied."""
        self.checked_leader_epoch = leader_epoch

    def epoch_unknown(self) -> None:
        """Note that the leader did not know the leader epoch of what was copied."""
        self.unknown_epochs += 1

    def take(self, answer: FetchedPartition) -> None:
        """Queue the batches of a fetch answer, without control batches and aborted records."""
        end = answer.last_stable_offset if self._read_committed else answer.high_watermark
        if end != self.entry.source_end:
            self.entry = self.entry.moved(source_end=end)
            self.dirty = True
        if self.refused_record is not None:
            self._take_up_to(self.refused_record.details["source_start"], answer)
            return
        queue = self._queue
        size, count = (0, 0) if queue or (self._read_committed and answer.aborted) else self._take_singles(answer)
        if size:
            answer = answer._replace(records=answer.records[size:])
        header = None
        # After merged batches the next one must not begin before their end; otherwise it may begin before the position.
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
        """Merge the one-record batches at the head of an answer; return their bytes and their number."""
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
        """Add the leader epochs of these batches to the entry's lineage: another leader wrote the last of them."""
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

    def _take_up_to(self, stop: int, answer: FetchedPartition) -> None:
        """Make chunks of the records before offset `stop`; ignore what follows."""
        for header, view in visible_batches(
            answer, self.fetch_offset, read_committed=self._read_committed, where=self.assignment.name
        ):
            start, end = self.fetch_offset, min(header.next_offset, stop)
            if start >= stop:
                return
            chunks: list[Chunk] = []
            if header.record_count and header.base_offset < stop:
                chunks = reencode(
                    [(header, view)],
                    position=start,
                    end=stop,
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
        """Skip source offsets up to `next_offset`: they hold nothing to copy."""
        if self.in_flight:
            self.in_flight[-1] = self.in_flight[-1]._replace(source_end=next_offset)
        else:
            self._move_position(next_offset)

    def _move_position(self, position: int) -> None:
        """Advance the entry over source offsets that hold nothing to copy; the next run begins after them."""
        self._follow((), position)
        self.dirty = True

    def _follow(self, copied: Sequence[Run], source_end: int, **changes: int) -> None:
        """Advance the entry over what was copied, and keep the runs that this closes."""
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

    def advance_target_end(self, target_end: int) -> None:
        """Advance the entry to a target offset that other copies of ours wrote up to.

        The next batch of this copy follows there. Does nothing while batches of this copy are in flight.
        """
        entry = self.entry
        if self.in_flight or not self.is_copying or target_end <= entry.target_offset:
            return
        self.page.close(Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source))
        self.entry = entry.moved(run_source=entry.source_offset, run_target=target_end, target_offset=target_end)
        self.dirty = True

    # -- the ledger ----------------------------------------------------------------------

    def pages(self) -> list[Page]:
        """Return the pages of runs to write with the entry."""
        pages = self.page.pages(self.entry.count, self.entry.run_source, self.entry.run_target)
        return [replace(page, by_lane=True) for page in pages]

    def flush_started(self) -> None:
        """Note that a flush writes the entry as it is now; a later change makes the copy dirty again."""
        self.dirty = False

    def flush_failed(self) -> None:
        """Write the entry again with the next flush."""
        self.dirty = True

    def flush_done(self, position: int) -> None:
        """Note that the target stores this position."""
        self.flushed = position

    def pages_written(self, pages: list[Page]) -> None:
        """Note that the ledger has these pages."""
        self.page.written(pages)

    def note_reported(self, text: str) -> None:
        """Keep the error text that the driver was told last."""
        self.reported = text

    # -- target side ---------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Return whether fetched batches wait to be sent."""
        return bool(self._queue or self._parts)

    @property
    def made_bytes(self) -> int:
        """Bytes of the batches that were built here, queued or in flight; others are parts of receive buffers."""
        if not self._parts and not self.in_flight:
            return 0
        queued = sum(len(part.data) for part in self._parts if isinstance(part.data, bytearray))
        return queued + sum(piece.data.nbytes for piece in self.in_flight if piece.is_made)

    @property
    def is_idle(self) -> bool:
        """Return whether everything fetched is on the target."""
        return not self.in_flight and not self.has_work

    def next_piece(self, *, now_ms: int, small_bytes: int) -> Piece | None:
        """Return the next batch to send, or None if there is none or the pipeline is full."""
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

    def must_read(self, base_offset: int, now_ms: int) -> bool:
        """Return whether the records between our last piece and the oldest one in flight must be read.

        Where records get provenance headers, others write to the topic too, and their records come between ours. None
        of ours can be among them while the broker remembers our producer id, because it then appends no batch out of
        order.
        """
        return base_offset > self.entry.target_offset and self._remembered_ms < now_ms - self.memory_ms

    def acknowledged(self, base_offset: int) -> None:
        """Advance the entry: the oldest piece in flight is on the target at `base_offset`."""
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
        self._error = None
        self.dirty = True

    def send_to(self, node: int) -> None:
        """Send the next batches to this broker."""
        self.target_node = node

    def forget_target_leader(self) -> None:
        """Look the target's leader up again before the next batch."""
        self.target_node = None

    def piece_unanswered(self) -> None:
        """Note that a piece got no answer: it may be in the leader's log, or still arrive there."""
        self.unsure.late = self.unsure.appended = True

    def piece_maybe_appended(self) -> None:
        """Note that a piece got an error that does not say whether the leader appended it."""
        self.unsure.appended = True

    def piece_misplaced(self) -> None:
        """Note that a batch is at an unexpected offset of the target."""
        self.unsure.misplaced = True

    def drop_oldest_piece(self) -> None:
        """Drop the oldest piece in flight: its answer does not prove where it is."""
        self.in_flight.popleft()

    def reject(self, error: HeliographError, *, forestalled: bool, refused: bool) -> None:
        """Put the copy in doubt by the first unexpected answer."""
        self.unsure.forestalled = forestalled
        self.unsure.refused = self.unsure.misplaced or refused
        self.refusals += self.unsure.refused
        self.doubt(error)


def _out_of_order(header: BatchHeader, following: int, assignment: Assignment) -> CorruptBatch:
    """Make the error for batches out of order; the checksum does not cover base offsets, only their order shows."""
    return CorruptBatch(
        f"a batch begins at offset {header.base_offset}, but the one before it ends at {following - 1}",
        where=assignment.name,
        base_offset=header.base_offset,
    )


def _no_batch(answer: FetchedPartition, offset: int, assignment: Assignment) -> CorruptBatch:
    return CorruptBatch(
        f"{len(answer.records)} bytes fetched at offset {offset} hold no complete batch with that offset",
        where=assignment.name,
        base_offset=offset,
    )
