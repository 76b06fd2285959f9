"""How long the target remembers us: read from its brokers, and what lanes and driver make of it."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from heliograph.flow import producer_memory
from heliograph.flow.producer_memory import EXPIRATION_KEY, doubtful_ms, parse_expiration, read_expiration_ms, told
from heliograph.lane.flow_lane import _copy_of
from heliograph.lane.partition_copy import may_be_forgotten
from heliograph.ledger.model import MEMORY_MS
from heliograph.preflight.steps import Verdict
from heliograph.preflight.topics import check_memory
from tests.fake_cluster import DESCRIBE_CONFIGS, Call
from tests.unit.helpers.flows import FlowOnFakes, flow_between
from tests.unit.helpers.lanes import LaneOnFakes, run
from tests.unit.helpers.logs import ENTRY
from tests.unit.lane.test_partition_copy import fetched, large_batches, new_copy

HOUR_MS = 3_600_000


def set_expiration(world: FlowOnFakes, *values: str) -> None:
    world.target.broker_configs = {node: {EXPIRATION_KEY: value} for node, value in enumerate(values, 1)}


def test_its_memory_is_in_doubt_from_half_of_its_time_on() -> None:
    assert doubtful_ms(producer_memory.DEFAULT_EXPIRATION_MS) == MEMORY_MS == 12 * HOUR_MS
    assert doubtful_ms(HOUR_MS) == HOUR_MS // 2
    assert doubtful_ms(7 * 24 * HOUR_MS) == 84 * HOUR_MS


@pytest.mark.parametrize("text", [None, "", "-1", "1e9", "abc", "٣", "9" * 30])
def test_a_value_that_makes_no_sense_is_none(text: str | None) -> None:
    assert parse_expiration(text) is None


def test_it_is_told_in_plain_units() -> None:
    assert told("b", HOUR_MS) == (
        '"b" remembers producers for 1 h (producer.id.expiration.ms): behind records over 30 min old one batch at a '
        "time is sent"
    )
    assert "for 36 h" in told("b", 36 * HOUR_MS)
    assert "over 5 s old" in told("b", 10_000)


def test_lanes_are_told_half_of_the_targets_setting_and_it_is_read_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    monkeypatch.setattr(producer_memory, "LOOK_S", 0.0)

    async def test() -> None:
        async with flow_between({"orders": 1}) as world:
            set_expiration(world, str(HOUR_MS))
            await world.flow.opening.open()
            await world.flow.prepare()
            assert world.flow.assignments.terms().memory_ms == HOUR_MS // 2
            set_expiration(world, str(2 * HOUR_MS))
            await world.flow.topics.discover()
            await world.flow.topics.discover()
            assert world.flow.assignments.terms().memory_ms == HOUR_MS
            world.target.broker_configs.clear()
            await world.flow.topics.discover()
            assert world.flow.assignments.terms().memory_ms == HOUR_MS, "what was told stays known"

    run(test())
    assert len([message for message in caplog.messages if EXPIRATION_KEY in message]) == 2


@pytest.mark.parametrize("why", ["not authorized", "no such setting", "nobody answers"])
def test_where_the_setting_is_not_shown_the_default_is_taken(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_memory, "PATIENCE_S", 0.1)

    async def refuse(call: Call) -> Any:
        if call.request.resources[0].resource_type != 4:
            return await call.proceed()
        if why == "nobody answers":
            await asyncio.sleep(1)
        answer = await call.proceed()
        if why == "not authorized":
            for result in answer.results:
                result.error_code, result.configs = 29, []
        return answer

    async def test() -> None:
        async with flow_between({"orders": 1}) as world:
            if why != "no such setting":
                set_expiration(world, "5000")
            world.target.control(DESCRIBE_CONFIGS, refuse)
            await world.flow.opening.open()
            await world.flow.prepare()
            assert world.flow.assignments.terms().memory_ms == MEMORY_MS
            assert await read_expiration_ms(world.flow.target) is None

    run(test())


def test_check_says_how_long_the_target_remembers_us() -> None:
    async def test() -> None:
        async with flow_between({"orders": 1}) as world:
            flow = world.flow.flow
            [step] = check_memory(flow, is_short=False, expiration_ms=HOUR_MS)
            assert (step.verdict, step.what) == (Verdict.PASS, told("b", HOUR_MS))
            [step] = check_memory(flow, is_short=False, expiration_ms=None)
            assert step.what.startswith('"b" remembers producers for 24 h')
            assert "assumed" in step.what
            [step] = check_memory(flow, is_short=True, expiration_ms=None)
            assert step.verdict is Verdict.WARN

    run(test())


def test_a_shorter_memory_holds_partitions_back_and_one_batch_in_flight_sooner() -> None:
    now = 1_000_000_000_000
    entry = ENTRY.moved(n=1, newest_ms=now - HOUR_MS)
    assert not may_be_forgotten(entry, now)
    assert may_be_forgotten(entry, now, memory_ms=HOUR_MS // 2)
    log, size = large_batches(4, timestamp=5_000)
    for memory_ms, in_flight in ((MEMORY_MS, 2), (HOUR_MS // 2, 1)):
        copy = new_copy(max_bytes=size)
        copy.memory_ms = memory_ms
        copy.take(fetched(log, 0))
        assert copy.next_piece(now_ms=5_000, small_bytes=1_000) is not None
        copy.acknowledged(0)
        pieces = [copy.next_piece(now_ms=5_000 + HOUR_MS, small_bytes=1_000) for _ in range(2)]
        assert sum(piece is not None for piece in pieces) == in_flight


def test_a_lane_obeys_what_it_is_told() -> None:
    world = LaneOnFakes()
    [terms] = world.terms(duration_ms=1, memory_ms=HOUR_MS).flows
    [assignment] = world.assignments()
    assert _copy_of(assignment, terms).memory_ms == HOUR_MS
