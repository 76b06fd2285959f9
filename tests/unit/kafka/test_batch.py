"""Record batches: header, checksum, rewrite, records; kafka-python is the judge."""

from __future__ import annotations

import pickle
import struct
from collections.abc import Sequence

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st
from kafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder

from heliograph.errors import CorruptBatch
from heliograph.kafka.batch import (
    CONTROL,
    DELETE_HORIZON,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Detour,
    NewRecord,
    Record,
    check_crc,
    compute_crc,
    detour_of,
    encode_batch,
    encode_record,
    is_express,
    iter_batches,
    iter_records,
    parse_header,
    rewrite_header,
)

Headers = Sequence[tuple[str, bytes | None]]
NULLABLE = st.none() | st.binary(max_size=80)
TIMESTAMPS = st.sampled_from([-1, 0, 1_700_000_000_000]) | st.integers(0, 1 << 45)
NEW_RECORDS = st.lists(
    st.builds(
        NewRecord,
        timestamp=TIMESTAMPS,
        key=NULLABLE,
        value=NULLABLE,
        headers=st.lists(st.tuples(st.text(max_size=5), NULLABLE), max_size=3),
    ),
    min_size=1,
    max_size=20,
)
THREE = [NewRecord(100, b"k", b"v"), NewRecord(90, None, b"", [("a", b"1"), ("a", None)]), NewRecord(110, b"", None)]


def patched(batch: bytearray, fmt: str, at: int, *values: int, crc: bool = True) -> bytearray:
    out = bytearray(batch)
    struct.pack_into(fmt, out, at, *values)
    if crc:
        struct.pack_into(">I", out, 17, crc32c(memoryview(out)[21:]))
    return out


def with_attributes(batch: bytearray, attributes: int) -> bytearray:
    return patched(batch, ">h", 21, attributes)


def as_records(new: Sequence[NewRecord], base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + i, r.timestamp, r.key, r.value, tuple(r.headers)) for i, r in enumerate(new)]


