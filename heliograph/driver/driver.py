"""The driver: plans epochs, runs them on Spark, stops in time.

One event loop, which owns all that is here and in the flows: leases are renewed in it, so nothing that may
block runs in it. Whatever asks Spark does so in one of its threads, and gives back a value: one thread runs epochs,
two watch executors, so that a question is answered while new executors are made ready. What those threads share is
in `Epochs`.

A flow joins the next plan when its life (`FlowSupervisor`) has made it ready. Every change enters by the next plan; to
bring it forward the driver tells the lanes, by a word in the ledger, to end their epoch now.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, Protocol

from heliograph.clock import wall_ms
from heliograph.config.settings import Settings
from heliograph.driver.plan import PartitionKey, Workforce, key_of, plan_epoch, together, useful_lanes
from heliograph.driver.rate_shares import plan_shares
from heliograph.errors import HeliographError, SparkFailed
from heliograph.flow.flow import FlowDriver
from heliograph.flow.supervisor import DriverServices, FlowSupervisor, counted
from heliograph.lane.partition_copy import may_be_forgotten
from heliograph.ledger.lease import LANE_SHARE
from heliograph.ledger.model import Assignment, EpochPlan, EpochTerms, FlowTerms, LedgerRow
from heliograph.ledger.process_identity import this_process
from heliograph.loop import Loop
from heliograph.outage_log import Outage

log = logging.getLogger("heliograph")
sizes_log = logging.getLogger("heliograph.sizes")
"""At level DEBUG: how much is kept in memory, now and then."""

STOP_S = 1.4
"""How long lanes may take to end after the stop order; what they did not report is settled next time."""
MIN_EPOCH_S = 1.0
"""Troubles do not cut an epoch shorter than this."""
NEWS_S = 3.0
"""Nor does what is new, so that topics that come one after the other do not cost a change of epochs each, which is
0.3 s for all partitions."""
EARLY_S = 0.5
"""Lanes that end so long before their time, and were not told to, saw no lease renewal."""
LANE_END_S = 2.0
"""How long after its deadline a lane may still be sending at the latest: answers, the last flush, a slow clock."""
TAKE_S = 0.5
"""How long the next plan waits for flows to answer what their lanes reported; one that needs longer, as when a cluster
does not answer, is in a later one."""
ORDER_S = 1.0
"""How long the next plan waits for the order to lanes of a failed job to be written."""
CANCEL_S = 0.2
"""How long a stop waits for Spark to take the order to cancel a job."""
WORKFORCE_S = 1.0
"""How often Spark's executors are looked at."""
SIZES_S = 10.0
"""How often sizes are told to who wants to know them."""
RATE_WEIGHT = 0.5
"""How much the last epoch counts in a partition's measured rate."""


