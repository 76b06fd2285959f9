"""ListOffsets, versions 1 to 7: the first and the last offset, and the first of a time on, by the leader only.

From version 4 on a leader answers under its epoch only, if one is named. The epoch in an answer is the leader's for
the last offset, and that of the record for another.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import ListOffsetsRequest, ListOffsetsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call
    from tests.fake_cluster.partition import FakePartition

REQUEST = ListOffsetsRequest
VERSIONS = (1, 7)
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH = 3, 6, 74, 75
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
                        partition_index=wanted.partition_index, timestamp=-1, **_find(call, topic, wanted)
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in call.request.topics
        ],
    )


def _find(call: Call, topic: Any, wanted: Any) -> dict[str, int]:
    partition = call.sight.find(topic.name, wanted.partition_index)
    code = _error(call, topic, wanted, partition)
    if code or partition is None:
        return {"error_code": code, "offset": -1, "leader_epoch": -1}
    if wanted.timestamp == EARLIEST:
        return {"error_code": 0, "offset": partition.start, "leader_epoch": partition.epoch_at(partition.start)}
    if wanted.timestamp >= 0:
        late = (record.offset for record in partition.records() if record.timestamp >= wanted.timestamp)
        offset = next(late, -1)
        return {"error_code": 0, "offset": offset, "leader_epoch": partition.epoch_at(offset)}
    end = partition.last_stable_offset if call.request.isolation_level else partition.high_watermark
    is_replica = call.request.replica_id >= 0
    return {"error_code": 0, "offset": partition.end if is_replica else end, "leader_epoch": partition.leader_epoch}


def _error(call: Call, topic: Any, wanted: Any, partition: FakePartition | None) -> int:
    if partition is None:
        return UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != call.node_id:
        return NOT_LEADER
    if call.version >= 4 and wanted.current_leader_epoch not in (-1, partition.leader_epoch):
        is_old = wanted.current_leader_epoch < partition.leader_epoch
        return FENCED_LEADER_EPOCH if is_old else UNKNOWN_LEADER_EPOCH
    return call.cluster.refusal_of(REQUEST.API_KEY, topic.name, wanted.partition_index)
