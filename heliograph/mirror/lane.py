"""A lane: one Spark task that copies its assignments until the epoch ends.

*Runs* in a Spark task; imports no pyspark. Each flow of the lane has a fetcher
and a sender around the same copies; the lane itself settles copies, writes
positions and ledger to the target once a flush interval, listens there for the
driver's word, and ends in time. A failing partition never ends a lane: it is
reported in its row. Connections outlive the epoch in the worker process, so that
the next one starts warm.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import random
import socket
import time
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any

from heliograph.errors import (
    CorruptBatch,
    DataError,
    DataLost,
    ForeignWrites,
    HeliographError,
    LogTruncated,
    NotAuthorized,
    PositionUnproven,
    RecordRefused,
    RulesChanged,
    SecondWriter,
    TargetTopicLost,
    TopicRecreated,
)
from heliograph.kafka.admin import LATEST, OffsetAnswer, list_offsets
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.connection import BufferPool
from heliograph.kafka.log import KeyValue, append_all, fetch_partition
from heliograph.kafka.security import Security
from heliograph.kafka.types import NO_TOPIC_ID, BrokerAddress, TopicPartition
from heliograph.mirror import formats
from heliograph.mirror.copy import PartitionCopy, State
from heliograph.mirror.fetcher import Fetcher
from heliograph.mirror.lease import LANE_SHARE, Lease, clock
from heliograph.mirror.model import COMMITTED, Assignment, EpochTerms, FlowTerms, LedgerRow
from heliograph.mirror.refusals import refused_by_source
from heliograph.mirror.runs import Page
from heliograph.mirror.sender import Sender
from heliograph.mirror.settle import Settled, settle
from heliograph.mirror.store import store_keys
from heliograph.mirror.tails import SourceLog, TargetLog

DRAIN_S = 0.8
"""How long answers may still come in after the epoch's end."""
LISTEN_WAIT_MS = 5_000
LISTEN_PAUSE_S = 1.0
"""Between tries to read a ledger that we may not read now."""
PARENT_CHECK_S = 0.5
MIN_PAUSE_S = 0.05
MAX_PAUSE_S = 5.0
THROTTLE_TELL_S = 5.0
"""How often a lane tells for how long it was throttled, while it is."""
FOR_THE_DRIVER = (DataLost, LogTruncated, RecordRefused, RulesChanged, TopicRecreated)
"""What settling cannot mend: where to go on is a question of policy."""
_OFFSET_OUT_OF_RANGE = 1
_UNKNOWN_PRODUCER_ID = 59
_OUT_OF_ORDER_SEQUENCE = 45
COLLECT_EVERY = 8
CORRUPT_TRIES = 3
"""A corrupt batch is fetched again so many times: it may be the network's fault, or the disk's."""


def copy_lane(lane: int, assignments: Sequence[Assignment], terms: EpochTerms) -> list[LedgerRow]:
    """Copy until the epoch ends; a row for every assignment.

    *Runs* in a task. *Called* once a lane and epoch. *Pickles* nothing but its arguments.
    Garbage in cycles is collected now and then between epochs: a collector that walks over
    thousands of queued batches again and again cost a fifth of the CPU where batches hold one record.
    """
    loop = _worker.loop()
    gc.disable()
    if terms.epoch_id % COLLECT_EVERY == 0:
        gc.collect()
    return loop.run_until_complete(Lane(lane, assignments, terms).run())


