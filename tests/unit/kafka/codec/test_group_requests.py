"""OffsetCommit and ConsumerGroupDescribe codecs, byte for byte against kio; whatever is garbled is a typed error."""

from __future__ import annotations

import contextlib
import datetime
import io
from collections.abc import Callable
from importlib import import_module
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from heliograph.errors import ProtocolError, UnsupportedVersion
from heliograph.kafka.codec import k08_offset_commit as k08
from heliograph.kafka.codec import k69_consumer_group_describe as k69
from heliograph.kafka.codec.k08_offset_commit import CommitPartition, CommitResult
from heliograph.kafka.codec.k69_consumer_group_describe import DescribedGroup, DescribedMember

CORRELATION_ID = 0x01020304
THROTTLE = datetime.timedelta(milliseconds=250)


def by_kio(entity: Any, **header: Any) -> bytes:
    out = io.BytesIO()
    header_class = entity.__header_schema__
    entity_writer(header_class)(out, header_class(correlation_id=CORRELATION_ID, **header))
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


def framed_by_kio(entity: Any, api_key: int, version: int) -> bytes:
    body = by_kio(entity, request_api_key=api_key, request_api_version=version, client_id="mirror")
    return len(body).to_bytes(4, "big") + body


# -- OffsetCommit ----------------------------------------------------------------------------

COMMITS = {
    "orders": [CommitPartition(0, 17, -1, ""), CommitPartition(3, 2**40, 7, "von ü")],
    "zahlung": [CommitPartition(1, 0, 0, "x" * 300)],
}


@pytest.mark.parametrize("topics", [{}, COMMITS])
@pytest.mark.parametrize("version", k08.VERSIONS)
def test_commit_request_equals_kio(version: int, topics: dict[str, list[CommitPartition]]) -> None:
    schema = import_module(f"kio.schema.offset_commit.v{version}.request")
    expected = schema.OffsetCommitRequest(
        group_id="gruppe-ü",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=tuple(
            schema.OffsetCommitRequestTopic(
                name=topic,
                partitions=tuple(
                    schema.OffsetCommitRequestPartition(
                        partition_index=index,
                        committed_offset=offset,
                        committed_leader_epoch=epoch,
                        committed_metadata=metadata,
                    )
                    for index, offset, epoch, metadata in partitions
                ),
            )
            for topic, partitions in topics.items()
        ),
    )
    ours = k08.encode_offset_commit_request(
        version, "gruppe-ü", topics, correlation_id=CORRELATION_ID, client_id="mirror"
    )
    assert bytes(ours) == framed_by_kio(expected, k08.API_KEY, version)


def commit_response(version: int) -> bytes:
    schema = import_module(f"kio.schema.offset_commit.v{version}.response")
    codes = {"orders": {0: ErrorCode.none, 3: ErrorCode.unknown_member_id}, "zahlung": {1: ErrorCode.not_coordinator}}
    return by_kio(
        schema.OffsetCommitResponse(
            throttle_time=THROTTLE,
            topics=tuple(
                schema.OffsetCommitResponseTopic(
                    name=topic,
                    partitions=tuple(
                        schema.OffsetCommitResponsePartition(partition_index=index, error_code=code)
                        for index, code in results.items()
                    ),
                )
                for topic, results in codes.items()
            ),
        )
    )


@pytest.mark.parametrize("version", k08.VERSIONS)
def test_commit_response_of_kio_is_read(version: int) -> None:
    expected = [CommitResult("orders", 0, 0), CommitResult("orders", 3, 25), CommitResult("zahlung", 1, 16)]
    assert k08.decode_offset_commit_response(memoryview(commit_response(version)), version) == (250, expected)


def test_tagged_fields_in_a_commit_response_are_passed_over() -> None:
    head = CORRELATION_ID.to_bytes(4, "big") + b"\x01\x05\x01x" + bytes(4)
    partition = (4).to_bytes(4, "big") + bytes(2) + b"\x01\x07\x02yz"
    body = head + b"\x02" + b"\x02t" + b"\x02" + partition + b"\x00" + b"\x01\x00\x00"
    assert k08.decode_offset_commit_response(memoryview(body), 8) == (0, [CommitResult("t", 4, 0)])


# -- ConsumerGroupDescribe --------------------------------------------------------------------


