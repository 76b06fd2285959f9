"""`autoRestart`, and troubles that last: what is tried again, when, and what is said of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import parse_settings
from heliograph.config.settings import AutoRestart
from heliograph.driver.driver import Driver
from heliograph.driver.plan import Workforce
from heliograph.errors import ConfigError
from heliograph.flow.flow import FlowDriver
from heliograph.flow.restarts import Restarts, restart_delay_s
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.outage_log import Outage, Waits
from tests.unit.flow.test_flow import driver as flow_driver
from tests.unit.flow.test_flow import given_out
from tests.unit.helpers.logs import ENTRY
from tests.unit.helpers.resources import inspect, with_mirror
from tests.unit.kafka.test_throttle import Clock

ALWAYS = AutoRestart(max_restarts=None, max_backoff_minutes=60)


def test_pauses_are_those_of_strimzi() -> None:
    minutes = [restart_delay_s(number, max_backoff_minutes=60) / 60 for number in range(10)]
    assert minutes == [0, 2, 6, 12, 20, 30, 42, 56, 60, 60]


@given(st.integers(0, 10_000), st.integers(1, 1_000))
def test_pauses_grow_up_to_their_limit(restarts: int, limit: int) -> None:
    pause, following = (restart_delay_s(number, max_backoff_minutes=limit) for number in (restarts, restarts + 1))
    assert pause <= following <= limit * 60


def fail(restarts: Restarts, clock: Clock, wish: AutoRestart | None, *, after_s: float = 0.0) -> float | None:
    """It fails some time after its last restart, and is restarted if that is wished."""
    clock.now += after_s
    pause = restarts.after_failure_s(wish)
    if pause is not None:
        clock.now += pause
        restarts.note()
    return pause


def test_restarts_end_at_their_limit() -> None:
    clock = Clock()
    restarts = Restarts(clock)
    wish = AutoRestart(max_restarts=3, max_backoff_minutes=5)
    assert [fail(restarts, clock, wish) for _ in range(5)] == [0, 120, 300, None, None]
    assert (restarts.in_a_row, restarts.total) == (3, 3)


def test_what_ran_for_a_while_begins_to_count_anew() -> None:
    clock = Clock()
    restarts = Restarts(clock)
    assert [fail(restarts, clock, ALWAYS) for _ in range(3)] == [0, 120, 360]
    assert fail(restarts, clock, ALWAYS, after_s=719) == 720
    assert fail(restarts, clock, ALWAYS, after_s=1200) == 0
    assert (restarts.in_a_row, restarts.total) == (1, 5)


def test_without_the_wish_nothing_is_restarted() -> None:
    assert Restarts().after_failure_s(None) is None


# -- where the wish comes from


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("auto.restart.enabled = false\n", None),
        ("auto.restart.enabled = true\n", ALWAYS),
        (
            "a->b.auto.restart.enabled=true\na->b.auto.restart.max.restarts=7\nauto.restart.max.backoff.minutes=10\n",
            AutoRestart(max_restarts=7, max_backoff_minutes=10),
        ),
    ],
)
def test_property_files(text: str, expected: AutoRestart | None) -> None:
    base = "clusters = a, b, c\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
    assert parse_settings(base + text).flows[0].auto_restart == expected


@pytest.mark.parametrize(
    ("field", "expected"),
    [
        ("autoRestart: {}", ALWAYS),
        ("autoRestart: {enabled: true}", ALWAYS),
        ("autoRestart: {enabled: false}", None),
        ("autoRestart: {maxRestarts: 3}", AutoRestart(max_restarts=3, max_backoff_minutes=60)),
        ("autoRestart: {maxBackoffMinutes: 5}", AutoRestart(max_restarts=None, max_backoff_minutes=5)),
    ],
)
def test_resources(field: str, expected: AutoRestart | None) -> None:
    loaded = inspect(with_mirror(f"sourceConnector:\n  {field}"))
    assert loaded.valid_settings().flows[0].auto_restart == expected


@pytest.mark.parametrize("field", ["autoRestart: {enabled: maybe}", "autoRestart: {maxRestarts: -1}"])
def test_a_wish_that_cannot_be_is_refused(field: str) -> None:
    with pytest.raises(ConfigError, match="autoRestart"):
        inspect(with_mirror(f"sourceConnector:\n  {field}")).valid_settings()


# -- the driver


class NoEpochs:
    is_local = True
    workforce = Workforce(frozenset("1"), 1)

    def start(self) -> None: ...
    def equip(self) -> None: ...
    def run(self, plan: Any, terms: Any) -> list[Any]:
        return []

    def cancel(self) -> None: ...


def bring_up(
    monkeypatch: pytest.MonkeyPatch, more: str, *, failures: int, others: bool
) -> tuple[list[float], list[FlowDriver]]:
    """Bring a flow up that fails so many times, with another that is not up yet; the pauses, and what became ready."""
    settings = parse_settings(
        "clusters = a, b, c\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\na->b.enabled = true\n"
        f"c.bootstrap.servers = c:9092\na->c.enabled = {str(others).lower()}\n" + more
    )
    pauses: list[float] = []
    left = failures

    async def prepare(flow: FlowDriver) -> None:
        nonlocal left
        if left:
            left -= 1
            raise ConfigError("the same cluster", where=flow.name)

    async def sleep(seconds: float) -> None:
        pauses.append(seconds)

    async def test() -> list[FlowDriver]:
        driver = Driver(settings, NoEpochs(), report=lambda _: None)
        life = driver._lives[0]
        life.is_ready = await life._until_done(life.flow.prepare)
        return [life.flow for life in driver._ready()]

    monkeypatch.setattr(FlowDriver, "prepare", prepare)
    monkeypatch.setattr(asyncio, "sleep", sleep)
    return pauses, asyncio.run(test())


def test_a_flow_that_cannot_start_ends_the_run_if_it_is_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError):
        bring_up(monkeypatch, "", failures=1, others=False)


def test_a_flow_that_cannot_start_is_given_up_where_there_are_others_up_or_not(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, ready = bring_up(monkeypatch, "", failures=1, others=True)
    assert (pauses, len(ready)) == ([], 0)
    assert caplog.messages == ["a->b: not mirrored: CONFIG: a->b: the same cluster"]


def test_a_flow_is_restarted_until_it_comes_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pauses, ready = bring_up(monkeypatch, "auto.restart.enabled = true\n", failures=3, others=False)
    assert (pauses, len(ready)) == ([0, 120, 360], 1)
    assert caplog.messages[1] == "a->b: failed: CONFIG: a->b: the same cluster; restart 2 follows in 120 s"
    assert len(caplog.messages) == 3


def test_a_flow_is_given_up_after_its_restarts(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    wish = "auto.restart.enabled = true\nauto.restart.max.restarts = 2\n"
    with pytest.raises(ConfigError):
        bring_up(monkeypatch, wish, failures=9, others=False)
    assert caplog.messages[-1] == "a->b: gave up after 2 restarts: CONFIG: a->b: the same cluster"


def test_partitions_that_failed_are_copied_again_and_those_that_a_policy_stopped_are_not() -> None:
    flow = flow_driver("on.data.loss = stop-partition\n", partitions=3)
    flow.answers.answer(("t", 0), Outcome("RECORD_REFUSED", "text", ENTRY))
    lost = {"position": 0, "log_start": 6, "log_end": 10}
    flow.answers.answer(("t", 1), Outcome("DATA_LOST", "text", ENTRY, lost))
    assert given_out(flow) == [2]
    assert flow.answers.has_failed.is_set()
    flow.answers.restart()
    assert given_out(flow) == [0, 2]


# -- spells


def test_a_spell_is_news_once_for_each_cause_and_its_end_once() -> None:
    clock = Clock()
    spell = Outage(clock)
    assert spell.end() == ""
    assert [spell.is_news(text) for text in ("one", "one", "other", "one")] == [True, False, True, False]
    clock.now += 12.34
    assert (spell.tries, spell.end(), spell.end()) == (4, "after 12.3 s", "")
    assert spell.is_news("one")


def test_a_partition_that_goes_to_and_fro_between_causes_is_not_told_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    clock = Clock()
    waits = Waits("a->b", clock)
    for _ in range(10):
        for text in ("no answer in time", "no connection"):
            for partition in range(3):
                waits.note(("t", partition), text)
            clock.now += 1
    for partition in range(3):
        waits.goes_on(("t", partition))
    assert caplog.messages == [
        "a->b: waiting: no answer in time",
        "a->b: waiting: no connection",
        "a->b: over after 20.0 s: no answer in time",
        "a->b: over after 19.0 s: no connection",
    ]
