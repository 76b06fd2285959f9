"""Encodes and decodes single values of Kafka's wire format: varints, strings, arrays, tagged fields, headers.

Readers take a buffer and a position and return the value with the position after it;
every length is checked against what is left, and whatever does not fit is a
`ProtocolError`. Knows no request, no socket and no topic.

Request header v1 (api key, version, correlation id, client id) and v2 (the same
and tagged fields); response header v0 (correlation id) and v1 (and tagged
fields). In header v2 the client id is still an ordinary string (KIP-482).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from heliograph.errors import ProtocolError

Buffer: TypeAlias = bytes | bytearray | memoryview
TopicKey: TypeAlias = str | UUID
"""A request's name for a topic: the name in older versions, the id in newer ones."""

NO_TAGS = b"\x00"

_I16 = struct.Struct(">h")
_I32 = struct.Struct(">i")
_LEADER = struct.Struct(">ii")
_REQUEST_HEADER = struct.Struct(">hhi")
_T = TypeVar("_T")


class LeaderEpoch(NamedTuple):
    """Holds the leader that a broker names instead of itself (KIP-951)."""

    leader_id: int
    leader_epoch: int


class NodeEndpoint(NamedTuple):
    """Holds the address of a leader named by `LeaderEpoch` (KIP-951)."""

    node_id: int
    host: str
    port: int
    rack: str | None


def malformed(what: str, *, position: int | None = None) -> ProtocolError:
    """Make the error for bytes that do not follow the protocol."""
    return ProtocolError(what, why="the answer is malformed, truncated or of another version", position=position)


def encode_uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def encode_varint(value: int) -> bytes:
    """Encode a signed number as a zigzag varint, as records use it for lengths and deltas."""
    return encode_uvarint((value << 1) ^ (value >> 63))


def read_uvarint(buf: Buffer, pos: int, *, max_bytes: int = 5) -> tuple[int, int]:
    value = shift = 0
    for index in range(pos, min(pos + max_bytes, len(buf))):
        byte = buf[index]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, index + 1
        shift += 7
    raise malformed("a variable-length number has no end", position=pos)


