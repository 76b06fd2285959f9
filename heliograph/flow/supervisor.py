"""One flow's life in this process: it comes up, is led or waited for, has company, and is lost to another.

`Driver` runs the epochs; what a flow needs beside them is here. A flow whose clusters do not answer is tried
again, one that another process leads is waited for, and one that is ours has loops that look for topics and
rights, follow its ledger and say how far it is.
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
from heliograph.ledger import formats, store
from heliograph.ledger.lease import Lease, Process
from heliograph.ledger.losses import Loss
from heliograph.ledger.model import FlowTerms, LedgerRow
from heliograph.ledger.source_snapshot import TopicChange
from heliograph.processor_time import Cost, stretched_s
from heliograph.side_loops import SideLoop

log = logging.getLogger("heliograph")

PROGRESS_S = 5.0
INCOMPLETE_S = 5.0
"""How soon partitions without a leader are looked at again."""
GATHER_S = 0.2
"""Changes come in swarms: so long after the first one, and not before the last look has paid off, all are looked at."""
LOOK_SHARE = 4
"""Looks that are brought forward follow each other after so many times what one takes."""
TOPICS_SHARE = 0.01
"""At most so much of one core goes to looks at topics that nothing brought forward."""
RESTORE_S = 1.0
"""How often it is looked whether the ledger's topic lost records that are known here."""
RIGHTS_S = 10.0
"""How often our rights on the clusters are looked at."""
NAMED = 5
"""So many of many partitions are named."""
TERMS_S = 1.0
"""How soon a flow that lanes cannot be told of is tried again."""
STEADY_S = 60.0
"""A flow that comes to lead again sooner than this is not steady: the epoch of the others is not cut short for it at
once, but after a pause that grows up to half of this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverServices:
    """What a flow's life has of the driver."""

    report: Callable[[str], None]
    replan: Callable[[], None]
    """The plan is to be made anew at once."""
    replan_soon: Callable[[], None]
    """There is something new for the plan; it may wait for more."""
    spawn: Callable[[Coroutine[Any, Any, None]], asyncio.Task[None]]
    """The driver ends with what this runs, and by what it raises."""
    goes_without: Callable[[], bool]
    """Whether there are other flows to mirror although this one cannot be."""
    beside: Callable[[FlowDriver], Iterable[Coroutine[Any, Any, None]]]
    """What is to run beside the copying of a flow."""
    is_copying: Callable[[], bool]
    """Spark is up."""
    lease_ms: Callable[[], int]


