"""Copies the partitions of one flow that one lane has, and joins the objects that do it.

    Settler      finds out from the target how far each copy got, then hands it to the
    Fetcher      which fills the copy's queue from the source, for the
    Sender       which sends the queue to the target, or puts the copy in doubt.
    Flusher      writes positions to the target.
    LeaderWatch  reads from the ledger whether our driver still holds the lease.

This module decides what happens to a copy in doubt: it is settled again, or released to the
driver. A failing partition is reported in its row and stops no other.
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
from heliograph.lane.errors import cause_of_doubt, cause_of_release, copy_rule_changed
from heliograph.lane.fetch_memory import FetchMemory
from heliograph.lane.fetcher import Fetcher
from heliograph.lane.flusher import Flusher
from heliograph.lane.leader_watch import LeaderWatch
from heliograph.lane.partition_copy import PartitionCopy
from heliograph.lane.rate_limiter import RateLimiter
from heliograph.lane.sender import Sender
from heliograph.lane.settler import Settler
from heliograph.lane.settling_room import SettlingRoom
from heliograph.lane.shared_target import share_targets
from heliograph.ledger.model import Assignment, EpochTerms, FlowTerms, LedgerRow, Side

REFRESH_PAUSE_S = 0.1
"""Minimum pause between two metadata requests, however short `metadata.max.age.ms` is."""
DRAIN_S = 0.8
"""How long to wait for outstanding answers after the epoch's end."""


class LaneServices(Protocol):
    """Lists what a flow uses of its lane."""

    index: int
    terms: EpochTerms
    room: SettlingRoom
    memory: FetchMemory

    def time_left_ms(self) -> int: ...
    def end(self) -> None: ...
    def flow_is_over(self) -> None: ...
    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]: ...
    def cluster(self, terms: FlowTerms, side: Side, *, client_id: str) -> Cluster: ...
    def rate_limiter(self, flow: str, bytes_per_second: float | None) -> RateLimiter | None: ...


class FlowLane:
    """Copies the partitions of one flow in one lane for one epoch."""

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
        shared_targets = share_targets(self._copies)
        self._leader_watch = LeaderWatch(
            target,
            terms,
            owner=lane.terms.owner,
            epoch_id=lane.terms.epoch_id,
            time_left_ms=lane.time_left_ms,
            end=lane.end,
            on_lease_lost=self._on_lease_lost,
            on_may_send=self._pump,
        )
        may_write, may_send = self._leader_watch.may_write, self._leader_watch.may_send
        limiter = lane.rate_limiter(terms.name, terms.shares[lane.index] if terms.shares else None)
        self._flusher = Flusher(
            self._copies,
            terms,
            source=source,
            target=target,
            may_write=may_write,
            limiter=limiter,
            shared_targets=shared_targets,
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
            limiter=limiter,
        )
        self._sender = Sender(
            target,
            terms,
            on_progress=self._fetcher.wake,
            on_doubt=self._on_doubt,
            spawn=lane.spawn,
            copies=len(self._copies),
            may_send=lambda: lane.time_left_ms() > 0 and may_send(),
            limiter=limiter,
        )
        self._pump_due = False
        self.is_over = False
        """True once our driver lost this flow's lease; the lane goes on with its other flows."""

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        self._lane.spawn(self._settler.run())
        self._lane.spawn(self._flusher.run())
        self._lane.spawn(self._leader_watch.run())
        internal = {self._terms.ledger_topic, self._terms.offset_topic}
        topics = {copy.assignment.topic for copy in self._copies}
        targets = {copy.target.topic for copy in self._copies} | internal
        self._lane.spawn(self._refresh_metadata(self._source, topics, self._fetcher.return_to_leaders))
        self._lane.spawn(self._refresh_metadata(self._target, targets, self._follow_target))

    async def _refresh_metadata(self, cluster: Cluster, topics: set[str], on_refreshed: Callable[[], None]) -> None:
        """Refresh metadata when it is old: a deposed leader may go on answering as if it led."""
        while True:
            await asyncio.sleep(max(cluster.metadata_max_age_s - cluster.age_s(topics), REFRESH_PAUSE_S))
            with contextlib.suppress(HeliographError):  # the next attempt is soon
                if await cluster.refresh_if_old(topics):
                    on_refreshed()

    def _follow_target(self) -> None:
        """Send the next batches to the leaders that the target's metadata names now."""
        for copy in self._copies:
            if copy.is_copying and not copy.in_flight:
                copy.forget_target_leader()
                copy.note_target_epoch(self._target.catalogue.leader_epoch_of(*copy.target))

    def may_write(self) -> bool:
        """Return whether our driver's lease holds, by what the ledger has shown us."""
        return self._leader_watch.may_write()

    def stop(self) -> None:
        """Fetch and send nothing more."""
        self._fetcher.close()
        self._sender.stop()

    def _on_lease_lost(self) -> None:
        """Stop this flow before the epoch's end: our driver lost the lease, so nothing more may be written."""
        if not self.is_over:
            self.is_over = True
            self.stop()
            self._lane.spawn(self._drain())
            self._lane.flow_is_over()

    async def _drain(self) -> None:
        """Wait for outstanding answers, then close the connections that still owe one: nothing may arrive later."""
        give_up = time.monotonic() + DRAIN_S
        while self._sender.in_flight and time.monotonic() < give_up:
            await asyncio.sleep(0.002)
        self._sender.abandon()

    async def finish(self) -> None:
        """Wait for outstanding answers, then flush the positions."""
        await self._drain()
        with contextlib.suppress(TimeoutError, HeliographError):  # the rows carry the positions too
            await asyncio.wait_for(self._flusher.flush(), DRAIN_S)

    def rows(self, active_ms: int) -> list[LedgerRow]:
        """Return a report on every copy, for the driver."""
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
            self._on_trouble(copy, copy_rule_changed(copy, self._terms))

    def _on_fetched(self, copy: PartitionCopy) -> None:
        if copy.refused_record is not None and copy.is_at_refused_record:
            self._sender.fail(copy, copy.refused_record)
        elif copy.has_work:
            self._sender.offer(copy)
            if not self._pump_due:
                self._pump_due = True
                asyncio.get_running_loop().call_soon(self._pump)

    def _pump(self) -> None:
        """Send once after all partitions of a fetch answer, so that they share requests."""
        self._pump_due = False
        self._sender.pump()

    # -- what goes wrong -----------------------------------------------------------------

    def _on_trouble(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Put a copy in doubt that cannot go on."""
        self._sender.fail(copy, error)

    def _on_doubt(self, copy: PartitionCopy) -> None:
        """Release a copy in doubt or settle it again, by its error; nothing of it is in flight any more."""
        copy.wait()
        error = cause_of_doubt(copy)
        if isinstance(error, RecordRefused) and copy.isolate(error):
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
        """Tell the driver about something that does not stop the copy."""
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
