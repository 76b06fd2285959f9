"""The ledger record "condition": what a flow lacks, and what fails beside its copying. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_flag, as_texts, as_time_ms, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition(JsonRecord):
    """The driver tells whoever asks what the flow lacks, what fails beside its copying, and since when it knows."""

    KIND: ClassVar[str] = "condition"
    lacks: tuple[str, ...]
    is_blocked: bool
    """Nothing, or not all, is copied for lack of it."""
    time_ms: int
    failing: tuple[str, ...] = ()
    """Side loops whose last try failed, each with its error."""

    def key_parts(self) -> Sequence[Any]:
        return ()

    def fields(self) -> Mapping[str, Any]:
        return {
            "lacks": list(self.lacks),
            "blocked": self.is_blocked,
            "ms": self.time_ms,
            **({"failing": list(self.failing)} if self.failing else {}),
        }

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Condition:
        take(rest, 0)
        return cls(
            lacks=as_texts(fields["lacks"]),
            is_blocked=as_flag(fields["blocked"]),
            time_ms=as_time_ms(fields["ms"]),
            failing=as_texts(fields.get("failing", [])),
        )