class _Worker:
    """What a worker process keeps from epoch to epoch: its event loop and its clusters."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._clusters: dict[tuple[object, ...], Cluster] = {}
        self._pool = BufferPool()

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._pid != os.getpid():
            # A forked child has its parent's sockets: start afresh.
            self._clusters, self._pool = {}, BufferPool()
            self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
            gc.freeze()  # what was imported stays; collections need not look at it
        return self._loop

    def cluster(self, alias: str, bootstrap: tuple[BrokerAddress, ...], client_id: str, security: Security) -> Cluster:
        key = (alias, bootstrap, client_id)
        cluster = self._clusters.get(key)
        if cluster is None:
            cluster = self._clusters[key] = Cluster(alias, bootstrap, client_id=client_id, pool=self._pool)
        cluster.security = security  # what is open stays; the next connection has the new secrets
        return cluster


_worker = _Worker()


class Lane:
    """One epoch of one lane, all its flows together."""

    def __init__(self, lane: int, assignments: Sequence[Assignment], terms: EpochTerms) -> None:
        self.index = lane
        self.terms = terms
        self._started = time.monotonic()
        self._deadline = self._started + terms.duration_ms / 1000
        self._parent = os.getppid()
        self._over = asyncio.Event()
        self._crash: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._assignments = assignments
        self._flows: list[FlowLane] = []

    async def run(self) -> list[LedgerRow]:
        flows = [
            FlowLane(self, flow, [item for item in self._assignments if item.flow == flow.name])
            for flow in self.terms.flows
            if any(item.flow == flow.name for item in self._assignments)
        ]
        self._flows = flows
        for flow in flows:
            flow.start()
        try:
            await self._until_over()
            for flow in flows:
                flow.stop()
            await asyncio.gather(*(flow.finish() for flow in flows))
        finally:
            await self._cancel_tasks()
        if self._crash is not None:
            raise self._crash
        active_ms = int((time.monotonic() - self._started) * 1000)
        return [row for flow in flows for row in flow.rows(active_ms)]

    def time_left_ms(self) -> int:
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    def end(self) -> None:
        self._over.set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = self._crash or error
            self.end()

    async def _until_over(self) -> None:
        """Wait for the deadline, the driver's word or silence, or the end of the Spark worker around us."""
        while not self._over.is_set():
            left = self._deadline - time.monotonic()
            if left <= 0 or os.getppid() != self._parent or not all(flow.may_write() for flow in self._flows):
                return
            try:
                await asyncio.wait_for(self._over.wait(), min(left, PARENT_CHECK_S))
            except TimeoutError:
                continue

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


