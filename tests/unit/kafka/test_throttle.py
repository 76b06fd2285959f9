"""Quotas: a broker that mutes us is obeyed, what it costs is counted and told, and nothing breaks for it."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import Unreachable
from heliograph.flow.throttling import QUIET_S, Throttling
from heliograph.kafka.connection import MAX_MUTED_S
from heliograph.kafka.throttle import MutedTime
from heliograph.lane import fetcher, sender
from heliograph.ledger.records.throttle import Throttle
from tests.fake_cluster import API_VERSIONS, FETCH, PRODUCE, Call, FakeCluster
from tests.unit.helpers.lanes import HEAVY, LaneOnFakes, is_data, numbers, recent, run
from tests.unit.kafka.test_connection import ask, connected, echo, frame, read_request, silent

# -- one connection


def test_nothing_leaves_a_muted_connection_and_its_order_is_kept() -> None:
    async def test() -> None:
        async with connected(echo) as connection:
            await ask(connection, b"before")
            connection.throttle(200)
            began = time.monotonic()
            answers = [ask(connection, bytes([number])) for number in range(5)]
            await asyncio.sleep(0.05)
            assert connection.in_flight == 0
            assert [bytes((await answer)[4:]) for answer in answers] == [bytes([number]) for number in range(5)]
            assert time.monotonic() - began > 0.19

    run(test())


def test_what_is_sent_when_the_time_is_just_over_does_not_overtake() -> None:
    async def test() -> None:
        async with connected(echo) as connection:
            await ask(connection)
            connection.throttle(20)
            first = ask(connection, b"first")
            time.sleep(0.03)  # the time is over, and the loop has not noticed
            assert not connection.is_muted
            second = ask(connection, b"second")
            assert [bytes((await answer)[4:]) for answer in (first, second)] == [b"first", b"second"]

    run(test())


def test_a_throttle_longer_than_the_deadline_does_not_look_like_a_dead_peer() -> None:
    async def mutes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        writer.write(frame(correlation_id))
        await asyncio.sleep(0.4)
        correlation_id, _ = await read_request(reader)
        writer.write(frame(correlation_id, b"late"))
        await reader.read()

    async def test() -> None:
        async with connected(mutes, timeout_s=0.2) as connection:
            first, second = ask(connection), ask(connection)
            await first
            connection.throttle(400)
            assert bytes((await second)[4:]) == b"late"

    run(test())


def test_after_the_throttle_deadlines_run_again() -> None:
    async def test() -> None:
        async with connected(silent, timeout_s=0.1) as connection:
            answer = ask(connection)
            connection.throttle(100)
            with pytest.raises(Unreachable, match="no answer in time"):
                await asyncio.wait_for(answer, 5)

    run(test())


def test_closing_a_muted_connection_fails_what_it_held() -> None:
    async def test() -> None:
        async with connected(echo) as connection:
            connection.throttle(60_000)
            answer = ask(connection)
            connection.close()
            with pytest.raises(Unreachable):
                await answer

    run(test())


def test_nonsense_does_not_mute_for_ever() -> None:
    async def test() -> None:
        async with connected(echo) as connection:
            connection.throttle(-1)
            assert not connection.is_muted
            connection.throttle(2**31 - 1)
            assert connection._muted_until - asyncio.get_running_loop().time() <= MAX_MUTED_S

    run(test())


# -- the time


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), max_size=20))
def test_muted_time_is_the_union_of_what_was_asked_for(asked: list[tuple[int, int]]) -> None:
    muted, now, covered = MutedTime(), 0, set[int]()
    taken = 0.0
    for pause, seconds in asked:
        now += pause
        muted.note(now, seconds)
        covered |= set(range(now, now + seconds))
        taken += muted.take_s(now)
        assert taken == pytest.approx(len([second for second in covered if second < now]))
    assert muted.elapsed_s(now + 100) == len(covered)


# -- a lane


class Quota:
    """Mutes clients as a broker does: the answer comes at once, and the next request is read when the time is over."""

    def __init__(self, throttle_ms: int, times: int) -> None:
        self.throttle_ms, self.left = throttle_ms, times
        self.early = 0
        self._until = 0.0

    async def __call__(self, call: Call) -> Any:
        if call.api_key == PRODUCE and not is_data(call):
            return await call.proceed()
        wait_s = self._until - time.monotonic()
        if wait_s > 0:
            self.early += 1
            await asyncio.sleep(wait_s)
        response = await call.proceed()
        if self.left:
            self.left -= 1
            response.throttle_time_ms = self.throttle_ms
            self._until = time.monotonic() + self.throttle_ms / 1000
        return response


def connections(cluster: FakeCluster) -> int:
    return sum(call.api_key == API_VERSIONS for call in cluster.calls)


def throttles(world: LaneOnFakes) -> list[Throttle]:
    return [record for record in world.ledger() if isinstance(record, Throttle)]


@pytest.mark.usefixtures("own_worker")
@pytest.mark.parametrize(("side", "api_key"), [("source", FETCH), ("target", PRODUCE)])
def test_a_throttled_lane_waits_tells_and_loses_nothing(
    side: str, api_key: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The throttle is longer than any deadline: no connection may be given up for it."""
    monkeypatch.setattr(fetcher, "FETCH_GRACE_S", 0.3)
    monkeypatch.setattr(sender, "REQUEST_TIMEOUT_MS", 300)
    monkeypatch.setattr(sender, "PRODUCE_GRACE_S", 0.0)
    quota = Quota(throttle_ms=600, times=2)

    async def test() -> None:
        async with LaneOnFakes() as world:
            cluster: FakeCluster = getattr(world, side)
            async with world.lane() as lane:
                world.source.append("t", 0, recent(0, size=HEAVY))
                await lane.until_copied(1)
                await lane.until(lambda: bool(world.ledger()))  # all connections are made
                before = connections(cluster)
                cluster.control(api_key, quota)
                for number in range(1, 12):
                    world.source.append("t", 0, recent(number, size=HEAVY))
                await lane.until_copied(12)
                await lane.until(lambda: bool(throttles(world)))
                assert connections(cluster) == before
            assert world.copied() == numbers(12)
            told = throttles(world)[0]
            assert told.cluster == cluster.alias
            assert told.client_id.startswith("test-0|")
            assert 0 < told.muted_ms <= 1300
            if side == "source":
                assert quota.early == 0, "requests sent in the time that the broker asked for"

    run(test())


# -- what is said


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_throttling_is_said_when_it_begins_and_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    clock = Clock()
    throttling = Throttling("a->b", clock)
    for _ in range(20):
        throttling.note("b", "me-0", 2.0)
        throttling.note("b", "me-1", 4.0)
        clock.now += 5
        assert 'throttled by "b"' in throttling.look()
    assert throttling.look() == 'throttled by "b" 48.0 s of the last 60 s'
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith('a->b: throttled by "b": 2.0 s so far; it has a quota')
    clock.now += QUIET_S
    assert throttling.look() == ""
    assert caplog.messages[1:] == [
        'a->b: no longer throttled by "b": it was for 95.0 s, and our clients waited 120.0 s in that time'
    ]
    assert throttling.total_s == {"b": 120.0}
    assert throttling.look() == ""
