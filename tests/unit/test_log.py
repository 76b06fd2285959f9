"""Small reads of one partition's log: nothing is left out because a leader does not show it yet."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.errors import EndUnseen
from heliograph.kafka import log
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import read_batches
from heliograph.mirror import tails
from heliograph.mirror.tails import SourceLog
from tests.fake_cluster import FETCH, Call, FakeCluster
from tests.unit.lanes import World, recent, run


@asynccontextmanager
async def five_records() -> AsyncIterator[tuple[FakeCluster, Cluster]]:
    """A log of five records, of which the leader shows three: it was elected a moment ago."""
    async with FakeCluster("b", topics={"t": 1}) as fake:
        for number in range(5):
            fake.append("t", 0, recent(number))
        fake.partition("t", 0).unreplicated = 2
        cluster = Cluster("b", fake.bootstrap, client_id="test")
        try:
            await cluster.refresh()
            yield fake, cluster
        finally:
            cluster.close()


async def offsets(cluster: Cluster, *, read_committed: bool = False) -> list[int]:
    found = read_batches(cluster, "t", 0, 0, 5, read_committed=read_committed)
    return [header.base_offset async for header, _ in found]


@pytest.mark.parametrize("read_committed", [False, True])
def test_what_a_new_leader_does_not_show_yet_is_waited_for(read_committed: bool) -> None:
    async def test() -> None:
        async with five_records() as (fake, cluster):
            reading = asyncio.ensure_future(offsets(cluster, read_committed=read_committed))
            await asyncio.sleep(0.4)
            assert not reading.done()
            fake.partition("t", 0).unreplicated = 0
            fake.notify()
            assert await reading == [0, 1, 2, 3, 4]

    run(test())


def test_a_log_that_is_not_shown_to_its_end_is_not_taken_for_a_shorter_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "SHOWN_S", 0.3)

    async def test() -> None:
        async with five_records() as (_, cluster):
            with pytest.raises(EndUnseen, match="end at offset 5, and its leader shows it up to 3 only"):
                await offsets(cluster)

    run(test())


def test_the_source_is_given_time_to_show_what_was_copied_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tails, "SHOWN_S", 1.0)

    async def test() -> None:
        async with five_records() as (fake, cluster), World() as world:
            source = SourceLog(cluster, world.assignments()[0], read_committed=False)
            found = []
            async for header, _ in source.batches(0):
                found.append(header.base_offset)
                if len(found) == 3:
                    asyncio.get_running_loop().call_later(0.4, show, fake)
            assert found == [0, 1, 2, 3, 4]

    def show(fake: FakeCluster) -> None:
        fake.partition("t", 0).unreplicated = 0
        fake.notify()

    run(test())


def test_the_empty_answer_of_a_broker_whose_quota_is_used_up_is_asked_again() -> None:
    throttled = 2

    async def quota(call: Call) -> Any:
        nonlocal throttled
        response = await call.proceed()
        if throttled:
            throttled -= 1
            response.throttle_time_ms, response.responses = 50, []
        return response

    async def test() -> None:
        async with five_records() as (fake, cluster):
            fake.partition("t", 0).unreplicated = 0
            fake.control(FETCH, quota)
            assert await offsets(cluster) == [0, 1, 2, 3, 4]
            assert throttled == 0

    run(test())
