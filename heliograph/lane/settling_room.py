"""Limits how many partitions of a lane settle at a time, and how many bytes they hold meanwhile.

After a crash every partition of a lane has a tail to read and prove: a lane of 1,000 partitions would hold 1,000
batches of the target and their source batches. So partitions wait in line to be admitted. Partitions that ask the same
brokers form one line, first come, first served. Each line may use its share of the limits, so that partitions behind a
broker that does not answer keep no others waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

SETTLING_PARTITIONS = 32
"""Maximum number of partitions that settle at a time. Settling takes about four round trips: 1,000 partitions take
0.5 s next to a broker, and 6 s with a round trip of 50 ms."""
SETTLING_BYTES = 16 * 1024 * 1024
"""Maximum bytes of batches held for their proof; above it no further partition begins. With 32 MB a lane of 1,000
partitions with batches of 500 KB reached 305 MB."""


@dataclass(slots=True, eq=False)
class _Line:
    """Holds the partitions that ask the same brokers."""

    settling: int = 0
    held_bytes: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class RoomTicket:
    """Lets one target partition settle now, and counts the bytes that it holds."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self.held_bytes = 0

    def hold(self, size: int) -> None:
        """Count bytes that stay in memory until the ticket is given back."""
        self.held_bytes += size
        self._line.held_bytes += size


class SettlingRoom:
    """Admits partitions of one lane to settling; brokers are only keys here."""

    def __init__(self, *, partitions: int = SETTLING_PARTITIONS, max_bytes: int = SETTLING_BYTES) -> None:
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._lines: dict[Hashable, _Line] = {}

    @asynccontextmanager
    async def admit(self, brokers: Hashable) -> AsyncIterator[RoomTicket]:
        """Wait in line until admitted; the ticket is given back at the end of the block."""
        line = self._lines.setdefault(brokers, _Line())
        admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(admitted)
        self._admit_waiting()
        ticket = RoomTicket(line)
        try:
            await admitted
            yield ticket
        finally:
            if admitted.done() and not admitted.cancelled():
                line.settling -= 1
                line.held_bytes -= ticket.held_bytes
            elif admitted in line.waiting:
                line.waiting.remove(admitted)
            if not line.settling and not line.waiting:
                self._lines.pop(brokers, None)
            self._admit_waiting()

    def _admit_waiting(self) -> None:
        """Admit those who wait as far as the limits allow; each line always settles one partition at least."""
        partitions = max(1, self._partitions // max(1, len(self._lines)))
        max_bytes = self._max_bytes // max(1, len(self._lines))
        for line in self._lines.values():
            while line.waiting and (not line.settling or (line.settling < partitions and line.held_bytes < max_bytes)):
                admitted = line.waiting.popleft()
                if not admitted.done():
                    line.settling += 1
                    admitted.set_result(None)
