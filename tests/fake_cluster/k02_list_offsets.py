"""ListOffsets, versions 1 to 7: the first and the last offset, and the first of a time on, by the leader only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = ListOffsetsRequest
VERSIONS = (1, 7)
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER = 3, 6
EARLIEST = -2


async def answer(call: Call) -> Any:
    topic_class = ListOffsetsResponse.ListOffsetsTopicResponse
    return ListOffsetsResponse(
        throttle_time_ms=0,
        topics=[
            topic_class(
                name=topic.name,
                partitions=[
                    topic_class.ListOffsetsPartitionResponse(
                        partition_index=wanted.partition_index,
                        timestamp=-1,
                        leader_epoch=0,
                        **_find(call, topic, wanted),
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in call.request.topics
        ],
    )


def _find(call: Call, topic: Any, wanted: Any) -> dict[str, int]:
    partition = call.cluster.find(topic.name, wanted.partition_index)
    if partition is None:
        return {"error_code": UNKNOWN_TOPIC_OR_PARTITION, "offset": -1}
    if partition.leader != call.node_id:
        return {"error_code": NOT_LEADER, "offset": -1}
    code = call.cluster.refusal_of(REQUEST.API_KEY, topic.name, wanted.partition_index)
    if code:
        return {"error_code": code, "offset": -1}
    if wanted.timestamp == EARLIEST:
        return {"error_code": 0, "offset": partition.start}
    if wanted.timestamp >= 0:
        late = (record.offset for record in partition.records() if record.timestamp >= wanted.timestamp)
        return {"error_code": 0, "offset": next(late, -1)}
    if call.request.replica_id >= 0:
        return {"error_code": 0, "offset": partition.end}
    is_stable = call.request.isolation_level
    return {"error_code": 0, "offset": partition.last_stable_offset if is_stable else partition.high_watermark}
