"""The driver: prepares flows, plans epochs, runs them on Spark, stops in time.

One event loop; the Spark job of an epoch blocks a thread of its own. A flow whose
cluster does not answer is tried again beside the others and joins the next plan
when it is ready. Every change enters by the next plan; to bring it forward the
driver tells the lanes, by a word in the ledger, to end their epoch now.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Coroutine, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import uuid4

from heliograph.config.settings import Settings
from heliograph.errors import ClusterChanged, ConfigError, HeliographError, ProtocolError
from heliograph.kafka.log import fetch_partition
from heliograph.mirror import formats
from heliograph.mirror.flow import FlowDriver
from heliograph.mirror.losses import Loss
from heliograph.mirror.model import EpochPlan, EpochTerms, LedgerRow
from heliograph.mirror.plan import PartitionKey, plan_epoch
from heliograph.mirror.progress import Progress

log = logging.getLogger("heliograph")

STOP_S = 1.4
"""How long lanes may take to end after the stop order; what they did not report is settled next time."""
MIN_EPOCH_S = 1.0
"""Troubles do not cut an epoch shorter than this."""
PROGRESS_S = 5.0
INCOMPLETE_S = 5.0
"""How soon partitions without a leader are looked at again."""
RIGHTS_S = 10.0
"""How often our rights on the clusters are looked at."""
RATE_WEIGHT = 0.5
"""How much the last epoch counts in a partition's measured rate."""


class Epochs(Protocol):
    """What runs a plan: Spark, or a stand-in in tests. Blocking."""

    @property
    def is_local(self) -> bool:
        """Whether lanes run on this machine, with its files and environment."""
        ...

    @property
    def slots(self) -> int: ...
    def start(self) -> None: ...
    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]: ...
    def cancel(self) -> None: ...


