"""Fetch codec, byte for byte against kafka-python and kio."""

from __future__ import annotations

import datetime
import io
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.consumer import FetchRequest, FetchResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from heliograph.errors import ProtocolError, UnsupportedVersion
from heliograph.kafka.codec import k01_fetch as k01
from heliograph.kafka.codec.k01_fetch import (
    AbortedTransaction,
    EpochEnd,
    FetchedPartition,
    FetchedTopic,
    FetchPartition,
)
from heliograph.kafka.codec.primitives import LeaderEpoch, NodeEndpoint, TopicKey

TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
OTHER_ID = UUID(int=7)
CORRELATION_ID = 0x01020304
WANTED = [FetchPartition(0, 1 << 40, 1 << 20, 3, 2), FetchPartition(7, 0, 1), FetchPartition(300, 5, 1 << 30, 0)]
EMPTY = memoryview(b"")


def topic_keys(version: int) -> tuple[TopicKey, TopicKey]:
    return (TOPIC_ID, OTHER_ID) if k01.uses_topic_ids(version) else ("orders", "zahlung-ü")


def topic_field(topic: TopicKey) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, UUID) else {"topic": topic}


def fetch_partition_fields(version: int, part: FetchPartition) -> dict[str, int]:
    fields = {
        "partition": part.partition,
        "current_leader_epoch": part.leader_epoch,
        "fetch_offset": part.offset,
        "log_start_offset": -1,
        "partition_max_bytes": part.max_bytes,
    }
    return {**fields, "last_fetched_epoch": part.last_fetched_epoch} if version >= 12 else fields


