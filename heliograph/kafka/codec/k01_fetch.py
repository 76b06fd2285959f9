"""Encodes and decodes Fetch (api key 1), versions 11, 13 and 16, without fetch sessions.

* v11: topics by name; `rack_id` and the preferred read replica (KIP-392). For brokers from 2.4 on.
* v12: flexible (KIP-482), last fetched epoch and diverging epoch (KIP-595).
* v13: topics by id (KIP-516): a recreated topic answers UNKNOWN_TOPIC_ID (100).
* v15: the replica id becomes a tagged field (KIP-903), absent for consumers.
* v16: endpoints of new leaders in a tagged field (KIP-951).

Quirks: a sessionless fetch has session id 0 and session epoch -1 (KIP-227). The
records of a partition may end in the middle of a batch, but never in that of the
first one, however small the limits (KIP-74). The fields of the current leader are
sent for errors 6 and 74 only. Null and empty records mean the same.

Knows bytes only: no sockets, no retries, no meaning of error codes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from heliograph.errors import UnsupportedVersion
from heliograph.kafka.codec.primitives import (
    LeaderEpoch,
    NodeEndpoint,
    TopicKey,
    encode_compact_string,
    encode_count,
    encode_request_header,
    encode_string,
    encode_topic,
    malformed,
    parse_endpoints,
    parse_leader,
    read_array,
    read_count,
    read_i32,
    read_response_header,
    read_slice,
    read_tags,
    read_topic,
    read_uvarint,
    require_end,
)

API_KEY = 1
VERSIONS = (11, 13, 16)

READ_UNCOMMITTED = 0
READ_COMMITTED = 1

_SIZE = struct.Struct(">i")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")
_RESPONSE_TOP = struct.Struct(">ihi")
# max wait, min bytes, max bytes, isolation level, session id 0, session epoch -1
_LIMITS = struct.Struct(">iiibii")
# partition, current leader epoch, offset, [last fetched epoch,] log start offset, max bytes[, no tags]
_WANT_V11 = struct.Struct(">iiqqi")
_WANT_V13 = struct.Struct(">iiqiqiB")
_RESULT = struct.Struct(">ihqqq")
# A flexible partition without aborted transactions; without records and tags too: the usual answer when idle.
_IDLE_RESULT = struct.Struct(">ihqqqBiBB")
_NO_RECORDS = memoryview(b"")


class FetchPartition(NamedTuple):
    """Says what to fetch of one partition; `leader_epoch` -1 means that it is not checked."""

    partition: int
    offset: int
    max_bytes: int
    leader_epoch: int = -1
    last_fetched_epoch: int = -1


class AbortedTransaction(NamedTuple):
    producer_id: int
    first_offset: int


class EpochEnd(NamedTuple):
    """Holds the point where our log and the leader's diverge: `end_offset`, the end of this leader epoch."""

    leader_epoch: int
    end_offset: int


class FetchedPartition(NamedTuple):
    """Holds one partition's answer; `records` is a slice of the answer, not a copy, and may be empty."""

    partition: int
    error_code: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: tuple[AbortedTransaction, ...]
    preferred_read_replica: int
    records: memoryview
    diverging_epoch: EpochEnd | None = None
    current_leader: LeaderEpoch | None = None


class FetchedTopic(NamedTuple):
    topic: TopicKey
    partitions: list[FetchedPartition]


class FetchResponse(NamedTuple):
    correlation_id: int
    throttle_ms: int
    error_code: int
    session_id: int
    topics: list[FetchedTopic]
    endpoints: tuple[NodeEndpoint, ...]


def is_flexible(version: int) -> bool:
    return version >= 12


def uses_topic_ids(version: int) -> bool:
    return version >= 13


def tells_divergence(version: int) -> bool:
    """Return whether the broker compares the epoch before the offset with that of its log."""
    return version >= 12


def encode_fetch_request(
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[FetchPartition]]],
    *,
    correlation_id: int,
    client_id: str | None,
    max_wait_ms: int,
    min_bytes: int,
    max_bytes: int,
    isolation_level: int = READ_UNCOMMITTED,
    rack_id: str = "",
) -> bytes:
    """Encode the whole request, size prefix included."""
    _check_version(version)
    flexible = is_flexible(version)
    parts = [
        encode_request_header(API_KEY, version, correlation_id=correlation_id, client_id=client_id, flexible=flexible),
        b"" if version >= 15 else _SIZE.pack(-1),  # replica id: a consumer
        _LIMITS.pack(max_wait_ms, min_bytes, max_bytes, isolation_level, 0, -1),
        encode_count(len(topics), flexible=flexible),
    ]
    for topic, partitions in topics:
        parts.append(encode_topic(topic, flexible=flexible))
        parts.append(encode_count(len(partitions), flexible=flexible))
        if flexible:
            pack = _WANT_V13.pack
            parts += [
                pack(part, epoch, offset, fetched, -1, limit, 0) for part, offset, limit, epoch, fetched in partitions
            ]
            parts.append(b"\x00")
        else:
            pack = _WANT_V11.pack
            parts += [pack(part, epoch, offset, -1, limit) for part, offset, limit, epoch, _ in partitions]
    parts.append(encode_count(0, flexible=flexible))  # forgotten topics
    parts.append(encode_compact_string(rack_id) + b"\x00" if flexible else encode_string(rack_id))
    body = b"".join(parts)
    return _SIZE.pack(len(body)) + body


