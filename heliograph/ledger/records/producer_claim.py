"""The ledger record "claim": which producer id a flow copies under. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord, one_text
from heliograph.ledger.records.untrusted_json import as_number, as_text


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerClaim(JsonRecord):
    """A driver's bid for a producer id of the flow; of each row the lowest offset in the ledger wins."""

    KIND: ClassVar[str] = "claim"
    token: str
    producer_id: int
    source_cluster_id: str
    target_cluster_id: str
    row: int = 0
    """The row of copies that have this id (`partition_remap`). Without remapping there is the first one only."""

    def key_parts(self) -> Sequence[Any]:
        return (self.token,)

    def fields(self) -> Mapping[str, Any]:
        return {
            "pid": self.producer_id,
            "source": self.source_cluster_id,
            "target": self.target_cluster_id,
            **({"row": self.row} if self.row else {}),
        }

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> ProducerClaim:
        return cls(
            token=one_text(rest),
            producer_id=as_number(fields["pid"]),
            source_cluster_id=as_text(fields["source"]),
            target_cluster_id=as_text(fields["target"]),
            row=as_number(fields.get("row", 0)),
        )
