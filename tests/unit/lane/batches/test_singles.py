"""Merging one-record batches gives what the record path gives."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import CorruptBatch
from heliograph.kafka.batch import NewRecord, Record, encode_batch, iter_batches, iter_records, parse_header
from heliograph.lane.batches.records import Chunk
from heliograph.lane.batches.singles import merge_singles
from tests.unit.helpers.logs import at_offset

LIMIT = 1 << 20

values = st.binary(min_size=60, max_size=300)
stamps = st.integers(1_000_000, 1_000_400) | st.integers(0, 2_000_000)
headers = st.lists(st.tuples(st.sampled_from(["a", "b"]), st.none() | st.binary(max_size=3)), max_size=2)
records_to_write = st.builds(NewRecord, stamps, st.none() | st.binary(max_size=5), values, headers)


def log_of(batches: list[list[NewRecord]], *, gap_at: int = -1, start: int = 0) -> bytearray:
    data, offset = bytearray(), start
    for index, batch in enumerate(batches):
        offset += 5 if index == gap_at else 0
        data += at_offset(encode_batch(batch), offset)
        offset += len(batch)
    return data


def written(chunks: list[Chunk]) -> list[tuple[object, ...]]:
    return [
        (chunk.source_start + record.offset, *record[1:])
        for chunk in chunks
        for record in iter_records(parse_header(chunk.data), memoryview(chunk.data))
    ]


def read(data: bytearray) -> list[Record]:
    return [record for header, view in iter_batches(memoryview(data)) for record in iter_records(header, view)]


@given(st.lists(records_to_write, min_size=2, max_size=40), st.sampled_from([600, 2_000, LIMIT]))
def test_chunks_hold_the_same_records_within_the_limit(records: list[NewRecord], limit: int) -> None:
    data = log_of([[record] for record in records], start=7)
    chunks, taken = merge_singles(memoryview(data), position=7, max_bytes=limit)
    assert taken == len(data)
    assert written(chunks) == [tuple(record) for record in read(data)]
    assert all(len(chunk.data) <= limit for chunk in chunks if chunk.record_count > 1)
    assert [chunk.source_end for chunk in chunks[:-1]] == [chunk.source_start for chunk in chunks[1:]]
    for chunk in chunks:
        header = parse_header(chunk.data)
        assert (header.record_count, header.is_contiguous) == (chunk.record_count, True)
        assert chunk.max_timestamp == max(record.timestamp for record in iter_records(header, memoryview(chunk.data)))


@given(st.lists(st.lists(records_to_write, min_size=1, max_size=3), max_size=8), st.integers(-1, 7))
def test_what_is_not_plain_is_left_and_nothing_is_skipped(batches: list[list[NewRecord]], gap_at: int) -> None:
    data = log_of(batches, gap_at=gap_at)
    chunks, taken = merge_singles(memoryview(data), position=0, max_bytes=LIMIT)
    rest = read(data[taken:])
    assert written(chunks) + [tuple(record) for record in rest] == [tuple(record) for record in read(data)]
    assert not chunks or chunks[-1].source_end <= (rest[0].offset if rest else 1 << 60)


def plain(value: bytes = b"x" * 100) -> list[NewRecord]:
    return [NewRecord(1_000, b"k", value)]


def test_a_lone_record_is_left_to_be_sent_whole() -> None:
    assert merge_singles(memoryview(log_of([plain()])), position=0, max_bytes=LIMIT) == ([], 0)


def test_records_before_the_position_are_left_to_the_record_path() -> None:
    data = log_of([plain(), plain(), plain()])
    assert merge_singles(memoryview(data), position=1, max_bytes=LIMIT) == ([], 0)


def test_a_batch_that_is_cut_off_is_left() -> None:
    data = log_of([plain(), plain(), plain()])
    chunks, taken = merge_singles(memoryview(data)[:-1], position=0, max_bytes=LIMIT)
    assert (chunks[0].record_count, taken) == (2, len(data) // 3 * 2)


@pytest.mark.parametrize("attributes", [1, 8, 32, 64])
def test_compressed_stamped_control_and_horizon_batches_are_left(attributes: int) -> None:
    data = log_of([plain(), plain()]) + at_offset(encode_batch(plain()), 2, attributes=attributes)
    chunks, taken = merge_singles(memoryview(data), position=0, max_bytes=LIMIT)
    assert (len(chunks), taken) == (1, len(data) // 3 * 2)


def test_every_damaged_byte_is_noticed_or_left() -> None:
    data = log_of([plain(), plain()])
    for at in range(21, len(data) // 2):
        damaged = bytearray(data)
        damaged[at] ^= 0x40
        try:
            chunks, _ = merge_singles(memoryview(damaged), position=0, max_bytes=LIMIT)
        except CorruptBatch:
            continue
        assert not chunks
