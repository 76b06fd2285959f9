"""Settles the copies of a flow in a lane: finds out from the target how far each really got.

At the start of an epoch and after every doubt. The leaders are asked for their log ends,
all partitions of one together: where an end is the entry's, and no batch was seen elsewhere,
nothing happened since; at the first settle under a lease, and after a refused sequence, the
header of our last batch must be there too, since others may have written as much as the
target lost. Else the tail is read and proved (`settle`). Where something was sent
and not acknowledged, the look must not come too early: what the leader has appended and not
replicated is waited for, and behind records so old that the broker may not remember us, so is
what had no answer and may be on its way.
Tails are read a few partitions at a time, each in its turn (`settling_room`).
What does not answer is tried again after a pause that doubles; what only the driver can
decide is released.
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
"""How long a batch may be on its way after the connection that carried it is gone."""
SETTLE_READ_BYTES = 1024 * 1024
"""Read at a time of either log: as many partitions as may settle at a time hold one answer each."""


class Settler:
    """Settles all copies of one flow."""

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
        """`on_news` is told what does not keep a copy from going on; all flows of a lane share room and memory."""
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
        """Copies whose target's log is being looked at."""
        self._is_stale = True
        """What is known of leaders may be of the past."""
        now = time.monotonic()
        self._seen_at = {copy: now - copy.assignment.late_ms / 1000 for copy in copies if copy.assignment.late_ms > 0}
        """When the target was first seen, of copies for whose late batches we wait; maybe by an earlier lane."""
        self._awaited: dict[PartitionCopy, int] = {}
        """How far the target's log went, replicated or not, of copies for whose replication we wait."""

    async def run(self) -> None:
        """Settle whatever wants it, as long as the lane runs."""
        known_source = self._source.catalogue.topics.keys() >= {copy.assignment.topic for copy in self._copies}
        self._is_stale = not known_source or not self._target.catalogue.topics
        while True:
            await self._unsettled.wait()
            self._unsettled.clear()
            copies = [copy for copy in self._copies if copy.state is CopyState.SETTLING and copy not in self._reading]
            if copies:
                await self._settle(copies)

    def back_off(self, copy: PartitionCopy) -> None:
        """Settle a copy that waits, after a pause."""
        pause = min(MIN_PAUSE_S * 2 ** min(copy.failures - 1, 10), MAX_PAUSE_S) * random.uniform(0.7, 1.3)
        asyncio.get_running_loop().call_later(pause, self._settle_again, copy)

    def _settle_again(self, copy: PartitionCopy) -> None:
        if copy.state is CopyState.WAITING:
            copy.enter(CopyState.SETTLING)
            self._unsettled.set()

    def _all_wait(self, copies: Sequence[PartitionCopy], error: HeliographError) -> None:
        for copy in copies:
            copy.error = error
            copy.failures += 1
            copy.enter(CopyState.WAITING)
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
        homeless = any(self._target.catalogue.leader_of(*copy.target) is None for copy in copies)
        if stale or homeless or any(copy.failures or self._is_made_anew(copy) for copy in copies):
            targets = {copy.assignment.target_topic for copy in copies}
            await self._target.refresh(targets | {self._terms.ledger_topic, self._terms.offset_topic})
            await self._source.refresh({copy.assignment.topic for copy in copies})
            self._tell_epochs(copies)

    def _tell_epochs(self, copies: Sequence[PartitionCopy]) -> None:
        """Leaders that were deposed before the entries were written are not to be asked."""
        for copy in copies:
            self._target.saw_epoch(copy.target, copy.entry.target_leader_epoch, copy.entry.target_topic_id)
            self._source.saw_epoch(copy.source, copy.seen_leader_epoch, copy.entry.source_topic_id)

    async def _settle_at_leader(self, copies: Sequence[PartitionCopy]) -> None:
        """One broker's partitions: those of others do not wait for a broker that does not answer."""
        try:
            unsure = {copy.target for copy in copies if copy.unsure.appended or copy.unsure.refused}
            led = {copy.target: self._target.catalogue.leadership_of(*copy.target) for copy in copies}
            appended = await list_offsets(self._target, unsure, LATEST, unreplicated=True) if unsure else {}
            ends = await list_offsets(self._target, {copy.target for copy in copies}, LATEST)
            shorter = {copy.target for copy in copies if _is_short(copy, ends[copy.target])}
            if shorter:  # truncated, or another topic of that name: its id tells; or the leader was deposed long ago
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
        """Those of whose last batch the target is known, or seen now, to have it still.

        Where copies share a partition, the last batch of all speaks for those before it. A target that may not be
        read is copied to at-least-once.
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
        """False if the log's end does not tell enough: the tail is to be read."""
        if self._is_made_anew(copy):
            meta = self._target.catalogue.topics[copy.assignment.target_topic]
            self._release(copy, errors.target_made_anew(copy, meta.topic_id))
        elif code := end.error_code or appended.error_code:
            self._all_wait([copy], self._no_end(copy, code))
        elif end.offset < (awaited := self._awaited_end(copy, appended.offset)):
            self._all_wait([copy], errors.unreplicated(copy, awaited - end.offset))
        elif copy.unsure.late and (pause_s := self._patience_s(copy)) > 0:
            self._awaited.pop(copy, None)  # what comes late stands behind it
            copy.error = copy.error or errors.may_be_late(copy)
            copy.enter(CopyState.WAITING)
            asyncio.get_running_loop().call_later(pause_s, self._settle_again, copy)
        elif is_kept and not copy.unsure.misplaced:
            self._go(copy)
        else:
            return False
        return True

    def _awaited_end(self, copy: PartitionCopy, appended: int) -> int:
        """Up to where the target must have replicated before its log tells all of ours: as far as it went when first
        looked at, since others may go on writing; less if it was cut since."""
        awaited = self._awaited[copy] = min(self._awaited.get(copy, appended), appended)
        return awaited

    def _patience_s(self, copy: PartitionCopy) -> float:
        """How long to wait for batches on their way; one that comes late is refused where the broker remembers us."""
        if not copy.may_be_forgotten(wall_ms()):
            return 0.0
        now = time.monotonic()
        return self._seen_at.setdefault(copy, now) + LATE_S - now

    def late_ms(self, copy: PartitionCopy) -> int:
        """For the lane that has the copy next: an epoch may be shorter than the wait."""
        if not copy.unsure.late and not copy.in_flight:
            return int(LATE_S * 1000) if copy.unsure.appended else NOT_LATE
        seen_at = self._seen_at.get(copy)
        return 0 if seen_at is None else int((time.monotonic() - seen_at) * 1000)

    def _is_made_anew(self, copy: PartitionCopy) -> bool:
        """Whether the target's topic has another id; what this worker knows may be older than the entry."""
        meta = self._target.catalogue.topics.get(copy.assignment.target_topic)
        return meta is not None and not may_be_same_topic(copy.target_id.hex, meta.topic_id.hex)

    def _no_end(self, copy: PartitionCopy, code: int) -> HeliographError:
        """Why the target did not tell where its log ends."""
        if self._target.catalogue.leader_of(*copy.target) is None:
            return self._target.no_leader(*copy.target, "ListOffsets", where=copy.assignment.name)
        return refused(code, "ListOffsets", where=f'"{self._terms.target}" {copy.assignment.name}')

    def _go(self, copy: PartitionCopy, settled: Settled | None = None) -> None:
        if settled is None:
            copy.settled(copy.entry)
        else:
            copy.settled(settled.entry, settled.closed)
        copy.note_target_epoch(self._target.catalogue.leader_epoch_of(*copy.target))
        if copy.shared is not None:
            copy.shared.settled(copy)
        copy.target_node = None
        self._seen_at.pop(copy, None)
        self._awaited.pop(copy, None)
        self._on_settled(copy)

    # -- by the log's tail ---------------------------------------------------------------

    async def _settle_by_tail(self, copies: Sequence[PartitionCopy], target_end: int) -> None:
        """Of copies into one partition of the target, when it is their turn."""
        async with self._room.place(self._brokers_of(copies)) as place:
            await self._settle_in_place(copies, target_end, place)

    def _brokers_of(self, copies: Sequence[PartitionCopy]) -> Hashable:
        """Who is asked about the copies: the target's leader and the source's."""
        target = self._terms.target, self._target.catalogue.leader_of(*copies[0].target)
        leader_of = self._source.catalogue.leader_of
        leaders = frozenset(leader_of(copy.assignment.topic, copy.assignment.partition) for copy in copies)
        return *target, self._terms.source, leaders

    async def _settle_in_place(self, copies: Sequence[PartitionCopy], target_end: int, place: RoomTicket) -> None:
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
        place.hold(sum(tail.held_bytes for tail in tails if isinstance(tail, Tail)))
        together = zip(copies, unsettled, tails, strict=True)
        await asyncio.gather(*(self._settle_with(copy, one, tail, target_end) for copy, one, tail in together))

    async def _settle_with(
        self, copy: PartitionCopy, unsettled: Unsettled, tail: Tail | DataError, target_end: int
    ) -> None:
        try:
            if isinstance(tail, DataError):
                raise tail
            gate = self._memory.gate(SETTLE_READ_BYTES)
            gate.is_open = tail.is_oversized  # then it is this one that the others wait for
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
            copy.records += settled.found
            if settled.foreign and not self._terms.marks:  # else they belong there
                self._on_news(copy, errors.foreign_writes(copy, settled))
            if settled.found and copy.unsure.forestalled:
                self._on_news(copy, errors.second_writer(copy, settled))
            self._go(copy, settled)
        finally:
            self._reading.discard(copy)

    def _not_settled(self, copy: PartitionCopy, error: HeliographError) -> None:
        """The driver decides what happened to records; what a cluster did not answer is asked again."""
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
    """Up to where the target's log is known from others that copy to it meanwhile."""
    shared = copy.shared
    return shared.offset if shared is not None and any(other.is_copying for other in shared.others(copy)) else 0
