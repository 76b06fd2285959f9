"""The part of one flow that one lane copies: its copies, and those who work on them.

    Settler   finds out how far each copy really got, then hands it to the
    Fetcher   which fills its queue from the source, for the
    Sender    which empties it to the target, or puts the copy in doubt.
    Flusher   writes down how far the copies got,
    LeaderWatch  hears whether copying may go on.

Here is what joins them, and what becomes of a copy in doubt: it is settled anew, or given
back to the driver. A failing partition is reported in its row and ends nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Protocol

from heliograph.errors import HeliographError, RecordRefused
from heliograph.kafka.cluster import Cluster
from heliograph.lane.batches.provenance import marks_of
from heliograph.lane.errors import by_another_rule, cause_of_doubt, cause_of_release
from heliograph.lane.fetch_memory import FetchMemory
from heliograph.lane.fetcher import Fetcher
from heliograph.lane.flusher import Flusher
from heliograph.lane.leader_watch import LeaderWatch
from heliograph.lane.partition_copy import CopyState, PartitionCopy
from heliograph.lane.rate_limiter import RateLimiter
from heliograph.lane.sender import Sender
from heliograph.lane.settler import Settler
from heliograph.lane.settling_room import SettlingRoom
from heliograph.lane.shared_target import share_ends
from heliograph.ledger.model import Assignment, EpochTerms, FlowTerms, LedgerRow, Side

RENEW_PAUSE_S = 0.1
"""Between two questions for metadata at least, however short its life is."""
DRAIN_S = 0.8
"""How long answers may still come in after the epoch's end."""


class LaneServices(Protocol):
    """What a flow has of the lane around it."""

    index: int
    terms: EpochTerms
    room: SettlingRoom
    memory: FetchMemory

    def time_left_ms(self) -> int: ...
    def end(self) -> None: ...
    def flow_is_over(self) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def cluster(self, terms: FlowTerms, side: Side, *, client_id: str) -> Cluster: ...
    def pace(self, flow: str, bytes_per_second: float | None) -> RateLimiter | None: ...


