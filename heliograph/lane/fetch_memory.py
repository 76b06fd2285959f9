"""Limits the fetched bytes that a lane holds, all its flows and brokers together. No sockets.

A fetch reserves the maximum size of its answer before it is sent. The reservation ends when the answer is received:
from then on its buffer counts, for as long as it is referenced, and so do the batches that are built from it. A broker
sends a whole batch even if a fetch asked for fewer bytes. If there is no room for such an answer, it stays in the
socket until there is; one that is larger than the whole limit is received alone.

    reserved by fetches in flight | receive buffers in use | batches built here | free
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import Protocol

from heliograph.kafka.connection import POOLED_SIZES, BufferPool, capacity_of

MEMORY_BYTES = 48 * 1024 * 1024
"""Maximum bytes that a lane holds, all flows together (in whole receive buffers), besides one oversized answer."""
RESERVED_BYTES = MEMORY_BYTES // 4
"""Beyond the maximum every flow may hold its share of this: a flow whose target hangs does not stop the others."""
BESIDE_BYTES = 64 * 1024
"""Size of an answer without its records: about 60 bytes per partition, 16 per aborted transaction."""
MEMORY_PAUSE_S = 0.005
OVERSIZED_PATIENCE_S = 5.0
"""How long an oversized answer waits for others to finish: they may wait for answers behind it on its connection."""


class Holder(Protocol):
    """Builds batches that count as memory in use."""

    @property
    def made_bytes(self) -> int: ...


class FetchMemory:
    """Counts the fetched bytes that one lane holds."""

    def __init__(self, pool: BufferPool, *, flows: int = 1) -> None:
        self._pool = pool
        self._share_bytes = max(RESERVED_BYTES // flows, POOLED_SIZES[0]) if flows > 1 else 0
        self._limit_bytes = MEMORY_BYTES
        self._holders: list[Holder] = []
        self.reserved_bytes = 0

    def watch(self, holders: Iterable[Holder]) -> None:
        """Count the batches that these build too."""
        self._holders += holders

    def gate(self, asked_bytes: int) -> Gate:
        """Return a gate for answers without a reservation."""
        return Gate(self, asked_bytes)

    def flow(self, queued_bytes: Callable[[], int]) -> FlowMemory:
        """Return the share of one flow; `queued_bytes` returns the bytes it has fetched and not sent."""
        return FlowMemory(self, self._share_bytes, queued_bytes)

    def used_bytes(self) -> int:
        """Return the bytes received or built here and still referenced."""
        return self._pool.in_use_bytes() + sum(holder.made_bytes for holder in self._holders)

    def has_room(self, size: int) -> bool:
        return self.used_bytes() + self.reserved_bytes + size <= self._limit_bytes

    def is_exceeded(self) -> bool:
        return self.used_bytes() > self._limit_bytes


class FlowMemory:
    """Reserves memory for the fetches of one flow, in the order in which they ask."""

    def __init__(self, memory: FetchMemory, share_bytes: int, queued_bytes: Callable[[], int]) -> None:
        self.memory = memory
        self.reserved_bytes = 0
        self._share_bytes = share_bytes
        self._queued_bytes = queued_bytes
        self._line = asyncio.Lock()

    async def reserve(self, answer_bytes: int) -> Reservation:
        """Wait until there is room for an answer with this many bytes of records, or for a smaller one in the flow's
        own share."""
        async with self._line:
            while not (granted := self._granted(answer_bytes)):
                await asyncio.sleep(MEMORY_PAUSE_S)
            return Reservation(self, granted)

    def _granted(self, answer_bytes: int) -> int:
        """Return how many bytes of records a fetch may ask for now; 0 means that it has to wait."""
        memory, size = self.memory, capacity_of(answer_bytes + BESIDE_BYTES)
        if memory.has_room(size) or not (memory.reserved_bytes or memory.used_bytes()):
            return answer_bytes
        free = self._share_bytes - self._queued_bytes() - self.reserved_bytes if self._share_bytes else 0
        return min(
            answer_bytes, max((size for size in POOLED_SIZES if size <= free), default=BESIDE_BYTES) - BESIDE_BYTES
        )


class Gate:
    """Admits answers up to the size asked for, and a larger one if there is room or no other is held.

    Once it has admitted an oversized answer it stays open: its reader needs the answers that follow.
    """

    def __init__(self, memory: FetchMemory, asked_bytes: int) -> None:
        self._memory = memory
        self._asked_bytes = capacity_of(asked_bytes + BESIDE_BYTES)
        self._refused_at: float | None = None
        self.is_open = False

    def admits(self, size: int) -> bool:
        capacity = capacity_of(size)
        if not self.is_open and capacity > self._asked_bytes and not self._memory.has_room(capacity):
            if self._memory.is_exceeded() and not self._is_out_of_patience():
                return False
            self.is_open = True
        self._refused_at = None
        return True

    def _is_out_of_patience(self) -> bool:
        now = time.monotonic()
        if self._refused_at is None:
            self._refused_at = now
        return now - self._refused_at > OVERSIZED_PATIENCE_S


class Reservation:
    """Holds the room for the answer to one fetch until it is received."""

    def __init__(self, flow: FlowMemory, answer_bytes: int) -> None:
        self.answer_bytes = answer_bytes
        self._flow = flow
        self._size = capacity_of(answer_bytes + BESIDE_BYTES)
        self._gate = Gate(flow.memory, answer_bytes)
        self._count(self._size)

    def admits(self, size: int) -> bool:
        """Return whether the answer may be received; its buffer counts from then on."""
        is_admitted = self._gate.admits(size)
        if is_admitted:
            self.release()
        return is_admitted

    def release(self) -> None:
        """Give back what is reserved."""
        self._count(-self._size)
        self._size = 0

    def _count(self, size: int) -> None:
        self._flow.reserved_bytes += size
        self._flow.memory.reserved_bytes += size
