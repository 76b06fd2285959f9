"""Topics that come one after the other while records flow, and how steadily the others are copied meanwhile."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import NewTopic

from heliograph.lab import LabCluster
from tests.background import Background
from tests.cluster.mirror import admin, producer

Place = tuple[str, int]
STANDSTILL_S = 5.0
"""At most, of what is copied while topics come: a turnover between epochs takes about one, a busy machine adds."""


class Swarm(Background):
    """Makes so many topics in so many seconds, and writes to every partition as soon as its topic is there."""

    def __init__(
        self, cluster: LabCluster, prefix: str, *, topics: int, partitions: int, records: int, seconds: float
    ) -> None:
        super().__init__()
        self.topics = [f"{prefix}-{index:04d}" for index in range(topics)]
        self.expected: dict[Place, list[bytes]] = {}
        """What was written to each partition."""
        self.took_s = 0.0
        self._cluster = cluster
        self._partitions, self._records, self._seconds = partitions, records, seconds
        self._producer = producer(cluster)
        self._failed: list[Any] = []

    def stop(self) -> None:
        """When the last topic is there; what was written is acknowledged then."""
        self._thread.join(self._seconds + 120)
        super().stop()
        assert not self._thread.is_alive()
        assert self._producer.flush(60) == 0
        assert not self._failed, self._failed[:3]
        assert len(self.expected) == len(self.topics) * self._partitions

    def run(self) -> None:
        began = time.monotonic()
        for index, topic in enumerate(self.topics):
            due = began + index * self._seconds / len(self.topics)
            if self.over.wait(max(0.0, due - time.monotonic())):
                return
            try:
                admin(self._cluster).create_topics([NewTopic(topic, self._partitions, 1)])[topic].result(30)
            except KafkaException as error:
                self._failed.append(error)
                return
            for partition in range(self._partitions):
                values = [b"%s-%d-%d" % (topic.encode(), partition, number) for number in range(self._records)]
                for value in values:
                    self._producer.produce(topic, value, None, partition, on_delivery=self._delivered)
                self.expected[topic, partition] = values
            self._producer.poll(0)
        self.took_s = time.monotonic() - began

    def _delivered(self, error: KafkaError | None, _: Any) -> None:
        if error is not None:
            self._failed.append(error)


def read_values(cluster: LabCluster, places: Iterable[Place], *, timeout_s: float = 120) -> dict[Place, list[bytes]]:
    """All values of many partitions, by one consumer."""
    found: dict[Place, list[bytes]] = {place: [] for place in places}
    waiting = set(found)
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "unused",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            "log_level": 0,
        }
    )
    try:
        consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in found])
        deadline = time.monotonic() + timeout_s
        while waiting:
            assert time.monotonic() < deadline, f"{len(waiting)} partitions were not read to their end"
            for message in consumer.consume(1000, timeout=0.2):
                place = (message.topic() or "", message.partition() or 0)
                error = message.error()
                if error is None:
                    found[place].append(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    waiting.discard(place)
                elif error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return found


class Pulse(Background):
    """Looks at the end of partition 0 of a topic, again and again: for how long did it stand still at most?"""

    EVERY_S = 0.1

    def __init__(self, cluster: LabCluster, topic: str) -> None:
        super().__init__()
        self._where = TopicPartition(topic, 0)
        self._consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "unused", "log_level": 0})
        self.standstills: list[float] = []
        """Longer than half a second, in order."""

    def stop(self) -> None:
        super().stop()
        self._consumer.close()

    def run(self) -> None:
        end, moved_at = -1, time.monotonic()
        while not self.over.wait(self.EVERY_S):
            try:
                _, found = self._consumer.get_watermark_offsets(self._where, timeout=10)
            except KafkaException:
                continue  # a busy broker: the standstill then is as long as it looks
            now = time.monotonic()
            if found != end:
                if end >= 0 and now - moved_at > 0.5:
                    self.standstills.append(round(now - moved_at, 2))
                end, moved_at = found, now