def encode_string(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return _I16.pack(len(data)) + data


def encode_compact_string(value: str | None) -> bytes:
    if value is None:
        return b"\x00"
    data = value.encode()
    return encode_uvarint(len(data) + 1) + data


def encode_topic(topic: TopicKey, *, flexible: bool) -> bytes:
    if isinstance(topic, UUID):
        return topic.bytes
    return encode_compact_string(topic) if flexible else encode_string(topic)


def encode_count(count: int, *, flexible: bool) -> bytes:
    """Encode the element count before an array."""
    return encode_uvarint(count + 1) if flexible else _I32.pack(count)


def encode_request_header(
    api_key: int, version: int, *, correlation_id: int, client_id: str | None, flexible: bool
) -> bytes:
    header = _REQUEST_HEADER.pack(api_key, version, correlation_id) + encode_string(client_id)
    return header + NO_TAGS if flexible else header


def read_i32(buf: Buffer, pos: int) -> tuple[int, int]:
    try:
        return _I32.unpack_from(buf, pos)[0], pos + 4
    except struct.error as error:
        raise malformed("the answer ends inside a number", position=pos) from error


def read_slice(view: memoryview, pos: int, size: int) -> tuple[memoryview, int]:
    """Return the next `size` bytes, not copied."""
    end = pos + size
    if size < 0 or end > len(view):
        raise malformed(f"a field of {size} bytes does not fit in the {len(view) - pos} left", position=pos)
    return view[pos:end], end


def read_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    raw, pos = read_slice(view, pos, 2)
    size = _I16.unpack(raw)[0]
    return (None, pos) if size == -1 else _read_text(view, pos, size)


def read_compact_string(view: memoryview, pos: int) -> tuple[str | None, int]:
    size, pos = read_uvarint(view, pos)
    return (None, pos) if size == 0 else _read_text(view, pos, size - 1)


def read_name(view: memoryview, pos: int, *, flexible: bool) -> tuple[str, int]:
    """Read a string that must not be null."""
    text, end = read_compact_string(view, pos) if flexible else read_string(view, pos)
    if text is None:
        raise malformed("a name is null", position=pos)
    return text, end


def read_topic(view: memoryview, pos: int, *, by_id: bool, flexible: bool) -> tuple[TopicKey, int]:
    if not by_id:
        return read_name(view, pos, flexible=flexible)
    raw, pos = read_slice(view, pos, 16)
    return UUID(bytes=bytes(raw)), pos


def read_count(view: memoryview, pos: int, *, flexible: bool) -> tuple[int, int]:
    """Read the element count before an array; -1 is a null array.

    An element takes at least a byte, so a count beyond the bytes left is refused
    before anybody loops over it.
    """
    if flexible:
        count, pos = read_uvarint(view, pos)
        count -= 1
    else:
        count, pos = read_i32(view, pos)
    if not -1 <= count <= len(view) - pos:
        raise malformed(f"an array of {count} elements does not fit in the {len(view) - pos} bytes left", position=pos)
    return count, pos


def read_array(
    view: memoryview, pos: int, read_element: Callable[[memoryview, int], tuple[_T, int]], *, flexible: bool
) -> tuple[tuple[_T, ...], int]:
    """Read the elements of an array; a null array is empty."""
    count, pos = read_count(view, pos, flexible=flexible)
    elements = []
    for _ in range(count):
        element, pos = read_element(view, pos)
        elements.append(element)
    return tuple(elements), pos


def read_tags(view: memoryview, pos: int) -> tuple[dict[int, memoryview], int]:
    """Read tagged fields as raw slices; the caller picks those it knows."""
    count, pos = read_uvarint(view, pos)
    tags: dict[int, memoryview] = {}
    for _ in range(count):
        tag, pos = read_uvarint(view, pos)
        size, pos = read_uvarint(view, pos)
        tags[tag], pos = read_slice(view, pos, size)
    return tags, pos


def read_response_header(view: memoryview, *, flexible: bool) -> tuple[int, int]:
    """Return correlation id and the position of the body."""
    correlation_id, pos = read_i32(view, 0)
    if flexible:
        _, pos = read_tags(view, pos)
    return correlation_id, pos


def parse_leader(tags: dict[int, memoryview], tag: int) -> LeaderEpoch | None:
    raw = tags.get(tag)
    if raw is None:
        return None
    if len(raw) < _LEADER.size:
        raise malformed("the current leader is cut short")
    return LeaderEpoch(*_LEADER.unpack_from(raw))


def parse_endpoints(tags: dict[int, memoryview], tag: int) -> tuple[NodeEndpoint, ...]:
    raw = tags.get(tag)
    return () if raw is None else read_array(raw, 0, _read_endpoint, flexible=True)[0]


def require_end(view: memoryview, pos: int) -> None:
    """Raise if bytes are left over: something was read wrongly."""
    if pos != len(view):
        raise malformed(f"{len(view) - pos} bytes are left over", position=pos)


def slices(buffers: Buffer | list[Buffer] | tuple[Buffer, ...]) -> Iterator[Buffer]:
    """Return one buffer or several, as several."""
    if isinstance(buffers, (list, tuple)):
        yield from buffers
    else:
        yield buffers


def _read_text(view: memoryview, pos: int, size: int) -> tuple[str, int]:
    raw, end = read_slice(view, pos, size)
    try:
        return str(raw, "utf-8"), end
    except UnicodeDecodeError as error:
        raise malformed("a string is not UTF-8", position=pos) from error


def _read_endpoint(view: memoryview, pos: int) -> tuple[NodeEndpoint, int]:
    node_id, pos = read_i32(view, pos)
    host, pos = read_name(view, pos, flexible=True)
    port, pos = read_i32(view, pos)
    rack, pos = read_compact_string(view, pos)
    _, pos = read_tags(view, pos)
    return NodeEndpoint(node_id, host, port, rack), pos
