"""The record path against a plain model of the log and kafka-python's decoder."""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import cramjam
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from heliograph.errors import CorruptBatch
from heliograph.kafka.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    NewRecord,
    Record,
    check_crc,
    encode_batch,
    encode_record,
    iter_batches,
    iter_records,
    parse_header,
    rewrite_header,
)
from heliograph.kafka.compression import compress
from heliograph.lane.batches.records import Batch, Chunk, merge, reencode

NO_LIMIT = 1 << 20


class Source(NamedTuple):
    """One batch of a source's log: records with their offsets, which may have gaps."""

    records: tuple[Record, ...]
    base_offset: int
    next_offset: int
    attributes: int = 0
    base_timestamp: int = 0
    codec: int = 0

    @property
    def max_timestamp(self) -> int:
        return max((record.timestamp for record in self.records), default=-1)

    def seen(self) -> list[Record]:
        """What a consumer sees."""
        if self.attributes & CONTROL:
            return []
        if self.attributes & LOG_APPEND_TIME:
            return [record._replace(timestamp=self.max_timestamp) for record in self.records]
        return list(self.records)

    def encode(self) -> bytearray:
        body = b"".join(
            encode_record(r.offset - self.base_offset, r.timestamp - self.base_timestamp, r.key, r.value, r.headers)
            for r in self.records
        )
        body = bytes(compress(self.codec, body)) if body else b""
        out = bytearray(HEADER_SIZE) + body
        struct.pack_into(
            ">qiibIhiqqqhii",
            out,
            0,
            self.base_offset,
            len(out) - 12,
            7,
            2,
            0,
            self.attributes | self.codec,
            self.next_offset - 1 - self.base_offset,
            self.base_timestamp,
            self.max_timestamp,
            4000,
            1,
            17,
            len(self.records),
        )
        struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
        return out


def to_batches(log: Sequence[Source]) -> list[Batch]:
    return list(iter_batches(memoryview(bytearray().join(source.encode() for source in log))))


NULLABLE = st.none() | st.binary(max_size=70)
HEADERS = st.lists(st.tuples(st.sampled_from(["", "a", "a", "ü"]), NULLABLE), max_size=3)
TIMESTAMPS = st.sampled_from([-1, 0, 5, 1_700_000_000_000]) | st.integers(0, 1 << 42)
CODECS = st.integers(0, 4)
GAPS = st.sampled_from([0, 0, 0, 1, 2, 300])
RECORDS = st.lists(st.tuples(GAPS, TIMESTAMPS, NULLABLE, NULLABLE, HEADERS), max_size=8)
ATTRIBUTES = st.sampled_from([0, 0, 0, TRANSACTIONAL, LOG_APPEND_TIME, DELETE_HORIZON, CONTROL | TRANSACTIONAL])


@st.composite
def logs(draw: st.DrawFn, codecs: st.SearchStrategy[int] = CODECS) -> list[Source]:
    offset = draw(st.sampled_from([0, 7, 1 << 40]))
    log = []
    for _ in range(draw(st.integers(1, 5))):
        offset += draw(GAPS)
        base_offset = offset
        records = []
        for gap, timestamp, key, value, headers in draw(RECORDS):
            records.append(Record(offset + gap, timestamp, key, value, tuple(headers)))
            offset += gap + 1
        offset = max(offset + draw(GAPS), base_offset + 1)
        attributes, codec = draw(ATTRIBUTES), draw(codecs)
        base_timestamp = draw(TIMESTAMPS) if attributes & DELETE_HORIZON else records[0].timestamp if records else 0
        log.append(Source(tuple(records), base_offset, offset, attributes, base_timestamp, codec))
    return log


def plain_body(chunk: Chunk) -> bytes:
    """A chunk's records, decompressed without our own code."""
    body = bytes(chunk.data[HEADER_SIZE:])
    match chunk.data[22]:
        case 0:
            return body
        case 1:
            return bytes(cramjam.gzip.decompress(body))
        case 2:
            assert body.startswith(b"\x82SNAPPY\x00")
            out, pos = b"", 16
            while pos < len(body):
                size = int.from_bytes(body[pos : pos + 4], "big")
                out += bytes(cramjam.snappy.decompress_raw(body[pos + 4 : pos + 4 + size]))
                pos += 4 + size
            return out
        case 3:
            return bytes(cramjam.lz4.decompress(body))
        case _:
            return bytes(cramjam.zstd.decompress(body))


def by_kafka_python(chunk: Chunk) -> list[tuple[int, int, bytes | None, bytes | None, tuple[object, ...]]]:
    """Decode a chunk: offset, timestamp, key, value, headers."""
    assert DefaultRecordBatch(bytes(chunk.data)).validate_crc()
    plain = bytearray(chunk.data[:HEADER_SIZE]) + plain_body(chunk)
    plain[22] = 0
    struct.pack_into(">i", plain, 8, len(plain) - 12)
    return [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in DefaultRecordBatch(bytes(plain))]


