"""How the settings of topics differ between the clusters of a flow: what config sync would do about it. Reads only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from heliograph.config.settings import Flow
from heliograph.flow.topic_configs import follows_configs, plan_config_sync
from heliograph.kafka.admin.topic_configs import TopicConfigs, describe_topics
from heliograph.kafka.cluster import Cluster
from heliograph.ledger.kept_troubles import Troubles
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.trouble import WHOLE_TOPIC

SET, REMOVE = "set", "remove"
Entries = Mapping[PartitionName, Entry]


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
    """The differing settings of each topic that could be compared."""
    unread: dict[str, str]
    """Topics of which a cluster does not show the settings, and why."""


def compared(
    names: Mapping[str, str], *, there: Collection[str], entries: Entries, troubles: Troubles
) -> dict[str, str]:
    """Topics that config sync would look at, of those with a name on the target.

    What the target refuses of a whole topic, as too few partitions, keeps it from being begun: no setting of it is
    changed then. One that was begun before goes on.
    """
    begun = {topic for topic, _ in entries}
    return {
        topic: remote
        for topic, remote in names.items()
        if remote in there and (topic in begun or (topic, WHOLE_TOPIC) not in troubles)
    }


async def read_differences(flow: Flow, source: Cluster, target: Cluster, names: Mapping[str, str]) -> Differences:
    """Of topics that both clusters have, by their names on both, as far as their copies are to follow them."""
    here = await describe_topics(source, [topic for topic in names if follows_configs(flow, topic)])
    topic_of = {names[topic]: topic for topic in here.found}
    there = await describe_topics(target, list(topic_of))
    unread = here.refused | {topic_of[remote]: error for remote, error in there.refused.items()}
    found = {topic_of[remote]: configs for remote, configs in there.found.items()}
    return Differences(
        {topic: differences_of(flow, topic, here.found[topic], configs) for topic, configs in found.items()},
        {topic: str(error) for topic, error in unread.items()},
    )


def differences_of(flow: Flow, topic: str, source: TopicConfigs, target: TopicConfigs) -> tuple[ConfigDifference, ...]:
    """Return the differences of one topic, by its settings on both sides."""
    return tuple(
        ConfigDifference(topic, change.key, source[change.key].value, change.old, REMOVE if change.new is None else SET)
        for change in plan_config_sync(source, target, flow.topic_sync)
    )
