"""Encodes and decodes ConsumerGroupDescribe (api key 69), versions 0 and 1: the new group protocol (KIP-848).

* v0: 3.7 in preview, 4.0 for good. * v1: a member's type (KIP-1099), which nobody here asks for.

By hand because kafka-python lacks it. Quirks: a classic group answers GROUP_ID_NOT_FOUND (69), as an
unknown one does; a broker on which the protocol is switched off answers UNSUPPORTED_VERSION (35).

Knows bytes only: no sockets, no retries, no meaning of error codes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from heliograph.errors import UnsupportedVersion
from heliograph.kafka.codec.primitives import (
    NO_TAGS,
    encode_compact_string,
    encode_count,
    encode_request_header,
    read_array,
    read_compact_string,
    read_i32,
    read_name,
    read_response_header,
    read_slice,
    read_tags,
    require_end,
)

API_KEY = 69
VERSIONS = (0, 1)

_SIZE = struct.Struct(">i")
_I16 = struct.Struct(">h")
_UUID_BYTES = 16


class DescribedMember(NamedTuple):
    member_id: str
    client_id: str
    client_host: str
    partitions: tuple[tuple[str, int], ...]
    """The current assignment, not the target assignment."""


class DescribedGroup(NamedTuple):
    error_code: int
    error_message: str | None
    group_id: str
    state: str
    members: tuple[DescribedMember, ...]


class DescribeResponse(NamedTuple):
    throttle_ms: int
    groups: tuple[DescribedGroup, ...]


def encode_consumer_group_describe_request(
    version: int, group_ids: Sequence[str], *, correlation_id: int, client_id: str | None
) -> bytes:
    """Encode the whole request, size prefix included; our authorized operations are not asked for."""
    _check_version(version)
    body = b"".join(
        (
            encode_request_header(API_KEY, version, correlation_id=correlation_id, client_id=client_id, flexible=True),
            encode_count(len(group_ids), flexible=True),
            *map(encode_compact_string, group_ids),
            b"\x00",
            NO_TAGS,
        )
    )
    return _SIZE.pack(len(body)) + body


def decode_consumer_group_describe_response(view: memoryview, version: int) -> DescribeResponse:
    """Decode an answer, from its correlation id on."""
    _check_version(version)
    _, pos = read_response_header(view, flexible=True)
    throttle_ms, pos = read_i32(view, pos)

    def read_member(view: memoryview, pos: int) -> tuple[DescribedMember, int]:
        return _read_member(view, pos, has_type=version >= 1)

    def read_group(view: memoryview, pos: int) -> tuple[DescribedGroup, int]:
        raw, pos = read_slice(view, pos, _I16.size)
        message, pos = read_compact_string(view, pos)
        group_id, pos = read_name(view, pos, flexible=True)
        state, pos = read_name(view, pos, flexible=True)
        _, pos = read_slice(view, pos, 8)  # epochs of the group and its assignment
        _, pos = read_name(view, pos, flexible=True)  # assignor
        members, pos = read_array(view, pos, read_member, flexible=True)
        _, pos = read_i32(view, pos)  # our rights
        _, pos = read_tags(view, pos)
        return DescribedGroup(_I16.unpack(raw)[0], message, group_id, state, members), pos

    groups, pos = read_array(view, pos, read_group, flexible=True)
    _, pos = read_tags(view, pos)
    require_end(view, pos)
    return DescribeResponse(throttle_ms, groups)


def _read_member(view: memoryview, pos: int, *, has_type: bool) -> tuple[DescribedMember, int]:
    member_id, pos = read_name(view, pos, flexible=True)
    _, pos = read_compact_string(view, pos)  # instance
    _, pos = read_compact_string(view, pos)  # rack
    _, pos = read_i32(view, pos)  # epoch
    client_id, pos = read_name(view, pos, flexible=True)
    client_host, pos = read_name(view, pos, flexible=True)
    _, pos = read_array(view, pos, read_compact_string, flexible=True)  # subscribed topics
    _, pos = read_compact_string(view, pos)  # and their pattern
    partitions, pos = _read_assignment(view, pos)
    _, pos = _read_assignment(view, pos)  # where the group is heading
    _, pos = read_slice(view, pos, int(has_type))
    _, pos = read_tags(view, pos)
    return DescribedMember(member_id, client_id, client_host, partitions), pos


def _read_assignment(view: memoryview, pos: int) -> tuple[tuple[tuple[str, int], ...], int]:
    topics, pos = read_array(view, pos, _read_topic_partitions, flexible=True)
    _, pos = read_tags(view, pos)
    return tuple((topic, partition) for topic, partitions in topics for partition in partitions), pos


def _read_topic_partitions(view: memoryview, pos: int) -> tuple[tuple[str, tuple[int, ...]], int]:
    _, pos = read_slice(view, pos, _UUID_BYTES)
    topic, pos = read_name(view, pos, flexible=True)
    partitions, pos = read_array(view, pos, read_i32, flexible=True)
    _, pos = read_tags(view, pos)
    return (topic, partitions), pos


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise UnsupportedVersion(f"ConsumerGroupDescribe v{version} is not among {VERSIONS}")
