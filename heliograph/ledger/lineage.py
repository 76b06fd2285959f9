"""Keeps the leader epochs under which the source's log was written, and finds where two logs diverge. Pure.

Every leader of a partition writes in an epoch of its own, and marks its batches with it:

    copied    1 1 1 1 3 3 3 3|          the position
    source    1 1 1 1 2 2 4 4 4 4 4     after an unclean election: grown past the position again
                     ^ the logs part here

No two logs differ before an offset if the batches before it are of the same epoch in both: an
epoch has one writer. So whoever fetches from a position says of which epoch the batch before it
was, and a leader whose log has another there answers with its own last epoch up to that one, and
where this ends, instead of records. If that epoch is in our lineage too, the logs part where it
ends first; if not, they part no later than where ours before it ends, and the fetch from there
asks once more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

from heliograph.kafka.codec.k01_fetch import EpochEnd
from heliograph.ledger.records.untrusted_json import INT32_MAX, OFFSET_MAX, as_int

PackedLineage = str
"""Leader epochs and where they begin, "epoch:start" oldest first, as entries have them."""
UNKNOWN = -1
LONGEST = 8
"""Epochs that are kept. Logs that part even before these are taken to part at the oldest of them."""


_PACKED = re.compile("(?:[0-9]{1,19}:[0-9]{1,19}(?: [0-9]{1,19}:[0-9]{1,19}){0,63})?")


def _bounded(digits: str, most: int) -> int:
    return as_int(int(digits), 0, most)


class Stretch(NamedTuple):
    """Batches of one leader epoch from a source offset on."""

    epoch: int
    start: int


class Lineage(NamedTuple):
    """Stretches in their order; each ends where the next begins, the last one at the position."""

    stretches: tuple[Stretch, ...] = ()

    @classmethod
    def parse(cls, text: PackedLineage) -> Lineage:
        """Raises ValueError."""
        if not _PACKED.fullmatch(text):
            raise ValueError("no leader epochs and offsets")
        pairs = (pair.split(":") for pair in text.split())
        return cls(tuple(Stretch(_bounded(epoch, INT32_MAX), _bounded(start, OFFSET_MAX)) for epoch, start in pairs))

    def pack(self) -> PackedLineage:
        return " ".join(f"{epoch}:{start}" for epoch, start in self.stretches)

    def before(self, position: int) -> int:
        """The epoch of the last batch before a position."""
        return next((epoch for epoch, start in reversed(self.stretches) if start < position), UNKNOWN)

    def until(self, position: int) -> Lineage:
        """Return the part before a position."""
        return Lineage(tuple(stretch for stretch in self.stretches if stretch.start < position))

    def grown(self, batches: Iterable[Stretch]) -> Lineage:
        """With the batches that follow; each given by its epoch and where the one before it ended."""
        stretches = list(self.stretches)
        for batch in batches:
            if stretches and stretches[-1].epoch == batch.epoch:
                continue
            stretches = [stretch for stretch in stretches if stretch.epoch < batch.epoch]
            if batch.epoch != UNKNOWN:
                stretches.append(batch)
        return Lineage(tuple(stretches[-LONGEST:]))

    def parting(self, position: int, theirs: EpochEnd) -> int:
        """Up to where a log can be the one copied, by its leader's answer to a fetch from a position."""
        end = position
        for epoch, start in reversed(self.until(position).stretches):
            if epoch <= theirs.leader_epoch:
                break
            end = start
        return min(end, theirs.end_offset)