class FlowLane:
    """Of one flow and one epoch."""

    def __init__(self, lane: LaneServices, terms: FlowTerms, assignments: Sequence[Assignment]) -> None:
        self._lane = lane
        self._terms = terms
        task = f"{terms.client_id}-{lane.index}"
        source = lane.cluster(terms, Side.SOURCE, client_id=f"{task}|replication-consumer")
        target = lane.cluster(terms, Side.TARGET, client_id=f"{task}|replication-producer")
        source.metadata_max_age_s = terms.source_metadata_max_age_ms / 1000
        target.metadata_max_age_s = terms.target_metadata_max_age_ms / 1000
        self._source, self._target = source, target
        self._copies = [_copy_of(assignment, terms) for assignment in assignments]
        lane.memory.watch(self._copies)
        ends = share_ends(self._copies)
        self._listener = LeaderWatch(
            target,
            terms,
            owner=lane.terms.owner,
            epoch_id=lane.terms.epoch_id,
            time_left_ms=lane.time_left_ms,
            end=lane.end,
            lose=self._lose,
            begin=self._pump,
        )
        may_write, may_send = self._listener.may_write, self._listener.may_send
        pace = lane.pace(terms.name, terms.shares[lane.index] if terms.shares else None)
        self._flusher = Flusher(
            self._copies, terms, source=source, target=target, may_write=may_write, pace=pace, ends=ends
        )
        self._settler = Settler(
            self._copies,
            terms,
            source=source,
            target=target,
            on_settled=self._on_settled,
            on_news=self._on_news,
            release=self._release,
            spawn=lane.spawn,
            room=lane.room,
            memory=lane.memory,
        )
        self._fetcher = Fetcher(
            source,
            terms,
            on_fetched=self._on_fetched,
            on_trouble=self._on_trouble,
            on_change=self._flusher.note_change,
            time_left_ms=lane.time_left_ms,
            spawn=lane.spawn,
            memory=lane.memory,
            pace=pace,
        )
        self._sender = Sender(
            target,
            terms,
            on_progress=self._fetcher.wake,
            on_doubt=self._on_doubt,
            spawn=lane.spawn,
            copies=len(self._copies),
            may_send=lambda: lane.time_left_ms() > 0 and may_send(),
            pace=pace,
        )
        self._pump_due = False
        self.is_over = False
        """Its leader leads no more, as far as we have heard: the lane goes on with its other flows."""

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        self._lane.spawn(self._settler.run())
        self._lane.spawn(self._flusher.run())
        self._lane.spawn(self._listener.run())
        internal = {self._terms.ledger_topic, self._terms.offset_topic}
        topics = {copy.assignment.topic for copy in self._copies}
        targets = {copy.target.topic for copy in self._copies} | internal
        self._lane.spawn(self._renew(self._source, topics, self._fetcher.return_to_leaders))
        self._lane.spawn(self._renew(self._target, targets, self._follow_target))

    async def _renew(self, cluster: Cluster, topics: set[str], on_renewed: Callable[[], None]) -> None:
        """Ask for metadata again when it is old: a leader that was deposed may go on answering as if it led."""
        while True:
            await asyncio.sleep(max(cluster.metadata_max_age_s - cluster.age_s(topics), RENEW_PAUSE_S))
            with contextlib.suppress(HeliographError):  # the next time is soon
                if await cluster.renew(topics):
                    on_renewed()

    def _follow_target(self) -> None:
        """Send what comes next to the leaders that the target's metadata names now."""
        for copy in self._copies:
            if copy.is_copying and not copy.in_flight:
                copy.target_node = None
                copy.note_target_epoch(self._target.catalogue.leader_epoch_of(*copy.target))

    def may_write(self) -> bool:
        """Whether our leader's lease holds, as far as we have heard."""
        return self._listener.may_write()

    def stop(self) -> None:
        """Fetch and send nothing more."""
        self._fetcher.close()
        self._sender.stop()

    def _lose(self) -> None:
        """Write nothing more, before the lane's end."""
        if not self.is_over:
            self.is_over = True
            self.stop()
            self._lane.spawn(self._drain())
            self._lane.flow_is_over()

    async def _drain(self) -> None:
        """Let answers come in; what has none by then must not arrive later on."""
        give_up = time.monotonic() + DRAIN_S
        while self._sender.in_flight and time.monotonic() < give_up:
            await asyncio.sleep(0.002)
        self._sender.abandon()

    async def finish(self) -> None:
        """Let answers come in, then write down how far it went."""
        await self._drain()
        with contextlib.suppress(TimeoutError, HeliographError):  # the rows carry the same, settling finds the rest
            await asyncio.wait_for(self._flusher.flush(), DRAIN_S)

    def rows(self, active_ms: int) -> list[LedgerRow]:
        host = socket.gethostname()
        return [
            LedgerRow(
                flow=self._terms.name,
                topic=copy.assignment.topic,
                partition=copy.assignment.partition,
                lane=self._lane.index,
                entry=copy.entry,
                records=copy.records,
                bytes=copy.bytes,
                active_ms=active_ms,
                host=host,
                state=copy.state.value,
                late_ms=self._settler.late_ms(copy),
                unwritten=max(0, copy.entry.source_offset - copy.flushed),
                left_out=copy.marks.left_out if copy.marks else 0,
                unseen=copy.unsure.unseen,
                page=copy.page.pack(),
                error_code=copy.error.code if copy.error else "",
                error_text=str(copy.error) if copy.error else "",
                details=copy.error.details if copy.error else {},
            )
            for copy in self._copies
        ]

    # -- from source to target -----------------------------------------------------------

    def _on_settled(self, copy: PartitionCopy) -> None:
        if self._terms.rule_of(copy.entry) == self._terms.rule:
            self._fetcher.add(copy)
        else:
            self._on_trouble(copy, by_another_rule(copy, self._terms))

    def _on_fetched(self, copy: PartitionCopy) -> None:
        if copy.wall is not None and copy.is_at_wall:
            self._sender.fail(copy, copy.wall)
        elif copy.has_work:
            self._sender.offer(copy)
            if not self._pump_due:
                self._pump_due = True
                asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Once after all partitions of a fetch answer, so that they share requests."""
        self._pump_due = False
        self._sender.pump()

    # -- what goes wrong -----------------------------------------------------------------

    def _on_trouble(self, copy: PartitionCopy, error: HeliographError) -> None:
        """The copy cannot go on."""
        self._sender.fail(copy, error)

    def _on_doubt(self, copy: PartitionCopy) -> None:
        """Nothing of the copy is in flight any more: decide by what put it in doubt."""
        copy.enter(CopyState.WAITING)
        copy.failures += 1
        error = cause_of_doubt(copy)
        if isinstance(error, RecordRefused) and copy.isolate(error):
            copy.failures = 1
            self._settler.back_off(copy)
        elif (final := cause_of_release(copy, error)) is not None:
            self._release(copy, final)
        else:
            self._settler.back_off(copy)

    def _release(self, copy: PartitionCopy, error: HeliographError) -> None:
        copy.release(error)
        self._fetcher.drop(copy)
        self._flusher.tell(copy, error.code, str(error), final=True)
        self._lane.spawn(self._flusher.flush_quietly())

    def _on_news(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Something that the driver should know of and that keeps nothing from going on."""
        self._flusher.tell(copy, error.code, str(error), final=False, details=error.details)


def _copy_of(assignment: Assignment, terms: FlowTerms) -> PartitionCopy:
    return PartitionCopy(
        assignment,
        producer_id=terms.producer_id_of(assignment),
        read_committed=terms.read_committed,
        codec=terms.compression,
        marks=marks_of(assignment, terms) if terms.marks else None,
        memory_ms=terms.memory_ms,
    )
