"""What a job beside the copying costs in processor time, and how often it may then be done. Pure, but for the clock."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

CpuClock = Callable[[], float]


def stretched_s(interval_s: float, *, cost_s: float, share: float) -> float:
    """The interval of a job that takes so many seconds of processor time: at most a share of one core goes to it."""
    return max(interval_s, cost_s / share)


class Cost:
    """The processor time that a job last took.

    The event loop's thread is measured, so what other jobs did meanwhile counts too: a cost is never taken for less
    than it is, and waiting for answers costs nothing.
    """

    def __init__(self, clock: CpuClock = time.thread_time) -> None:
        self._clock = clock
        self.last_s = 0.0

    @contextmanager
    def measure(self) -> Iterator[None]:
        began = self._clock()
        try:
            yield
        finally:
            self.last_s = self._clock() - began
