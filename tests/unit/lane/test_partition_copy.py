"""The life of one assignment, against a brute-force model of the source's log."""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import NamedTuple

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch, DataError
from heliograph.kafka.batch import HEADER_SIZE, check_crc, encode_batch, parse_header
from heliograph.kafka.codec.k01_fetch import AbortedTransaction, FetchedPartition
from heliograph.lane.partition_copy import MAX_IN_FLIGHT, TRANSITIONS, CopyState, PartitionCopy
from heliograph.ledger.model import MEMORY_MS, SEQUENCE_MODULUS
from heliograph.ledger.records.entry import Entry
from tests.fake_cluster.partition import FakePartition, as_transactional
from tests.unit.helpers.logs import ASSIGNMENT, ENTRY, PRODUCER_ID, new_records, plain_batch

NO_LIMIT = 1 << 30
ERROR = DataError("something")


def new_copy(entry: Entry = ENTRY, *, read_committed: bool = False, max_bytes: int = 1 << 20) -> PartitionCopy:
    """A copy that has settled and may go on."""
    assignment = type(ASSIGNMENT)(
        flow="a->b", topic="t", partition=0, target_topic="a.t", entry=entry, max_message_bytes=max_bytes
    )
    copy = PartitionCopy(assignment, producer_id=PRODUCER_ID, read_committed=read_committed, codec=None)
    copy.settled(entry)
    return copy


def fetched(log: FakePartition, offset: int, *, committed: bool = False, limit: int = NO_LIMIT) -> FetchedPartition:
    """What a broker answers to a fetch."""
    end = log.last_stable_offset if committed else log.end
    aborted = [
        AbortedTransaction(item.producer_id, item.first_offset)
        for item in log.aborted
        if committed and item.last_offset >= offset
    ]
    records = memoryview(bytearray(log.read(offset, limit=limit, end=end)))
    return FetchedPartition(0, 0, log.end, log.last_stable_offset, log.start, tuple(aborted), -1, records)


def empty_batch(span: int) -> bytearray:
    """What compaction leaves of a batch whose records are all gone: its header and its offsets."""
    batch = plain_batch(0, 1)[:HEADER_SIZE]
    struct.pack_into(">i", batch, 8, HEADER_SIZE - 12)
    struct.pack_into(">i", batch, 23, span - 1)
    struct.pack_into(">i", batch, 57, 0)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch


def large_batches(count: int, *, timestamp: int = 1_000) -> tuple[FakePartition, int]:
    """Batches of two records that are not merged if no larger batch may be sent than one of them."""
    log = FakePartition(1, [1])
    for number in range(0, 2 * count, 2):
        log.store(encode_batch([record._replace(timestamp=timestamp) for record in new_records(100 + number, 2)]))
    return log, max(map(len, log.batches))


# -- states ----------------------------------------------------------------------------------


@pytest.mark.parametrize(("before", "after"), list(itertools.product(CopyState, CopyState)))
def test_only_the_transitions_of_the_table_are_taken(before: CopyState, after: CopyState) -> None:
    copy = new_copy()
    copy.state = before
    if after in TRANSITIONS[before]:
        copy.enter(after)
        assert copy.state is after
    else:
        with pytest.raises(AssertionError):
            copy.enter(after)


def test_released_is_the_end() -> None:
    assert not TRANSITIONS[CopyState.RELEASED]


def test_doubt_drops_the_queue_and_keeps_what_is_in_flight() -> None:
    log, size = large_batches(4)
    copy = new_copy(max_bytes=size)
    copy.take(fetched(log, 0))
    assert copy.next_piece(now_ms=0, small_bytes=1_000) is not None
    copy.doubt(ERROR)
    assert copy.state is CopyState.DRAINING
    assert str(copy.error) == str(ERROR)
    assert (copy.has_work, copy.queued_bytes, copy.is_drained) == (False, 0, False)
    assert copy.next_piece(now_ms=0, small_bytes=1_000) is None
    assert copy.entry.n == 0


