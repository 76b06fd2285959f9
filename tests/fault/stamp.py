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
OWN_KEY_EVERY = 4
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
    """So many keys come again and again, but for every fourth record, which has its own; 0: each has its own."""
    tombstones: bool = False

    def has_own_key(self, sequence: int) -> bool:
        """Such a record is never compacted away: where the source has it, the target must."""
        return not self.keys or sequence % OWN_KEY_EVERY == 0

    def content(self, stamp: Stamp) -> Content:
        text = stamp.text()
        digest = hashlib.sha256(text).hexdigest().encode()
        has_own_key = self.has_own_key(stamp.sequence)
        is_tombstone = self.tombstones and digest[0] == ord("0") and not has_own_key
        value = None if is_tombstone else text + b" " + digest * (1 + digest[1] % _MOST_FILLING)
        key = b"own-%d" % stamp.sequence if has_own_key else b"key-%d" % (int(digest[:8], 16) % self.keys)
        return Content(stamp.time_ms - self.age_ms, key, value, ((HEADER, text),))


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
