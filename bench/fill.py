"""Fills source topics with a standard producer (librdkafka), except for one-record batches.

librdkafka cannot write those quickly: they are made here and sent many requests at a time. Half of each value is
random, half is not, so that lz4 makes it about half as long; values repeat only at distances that lz4 does not look
back over.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import deque

from confluent_kafka import Producer

from bench.works import KIB, Work
from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.codec import k00_produce
from heliograph.kafka.connection import Connection
from heliograph.kafka.types import BrokerAddress

_POOL_BYTES = 1024 * KIB
_RECORD_OVERHEAD = 12
"""Bytes that librdkafka counts for a record beside its value, about."""
_CONNECTIONS = 4
_PIPELINE = 32
_VERSION = 8


class FillError(Exception):
    """The source refused records."""


def make_values(value_bytes: int, count: int) -> list[bytes]:
    """Makes distinct values of which half the bytes repeat."""
    noise = value_bytes // 2
    filler = (b"heliograph " * (value_bytes // 11 + 1))[: value_bytes - noise]
    return [os.urandom(noise) + filler for _ in range(count)]


def fill_topic(bootstrap: str, work: Work, records: int) -> None:
    """Writes that many records to the work's topic, evenly over its partitions."""
    values = make_values(work.value_bytes, _POOL_BYTES // work.value_bytes)
    if work.batch_bytes:
        _fill_with_producer(bootstrap, work, records, values)
    else:
        asyncio.run(_fill_single(bootstrap, work, records, values))


def _fill_with_producer(bootstrap: str, work: Work, records: int, values: list[bytes]) -> None:
    failures: list[str] = []
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "batch.size": work.batch_bytes,
            "batch.num.messages": 1_000_000,
            "linger.ms": 200,
            "compression.type": work.codec,
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 256 * KIB,
            "log_level": 0,
            "message.send.max.retries": 0,  # a record written twice would be the source's own duplicate
            "error_cb": lambda error: failures.append(str(error)),
        }
    )
    # A batch's worth to one partition, then to the next: batches are full at any number of partitions.
    stride = max(1, work.batch_bytes // (work.value_bytes + _RECORD_OVERHEAD))
    stride = max(1, min(stride, records // work.partitions))
    produce, topic, partitions, pool = producer.produce, work.topic, work.partitions, len(values)
    for index in range(records):
        while True:
            try:
                produce(topic, values[index % pool], partition=index // stride % partitions)
                break
            except BufferError:
                producer.poll(0.05)
    if producer.flush(120) or failures:
        raise FillError(f"{topic} could not be filled: {failures[:1] or 'time is up'}")


async def _fill_single(bootstrap: str, work: Work, records: int, values: list[bytes]) -> None:
    host, _, port = bootstrap.rpartition(":")
    cluster = Cluster("source", [BrokerAddress(host, int(port))], client_id="bench-fill")
    now_ms = int(time.time() * 1000)
    batches = [encode_batch([NewRecord(now_ms, None, value)]) for value in values]
    try:
        await cluster.refresh([work.topic])
        rounds = deque(range(-(-records // work.partitions)))
        node_id = next(iter(cluster.catalogue.brokers))
        connections = [await cluster.connection(node_id, f"fill-{index}") for index in range(_CONNECTIONS)]
        await asyncio.gather(*(_send_rounds(connection, work, records, batches, rounds) for connection in connections))
    finally:
        cluster.close()


async def _send_rounds(
    connection: Connection, work: Work, records: int, batches: list[bytearray], rounds: deque[int]
) -> None:
    """Sends rounds, each one request with one record for each partition; `_PIPELINE` of them are in flight."""
    pending: deque[asyncio.Future[memoryview]] = deque()
    while rounds or pending:
        while rounds and len(pending) < _PIPELINE:
            first = rounds.popleft() * work.partitions
            pieces = [
                k00_produce.ProducePartition(index - first, batches[index % len(batches)])
                for index in range(first, min(first + work.partitions, records))
            ]
            correlation_id = connection.next_correlation_id()
            request = k00_produce.encode_produce_request(
                _VERSION,
                [(work.topic, pieces)],
                correlation_id=correlation_id,
                client_id="bench-fill",
                timeout_ms=10_000,
            )
            pending.append(connection.send(request, correlation_id))
        answer = k00_produce.decode_produce_response(await pending.popleft(), _VERSION)
        codes = {partition.error_code for topic in answer.topics for partition in topic.partitions} - {0}
        if codes:
            raise FillError(f"{work.topic} could not be filled: error codes {sorted(codes)}")
