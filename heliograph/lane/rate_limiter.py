"""Limits how fast a lane sends for a flow that has a rate limit. Pure: the clock is the caller's.

It is a token bucket, kept as a time: the moment when all that was sent is paid for. Before
that moment nothing may be sent; after it, as much as the rate gives since then, `BURST_S` at
most. A batch is never cut: one that is larger than the allowance is sent, and paid for before
the next.
"""

from __future__ import annotations

import time

from heliograph.clock import Clock
from heliograph.kafka.throttle import MutedTime

BURST_S = 0.4
"""Idle time that a lane may make up for by sending faster: at most 4 % too much in ten seconds."""
PORTION_S = 0.05
"""A sender that waits does so until this much may be sent, so that requests are not tiny."""
AHEAD_S = 1.0
"""How much is fetched in advance at most: what is not sent is dropped at the epoch's end."""
LEAST_AHEAD_BYTES = 64 * 1024


class RateLimiter:
    """Limits one flow in one worker process, from epoch to epoch."""

    def __init__(self, bytes_per_second: float, clock: Clock = time.monotonic) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._paid_at = clock()
        self.waited = MutedTime()
        """The time in which there was something to send and the limit did not allow it."""

    def set(self, bytes_per_second: float) -> None:
        """Change the rate; time still to be paid shrinks with a higher rate and does not grow with a lower one."""
        debt_s = max(0.0, self._paid_at - self._clock())
        self._paid_at -= debt_s * (1 - min(1.0, self._rate / bytes_per_second))
        self._rate = bytes_per_second

    def allowance(self) -> int:
        """Return how many bytes may be sent now; none if it is not positive."""
        return int(min(self._clock() - self._paid_at, BURST_S) * self._rate)

    def spend(self, size: int) -> None:
        self._paid_at = max(self._paid_at, self._clock() - BURST_S) + size / self._rate

    def wait_s(self) -> float:
        """Return how long to wait until the next portion may be sent, and count it as waited."""
        now = self._clock()
        wait_s = max(self._paid_at + PORTION_S - now, 0.001)
        self.waited.note(now, wait_s)
        return wait_s

    @property
    def ahead_bytes(self) -> int:
        """Maximum bytes to fetch in advance."""
        return max(LEAST_AHEAD_BYTES, int(AHEAD_S * self._rate))
