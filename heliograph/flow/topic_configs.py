"""Which settings a copy has of its topic on the source. Pure.

A value that was set on the topic itself, or on brokers while they run, goes with the topic, as MirrorMaker 2 has it.
Any other is a default of the source, and `use.defaults.from` says whose defaults the copy has. MirrorMaker 2 leaves
alone what stands in a source broker's file; here that is a default like Kafka's own, so that an override that is
removed on the source goes from the target too.
"""

from __future__ import annotations

from typing import NamedTuple

from heliograph.config.settings import Flow, TopicSync
from heliograph.errors import ConfigError
from heliograph.kafka.admin.topic_configs import TopicConfigs

NEVER = frozenset({"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"})
"""By these a target would refuse records that are old or ahead of its clock, which the source has already."""


def follows_configs(flow: Flow, topic: str) -> bool:
    """Whether a copy has its topic's settings. Those of heartbeats are ours: compacted, whatever the source says."""
    return not flow.policy.is_heartbeats_topic(topic)


def carried_configs(source: TopicConfigs, sync: TopicSync) -> dict[str, str | None]:
    """Decide which configs the copy is to have; None: the target's own default."""
    carried: dict[str, str | None] = {}
    for key, entry in source.items():
        if key in NEVER or entry.is_read_only or entry.is_sensitive or _is_excluded(key, sync) is not False:
            continue
        if entry.is_default and sync.use_defaults_from == "target":
            carried[key] = None
        elif entry.value is not None:
            carried[key] = entry.value
    return carried


def unjudged_configs(source: TopicConfigs, sync: TopicSync) -> dict[str, ConfigError]:
    """Find the configs for which a filter class of one's own fails; they are not copied."""
    judged = {key: _is_excluded(key, sync) for key in source}
    return {key: error for key, error in judged.items() if isinstance(error, ConfigError)}


def _is_excluded(key: str, sync: TopicSync) -> bool | ConfigError:
    try:
        return sync.configs_exclude.accepts(key)
    except ConfigError as error:
        return error


def first_configs(source: TopicConfigs, sync: TopicSync) -> dict[str, str]:
    """Decide the configs with which a copy is created."""
    return {key: value for key, value in carried_configs(source, sync).items() if value is not None}


class ConfigChange(NamedTuple):
    """A change of one config of one target topic."""

    key: str
    old: str | None
    """In force now; None: not told."""
    new: str | None
    """To be set on the topic; None: what is set on the topic is taken away, and the target's default is in force."""
    was_set: bool
    """Whether the old value is the topic's own, and not a default."""

    def __str__(self) -> str:
        old = _shown(self.old) if self.was_set else f"{_shown(self.old)} (default)"
        return f"{self.key} {old} -> {'default' if self.new is None else _shown(self.new)}"


def plan_config_sync(source: TopicConfigs, target: TopicConfigs, sync: TopicSync) -> list[ConfigChange]:
    """Plan the changes that make a target topic's configs follow its source's; none if they do.

    `source` and `target` are all settings of the topic on either side (`describe_topics`), and `sync` is
    `flow.topic_sync`, which has the patterns to exclude and whose defaults count. A setting that the target does not
    know is left out; `unknown_configs` names it. Ask `follows_configs` first whether the copy of a topic is to follow
    it at all.
    """
    changes = []
    for key, wanted in carried_configs(source, sync).items():
        there = target.get(key)
        if there is None or there.is_read_only:
            continue
        own = there.value if there.is_own else None
        if own != wanted:
            changes.append(ConfigChange(key, there.value, wanted, there.is_own))
    return changes


def unknown_configs(source: TopicConfigs, target: TopicConfigs, sync: TopicSync) -> set[str]:
    """Settings that the copy should have and its cluster does not know, being older or another product."""
    return {key for key, wanted in carried_configs(source, sync).items() if wanted is not None and key not in target}


def _shown(value: str | None) -> str:
    return "none" if value is None else value or '""'
