"""DescribeConfigs, versions 1 to 4, of topics: what was set, and defaults of a few keys.

Of brokers, what a test put into `broker_configs`; a broker answers for itself alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kafka.protocol.admin import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from tests.fake_cluster.cluster import Call

REQUEST = DescribeConfigsRequest
VERSIONS = (1, 4)
UNKNOWN_TOPIC_OR_PARTITION = 3
TOPIC, BROKER = 2, 4
SET_ON_TOPIC, DEFAULT = 1, 5
DEFAULTS = {
    "cleanup.policy": "delete",
    "max.message.bytes": "1048588",
    "message.timestamp.type": "CreateTime",
    "retention.ms": "604800000",
}

_Result = DescribeConfigsResponse.DescribeConfigsResult


async def answer(call: Call) -> Any:
    return DescribeConfigsResponse(
        throttle_time_ms=0, results=[_describe(call, resource) for resource in call.request.resources]
    )


def _describe(call: Call, resource: Any) -> Any:
    topic = call.cluster.topics.get(resource.resource_name) if resource.resource_type == TOPIC else None
    known = {**DEFAULTS, **topic.configs} if topic is not None else {}
    if resource.resource_type == BROKER and resource.resource_name == str(call.node_id):
        known = call.cluster.broker_configs.get(call.node_id, {})
    asked = known if resource.configuration_keys is None else resource.configuration_keys
    return _Result(
        error_code=UNKNOWN_TOPIC_OR_PARTITION if resource.resource_type == TOPIC and topic is None else 0,
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=[
            _Result.DescribeConfigsResourceResult(
                name=key,
                value=known[key],
                read_only=False,
                config_source=SET_ON_TOPIC if topic is not None and key in topic.configs else DEFAULT,
                is_sensitive=False,
                synonyms=[],
                config_type=2,
                documentation=None,
            )
            for key in asked
            if key in known
        ],
    )
