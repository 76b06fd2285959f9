"""Groups that read several partitions of the source, of which the copies share one of the target (`remap`). Pure.

Such a group goes on at the lowest of its translations: nothing of any of its partitions is skipped, and what it has
read beyond that in the others is read again.

    target   a0 b0 a1 a2 b1 b2 b3        the group has read a0 a1 a2, and of b only b0
                         ^ it goes on here, at b1: nothing is read again
             a0 b0 b1 b2 b3 a1 a2        the same group
                   ^ it goes on here, at b1: a1 and a2 are read again
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from heliograph.kafka.types import TopicPartition
from heliograph.ledger.ledger import Ledger, PartitionName

Neighbours = Mapping[PartitionName, tuple[PartitionName, ...]]
"""Of each source partition whose copy shares the target's, all those that do, itself included."""


def neighbours_in(ledger: Ledger) -> Neighbours:
    """Empty where nothing is remapped."""
    entries = ledger.entries
    spread = {topic for (topic, _), entry in entries.items() if entry.modulo}
    by_target: dict[PartitionName, list[PartitionName]] = {}
    for where in entries if spread else ():
        if where[0] in spread:
            by_target.setdefault((where[0], ledger.target_partition(where)), []).append(where)
    return {where: tuple(together) for together in by_target.values() if together[1:] for where in together}


def uncommitted(commits: Iterable[TopicPartition], neighbours: Neighbours) -> set[TopicPartition]:
    """Partitions in which a group has no commit, and has one in a neighbour.

    Nobody knows whether it would begin there at the start or at the end. Without a place there it would skip whatever
    the target has of it; so it counts as one that stands at the start.
    """
    if not neighbours:
        return set()
    known = set(commits)
    return {
        TopicPartition(*other) for where in known for other in neighbours.get((where.topic, where.partition), ())
    } - known


def reread(ledger: Ledger, offset: int, translations: Mapping[PartitionName, int]) -> int:
    """How many records a group reads again that goes on at a target offset, by where each partition of its stands."""
    return sum(ledger.partition(where).copied_between(offset, translated) for where, translated in translations.items())
