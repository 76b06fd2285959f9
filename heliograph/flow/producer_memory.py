"""How long the target's brokers remember our sequences: read from them, and what follows for the copying.

A broker forgets a producer whose newest record is older, by the record's own timestamp, than its
`producer.id.expiration.ms` (Kafka's default: 1 day). From then on it takes any sequence, what it has included. Our
clock is not the broker's, and a batch takes a while to arrive: so its memory counts as doubtful from half of that
time on, 12 h by default. A shorter setting makes it shorter, a longer one longer.

The setting came with Kafka 3.4. Brokers before it kept producers for 7 days, but do not tell whether somebody changed
that: the default is taken for them, and where we may not see the setting.
"""

from __future__ import annotations

import asyncio
import logging
import time

from heliograph.errors import HeliographError
from heliograph.kafka.admin.topics import broker_configs
from heliograph.kafka.cluster import Cluster

log = logging.getLogger("heliograph")

EXPIRATION_KEY = "producer.id.expiration.ms"
DEFAULT_EXPIRATION_MS = 86_400_000
LOOK_S = 30.0
"""How often it is read again, with a look at the topics."""
PATIENCE_S = 5.0
"""A broker that does not answer for so long is left out."""


def doubtful_ms(expiration_ms: int) -> int:
    """Behind a record that is older than this the brokers may not remember us."""
    return expiration_ms // 2


def parse_expiration(text: str | None) -> int | None:
    """Parse the setting's value; None if there is none that makes sense."""
    is_number = text is not None and text.isascii() and text.isdigit() and len(text) <= 18
    return max(1, int(text)) if text is not None and is_number else None


async def read_expiration_ms(cluster: Cluster) -> int | None:
    """Read the shortest value that any broker has; None if none of them tells."""

    async def ask(node_id: int) -> int | None:
        try:
            async with asyncio.timeout(PATIENCE_S):
                found = await broker_configs(cluster, [EXPIRATION_KEY], node_id=node_id)
        except (HeliographError, TimeoutError):
            return None
        return parse_expiration((found or {}).get(EXPIRATION_KEY))

    answers = await asyncio.gather(*map(ask, cluster.catalogue.brokers))
    return min((answer for answer in answers if answer is not None), default=None)


class TargetMemory:
    """Keeps for one flow how long the target's brokers remember producers."""

    def __init__(self, flow: str, cluster: Cluster) -> None:
        self._flow = flow
        self._cluster = cluster
        self._looked_at = float("-inf")
        self.expiration_ms = DEFAULT_EXPIRATION_MS

    @property
    def doubtful_ms(self) -> int:
        return doubtful_ms(self.expiration_ms)

    async def look(self) -> None:
        """Read the setting, if that is due. What one broker told before it went down stays known."""
        now = time.monotonic()
        if now - self._looked_at < LOOK_S:
            return
        self._looked_at = now
        found = await read_expiration_ms(self._cluster)
        if found is not None and found != self.expiration_ms:
            self.expiration_ms = found
            log.info("%s: %s", self._flow, told(self._cluster.alias, found))


def told(alias: str, expiration_ms: int) -> str:
    """Say it to people: `"b" remembers producers for 1 h (...)`."""
    return (
        f'"{alias}" remembers producers for {_span(expiration_ms)} ({EXPIRATION_KEY}): behind records over '
        f"{_span(doubtful_ms(expiration_ms))} old one batch at a time is sent"
    )


def _span(ms: int) -> str:
    for size, unit in ((3_600_000, "h"), (60_000, "min"), (1_000, "s")):
        if ms >= size:
            return f"{ms / size:.1f}".removesuffix(".0") + f" {unit}"
    return f"{ms} ms"
