"""IncrementalAlterConfigs, versions 0 and 1, of topics: set and delete. Any key and value will do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = IncrementalAlterConfigsRequest
VERSIONS = (0, 1)
UNKNOWN_TOPIC_OR_PARTITION = 3
DELETE = 1


async def answer(call: Call) -> Any:
    return IncrementalAlterConfigsResponse(
        throttle_time_ms=0, responses=[_alter(call, resource) for resource in call.request.resources]
    )


def _alter(call: Call, resource: Any) -> Any:
    topic = call.cluster.topics.get(resource.resource_name)
    code = call.cluster.refusal_of(REQUEST.API_KEY, resource.resource_name, 0)
    if not code and topic is None:
        code = UNKNOWN_TOPIC_OR_PARTITION
    if not code and topic is not None and not call.request.validate_only:
        for config in resource.configs:
            if config.config_operation == DELETE:
                topic.configs.pop(config.name, None)
            else:
                topic.configs[config.name] = config.value
    return IncrementalAlterConfigsResponse.AlterConfigsResourceResponse(
        error_code=code,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
