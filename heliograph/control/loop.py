"""A job that is done again and again beside the copying. What goes wrong is told once, and so is that it is over."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable

from heliograph.errors import HeliographError
from heliograph.mirror.spells import Spell

log = logging.getLogger("heliograph")

MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 10.0
"""After a failure, whatever the interval."""
IDLE_S = 1.0
"""How often a job that is switched off looks whether it is on."""


class Loop:
    """One job of one flow; never ends by a fault of a cluster."""

    def __init__(
        self, name: str, *, interval_s: Callable[[], float | None], step: Callable[[], Awaitable[None]]
    ) -> None:
        self._name = name
        self._interval_s = interval_s
        self._step = step
        self._spell = Spell()
        self.failures = 0

    async def run(self) -> None:
        """Steps begin at even distances, however long one takes; an interval of None is switched off."""
        due, pause = time.monotonic(), MIN_PAUSE_S
        while True:
            interval = self._interval_s()
            if interval is None:
                await asyncio.sleep(IDLE_S)
                due = time.monotonic()
                continue
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            if await self._is_done():
                pause = MIN_PAUSE_S
                due = max(due + interval, time.monotonic())
            else:
                due = max(due + interval, time.monotonic() + pause * random.uniform(0.8, 1.2))
                pause = min(2 * pause, MAX_PAUSE_S)

    async def _is_done(self) -> bool:
        try:
            await self._step()
        except HeliographError as error:
            self.failures += 1
            if self._spell.is_news(str(error)):
                log.warning("%s: %s; trying again, mirroring goes on", self._name, error)
            return False
        if lasted := self._spell.end():
            log.info("%s: works again %s", self._name, lasted)
        return True