class FlowLane:
    """The part of one flow that one lane copies."""

    def __init__(self, lane: Lane, terms: FlowTerms, assignments: Sequence[Assignment]) -> None:
        self._lane = lane
        self._terms = terms
        task = f"{terms.client_id}-{lane.index}"
        self._source = _worker.cluster(
            terms.source, terms.source_bootstrap, f"{task}|replication-consumer", terms.source_security
        )
        self._target = _worker.cluster(
            terms.target, terms.target_bootstrap, f"{task}|replication-producer", terms.target_security
        )
        self._copies = [
            PartitionCopy(
                assignment,
                producer_id=terms.producer_id,
                read_committed=terms.read_committed,
                codec=terms.compression,
            )
            for assignment in assignments
        ]
        self._fetcher = Fetcher(
            self._source,
            terms,
            on_fetched=self._on_fetched,
            on_trouble=self._on_trouble,
            time_left_ms=lane.time_left_ms,
            spawn=lane.spawn,
        )
        self._sender = Sender(
            self._target,
            terms,
            on_progress=self._fetcher.wake,
            on_doubt=self._on_doubt,
            spawn=lane.spawn,
            copies=len(self._copies),
            may_send=lambda: lane.time_left_ms() > 0 and self.may_write(),
        )
        self._heard_at = clock()
        """When we last heard that our leader leads."""
        self._is_deposed = False
        self._unsettled = asyncio.Event()
        self._unsettled.set()
        self._reading: set[PartitionCopy] = set()
        """Copies whose target's log is being looked at."""
        self._is_stale = True
        """What is known of leaders may be of the past."""
        self._words: list[KeyValue] = []
        """To the driver, with the next flush."""
        self._throttles_told = 0.0
        self._pump_due = False
        self._keys = {
            copy: store_keys(terms, copy.assignment.topic, copy.assignment.partition) for copy in self._copies
        }
        self._flushing = asyncio.Lock()
        self._unflushed: tuple[PartitionCopy, str] | None = None
        """What a failed flush left undone, told in the name of one of its partitions until one succeeds."""

    # -- life ----------------------------------------------------------------------------

    def start(self) -> None:
        self._lane.spawn(self._settle_loop())
        self._lane.spawn(self._flush_loop())
        self._lane.spawn(self._listen())

    def may_write(self) -> bool:
        """Whether our leader's lease holds, as far as we have heard; asked before anything is sent.

        A process that was stopped for a while finds out here, before its timers run.
        """
        lease_s = self._terms.lease_ms / 1000
        if not self._is_deposed and (not lease_s or clock() < self._heard_at + LANE_SHARE * lease_s):
            return True
        self._lane.end()
        return False

    def stop(self) -> None:
        """Fetch and send nothing more."""
        self._fetcher.close()
        self._sender.stop()

    async def finish(self) -> None:
        """Let answers come in, then write down how far it went."""
        give_up = time.monotonic() + DRAIN_S
        while self._sender.in_flight and time.monotonic() < give_up:
            await asyncio.sleep(0.002)
        self._sender.abandon()
        with contextlib.suppress(TimeoutError, HeliographError):  # the rows carry the same, settling finds the rest
            await asyncio.wait_for(self._flush(), DRAIN_S)

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
                unwritten=max(0, copy.entry.source_offset - copy.flushed),
                page=copy.page.pack(),
                error_code=copy.error.code if copy.error else "",
                error_text=str(copy.error) if copy.error else "",
                details=copy.error.details if copy.error else {},
            )
            for copy in self._copies
        ]

    # -- from source to target -----------------------------------------------------------

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

    def _on_trouble(self, copy: PartitionCopy, error: HeliographError) -> None:
        """The copy cannot go on."""
        self._sender.fail(copy, error)

    def _on_doubt(self, copy: PartitionCopy) -> None:
        """Nothing of the copy is in flight any more: decide by what put it in doubt."""
        error = copy.error
        copy.enter(State.WAITING)
        copy.failures += 1
        if isinstance(error, CorruptBatch) and copy.failures > CORRUPT_TRIES:
            log_end = copy.entry.source_end
            error = refused_by_source(error, position=copy.entry.source_offset, log_end=log_end)
        if isinstance(error, RecordRefused) and copy.isolate(error):
            copy.failures = 1
            self._back_off(copy)
        elif isinstance(error, FOR_THE_DRIVER):
            self._release(copy, error)
        elif error is not None and error.details.get("error_code") == _UNKNOWN_PRODUCER_ID and copy.failures > 1:
            self._release(copy, _forgotten(copy.assignment))
        else:
            self._back_off(copy)

    def _back_off(self, copy: PartitionCopy) -> None:
        pause = min(MIN_PAUSE_S * 2 ** min(copy.failures - 1, 10), MAX_PAUSE_S) * random.uniform(0.7, 1.3)
        asyncio.get_running_loop().call_later(pause, self._settle_again, copy)

    def _settle_again(self, copy: PartitionCopy) -> None:
        if copy.state is State.WAITING:
            copy.enter(State.SETTLING)
            self._unsettled.set()

    def _release(self, copy: PartitionCopy, error: HeliographError) -> None:
        copy.release(error)
        self._fetcher.drop(copy)
        self._tell(copy, error.code, str(error), final=True)
        self._lane.spawn(self._flush_quietly())

    # -- settling ------------------------------------------------------------------------

    async def _settle_loop(self) -> None:
        known_source = self._source.catalogue.topics.keys() >= {copy.assignment.topic for copy in self._copies}
        self._is_stale = not known_source or not self._target.catalogue.topics
        while True:
            await self._unsettled.wait()
            self._unsettled.clear()
            copies = [copy for copy in self._copies if copy.state is State.SETTLING and copy not in self._reading]
            if not copies:
                continue
            stale, self._is_stale = self._is_stale, False
            try:
                await self._ensure_metadata(copies, stale=stale)
            except HeliographError as error:
                self._is_stale = True
                self._all_wait(copies, error)
                continue
            by_leader: dict[int | None, list[PartitionCopy]] = {}
            for copy in copies:
                by_leader.setdefault(self._target.catalogue.leader_of(*_target_of(copy)), []).append(copy)
            self._reading.update(copies)
            for group in by_leader.values():
                self._lane.spawn(self._settle_at_leader(group))

    async def _settle_at_leader(self, copies: Sequence[PartitionCopy]) -> None:
        """One broker's partitions: those of others do not wait for a broker that does not answer."""
        try:
            ends = await list_offsets(self._target, [_target_of(copy) for copy in copies], LATEST)
            shorter = {_target_of(copy).topic for copy in copies if _is_short(copy, ends[_target_of(copy)])}
            if shorter:  # truncated, or another topic of that name: its id tells
                await self._target.refresh(shorter)
        except HeliographError as error:
            self._is_stale = True
            self._all_wait(copies, error)
            return
        finally:
            self._reading.difference_update(copies)
        self._is_stale = self._is_stale or any(answer.error_code for answer in ends.values())
        for copy in copies:
            self._settle_one(copy, ends[_target_of(copy)])

    async def _ensure_metadata(self, copies: Sequence[PartitionCopy], *, stale: bool) -> None:
        targets = {copy.assignment.target_topic for copy in copies}
        homeless = any(
            self._target.catalogue.leader_of(copy.assignment.target_topic, copy.assignment.partition) is None
            for copy in copies
        )
        if stale or homeless or any(copy.failures or self._is_made_anew(copy) for copy in copies):
            await self._target.refresh(targets | {self._terms.ledger_topic, self._terms.offset_topic})
            await self._source.refresh({copy.assignment.topic for copy in copies})

    def _is_made_anew(self, copy: PartitionCopy) -> bool:
        """Whether the target's topic has another id; what this worker knows may be older than the entry."""
        meta = self._target.catalogue.topics.get(copy.assignment.target_topic)
        if meta is None or NO_TOPIC_ID in (meta.topic_id, copy.target_id):
            return False
        return meta.topic_id != copy.target_id

    def _settle_one(self, copy: PartitionCopy, end: OffsetAnswer) -> None:
        if self._is_made_anew(copy):
            meta = self._target.catalogue.topics[copy.assignment.target_topic]
            self._release(
                copy,
                TargetTopicLost(
                    f'"{copy.assignment.target_topic}" was deleted and made anew on "{self._terms.target}": '
                    f"its offsets up to {copy.entry.target_offset - 1} are gone (id {copy.target_id.hex} before, "
                    f"{meta.topic_id.hex} now)",
                    where=copy.assignment.name,
                    target_topic_id=meta.topic_id.hex,
                ),
            )
        elif end.error_code:
            self._all_wait([copy], self._no_end(copy, end.error_code))
        elif end.offset == copy.entry.target_offset and not copy.is_misplaced:
            self._go(copy)
        else:
            self._reading.add(copy)
            self._lane.spawn(self._settle_by_tail(copy, end.offset))

    def _no_end(self, copy: PartitionCopy, code: int) -> HeliographError:
        """Why the target did not tell where its log ends."""
        topic, partition = _target_of(copy)
        if self._target.catalogue.leader_of(topic, partition) is None:
            return self._target.no_leader(topic, partition, "ListOffsets", where=copy.assignment.name)
        return refused(code, "ListOffsets", where=f'"{self._terms.target}" {copy.assignment.name}')

    async def _settle_by_tail(self, copy: PartitionCopy, target_end: int) -> None:
        target = TargetLog(self._target, copy.assignment)
        try:
            settled = await settle(
                copy.assignment,
                copy.entry,
                target_end,
                producer_id=self._terms.producer_id,
                target=target,
                source=SourceLog(self._source, copy.assignment, read_committed=self._reads_committed(copy)),
            )
        except DataError as error:
            if isinstance(error, CorruptBatch) and copy.failures < CORRUPT_TRIES:
                self._all_wait([copy], error)
            else:
                self._release(copy, error)
        except HeliographError as error:
            if isinstance(error, NotAuthorized) and target.is_forbidden:
                self._release(copy, _unread(copy, target_end, error))
            else:
                self._all_wait([copy], error)
        else:
            copy.records += settled.found
            if settled.foreign:
                self._tell_foreign(copy, settled)
            if settled.found and _was_forestalled(copy):
                self._tell_second(copy, settled.found)
            self._go(copy, settled)
        finally:
            self._reading.discard(copy)

    def _tell_foreign(self, copy: PartitionCopy, settled: Settled) -> None:
        start, end = copy.entry.target_offset, settled.entry.target_offset
        whose = ", ".join(map(str, settled.strangers)) if any(pid >= 0 for pid in settled.strangers) else "none"
        error = ForeignWrites(
            f"{settled.foreign} records of other producers (id: {whose}) stand in "
            f'"{copy.assignment.target_topic}" among offsets {start} to {end - 1}',
            where=copy.assignment.name,
            target_start=start,
            target_end=end,
            records=settled.foreign,
        )
        self._tell(copy, error.code, str(error), final=False, details=error.details)

    def _tell_second(self, copy: PartitionCopy, records: int) -> None:
        error = SecondWriter(
            f'{records} records of this flow stand in "{copy.assignment.target_topic}" that this lane did not send',
            where=copy.assignment.name,
            why="another process copies the same partition; copying goes on behind them, nothing repeats",
        )
        self._tell(copy, error.code, str(error), final=False)

    def _tell(
        self, copy: PartitionCopy, code: str, text: str, *, final: bool, details: Mapping[str, Any] | None = None
    ) -> None:
        """A word to the driver, with the next flush."""
        topic, partition = copy.assignment.topic, copy.assignment.partition
        trouble = formats.Trouble(
            topic=topic, partition=partition, code=code, text=text, final=final, details=dict(details or {})
        )
        self._words.append(formats.encode_trouble(self._terms.group_id, trouble))

    def _reads_committed(self, copy: PartitionCopy) -> bool:
        """Whether the records of the copy's count are the committed ones; it may be older than the flow's setting."""
        return (copy.entry.rule or self._terms.rule) == COMMITTED

    def _go(self, copy: PartitionCopy, settled: Settled | None = None) -> None:
        if settled is None:
            copy.settled(copy.entry)
        else:
            copy.settled(settled.entry, settled.closed)
        copy.target_node = None
        if copy.entry.rule in ("", self._terms.rule):
            self._fetcher.add(copy)
        else:
            self._on_trouble(copy, _by_another_rule(copy, self._terms))

    def _all_wait(self, copies: Sequence[PartitionCopy], error: HeliographError) -> None:
        for copy in copies:
            copy.error = error
            copy.failures += 1
            copy.enter(State.WAITING)
            self._back_off(copy)

    # -- positions, ledger and the driver's word -------------------------------------------

    async def _flush_loop(self) -> None:
        while True:
            await asyncio.sleep(self._terms.flush_ms / 1000)
            await self._flush_quietly()

    async def _flush_quietly(self) -> None:
        """A failed flush is tried again with the next; stored positions are only behind until then."""
        try:
            await self._flush()
        except HeliographError as error:
            behind = [copy for copy in self._copies if copy.entry.source_offset != copy.flushed]
            if behind and self._unflushed is None:
                self._unflushed = behind[0], _not_flushed(behind, self._terms, error)
        else:
            self._unflushed = None

    async def _flush(self) -> None:
        async with self._flushing:
            if not self.may_write():
                return  # a later leader's entries must not be overwritten by ours
            dirty = [copy for copy in self._copies if copy.dirty]
            self._note_troubles()
            self._note_throttling()
            words, self._words = self._words, []
            if not dirty and not words:
                return
            for copy in dirty:
                copy.dirty = False
            now_ms = int(time.time() * 1000)
            ledger = list(words)
            positions: dict[TopicPartition, list[KeyValue]] = {}
            pages: dict[PartitionCopy, list[Page]] = {}
            offsets = {copy: copy.entry.source_offset for copy in dirty}  # copying goes on meanwhile
            for copy in dirty:
                keys = self._keys[copy]
                pages[copy] = copy.pages()
                where = self._terms.group_id, copy.assignment.topic, copy.assignment.partition
                ledger += (formats.encode_page(*where, page.start, page) for page in pages[copy])
                ledger.append((keys.entry, formats.encode_entry(copy.entry.moved(time_ms=now_ms))))
                if copy.entry.source_offset > 0:
                    positions.setdefault(keys.position_partition, []).append(
                        (keys.position, formats.encode_position_value(copy.entry.source_offset))
                    )
            try:
                # The ledger first: a position ahead of its entry then means that another tool had the flow.
                await append_all(self._target, {TopicPartition(self._terms.ledger_topic, 0): ledger}, now_ms=now_ms)
                words = []
                for copy, written in pages.items():
                    copy.page.written(written)
                await append_all(self._target, positions, now_ms=now_ms)
                for copy, offset in offsets.items():
                    copy.flushed = offset
            except BaseException:
                for copy in dirty:
                    copy.dirty = True
                self._words = words + self._words
                raise

    def _note_troubles(self) -> None:
        """What is tried again is told when it begins, when it changes and when it is over."""
        for copy in self._copies:
            error = copy.error
            text = ""
            if error is not None and copy.state is not State.RELEASED:
                text = str(error).replace(copy.assignment.name, self._terms.name)  # the same for all partitions
            elif error is None and self._unflushed is not None and copy is self._unflushed[0]:
                text = self._unflushed[1]
            if text != copy.told and (error is None or copy.failures > 1 or copy.fetch_node is None):
                copy.told = text
                self._tell(copy, error.code if error else "", text, final=False)

    def _note_throttling(self) -> None:
        now = time.monotonic()
        if now < self._throttles_told + THROTTLE_TELL_S:
            return
        for cluster in (self._source, self._target):
            muted_ms = int(cluster.muted.take_s(now) * 1000)
            if muted_ms:
                self._throttles_told = now
                throttle = formats.Throttle(
                    cluster=cluster.alias,
                    client_id=cluster.client_id,
                    muted_ms=muted_ms,
                    time_ms=int(time.time() * 1000),
                )
                self._words.append(formats.encode_throttle(self._terms.group_id, throttle))

    async def _listen(self) -> None:
        """End when the driver says so; its word stands in the ledger."""
        offset = self._terms.ledger_end
        while True:
            try:
                answer = await fetch_partition(
                    self._target,
                    self._terms.ledger_topic,
                    0,
                    offset,
                    channel="listen",
                    max_wait_ms=min(LISTEN_WAIT_MS, max(1, self._lane.time_left_ms())),
                )
                records = list(formats.iter_ledger(answer.records, offset))
            except HeliographError as error:
                if error.details.get("error_code") == _OFFSET_OUT_OF_RANGE:
                    offset = 0  # the topic was made anew
                await asyncio.sleep(LISTEN_PAUSE_S if isinstance(error, NotAuthorized) else MIN_PAUSE_S)
                continue
            for key, value, following in records:
                offset = following
                if formats.is_word(key):
                    self._hear(formats.parse_ledger(self._terms.group_id, key, value))

    def _hear(self, word: formats.LedgerRecord | None) -> None:
        """An order of our driver's, or a sign that he leads, or that another does."""
        terms = self._lane.terms
        match word:
            case formats.Order() if word.owner == terms.owner and word.end_epoch >= terms.epoch_id:
                self._lane.end()
            case Lease() if word.term > self._terms.term > 0:
                self._is_deposed = True
                self._lane.end()
            case Lease() if word.term == self._terms.term and word.holder.owner == terms.owner:
                self._heard_at = clock()