def test_settling_goes_on_from_the_entry_that_was_found() -> None:
    log, size = large_batches(3)
    copy = new_copy(max_bytes=size)
    copy.take(fetched(log, 0))
    copy.next_piece(now_ms=0, small_bytes=1_000)
    copy.doubt(ERROR)
    copy.in_flight.clear()
    copy.enter(CopyState.WAITING)
    copy.enter(CopyState.SETTLING)
    found = ENTRY.moved(n=2, source_offset=2, target_offset=7, our_end=7, run_source=2, run_target=7)
    copy.settled(found)
    assert copy.dirty
    assert copy.fetch_offset == 2
    copy.take(fetched(log, 2))
    piece = copy.next_piece(now_ms=0, small_bytes=1_000)
    assert piece is not None
    assert (piece.base_n, piece.source_start, piece.target_offset) == (2, 2, 7)


def test_a_released_copy_sends_nothing() -> None:
    log, _ = large_batches(1)
    copy = new_copy()
    copy.take(fetched(log, 0))
    copy.doubt(ERROR)
    copy.enter(CopyState.WAITING)
    copy.release(ERROR)
    assert not copy.has_work
    assert copy.next_piece(now_ms=0, small_bytes=1_000) is None


# -- the pipeline ----------------------------------------------------------------------------


def test_five_batches_are_in_flight_at_most() -> None:
    log, size = large_batches(8)
    copy = new_copy(max_bytes=size)
    copy.take(fetched(log, 0))
    pieces = [copy.next_piece(now_ms=0, small_bytes=1_000) for _ in range(8)]
    assert [piece is not None for piece in pieces] == [True] * MAX_IN_FLIGHT + [False] * 3
    copy.acknowledged(0)
    assert copy.next_piece(now_ms=0, small_bytes=1_000) is not None
    assert copy.next_piece(now_ms=0, small_bytes=1_000) is None


def test_behind_a_record_that_the_broker_may_have_forgotten_one_batch_is_in_flight() -> None:
    log, size = large_batches(4, timestamp=5_000)
    copy = new_copy(max_bytes=size)
    copy.take(fetched(log, 0))
    old = 5_000 + MEMORY_MS + 1
    for base in (0, 2):
        assert copy.next_piece(now_ms=old, small_bytes=1_000) is not None
        assert copy.next_piece(now_ms=old, small_bytes=1_000) is None
        copy.acknowledged(base)
    assert copy.next_piece(now_ms=old - 1, small_bytes=1_000) is not None
    assert copy.next_piece(now_ms=old - 1, small_bytes=1_000) is not None


def test_what_the_broker_remembers_is_unknown_until_the_first_answer() -> None:
    now_ms = 1_000_000_000_000
    log, size = large_batches(8, timestamp=now_ms)
    copy = new_copy(max_bytes=size)
    copy.take(fetched(log, 0))
    assert copy.next_piece(now_ms=now_ms, small_bytes=1_000) is not None
    assert copy.next_piece(now_ms=now_ms, small_bytes=1_000) is None
    copy.acknowledged(0)
    pieces = [copy.next_piece(now_ms=now_ms, small_bytes=1_000) for _ in range(7)]
    assert sum(piece is not None for piece in pieces) == MAX_IN_FLIGHT


@pytest.mark.parametrize("n", [0, 5, SEQUENCE_MODULUS - 1, SEQUENCE_MODULUS - 3, 7 * SEQUENCE_MODULUS - 2])
def test_sequences_are_contiguous_and_wrap(n: int) -> None:
    log, size = large_batches(4)
    copy = new_copy(ENTRY.moved(n=n, count=3, target_offset=50), max_bytes=size)
    copy.take(fetched(log, 0))
    target = FakePartition(1, [1])
    target.end = 50
    while (piece := copy.next_piece(now_ms=0, small_bytes=1_000)) is not None:
        answer = target.produce(bytes(piece.data))
        assert answer.error_code == 0
        assert answer.base_offset == piece.target_offset
        copy.acknowledged(answer.base_offset)
    assert [header.base_sequence for header in target.headers()] == [
        (n + done) % SEQUENCE_MODULUS for done in range(0, 8, 2)
    ]
    assert {(header.producer_id, header.producer_epoch) for header in target.headers()} == {(PRODUCER_ID, 3)}
    assert copy.entry.n == n + 8


# -- what is passed over ---------------------------------------------------------------------


