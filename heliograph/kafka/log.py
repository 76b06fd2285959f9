"""Reading and writing the log of one partition: small reads, small appends.

For the internal topics and for settling, where simplicity counts; the lane's
own loop moves the bulk. Leaders that moved are followed, within a time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from heliograph.errors import EndUnseen, HeliographError, ProtocolError, Unreachable
from heliograph.kafka import messages
from heliograph.kafka.admin import EARLIEST, end_offsets
from heliograph.kafka.batch import BatchHeader, NewRecord, Record, encode_batch, iter_records
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k00_produce, k01_fetch
from heliograph.kafka.codes import is_retriable
from heliograph.kafka.connection import Connection
from heliograph.kafka.isolation import visible_batches
from heliograph.kafka.types import NO_TOPIC_ID, TopicPartition

T = TypeVar("T")

KeyValue = tuple[bytes, bytes | None]
READ_BYTES = 4 * 1024 * 1024
APPEND_BYTES = 512 * 1024
RETRY_FOR_S = 15.0
SHOWN_S = 5.0
"""Within which a new leader shows its log up to where it is replicated; replicas ask twice a second."""
FETCH_GRACE_S = 15.0
"""A fetch is answered when its wait is over; so much later its connection is taken for broken."""
PRODUCE_GRACE_S = 5.0
"""The same for a produce request, which the broker answers within the time that it is given."""
APPEND_TIMEOUT_MS = 10_000
TAIL_OFFSETS = 20
OFFSET_OUT_OF_RANGE = 1


def fetch_version(connection: Connection, *, with_id: bool) -> int:
    ours = k01_fetch.VERSIONS if with_id else tuple(v for v in k01_fetch.VERSIONS if not k01_fetch.uses_topic_ids(v))
    return messages.pick_version(k01_fetch.API_KEY, connection.versions, where=connection.where, ours=ours)


def produce_version(connection: Connection, *, with_id: bool) -> int:
    ours = (
        k00_produce.VERSIONS if with_id else tuple(v for v in k00_produce.VERSIONS if not k00_produce.uses_topic_ids(v))
    )
    return messages.pick_version(k00_produce.API_KEY, connection.versions, where=connection.where, ours=ours)


async def fetch_partition(
    cluster: Cluster,
    topic: str,
    partition: int,
    offset: int,
    *,
    channel: str = "read",
    max_bytes: int = READ_BYTES,
    max_wait_ms: int = 0,
    read_committed: bool = False,
    last_epoch: int = -1,
) -> k01_fetch.FetchedPartition:
    """One fetch of one partition from its leader; a refusal that may pass is tried again.

    `last_epoch` is the leader epoch of the batch before `offset`. If the log has another one there, it was truncated
    and has grown again: that is refused like an offset out of range. Brokers before 2.7 do not look at it.
    """

    async def attempt(leader: int) -> tuple[int, k01_fetch.FetchedPartition]:
        connection = await cluster.connection(leader, channel)
        topic_id = cluster.catalogue.topics[topic].topic_id
        version = fetch_version(connection, with_id=topic_id != NO_TOPIC_ID)
        key = topic_id if k01_fetch.uses_topic_ids(version) else topic
        correlation_id = connection.next_correlation_id()
        request = k01_fetch.encode_fetch_request(
            version,
            [(key, [k01_fetch.FetchPartition(partition, offset, max_bytes, last_fetched_epoch=last_epoch)])],
            correlation_id=correlation_id,
            client_id=cluster.client_id,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
        )
        body = await connection.send([request], correlation_id, timeout_s=max_wait_ms / 1000 + FETCH_GRACE_S)
        response = k01_fetch.decode_fetch_response(body, version)
        connection.throttle(response.throttle_ms)
        if response.error_code:
            raise refused(response.error_code, "Fetch", where=connection.where)
        for fetched in response.topics:
            for answer in fetched.partitions:
                if (fetched.topic, answer.partition) == (key, partition):
                    is_other_log = answer.diverging_epoch is not None
                    return OFFSET_OUT_OF_RANGE if is_other_log else answer.error_code, answer
        if response.throttle_ms > 0:  # a quota is used up: the answer is empty, and the next question waits
            return await attempt(leader)
        raise ProtocolError("an answer to Fetch lacks the partition", where=connection.where)

    return await _at_leader(cluster, topic, partition, attempt, what=f"Fetch at offset {offset}")


async def append(cluster: Cluster, topic: str, partition: int, records: Sequence[KeyValue], *, now_ms: int) -> int:
    """Append records to one partition with acks=all; the offset of the first one."""
    first = -1
    for piece in _pieces(records):
        batch = encode_batch([NewRecord(now_ms, key, value) for key, value in piece])

        async def attempt(leader: int, batch: bytearray = batch) -> tuple[int, int]:
            answers = await _produce(cluster, leader, [(TopicPartition(topic, partition), batch)])
            return answers[TopicPartition(topic, partition)]

        base = await _at_leader(cluster, topic, partition, attempt, what="Produce")
        first = base if first < 0 else first
    return first


async def append_all(cluster: Cluster, records: Mapping[TopicPartition, Sequence[KeyValue]], *, now_ms: int) -> None:
    """Append records to many partitions: one request for each leader; what it refuses is tried again one by one."""
    by_leader: dict[int, list[TopicPartition]] = {}
    again: list[TopicPartition] = []
    for where in records:
        leader = cluster.catalogue.leader_of(*where)
        if leader is None:
            again.append(where)
        else:
            by_leader.setdefault(leader, []).append(where)

    async def send(leader: int, group: list[TopicPartition]) -> list[TopicPartition]:
        batches = [
            (where, encode_batch([NewRecord(now_ms, key, value) for key, value in records[where]])) for where in group
        ]
        try:
            answers = await _produce(cluster, leader, batches)
        except Unreachable:
            return group
        return [where for where, (code, _) in answers.items() if code]

    for refused_ones in await asyncio.gather(*(send(leader, group) for leader, group in by_leader.items())):
        again += refused_ones
    for where in again:
        await append(cluster, where.topic, where.partition, records[where], now_ms=now_ms)


async def read_batches(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    read_committed: bool = False,
    max_bytes: int = READ_BYTES,
    last_epoch: int = -1,
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """All batches that reach into [start, end); those that hold nothing to see have a record count of 0.

    Nothing is left out because a leader does not know yet how far its log is replicated, as one that was elected a
    moment ago: that is waited for. Raises EndUnseen if it takes too long. Behind an open transaction reading ends.
    """
    offset = start
    clock = asyncio.get_running_loop().time
    give_up = clock() + SHOWN_S
    while offset < end:
        answer = await fetch_partition(
            cluster,
            topic,
            partition,
            offset,
            max_bytes=max_bytes,
            max_wait_ms=200,
            read_committed=read_committed,
            last_epoch=last_epoch,
        )
        before = offset
        for header, view in visible_batches(
            answer, offset, read_committed=read_committed, where=f'"{cluster.alias}" {topic}-{partition}'
        ):
            if header.base_offset >= end:
                return
            yield header, view
            offset, last_epoch = header.next_offset, header.leader_epoch
        if offset > before:
            give_up = clock() + SHOWN_S
        elif answer.high_watermark < end:
            if clock() > give_up:
                raise _unseen(cluster, topic, partition, answer.high_watermark, end)
            await cluster.refresh([topic])
        elif not answer.records or (read_committed and answer.last_stable_offset <= offset):
            return
        else:
            raise ProtocolError(f"a fetch at offset {offset} brings other records", where=f'"{cluster.alias}"')


def is_out_of_range(error: HeliographError) -> bool:
    """Whether the log has no such offset: it was truncated, made anew, or its start has moved past it."""
    return error.details.get("error_code") == OFFSET_OUT_OF_RANGE


def _unseen(cluster: Cluster, topic: str, partition: int, visible: int, end: int) -> EndUnseen:
    return EndUnseen(
        f"the log was seen to end at offset {end}, and its leader shows it up to {visible} only",
        where=f'"{cluster.alias}" {topic}-{partition}',
        why="the leader changed, and has not heard from its replicas yet or lost records",
        remedy="it is looked at again; see to brokers that are down",
    )


async def read_records(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> AsyncIterator[Record]:
    """All committed data records in [start, end)."""
    async for header, view in read_batches(cluster, topic, partition, start, end, read_committed=True):
        if not header.record_count:
            continue
        for record in iter_records(header, view):
            if start <= record.offset < end:
                yield record


async def read_whole(cluster: Cluster, topic: str, partition: int = 0) -> AsyncIterator[Record]:
    """All committed data records that are there now."""
    where = TopicPartition(topic, partition)
    start = (await end_offsets(cluster, [where], timestamp=EARLIEST))[where]
    end = (await end_offsets(cluster, [where]))[where]
    async for record in read_records(cluster, topic, partition, start, end):
        yield record


async def read_tail(cluster: Cluster, topic: str, partition: int, *, offsets: int = TAIL_OFFSETS) -> list[Record]:
    """The records of the last so many offsets."""
    where = TopicPartition(topic, partition)
    start = (await end_offsets(cluster, [where], timestamp=EARLIEST))[where]
    end = (await end_offsets(cluster, [where]))[where]
    return [record async for record in read_records(cluster, topic, partition, max(start, end - offsets), end)]


async def _produce(
    cluster: Cluster, leader: int, batches: Sequence[tuple[TopicPartition, bytearray]]
) -> dict[TopicPartition, tuple[int, int]]:
    """One produce request; error code and base offset of each partition."""
    connection = await cluster.connection(leader, "append")
    version = produce_version(connection, with_id=False)
    correlation_id = connection.next_correlation_id()
    topics: dict[str, list[k00_produce.ProducePartition]] = {}
    for where, batch in batches:
        topics.setdefault(where.topic, []).append(k00_produce.ProducePartition(where.partition, batch))
    request = k00_produce.encode_produce_request(
        version,
        list(topics.items()),
        correlation_id=correlation_id,
        client_id=cluster.client_id,
        timeout_ms=APPEND_TIMEOUT_MS,
    )
    body = await connection.send(request, correlation_id, timeout_s=APPEND_TIMEOUT_MS / 1000 + PRODUCE_GRACE_S)
    response = k00_produce.decode_produce_response(body, version)
    connection.throttle(response.throttle_ms)
    answers = {
        TopicPartition(str(topic.topic), answer.partition): (answer.error_code, answer.base_offset)
        for topic in response.topics
        for answer in topic.partitions
    }
    if answers.keys() != {where for where, _ in batches}:
        raise ProtocolError("an answer to Produce has other partitions than the request", where=connection.where)
    return answers


async def _at_leader(
    cluster: Cluster,
    topic: str,
    partition: int,
    attempt: Callable[[int], Awaitable[tuple[int, T]]],
    *,
    what: str,
) -> T:
    """Run `attempt` at the partition's leader; follow a leader that moved until time is up."""
    give_up = asyncio.get_running_loop().time() + RETRY_FOR_S
    pause = 0.05
    while True:
        failure: HeliographError
        leader = cluster.catalogue.leader_of(topic, partition)
        if leader is None:
            failure = cluster.no_leader(topic, partition, what, where=f"{topic}-{partition}")
        else:
            try:
                code, answer = await attempt(leader)
            except Unreachable as error:
                failure = error
            else:
                if code == 0:
                    return answer
                failure = refused(code, what, where=f'"{cluster.alias}" {topic}-{partition}')
                if not is_retriable(code):
                    raise failure
        if asyncio.get_running_loop().time() > give_up:
            raise failure
        if leader is not None:
            await asyncio.sleep(pause)
        pause = min(pause * 2, 1.0)
        await cluster.refresh([topic])
        if leader is None and cluster.catalogue.leader_of(topic, partition) is None:
            await asyncio.sleep(pause)


def _pieces(records: Sequence[KeyValue]) -> Iterable[list[KeyValue]]:
    piece: list[KeyValue] = []
    size = 0
    for key, value in records:
        piece.append((key, value))
        size += len(key) + len(value or b"") + 32
        if size >= APPEND_BYTES:
            yield piece
            piece, size = [], 0
    if piece:
        yield piece
