"""A lane and the lease of its leader: it does not outlive it, and where two lanes write at once nothing repeats."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import pytest

from heliograph.clock import host_clock
from heliograph.kafka.batch import NewRecord
from heliograph.lane import leader_watch
from heliograph.lane.lane import Lane
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import FETCH, Call
from tests.unit.helpers.lanes import GROUP, LEDGER, OWNER, LaneOnFakes, numbers, recent, run

TERM = 4


def renew(world: LaneOnFakes, owner: str = OWNER, term: int = TERM) -> None:
    holder = Process(owner=owner, host="h", pid=1)
    lease = Lease(holder=holder, term=term, state=LeaseState.HELD, since_ms=0, time_ms=0, lease_ms=6000)
    world.target.append(LEDGER, 0, [NewRecord(0, *lease.encode(GROUP))])


def test_a_lane_ends_at_once_when_another_leads() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world, world.lane(term=TERM, lease_ms=60_000) as lane:
            world.source.append("t", 0, recent(0, 2))
            await lane.until_copied(2)
            began = time.monotonic()
            renew(world, "another", TERM + 1)
            await lane.end()
            assert time.monotonic() - began < 2.0

    run(test())


@pytest.mark.parametrize("word", ["another leads", "an order to end"])
def test_a_lane_that_starts_late_sends_nothing_before_it_has_heard_what_happened(word: str) -> None:
    """As on an executor that stood still between the plan and the start of its task."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            terms = world.terms(duration_ms=60_000, term=TERM, lease_ms=60_000)
            if word == "another leads":
                renew(world, "another", TERM + 1)
            else:
                world.order()
            world.target.control(FETCH, slowly)
            world.source.append("t", 0, recent(0, 2))
            await asyncio.wait_for(Lane(0, world.assignments(), terms).run(), 10)
            assert world.copied() == []

    async def slowly(call: Call) -> Any:
        await asyncio.sleep(0.3)
        return await call.proceed()

    run(test())


def test_a_lane_hears_its_leader_although_the_ledgers_broker_is_cut_off() -> None:
    """Renewals go to the new leader of the ledger's partition; the old one answers that there is nothing new."""

    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            renew(world)
            async with world.lane(term=TERM, lease_ms=6000, flush_ms=60_000) as lane:
                world.source.append("t", 0, recent(0, 2))
                await lane.until_copied(2)
                world.target.cut_off(1)

                def hears_the_new_leader() -> bool:
                    renew(world)
                    return any((call.api_key, call.node_id) == (FETCH, 2) for call in world.target.calls)

                await lane.until(hears_the_new_leader)

    run(test())


def test_a_lane_goes_on_while_it_hears_of_its_leader_and_ends_when_it_does_not() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world, world.lane(term=TERM, lease_ms=1500) as lane:
            for _ in range(8):
                await asyncio.sleep(0.25)
                renew(world)
                renew(world, "a loser", TERM)
                renew(world, "a former one", TERM - 1)
            assert not lane.task.done()
            began = time.monotonic()
            await lane.end()
            assert 0.8 < time.monotonic() - began < 5

    run(test())


@pytest.mark.parametrize("renewed", ["never", "while it stood still", "when it wakes"])
def test_a_lane_that_stood_still_too_long_sends_and_writes_nothing_more(
    renewed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world, world.lane(term=TERM, lease_ms=60_000) as lane:
            world.source.append("t", 0, recent(0, 2))
            await lane.until_copied(2)
            await lane.until_entry(2)
            now = host_clock()
            if renewed == "while it stood still":
                renew(world)  # it is read when the clock has jumped, and may answer a question from before
            monkeypatch.setattr(leader_watch, "host_clock", lambda: now + 60)
            if renewed == "when it wakes":
                renew(world)
            world.source.append("t", 0, recent(2, 2))
            end = world.target.partition(LEDGER, 0).end
            await lane.end()
            assert world.copied() == numbers(2)
            assert world.target.partition(LEDGER, 0).end == end

    run(test())


def test_where_two_lanes_write_at_once_the_log_is_exact_and_the_second_writer_is_named() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            terms = world.terms(duration_ms=60_000)
            other = Lane(1, world.assignments(), replace(terms, owner="another"))
            task: asyncio.Task[Any] = asyncio.ensure_future(other.run())
            try:
                async with world.lane() as lane:
                    for start in range(0, 400, 5):
                        world.source.append("t", 0, recent(start, 5))
                        await asyncio.sleep(0.005)
                    await lane.until_copied(400)
                    await lane.until(lambda: bool(told(world)))
                    await lane.until_entry(400)
                world.order(owner="another")
                await asyncio.wait_for(task, 10)
            finally:
                task.cancel()
            assert world.copied() == numbers(400)
            assert "another process copied the same partition" in told(world)[0]

    def told(world: LaneOnFakes) -> list[str]:
        return [
            record.text
            for record in world.ledger()
            if isinstance(record, Trouble) and record.code == "SECOND_WRITER" and not record.final
        ]

    run(test())