@given(new=NEW_RECORDS, codec=st.sampled_from([0, 1]))
def test_kafka_python_reads_what_we_encode(new: list[NewRecord], codec: int) -> None:
    theirs = DefaultRecordBatch(bytes(encode_batch(new, codec=codec)))
    assert theirs.validate_crc()
    read = [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert read == as_records(new)
    assert theirs.max_timestamp == max(r.timestamp for r in new)


@given(new=NEW_RECORDS)
def test_our_bytes_equal_kafka_pythons(new: list[NewRecord]) -> None:
    builder = DefaultRecordBatchBuilder(2, 0, False, 77, 3, 12, 1 << 20)
    for offset, record in enumerate(new):
        builder.append(offset, record.timestamp, record.key, record.value, list(record.headers))
    ours = encode_batch(new, producer_id=77, producer_epoch=3, base_sequence=12)
    theirs = bytearray(builder.build())
    theirs[12:16] = b"\xff" * 4  # kafka-python sends leader epoch 0 where Java sends -1
    assert ours == theirs


@given(new=NEW_RECORDS, codec=st.integers(0, 4), base_offset=st.integers(0, 1 << 50))
def test_iter_records_reads_every_codec(new: list[NewRecord], codec: int, base_offset: int) -> None:
    batch = patched(encode_batch(new, codec=codec), ">q", 0, base_offset, crc=False)
    ((header, view),) = iter_batches(memoryview(batch))
    check_crc(view)
    assert list(iter_records(header, view)) == as_records(new, base_offset)


def test_header_keys_that_are_not_utf8_survive() -> None:
    batch = encode_batch([NewRecord(1, None, None, [("\udcff\udc80", b"x")])])
    assert b"\xff\x80" in batch
    assert next(iter_records(parse_header(batch), memoryview(batch))).headers == (("\udcff\udc80", b"x"),)


def test_log_append_time_gives_every_record_the_max_timestamp() -> None:
    batch = with_attributes(encode_batch(THREE), LOG_APPEND_TIME)
    assert [r.timestamp for r in iter_records(parse_header(batch), memoryview(batch))] == [110] * 3


def test_delete_horizon_is_the_base_that_deltas_count_from() -> None:
    horizon = 1_800_000_000_000
    body = b"".join(encode_record(i, r.timestamp - horizon, r.key, r.value) for i, r in enumerate(THREE))
    batch = patched(encode_batch([NewRecord(0, None, None)] * 3), ">q", 27, horizon)[:HEADER_SIZE] + body
    batch = with_attributes(patched(batch, ">i", 8, len(batch) - 12), DELETE_HORIZON)
    header = parse_header(batch)
    assert header.has_delete_horizon
    assert [r.timestamp for r in iter_records(header, memoryview(batch))] == [100, 90, 110]


def test_header_fields_and_properties() -> None:
    batch = encode_batch(THREE, codec=3, producer_id=5, producer_epoch=6, base_sequence=7)
    header = parse_header(patched(batch, ">q", 0, 1000))
    assert header.size == len(batch)
    assert (header.last_offset, header.next_offset, header.is_contiguous) == (1002, 1003, True)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (5, 6, 7)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (100, 110, 3)
    assert header.codec == 3
    assert not any((header.is_control, header.is_transactional, header.is_log_append_time, header.has_delete_horizon))
    assert header.crc == compute_crc(batch)


def test_header_of_too_few_bytes_is_a_typed_error() -> None:
    with pytest.raises(CorruptBatch, match="60 are there"):
        parse_header(bytes(60))


@given(new=NEW_RECORDS, codec=st.integers(0, 4), attributes=st.integers(0, 15))
def test_rewrite_header_leaves_record_bytes_untouched(new: list[NewRecord], codec: int, attributes: int) -> None:
    fetched = patched(encode_batch(new, codec=codec), ">q", 0, 1 << 40)
    fetched = patched(with_attributes(fetched, attributes << 3 | codec), ">i", 12, 99)
    ours = bytearray(fetched)
    rewrite_header(memoryview(ours), producer_id=1 << 40, producer_epoch=32_767, base_sequence=(1 << 31) - 1)
    assert ours[HEADER_SIZE:] == fetched[HEADER_SIZE:]
    check_crc(memoryview(ours))
    before, after = parse_header(fetched), parse_header(ours)
    assert after == before._replace(
        base_offset=0,
        leader_epoch=-1,
        attributes=codec,
        crc=after.crc,
        producer_id=1 << 40,
        producer_epoch=32_767,
        base_sequence=(1 << 31) - 1,
    )


def test_every_damaged_byte_after_the_crc_is_noticed() -> None:
    batch = encode_batch(THREE)
    for index in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[index] ^= 0x10
        with pytest.raises(CorruptBatch, match="wrong checksum") as caught:
            check_crc(memoryview(damaged), where="orders-3")
        assert "orders-3" in str(pickle.loads(pickle.dumps(caught.value)))


def test_iter_batches_ends_at_a_batch_cut_anywhere() -> None:
    batch = encode_batch(THREE)
    log = memoryview(batch + patched(batch, ">q", 0, 3))
    assert [h.base_offset for h, _ in iter_batches(log)] == [0, 3]
    assert [bytes(view) for _, view in iter_batches(log)] == [batch, log[len(batch) :]]
    for size in range(len(log)):
        assert len(list(iter_batches(log[:size]))) == size // len(batch)


@pytest.mark.parametrize("cut", [17, 40, 61, 1000])
@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats_are_named(magic: int, cut: int) -> None:
    batch = patched(encode_batch(THREE), ">b", 16, magic)
    with pytest.raises(CorruptBatch, match=f"magic {magic} is not supported"):
        list(iter_batches(memoryview(batch)[:cut], where="t-0"))


@pytest.mark.parametrize(
    ("fmt", "at", "value"),
    [
        (">b", 16, 3),
        (">b", 16, -1),
        (">i", 8, 48),
        (">i", 8, 0),
        (">i", 8, -1),
        (">i", 57, -1),
        (">i", 23, -1),
        (">q", 0, -1),
    ],
)
def test_nonsense_in_a_header_is_a_typed_error(fmt: str, at: int, value: int) -> None:
    batch = patched(encode_batch(THREE), fmt, at, value)
    with pytest.raises(CorruptBatch):
        list(iter_batches(memoryview(batch), where="t-0"))
    if at in (8, 16):
        with pytest.raises(CorruptBatch):
            list(iter_batches(memoryview(batch)[:30], where="t-0"))


@pytest.mark.parametrize("codec", range(5))
def test_records_that_do_not_fit_are_a_typed_error(codec: int) -> None:
    batch = encode_batch(THREE, codec=codec)
    for count in (2, 4, 1 << 30):
        wrong = patched(batch, ">i", 57, count)
        with pytest.raises(CorruptBatch):
            list(iter_records(parse_header(wrong), memoryview(wrong)))


def test_any_flipped_record_byte_gives_records_or_a_typed_error() -> None:
    batch = encode_batch(THREE)
    for index in range(HEADER_SIZE, len(batch)):
        for value in (0x00, 0x01, 0x7F, 0x80, 0xFF):
            damaged = bytearray(batch)
            damaged[index] = value
            try:
                list(iter_records(parse_header(damaged), memoryview(damaged)))
            except CorruptBatch:
                continue


def test_truncated_records_are_a_typed_error_at_every_length() -> None:
    batch = encode_batch(THREE)
    for size in range(HEADER_SIZE, len(batch)):
        with pytest.raises(CorruptBatch):
            list(iter_records(parse_header(batch), memoryview(batch)[:size]))


PLAIN = patched(encode_batch(THREE), ">q", 0, 50)


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (PLAIN, None),
        (with_attributes(PLAIN, TRANSACTIONAL), None),
        (with_attributes(PLAIN, CONTROL | TRANSACTIONAL), Detour.CONTROL),
        (with_attributes(PLAIN, LOG_APPEND_TIME), Detour.LOG_APPEND_TIME),
        (with_attributes(PLAIN, DELETE_HORIZON), Detour.DELETE_HORIZON),
        (patched(PLAIN, ">i", 23, 3), Detour.COMPACTED),
        (patched(PLAIN, ">i", 57, 0), Detour.EMPTY),
        (patched(PLAIN, ">q", 0, 49), Detour.BEFORE_POSITION),
        (PLAIN + b"x", Detour.TOO_LARGE),
    ],
)
def test_detour_names_the_reason(batch: bytearray, reason: Detour | None) -> None:
    header = parse_header(patched(batch, ">i", 8, len(batch) - 12))
    assert detour_of(header, position=50, max_message_bytes=len(PLAIN)) is reason
    assert is_express(header, position=50, max_message_bytes=len(PLAIN)) is (reason is None)
