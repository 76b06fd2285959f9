"""Marks of provenance: each copy adds one, and what comes home is left out; copying and settling by that rule."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch, DataError, PositionUnproven, SecondWriter, TargetTruncated
from heliograph.kafka.batch import NewRecord, Record, encode_batch, iter_records, parse_header, seal_batch
from heliograph.kafka.codec.primitives import encode_varint
from heliograph.lane.batches.provenance import KEY, Marks, mark_of
from heliograph.lane.batches.records import reencode
from heliograph.lane.partition_copy import PartitionCopy
from heliograph.lane.settling import Settled, settle
from heliograph.ledger.model import MEMORY_MS
from heliograph.ledger.partition_ledger import PartitionLedger
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Run
from heliograph.ledger.runs import OpenPage
from heliograph.ledger.tail import Unsettled, look_between, read_tails
from heliograph.ledger.translation import Grade
from tests.unit.helpers.logs import ASSIGNMENT, ENTRY, PRODUCER_ID, MemoryLog, new_records, plain_batch

HERE, THERE, ELSEWHERE = mark_of("id-a", "t"), mark_of("id-b", "t"), mark_of("id-c", "t")
NO_LIMIT = 1 << 30


def marks() -> Marks:
    return Marks(HERE, THERE)


def marked(records: list[NewRecord], *, codec: int = 0, max_bytes: int = NO_LIMIT) -> list[Record]:
    """What the record path makes of one batch."""
    batch = encode_batch(records, codec=codec)
    chunks = reencode([(parse_header(batch), memoryview(batch))], position=0, max_bytes=max_bytes, marks=marks())
    assert {parse_header(chunk.data).codec for chunk in chunks} <= {codec}
    assert all(chunk.size <= max_bytes or chunk.record_count == 1 for chunk in chunks)
    assert sum(chunk.record_count for chunk in chunks) == sum(n for chunk in chunks for _, n in chunk.runs)
    return [record for chunk in chunks for record in iter_records(parse_header(chunk.data), memoryview(chunk.data))]


header_names = st.one_of(st.just(KEY), st.just(KEY[:-1]), st.text(max_size=5))
header_values = st.one_of(st.none(), st.sampled_from([HERE, THERE, ELSEWHERE, b""]), st.binary(max_size=200))
contents = st.one_of(
    st.none(),
    st.binary(max_size=8),
    st.binary(min_size=60, max_size=70),
    st.just(Marks(HERE, THERE)._target_header),  # in a value it means nothing
    st.just(bytes(9_000)),
)
records_to_copy = st.lists(
    st.builds(
        NewRecord,
        st.integers(0, 1 << 41),
        contents,
        contents,
        st.one_of(
            st.lists(st.tuples(header_names, header_values), max_size=4),
            st.integers(60, 66).map(lambda count: [("many", None)] * count),
        ),
    ),
    min_size=1,
    max_size=8,
)


@given(records=records_to_copy, codec=st.sampled_from([0, 1, 3]), max_bytes=st.sampled_from([NO_LIMIT, 10_000]))
def test_each_copy_gets_exactly_one_header_and_what_comes_home_has_none(
    records: list[NewRecord], codec: int, max_bytes: int
) -> None:
    kept = [record for record in records if (KEY, THERE) not in record.headers]
    copied = marked(records, codec=codec, max_bytes=max_bytes)
    assert [(record.timestamp, record.key, record.value, record.headers) for record in copied] == [
        (record.timestamp, record.key, record.value, (*record.headers, (KEY, HERE))) for record in kept
    ]


@given(records=records_to_copy)
def test_both_forms_of_the_rule_agree(records: list[NewRecord]) -> None:
    batch = encode_batch(records)
    whole = [marks().of(record) for record in iter_records(parse_header(batch), memoryview(batch))]
    assert [record.headers for record in marked(records)] == [record.headers for record in whole if record is not None]


def test_what_came_home_is_counted() -> None:
    rule = marks()
    batch = encode_batch([NewRecord(0, b"k", b"v", [(KEY, mark)]) for mark in (THERE, HERE, THERE, ELSEWHERE)])
    [chunk] = reencode([(parse_header(batch), memoryview(batch))], position=0, max_bytes=NO_LIMIT, marks=rule)
    assert (chunk.record_count, rule.left_out) == (2, 2)
    assert (chunk.source_start, chunk.source_end, chunk.runs) == (1, 4, ((1, 1), (3, 1)))


def test_a_mark_of_another_topic_is_no_sign_of_home() -> None:
    """Kafka Streams hands headers on to what it makes of a record."""
    derived = NewRecord(0, b"k", b"v", [(KEY, mark_of("id-b", "t-input"))])
    assert [record.headers for record in marked([derived])] == [((KEY, mark_of("id-b", "t-input")), (KEY, HERE))]


@pytest.mark.parametrize(
    "rest",
    [
        b"",
        b"\x01",
        b"\x01\x01",
        b"\x03\x01\x00",
        b"\x01\x03\x00",
        b"\xff\xff\xff\xff\xff\xff",
        b"\x01\x01\x81\x01",
        b"\x7f" * 3,
        b"\x01\x7e\x00",
    ],
)
def test_bytes_that_are_no_record_are_a_corrupt_batch(rest: bytes) -> None:
    body = b"\x00\x00\x00" + rest
    data = seal_batch([encode_varint(len(body)) + body], codec=0, record_count=1, base_timestamp=0, max_timestamp=0)
    with pytest.raises(CorruptBatch, match=r"offset 0|records end early"):
        reencode([(parse_header(data), memoryview(data))], position=0, max_bytes=NO_LIMIT, marks=marks(), where="t-0")


# -- copying between two clusters ------------------------------------------------------------


class Batch(NamedTuple):
    """A batch of the source: which of its records came from the target, the codec, offsets missing before it."""

    home: tuple[bool, ...]
    codec: int = 0
    gap: int = 0


batches_of_source = st.lists(
    st.builds(
        Batch,
        st.lists(st.booleans(), min_size=1, max_size=5).map(tuple),
        st.sampled_from([0, 0, 1, 3]),
        st.sampled_from([0, 0, 0, 1, 5]),
    ),
    min_size=1,
    max_size=10,
)


def make_source(shapes: list[Batch]) -> MemoryLog:
    source, number = MemoryLog(), 0
    for shape in shapes:
        records = [
            record._replace(headers=[(KEY, THERE)] if home else [])
            for record, home in zip(new_records(number, len(shape.home)), shape.home, strict=True)
        ]
        source.append(encode_batch(records, codec=shape.codec), gap=shape.gap)
        number += len(shape.home)
    return source


def own_numbers(shapes: list[Batch]) -> list[bytes]:
    """Of the records that are to be copied."""
    home = [is_home for shape in shapes for is_home in shape.home]
    return [b"%d" % number for number, is_home in enumerate(home) if not is_home]


class Copied(NamedTuple):
    entries: list[Entry]
    copy: PartitionCopy


def copy_all(source: MemoryLog, target: MemoryLog, entry: Entry = ENTRY, *, foreign: list[int] | None = None) -> Copied:
    """Copy what the source has as a lane does; `foreign` are records of others before each piece."""
    others = iter(foreign or [])
    copy = PartitionCopy(ASSIGNMENT, producer_id=PRODUCER_ID, read_committed=False, codec=None, marks=marks())
    copy.settled(entry)
    copy.take(source.fetched(entry.source_offset))
    entries = [copy.entry]
    while (piece := copy.next_piece(now_ms=0, small_bytes=1000)) is not None:
        if count := next(others, 0):
            target.append(plain_batch(900, count))
        copy.acknowledged(target.append(piece.data))
        entries.append(copy.entry)
    entries.append(copy.entry)  # what came home behind the last piece moved the position
    return Copied(entries, copy)


def settle_now(entry: Entry, source: MemoryLog, target: MemoryLog, by: Marks | None) -> Settled:
    async def settled() -> Settled:
        copy = Unsettled(ASSIGNMENT, entry, PRODUCER_ID)
        [tail] = await read_tails([copy], target.end, ours=[PRODUCER_ID], target=target)
        if isinstance(tail, DataError):
            raise tail
        return await settle(copy, tail, target.end, source, by)

    return asyncio.run(settled())


def ours(target: MemoryLog) -> list[Record]:
    return [record for record in target.records() if record.headers]


some_foreign = st.lists(st.integers(0, 3), max_size=12)


@given(shapes=batches_of_source, foreign=some_foreign)
def test_the_copy_has_the_sources_own_records_in_order_and_the_position_reaches_the_end(
    shapes: list[Batch], foreign: list[int]
) -> None:
    source, target = make_source(shapes), MemoryLog()
    [*_, last], copy = copy_all(source, target, foreign=foreign)
    assert [record.value for record in ours(target)] == own_numbers(shapes)
    assert {record.headers for record in ours(target)} <= {((KEY, HERE),)}
    assert last.source_offset == source.end == last.source_end, "no lag is left, whatever came home"
    assert last.n == len(own_numbers(shapes))
    assert copy.dirty
    assert copy.queued_bytes == 0


@given(shapes=batches_of_source, foreign=some_foreign, data=st.data())
def test_a_copy_with_crashes_in_between_has_every_record_once(
    shapes: list[Batch], foreign: list[int], data: st.DataObject
) -> None:
    whole, source, target, entry = make_source(shapes), MemoryLog(), MemoryLog(), ENTRY
    for batch in whole.stored:
        source.stored.append(batch)
        source.end = parse_header(batch).next_offset
        if data.draw(st.booleans()):
            target.append(plain_batch(800, 1))
        settled = settle_now(entry, source, target, marks())
        entries = copy_all(source, target, settled.entry, foreign=foreign).entries
        entry = entries[data.draw(st.integers(0, len(entries) - 1))]
    assert [record.value for record in ours(target)] == own_numbers(shapes)


@given(shapes=batches_of_source, foreign=some_foreign, data=st.data())
def test_settling_finds_count_and_runs_that_the_lost_lane_had(
    shapes: list[Batch], foreign: list[int], data: st.DataObject
) -> None:
    source, target = make_source(shapes), MemoryLog()
    entries = copy_all(source, target, foreign=foreign).entries
    known = entries[data.draw(st.integers(0, len(entries) - 1))]
    settled = settle_now(known, source, target, marks())
    assert settled.entry.n == entries[-1].n
    last = settled.entry
    open_run = Run(last.run_source, last.run_target, last.source_offset - last.run_source)
    found = {run.source + i: run.target + i for run in (*settled.closed, open_run) for i in range(run.length)}
    numbers = {record.value: record.offset for record in ours(target)}
    wanted = {
        record.offset: numbers[record.value]
        for record in source.records()
        if record.offset >= known.run_source and not record.headers
    }
    assert {s: t for s, t in found.items() if s in wanted} == wanted
    assert found.keys() <= wanted.keys()


@given(shapes=batches_of_source, foreign=some_foreign)
def test_a_groups_position_is_exact_between_records_that_came_home(shapes: list[Batch], foreign: list[int]) -> None:
    """It goes on at the copy of the next record that is the source's own."""
    source, target = make_source(shapes), MemoryLog()
    copy = copy_all(source, target, foreign=foreign).copy
    ledger = PartitionLedger()
    ledger.take_entry(copy.entry)
    for page in OpenPage(0, copy.page.runs).pages(0, copy.entry.run_source, copy.entry.run_target):
        ledger.take_page(page.start, page)
    copies = {record.value: record.offset for record in ours(target)}
    own = [(record.offset, copies[record.value]) for record in source.records() if not record.headers]
    for offset in range(source.end + 1):
        translated = ledger.translate(offset)
        assert translated is not None
        assert translated.grade is Grade.EXACT
        expected = next((at for source_offset, at in own if source_offset >= offset), copy.entry.target_offset)
        assert translated.offset == expected