class FlowSupervisor:
    """Of one flow."""

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
        """It is ours, and its partitions may be planned."""
        self.is_waiting = flow.flow.is_running
        """Another process leads it, or that is not known yet."""
        self.resting = asyncio.Event()
        """Set while no epoch of ours runs that has the flow, and all that one reported is answered."""
        self.resting.set()
        self._around = around
        self.progress = Progress()
        self._leading = self._loop("leading", again="leading again", final=(ConfigError,))
        self._rows_taken = self._loop("what lanes report is not answered", again="what lanes report is answered again")
        self._taking: asyncio.Task[None] | None = None
        """What the last epoch reported is being answered."""
        self._told = self._loop("not in the plan", again="in the plan again")
        self._telling: asyncio.Task[None] | None = None
        self._led_at = float("-inf")
        self._lead_pause_s = 0.0

    def _loop(self, what: str, *, again: str = "", final: tuple[type[Exception], ...] = ()) -> SideLoop:
        return self.flow.side_loops.loop(what, again=again, final=final)

    async def run(self) -> None:
        """Come to lead a flow, keep it company while it is ours, stand by when it is not, and so on."""
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
                following.append(self._around.spawn(self._loop("following the ledger").keep(self._listen)))
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
        """Bring a flow that we lead into the plan, and keep it company; ends only if it cannot be mirrored."""
        flow = self.flow
        if not await self._until_done(flow.prepare):
            return
        topics = len({topic for topic, _ in flow.entries})
        self._around.report(f"{flow.name}: {counted(topics, 'topic')}, {counted(len(flow.entries), 'partition')}")
        own = {
            "looking for topics": self._discover_loop,
            "telling progress": self._progress_loop,
            "looking at rights": self._rights_loop,
            "restarting partitions": self._restart_loop,
            "writing again what the ledger lost": self._restore_loop,
        }
        loops = [self._loop(what).keep(run) for what, run in own.items()]
        self.is_ready = True
        self._around.replan()
        try:
            await asyncio.gather(*map(self._around.spawn, (*loops, *self._around.beside(flow))))
        finally:
            self.is_ready = False

    async def _until_done(self, attempt: Callable[[], Awaitable[None]]) -> bool:
        """Try again and again until the clusters answer; False if that is of no use."""
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
        """Wait until what failed for good may be tried again; False if it is not to be."""
        flow = self.flow
        chosen, restarts = flow.flow.auto_restart, self.restarts
        pause_s = restarts.after_failure_s(chosen)
        if pause_s is None:
            if chosen is not None:
                log.error("%s: given up after %d restarts: %s", flow.name, restarts.in_a_row, why)
            return False
        log.error("%s: failed: %s; restart %d follows in %.0f s", flow.name, why, restarts.in_a_row + 1, pause_s)
        await asyncio.sleep(pause_s)
        restarts.note()
        return True

    # -- epochs --------------------------------------------------------------------------

    @property
    def may_be_planned(self) -> bool:
        """It is ours, and waits for no answer to what its last epoch reported."""
        return self.is_ready and (self._taking is None or self._taking.done())

    def _on_lead(self) -> None:
        """Whether we lead has changed. If we do again, the plan is to have the flow; if not, its lanes hear of it."""
        if not self.is_ready or not self.lease_holder.leads():
            return
        now = time.monotonic()
        is_steady = now - self._led_at >= STEADY_S
        self._lead_pause_s = 0.0 if is_steady else min(max(1.0, 2 * self._lead_pause_s), STEADY_S / 2)
        self._led_at = now
        asyncio.get_running_loop().call_later(self._lead_pause_s, self._around.replan)

    def terms(self) -> FlowTerms | None:
        """What lanes are told; None if that cannot be said now, and the next plan follows when it can."""
        with self._told:
            return self.flow.assignments.terms()
        if self._telling is None or self._telling.done():
            self._telling = self._around.spawn(self._until_told())
        return None

    async def _until_told(self) -> None:
        """Look again and again, without a plan: the others copy meanwhile."""
        while self._told.error is not None:
            await asyncio.sleep(TERMS_S)
            with self._told:
                self.flow.assignments.terms()
        self._around.replan()

    def take_rows(self, rows: Sequence[LedgerRow]) -> asyncio.Task[None]:
        """What the lanes of an epoch report; until it is answered the flow is in no plan."""
        self._taking = self._around.spawn(self._take_rows(rows))
        return self._taking

    def rest(self) -> None:
        """The epoch is over."""
        if self._taking is None or self._taking.done():
            self.resting.set()
        else:
            self._taking.add_done_callback(lambda _: self.resting.set())

    async def _take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Of a flow that another leads now the ledger has it."""
        if not self.is_ready:
            return
        with self._rows_taken:
            await self.flow.epochs.take_rows(rows)
        if isinstance(self._rows_taken.error, InternalError):
            # Rows behind the one that failed were not taken; the ledger has what they say.
            self.flow.epochs.take_written()

    # -- beside the epochs ---------------------------------------------------------------

    async def _discover_loop(self) -> None:
        flow = self.flow
        looking = self._loop("topics not refreshed", again="topics are refreshed again")
        cost, took_s = Cost(), 0.0
        while True:
            interval = stretched_s(flow.flow.refresh_topics_interval_s, cost_s=cost.last_s, share=TOPICS_SHARE)
            is_whole = flow.topics.is_complete and not flow.topics.missed and looking.error is None
            pause = interval if is_whole else min(interval, INCOMPLETE_S)
            wanted = flow.flow.refresh_topics_enabled or not is_whole
            try:
                await asyncio.wait_for(flow.opening.changed.wait(), pause if wanted else None)
                await asyncio.sleep(max(GATHER_S, min(LOOK_SHARE * took_s, INCOMPLETE_S)))
                flow.opening.changed.clear()
            except TimeoutError:
                pass
            if not flow.flow.is_running or not flow.opening.leads():
                continue
            began = time.monotonic()
            with looking:
                with cost.measure():
                    is_changed = await flow.topics.discover()
                if is_changed:
                    self._around.replan_soon()
            took_s = time.monotonic() - began

    async def _restart_loop(self) -> None:
        """Copy failed partitions again, where `autoRestart` is on."""
        answers = self.flow.answers
        while True:
            await answers.has_failed.wait()
            answers.has_failed.clear()
            failed = ", ".join(f"{topic}-{partition}" for topic, partition in sorted(answers.failed)[:NAMED])
            if await self._may_restart(f"{counted(len(answers.failed), 'partition')} ({failed})"):
                answers.restart()
                self._around.replan()

    async def _restore_loop(self) -> None:
        """What the ledger's topic lost is written again, as soon as it is certain that we lead."""
        flow = self.flow
        restoring = self._loop("what the ledger lost is not written again yet")
        while True:
            await asyncio.sleep(RESTORE_S)
            if flow.opening.leads():
                with restoring:
                    await flow.opening.write_lost(flow.table.known)

    async def _rights_loop(self) -> None:
        """Name rights that are missing; take up what was waiting for one when it is back."""
        flow = self.flow
        looking = self._loop("rights not looked at", again="rights are looked at again")
        telling = self._loop("what fails is not written down", again="what fails is written down again")
        while True:
            await asyncio.sleep(RIGHTS_S)
            with looking:
                if flow.flow.is_running and flow.opening.leads() and await self._look_at_rights():
                    flow.opening.changed.set()
                    self.lease_holder.stir()
            with telling:
                if flow.opening.leads():
                    await flow.opening.write_condition(flow.side_loops.failing())

    async def _look_at_rights(self) -> bool:
        """Log every right that is missing, once, and that it is back; True if one came back."""
        return await self.flow.opening.rights.look(list(self.flow.topics.names.plan().wanted))

    async def _listen(self) -> None:
        """Follow the ledger: progress of the lanes, and troubles that want a new plan."""
        flow = self.flow
        reading = self._loop("the ledger cannot be read", again=f'"{flow.flow.target}" answers again')
        while True:
            ledger, generation = flow.ledger, flow.ledger.generation
            with reading:
                words = await store.follow(flow.target, flow.ledger_topic, ledger, max_wait_ms=5_000)
            if reading.error is not None:
                await asyncio.sleep(1.0)
                continue
            if flow.ledger is not ledger:
                continue  # it is kept elsewhere now
            store.tell_refused(flow.name, ledger.refused)
            if ledger.generation != generation:
                self.lease_holder.stir()
            for word in words:
                self._hear(word)

    def _hear(self, word: formats.LedgerRecord | None) -> None:
        """What a record of the ledger means for the driver; but for the lease it concerns the leader only."""
        flow = self.flow
        if isinstance(word, Lease):
            self.lease_holder.stir()
        elif flow.opening.leads():
            match word:
                case formats.EntryRecord():
                    flow.epochs.flushed.set()
                    self.progress.note(word.topic, word.partition, word.entry)
                case formats.Trouble():
                    flow.epochs.note_trouble(word)
                    if word.final:
                        self._around.replan()
                case TopicChange():
                    flow.epochs.note_change(word)
                case formats.Throttle():
                    flow.throttling.note(word.cluster, word.client_id, word.muted_ms / 1000)
                case Loss() if flow.epochs.note_loss(word):
                    self._around.replan()

    async def _progress_loop(self) -> None:
        flow = self.flow
        progress = self.progress
        for (topic, partition), entry in flow.entries.items():
            progress.note(topic, partition, entry)
        progress.line(time.monotonic())
        while True:
            await asyncio.sleep(PROGRESS_S)
            progress.keep_only(flow.entries)
            line, throttled = progress.line(time.monotonic()), flow.look_at_throttling()
            home = f"{flow.epochs.left_out:,} came home" if flow.epochs.left_out else ""
            if self._around.is_copying():
                self._around.report(
                    f"{flow.name}: {', '.join(filter(None, (line, home, flow.groups_told, throttled)))}"
                )
            else:
                self._around.report(f"{flow.name}: lag {progress.lag:,} records, Spark is starting")


async def _end(tasks: Sequence[asyncio.Task[None]]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
