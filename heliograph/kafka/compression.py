"""Compresses record bodies: gzip, snappy, lz4, zstd as Java's clients write and read them.

Owns the formats around the algorithms. Decompression never makes more than
`max_bytes`, whatever the input claims; unreadable input is a `CorruptBatch`.
Knows no batch header and no record.

* snappy: Java writes xerial's framing (a 16-byte head, then blocks with their
  length) and reads that or one raw block; librdkafka and others write one raw block.
* lz4: the frame format with independent blocks. Java refuses linked blocks, which
  is what most libraries write by default, so the frame is made here.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import cramjam

from heliograph.errors import CorruptBatch
from heliograph.kafka.codec.primitives import Buffer

MAX_DECOMPRESSED_BYTES = 128 * 1024 * 1024
"""Maximum decompressed size: twice the largest batch that a broker's request limit allows (50 MB), and some more."""


class Codec(IntEnum):
    """Names the codecs by the lowest three attribute bits of a batch."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEAD = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK = 32 * 1024
# Magic, flags (version 1, independent blocks, no checksums), blocks up to 64 KiB, header checksum: as Java writes.
_LZ4_HEAD = bytes.fromhex("04224d18 60 40 82")
_LZ4_END = b"\x00\x00\x00\x00"
_LZ4_BLOCK = 64 * 1024
_LZ4_STORED = 1 << 31
_GZIP_LEVEL = 6
_ZSTD_LEVEL = 3
_BLOCK_SIZE = struct.Struct(">i")
_NO_ROOM = "failed to write whole buffer"
"""The error text of cramjam, for every format, when the output does not fit."""


def compress(codec: int, data: Buffer) -> Buffer:
    """Compress a batch body; `Codec.NONE` returns it unchanged."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return bytes(cramjam.gzip.compress(data, level=_GZIP_LEVEL))
        case Codec.SNAPPY:
            return _compress_snappy(data)
        case Codec.LZ4:
            return _compress_lz4(data)
        case Codec.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=_ZSTD_LEVEL))
    raise _unknown(codec)


def decompress(codec: int, data: Buffer, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> Buffer:
    """Decompress a batch body; `Codec.NONE` returns it unchanged."""
    match codec:
        case Codec.NONE:
            return data
        case Codec.GZIP:
            return _decompress_stream(cramjam.gzip.decompress_into, data, max_bytes)
        case Codec.SNAPPY:
            return _decompress_snappy(memoryview(data), max_bytes)
        case Codec.LZ4:
            return _decompress_stream(cramjam.lz4.decompress_into, data, max_bytes)
        case Codec.ZSTD:
            return _decompress_stream(cramjam.zstd.decompress_into, data, max_bytes)
    raise _unknown(codec)


def _decompress_stream(decompress_into: Callable[[Any, Any], int], data: Buffer, max_bytes: int) -> memoryview:
    """Try with room for eight times the input, then four times that, up to the limit.

    The formats do not tell their size, and the fixed output protects against decompression bombs. Damaged input is not
    tried again: a zeroed buffer of the largest size takes a tenth of a second.
    """
    room = min(8 * len(data) + 1024, max_bytes)
    while True:
        out = bytearray(room)
        try:
            return memoryview(out)[: decompress_into(data, out)]
        except (cramjam.DecompressionError, OSError) as error:
            if room == max_bytes or _NO_ROOM not in str(error):
                raise _unreadable(str(error), max_bytes) from error
        room = min(4 * room, max_bytes)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_XERIAL_HEAD]
    for start in range(0, len(view), _XERIAL_BLOCK):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _XERIAL_BLOCK]))
        parts += (_BLOCK_SIZE.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(view: memoryview, max_bytes: int) -> memoryview:
    if view[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        return memoryview(_decompress_snappy_block(view, max_bytes))
    out = bytearray()
    pos = len(_XERIAL_HEAD)
    if len(view) < pos:
        raise _unreadable("xerial head cut short", max_bytes)
    while pos < len(view):
        if len(view) - pos < _BLOCK_SIZE.size:
            raise _unreadable("xerial block length cut short", max_bytes)
        (size,) = _BLOCK_SIZE.unpack_from(view, pos)
        pos += _BLOCK_SIZE.size
        if not 0 < size <= len(view) - pos:
            raise _unreadable(f"xerial block of {size} bytes, {len(view) - pos} left", max_bytes)
        out += _decompress_snappy_block(view[pos : pos + size], max_bytes - len(out))
        pos += size
    return memoryview(out)


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytearray:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > max_bytes:
            raise _unreadable(f"snappy block of {size} bytes", max_bytes)
        out = bytearray(size)
        if cramjam.snappy.decompress_raw_into(block, out) != size:
            raise _unreadable("snappy block shorter than it says", max_bytes)
    except cramjam.DecompressionError as error:
        raise _unreadable(str(error), max_bytes) from error
    return out


def _compress_lz4(data: Buffer) -> bytes:
    view = memoryview(data)
    parts = [_LZ4_HEAD]
    for start in range(0, len(view), _LZ4_BLOCK):
        raw = view[start : start + _LZ4_BLOCK]
        block = bytes(cramjam.lz4.compress_block(raw, store_size=False))
        if len(block) < len(raw):
            parts += (len(block).to_bytes(4, "little"), block)
        else:
            parts += ((len(raw) | _LZ4_STORED).to_bytes(4, "little"), bytes(raw))
    parts.append(_LZ4_END)
    return b"".join(parts)


def _unreadable(why: str, max_bytes: int) -> CorruptBatch:
    return CorruptBatch("compressed records cannot be read", why=f"{why} (limit {max_bytes} bytes)")


def _unknown(codec: int) -> CorruptBatch:
    return CorruptBatch(f"compression codec {codec} is unknown")
