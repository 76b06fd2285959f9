"""Produce, versions 3 to 13: one batch for a partition; from 13 on topics by id.

Not modelled: acks other than all, transactions, hints of the new leader.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.producer import ProduceRequest, ProduceResponse

from tests.fake_cluster.partition import Appended

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = ProduceRequest
VERSIONS = (3, 13)
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, UNKNOWN_TOPIC_ID = 3, 6, 100


async def answer(call: Call) -> Any:
    topic_class = ProduceResponse.TopicProduceResponse
    topics = []
    for topic in call.request.topic_data:
        key = topic.topic_id if call.version >= 13 else topic.name
        answers = []
        for wanted in topic.partition_data:
            result = _append(call, key, wanted.index, wanted.records)
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


def _append(call: Call, key: Any, index: int, batch: bytes) -> Appended:
    partition = call.cluster.find(key, index)
    if partition is None:
        return Appended(UNKNOWN_TOPIC_ID if call.version >= 13 else UNKNOWN_TOPIC_OR_PARTITION)
    if partition.leader != call.node_id:
        return Appended(NOT_LEADER)
    code = call.cluster.refusal_of(REQUEST.API_KEY, call.cluster.name_of(key), index)
    return Appended(code) if code else partition.produce(batch)
