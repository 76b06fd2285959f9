"""Reads the headers of the first batches from given offsets on, for many partitions at once.

Brokers send whole batches. The first partition of an answer that has records gets its first batch however large it is;
the others get nothing if theirs does not fit into what is left (KIP-74), and are asked again. So an answer is as large
as its limit, or as one batch, and no batch is fetched twice.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from itertools import groupby, islice
from typing import NamedTuple
from uuid import UUID

from heliograph.errors import ProtocolError
from heliograph.kafka.batch import BatchHeader, iter_batches
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k01_fetch
from heliograph.kafka.connection import Connection
from heliograph.kafka.log import FETCH_GRACE_S, fetch_version
from heliograph.kafka.types import NO_TOPIC_ID, TopicPartition

AT_A_TIME = 256
"""Maximum number of partitions in one request."""
ANSWER_BYTES = 8 * 1024 * 1024
PARTITION_BYTES = 1_048_588 + 4096
"""Size of the largest batch of a topic with the default max.message.bytes."""


class FirstBatch(NamedTuple):
    """Holds the first batch header of a partition from an offset on; without error and header there is none."""

    error_code: int = 0
    header: BatchHeader | None = None


async def first_batches(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstBatch]:
    """Fetch the first batch of each partition that reaches its offset, from the leaders; checksums are not checked.

    Partitions without a leader are left out. Raises if a leader does not answer.
    """
    by_leader: dict[int, dict[TopicPartition, int]] = {}
    for where in sorted(wanted):
        leader = cluster.catalogue.leader_of(*where)
        if leader is not None:
            by_leader.setdefault(leader, {})[where] = wanted[where]
    found: dict[TopicPartition, FirstBatch] = {}
    for answers in await asyncio.gather(*(_ask_leader(cluster, leader, asked) for leader, asked in by_leader.items())):
        found |= answers
    return found


async def _ask_leader(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, FirstBatch]:
    connection = await cluster.connection(leader, "read")
    left = dict(wanted)
    found: dict[TopicPartition, FirstBatch] = {}
    while left:
        asked = list(islice(left.items(), AT_A_TIME))
        is_full = False
        for (where, offset), answer in zip(asked, await _fetch(cluster, connection, asked), strict=True):
            if answer is None:
                continue
            header = _first_reaching(answer, offset, where=f'"{cluster.alias}" {where.topic}-{where.partition}')
            if header is None and not answer.error_code and is_full:
                continue  # there was no room for it
            is_full |= header is not None
            found[where] = FirstBatch(answer.error_code, header)
            del left[where]
    return found


def _first_reaching(answer: k01_fetch.FetchedPartition, offset: int, *, where: str) -> BatchHeader | None:
    batches = iter_batches(answer.records, where=where)
    return next((header for header, _ in batches if header.next_offset > offset), None)


async def _fetch(
    cluster: Cluster, connection: Connection, asked: Sequence[tuple[TopicPartition, int]]
) -> list[k01_fetch.FetchedPartition | None]:
    """Send one fetch; return None for each partition if a quota is used up, and the next fetch waits."""
    topics = cluster.catalogue.topics
    ids = {topic: topics[topic].topic_id if topic in topics else NO_TOPIC_ID for (topic, _), _ in asked}
    version = fetch_version(connection, with_id=NO_TOPIC_ID not in ids.values())
    keys: Mapping[str, str | UUID] = ids if k01_fetch.uses_topic_ids(version) else {topic: topic for topic in ids}
    epoch_of = cluster.catalogue.leader_epoch_of
    wanted = [
        (
            keys[topic],
            [
                k01_fetch.FetchPartition(where.partition, offset, PARTITION_BYTES, epoch_of(*where))
                for where, offset in group
            ],
        )
        for topic, group in groupby(asked, key=lambda item: item[0].topic)
    ]
    correlation_id = connection.next_correlation_id()
    request = k01_fetch.encode_fetch_request(
        version,
        wanted,
        correlation_id=correlation_id,
        client_id=cluster.client_id,
        max_wait_ms=0,
        min_bytes=1,
        max_bytes=ANSWER_BYTES,
    )
    body = await connection.send([request], correlation_id, timeout_s=FETCH_GRACE_S)
    response = k01_fetch.decode_fetch_response(body, version)
    connection.throttle(response.throttle_ms)
    if response.error_code:
        raise refused(response.error_code, "Fetch", where=connection.where)
    answers = {(topic.topic, answer.partition): answer for topic in response.topics for answer in topic.partitions}
    found = [answers.get((keys[where.topic], where.partition)) for where, _ in asked]
    if None in found and not response.throttle_ms:
        raise ProtocolError("an answer to Fetch lacks a partition", where=connection.where)
    return found
