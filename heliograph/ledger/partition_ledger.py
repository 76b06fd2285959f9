"""All that the ledger knows of one partition, in memory: its entry, its pages, and what they say. Pure."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from dataclasses import replace

from heliograph.ledger.counts import reach_of
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.runs import OpenPage
from heliograph.ledger.translation import Grade, Translation, start_of, translate_by_pages


class PartitionLedger:
    """The entry and the pages of one partition."""

    __slots__ = ("_by_start", "_former", "_former_reach", "_overwritten", "_pages", "entry")

    def __init__(self) -> None:
        self.entry: Entry | None = None
        self._pages: dict[int, Page] = {}
        self._former: dict[int, Page] = {}
        self._former_reach = 0
        self._by_start: list[Page] | None = None
        self._overwritten: set[int] = set()
        """Where a page came late: the topic has it on top of the one that counts."""

    def take_entry(self, entry: Entry) -> None:
        """An older one, of a lane that outlived its time, changes nothing."""
        if self.entry is None or _age(entry) >= _age(self.entry):
            self.entry = entry

    def take_page(self, start: int, page: Page | None) -> None:
        """None: it was deleted. An older one, of a lane that outlived its time, changes nothing."""
        if page is not None and self.entry is not None and _is_late(page, self.entry):
            self._overwritten.add(start)
            return
        self._by_start = None
        self._overwritten.discard(start)
        if page is None:
            self._pages.pop(start, None)
        else:
            self._pages[start] = page

    def take_former(self, start: int, page: Page | None) -> None:
        """None: it was deleted."""
        if page is None:
            self._former.pop(start, None)
        else:
            self._former[start] = page
        self._former_reach = reach_of(self._former.values())

    @property
    def pages(self) -> Iterable[Page]:
        return self._pages.values()

    @property
    def former(self) -> Iterable[Page]:
        """The pages of earlier counts, from where the present one began."""
        return self._former.values()

    @property
    def reach(self) -> int:
        """Up to where the source is mirrored; the present count may be copying once more what lies before."""
        return max(self.entry.source_offset if self.entry is not None else 0, self._former_reach)

    @property
    def _is_again(self) -> bool:
        return self.entry is not None and self.entry.source_offset < self._former_reach

    def outrun(self) -> dict[int, Page | None]:
        """Return the deletions of former pages that the present count has passed."""
        return {} if self._is_again else dict.fromkeys(self._former)

    def open_page(self) -> OpenPage:
        """The page that goes on being filled; a new one if none ends where the entry's open run begins."""
        assert self.entry is not None
        entry = self.entry
        for page in self._pages.values():
            if page.count == entry.count and page.end == entry.run_source and not page.is_rebuilt:
                return OpenPage(page.start, page.runs())
        return OpenPage(entry.run_source)

    def overwritten(self) -> dict[int, Page | None]:
        """Return pages to write again: a late one stands on top of each, and compaction would keep the late one."""
        pages = {start: self._pages.get(start) for start in self._overwritten}
        return {start: page if page is None else replace(page, by_lane=False) for start, page in pages.items()}

    def pruned(self, log_start: int) -> dict[int, Page | None]:
        """Return the deletions of pages wholly below the source's log start; never of the one being filled.

        Of what they said remains that there is nothing: a group that stands there goes on at the first run left.
        """
        entry = self.entry
        if entry is None or self._is_again:
            return {}
        limit = min(log_start, entry.run_source - 1)
        gone = [page for page in self._sorted() if page.end <= limit]
        if not any(page.number for page in gone):
            return {}
        nothing = Page.of(0, gone[-1].end, gone[-1].count, (), target=gone[-1].target)
        return {page.start: None for page in gone} | {0: nothing}

    def runs_since(self, offset: int) -> Iterator[Run]:
        """Yield the runs that were copied of the source from an offset on, in order."""
        pages = self._sorted()
        for page in itertools.islice(pages, max(0, bisect_right(pages, offset, key=start_of) - 1), None):
            if page.end > offset:
                yield from (part for run in page.runs() if (part := _from(run, offset)).length > 0)
        if self.entry is not None:
            entry = self.entry
            part = _from(Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source), offset)
            if part.length > 0:
                yield part

    def copied_between(self, target_start: int, target_end: int) -> int:
        """How many records were copied to target offsets from one up to another."""
        entry, pages = self.entry, self._sorted()
        if entry is None or target_end <= target_start:
            return 0
        runs = [Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source)]
        for page in reversed(pages):
            if runs[-1].target <= target_start:
                break
            runs += reversed(page.runs())
        return sum(max(0, min(run.target_end, target_end) - max(run.target, target_start)) for run in runs)

    # -- translation -----------------------------------------------------------------------

    def translate(self, offset: int) -> Translation | None:
        """Return where a group goes on that committed `offset` on the source; None if nothing was ever copied."""
        entry = self.entry
        if entry is None:
            return None
        if offset >= self.reach:
            ahead = offset - self.reach
            if ahead and not self._has_copied(entry):
                return None
            return Translation(entry.target_offset, Grade.AHEAD if ahead else Grade.EXACT, ahead)
        if self._is_again:
            former = sorted(self._former.values(), key=start_of)
            first = (page for page in self._sorted() if page.start < former[0].start)
            found = translate_by_pages([*first, *former], offset, (self._former_reach, entry.target_offset))
        elif offset >= entry.run_source:
            return Translation(entry.run_target + offset - entry.run_source)
        else:
            found = translate_by_pages(self._sorted(), offset, (entry.run_source, entry.run_target))
        return found._replace(offset=min(found.offset, entry.target_offset))

    def _has_copied(self, entry: Entry) -> bool:
        return entry.n > 0 or any(page.number for page in (*self._pages.values(), *self._former.values()))

    def _sorted(self) -> list[Page]:
        if self._by_start is None:
            self._by_start = sorted(self._pages.values(), key=start_of)
        return self._by_start


def _age(entry: Entry) -> tuple[int, int, int]:
    """Counts follow each other, and in a count nothing goes back."""
    return entry.count, entry.n, entry.source_offset


def _is_late(page: Page, entry: Entry) -> bool:
    """Whether a page is older than an entry that stands before it: a lane writes both at once, and the page ends where
    the entry's open run begins."""
    return page.by_lane and (page.count, page.end) < (entry.count, entry.run_source)


def _from(run: Run, offset: int) -> Run:
    """The part of a run from a source offset on; its length is not positive if there is none."""
    skipped = max(0, offset - run.source)
    return Run(run.source + skipped, run.target + skipped, run.length - skipped)
