"""Small reads and appends of one partition's log: nothing is left out because a leader does not show it yet, and no
batch is larger than its topic takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import BrokerRefused, EndUnseen
from heliograph.kafka import log
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import Group, append, append_all, cut, read_batches
from heliograph.kafka.types import TopicPartition
from heliograph.lane import settling_logs
from heliograph.lane.settling_logs import SourceLog
from tests.fake_cluster import FETCH, PRODUCE, Call, FakeCluster
from tests.unit.helpers.lanes import LaneOnFakes, recent, run


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
    monkeypatch.setattr(settling_logs, "SHOWN_S", 1.0)

    async def test() -> None:
        async with five_records() as (fake, cluster), LaneOnFakes() as world:
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


# -- appends ---------------------------------------------------------------------------------

T = TopicPartition("t", 0)
sizes = st.lists(st.lists(st.integers(0, 300), min_size=1, max_size=4), max_size=30)


def groups_of(group_sizes: list[list[int]]) -> list[Group]:
    """Groups of records with values of such sizes; a key tells the group and the place in it."""
    return [
        [(b"%d.%d" % (number, place), bytes(size)) for place, size in enumerate(group)]
        for number, group in enumerate(group_sizes)
    ]


@given(group_sizes=sizes, max_bytes=st.integers(100, 2_000))
def test_batches_are_cut_between_groups_and_within_the_limit(group_sizes: list[list[int]], max_bytes: int) -> None:
    groups = groups_of(group_sizes)
    batches = list(cut(groups, max_bytes))
    assert [group for batch in batches for group in batch] == groups
    assert all(len(log._encoded(batch, 1)) <= max_bytes for batch in batches if len(batch) > 1)


@asynccontextmanager
async def appending(max_message_bytes: int) -> AsyncIterator[tuple[FakeCluster, Cluster]]:
    async with FakeCluster("b", topics={"t": 2}) as fake:
        for index in range(2):
            fake.partition("t", index).max_message_bytes = max_message_bytes
        cluster = Cluster("b", fake.bootstrap, client_id="test")
        try:
            await cluster.refresh()
            yield fake, cluster
        finally:
            cluster.close()


def keys_by_batch(fake: FakeCluster, partition: int = 0) -> list[set[int]]:
    """The groups of each batch that stands there."""
    log_of = fake.partition("t", partition)
    batches = [(header.base_offset, header.next_offset) for header in log_of.headers()]
    groups = {record.offset: int((record.key or b"").split(b".")[0]) for record in log_of.records()}
    return [{groups[offset] for offset in range(*batch)} for batch in batches]


def test_more_than_a_topic_takes_at_once_is_cut_before_it_is_sent() -> None:
    async def test() -> None:
        async with appending(1_048_588) as (fake, cluster):
            groups = groups_of([[900, 100]] * 3000)
            await append_all(cluster, {T: groups, TopicPartition("t", 1): groups[:10]}, now_ms=1)
            written = keys_by_batch(fake)
            assert sorted(number for batch in written for number in batch) == list(range(3000))
            assert sum(call.api_key == PRODUCE for call in fake.calls) == len(written)
            assert [record.key for record in fake.partition("t", 0).records()] == [key for g in groups for key, _ in g]
            assert keys_by_batch(fake, 1) == [set(range(10))]

    run(test())


def test_a_limit_that_is_not_known_is_found_and_groups_stay_whole_while_they_fit() -> None:
    async def test() -> None:
        async with appending(2_000) as (fake, cluster):
            await append_all(cluster, {T: groups_of([[300, 300]] * 10)}, now_ms=1)
            written = keys_by_batch(fake)
            assert sorted(number for batch in written for number in batch) == list(range(10))

    run(test())


def test_a_group_that_does_not_fit_is_written_in_its_order_and_a_record_that_does_not_is_refused() -> None:
    async def test() -> None:
        async with appending(1_000) as (fake, cluster):
            await append_all(cluster, {T: groups_of([[600, 600, 10]])}, now_ms=1)
            assert [record.key for record in fake.partition("t", 0).records()] == [b"0.0", b"0.1", b"0.2"]
            assert await append(cluster, *T, [(b"k", bytes(600)), (b"k", bytes(600))], now_ms=1) == 3
            with pytest.raises(BrokerRefused, match="MESSAGE_TOO_LARGE"):
                await append(cluster, *T, [(b"k", bytes(1_100))], now_ms=1)

    run(test())