@pytest.mark.parametrize("groups", [[], ["billing"], ["billing", "gruppe-ü"]])
@pytest.mark.parametrize("version", k69.VERSIONS)
def test_describe_request_equals_kio(version: int, groups: list[str]) -> None:
    schema = import_module(f"kio.schema.consumer_group_describe.v{version}.request")
    expected = schema.ConsumerGroupDescribeRequest(group_ids=tuple(groups), include_authorized_operations=False)
    ours = k69.encode_consumer_group_describe_request(
        version, groups, correlation_id=CORRELATION_ID, client_id="mirror"
    )
    assert ours == framed_by_kio(expected, k69.API_KEY, version)


def describe_response(version: int) -> bytes:
    schema = import_module(f"kio.schema.consumer_group_describe.v{version}.response")

    def assignment(**topics: tuple[int, ...]) -> Any:
        return schema.Assignment(
            topic_partitions=tuple(
                schema.TopicPartitions(topic_id=UUID(int=7), topic_name=topic, partitions=partitions)
                for topic, partitions in topics.items()
            )
        )

    members = tuple(
        schema.Member(
            member_id=name,
            instance_id=instance,
            rack_id="rack" if instance else None,
            member_epoch=5,
            client_id="app",
            client_host="/10.0.0.1",
            subscribed_topic_names=("orders", "zahlung"),
            subscribed_topic_regex=None if instance else "o.*",
            assignment=given,
            target_assignment=assignment(other=(9,)),
        )
        for name, instance, given in (
            ("a", None, assignment(orders=(0, 2), zahlung=(1,))),
            ("b", "static", assignment()),
        )
    )
    return by_kio(
        schema.ConsumerGroupDescribeResponse(
            throttle_time=THROTTLE,
            groups=(
                schema.DescribedGroup(
                    error_code=ErrorCode.none,
                    group_id="billing",
                    group_state="Stable",
                    group_epoch=5,
                    assignment_epoch=5,
                    assignor_name="uniform",
                    members=members,
                ),
                schema.DescribedGroup(
                    error_code=ErrorCode.group_id_not_found,
                    error_message="Group gone not found.",
                    group_id="gone",
                    group_state="",
                    group_epoch=0,
                    assignment_epoch=0,
                    assignor_name="",
                    members=(),
                ),
            ),
        )
    )


@pytest.mark.parametrize("version", k69.VERSIONS)
def test_describe_response_of_kio_is_read(version: int) -> None:
    response = k69.decode_consumer_group_describe_response(memoryview(describe_response(version)), version)
    assert response.throttle_ms == 250
    assert response.groups == (
        DescribedGroup(
            0,
            None,
            "billing",
            "Stable",
            (
                DescribedMember("a", "app", "/10.0.0.1", (("orders", 0), ("orders", 2), ("zahlung", 1))),
                DescribedMember("b", "app", "/10.0.0.1", ()),
            ),
        ),
        DescribedGroup(69, "Group gone not found.", "gone", "", ()),
    )


# -- both --------------------------------------------------------------------------------------

DECODERS: dict[str, tuple[Callable[[int], bytes], Callable[[memoryview, int], Any]]] = {
    "commit": (commit_response, k08.decode_offset_commit_response),
    "describe": (describe_response, k69.decode_consumer_group_describe_response),
}


@pytest.mark.parametrize("name", DECODERS)
def test_every_truncation_is_a_typed_error(name: str) -> None:
    make, decode = DECODERS[name]
    version = 8 if name == "commit" else 1
    whole = make(version)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decode(memoryview(whole)[:size], version)
    with pytest.raises(ProtocolError, match="left over"):
        decode(memoryview(whole + b"\x00"), version)


@pytest.mark.parametrize("name", DECODERS)
def test_a_garbled_answer_is_a_typed_error_or_read_as_odd_values(name: str) -> None:
    make, decode = DECODERS[name]
    version = 8 if name == "commit" else 1
    whole = make(version)

    @settings(max_examples=150)
    @given(changes=st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=3))
    def garble(changes: list[tuple[int, int]]) -> None:
        spoilt = bytearray(whole)
        for index, value in changes:
            spoilt[index] = value
        with contextlib.suppress(ProtocolError):
            decode(memoryview(spoilt), version)

    garble()


def test_other_versions_are_refused() -> None:
    with pytest.raises(UnsupportedVersion):
        k08.encode_offset_commit_request(10, "g", {}, correlation_id=1, client_id=None)
    with pytest.raises(UnsupportedVersion):
        k08.decode_offset_commit_response(memoryview(b""), 7)
    with pytest.raises(UnsupportedVersion):
        k69.encode_consumer_group_describe_request(2, [], correlation_id=1, client_id=None)
    with pytest.raises(UnsupportedVersion):
        k69.decode_consumer_group_describe_response(memoryview(b""), 2)
