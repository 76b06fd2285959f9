"""Encodes and decodes Produce (api key 0), versions 8, 10 and 13.

* v8: topics by name, fixed-size lengths; record errors and message (KIP-467). For brokers from 2.4 on.
* v10: flexible (KIP-482, since v9), leader hints in tagged fields (KIP-951). v11 and v12 add
  nothing for a producer without transactions.
* v13: topics by id (KIP-516), so that a recreated topic answers UNKNOWN_TOPIC_ID (100).

Quirks: exactly one batch per partition and request, else the broker refuses the
partition (87); a duplicate of a known batch is a success with the original
offset; `log_append_time_ms` is -1 for CreateTime topics except in such an answer.

Knows bytes only: no sockets, no retries, no meaning of error codes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

from heliograph.errors import UnsupportedVersion
from heliograph.kafka.codec.primitives import (
    NO_TAGS,
    Buffer,
    LeaderEpoch,
    NodeEndpoint,
    TopicKey,
    encode_compact_string,
    encode_count,
    encode_request_header,
    encode_string,
    encode_topic,
    encode_uvarint,
    malformed,
    parse_endpoints,
    parse_leader,
    read_array,
    read_compact_string,
    read_count,
    read_i32,
    read_response_header,
    read_string,
    read_tags,
    read_topic,
    require_end,
    slices,
)

API_KEY = 0
VERSIONS = (8, 10, 13)

_SIZE = struct.Struct(">i")
_INDEX_AND_SIZE = struct.Struct(">ii")
_ACKS_AND_TIMEOUT = struct.Struct(">hi")
_RESULT = struct.Struct(">ihqqq")
# A flexible partition without errors, message and tags: the usual answer in one go.
_PLAIN_RESULT = struct.Struct(">ihqqqBBB")


class ProducePartition(NamedTuple):
    """Holds one batch for one partition, whole or in slices that are sent one after the other."""

    partition: int
    batch: Buffer | list[Buffer] | tuple[Buffer, ...]


class RecordError(NamedTuple):
    batch_index: int
    message: str | None


class ProducedPartition(NamedTuple):
    partition: int
    error_code: int
    base_offset: int
    log_append_time_ms: int
    log_start_offset: int
    record_errors: tuple[RecordError, ...] = ()
    error_message: str | None = None
    current_leader: LeaderEpoch | None = None


class ProducedTopic(NamedTuple):
    topic: TopicKey
    partitions: list[ProducedPartition]


class ProduceResponse(NamedTuple):
    correlation_id: int
    topics: list[ProducedTopic]
    throttle_ms: int
    endpoints: tuple[NodeEndpoint, ...]


def is_flexible(version: int) -> bool:
    return version >= 9


def uses_topic_ids(version: int) -> bool:
    return version >= 13


def encode_produce_request(
    version: int,
    topics: Sequence[tuple[TopicKey, Sequence[ProducePartition]]],
    *,
    correlation_id: int,
    client_id: str | None,
    timeout_ms: int,
    acks: int = -1,
    transactional_id: str | None = None,
) -> list[Buffer]:
    """Encode the whole request, size prefix included, as buffers for one gathering write.

    The batches are passed on as they are; only the bytes between them are made here.
    """
    _check_version(version)
    flexible = is_flexible(version)
    head = bytearray(_SIZE.size)
    head += encode_request_header(
        API_KEY, version, correlation_id=correlation_id, client_id=client_id, flexible=flexible
    )
    head += encode_compact_string(transactional_id) if flexible else encode_string(transactional_id)
    head += _ACKS_AND_TIMEOUT.pack(acks, timeout_ms)
    head += encode_count(len(topics), flexible=flexible)
    buffers: list[Buffer] = [head]
    total = 0
    for topic, partitions in topics:
        head += encode_topic(topic, flexible=flexible)
        head += encode_count(len(partitions), flexible=flexible)
        for partition, batch in partitions:
            batch_slices = list(slices(batch))
            size = sum(map(len, batch_slices))
            if flexible:
                head += _SIZE.pack(partition) + encode_uvarint(size + 1)
            else:
                head += _INDEX_AND_SIZE.pack(partition, size)
            buffers += batch_slices
            total += len(head) + size
            head = bytearray(NO_TAGS if flexible else b"")
            buffers.append(head)
        if flexible:
            head += NO_TAGS
    if flexible:
        head += NO_TAGS
    elif not head:
        buffers.pop()
    total += len(head)
    _SIZE.pack_into(buffers[0], 0, total - _SIZE.size)
    return buffers


def decode_produce_response(view: memoryview, version: int) -> ProduceResponse:
    """Decode an answer, from its correlation id on."""
    _check_version(version)
    flexible = is_flexible(version)
    correlation_id, pos = read_response_header(view, flexible=flexible)
    topic_count, pos = read_count(view, pos, flexible=flexible)
    topics = []
    for _ in range(topic_count):
        topic, pos = read_topic(view, pos, by_id=uses_topic_ids(version), flexible=flexible)
        partition_count, pos = read_count(view, pos, flexible=flexible)
        partitions: list[ProducedPartition] = []
        for _ in range(partition_count):
            partition, pos = _read_partition(view, pos, flexible=flexible)
            partitions.append(partition)
        if flexible:
            _, pos = read_tags(view, pos)
        topics.append(ProducedTopic(topic, partitions))
    throttle_ms, pos = read_i32(view, pos)
    endpoints: tuple[NodeEndpoint, ...] = ()
    if flexible:
        tags, pos = read_tags(view, pos)
        endpoints = parse_endpoints(tags, 0)
    require_end(view, pos)
    return ProduceResponse(correlation_id, topics, throttle_ms, endpoints)


def _read_partition(view: memoryview, pos: int, *, flexible: bool) -> tuple[ProducedPartition, int]:
    if flexible and len(view) - pos >= _PLAIN_RESULT.size:
        part, error, base, append_time, start, errors, message, tag_count = _PLAIN_RESULT.unpack_from(view, pos)
        if errors <= 1 and message == 0 and tag_count == 0:
            return ProducedPartition(part, error, base, append_time, start), pos + _PLAIN_RESULT.size
    if len(view) - pos < _RESULT.size:
        raise malformed("the answer ends inside a partition", position=pos)
    result: tuple[int, int, int, int, int] = _RESULT.unpack_from(view, pos)
    pos += _RESULT.size
    read_element = _read_compact_record_error if flexible else _read_record_error
    record_errors, pos = read_array(view, pos, read_element, flexible=flexible)
    message_text, pos = read_compact_string(view, pos) if flexible else read_string(view, pos)
    current_leader = None
    if flexible:
        tags, pos = read_tags(view, pos)
        current_leader = parse_leader(tags, 0)
    return ProducedPartition(*result, record_errors, message_text, current_leader), pos


def _read_record_error(view: memoryview, pos: int) -> tuple[RecordError, int]:
    index, pos = read_i32(view, pos)
    message, pos = read_string(view, pos)
    return RecordError(index, message), pos


def _read_compact_record_error(view: memoryview, pos: int) -> tuple[RecordError, int]:
    index, pos = read_i32(view, pos)
    message, pos = read_compact_string(view, pos)
    _, pos = read_tags(view, pos)
    return RecordError(index, message), pos


def _check_version(version: int) -> None:
    if version not in VERSIONS:
        raise UnsupportedVersion(f"Produce v{version} is not among {VERSIONS}")