def by_kio(entity: Any, header: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_request(version: int, topic_count: int) -> bytes:
    schema = import_module(f"kio.schema.fetch.v{version}.request")
    request = schema.FetchRequest(
        max_wait=datetime.timedelta(milliseconds=500),
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=1,
        topics=tuple(
            schema.FetchTopic(
                **topic_field(topic),
                partitions=tuple(schema.FetchPartition(**fetch_partition_fields(version, part)) for part in WANTED),
            )
            for topic in topic_keys(version)[:topic_count]
        ),
        forgotten_topics_data=(),
        rack_id="rack-1",
    )
    header = schema.FetchRequest.__header_schema__(
        request_api_key=1, request_api_version=version, correlation_id=CORRELATION_ID, client_id="mirror"
    )
    body = by_kio(request, header)
    return len(body).to_bytes(4, "big") + body


def kafka_python_request(version: int, topic_count: int) -> bytes:
    topic_class = FetchRequest.FetchTopic
    request = FetchRequest(
        version=version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=1,
        topics=[
            topic_class(
                version=version,
                **topic_field(topic),
                partitions=[
                    topic_class.FetchPartition(version=version, **fetch_partition_fields(version, part))
                    for part in WANTED
                ],
            )
            for topic in topic_keys(version)[:topic_count]
        ],
        forgotten_topics_data=[],
        rack_id="rack-1",
    )
    request.with_header(correlation_id=CORRELATION_ID, client_id="mirror")
    return bytes(request.encode(header=True, framed=True))


@pytest.mark.parametrize("topic_count", [0, 1, 2])
@pytest.mark.parametrize("version", k01.VERSIONS)
def test_request_equals_both_oracles(version: int, topic_count: int) -> None:
    ours = k01.encode_fetch_request(
        version,
        [(topic, WANTED) for topic in topic_keys(version)[:topic_count]],
        correlation_id=CORRELATION_ID,
        client_id="mirror",
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=52_428_800,
        isolation_level=k01.READ_COMMITTED,
        rack_id="rack-1",
    )
    assert ours == kio_request(version, topic_count)
    assert ours == kafka_python_request(version, topic_count)


def test_other_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        k01.encode_fetch_request(12, [], correlation_id=1, client_id=None, max_wait_ms=1, min_bytes=1, max_bytes=1)
    with pytest.raises(UnsupportedVersion):
        k01.decode_fetch_response(memoryview(b""), 17)


def expected_topics(version: int) -> list[FetchedTopic]:
    hints: tuple[EpochEnd, LeaderEpoch] | tuple[None, None] = (None, None)
    if k01.is_flexible(version):
        hints = EpochEnd(6, 1234), LeaderEpoch(4, 19)
    aborted = (AbortedTransaction(900, 1), AbortedTransaction(901, 1 << 33))
    first, second = topic_keys(version)
    return [
        FetchedTopic(
            first,
            [
                FetchedPartition(0, 0, 100, 90, 10, aborted, -1, memoryview(b"records" * 40)),
                FetchedPartition(1, 0, 0, 0, 0, (), -1, EMPTY),
                FetchedPartition(2, 0, 5, 5, 0, (), 8, EMPTY),
                FetchedPartition(3, 74, -1, -1, -1, (), -1, EMPTY, *hints),
                FetchedPartition(4, 0, 7, 7, 0, (), -1, memoryview(b"r")),
            ],
        ),
        FetchedTopic(second, []),
        FetchedTopic(second, [FetchedPartition(0, 100, -1, -1, -1, (), -1, EMPTY)]),
    ]


def expected_endpoints(version: int) -> tuple[NodeEndpoint, ...]:
    return (NodeEndpoint(4, "b4.example", 9093, "r1"), NodeEndpoint(5, "b5", 1, None)) if version >= 16 else ()


def partition_fields(part: FetchedPartition, *, null: bool) -> dict[str, Any]:
    """Empty lists and records as null, or as empty."""
    return {
        "partition_index": part.partition,
        "high_watermark": part.high_watermark,
        "last_stable_offset": part.last_stable_offset,
        "log_start_offset": part.log_start_offset,
        "preferred_read_replica": part.preferred_read_replica,
        "records": bytes(part.records) or (None if null else b""),
    }


def kafka_python_response(version: int, *, null: bool = False) -> bytes:
    topic_class = FetchResponse.FetchableTopicResponse
    part_class = topic_class.PartitionData

    def partition(part: FetchedPartition) -> Any:
        aborted = [part_class.AbortedTransaction(version=version, **a._asdict()) for a in part.aborted]
        tags = {}
        if part.diverging_epoch is not None and part.current_leader is not None:
            epoch, end_offset = part.diverging_epoch
            tags = {
                "diverging_epoch": part_class.EpochEndOffset(version=version, epoch=epoch, end_offset=end_offset),
                "current_leader": part_class.LeaderIdAndEpoch(version=version, **part.current_leader._asdict()),
            }
        return part_class(
            version=version,
            error_code=part.error_code,
            aborted_transactions=aborted or (None if null else []),
            **partition_fields(part, null=null),
            **tags,
        )

    endpoints = [FetchResponse.NodeEndpoint(version=version, **e._asdict()) for e in expected_endpoints(version)]
    response = FetchResponse(
        version=version,
        throttle_time_ms=250,
        error_code=0,
        session_id=0,
        responses=[
            topic_class(version=version, **topic_field(topic), partitions=[partition(p) for p in partitions])
            for topic, partitions in expected_topics(version)
        ],
        **({"node_endpoints": endpoints} if endpoints else {}),
    )
    response.with_header(correlation_id=CORRELATION_ID)
    return bytes(response.encode(header=True))


def kio_response(version: int, *, null: bool = False) -> bytes:
    schema = import_module(f"kio.schema.fetch.v{version}.response")

    def partition(part: FetchedPartition) -> Any:
        aborted = tuple(schema.AbortedTransaction(**a._asdict()) for a in part.aborted)
        tags = {}
        if part.diverging_epoch is not None and part.current_leader is not None:
            epoch, end_offset = part.diverging_epoch
            tags = {
                "diverging_epoch": schema.EpochEndOffset(epoch=epoch, end_offset=end_offset),
                "current_leader": schema.LeaderIdAndEpoch(**part.current_leader._asdict()),
            }
        return schema.PartitionData(
            error_code=ErrorCode(part.error_code),
            aborted_transactions=aborted or (None if null else ()),
            **partition_fields(part, null=null),
            **tags,
        )

    endpoints = tuple(schema.NodeEndpoint(**e._asdict()) for e in expected_endpoints(version))
    response = schema.FetchResponse(
        throttle_time=datetime.timedelta(milliseconds=250),
        error_code=ErrorCode.none,
        session_id=0,
        responses=tuple(
            schema.FetchableTopicResponse(**topic_field(topic), partitions=tuple(partition(p) for p in partitions))
            for topic, partitions in expected_topics(version)
        ),
        **({"node_endpoints": endpoints} if endpoints else {}),
    )
    return by_kio(response, schema.FetchResponse.__header_schema__(correlation_id=CORRELATION_ID))


ORACLES = {"kafka-python": kafka_python_response, "kio": kio_response}


@pytest.mark.parametrize("null", [False, True])
@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("version", k01.VERSIONS)
def test_response_of_both_oracles_is_decoded(version: int, oracle: str, null: bool) -> None:
    response = k01.decode_fetch_response(memoryview(ORACLES[oracle](version, null=null)), version)
    assert response[:4] == (CORRELATION_ID, 250, 0, 0)
    assert response.topics == expected_topics(version)
    assert response.endpoints == expected_endpoints(version)


@pytest.mark.parametrize("version", k01.VERSIONS)
def test_records_are_slices_of_the_answer(version: int) -> None:
    buffer = bytearray(kafka_python_response(version))
    records = k01.decode_fetch_response(memoryview(buffer), version).topics[0].partitions[0].records
    buffer[buffer.index(b"records")] = ord("R")
    assert bytes(records[:7]) == b"Records"


@pytest.mark.parametrize("version", k01.VERSIONS)
def test_truncated_response_is_a_typed_error_at_every_length(version: int) -> None:
    whole = kafka_python_response(version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            k01.decode_fetch_response(memoryview(whole)[:size], version)


@pytest.mark.parametrize("version", k01.VERSIONS)
def test_bytes_left_over_are_a_typed_error(version: int) -> None:
    with pytest.raises(ProtocolError, match="left over"):
        k01.decode_fetch_response(memoryview(kafka_python_response(version) + b"\x00"), version)


@pytest.mark.parametrize("version", k01.VERSIONS)
def test_any_flipped_byte_gives_a_response_or_a_typed_error(version: int) -> None:
    whole = kafka_python_response(version)
    for index in range(len(whole)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[index] = value
            try:
                k01.decode_fetch_response(memoryview(damaged), version)
            except ProtocolError:
                continue


def test_unknown_tags_are_skipped_everywhere() -> None:
    tag = b"\x01\x63\x03abc"  # one field, number 99, three bytes
    offsets = (9).to_bytes(8, "big") * 3
    aborted = b"\x02" + (900).to_bytes(8, "big") + (1).to_bytes(8, "big") + tag
    partition = bytes.fromhex("00000001 0000") + offsets + aborted + b"\xff\xff\xff\xff" + b"\x03ab" + tag
    body = CORRELATION_ID.to_bytes(4, "big") + tag + bytes(10) + b"\x02" + TOPIC_ID.bytes + b"\x02" + partition + tag
    response = k01.decode_fetch_response(memoryview(body + tag), 16)
    want = FetchedPartition(1, 0, 9, 9, 9, (AbortedTransaction(900, 1),), -1, memoryview(b"ab"))
    assert response.topics == [FetchedTopic(TOPIC_ID, [want])]
