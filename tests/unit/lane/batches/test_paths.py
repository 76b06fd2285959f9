"""Which path batches take; and that whatever the path, exactly the records from the position on arrive."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch
from heliograph.kafka.batch import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    BatchHeader,
    NewRecord,
    Record,
    check_crc,
    encode_batch,
    iter_batches,
    iter_records,
    parse_header,
)
from heliograph.lane.batches.paths import (
    COMPRESSED_SHARE,
    FEW_RECORDS,
    FEW_RECORDS_BYTES,
    MAX_MERGED_BATCHES,
    MAX_SMALL_BYTES,
    next_parts,
    small_bytes_at,
)
from heliograph.lane.batches.records import MERGED_BYTES, Chunk
from tests.unit.helpers.logs import at_offset

NO_LIMIT = 1 << 20
LZ4 = 3
Batch = tuple[BatchHeader, memoryview]


def batch_at(offset: int, count: int, *, value_bytes: int = 10, codec: int = 0, attributes: int = 0) -> Batch:
    """A batch as it stands in the source's log, with values that do not compress."""
    values = [
        b"%020d" % (offset + index) + bytes((7 * index + 31 * pos) & 0xFF for pos in range(value_bytes))
        for index in range(count)
    ]
    data = encode_batch([NewRecord(1_000 + offset, b"k", value) for value in values], codec=codec)
    struct.pack_into(">h", data, 21, codec | attributes)
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    view = memoryview(at_offset(data, offset))
    return parse_header(view), view


def parts_of(
    queue: Sequence[Batch],
    *,
    position: int = 0,
    max_bytes: int = NO_LIMIT,
    codec: int | None = None,
    small_bytes: int = 0,
) -> tuple[int, list[Chunk]]:
    return next_parts(
        queue, position=position, max_bytes=max_bytes, codec=codec, small_bytes=small_bytes, where="a->b t-0"
    )


def is_whole(batch: Batch, chunks: list[Chunk]) -> bool:
    """The batch was handed on as it stands, not copied."""
    return len(chunks) == 1 and isinstance(chunks[0].data, memoryview) and chunks[0].data.obj is batch[1].obj


# -- which path ------------------------------------------------------------------------------


@pytest.mark.parametrize("small_bytes", [0, MAX_SMALL_BYTES])
def test_a_batch_alone_goes_whole_however_small(small_bytes: int) -> None:
    batch = batch_at(5, 1)
    taken, chunks = parts_of([batch], position=5, small_bytes=small_bytes)
    assert taken == 1
    assert is_whole(batch, chunks)
    assert (chunks[0].source_start, chunks[0].source_end, chunks[0].record_count) == (5, 6, 1)
    assert chunks[0].runs == ((5, 1),)


def test_several_batches_of_few_records_are_merged_wherever_the_target_is() -> None:
    queue = [batch_at(number, 1) for number in range(10)]
    taken, chunks = parts_of(queue, small_bytes=0)
    assert taken == 10
    assert [chunk.record_count for chunk in chunks] == [10]
    assert (chunks[0].source_start, chunks[0].source_end) == (0, 10)


def test_batches_of_many_records_are_merged_only_below_the_size_that_pays() -> None:
    count = FEW_RECORDS + 1
    queue = [batch_at(number * count, count) for number in range(3)]
    size = queue[0][0].size
    assert parts_of(queue, small_bytes=size)[0] == 1
    assert parts_of(queue, small_bytes=size + 1)[0] == 3


def test_few_but_heavy_records_go_whole() -> None:
    queue = [batch_at(number, 1, value_bytes=FEW_RECORDS_BYTES) for number in range(3)]
    assert parts_of(queue, small_bytes=0)[0] == 1
    assert parts_of(queue, small_bytes=MAX_SMALL_BYTES)[0] == 3


def test_compressed_batches_count_as_small_below_a_share_only() -> None:
    count = FEW_RECORDS + 1
    queue = [batch_at(number * count, count, codec=LZ4) for number in range(3)]
    assert parts_of(queue, small_bytes=COMPRESSED_SHARE * queue[0][0].size)[0] == 1
    largest = max(header.size for header, _ in queue)
    taken, chunks = parts_of(queue, small_bytes=COMPRESSED_SHARE * (largest + 1))
    assert taken == 3
    assert [parse_header(chunk.data).codec for chunk in chunks] == [LZ4]