class Driver:
    """Runs all flows of a configuration until told to stop."""

    def __init__(
        self,
        settings: Settings,
        epochs: Epochs,
        *,
        report: Callable[[str], None],
        beside: Callable[[FlowDriver], Iterable[Coroutine[Any, Any, None]]] = lambda _: (),
    ) -> None:
        """`beside` gives what is to run beside the copying of a flow, once it is ready."""
        self._settings = settings
        self._beside = beside
        self._epochs = epochs
        self._report = report
        self._flows = [FlowDriver(flow, settings, is_local=epochs.is_local) for flow in settings.enabled_flows]
        self._ready: list[FlowDriver] = []
        self._refused = 0
        """Flows that cannot be mirrored as they are configured."""
        self._owner = uuid4().hex
        self._rates: dict[PartitionKey, float] = {}
        self._progress = {flow.name: Progress() for flow in self._flows}
        self._stopping = asyncio.Event()
        self._replan = asyncio.Event()
        self._epoch_id = 0
        self._moved = _Moved()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")

    def apply(self, settings: Settings) -> None:
        """Go on with changed settings of the same flows."""
        clusters_changed = settings.clusters != self._settings.clusters
        self._settings = settings
        by_name = {flow.name: flow for flow in settings.flows}
        for flow in self._flows:
            wanted = by_name[flow.name]
            if wanted.state is not flow.flow.state:
                self._report(f"{flow.name}: {wanted.state}")
            if wanted != flow.flow or clusters_changed:
                flow.apply(wanted, settings)
        self._replan.set()

    def stop(self) -> None:
        """Stop as soon as the lanes have written down how far they got. Callable from a signal handler."""
        self._stopping.set()
        self._replan.set()

    async def run(self) -> None:
        """Mirror until `stop`; raises what makes mirroring impossible."""
        for flow in self._flows:
            self._spawn(self._bring_up(flow))
        try:
            await self._run_when_ready()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            for flow in self._flows:
                flow.close()
        if self._failure is not None:
            raise self._failure
        self._report(str(self._moved))

    # -- coming up -----------------------------------------------------------------------

    async def _bring_up(self, flow: FlowDriver) -> None:
        """Prepare a flow, again and again until its clusters answer; then keep it company."""
        if not flow.flow.is_running:
            self._report(f"{flow.name}: {flow.flow.state}")
        while not flow.flow.is_running:
            await flow.changed.wait()
            flow.changed.clear()
        pause, said = 1.0, ""
        while True:
            try:
                await flow.prepare()
                break
            except (ConfigError, ProtocolError) as error:
                self._refused += 1
                if self._refused == len(self._flows) or not (self._ready or isinstance(error, ClusterChanged)):
                    raise
                log.error("%s: not mirrored: %s", flow.name, error)
                return
            except HeliographError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("%s: not started yet: %s; trying again", flow.name, error)
            await asyncio.sleep(pause * random.uniform(0.8, 1.2))
            pause = min(pause * 1.5, 10.0)
        self._ready.append(flow)
        topics = len({topic for topic, _ in flow.entries})
        self._report(f"{flow.name}: {_counted(topics, 'topic')}, {_counted(len(flow.entries), 'partition')}")
        self._replan.set()
        if not flow.is_followed:
            flow.is_followed = True
            self._spawn(self._discover_loop(flow))
            self._spawn(self._listen(flow))
            self._spawn(self._progress_loop(flow))
            self._spawn(self._rights_loop(flow))
            for loop in self._beside(flow):
                self._spawn(loop)

    async def _run_when_ready(self) -> None:
        """Start Spark while the flows come up: it takes the longest."""
        starting = asyncio.get_running_loop().run_in_executor(self._thread, self._epochs.start)
        await self._first_of(starting, self._stopping.wait())
        if not self._stopping.is_set():
            starting.result()
            await self._run_epochs()

    async def _wait_for_replan(self) -> bool:
        """Wait for something to do; False when it is time to stop."""
        await self._replan.wait()
        self._replan.clear()
        return not self._stopping.is_set()

    # -- epochs --------------------------------------------------------------------------

    async def _run_epochs(self) -> None:
        pause = 0.0
        while not self._stopping.is_set():
            self._replan.clear()
            for flow in [flow for flow in self._ready if flow.wants_reopening]:
                self._ready.remove(flow)
                self._spawn(self._bring_up(flow))
            flows = list(self._ready)
            plan = self._plan(flows)
            if not plan.lanes:
                if not await self._wait_for_replan():
                    return
                continue
            terms = EpochTerms(
                owner=self._owner,
                epoch_id=plan.epoch_id,
                duration_ms=self._settings.epoch_ms,
                flows=tuple(flow.terms() for flow in flows if flow.entries),
            )
            try:
                rows = await self._run_epoch(plan, terms, flows)
            except HeliographError as error:
                pause = min(max(0.5, pause * 2), 10.0)
                log.warning("%s; the next epoch follows in %.1f s", error, pause)
                await self._order_end(flows, plan.epoch_id)  # lanes that outlived their job
                await self._interruptible_sleep(pause)
                continue
            pause = 0.0
            if rows is None:
                return
            await self._take_rows(flows, rows)

    def _plan(self, flows: Sequence[FlowDriver]) -> EpochPlan:
        self._epoch_id += 1
        return plan_epoch(
            self._epoch_id,
            [assignment for flow in flows for assignment in flow.assignments()],
            rates=self._rates,
            tasks_max={flow.name: flow.flow.tasks_max for flow in flows},
            slots=max(1, self._epochs.slots),
        )

    async def _run_epoch(
        self, plan: EpochPlan, terms: EpochTerms, flows: Sequence[FlowDriver]
    ) -> list[LedgerRow] | None:
        """Run one epoch, cut short when a new plan is due; None if it did not end in time after a stop."""
        began = time.monotonic()
        job = asyncio.get_running_loop().run_in_executor(self._thread, self._epochs.run, plan, terms)
        await self._first_of(job, self._replan_due(began))
        if not job.done():
            give_up = STOP_S if self._stopping.is_set() else None
            orders = asyncio.ensure_future(self._order_end(flows, plan.epoch_id))
            done, _ = await asyncio.wait({job}, timeout=give_up)
            orders.cancel()
            if not done:
                log.warning("the lanes did not end in time; what they copied last is settled at the next start")
                self._epochs.cancel()
                return None
        return job.result()

    async def _replan_due(self, began: float) -> None:
        await self._replan.wait()
        left = MIN_EPOCH_S - (time.monotonic() - began)
        if left > 0 and not self._stopping.is_set():
            await self._interruptible_sleep(left)

    async def _order_end(self, flows: Sequence[FlowDriver], epoch_id: int) -> None:
        await asyncio.gather(
            *(flow.order_end(self._owner, epoch_id) for flow in flows if flow.entries), return_exceptions=True
        )

    async def _take_rows(self, flows: Sequence[FlowDriver], rows: Sequence[LedgerRow]) -> None:
        self._moved.add(rows)
        for row in rows:
            rate = row.bytes * 1000 / max(row.active_ms, 1)
            key = (row.flow, row.topic, row.partition)
            known = self._rates.get(key)
            self._rates[key] = rate if known is None else known + RATE_WEIGHT * (rate - known)
        for flow in flows:
            try:
                await flow.take_rows([row for row in rows if row.flow == flow.name])
            except HeliographError as error:
                log.warning("%s: %s", flow.name, error)

    # -- beside the epochs ---------------------------------------------------------------

    async def _discover_loop(self, flow: FlowDriver) -> None:
        while True:
            interval = flow.flow.refresh_topics_interval_s
            pause = interval if flow.is_complete else min(interval, INCOMPLETE_S)
            wanted = flow.flow.refresh_topics_enabled or not flow.is_complete
            try:
                await asyncio.wait_for(flow.changed.wait(), pause if wanted else None)
                flow.changed.clear()
            except TimeoutError:
                pass
            if not flow.flow.is_running:
                continue
            try:
                if await flow.discover():
                    self._replan.set()
            except HeliographError as error:
                log.warning("%s: topics not refreshed: %s", flow.name, error)

    async def _rights_loop(self, flow: FlowDriver) -> None:
        """Name rights that are missing; take up what was waiting for one when it is back."""
        said = ""
        while True:
            await asyncio.sleep(RIGHTS_S)
            try:
                if flow.flow.is_running and await flow.look_at_rights():
                    flow.changed.set()
                    if flow.wants_reopening:
                        self._replan.set()
            except HeliographError as error:
                if str(error) != said:
                    said = str(error)
                    log.warning("%s: rights not looked at: %s; trying again", flow.name, error)

    async def _listen(self, flow: FlowDriver) -> None:
        """Follow the ledger: progress of the lanes, and troubles that want a new plan."""
        silent: HeliographError | None = None
        while True:
            try:
                answer = await fetch_partition(
                    flow.target, flow.ledger_topic, 0, flow.ledger.end, channel="listen", max_wait_ms=5_000
                )
            except HeliographError as error:
                if silent is None:
                    log.warning("%s: the ledger cannot be read: %s; trying again", flow.name, error)
                silent = error
                await asyncio.sleep(1.0)
                continue
            if silent is not None:
                log.info('%s: "%s" answers again', flow.name, flow.flow.target)
                silent = None
            for key, value, following in formats.iter_ledger(answer.records, flow.ledger.end):
                flow.ledger.end = following
                record = flow.ledger.take(key, value)
                if isinstance(record, formats.EntryRecord):
                    flow.ledger_moved.set()
                    self._progress[flow.name].note(record.topic, record.partition, record.entry)
                elif isinstance(record, formats.Trouble):
                    flow.note_trouble(record)
                    if record.final:
                        self._replan.set()
                elif isinstance(record, Loss) and flow.note_loss(record):
                    self._replan.set()

    async def _progress_loop(self, flow: FlowDriver) -> None:
        progress = self._progress[flow.name]
        for (topic, partition), entry in flow.entries.items():
            progress.note(topic, partition, entry)
        progress.line(time.monotonic())
        while True:
            await asyncio.sleep(PROGRESS_S)
            line = progress.line(time.monotonic())
            if self._epoch_id:
                self._report(f"{flow.name}: {', '.join(filter(None, (line, flow.carried)))}")
            else:
                self._report(f"{flow.name}: lag {progress.lag:,} records, Spark is starting")

    async def _first_of(self, job: asyncio.Future[Any], other: Coroutine[Any, Any, Any]) -> None:
        """Wait until either is done; the other wish is dropped, the job goes on."""
        wish = asyncio.ensure_future(other)
        try:
            await asyncio.wait([job, wish], return_when=asyncio.FIRST_COMPLETED)
        finally:
            wish.cancel()

    async def _interruptible_sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self.stop()


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


@dataclass(slots=True)
class _Moved:
    """What the lanes reported over all epochs."""

    epochs: int = 0
    records: int = 0
    bytes: int = 0

    def add(self, rows: Sequence[LedgerRow]) -> None:
        self.epochs += 1
        self.records += sum(row.records for row in rows)
        self.bytes += sum(row.bytes for row in rows)

    def __str__(self) -> str:
        return f"stopped after {self.epochs:,} epochs, {self.records:,} records, {self.bytes / 1e6:,.1f} MB"
