"""The ledger record "order": the driver tells its lanes to end. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_number, as_text, take


@dataclass(frozen=True, slots=True, kw_only=True)
class Order(JsonRecord):
    """The driver tells its lanes that epochs up to `end_epoch` are to end now."""

    KIND: ClassVar[str] = "order"
    owner: str
    end_epoch: int

    def key_parts(self) -> Sequence[Any]:
        return ()

    def fields(self) -> Mapping[str, Any]:
        return {"owner": self.owner, "end": self.end_epoch}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Order:
        take(rest, 0)
        return cls(owner=as_text(fields["owner"]), end_epoch=as_number(fields["end"]))
