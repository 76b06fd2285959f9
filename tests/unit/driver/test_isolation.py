"""One broken cluster and the flows of others: the driver plans, tells and answers them without it, and in a lane they
are copied beside it."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.driver import driver as driver_module
from heliograph.driver.driver import Driver
from heliograph.driver.plan import Workforce
from heliograph.errors import BrokerRefused, SparkFailed
from heliograph.flow import supervisor as life_module
from heliograph.flow.supervisor import STEADY_S, FlowSupervisor
from heliograph.lane import fetch_memory
from heliograph.lane import lane as lane_module
from heliograph.lane.lane import Lane
from heliograph.ledger.model import Assignment, EpochPlan, EpochTerms, FlowTerms, LedgerRow
from tests.fake_cluster import PRODUCE, Call
from tests.unit.helpers.lanes import HEAVY, LEDGER, OFFSETS, OWNER, LaneOnFakes, is_data, numbers, recent, run
from tests.unit.helpers.logs import ENTRY
from tests.unit.lane.test_lane_lease import TERM, renew

BROKEN, SOUND = "a->b", "c->d"
CONFIG = """\
clusters = a, b, c, d
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
c.bootstrap.servers = c:9092
d.bootstrap.servers = d:9092
a->b.enabled = true
c->d.enabled = true
"""


# -- the driver


class Epochs:
    """In the place of Spark: lanes that copy nothing until they are told to end."""

    workforce = Workforce(frozenset("1"), 1)

    def __init__(self, *, is_local: bool = True) -> None:
        self.is_local = is_local
        self.planned: list[set[str]] = []
        self.faults: list[SparkFailed] = []
        self.order = threading.Event()

    def start(self) -> None: ...
    def equip(self) -> None: ...
    def cancel(self) -> None: ...

    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
        self.order.clear()
        items = [item for lane in plan.lanes for item in lane]
        assert {item.flow for item in items} == {flow.name for flow in terms.flows}
        self.planned.append({item.flow for item in items})
        if self.faults:
            raise self.faults.pop()
        self.order.wait(10)
        return [row_of(item) for item in items]


def row_of(item: Assignment) -> LedgerRow:
    return LedgerRow(
        flow=item.flow,
        topic=item.topic,
        partition=item.partition,
        lane=0,
        entry=item.entry,
        records=0,
        bytes=0,
        active_ms=50,
        host="h",
        state="copying",
    )


def terms_of(name: str) -> FlowTerms:
    return FlowTerms(
        name=name,
        source=name[0],
        target=name[-1],
        source_bootstrap=(),
        target_bootstrap=(),
        group_id="g",
        connector="c",
        client_id="i",
        producer_id=1,
        ledger_topic=LEDGER,
        ledger_end=0,
        offset_topic=OFFSETS,
        offset_partitions=1,
        flush_ms=1000,
    )


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def running(epochs: Epochs) -> AsyncIterator[tuple[Driver, Any, Any]]:
    """A driver at work on two flows that are up; the broken one and the sound one, whose methods a test may replace."""
    driver = Driver(parse_settings(CONFIG), epochs, report=lambda line: None)
    for life in driver._lives:
        flow: Any = life.flow
        flow.entries.update({("t", partition): ENTRY for partition in range(2)})
        flow.opening.lease_holder, life.is_ready = None, True
        flow.assignments.terms = lambda name=flow.name: terms_of(name)

        async def order_end(owner: str, epoch_id: int) -> None:
            epochs.order.set()

        async def take_rows(rows: list[LedgerRow]) -> None: ...

        flow.epochs.order_end, flow.epochs.take_rows = order_end, take_rows
    working = asyncio.ensure_future(driver._run_epochs())
    try:
        yield driver, driver._flows[0], driver._flows[1]
        assert not working.done(), driver._failure
    finally:
        driver.stop()
        epochs.order.set()
        await asyncio.wait_for(working, 10)
        for task in driver._tasks:
            task.cancel()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "MIN_EPOCH_S", 0.02)
    monkeypatch.setattr(life_module, "TERMS_S", 0.02)


def test_a_flow_that_lanes_cannot_be_told_of_is_left_out_until_they_can(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        epochs = Epochs()
        async with running(epochs) as (driver, broken, _):
            await until(lambda: epochs.planned == [{BROKEN, SOUND}])
            terms, looks = broken.assignments.terms, 0

            def gone() -> FlowTerms:
                nonlocal looks
                looks += 1
                raise BrokerRefused("its offset topic is gone", where="b")

            broken.assignments.terms = gone
            driver._replan.set()
            await until(lambda: looks > 5)
            assert epochs.planned[1:] == [{SOUND}], "others are not interrupted to look again"
            broken.assignments.terms = terms
            await until(lambda: len(epochs.planned) > 2)
            assert epochs.planned[2:] == [{BROKEN, SOUND}]

    asyncio.run(scenario())
    assert len([record for record in caplog.records if "not in the plan" in record.getMessage()]) == 1


def test_a_flow_whose_cluster_keeps_it_from_answering_lanes_holds_up_no_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "TAKE_S", 0.1)

    async def scenario() -> None:
        epochs, answer = Epochs(), asyncio.Event()

        async def take_rows(rows: list[LedgerRow]) -> None:
            assert {row.flow for row in rows} == {BROKEN}
            await answer.wait()

        async with running(epochs) as (driver, broken, _):
            broken.epochs.take_rows = take_rows
            life: FlowSupervisor = driver._lives[0]
            await until(lambda: epochs.planned == [{BROKEN, SOUND}])
            driver._replan.set()
            await until(lambda: len(epochs.planned) == 2)
            assert epochs.planned[1] == {SOUND}
            assert not life.resting.is_set(), "what it reported is not answered"
            answer.set()
            await until(lambda: len(epochs.planned) == 3)
            assert epochs.planned[2] == {BROKEN, SOUND}

    asyncio.run(scenario())


def test_after_a_failed_job_nobody_waits_long_for_an_order_that_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "ORDER_S", 0.1)

    async def scenario() -> None:
        epochs = Epochs(is_local=False)
        epochs.faults.append(SparkFailed("an executor is gone", lanes_may_live=True))
        now_ms = int(time.time() * 1000)

        async def order_end(owner: str, epoch_id: int) -> None:
            await asyncio.Event().wait()

        async with running(epochs) as (driver, broken, sound):
            broken.epochs.order_end = order_end
            for flow in (broken, sound):
                flow.entries["t", 1] = ENTRY.moved(n=5, newest_ms=now_ms - 13 * 3_600_000)
            began = time.monotonic()
            await until(lambda: len(epochs.planned) == 2)
            assert time.monotonic() - began < 3.0
            held = {flow: until - began for (flow, _, _), until in driver._held.items()}
            assert held[SOUND] < 10 < held[BROKEN], "lanes that heard the order end with the lease"

    asyncio.run(scenario())


def test_a_flow_that_comes_and_goes_interrupts_the_others_less_and_less_often() -> None:
    async def scenario() -> None:
        async with running(Epochs()) as (driver, _, _):
            life, replans = driver._lives[0], 0

            def replan() -> None:
                nonlocal replans
                replans += 1

            life._around = replace(life._around, replan=replan)
            lease_holder: Any = life.lease_holder
            lease_holder.leads = lambda: False
            life._on_lead()
            await asyncio.sleep(0.01)
            assert replans == 0, "its lanes notice by themselves that it rests"
            lease_holder.leads = lambda: True
            pauses = []
            for _ in range(8):
                life._on_lead()
                pauses.append(life._lead_pause_s)
            assert pauses == [0, 1, 2, 4, 8, 16, 30, 30]
            await until(lambda: replans == 1)
            life._led_at -= STEADY_S
            life._on_lead()
            await until(lambda: replans == 2)

    asyncio.run(scenario())


# -- a lane


@asynccontextmanager
async def two_flows(**terms: Any) -> AsyncIterator[tuple[LaneOnFakes, LaneOnFakes, asyncio.Task[list[LedgerRow]]]]:
    """A lane that carries two flows, which have nothing in common."""
    async with LaneOnFakes() as broken, LaneOnFakes() as sound:
        flows = (
            *broken.terms(duration_ms=0, **terms).flows,
            *sound.terms(duration_ms=0, name=SOUND, **terms).flows,
        )
        items = [*broken.assignments(), *(replace(item, flow=SOUND) for item in sound.assignments())]
        epoch = EpochTerms(owner=OWNER, epoch_id=3, duration_ms=60_000, flows=flows)
        lane = asyncio.ensure_future(Lane(0, items, epoch).run())
        try:
            yield broken, sound, lane
        finally:
            lane.cancel()
            await asyncio.gather(lane, return_exceptions=True)


@pytest.mark.usefixtures("own_worker")
def test_a_flow_that_hears_nothing_of_its_leader_ends_alone() -> None:
    async def test() -> None:
        async with two_flows(term=TERM, lease_ms=1500) as (broken, sound, lane):
            broken.source.append("t", 0, recent(0))
            await until(lambda: broken.copied() == [0])
            for number in range(10):
                sound.source.append("t", 0, recent(number))
                renew(sound)
                await asyncio.sleep(0.25)
            await until(lambda: sound.copied() == numbers(10))
            broken.source.append("t", 0, recent(1))
            renew(broken)  # too late: it may be older than the lane's time was
            renew(sound)
            await asyncio.sleep(0.3)
            assert not lane.done()
            sound.order()
            rows = {row.flow: row for row in await asyncio.wait_for(lane, 5)}
            assert broken.copied() == [0]
            assert (rows[BROKEN].entry.n, rows[SOUND].entry.n) == (1, 10)

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_lane_ends_when_the_last_of_its_flows_has_no_leader() -> None:
    async def test() -> None:
        async with two_flows(term=TERM, lease_ms=60_000) as (broken, sound, lane):
            renew(broken, "another", TERM + 1)
            await asyncio.sleep(0.3)
            assert not lane.done()
            renew(sound, "another", TERM + 1)
            assert len(await asyncio.wait_for(lane, 5)) == 2

    run(test())


async def never(call: Call) -> Any:
    """To a lane's own Produce; ledger and positions are written."""
    if is_data(call):
        await asyncio.Event().wait()
    return await call.proceed()


