"""Writers for the fault tests: stamped records at a steady rate, and a log of what was acknowledged.

A writer retries through everything. What counts for the mirror is what the source has in the end; what was
acknowledged says that the source kept its word.
"""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Self

from confluent_kafka import KafkaError, KafkaException

from heliograph.lab import LabCluster
from tests.cluster.mirror import producer, unique
from tests.fault.stamp import Shape, Stamp

_STEADY = {"reconnect_backoff_max_ms": 500, "topic_metadata_refresh_interval_ms": 2000}
_MOST_IN_TRANSACTION = 30


class Writer:
    """Writes to every partition of a topic in turn, until told to stop."""

    def __init__(self, cluster: LabCluster, topic: str, shape: Shape, *, partitions: int, per_second: float) -> None:
        self.cluster = cluster
        self.topic = topic
        self.shape = shape
        self.partitions = partitions
        """May be raised while it runs."""
        self.acknowledged: dict[int, set[int]] = defaultdict(set)
        """Sequences by partition."""
        self.aborted: dict[int, set[int]] = defaultdict(set)
        self.troubles: list[str] = []
        """Errors that were given up on; their records may or may not be there."""
        self._newest: dict[int, int] = {}
        self._per_second = per_second
        self._sequences: dict[int, int] = defaultdict(int)
        self._turn = 0
        self._stop = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"writer-{topic}")
        self._written: Future[None] | None = None

    def __enter__(self) -> Self:
        self._written = self._pool.submit(self._write)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if error is None:
            self.join()

    def stop(self) -> None:
        """Write no more; what is on its way is waited for by `join`."""
        self._stop.set()

    def join(self) -> None:
        """Raises what the writing came to grief by."""
        assert self._written is not None
        self._written.result(120)

    @property
    def newest(self) -> Mapping[int, int]:
        """The highest acknowledged sequence of each partition."""
        return dict(self._newest)

    def _write(self) -> None:
        sender = producer(self.cluster, **_STEADY)
        due = time.monotonic()
        while not self._stop.is_set():
            due = self._pace(due)
            self._send(sender, self._on_delivery)
            sender.poll(0)
        assert sender.flush(90) == 0, f"{self.topic}: records were not acknowledged"

    def _pace(self, due: float) -> float:
        """Wait until the next record is due; what an outage held up is not made up for."""
        now = time.monotonic()
        if due > now:
            self._stop.wait(due - now)
        return max(due, now - 0.5) + 1 / self._per_second

    def _send(self, sender: Any, on_delivery: Any) -> tuple[int, int]:
        partition = self._turn % self.partitions
        self._turn += 1
        sequence = self._sequences[partition]
        self._sequences[partition] += 1
        stamp = Stamp(self.shape.writer, partition, sequence, time.time_ns() // 1_000_000)
        timestamp, key, value, headers = self.shape.content(stamp)
        while True:
            try:
                sender.produce(
                    self.topic,
                    value,
                    key,
                    partition,
                    timestamp=timestamp,
                    headers=list(headers),
                    on_delivery=partial(on_delivery, partition, sequence),
                )
                return partition, sequence
            except BufferError:
                sender.poll(0.1)
            except KafkaException as error:
                # A partition that was just added is unknown here until the next look at the metadata.
                if error.args[0].code() != KafkaError._UNKNOWN_PARTITION:
                    raise
                sender.poll(0.1)

    def _on_delivery(self, partition: int, sequence: int, error: KafkaError | None, message: Any) -> None:
        if error is None:
            self._note(partition, {sequence})
        else:
            self.troubles.append(str(error))

    def _note(self, partition: int, sequences: set[int]) -> None:
        self.acknowledged[partition] |= sequences
        self._newest[partition] = max(self._newest.get(partition, -1), *sequences)


class TransactionalWriter(Writer):
    """Writes transactions of random size and aborts some; a record is acknowledged when its transaction is."""

    def __init__(self, *arguments: Any, chance: random.Random, aborted_share: float = 0.2, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._chance = chance
        self._aborted_share = aborted_share
        self._id = unique("writer")

    def _write(self) -> None:
        due = time.monotonic()
        sender: Any = None
        while not self._stop.is_set():
            try:
                if sender is None:
                    sender = producer(self.cluster, transactional_id=self._id, transaction_timeout_ms=30_000, **_STEADY)
                    sender.init_transactions(60)
                due = self._transact(sender, due)
            except KafkaException as error:
                # Its outcome is unknown; the next producer of this id ends what this one left open.
                self.troubles.append(str(error))
                sender = None
        self._end_what_is_open()

    def _end_what_is_open(self) -> None:
        for _ in range(5):
            try:
                return producer(self.cluster, transactional_id=self._id).init_transactions(30)
            except KafkaException as error:
                self.troubles.append(str(error))
        raise AssertionError(f"{self.topic}: an open transaction could not be ended")

    def _transact(self, sender: Any, due: float) -> float:
        written: dict[int, set[int]] = defaultdict(set)
        sender.begin_transaction()
        for _ in range(self._chance.randint(1, _MOST_IN_TRANSACTION)):
            due = self._pace(due)
            partition, sequence = self._send(sender, lambda *_: None)
            written[partition].add(sequence)
            sender.poll(0)
            if self._stop.is_set():
                break
        is_committed = self._chance.random() >= self._aborted_share and self._commit(sender)
        if not is_committed:
            sender.flush(15)  # a transaction that is aborted before it has begun on the broker is an error there
            self._abort(sender)
        for partition, sequences in written.items():
            if is_committed:
                self._note(partition, sequences)
            else:
                self.aborted[partition] |= sequences
        return due

    def _commit(self, sender: Any) -> bool:
        """False if it must be aborted; raises what makes the outcome unknown."""
        while True:
            try:
                sender.commit_transaction(15)
                return True
            except KafkaException as error:
                if error.args[0].txn_requires_abort():
                    return False
                if not error.args[0].retriable():
                    raise

    def _abort(self, sender: Any) -> None:
        while True:
            try:
                sender.abort_transaction(15)
                return
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
