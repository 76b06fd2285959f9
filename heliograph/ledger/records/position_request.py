"""The ledger record "wish": a position that somebody set. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from heliograph.config.start_points import StartPoint
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_offset, as_partition, as_set_time_ms, as_text, take


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRequest(JsonRecord):
    """Somebody set where the copy of one partition is to go on (`position_requests`)."""

    KIND: ClassVar[str] = "wish"
    topic: str
    partition: int
    time_ms: int
    """When it was written; 0: it is fulfilled, or was taken back, and the record is deleted."""
    offset: int | None = None
    """The next source offset to copy; None: where a new flow would begin."""

    def point(self, usual: StartPoint) -> StartPoint:
        return usual if self.offset is None else StartPoint(offsets=((self.partition, self.offset),))

    def holds(self, known: Entry | None, stored: int | None) -> bool:
        """Whether nobody had the flow since: a position beyond the entry and the request is another tool's work."""
        return stored is None or stored <= max(known.source_offset if known is not None else 0, self.offset or 0)

    def key_parts(self) -> Sequence[Any]:
        return self.topic, self.partition

    def fields(self) -> Mapping[str, Any] | None:
        return {"to": self.offset, "ms": self.time_ms} if self.time_ms else None

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> PositionRequest:
        offset = None if fields["to"] is None else as_offset(fields["to"])
        return replace(cls.parse_deleted(rest), time_ms=as_set_time_ms(fields["ms"]), offset=offset)

    @classmethod
    def parse_deleted(cls, rest: Sequence[Any]) -> PositionRequest:
        topic, partition = take(rest, 2)
        return cls(topic=as_text(topic), partition=as_partition(partition), time_ms=0)
