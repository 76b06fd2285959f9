"""CreateTopics, versions 2 to 7, by the controller or any other broker. Not modelled: given assignments, quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import CreateTopicsRequest, CreateTopicsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = CreateTopicsRequest
VERSIONS = (2, 7)
TOPIC_ALREADY_EXISTS = 36


async def answer(call: Call) -> Any:
    return CreateTopicsResponse(
        throttle_time_ms=0, topics=[_create(call, wanted) for wanted in call.request.topics or ()]
    )


def _create(call: Call, wanted: Any) -> Any:
    cluster = call.cluster
    code = cluster.refusal_of(REQUEST.API_KEY, wanted.name, 0)
    if not code and wanted.name in cluster.topics:
        code = TOPIC_ALREADY_EXISTS
    if not code and not call.request.validate_only:
        made = cluster.create(wanted.name, max(1, wanted.num_partitions))
        made.configs.update({config.name: config.value for config in wanted.configs or ()})
    return CreateTopicsResponse.CreatableTopicResult(
        name=wanted.name,
        topic_id=cluster.topics[wanted.name].topic_id if wanted.name in cluster.topics else None,
        error_code=code,
        error_message=None,
        num_partitions=-1,
        replication_factor=-1,
        configs=[],
    )
