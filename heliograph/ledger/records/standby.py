"""The ledger record "standby": a process that waits for the flow's lease. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord, one_text
from heliograph.ledger.records.untrusted_json import as_set_time_ms, as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRecord(JsonRecord):
    """A process waits for the flow's lease; for `status`."""

    KIND: ClassVar[str] = "standby"
    owner: str
    time_ms: int
    """0: it waits no more, and the record is deleted."""
    host: str = ""

    def key_parts(self) -> Sequence[Any]:
        return (self.owner,)

    def fields(self) -> Mapping[str, Any] | None:
        return {"host": self.host, "ms": self.time_ms} if self.time_ms else None

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> StandbyRecord:
        return cls(owner=one_text(rest), time_ms=as_set_time_ms(fields["ms"]), host=as_text(fields["host"]))

    @classmethod
    def parse_deleted(cls, rest: Sequence[Any]) -> StandbyRecord:
        return cls(owner=one_text(rest), time_ms=0)
