"""Troubles that last: a line when one begins, one when it is over and how long it took, none for each try."""

from __future__ import annotations

import logging
import time
from collections.abc import Hashable, Sequence

from heliograph.clock import Clock

log = logging.getLogger("heliograph")

MOST_SAID = 100
"""So many causes of one spell are remembered as said; the one that was met longest ago is forgotten first."""
MOST_CAUSES = 50
"""So many causes keep partitions waiting by name; those that come later share one."""
OTHER_CAUSES = 'further causes; "heliograph topics" has each partition\'s own'


class Outage:
    """One job's trouble, from the first failure to the next success."""

    def __init__(self, clock: Clock = time.monotonic) -> None:
        self._clock = clock
        self._began = 0.0
        self._said: dict[str, None] = {}
        self.tries = 0
        """That failed in this spell."""

    def is_news(self, text: str) -> bool:
        """A try failed; True if this cause has not been said in this spell."""
        if not self.tries:
            self._began = self._clock()
        self.tries += 1
        is_news = text not in self._said
        self._said.pop(text, None)
        self._said[text] = None
        if len(self._said) > MOST_SAID:
            del self._said[next(iter(self._said))]
        return is_news

    def end(self) -> str:
        """A try succeeded: how long that took; nothing if all was well before."""
        if not self.tries:
            return ""
        lasted = f"after {self._clock() - self._began:.1f} s"
        self.tries = 0
        self._said.clear()
        return lasted


class Waits:
    """What keeps partitions of a flow waiting: each cause is said once, however many partitions it keeps.

    One that goes to and fro between causes waits for all of them until it goes on.
    """

    def __init__(self, flow: str, clock: Clock = time.monotonic) -> None:
        self._flow = flow
        self._clock = clock
        self._causes: dict[str, tuple[float, set[Hashable]]] = {}

    def __len__(self) -> int:
        """How many causes keep something waiting."""
        return len(self._causes)

    def note(self, where: Hashable, text: str) -> None:
        if text not in self._causes and len(self._causes) >= MOST_CAUSES:
            text = OTHER_CAUSES
        if text not in self._causes:
            log.warning("%s: waiting: %s", self._flow, text)
            self._causes[text] = self._clock(), set()
        self._causes[text][1].add(where)

    def goes_on(self, where: Hashable) -> None:
        for text, (began, partitions) in list(self._causes.items()):
            partitions.discard(where)
            if not partitions:
                del self._causes[text]
                log.info("%s: over after %.1f s: %s", self._flow, self._clock() - began, text)

    def forget(self, where: Hashable) -> None:
        """It is not copied any more, for a reason that is told elsewhere."""
        for text, (_, partitions) in list(self._causes.items()):
            partitions.discard(where)
            if not partitions:
                del self._causes[text]


class Unwritten:
    """Stored positions of a flow that are behind what is copied: said when it begins and when it is over.

    Lanes that could not write them down may not have been able to say so in the ledger either.
    """

    def __init__(self, flow: str, clock: Clock = time.monotonic) -> None:
        self._flow = flow
        self._spell = Outage(clock)

    def note(self, behind: Sequence[int]) -> None:
        """By how many records each position is, of those that are."""
        if not behind:
            if lasted := self._spell.end():
                log.info("%s: stored positions are up to date again %s", self._flow, lasted)
        elif self._spell.is_news(""):
            log.warning(
                "%s: the stored positions of %d partitions are %d records behind what is copied: they could not be "
                "written; no data is at risk, the next start finds the rest in the target's log",
                *(self._flow, len(behind), sum(behind)),
            )
