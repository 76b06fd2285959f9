"""The clocks that everything uses. Imports nothing of ours."""

from __future__ import annotations

import time
from collections.abc import Callable

Clock = Callable[[], float]
"""Gives seconds that only go forward."""


def wall_ms() -> int:
    """Give the time of day as Kafka has it: milliseconds since 1970."""
    return int(time.time() * 1000)


def host_clock() -> float:
    """Count seconds that go on while a process or, where the system can tell, the whole host is stopped."""
    if hasattr(time, "CLOCK_BOOTTIME"):
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    return time.monotonic()
