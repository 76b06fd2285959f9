"""Fetch, versions 4 to 16, sessionless: long polls, both isolation levels, the preferred read replica.

Any replica answers. The last batch of a partition is cut at its limit, the first one never (KIP-74).
Not modelled: sessions, diverging epochs, checks of the leader epoch, hints of the new leader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import FetchRequest, FetchResponse

from tests.fake_cluster.partition import FakePartition

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = FetchRequest
VERSIONS = (4, 16)
OFFSET_OUT_OF_RANGE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, UNKNOWN_TOPIC_ID = 1, 3, 6, 100

_Partition = FetchResponse.FetchableTopicResponse.PartitionData


async def answer(call: Call) -> Any:
    loop = asyncio.get_running_loop()
    until = loop.time() + call.request.max_wait_ms / 1000
    while True:
        response, is_empty = _look(call)
        left = until - loop.time()
        if not is_empty or left <= 0:
            return response
        await call.cluster.wait_for_change(left)


def _look(call: Call) -> tuple[Any, bool]:
    """The answer as it would be now, and whether it has nothing to tell."""
    topics, is_empty = [], True
    for topic in call.request.topics:
        key = topic.topic_id if call.version >= 13 else topic.topic
        answers = [_read(call, key, wanted) for wanted in topic.partitions]
        is_empty &= not any(a.records or a.error_code or a.preferred_read_replica >= 0 for a in answers)
        topics.append(
            FetchResponse.FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=answers)
        )
    return FetchResponse(throttle_time_ms=0, error_code=0, session_id=0, responses=topics), is_empty


def _read(call: Call, key: Any, wanted: Any) -> Any:
    partition = call.cluster.find(key, wanted.partition)
    code = _error(call, key, wanted, partition)
    if code or partition is None:
        return _result(wanted.partition, error_code=code)
    if partition.preferred_replica >= 0 and call.node_id == partition.leader and call.request.rack_id:
        return _result(wanted.partition, partition, preferred_read_replica=partition.preferred_replica)
    committed = call.request.isolation_level == 1
    end = partition.last_stable_offset if committed else partition.end
    aborted = [
        _Partition.AbortedTransaction(producer_id=item.producer_id, first_offset=item.first_offset)
        for item in partition.aborted
        if committed and item.last_offset >= wanted.fetch_offset
    ]
    records = partition.read(wanted.fetch_offset, limit=wanted.partition_max_bytes, end=end)
    return _result(wanted.partition, partition, records=records, aborted_transactions=aborted)


def _error(call: Call, key: Any, wanted: Any, partition: FakePartition | None) -> int:
    if partition is None:
        return UNKNOWN_TOPIC_ID if call.version >= 13 else UNKNOWN_TOPIC_OR_PARTITION
    if call.node_id not in (partition.leader, partition.preferred_replica):
        return NOT_LEADER
    if not partition.start <= wanted.fetch_offset <= partition.end:
        return OFFSET_OUT_OF_RANGE
    return call.cluster.refusal_of(REQUEST.API_KEY, call.cluster.name_of(key), wanted.partition)


def _result(index: int, partition: FakePartition | None = None, **fields: Any) -> Any:
    return _Partition(
        **{
            "partition_index": index,
            "error_code": 0,
            "high_watermark": partition.end if partition else -1,
            "last_stable_offset": partition.last_stable_offset if partition else -1,
            "log_start_offset": partition.start if partition else -1,
            "aborted_transactions": [],
            "preferred_read_replica": -1,
            "records": b"",
            **fields,
        }
    )
