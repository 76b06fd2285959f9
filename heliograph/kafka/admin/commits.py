"""Reads committed offsets of consumer groups, and commits for groups without members. Made for thousands of groups."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from collections.abc import Awaitable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from heliograph.errors import GroupAlive, HeliographError, ProtocolError
from heliograph.kafka import messages
from heliograph.kafka.admin.coordinators import (
    CHANNEL,
    IN_FLIGHT,
    Answers,
    at_coordinators,
    grouped,
    in_chunks,
    merged_answers,
    refused_for,
)
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.codec import k08_offset_commit
from heliograph.kafka.codec.k08_offset_commit import CommitPartition
from heliograph.kafka.connection import Connection
from heliograph.kafka.error_codes import Code, error_name
from heliograph.kafka.types import TopicPartition

COMMIT_CONNECTIONS = 16
"""A broker handles one request of a connection at a time, and may delay a commit to batch it with others
(group.coordinator.append.linger.ms): with 5 ms, 4,000 groups took 4 s on 8 connections and 2 s on 16."""
COMMITS_PER_CONNECTION = 50
"""Fewer commits than this are not worth another connection."""

_ALIVE = (
    Code.ILLEGAL_GENERATION,
    Code.UNKNOWN_MEMBER_ID,
    Code.REBALANCE_IN_PROGRESS,
    Code.FENCED_INSTANCE_ID,
    Code.FENCED_MEMBER_EPOCH,
    Code.STALE_MEMBER_EPOCH,
)
"""Errors of a commit without a member in a group that has some: its generation, id, rebalance, instance, epoch."""
_SEVERAL_FETCHES = 8


class Commit(NamedTuple):
    """Holds a committed offset: the next one to read. A tuple, since there are many of them."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


async def fetch_commits(
    cluster: Cluster, groups: Collection[str], *, partitions: Collection[TopicPartition] | None = None
) -> Answers[dict[TopicPartition, Commit]]:
    """Return the committed offsets of many groups, of all partitions or those given; an unknown group has none."""
    topics = None if partitions is None else grouped((where.topic, where.partition) for where in partitions)

    async def fetch(node_id: int, group_ids: list[str]) -> Answers[dict[TopicPartition, Commit]]:
        connection = await cluster.connection(node_id, CHANNEL)
        version = messages.pick_version(
            messages.OffsetFetchRequest.API_KEY, connection.versions, where=connection.where
        )
        if version >= _SEVERAL_FETCHES:
            return await in_chunks(connection, group_ids, partial(_fetch_several, cluster, topics))
        return await in_chunks(connection, group_ids, partial(_fetch_one, cluster, topics), size=1)

    return await at_coordinators(cluster, groups, fetch)


async def _fetch_several(
    cluster: Cluster, topics: Mapping[str, Sequence[int]] | None, connection: Connection, group_ids: list[str]
) -> Answers[dict[TopicPartition, Commit]]:
    group_class = messages.OffsetFetchRequest.OffsetFetchRequestGroup
    wanted = _wanted_topics(group_class.OffsetFetchRequestTopics, topics)
    request = messages.OffsetFetchRequest(
        groups=[group_class(group_id=group_id, topics=wanted) for group_id in group_ids], require_stable=False
    )
    response = await cluster.call_on(connection, request)
    return merged_answers(_commits_of(cluster, group.group_id, group) for group in response.groups or ())


async def _fetch_one(
    cluster: Cluster, topics: Mapping[str, Sequence[int]] | None, connection: Connection, group_ids: list[str]
) -> Answers[dict[TopicPartition, Commit]]:
    """Fetch the commits of one group (brokers before 3.0)."""
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
        return Answers(failed={group_id: refused_for(cluster, group.error_code, "OffsetFetch", group_id)})
    commits: dict[TopicPartition, Commit] = {}
    for topic in group.topics or ():
        for partition in topic.partitions or ():
            where = TopicPartition(topic.name, partition.partition_index)
            if partition.error_code:
                error = refused_for(cluster, partition.error_code, f"OffsetFetch of {where}", group_id)
                return Answers(failed={group_id: error})
            if partition.committed_offset >= 0:
                commits[where] = Commit(
                    partition.committed_offset, partition.metadata or "", partition.committed_leader_epoch
                )
    return Answers(found={group_id: commits})


async def commit_offsets(cluster: Cluster, offsets: Mapping[str, Mapping[TopicPartition, Commit]]) -> Answers[None]:
    """Commit for groups without members; a group that has some fails with `GroupAlive`.

    A group that does not exist is created. If a group fails, those of its partitions that the error does not name may
    be committed.
    """

    async def commit(node_id: int, group_ids: list[str]) -> Answers[None]:
        count = min(COMMIT_CONNECTIONS, math.ceil(len(group_ids) / COMMITS_PER_CONNECTION))
        shares = [{group_id: offsets[group_id] for group_id in group_ids[index::count]} for index in range(count)]
        channels = [CHANNEL, *(f"{CHANNEL}-{index}" for index in range(1, count))]
        return merged_answers(
            await asyncio.gather(
                *(
                    _commit_share(cluster, node_id, channel, share)
                    for channel, share in zip(channels, shares, strict=True)
                )
            )
        )

    return await at_coordinators(cluster, offsets, commit)


async def _commit_share(
    cluster: Cluster, node_id: int, channel: str, offsets: Mapping[str, Mapping[TopicPartition, Commit]]
) -> Answers[None]:
    """Send one request per group on one connection, up to `IN_FLIGHT` at a time."""
    codec = k08_offset_commit
    answers: Answers[None] = Answers()
    try:
        connection = await cluster.connection(node_id, channel)
        version = messages.pick_version(codec.API_KEY, connection.versions, where=connection.where, ours=codec.VERSIONS)
    except HeliographError as error:
        return Answers(failed=dict.fromkeys(offsets, error))
    sent: deque[tuple[str, Awaitable[memoryview]]] = deque()

    async def take_oldest() -> None:
        group_id, answer = sent.popleft()
        try:
            response = codec.decode_offset_commit_response(await answer, version)
            connection.throttle(response.throttle_ms)
            _check_commit(cluster, group_id, response.results, expected=len(offsets[group_id]))
        except HeliographError as error:
            answers.failed[group_id] = error
        else:
            answers.found[group_id] = None

    for group_id, commits in offsets.items():
        if len(sent) >= IN_FLIGHT:
            await take_oldest()
        correlation_id = connection.next_correlation_id()
        topics = grouped(
            (where.topic, CommitPartition(where.partition, commit.offset, commit.leader_epoch, commit.metadata))
            for where, commit in commits.items()
        )
        request = codec.encode_offset_commit_request(
            version, group_id, topics, correlation_id=correlation_id, client_id=cluster.client_id
        )
        sent.append((group_id, connection.send([request], correlation_id)))
    while sent:
        await take_oldest()
    return answers


def _check_commit(
    cluster: Cluster, group_id: str, results: Sequence[k08_offset_commit.CommitResult], *, expected: int
) -> None:
    """Raise the first error of a commit's answer."""
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
            raise refused_for(cluster, code, f"OffsetCommit of {TopicPartition(topic, partition)}", group_id)
    if len(results) != expected:
        raise ProtocolError(
            f'an answer to OffsetCommit for group "{group_id}" has {len(results)} partitions, not {expected}',
            where=f'"{cluster.alias}"',
        )
