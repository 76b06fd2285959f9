"""The source side of a flow in a lane: keeps every copy's queue filled.

One long-polling fetch per source broker at a time. A copy takes part while it is
COPYING and its queue has room. Leaders that moved are looked up again; what only
the driver can decide (lost data, a recreated topic) is handed to `on_trouble`.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from uuid import UUID

from heliograph.errors import (
    CorruptBatch,
    DataLost,
    HeliographError,
    LogTruncated,
    NotAuthorized,
    TopicRecreated,
)
from heliograph.kafka.admin import EARLIEST, LATEST, list_offsets
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k01_fetch
from heliograph.kafka.log import fetch_version
from heliograph.kafka.types import NO_TOPIC_ID, TopicPartition
from heliograph.mirror.copy import PartitionCopy, Spawn, State
from heliograph.mirror.model import FlowTerms

MEMORY_BYTES = 48 * 1024 * 1024
"""Fetched bytes a lane holds at most, all flows together (in whole receive buffers)."""
MEMORY_PAUSE_S = 0.005
TRICKLE_BYTES = 32 * 1024
TRICKLE_PAUSE_S = 0.004
"""After a small answer the next fetch waits a little: a trickle of single records would cost a round trip each."""
LEAST_ANSWER_BYTES = 1024 * 1024
FEW_PARTITIONS = 32
ALL_EVERY_S = 0.25
"""An answer holds what a few partitions have waiting: while many are behind, only some are asked for at a time,
and all, the quiet ones too, a few times a second. Naming 1,000 partitions costs as much as copying 5 MB."""
BLOCKED_WAIT_MS = 10
"""Long-poll no longer than this while some copy waits for room: it must get its turn."""

_OFFSET_OUT_OF_RANGE = 1
_TOPIC_AUTHORIZATION_FAILED = 29
_UNKNOWN_TOPIC_ID = 100
_INCONSISTENT_TOPIC_ID = 103
_LEADER_ERRORS = frozenset({3, 5, 6, 9, 56, 74, 75, 76, 78, _UNKNOWN_TOPIC_ID, _INCONSISTENT_TOPIC_ID})
_MIN_PAUSE_S = 0.05
_MAX_PAUSE_S = 2.0


class Fetcher:
    """Fetches for all copies of one flow."""

    def __init__(
        self,
        cluster: Cluster,
        terms: FlowTerms,
        *,
        on_fetched: Callable[[PartitionCopy], None],
        on_trouble: Callable[[PartitionCopy, HeliographError], None],
        time_left_ms: Callable[[], int],
        spawn: Spawn,
    ) -> None:
        self._cluster = cluster
        self._terms = terms
        self._on_fetched = on_fetched
        self._on_trouble = on_trouble
        self._time_left_ms = time_left_ms
        self._spawn = spawn
        self._copies: dict[int, list[PartitionCopy]] = {}
        self._loops: dict[int, asyncio.Task[None]] = {}
        self._wakes: dict[int, asyncio.Event] = {}
        self._homeless: dict[PartitionCopy, HeliographError | None] = {}
        self._homing: asyncio.Task[None] | None = None
        self._closed = False

    def add(self, copy: PartitionCopy) -> None:
        """Begin to fetch for a copy that has settled, or go on with one already known."""
        if copy.fetch_node is not None:
            self.wake(copy)
            return
        self._home(copy, None)

    def wake(self, copy: PartitionCopy) -> None:
        """The copy's queue may have room again."""
        event = self._wakes.get(copy.fetch_node) if copy.fetch_node is not None else None
        if event is not None:
            event.set()

    def drop(self, copy: PartitionCopy) -> None:
        """The copy was given back to the driver: fetch no more for it."""
        self._unhome(copy)
        self._homeless.pop(copy, None)

    def close(self) -> None:
        self._closed = True
        for task in self._loops.values():
            task.cancel()
        if self._homing is not None:
            self._homing.cancel()

    # -- which broker --------------------------------------------------------------------

    def _home(self, copy: PartitionCopy, error: HeliographError | None) -> None:
        """Find the copy's broker: at once if the leader is known, else after asking again."""
        self._unhome(copy)
        leader = self._cluster.catalogue.leader_of(copy.assignment.topic, copy.assignment.partition)
        if error is None and leader is not None:
            self._place(copy, leader)
            return
        self._homeless[copy] = error
        if self._homing is None or self._homing.done():
            self._homing = self._spawn(self._find_homes())

    def _unhome(self, copy: PartitionCopy) -> None:
        if copy.fetch_node is not None:
            self._copies[copy.fetch_node].remove(copy)
            copy.fetch_node = None

    def _place(self, copy: PartitionCopy, node: int) -> None:
        self._unhome(copy)
        self._homeless.pop(copy, None)
        copy.fetch_node = node
        self._copies.setdefault(node, []).append(copy)
        self._wakes.setdefault(node, asyncio.Event()).set()
        loop = self._loops.get(node)
        if loop is None or loop.done():
            self._loops[node] = self._spawn(self._fetch_loop(node))

    async def _find_homes(self) -> None:
        pause = _MIN_PAUSE_S
        while self._homeless and not self._closed:
            await asyncio.sleep(pause * random.uniform(0.7, 1.3))
            pause = min(pause * 2, _MAX_PAUSE_S)
            try:
                await self._cluster.refresh({copy.assignment.topic for copy in self._homeless})
            except HeliographError as error:
                for copy in self._homeless:
                    copy.error = error
                continue
            for copy, cause in list(self._homeless.items()):
                del self._homeless[copy]
                self._rehome(copy, cause)

    def _rehome(self, copy: PartitionCopy, error: HeliographError | None) -> None:
        assignment = copy.assignment
        meta = self._cluster.catalogue.topics.get(assignment.topic)
        if meta is not None and meta.topic_id.hex != copy.entry.source_topic_id != NO_TOPIC_ID.hex:
            recreated = TopicRecreated(
                f"the source topic was made anew (id {copy.entry.source_topic_id} before, {meta.topic_id.hex} now); "
                f"the old one was copied up to offset {copy.entry.source_offset - 1} of {copy.entry.source_end - 1}",
                where=assignment.name,
                source_topic_id=meta.topic_id.hex,
            )
            self._on_trouble(copy, recreated)
            return
        leader = self._cluster.catalogue.leader_of(assignment.topic, assignment.partition)
        if leader is None:
            copy.error = error or self._cluster.no_leader(
                assignment.topic, assignment.partition, "Fetch", where=assignment.name
            )
            self._homeless[copy] = copy.error
        else:
            self._place(copy, leader)

    # -- fetching ------------------------------------------------------------------------

    async def _fetch_loop(self, node: int) -> None:
        all_at = 0.0
        while not self._closed:
            wake = self._wakes[node]
            wake.clear()
            if self._cluster.pool.in_use_bytes() >= MEMORY_BYTES:
                await asyncio.sleep(MEMORY_PAUSE_S)
                continue
            copies = self._copies[node]
            wanted = [copy for copy in copies if copy.queued_bytes < copy.room_bytes and copy.state is State.COPYING]
            if not wanted:
                await wake.wait()
                continue
            now = asyncio.get_running_loop().time()
            if now - all_at < ALL_EVERY_S:
                wanted = _a_few_behind(wanted)
            if len(wanted) > FEW_PARTITIONS:
                all_at = now
            try:
                size = await self._fetch(node, wanted, blocked=len(wanted) < len(copies))
            except HeliographError as error:
                for copy in list(self._copies[node]):
                    copy.error = error
                    self._home(copy, error)
                return
            if size < TRICKLE_BYTES:
                await asyncio.sleep(TRICKLE_PAUSE_S)

    async def _fetch(self, node: int, wanted: list[PartitionCopy], *, blocked: bool) -> int:
        """One fetch for these copies; the size of its answer."""
        connection = await self._cluster.connection(node, f"fetch {self._terms.name}")
        with_id = all(copy.has_source_id for copy in wanted)
        version = fetch_version(connection, with_id=with_id)
        by_id = k01_fetch.uses_topic_ids(version)
        topics: dict[str | UUID, list[k01_fetch.FetchPartition]] = {}
        by_key: dict[tuple[str | UUID, int], tuple[PartitionCopy, int]] = {}
        first = random.randrange(len(wanted))
        for copy in wanted[first:] + wanted[:first]:
            assignment = copy.assignment
            key: str | UUID = copy.source_id if by_id else assignment.topic
            limit = min(copy.wanted_bytes, self._terms.partition_bytes)
            topics.setdefault(key, []).append(k01_fetch.FetchPartition(assignment.partition, copy.fetch_offset, limit))
            by_key[key, assignment.partition] = copy, copy.fetch_offset
        correlation_id = connection.next_correlation_id()
        wait_ms = max(0, min(BLOCKED_WAIT_MS if blocked else self._terms.fetch_max_wait_ms, self._time_left_ms()))
        request = k01_fetch.encode_fetch_request(
            version,
            list(topics.items()),
            correlation_id=correlation_id,
            client_id=self._cluster.client_id,
            max_wait_ms=wait_ms,
            min_bytes=self._terms.fetch_min_bytes,
            max_bytes=max(LEAST_ANSWER_BYTES, self._terms.fetch_max_bytes // max(1, len(self._copies))),
            isolation_level=int(self._terms.read_committed),
            rack_id=self._terms.client_rack,
        )
        body = await connection.send([request], correlation_id)
        try:
            response = k01_fetch.decode_fetch_response(body, version)
        except HeliographError as error:
            connection.close(error)
            raise
        if response.error_code:
            raise refused(response.error_code, "Fetch", where=connection.where)
        for topic in response.topics:
            for answer in topic.partitions:
                asked, offset = by_key.get((topic.topic, answer.partition), (None, -1))
                # An answer that outlived a settling is about another offset than the one wanted now.
                if (
                    asked is not None
                    and asked.fetch_node == node
                    and asked.fetch_offset == offset
                    and asked.state is State.COPYING
                ):
                    self._take(asked, answer)
        return body.nbytes

    def _take(self, copy: PartitionCopy, answer: k01_fetch.FetchedPartition) -> None:
        if answer.error_code:
            self._refused(copy, answer)
            return
        if answer.preferred_read_replica >= 0 and answer.preferred_read_replica in self._cluster.catalogue.brokers:
            self._place(copy, answer.preferred_read_replica)
            return
        if not copy.failures or (not copy.has_work and copy.fetch_offset >= answer.high_watermark):
            copy.error, copy.failures = None, 0
        if answer.records or answer.high_watermark != copy.entry.source_end:
            try:
                copy.take(answer)
            except CorruptBatch as error:
                self._on_trouble(copy, error)
                return
            self._on_fetched(copy)

    def _refused(self, copy: PartitionCopy, answer: k01_fetch.FetchedPartition) -> None:
        assignment = copy.assignment
        code = answer.error_code
        error: HeliographError = refused(code, "Fetch", where=f'"{self._cluster.alias}" {assignment.name}')
        if code == _OFFSET_OUT_OF_RANGE:
            if copy.fetch_node != self._cluster.catalogue.leader_of(assignment.topic, assignment.partition):
                self._home(copy, None)  # a follower may be behind; the leader knows
                return
            self._unhome(copy)
            self._spawn(self._diagnose_range(copy, error))
            return
        if code == _TOPIC_AUTHORIZATION_FAILED:
            error = NotAuthorized(
                f'"{self._cluster.alias}" refused Fetch for "{assignment.topic}"',
                where=assignment.name,
                remedy="grant Read on the topic",
            )
        if code not in _LEADER_ERRORS:
            copy.error = error
        self._home(copy, error)

    async def _diagnose_range(self, copy: PartitionCopy, error: HeliographError) -> None:
        """The source does not have the wanted offset: too old, or beyond the end?"""
        where = TopicPartition(copy.assignment.topic, copy.assignment.partition)
        try:
            start = (await list_offsets(self._cluster, [where], EARLIEST))[where]
            end = (await list_offsets(self._cluster, [where], LATEST))[where]
        except HeliographError as failure:
            copy.error = failure
            self._home(copy, failure)
            return
        if copy.state is not State.COPYING:
            return  # it is settled anew, and fetched again after that
        if start.error_code or end.error_code:
            self._home(copy, error)
            return
        position = copy.fetch_offset
        if position < start.offset:
            lost: HeliographError = DataLost(
                f"offsets {position} to {start.offset - 1} ({start.offset - position} records) expired on "
                f'"{self._cluster.alias}" uncopied',
                where=copy.assignment.name,
                remedy="raise retention.ms",
                position=position,
                log_start=start.offset,
                log_end=end.offset,
            )
        elif position > end.offset:
            lost = LogTruncated(
                f"the source ends at offset {end.offset}, the copy stands at {position}",
                where=copy.assignment.name,
                why="unclean leader election, or the topic was recreated",
                position=position,
                log_start=start.offset,
                log_end=end.offset,
            )
        else:
            self._home(copy, error)
            return
        self._on_trouble(copy, lost)


def _a_few_behind(wanted: list[PartitionCopy]) -> list[PartitionCopy]:
    """Some of the copies that have records waiting on the source, if those are many; else all."""
    behind = [copy for copy in wanted if copy.fetch_offset < copy.entry.source_end]
    return random.sample(behind, FEW_PARTITIONS) if len(behind) > FEW_PARTITIONS else wanted
