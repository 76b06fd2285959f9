"""OffsetCommit, versions 8 and 9, without a member: refused while the group has some, else the group is made."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetCommitRequest, OffsetCommitResponse

from tests.fake_cluster.group import NOT_COORDINATOR, FakeGroup

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = OffsetCommitRequest
VERSIONS = (2, 9)
_UNKNOWN_MEMBER_ID = 25


async def answer(call: Call) -> Any:
    group = call.cluster.groups.setdefault(call.request.group_id, FakeGroup())
    code = NOT_COORDINATOR if group.coordinator != call.node_id else _UNKNOWN_MEMBER_ID if group.members else 0
    topics = []
    for topic in call.request.topics:
        results = []
        for wanted in topic.partitions:
            index = wanted.partition_index
            error = code or call.cluster.refusal_of(REQUEST.API_KEY, topic.name, index)
            results.append(
                OffsetCommitResponse.OffsetCommitResponseTopic.OffsetCommitResponsePartition(
                    partition_index=index, error_code=error
                )
            )
            if not error:
                group.commits[topic.name, index] = (
                    wanted.committed_offset,
                    wanted.committed_metadata,
                    wanted.committed_leader_epoch,
                )
        topics.append(OffsetCommitResponse.OffsetCommitResponseTopic(name=topic.name, partitions=results))
    return OffsetCommitResponse(throttle_time_ms=0, topics=topics)
