"""Asks a partition's leader where a leader epoch ends in its log (OffsetForLeaderEpoch)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from heliograph.errors import ProtocolError
from heliograph.kafka import messages
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.codec.k01_fetch import EpochEnd
from heliograph.kafka.types import TopicPartition


class EpochQuestion(NamedTuple):
    """Asks about `epoch`; `leader_epoch` is the one that the leader must have to answer."""

    leader_epoch: int
    epoch: int


class EpochAnswer(NamedTuple):
    """Holds the last epoch of the log up to the one asked about, and its end; both -1 if none is known."""

    error_code: int
    end: EpochEnd


def has_epochs(versions: Mapping[int, tuple[int, int]]) -> bool:
    """Return whether a broker can be asked; Apache's from 2.4 on all can."""
    return messages.OffsetForLeaderEpochRequest.API_KEY in versions


async def epoch_ends(
    cluster: Cluster, leader: int, wanted: Mapping[TopicPartition, EpochQuestion]
) -> dict[TopicPartition, EpochAnswer]:
    """Ask about all partitions in one request."""
    topic_class = messages.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    by_topic: dict[str, list[TopicPartition]] = {}
    for where in wanted:
        by_topic.setdefault(where.topic, []).append(where)
    request = messages.OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            topic_class(
                topic=topic,
                partitions=[
                    topic_class.OffsetForLeaderPartition(
                        partition=where.partition,
                        current_leader_epoch=wanted[where].leader_epoch,
                        leader_epoch=wanted[where].epoch,
                    )
                    for where in group
                ],
            )
            for topic, group in by_topic.items()
        ],
    )
    response = await cluster.call(request, node_id=leader)
    answers = {
        TopicPartition(topic.topic, answer.partition): EpochAnswer(
            answer.error_code, EpochEnd(answer.leader_epoch, answer.end_offset)
        )
        for topic in response.topics
        for answer in topic.partitions
    }
    if answers.keys() != wanted.keys():
        raise ProtocolError(
            "an answer to OffsetForLeaderEpoch has other partitions than the request",
            where=f'"{cluster.alias}" broker {leader}',
        )
    return answers
