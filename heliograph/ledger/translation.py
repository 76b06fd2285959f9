"""Translates committed source offsets to target offsets, by the ledger or by MM2's rule. Pure.

By the ledger (`PartitionLedger.translate`) a group's committed offset on the source becomes:

    in a run                        where the run says
    in a gap that had no records    the start of the next run
    at the end of what is mirrored  where the next copy will stand
    beyond that                     the same, and by how much the group is ahead
    where nothing is known          after the last record known before it: records may be read again, none is skipped

Where a count copies once more what counts before it copied, theirs is what is mirrored until it has gone as far
(`counts`). With `offset.translation=mm2` the offset syncs say it, as in MirrorMaker 2 (`mm2.offset_syncs`).

Where source partitions share a target partition (`partition_remap`), the lowest translation counts: a group skips
nothing of any of its partitions, and reads again what it has read beyond that in the others.

    target   a0 b0 a1 a2 b1 b2 b3        the group has read a0 a1 a2, and of b only b0
                         ^ it goes on here, at b1: nothing is read again
             a0 b0 b1 b2 b3 a1 a2        the same group
                   ^ it goes on here, at b1: a1 and a2 are read again
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from heliograph.kafka.types import TopicPartition
from heliograph.ledger.mm2.internal_records import OffsetSync
from heliograph.ledger.mm2.offset_syncs import SyncStore
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_remap import target_partition
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page

Neighbours = Mapping[PartitionName, tuple[PartitionName, ...]]
"""By source partition whose copy shares the target's: all those that do, itself included."""
Syncs = Mapping[PartitionName, SyncStore]
"""The offset syncs of a flow, by source partition."""


class Grade(StrEnum):
    """How good a translation is."""

    EXACT = "exact"
    AHEAD = "ahead"
    """The group has read more than is mirrored: it goes on at the end."""
    DEGRADED = "degraded"
    """The ledger does not know this stretch: some records are read again."""
    SHARED = "shared"
    """The target's partition has copies of several: what the group has read beyond the lowest is read again."""


class Translation(NamedTuple):
    offset: int
    """On the target; not below its log start nor beyond its end only after `within`."""
    grade: Grade = Grade.EXACT
    ahead: int = 0
    """Source offsets between what is mirrored and the group."""

    def within(self, log_start: int, log_end: int) -> Translation:
        """Return the translation moved to within the target's log."""
        return self._replace(offset=max(log_start, min(self.offset, log_end)))


# -- by the ledger -------------------------------------------------------------------------


def translate_by_pages(pages: Sequence[Page], offset: int, following: tuple[int, int]) -> Translation:
    """Translate an offset by pages in their order.

    `following` is what comes after them: the source offset where that begins, and the target's.
    """
    at = bisect_right(pages, offset, key=start_of) - 1
    if at < 0:
        return Translation(0, Grade.DEGRADED)
    page = pages[at]
    if offset < page.end:
        grade = Grade.DEGRADED if page.is_rebuilt else Grade.EXACT
        for run in page.runs():
            if offset < run.source_end:
                return Translation(run.target + max(0, offset - run.source), grade)
        start = _start_after(following, pages, at)
        if start is not None:
            return Translation(start, grade)
    return Translation(_end_before(pages, at), Grade.DEGRADED)


def start_of(page: Page) -> int:
    return page.start


def _start_after(following: tuple[int, int], pages: Sequence[Page], at: int) -> int | None:
    """The target offset of the first record after a page; None if what follows it is not known."""
    end = pages[at].end
    for page in itertools.islice(pages, at + 1, None):
        if page.start != end:
            return None
        if page.number:
            return page.target
        end = page.end
    return following[1] if end == following[0] else None


def _end_before(pages: Sequence[Page], at: int) -> int:
    """The target offset after the last record that is known up to a page, that one included."""
    for index in range(at, -1, -1):
        if pages[index].number:
            return pages[index].runs()[-1].target_end
    return 0


# -- by MirrorMaker 2's rule ---------------------------------------------------------------


def keep_syncs(stores: dict[PartitionName, SyncStore], syncs: Iterable[OffsetSync]) -> None:
    """Add offset syncs, in their order, to those that MirrorMaker 2 would keep."""
    for sync in syncs:
        stores.setdefault((sync.topic, sync.partition), SyncStore()).insert(sync.upstream, sync.downstream)


def translate_by_syncs(syncs: Syncs, where: PartitionName, offset: int) -> Translation | None:
    """Translate an offset as MirrorMaker 2 does; None if no sync is as old.

    What follows the nearest sync before the offset is read again.
    """
    store = syncs.get(where)
    found = store.translate(offset) if store is not None else None
    return Translation(found, Grade.DEGRADED) if found is not None else None


# -- where source partitions share a target partition -----------------------------------------


class JointTranslation(NamedTuple):
    """A group's place in one partition of the target, by the source partitions that are copied into it."""

    lowest: TopicPartition
    """The source partition whose translation counts."""
    parts: dict[TopicPartition, Translation]
    """The translations of all the source partitions."""

    @property
    def offset(self) -> int:
        return self.parts[self.lowest].offset

    @property
    def is_shared(self) -> bool:
        return len(self.parts) > 1


def lowest_translations(
    translations: Mapping[TopicPartition, Translation | None], target_of: Callable[[TopicPartition], TopicPartition]
) -> dict[TopicPartition, JointTranslation]:
    """Return where a group goes on, by target partition: where several share one, the lowest translation counts.

    A target partition has no place before all that share it have one (None: there is none yet): the lowest may be
    still to come, and a group is not led back later.
    """
    parts: dict[TopicPartition, dict[TopicPartition, Translation]] = {}
    unknown: set[TopicPartition] = set()
    for where, translation in translations.items():
        target = target_of(where)
        if translation is None:
            unknown.add(target)
        else:
            parts.setdefault(target, {})[where] = translation
    return {
        target: JointTranslation(_lowest(together), together)
        for target, together in parts.items()
        if target not in unknown
    }


def _lowest(parts: Mapping[TopicPartition, Translation]) -> TopicPartition:
    return min(parts, key=lambda where: parts[where].offset)


def neighbours_in(entries: Mapping[PartitionName, Entry]) -> Neighbours:
    """Return which source partitions share a target partition; nothing where nothing is remapped."""
    spread = {topic for (topic, _), entry in entries.items() if entry.modulo}
    by_target: dict[PartitionName, list[PartitionName]] = {}
    for where in entries if spread else ():
        if where[0] in spread:
            by_target.setdefault((where[0], target_partition(where[1], entries[where].modulo)), []).append(where)
    return {where: tuple(together) for together in by_target.values() if together[1:] for where in together}


def uncommitted(commits: Iterable[TopicPartition], neighbours: Neighbours) -> set[TopicPartition]:
    """Return the partitions in which a group has no commit, and has one in a neighbour.

    Nobody knows whether it would begin there at the start or at the end. Without a place there it would skip whatever
    the target has of it; so it counts as one that stands at the start.
    """
    if not neighbours:
        return set()
    known = set(commits)
    return {
        TopicPartition(*other) for where in known for other in neighbours.get((where.topic, where.partition), ())
    } - known
