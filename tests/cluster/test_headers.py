"""Real brokers' rule for what fits into a fetch answer, by which many headers are read at once."""

from __future__ import annotations

import time

import pytest

from heliograph.kafka import batch_headers
from heliograph.kafka.batch_headers import FirstBatch, first_batches
from heliograph.kafka.cluster import Cluster as Client
from heliograph.kafka.log import append
from heliograph.kafka.security.client_security import PLAINTEXT
from heliograph.kafka.types import TopicPartition
from heliograph.lab import LabCluster
from tests.cluster.limited import ask
from tests.cluster.mirror import View, create_topic, unique, wait_until

PARTITIONS = 12


@pytest.mark.parametrize("alias", ["backup", "mid"], ids=["4.3.1", "3.9.1"])
def test_every_header_is_found_although_the_answers_have_no_room_for_all(
    alias: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Batches of 1 to 100 kB in answers of 60 kB, 30 kB of each partition; one partition is empty."""
    monkeypatch.setattr(batch_headers, "ANSWER_BYTES", 60_000)
    monkeypatch.setattr(batch_headers, "PARTITION_BYTES", 30_000)
    cluster: LabCluster = request.getfixturevalue(alias)
    topic = create_topic(cluster, unique("headers"), PARTITIONS)
    wait_until(View(cluster, topic).counts, what="a leader of each partition")
    sizes = [1_000, 100_000, 20_000] * (PARTITIONS // 3)

    async def look(client: Client) -> dict[TopicPartition, FirstBatch]:
        await client.refresh([topic])
        now_ms = int(time.time() * 1000)
        for partition, size in enumerate(sizes[:-1]):
            for _ in range(2):
                await append(client, topic, partition, [(b"k", bytes(size)), (b"k", b"")], now_ms=now_ms)
        return await first_batches(client, {TopicPartition(topic, partition): 3 for partition in range(PARTITIONS)})

    found = ask(cluster.bootstrap, PLAINTEXT, look)
    assert found.pop(TopicPartition(topic, PARTITIONS - 1)) == FirstBatch(error_code=1), "it ends before the offset"
    assert {batch.header and batch.header.base_offset for batch in found.values()} == {2}
    assert len(found) == PARTITIONS - 1
