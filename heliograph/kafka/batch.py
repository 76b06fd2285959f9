"""Reads and writes record batches, magic 2: the 61-byte header, its checksum, and the records inside.

Bytes in, bytes out. Knows neither sockets nor flows; `detour_of` says whether a batch
can be copied whole, not how it is copied.

    0 base offset i64      8 length i32 (what follows it)   12 leader epoch i32   16 magic i8
   17 crc u32 (CRC-32C of 21 to the end)                    21 attributes i16     23 last offset delta i32
   27 base timestamp i64  35 max timestamp i64              43 producer id i64    51 producer epoch i16
   53 base sequence i32   57 record count i32               61 records, maybe compressed

Attributes: bits 0 to 2 codec, 3 LogAppendTime, 4 transactional, 5 control, 6 delete horizon.
With a delete horizon (KIP-534) the base timestamp holds the horizon, and the records'
deltas count from it: a record's timestamp is the base plus its delta all the same.
With LogAppendTime every record's timestamp is the max timestamp.

A record: length, attributes (a byte, unused), timestamp delta, offset delta, key, value,
headers; all numbers zigzag varints, a length of -1 is null.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import NamedTuple

from crc32c import crc32c

from heliograph.errors import CorruptBatch
from heliograph.kafka.codec.primitives import Buffer, encode_varint
from heliograph.kafka.compression import MAX_DECOMPRESSED_BYTES, compress, decompress

HEADER_SIZE = 61
MAGIC = 2
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08
TRANSACTIONAL = 0x10
CONTROL = 0x20
DELETE_HORIZON = 0x40

_HEADER = struct.Struct(">qiibIhiqqqhii")
_LENGTH_AT = 8
_LEADER_EPOCH_AT = 12
_MAGIC_AT = 16
CRC_AT = 17
_ATTRIBUTES_AT = 21
_PRODUCER_AT = 43
_BEFORE_LENGTH = 12  # base offset and the length itself
_MIN_LENGTH = HEADER_SIZE - _BEFORE_LENGTH
_MIN_RECORD = 7
MAX_BASE_OFFSET = (1 << 63) - (1 << 31) - 1
"""Highest base offset for which the offset after a batch still fits into 64 bits."""

_I64 = struct.Struct(">q")
_I32 = struct.Struct(">i")
_I16 = struct.Struct(">h")
_U32 = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")


class BatchHeader(NamedTuple):
    """Holds the header's fields in their order on the wire."""

    base_offset: int
    length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL)

    @property
    def has_delete_horizon(self) -> bool:
        return bool(self.attributes & DELETE_HORIZON)

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included; `max.message.bytes` limits them."""
        return self.length + _BEFORE_LENGTH

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def is_contiguous(self) -> bool:
        """Return whether every offset of the batch has a record."""
        return self.record_count == self.last_offset_delta + 1


class Detour(Enum):
    """Names why a batch cannot be copied whole."""

    CONTROL = "control batch"
    EMPTY = "no records left"
    BEFORE_POSITION = "begins before the position"
    LOG_APPEND_TIME = "LogAppendTime"
    DELETE_HORIZON = "delete horizon"
    COMPACTED = "offset gaps"
    TOO_LARGE = "larger than the target takes"


class Record(NamedTuple):
    """Holds one record as a reader sees it.

    Header keys are decoded with surrogate escapes, so that even keys that are not
    UTF-8 compare and encode exactly.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class NewRecord(NamedTuple):
    """Holds one record to be written."""

    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()


def parse_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    try:
        return BatchHeader._make(_HEADER.unpack_from(buf, pos))
    except struct.error as error:
        raise CorruptBatch(f"a batch header needs {HEADER_SIZE} bytes, {max(len(buf) - pos, 0)} are there") from error


def leader_epoch_of(buf: Buffer) -> int:
    """Return the leader epoch of the first batch; -1 if there is none."""
    return int(_I32.unpack_from(buf, _LEADER_EPOCH_AT)[0]) if len(buf) >= HEADER_SIZE else -1


def iter_batches(view: memoryview, *, where: str = "") -> Iterator[tuple[BatchHeader, memoryview]]:
    """Yield the batches of a fetch answer.

    The last one may be cut at the fetch limit and is then left out; anything else that
    does not fit is a `CorruptBatch`. The caller checks the checksums.
    """
    unpack, new = _HEADER.unpack_from, tuple.__new__  # BatchHeader._make takes three times as long
    pos, end = 0, len(view)
    while end - pos >= HEADER_SIZE:
        header = new(BatchHeader, unpack(view, pos))
        length = header[1]
        in_range = 0 <= header[0] <= MAX_BASE_OFFSET
        if header[3] != MAGIC or length < _MIN_LENGTH or not in_range or header[6] < 0 or header[12] < 0:
            raise _nonsense(header, where)
        following = pos + length + _BEFORE_LENGTH
        if following > end:
            return
        yield header, view[pos:following]
        pos = following
    _check_fragment(view[pos:], where)


