"""Settles the copies of a flow in a lane: finds out from the target how far each one got.

A copy is settled at the start of an epoch and after every doubt, in two steps.
1. By the log's end. Each target leader is asked for the log ends of all its partitions at
   once. If an end is the entry's, and no batch was seen elsewhere, nothing was written since.
   At the first settling under a lease, and after a refused sequence, the header of our last
   batch must be there too, since others may have written as much as the target lost.
2. By the log's tail. Else the tail is read and proved (`settling.settle`), a few partitions
   at a time (`settling_room`).
If batches were sent and not acknowledged, reading must not come too early: the settler waits
until the leader has replicated what it appended and, after records so old that the broker may
not remember our producer id, until a batch without an answer cannot arrive any more.
A cluster that does not answer is retried after a pause that doubles; a copy that only the
driver can decide about is released.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Callable, Hashable, Sequence

from heliograph.clock import wall_ms
from heliograph.errors import CorruptBatch, DataError, HeliographError, NotAuthorized
from heliograph.kafka.admin.topics import DEPOSED, LATEST, OffsetAnswer, list_offsets
from heliograph.kafka.batch_headers import FirstBatch, first_batches
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.error_codes import Code
from heliograph.kafka.types import TopicPartition, may_be_same_topic
from heliograph.lane import errors
from heliograph.lane.batches.provenance import marks_of_count
from heliograph.lane.fetch_memory import FetchMemory
from heliograph.lane.partition_copy import CopyState, PartitionCopy, Spawn
from heliograph.lane.settling import Settled, settle
from heliograph.lane.settling_logs import SourceLog, TargetLog
from heliograph.lane.settling_room import RoomTicket, SettlingRoom
from heliograph.ledger.model import NOT_LATE, FlowTerms
from heliograph.ledger.tail import Tail, Unsettled, is_last_of_ours, read_tails

MIN_PAUSE_S = 0.05
MAX_PAUSE_S = 5.0
LATE_S = 5.0
"""How long a batch may still arrive after the connection that carried it is gone."""
SETTLE_READ_BYTES = 1024 * 1024
"""Maximum bytes per fetch from either log: each partition that settles holds one answer."""


class Settler:
    """Settles all copies of one flow in a lane."""

    def __init__(
        self,
        copies: Sequence[PartitionCopy],
        terms: FlowTerms,
        *,
        source: Cluster,
        target: Cluster,
        on_settled: Callable[[PartitionCopy], None],
        on_news: Callable[[PartitionCopy, HeliographError], None],
        release: Callable[[PartitionCopy, HeliographError], None],
        spawn: Spawn,
        room: SettlingRoom,
        memory: FetchMemory,
    ) -> None:
        """`on_news` gets what does not stop a copy; all flows of a lane share `room` and `memory`."""
        self._copies = copies
        self._terms = terms
        self._source = source
        self._target = target
        self._on_settled = on_settled
        self._on_news = on_news
        self._release = release
        self._spawn = spawn
        self._room = room
        self._memory = memory
        self._unsettled = asyncio.Event()
        self._unsettled.set()
        self._reading: set[PartitionCopy] = set()
        """Copies whose target's log is being read."""
        self._is_stale = True
        """True if the leaders that we know may have changed."""
        now = time.monotonic()
        self._seen_at = {copy: now - copy.assignment.late_ms / 1000 for copy in copies if copy.assignment.late_ms > 0}
        """When the wait for late batches of a copy began, maybe in an earlier lane."""
        self._awaited: dict[PartitionCopy, int] = {}
        """The end of the target's log, replicated or not, up to which a copy waits for replication."""

    async def run(self) -> None:
        """Settle copies as they enter SETTLING, until the lane ends."""
        known_source = self._source.catalogue.topics.keys() >= {copy.assignment.topic for copy in self._copies}
        self._is_stale = not known_source or not self._target.catalogue.topics
        while True:
            await self._unsettled.wait()
            self._unsettled.clear()
            copies = [copy for copy in self._copies if copy.state is CopyState.SETTLING and copy not in self._reading]
            if copies:
                await self._settle(copies)

    def back_off(self, copy: PartitionCopy) -> None:
        """Settle a waiting copy after a pause that doubles with its failures."""
        pause = min(MIN_PAUSE_S * 2 ** min(copy.failures - 1, 10), MAX_PAUSE_S) * random.uniform(0.7, 1.3)
        asyncio.get_running_loop().call_later(pause, self._settle_again, copy)

    def _settle_again(self, copy: PartitionCopy) -> None:
        if copy.state is CopyState.WAITING:
            copy.enter(CopyState.SETTLING)
            self._unsettled.set()

    def _all_wait(self, copies: Sequence[PartitionCopy], error: HeliographError) -> None:
        for copy in copies:
            copy.wait(error)
            self.back_off(copy)

    # -- by the log's end ----------------------------------------------------------------

    async def _settle(self, copies: Sequence[PartitionCopy]) -> None:
        stale, self._is_stale = self._is_stale, False
        try:
            await self._ensure_metadata(copies, stale=stale)
        except HeliographError as error:
            self._is_stale = True
            self._all_wait(copies, error)
            return
        by_leader: dict[int | None, list[PartitionCopy]] = {}
        for copy in copies:
            by_leader.setdefault(self._target.catalogue.leader_of(*copy.target), []).append(copy)
        self._reading.update(copies)
        for group in by_leader.values():
            self._spawn(self._settle_at_leader(group))

    async def _ensure_metadata(self, copies: Sequence[PartitionCopy], *, stale: bool) -> None:
        self._tell_epochs(copies)
        leaderless = any(self._target.catalogue.leader_of(*copy.target) is None for copy in copies)
        if stale or leaderless or any(copy.failures or self._is_recreated(copy) for copy in copies):
            targets = {copy.assignment.target_topic for copy in copies}
            await self._target.refresh(targets | {self._terms.ledger_topic, self._terms.offset_topic})
            await self._source.refresh({copy.assignment.topic for copy in copies})
            self._tell_epochs(copies)

    def _tell_epochs(self, copies: Sequence[PartitionCopy]) -> None:
        """Tell both clients the leader epochs of the entries: leaders of earlier epochs are not asked."""
        for copy in copies:
            self._target.saw_epoch(copy.target, copy.entry.target_leader_epoch, copy.entry.target_topic_id)
            self._source.saw_epoch(copy.source, copy.seen_leader_epoch, copy.entry.source_topic_id)

    async def _settle_at_leader(self, copies: Sequence[PartitionCopy]) -> None:
        """Settle the partitions of one target leader; those of others do not wait if it does not answer."""
        try:
            unsure = {copy.target for copy in copies if copy.unsure.appended or copy.unsure.refused}
            led = {copy.target: self._target.catalogue.leadership_of(*copy.target) for copy in copies}
            appended = await list_offsets(self._target, unsure, LATEST, unreplicated=True) if unsure else {}
            ends = await list_offsets(self._target, {copy.target for copy in copies}, LATEST)
            shorter = {copy.target for copy in copies if _is_short(copy, ends[copy.target])}
            if shorter:  # truncated, or recreated (the topic id tells), or the leader was deposed long ago
                now = await self._target.refresh({target.topic for target in shorter}, elsewhere=True)
                ends |= {target: DEPOSED for target in shorter if now.leadership_of(*target) != led[target]}
            kept = await self._still_kept([copy for copy in copies if _is_at_end(copy, ends[copy.target])])
        except HeliographError as error:
            self._is_stale = True
            self._all_wait(copies, error)
            return
        finally:
            self._reading.difference_update(copies)
        self._is_stale = self._is_stale or any(answer.error_code for answer in ends.values())
        unread: dict[TopicPartition, list[PartitionCopy]] = {}
        for copy in copies:
            end = ends[copy.target]
            if not self._settle_by_end(copy, end, appended.get(copy.target, end), is_kept=copy in kept):
                unread.setdefault(copy.target, []).append(copy)
        for target, together in unread.items():
            self._reading.update(together)
            self._spawn(self._settle_by_tail(together, ends[target].offset))

    async def _still_kept(self, copies: Sequence[PartitionCopy]) -> set[PartitionCopy]:
        """Return the copies whose last batch is still on the target; it is read where that is not known.

        If copies share a target partition, the last batch of all proves those before it. If we have no Read on the
        target's topic, copying is at-least-once.
        """
        last: dict[TopicPartition, PartitionCopy] = {}
        for copy in copies:
            if copy.unsure.must_see_last and copy.entry.n:
                other = last.setdefault(copy.target, copy)
                last[copy.target] = max(other, copy, key=lambda one: one.entry.our_end)
        found = await first_batches(self._target, {where: copy.entry.our_end - 1 for where, copy in last.items()})
        lost = {where for where, copy in last.items() if not self._is_kept(copy, found.get(where, FirstBatch()))}
        return {copy for copy in copies if copy.target not in lost}

    def _is_kept(self, copy: PartitionCopy, found: FirstBatch) -> bool:
        if found.error_code == Code.TOPIC_AUTHORIZATION_FAILED:
            return True
        unsettled = Unsettled.of(copy.assignment, copy.entry, self._terms)
        return found.header is not None and is_last_of_ours(unsettled, found.header)

    def _settle_by_end(self, copy: PartitionCopy, end: OffsetAnswer, appended: OffsetAnswer, *, is_kept: bool) -> bool:
        """Settle a copy by the log's end; return False if the tail must be read."""
        if self._is_recreated(copy):
            meta = self._target.catalogue.topics[copy.assignment.target_topic]
            self._release(copy, errors.target_recreated(copy, meta.topic_id))
        elif code := end.error_code or appended.error_code:
            self._all_wait([copy], self._no_end(copy, code))
        elif end.offset < (awaited := self._awaited_end(copy, appended.offset)):
            self._all_wait([copy], errors.unreplicated(copy, awaited - end.offset))
        elif copy.unsure.late and (pause_s := self._patience_s(copy)) > 0:
            self._awaited.pop(copy, None)  # a late batch extends the log: its end is read again
            copy.wait_for_late_batch(errors.may_be_late(copy))
            asyncio.get_running_loop().call_later(pause_s, self._settle_again, copy)
        elif is_kept and not copy.unsure.misplaced:
            self._go(copy)
        else:
            return False
        return True

    def _awaited_end(self, copy: PartitionCopy, appended: int) -> int:
        """Return the offset up to which the target must have replicated before its log can be judged.

        It is the log's end when first asked, since others may go on writing; less if the log was truncated since.
        """
        awaited = self._awaited[copy] = min(self._awaited.get(copy, appended), appended)
        return awaited

    def _patience_s(self, copy: PartitionCopy) -> float:
        """Return how long to wait for late batches: 0 if the broker remembers our producer id and refuses them."""
        if not copy.may_be_forgotten(wall_ms()):
            return 0.0
        now = time.monotonic()
        return self._seen_at.setdefault(copy, now) + LATE_S - now

    def late_ms(self, copy: PartitionCopy) -> int:
        """Return how long a copy has waited for late batches, for its next lane: the epoch may be too short."""
        if not copy.unsure.late and not copy.in_flight:
            return int(LATE_S * 1000) if copy.unsure.appended else NOT_LATE
        seen_at = self._seen_at.get(copy)
        return 0 if seen_at is None else int((time.monotonic() - seen_at) * 1000)

    def _is_recreated(self, copy: PartitionCopy) -> bool:
        """Return whether the target's topic has another id than the entry; this worker's metadata may be the older."""
        meta = self._target.catalogue.topics.get(copy.assignment.target_topic)
        return meta is not None and not may_be_same_topic(copy.target_id.hex, meta.topic_id.hex)

    def _no_end(self, copy: PartitionCopy, code: int) -> HeliographError:
        """Return why the target did not tell its log's end."""
        if self._target.catalogue.leader_of(*copy.target) is None:
            return self._target.no_leader(*copy.target, "ListOffsets", where=copy.assignment.name)
        return refused(code, "ListOffsets", where=f'"{self._terms.target}" {copy.assignment.name}')

    def _go(self, copy: PartitionCopy, settled: Settled | None = None) -> None:
        """Let a settled copy continue."""
        if settled is None:
            copy.settled(copy.entry)
        else:
            copy.settled(settled.entry, settled.closed, found=settled.found)
        copy.note_target_epoch(self._target.catalogue.leader_epoch_of(*copy.target))
        if copy.shared is not None:
            copy.shared.settled(copy)
        self._seen_at.pop(copy, None)
        self._awaited.pop(copy, None)
        self._on_settled(copy)

    # -- by the log's tail ---------------------------------------------------------------

    async def _settle_by_tail(self, copies: Sequence[PartitionCopy], target_end: int) -> None:
        """Settle copies into one target partition, once the room admits them."""
        async with self._room.admit(self._brokers_of(copies)) as ticket:
            await self._settle_admitted(copies, target_end, ticket)

    def _brokers_of(self, copies: Sequence[PartitionCopy]) -> Hashable:
        """Return the brokers that settling these copies asks: the target's leader and the source's."""
        target = self._terms.target, self._target.catalogue.leader_of(*copies[0].target)
        leader_of = self._source.catalogue.leader_of
        leaders = frozenset(leader_of(copy.assignment.topic, copy.assignment.partition) for copy in copies)
        return *target, self._terms.source, leaders

    async def _settle_admitted(self, copies: Sequence[PartitionCopy], target_end: int, ticket: RoomTicket) -> None:
        gate = self._memory.gate(SETTLE_READ_BYTES)
        target = TargetLog(self._target, copies[0].assignment, max_bytes=SETTLE_READ_BYTES, allowance=gate)
        unsettled = [Unsettled.of(copy.assignment, copy.entry, self._terms) for copy in copies]
        try:
            tails = await read_tails(
                unsettled,
                target_end,
                ours=self._terms.producer_ids,
                target=target,
                intact=_known_end(copies[0]),
            )
        except HeliographError as error:
            self._reading.difference_update(copies)
            for copy in copies:
                if isinstance(error, NotAuthorized) and target.is_forbidden:
                    self._release(copy, errors.unread(copy, target_end, error))
                else:
                    self._not_settled(copy, error)
            return
        ticket.hold(sum(tail.held_bytes for tail in tails if isinstance(tail, Tail)))
        together = zip(copies, unsettled, tails, strict=True)
        await asyncio.gather(*(self._settle_with(copy, one, tail, target_end) for copy, one, tail in together))

    async def _settle_with(
        self, copy: PartitionCopy, unsettled: Unsettled, tail: Tail | DataError, target_end: int
    ) -> None:
        try:
            if isinstance(tail, DataError):
                raise tail
            gate = self._memory.gate(SETTLE_READ_BYTES)
            gate.is_open = tail.is_oversized  # an oversized tail must not wait for room that it takes itself
            source = SourceLog(
                self._source,
                copy.assignment,
                read_committed=self._terms.reads_committed(copy.entry),
                max_bytes=SETTLE_READ_BYTES,
                allowance=gate,
            )
            settled = await settle(unsettled, tail, target_end, source, marks_of_count(copy.assignment, self._terms))
        except HeliographError as error:
            self._not_settled(copy, error)
        else:
            if settled.foreign and not self._terms.marks:  # with provenance headers others may write there
                self._on_news(copy, errors.foreign_writes(copy, settled))
            if settled.found and copy.unsure.forestalled:
                self._on_news(copy, errors.second_writer(copy, settled))
            self._go(copy, settled)
        finally:
            self._reading.discard(copy)

    def _not_settled(self, copy: PartitionCopy, error: HeliographError) -> None:
        """Release a copy whose records need the driver's decision; retry after any other error."""
        is_final = isinstance(error, DataError)
        if isinstance(error, CorruptBatch) and copy.failures < errors.CORRUPT_TRIES:
            is_final = False
        if is_final:
            self._release(copy, error)
        else:
            self._all_wait([copy], error)


def _is_short(copy: PartitionCopy, end: OffsetAnswer) -> bool:
    return not end.error_code and end.offset < copy.entry.target_offset


def _is_at_end(copy: PartitionCopy, end: OffsetAnswer) -> bool:
    return not end.error_code and end.offset == copy.entry.target_offset


def _known_end(copy: PartitionCopy) -> int:
    """Return the offset up to which other copies into the same target partition know its log; 0 if none copies now."""
    shared = copy.shared
    return shared.offset if shared is not None and any(other.is_copying for other in shared.others(copy)) else 0
