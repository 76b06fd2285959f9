"""Reads and writes the log of single partitions: small reads, small appends.

For the internal topics and for settling, where simplicity counts; the lane's
own loop copies the bulk. Follows leaders that move, within a time limit.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from heliograph.errors import BrokerRefused, EndUnseen, HeliographError, ProtocolError, Unreachable
from heliograph.kafka import messages
from heliograph.kafka.admin.topics import EARLIEST, end_offsets
from heliograph.kafka.batch import HEADER_SIZE, BatchHeader, NewRecord, Record, encode_batch, iter_records
from heliograph.kafka.cluster import Cluster, refused
from heliograph.kafka.codec import k00_produce, k01_fetch
from heliograph.kafka.connection import Allowance, Connection
from heliograph.kafka.error_codes import Code, is_retriable
from heliograph.kafka.isolation import visible_batches
from heliograph.kafka.types import NO_TOPIC_ID, TopicPartition

T = TypeVar("T")
K = TypeVar("K")

KeyValue = tuple[bytes, bytes | None]
Group = Sequence[KeyValue]
"""Records that are appended together or not at all."""
Batch = Sequence[Group]
READ_BYTES = 4 * 1024 * 1024
APPEND_BYTES = 512 * 1024
"""Maximum size of one batch; less if the topic accepts less."""
RECORD_BYTES = 32
"""Maximum size of a record without its key and value."""
RETRY_FOR_S = 15.0
SHOWN_S = 5.0
"""Time within which a new leader shows its log up to the high watermark; replicas fetch twice a second."""
FETCH_GRACE_S = 15.0
"""How long after its wait a fetch may still be answered; then its connection is taken for broken."""
PRODUCE_GRACE_S = 5.0
"""The same for a produce request, which the broker answers within its timeout."""
APPEND_TIMEOUT_MS = 10_000
TAIL_OFFSETS = 20
_TOO_LARGE = (Code.MESSAGE_TOO_LARGE, Code.RECORD_LIST_TOO_LARGE)
"""MESSAGE_TOO_LARGE for the topic's max.message.bytes, RECORD_LIST_TOO_LARGE for its segments."""


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
    allowance: Allowance | None = None,
    last_epoch: int = -1,
) -> k01_fetch.FetchedPartition:
    """Fetch one partition from its leader once; retry after errors that may pass.

    `last_epoch` is the leader epoch of the batch before `offset`. If the log has another one there, it was truncated
    and has grown again: that is refused like an offset out of range. Brokers before 2.7 do not check it.
    """

    async def attempt(leader: int) -> tuple[int, k01_fetch.FetchedPartition]:
        connection = await cluster.connection(leader, channel)
        meta = cluster.catalogue.topics.get(topic)  # another's refresh may have found it gone meanwhile
        topic_id = meta.topic_id if meta is not None else NO_TOPIC_ID
        version = fetch_version(connection, with_id=topic_id != NO_TOPIC_ID)
        key = topic_id if k01_fetch.uses_topic_ids(version) else topic
        leader_epoch = cluster.catalogue.leader_epoch_of(topic, partition)
        correlation_id = connection.next_correlation_id()
        request = k01_fetch.encode_fetch_request(
            version,
            [(key, [k01_fetch.FetchPartition(partition, offset, max_bytes, leader_epoch, last_epoch)])],
            correlation_id=correlation_id,
            client_id=cluster.client_id,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=int(read_committed),
        )
        body = await connection.send(
            [request], correlation_id, timeout_s=max_wait_ms / 1000 + FETCH_GRACE_S, allowance=allowance
        )
        response = k01_fetch.decode_fetch_response(body, version)
        connection.throttle(response.throttle_ms)
        if response.error_code:
            raise refused(response.error_code, "Fetch", where=connection.where)
        for fetched in response.topics:
            for answer in fetched.partitions:
                if (fetched.topic, answer.partition) == (key, partition):
                    is_other_log = answer.diverging_epoch is not None
                    return Code.OFFSET_OUT_OF_RANGE if is_other_log else answer.error_code, answer
        if response.throttle_ms > 0:  # a quota is used up: the answer is empty, and the next question waits
            return await attempt(leader)
        raise ProtocolError("an answer to Fetch lacks the partition", where=connection.where)

    return await _at_leader(cluster, topic, partition, attempt, what=f"Fetch at offset {offset}")


