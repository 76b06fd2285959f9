"""The ledger record "outcome": a loss, as it is kept on the target until somebody acknowledges it. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, ClassVar

from heliograph.errors import ForeignWrites, SecondWriter
from heliograph.ledger.records.ledger_record import NO_PARTITION, JsonRecord, as_partition_or_none
from heliograph.ledger.records.untrusted_json import as_flag, as_known_offset, as_number, as_text, as_time_ms, take

LossKey = tuple[str, int, str]
"""(source topic, partition, code); a flow's own losses have topic "" and partition -1."""
INFORMATION = frozenset({ForeignWrites.code, SecondWriter.code})
"""Worth knowing, and no reason to call a flow not ready."""
UNKNOWN = -1
WHOLE_FLOW = ("", NO_PARTITION)
"""Stands for topic and partition of a loss of the whole flow."""
_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("text", as_text),
    "mark": ("mark", as_text),
    "times": ("times", as_number),
    "first": ("first_ms", as_time_ms),
    "last": ("last_ms", as_time_ms),
    "records": ("records", as_known_offset),
    "latest": ("latest", as_known_offset),
    "from": ("start", as_known_offset),
    "to": ("end", as_known_offset),
    "target": ("on_target", as_flag),
    "answer": ("answer", as_text),
    "ack": ("acknowledged_ms", as_time_ms),
}
"""By the name in the record: the field, and what its value must be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss(JsonRecord):
    """A loss of one partition, or of a whole flow, and how often it happened.

    `times`, `first_ms` and `last_ms` count from the first time on. `records` and the offsets from `start` to
    `end`, half-open, are those that nobody has acknowledged yet; -1 where they are not known.
    """

    KIND: ClassVar[str] = "outcome"
    topic: str
    partition: int
    code: str
    text: str
    mark: str
    first_ms: int
    last_ms: int
    times: int = 1
    records: int = UNKNOWN
    latest: int = UNKNOWN
    """How many of the records are of the last occurrence."""
    start: int = UNKNOWN
    end: int = UNKNOWN
    on_target: bool = False
    """The offsets are the target's."""
    answer: str = ""
    acknowledged_ms: int = 0
    """0: nobody has."""

    def key_parts(self) -> Sequence[Any]:
        return self.topic, self.partition, self.code

    def fields(self) -> Mapping[str, Any]:
        return {short: getattr(self, name) for short, (name, _) in _FIELDS.items()}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Loss:
        topic, partition, code = take(rest, 3)
        values: dict[str, Any] = {name: parse(fields[short]) for short, (name, parse) in _FIELDS.items()}
        return cls(topic=as_text(topic), partition=as_partition_or_none(partition), code=as_text(code), **values)

    @property
    def key(self) -> LossKey:
        return self.topic, self.partition, self.code

    @property
    def is_open(self) -> bool:
        return not self.acknowledged_ms

    @property
    def blocks(self) -> bool:
        """Whether the flow is not ready for it."""
        return self.is_open and self.code not in INFORMATION

    @property
    def offsets(self) -> str:
        if self.start < 0:
            return ""
        side = "target " if self.on_target else ""
        if self.end <= self.start:
            return f"{side}offset {self.start}" + (" on" if self.end < 0 else "")
        last = self.end - 1
        return f"{side}offset {last}" if last == self.start else f"{side}offsets {self.start} to {last}"

    def short(self) -> str:
        """Return a text for a table: `DATA_LOST orders-3: 120 records (offsets 40 to 159)`."""
        if not self.topic:
            return self.text
        number = f"{self.records} record{'' if self.records == 1 else 's'}" if self.records >= 0 else ""
        parts = [f"{number} ({self.offsets})" if number and self.offsets else number or self.offsets]
        parts += [f"{self.times} times"] if self.times > 1 else []
        return f"{self.code} {self.topic}-{self.partition}: {', '.join(filter(None, parts))}"

    def row(self) -> dict[str, str | int | None]:
        return {
            "code": self.code,
            "topic": self.topic or None,
            "partition": self.partition if self.topic else None,
            "records": self.records if self.records >= 0 else None,
            "offsets": self.offsets or None,
            "times": self.times,
            "first": utc(self.first_ms),
            "last": utc(self.last_ms),
            "answer": self.answer or None,
            "what": self.text,
        }


def utc(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
