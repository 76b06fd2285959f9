"""Takes records out of their batches and puts them into new ones (the record path), on buffers.

It handles everything that cannot be copied whole: compacted batches, LogAppendTime,
delete horizons, batches over the target's limit or from before the position, records
that get a provenance header, and the merge of many small batches into large ones. No
sockets, no positions, no producer ids: `rewrite_header` of `heliograph.kafka.batch` puts
those into a chunk when it is sent.

A record is decoded no further than needed. Three numbers at its start change; key, value
and headers are one slice that is copied as it is:

    | length | attributes | timestamp delta | offset delta | key, value, headers |
      new      0            new               new            slice

(Kafka has no use for a record's attributes and writes 0 as well.) Checksums of the
source batches are checked here. The offset deltas of a chunk are 0 to count - 1,
which the broker does not check where a batch is not compressed.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from heliograph.errors import CorruptBatch, ProtocolError
from heliograph.kafka.batch import (
    CODEC_MASK,
    CONTROL,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    Record,
    broken_record,
    iter_records,
    seal_batch,
    wrap,
    wrong_crc,
)
from heliograph.kafka.codec.primitives import Buffer, encode_varint, read_uvarint
from heliograph.kafka.compression import MAX_DECOMPRESSED_BYTES, Codec, compress, decompress
from heliograph.lane.batches.provenance import Marks, Raw

__all__ = ["Batch", "Chunk", "Record", "iter_records", "merge", "reencode"]

Batch: TypeAlias = tuple[BatchHeader, memoryview]

# Varints of -TABLE to TABLE - 1 by plain indexing: negative numbers count from the end of the list.
TABLE = 1 << 15
VARINTS = [encode_varint(n) for n in range(TABLE)] + [encode_varint(n) for n in range(-TABLE, 0)]
# Length and the attributes byte behind it, which is always 0.
HEADS = [varint + b"\x00" for varint in VARINTS[:TABLE]]

_CRC_START = 21
_WIDE = 1 << 62
"""Beyond this a timestamp plus a delta may overflow 64 bits."""
_MIN_RECORD_BATCH = HEADER_SIZE - 12 + 7  # the length field of a batch with the smallest record
_RECORD_START = struct.Struct(">BBBBB")  # a two-byte length, attributes, one-byte timestamp and offset deltas
_SHORTCUT_START = HEADER_SIZE + _RECORD_START.size
_NO_SHORTCUT = CODEC_MASK | LOG_APPEND_TIME | CONTROL


MERGED_BYTES = 512 * 1024
"""Maximum size of merged batches, if the target accepts as much."""


class Chunk(NamedTuple):
    """Holds a batch that is ready to be sent once it has its producer id and sequence.

    It carries the source from `source_start` to `source_end`, half-open: once it is
    acknowledged, `source_end` is the position. `runs` are (source offset, length) in
    order; where the source has no gaps there is one, of `record_count`. `oversized`
    marks a single record that is over the limit by itself.
    """

    data: bytearray | memoryview
    record_count: int
    source_start: int
    source_end: int
    max_timestamp: int
    runs: tuple[tuple[int, int], ...]
    oversized: bool = False

    @property
    def size(self) -> int:
        return len(self.data)


class _Body(NamedTuple):
    """Holds re-encoded records, in slices; `end` is the index of the first record that did not fit."""

    slices: list[Buffer]
    size: int
    end: int
    max_timestamp: int


def reencode(
    batches: Sequence[Batch],
    *,
    position: int,
    max_bytes: int,
    codec: int | None = None,
    max_decompressed_bytes: int = MAX_DECOMPRESSED_BYTES,
    where: str = "",
    end: int | None = None,
    marks: Marks | None = None,
) -> list[Chunk]:
    """Put the records from `position` on, and below `end`, into as few new batches of at most `max_bytes` as possible.

    Order is kept, and the codec unless one is given: a change of codec starts a new
    chunk. Control batches, empty batches and records that `marks` leave out give nothing.
    The last chunk ends where the last batch does; if there is no chunk, the position
    moves to the `next_offset` of the last batch and nothing is sent.
    """
    chunks: list[Chunk] = []
    for source_codec, members in _by_codec(batches):
        if marks is None:
            raws = _collect(members, position, max_decompressed_bytes, where)
        else:
            raws = _collect_marked(members, position, max_decompressed_bytes, where, marks)
        if end is not None:
            raws = [raw for raw in raws if raw[0] < end]
        if raws:
            target_codec = source_codec if codec is None else codec
            known = source_codec == target_codec != Codec.NONE
            expansion = _expansion(members, raws) if known else 1.0
            chunks += _pack(raws, codec=target_codec, max_bytes=max_bytes, expansion=expansion)
    if chunks:
        following = batches[-1][0].next_offset
        chunks[-1] = chunks[-1]._replace(source_end=following if end is None else min(following, end))
    return chunks


merge = reencode
"""Merging small batches is the same work: many batches in, few chunks out."""


def _by_codec(batches: Sequence[Batch]) -> list[tuple[int, Sequence[Batch]]]:
    """Group neighbours of the same codec; usually all batches are one group."""
    codecs = {header[5] & CODEC_MASK for header, _ in batches}
    if len(codecs) == 1:
        return [(codecs.pop(), batches)]
    return [(codec, list(group)) for codec, group in groupby(batches, key=lambda batch: batch[0].codec)]


def _collect(batches: Iterable[Batch], position: int, max_decompressed_bytes: int, where: str) -> list[Raw]:
    """Return the records from `position` on; check the checksums.

    Hot for one-record batches, of which one core must handle 300,000 per second: the usual
    ones (not compressed, 60 to 8,000 bytes, deltas 0) are cut out without `_walk`.
    """
    raws: list[Raw] = []
    unpack = _RECORD_START.unpack_from
    for header, view in batches:
        if crc32c(view[_CRC_START:]) != header[4]:
            raise wrong_crc(header, where=where)
        offset, length, attributes, count = header[0], header[1], header[5], header[12]
        if count == 1 and not attributes & _NO_SHORTCUT and offset >= position and length >= _MIN_RECORD_BATCH:
            low, high, _, timestamp_delta, offset_delta = unpack(view, HEADER_SIZE)
            size = low - 0x80 | high << 7
            if low >= 0x80 > high and not timestamp_delta and not offset_delta and size == 2 * (length - 51):
                raws.append((offset, header[7], view[_SHORTCUT_START:]))
                continue
        if count and not attributes & CONTROL and header.next_offset > position:
            walked = _walk(header, view, max_decompressed_bytes, where)
            raws += walked if offset >= position else [raw for raw in walked if raw[0] >= position]
    return raws


def _collect_marked(
    batches: Iterable[Batch], position: int, max_decompressed_bytes: int, where: str, marks: Marks
) -> list[Raw]:
    """Return the same records, each with its mark, without those that the marks leave out."""
    raws: list[Raw] = []
    for header, view in batches:
        if crc32c(view[_CRC_START:]) != header.crc:
            raise wrong_crc(header, where=where)
        if not header.record_count or header.is_control or header.next_offset <= position:
            continue
        walked = _walk(header, view, max_decompressed_bytes, where)
        try:
            raws += marks.of_all([raw for raw in walked if raw[0] >= position])
        except (IndexError, ProtocolError) as error:
            raise broken_record(header, "key, value and headers do not fit a record", where) from error
    return raws


def _walk(header: BatchHeader, view: memoryview, max_decompressed_bytes: int, where: str) -> list[Raw]:
    """Return the records of one batch.

    Hot, together with `_build`: one core must handle 450,000 records of 100 B per second,
    so varints of one and two bytes are read inline.
    """
    data = _unpacked(header, view, max_decompressed_bytes, where)
    size = len(data)
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    previous, last = base_offset - 1, header.last_offset
    wide = not -_WIDE <= base_timestamp <= _WIDE
    raws: list[Raw] = []
    append = raws.append
    pos = 0
    try:
        for _ in range(header.record_count):
            number = data[pos]
            if number < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                number = number & 0x7F | data[pos + 1] << 7
                pos += 2
            else:
                number, pos = read_uvarint(data, pos)
            end = pos + ((number >> 1) ^ -(number & 1))
            pos += 1  # attributes
            number = data[pos]
            if number < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                number = number & 0x7F | data[pos + 1] << 7
                pos += 2
            else:
                number, pos = read_uvarint(data, pos, max_bytes=10)
                wide = True
            timestamp = base_timestamp + ((number >> 1) ^ -(number & 1))
            number = data[pos]
            if number < 0x80:
                pos += 1
            elif data[pos + 1] < 0x80:
                number = number & 0x7F | data[pos + 1] << 7
                pos += 2
            else:
                number, pos = read_uvarint(data, pos)
            offset = base_offset + ((number >> 1) ^ -(number & 1))
            if not (pos < end <= size and previous < offset <= last):
                raise broken_record(header, f"a record at offset {offset} that ends at byte {end} of {size}", where)
            append((offset, timestamp, data[pos:end]))
            pos, previous = end, offset
    except (IndexError, ProtocolError) as error:
        raise broken_record(header, "the records end early", where) from error
    if pos != size:
        raise broken_record(header, f"{size - pos} bytes after the last record", where)
    return _restamped(header, raws) if wide or header.is_log_append_time else raws


def _restamped(header: BatchHeader, raws: list[Raw]) -> list[Raw]:
    """Return the records with the broker's append time, or with timestamps wrapped to 64 bits."""
    if header.is_log_append_time:
        return [(offset, header.max_timestamp, rest) for offset, _, rest in raws]
    return [(offset, wrap(timestamp), rest) for offset, timestamp, rest in raws]


