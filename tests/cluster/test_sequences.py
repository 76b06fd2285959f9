"""Real brokers' sequence check, tried raw: the table that exactly-once rests on."""

from __future__ import annotations

import time

import pytest

from heliograph.kafka.admin.topics import new_producer_id
from heliograph.kafka.cluster import Cluster as Client
from heliograph.kafka.codec import k00_produce
from heliograph.kafka.log import produce_version
from heliograph.kafka.security.client_security import PLAINTEXT
from heliograph.lab import LabCluster
from tests.cluster.limited import ask
from tests.cluster.mirror import View, create_topic, read_batches, unique, wait_until
from tests.sequences import ROWS, Answer, Sent, steps, time_of

Answers = dict[str, list[Answer]]


@pytest.mark.parametrize("alias", ["backup", "mid"], ids=["4.3.1", "3.9.1"])
def test_what_does_not_fit_is_refused_and_what_was_there_before_is_told(
    alias: str, request: pytest.FixtureRequest
) -> None:
    cluster: LabCluster = request.getfixturevalue(alias)
    topic = create_topic(cluster, unique("sequences"), len(ROWS))
    view = View(cluster, topic)
    wait_until(view.counts, what="a leader of each partition")
    start_ms = int(time.time() * 1000)

    async def send_all(client: Client) -> tuple[int, Answers]:
        await client.refresh([topic])
        producer_id = await new_producer_id(client)
        answers: Answers = {row.name: [] for row in ROWS}
        for step in steps():
            for number, answer in (await _send(client, topic, step, producer_id, start_ms)).items():
                answers[ROWS[number].name].append(answer)
        return producer_id, answers

    producer_id, answers = ask(cluster.bootstrap, PLAINTEXT, send_all)
    assert answers == {row.name: [sent.answer(start_ms) for sent in (*row.before, *row.sent)] for row in ROWS}
    for row, records in zip(ROWS, view.read(), strict=True):
        numbers = [number for sent in row.log for number in sent.numbers]
        assert [record.offset for record in records] == list(range(len(numbers))), row.name
        assert [(record.value, record.timestamp) for record in records] == [
            (b"%d" % number, time_of(number, start_ms)) for number in numbers
        ], row.name
        stored = read_batches(cluster, topic, ROWS.index(row))
        assert [(batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.count) for batch in stored] == [
            (producer_id, sent.epoch, sent.sequence, sent.records) for sent in row.log
        ], row.name


async def _send(
    client: Client, topic: str, batches: list[tuple[int, Sent]], producer_id: int, start_ms: int
) -> dict[int, Answer]:
    """One produce request; the answer of each partition."""
    leader = client.catalogue.leader_of(topic, 0)
    assert leader is not None
    connection = await client.connection(leader, "append")
    version = produce_version(connection, with_id=False)
    correlation_id = connection.next_correlation_id()
    partitions = [k00_produce.ProducePartition(number, sent.batch(producer_id, start_ms)) for number, sent in batches]
    request = k00_produce.encode_produce_request(
        version, [(topic, partitions)], correlation_id=correlation_id, client_id=client.client_id, timeout_ms=10_000
    )
    body = await connection.send(request, correlation_id, timeout_s=15)
    [answered] = k00_produce.decode_produce_response(body, version).topics
    return {
        found.partition: Answer(found.error_code, found.base_offset, found.log_append_time_ms)
        for found in answered.partitions
    }
