"""How the settings of topics differ between the clusters of a flow, and what config sync would do about it.

Reads only. What follows from the settings of a topic on both sides is `plan_differences`'s to say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from heliograph.config.settings import Flow, TopicSync
from heliograph.kafka import messages
from heliograph.kafka.admin import TOPIC_RESOURCE
from heliograph.kafka.cluster import Cluster, refused

SET, REMOVE = "set", "remove"
AT_ONCE = 100
"""Topics in one request: an answer has some 35 settings of each."""
_OF_TOPIC, _OF_BROKER_FILE, _OF_KAFKA = 1, 4, 5


class Setting(NamedTuple):
    """One setting of a topic as its cluster describes it."""

    value: str | None
    is_own: bool
    """Set on the topic itself."""
    is_default: bool
    is_ours: bool
    """It can be changed, and is no secret."""


class ConfigDifference(NamedTuple):
    """One setting of one topic that config sync would change on the target."""

    topic: str
    key: str
    source: str | None
    target: str | None
    action: str
    """SET: to the source's value; REMOVE: the target's default is in force then."""


class Differences(NamedTuple):
    found: dict[str, tuple[ConfigDifference, ...]]
    """Of each topic that could be compared."""
    unread: dict[str, str]
    """Topics of which a cluster does not show the settings, and why."""


async def read_differences(flow: Flow, source: Cluster, target: Cluster, topics: Sequence[str]) -> Differences:
    """Of topics that both clusters have; heartbeats are left out, whose settings are the target's own."""
    differences = Differences({}, {})
    chosen = [topic for topic in topics if not flow.policy.is_heartbeats_topic(topic)]
    for at in range(0, len(chosen), AT_ONCE):
        here = await _describe(source, {topic: topic for topic in chosen[at : at + AT_ONCE]}, differences.unread)
        there = await _describe(target, {flow.remote_topic(topic): topic for topic in here}, differences.unread)
        for topic, settings in there.items():
            differences.found[topic] = tuple(plan_differences(topic, here[topic], settings, flow.topic_sync))
    return differences


def plan_differences(
    topic: str, source: Mapping[str, Setting], target: Mapping[str, Setting], sync: TopicSync
) -> list[ConfigDifference]:
    """What would be changed on the target so that a topic's settings follow the source's."""
    found = []
    for key, here in source.items():
        there = target.get(key)
        if there is None or not (here.is_ours and there.is_ours) or sync.configs_exclude.accepts(key):
            continue
        is_default = here.is_default and sync.use_defaults_from == "target"
        if is_default and there.is_own:
            found.append(ConfigDifference(topic, key, here.value, there.value, REMOVE))
        elif not is_default and not (there.is_own and there.value == here.value):
            found.append(ConfigDifference(topic, key, here.value, there.value, SET))
    return found


async def _describe(
    cluster: Cluster, names: Mapping[str, str], unread: dict[str, str]
) -> dict[str, dict[str, Setting]]:
    """The settings of topics, by what `names` calls them."""
    resource = messages.DescribeConfigsRequest.DescribeConfigsResource
    request = messages.DescribeConfigsRequest(
        resources=[
            resource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None) for name in names
        ],
        include_synonyms=False,
        include_documentation=False,
    )
    found: dict[str, dict[str, Setting]] = {}
    for result in (await cluster.call(request)).results if names else ():
        topic = names[result.resource_name]
        if result.error_code:
            unread[topic] = str(refused(result.error_code, "DescribeConfigs", where=f'"{cluster.alias}"'))
            continue
        found[topic] = {
            config.name: Setting(
                config.value,
                config.config_source == _OF_TOPIC,
                config.config_source in (_OF_BROKER_FILE, _OF_KAFKA),
                not config.read_only and not config.is_sensitive,
            )
            for config in result.configs
        }
    return found
