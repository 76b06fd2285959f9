"""A ledger topic that loses its newest records: driver, standby and lanes read it again and agree again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import pytest

from heliograph.kafka.admin import topics
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.lost_records import lost_records
from heliograph.ledger.records.entry import encode_entry, encode_entry_key
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.page import Page, Run, encode_page
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.ledger.records.producer_claim import ProducerClaim
from tests.fake_cluster import FakeCluster
from tests.unit.flow.test_lease_holder import LEASE_MS, Contender, contenders, leases
from tests.unit.helpers.flows import flow_between
from tests.unit.helpers.lanes import GROUP, LEDGER, OWNER, LaneOnFakes, numbers, recent, run
from tests.unit.helpers.record_samples import GROUP as SAMPLES_GROUP
from tests.unit.helpers.record_samples import ledger_samples
from tests.unit.lane.test_lane_lease import TERM, renew
from tests.unit.ledger.test_formats import ACLS, ASKED, CONDITION, ENTRY, LOSS, PAGE
from tests.unit.ledger.test_formats import GROUP as SEEN_GROUP

WHERE = ("foo", 7)
CLAIM = ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T")


@pytest.fixture(autouse=True)
def _log(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")


# -- what is written again -----------------------------------------------------------------------


def ledger_of(*records: tuple[bytes | None, bytes | None]) -> Ledger:
    ledger = Ledger(group_id=SAMPLES_GROUP)
    for record in records:
        ledger.take(*record)
    return ledger


def entry_record(**fields: int) -> tuple[bytes, bytes]:
    return encode_entry_key(SAMPLES_GROUP, *WHERE), encode_entry(ENTRY.moved(**fields))


def state(ledger: Ledger) -> tuple[object, ...]:
    """All that must not be lost."""
    pages = {
        where: sorted((page.start, page.end) for page in known.pages) for where, known in ledger.partitions.items()
    }
    parts = (ledger.claim, ledger.entries, ledger.losses, ledger.acls, ledger.asked, ledger.condition, ledger.groups)
    return (*parts, ledger.position_requests, pages)


def test_all_that_a_lost_tail_held_is_written_again() -> None:
    before = ledger_of(*ledger_samples())
    now = Ledger(group_id=SAMPLES_GROUP)
    lost = lost_records(before, now)
    for record in lost:
        now.take(*record)
    assert state(now) == state(before)
    assert (now.claim, now.acls[ACLS.resource], now.asked, now.condition) == (before.claim, ACLS, ASKED, CONDITION)
    assert now.losses[LOSS.key] == LOSS
    assert now.groups["billing"] == SEEN_GROUP
    assert lost_records(before, now) == []


def test_what_is_newer_in_the_ledger_stays() -> None:
    before = ledger_of(entry_record(n=5), CLAIM.encode(SAMPLES_GROUP))
    other = replace(CLAIM, token="u", producer_id=6)
    now = ledger_of(entry_record(n=9), other.encode(SAMPLES_GROUP))
    assert lost_records(before, now) == []


def test_a_page_that_was_deleted_does_not_come_back_and_a_newer_one_stays() -> None:
    page = encode_page(SAMPLES_GROUP, *WHERE, 100, PAGE)
    behind = Page.of(400, 500, ENTRY.count, [Run(400, 600, 100)], target=0)
    newer = encode_page(SAMPLES_GROUP, *WHERE, 400, behind)
    before = ledger_of(page, (page[0], None), entry_record(run_source=300, source_offset=350))
    now = ledger_of(page, newer, entry_record(run_source=90, source_offset=95, n=2))
    assert lost_records(before, now) == [(page[0], None), entry_record(run_source=300, source_offset=350)]


def test_a_wish_that_was_fulfilled_does_not_come_back() -> None:
    wish = PositionRequest(topic="foo", partition=7, time_ms=ENTRY.time_ms - 1, offset=3)
    fresh = replace(wish, partition=8, time_ms=ENTRY.time_ms + 1)
    before = ledger_of(entry_record())
    now = ledger_of(entry_record(), wish.encode(SAMPLES_GROUP), fresh.encode(SAMPLES_GROUP))
    assert lost_records(before, now) == [(wish.encode(SAMPLES_GROUP)[0], None)]


# -- reading again -------------------------------------------------------------------------------


@asynccontextmanager
async def read_ledger_of(*records: tuple[bytes, bytes | None]) -> AsyncIterator[tuple[FakeCluster, Cluster, Ledger]]:
    async with FakeCluster("b", topics={LEDGER: 1}) as fake:
        cluster = Cluster("b", fake.bootstrap, client_id="c")
        for record in records:
            fake.append(LEDGER, 0, [NewRecord(0, *record)])
        await cluster.refresh([LEDGER])
        try:
            yield fake, cluster, await store.read_ledger(cluster, LEDGER, SAMPLES_GROUP)
        finally:
            cluster.close()


@pytest.mark.parametrize("way", ["read on", "follow"])
@pytest.mark.parametrize("grown", ["not", "to the same end", "further"])
def test_a_reader_of_a_truncated_ledger_reads_it_again(way: str, grown: str) -> None:
    """Also where it has grown again to what was read, or beyond, before anybody looked."""

    async def test() -> None:
        async with read_ledger_of(entry_record(n=1), entry_record(n=2), entry_record(n=3)) as (fake, cluster, ledger):
            log = fake.partition(LEDGER, 0)
            log.truncate(1)
            log.begin_epoch()
            other = CLAIM.encode(SAMPLES_GROUP)
            more = {"not": 0, "to the same end": 2, "further": 4}[grown]
            for _ in range(more):
                fake.append(LEDGER, 0, [NewRecord(0, *other)])
            if way == "read on":
                await store.read_on(cluster, LEDGER, ledger)
                if grown == "to the same end":  # there is nothing to read: the next one who does finds out
                    fake.append(LEDGER, 0, [NewRecord(0, *other)])
                    await store.read_on(cluster, LEDGER, ledger)
            else:
                await store.follow(cluster, LEDGER, ledger, max_wait_ms=100)
            assert ledger.generation == 1
            assert ledger.end == log.end
            assert ledger.entries[WHERE].n == 3, "what was read is still known"
            assert (ledger.claim is not None) == bool(more)
            assert len(ledger.lost) == 1
            assert await store.write_lost(cluster, LEDGER, ledger) == 1
            assert (await store.read_ledger(cluster, LEDGER, SAMPLES_GROUP)).entries[WHERE].n == 3
            fake.append(LEDGER, 0, [NewRecord(0, *entry_record(n=4))])
            await store.follow(cluster, LEDGER, ledger, max_wait_ms=100)
            await store.follow(cluster, LEDGER, ledger, max_wait_ms=100)
            assert (ledger.entries[WHERE].n, ledger.generation, ledger.lost) == (4, 1, {})

    run(test())


def test_a_ledger_that_was_not_truncated_is_not_read_again_whoever_leads_it() -> None:
    async def test() -> None:
        async with read_ledger_of(entry_record(n=1)) as (fake, cluster, ledger):
            for n in range(2, 8):
                fake.partition(LEDGER, 0).begin_epoch()
                fake.append(LEDGER, 0, [NewRecord(0, *entry_record(n=n))])
                if n % 2:
                    await store.follow(cluster, LEDGER, ledger, max_wait_ms=100)
                else:
                    await store.read_on(cluster, LEDGER, ledger)
                assert (ledger.entries[WHERE].n, ledger.generation) == (n, 0)

    run(test())


def test_what_is_followed_while_its_end_is_asked_for_is_no_truncation(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with read_ledger_of(entry_record(n=1)) as (fake, cluster, ledger):

            async def end_offsets(*args: Any, **fields: Any) -> dict[TopicPartition, int]:
                answer = await topics.end_offsets(*args, **fields)
                fake.append(LEDGER, 0, [NewRecord(0, *entry_record(n=2))])
                await store.follow(cluster, LEDGER, ledger, max_wait_ms=1000)
                return answer

            monkeypatch.setattr(store, "end_offsets", end_offsets)
            await store.read_on(cluster, LEDGER, ledger)
            assert (ledger.generation, ledger.end, ledger.entries[WHERE].n) == (0, 2, 2)

    run(test())


def test_records_that_another_writes_again_first_are_not_written_over_it() -> None:
    async def test() -> None:
        async with read_ledger_of(entry_record(n=1), entry_record(n=2)) as (fake, cluster, ledger):
            fake.partition(LEDGER, 0).truncate(1)
            await store.read_on(cluster, LEDGER, ledger)
            assert len(ledger.lost) == 1
            fake.append(LEDGER, 0, [NewRecord(0, *entry_record(n=9))])
            await store.read_on(cluster, LEDGER, ledger)
            assert ledger.lost == {}
            assert await store.write_lost(cluster, LEDGER, ledger) == 0

    run(test())


@pytest.mark.parametrize("is_read", [True, False])
def test_a_leader_writes_again_its_claim_and_its_counts(is_read: bool) -> None:
    async def test() -> None:
        async with flow_between({"orders": 2}) as world:
            flow = world.flow
            await flow.opening.open()
            await flow.prepare()
            if is_read:
                await flow.opening.open()
            whole = await store.read_ledger(flow.target, flow.ledger_topic, flow.flow.group_id)
            log = world.target.partition(flow.ledger_topic, 0)
            log.truncate(0)
            log.begin_epoch()
            await flow.opening.open()
            assert flow.ledger.generation == 1
            await flow.opening.write_lost(flow.table.known)
            found = await store.read_ledger(flow.target, flow.ledger_topic, flow.flow.group_id)
            assert (found.claim, set(found.entries)) == (whole.claim, {("orders", 0), ("orders", 1)})
            assert not is_read or state(found) == state(whole)

    run(test())


# -- the lease -----------------------------------------------------------------------------------


def leading(*all_of_them: Contender) -> list[str]:
    return [contender.me.owner for contender in all_of_them if contender.lease_holder.leads()]


def agree(*all_of_them: Contender) -> bool:
    """Whether one of them leads, and all know it."""
    owners = leading(*all_of_them)
    return len(owners) == 1 and all(
        seen.flow.ledger.leadership.is_led_by(leader.me.owner, leader.lease_holder.term)
        for leader in all_of_them
        if leader.me.owner == owners[0]
        for seen in all_of_them
    )


def test_a_leader_whose_bid_is_lost_rests_bids_again_and_no_other_leads_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with contenders("a", "b") as (cluster, _, (first, second)):
            await first.come_to_lead()
            waiting = asyncio.ensure_future(second.come_to_lead())
            await cluster.wait_until(lambda: "b" in second.flow.ledger.standbys)
            holding = first.hold()
            log = cluster.partition(LEDGER, 0)
            log.truncate(0)
            log.begin_epoch()
            cluster.append(LEDGER, 0, [NewRecord(0, b"x", b"y")])  # who fetches hears of it
            await cluster.wait_until(lambda: first.flow.ledger.generation > 0 and second.flow.ledger.generation > 0)
            await cluster.wait_until(lambda: leading(first, second) == ["a"])
            assert first.lease_holder.term == 2, "higher than any that was ever seen"
            await cluster.wait_until(lambda: second.flow.ledger.leadership.is_led_by("a", 2))
            assert not waiting.done()
            assert not holding.done()
            waiting.cancel()
            assert "lost records" in caplog.text

    run(test())


def test_a_leader_that_hears_nothing_finds_out_when_it_renews() -> None:
    """Its record stands where another one was read before."""

    async def test() -> None:
        async with contenders("a") as (cluster, watch, (first,)):
            await first.come_to_lead()
            for task in first.tasks:
                task.cancel()  # deaf
            cluster.append(LEDGER, 0, [NewRecord(0, b"x", b"y")] * 5)
            await first.open()
            log = cluster.partition(LEDGER, 0)
            log.truncate(0)
            log.begin_epoch()
            watch.now += 3
            await first.lease_holder._renew()
            assert first.flow.ledger.generation == 1
            assert not first.lease_holder.leads()

    run(test())


def test_who_never_saw_the_lost_bid_and_who_made_it_do_not_both_lead_for_longer_than_the_lease() -> None:
    """The log says that the leader before gave back: a new process bids at once, with the term that was lost."""

    async def test() -> None:
        async with contenders("a", "b", "c") as (cluster, watch, (first, second, third)):
            await first.come_to_lead()
            await first.lease_holder.release()
            end = cluster.partition(LEDGER, 0).end
            await second.come_to_lead()
            assert second.lease_holder.term == 2
            log = cluster.partition(LEDGER, 0)
            log.truncate(end)
            log.begin_epoch()
            began = watch.now
            await third.come_to_lead()
            assert third.lease_holder.term == 2
            second.hold()
            third.hold()
            await cluster.wait_until(lambda: agree(second, third))
            assert watch.now - began < LEASE_MS / 1000
            assert max(record.term for record in leases(cluster)) == 3

    run(test())


def test_a_standby_that_saw_the_lost_bid_waits_for_its_lease() -> None:
    async def test() -> None:
        async with contenders("a", "b", "c") as (cluster, watch, (first, second, third)):
            await first.come_to_lead()
            await first.lease_holder.release()
            end = cluster.partition(LEDGER, 0).end
            await second.come_to_lead()
            await third.open()
            log = cluster.partition(LEDGER, 0)
            log.truncate(end)
            log.begin_epoch()
            await third.open()
            assert third.flow.ledger.leadership.is_led_by("b", 2), "terms only go up"
            assert not third.lease_holder.may_bid()
            watch.now += LEASE_MS / 1000 + 0.1
            assert await third.lease_holder.bid()
            assert third.lease_holder.term == 3

    run(test())


# -- lanes ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("log_start", [0, 3])
def test_a_lane_whose_ledger_was_truncated_reads_it_from_its_real_start_and_hears_of_its_leader(log_start: int) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for _ in range(6):
                renew(world)
            async with world.lane(term=TERM, lease_ms=1500) as lane:
                world.source.append("t", 0, recent(0, 2))
                await lane.until_copied(2)
                log = world.target.partition(LEDGER, 0)
                log.expire(log_start)
                log.truncate(4)
                log.begin_epoch()
                for number in range(2, 10):
                    await asyncio.sleep(0.25)
                    renew(world)
                    world.source.append("t", 0, recent(number, 1))
                await lane.until_copied(10)
                assert not lane.task.done()
                renew(world, "another", TERM + 1)
                await lane.end()
            assert world.copied() == numbers(10)

    run(test())


def test_renewals_that_are_read_again_are_no_sign_of_life() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for _ in range(3):
                renew(world)
            async with world.lane(term=TERM, lease_ms=1000) as lane:
                loop = asyncio.get_running_loop()
                began = loop.time()
                world.source.append("t", 0, recent(0, 2))
                await lane.until_copied(2)
                log = world.target.partition(LEDGER, 0)
                while not lane.task.done() and loop.time() - began < 5:
                    log.truncate(2)
                    log.begin_epoch()
                    renew(world, "nobody")
                    await asyncio.sleep(0.05)
                assert lane.task.done()
                assert loop.time() - began < 2.5

    run(test())


def test_a_lane_that_begins_beyond_the_end_of_its_ledger_copies() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            holder = Process(owner=OWNER, host="h", pid=1)
            lease = Lease(holder=holder, term=TERM, state=LeaseState.HELD, since_ms=0, time_ms=0, lease_ms=60_000)
            world.target.append(LEDGER, 0, [NewRecord(0, *lease.encode(GROUP))] * 4)
            world.target.partition(LEDGER, 0).expire(2)
            async with world.lane(term=TERM, lease_ms=60_000, ledger_end=50) as lane:
                world.source.append("t", 0, recent(0, 2))
                await lane.until_copied(2)

    run(test())
