"""Consumer groups of one cluster, classic and of the new protocol (KIP-848): listed, described, their commits.

Owns who coordinates which group, and follows a coordinator that moves. Made for thousands of groups: where
the broker takes many in one request they go together, and where it does not the requests follow each other
without waiting. A group that fails does not spoil the others. No mirroring rules.
"""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

from heliograph.errors import (
    BrokerRefused,
    GroupAlive,
    HeliographError,
    NotAuthorized,
    ProtocolError,
    Unreachable,
    UnsupportedVersion,
)
from heliograph.kafka import messages
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k08_offset_commit, k69_consumer_group_describe
from heliograph.kafka.codec.k08_offset_commit import CommitPartition
from heliograph.kafka.codec.primitives import read_array, read_i32, read_name, read_slice
from heliograph.kafka.codes import error_name
from heliograph.kafka.connection import Connection
from heliograph.kafka.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")

CLASSIC, CONSUMER = "classic", "consumer"
DEAD = "Dead"
CHANNEL = "groups"
RETRY_FOR_S = 15.0
GROUPS_PER_REQUEST = 500
"""An answer of some 50 kB, decoded within 10 ms."""
IN_FLIGHT = 32
"""Requests on their way to one broker, or on one connection."""
COMMIT_CONNECTIONS = 16
"""A broker handles one request of a connection at a time, and may wait with a commit for its neighbours
(group.coordinator.append.linger.ms): with 5 ms, 4,000 groups took 4 s on 8 connections and 2 s on 16."""
COMMITS_PER_CONNECTION = 50
"""Fewer are not worth another connection."""

_CONSUMER_PROTOCOLS = ("consumer", "")
"""The second: groups that never had members and only commit."""
_LOADING = 14
_NO_COORDINATOR = (_LOADING, 15, 16)
_ALIVE = (22, 25, 27, 82, 110, 113)
"""What a commit without a member meets in a group that has some: its generation, id, rebalance, instance, epoch."""
_UNSUPPORTED_VERSION = 35
_GROUP_ID_NOT_FOUND = 69
_SEVERAL_COORDINATORS = 4
_SEVERAL_FETCHES = 8


class Commit(NamedTuple):
    """A committed offset: the next one to read. A tuple, since there are many of them."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """A group as its coordinator lists it."""

    group_id: str
    state: str
    """Kafka's word; empty where the broker is older than 2.6."""
    kind: str
    """`classic` or `consumer`; empty where the broker is older than 3.8."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers(Generic[T]):
    """What became of each group that was asked for; it is in one of the two."""

    found: dict[str, T] = field(default_factory=dict)
    failed: dict[str, HeliographError] = field(default_factory=dict)

    def the(self, group_id: str) -> T:
        """The answer for one group; raises what failed."""
        if group_id in self.failed:
            raise self.failed[group_id]
        return self.found[group_id]


# -- listing -------------------------------------------------------------------------------


async def list_groups(cluster: Cluster) -> dict[str, GroupListing]:
    """All consumer groups, asked of every broker; raises if one does not answer.

    Groups whose coordinator is away and has no replacement are missing, as is what we may not describe.
    """
    await cluster.refresh([])
    nodes = list(cluster.catalogue.brokers)
    listings = await asyncio.gather(*(_list_at(cluster, node_id) for node_id in nodes))
    for node_id, listed in zip(nodes, listings, strict=True):
        cluster.coordinators.update(dict.fromkeys((listing.group_id for listing in listed), node_id))
    return {listing.group_id: listing for listed in listings for listing in listed}


async def _list_at(cluster: Cluster, node_id: int) -> list[GroupListing]:
    give_up = asyncio.get_running_loop().time() + RETRY_FOR_S
    for pause in _pauses():
        connection = await cluster.connection(node_id, CHANNEL)
        response = await cluster.call_on(connection, messages.ListGroupsRequest(states_filter=[], types_filter=[]))
        if not response.error_code:
            return [_listing(group) for group in response.groups or () if _is_consumer_group(group)]
        if response.error_code not in _NO_COORDINATOR or asyncio.get_running_loop().time() > give_up:
            raise refused(response.error_code, "ListGroups", where=f'"{cluster.alias}" broker {node_id}')
        await asyncio.sleep(pause)
    raise AssertionError("unreachable")


def _listing(group: Any) -> GroupListing:
    return GroupListing(
        group_id=group.group_id,
        state=getattr(group, "group_state", None) or "",
        kind=_kind(group),
    )


def _kind(group: Any) -> str:
    """KIP-848 lets a broker write it as it likes."""
    return (getattr(group, "group_type", None) or "").lower()


def _is_consumer_group(group: Any) -> bool:
    """Not one of Connect, of a schema registry, of Kafka Streams' new protocol, or that shares its partitions."""
    return (group.protocol_type or "") in _CONSUMER_PROTOCOLS and _kind(group) in (CLASSIC, CONSUMER, "")