async def append(cluster: Cluster, topic: str, partition: int, records: Sequence[KeyValue], *, now_ms: int) -> int:
    """Append records to one partition with acks=all; return the offset of the first one.

    Records are sent in batches, in order. If one is refused, those before it are written and those after it are not.
    """
    bases = [
        await _append_batch(cluster, TopicPartition(topic, partition), batch, now_ms=now_ms)
        for batch in cut([record] for record in records)
    ]
    return bases[0] if bases else -1


async def append_apart(
    cluster: Cluster,
    topic: str,
    partition: int,
    records: Mapping[K, Sequence[KeyValue]],
    *,
    suspects: Collection[K] = (),
    now_ms: int,
) -> dict[K, BrokerRefused]:
    """Append the records of several owners; leave out and return the owners whose records are too large for the broker.

    Suspects, whose records were too large the last time, are sent alone; the others together as long as all fit.
    """
    refused_ones: dict[K, BrokerRefused] = {}
    together = {owner: found for owner, found in records.items() if owner not in suspects}
    alone = [owner for owner in records if owner in suspects]
    try:
        await append(cluster, topic, partition, [pair for found in together.values() for pair in found], now_ms=now_ms)
    except BrokerRefused as error:
        if error.details.get("error_code") not in _TOO_LARGE:
            raise
        alone = list(records)
    for owner in alone:
        try:
            await append(cluster, topic, partition, records[owner], now_ms=now_ms)
        except BrokerRefused as error:
            if error.details.get("error_code") not in _TOO_LARGE:
                raise
            refused_ones[owner] = error
    return refused_ones


async def append_all(
    cluster: Cluster,
    records: Mapping[TopicPartition, Sequence[Group]],
    *,
    now_ms: int,
    max_bytes: int = APPEND_BYTES,
) -> None:
    """Append records to many partitions, in batches of at most `max_bytes`; a group stays together.

    One request for each leader and each batch of a partition; refused batches are retried one by one.
    """
    batches = {where: list(cut(groups, max_bytes)) for where, groups in records.items()}
    for number in range(max(map(len, batches.values()), default=0)):
        await _append_round(
            cluster, {where: cuts[number] for where, cuts in batches.items() if number < len(cuts)}, now_ms=now_ms
        )


async def _append_round(cluster: Cluster, batches: Mapping[TopicPartition, Batch], *, now_ms: int) -> None:
    """Append one batch to each of these partitions."""
    by_leader: dict[int, list[TopicPartition]] = {}
    again: list[TopicPartition] = []
    for where in batches:
        leader = cluster.catalogue.leader_of(*where)
        if leader is None:
            again.append(where)
        else:
            by_leader.setdefault(leader, []).append(where)

    async def send(leader: int, group: list[TopicPartition]) -> list[TopicPartition]:
        try:
            answers = await _produce(cluster, leader, [(where, _encoded(batches[where], now_ms)) for where in group])
        except Unreachable:
            return group
        return [where for where, (code, _) in answers.items() if code]

    for refused_ones in await asyncio.gather(*(send(leader, group) for leader, group in by_leader.items())):
        again += refused_ones
    for where in again:
        await _append_batch(cluster, where, batches[where], now_ms=now_ms)


async def _append_batch(cluster: Cluster, where: TopicPartition, batch: Batch, *, now_ms: int) -> int:
    """Append one batch; if it is larger than the topic's limit, which is not known here, append it in halves."""
    data = _encoded(batch, now_ms)

    async def attempt(leader: int) -> tuple[int, int]:
        return (await _produce(cluster, leader, [(where, data)]))[where]

    try:
        return await _at_leader(cluster, *where, attempt, what="Produce")
    except BrokerRefused as error:
        if error.details.get("error_code") != Code.MESSAGE_TOO_LARGE or (halves := _halves(batch)) is None:
            raise
    base = await _append_batch(cluster, where, halves[0], now_ms=now_ms)
    await _append_batch(cluster, where, halves[1], now_ms=now_ms)
    return base


