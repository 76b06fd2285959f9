"""Creates topics and partitions, reads offsets and configs of one cluster. Knows nothing of mirroring."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heliograph.errors import HeliographError, ProtocolError, Unreachable
from heliograph.kafka import messages
from heliograph.kafka.admin.tool_commands import create_topic_command, grow_topic_command
from heliograph.kafka.catalogue import UNKNOWN_EPOCH
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.error_codes import Code, is_retriable
from heliograph.kafka.types import TopicPartition

EARLIEST = -2
LATEST = -1
TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
_MAX_NEW_PARTITIONS = 1000
"""Maximum number of new partitions per request, all topics together: a controller refuses 10,000 at once."""
_RETRIES = 20
_CONSUMER = -1
"""The replica id of a consumer."""
_REMEMBERING_VERSION = 3
"""The version of InitProducerId that came with KIP-360, in 2.5."""


class OffsetAnswer(NamedTuple):
    error_code: int
    offset: int
    leader_epoch: int


DEPOSED = OffsetAnswer(Code.UNKNOWN_LEADER_EPOCH, -1, -1)
"""Replaces the answer of a leader of an older epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    name: str
    partitions: int
    replication_factor: int
    configs: Mapping[str, str] = field(default_factory=dict)

    def command(self) -> str:
        """Return the command with which an administrator creates it."""
        return create_topic_command(
            self.name, partitions=self.partitions, replication_factor=self.replication_factor, configs=self.configs
        )


async def list_offsets(
    cluster: Cluster,
    wanted: Iterable[TopicPartition],
    timestamp: int,
    *,
    read_committed: bool = False,
    unreplicated: bool = False,
) -> dict[TopicPartition, OffsetAnswer]:
    """Return the earliest or latest offset of each partition, asked of the leaders only.

    `unreplicated` includes what the leader has appended and its followers do not have yet: brokers tell that to
    requests with a replica id. A partition that has no leader now, or whose leader refuses or does not answer, gets an
    error code. The request names the leader epoch of the metadata, and a broker that leads in another epoch refuses it;
    an answer from an older epoch is dropped.
    """
    by_leader: dict[int, list[TopicPartition]] = {}
    answers: dict[TopicPartition, OffsetAnswer] = {}
    for partition in wanted:
        leader = cluster.catalogue.leader_of(partition.topic, partition.partition)
        if leader is None:
            answers[partition] = OffsetAnswer(Code.LEADER_NOT_AVAILABLE, -1, -1)
        else:
            by_leader.setdefault(leader, []).append(partition)

    level = int(read_committed)

    async def ask(leader: int, group: list[TopicPartition]) -> None:
        asker = leader if unreplicated else _CONSUMER
        try:
            answers.update(await _list_at(cluster, leader, group, timestamp, asker=asker, level=level))
        except Unreachable:
            answers.update(dict.fromkeys(group, OffsetAnswer(Code.NETWORK_EXCEPTION, -1, -1)))

    await asyncio.gather(*(ask(leader, group) for leader, group in by_leader.items()))
    return answers


async def _list_at(
    cluster: Cluster,
    leader: int,
    partitions: Sequence[TopicPartition],
    timestamp: int,
    *,
    asker: int,
    level: int,
) -> dict[TopicPartition, OffsetAnswer]:
    epochs = {where: cluster.catalogue.leader_epoch_of(*where) for where in partitions}
    by_topic: dict[str, list[TopicPartition]] = {}
    for where in partitions:
        by_topic.setdefault(where.topic, []).append(where)
    topic_class = messages.ListOffsetsRequest.ListOffsetsTopic
    request = messages.ListOffsetsRequest(
        replica_id=asker,
        isolation_level=level,
        topics=[
            topic_class(
                name=topic,
                partitions=[
                    topic_class.ListOffsetsPartition(
                        partition_index=where.partition, current_leader_epoch=epochs[where], timestamp=timestamp
                    )
                    for where in group
                ],
            )
            for topic, group in by_topic.items()
        ],
    )
    response = await cluster.call(request, node_id=leader)
    answers = {
        TopicPartition(topic.name, answer.partition_index): OffsetAnswer(
            answer.error_code, answer.offset, answer.leader_epoch
        )
        for topic in response.topics
        for answer in topic.partitions
    }
    if answers.keys() != set(partitions):
        raise ProtocolError(
            "an answer to ListOffsets has other partitions than the request", where=f'"{cluster.alias}" broker {leader}'
        )
    if timestamp != LATEST:
        return answers  # their epochs are those of the records found
    return {
        where: DEPOSED if UNKNOWN_EPOCH < answer.leader_epoch < epochs[where] else answer
        for where, answer in answers.items()
    }


async def end_offsets(
    cluster: Cluster, wanted: Sequence[TopicPartition], *, timestamp: int = LATEST, read_committed: bool = False
) -> dict[TopicPartition, int]:
    """Do the same as `list_offsets`, but wait for leaders that move, and raise if one stays away."""
    for attempt in range(_RETRIES):
        answers = await list_offsets(cluster, wanted, timestamp, read_committed=read_committed)
        bad = {partition: answer for partition, answer in answers.items() if answer.error_code}
        if not bad:
            return {partition: answer.offset for partition, answer in answers.items()}
        partition, answer = next(iter(bad.items()))
        if not is_retriable(answer.error_code) or attempt == _RETRIES - 1:
            raise refused(answer.error_code, "ListOffsets", where=f'"{cluster.alias}" {partition}')
        await asyncio.sleep(min(0.05 * 2**attempt, 1.0))
        await cluster.refresh({partition.topic for partition in bad})
    raise AssertionError("unreachable")