class Epochs(Protocol):
    """What runs a plan: Spark, or a stand-in in tests. Blocking: never to be asked in the event loop."""

    @property
    def is_local(self) -> bool:
        """Whether lanes run on this machine, with its files and environment."""
        ...

    @property
    def workforce(self) -> Workforce:
        """The executors that are ready for lanes."""
        ...

    def start(self) -> None: ...
    def equip(self) -> None:
        """Make new executors ready for lanes, while others run."""
        ...

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
        self._epochs = epochs
        self._report = report
        self._flows = [FlowDriver(flow, settings, is_local=epochs.is_local) for flow in settings.enabled_flows]
        for flow in self._flows:
            flow.topics.names.meet([other.topics.names for other in self._flows])
        self._giving_out = {
            flow.name: flow.loops.loop("partitions not given to lanes", again="partitions are given to lanes again")
            for flow in self._flows
        }
        self._refused = 0
        """Flows that cannot be mirrored as they are configured."""
        me = this_process()
        self._owner = me.owner
        self._rates: dict[PartitionKey, float] = {}
        self._stopping = asyncio.Event()
        self._replan = asyncio.Event()
        self._epoch_id = 0
        self._epoch_began: float | None = None
        """None while no epoch runs."""
        self._put_off: asyncio.TimerHandle | None = None
        """Brings the next plan forward when this epoch has lasted long enough for what is new."""
        self._moved = _Moved()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._has_strays = False
        """Lanes did not end in time: a standby has to wait until our leases run out."""
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="spark")
        self._watchers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="spark-watch")
        self._planned_for = Workforce(frozenset(), 0)
        self._held: dict[PartitionKey, float] = {}
        """Partitions that no lane may have yet, and until when."""
        self._equip_fault = ""
        """What was last logged about executors that could not be made ready."""
        self._useful = 0
        """How many lanes the last plan would have had with slots for all."""
        around = DriverServices(
            report=report,
            replan=self._replan.set,
            replan_soon=self._replan_soon,
            spawn=self._spawn,
            goes_without=self._goes_without,
            beside=beside,
            is_copying=lambda: self._epoch_id > 0,
            lease_ms=lambda: self._settings.lease_ms,
        )
        self._lives = [FlowSupervisor(flow, me, around) for flow in self._flows]

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
        for life in self._lives:
            self._spawn(life.run())
        try:
            await self._run_when_ready()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if not self._has_strays:
                await asyncio.gather(*(life.lease_holder.release() for life in self._lives))
            for flow in self._flows:
                flow.close()
        if self._failure is not None:
            raise self._failure
        self._report(str(self._moved))

    def sizes(self) -> dict[str, int]:
        """Count what is kept in memory from epoch to epoch."""
        flows = [flow.sizes() for flow in self._flows]
        return {
            "rates": len(self._rates),
            "held": len(self._held),
            "tasks": len(self._tasks),
            **{name: sum(found[name] for found in flows) for name in flows[0]},
            "shown": sum(len(life.progress) for life in self._lives),
        }

    def stands_by(self, source: str, target: str) -> bool:
        """Whether what concerns two clusters is another process's to write, or may be.

        Of clusters without a flow from one to the other, the leader of our first flow is asked for.
        """
        waiting = {life.flow.name: life.is_waiting for life in self._lives}
        return waiting.get(f"{source}->{target}", self._lives[0].is_waiting)

    def _goes_without(self) -> bool:
        """Note that a flow cannot be mirrored; is there another one, whether it is up or not?"""
        self._refused += 1
        return self._refused < len(self._flows)

    def _ready(self) -> list[FlowSupervisor]:
        return [life for life in self._lives if life.is_ready]

    async def _run_when_ready(self) -> None:
        """Start Spark while the flows come up: it takes the longest."""
        began = time.monotonic()
        starting = asyncio.get_running_loop().run_in_executor(self._thread, self._epochs.start)
        await self._first_of(starting, self._stopping.wait())
        if not self._stopping.is_set():
            starting.result()
            waits = "" if self._ready() else ", and waits for a flow to copy"
            self._report(f"Spark is up after {time.monotonic() - began:.1f} s{waits}")
            if not self._epochs.is_local:
                self._spawn(self._watching_workforce())
            if sizes_log.isEnabledFor(logging.DEBUG):
                sizes = Loop("driver", "sizes not logged")
                self._spawn(sizes.repeat(self._log_sizes, interval_s=lambda: SIZES_S, first_s=SIZES_S))
            await self._run_epochs()

    def _replan_soon(self) -> None:
        """Plan soon: lanes that have just begun are given time first."""
        left = self._epoch_began + NEWS_S - time.monotonic() if self._epoch_began is not None else 0.0
        if left <= 0:
            self._replan.set()
        elif self._put_off is None:
            self._put_off = asyncio.get_running_loop().call_later(left, self._replan.set)

    def _begin_plan(self) -> None:
        """Begin a plan: what asks for a new plan from now on asks for the one after this."""
        self._replan.clear()
        if self._put_off is not None:
            self._put_off.cancel()
            self._put_off = None

    async def _wait_for_replan(self) -> bool:
        """Wait for something to do; False when it is time to stop."""
        await self._replan.wait()
        self._replan.clear()
        return not self._stopping.is_set()

    # -- epochs --------------------------------------------------------------------------

    async def _run_epochs(self) -> None:
        pause, spell = 0.0, Outage()
        while not self._stopping.is_set():
            workforce = await self._workforce()
            if workforce is None:
                return
            self._begin_plan()
            told = self._terms()
            plan = self._plan([flow for flow in self._flows if flow.name in told], workforce)
            planned = {item.flow for lane in plan.lanes for item in lane}
            lives = [life for life in self._lives if life.flow.name in planned]
            flows = [life.flow for life in lives]
            if not plan.lanes:
                if not await self._wait_for_replan():
                    return
                continue
            for life in lives:
                life.resting.clear()
            terms = self._epoch_terms(plan, {name: terms for name, terms in told.items() if name in planned})
            try:
                rows = await self._run_epoch(plan, terms, flows)
                if rows is None:
                    self._has_strays = True
                    return
                pause = 0.0
                if lasted := spell.end():
                    log.info("an epoch succeeded again %s", lasted)
                await self._take_rows(lives, rows)
            except HeliographError as error:
                pause = min(max(0.5, pause * 2), 10.0)
                if spell.is_news(str(error)):
                    log.warning("%s; the next epoch follows in %.1f s", error, pause)
                await self._recover(error, terms, flows, pause)
            finally:
                self._epoch_began = None
                for life in lives:
                    life.rest()

    async def _recover(
        self, error: HeliographError, terms: EpochTerms, flows: Sequence[FlowDriver], pause_s: float
    ) -> None:
        """Recover from a failed job: go on from what its lanes wrote, when lanes that outlived it can do no harm."""
        ended = await self._order_end(flows, terms.epoch_id, ORDER_S)
        await self._interruptible_sleep(pause_s)
        for flow in flows:
            flow.epochs.take_written()
        if error.details.get("lanes_may_live") and not self._epochs.is_local:
            self._wait_for_lost_lanes(terms, flows, ended)

    async def _workforce(self) -> Workforce | None:
        """Ask Spark for its executors; None if it is time to stop before it answers."""
        asking = asyncio.get_running_loop().run_in_executor(self._watchers, lambda: self._epochs.workforce)
        await self._first_of(asking, self._stopping.wait())
        return None if self._stopping.is_set() else asking.result()

    def _terms(self) -> dict[str, FlowTerms]:
        """Make what lanes are told of each flow that can be in the next plan."""
        found = {life.flow.name: life.terms() for life in self._lives if life.may_be_planned and life.flow.entries}
        return {name: terms for name, terms in found.items() if terms is not None}

    def _epoch_terms(self, plan: EpochPlan, told: Mapping[str, FlowTerms]) -> EpochTerms:
        """Make the terms of an epoch, with each lane's share of a flow's rate limit."""
        limited = {flow.name: flow.flow.max_bytes_per_second for flow in self._flows if flow.name in told}
        limits = {name: limit for name, limit in limited.items() if limit is not None}
        epoch_s = self._settings.epoch_ms / 1000
        shares = plan_shares(plan, limits=limits, rates=self._rates, epoch_s=epoch_s) if limits else {}
        return EpochTerms(
            owner=self._owner,
            epoch_id=plan.epoch_id,
            duration_ms=self._settings.epoch_ms,
            flows=tuple(replace(terms, shares=shares.get(name, ())) for name, terms in told.items()),
        )

    def _wait_for_lost_lanes(self, terms: EpochTerms, flows: Sequence[FlowDriver], ended: Set[str]) -> None:
        for is_ordered in (True, False):
            seconds = lost_lanes_end_s(terms, self._settings.lease_ms, is_ordered=is_ordered)
            self._hold_back([flow for flow in flows if (flow.name in ended) is is_ordered], seconds)

    def _hold_back(self, flows: Sequence[FlowDriver], seconds: float) -> None:
        """A lane on an executor that is cut off may still send. Where nothing else stands between it and another
        lane, because the target has forgotten us or no later count shuts it out, the partition waits for its end."""
        now_ms = wall_ms()
        old = [
            item
            for flow in flows
            for item in self._assignments(flow)
            if may_be_forgotten(item.entry, now_ms, memory_ms=flow.topics.memory.doubtful_ms)
        ]
        if old:
            self._held.update(dict.fromkeys(map(key_of, old), time.monotonic() + seconds))
            log.warning(
                "%s with records so old that the target may have forgotten us, or where a producer id ends, go on in "
                "%.0f s, when no lost lane can be sending any more",
                *(counted(len(old), "partition"), seconds),
            )
            asyncio.get_running_loop().call_later(seconds, self._replan.set)

    def _assignments(self, flow: FlowDriver) -> list[Assignment]:
        """Give a flow's assignments; none if that fails: other flows are copied, and a later plan retries."""
        with self._giving_out[flow.name]:
            return flow.assignments.all()
        asyncio.get_running_loop().call_later(self._settings.epoch_ms / 1000, self._replan.set)
        return []

    def _plan(self, flows: Sequence[FlowDriver], workforce: Workforce) -> EpochPlan:
        self._epoch_id += 1
        self._planned_for = workforce
        now = time.monotonic()
        self._held = {key: until for key, until in self._held.items() if until > now}
        copied = {(flow.name, *where) for flow in self._flows for where in flow.entries}
        self._rates = {key: rate for key, rate in self._rates.items() if key in copied}
        assignments = {
            flow.name: [item for item in self._assignments(flow) if key_of(item) not in self._held] for flow in flows
        }
        tasks_max = {flow.name: flow.flow.tasks_max for flow in flows}
        self._useful = useful_lanes({name: len(together(items)) for name, items in assignments.items()}, tasks_max)
        plan = plan_epoch(
            self._epoch_id,
            [assignment for items in assignments.values() for assignment in items],
            rates=self._rates,
            tasks_max=tasks_max,
            slots=max(1, self._planned_for.slots),
        )
        self._moved.plan_s = max(self._moved.plan_s, time.monotonic() - now)
        return plan

    async def _run_epoch(
        self, plan: EpochPlan, terms: EpochTerms, flows: Sequence[FlowDriver]
    ) -> list[LedgerRow] | None:
        """Run one epoch, cut short when a new plan is due; None if it did not end in time after a stop."""
        began = self._epoch_began = time.monotonic()
        job = asyncio.get_running_loop().run_in_executor(self._thread, self._epochs.run, plan, terms)
        await self._first_of(job, self._replan_due(began))
        if not job.done():
            give_up = STOP_S if self._stopping.is_set() else None
            orders = asyncio.ensure_future(self._order_end(flows, plan.epoch_id, None))
            done, _ = await asyncio.wait({job}, timeout=give_up)
            orders.cancel()
            if not done:
                log.warning("the lanes did not end in time; what they copied last is settled at the next start")
                cancelling = asyncio.get_running_loop().run_in_executor(self._watchers, self._epochs.cancel)
                await asyncio.wait({cancelling}, timeout=CANCEL_S)
                return None
        elif job.exception() is None and time.monotonic() - began < terms.duration_ms / 1000 - EARLY_S:
            log.warning("epoch %d ended early: lanes saw no lease renewal; check the target's latency", plan.epoch_id)
        return job.result()

    async def _replan_due(self, began: float) -> None:
        await self._replan.wait()
        left = MIN_EPOCH_S - (time.monotonic() - began)
        if left > 0 and not self._stopping.is_set():
            await self._interruptible_sleep(left)

    async def _order_end(self, flows: Sequence[FlowDriver], epoch_id: int, timeout_s: float | None) -> set[str]:
        """Tell the lanes to end; return the flows in whose ledger the order was written."""
        orders = (asyncio.wait_for(flow.epochs.order_end(self._owner, epoch_id), timeout_s) for flow in flows)
        answers = await asyncio.gather(*orders, return_exceptions=True)
        return {flow.name for flow, fault in zip(flows, answers, strict=True) if fault is None}

    async def _take_rows(self, lives: Sequence[FlowSupervisor], rows: Sequence[LedgerRow]) -> None:
        self._moved.add(rows)
        for row in rows:
            rate = row.bytes * 1000 / max(row.active_ms, 1)
            key = (row.flow, row.topic, row.partition)
            known = self._rates.get(key)
            self._rates[key] = rate if known is None else known + RATE_WEIGHT * (rate - known)
        taking = {life.take_rows([row for row in rows if row.flow == life.flow.name]) for life in lives}
        _, late = await asyncio.wait(taking, timeout=TAKE_S)
        for task in late:
            task.add_done_callback(lambda _: self._replan.set())

    # -- beside the epochs ---------------------------------------------------------------

    def _watching_workforce(self) -> Coroutine[Any, Any, None]:
        """Watch Spark's executors until cancelled; SparkFailed means here that Spark's JVM is gone."""
        loop = Loop("Spark", "executors not watched", final=(SparkFailed,))
        return loop.repeat(self._watch_workforce, interval_s=lambda: WORKFORCE_S, first_s=WORKFORCE_S)

    async def _watch_workforce(self) -> None:
        """Plan anew when executors come or go; make new ones ready while the lanes run on."""
        loop = asyncio.get_running_loop()
        now = await loop.run_in_executor(self._watchers, lambda: self._epochs.workforce)
        planned = self._planned_for
        if not self._replan.is_set() and planned.is_outdated_by(now, self._useful):
            log.info("Spark: %s", planned.change_to(now))
            self._replan.set()
        try:
            await loop.run_in_executor(self._watchers, self._epochs.equip)
        except SparkFailed as error:
            if str(error) != self._equip_fault:
                self._equip_fault = str(error)
                log.warning("%s", error)

    async def _log_sizes(self) -> None:
        sizes_log.debug("kept: %s", ", ".join(f"{name} {size}" for name, size in self.sizes().items()))

    async def _first_of(self, job: asyncio.Future[Any], other: Coroutine[Any, Any, Any]) -> None:
        """Wait until either is done; the other is dropped, the job goes on."""
        rival = asyncio.ensure_future(other)
        try:
            await asyncio.wait([job, rival], return_when=asyncio.FIRST_COMPLETED)
        finally:
            rival.cancel()

    async def _interruptible_sleep(self, seconds: float) -> None:
        try:
            await asyncio.wait_for(self._stopping.wait(), seconds)
        except TimeoutError:
            return

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._failure = self._failure or error
            self.stop()


def lost_lanes_end_s(terms: EpochTerms, lease_ms: int, *, is_ordered: bool) -> float:
    """Tell after how long no lane of a failed epoch can be sending any more.

    Who reads the ledger finds the order to end before any later sign that we lead; who does not read it misses our
    word. Without the order there is only the deadline.
    """
    longest_ms = min(LANE_SHARE * lease_ms, terms.duration_ms) if is_ordered else terms.duration_ms
    return longest_ms / 1000 + LANE_END_S


@dataclass(slots=True)
class _Moved:
    """What the lanes reported over all epochs."""

    epochs: int = 0
    records: int = 0
    bytes: int = 0
    plan_s: float = 0.0
    """How long the longest plan took to make."""

    def add(self, rows: Sequence[LedgerRow]) -> None:
        self.epochs += 1
        self.records += sum(row.records for row in rows)
        self.bytes += sum(row.bytes for row in rows)

    def __str__(self) -> str:
        moved = f"{self.records:,} records, {self.bytes / 1e6:,.1f} MB"
        return f"stopped after {self.epochs:,} epochs, {moved}, plans made in at most {self.plan_s:.2f} s"
