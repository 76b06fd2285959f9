"""The headers of batches, of many partitions at once and within limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from heliograph.kafka import batch_headers
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.batch_headers import FirstBatch, first_batches
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from tests.fake_cluster import FETCH, FakeCluster


def look(fake: FakeCluster, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, FirstBatch]:
    async def test() -> dict[TopicPartition, FirstBatch]:
        async with fake:
            cluster = Cluster(fake.alias, fake.bootstrap, client_id="c")
            try:
                await cluster.refresh()
                return await first_batches(cluster, wanted)
            finally:
                cluster.close()

    return asyncio.run(test())


def records(number: int, size: int = 1) -> list[NewRecord]:
    return [NewRecord(0, b"k", bytes(size)) for _ in range(number)]


def fetches(fake: FakeCluster) -> list[Any]:
    return [call for call in fake.calls if call.api_key == FETCH]


@pytest.mark.parametrize("version", [11, 16], ids=["by name", "by id"])
def test_the_batch_that_holds_an_offset_is_found(version: int) -> None:
    fake = FakeCluster("b", brokers=2, topics={"t": 4, "u": 1})
    fake.versions[FETCH] = (4, version)
    for topic, partition in (("t", 0), ("t", 1), ("t", 3), ("u", 0)):
        for number in (3, 2):
            fake.append(topic, partition, records(number))
    fake.partition("t", 3).expire(3)
    wanted = {TopicPartition("t", 0): 4, TopicPartition("t", 1): 1, TopicPartition("t", 2): 0}
    found = look(fake, wanted | {TopicPartition("t", 3): 0, TopicPartition("u", 0): 2, TopicPartition("no", 0): 0})
    places = {where: batch.header.base_offset for where, batch in found.items() if batch.header is not None}
    assert places == {TopicPartition("t", 0): 3, TopicPartition("t", 1): 0, TopicPartition("u", 0): 0}
    assert found[TopicPartition("t", 2)] == FirstBatch()
    assert found[TopicPartition("t", 3)] == FirstBatch(error_code=1)
    assert TopicPartition("no", 0) not in found
    assert len(fetches(fake)) <= 2 + len(places), "a request for each leader, and again for what had no room"


def test_answers_are_bounded_and_every_batch_is_fetched_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_headers, "ANSWER_BYTES", 100_000)
    monkeypatch.setattr(batch_headers, "AT_A_TIME", 20)
    monkeypatch.setattr(batch_headers, "PARTITION_BYTES", 30_000)
    fake, sizes = FakeCluster("b", topics={"t": 60}), []
    for partition in range(60):
        fake.append("t", partition, records(1, size=200_000 if partition % 20 == 7 else 10_000))
    fake.topics["t"].partitions[5].truncate(0)

    async def measure(call: Any) -> Any:
        response = await call.proceed()
        sizes.append(sum(len(answer.records or b"") for topic in response.responses for answer in topic.partitions))
        return response

    fake.control(FETCH, measure)
    found = look(fake, {TopicPartition("t", partition): 0 for partition in range(60)})
    assert {where.partition for where, batch in found.items() if batch.header is None} == {5}
    assert len(found) == 60
    assert max(sizes) < 310_000
    assert sum(sizes) == sum(len(batch) for part in fake.topics["t"].partitions for batch in part.batches)


def test_an_answer_that_a_quota_left_empty_is_asked_for_again() -> None:
    fake, seen = FakeCluster("b", topics={"t": 1}), 0
    fake.append("t", 0, records(1))

    async def throttle(call: Any) -> Any:
        nonlocal seen
        response = await call.proceed()
        seen += 1
        if seen == 1:
            response.responses, response.throttle_time_ms = [], 10
        return response

    fake.control(FETCH, throttle)
    assert look(fake, {TopicPartition("t", 0): 0})[TopicPartition("t", 0)].header is not None
