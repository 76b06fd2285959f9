"""Builds policies, filters and renaming rules from keys; custom classes are loaded here."""

from __future__ import annotations

import re
from collections.abc import Iterator

from heliograph.config.files.parts import FlowParts
from heliograph.config.findings import Config, ConfigEntry, Report
from heliograph.config.keys.table import DEFAULTS
from heliograph.config.keys.typed_reader import Reader
from heliograph.errors import ConfigError
from heliograph.names.custom_classes import is_custom, make_custom
from heliograph.names.filters import CustomFilter, Filter, NameFilter
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, ReplicationPolicy, make_policy
from heliograph.names.renaming import Rename, Renames, with_rules

TOPIC_RENAME, GROUP_RENAME, FOR_OWN = "topic.rename.", "group.rename.", "python."
MAX_RULES = 1000
"""Maximum number of renaming rules of a flow: each is tried on every name."""
MAX_RULE = 1000
"""Maximum length of a pattern or a replacement in characters."""
_HALF = re.compile(r"([0-9]{1,9})\.(pattern|replacement)")
_GIVEN = (
    "replication.policy.separator", "replication.policy.internal.topic.separator.enabled", "topics", "topics.exclude",
    "groups", "groups.exclude", "config.properties.exclude", "use.defaults.from",
)  # fmt: skip
"""Keys that the built-in classes read; custom classes get them too."""
_COSTS = {
    TOPIC_RENAME: "its copies' names do not show where they came from: tools that go by names, and the "
    "failback after a failover, take them for topics of the target",
    GROUP_RENAME: "checkpoints show its groups only under their names on the target",
}


def custom_properties(flow: Reader, parts: FlowParts) -> dict[str, str]:
    """Returns the properties of a custom class: the aliases, what the built-in ones read, and every `python.` key."""
    entries = {name: flow.entry(name) for name in _GIVEN}
    given = {name: entry.value if entry else DEFAULTS[name].default or "" for name, entry in entries.items()}
    own = {FOR_OWN + key: entry.value for key, entry in flow.family(FOR_OWN).items()}
    return {"source.cluster.alias": parts.source, "target.cluster.alias": parts.target, **given, **own}


# -- filters


def build_topic_filter(flow: Reader, parts: FlowParts, report: Report) -> Filter:
    own = _custom_filter("topic.filter.class", flow, parts, report)
    return own or build_filter(flow, "topics", "topics.exclude", report)


def build_group_filter(flow: Reader, parts: FlowParts, report: Report) -> Filter:
    own = _custom_filter("group.filter.class", flow, parts, report)
    return own or build_filter(flow, "groups", "groups.exclude", report)


def build_config_exclude(flow: Reader, parts: FlowParts, report: Report) -> Filter:
    """Builds the filter of topic configs that are not synced; a custom class says which are."""
    own = _custom_filter("config.property.filter.class", flow, parts, report, is_negated=True)
    return own or build_filter(flow, "config.properties.exclude", "", report)


def _custom_filter(
    key: str, flow: Reader, parts: FlowParts, report: Report, *, is_negated: bool = False
) -> CustomFilter | None:
    name = flow.text(key)
    if not is_custom(name):
        return None
    try:
        return CustomFilter(make_custom(name, Filter, custom_properties(flow, parts)), is_negated)
    except ConfigError as error:
        _report_class(key, flow.entry(key), error, report)
        return None


def build_filter(flow: Reader, include: str, exclude: str, report: Report) -> NameFilter:
    patterns: dict[str, tuple[str, ...]] = {}
    for name in filter(None, (include, exclude)):
        patterns[name] = flow.items(name)
        try:
            NameFilter(patterns[name])
        except ConfigError as error:
            entry = flow.entry(name)
            report.error(
                "bad-pattern",
                f'"{entry.key if entry else name}": {_shown_fault(entry, error)}',
                entry,
                remedy=error.remedy,
            )
            patterns[name] = ()
    return NameFilter(patterns[include], patterns.get(exclude, ()))


def _shown_fault(entry: ConfigEntry | None, error: ConfigError) -> str:
    if entry is not None and entry.reference:
        return f"a pattern of {entry.reference} cannot be used"
    return f"{error.what}: {error.why}"


# -- policies


def build_policy(flow: Reader, parts: FlowParts, report: Report) -> ReplicationPolicy:
    rules = build_renames(flow, TOPIC_RENAME, report)
    return with_rules(_build_base(flow, parts, report), [(parts.source, rules)])


