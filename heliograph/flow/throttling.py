"""What quotas of clusters and its own limit cost a flow: told when it begins and when it is over, and counted."""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field

from heliograph.clock import Clock
from heliograph.ledger.records.throttle import LIMIT

log = logging.getLogger("heliograph")

WINDOW_S = 60.0
QUIET_S = 15.0
"""When nobody has been muted for so long it is over; lanes tell every 5 s."""


@dataclass(slots=True)
class _Spell:
    began: float
    last: float
    seconds: float = 0.0
    reports: deque[tuple[float, Hashable, float]] = field(default_factory=deque)
    """(time, who, seconds) within the window."""

    def worst_s(self) -> float:
        """Give for how long the slowest client was throttled within the window."""
        by_client: dict[Hashable, float] = {}
        for _, client, seconds in self.reports:
            by_client[client] = by_client.get(client, 0.0) + seconds
        return max(by_client.values(), default=0.0)


def shown(alias: str) -> str:
    """Name what throttles a flow: a cluster's quota, or its own limit (`LIMIT` instead of an alias)."""
    return f"held back by {LIMIT}" if alias == LIMIT else f'throttled by "{alias}"'


class Throttling:
    """Logs and counts how one flow is throttled, by the alias of the cluster."""

    def __init__(self, flow: str, clock: Clock = time.monotonic) -> None:
        self._flow = flow
        self._clock = clock
        self._spells: dict[str, _Spell] = {}
        self.total_s: dict[str, float] = {}
        """Seconds since the start, all clients together."""

    def note(self, alias: str, client_id: str, seconds: float) -> None:
        """Note for how long a client was throttled since it last told."""
        now = self._clock()
        is_new = alias not in self._spells
        spell = self._spells.setdefault(alias, _Spell(now, now))
        spell.last = now
        spell.seconds += seconds
        spell.reports.append((now, client_id, seconds))
        self.total_s[alias] = self.total_s.get(alias, 0.0) + seconds
        if is_new and alias == LIMIT:
            log.info("%s: %s: %.1f s so far; copying goes on at that rate", self._flow, shown(alias), seconds)
        elif is_new:
            log.warning(
                '%s: %s: %.1f s so far; it has a quota for our user or for client id "%s", which is '
                "obeyed: copying goes on as fast as that allows",
                *(self._flow, shown(alias), seconds, client_id),
            )

    def look(self) -> str:
        """Log what is over; return what goes on, for the progress line."""
        now = self._clock()
        lasting = []
        for alias, spell in list(self._spells.items()):
            while spell.reports and spell.reports[0][0] < now - WINDOW_S:
                spell.reports.popleft()
            if now - spell.last >= QUIET_S:
                del self._spells[alias]
                log.info(
                    "%s: no longer %s: it was for %.1f s, and our clients waited %.1f s in that time",
                    *(self._flow, shown(alias), spell.last - spell.began, spell.seconds),
                )
                continue
            window = min(WINDOW_S, max(now - spell.began, spell.worst_s()))
            lasting.append(f"{shown(alias)} {spell.worst_s():.1f} s of the last {window:.0f} s")
        return ", ".join(lasting)