def cut(groups: Iterable[Group], max_bytes: int = APPEND_BYTES) -> Iterator[Batch]:
    """Cut groups of records into batches of at most `max_bytes`; a group is never cut, and a larger one goes alone."""
    batch: list[Group] = []
    size = HEADER_SIZE
    for group in groups:
        group_bytes = sum(len(key) + len(value or b"") + RECORD_BYTES for key, value in group)
        if batch and size + group_bytes > max_bytes:
            yield batch
            batch, size = [], HEADER_SIZE
        batch.append(group)
        size += group_bytes
    if batch:
        yield batch


def _halves(batch: Batch) -> tuple[Batch, Batch] | None:
    """Cut between groups, or between the records of a single group that does not fit; None for a single record."""
    parts = batch if len(batch) > 1 else [[record] for record in batch[0]]
    middle = len(parts) // 2
    return (parts[:middle], parts[middle:]) if middle else None


def _encoded(batch: Batch, now_ms: int) -> bytearray:
    return encode_batch([NewRecord(now_ms, key, value) for group in batch for key, value in group])


async def read_batches(
    cluster: Cluster,
    topic: str,
    partition: int,
    start: int,
    end: int,
    *,
    read_committed: bool = False,
    max_bytes: int = READ_BYTES,
    allowance: Allowance | None = None,
    last_epoch: int = -1,
) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
    """Yield all batches that overlap [start, end); those without visible records have a record count of 0.

    A leader that was just elected does not know its high watermark yet: the reader waits for it, so that nothing is
    left out. Raises EndUnseen if it takes too long. Reading ends at an open transaction.
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
            allowance=allowance,
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
            await cluster.refresh([topic], elsewhere=True)
        elif not answer.records or (read_committed and answer.last_stable_offset <= offset):
            return
        else:
            raise ProtocolError(f"a fetch at offset {offset} brings other records", where=f'"{cluster.alias}"')


def is_out_of_range(error: HeliographError) -> bool:
    """Return whether the log has no such offset: it was truncated or recreated, or its start has moved past it."""
    return error.details.get("error_code") == Code.OFFSET_OUT_OF_RANGE


def _unseen(cluster: Cluster, topic: str, partition: int, visible: int, end: int) -> EndUnseen:
    return EndUnseen(
        f"the log was seen to end at offset {end}, and its leader shows it up to {visible} only",
        where=f'"{cluster.alias}" {topic}-{partition}',
        why="the leader changed, and has not heard from its replicas yet or lost records",
        remedy="it is looked at again; see to brokers that are down",
    )


async def read_records(cluster: Cluster, topic: str, partition: int, start: int, end: int) -> AsyncIterator[Record]:
    """Yield all committed data records in [start, end)."""
    async for header, view in read_batches(cluster, topic, partition, start, end, read_committed=True):
        if not header.record_count:
            continue
        for record in iter_records(header, view):
            if start <= record.offset < end:
                yield record


async def read_whole(cluster: Cluster, topic: str, partition: int = 0) -> AsyncIterator[Record]:
    """Yield all committed data records of the partition."""
    where = TopicPartition(topic, partition)
    start = (await end_offsets(cluster, [where], timestamp=EARLIEST))[where]
    end = (await end_offsets(cluster, [where]))[where]
    async for record in read_records(cluster, topic, partition, start, end):
        yield record


async def read_tail(cluster: Cluster, topic: str, partition: int, *, offsets: int = TAIL_OFFSETS) -> list[Record]:
    """Return the records of the last `offsets` offsets."""
    where = TopicPartition(topic, partition)
    start = (await end_offsets(cluster, [where], timestamp=EARLIEST))[where]
    end = (await end_offsets(cluster, [where]))[where]
    return [record async for record in read_records(cluster, topic, partition, max(start, end - offsets), end)]


async def _produce(
    cluster: Cluster, leader: int, batches: Sequence[tuple[TopicPartition, bytearray]]
) -> dict[TopicPartition, tuple[int, int]]:
    """Send one produce request; return error code and base offset of each partition."""
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
    """Run `attempt` at the partition's leader; follow a leader that moves until time is up."""
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