def test_a_nearer_target_wants_less_merging() -> None:
    assert small_bytes_at(0.0, 5) == 0
    assert small_bytes_at(0.001, 5) == 10_000
    assert small_bytes_at(0.005, 5) == 50_000
    assert small_bytes_at(0.005, 1) == MAX_SMALL_BYTES
    assert small_bytes_at(10.0, 5) == MAX_SMALL_BYTES


@pytest.mark.parametrize(
    "other",
    [
        batch_at(2, 1, codec=LZ4),
        batch_at(2, 1, value_bytes=FEW_RECORDS_BYTES),
        batch_at(2, 1, attributes=LOG_APPEND_TIME),
        batch_at(2, 1, attributes=DELETE_HORIZON),
    ],
    ids=["other codec", "large", "log append time", "delete horizon"],
)
def test_merging_stops_before_what_is_not_alike(other: Batch) -> None:
    taken, chunks = parts_of([batch_at(0, 1), batch_at(1, 1), other, batch_at(3, 1)])
    assert taken == 2
    assert [chunk.record_count for chunk in chunks] == [2]


def test_a_transactions_batches_are_merged_and_copied_like_others() -> None:
    queue = [batch_at(number, 1, attributes=TRANSACTIONAL) for number in range(2)]
    assert parts_of(queue)[0] == 2
    assert is_whole(queue[0], parts_of(queue[:1])[1])


def test_merged_batches_stay_within_the_targets_limit() -> None:
    queue = [batch_at(number, 1, value_bytes=900) for number in range(50)]
    taken, chunks = parts_of(queue, max_bytes=5_000)
    assert 1 < taken < 50
    assert all(chunk.size <= 5_000 for chunk in chunks)


def test_merged_batches_stay_within_the_size_that_serves_best() -> None:
    queue = [batch_at(number, 1, value_bytes=20_000) for number in range(40)]
    taken, chunks = parts_of(queue, max_bytes=10 * MERGED_BYTES)
    assert 20 < taken < 40
    assert all(chunk.size <= MERGED_BYTES for chunk in chunks)


def test_no_more_than_so_many_batches_are_merged_at_once() -> None:
    one = batch_at(0, 1)
    assert parts_of([one] * (MAX_MERGED_BATCHES + 5), max_bytes=1 << 30)[0] <= MAX_MERGED_BATCHES


@pytest.mark.parametrize("source_codec", [0, 1, 4])
def test_the_codec_asked_for_is_written(source_codec: int) -> None:
    batch = batch_at(0, 5, codec=source_codec)
    taken, chunks = parts_of([batch], codec=LZ4)
    assert taken == 1
    assert [parse_header(chunk.data).codec for chunk in chunks] == [LZ4]


def test_a_batch_that_has_the_codec_asked_for_goes_whole() -> None:
    batch = batch_at(0, 5, codec=LZ4)
    assert is_whole(batch, parts_of([batch], codec=LZ4)[1])


def test_a_batch_over_the_targets_limit_is_split() -> None:
    batch = batch_at(0, 10, value_bytes=500)
    taken, chunks = parts_of([batch], max_bytes=2_000)
    assert taken == 1
    assert len(chunks) > 1
    assert all(chunk.size <= 2_000 for chunk in chunks)
    assert chunks[-1].source_end == 10


@pytest.mark.parametrize(("position", "records"), [(3, 7), (9, 1), (10, 0)])
def test_a_batch_that_begins_before_the_position_gives_the_rest_only(position: int, records: int) -> None:
    taken, chunks = parts_of([batch_at(0, 10)], position=position)
    assert taken == 1
    assert sum(chunk.record_count for chunk in chunks) == records
    assert [chunk.source_start for chunk in chunks] == ([position] if records else [])


