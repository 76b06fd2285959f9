"""When a flow that failed for good is tried again all the same: the rule of Strimzi's `autoRestart`. Pure."""

from __future__ import annotations

import time

from heliograph.clock import Clock
from heliograph.config.settings import AutoRestart


def restart_delay_s(restarts: int, *, max_backoff_minutes: int) -> float:
    """Decide how long to wait after so many restarts: 0, 2, 6, 12, 20, 30, 42, 56, then 60 minutes."""
    return 60.0 * min(restarts * restarts + restarts, max_backoff_minutes)


class Restarts:
    """Counts the restarts of one flow. The counter resets once the flow has run longer than its last back-off."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._last = 0.0
        self.in_a_row = 0
        self.total = 0

    def after_failure_s(self, chosen: AutoRestart | None) -> float | None:
        """Decide the pause before the next restart; None if there is none."""
        if chosen is None:
            return None
        pause_s = restart_delay_s(self.in_a_row, max_backoff_minutes=chosen.max_backoff_minutes)
        if self.in_a_row and self._clock() - self._last >= pause_s:
            self.in_a_row, pause_s = 0, 0.0
        if chosen.max_restarts is not None and self.in_a_row >= chosen.max_restarts:
            return None
        return pause_s

    def note(self) -> None:
        """Note that the flow is restarted now."""
        self.in_a_row += 1
        self.total += 1
        self._last = self._clock()
