"""Lists and describes the consumer groups of one cluster, classic ones and those of the new protocol (KIP-848)."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from heliograph.errors import ProtocolError, UnsupportedVersion
from heliograph.kafka import messages
from heliograph.kafka.admin.coordinators import (
    CHANNEL,
    NO_COORDINATOR,
    Answers,
    at_coordinators,
    in_chunks,
    merged_answers,
    refused_for,
    tries,
)
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k69_consumer_group_describe
from heliograph.kafka.codec.primitives import read_array, read_i32, read_name, read_slice
from heliograph.kafka.connection import Connection
from heliograph.kafka.error_codes import Code
from heliograph.kafka.types import TopicPartition

CLASSIC, CONSUMER = "classic", "consumer"
DEAD = "Dead"

_CONSUMER_PROTOCOLS = ("consumer", "")
"""Protocol types of consumer groups; the second is that of groups that never had members and only commit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """Holds a group as its coordinator lists it."""

    group_id: str
    state: str
    """Kafka's own word; empty if the broker is older than 2.6."""
    kind: str
    """`classic` or `consumer`; empty if the broker is older than 3.8."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    member_id: str
    client_id: str
    host: str
    partitions: tuple[TopicPartition, ...]

    def __str__(self) -> str:
        return f"{self.client_id} at {self.host}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    group_id: str
    state: str
    kind: str
    members: tuple[Member, ...]


# -- listing -------------------------------------------------------------------------------


async def list_groups(cluster: Cluster) -> dict[str, GroupListing]:
    """List all consumer groups, asked of every broker; raises if one does not answer.

    Groups whose coordinator is down and not replaced are missing, and so are groups that we may not describe.
    """
    await cluster.refresh([])
    nodes = list(cluster.catalogue.brokers)
    listings = await asyncio.gather(*(_list_at(cluster, node_id) for node_id in nodes))
    for node_id, listed in zip(nodes, listings, strict=True):
        cluster.coordinators.update(dict.fromkeys((listing.group_id for listing in listed), node_id))
    return {listing.group_id: listing for listed in listings for listing in listed}


async def _list_at(cluster: Cluster, node_id: int) -> list[GroupListing]:
    code = 0
    async for _ in tries():
        connection = await cluster.connection(node_id, CHANNEL)
        response = await cluster.call_on(connection, messages.ListGroupsRequest(states_filter=[], types_filter=[]))
        code = response.error_code
        if not code:
            return [_listing(group) for group in response.groups or () if _is_consumer_group(group)]
        if code not in NO_COORDINATOR:
            break
    raise refused(code, "ListGroups", where=f'"{cluster.alias}" broker {node_id}')


def _listing(group: Any) -> GroupListing:
    return GroupListing(
        group_id=group.group_id,
        state=getattr(group, "group_state", None) or "",
        kind=_kind(group),
    )


def _kind(group: Any) -> str:
    """Return the group's type in lower case: KIP-848 leaves its case open."""
    return (getattr(group, "group_type", None) or "").lower()


def _is_consumer_group(group: Any) -> bool:
    """Return whether it is a consumer group, not one of Connect, a schema registry, new Streams or share groups."""
    return (group.protocol_type or "") in _CONSUMER_PROTOCOLS and _kind(group) in (CLASSIC, CONSUMER, "")


# -- describing ----------------------------------------------------------------------------


async def describe_groups(cluster: Cluster, groups: Mapping[str, str]) -> Answers[GroupDescription]:
    """Return state and members of groups, given with their types as listed; an unknown group is Dead.

    A group may change its type, so one that is dead as the one type is described as the other.
    """

    async def describe(node_id: int, group_ids: list[str]) -> Answers[GroupDescription]:
        connection = await cluster.connection(node_id, CHANNEL)
        as_new = [group_id for group_id in group_ids if groups[group_id] == CONSUMER]
        as_classic = [group_id for group_id in group_ids if groups[group_id] != CONSUMER]
        classic, new = partial(_describe_classic, cluster), partial(_describe_new, cluster)
        first = [await in_chunks(connection, as_classic, classic), await in_chunks(connection, as_new, new)]
        second = [
            await in_chunks(connection, _dead(answers), other)
            for answers, other in zip(first, (new, classic), strict=True)
        ]
        return merged_answers([*first, *second])

    return await at_coordinators(cluster, groups, describe)


