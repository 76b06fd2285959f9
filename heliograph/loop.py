"""A job that is done again and again beside the copying, at even distances. What goes wrong is `SideLoop`'s to tell."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from heliograph.side_loops import SideLoop

IDLE_S = 1.0
"""How often a job that is switched off looks whether it is on."""


class Loop:
    """One job of one flow; never ends by what a try meets, whatever that is."""

    def __init__(
        self, side: SideLoop, *, interval_s: Callable[[], float | None], step: Callable[[], Awaitable[None]]
    ) -> None:
        self._side = side
        self._interval_s = interval_s
        self._step = step

    async def run(self) -> None:
        """Steps begin at even distances, however long one takes; an interval of None is switched off."""
        due = time.monotonic()
        while True:
            interval = self._interval_s()
            if interval is None:
                self._side.rest()
                await asyncio.sleep(IDLE_S)
                due = time.monotonic()
                continue
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            with self._side:
                await self._step()
            pause_s = 0.0 if self._side.error is None else self._side.pause_s
            due = max(due + interval, time.monotonic() + pause_s)
