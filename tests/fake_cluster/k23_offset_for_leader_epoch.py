"""OffsetForLeaderEpoch, versions 2 to 4: by the leader only, and only under its epoch if one is named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = OffsetForLeaderEpochRequest
VERSIONS = (2, 4)
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 3, 6, 74, 75


async def answer(call: Call) -> Any:
    topic_class = OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult
    return OffsetForLeaderEpochResponse(
        throttle_time_ms=0,
        topics=[
            topic_class(
                topic=topic.topic,
                partitions=[
                    topic_class.EpochEndOffset(partition=wanted.partition, **_find(call, topic.topic, wanted))
                    for wanted in topic.partitions
                ],
            )
            for topic in call.request.topics
        ],
    )


def _find(call: Call, topic: str, wanted: Any) -> dict[str, int]:
    partition = call.sight.find(topic, wanted.partition)
    nothing = {"leader_epoch": -1, "end_offset": -1}
    if partition is None:
        return {"error_code": UNKNOWN_TOPIC_OR_PARTITION, **nothing}
    code = call.cluster.refusal_of(REQUEST.API_KEY, topic, wanted.partition)
    if partition.leader != call.node_id:
        code = NOT_LEADER
    elif wanted.current_leader_epoch not in (-1, partition.leader_epoch):
        is_old = wanted.current_leader_epoch < partition.leader_epoch
        code = FENCED_LEADER_EPOCH if is_old else UNKNOWN_LEADER_EPOCH
    if code:
        return {"error_code": code, **nothing}
    epoch, end = partition.epoch_end(wanted.leader_epoch) or (-1, -1)
    return {"error_code": 0, "leader_epoch": epoch, "end_offset": end}
