"""CreatePartitions, versions 0 to 3. Not modelled: given assignments, quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import CreatePartitionsRequest, CreatePartitionsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = CreatePartitionsRequest
VERSIONS = (0, 3)
UNKNOWN_TOPIC_OR_PARTITION, INVALID_PARTITIONS = 3, 37


async def answer(call: Call) -> Any:
    return CreatePartitionsResponse(
        throttle_time_ms=0, results=[_grow(call, wanted) for wanted in call.request.topics or ()]
    )


def _grow(call: Call, wanted: Any) -> Any:
    cluster = call.cluster
    topic = cluster.topics.get(wanted.name)
    code = cluster.refusal_of(REQUEST.API_KEY, wanted.name, 0)
    if not code and topic is None:
        code = UNKNOWN_TOPIC_OR_PARTITION
    elif not code and topic is not None and wanted.count <= len(topic.partitions):
        code = INVALID_PARTITIONS
    if not code and not call.request.validate_only:
        cluster.grow(wanted.name, wanted.count)
    return CreatePartitionsResponse.CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=None)
