"""Produce, versions 3 to 13: one batch for a partition; from 13 on topics by id.

A broker that is cut off appends and never commits: it answers REQUEST_TIMED_OUT, sooner than real ones.
Not modelled: acks other than all, transactions, hints of the new leader.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from tests.fake_cluster.partition import Appended

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = ProduceRequest
VERSIONS = (3, 13)
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, REQUEST_TIMED_OUT, UNKNOWN_TOPIC_ID = 3, 6, 7, 100
UNCOMMITTED_S = 0.1


async def answer(call: Call) -> Any:
    topic_class = ProduceResponse.TopicProduceResponse
    topics = []
    for topic in call.request.topic_data:
        key = topic.topic_id if call.version >= 13 else topic.name
        answers = []
        for wanted in topic.partition_data:
            result = await _append(call, key, wanted.index, wanted.records)
            answers.append(
                topic_class.PartitionProduceResponse(
                    index=wanted.index,
                    error_code=result.error_code,
                    base_offset=result.base_offset,
                    log_append_time_ms=result.log_append_time_ms,
                    log_start_offset=0,
                    record_errors=[],
                    error_message=None,
                )
            )
        topics.append(topic_class(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
    return ProduceResponse(responses=topics, throttle_time_ms=0)


async def _append(call: Call, key: Any, index: int, batch: bytes) -> Appended:
    sight = call.sight
    partition = sight.find(key, index)
    if partition is None:
        return Appended(UNKNOWN_TOPIC_ID if call.version >= 13 else UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader != call.node_id:
        return Appended(NOT_LEADER)
    code = call.cluster.refusal_of(REQUEST.API_KEY, sight.name_of(key), index)
    if code:
        return Appended(code)
    end = partition.end
    appended = partition.produce(batch)
    if sight.is_cut_off and not appended.error_code:
        partition.unreplicated += partition.end - end
        await asyncio.sleep(UNCOMMITTED_S)
        return Appended(REQUEST_TIMED_OUT)
    return appended
