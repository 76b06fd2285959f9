"""What people want of a flow's positions, kept in its ledger: a position that was set, and what was asked for. Pure.

A request is written while nobody leads the flow. The next leader opens the partition's new count by it, and with the
count's entry the request is gone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from heliograph.config.settings import Flow
from heliograph.config.start_points import StartPoint
from heliograph.errors import ConfigError
from heliograph.ledger.model import Entry
from heliograph.ledger.untrusted_json import (
    as_fields,
    as_number,
    as_offset,
    as_partition,
    as_set_time_ms,
    as_text,
    as_texts,
    take,
)
from heliograph.names.filters import NameFilter

VERSION = 1


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


ALL = NameFilter((".*",))
"""What a flow counts as asked for whose topics a class of somebody's own chooses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRequest:
    """Where the copy of one partition is to go on."""

    topic: str
    partition: int
    time_ms: int
    """When it was written; 0: it is fulfilled, or was taken back."""
    offset: int | None = None
    """The next source offset to copy; None: where a new flow would begin."""

    def encode(self, group_id: str) -> tuple[bytes, bytes | None]:
        value = _compact({"v": VERSION, "to": self.offset, "ms": self.time_ms}) if self.time_ms else None
        return _compact(["wish", group_id, self.topic, self.partition]), value

    @classmethod
    def parse(cls, rest: list[Any], fields: Mapping[str, Any] | None) -> PositionRequest:
        """`rest` is what follows in the key; without fields it was deleted."""
        topic, partition = as_text(take(rest, 2)[0]), as_partition(rest[1])
        if fields is None:
            return cls(topic=topic, partition=partition, time_ms=0)
        offset = None if fields["to"] is None else as_offset(fields["to"])
        return cls(topic=topic, partition=partition, time_ms=as_set_time_ms(fields["ms"]), offset=offset)

    def point(self, usual: StartPoint) -> StartPoint:
        return usual if self.offset is None else StartPoint(offsets=((self.partition, self.offset),))

    def holds(self, known: Entry | None, stored: int | None) -> bool:
        """Whether nobody had the flow since: a position beyond the entry and the request is another tool's work."""
        return stored is None or stored <= max(known.source_offset if known is not None else 0, self.offset or 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class SelectionSeen:
    """What a flow was asked for when its topics were last looked at.

    Start positions are for what a flow is asked for the first time. What appears later among these topics is new, and
    is copied from its first record: whoever wrote there before we looked counted on the mirror.
    """

    include: tuple[str, ...]
    exclude: tuple[str, ...]
    """Patterns of topics."""
    waiting: Mapping[str, int] = field(default_factory=dict)
    """Topics of which so many partitions were there when they were first asked for, and some could not begin yet."""

    def encode(self, group_id: str) -> tuple[bytes, bytes]:
        fields = {"v": VERSION, "topics": self.include, "exclude": self.exclude, "waiting": self.waiting}
        return _compact(["asked", group_id]), _compact(fields)

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> SelectionSeen:
        include, exclude = as_texts(fields["topics"]), as_texts(fields["exclude"])
        try:
            NameFilter(include, exclude)
        except ConfigError as error:
            raise ValueError("patterns that cannot be used") from error
        waiting = {topic: as_number(number) for topic, number in as_fields(fields["waiting"]).items()}
        return cls(include=include, exclude=exclude, waiting=waiting)


def first_asked(flow: Flow, before: SelectionSeen | None, *, is_new: bool) -> Callable[[tuple[str, int]], bool]:
    """Tells of a partition that was never copied whether it is one that the flow is first asked for, or a new one.

    `is_new`: the flow has never copied anything, as far as its ledger knows. A ledger of an older release does not
    say what was asked for: then it was all that is now.
    """
    if before is None:
        return lambda _: is_new
    waiting, topics = before.waiting, NameFilter(before.include, before.exclude)
    then = flow if topics == flow.topics else replace(flow, topics=topics)

    def is_first(where: tuple[str, int]) -> bool:
        topic, partition = where
        return partition < waiting.get(topic, 0) or not then.mirrors(topic)

    return is_first


def asked_now(
    flow: Flow,
    before: SelectionSeen | None,
    partitions: Mapping[str, int],
    *,
    begun: Container[tuple[str, int]],
    is_first: Callable[[tuple[str, int]], bool],
) -> SelectionSeen:
    """After a look that found so many partitions of each topic; where all begins at the first record nobody waits."""
    waiting: dict[str, int] = {}
    known = before.waiting if before is not None else {}
    if not flow.start_positions.are_earliest:
        for topic, number in partitions.items():
            there = known.get(topic) or (number if is_first((topic, 0)) else 0)
            if any((topic, partition) not in begun for partition in range(there)):
                waiting[topic] = there
    asked = flow.topics if isinstance(flow.topics, NameFilter) else ALL
    return SelectionSeen(include=asked.include, exclude=asked.exclude, waiting=waiting)
