"""What a leader answers to requests that name its epoch, another one or none; real brokers and fake ones are asked.

A question under an older epoch than the leader's is refused with FENCED_LEADER_EPOCH (its client has old metadata),
one under a newer with UNKNOWN_LEADER_EPOCH (the leader has not heard of its successor).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.codec import k01_fetch
from heliograph.kafka.leader_epochs import EpochQuestion, epoch_ends
from heliograph.kafka.log import fetch_version
from heliograph.kafka.types import NO_TOPIC_ID, TopicPartition

FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 74, 75
UNNAMED = -1


class Answered(NamedTuple):
    """Error codes; and the epochs that ListOffsets tells with the last offset, to a client and to a replica."""

    fetch: int
    first_offset: int
    last_offset: int
    replicas_last_offset: int
    epoch_end: int
    told: tuple[int, int]


def expected(named: int, current: int) -> Answered:
    code = 0 if named in (UNNAMED, current) else FENCED_LEADER_EPOCH if named < current else UNKNOWN_LEADER_EPOCH
    return Answered(code, code, code, code, code, (-1, -1) if code else (current, current))


async def ask_under(client: Cluster, where: TopicPartition, named: int) -> Answered:
    """Ask the leader that the metadata names, under some epoch."""
    leader = client.catalogue.leader_of(*where)
    assert leader is not None
    _name(client, where, named)
    first = (await list_offsets(client, [where], EARLIEST))[where]
    last = (await list_offsets(client, [where], LATEST))[where]
    replicas = (await list_offsets(client, [where], LATEST, unreplicated=True))[where]
    end = (await epoch_ends(client, leader, {where: EpochQuestion(named, 0)}))[where]
    fetched = await _fetch(client, leader, where, named)
    return Answered(
        fetched,
        first.error_code,
        last.error_code,
        replicas.error_code,
        end.error_code,
        (last.leader_epoch, replicas.leader_epoch),
    )


def _name(client: Cluster, where: TopicPartition, named: int) -> None:
    """Have the client believe that the leader is of another epoch."""
    topics = dict(client.catalogue.topics)
    partitions = list(topics[where.topic].partitions)
    partitions[where.partition] = partitions[where.partition]._replace(leader_epoch=named)
    topics[where.topic] = topics[where.topic]._replace(partitions=tuple(partitions))
    client.catalogue = replace(client.catalogue, topics=topics)


async def _fetch(client: Cluster, leader: int, where: TopicPartition, named: int) -> int:
    connection = await client.connection(leader, "fetch")
    topic_id = client.catalogue.topics[where.topic].topic_id
    version = fetch_version(connection, with_id=topic_id != NO_TOPIC_ID)
    key = topic_id if k01_fetch.uses_topic_ids(version) else where.topic
    correlation_id = connection.next_correlation_id()
    request = k01_fetch.encode_fetch_request(
        version,
        [(key, [k01_fetch.FetchPartition(where.partition, 0, 1 << 20, named)])],
        correlation_id=correlation_id,
        client_id=client.client_id,
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=1 << 20,
    )
    body = await connection.send([request], correlation_id, timeout_s=15)
    [topic] = k01_fetch.decode_fetch_response(body, version).topics
    return topic.partitions[0].error_code