def _was_forestalled(copy: PartitionCopy) -> bool:
    """The first answer that was not as expected says that another wrote before us; nothing of ours was lost."""
    error = copy.error
    return isinstance(error, SecondWriter) or (
        error is not None and error.details.get("error_code") == _OUT_OF_ORDER_SEQUENCE
    )


def _not_flushed(behind: Sequence[PartitionCopy], terms: FlowTerms, error: HeliographError) -> str:
    """Counts and partitions of a flush that failed."""
    names = ", ".join(f"{copy.assignment.topic}-{copy.assignment.partition}" for copy in behind[:3])
    more = f" and {len(behind) - 3} more" if len(behind) > 3 else ""
    records = sum(copy.entry.source_offset - copy.flushed for copy in behind)
    return (
        f"{terms.name}: positions of {len(behind)} partitions ({names}{more}) were not written down, {records} records "
        f"since the last time; copying goes on and no data is at risk: {error}"
    )


def _by_another_rule(copy: PartitionCopy, terms: FlowTerms) -> RulesChanged:
    return RulesChanged(
        f'the count goes by the rule "{copy.entry.rule}", the flow by "{terms.rule}": a new count begins at source '
        f"offset {copy.entry.source_offset}",
        where=copy.assignment.name,
    )


def _unread(copy: PartitionCopy, target_end: int, error: NotAuthorized) -> PositionUnproven:
    beyond = target_end - copy.entry.target_offset
    return PositionUnproven(
        f"{beyond} records stand on the target beyond the ledger's entry (source offset {copy.entry.source_offset}) "
        "and may not be read: as many may repeat",
        where=copy.assignment.name,
        why="without Read on the target's topics copying is at-least-once",
        remedy=error.remedy,
        records=beyond,
    )


def _forgotten(assignment: Assignment) -> PositionUnproven:
    return PositionUnproven(
        "the target forgot our producer id and takes no sequence but 0: a new count begins, 0 records repeat",
        where=assignment.name,
        why="brokers before 2.5 do so when our newest record is old",
        records=0,
    )


def _is_short(copy: PartitionCopy, end: OffsetAnswer) -> bool:
    return not end.error_code and end.offset < copy.entry.target_offset


def _target_of(copy: PartitionCopy) -> TopicPartition:
    return TopicPartition(copy.assignment.target_topic, copy.assignment.partition)
