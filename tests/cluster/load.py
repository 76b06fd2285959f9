"""A steady load for the tests on real brokers: a producer in a thread that remembers what was acknowledged."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from heliograph.lab import LabCluster
from tests.background import Background
from tests.cluster.mirror import producer


class Load(Background):
    """Writes numbered records to every partition of the topics until stopped.

    Values are numbers that grow by one in each partition: loss, repetition and disorder show at once. Keys are the
    number of the partition.
    """

    def __init__(
        self,
        cluster: LabCluster,
        topics: Sequence[str],
        *,
        partitions: int,
        per_second: int,
        age_ms: int = 0,
        size: int = 200,
        **config: Any,
    ) -> None:
        super().__init__()
        self._producer = producer(cluster, **config)
        self._topics = topics
        self._partitions = partitions
        self._per_second = per_second
        self._age_ms = age_ms
        self._padding = b"." * size
        self._failed: list[Any] = []
        self.written = 0
        """Records in each partition of each topic."""

    def stop(self) -> None:
        """Write no more; what was written is acknowledged then."""
        super().stop()
        assert self._producer.flush(60) == 0
        assert not self._failed, self._failed[:3]

    def run(self) -> None:
        began = time.monotonic()
        on_delivery: Callable[[Any, Any], None] = lambda error, _: self._failed.append(error) if error else None  # noqa: E731
        rounds = self._per_second / (self._partitions * len(self._topics))
        while not self.over.is_set():
            value = str(self.written).encode() + self._padding
            now_ms = int(time.time() * 1000) - self._age_ms
            for topic in self._topics:
                for partition in range(self._partitions):
                    key = b"%d" % partition
                    self._producer.produce(topic, value, key, partition, timestamp=now_ms, on_delivery=on_delivery)
            self.written += 1
            self._producer.poll(0)
            ahead = self.written / rounds - (time.monotonic() - began)
            if ahead > 0.01:
                self.over.wait(ahead)
