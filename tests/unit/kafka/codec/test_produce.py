"""Produce codec, byte for byte against kafka-python and kio."""

from __future__ import annotations

import datetime
import io
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from kafka.protocol.producer import ProduceRequest, ProduceResponse
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from heliograph.errors import ProtocolError, UnsupportedVersion
from heliograph.kafka.codec import k00_produce as k00
from heliograph.kafka.codec.k00_produce import ProducedPartition, ProducedTopic, ProducePartition, RecordError
from heliograph.kafka.codec.primitives import LeaderEpoch, NodeEndpoint, TopicKey

TOPIC_ID = UUID("01234567-89ab-cdef-0123-456789abcdef")
OTHER_ID = UUID(int=7)
BATCHES = {0: b"first batch", 3: b"second" * 100, 9: b"x" * 20_000}
CORRELATION_ID = 0x01020304


def topic_keys(version: int) -> tuple[TopicKey, TopicKey]:
    return (TOPIC_ID, OTHER_ID) if k00.uses_topic_ids(version) else ("orders", "zahlung-ü")


def topic_field(topic: TopicKey) -> dict[str, Any]:
    return {"topic_id": topic} if isinstance(topic, UUID) else {"name": topic}


def by_kio(entity: Any, header: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(header))(out, header)
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def kio_module(version: int, kind: str) -> Any:
    return import_module(f"kio.schema.produce.v{version}.{kind}")


def kio_request(version: int, transactional_id: str | None, topics: Sequence[TopicKey]) -> bytes:
    schema = kio_module(version, "request")
    request = schema.ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout=datetime.timedelta(milliseconds=30_000),
        topic_data=tuple(
            schema.TopicProduceData(
                **topic_field(topic),
                partition_data=tuple(
                    schema.PartitionProduceData(index=index, records=batch) for index, batch in BATCHES.items()
                ),
            )
            for topic in topics
        ),
    )
    header = schema.ProduceRequest.__header_schema__(
        request_api_key=0, request_api_version=version, correlation_id=CORRELATION_ID, client_id="mirror"
    )
    body = by_kio(request, header)
    return len(body).to_bytes(4, "big") + body


def kafka_python_request(version: int, transactional_id: str | None, topics: Sequence[TopicKey]) -> bytes:
    data_class = ProduceRequest.TopicProduceData
    request = ProduceRequest(
        version=version,
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            data_class(
                version=version,
                **topic_field(topic),
                partition_data=[
                    data_class.PartitionProduceData(version=version, index=index, records=batch)
                    for index, batch in BATCHES.items()
                ],
            )
            for topic in topics
        ],
    )
    request.with_header(correlation_id=CORRELATION_ID, client_id="mirror")
    return bytes(request.encode(header=True, framed=True))


@pytest.mark.parametrize("topic_count", [0, 1, 2])
@pytest.mark.parametrize("transactional_id", [None, "tx"])
@pytest.mark.parametrize("version", k00.VERSIONS)
def test_request_equals_both_oracles(version: int, transactional_id: str | None, topic_count: int) -> None:
    topics = topic_keys(version)[:topic_count]
    partitions = [ProducePartition(index, memoryview(batch)) for index, batch in BATCHES.items()]
    buffers = k00.encode_produce_request(
        version,
        [(topic, partitions) for topic in topics],
        correlation_id=CORRELATION_ID,
        client_id="mirror",
        timeout_ms=30_000,
        transactional_id=transactional_id,
    )
    ours = b"".join(buffers)
    assert ours == kio_request(version, transactional_id, topics)
    assert ours == kafka_python_request(version, transactional_id, topics)
    assert all(len(buffer) for buffer in buffers)


@pytest.mark.parametrize("version", k00.VERSIONS)
def test_request_passes_batches_on_uncopied_and_in_slices(version: int) -> None:
    topic = topic_keys(version)[0]
    batch = memoryview(bytearray(b"0123456789"))
    encode = partial(k00.encode_produce_request, version, correlation_id=1, client_id=None, timeout_ms=1)
    whole = encode([(topic, [ProducePartition(0, batch)])])
    sliced = encode([(topic, [ProducePartition(0, [batch[:3], batch[3:]])])])
    assert any(buffer is batch for buffer in whole)
    assert b"".join(whole) == b"".join(sliced)


def test_other_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        k00.encode_produce_request(9, [], correlation_id=1, client_id=None, timeout_ms=1)
    with pytest.raises(UnsupportedVersion):
        k00.decode_produce_response(memoryview(b""), 7)


def expected_topics(version: int) -> list[ProducedTopic]:
    leader = LeaderEpoch(4, 19) if k00.is_flexible(version) else None
    good, bad = topic_keys(version)
    refused = ProducedPartition(
        5, 87, -1, -1, 3, (RecordError(2, "null key"), RecordError(9, None)), "invalid record", leader
    )
    return [
        ProducedTopic(
            good, [ProducedPartition(0, 0, 1 << 40, 1_700_000_000_000, 17), ProducedPartition(1, 0, 5, -1, 0)]
        ),
        ProducedTopic(bad, [refused]),
        ProducedTopic(good, []),
    ]


def expected_endpoints(version: int) -> tuple[NodeEndpoint, ...]:
    return (NodeEndpoint(4, "b4.example", 9093, "r1"), NodeEndpoint(5, "b5", 1, None)) if version >= 10 else ()


