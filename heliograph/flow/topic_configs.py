"""Which settings a copy has of its topic on the source. Pure.

A value that was set on the topic itself, or on brokers while they run, goes with the topic, as MirrorMaker 2 has it.
Any other is a default of the source, and `use.defaults.from` says whose defaults the copy has. MirrorMaker 2 leaves
alone what stands in a source broker's file; here that is a default like Kafka's own, so that an override that is
removed on the source goes from the target too.
"""

from __future__ import annotations

from heliograph.config.settings import Flow, TopicSync
from heliograph.errors import ConfigError
from heliograph.kafka.admin.topic_configs import TopicConfigs

NEVER = frozenset({"message.timestamp.before.max.ms", "message.timestamp.after.max.ms"})
"""By these a target would refuse records that are old or ahead of its clock, which the source has already."""


def follows_configs(flow: Flow, topic: str) -> bool:
    """Whether a copy has its topic's settings. Those of heartbeats are ours: compacted, whatever the source says."""
    return not flow.policy.is_heartbeats_topic(topic)


def carried_configs(source: TopicConfigs, sync: TopicSync) -> dict[str, str | None]:
    """The settings that are ours to decide, and what the copy is to have; None: the target's own default."""
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
    """The settings for which a class of one's own fails; they are not carried over."""
    judged = {key: _is_excluded(key, sync) for key in source}
    return {key: error for key, error in judged.items() if isinstance(error, ConfigError)}


def _is_excluded(key: str, sync: TopicSync) -> bool | ConfigError:
    try:
        return sync.configs_exclude.accepts(key)
    except ConfigError as error:
        return error


def first_configs(source: TopicConfigs, sync: TopicSync) -> dict[str, str]:
    """What a copy is made with."""
    return {key: value for key, value in carried_configs(source, sync).items() if value is not None}
