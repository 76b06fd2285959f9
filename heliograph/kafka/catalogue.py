"""Holds a cluster's metadata: brokers, topics, leaders and leader epochs; tells which of two answers is newer. Pure.

Every leader of a partition has an epoch, higher than that of the leader before it. A broker that is cut off from its
controllers goes on naming the leaders that it knew; its answers show by their epochs, which are lower than those seen
before. A recreated topic begins with epoch 0 again, under another id.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple
from uuid import UUID

from heliograph.kafka.types import BrokerAddress, TopicPartition, may_be_same_topic

UNKNOWN_EPOCH = -1
UNNAMED_LEADER = -2
"""Stands for a leader that no broker has named yet, although its epoch was seen elsewhere."""


class PartitionMeta(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicMeta(NamedTuple):
    name: str
    topic_id: UUID
    partitions: tuple[PartitionMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """Holds a cluster's metadata as of one moment."""

    cluster_id: str
    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMeta] = field(default_factory=dict)

    def leader_of(self, topic: str, partition: int) -> int | None:
        meta = self.topics.get(topic)
        if meta is None or partition >= len(meta.partitions):
            return None
        leader = meta.partitions[partition].leader
        return leader if leader in self.brokers else None

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """Return the leader epoch; -1 if it is not known."""
        meta = self.topics.get(topic)
        return (
            UNKNOWN_EPOCH
            if meta is None or partition >= len(meta.partitions)
            else meta.partitions[partition].leader_epoch
        )

    def leadership_of(self, topic: str, partition: int) -> tuple[int | None, int]:
        """Return the leader and its epoch."""
        return self.leader_of(topic, partition), self.leader_epoch_of(topic, partition)

    def is_behind(self, where: TopicPartition, epoch: int, topic_id: str) -> bool:
        """Return whether it names an older leader than that of `epoch`, for the topic with this id in hexadecimal."""
        meta = self.topics.get(where.topic)
        known = self.leader_epoch_of(*where)
        return meta is not None and UNKNOWN_EPOCH < known < epoch and may_be_same_topic(meta.topic_id.hex, topic_id)

    def has_unnamed_leader(self, where: TopicPartition) -> bool:
        """Return whether no broker has named the leader of the epoch that was seen."""
        meta = self.topics.get(where.topic)
        is_there = meta is not None and where.partition < len(meta.partitions)
        return is_there and self.topics[where.topic].partitions[where.partition].leader == UNNAMED_LEADER

    def with_epoch(self, where: TopicPartition, epoch: int) -> Catalogue:
        """Return a catalogue in which the partition has a leader of that epoch, on a broker not known yet."""
        meta = self.topics[where.topic]
        partitions = list(meta.partitions)
        partitions[where.partition] = partitions[where.partition]._replace(leader=UNNAMED_LEADER, leader_epoch=epoch)
        return replace(self, topics={**self.topics, where.topic: meta._replace(partitions=tuple(partitions))})


def outdated(known: Mapping[str, TopicMeta], found: Mapping[str, TopicMeta]) -> dict[TopicPartition, int]:
    """Return the partitions for which an answer names an older leader than is known, each with the known epoch."""
    result: dict[TopicPartition, int] = {}
    for name, topic in found.items():
        before = known.get(name)
        if before is None or not may_be_same_topic(before.topic_id.hex, topic.topic_id.hex):
            continue
        for index, (old, new) in enumerate(zip(before.partitions, topic.partitions, strict=False)):
            if UNKNOWN_EPOCH < new.leader_epoch < old.leader_epoch:
                result[TopicPartition(name, index)] = old.leader_epoch
    return result


def with_known(
    found: Mapping[str, TopicMeta], known: Mapping[str, TopicMeta], where: Mapping[TopicPartition, int]
) -> dict[str, TopicMeta]:
    """Return an answer in which the known metadata of some partitions replaces the answer's own."""
    topics = dict(found)
    for name in {partition.topic for partition in where}:
        partitions = (
            known[name].partitions[index] if TopicPartition(name, index) in where else meta
            for index, meta in enumerate(found[name].partitions)
        )
        topics[name] = found[name]._replace(partitions=tuple(partitions))
    return topics
