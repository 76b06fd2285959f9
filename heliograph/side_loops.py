"""Jobs beside the copying of a flow: what goes wrong with one is named, counted and tried again; copying goes on.

A job's own loop decides when it is done; here is what it does about a failure, whatever that is. Owned by the event
loop of the driver: no other thread may use it.
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

MIN_PAUSE_S = 1.0
MAX_PAUSE_S = 10.0
"""After a failure a loop waits between these, longer with each."""
STEADY_S = 30.0
"""A job that has no end works again when it has not failed for so long."""


class Failing(NamedTuple):
    """A side loop whose last try failed."""

    what: str
    failures: int
    """Tries that failed since the last one that did not."""
    text: str

    def __str__(self) -> str:
        times = f" (failed {self.failures} times)" if self.failures > 1 else ""
        return f"{self.what}: {self.text}{times}"


class SideLoop:
    """One job. `with` it is one try: what that raises ends there, told once, and so is the next try that succeeds.

    A cancellation passes, and so does what is `final`.
    """

    def __init__(
        self,
        owner: str,
        what: str,
        *,
        again: str = "",
        final: tuple[type[Exception], ...] = (),
        clock: Clock = time.monotonic,
    ) -> None:
        """`what` stands before the error in the log; `again` is what is said when it is over."""
        self._owner = owner
        self._what = what
        self._again = again or f"{what}: works again"
        self._final = final
        self._spell = Outage(clock)
        self.error: HeliographError | None = None
        """Of the last try; None if it succeeded."""
        self.failures = 0
        """Over all tries."""

    def __enter__(self) -> SideLoop:
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

    def fail(self, error: Exception) -> None:
        """A try failed."""
        self.failures += 1
        self.error = named(error)
        if self.error is not error:
            log.debug("%s: %s", self._owner, self._what, exc_info=error)
        # Without its frames: they would keep alive whatever the failed try had in its hands.
        self.error.with_traceback(None).__cause__ = self.error.__context__ = None
        if self._spell.is_news(str(self.error)):
            log.warning("%s: %s: %s; trying again", self._owner, self._what, self.error)

    def succeed(self) -> None:
        """A try succeeded."""
        self.error = None
        if lasted := self._spell.end():
            log.info("%s: %s %s", self._owner, self._again, lasted)

    def rest(self) -> None:
        """The job is switched off: it does not fail any more."""
        self.error = None
        self._spell.end()

    @property
    def failing(self) -> Failing | None:
        return None if self.error is None else Failing(self._what, self._spell.tries, str(self.error))

    @property
    def pause_s(self) -> float:
        """How long to wait after the last failure."""
        return min(MIN_PAUSE_S * 2.0 ** min(self._spell.tries - 1, 10), MAX_PAUSE_S) * random.uniform(0.8, 1.2)

    @contextmanager
    def lasting(self) -> Iterator[None]:
        """One try of a job that has no end: it succeeds by not failing for a while."""
        steady = asyncio.get_running_loop().call_later(STEADY_S, self.succeed)
        try:
            with self:
                yield
        finally:
            steady.cancel()

    async def keep(self, run: Callable[[], Awaitable[None]]) -> None:
        """Run a loop that has no end; begin it again, after a pause, whenever it fails. Ends by being cancelled."""
        while True:
            with self.lasting():
                await run()
            await asyncio.sleep(self.pause_s)


class SideLoops:
    """All of one flow."""

    def __init__(self, flow: str) -> None:
        self._flow = flow
        self._loops: dict[str, SideLoop] = {}

    def loop(self, what: str, *, again: str = "", final: tuple[type[Exception], ...] = ()) -> SideLoop:
        """A new one, in the place of the one of that name before."""
        found = self._loops[what] = SideLoop(self._flow, what, again=again, final=final)
        return found

    @property
    def failures(self) -> int:
        """Of all loops that run."""
        return sum(loop.failures for loop in self._loops.values())

    def failing(self) -> tuple[Failing, ...]:
        """Those whose last try failed."""
        return tuple(failing for loop in self._loops.values() if (failing := loop.failing) is not None)
