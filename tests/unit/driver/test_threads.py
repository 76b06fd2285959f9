"""Spark is asked in threads of its own: a JVM that stands still holds up neither leases nor a stop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.driver import driver as module
from heliograph.driver.driver import Driver
from heliograph.driver.plan import Workforce
from heliograph.errors import SparkFailed
from heliograph.ledger.model import EpochPlan, EpochTerms, LedgerRow
from tests.unit.driver.test_isolation import terms_of
from tests.unit.flow.test_flow import CONFIG
from tests.unit.helpers.logs import ENTRY

PATIENCE_S = 10.0
"""After so long a thread that nobody lets go on gives up, and the test fails."""


class PausedSpark:
    """In the place of Spark: its JVM answers nothing until it is let go on. Notes in which thread it is asked."""

    is_local = False

    def __init__(self) -> None:
        self.goes_on = threading.Event()
        self.asked: list[str] = []
        self.ran = threading.Event()
        self.ends = threading.Event()

    def _ask(self) -> None:
        self.asked.append(threading.current_thread().name)
        assert self.goes_on.wait(PATIENCE_S), "the event loop stood still with the JVM"

    @property
    def workforce(self) -> Workforce:
        self._ask()
        return Workforce(frozenset("1"), 1)

    def start(self) -> None: ...

    def equip(self) -> None:
        self._ask()

    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
        self.ran.set()
        self.ends.wait(PATIENCE_S)
        return []

    def cancel(self) -> None:
        self._ask()
        self.ends.set()


def driver_on(spark: Any) -> Driver:
    driver = Driver(parse_settings(CONFIG), spark, report=lambda line: None)
    [life] = driver._lives
    flow: Any = life.flow
    flow.entries["t", 0] = ENTRY
    flow.opening.lease_holder, life.is_ready = None, True
    flow.assignments.terms = lambda: terms_of(flow.name)
    return driver


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not condition():
            await asyncio.sleep(0.005)


def test_the_event_loop_goes_on_while_the_jvm_stands_still_before_a_plan() -> None:
    async def scenario() -> None:
        spark = PausedSpark()
        driver = driver_on(spark)
        working = asyncio.ensure_future(driver._run_epochs())
        await until(lambda: spark.asked)
        renewals = 0
        for _ in range(50):  # as leases are
            await asyncio.sleep(0)
            renewals += 1
        assert (renewals, working.done()) == (50, False)
        spark.goes_on.set()
        await until(spark.ran.is_set)
        spark.ends.set()
        driver.stop()
        await asyncio.wait_for(working, PATIENCE_S)
        assert all(name.startswith("spark-watch") for name in spark.asked)

    asyncio.run(scenario())


def test_a_stop_does_not_wait_for_a_jvm_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_S", 0.05)
    monkeypatch.setattr(module, "CANCEL_S", 0.05)

    async def scenario() -> None:
        spark = PausedSpark()
        driver = driver_on(spark)
        before = asyncio.ensure_future(driver._run_epochs())
        await until(lambda: spark.asked)
        driver.stop()
        await asyncio.wait_for(before, PATIENCE_S / 2)  # between epochs

        spark.goes_on.set()
        driver = driver_on(spark)
        flow: Any = driver._flows[0]
        flow.epochs.order_end = _never
        during = asyncio.ensure_future(driver._run_epochs())
        await until(spark.ran.is_set)
        spark.goes_on.clear()
        driver.stop()
        await asyncio.wait_for(during, PATIENCE_S / 2)  # in the midst of one, with lanes that do not end
        assert driver._has_strays
        spark.goes_on.set()

    asyncio.run(scenario())


async def _never(*_: object) -> None:
    await asyncio.Event().wait()


def test_a_plan_is_made_while_new_executors_are_made_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WORKFORCE_S", 0.0)

    class Equipping(PausedSpark):
        @property
        def workforce(self) -> Workforce:
            return Workforce(frozenset("1"), 1)

    async def scenario() -> None:
        spark = Equipping()
        driver = driver_on(spark)
        watching = asyncio.ensure_future(driver._watching_workforce())
        await until(lambda: spark.asked)
        assert await asyncio.wait_for(driver._workforce(), PATIENCE_S / 2) == spark.workforce
        spark.goes_on.set()
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    asyncio.run(scenario())


def test_watching_executors_survives_what_nobody_foresaw_and_ends_with_the_jvm(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "WORKFORCE_S", 0.0)
    faults = [KeyError("x"), KeyError("x"), SparkFailed("Spark's JVM is gone")]

    class Failing(PausedSpark):
        @property
        def workforce(self) -> Workforce:
            raise faults.pop(0)

    async def scenario() -> None:
        with pytest.raises(SparkFailed):
            await asyncio.wait_for(driver_on(Failing())._watching_workforce(), PATIENCE_S)

    asyncio.run(scenario())
    assert "Spark: executors not watched: INTERNAL: KeyError" in caplog.text
