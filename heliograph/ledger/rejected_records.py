"""Records that could not be copied: their coordinates as they are kept on the target. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

VERSION = 1


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
        key = ["rejected", group_id, self.topic, self.partition, self.offset]
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
        return _compact(key), _compact(value)


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


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