# -- describing ----------------------------------------------------------------------------


async def describe_groups(cluster: Cluster, groups: Mapping[str, str]) -> Answers[GroupDescription]:
    """State and members of groups, given with their kinds as listed; an unknown group is Dead.

    A group may change its kind, so one that is dead as the one kind is looked at as the other.
    """

    async def describe(node_id: int, group_ids: list[str]) -> Answers[GroupDescription]:
        connection = await cluster.connection(node_id, CHANNEL)
        as_new = [group_id for group_id in group_ids if groups[group_id] == CONSUMER]
        as_classic = [group_id for group_id in group_ids if groups[group_id] != CONSUMER]
        classic, new = partial(_describe_classic, cluster), partial(_describe_new, cluster)
        first = [await _in_chunks(connection, as_classic, classic), await _in_chunks(connection, as_new, new)]
        second = [
            await _in_chunks(connection, _dead(answers), other)
            for answers, other in zip(first, (new, classic), strict=True)
        ]
        return _merged([*first, *second])

    return await _at_coordinators(cluster, groups, describe)


def _dead(answers: Answers[GroupDescription]) -> list[str]:
    return [group_id for group_id, description in answers.found.items() if description.state == DEAD]


async def _describe_classic(
    cluster: Cluster, connection: Connection, group_ids: list[str]
) -> Answers[GroupDescription]:
    response = await cluster.call_on(connection, messages.DescribeGroupsRequest(groups=group_ids))
    answers: Answers[GroupDescription] = Answers()
    for group in response.groups or ():
        if group.error_code in (0, _GROUP_ID_NOT_FOUND):
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
            answers.failed[group.group_id] = _refused(cluster, group.error_code, "DescribeGroups", group.group_id)
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
    body = await connection.send([request], correlation_id)
    answers: Answers[GroupDescription] = Answers()
    for group in codec.decode_consumer_group_describe_response(body, version):
        if group.error_code in (_GROUP_ID_NOT_FOUND, _UNSUPPORTED_VERSION):
            answers.found[group.group_id] = _nobody(group.group_id)
        elif group.error_code:
            answers.failed[group.group_id] = _refused(
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
    """The partitions that a classic member has, in the consumers' own format; nothing where it is not that."""

    def read_topic(view: memoryview, pos: int) -> tuple[list[TopicPartition], int]:
        topic, pos = read_name(view, pos, flexible=False)
        partitions, pos = read_array(view, pos, read_i32, flexible=False)
        return [TopicPartition(topic, partition) for partition in partitions], pos

    view = memoryview(data)
    try:
        _, pos = read_slice(view, 0, 2)  # the version; later ones only add at the end, where user data stands
        topics, _ = read_array(view, pos, read_topic, flexible=False)
    except ProtocolError:
        return ()
    return tuple(itertools.chain.from_iterable(topics))


# -- commits -------------------------------------------------------------------------------


async def fetch_commits(
    cluster: Cluster, groups: Collection[str], *, partitions: Collection[TopicPartition] | None = None
) -> Answers[dict[TopicPartition, Commit]]:
    """The committed offsets of many groups, of all their partitions or of those given; an unknown group has none."""
    topics = None if partitions is None else _grouped((where.topic, where.partition) for where in partitions)

    async def fetch(node_id: int, group_ids: list[str]) -> Answers[dict[TopicPartition, Commit]]:
        connection = await cluster.connection(node_id, CHANNEL)
        version = messages.pick_version(
            messages.OffsetFetchRequest.API_KEY, connection.versions, where=connection.where
        )
        if version >= _SEVERAL_FETCHES:
            return await _in_chunks(connection, group_ids, partial(_fetch_several, cluster, topics))
        return await _in_chunks(connection, group_ids, partial(_fetch_one, cluster, topics), size=1)

    return await _at_coordinators(cluster, groups, fetch)


async def _fetch_several(
    cluster: Cluster, topics: Mapping[str, Sequence[int]] | None, connection: Connection, group_ids: list[str]
) -> Answers[dict[TopicPartition, Commit]]:
    group_class = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = _wanted_topics(group_class.OffsetFetchRequestTopics, topics)
    request = messages.OffsetFetchRequest(
        groups=[group_class(group_id=group_id, topics=wanted) for group_id in group_ids], require_stable=False
    )
    response = await cluster.call_on(connection, request)
    return _merged(_commits_of(cluster, group.group_id, group) for group in response.groups or ())


async def _fetch_one(
    cluster: Cluster, topics: Mapping[str, Sequence[int]] | None, connection: Connection, group_ids: list[str]
) -> Answers[dict[TopicPartition, Commit]]:
    """Before 3.0."""
    [group_id] = group_ids
    wanted = _wanted_topics(messages.OffsetFetchRequest.OffsetFetchRequestTopic, topics)
    request = messages.OffsetFetchRequest(group_id=group_id, topics=wanted, require_stable=False)
    return _commits_of(cluster, group_id, await cluster.call_on(connection, request))


def _wanted_topics(topic_class: Any, topics: Mapping[str, Sequence[int]] | None) -> list[Any] | None:
    if topics is None:
        return None
    return [topic_class(name=topic, partition_indexes=indexes) for topic, indexes in topics.items()]


def _commits_of(cluster: Cluster, group_id: str, group: Any) -> Answers[dict[TopicPartition, Commit]]:
    if group.error_code:
        return Answers(failed={group_id: _refused(cluster, group.error_code, "OffsetFetch", group_id)})
    commits: dict[TopicPartition, Commit] = {}
    for topic in group.topics or ():
        for partition in topic.partitions or ():
            where = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                error = _refused(cluster, partition.error_code, f"OffsetFetch of {where}", group_id)
                return Answers(failed={group_id: error})
            if partition.committed_offset >= 0:
                commits[where] = Commit(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    return Answers(found={group_id: commits})


async def commit_offsets(cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, Commit]]) -> Answers[None]:
    """Commit for groups without members; a group that has some fails with `GroupAlive`.

    A group that is not there is made. Of a group that fails, some partitions may be committed: those not named.
    """

    async def commit(node_id: int, group_ids: list[str]) -> Answers[None]:
        count = min(COMMIT_CONNECTIONS, math.ceil(len(group_ids) / COMMITS_PER_CONNECTION))
        shares = [{group_id: offsets[group_id] for group_id in group_ids[index::count]} for index in range(count)]
        channels = [CHANNEL, *(f"{CHANNEL}-{index}" for index in range(1, count))]
        return _merged(
            await asyncio.gather(
                *(
                    _commit_share(cluster, node_id, channel, share)
                    for channel, share in zip(channels, shares, strict=True)
                )
            )
        )

    return await _at_coordinators(cluster, offsets, commit)


