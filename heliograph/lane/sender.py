"""Sends to the target for all copies of a flow in a lane, and checks every answer.

Each target broker is reached by one or more *channels* (connections): a broker works through
the requests of one connection one after the other, so many partitions share several channels.
A request carries one batch for each partition of its channel that has one; up to five
requests are in flight on a channel. A partition's pieces use one channel only, in order.
An answer is accepted only if the batch is at the expected target offset, or after records of
others in a topic that others write to; any other answer puts the copy in doubt. If the flow
has a rate limit, all channels wait together, and the one that sent last sends last.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import NamedTuple
from uuid import UUID

from heliograph.clock import wall_ms
from heliograph.errors import DataError, HeliographError, InternalError, NotAuthorized, ProtocolError, SecondWriter
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k00_produce
from heliograph.kafka.connection import Connection
from heliograph.kafka.error_codes import Code
from heliograph.kafka.log import PRODUCE_GRACE_S, produce_version
from heliograph.lane.batches.paths import small_bytes_at
from heliograph.lane.errors import was_forestalled, was_refused
from heliograph.lane.partition_copy import CopyState, PartitionCopy, Piece, Spawn
from heliograph.lane.rate_limiter import RateLimiter
from heliograph.lane.refused_records import REFUSALS, refused_by_target
from heliograph.lane.settling_logs import TargetLog
from heliograph.lane.shared_target import SharedTarget
from heliograph.ledger.model import FlowTerms
from heliograph.ledger.tail import Unsettled, look_between

MAX_REQUESTS = 5
CHANNEL_COPIES = 64
MAX_CHANNELS = 4
"""A target broker gets one channel per `CHANNEL_COPIES` copies of the lane, up to `MAX_CHANNELS`. The first batches of
1,000 new partitions make the broker wait for its disk 1,000 times: on one connection all others wait behind each."""
REQUEST_BYTES = 8 * 1024 * 1024
REQUEST_TIMEOUT_MS = 20_000
TRANSFER_BYTES_PER_SECOND = 200e6
DISTANCE_SAMPLES = 5
READ_BETWEEN_BYTES = 64 * 1024
"""Maximum bytes per fetch of the records that others wrote between two batches of ours."""

_NOT_APPENDED = frozenset(
    {
        Code.NONE,
        Code.NOT_ENOUGH_REPLICAS,
        Code.TOPIC_AUTHORIZATION_FAILED,
        Code.OUT_OF_ORDER_SEQUENCE_NUMBER,
        Code.UNKNOWN_PRODUCER_ID,
        *REFUSALS,
    }
)
"""Error codes that say that the leader did not append the batch, and 0. After any other code, such as NOT_LEADER or
NOT_ENOUGH_REPLICAS_AFTER_APPEND, the batch may be in the leader's log."""

Answers = dict[tuple[str | UUID, int], k00_produce.ProducedPartition]


class _Channel:
    """Holds one connection to a target broker, and the copies that have something to send on it."""

    def __init__(self, node: int, index: int) -> None:
        self.node = node
        self.index = index
        self.connection: Connection | None = None
        self.connecting = False
        self.ready: dict[PartitionCopy, None] = {}
        self.in_flight = 0
        self._samples: deque[float] = deque(maxlen=DISTANCE_SAMPLES)

    def line_up(self, copy: PartitionCopy, shared: SharedTarget, size: int) -> None:
        """Keep a copy that just sent `size` bytes before those that share its target, while its turn lasts."""
        if shared.keeps_turn(copy, size) and copy in self.ready:
            for other in [waiting for waiting in self.ready if waiting.shared is shared and waiting is not copy]:
                self.ready[other] = self.ready.pop(other)

    def note_answer(self, seconds: float, size: int) -> None:
        """Measure the target's round trip, from a request that waited behind no other."""
        self._samples.append(max(0.0, seconds - size / TRANSFER_BYTES_PER_SECOND))

    @property
    def small_bytes(self) -> int:
        """Size below which batches are worth merging, by the quickest of the last answers: others had to wait."""
        return small_bytes_at(min(self._samples, default=0.0), MAX_REQUESTS)


class _Request(NamedTuple):
    """Holds a produce request in flight."""

    channel: _Channel
    connection: Connection
    pieces: list[tuple[PartitionCopy, Piece]]
    version: int
    sent_at: float | None
    """When it was sent, if no other request was in flight: its answer then measures the round trip."""


