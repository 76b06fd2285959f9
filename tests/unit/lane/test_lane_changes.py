"""A lane that finds a topic otherwise than it was planned tells its driver, who looks before that is due."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any, cast

import pytest

from heliograph.driver import driver as driver_module
from heliograph.flow import supervisor as life_module
from heliograph.flow.supervisor import DriverServices, FlowSupervisor
from heliograph.ledger.records.lease import Process
from heliograph.ledger.records.topic_change import ChangeKind, TopicChange
from tests.unit.driver.test_driver import Executors, driver_on
from tests.unit.flow.test_flow import driver as flow_driver
from tests.unit.helpers.lanes import LaneOnFakes, recent, run


def changes(world: LaneOnFakes) -> list[TopicChange]:
    return [record for record in world.ledger() if isinstance(record, TopicChange)]


# -- what lanes tell ---------------------------------------------------------------------------


@pytest.mark.usefixtures("own_worker")
def test_a_deleted_topic_is_told_and_the_others_go_on() -> None:
    async def test() -> None:
        async with LaneOnFakes(partitions=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3, 0)
                world.source.delete("t")
                await lane.until(lambda: bool(changes(world)))
            assert set(changes(world)) == {TopicChange(topic="t", what=ChangeKind.GONE)}
            assert [row.state for row in lane.rows] == ["copying", "copying"]

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_target_that_is_gone_is_told() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                world.target.delete("a.t")
                world.source.append("t", 0, recent(3, 3))
                await lane.until(lambda: bool(changes(world)))
            assert set(changes(world)) == {TopicChange(topic="t", what=ChangeKind.GONE)}

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_leader_that_moved_and_partitions_that_came_are_told() -> None:
    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                world.source.move_leader("t", 0, 2)
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(6)
                await lane.until(lambda: TopicChange(topic="t", what=ChangeKind.MOVED) in changes(world))
                world.source.grow("t", 3)
                world.source.move_leader("t", 0, 1)
                await lane.until(lambda: TopicChange(topic="t", what=ChangeKind.RESIZED) in changes(world))

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_lane_that_finds_all_as_it_was_tells_nothing() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            async with world.lane() as lane:
                await world.source.brokers[1].stop()
                await world.source.brokers[1].start()
                world.source.append("t", 0, recent(0, 3))
                await lane.until_copied(3)
            assert not changes(world)

    run(test())


# -- what the driver does ------------------------------------------------------------------------


class Looks:
    """A flow's life whose looks a test counts."""

    def __init__(self, *, found: bool, takes_s: float = 0.0, more: str = "") -> None:
        self.at: list[float] = []
        self.soon = 0
        self.flow = flow_driver(more)
        self._found, self._takes_s = found, takes_s
        around = DriverServices(
            report=lambda line: None,
            replan=lambda: None,
            replan_soon=self._plan_soon,
            spawn=asyncio.ensure_future,
            goes_without=lambda: False,
            beside=lambda flow: (),
            is_copying=lambda: True,
            lease_ms=lambda: 6000,
        )
        self.life = FlowSupervisor(self.flow, Process(owner="me", host="h", pid=1), around)
        self.flow.opening.lease_holder = None  # without a lease the flow is ours
        cast("Any", self.flow.topics).discover = self._look

    def _plan_soon(self) -> None:
        self.soon += 1

    async def _look(self) -> bool:
        self.at.append(time.monotonic())
        await asyncio.sleep(self._takes_s)
        return self._found

    @asynccontextmanager
    async def looking(self) -> AsyncIterator[None]:
        task = asyncio.ensure_future(self.life._refreshing())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(10):
            while not condition():
                await asyncio.sleep(0.005)


def test_a_swarm_of_changes_is_one_look_and_one_wish_for_a_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_module, "GATHER_S", 0.05)

    async def test() -> None:
        looks = Looks(found=True)
        async with looks.looking():
            for index in range(100):
                looks.life._hear(TopicChange(topic=f"t{index}", what=ChangeKind.MOVED))
                await asyncio.sleep(0)
            await looks.until(lambda: looks.soon > 0)
            await asyncio.sleep(0.1)
        assert (len(looks.at), looks.soon) == (1, 1)

    asyncio.run(test())


def test_looks_that_take_long_leave_time_for_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_module, "GATHER_S", 0.0)

    def _has_looked(looks: Looks, times: int) -> bool:
        return len(looks.at) == times

    async def test() -> None:
        looks = Looks(found=False, takes_s=0.05)
        async with looks.looking():
            for number in (1, 2, 3):
                looks.life._hear(TopicChange(topic="t", what=ChangeKind.MOVED))
                await looks.until(partial(_has_looked, looks, number))
        pauses = [later - sooner for sooner, later in zip(looks.at, looks.at[1:], strict=False)]
        assert all(pause >= 0.05 * (1 + life_module.LOOK_SHARE) for pause in pauses)
        assert looks.soon == 0

    asyncio.run(test())


def test_a_topic_that_lanes_miss_is_looked_at_again_soon_even_without_refresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(life_module, "GATHER_S", 0.0)
    monkeypatch.setattr(life_module, "INCOMPLETE_S", 0.02)

    async def test() -> None:
        looks = Looks(found=False, more="refresh.topics.enabled = false\n")
        async with looks.looking():
            await asyncio.sleep(0.1)
            assert not looks.at
            looks.life._hear(TopicChange(topic="t", what=ChangeKind.GONE))
            await looks.until(lambda: len(looks.at) >= 3)
            looks.flow.topics.missed.clear()
            await asyncio.sleep(0.05)
            seen = len(looks.at)
            await asyncio.sleep(0.1)
            assert len(looks.at) == seen

    asyncio.run(test())


def test_what_is_new_waits_until_the_epoch_has_lasted_and_is_planned_at_once_while_none_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(driver_module, "NEWS_S", 0.1)

    async def test() -> None:
        driver = driver_on(Executors("12"))
        driver._replan_soon()
        assert driver._replan.is_set()
        driver._begin_plan()
        driver._epoch_began = time.monotonic()
        for _ in range(3):
            driver._replan_soon()
        assert not driver._replan.is_set()
        await asyncio.wait_for(driver._replan.wait(), 5)
        assert time.monotonic() - driver._epoch_began >= 0.09
        driver._replan_soon()  # by now the epoch is old enough
        assert driver._replan.is_set()

    asyncio.run(test())


def test_news_that_the_next_plan_has_anyway_cut_no_later_epoch_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "NEWS_S", 0.05)

    async def test() -> None:
        driver = driver_on(Executors("12"))
        driver._epoch_began = time.monotonic()
        driver._replan_soon()
        driver._begin_plan()
        await asyncio.sleep(0.1)
        assert not driver._replan.is_set()

    asyncio.run(test())


def test_the_longest_plan_is_told_at_the_end() -> None:
    async def test() -> None:
        driver = driver_on(Executors("12"))
        driver._plan(driver._flows, Executors("12").workforce)
        assert 0 < driver._moved.plan_s < 1
        driver._moved = cast("Any", SimpleNamespace(plan_s=9.5))
        driver._plan(driver._flows, Executors("12").workforce)
        assert driver._moved.plan_s == 9.5

    asyncio.run(test())
