"""One target partition into which several copies of a lane write (`remap`). No sockets, no clock.

A plan gives all copies into a target partition to one lane, and they leave by one channel: so answers come in the order
of the log, and each must name the offset where the one before ended. Batches of these copies are known to each other by
that, and need not be read; whatever else stands between them puts all of the copies in doubt, as it would a single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliograph.kafka.types import TopicPartition
    from heliograph.lane.partition_copy import PartitionCopy

TURN_BYTES = 1024 * 1024
"""So much a copy sends before another has its turn, if it has that much: with every change a run ends."""


class SharedTarget:
    """Where the log ends, by the last answer to any of the copies."""

    def __init__(self, copies: Sequence[PartitionCopy]) -> None:
        self.copies = copies
        self.offset = -1
        self._turn: PartitionCopy | None = None
        self._turn_bytes = 0

    def others(self, copy: PartitionCopy) -> list[PartitionCopy]:
        return [other for other in self.copies if other is not copy]

    def expects(self, copy: PartitionCopy, base_offset: int) -> bool:
        """Whether a batch stands where the log ended, which is never before what its copy knows of."""
        return base_offset == self.offset and base_offset >= copy.entry.target_offset

    def settled(self, copy: PartitionCopy) -> None:
        """A copy knows from the target where the log ends. Where others are copying, their answers tell more."""
        if not any(other.is_copying for other in self.others(copy)):
            self.offset = copy.entry.target_offset

    def level(self) -> None:
        """Let copies that wait for no answer know how far the log goes: what is new there is of the others."""
        for copy in self.copies:
            copy.keep_up(self.offset)

    def keeps_turn(self, copy: PartitionCopy, size: int) -> bool:
        """Whether a copy that has sent so much goes on before the others."""
        self._turn_bytes = size + (self._turn_bytes if self._turn is copy else 0)
        self._turn = copy
        return self._turn_bytes < TURN_BYTES


def share_ends(copies: Iterable[PartitionCopy]) -> list[SharedTarget]:
    """Join the copies that have a target partition in common; those that have one for themselves stay as they are."""
    by_target: dict[TopicPartition, list[PartitionCopy]] = {}
    for copy in copies:
        by_target.setdefault(copy.target, []).append(copy)
    ends = [SharedTarget(together) for together in by_target.values() if len(together) > 1]
    for end in ends:
        for copy in end.copies:
            copy.shared = end
    return ends
