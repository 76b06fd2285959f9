"""How the settings of topics differ between the clusters of a flow: what config sync would do about it. Reads only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from heliograph.config.settings import Flow
from heliograph.control.configs import plan_config_sync
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.configs import TopicConfigs, describe_topics
from heliograph.mirror.topic_configs import follows_configs

SET, REMOVE = "set", "remove"


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
    """Of topics that both clusters have, as far as their copies are to follow them."""
    here = await describe_topics(source, [topic for topic in topics if follows_configs(flow, topic)])
    topic_of = {flow.remote_topic(topic): topic for topic in here.found}
    there = await describe_topics(target, list(topic_of))
    unread = here.refused | {topic_of[remote]: error for remote, error in there.refused.items()}
    found = {topic_of[remote]: configs for remote, configs in there.found.items()}
    return Differences(
        {topic: differences_of(flow, topic, here.found[topic], configs) for topic, configs in found.items()},
        {topic: str(error) for topic, error in unread.items()},
    )


def differences_of(flow: Flow, topic: str, source: TopicConfigs, target: TopicConfigs) -> tuple[ConfigDifference, ...]:
    """Of one topic, by its settings on both sides."""
    return tuple(
        ConfigDifference(topic, change.key, source[change.key].value, change.old, REMOVE if change.new is None else SET)
        for change in plan_config_sync(source, target, flow.topic_sync)
    )
