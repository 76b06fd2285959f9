"""One process's part in a lease, on a fake cluster: races, silence, lost and late answers, giving back."""

from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import pytest

from heliograph.errors import LeaseLost
from heliograph.flow.lease_holder import LeaseHolder
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.process_identity import is_gone, this_process
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.table import parse_ledger
from tests.fake_cluster import PRODUCE, FakeCluster
from tests.unit.helpers.lanes import GROUP, LEDGER, run

LEASE_MS = 6000
NOT_ENOUGH_REPLICAS = 19


class Watch:
    """A clock that tests move."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@dataclass
class Flow:
    target: Cluster
    ledger: Ledger
    name: str = "a->b"
    ledger_topic: str = LEDGER
    wants_reopening: bool = False


class Contender:
    """A process that follows the ledger, as a driver does."""

    def __init__(self, cluster: FakeCluster, name: str, watch: Watch) -> None:
        self.me = Process(owner=name, host=f"host-{name}", pid=1)
        client = Cluster("b", cluster.bootstrap, client_id=name)
        self.flow = Flow(client, Ledger(group_id=GROUP, clock=watch))
        self.changes = 0
        self.lease_holder = LeaseHolder(
            self.flow, self.me, lease_ms=lambda: LEASE_MS, on_change=self._on_change, clock=watch
        )
        self.tasks: list[asyncio.Task[None]] = []

    def _on_change(self) -> None:
        self.changes += 1

    async def open(self) -> None:
        await self.flow.target.refresh([LEDGER])
        await store.read_on(self.flow.target, LEDGER, self.flow.ledger)

    async def follow(self) -> None:
        ledger = self.flow.ledger
        while True:
            generation = ledger.generation
            words = await store.follow(self.flow.target, LEDGER, ledger, max_wait_ms=5000)
            if ledger.generation != generation or any(isinstance(word, Lease) for word in words):
                self.lease_holder.stir()

    async def come_to_lead(self) -> None:
        await self.open()
        self.tasks.append(asyncio.ensure_future(self.follow()))
        while not await self.lease_holder.bid():
            await self.lease_holder.wait_until_free()

    def hold(self) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self.lease_holder.hold(self.open))
        self.tasks.append(task)
        return task

    async def close(self) -> None:
        for task in self.tasks:
            task.cancel()
        await asyncio.gather(*self.tasks, return_exceptions=True)
        self.flow.target.close()


@asynccontextmanager
async def contenders(*names: str) -> AsyncIterator[tuple[FakeCluster, Watch, list[Contender]]]:
    watch = Watch()
    async with FakeCluster("b", topics={LEDGER: 1}) as cluster:
        found = [Contender(cluster, name, watch) for name in names]
        try:
            yield cluster, watch, found
        finally:
            for contender in found:
                await contender.close()


def leases(cluster: FakeCluster) -> list[Lease]:
    found = [parse_ledger(GROUP, item.key, item.value) for item in cluster.partition(LEDGER, 0).records()]
    return [record for record in found if isinstance(record, Lease)]


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")


def test_of_those_who_bid_at_the_same_moment_one_leads() -> None:
    async def test() -> None:
        async with contenders("a", "b", "c") as (cluster, _, everybody):
            await asyncio.gather(*(contender.open() for contender in everybody))
            won = await asyncio.gather(*(contender.lease_holder.bid() for contender in everybody))
            assert sum(won) == 1
            assert [contender.lease_holder.leads() for contender in everybody] == won
            assert len([record for record in leases(cluster) if record.state is LeaseState.HELD]) == 1

    run(test())


def test_who_waits_takes_over_from_a_silent_leader_and_says_from_whom(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with contenders("a", "b") as (cluster, watch, (first, second)):
            await first.come_to_lead()
            waiting = asyncio.ensure_future(second.come_to_lead())
            await cluster.wait_until(lambda: "host host-a (pid 1) leads; standing by" in caplog.text)
            watch.now += 5.9
            second.lease_holder.stir()
            await asyncio.sleep(0.05)
            assert not waiting.done()
            watch.now += 0.2
            second.lease_holder.stir()
            await waiting
            assert second.lease_holder.leads()
            assert second.lease_holder.term == 2
            assert not first.lease_holder.leads()
            assert "a->b: taking over from host host-a (pid 1), silent for 6.1 s" in caplog.text
            assert second.lease_holder.other() == "host host-a (pid 1)"

    run(test())


def test_who_was_stopped_while_another_took_over_finds_out_before_he_writes(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with contenders("a", "b") as (_, watch, (first, second)):
            await first.come_to_lead()
            await second.open()
            watch.now += 7
            assert not first.lease_holder.leads()
            with pytest.raises(LeaseLost, match="does not lead"):
                first.lease_holder.check()
            assert await second.lease_holder.bid()
            await asyncio.wait_for(first.hold(), 5)
            assert "a->b: stepping down: host host-b (pid 1) leads now; standing by" in caplog.text
            assert first.changes == 2

    run(test())


def test_a_leader_renews_and_steps_down_at_once_for_a_higher_term() -> None:
    async def test() -> None:
        async with contenders("a") as (cluster, watch, (first,)):
            await first.come_to_lead()
            holding = first.hold()

            async def until_more_than(count: int) -> None:
                await cluster.wait_until(lambda: len(leases(cluster)) > count)

            for _ in range(5):
                count = len(leases(cluster))
                watch.now += 2.0
                first.lease_holder.stir()
                await until_more_than(count)
                await cluster.wait_until(lambda: first.flow.ledger.end == cluster.partition(LEDGER, 0).end)
                assert first.lease_holder.leads()
            other = replace(leases(cluster)[-1], holder=Process(owner="z", host="z", pid=3), term=2)
            cluster.append(LEDGER, 0, [NewRecord(0, *other.encode(GROUP))])
            await asyncio.wait_for(holding, 5)
            assert not first.lease_holder.leads()

    run(test())


def test_a_leader_who_cannot_renew_rests_and_goes_on_when_nobody_took_over(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with contenders("a") as (cluster, watch, (first,)):
            await first.come_to_lead()
            cluster.refuse(PRODUCE, LEDGER, 0, NOT_ENOUGH_REPLICAS, times=10_000)
            holding = first.hold()
            watch.now += 6.1
            first.lease_holder.stir()
            await cluster.wait_until(lambda: "copying rests until it is clear who leads" in caplog.text)
            assert not first.lease_holder.leads()
            cluster.relent()
            await cluster.wait_until(first.lease_holder.leads)
            assert first.lease_holder.term == 2
            assert not holding.done()

    run(test())


def test_a_lease_given_back_is_taken_at_once() -> None:
    async def test() -> None:
        async with contenders("a", "b") as (cluster, watch, (first, second)):
            await first.come_to_lead()
            waiting = asyncio.ensure_future(second.come_to_lead())
            await cluster.wait_until(lambda: "b" in second.flow.ledger.standbys)
            began = watch.now
            await first.lease_holder.release()
            await asyncio.wait_for(waiting, 5)
            assert second.lease_holder.leads()
            assert watch.now == began
            await second.open()
            assert not second.flow.ledger.standbys, "a leader does not stand by"

    run(test())


def test_a_renewal_that_lands_beside_a_bid_keeps_the_winner_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with contenders("a", "b") as (cluster, watch, (first, second)):
            await first.come_to_lead()
            await second.open()
            late = leases(cluster)[-1]
            watch.now += 6.0
            write = store.write_records

            async def write_after_the_renewal(
                target: Cluster, topic: str, group_id: str, records: Iterable[LedgerRecord], *, now_ms: int
            ) -> int:
                cluster.append(LEDGER, 0, [NewRecord(0, *late.encode(GROUP))])
                return await write(target, topic, group_id, records, now_ms=now_ms)

            async def sleep(seconds: float) -> None:
                waited.append(seconds)
                watch.now += seconds

            waited: list[float] = []
            monkeypatch.setattr(store, "write_records", write_after_the_renewal)
            monkeypatch.setattr("heliograph.flow.lease_holder.asyncio.sleep", sleep)
            assert not await second.lease_holder.bid()
            assert waited == [6.0]
            monkeypatch.setattr(store, "write_records", write)
            assert await second.lease_holder.bid()
            assert waited == [6.0]

    run(test())


def test_a_dead_process_of_this_host_is_known_and_a_living_one_too() -> None:
    here = this_process()
    assert not is_gone(here, here)
    assert is_gone(replace(here, born=here.born + 1), here), "its id belongs to another process now"
    assert not is_gone(replace(here, born=here.born + 1, place="another boot"), here)
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    assert is_gone(replace(here, pid=child.pid), here)


def test_nobody_waits_for_the_lease_of_a_dead_process_of_this_host(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        async with contenders("a", "b") as (_, _, (first, second)):
            here = this_process()
            first.lease_holder._me = replace(here, owner="a", born=here.born + 1)
            second.lease_holder._me = replace(here, owner="b")
            await first.come_to_lead()
            await second.open()
            assert await second.lease_holder.bid()
            assert "who led, is dead" in caplog.text

    run(test())
