"""An application that comes over from another cluster: its consumer goes on where its group was there.

Works with confluent-kafka and kafka-python consumers; the first is imported only when one is at hand.

on_assign --> upstream clusters --> the group's mirrored offsets --> highest of each partition
                                                                        |  against the commit on this cluster
                                                                        +--> seek, or leave as it is
"""

from __future__ import annotations

import concurrent.futures
import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import kafka
from kafka import AsyncConsumerRebalanceListener
from kafka.future import Future

from heliograph.client.checkpoints import Offsets
from heliograph.client.mirror_client import MirrorClient
from heliograph.errors import HeliographError
from heliograph.kafka.types import TopicPartition

COMMITTED_TIMEOUT_S = 30.0
SEEK_TIMEOUT_S = 10.0
_PAUSE_S = 0.1

logger = logging.getLogger("heliograph.client")


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The place where a consumer goes on in one partition, and why."""

    partition: TopicPartition
    mirrored: int | None
    """The highest offset that any upstream cluster's checkpoints give; None without one."""
    local: int | None
    """What the group has committed on this cluster; None if nothing."""

    @property
    def seeks_to(self) -> int | None:
        """None: the consumer starts as it would by itself."""
        if self.mirrored is None or (self.local is not None and self.mirrored <= self.local):
            return None
        return self.mirrored

    def __str__(self) -> str:
        if self.mirrored is None:
            return f"{self.partition}: no mirrored offset exists, left as it is"
        if self.local is None:
            return f"{self.partition}: no local offset, seeking to mirrored offset {self.mirrored}"
        if self.mirrored > self.local:
            return f"{self.partition}: seeking to mirrored offset {self.mirrored}, local offset is {self.local}"
        return f"{self.partition}: keeping local offset {self.local}, mirrored offset is {self.mirrored}"


def decide(
    partitions: Iterable[TopicPartition], mirrored: Iterable[Offsets], local: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Decision]:
    """Pure; `mirrored` has what each upstream cluster gives."""
    known = list(mirrored)
    return {
        where: Decision(
            partition=where,
            mirrored=max((offsets[where].offset for offsets in known if where in offsets), default=None),
            local=local.get(where),
        )
        for where in partitions
    }


def seek_to_mirrored(
    consumer: Any,
    client: MirrorClient,
    group: str,
    partitions: Collection[Any] | None = None,
    log: logging.Logger = logger,
) -> dict[TopicPartition, Decision]:
    """Let a consumer go on where its group was on the other clusters, if that is further than its commits here.

    For an `on_assign` callback, with the partitions it was given, or for all that is assigned. Trouble with the
    mirror's topics is logged and counts as no mirrored offset; the consumer's own errors are raised.
    """
    side = _Confluent(consumer) if hasattr(consumer, "incremental_assign") else _KafkaPython(consumer)
    wanted = [TopicPartition(p.topic, p.partition) for p in (side.assigned() if partitions is None else partitions)]
    mirrored = _mirrored(client, group, log) if wanted else []
    decisions = decide(wanted, mirrored, side.committed(wanted) if wanted else {})
    for decision in decisions.values():
        log.info("group %s, %s", group, decision)
    side.start({where: decision.seeks_to for where, decision in decisions.items()})
    return decisions


def mirrored_on_assign(
    client: MirrorClient, group: str, log: logging.Logger = logger
) -> Callable[[Any, list[Any]], None]:
    """An `on_assign` for confluent-kafka's `Consumer.subscribe`."""

    def on_assign(consumer: Any, partitions: list[Any]) -> None:
        seek_to_mirrored(consumer, client, group, partitions, log)

    return on_assign


def mirrored_listener(consumer: Any, client: MirrorClient, group: str, log: logging.Logger = logger) -> Any:
    """A `listener` for kafka-python's `KafkaConsumer.subscribe`."""
    return _Listener(lambda assigned: seek_to_mirrored(consumer, client, group, assigned, log))