def compute_crc(view: Buffer) -> int:
    return crc32c(memoryview(view)[_ATTRIBUTES_AT:])


def check_crc(view: memoryview, *, where: str = "") -> None:
    """Raise `CorruptBatch` unless the batch's checksum is right."""
    if len(view) < HEADER_SIZE:
        raise CorruptBatch(f"a batch of {len(view)} bytes", where=where)
    if crc32c(view[_ATTRIBUTES_AT:]) != _U32.unpack_from(view, CRC_AT)[0]:
        raise wrong_crc(parse_header(view), where=where)


def wrong_crc(header: BatchHeader, *, where: str = "") -> CorruptBatch:
    return CorruptBatch(
        f"wrong checksum in the batch of {header.size} bytes at offset {header.base_offset}",
        where=where,
        why="its bytes changed on a disk or on the way",
        base_offset=header.base_offset,
        next_offset=header.next_offset,
    )


def rewrite_header(view: memoryview, *, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
    """Turn a fetched batch, in place, into one of our own; the record bytes do not change.

    The result is what a producer sends: base offset 0, no leader epoch, only the codec
    in the attributes. The batch's checksum must have been checked before.
    """
    _I64.pack_into(view, 0, 0)
    _I32.pack_into(view, _LEADER_EPOCH_AT, -1)
    _I16.pack_into(view, _ATTRIBUTES_AT, view[_ATTRIBUTES_AT + 1] & CODEC_MASK)
    _PRODUCER.pack_into(view, _PRODUCER_AT, producer_id, producer_epoch, base_sequence)
    _U32.pack_into(view, CRC_AT, crc32c(view[_ATTRIBUTES_AT:]))


def detour_of(header: BatchHeader, *, position: int, max_message_bytes: int) -> Detour | None:
    """Return why this batch must not be copied whole, or None if it may."""
    attributes = header.attributes
    if attributes & CONTROL:
        return Detour.CONTROL
    if header.record_count == 0:
        return Detour.EMPTY
    if header.base_offset < position:
        return Detour.BEFORE_POSITION
    if attributes & LOG_APPEND_TIME:
        return Detour.LOG_APPEND_TIME
    if attributes & DELETE_HORIZON:
        return Detour.DELETE_HORIZON
    if header.record_count != header.last_offset_delta + 1:
        return Detour.COMPACTED
    if header.length + _BEFORE_LENGTH > max_message_bytes:
        return Detour.TOO_LARGE
    return None


def is_express(header: BatchHeader, *, position: int, max_message_bytes: int) -> bool:
    return detour_of(header, position=position, max_message_bytes=max_message_bytes) is None


def encode_record(
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Sequence[tuple[str, bytes | None]] = (),
) -> bytes:
    body = bytearray(1)
    body += encode_varint(timestamp_delta)
    body += encode_varint(offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    body += encode_varint(len(headers))
    for name, content in headers:
        _append_bytes(body, name.encode("utf-8", "surrogateescape"))
        _append_bytes(body, content)
    return encode_varint(len(body)) + body


def encode_batch(
    records: Sequence[NewRecord],
    *,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
) -> bytearray:
    """Encode a whole batch of new records, as a producer sends it."""
    assert records, "a batch has a record at least"
    base_timestamp = records[0].timestamp
    body = b"".join(
        encode_record(delta, record.timestamp - base_timestamp, record.key, record.value, record.headers)
        for delta, record in enumerate(records)
    )
    batch = seal_batch(
        (compress(codec, body),),
        codec=codec,
        record_count=len(records),
        base_timestamp=base_timestamp,
        max_timestamp=max(record.timestamp for record in records),
    )
    if producer_id != NO_PRODUCER_ID:
        rewrite_header(
            memoryview(batch), producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
        )
    return batch


def seal_batch(
    body: Sequence[Buffer], *, codec: int, record_count: int, base_timestamp: int, max_timestamp: int
) -> bytearray:
    """Put the header of a producer without an id before a body, which is given in slices and already compressed."""
    batch = bytearray().join((bytes(HEADER_SIZE), *body))
    length = len(batch) - _BEFORE_LENGTH
    producer = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE)
    last_delta = record_count - 1
    _HEADER.pack_into(
        batch, 0, 0, length, -1, MAGIC, 0, codec, last_delta, base_timestamp, max_timestamp, *producer, record_count
    )
    _U32.pack_into(batch, CRC_AT, crc32c(memoryview(batch)[_ATTRIBUTES_AT:]))
    return batch


def iter_records(
    header: BatchHeader, view: memoryview, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, where: str = ""
) -> Iterator[Record]:
    """Yield the records of one batch and check every length; the caller checks the checksum."""
    body = decompress(header.codec, view[HEADER_SIZE:], max_bytes=max_bytes)
    data = bytes(body)
    fixed_timestamp = header.max_timestamp if header.is_log_append_time else None
    pos = 0
    for _ in range(header.record_count):
        pos, end = read_length(data, pos, len(data), header, where)
        timestamp_delta, pos = read_varint(data, pos + 1, end, header, where)
        offset_delta, pos = read_varint(data, pos, end, header, where)
        key, pos = _read_bytes(data, pos, end, header, where)
        value, pos = _read_bytes(data, pos, end, header, where)
        headers, pos = _read_headers(data, pos, end, header, where)
        if pos != end:
            raise broken_record(header, f"{end - pos} bytes too many in a record", where)
        timestamp = wrap(header.base_timestamp + timestamp_delta) if fixed_timestamp is None else fixed_timestamp
        yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    if pos != len(data):
        raise broken_record(header, f"{len(data) - pos} bytes after the last record", where)


def wrap(number: int) -> int:
    """Wrap a number to 64 bits like Java's long: a delta of distant timestamps overflows, and adding it wraps back."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def read_varint(data: bytes, pos: int, end: int, header: BatchHeader, where: str = "") -> tuple[int, int]:
    """Read a zigzag varint of at most ten bytes that ends before `end`."""
    value = shift = 0
    for index in range(pos, min(end, pos + 10)):
        byte = data[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), index + 1
        shift += 7
    raise broken_record(header, "a number has no end", where)


def read_length(data: bytes, pos: int, end: int, header: BatchHeader, where: str = "") -> tuple[int, int]:
    """Read a record's length varint; return the positions of the record's first byte and of its end."""
    size, pos = read_varint(data, pos, end, header, where)
    if not _MIN_RECORD - 1 <= size <= end - pos:
        raise broken_record(header, f"a record of {size} bytes, {end - pos} are left", where)
    return pos, pos + size


def broken_record(header: BatchHeader, why: str, where: str = "") -> CorruptBatch:
    return CorruptBatch(
        f"the records of the batch at offset {header.base_offset} cannot be read",
        where=where,
        why=why,
        base_offset=header.base_offset,
        next_offset=header.next_offset,
    )


def _append_bytes(body: bytearray, content: bytes | None) -> None:
    if content is None:
        body += b"\x01"
    else:
        body += encode_varint(len(content))
        body += content


def _read_bytes(data: bytes, pos: int, end: int, header: BatchHeader, where: str) -> tuple[bytes | None, int]:
    size, pos = read_varint(data, pos, end, header, where)
    if size == -1:
        return None, pos
    if not 0 <= size <= end - pos:
        raise broken_record(header, f"a field of {size} bytes, {end - pos} are left", where)
    return data[pos : pos + size], pos + size


def _read_headers(
    data: bytes, pos: int, end: int, header: BatchHeader, where: str
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = read_varint(data, pos, end, header, where)
    if count == 0:
        return (), pos
    if not 0 < count <= end - pos:
        raise broken_record(header, f"{count} headers, {end - pos} bytes are left", where)
    headers = []
    for _ in range(count):
        name, pos = _read_bytes(data, pos, end, header, where)
        if name is None:
            raise broken_record(header, "a header without a name", where)
        content, pos = _read_bytes(data, pos, end, header, where)
        headers.append((name.decode("utf-8", "surrogateescape"), content))
    return tuple(headers), pos


def _check_fragment(fragment: memoryview, where: str) -> None:
    """Check that a batch that was cut inside its header still looks like the start of one."""
    if len(fragment) > _MAGIC_AT and fragment[_MAGIC_AT] != MAGIC:
        raise _wrong_magic(fragment[_MAGIC_AT], where)
    if len(fragment) >= _BEFORE_LENGTH:
        (length,) = _I32.unpack_from(fragment, _LENGTH_AT)
        if length < _MIN_LENGTH:
            raise CorruptBatch(f"a batch that says it has {length} bytes", where=where)


def _nonsense(header: BatchHeader, where: str) -> CorruptBatch:
    if header.magic != MAGIC:
        return _wrong_magic(header.magic, where)
    return CorruptBatch(
        f"a batch header that cannot be: base offset {header.base_offset}, length {header.length}, "
        f"last offset delta {header.last_offset_delta}, {header.record_count} records",
        where=where,
    )


def _wrong_magic(magic: int, where: str) -> CorruptBatch:
    if magic in (0, 1):
        return CorruptBatch(
            f"message format magic {magic} is not supported",
            where=where,
            why="the records were written in the format from before Kafka 0.11",
            remedy="let the source convert them (fetch and produce them again there), or leave the topic out",
            magic=magic,
        )
    return CorruptBatch(f"message format magic {magic} is unknown", where=where, magic=magic)