def test_the_position_moves_over_batches_that_hold_nothing() -> None:
    log = FakePartition(1, [1])
    log.store(empty_batch(4))
    copy = new_copy(ENTRY.moved(target_offset=9, run_target=9))
    copy.take(fetched(log, 0))
    assert (copy.entry.source_offset, copy.entry.target_offset) == (4, 9)
    assert (copy.entry.run_source, copy.entry.run_target) == (4, 9)
    assert copy.dirty
    assert not copy.has_work


def test_what_holds_nothing_behind_a_piece_in_flight_moves_the_position_with_it() -> None:
    log = FakePartition(1, [1])
    log.store(plain_batch(0, 2))
    copy = new_copy()
    copy.take(fetched(log, 0))
    assert copy.next_piece(now_ms=0, small_bytes=1_000) is not None
    log.store(empty_batch(3))
    copy.take(fetched(log, 2))
    assert copy.entry.source_offset == 0
    copy.acknowledged(0)
    assert (copy.entry.source_offset, copy.entry.target_offset) == (5, 2)
    assert (copy.entry.run_source, copy.entry.run_target) == (5, 2)


def test_the_source_end_is_the_last_stable_offset_with_read_committed() -> None:
    log = FakePartition(1, [1])
    log.store(plain_batch(0, 2))
    log.store(as_transactional(plain_batch(2, 2), 7))
    for committed, end in ((True, 2), (False, 4)):
        copy = new_copy(read_committed=committed)
        copy.take(fetched(log, 0, committed=committed))
        assert copy.entry.source_end == end


@pytest.mark.parametrize("at", [16, 200], ids=["header", "records"])
def test_a_damaged_batch_is_named_and_those_before_it_are_sent(at: int) -> None:
    log, size = large_batches(3)
    log.batches[1][min(at, size - 1)] ^= 0x55
    copy = new_copy(max_bytes=size)
    answer = fetched(log, 0)
    sent = []
    with pytest.raises(CorruptBatch) as caught:  # noqa: PT012 - found by the walk or by the checksum
        copy.take(answer)
        while (piece := copy.next_piece(now_ms=0, small_bytes=1_000)) is not None:
            sent.append(piece.source_start)
    assert "t-0" in caught.value.where
    assert sent in ([], [0])


# -- against a model -------------------------------------------------------------------------


class Step(NamedTuple):
    """One event in the source's log: a batch of a producer (0 has no transactions), or its marker."""

    producer: int
    kind: str
    size: int = 1
    gap: int = 0


steps = st.lists(
    st.builds(
        Step,
        producer=st.integers(0, 3),
        kind=st.sampled_from(["batch", "batch", "batch", "commit", "abort", "empty"]),
        size=st.integers(1, 4),
        gap=st.sampled_from([0, 0, 0, 2]),
    ),
    max_size=25,
)


class Model:
    """A log, and what a reader sees of it, worked out transaction by transaction."""

    def __init__(self, events: Sequence[Step]) -> None:
        self.log = FakePartition(1, [1])
        self._offsets: dict[int, str] = {}
        """State of each offset with a record: "seen", "aborted" or "open <producer>"."""
        for event in events:
            self._play(event)

    def _play(self, event: Step) -> None:
        log, pending = self.log, f"open {event.producer}"
        if event.kind == "empty":
            log.store(empty_batch(event.size), gap=event.gap)
        elif event.kind == "batch" or not event.producer or pending not in self._offsets.values():
            batch = plain_batch(log.end + event.gap, event.size)
            if event.producer:
                batch = as_transactional(batch, event.producer)
            base = log.store(batch, gap=event.gap)
            state = pending if event.producer else "seen"
            self._offsets.update(dict.fromkeys(range(base, base + event.size), state))
        else:
            commit = event.kind == "commit"
            log.end_transaction(event.producer, commit=commit)
            for offset, state in self._offsets.items():
                if state == pending:
                    self._offsets[offset] = "seen" if commit else "aborted"

    def visible(self, start: int, *, committed: bool) -> list[int]:
        """Offsets of the records that a reader gets from `start` on; a record's value is its offset."""
        if not committed:
            return [offset for offset in self._offsets if offset >= start]
        stable = self.log.last_stable_offset
        return [offset for offset, state in self._offsets.items() if start <= offset < stable and state == "seen"]


