"""Repeats jobs that run beside the copying: what goes wrong with one is named, counted and retried; copying goes on.

Owned by the event loop of the driver: no other thread may use it.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import NamedTuple

from heliograph.clock import Clock
from heliograph.errors import HeliographError, named
from heliograph.outage_log import Outage

log = logging.getLogger("heliograph")

IDLE_S = 1.0
"""How often a job that is switched off looks whether it is on."""
MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 10.0
"""After a failure a loop pauses between these, longer with each."""
STEADY_S = 30.0
"""A job that has no end works again when it has not failed for so long."""

Job = Callable[[], Awaitable[None]]


class Failing(NamedTuple):
    """A loop whose last try failed."""

    what: str
    failures: int
    """Tries that failed since the last one that did not."""
    text: str

    def __str__(self) -> str:
        times = f" (failed {self.failures} times)" if self.failures > 1 else ""
        return f"{self.what}: {self.text}{times}"


class Loop:
    """Repeats one job and never ends by what a try raises, but for what is `final`.

    `with` a loop is one try: what it raises ends there and is logged once, and so is the next try that succeeds. A
    cancellation passes.
    """

    def __init__(
        self,
        owner: str,
        what: str,
        *,
        again: str = "",
        final: tuple[type[Exception], ...] = (),
        max_pause_s: float | None = None,
        clock: Clock = time.monotonic,
    ) -> None:
        """`what` stands before the error in the log; `again` is logged when it works again."""
        self._owner = owner
        self._what = what
        self._again = again or f"{what}: works again"
        self._final = final
        self._max_pause_s = max_pause_s
        self._outage = Outage(clock)
        self.error: HeliographError | None = None
        """What the last try raised; None if it succeeded."""
        self.failures = 0
        """How many tries failed, over all."""

    # -- repeating -----------------------------------------------------------------------

    async def repeat(self, job: Job, *, interval_s: Callable[[], float | None], first_s: float = 0.0) -> None:
        """Begin the job at even distances, however long it takes; an interval of None switches it off.

        `first_s` is the pause before the first time. Ends by being cancelled.
        """
        due = time.monotonic() + first_s
        while True:
            try:
                interval = interval_s()
            except Exception as error:  # noqa: BLE001 (a loop goes on whatever is wrong; `fail` names it)
                self.fail(error)
                await asyncio.sleep(self.pause_s)
                continue
            if interval is None:
                self.rest()
                await asyncio.sleep(IDLE_S)
                due = time.monotonic()
                continue
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            with self:
                await job()
            due = max(due + interval, time.monotonic() + (0.0 if self.error is None else self.pause_s))

    async def repeat_when(self, due: Callable[[], Awaitable[object]], job: Job) -> None:
        """Do the job whenever `due` returns, which sets the pace after a failure too. Ends by being cancelled."""
        while True:
            is_due = False
            with self:
                await due()
                is_due = True
                await job()
            if not is_due:
                await asyncio.sleep(self.pause_s)

    # -- one try -------------------------------------------------------------------------

    def __enter__(self) -> Loop:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if error is None:
            self.succeed()
        elif isinstance(error, self._final) or not isinstance(error, Exception):
            return False
        else:
            self.fail(error)
        return True

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """Try a job that has no end: it succeeds by not failing for a while."""
        steady = asyncio.get_running_loop().call_later(STEADY_S, self.succeed)
        try:
            with self:
                yield
        finally:
            steady.cancel()

    def fail(self, error: Exception) -> None:
        """Note that a try failed."""
        self.failures += 1
        self.error = named(error)
        if self.error is not error:
            log.debug("%s: %s", self._owner, self._what, exc_info=error)
        # Without its frames: they would keep alive whatever the failed try had in its hands.
        self.error.with_traceback(None).__cause__ = self.error.__context__ = None
        if self._outage.is_news(str(self.error)):
            log.warning("%s: %s: %s; retrying", self._owner, self._what, self.error)

    def succeed(self) -> None:
        """Note that a try succeeded."""
        self.error = None
        if lasted := self._outage.end():
            log.info("%s: %s %s", self._owner, self._again, lasted)

    def rest(self) -> None:
        """Note that the job is switched off: it does not fail any more."""
        self.error = None
        self._outage.end()

    @property
    def failing(self) -> Failing | None:
        return None if self.error is None else Failing(self._what, self._outage.tries, str(self.error))

    @property
    def pause_s(self) -> float:
        """How long to pause after the last failure."""
        longest = MAX_PAUSE_S if self._max_pause_s is None else min(self._max_pause_s, MAX_PAUSE_S)
        return min(MIN_PAUSE_S * 2.0 ** min(self._outage.tries - 1, 10), longest) * random.uniform(0.8, 1.2)


class Loops:
    """Registers the loops of one flow, and tells which of them fail."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._loops: dict[str, Loop] = {}

    def loop(
        self,
        what: str,
        *,
        again: str = "",
        final: tuple[type[Exception], ...] = (),
        max_pause_s: float | None = None,
    ) -> Loop:
        """Make a loop; it replaces the one of that name before."""
        found = self._loops[what] = Loop(self._flow, what, again=again, final=final, max_pause_s=max_pause_s)
        return found

    @property
    def failures(self) -> int:
        """How many tries of all loops failed."""
        return sum(loop.failures for loop in self._loops.values())

    def failing(self) -> tuple[Failing, ...]:
        """Name the loops whose last try failed."""
        return tuple(failing for loop in self._loops.values() if (failing := loop.failing) is not None)