async def create_topics(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, HeliographError | None]:
    """Create topics; return the outcome of each. A topic that exists already counts as created."""
    by_name = {topic.name: topic for topic in topics}
    results: dict[str, HeliographError | None] = {}
    for names in _in_portions({topic.name: topic.partitions for topic in topics}):
        results |= await _create(cluster, [by_name[name] for name in names])
    return results


async def _create(cluster: Cluster, topics: Sequence[NewTopic]) -> dict[str, HeliographError | None]:
    topic_class = messages.CreateTopicsRequest.CreatableTopic
    request = messages.CreateTopicsRequest(
        topics=[
            topic_class(
                name=topic.name,
                num_partitions=topic.partitions,
                replication_factor=topic.replication_factor,
                assignments=[],
                configs=[
                    topic_class.CreatableTopicConfig(name=name, value=value) for name, value in topic.configs.items()
                ],
            )
            for topic in topics
        ],
        timeout_ms=20_000,
        validate_only=False,
    )
    response = await cluster.call(request, node_id=await cluster.controller())
    by_hand = {topic.name: topic.command() for topic in topics}
    return _outcome(cluster, "CreateTopics", response.topics, "made", by_hand, fine=Code.TOPIC_ALREADY_EXISTS)


async def create_partitions(cluster: Cluster, counts: Mapping[str, int]) -> dict[str, HeliographError | None]:
    """Add partitions up to the given numbers; return the outcome of each topic. One that has as many counts as done."""
    topic_class = messages.CreatePartitionsRequest.CreatePartitionsTopic
    results: dict[str, HeliographError | None] = {}
    for names in _in_portions(counts):
        request = messages.CreatePartitionsRequest(
            topics=[topic_class(name=name, count=counts[name], assignments=None) for name in names],
            timeout_ms=20_000,
            validate_only=False,
        )
        response = await cluster.call(request, node_id=await cluster.controller())
        by_hand = {name: grow_topic_command(name, counts[name]) for name in names}
        results |= _outcome(
            cluster, "CreatePartitions", response.results, "grown", by_hand, fine=Code.INVALID_PARTITIONS
        )
    return results


def _in_portions(counts: Mapping[str, int]) -> Iterator[list[str]]:
    """Split topics into requests, by their numbers of partitions."""
    names: list[str] = []
    size = 0
    for name, count in counts.items():
        if names and size + count > _MAX_NEW_PARTITIONS:
            yield names
            names, size = [], 0
        names.append(name)
        size += max(1, count)
    if names:
        yield names


def _outcome(
    cluster: Cluster, request: str, answers: Iterable[Any], done: str, by_hand: Mapping[str, str], *, fine: int
) -> dict[str, HeliographError | None]:
    """Return the outcome by topic; `by_hand` is the command for an administrator if we may not do it."""
    return {
        answer.name: None
        if answer.error_code in (Code.NONE, fine)
        else refused(
            answer.error_code,
            f'{request} for "{answer.name}"',
            where=f'"{cluster.alias}"',
            message=answer.error_message,
            remedy=f"have it {done}: {by_hand[answer.name]}" if answer.name in by_hand else "",
        )
        for answer in answers
    }


async def topic_configs(cluster: Cluster, topics: Sequence[str], keys: Sequence[str]) -> dict[str, dict[str, str]]:
    """Return the given configs of each topic; a topic that we may not describe is left out."""
    return await _configs(cluster, TOPIC_RESOURCE, topics, keys)


async def broker_configs(cluster: Cluster, keys: Sequence[str], *, node_id: int | None = None) -> dict[str, str] | None:
    """Return the given configs of one broker, which new topics inherit; None if we may not describe it."""
    node_id = min(cluster.catalogue.brokers) if node_id is None else node_id  # it answers for itself alone
    found = await _configs(cluster, BROKER_RESOURCE, [str(node_id)], keys, node_id=node_id)
    return found.get(str(node_id))


async def _configs(
    cluster: Cluster, kind: int, names: Sequence[str], keys: Sequence[str], *, node_id: int | None = None
) -> dict[str, dict[str, str]]:
    return {
        result.resource_name: {config.name: config.value for config in result.configs if config.value is not None}
        for result in await describe_resources(cluster, kind, names, keys, node_id=node_id)
        if not result.error_code
    }


async def describe_resources(
    cluster: Cluster, kind: int, names: Sequence[str], keys: Sequence[str] | None, *, node_id: int | None = None
) -> list[Any]:
    """Return the answers to DescribeConfigs for some keys of each resource; None means all keys."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    wanted = None if keys is None else list(keys)
    request = messages.DescribeConfigsRequest(
        resources=[resource(resource_type=kind, resource_name=name, configuration_keys=wanted) for name in names],
        include_synonyms=False,
        include_documentation=False,
    )
    response = await cluster.call(request, node_id=node_id)
    return list(response.results)


async def new_producer_id(cluster: Cluster) -> int:
    """Return a producer id that nobody has had before."""
    for attempt in range(_RETRIES):
        response = await cluster.call(
            messages.InitProducerIdRequest(
                transactional_id=None, transaction_timeout_ms=60_000, producer_id=-1, producer_epoch=-1
            )
        )
        if not response.error_code:
            return int(response.producer_id)
        if not is_retriable(response.error_code) or attempt == _RETRIES - 1:
            raise refused(response.error_code, "InitProducerId", where=f'"{cluster.alias}"')
        await asyncio.sleep(min(0.1 * 2**attempt, 1.0))
    raise AssertionError("unreachable")


async def forgets_producers(cluster: Cluster) -> bool:
    """Return whether its brokers, older than 2.5, refuse a producer whose records are gone from the log."""
    connection = await cluster.any_connection()
    return connection.versions.get(messages.InitProducerIdRequest.API_KEY, (0, 0))[1] < _REMEMBERING_VERSION