def _unpacked(header: BatchHeader, view: memoryview, max_bytes: int, where: str) -> bytes:
    try:
        return bytes(decompress(header.codec, view[HEADER_SIZE:], max_bytes=max_bytes))
    except CorruptBatch as error:
        raise broken_record(header, f"{error.what}: {error.why}", where) from error


def _expansion(batches: Iterable[Batch], raws: Sequence[Raw]) -> float:
    """Return the source's compression ratio: bytes of records per byte of its batches."""
    return max(1.0, sum(len(raw[2]) for raw in raws) / sum(len(view) for _, view in batches))


def _pack(raws: Sequence[Raw], *, codec: int, max_bytes: int, expansion: float) -> list[Chunk]:
    """Cut records into chunks.

    The compressed size of a chunk is known only afterwards, so the source's own ratio
    decides where to cut; a chunk that comes out too large is cut at half of that.
    """
    chunks: list[Chunk] = []
    room = max_bytes - HEADER_SIZE
    body_limit = room if codec == Codec.NONE else int(room * expansion)
    start = 0
    while start < len(raws):
        body = _build(raws, start, body_limit)
        slices = body.slices if codec == Codec.NONE else [compress(codec, b"".join(body.slices))]
        count = body.end - start
        if codec != Codec.NONE and len(slices[0]) > room and count > 1:
            body_limit = body.size // 2
            continue
        data = seal_batch(
            slices,
            codec=codec,
            record_count=count,
            base_timestamp=raws[start][1],
            max_timestamp=body.max_timestamp,
        )
        runs = _runs_of(raws, start, body.end)
        source_end = raws[body.end - 1][0] + 1
        oversized = len(data) > max_bytes
        chunks.append(Chunk(data, count, runs[0][0], source_end, body.max_timestamp, runs, oversized))
        start = body.end
    return chunks