def decode_fetch_response(view: memoryview, version: int) -> FetchResponse:
    """Decode an answer, from its correlation id on; records stay slices of `view`."""
    _check_version(version)
    flexible = is_flexible(version)
    by_id = uses_topic_ids(version)
    correlation_id, pos = read_response_header(view, flexible=flexible)
    top, pos = read_slice(view, pos, _RESPONSE_TOP.size)
    throttle_ms, error_code, session_id = _RESPONSE_TOP.unpack(top)
    topic_count, pos = read_count(view, pos, flexible=flexible)
    read_partitions = _read_flexible_partitions if flexible else _read_partitions
    topics = []
    for _ in range(topic_count):
        topic, pos = read_topic(view, pos, by_id=by_id, flexible=flexible)
        partition_count, pos = read_count(view, pos, flexible=flexible)
        partitions, pos = read_partitions(view, pos, partition_count)
        topics.append(FetchedTopic(topic, partitions))
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, pos = read_tags(view, pos)
        endpoints = parse_endpoints(tags, 0)
    require_end(view, pos)
    return FetchResponse(correlation_id, throttle_ms, error_code, session_id, topics, endpoints)


def _read_flexible_partitions(view: memoryview, pos: int, count: int) -> tuple[list[FetchedPartition], int]:
    """Read the partitions of one topic and the topic's tags; about 1 us for an idle partition."""
    unpack, size = _IDLE_RESULT.unpack_from, _IDLE_RESULT.size
    partitions = []
    last_start = len(view) - size
    for _ in range(count):
        if pos <= last_start:
            part, error, high, stable, start, aborted, replica, records, tag_count = unpack(view, pos)
            if aborted <= 1 and records <= 1 and tag_count == 0:
                partitions.append(FetchedPartition(part, error, high, stable, start, (), replica, _NO_RECORDS))
                pos += size
                continue
        partition, pos = _read_flexible_partition(view, pos)
        partitions.append(partition)
    _, pos = read_tags(view, pos)
    return partitions, pos


def _read_flexible_partition(view: memoryview, pos: int) -> tuple[FetchedPartition, int]:
    result, pos = _read_result(view, pos)
    aborted, pos = read_array(view, pos, _read_compact_aborted, flexible=True)
    replica, pos = read_i32(view, pos)
    size, pos = read_uvarint(view, pos)
    records, pos = read_slice(view, pos, max(size - 1, 0))
    tags, pos = read_tags(view, pos)
    if not tags:
        return FetchedPartition(*result, aborted, replica, records), pos
    diverging, leader = _parse_epoch_end(tags, 0), parse_leader(tags, 1)
    return FetchedPartition(*result, aborted, replica, records, diverging, leader), pos


def _read_partitions(view: memoryview, pos: int, count: int) -> tuple[list[FetchedPartition], int]:
    partitions = []
    for _ in range(count):
        result, pos = _read_result(view, pos)
        aborted, pos = read_array(view, pos, _read_aborted, flexible=False)
        replica, pos = read_i32(view, pos)
        size, pos = read_i32(view, pos)
        if size == -1:
            records = _NO_RECORDS
        else:
            records, pos = read_slice(view, pos, size)
        partitions.append(FetchedPartition(*result, aborted, replica, records))
    return partitions, pos


def _read_result(view: memoryview, pos: int) -> tuple[tuple[int, int, int, int, int], int]:
    try:
        return _RESULT.unpack_from(view, pos), pos + _RESULT.size
    except struct.error as error:
        raise malformed("the answer ends inside a partition", position=pos) from error


def _read_aborted(view: memoryview, pos: int) -> tuple[AbortedTransaction, int]:
    raw, pos = read_slice(view, pos, _ABORTED.size)
    return AbortedTransaction(*_ABORTED.unpack(raw)), pos


def _read_compact_aborted(view: memoryview, pos: int) -> tuple[AbortedTransaction, int]:
    aborted, pos = _read_aborted(view, pos)
    _, pos = read_tags(view, pos)
    return aborted, pos


def _parse_epoch_end(tags: dict[int, memoryview], tag: int) -> EpochEnd | None:
    raw = tags.get(tag)
    if raw is None:
        return None
    if len(raw) < _EPOCH_END.size:
        raise malformed("the diverging epoch is cut short")
    return EpochEnd(*_EPOCH_END.unpack_from(raw))


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise UnsupportedVersion(f"Fetch v{version} is not among {VERSIONS}")
