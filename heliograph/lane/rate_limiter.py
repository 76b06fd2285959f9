"""How fast a lane may send for a flow that has a limit. Pure: the clock is the caller's.

A token bucket, kept as a time: the moment up to which all that was sent is paid for. Before
it nothing may be sent, behind it as much as has come up since, but no more than that of a
moment. A batch is never cut: one that is larger than what may be sent is sent, and paid for
before the next.
"""

from __future__ import annotations

import time

from heliograph.clock import Clock
from heliograph.kafka.throttle import MutedTime

BURST_S = 0.4
"""What a lane did not send while it had nothing is made up for, up to this: at most 4 % too much in ten seconds."""
PORTION_S = 0.05
"""One who waits does so until there is this much to send, so that requests are worth their while."""
AHEAD_S = 1.0
"""What is fetched and not sent is thrown away with the epoch: no more than this is fetched in advance."""
LEAST_AHEAD_BYTES = 64 * 1024


class RateLimiter:
    """Of one flow in one worker process, from epoch to epoch."""

    def __init__(self, bytes_per_second: float, clock: Clock = time.monotonic) -> None:
        self._rate = bytes_per_second
        self._clock = clock
        self._paid_at = clock()
        self.waited = MutedTime()
        """The time in which there was something to send, and it was not allowed."""

    def set(self, bytes_per_second: float) -> None:
        """Go on at another rate; a debt shrinks with a higher one and does not grow with a lower."""
        debt_s = max(0.0, self._paid_at - self._clock())
        self._paid_at -= debt_s * (1 - min(1.0, self._rate / bytes_per_second))
        self._rate = bytes_per_second

    def allowance(self) -> int:
        """How many bytes may be sent now; none if it is not positive."""
        return int(min(self._clock() - self._paid_at, BURST_S) * self._rate)

    def spend(self, size: int) -> None:
        self._paid_at = max(self._paid_at, self._clock() - BURST_S) + size / self._rate

    def wait_s(self) -> float:
        """How long to wait until the next portion may be sent; counted as waited."""
        now = self._clock()
        wait_s = max(self._paid_at + PORTION_S - now, 0.001)
        self.waited.note(now, wait_s)
        return wait_s

    @property
    def ahead_bytes(self) -> int:
        """As much may be fetched in advance."""
        return max(LEAST_AHEAD_BYTES, int(AHEAD_S * self._rate))
