"""The ledger record "lease": which process leads the flow. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, ClassVar

from heliograph.ledger.records.ledger_record import JsonRecord
from heliograph.ledger.records.untrusted_json import INT32_MAX, as_int, as_number, as_text, as_time_ms, take

TERM_MAX = 2**62
"""Far beyond what terms reach: each is one higher than the one before."""


class LeaseState(StrEnum):
    BID = "bid"
    HELD = "held"
    RELEASED = "released"


@dataclass(frozen=True, slots=True, kw_only=True)
class Process:
    """A process, described so that others can find out whether it still lives."""

    owner: str
    """Random: no two are the same."""
    host: str
    pid: int
    place: str = ""
    """Where the process id counts: this boot of this host, this container; empty if that is not known."""
    born: int = 0
    """When the process began, in the system's own count: process ids are used again."""

    @property
    def name(self) -> str:
        return f"host {self.host} (pid {self.pid})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease(JsonRecord):
    """A process bids for the lease, renews it, or releases it; `lease` says which records count."""

    KIND: ClassVar[str] = "lease"
    holder: Process
    term: int
    state: LeaseState
    since_ms: int
    """When this term began, by the holder's clock; for people."""
    time_ms: int
    """When the record was written, by the holder's clock; for people."""
    lease_ms: int
    """How long the holder may be silent."""
    former: str = ""
    """Who led before."""
    restarts: int = 0
    """How often the holder has tried again what failed for good; for people."""

    def moved(self, state: LeaseState, time_ms: int, *, restarts: int | None = None) -> Lease:
        restarts = self.restarts if restarts is None else restarts
        return replace(self, state=state, time_ms=time_ms, restarts=restarts)

    def key_parts(self) -> Sequence[Any]:
        return ()

    def fields(self) -> Mapping[str, Any]:
        who = self.holder
        return {
            "term": self.term,
            "is": str(self.state),
            "owner": who.owner,
            "host": who.host,
            "pid": who.pid,
            "place": who.place,
            "born": who.born,
            "since": self.since_ms,
            "ms": self.time_ms,
            "lease": self.lease_ms,
            "former": self.former,
            "restarts": self.restarts,
        }

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Lease:
        take(rest, 0)
        return cls(
            holder=Process(
                owner=as_text(fields["owner"]),
                host=as_text(fields["host"]),
                pid=as_int(fields["pid"], 0, INT32_MAX),
                place=as_text(fields["place"]),
                born=as_number(fields["born"]),
            ),
            term=as_int(fields["term"], 0, TERM_MAX),
            state=LeaseState(as_text(fields["is"])),
            since_ms=as_time_ms(fields["since"]),
            time_ms=as_time_ms(fields["ms"]),
            lease_ms=as_number(fields["lease"]),
            restarts=as_number(fields.get("restarts", 0)),
            former=as_text(fields["former"]),
        )