class _Listener(AsyncConsumerRebalanceListener):  # type: ignore[misc]  # kafka-python has no types
    """Works in a thread of its own: the library's thread must go on to answer what that one asks of it."""

    def __init__(self, seek: Callable[[Any], object]) -> None:
        self._seek = seek

    async def on_partitions_revoked(self, revoked: Any) -> None:
        pass

    async def on_partitions_assigned(self, assigned: Any) -> None:
        done = Future()

        def tell(work: concurrent.futures.Future[object]) -> None:
            error = work.exception()
            if error is None:
                done.success(work.result())
            else:
                done.failure(error)

        pool = ThreadPoolExecutor(1, thread_name_prefix="heliograph-seek")
        pool.submit(self._seek, assigned).add_done_callback(tell)
        pool.shutdown(wait=False)
        await done


def _mirrored(client: MirrorClient, group: str, log: logging.Logger) -> list[Offsets]:
    try:
        aliases = sorted(client.upstream_clusters())
    except HeliographError as error:
        log.warning("upstream clusters are not known: %s", error)
        return []
    found = []
    for alias in aliases:
        try:
            found.append(client.translate_offsets(alias, group))
        except HeliographError as error:
            log.warning("no mirrored offsets of group %s from %s: %s", group, alias, error)
    return found


class _KafkaPython:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def assigned(self) -> Collection[Any]:
        return self._consumer.assignment() or ()

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        timeout_ms = int(COMMITTED_TIMEOUT_S * 1000)
        found = {where: self._consumer.committed(_theirs(where), timeout_ms=timeout_ms) for where in partitions}
        return {where: offset for where, offset in found.items() if offset is not None and offset >= 0}

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        for where, offset in offsets.items():
            if offset is not None:
                self._consumer.seek(_theirs(where), offset)


def _theirs(where: TopicPartition) -> Any:
    return kafka.TopicPartition(where.topic, where.partition)


class _Confluent:
    """In `on_assign` the partitions are not assigned yet, and start offsets go with the assignment; later, seek."""

    def __init__(self, consumer: Any) -> None:
        import confluent_kafka  # noqa: PLC0415  # not a dependency: who has such a consumer has it

        self._consumer = consumer
        self._library = confluent_kafka

    def assigned(self) -> Collection[Any]:
        found: Collection[Any] = self._consumer.assignment()
        return found

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        asked = [self._library.TopicPartition(*where) for where in partitions]
        found = self._consumer.committed(asked, timeout=COMMITTED_TIMEOUT_S)
        for answer in found:
            if answer.error is not None:
                raise self._library.KafkaException(answer.error)
        return {TopicPartition(p.topic, p.partition): p.offset for p in found if p.offset >= 0}

    def start(self, offsets: Mapping[TopicPartition, int | None]) -> None:
        assigned = {TopicPartition(p.topic, p.partition) for p in self.assigned()}
        new = [
            self._library.TopicPartition(*where, self._library.OFFSET_INVALID if offset is None else offset)
            for where, offset in offsets.items()
            if where not in assigned
        ]
        if new:  # else the library assigns by itself what it gave to the callback
            self._assign(new)
        for where, offset in offsets.items():
            if where in assigned and offset is not None:
                self._seek(self._library.TopicPartition(*where, offset))

    def _assign(self, partitions: list[Any]) -> None:
        """With a cooperative assignor what is assigned stays, and the library takes only additions."""
        try:
            self._consumer.assign(partitions)
        except self._library.KafkaException as error:
            if error.args[0].code() != self._library.KafkaError._STATE:
                raise
            self._consumer.incremental_assign(partitions)

    def _seek(self, partition: Any) -> None:
        """A partition that was just assigned is not read yet, and cannot be sought in for a moment."""
        give_up = time.monotonic() + SEEK_TIMEOUT_S
        while True:
            try:
                self._consumer.seek(partition)
            except self._library.KafkaException as error:
                if error.args[0].code() != self._library.KafkaError._STATE or time.monotonic() > give_up:
                    raise
                time.sleep(_PAUSE_S)
            else:
                return
