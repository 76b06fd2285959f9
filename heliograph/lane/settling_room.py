"""How many partitions of a lane settle at a time, and how many bytes they may hold meanwhile.

After a crash every partition of a lane has a tail to be read and proved: a lane of 1,000 partitions would hold 1,000
batches of the target and what they were made of. So partitions wait in line for a *place*. Those that ask the same
brokers stand in one line, first come, first served. Each line has its share of the places and of the bytes, so that
partitions behind a broker that does not answer keep nobody else waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Hashable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

SETTLING_PARTITIONS = 32
"""Settle at a time. Settling takes about four round trips: 1,000 partitions take 0.5 s beside a broker, and 6 s at a
distance of 50 ms."""
SETTLING_BYTES = 32 * 1024 * 1024
"""Batches that are held for their proof; while it is more, no other partition begins."""


@dataclass(slots=True, eq=False)
class _Line:
    """Partitions that ask the same brokers."""

    settling: int = 0
    held_bytes: int = 0
    waiting: deque[asyncio.Future[None]] = field(default_factory=deque)


class RoomTicket:
    """The right of one partition to settle now."""

    def __init__(self, line: _Line) -> None:
        self._line = line
        self.held_bytes = 0

    def hold(self, size: int) -> None:
        """So many bytes stay in memory until the place is left."""
        self.held_bytes += size
        self._line.held_bytes += size


class SettlingRoom:
    """The places of one lane; it knows brokers as keys only."""

    def __init__(self, *, partitions: int = SETTLING_PARTITIONS, max_bytes: int = SETTLING_BYTES) -> None:
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._lines: dict[Hashable, _Line] = {}

    @asynccontextmanager
    async def place(self, brokers: Hashable) -> AsyncIterator[RoomTicket]:
        """Wait in line for a place, and leave it at the end of the block."""
        line = self._lines.setdefault(brokers, _Line())
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        line.waiting.append(turn)
        self._admit()
        place = RoomTicket(line)
        try:
            await turn
            yield place
        finally:
            if turn.done() and not turn.cancelled():
                line.settling -= 1
                line.held_bytes -= place.held_bytes
            elif turn in line.waiting:
                line.waiting.remove(turn)
            if not line.settling and not line.waiting:
                self._lines.pop(brokers, None)
            self._admit()

    def _admit(self) -> None:
        """Give free places to those who wait; a line that is empty always gets one."""
        partitions = max(1, self._partitions // max(1, len(self._lines)))
        max_bytes = self._max_bytes // max(1, len(self._lines))
        for line in self._lines.values():
            while line.waiting and (not line.settling or (line.settling < partitions and line.held_bytes < max_bytes)):
                turn = line.waiting.popleft()
                if not turn.done():
                    line.settling += 1
                    turn.set_result(None)