async def _commit_share(
    cluster: Cluster, node_id: int, channel: str, offsets: Mapping[str, Mapping[TopicPartition, Commit]]
) -> Answers[None]:
    """One request for each group, on one connection, one behind the other."""
    codec = k08_offset_commit
    answers: Answers[None] = Answers()
    try:
        connection = await cluster.connection(node_id, channel)
        version = messages.pick_version(codec.API_KEY, connection.versions, where=connection.where, ours=codec.VERSIONS)
    except HeliographError as error:
        return Answers(failed=dict.fromkeys(offsets, error))
    sent: deque[tuple[str, Awaitable[memoryview]]] = deque()

    async def settle_oldest() -> None:
        group_id, answer = sent.popleft()
        try:
            results = codec.decode_offset_commit_response(await answer, version)
            _check_commit(cluster, group_id, results, expected=len(offsets[group_id]))
        except HeliographError as error:
            answers.failed[group_id] = error
        else:
            answers.found[group_id] = None

    for group_id, commits in offsets.items():
        if len(sent) >= IN_FLIGHT:
            await settle_oldest()
        correlation_id = connection.next_correlation_id()
        topics = _grouped(
            (where.topic, CommitPartition(where.partition, commit.offset, commit.leader_epoch, commit.metadata))
            for where, commit in commits.items()
        )
        request = codec.encode_offset_commit_request(
            version, group_id, topics, correlation_id=correlation_id, client_id=cluster.client_id
        )
        sent.append((group_id, connection.send([request], correlation_id)))
    while sent:
        await settle_oldest()
    return answers


