"""Follows the target while the mirror works: what has arrived, how long it took, how long nothing came."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import NamedTuple

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition

from heliograph.lab import LabCluster
from tests.background import Background
from tests.cluster.mirror import record_of
from tests.fault.stamp import stamp_of

_LOOK_S = 1.0

Place = tuple[str, int]
"""Topic and partition, on the target."""


class Arrival(NamedTuple):
    at: float
    """Monotonic."""
    latency_ms: int


class Arrivals(Background):
    """A consumer in a thread that takes up topics and partitions as they appear."""

    def __init__(self, cluster: LabCluster, topics: Sequence[str]) -> None:
        super().__init__()
        self._topics = topics
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "check.crcs": True,
                "fetch.wait.max.ms": 20,
                "reconnect.backoff.max.ms": 500,
                "topic.metadata.refresh.interval.ms": 2000,  # a broker that is cut off does not say so
                "log_level": 0,
            }
        )
        self._newest: dict[Place, int] = {}
        self._seen: list[Arrival] = []

    @property
    def newest(self) -> Mapping[Place, int]:
        """The highest sequence that has arrived, by target partition."""
        return dict(self._newest)

    def latencies(self, start: float, end: float) -> list[int]:
        """Of what arrived between two monotonic times, in milliseconds, in order of size."""
        return sorted(arrival.latency_ms for arrival in list(self._seen) if start <= arrival.at <= end)

    def longest_silence_s(self, start: float, end: float) -> float:
        """The longest time between two monotonic times in which nothing arrived at all."""
        times = [start, *(arrival.at for arrival in list(self._seen) if start <= arrival.at <= end), end]
        return max(later - earlier for earlier, later in pairwise(times))

    def run(self) -> None:
        with closing(self._consumer):
            self._follow()

    def _follow(self) -> None:
        followed: set[Place] = set()
        looked = 0.0
        while not self.over.is_set():
            if time.monotonic() - looked > _LOOK_S:
                looked = time.monotonic()
                fresh = self._partitions() - followed
                if fresh:
                    self._consumer.incremental_assign([TopicPartition(*place, 0) for place in fresh])
                    followed |= fresh
            for message in self._consumer.consume(500, timeout=0.05) if followed else ():
                if message.error() is None:
                    self._take(message)
            if not followed:
                self.over.wait(0.1)

    def _partitions(self) -> set[Place]:
        try:
            found = self._consumer.list_topics(timeout=1).topics
        except KafkaException:
            return set()
        return {(topic, index) for topic in self._topics if topic in found for index in found[topic].partitions}

    def _take(self, message: Message) -> None:
        record = record_of(message)
        stamp = stamp_of(record)
        if stamp is None:
            return  # the checker names it
        place = (str(message.topic()), record.partition)
        self._newest[place] = max(self._newest.get(place, -1), stamp.sequence)
        self._seen.append(Arrival(time.monotonic(), time.time_ns() // 1_000_000 - stamp.time_ms))


def percentile(ordered: Sequence[int], share: float) -> int:
    """Of numbers in order of size; 0 if there are none."""
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0
