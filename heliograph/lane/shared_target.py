"""Tracks one target partition that several copies of a lane write to (`remap`). No sockets, no clock.

A plan gives all copies into a target partition to one lane, and they use one channel: so answers come in the order of
the log, and each must name the offset where the one before ended. So the copies know each other's batches without
reading them; a batch of anybody else between them puts all of the copies in doubt, as it would a single one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from heliograph.kafka.types import TopicPartition
    from heliograph.lane.partition_copy import PartitionCopy

TURN_BYTES = 1024 * 1024
"""How many bytes a copy sends before another one has its turn: with every change of copy a run ends."""


class SharedTarget:
    """Knows the end of a target partition's log, by the last answer to any of its copies."""

    def __init__(self, copies: Sequence[PartitionCopy]) -> None:
        self.copies = copies
        self.offset = -1
        self._turn: PartitionCopy | None = None
        self._turn_bytes = 0

    def others(self, copy: PartitionCopy) -> list[PartitionCopy]:
        return [other for other in self.copies if other is not copy]

    def expects(self, copy: PartitionCopy, base_offset: int) -> bool:
        """Return whether a batch is where the log ended, and not before its copy's entry."""
        return base_offset == self.offset and base_offset >= copy.entry.target_offset

    def appended(self, records: int) -> None:
        """Advance the log's end over a batch that is where it was expected."""
        self.offset += records

    def settled(self, copy: PartitionCopy) -> None:
        """Take the log's end from a copy that settled, unless others are copying: their answers are newer."""
        if not any(other.is_copying for other in self.others(copy)):
            self.offset = copy.entry.target_offset

    def advance_idle_copies(self) -> None:
        """Advance the copies with nothing in flight to the log's end: what is new there is from the other copies."""
        for copy in self.copies:
            copy.advance_target_end(self.offset)

    def keeps_turn(self, copy: PartitionCopy, size: int) -> bool:
        """Return whether a copy that just sent `size` bytes goes on before the others."""
        self._turn_bytes = size + (self._turn_bytes if self._turn is copy else 0)
        self._turn = copy
        return self._turn_bytes < TURN_BYTES


def share_targets(copies: Iterable[PartitionCopy]) -> list[SharedTarget]:
    """Join the copies that have a target partition in common; the others stay alone."""
    by_target: dict[TopicPartition, list[PartitionCopy]] = {}
    for copy in copies:
        by_target.setdefault(copy.target, []).append(copy)
    shared_targets = [SharedTarget(together) for together in by_target.values() if len(together) > 1]
    for shared in shared_targets:
        for copy in shared.copies:
            copy.shared = shared
    return shared_targets