def _check_commit(
    cluster: Cluster, group_id: str, results: Sequence[k08_offset_commit.CommitResult], *, expected: int
) -> None:
    """Raises the first error of a commit's answer."""
    for topic, partition, code in results:
        if code in _ALIVE:
            raise GroupAlive(
                f'OffsetCommit for group "{group_id}" refused with {error_name(code)}',
                where=f'"{cluster.alias}"',
                why="the group has members, and only they may commit for it",
                remedy="stop them first",
                error_code=code,
            )
        if code:
            raise _refused(cluster, code, f"OffsetCommit of {TopicPartition(topic, partition)}", group_id)
    if len(results) != expected:
        raise ProtocolError(
            f'an answer to OffsetCommit for group "{group_id}" has {len(results)} partitions, not {expected}',
            where=f'"{cluster.alias}"',
        )


# -- coordinators --------------------------------------------------------------------------


async def _at_coordinators(
    cluster: Cluster, groups: Iterable[str], ask: Callable[[int, list[str]], Awaitable[Answers[T]]]
) -> Answers[T]:
    """Ask each group's coordinator; look for it again where it moved, does not answer or is not ready."""
    give_up = asyncio.get_running_loop().time() + RETRY_FOR_S
    answers: Answers[T] = Answers()
    pending = list(groups)
    for pause in _pauses():
        latest = await _one_round(cluster, pending, ask)
        answers = _merged([answers, latest])
        pending = [group_id for group_id, error in latest.failed.items() if _may_pass(error)]
        for group_id in pending:
            cluster.coordinators.pop(group_id, None)
        if not pending or asyncio.get_running_loop().time() > give_up:
            break
        await asyncio.sleep(pause)
    return answers


async def _one_round(
    cluster: Cluster, group_ids: list[str], ask: Callable[[int, list[str]], Awaitable[Answers[T]]]
) -> Answers[T]:
    try:
        coordinators = await _find_coordinators(cluster, group_ids)
        if not cluster.catalogue.brokers.keys() >= set(coordinators.found.values()):
            await cluster.refresh([])
    except HeliographError as error:
        return Answers(failed=dict.fromkeys(group_ids, error))

    async def ask_one(node_id: int, group_ids: list[str]) -> Answers[T]:
        try:
            return await ask(node_id, group_ids)
        except HeliographError as error:
            return Answers(failed=dict.fromkeys(group_ids, error))

    by_node = _grouped((node_id, group_id) for group_id, node_id in coordinators.found.items())
    answers = await asyncio.gather(*(ask_one(node_id, asked) for node_id, asked in by_node.items()))
    return _merged([Answers(failed=coordinators.failed), *answers])


