"""A record of the topic of rejected records: the coordinates of what could not be copied. Pure.

Nobody reads these back but people: there is no parsing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from heliograph.ledger.records.ledger_record import VERSION, compact, encode_key


@dataclass(frozen=True, slots=True, kw_only=True)
class Rejected:
    """A record of the source that was left out, or a batch of them that could not be read."""

    topic: str
    partition: int
    offset: int
    last_offset: int
    timestamp: int
    size: int
    key: str | None
    """The first bytes in base64; None: it has no key, or it is not known."""
    code: int
    """Kafka's error code; 2 for a corrupt batch of the source."""
    why: str
    time_ms: int

    def encode(self, group_id: str) -> tuple[bytes, bytes]:
        key = encode_key("rejected", group_id, self.topic, self.partition, self.offset)
        value = {
            "v": VERSION,
            "topic": self.topic,
            "partition": self.partition,
            "offset": self.offset,
            "last": self.last_offset,
            "timestamp": self.timestamp,
            "size": self.size,
            "key": self.key,
            "code": self.code,
            "why": self.why,
            "ms": self.time_ms,
        }
        return key, compact(value)


def rejected_of(where: tuple[str, int], details: Mapping[str, Any], *, now_ms: int) -> Iterator[Rejected]:
    """The coordinates that a refusal's details carry."""
    for record in details["rejected"]:
        yield Rejected(
            topic=where[0],
            partition=where[1],
            code=int(details["error_code"]),
            why=str(details["cause"]),
            time_ms=now_ms,
            **record,
        )
