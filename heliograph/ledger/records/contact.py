"""The ledger record "contact": when the source last answered. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_time_ms, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact(JsonRecord):
    """The source answered at this time."""

    KIND: ClassVar[str] = "contact"
    time_ms: int
    since_ms: int = 0
    """Since when it has answered without a silence of `stall.timeout.ms`; 0 where that is not known."""

    @classmethod
    def after(cls, before: Contact | None, *, now_ms: int, stall_ms: int) -> Contact:
        """Return the contact that follows another."""
        if before is None or not before.since_ms or now_ms - before.time_ms > stall_ms:
            return cls(time_ms=now_ms, since_ms=now_ms)
        return cls(time_ms=now_ms, since_ms=before.since_ms)

    def key_parts(self) -> Sequence[Any]:
        return ()

    def fields(self) -> Mapping[str, Any]:
        return {"ms": self.time_ms, "since": self.since_ms}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Contact:
        take(rest, 0)
        return cls(time_ms=as_time_ms(fields["ms"]), since_ms=as_time_ms(fields.get("since", 0)))
