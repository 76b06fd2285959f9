"""Decides which topics and groups are mirrored: MM2's lists of Java patterns, and the rules around them.

Pure functions of names. A list is joined with `|` before it is compiled, as MM2 does, so that even `(a, b)c` and a
leading `(?i)` mean the same as in MM2.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import regex

from heliograph.errors import ConfigError
from heliograph.names.custom_classes import CustomObject
from heliograph.names.java_regex.translation import translate
from heliograph.names.policies import ReplicationPolicy, is_cycle, is_own_internal_topic
from heliograph.names.renaming import without_rules

_MATCH_TIMEOUT_S = 5.0
MAX_LENGTH = 50_000
"""Maximum length of a list of patterns: enough for the names of 2,000 topics, which take 0.3 s to read."""


class Filter(Protocol):
    """The interface of a filter of topics, groups or topic configs."""

    def accepts(self, name: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class CustomFilter:
    """A custom filter, `python:module.Class`."""

    own: CustomObject
    is_negated: bool = False
    """Whether the answer is negated: the class says what is copied where the caller asks what is not."""

    def accepts(self, name: str) -> bool:
        return self.own.flag("accepts", name) is not self.is_negated


@dataclass(frozen=True, slots=True)
class NameFilter:
    """A filter of include and exclude patterns that match whole names; excludes win, an empty list matches nothing."""

    include: tuple[str, ...]
    exclude: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuses what Java would refuse; compiling waits for the first name, because it is the slowest step."""
        _translated(self.include)
        _translated(self.exclude)

    def accepts(self, name: str) -> bool:
        return _matches(self.include, name) and not _matches(self.exclude, name)


TopicFilter = NameFilter
GroupFilter = NameFilter


def should_mirror(
    policy: ReplicationPolicy,
    topic_filter: Filter,
    topic: str,
    target_alias: str,
    *,
    heartbeats_enabled: bool = True,
    never: Collection[str] = (),
) -> bool:
    """Tells whether a flow to `target_alias` copies the topic; `never` names all storage topics."""
    if topic in never or is_own_internal_topic(topic) or policy.is_internal_topic(topic):
        return False
    wanted = topic_filter.accepts(topic) or (heartbeats_enabled and policy.is_heartbeats_topic(topic))
    return wanted and not is_cycle(without_rules(policy), topic, target_alias)


def is_ledger_topic(topic: str) -> bool:
    return topic.startswith("mm2-ledger.") and topic.endswith(".internal")


@lru_cache(maxsize=4096)
def _compiled(patterns: tuple[str, ...]) -> Any:
    return regex.compile(_translated(patterns), regex.V1)


@lru_cache(maxsize=4096)
def _translated(patterns: tuple[str, ...]) -> str:
    joined = "|".join(patterns)
    if len(joined) > MAX_LENGTH:
        raise ConfigError(
            f'pattern "{joined[:80]}..." cannot be used',
            why=f"it has more than {MAX_LENGTH} characters",
            remedy="use a shorter pattern for what the topics have in common",
        )
    try:
        return translate(joined)
    except ConfigError as error:
        raise next(_same_fault(error, patterns), error) from None


def _same_fault(error: ConfigError, patterns: tuple[str, ...]) -> Iterator[ConfigError]:
    """Yields the same fault for the single pattern of a list that has it."""
    for pattern in patterns:
        try:
            translate(pattern)
        except ConfigError as alone:
            if alone.why == error.why:
                yield alone


def _matches(patterns: tuple[str, ...], name: str) -> bool:
    if not patterns:
        return False
    try:
        return _compiled(patterns).fullmatch(name, timeout=_MATCH_TIMEOUT_S) is not None
    except TimeoutError:
        raise ConfigError(
            f'pattern "{"|".join(patterns)}" takes more than {_MATCH_TIMEOUT_S:.0f} s on "{name}"',
            why="nested repetitions make the matcher try every way to cut the name",
            remedy="write the pattern without a repetition inside a repetition",
        ) from None
