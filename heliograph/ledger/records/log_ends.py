"""The ledger record "ends": the log ends of a topic of the source, as last seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

from heliograph.ledger.records.ledger_record import JsonRecord, one_text
from heliograph.ledger.records.untrusted_json import as_known_offset, as_list, as_time_ms


class LogEnd(NamedTuple):
    """The end of one source partition's log."""

    offset: int
    """-1: its leader did not answer."""
    since_ms: int
    """Since when records stand there that are not copied; 0 if all are."""
    still_ms: int = 0
    """Since when the copy stands still although there are such records; 0 if it moves, or all are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds(JsonRecord):
    """The log ends of a topic of the source, by partition."""

    KIND: ClassVar[str] = "ends"
    topic: str
    time_ms: int
    ends: tuple[LogEnd, ...]

    def key_parts(self) -> Sequence[Any]:
        return (self.topic,)

    def fields(self) -> Mapping[str, Any]:
        return {
            "ms": self.time_ms,
            "ends": [end.offset for end in self.ends],
            "since": [end.since_ms for end in self.ends],
            **({"still": [end.still_ms for end in self.ends]} if any(end.still_ms for end in self.ends) else {}),
        }

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> LogEnds:
        ends = as_list(fields["ends"])
        still = as_list(fields.get("still", [0] * len(ends)))
        return cls(
            topic=one_text(rest),
            time_ms=as_time_ms(fields["ms"]),
            ends=tuple(
                LogEnd(as_known_offset(end), as_time_ms(since), as_time_ms(still_since))
                for end, since, still_since in zip(ends, as_list(fields["since"]), still, strict=True)
            ),
        )
