"""Defines replication policies: the name of a source topic on the target, and back.

Pure functions of names, with the answers of MirrorMaker 2 (rules of Kafka 4.0 and later) down to the odd corners.
Knows no cluster, no configuration file and no filter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from heliograph.errors import ConfigError
from heliograph.names.custom_classes import HINT, CustomObject, is_custom, make_custom

HEARTBEATS = "heartbeats"
DEFAULT_SEPARATOR = "."
MAX_TOPIC = 249
"""Maximum length of a topic's name in characters, a broker's limit."""


class ReplicationPolicy(Protocol):
    """The methods of MM2's interface of the same name, in snake_case."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str: ...

    def topic_source(self, topic: str) -> str | None: ...

    def upstream_topic(self, topic: str) -> str | None: ...

    def original_topic(self, topic: str) -> str: ...

    def is_heartbeats_topic(self, topic: str) -> bool: ...

    def is_checkpoints_topic(self, topic: str) -> bool: ...

    def is_mm2_internal_topic(self, topic: str) -> bool: ...

    def is_internal_topic(self, topic: str) -> bool: ...

    def offset_syncs_topic(self, alias: str) -> str: ...

    def checkpoints_topic(self, alias: str) -> str: ...

    def heartbeats_topic(self) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class DefaultPolicy:
    """Renames `orders` of A to `A.orders`; any name that contains the separator looks remote."""

    separator: str = DEFAULT_SEPARATOR
    internal_separator_enabled: bool = True
    source_alias: str | None = None

    @property
    def internal_separator(self) -> str:
        """Returns the separator of internal topics; by KIP-949 they may keep the dot under another separator."""
        return self.separator if self.internal_separator_enabled else DEFAULT_SEPARATOR

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return f"{source_alias}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        return _first_part(topic, self.separator)

    def upstream_topic(self, topic: str) -> str | None:
        source = _first_part(topic, self.separator)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.original_topic(topic) == HEARTBEATS

    def is_checkpoints_topic(self, topic: str) -> bool:
        return topic.endswith(self._checkpoints_suffix)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        # KIP-1074 (4.0): a user's own "x.internal" is an ordinary topic.
        named_by_mm2 = topic.startswith("mm2") and topic.endswith(f"{self.internal_separator}internal")
        return named_by_mm2 or self.is_checkpoints_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return topic.startswith(("__", ".")) or self.is_mm2_internal_topic(topic)

    def offset_syncs_topic(self, alias: str) -> str:
        """Names the topic after the alias of the cluster on which it does not live."""
        return f"mm2-offset-syncs{self.internal_separator}{alias}{self.internal_separator}internal"

    def checkpoints_topic(self, alias: str) -> str:
        return alias + self._checkpoints_suffix

    def heartbeats_topic(self) -> str:
        return HEARTBEATS

    @property
    def _checkpoints_suffix(self) -> str:
        return f"{self.internal_separator}checkpoints{self.internal_separator}internal"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdentityPolicy(DefaultPolicy):
    """Keeps names as they are, except names that end with `heartbeats`.

    There is no cycle protection for data. `source_alias` None is a client that knows no flow.
    """

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return DefaultPolicy.format_remote_topic(self, source_alias, topic) if _like_heartbeats(topic) else topic

    def topic_source(self, topic: str) -> str | None:
        return DefaultPolicy.topic_source(self, topic) if _like_heartbeats(topic) else self.source_alias

    def upstream_topic(self, topic: str) -> str | None:
        return DefaultPolicy.upstream_topic(self, topic) if _like_heartbeats(topic) else topic


@dataclass(frozen=True, slots=True)
class CustomPolicy:
    """A custom policy, `python:module.Class`."""

    own: CustomObject

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return self.own.text("format_remote_topic", source_alias, topic)

    def topic_source(self, topic: str) -> str | None:
        return self.own.maybe_text("topic_source", topic)

    def upstream_topic(self, topic: str) -> str | None:
        return self.own.maybe_text("upstream_topic", topic)

    def original_topic(self, topic: str) -> str:
        return self.own.text("original_topic", topic)

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.own.flag("is_heartbeats_topic", topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self.own.flag("is_checkpoints_topic", topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return self.own.flag("is_mm2_internal_topic", topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.own.flag("is_internal_topic", topic)

    def offset_syncs_topic(self, alias: str) -> str:
        return self.own.text("offset_syncs_topic", alias)

    def checkpoints_topic(self, alias: str) -> str:
        return self.own.text("checkpoints_topic", alias)

    def heartbeats_topic(self) -> str:
        return self.own.text("heartbeats_topic")


POLICIES: dict[str, type[DefaultPolicy]] = {
    "org.apache.kafka.connect.mirror.DefaultReplicationPolicy": DefaultPolicy,
    "org.apache.kafka.connect.mirror.IdentityReplicationPolicy": IdentityPolicy,
    "io.strimzi.kafka.connect.mirror.IdentityReplicationPolicy": IdentityPolicy,
}


def make_policy(
    class_name: str,
    separator: str = DEFAULT_SEPARATOR,
    source_alias: str | None = None,
    *,
    internal_separator_enabled: bool = True,
    properties: Mapping[str, str] | None = None,
) -> ReplicationPolicy:
    """Makes the policy of a class name; a custom class gets `properties`."""
    if is_custom(class_name):
        return CustomPolicy(make_custom(class_name, ReplicationPolicy, properties or {}))
    policy = POLICIES.get(class_name.strip())
    if policy is None:
        raise ConfigError(
            f'replication policy "{class_name}" is not built in',
            why="Java classes are not loaded",
            remedy=f"use one of {', '.join(POLICIES)}, or {HINT}",
        )
    return policy(separator=separator, source_alias=source_alias, internal_separator_enabled=internal_separator_enabled)


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Tells whether the topic has already been on the target, so that mirroring it would form a cycle."""
    for _ in range(MAX_TOPIC):  # each step removes a character at least, except in custom policies
        if (source := policy.topic_source(topic)) is None:
            return False
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        topic = upstream
    return False


def is_own_internal_topic(topic: str) -> bool:
    """Tells whether the topic is our ledger or rejected-records topic, which keep their dots whatever the separator."""
    return topic.startswith(("mm2-ledger.", "mm2-rejected.")) and topic.endswith(".internal")


def _first_part(topic: str, separator: str) -> str | None:
    """Returns the text before the first separator by the rules of Java's split, None without two parts.

    Java drops empty parts at the end, so `A.` and `A..` have one part; `.b` has an empty first one. An empty
    separator splits between all characters.
    """
    parts = topic.split(separator) if separator else list(topic)
    while parts and not parts[-1]:
        parts.pop()
    return parts[0] if len(parts) > 1 else None


def _like_heartbeats(topic: str) -> bool:
    return topic.endswith(HEARTBEATS)