def _dead(answers: Answers[GroupDescription]) -> list[str]:
    return [group_id for group_id, description in answers.found.items() if description.state == DEAD]


async def _describe_classic(
    cluster: Cluster, connection: Connection, group_ids: list[str]
) -> Answers[GroupDescription]:
    response = await cluster.call_on(connection, messages.DescribeGroupsRequest(groups=group_ids))
    answers: Answers[GroupDescription] = Answers()
    for group in response.groups or ():
        if group.error_code in (Code.NONE, Code.GROUP_ID_NOT_FOUND):
            answers.found[group.group_id] = GroupDescription(
                group_id=group.group_id,
                state=group.group_state or DEAD,
                kind=CLASSIC,
                members=tuple(
                    Member(
                        member_id=member.member_id,
                        client_id=member.client_id,
                        host=member.client_host,
                        partitions=parse_assignment(bytes(member.member_assignment or b""))
                        if group.protocol_type == "consumer"
                        else (),
                    )
                    for member in group.members or ()
                ),
            )
        else:
            answers.failed[group.group_id] = refused_for(cluster, group.error_code, "DescribeGroups", group.group_id)
    return answers


async def _describe_new(cluster: Cluster, connection: Connection, group_ids: list[str]) -> Answers[GroupDescription]:
    codec = k69_consumer_group_describe
    try:
        version = messages.pick_version(codec.API_KEY, connection.versions, where=connection.where, ours=codec.VERSIONS)
    except UnsupportedVersion:  # then no group is of the new protocol
        return Answers(found={group_id: _nobody(group_id) for group_id in group_ids})
    correlation_id = connection.next_correlation_id()
    request = codec.encode_consumer_group_describe_request(
        version, group_ids, correlation_id=correlation_id, client_id=cluster.client_id
    )
    response = codec.decode_consumer_group_describe_response(await connection.send([request], correlation_id), version)
    connection.throttle(response.throttle_ms)
    answers: Answers[GroupDescription] = Answers()
    for group in response.groups:
        if group.error_code in (Code.GROUP_ID_NOT_FOUND, Code.UNSUPPORTED_VERSION):
            answers.found[group.group_id] = _nobody(group.group_id)
        elif group.error_code:
            answers.failed[group.group_id] = refused_for(
                cluster, group.error_code, "ConsumerGroupDescribe", group.group_id, message=group.error_message
            )
        else:
            answers.found[group.group_id] = GroupDescription(
                group_id=group.group_id,
                state=group.state,
                kind=CONSUMER,
                members=tuple(
                    Member(
                        member_id=member.member_id,
                        client_id=member.client_id,
                        host=member.client_host,
                        partitions=tuple(TopicPartition(*where) for where in member.partitions),
                    )
                    for member in group.members
                ),
            )
    return answers


def _nobody(group_id: str) -> GroupDescription:
    return GroupDescription(group_id=group_id, state=DEAD, kind=CONSUMER, members=())


def parse_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """Return the partitions of a classic member, from the consumers' own format; none if it has another format."""

    def read_topic(view: memoryview, pos: int) -> tuple[list[TopicPartition], int]:
        topic, pos = read_name(view, pos, flexible=False)
        partitions, pos = read_array(view, pos, read_i32, flexible=False)
        return [TopicPartition(topic, partition) for partition in partitions], pos

    view = memoryview(data)
    try:
        _, pos = read_slice(view, 0, 2)  # the version; later ones only add fields at the end, where user data is
        topics, _ = read_array(view, pos, read_topic, flexible=False)
    except ProtocolError:
        return ()
    return tuple(itertools.chain.from_iterable(topics))