class Sender:
    """Sends for all copies of one flow in a lane."""

    def __init__(
        self,
        cluster: Cluster,
        terms: FlowTerms,
        *,
        on_progress: Callable[[PartitionCopy], None],
        on_doubt: Callable[[PartitionCopy], None],
        spawn: Spawn,
        copies: int,
        may_send: Callable[[], bool] = lambda: True,
        limiter: RateLimiter | None = None,
    ) -> None:
        self._cluster = cluster
        self._terms = terms
        self._on_progress = on_progress
        self._on_doubt = on_doubt
        self._may_send = may_send
        self._spawn = spawn
        self._width = min(1 + copies // CHANNEL_COPIES, MAX_CHANNELS)
        self._channels: dict[tuple[int, int], _Channel] = {}
        self._open = True
        self._limiter = limiter
        self._limit_timer: asyncio.TimerHandle | None = None
        """Set while all channels wait for the flow's rate limit."""
        self._reads = 0
        """Number of copies for which records of others are being read before their piece is accepted."""

    @property
    def in_flight(self) -> int:
        """Number of requests without an answer."""
        return sum(channel.in_flight for channel in self._channels.values()) + self._reads

    def stop(self) -> None:
        """Send nothing more; answers still come in."""
        self._open = False
        if self._limit_timer is not None:
            self._limit_timer.cancel()

    def abandon(self) -> None:
        """Close the connections that still owe an answer, so that nothing of this lane arrives later."""
        for channel in self._channels.values():
            if channel.in_flight and channel.connection is not None:
                channel.connection.close()

    def offer(self, copy: PartitionCopy) -> None:
        """Queue a copy that has something to send at its leader's channel."""
        node = copy.target_node
        if node is None:
            node = self._cluster.catalogue.leader_of(*copy.target)
            if node is None:
                self.fail(copy, self._cluster.no_leader(*copy.target, "Produce", where=copy.assignment.name))
                return
            copy.send_to(node)
        key = node, copy.target.partition % self._width
        channel = self._channels.get(key)
        if channel is None:
            channel = self._channels[key] = _Channel(*key)
        channel.ready[copy] = None

    def pump(self) -> None:
        """Send what can be sent now."""
        for channel in tuple(self._channels.values()):
            if channel.ready:
                self._pump(channel)

    def fail(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Put a copy in doubt; once nothing of it is in flight, it is settled again."""
        copy.doubt(error)
        self._report_if_drained(copy)

    def _report_if_drained(self, copy: PartitionCopy) -> None:
        if copy.is_drained and copy.state is CopyState.DRAINING:
            copy.forget_target_leader()
            self._on_doubt(copy)

    # -- sending -------------------------------------------------------------------------

    def _pump(self, channel: _Channel) -> None:
        if channel.connection is None or not channel.connection.is_open:
            if not channel.connecting:
                channel.connecting = True
                self._spawn(self._connect(channel))
            return
        while self._open and channel.ready and channel.in_flight < MAX_REQUESTS and self._may_send():
            room_bytes = REQUEST_BYTES if self._limiter is None else min(REQUEST_BYTES, self._limiter.allowance())
            if self._limiter is not None and (room_bytes <= 0 or self._limit_timer is not None):
                self._wait_for_limit(self._limiter)
                return
            pieces = self._collect(channel, room_bytes)
            if not pieces:
                return
            if self._limiter is not None:
                self._limiter.spend(sum(piece.data.nbytes for _, piece in pieces))
                self._channels[channel.node, channel.index] = self._channels.pop((channel.node, channel.index))
            self._send(channel, channel.connection, pieces)

    def _wait_for_limit(self, limiter: RateLimiter) -> None:
        """Make all channels wait until the rate limit allows more; then those that sent last come last."""
        if self._limit_timer is None:
            self._limit_timer = asyncio.get_running_loop().call_later(limiter.wait_s(), self._on_limit_timer)

    def _on_limit_timer(self) -> None:
        self._limit_timer = None
        self.pump()

    async def _connect(self, channel: _Channel) -> None:
        try:
            connection = await self._cluster.connection(channel.node, f"produce {self._terms.name} {channel.index}")
            produce_version(connection, with_id=False)  # raises if the broker supports no version of ours
            channel.connection = connection
        except HeliographError as error:
            ready, channel.ready = channel.ready, {}
            for copy in ready:
                self.fail(copy, error)
        finally:
            channel.connecting = False
        if channel.connection is not None and channel.connection.is_open:
            self._pump(channel)

    def _collect(self, channel: _Channel, room_bytes: int) -> list[tuple[PartitionCopy, Piece]]:
        """Take one piece of each ready copy, up to the size of a request; copies that were served go to the end."""
        pieces: list[tuple[PartitionCopy, Piece]] = []
        size = 0
        now_ms = wall_ms()
        small_bytes = channel.small_bytes if self._limiter is None else 0  # a rate limit needs no large batches
        served: set[SharedTarget] = set()
        for copy in list(channel.ready):
            if copy.shared in served:
                continue  # a request holds one batch per partition
            del channel.ready[copy]
            try:
                piece = copy.next_piece(now_ms=now_ms, small_bytes=small_bytes)
            except DataError as error:
                self.fail(copy, error)
                continue
            if piece is None:
                if not copy.has_work:
                    self._on_progress(copy)  # nothing that was fetched had to be copied
                continue  # its next answer or fetch queues it again
            pieces.append((copy, piece))
            if copy.has_work:
                channel.ready[copy] = None
            if copy.shared is not None:
                served.add(copy.shared)
                channel.line_up(copy, copy.shared, piece.data.nbytes)
            size += piece.data.nbytes
            if size >= room_bytes:
                break
        return pieces

    def _send(self, channel: _Channel, connection: Connection, pieces: list[tuple[PartitionCopy, Piece]]) -> None:
        with_id = all(copy.has_target_id for copy, _ in pieces)
        version = produce_version(connection, with_id=with_id)
        by_id = k00_produce.uses_topic_ids(version)
        topics: dict[str | UUID, list[k00_produce.ProducePartition]] = {}
        for copy, piece in pieces:
            topics.setdefault(_topic_key(copy, by_id), []).append(
                k00_produce.ProducePartition(copy.target.partition, piece.data)
            )
        correlation_id = connection.next_correlation_id()
        request = k00_produce.encode_produce_request(
            version,
            list(topics.items()),
            correlation_id=correlation_id,
            client_id=self._cluster.client_id,
            timeout_ms=REQUEST_TIMEOUT_MS,
        )
        alone = channel.in_flight == 0 and not connection.is_muted
        channel.in_flight += 1
        answer = connection.send(request, correlation_id, timeout_s=REQUEST_TIMEOUT_MS / 1000 + PRODUCE_GRACE_S)
        answer.add_done_callback(
            partial(
                self._on_answer, _Request(channel, connection, pieces, version, time.monotonic() if alone else None)
            )
        )

    # -- answers -------------------------------------------------------------------------

    def _on_answer(self, request: _Request, future: asyncio.Future[memoryview]) -> None:
        channel, connection, pieces, version, sent_at = request
        channel.in_flight -= 1
        if sent_at is not None:
            channel.note_answer(time.monotonic() - sent_at, sum(piece.data.nbytes for _, piece in pieces))
        failure: HeliographError | None = None
        answers: Answers = {}
        if future.cancelled():
            failure = InternalError("a produce request was cancelled", where=connection.where)
        elif (error := future.exception()) is not None:
            failure = error if isinstance(error, HeliographError) else InternalError(str(error), where=connection.where)
        else:
            try:
                response = k00_produce.decode_produce_response(future.result(), version)
                answers = {(t.topic, answer.partition): answer for t in response.topics for answer in t.partitions}
                connection.throttle(response.throttle_ms)
            except ProtocolError as nonsense:
                failure = nonsense.bare()
                connection.close(nonsense)
        by_id = k00_produce.uses_topic_ids(version)
        for copy, piece in pieces:
            answer = answers.get((_topic_key(copy, by_id), copy.target.partition))
            if failure is None and answer is None:
                failure = ProtocolError("an answer to Produce lacks a partition", where=connection.where)
            self._judge(copy, piece, answer, failure)
        if self._open:
            self._pump(channel)

    def _judge(
        self,
        copy: PartitionCopy,
        piece: Piece,
        answer: k00_produce.ProducedPartition | None,
        failure: HeliographError | None,
    ) -> None:
        """Accept an answer, or put the copy in doubt."""
        if failure is not None or answer is None:
            copy.piece_unanswered()
            must_read = False
        else:
            must_read = copy.marks is not None and copy.must_read(answer.base_offset, wall_ms())
            failure = self._objection(copy, piece, answer, must_read=must_read)
            if answer.error_code not in _NOT_APPENDED:
                copy.piece_maybe_appended()
        if failure is not None or answer is None or copy.state is not CopyState.COPYING:
            self._reject(copy, failure)
        elif must_read:
            self._reads += 1
            self._spawn(self._read_between(copy, answer.base_offset))
        else:
            self._accept(copy, answer.base_offset)

    def _accept(self, copy: PartitionCopy, base_offset: int) -> None:
        """Acknowledge the copy's oldest piece at this target offset."""
        copy.acknowledged(base_offset)
        if copy.has_work:
            self.offer(copy)
        self._on_progress(copy)

    def _reject(self, copy: PartitionCopy, failure: HeliographError | None) -> None:
        """Put the copy in doubt: it is not known where its oldest piece is."""
        copy.drop_oldest_piece()
        if copy.state is CopyState.COPYING and failure is not None:
            copy.reject(failure, forestalled=was_forestalled(failure), refused=was_refused(failure))
            self._doubt_others(copy, failure)
        self._report_if_drained(copy)

    def _doubt_others(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Put the copies with the same target partition in doubt too, if it is not known what its log holds."""
        if copy.shared is None or not (copy.unsure.misplaced or copy.unsure.appended):
            return
        for other in copy.shared.others(copy):
            if other.is_copying:
                if copy.unsure.misplaced:
                    other.piece_misplaced()
                self.fail(other, error)

    async def _read_between(self, copy: PartitionCopy, base_offset: int) -> None:
        """Accept a copy's oldest piece if no record of ours is between it and the copy's last piece."""
        failure: HeliographError | None = None
        log = TargetLog(self._cluster, copy.assignment, max_bytes=READ_BETWEEN_BYTES)
        sought = Unsettled.of(copy.assignment, copy.entry, self._terms)
        try:
            await look_between(sought, base_offset, target=log)
        except HeliographError as error:
            failure = error.bare()
        finally:
            self._reads -= 1
        if failure is None and copy.state is CopyState.COPYING:
            self._accept(copy, base_offset)
            if self._open:
                self.pump()
        else:
            copy.piece_misplaced()
            self._reject(copy, failure)

    def _objection(
        self, copy: PartitionCopy, piece: Piece, answer: k00_produce.ProducedPartition, *, must_read: bool
    ) -> HeliographError | None:
        """Return what is wrong with an answer; None if the batch is where it should be, or may be (`must_read`)."""
        where = copy.assignment.name
        code = answer.error_code
        if code == 0:
            expected, is_expected = _check_offset(copy, piece, answer.base_offset, must_read=must_read)
            if not is_expected:
                copy.piece_misplaced()
                return DataError(
                    f"a batch was expected at target offset {expected} and is at {answer.base_offset}",
                    where=where,
                )
            if copy.shared is not None:
                copy.shared.appended(piece.records)
            if answer.log_append_time_ms != -1 and not copy.assignment.target_stamps_time:
                return SecondWriter("the target has a batch of ours that this lane did not send before", where=where)
            return None
        if code in REFUSALS:
            indexes = [error.batch_index for error in answer.record_errors]
            return refused_by_target(piece, code, indexes, message=answer.error_message, where=where)
        if code == Code.TOPIC_AUTHORIZATION_FAILED:
            return NotAuthorized(
                f'"{self._cluster.alias}" refused Produce for "{copy.assignment.target_topic}"',
                where=where,
                remedy="grant Write on the topic",
            )
        return refused(code, "Produce", where=f'"{self._cluster.alias}" {where}', message=answer.error_message)


def _check_offset(copy: PartitionCopy, piece: Piece, base_offset: int, *, must_read: bool) -> tuple[int, bool]:
    """Return the target offset where a batch was expected, and whether it may be where it is."""
    if copy.shared is not None:
        return copy.shared.offset, copy.shared.expects(copy, base_offset)
    if copy.marks is not None:
        expected = copy.entry.target_offset
        return expected, base_offset >= expected and (not must_read or len(copy.in_flight) == 1)
    return piece.target_offset, base_offset == piece.target_offset


def _topic_key(copy: PartitionCopy, by_id: bool) -> str | UUID:
    return copy.target_id if by_id else copy.assignment.target_topic
