"""Supervises one flow in this process: opens it, competes for its lease, runs its loops, stands by for another leader.

`Driver` runs the epochs; what a flow needs beside them is here. A flow whose clusters do not answer is retried, one
that another process leads is waited for, and one that we lead has loops that refresh its topics, check its rights,
follow its ledger and report its progress.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from heliograph.errors import ConfigError, InternalError
from heliograph.flow.flow import FlowDriver
from heliograph.flow.lease_holder import LeaseHolder
from heliograph.flow.progress import Progress
from heliograph.flow.restarts import Restarts
from heliograph.ledger import store
from heliograph.ledger.model import FlowTerms, LedgerRow
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.lease import Lease, Process
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.throttle import Throttle
from heliograph.ledger.records.topic_change import TopicChange
from heliograph.ledger.records.trouble import Trouble
from heliograph.loop import Loop
from heliograph.processor_time import Cost, stretched_s

log = logging.getLogger("heliograph")

PROGRESS_S = 5.0
INCOMPLETE_S = 5.0
"""How soon topics are refreshed again while partitions have no leader."""
GATHER_S = 0.2
"""Changes come in swarms: an early refresh waits so long after the first one."""
LOOK_SHARE = 4
"""Minimum gap between early refreshes, as a multiple of one refresh's duration."""
TOPICS_SHARE = 0.01
"""At most this share of one core goes to regular refreshes of topics."""
RESTORE_S = 1.0
"""How often we write again what the ledger's topic lost, if anything."""
RIGHTS_S = 10.0
"""How often our rights on the clusters are checked."""
NAMED = 5
"""Maximum number of partitions listed in a message."""
LEDGER_PAUSE_S = 1.0
"""Longest pause before a ledger that could not be read is read again: the lease depends on it."""
TERMS_S = 1.0
"""How often we retry to make the terms of a flow that cannot be planned."""
STEADY_S = 60.0
"""A flow that regains its lease sooner than this is not steady: the running epoch is not cut short for it at once, but
after a pause that grows up to half of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverServices:
    """What a supervisor needs of the driver."""

    report: Callable[[str], None]
    replan: Callable[[], None]
    """Makes a new plan at once."""
    replan_soon: Callable[[], None]
    """Makes a new plan soon; it may wait for more changes."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """Runs a task that ends with the driver, and that ends the driver if it raises."""
    goes_without: Callable[[], bool]
    """Tells whether there are other flows to mirror although this one cannot be."""
    beside: Callable[[FlowDriver], Iterable[Coroutine[Any, Any, None]]]
    """Gives what runs beside the copying of a flow."""
    is_copying: Callable[[], bool]
    """Tells whether Spark is up."""
    lease_ms: Callable[[], int]


class FlowSupervisor:
    """Supervises one flow: opens it, competes for its lease, runs its loops."""

    def __init__(self, flow: FlowDriver, me: Process, around: DriverServices) -> None:
        self.flow = flow
        self.restarts = Restarts()
        self.lease_holder = flow.opening.lease_holder = LeaseHolder(
            flow.opening,
            me,
            lease_ms=around.lease_ms,
            on_change=self._on_lead,
            restarts=lambda: self.restarts.total,
        )
        self.is_ready = False
        """We lead the flow, and its partitions may be planned."""
        self.is_waiting = flow.flow.is_running
        """Another process leads the flow, or nobody is known to lead it yet."""
        self.resting = asyncio.Event()
        """Set while no epoch of ours has the flow, and all that the last one reported is processed."""
        self.resting.set()
        self._around = around
        self.progress = Progress()
        self._leading = self._loop("leading", again="leading again", final=(ConfigError,))
        self._rows_taken = self._loop("lane reports not processed", again="lane reports are processed again")
        self._taking: asyncio.Task[None] | None = None
        """Processes what the last epoch reported."""
        self._told = self._loop("not in the plan", again="in the plan again")
        self._telling: asyncio.Task[None] | None = None
        self._refresh_cost, self._refresh_took_s = Cost(), 0.0
        self._led_at = float("-inf")
        self._lead_pause_s = 0.0

    def _loop(self, what: str, *, again: str = "", final: tuple[type[Exception], ...] = ()) -> Loop:
        return self.flow.loops.loop(what, again=again, final=final)

    async def run(self) -> None:
        """Acquire the flow's lease, mirror while we hold it, stand by while another process does, and so on."""
        flow = self.flow
        if not flow.flow.is_running:
            self._around.report(f"{flow.name}: {flow.flow.state}")
        while not flow.flow.is_running:
            await flow.opening.changed.wait()
            flow.opening.changed.clear()
        following: list[asyncio.Task[None]] = []
        goes_on = True
        try:
            while goes_on:
                with self._leading.lasting():
                    goes_on = await self._come_to_lead(following) and await self._lead()
                if self._leading.error is not None:
                    await asyncio.sleep(self._leading.pause_s)
        finally:
            await _end(following)

    async def _come_to_lead(self, following: list[asyncio.Task[None]]) -> bool:
        """Wait for the flow's clusters and its lease; False if it cannot be mirrored."""
        flow = self.flow

        async def bid() -> None:
            await flow.opening.open()
            if not following:
                following.append(self._around.spawn(self._following()))
            self.is_waiting = not await self.lease_holder.bid()

        self.is_waiting = True
        while await self._until_done(bid):
            if not self.is_waiting:
                return True
            await self.lease_holder.wait_until_free()
        return False

    async def _lead(self) -> bool:
        """Prepare the flow and have it mirrored as long as it is ours; False if it cannot be mirrored."""
        flow = self.flow
        holding, mirroring = (
            asyncio.ensure_future(self.lease_holder.hold(flow.opening.open)),
            asyncio.ensure_future(self._mirror()),
        )
        try:
            ended, _ = await asyncio.wait({holding, mirroring}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            await _end([holding, mirroring])
        self.is_waiting = True
        self._around.replan()
        await self.resting.wait()
        await self.lease_holder.release()
        for task in ended:
            task.result()
        return mirroring not in ended

    async def _mirror(self) -> None:
        """Bring a flow that we lead into the plan, and run its loops; ends only if it cannot be mirrored."""
        flow = self.flow
        if not await self._until_done(flow.prepare):
            return
        topics = len({topic for topic, _ in flow.entries})
        self._around.report(f"{flow.name}: {counted(topics, 'topic')}, {counted(len(flow.entries), 'partition')}")
        restarting, answers = self._loop("restarting partitions"), flow.answers
        rights = self._loop("rights not checked", again="rights are checked again")
        condition = self._loop("condition not written", again="condition is written again")
        lost = self._loop("lost ledger records not written again")
        self._note_entries()
        loops = [
            self._refreshing(),
            restarting.repeat_when(answers.has_failed.wait, self._restart_partitions),
            self._loop("progress").repeat(self._report_progress, interval_s=lambda: PROGRESS_S, first_s=PROGRESS_S),
            rights.repeat(self._check_rights, interval_s=lambda: RIGHTS_S, first_s=RIGHTS_S),
            condition.repeat(self._write_condition, interval_s=lambda: RIGHTS_S, first_s=RIGHTS_S),
            lost.repeat(self._write_lost, interval_s=lambda: RESTORE_S, first_s=RESTORE_S),
        ]
        self.is_ready = True
        self._around.replan()
        try:
            await asyncio.gather(*map(self._around.spawn, (*loops, *self._around.beside(flow))))
        finally:
            self.is_ready = False

    async def _until_done(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Retry until the clusters answer; False if the flow cannot be mirrored."""
        flow = self.flow
        starting = self._loop("not started yet", again="started", final=(ConfigError,))
        while True:
            try:
                with starting:
                    await attempt()
            except ConfigError as error:
                if await self._may_restart(str(error)):
                    continue
                if not self._around.goes_without():
                    raise
                log.error("%s: not mirrored: %s", flow.name, error)
                return False
            if starting.error is None:
                return True
            self.is_waiting = False  # nobody else is known to lead
            await asyncio.sleep(starting.pause_s)

    async def _may_restart(self, why: str) -> bool:
        """Wait until a flow or partition that failed for good may be restarted; False if it is not to be."""
        flow = self.flow
        chosen, restarts = flow.flow.auto_restart, self.restarts
        pause_s = restarts.after_failure_s(chosen)
        if pause_s is None:
            if chosen is not None:
                log.error("%s: gave up after %d restarts: %s", flow.name, restarts.in_a_row, why)
            return False
        log.error("%s: failed: %s; restart %d follows in %.0f s", flow.name, why, restarts.in_a_row + 1, pause_s)
        await asyncio.sleep(pause_s)
        restarts.note()
        return True

    # -- epochs --------------------------------------------------------------------------

    @property
    def may_be_planned(self) -> bool:
        """We lead the flow, and all that its last epoch reported is processed."""
        return self.is_ready and (self._taking is None or self._taking.done())

    def _on_lead(self) -> None:
        """React to a gained or lost lease: plan the flow if we lead it again; its lanes see a lost lease themselves."""
        if not self.is_ready or not self.lease_holder.leads():
            return
        now = time.monotonic()
        is_steady = now - self._led_at >= STEADY_S
        self._lead_pause_s = 0.0 if is_steady else min(max(1.0, 2 * self._lead_pause_s), STEADY_S / 2)
        self._led_at = now
        asyncio.get_running_loop().call_later(self._lead_pause_s, self._around.replan)

    def terms(self) -> FlowTerms | None:
        """Make what lanes are told; None if that fails now, and a new plan follows when it succeeds."""
        with self._told:
            return self.flow.assignments.terms()
        if self._telling is None or self._telling.done():
            self._telling = self._around.spawn(self._until_told())
        return None

    async def _until_told(self) -> None:
        """Retry without a new plan: the other flows copy meanwhile."""
        while self._told.error is not None:
            await asyncio.sleep(TERMS_S)
            with self._told:
                self.flow.assignments.terms()
        self._around.replan()

    def take_rows(self, rows: Sequence[LedgerRow]) -> asyncio.Task[None]:
        """Process what the lanes of an epoch report; until that is done the flow is in no plan."""
        self._taking = self._around.spawn(self._take_rows(rows))
        return self._taking

    def rest(self) -> None:
        """Note that the epoch is over."""
        if self._taking is None or self._taking.done():
            self.resting.set()
        else:
            self._taking.add_done_callback(lambda _: self.resting.set())

    async def _take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Process rows; if another process took the lease, ignore them: its ledger already has them."""
        if not self.is_ready:
            return
        with self._rows_taken:
            await self.flow.epochs.take_rows(rows)
        if isinstance(self._rows_taken.error, InternalError):
            # Rows behind the one that failed were not taken; the ledger has what they say.
            self.flow.epochs.take_written()

    # -- beside the epochs ---------------------------------------------------------------

    def _refreshing(self) -> Coroutine[Any, Any, None]:
        """Refresh the topics until cancelled."""
        loop = self._loop("topics not refreshed", again="topics are refreshed again")
        return loop.repeat_when(lambda: self._refresh_due(loop), self._refresh_topics)

    async def _refresh_due(self, refresh: Loop) -> None:
        """Wait until the topics are to be refreshed: regularly, or early because something changed."""
        flow, topics = self.flow, self.flow.topics
        interval = stretched_s(
            flow.flow.refresh_topics_interval_s, cost_s=self._refresh_cost.last_s, share=TOPICS_SHARE
        )
        is_whole = topics.is_complete and not topics.missed and refresh.error is None
        pause = interval if is_whole else min(interval, INCOMPLETE_S)
        is_regular = flow.flow.refresh_topics_enabled or not is_whole
        try:
            await asyncio.wait_for(flow.opening.changed.wait(), pause if is_regular else None)
            await asyncio.sleep(max(GATHER_S, min(LOOK_SHARE * self._refresh_took_s, INCOMPLETE_S)))
            flow.opening.changed.clear()
        except TimeoutError:
            return

    async def _refresh_topics(self) -> None:
        flow = self.flow
        if not flow.flow.is_running or not flow.opening.leads():
            return
        began = time.monotonic()
        try:
            with self._refresh_cost.measure():
                is_changed = await flow.topics.discover()
            if is_changed:
                self._around.replan_soon()
        finally:
            self._refresh_took_s = time.monotonic() - began

    async def _restart_partitions(self) -> None:
        """Copy failed partitions again, where `autoRestart` is on."""
        answers = self.flow.answers
        answers.has_failed.clear()
        failed = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(answers.failed)[:NAMED])
        if await self._may_restart(f"{counted(len(answers.failed), 'partition')} ({failed})"):
            answers.restart()
            self._around.replan()

    async def _write_lost(self) -> None:
        """Write again what the ledger's topic lost, if we lead for certain."""
        if self.flow.opening.leads():
            await self.flow.opening.write_lost(self.flow.table.known)

    async def _check_rights(self) -> None:
        """Log rights that are missing, once, and those that are back; resume what waited for one."""
        flow = self.flow
        if not flow.flow.is_running or not flow.opening.leads():
            return
        if await flow.opening.rights.look(list(flow.topics.names.plan().wanted)):
            flow.opening.changed.set()
            self.lease_holder.stir()

    async def _write_condition(self) -> None:
        if self.flow.opening.leads():
            await self.flow.opening.write_condition(self.flow.loops.failing())

    def _following(self) -> Coroutine[Any, Any, None]:
        """Follow the ledger until cancelled."""
        again = f'"{self.flow.flow.target}" answers again'
        loop = self.flow.loops.loop("the ledger cannot be read", again=again, max_pause_s=LEDGER_PAUSE_S)
        return loop.repeat(self._follow_ledger, interval_s=lambda: 0.0)

    async def _follow_ledger(self) -> None:
        """Read the next records of the ledger: what lanes copied, and troubles that need a new plan."""
        opening = self.flow.opening
        ledger, generation = opening.ledger, opening.ledger.generation
        records = await store.follow(opening.target, opening.ledger_topic, ledger, max_wait_ms=5_000)
        if opening.ledger is not ledger:
            return  # another topic holds it now
        store.tell_refused(opening.name, ledger.refused)
        if ledger.generation != generation:
            self.lease_holder.stir()
        for record in records:
            self._hear(record)

    def _hear(self, record: LedgerRecord | None) -> None:
        """Act on a record of the ledger; all but the lease concern the leader only."""
        flow = self.flow
        if isinstance(record, Lease):
            self.lease_holder.stir()
        elif flow.opening.leads():
            match record:
                case EntryRecord():
                    flow.epochs.flushed.set()
                    self.progress.note(record.topic, record.partition, record.entry)
                case Trouble():
                    flow.epochs.note_trouble(record)
                    if record.final:
                        self._around.replan()
                case TopicChange():
                    flow.epochs.note_change(record)
                case Throttle():
                    flow.throttling.note(record.cluster, record.client_id, record.muted_ms / 1000)
                case Loss() if flow.epochs.note_loss(record):
                    self._around.replan()

    def _note_entries(self) -> None:
        """Begin to measure progress."""
        for (topic, partition), entry in self.flow.entries.items():
            self.progress.note(topic, partition, entry)
        self.progress.line(time.monotonic())

    async def _report_progress(self) -> None:
        flow, progress = self.flow, self.progress
        progress.keep_only(flow.entries)
        line, throttled = progress.line(time.monotonic()), flow.look_at_throttling()
        if not self._around.is_copying():
            self._around.report(f"{flow.name}: lag {progress.lag:,} records, Spark is starting")
            return
        left_out = f"{flow.epochs.left_out:,} not copied back" if flow.epochs.left_out else ""
        self._around.report(f"{flow.name}: {', '.join(filter(None, (line, left_out, flow.groups_told, throttled)))}")


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