def _build(raws: Sequence[Raw], start: int, limit: int) -> _Body:
    """Encode records from index `start` on while they fit in `limit` bytes; one at least."""
    base_timestamp = max_timestamp = raws[start][1]
    slices: list[Buffer] = []
    size = delta = 0
    for index in range(start, len(raws)):
        _, timestamp, rest = raws[index]
        delta = timestamp - base_timestamp
        stamp = VARINTS[delta] if -TABLE <= delta < TABLE else encode_varint(wrap(delta))
        delta = index - start
        order = VARINTS[delta] if delta < TABLE else encode_varint(delta)
        length = 1 + len(stamp) + len(order) + len(rest)
        head = HEADS[length] if length < TABLE else encode_varint(length) + b"\x00"
        grown = size + length + len(head) - 1
        if grown > limit and slices:
            return _Body(slices, size, index, max_timestamp)
        slices += (head, stamp, order, rest)
        size = grown
        if timestamp > max_timestamp:  # noqa: PLR1730 - max() takes four times as long
            max_timestamp = timestamp
    return _Body(slices, size, len(raws), max_timestamp)


def _runs_of(raws: Sequence[Raw], start: int, end: int) -> tuple[tuple[int, int], ...]:
    """Return the runs of consecutive source offsets among the records from index `start` to `end`."""
    first = raws[start][0]
    if raws[end - 1][0] - first == end - start - 1:
        return ((first, end - start),)
    runs: list[tuple[int, int]] = []
    for index in range(start + 1, end + 1):
        if index == end or raws[index][0] != raws[index - 1][0] + 1:
            runs.append((raws[start][0], index - start))
            start = index
    return tuple(runs)
