"""The target side of a flow in a lane: sends pieces, checks every answer.

Each target broker is reached by one or more *channels*: a broker works through one
connection's requests in turn, partition by partition, so many partitions share several.
A request carries one batch for each partition of its channel that has one; up to five
requests are in flight on a channel. A partition's pieces leave by one channel only, in
order. An answer is believed only if the batch stands where it was expected, or behind
records of others in a topic that is theirs too; anything else puts the copy in doubt.
Where the flow has a limit, all channels wait together for what may be sent, and take turns.
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
from heliograph.errors import (
    DataError,
    HeliographError,
    InternalError,
    NotAuthorized,
    ProtocolError,
    SecondWriter,
)
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
"""To each target broker, one for each so many copies of the lane. The first batches of 1,000 new partitions make the
broker wait for its disk 1,000 times: on one connection all others wait behind each."""
REQUEST_BYTES = 8 * 1024 * 1024
REQUEST_TIMEOUT_MS = 20_000
TRANSFER_BYTES_PER_SECOND = 200e6
DISTANCE_SAMPLES = 5
LOOK_BYTES = 64 * 1024
"""Read at a time of what others wrote between two batches of ours."""

_NOT_APPENDED = frozenset({0, 19, Code.TOPIC_AUTHORIZATION_FAILED, 45, 59, *REFUSALS})
"""Answers that leave nothing open: what they refuse, the leader has not appended. Others, as that it did not replicate
in time or leads no more, may be about a batch that stands in its log."""

Answers = dict[tuple[str | UUID, int], k00_produce.ProducedPartition]


class _Channel:
    """One connection to a target broker, and the copies that have something for it."""

    def __init__(self, node: int, index: int) -> None:
        self.node = node
        self.index = index
        self.connection: Connection | None = None
        self.connecting = False
        self.ready: dict[PartitionCopy, None] = {}
        self.in_flight = 0
        self._samples: deque[float] = deque(maxlen=DISTANCE_SAMPLES)

    def line_up(self, copy: PartitionCopy, shared: SharedTarget, size: int) -> None:
        """A copy that has sent so much stays before those that share its target, for as long as its turn is."""
        if shared.keeps_turn(copy, size) and copy in self.ready:
            for other in [waiting for waiting in self.ready if waiting.shared is shared and waiting is not copy]:
                self.ready[other] = self.ready.pop(other)

    def note_answer(self, seconds: float, size: int) -> None:
        """Learn how far the target is, from a request that nothing was ahead of."""
        self._samples.append(max(0.0, seconds - size / TRANSFER_BYTES_PER_SECOND))

    @property
    def small_bytes(self) -> int:
        """Below which size batches are worth merging; the quickest of the last answers counts, others had to wait."""
        return small_bytes_at(min(self._samples, default=0.0), MAX_REQUESTS)


class _Request(NamedTuple):
    """A produce request on its way."""

    channel: _Channel
    connection: Connection
    pieces: list[tuple[PartitionCopy, Piece]]
    version: int
    sent_at: float | None
    """Set if nothing was ahead of it: its answer tells how far the target is."""


class Sender:
    """Sends for all copies of one flow."""

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
        pace: RateLimiter | None = None,
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
        self._pace = pace
        self._rest: asyncio.TimerHandle | None = None
        """Set while the flow's limit keeps all channels waiting."""
        self._looks = 0
        """Copies for which what stands before their last piece is being read."""

    @property
    def in_flight(self) -> int:
        return sum(channel.in_flight for channel in self._channels.values()) + self._looks

    def stop(self) -> None:
        """Send nothing more; answers still come in."""
        self._open = False
        if self._rest is not None:
            self._rest.cancel()

    def abandon(self) -> None:
        """Close the connections that still owe an answer: nothing of this lane may arrive later on."""
        for channel in self._channels.values():
            if channel.in_flight and channel.connection is not None:
                channel.connection.close()

    def offer(self, copy: PartitionCopy) -> None:
        """The copy has something to send."""
        node = copy.target_node
        if node is None:
            node = self._cluster.catalogue.leader_of(*copy.target)
            if node is None:
                self.fail(copy, self._cluster.no_leader(*copy.target, "Produce", where=copy.assignment.name))
                return
            copy.target_node = node
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
        """Put a copy in doubt; when nothing of it is in flight any more, it is settled anew."""
        copy.doubt(error)
        if copy.is_drained and copy.state is CopyState.DRAINING:
            copy.target_node = None
            self._on_doubt(copy)

    # -- sending -------------------------------------------------------------------------

    def _pump(self, channel: _Channel) -> None:
        if channel.connection is None or not channel.connection.is_open:
            if not channel.connecting:
                channel.connecting = True
                self._spawn(self._connect(channel))
            return
        while self._open and channel.ready and channel.in_flight < MAX_REQUESTS and self._may_send():
            room_bytes = REQUEST_BYTES if self._pace is None else min(REQUEST_BYTES, self._pace.allowance())
            if self._pace is not None and (room_bytes <= 0 or self._rest is not None):
                self._wait_for(self._pace)
                return
            pieces = self._collect(channel, room_bytes)
            if not pieces:
                return
            if self._pace is not None:
                self._pace.spend(sum(piece.data.nbytes for _, piece in pieces))
                self._channels[channel.node, channel.index] = self._channels.pop((channel.node, channel.index))
            self._send(channel, channel.connection, pieces)

    def _wait_for(self, pace: RateLimiter) -> None:
        """The limit is used up: all channels wait, and those that sent last have the last turn then."""
        if self._rest is None:
            self._rest = asyncio.get_running_loop().call_later(pace.wait_s(), self._go_on)

    def _go_on(self) -> None:
        self._rest = None
        self.pump()

    async def _connect(self, channel: _Channel) -> None:
        try:
            connection = await self._cluster.connection(channel.node, f"produce {self._terms.name} {channel.index}")
            produce_version(connection, with_id=False)  # if there is none in common, all copies are told here
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
        """One piece of each ready copy, as much as a request holds; copies served go to the end of the line."""
        pieces: list[tuple[PartitionCopy, Piece]] = []
        size = 0
        now_ms = wall_ms()
        small_bytes = channel.small_bytes if self._pace is None else 0  # under a limit the way is not to be filled
        served: set[SharedTarget] = set()
        for copy in list(channel.ready):
            if copy.shared in served:
                continue  # a request takes one batch for a partition
            del channel.ready[copy]
            try:
                piece = copy.next_piece(now_ms=now_ms, small_bytes=small_bytes)
            except DataError as error:
                self.fail(copy, error)
                continue
            if piece is None:
                if not copy.has_work:
                    self._on_progress(copy)  # nothing of what was fetched is to be copied
                continue  # comes back with its next answer or fetch
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
        """Believe an answer, or put the copy in doubt."""
        if failure is not None or answer is None:
            copy.unsure.late = copy.unsure.appended = True
            must_look = False
        else:
            must_look = copy.marks is not None and copy.must_look(answer.base_offset, wall_ms())
            failure = self._objection(copy, piece, answer, must_look=must_look)
            copy.unsure.appended |= answer.error_code not in _NOT_APPENDED
        if failure is not None or answer is None or copy.state is not CopyState.COPYING:
            self._reject(copy, failure)
        elif must_look:
            self._looks += 1
            self._spawn(self._look(copy, answer.base_offset))
        else:
            self._accept(copy, answer.base_offset)

    def _accept(self, copy: PartitionCopy, base_offset: int) -> None:
        """The copy's oldest piece stands there."""
        copy.acknowledged(base_offset)
        if copy.has_work:
            self.offer(copy)
        self._on_progress(copy)

    def _reject(self, copy: PartitionCopy, failure: HeliographError | None) -> None:
        """It is not known where the copy's oldest piece stands."""
        copy.in_flight.popleft()
        if copy.state is CopyState.COPYING and failure is not None:
            copy.unsure.forestalled = was_forestalled(failure)
            copy.unsure.refused = copy.unsure.misplaced or was_refused(failure)
            copy.refusals += copy.unsure.refused
            copy.doubt(failure)
            self._doubt_others(copy, failure)
        if copy.is_drained and copy.state is CopyState.DRAINING:
            copy.target_node = None
            self._on_doubt(copy)

    def _doubt_others(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Where it is open what stands in the log that copies share, each of them has to look."""
        if copy.shared is None or not (copy.unsure.misplaced or copy.unsure.appended):
            return
        for other in copy.shared.others(copy):
            if other.is_copying:
                other.unsure.misplaced |= copy.unsure.misplaced
                self.fail(other, error)

    async def _look(self, copy: PartitionCopy, base_offset: int) -> None:
        """Read what stands between a copy's last piece and its oldest one in flight before that is believed."""
        failure: HeliographError | None = None
        log = TargetLog(self._cluster, copy.assignment, max_bytes=LOOK_BYTES)
        sought = Unsettled.of(copy.assignment, copy.entry, self._terms)
        try:
            await look_between(sought, base_offset, target=log)
        except HeliographError as error:
            failure = error.bare()
        finally:
            self._looks -= 1
        if failure is None and copy.state is CopyState.COPYING:
            self._accept(copy, base_offset)
            if self._open:
                self.pump()
        else:
            copy.unsure.misplaced = True
            self._reject(copy, failure)

    def _objection(
        self, copy: PartitionCopy, piece: Piece, answer: k00_produce.ProducedPartition, *, must_look: bool
    ) -> HeliographError | None:
        """What is wrong with an answer; None if the batch stands where it should, or may do so, as a look must tell."""
        where = copy.assignment.name
        code = answer.error_code
        if code == 0:
            expected, in_place = _place_of(copy, piece, answer.base_offset, must_look=must_look)
            if not in_place:
                copy.unsure.misplaced = True
                return DataError(
                    f"a batch was expected at target offset {expected} and is at {answer.base_offset}",
                    where=where,
                )
            if copy.shared is not None:
                copy.shared.offset += piece.records
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


def _place_of(copy: PartitionCopy, piece: Piece, base_offset: int, *, must_look: bool) -> tuple[int, bool]:
    """Where a batch was expected, and whether it may stand where it does."""
    if copy.shared is not None:
        return copy.shared.offset, copy.shared.expects(copy, base_offset)
    if copy.marks is not None:
        expected = copy.entry.target_offset
        return expected, base_offset >= expected and (not must_look or len(copy.in_flight) == 1)
    return piece.target_offset, base_offset == piece.target_offset


def _topic_key(copy: PartitionCopy, by_id: bool) -> str | UUID:
    return copy.target_id if by_id else copy.assignment.target_topic
