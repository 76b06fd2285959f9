"""The ledger record "pass": when the groups of the source were last gone over. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord, one_text
from heliograph.ledger.records.untrusted_json import as_number, as_time_ms


class PassKind(StrEnum):
    """The kinds of passes over all groups of a flow."""

    COMMITS = "commits"
    """Their commits are read and kept in the ledger."""
    CHECKPOINTS = "checkpoints"
    """They are synced: checkpoints, and offsets if that is wished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPass(JsonRecord):
    """The last pass over the groups of the source, whether or not one of them had moved."""

    KIND: ClassVar[str] = "pass"
    kind: PassKind
    time_ms: int
    """When it ended."""
    every_ms: int
    """How far apart passes are; they are stretched where they cost too much."""
    groups: int

    def key_parts(self) -> Sequence[Any]:
        return (str(self.kind),)

    def fields(self) -> Mapping[str, Any]:
        return {"ms": self.time_ms, "every": self.every_ms, "groups": self.groups}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> GroupPass:
        return cls(
            kind=PassKind(one_text(rest)),
            time_ms=as_time_ms(fields["ms"]),
            every_ms=as_number(fields["every"]),
            groups=as_number(fields["groups"]),
        )