def check_entry(entry: Entry, source_offsets: list[int], start: int, target_start: int) -> None:
    """The entry says how far the copy is, and its open run maps every offset in it."""
    copied = [offset for offset in source_offsets if start <= offset < entry.source_offset]
    assert entry.n == len(copied)
    assert entry.target_offset == entry.our_end == target_start + entry.n
    assert entry.target_offset - entry.run_target == entry.source_offset - entry.run_source
    for index, offset in enumerate(copied):
        if offset >= entry.run_source:
            assert target_start + index == offset - entry.run_source + entry.run_target


@settings(max_examples=200)
@given(events=steps, committed=st.booleans(), data=st.data())
def test_copying_gives_exactly_what_a_reader_sees(events: list[Step], committed: bool, data: st.DataObject) -> None:
    model = Model(events)
    log = model.log
    stable = log.last_stable_offset if committed else log.end
    end = max((header.next_offset for header in log.headers() if header.next_offset <= stable), default=0)
    start = data.draw(st.integers(0, end), label="position")
    limit = data.draw(st.sampled_from([1, 150, 400, NO_LIMIT]), label="fetch limit")
    max_bytes = data.draw(st.sampled_from([75, 120, 200, 1 << 20]), label="target's limit")
    target = FakePartition(1, [1])
    target.end = 1_000
    entry = ENTRY.moved(source_offset=start, run_source=start, target_offset=1_000, our_end=1_000, run_target=1_000)
    copy = new_copy(entry, read_committed=committed, max_bytes=max_bytes)
    expected = model.visible(start, committed=committed)
    answers: list[int] = []
    while True:
        before = copy.fetch_offset
        if before < end and copy.queued_bytes < 300:
            copy.take(fetched(log, before, committed=committed, limit=limit))
            assert copy.fetch_offset > before, "a fetch that has batches moves on"
        piece = copy.next_piece(now_ms=0, small_bytes=data.draw(st.sampled_from([0, 80, 100_000])))
        if piece is not None:
            check_crc(piece.data)
            answers.append(target.produce(bytes(piece.data)).base_offset)
        if answers and (piece is None or data.draw(st.booleans())):
            copy.acknowledged(answers.pop(0))
            check_entry(copy.entry, expected, start, 1_000)
        if not answers and piece is None and copy.fetch_offset >= end:
            break
    assert not copy.has_work
    assert copy.queued_bytes == 0
    assert [int(value or b"-1") for value in target.values()] == expected
    assert copy.entry.source_offset == end
    assert copy.entry.bytes_copied == copy.bytes == sum(map(len, target.batches))
    assert copy.records == len(expected)
    check_entry(copy.entry, expected, start, 1_000)
    assert [parse_header(batch).base_sequence for batch in target.batches] == [
        header.base_offset - 1_000 for header in target.headers()
    ]


def test_a_producer_that_aborts_and_then_commits() -> None:
    """The abort's marker ends its transaction only: the same producer's next one is read."""
    model = Model([Step(1, "batch"), Step(2, "batch"), Step(1, "abort"), Step(1, "batch"), Step(1, "commit")])
    model.log.end_transaction(2, commit=True)
    copy = new_copy(read_committed=True)
    copy.take(fetched(model.log, 0, committed=True))
    target = FakePartition(1, [1])
    while (piece := copy.next_piece(now_ms=0, small_bytes=1_000)) is not None:
        copy.acknowledged(target.produce(bytes(piece.data)).base_offset)
    assert target.values() == [b"1", b"3"]
    assert copy.entry.source_offset == model.log.end


def test_a_fetch_that_begins_in_the_middle_of_an_aborted_transaction() -> None:
    model = Model([Step(1, "batch", 3), Step(0, "batch", 1), Step(1, "batch", 2), Step(1, "abort"), Step(0, "batch")])
    copy = new_copy(ENTRY.moved(source_offset=2, run_source=2), read_committed=True)
    copy.take(fetched(model.log, 2, committed=True))
    target = FakePartition(1, [1])
    while (piece := copy.next_piece(now_ms=0, small_bytes=1_000)) is not None:
        copy.acknowledged(target.produce(bytes(piece.data)).base_offset)
    assert target.values() == [b"3", b"7"]
