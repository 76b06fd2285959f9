"""The ledger record "throttle": how long a quota or a limit kept a lane waiting. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import as_number, as_text, as_time_ms, take

LIMIT = "max.bytes.per.second"
"""The key of a flow's own limit; it also stands where a cluster's alias does when a lane tells who keeps it waiting."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle(JsonRecord):
    """A lane tells its driver for how long a cluster's quota, or the flow's own limit, kept it waiting since it last
    told."""

    KIND: ClassVar[str] = "throttle"
    cluster: str
    """The alias; `LIMIT` stands for the flow's own limit."""
    client_id: str
    muted_ms: int
    time_ms: int

    def key_parts(self) -> Sequence[Any]:
        return self.cluster, self.client_id

    def fields(self) -> Mapping[str, Any]:
        return {"muted": self.muted_ms, "ms": self.time_ms}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Throttle:
        cluster, client_id = take(rest, 2)
        return cls(
            cluster=as_text(cluster),
            client_id=as_text(client_id),
            muted_ms=as_number(fields["muted"]),
            time_ms=as_time_ms(fields["ms"]),
        )