@pytest.mark.parametrize("codec", [None, 0, LZ4])
@pytest.mark.parametrize("count", [1, 2])
def test_damage_is_found_on_every_path(codec: int | None, count: int) -> None:
    queue = [batch_at(number, 1) for number in range(count)]
    queue[0][1][-1] ^= 1
    with pytest.raises(CorruptBatch) as caught:
        parts_of(queue, codec=codec)
    assert caught.value.where == "a->b t-0"


# -- whatever the path -----------------------------------------------------------------------


@st.composite
def logs(draw: st.DrawFn) -> list[Batch]:
    """A stretch of a source's log: batches of all sizes and kinds, with gaps between and inside them."""
    batches = []
    offset = draw(st.integers(0, 5))
    for _ in range(draw(st.integers(1, 8))):
        offset += draw(st.sampled_from([0, 0, 0, 3]))
        count = draw(st.sampled_from([1, 1, 2, FEW_RECORDS + 1]))
        codec = draw(st.sampled_from([0, 0, 1, 3]))
        attributes = draw(st.sampled_from([0, 0, 0, LOG_APPEND_TIME, TRANSACTIONAL, DELETE_HORIZON]))
        size = draw(st.sampled_from([0, 50, 2_000]))
        _, view = batch_at(offset, count, value_bytes=size, codec=codec, attributes=attributes)
        tail = draw(st.sampled_from([0, 0, 2]))
        if tail:  # compaction took the last records of the batch, their offsets stay
            struct.pack_into(">i", view, 23, count - 1 + tail)
            struct.pack_into(">I", view, 17, crc32c(view[21:]))
        batches.append((parse_header(view), view))
        offset += count + tail
    return batches


def seen(batches: Sequence[Batch], position: int) -> list[Record]:
    return [
        record
        for header, view in batches
        for record in iter_records(header, view)
        if record.offset >= position and header.next_offset > position
    ]


@settings(max_examples=150)
@given(
    log=logs(),
    skipped=st.integers(0, 12),
    max_bytes=st.sampled_from([150, 400, 3_000, NO_LIMIT]),
    codec=st.sampled_from([None, None, 0, 2, 4]),
    small_bytes=st.sampled_from([0, 500, MAX_SMALL_BYTES]),
)
def test_the_chunks_hold_exactly_the_records_from_the_position_on(
    log: list[Batch], skipped: int, max_bytes: int, codec: int | None, small_bytes: int
) -> None:
    start = min(log[0][0].base_offset + skipped, log[-1][0].next_offset - 1)
    queue = [batch for batch in log if batch[0].next_offset > start]
    expected = seen(queue, start)
    position = start
    arrived: list[tuple[int, int, bytes | None, bytes | None]] = []
    while queue:
        taken, chunks = parts_of(queue, position=position, max_bytes=max_bytes, codec=codec, small_bytes=small_bytes)
        assert taken >= 1
        end = queue[taken - 1][0].next_offset
        for chunk in chunks:
            assert chunk.source_start >= position, "chunks follow one another"
            arrived += _check_chunk(chunk, max_bytes)
            position = chunk.source_end
        assert not chunks or position == end
        position, queue = end, queue[taken:]
    assert arrived == [(record.offset, record.timestamp, record.key, record.value) for record in expected]


def _check_chunk(chunk: Chunk, max_bytes: int) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """One chunk's records at the source offsets that its runs give them."""
    view = memoryview(chunk.data)
    check_crc(view)
    ((header, _),) = iter_batches(view)
    assert header.is_contiguous
    assert header.record_count == chunk.record_count == sum(length for _, length in chunk.runs)
    assert chunk.size <= max_bytes or chunk.record_count == 1
    assert chunk.source_start == chunk.runs[0][0]
    records = list(iter_records(header, view))
    assert [record.offset - header.base_offset for record in records] == list(range(len(records)))
    assert chunk.max_timestamp == header.max_timestamp == max(record.timestamp for record in records)
    offsets = [start + index for start, length in chunk.runs for index in range(length)]
    assert offsets[-1] < chunk.source_end
    return [(offset, r.timestamp, r.key, r.value) for offset, r in zip(offsets, records, strict=True)]
