"""Describes and changes the configs of topics, each with its source. Knows nothing of mirroring."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from heliograph.errors import HeliographError, ProtocolError
from heliograph.kafka import messages
from heliograph.kafka.admin.tool_commands import alter_topic_command
from heliograph.kafka.admin.topics import TOPIC_RESOURCE, describe_resources
from heliograph.kafka.cluster import Cluster, refused

AT_ONCE = 100
"""Maximum number of topics per request: an answer has some 35 configs for each, and is read in 20 ms."""
_SET, _DELETE = 0, 1

OF_TOPIC = 1
OF_BROKER_FILE, OF_KAFKA = 4, 5
"""Sources of a value, as the protocol numbers them. Those between are set on brokers while they run."""


class ConfigEntry(NamedTuple):
    """Holds one config of a topic as its cluster describes it."""

    value: str | None
    """None if it is a secret, or if there is none."""
    origin: int = OF_KAFKA
    is_read_only: bool = False
    is_sensitive: bool = False

    @property
    def is_own(self) -> bool:
        """Return whether it is set on the topic itself."""
        return self.origin == OF_TOPIC

    @property
    def is_default(self) -> bool:
        """Return whether it is Kafka's default or from a broker's file: nobody set it while brokers run."""
        return self.origin in (OF_BROKER_FILE, OF_KAFKA)


TopicConfigs = Mapping[str, ConfigEntry]
"""All configs of one topic, by key."""


class Described(NamedTuple):
    found: dict[str, TopicConfigs]
    refused: dict[str, HeliographError]
    """Errors by topic; equal errors have equal texts, which do not name the topic."""


async def describe_topics(cluster: Cluster, topics: Sequence[str]) -> Described:
    """Describe every config of each topic."""
    described = Described({}, {})
    for at in range(0, len(topics), AT_ONCE):
        chunk = topics[at : at + AT_ONCE]
        results = await describe_resources(cluster, TOPIC_RESOURCE, chunk, None)
        _check(cluster, "DescribeConfigs", chunk, results)
        for result in results:
            if result.error_code:
                described.refused[result.resource_name] = refused(
                    result.error_code, "DescribeConfigs", where=f'"{cluster.alias}"', message=result.error_message
                )
            else:
                described.found[result.resource_name] = {config.name: _entry(config) for config in result.configs}
    return described


async def alter_topics(
    cluster: Cluster, changes: Mapping[str, Mapping[str, str | None]]
) -> dict[str, HeliographError | None]:
    """Change these configs of topics, and no others; return the outcome of each topic. None deletes a value."""
    results: dict[str, HeliographError | None] = {}
    names = list(changes)
    for at in range(0, len(names), AT_ONCE):
        chunk = names[at : at + AT_ONCE]
        response = await cluster.call(_alteration({name: changes[name] for name in chunk}))
        _check(cluster, "IncrementalAlterConfigs", chunk, response.responses)
        for answer in response.responses:
            name = answer.resource_name
            results[name] = (
                refused(
                    answer.error_code,
                    f'IncrementalAlterConfigs for "{name}"',
                    where=f'"{cluster.alias}"',
                    message=answer.error_message,
                    remedy=f"have it done: {alter_topic_command(name, changes[name])}",
                )
                if answer.error_code
                else None
            )
    return results


def _alteration(changes: Mapping[str, Mapping[str, str | None]]) -> messages.ApiMessage:
    resource = messages.IncrementalAlterConfigsRequest.AlterConfigsResource
    return messages.IncrementalAlterConfigsRequest(
        resources=[
            resource(
                resource_type=TOPIC_RESOURCE,
                resource_name=name,
                configs=[
                    resource.AlterableConfig(name=key, config_operation=_DELETE if value is None else _SET, value=value)
                    for key, value in wanted.items()
                ],
            )
            for name, wanted in changes.items()
        ],
        validate_only=False,
    )


def _entry(config: Any) -> ConfigEntry:
    return ConfigEntry(config.value, config.config_source, bool(config.read_only), bool(config.is_sensitive))


def _check(cluster: Cluster, request: str, asked: Sequence[str], results: Sequence[Any]) -> None:
    if {result.resource_name for result in results} != set(asked):
        raise ProtocolError(f"an answer to {request} has other topics than the request", where=f'"{cluster.alias}"')
