"""OffsetFetch, versions 6 to 8. Members and pending transactions are not modelled."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.consumer import OffsetFetchRequest, OffsetFetchResponse

from tests.fake_cluster.group import NOT_COORDINATOR, FakeGroup

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = OffsetFetchRequest
VERSIONS = (1, 8)
_NONE = (-1, "", -1)


async def answer(call: Call) -> Any:
    if call.version < 8:
        code, topics = _read(
            call, call.request.group_id, call.request.topics, OffsetFetchResponse.OffsetFetchResponseTopic
        )
        return OffsetFetchResponse(throttle_time_ms=0, error_code=code, topics=topics)
    group_class = OffsetFetchResponse.OffsetFetchResponseGroup
    groups = []
    for wanted in call.request.groups:
        code, topics = _read(call, wanted.group_id, wanted.topics, group_class.OffsetFetchResponseTopics)
        groups.append(group_class(group_id=wanted.group_id, error_code=code, topics=topics))
    return OffsetFetchResponse(throttle_time_ms=0, groups=groups)


def _read(call: Call, group_id: str, wanted: Any, topic_class: Any) -> tuple[int, list[Any]]:
    group = call.cluster.groups.get(group_id, FakeGroup())
    if group.coordinator != call.node_id:
        return NOT_COORDINATOR, []
    where = (
        list(group.commits)
        if wanted is None
        else [(topic.name, index) for topic in wanted for index in topic.partition_indexes]
    )
    partition_class = getattr(topic_class, topic_class.__name__.replace("Topic", "Partition"))
    topics = []
    for topic in dict.fromkeys(name for name, _ in where):
        partitions = []
        for name, index in where:
            if name != topic:
                continue
            offset, metadata, epoch = group.commits.get((name, index), _NONE)
            partitions.append(
                partition_class(
                    partition_index=index,
                    committed_offset=offset,
                    committed_leader_epoch=epoch,
                    metadata=metadata,
                    error_code=call.cluster.refusal_of(REQUEST.API_KEY, name, index),
                )
            )
        topics.append(topic_class(name=topic, partitions=partitions))
    return 0, topics
