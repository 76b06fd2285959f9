"""Counts how long a cluster's brokers throttle us because of quotas. Pure.

A broker that finds us above a quota answers at once, says for how long, and reads nothing more from that
connection until then (KIP-219).
"""

from __future__ import annotations


class MutedTime:
    """Counts the time in which at least one connection was muted; several at once count once."""

    def __init__(self) -> None:
        self._total_s = 0.0
        self._until = 0.0
        self._taken_s = 0.0

    def note(self, now: float, seconds: float) -> None:
        """Note that a connection is muted for this long from now on."""
        end = now + seconds
        self._total_s += max(0.0, end - max(now, self._until))
        self._until = max(self._until, end)

    def elapsed_s(self, now: float) -> float:
        """Return all of it so far."""
        return self._total_s - max(0.0, self._until - now)

    def take_s(self, now: float) -> float:
        """Return the time since it was last taken."""
        elapsed_s = self.elapsed_s(now)
        news_s, self._taken_s = elapsed_s - self._taken_s, elapsed_s
        return max(0.0, news_s)