def _build_base(flow: Reader, parts: FlowParts, report: Report) -> ReplicationPolicy:
    key = "replication.policy.class"
    entry = flow.entry("replication.policy.separator")
    separator = entry.value if entry else "."
    internal = flow.flag("replication.policy.internal.topic.separator.enabled") if entry else True
    name, properties = flow.text(key), custom_properties(flow, parts)
    try:
        policy = make_policy(name, separator, parts.source, internal_separator_enabled=internal, properties=properties)
    except ConfigError as error:
        _report_class(key, flow.entry(key), error, report)
        policy = DefaultPolicy(source_alias=parts.source)
    for alias in (parts.source, parts.target):
        takes_apart = isinstance(policy, DefaultPolicy) and not isinstance(policy, IdentityPolicy)
        if separator and separator in alias and takes_apart:
            report.error(
                "separator-in-alias",
                f'alias "{alias}" contains the separator "{flow.shown("replication.policy.separator")}", '
                "so the source of a remote topic cannot be told",
                entry or parts.place,
                remedy="choose another alias or set replication.policy.separator",
            )
    return policy


def _report_class(key: str, entry: ConfigEntry | None, error: ConfigError, report: Report) -> None:
    """Reports what is wrong with a custom class; a class from a placeholder is not named."""
    told = f"the class of {entry.reference} cannot be used" if entry and entry.reference else error.what
    why = f"; {error.why}" if error.why and not (entry and entry.reference) else ""
    report.error("bad-class", f'"{entry.key if entry else key}": {told}{why}', entry, remedy=error.remedy)


# -- rules for new names


def build_renames(flow: Reader, family: str, report: Report) -> Renames:
    """Builds the renaming rules by their numbers; a faulty rule is reported and left out."""
    halves: dict[int, dict[str, ConfigEntry]] = {}
    for key, entry in flow.family(family).items():
        match = _HALF.fullmatch(key)
        if match is None:
            remedy = f"write {family}1.pattern and {family}1.replacement"
            report.error("bad-rename", f'"{entry.key}" is not part of a rule', entry, remedy=remedy)
        elif halves.setdefault(int(match[1]), {}).setdefault(match[2], entry) is not entry:
            report.error("bad-rename", f'"{entry.key}": there is another rule {int(match[1])}', entry)
    if len(halves) > MAX_RULES:
        first = next(iter(halves[min(halves)].values()))
        report.error("bad-rename", f"there are more than {MAX_RULES} rules {family}<n>", first)
        return Renames()
    return Renames(tuple(_rules((halves[number] for number in sorted(halves)), family, report)))


def _rules(halves: Iterator[dict[str, ConfigEntry]], family: str, report: Report) -> Iterator[Rename]:
    for half in halves:
        pattern, replacement = half.get("pattern"), half.get("replacement")
        if pattern is None or replacement is None:
            there = pattern or replacement
            assert there is not None
            lacking = "replacement" if replacement is None else "pattern"
            what = f'"{there.key}" has no {lacking}'
            report.error("bad-rename", what, there, remedy=f"write {there.key.rpartition('.')[0]}.{lacking}")
        elif not (pattern.is_missing or replacement.is_missing) and (rule := _rule(pattern, replacement, report)):
            if rule.one_way:
                report.warn("one-way-rename", f'"{pattern.key}": {rule.one_way}', pattern, remedy=_COSTS[family])
            yield rule


def _rule(pattern: ConfigEntry, replacement: ConfigEntry, report: Report) -> Rename | None:
    for entry in (pattern, replacement):
        if len(entry.value) > MAX_RULE:
            report.error("bad-rename", f'"{entry.key}" has more than {MAX_RULE} characters', entry)
            return None
    try:
        return Rename(pattern.value, replacement.value)
    except ConfigError as error:
        entry = replacement if error.what.startswith("replacement") else pattern
        told = f"{entry.reference} cannot be used" if entry.reference else f"{error.what}: {error.why}"
        report.error("bad-rename", f'"{entry.key}": {told}', entry, remedy=error.remedy)
        return None


def written_patterns(config: Config) -> Iterator[ConfigEntry]:
    """Yields the patterns of renaming rules that are written in a file."""
    for key, entry in config.items():
        if key.startswith((TOPIC_RENAME, GROUP_RENAME)) and key.endswith(".pattern"):
            yield entry