def check_chunk(chunk: Chunk, codec: int | None, max_bytes: int) -> list[Record]:
    """A chunk is well formed in itself; its records, with the source offsets its runs say."""
    header = parse_header(chunk.data)
    check_crc(memoryview(chunk.data))
    records = by_kafka_python(chunk)
    assert [record[0] for record in records] == list(range(chunk.record_count))
    assert header.base_offset == 0
    assert header.size == chunk.size
    assert header.is_contiguous
    assert header.record_count == chunk.record_count
    assert header.attributes == header.codec
    assert codec is None or header.codec == codec
    assert header.max_timestamp == chunk.max_timestamp == max(record[1] for record in records)
    assert header.base_timestamp == records[0][1]
    assert chunk.oversized is (chunk.size > max_bytes)
    assert not chunk.oversized or chunk.record_count == 1
    offsets = [start + i for start, length in chunk.runs for i in range(length)]
    assert len(offsets) == chunk.record_count
    assert chunk.source_start == offsets[0]
    assert all(
        first + length < second for (first, length), (second, _) in zip(chunk.runs, chunk.runs[1:], strict=False)
    )
    return [Record(offset, *record[1:]) for offset, record in zip(offsets, records, strict=True)]  # type: ignore[arg-type]


@settings(max_examples=300)
@given(
    log=logs(),
    start=st.integers(0, 1000),
    max_bytes=st.sampled_from([NO_LIMIT, 100, 150, 250, 600]),
    codec=st.none() | st.integers(0, 4),
)
def test_reencode_equals_the_model(log: list[Source], start: int, max_bytes: int, codec: int | None) -> None:
    batches = to_batches(log)
    position = log[0].base_offset + start % (log[-1].next_offset - log[0].base_offset)
    want = [record for source in log for record in source.seen() if record.offset >= position]
    chunks = reencode(batches, position=position, max_bytes=max_bytes, codec=codec)
    got = [record for chunk in chunks for record in check_chunk(chunk, codec, max_bytes)]
    assert got == want
    ends = [chunk.source_end for chunk in chunks]
    assert all(chunk.source_start >= end for chunk, end in zip(chunks[1:], ends, strict=False))
    assert not chunks or ends[-1] == log[-1].next_offset
    assert all(record.offset < chunk.source_end for chunk in chunks for record in check_chunk(chunk, codec, max_bytes))


@given(log=logs(), codec=st.integers(0, 4))
def test_reencode_again_from_any_acknowledged_chunk_gives_the_same_records(log: list[Source], codec: int) -> None:
    reencode_from = partial(reencode, to_batches(log), max_bytes=200, codec=codec)
    chunks = reencode_from(position=0)
    for index, chunk in enumerate(chunks):
        rest = reencode_from(position=chunk.source_end)
        got = [record for chunk in rest for record in check_chunk(chunk, codec, 200)]
        assert got == [record for chunk in chunks[index + 1 :] for record in check_chunk(chunk, codec, 200)]


@given(log=logs(codecs=st.just(0)))
def test_kept_codec_splits_only_by_size(log: list[Source]) -> None:
    chunks = reencode(to_batches(log), position=0, max_bytes=NO_LIMIT)
    assert len(chunks) == (1 if any(source.seen() for source in log) else 0)


@given(log=logs())
def test_iter_records_equals_the_model(log: list[Source]) -> None:
    for source, (header, view) in zip(log, to_batches(log), strict=True):
        seen = [] if header.is_control or not header.record_count else list(iter_records(header, view))
        assert seen == source.seen()


@given(
    records=st.lists(st.tuples(TIMESTAMPS, st.integers(0, 200), st.booleans()), min_size=1, max_size=40),
    position=st.integers(0, 40),
)
@example(records=[(5, size, False) for size in range(50, 70)], position=0)
def test_merge_of_one_record_batches_made_by_kafka_python(records: list[tuple[int, int, bool]], position: int) -> None:
    log = bytearray()
    for offset, (timestamp, size, keyed) in enumerate(records):
        builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, NO_LIMIT)
        builder.append(0, timestamp, b"k" if keyed else None, bytes(size), [])
        batch = bytearray(builder.build())
        struct.pack_into(">q", batch, 0, offset)
        log += batch
    chunks = merge(list(iter_batches(memoryview(log))), position=position, max_bytes=1000)
    got = [record for chunk in chunks for record in check_chunk(chunk, 0, 1000)]
    want = [Record(o, t, b"k" if k else None, bytes(s)) for o, (t, s, k) in enumerate(records) if o >= position]
    assert got == want


