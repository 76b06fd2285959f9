"""The ledger record "trouble": what keeps a partition from being copied. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import NO_PARTITION, JsonRecord, as_partition_or_none
from heliograph.ledger.records.untrusted_json import as_fields, as_flag, as_text, take

WHOLE_TOPIC = NO_PARTITION
"""Stands for the whole topic where a partition's number is expected."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble(JsonRecord):
    """A lane tells its driver what keeps a partition from being copied, or the driver what a whole topic is refused.

    `final`: the partition is given back before the epoch ends. Else it is tried again, and
    an empty text says that it goes on.
    """

    KIND: ClassVar[str] = "trouble"
    topic: str
    partition: int
    code: str
    text: str
    final: bool
    details: dict[str, Any] = field(default_factory=dict)
    """Numbers of an outcome that does not end the copying."""

    def key_parts(self) -> Sequence[Any]:
        return self.topic, self.partition

    def fields(self) -> Mapping[str, Any]:
        return {
            "code": self.code,
            "text": self.text,
            "final": self.final,
            **({"details": self.details} if self.details else {}),
        }

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Trouble:
        topic, partition = take(rest, 2)
        return cls(
            topic=as_text(topic),
            partition=as_partition_or_none(partition),
            code=as_text(fields["code"]),
            text=as_text(fields["text"]),
            final=as_flag(fields["final"]),
            details=as_fields(fields.get("details", {})),
        )
