"""The driver without clusters or Spark: lanes follow executors, old partitions wait for lost lanes."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.driver import driver as module
from heliograph.driver.driver import Driver, lost_lanes_end_s
from heliograph.driver.plan import Workforce
from heliograph.errors import HeliographError, NotAuthorized, SparkFailed, Unreachable
from heliograph.ledger.model import EpochPlan, EpochTerms, LedgerRow
from heliograph.ledger.partition_ledger import PartitionLedger
from tests.unit.flow.test_flow import CONFIG
from tests.unit.helpers.logs import ENTRY


class Executors:
    """In the place of Spark: executors that a test lets come and go."""

    is_local = False

    def __init__(self, names: str) -> None:
        self.names = names
        self.fault: SparkFailed | None = None

    @property
    def workforce(self) -> Workforce:
        return Workforce(frozenset(self.names), len(self.names))

    def start(self) -> None: ...

    def equip(self) -> None:
        if self.fault is not None:
            raise self.fault

    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
        return []

    def cancel(self) -> None: ...


def driver_on(executors: Executors) -> Driver:
    """Four partitions that may have four lanes."""
    driver = Driver(parse_settings(CONFIG + "tasks.max = 4\n"), executors, report=lambda line: None)
    driver._flows[0].entries.update({("t", partition): ENTRY for partition in range(4)})
    driver._flows[0].opening.lease_holder = None
    return driver


async def watched(driver: Driver, seconds: float = 0.2) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(driver._watching_workforce(), seconds)


@pytest.mark.parametrize(("later", "planned_anew"), [("12", False), ("123", True), ("1", True), ("13", True)])
def test_executors_that_come_and_go_bring_the_next_plan_forward(
    later: str, planned_anew: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WORKFORCE_S", 0.01)

    async def check() -> None:
        executors = Executors("12")
        driver = driver_on(executors)
        assert len(driver._plan(driver._flows, executors.workforce).lanes) == 2
        executors.names = later
        await watched(driver)
        assert driver._replan.is_set() is planned_anew
        assert len(driver._plan(driver._flows, executors.workforce).lanes) == len(later)

    asyncio.run(check())


def test_an_executor_that_cannot_be_made_ready_is_told_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WORKFORCE_S", 0.01)

    async def check() -> None:
        executors = Executors("12")
        executors.fault = SparkFailed("w2 lacks crc32c")
        driver = driver_on(executors)
        driver._plan(driver._flows, executors.workforce)
        await watched(driver)
        assert not driver._replan.is_set()

    asyncio.run(check())
    assert [record.message for record in caplog.records] == ["SPARK: w2 lacks crc32c"]


def test_behind_old_records_a_partition_waits_until_no_lost_lane_can_send() -> None:
    async def check() -> None:
        executors = Executors("12")
        driver = driver_on(executors)
        flow = driver._flows[0]
        now_ms = int(time.time() * 1000)
        flow.entries["t", 1] = ENTRY.moved(n=5, newest_ms=now_ms - 13 * 3_600_000)
        flow.entries["t", 2] = ENTRY.moved(n=5, newest_ms=now_ms)
        flow.entries["t", 3] = ENTRY.moved(n=5, newest_ms=now_ms, count=32767)
        driver._hold_back(driver._flows, 0.1)
        plan = driver._plan(driver._flows, executors.workforce)
        held = [item.partition for lane in plan.lanes for item in lane]
        assert not {1, 3} & set(held)
        assert 2 in held
        await asyncio.wait_for(driver._replan.wait(), 5)
        assert sum(map(len, driver._plan(driver._flows, executors.workforce).lanes)) == 4

    asyncio.run(check())


@pytest.mark.parametrize(
    ("duration_ms", "is_ordered", "seconds"), [(60_000, True, 6.8), (60_000, False, 62.0), (2_000, True, 4.0)]
)
def test_lost_lanes_end_with_the_lease_or_with_their_epoch(duration_ms: int, is_ordered: bool, seconds: float) -> None:
    terms = EpochTerms(owner="me", epoch_id=1, duration_ms=duration_ms, flows=())
    assert lost_lanes_end_s(terms, 6000, is_ordered=is_ordered) == pytest.approx(seconds)


def test_after_a_failed_job_copying_goes_on_from_what_its_lanes_wrote_down() -> None:
    async def check() -> None:
        flow = driver_on(Executors("12"))._flows[0]
        newer, other_count = ENTRY.moved(n=ENTRY.n + 7), ENTRY.moved(count=ENTRY.count + 1, n=ENTRY.n + 7)
        for partition, written in enumerate((newer, other_count, ENTRY.moved(n=ENTRY.n - 1))):
            flow.ledger.partitions["t", partition] = PartitionLedger()
            flow.ledger.partitions["t", partition].entry = written
        flow.epochs.take_written()
        assert [flow.entries["t", partition] for partition in range(4)] == [newer, ENTRY, ENTRY, ENTRY]

    asyncio.run(check())


def test_topics_that_cannot_be_refreshed_are_told_once_and_so_is_the_end(caplog: pytest.LogCaptureFixture) -> None:
    outcomes: list[HeliographError | None] = [
        Unreachable("hung up", where="b"),
        Unreachable("hung up", where="b"),
        NotAuthorized("refused", where="b"),
        None,
        None,
        Unreachable("hung up", where="b"),
    ]

    async def scenario() -> None:
        finished = asyncio.Event()

        async def discover() -> bool:
            if not outcomes:
                finished.set()
                await asyncio.Event().wait()
            flow.opening.changed.set()  # the next look is due at once
            if (error := outcomes.pop(0)) is not None:
                raise error
            return False

        [life] = driver_on(Executors("1"))._lives
        flow: Any = life.flow
        flow.topics.discover = discover
        flow.opening.changed.set()
        loop = asyncio.ensure_future(life._refreshing())
        await asyncio.wait_for(finished.wait(), 10)
        loop.cancel()

    with caplog.at_level(logging.INFO, "heliograph"):
        asyncio.run(scenario())
    assert [re.sub(r" after .*", "", record.getMessage()) for record in caplog.records] == [
        "a->b: topics not refreshed: UNREACHABLE: b: hung up; retrying",
        "a->b: topics not refreshed: NOT_AUTHORIZED: b: refused; retrying",
        "a->b: topics are refreshed again",
        "a->b: topics not refreshed: UNREACHABLE: b: hung up; retrying",
    ]
