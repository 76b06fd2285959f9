"""Decides where copying starts for a partition that a flow has not copied yet: per flow, and per topic by rules.

Pure. `start.position` is the flow's default; `start.position.<n>.topics` and `start.position.<n>.from` are rules,
tried in the order of their numbers; the first whose patterns match a topic wins.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from heliograph.config.findings import Config, ConfigEntry, Report
from heliograph.config.keys.values import BadValue, split_list
from heliograph.errors import ConfigError
from heliograph.names.filters import NameFilter

PREFIX = "start.position."
EARLIEST, LATEST = -2, -1
"""Kafka's timestamps for the two ends of a log in ListOffsets."""
_ENDS = {"earliest": EARLIEST, "latest": LATEST}
_OFFSETS = re.compile(r"[0-9]{1,9}:[0-9]{1,18}(?:\s*,\s*[0-9]{1,9}:[0-9]{1,18})*")
_TIME = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}.*", re.DOTALL)
_RULE = re.compile(r"([0-9]{1,9})\.(topics|from)")
_FORMS = "must be earliest, latest or a time such as 2026-01-31T12:00:00Z"
_MORE_FORMS = f"{_FORMS}, or offsets such as 0:120,1:77"


@dataclass(frozen=True, slots=True)
class StartPoint:
    """A start point: an end of the log, the first record from a time on, or an offset for each of some partitions."""

    moment: int = EARLIEST
    """EARLIEST, LATEST, or a time in milliseconds."""
    offsets: tuple[tuple[int, int], ...] = ()
    """(partition, offset); partitions not named start at the beginning of their log."""

    def __str__(self) -> str:
        if self.offsets:
            return ",".join(f"{partition}:{offset}" for partition, offset in self.offsets)
        if self.moment < 0:
            return "earliest" if self.moment == EARLIEST else "latest"
        return datetime.fromtimestamp(self.moment / 1000, UTC).isoformat(timespec="milliseconds")

    @property
    def is_earliest(self) -> bool:
        return self == BEGINNING


BEGINNING = StartPoint()


def parse_point(text: str) -> StartPoint:
    """Parses the value of a start position; raises BadValue. A time without a zone is UTC."""
    trimmed = text.strip()
    if trimmed.lower() in _ENDS:
        return StartPoint(_ENDS[trimmed.lower()])
    if _OFFSETS.fullmatch(trimmed):
        return StartPoint(offsets=_parse_offsets(trimmed))
    if _TIME.fullmatch(trimmed):
        return StartPoint(_parse_time(trimmed))
    raise BadValue(_MORE_FORMS, f', not "{trimmed[:80]}"')


def _parse_offsets(text: str) -> tuple[tuple[int, int], ...]:
    pairs = [pair.split(":") for pair in text.split(",")]
    found = {int(partition): int(offset) for partition, offset in pairs}
    if len(found) < len(pairs):
        raise BadValue("names a partition twice", f': "{text[:80]}"')
    return tuple(sorted(found.items()))


def _parse_time(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise BadValue(_FORMS, f', not "{text[:80]}"') from None
    found = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    moment = round(found.timestamp() * 1000)
    if moment < 0:
        raise BadValue("must not be before 1970", f', as "{text[:80]}" is')
    return moment


@dataclass(frozen=True, slots=True, kw_only=True)
class StartPositions:
    """The start points of one flow: a default, and rules for some topics."""

    default: StartPoint = BEGINNING
    rules: tuple[tuple[NameFilter, StartPoint], ...] = ()

    def of(self, topic: str) -> StartPoint:
        return next((point for topics, point in self.rules if topics.accepts(topic)), self.default)

    @property
    def are_earliest(self) -> bool:
        return self.default.is_earliest and all(point.is_earliest for _, point in self.rules)


def build_starts(config: Config, *, reset: str, report: Report) -> StartPositions:
    """Builds them from a connector's keys; `reset` is the consumer's `auto.offset.reset`, the default.

    Faults go into the report.
    """
    default = StartPoint(_ENDS.get(reset, EARLIEST))
    entry = config.get("start.position")
    if entry is not None and not entry.is_missing and entry.value.strip():
        default = _read_point(entry, report) or default
        if default.offsets:
            what = f'"{entry.key}" has offsets, which only make sense for single topics'
            report.error("bad-value", what, entry, remedy=f"write {PREFIX}1.topics and {PREFIX}1.from")
    numbered: dict[int, dict[str, ConfigEntry]] = {}
    for key, given in config.items():
        if not key.startswith(PREFIX):
            continue
        found = _RULE.fullmatch(key[len(PREFIX) :])
        if found is None:
            remedy = f"write {PREFIX}<number>.topics and {PREFIX}<number>.from"
            report.error("misspelt-key", f'"{given.key}" is not a known key', given, remedy=remedy)
        else:
            numbered.setdefault(int(found[1]), {})[found[2]] = given
    rules = [_read_rule(number, numbered[number], report) for number in sorted(numbered)]
    return StartPositions(default=default, rules=tuple(rule for rule in rules if rule is not None))


def _read_rule(number: int, parts: Mapping[str, ConfigEntry], report: Report) -> tuple[NameFilter, StartPoint] | None:
    for wanted, other in (("topics", "from"), ("from", "topics")):
        if wanted not in parts:
            what = f'"{parts[other].key}" has no {PREFIX}{number}.{wanted} beside it'
            report.error("half-a-rule", what, parts[other], remedy=f"write {PREFIX}{number}.{wanted} too")
            return None
    point = _read_point(parts["from"], report)
    topics = parts["topics"]
    if point is None or topics.is_missing:
        return None
    try:
        return NameFilter(split_list(topics.value)), point
    except ConfigError as error:
        fault = f"a pattern of {topics.reference} cannot be used" if topics.reference else f"{error.what}: {error.why}"
        report.error("bad-pattern", f'"{topics.key}": {fault}', topics, remedy=error.remedy)
        return None


def _read_point(entry: ConfigEntry, report: Report) -> StartPoint | None:
    if entry.is_missing:
        return None
    try:
        return parse_point(entry.value)
    except BadValue as error:
        report.error("bad-value", f'"{entry.key}" {error.hidden if entry.reference else error}', entry)
        return None