def test_merge_of_many_records_passes_the_varint_table() -> None:
    noise = random.Random(3)
    new = [NewRecord(noise.randrange(1 << 41), None, noise.randbytes(noise.randrange(4))) for _ in range(40_000)]
    new += [NewRecord(0, None, bytes(20_000)), NewRecord(0, bytes(70_000), None)]
    log = bytearray()
    for start in range(0, len(new), 10_001):
        batch = encode_batch(new[start : start + 10_001])
        struct.pack_into(">q", batch, 0, start)
        log += batch
    (chunk,) = merge(list(iter_batches(memoryview(log))), position=0, max_bytes=1 << 24)
    assert chunk.runs == ((0, len(new)),)
    assert check_chunk(chunk, 0, 1 << 24) == [Record(i, r.timestamp, r.key, r.value) for i, r in enumerate(new)]


@pytest.mark.parametrize("codec", range(5))
def test_batch_over_the_limit_is_split(codec: int) -> None:
    noise = random.Random(2)
    batch = encode_batch([NewRecord(i, b"%d" % i, noise.randbytes(1000)) for i in range(300)], codec=codec)
    chunks = reencode(list(iter_batches(memoryview(batch))), position=0, max_bytes=50_000)
    assert 6 < len(chunks) < 15
    assert [record.offset for chunk in chunks for record in check_chunk(chunk, codec, 50_000)] == list(range(300))
    assert [chunk.source_end for chunk in chunks[:-1]] == [chunk.source_start for chunk in chunks[1:]]


def test_single_record_over_the_limit_is_marked_and_keeps_its_place() -> None:
    batch = encode_batch([NewRecord(1, None, bytes(size)) for size in (10, 5000, 10)])
    chunks = reencode(list(iter_batches(memoryview(batch))), position=0, max_bytes=1000)
    assert [(chunk.record_count, chunk.oversized) for chunk in chunks] == [(1, False), (1, True), (1, False)]


def test_empty_and_control_batches_only_move_the_end() -> None:
    record = Record(0, 5, b"k", b"v")
    control = Source((Record(1, 5, b"\0\0\0\1", b""),), 1, 2, CONTROL | TRANSACTIONAL, 5)
    empty = Source((), 2, 10)
    (chunk,) = reencode(to_batches([Source((record,), 0, 1, 0, 5), control, empty]), position=0, max_bytes=NO_LIMIT)
    assert (chunk.record_count, chunk.source_end) == (1, 10)
    assert reencode(to_batches([control, empty]), position=0, max_bytes=NO_LIMIT) == []


def test_chunk_takes_a_producer_id_by_header_rewrite() -> None:
    (chunk,) = reencode(to_batches([Source((Record(4, 5, None, b"v"),), 3, 9, 0, 5)]), position=0, max_bytes=NO_LIMIT)
    before = bytes(chunk.data[HEADER_SIZE:])
    rewrite_header(memoryview(chunk.data), producer_id=9, producer_epoch=2, base_sequence=11)
    check_crc(memoryview(chunk.data))
    assert bytes(chunk.data[HEADER_SIZE:]) == before
    assert parse_header(chunk.data)[9:12] == (9, 2, 11)


def test_wrong_checksum_is_refused() -> None:
    for size in (3, 100):
        batch = encode_batch([NewRecord(1, None, bytes(size))])
        batch[-2] ^= 1
        with pytest.raises(CorruptBatch, match="orders-0: wrong checksum"):
            merge(list(iter_batches(memoryview(batch))), position=0, max_bytes=NO_LIMIT, where="orders-0")


@pytest.mark.parametrize("size", [3, 100])
def test_broken_records_with_a_right_checksum_are_a_typed_error(size: int) -> None:
    """Every byte of the numbers flipped, every length cut: records or `CorruptBatch`, nothing else."""
    whole = encode_batch([NewRecord(1, None, bytes(size)), NewRecord(2, None, None)])
    single = encode_batch([NewRecord(1, None, bytes(size))])
    for batch in (whole, single):
        for index in range(HEADER_SIZE, len(batch)):
            for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
                damaged = bytearray(batch)
                damaged[index] = value
                _try_reencode(damaged)
        for cut in range(HEADER_SIZE, len(batch)):
            short = bytearray(batch[:cut])
            struct.pack_into(">i", short, 8, cut - 12)
            with pytest.raises(CorruptBatch):
                _reencode_with_right_crc(short)


def test_offsets_outside_their_batch_are_a_typed_error() -> None:
    for deltas in ((0, 5), (1, 0), (0, 0), (-1, 0)):
        records = tuple(Record(10 + delta, 0, None, b"v") for delta in deltas)
        with pytest.raises(CorruptBatch):
            reencode(to_batches([Source(records, 10, 12)]), position=0, max_bytes=NO_LIMIT)


def _reencode_with_right_crc(batch: bytearray) -> None:
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    reencode(list(iter_batches(memoryview(batch))), position=0, max_bytes=NO_LIMIT)


def _try_reencode(batch: bytearray) -> None:
    try:
        _reencode_with_right_crc(batch)
    except CorruptBatch:
        return
