"""MirrorMaker 2's internal records, byte for byte: offset syncs, checkpoints, heartbeats. Pure.

Old-style structs: big-endian, a string is its length in two bytes and its UTF-8. All of
them stand in partition 0 of their topic, and none is ever deleted: MirrorMaker 2's
readers cannot bear a null value. Parsing gives None for what is none of these, whatever
its bytes, and takes any version for the one we know, as MirrorMaker 2 does.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from heliograph.ledger.records.untrusted_json import OFFSET_MAX, as_time_ms

VERSION = 0
MAX_STRING = 32767

_INT32 = struct.Struct(">i")
_LENGTH = struct.Struct(">h")
_SYNC = struct.Struct(">qq")
_CHECKPOINT = struct.Struct(">hqq")
_HEARTBEAT = struct.Struct(">hq")

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSync:
    """The record at offset `upstream` of the source's topic stands at `downstream` on the target."""

    topic: str
    """The source's name."""
    partition: int
    upstream: int
    downstream: int

    @classmethod
    def parse(cls, key: bytes | None, value: bytes | None) -> OffsetSync | None:
        return _parsed(cls._parse, key, value)

    @classmethod
    def _parse(cls, key: bytes, value: bytes) -> OffsetSync:
        topic, at = _string(key, 0)
        (partition,) = _INT32.unpack_from(key, at)
        upstream, downstream = _SYNC.unpack_from(value)
        _refuse_negative(partition, upstream, downstream)
        return cls(topic=topic, partition=partition, upstream=upstream, downstream=downstream)

    def encode(self) -> tuple[bytes, bytes]:
        return _text(self.topic) + _INT32.pack(self.partition), _SYNC.pack(self.upstream, self.downstream)


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A group's committed offset on the source, and where that is on the target."""

    group: str
    topic: str
    """The target's name."""
    partition: int
    upstream: int
    downstream: int
    metadata: str = ""

    @classmethod
    def parse(cls, key: bytes | None, value: bytes | None) -> Checkpoint | None:
        return _parsed(cls._parse, key, value)

    @classmethod
    def _parse(cls, key: bytes, value: bytes) -> Checkpoint:
        group, at = _string(key, 0)
        topic, at = _string(key, at)
        (partition,) = _INT32.unpack_from(key, at)
        _, upstream, downstream = _CHECKPOINT.unpack_from(value)
        metadata, _ = _string(value, _CHECKPOINT.size)
        _refuse_negative(partition, upstream, downstream)
        return cls(
            group=group,
            topic=topic,
            partition=partition,
            upstream=upstream,
            downstream=downstream,
            metadata=metadata,
        )

    def encode(self) -> tuple[bytes, bytes]:
        """Raises ValueError if a string does not fit: Kafka has no limit of its own for metadata."""
        key = _text(self.group) + _text(self.topic) + _INT32.pack(self.partition)
        return key, _CHECKPOINT.pack(VERSION, self.upstream, self.downstream) + _text(self.metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A sign of life of the flow from one alias to another."""

    source: str
    target: str
    time_ms: int

    @classmethod
    def parse(cls, key: bytes | None, value: bytes | None) -> Heartbeat | None:
        return _parsed(cls._parse, key, value)

    @classmethod
    def _parse(cls, key: bytes, value: bytes) -> Heartbeat:
        source, at = _string(key, 0)
        target, _ = _string(key, at)
        _, time_ms = _HEARTBEAT.unpack_from(value)
        as_time_ms(time_ms)
        return cls(source=source, target=target, time_ms=time_ms)

    def encode(self) -> tuple[bytes, bytes]:
        return _text(self.source) + _text(self.target), _HEARTBEAT.pack(VERSION, self.time_ms)


def _parsed(parse: Callable[[bytes, bytes], R], key: bytes | None, value: bytes | None) -> R | None:
    if key is None or value is None:
        return None
    try:
        return parse(key, value)
    except (struct.error, ValueError):
        return None


def _refuse_negative(*numbers: int) -> None:
    """Raise ValueError for a negative number: MirrorMaker 2 writes none, and reads such an offset as none."""
    if any(number < 0 or number > OFFSET_MAX for number in numbers):
        raise ValueError("no partition, or no offset")


def _text(text: str) -> bytes:
    data = text.encode()
    if len(data) > MAX_STRING:
        raise ValueError(f"a string of {len(data)} bytes does not fit; at most {MAX_STRING} do")
    return _LENGTH.pack(len(data)) + data


def _string(data: bytes, at: int) -> tuple[str, int]:
    """The string at an offset, and the offset after it."""
    (length,) = _LENGTH.unpack_from(data, at)
    start, end = at + _LENGTH.size, at + _LENGTH.size + length
    if length < 0 or end > len(data):
        raise ValueError("a string that is cut off")
    return bytes(data[start:end]).decode(), end