def test_a_tail_whose_marks_are_not_ours_is_unproven() -> None:
    source, target = make_source([Batch((False, False))]), MemoryLog()
    batch = encode_batch([record._replace(headers=[(KEY, ELSEWHERE)]) for record in new_records(0, 2)])
    copy = PartitionCopy(ASSIGNMENT, producer_id=PRODUCER_ID, read_committed=False, codec=None, marks=marks())
    copy.settled(ENTRY)
    copy.take(source.fetched(0))
    piece = copy.next_piece(now_ms=0, small_bytes=0)
    assert piece is not None
    other = encode_batch(list(_as_new(batch)), producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
    target.append(other)
    with pytest.raises(PositionUnproven):
        settle_now(ENTRY, source, target, marks())


def _as_new(batch: bytearray) -> list[NewRecord]:
    return [
        NewRecord(record.timestamp, record.key, record.value, record.headers)
        for record in iter_records(parse_header(batch), memoryview(batch))
    ]


def test_a_count_without_marks_is_settled_without_them() -> None:
    source, target = make_source([Batch((False, False))]), MemoryLog()
    target.append(encode_batch(new_records(0, 2), producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0))
    with pytest.raises(PositionUnproven):
        settle_now(ENTRY, source, target, marks())
    plain = settle_now(ENTRY, source, target, None)
    assert plain.entry.n == 2


# -- what stands between two batches of ours -------------------------------------------------


def look(target: MemoryLog, entry: Entry, base_offset: int) -> None:
    asyncio.run(look_between(Unsettled(ASSIGNMENT, entry, PRODUCER_ID), base_offset, target=target))


def test_others_between_two_batches_of_ours_are_no_objection() -> None:
    source, target = make_source([Batch((False, False))]), MemoryLog()
    entry = copy_all(source, target).entries[-1]
    target.append(plain_batch(0, 3))
    base = target.append(plain_batch(9, 1), producer_id=PRODUCER_ID)
    look(target, entry, base)


def test_a_batch_of_ours_between_is_a_second_writer() -> None:
    source, target = make_source([Batch((False, False))]), MemoryLog()
    entry = copy_all(source, target).entries[-1]
    target.append(plain_batch(0, 1))
    target.append(plain_batch(0, 1), producer_id=PRODUCER_ID)
    with pytest.raises(SecondWriter):
        look(target, entry, target.end)


def test_our_last_batch_gone_from_before_them_is_a_truncated_target() -> None:
    source, target = make_source([Batch((False, False))]), MemoryLog()
    entry = copy_all(source, target).entries[-1]
    lost = MemoryLog()
    lost.append(plain_batch(0, 5))
    with pytest.raises(TargetTruncated):
        look(lost, entry, lost.end)


def test_what_stands_between_is_read_only_where_the_broker_may_have_forgotten_us() -> None:
    now_ms = 10 * MEMORY_MS
    copy = PartitionCopy(ASSIGNMENT, producer_id=PRODUCER_ID, read_committed=False, codec=None, marks=marks())
    copy.settled(ENTRY)
    source = MemoryLog()
    source.append(encode_batch([NewRecord(now_ms, b"k", b"v")]))
    source.append(encode_batch([NewRecord(5, b"k", b"v")], codec=1))
    copy.take(source.fetched(0))
    assert copy.next_piece(now_ms=now_ms, small_bytes=0) is not None
    assert copy.must_read(3, now_ms), "what the broker knows of us is not known yet"
    assert not copy.must_read(0, now_ms), "it stands where it should"
    copy.acknowledged(3)
    assert not copy.must_read(9, now_ms)
    assert copy.must_read(9, now_ms + MEMORY_MS + 1)
    assert copy.next_piece(now_ms=now_ms, small_bytes=0) is not None
    copy.acknowledged(9)
    assert copy.must_read(20, now_ms), "our last record is old"
