"""Compares what topics accept: would the target refuse, or change, records that the source has? Pure.

age of a record when it is copied <= before.max of the source + retention of the source
time ahead of the clock           <= after.max of the source
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from heliograph.flow.target_topics import DEFAULT_MAX_MESSAGE_BYTES
from heliograph.preflight.steps import Note, warned

_UNLIMITED = 2**63 - 1
TOPIC_KEYS = (
    "max.message.bytes",
    "message.timestamp.type",
    "message.timestamp.before.max.ms",
    "message.timestamp.after.max.ms",
    "message.timestamp.difference.max.ms",
    "retention.ms",
    "cleanup.policy",
)
BROKER_KEYS = {"max.message.bytes": "message.max.bytes"} | {
    key: f"log.{key}" for key in TOPIC_KEYS if key.startswith("message.timestamp.")
}
"""The limits of a new topic."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one topic; a time that is None has no limit."""

    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    stamps_time: bool = False
    before_ms: int | None = None
    after_ms: int | None = None
    retention_ms: int | None = None


def parse_limits(values: Mapping[str, str]) -> Limits:
    """Parses limits from a topic's configs. Before 3.6 one key limits both directions of time."""
    both = _time(values.get("message.timestamp.difference.max.ms"))
    before = _time(values.get("message.timestamp.before.max.ms"))
    after = _time(values.get("message.timestamp.after.max.ms"))
    is_deleted = "delete" in values.get("cleanup.policy", "delete")
    return Limits(
        max_message_bytes=int(values.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
        stamps_time=values.get("message.timestamp.type") == "LogAppendTime",
        before_ms=both if before is None else before,
        after_ms=both if after is None else after,
        retention_ms=_time(values.get("retention.ms")) if is_deleted else None,
    )


def limits_of_new_topic(broker: Mapping[str, str], own: Mapping[str, str]) -> Limits:
    """Derives limits from a broker's configs, and those that the topic is created with."""
    return parse_limits({key: broker[name] for key, name in BROKER_KEYS.items() if name in broker} | dict(own))


def _time(text: str | None) -> int | None:
    value = _UNLIMITED if text is None else int(text)
    return None if value < 0 or value == _UNLIMITED else value


def compare_limits(source: Limits, target: Limits) -> Iterator[Note]:
    """Yields what may go wrong with records of a topic; without its name, so that equal notes can be joined."""
    if target.max_message_bytes < source.max_message_bytes:
        yield warned(
            "max.message.bytes",
            f"the target accepts {target.max_message_bytes} bytes, the source {source.max_message_bytes}: "
            "a larger record would be refused",
            f"set the target's max.message.bytes to {source.max_message_bytes}",
        )
    if target.stamps_time:
        yield warned(
            "timestamps",
            "the target replaces timestamps with its own time (LogAppendTime)",
            "set the target's message.timestamp.type to CreateTime",
        )
        return
    source = replace(source, before_ms=0, after_ms=0) if source.stamps_time else source
    oldest = None if None in (source.before_ms, source.retention_ms) else _sum(source.before_ms, source.retention_ms)
    if _is_less(target.before_ms, oldest):
        yield _refused("older", "before", target.before_ms)
    if _is_less(target.after_ms, source.after_ms):
        yield _refused("further in the future", "after", target.after_ms)


def _sum(first: int | None, second: int | None) -> int:
    return (first or 0) + (second or 0)


def _is_less(limit: int | None, needed: int | None) -> bool:
    return limit is not None and (needed is None or limit < needed)


def _refused(which: str, side: str, limit_ms: int | None) -> Note:
    key = f"message.timestamp.{side}.max.ms"
    return warned(
        "timestamps",
        f"the target refuses records whose time is {which} than {limit_ms} ms ({key}); the source may have some",
        f"raise the target's {key} to the source's",
    )