def kafka_python_response(version: int) -> bytes:
    topic_class = ProduceResponse.TopicProduceResponse
    part_class = topic_class.PartitionProduceResponse

    def partition(part: ProducedPartition) -> Any:
        tags = {}
        if part.current_leader is not None:
            leader = part.current_leader._asdict()
            tags["current_leader"] = part_class.LeaderIdAndEpoch(version=version, **leader)
        errors = [
            part_class.BatchIndexAndErrorMessage(
                version=version, batch_index=error.batch_index, batch_index_error_message=error.message
            )
            for error in part.record_errors
        ]
        return part_class(
            version=version,
            index=part.partition,
            error_code=part.error_code,
            base_offset=part.base_offset,
            log_append_time_ms=part.log_append_time_ms,
            log_start_offset=part.log_start_offset,
            record_errors=errors,
            error_message=part.error_message,
            **tags,
        )

    endpoints = [ProduceResponse.NodeEndpoint(version=version, **e._asdict()) for e in expected_endpoints(version)]
    response = ProduceResponse(
        version=version,
        responses=[
            topic_class(version=version, **topic_field(topic), partition_responses=[partition(p) for p in partitions])
            for topic, partitions in expected_topics(version)
        ],
        throttle_time_ms=250,
        **({"node_endpoints": endpoints} if endpoints else {}),
    )
    response.with_header(correlation_id=CORRELATION_ID)
    return bytes(response.encode(header=True))


def kio_response(version: int) -> bytes:
    schema = kio_module(version, "response")

    def partition(part: ProducedPartition) -> Any:
        time = part.log_append_time_ms
        tags = {}
        if part.current_leader is not None:
            tags["current_leader"] = schema.LeaderIdAndEpoch(**part.current_leader._asdict())
        return schema.PartitionProduceResponse(
            index=part.partition,
            error_code=ErrorCode(part.error_code),
            base_offset=part.base_offset,
            log_append_time=None if time == -1 else datetime.datetime.fromtimestamp(time / 1000, datetime.UTC),
            log_start_offset=part.log_start_offset,
            record_errors=tuple(
                schema.BatchIndexAndErrorMessage(batch_index=e.batch_index, batch_index_error_message=e.message)
                for e in part.record_errors
            ),
            error_message=part.error_message,
            **tags,
        )

    endpoints = tuple(schema.NodeEndpoint(**e._asdict()) for e in expected_endpoints(version))
    response = schema.ProduceResponse(
        responses=tuple(
            schema.TopicProduceResponse(
                **topic_field(topic), partition_responses=tuple(partition(p) for p in partitions)
            )
            for topic, partitions in expected_topics(version)
        ),
        throttle_time=datetime.timedelta(milliseconds=250),
        **({"node_endpoints": endpoints} if endpoints else {}),
    )
    return by_kio(response, schema.ProduceResponse.__header_schema__(correlation_id=CORRELATION_ID))


ORACLES = {"kafka-python": kafka_python_response, "kio": kio_response}


@pytest.mark.parametrize("oracle", ORACLES)
@pytest.mark.parametrize("version", k00.VERSIONS)
def test_response_of_both_oracles_is_decoded(version: int, oracle: str) -> None:
    response = k00.decode_produce_response(memoryview(ORACLES[oracle](version)), version)
    assert response.correlation_id == CORRELATION_ID
    assert response.topics == expected_topics(version)
    assert response.throttle_ms == 250
    assert response.endpoints == expected_endpoints(version)


@pytest.mark.parametrize("version", k00.VERSIONS)
def test_truncated_response_is_a_typed_error_at_every_length(version: int) -> None:
    whole = kafka_python_response(version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            k00.decode_produce_response(memoryview(whole)[:size], version)


@pytest.mark.parametrize("version", k00.VERSIONS)
def test_bytes_left_over_are_a_typed_error(version: int) -> None:
    with pytest.raises(ProtocolError, match="left over"):
        k00.decode_produce_response(memoryview(kafka_python_response(version) + b"\x00"), version)


@pytest.mark.parametrize("version", k00.VERSIONS)
def test_any_flipped_byte_gives_a_response_or_a_typed_error(version: int) -> None:
    whole = kafka_python_response(version)
    for index in range(len(whole)):
        for value in (0x00, 0x7F, 0x80, 0xFF):
            damaged = bytearray(whole)
            damaged[index] = value
            try:
                k00.decode_produce_response(memoryview(damaged), version)
            except ProtocolError:
                continue


def test_unknown_tags_are_skipped_everywhere() -> None:
    tag = b"\x01\x63\x03abc"  # one field, number 99, three bytes
    partition = bytes.fromhex("00000001 0000") + bytes(7) + b"\x05" + b"\xff" * 8 + bytes(8) + b"\x01\x00" + tag
    body = CORRELATION_ID.to_bytes(4, "big") + tag + b"\x02" + TOPIC_ID.bytes + b"\x02" + partition + tag
    body += bytes(4) + tag
    response = k00.decode_produce_response(memoryview(body), 13)
    assert response.topics == [ProducedTopic(TOPIC_ID, [ProducedPartition(1, 0, 5, -1, 0)])]
