"""What a flow asks of its target: topics, replicas. Pure: a check before the start says the same as the start."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from heliograph.config.settings import Checkpoints, Flow
from heliograph.errors import ConfigError, NotCompacted
from heliograph.flow.topic_configs import first_configs, follows_configs
from heliograph.kafka.admin.tool_commands import alter_topic_command
from heliograph.kafka.admin.topic_configs import TopicConfigs
from heliograph.kafka.admin.topics import NewTopic
from heliograph.kafka.catalogue import Catalogue
from heliograph.ledger import store
from heliograph.ledger.copy_names import plan_names


def wanted_topics(flow: Flow, source: Catalogue) -> dict[str, str]:
    """Give the source topics to mirror and their names on the target; for a running flow `FlowNames` knows more."""
    return plan_names(flow, source.topics).wanted


def new_copy(flow: Flow, topic: str, *, partitions: int, source: TopicConfigs | None = None) -> NewTopic:
    """Define the target of a topic that has none, with the configs of its source if they are known.

    Copied heartbeats are compacted as their source is: they never end.
    """
    configs = first_configs(source or {}, flow.topic_sync)
    return NewTopic(
        name=flow.remote_topic(topic),
        partitions=partitions,
        replication_factor=flow.replication_factor,
        configs=configs if follows_configs(flow, topic) else store.COMPACTED,
    )


def internal_topics(flow: Flow) -> list[NewTopic]:
    """List the topics in which the flow keeps its state."""
    kept = (
        (flow.offset_storage_topic, flow.offset_storage_partitions, flow.offset_storage_replication_factor, store.BUSY),
        (flow.config_storage_topic, 1, flow.config_storage_replication_factor, store.COMPACTED),
        (
            flow.status_storage_topic,
            flow.status_storage_partitions,
            flow.status_storage_replication_factor,
            store.COMPACTED,
        ),
        (flow.ledger_topic, 1, flow.offset_storage_replication_factor, store.BUSY),
    )
    return [
        NewTopic(name=name, partitions=partitions, replication_factor=factor, configs=configs)
        for name, partitions, factor, configs in kept
    ]


def absent_storage(flow: Flow, target: Catalogue) -> ConfigError | None:
    """Make the error for internal topics that must exist and do not; it is vital if no topic holds positions."""
    absent = [topic for topic in internal_topics(flow) if topic.name not in target.topics]
    if flow.makes_internal_topics or not absent:
        return None
    names = [topic.name for topic in absent]
    is_vital = flow.offset_storage_topic in names
    ledger = [f'the ledger is kept in "{flow.offset_storage_topic}"'] if flow.ledger_topic in names else []
    others = ["MirrorMaker 2 cannot take the flow over"] if set(names) - {flow.ledger_topic} else []
    return ConfigError(
        f'"{flow.target}" lacks {", ".join(names)}, and we are not to make internal topics',
        where=flow.name,
        why="positions have no place" if is_vital else "; ".join(ledger + others),
        remedy=f"set internal.topics.automatic.creation.enable = true, or have them made: "
        f"{' ; '.join(topic.command() for topic in absent)}",
        is_vital=is_vital,
    )


def offset_syncs_topic(flow: Flow) -> NewTopic:
    return _one_partition(flow.offset_syncs_topic, flow.offset_syncs.replication_factor)


def checkpoints_topic(flow: Flow, checkpoints: Checkpoints) -> NewTopic:
    return _one_partition(flow.checkpoints_topic, checkpoints.replication_factor)


def _one_partition(name: str, factor: int) -> NewTopic:
    return NewTopic(name=name, partitions=1, replication_factor=factor, configs=store.COMPACTED)


class Beside(NamedTuple):
    """A topic that a flow writes beside its copies; without it the flow still mirrors."""

    alias: str
    topic: NewTopic
    factor_key: str


def topics_beside(flow: Flow) -> Iterator[Beside]:
    if flow.offset_syncs.enabled:
        alias = flow.source if flow.offset_syncs.location == "source" else flow.target
        yield Beside(alias, offset_syncs_topic(flow), "offset-syncs.topic.replication.factor")
    if flow.checkpoints is not None:
        topic = checkpoints_topic(flow, flow.checkpoints)
        yield Beside(flow.target, topic, "checkpoints.topic.replication.factor")
    if flow.heartbeats is not None:
        topic = _one_partition(flow.policy.heartbeats_topic(), flow.heartbeats.replication_factor)
        yield Beside(flow.target, topic, "heartbeats.topic.replication.factor")


COMPACT = "compact"

_VITAL = "retention deletes entries and positions of idle partitions, and their records would be copied again"
_CONNECT = "Kafka Connect, and MirrorMaker 2 with it, does not start with such a topic"


class Compacted(NamedTuple):
    """A topic of which the newest record of every key must stay."""

    alias: str
    topic: str
    is_vital: bool
    """The flow's own state is there: it does not start while retention may delete it. Without the others nothing that
    is copied is lost, and MirrorMaker 2, which does not look at them, may have left them as they are."""
    effect: str
    """What retention does there."""


def compacted_topics(flow: Flow) -> Iterator[Compacted]:
    """List all internal topics of a flow, whether they exist or not."""
    for topic in internal_topics(flow):
        is_vital = topic.name in (flow.ledger_topic, flow.offset_storage_topic)
        yield Compacted(flow.target, topic.name, is_vital, _VITAL if is_vital else _CONNECT)
    for alias, topic, _ in topics_beside(flow):
        yield Compacted(alias, topic.name, False, _effect_beside(flow, topic.name))


def _effect_beside(flow: Flow, topic: str) -> str:
    if topic == flow.checkpoints_topic:
        return "checkpoints of idle groups are deleted, and Java's clients do not find them; the ledger still has them"
    if topic == flow.offset_syncs_topic:
        return "offset syncs of idle partitions are deleted: MirrorMaker 2 translates without them"
    return "heartbeats of flows that rest are deleted; nothing else is lost"


def not_compacted(topic: Compacted, policy: str, *, where: str) -> NotCompacted:
    return NotCompacted(
        f'"{topic.topic}" on "{topic.alias}" has cleanup.policy={policy}, and must have {COMPACT}',
        where=where,
        why=topic.effect,
        remedy=f"have it changed: {alter_topic_command(topic.topic, {'cleanup.policy': COMPACT})}",
    )


def too_few_brokers(flow: Flow, target: Catalogue, remotes: Iterable[str]) -> ConfigError | None:
    """Make the error for topics that need more replicas than there are brokers."""
    brokers = len(target.brokers)
    faults = [
        f'"{topic.name}" needs {topic.replication_factor}'
        for topic in (internal_topics(flow) if flow.makes_internal_topics else ())
        if topic.name not in target.topics and topic.replication_factor > brokers
    ]
    new = [name for name in remotes if name not in target.topics]
    if new and flow.replication_factor > brokers:
        more = f" and {len(new) - 1} more need" if new[1:] else " needs"
        faults.append(f'"{new[0]}"{more} {flow.replication_factor}')
    if not faults:
        return None
    return ConfigError(
        f'"{flow.target}" has {brokers} broker{"s" if brokers > 1 else ""}, too few for the replication '
        f"factors asked for: {', '.join(faults)}",
        where=flow.name,
        remedy="lower replication.factor and offset|config|status.storage.replication.factor "
        "(-1 takes the broker's default), or start more brokers",
    )