async def _find_coordinators(cluster: Cluster, group_ids: list[str]) -> Answers[int]:
    """The broker of each group; those known are not asked for again."""
    known = cluster.coordinators
    unknown = [group_id for group_id in group_ids if group_id not in known]
    answers: Answers[int] = Answers()
    if unknown:
        connection = await cluster.any_connection()
        version = messages.pick_version(
            messages.FindCoordinatorRequest.API_KEY, connection.versions, where=connection.where
        )
        way, size = (_find_several, GROUPS_PER_REQUEST) if version >= _SEVERAL_COORDINATORS else (_find_one, 1)
        answers = await _in_chunks(connection, unknown, partial(way, cluster), size=size)
        known.update(answers.found)
    found = {group_id: known[group_id] for group_id in group_ids if group_id in known}
    return Answers(found=found, failed=answers.failed)


async def _find_several(cluster: Cluster, connection: Connection, group_ids: list[str]) -> Answers[int]:
    request = messages.FindCoordinatorRequest(key_type=0, coordinator_keys=group_ids)
    response = await cluster.call_on(connection, request)
    return _merged(_coordinator_of(cluster, found.key, found) for found in response.coordinators or ())


async def _find_one(cluster: Cluster, connection: Connection, group_ids: list[str]) -> Answers[int]:
    """Before 3.0."""
    [group_id] = group_ids
    request = messages.FindCoordinatorRequest(key_type=0, key=group_id)
    return _coordinator_of(cluster, group_id, await cluster.call_on(connection, request))


def _coordinator_of(cluster: Cluster, group_id: str, found: Any) -> Answers[int]:
    if found.error_code:
        return Answers(failed={group_id: _refused(cluster, found.error_code, "FindCoordinator", group_id)})
    return Answers(found={group_id: found.node_id})


async def _in_chunks(
    connection: Connection,
    group_ids: Sequence[str],
    ask: Callable[[Connection, list[str]], Awaitable[Answers[T]]],
    *,
    size: int = GROUPS_PER_REQUEST,
) -> Answers[T]:
    """Some groups at a time, several requests on their way at once; what one request meets concerns its groups."""
    room = asyncio.Semaphore(IN_FLIGHT)

    async def ask_chunk(chunk: list[str]) -> Answers[T]:
        async with room:
            try:
                answers = await ask(connection, chunk)
            except HeliographError as error:
                return Answers(failed=dict.fromkeys(chunk, error))
        if answers.found.keys() | answers.failed.keys() != set(chunk):
            odd = ProtocolError("an answer has other groups than the request", where=connection.where)
            return Answers(failed=dict.fromkeys(chunk, odd))
        return answers

    chunks = [list(group_ids[start : start + size]) for start in range(0, len(group_ids), size)]
    return _merged(await asyncio.gather(*map(ask_chunk, chunks)))


def _merged(parts: Iterable[Answers[T]]) -> Answers[T]:
    """Of a group that is in several the last counts."""
    merged: Answers[T] = Answers()
    for part in parts:
        for group_id in merged.failed.keys() & part.found.keys():
            del merged.failed[group_id]
        for group_id in merged.found.keys() & part.failed.keys():
            del merged.found[group_id]
        merged.found.update(part.found)
        merged.failed.update(part.failed)
    return merged


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    grouped: dict[K, list[V]] = {}
    for key, value in pairs:
        grouped.setdefault(key, []).append(value)
    return grouped


def _may_pass(error: HeliographError) -> bool:
    return isinstance(error, Unreachable) or error.details.get("error_code") in _NO_COORDINATOR


def _pauses() -> Iterator[float]:
    return (min(0.05 * 2**attempt, 1.0) for attempt in itertools.count())


def _refused(
    cluster: Cluster, code: int, what: str, group_id: str, *, message: str | None = None
) -> BrokerRefused | NotAuthorized:
    return refused(code, f'{what} for group "{group_id}"', where=f'"{cluster.alias}"', message=message)
