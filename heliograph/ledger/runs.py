"""How runs grow, break and are kept: which source offset is which target offset. Pure.

A mirror of an ordinary topic is one run for each partition. Markers of transactions,
compaction, or records of others on the target break a run, and the broken ones are kept
in pages:

    source  0  1  2  M  4  5  M  7  8  9 ...        M: a marker, nothing to copy
    target  30 31 32    33 34    35 36 37 ...
            [   page: runs   )   [ open run, in the entry

Where neither a page (`records.page`) nor the open run tells of an offset, nothing is known.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from heliograph.ledger.records.page import Page, Run, pack_runs, unpack_runs

PAGE_RUNS = 128
"""Runs of a full page. Each flush rewrites the page that is being filled, and a translation unpacks one page."""
_START = struct.Struct(">q")


class OpenPage:
    """The page that a copy fills. It goes into the ledger with the entry, whose open run begins where it ends."""

    def __init__(self, start: int, runs: Iterable[Run] = ()) -> None:
        self.start = start
        self.runs = list(runs)
        self._written: tuple[int, int] | None = None

    def pack(self) -> bytes:
        """Pack the page for its way between driver and lane."""
        return _START.pack(self.start) + pack_runs(self.start, 0, self.runs)

    @classmethod
    def unpack(cls, data: bytes) -> OpenPage:
        (start,) = _START.unpack_from(data)
        return cls(start, unpack_runs(start, 0, data[_START.size :]))

    def close(self, run: Run) -> None:
        """The open run is broken; one without records leaves nothing to keep."""
        if run.length:
            self.runs.append(run)

    def pages(self, count: int, end: int, target: int) -> list[Page]:
        """Return the pages to write now: full ones, and the open one if it changed. `end` begins the open run."""
        pages = []
        start, at, runs = self.start, 0, self.runs
        while len(runs) - at > PAGE_RUNS:
            page_end = runs[at + PAGE_RUNS].source
            pages.append(Page.of(start, page_end, count, runs[at : at + PAGE_RUNS], target=target))
            start, at = page_end, at + PAGE_RUNS
        if end > start and (start, end) != self._written:
            pages.append(Page.of(start, end, count, runs[at:], target=target))
        return pages

    def written(self, pages: Sequence[Page]) -> None:
        """These are durable; only the last of them may grow."""
        if not pages:
            return
        last = pages[-1]
        del self.runs[: sum(page.number for page in pages[:-1])]
        self.start = last.start
        self._written = last.start, last.end


class OpenRun(NamedTuple):
    """The run that grows: it began at (source, target) and ends at the position and the target's end."""

    source: int
    target: int
    source_end: int
    target_end: int


def follow(open_run: OpenRun, copied: Iterable[Run], source_end: int) -> tuple[list[Run], OpenRun]:
    """Take over what was copied, in order, up to `source_end`; the runs that this broke, and the one now open."""
    closed: list[Run] = []
    source, target, at, target_at = open_run
    for run in copied:
        if (run.source, run.target) != (at, target_at):
            if at > source:
                closed.append(Run(source, target, at - source))
            source, target = run.source, run.target
        at, target_at = run.source_end, run.target_end
    if source_end > at:
        if at > source:
            closed.append(Run(source, target, at - source))
        source = at = source_end
        target = target_at
    return closed, OpenRun(source, target, at, target_at)


def join_spans(sources: Iterable[tuple[int, int]], targets: Iterable[tuple[int, int]]) -> list[Run]:
    """The runs of records given by where they stand on each side: (offset, length) in the order of the count."""
    runs: list[Run] = []
    waiting = iter(targets)
    target, room = next(waiting, (0, 0))
    for start, length in sources:
        source, left = start, length
        while left:
            if not room:
                target, room = next(waiting, (0, 0))
                if not room:
                    return runs
            step = min(left, room)
            last = runs[-1] if runs else None
            if last is not None and (last.source_end, last.target_end) == (source, target):
                runs[-1] = last._replace(length=last.length + step)
            else:
                runs.append(Run(source, target, step))
            source, target, left, room = source + step, target + step, left - step, room - step
    return runs
