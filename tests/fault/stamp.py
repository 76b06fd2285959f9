"""What a record of the fault tests looks like: everything in it follows from its stamp.

    stamp    writer / partition / sequence / milliseconds when it was written

A header carries the stamp, and the value too, unless it is a tombstone. Key, value, headers and timestamp can be made
again from it alone, so that a record is known to be unaltered when the source has it no more.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import NamedTuple

from tests.cluster.mirror import Record

HEADER = "stamp"
_MOST_FILLING = 6


class Stamp(NamedTuple):
    writer: str
    partition: int
    sequence: int
    time_ms: int

    def text(self) -> bytes:
        return f"{self.writer}/{self.partition}/{self.sequence}/{self.time_ms}".encode()


class Content(NamedTuple):
    """The order is that of `Record.content`."""

    timestamp: int
    key: bytes
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """How one writer's records are made."""

    writer: str
    age_ms: int = 0
    """How much older the timestamps are than the records."""
    keys: int = 0
    """So many keys come again and again; 0: each record has its own."""
    tombstones: bool = False

    def content(self, stamp: Stamp) -> Content:
        text = stamp.text()
        digest = hashlib.sha256(text).hexdigest().encode()
        is_tombstone = self.tombstones and digest[0] == ord("0")
        value = None if is_tombstone else text + b" " + digest * (1 + digest[1] % _MOST_FILLING)
        number = int(digest[:8], 16) % self.keys if self.keys else stamp.sequence
        return Content(stamp.time_ms - self.age_ms, b"key-%d" % number, value, ((HEADER, text),))


def stamp_of(record: Record) -> Stamp | None:
    """The stamp in a record's header; None if there is none that can be read."""
    found = [value for name, value in record.headers if name == HEADER]
    if len(found) != 1 or found[0] is None:
        return None
    try:
        writer, partition, sequence, time_ms = found[0].decode().split("/")
        return Stamp(writer, int(partition), int(sequence), int(time_ms))
    except ValueError:
        return None
