"""Where each partition of one flow stands, as the driver remembers it. Pure, but for the clock.

An entry comes from the ledger, from a count that the driver opened, or from a lane that
gave it back. Those in `entries` are copied. `known` has them too, and those of partitions
that are stopped or not selected now: if they come back, their copy goes on from there.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping

from heliograph.kafka.types import may_be_same_topic
from heliograph.ledger.counts import Past, Start
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.loss_outcomes import Outcome, source_made_anew, target_made_anew
from heliograph.ledger.model import NOT_LATE, LedgerRow, PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.runs import OpenPage


class PartitionTable:
    """Keeps how far each partition of one flow is copied."""

    def __init__(self) -> None:
        self.entries: dict[PartitionName, Entry] = {}
        self.known: dict[PartitionName, Entry] = {}
        self.pages: dict[PartitionName, OpenPage] = {}
        """The pages being filled, as the lanes gave them back."""
        self.positions: dict[PartitionName, int] = {}
        """The positions stored on the target, by us or by another tool."""
        self._answered: set[PartitionName] = set()
        """Partitions with nothing on its way to the target: all that lanes sent was answered."""
        self._seen_at: dict[PartitionName, float] = {}
        """Since when lanes have watched the target of the other partitions."""
        self._settled: set[PartitionName] = set()
        """Partitions that a lane has settled since we lead."""

    def begin(self, ledger: Ledger, positions: dict[PartitionName, int]) -> None:
        """Begin as a new leader: forget all but what is written on the target."""
        self.positions = positions
        self.entries.clear()
        self._settled.clear()
        self._know_nothing_of_late_ones()
        self.known = ledger.entries
        self.pages = {where: ledger.partitions[where].open_page() for where in self.known}

    @property
    def begun(self) -> set[PartitionName]:
        """The partitions of which we, or another tool before us, have copied something."""
        return self.known.keys() | self.positions.keys()

    def keep_only(self, present: Collection[PartitionName]) -> set[PartitionName]:
        """Copy none but these; return those that are gone."""
        gone = self.entries.keys() - set(present)
        for where in gone:
            del self.entries[where]
        return gone

    def copy(self, where: PartitionName, entry: Entry) -> None:
        """Copy a partition from an entry on."""
        self.entries[where] = entry

    def resume(self, where: PartitionName, entry: Entry) -> None:
        """Copy a partition from an entry on that is not the one known so far."""
        self.entries[where] = self.known[where] = entry

    def drop(self, where: PartitionName) -> None:
        """Copy a partition no longer; what is known of it stays."""
        self.entries.pop(where, None)

    def take_row(self, row: LedgerRow) -> None:
        """Take what a lane gave back."""
        where = (row.topic, row.partition)
        self.known[where] = row.entry
        self.pages[where] = OpenPage.unpack(row.page)
        if where in self.entries:  # else it was deselected meanwhile
            self.entries[where] = row.entry
        if not row.unseen:
            self._settled.add(where)
        self._seen_at.pop(where, None)
        self._answered.discard(where)
        if row.late_ms == NOT_LATE:
            self._answered.add(where)
        elif row.late_ms:
            self._seen_at[where] = time.monotonic() - row.late_ms / 1000

    def take_written(self, ledger: Ledger) -> None:
        """Take what lanes that gave nothing back wrote to the ledger: it leaves less to settle."""
        self._know_nothing_of_late_ones()
        for where, entry in self.entries.items():
            partition = ledger.partitions.get(where)
            written = partition.entry if partition is not None else None
            if partition is not None and written is not None and written.count == entry.count and written.n > entry.n:
                self.entries[where] = self.known[where] = written
                self.pages[where] = partition.open_page()

    def take_opened(self, opened: Mapping[PartitionName, Entry]) -> None:
        """Take new counts that are durable."""
        self.entries.update(opened)
        self._answered.update(where for where, entry in opened.items() if entry.count == 0)
        self.known.update(opened)
        self.pages.update({where: OpenPage(entry.run_source) for where, entry in opened.items()})
        self.positions.update({where: entry.source_offset for where, entry in opened.items()})

    def is_unsettled(self, where: PartitionName) -> bool:
        """Whether no lane has settled a partition since we lead."""
        return where not in self._settled

    def late_ms(self, where: PartitionName) -> int:
        """Tell for how long the target was watched while something may be on its way there."""
        if where in self._answered:
            return NOT_LATE
        seen_at = self._seen_at.get(where)
        return 0 if seen_at is None else int((time.monotonic() - seen_at) * 1000)

    def _know_nothing_of_late_ones(self) -> None:
        self._answered.clear()
        self._seen_at.clear()

    def next_count(self, where: PartitionName, above: int = -1) -> int:
        """Give the number of the count that a partition opens next; one of those up to `above` was used, maybe all."""
        previous = self.entries.get(where) or self.known.get(where)
        return max(previous.count if previous else -1, above) + 1


def resume_of(known: Entry, stored: int | None, *, source_id: str, target_id: str) -> Entry | Start | Outcome:
    """Decide how a partition with an entry resumes: with it, in a new count, or as the policies say."""
    if not may_be_same_topic(known.source_topic_id, source_id):
        return source_made_anew(known, source_id)
    if not may_be_same_topic(known.target_topic_id, target_id):
        return target_made_anew(known, target_id)
    if stored is not None and stored > known.source_offset:
        return Start(stored, Past.OTHERS)  # we write the entry first; see `takeover`
    return known.moved(source_topic_id=source_id, target_topic_id=target_id)


def past_of(known: Entry | None, source_id: str, target_id: str) -> Past:
    """Tell what stands on the target of a partition that begins where it was told to."""
    if known is None:
        return Past.NOTHING
    is_same = may_be_same_topic(known.source_topic_id, source_id) and may_be_same_topic(
        known.target_topic_id, target_id
    )
    return Past.SET if is_same else Past.VOID