@pytest.mark.usefixtures("own_worker")
def test_what_a_lost_flow_has_in_flight_is_given_up_before_the_lane_ends() -> None:
    """Another leads: it must not arrive later on."""

    def producing() -> list[bool]:
        clients = lane_module._worker._clusters.values()
        channels = [item for client in clients for item in client._connections.items()]
        return [connection.is_open for (_, name), connection in channels if name.startswith(f"produce {BROKEN}")]

    async def test() -> None:
        async with two_flows(term=TERM, lease_ms=60_000) as (broken, _, lane):
            broken.target.control(PRODUCE, never)
            broken.source.append("t", 0, recent(0))
            await until(lambda: any(call.api_key == PRODUCE and is_data(call) for call in broken.target.calls))
            assert producing() == [True]
            renew(broken, "another", TERM + 1)
            await until(lambda: producing() == [False])
            assert not lane.done()

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_target_that_stands_still_does_not_take_all_memory_of_the_lane(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", 1_200_000)
    monkeypatch.setattr(fetch_memory, "RESERVED_BYTES", 2_400_000)

    async def test() -> None:
        async with two_flows() as (broken, sound, lane):
            broken.target.control(PRODUCE, never)
            for number in range(60):
                broken.source.append("t", 0, recent(number, size=HEAVY))
            await until(lambda: lane_module._worker.pool.in_use_bytes() >= 1_000_000)
            for number in range(60):
                sound.source.append("t", 0, recent(number, size=HEAVY))
            await until(lambda: sound.copied() == numbers(60))
            assert not lane.done()
            assert broken.copied() == []

    run(test())
