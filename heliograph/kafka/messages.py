"""Encodes and decodes all requests but the hand-written ones, through kafka-python's message classes.

The only module that imports them: should that library change, only this file
does. It owns the version caps (the newest versions we have tested) and turns
whatever the library raises on broken bytes, and what it wrongly accepts, into ProtocolError.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from typing import Any

from kafka.protocol.admin import (
    AlterUserScramCredentialsRequest,
    CreateAclsRequest,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteAclsRequest,
    DescribeAclsRequest,
    DescribeClusterRequest,
    DescribeConfigsRequest,
    DescribeGroupsRequest,
    IncrementalAlterConfigsRequest,
    ListGroupsRequest,
)
from kafka.protocol.api_header import ResponseClassRegistry
from kafka.protocol.api_message import ApiMessage
from kafka.protocol.consumer import (
    FetchRequest,
    HeartbeatRequest,
    ListOffsetsRequest,
    OffsetFetchRequest,
    OffsetForLeaderEpochRequest,
)
from kafka.protocol.metadata import ApiVersionsRequest, FindCoordinatorRequest, MetadataRequest
from kafka.protocol.producer import InitProducerIdRequest, ProduceRequest
from kafka.protocol.sasl import SaslAuthenticateRequest, SaslHandshakeRequest

from heliograph.errors import ProtocolError, UnsupportedVersion

__all__ = [
    "API_VERSIONS_VERSION",
    "AlterUserScramCredentialsRequest",
    "ApiMessage",
    "ApiVersionsRequest",
    "CreateAclsRequest",
    "CreatePartitionsRequest",
    "CreateTopicsRequest",
    "DeleteAclsRequest",
    "DescribeAclsRequest",
    "DescribeClusterRequest",
    "DescribeConfigsRequest",
    "DescribeGroupsRequest",
    "FetchRequest",
    "FindCoordinatorRequest",
    "HeartbeatRequest",
    "IncrementalAlterConfigsRequest",
    "InitProducerIdRequest",
    "ListGroupsRequest",
    "ListOffsetsRequest",
    "MetadataRequest",
    "OffsetFetchRequest",
    "OffsetForLeaderEpochRequest",
    "ProduceRequest",
    "SaslAuthenticateRequest",
    "SaslHandshakeRequest",
    "decode_response",
    "encode_request",
    "lacking",
    "pick_version",
]

API_VERSIONS_VERSION = 3
"""Every broker since 2.4 answers it; an older one answers version 0 with error 35, which is enough."""

_NEWEST: dict[int, int] = {
    # Data is fetched and produced by our own codec; these serve to ask for a right, by a topic's name.
    ProduceRequest.API_KEY: 12,
    FetchRequest.API_KEY: 12,
    ListOffsetsRequest.API_KEY: 7,
    MetadataRequest.API_KEY: 12,
    OffsetFetchRequest.API_KEY: 8,  # several groups in a request; 9 is for members, 10 names topics by id
    FindCoordinatorRequest.API_KEY: 4,  # several groups in a request; 5 and 6 are for transactions and share groups
    DescribeGroupsRequest.API_KEY: 5,
    ListGroupsRequest.API_KEY: 5,
    ApiVersionsRequest.API_KEY: API_VERSIONS_VERSION,
    CreateTopicsRequest.API_KEY: 7,
    InitProducerIdRequest.API_KEY: 4,
    DescribeAclsRequest.API_KEY: 3,
    CreateAclsRequest.API_KEY: 3,
    DeleteAclsRequest.API_KEY: 3,
    DescribeConfigsRequest.API_KEY: 4,
    CreatePartitionsRequest.API_KEY: 3,
    HeartbeatRequest.API_KEY: 4,
    IncrementalAlterConfigsRequest.API_KEY: 1,
    OffsetForLeaderEpochRequest.API_KEY: 4,
    DescribeClusterRequest.API_KEY: 0,
    SaslHandshakeRequest.API_KEY: 1,
    SaslAuthenticateRequest.API_KEY: 2,
    AlterUserScramCredentialsRequest.API_KEY: 0,
}

_UNREADABLE = (
    struct.error,
    ArithmeticError,
    AssertionError,
    AttributeError,
    EOFError,
    LookupError,
    TypeError,
    ValueError,
)
"""Errors that the library raises on bytes that are no answer."""
_ENDLESS_NUMBER = re.compile(rb"[\x80-\xff]{65536}")
"""An endless varint: the library reads one to its end, however long, in quadratic time."""
_NONE_FOR_ZERO = ("uuid", "bitfield")
"""Types whose zero the library returns as None."""

_NEEDED = (MetadataRequest, ListOffsetsRequest, DescribeConfigsRequest, CreateTopicsRequest, CreatePartitionsRequest)


def pick_version(api_key: int, versions: dict[int, tuple[int, int]], *, where: str, ours: tuple[int, ...] = ()) -> int:
    """Return the newest version that the broker and we share; `ours` lists the hand-written ones."""
    low, high = versions.get(api_key, (0, -1))
    candidates = ours or range(_NEWEST[api_key] + 1)
    common = [version for version in candidates if low <= version <= high]
    if not common:
        raise UnsupportedVersion(
            f"the broker has versions {low} to {high} of request {api_key}, we have {min(candidates)} to "
            f"{max(candidates)}",
            where=where,
            remedy="heliograph works with brokers from 2.4 on",
        )
    return max(common)


def lacking(versions: Mapping[int, tuple[int, int]], by_hand: Mapping[int, tuple[int, ...]]) -> list[str]:
    """Return the required requests for which the broker and we share no version; `by_hand` are hand-written ones."""
    ours = {request.API_KEY: tuple(range(_NEWEST[request.API_KEY] + 1)) for request in _NEEDED} | dict(by_hand)
    names = {request.API_KEY: request.__name__.removesuffix("Request") for request in _NEEDED}
    return [
        names.get(key, f"request {key}")
        for key, candidates in ours.items()
        if not any(low <= version <= high for version in candidates for low, high in [versions.get(key, (0, -1))])
    ]


def encode_request(request: ApiMessage, *, version: int, correlation_id: int, client_id: str) -> bytes:
    request.API_VERSION = version
    request.with_header(correlation_id=correlation_id, client_id=client_id)
    return bytes(request.encode(version=version, header=True, framed=True))


def decode_response(request: ApiMessage, body: memoryview, *, where: str) -> Any:
    """Decode the answer to `request`; `body` begins with the correlation id."""
    response_class = ResponseClassRegistry.get_response_class(request.header)
    try:
        if _ENDLESS_NUMBER.search(body):
            raise ValueError("a number without end")
        response = response_class.decode(bytes(body), header=True)
        _require_no_null(response)
    except _UNREADABLE as error:
        raise ProtocolError(
            f"the answer to {request.name} cannot be read", where=where, why=f"{type(error).__name__}: {error}"
        ) from None  # the cause holds the answer, and a broker may repeat our password
    return response


def _require_no_null(message: Any) -> None:
    """Refuse null where the protocol does: the library accepts it for every text and every array."""
    version = message.version
    for field in message._struct.untagged_fields(version):
        if field.is_batchable():
            continue
        value = getattr(message, field.name)
        if value is None:
            if field.type_str not in _NONE_FOR_ZERO and not field.nullable_for_version_q(version):
                raise ValueError(f"{field.name} is null")
        elif field.is_struct_array():
            for element in value:
                _require_no_null(element)
