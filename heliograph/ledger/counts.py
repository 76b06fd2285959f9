"""A new count: its first entry, and what it means for the runs of the counts before it. Pure.

A count that begins where somebody set it may copy once more what stands on the target already:

    source             0 ........ 50 ........ 100          the position was 100, and was set to 50
    first copies       0 ........ 50 ........ 99
    second copies                100 ... 120               so far up to source offset 70

A group at 60 must not go on at 110: if the source were lost now, it would never see 70 to 99, which stand before that.
So the first copies count until the second ones have gone as far: what the counts before say from 50 on is kept apart,
as former pages, and is deleted when the new count has passed it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum, auto
from typing import NamedTuple

from heliograph.kafka.admin.topics import EARLIEST, LATEST
from heliograph.ledger.lineage import Lineage, PackedLineage
from heliograph.ledger.partition_remap import SAME
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.runs import OpenPage


class Past(Enum):
    """The kinds of what stands on the target when a count begins."""

    NOTHING = auto()
    """Nothing of this partition."""
    OURS = auto()
    """What the counts before copied; what lies between them and the new one was never copied."""
    SET = auto()
    """As OURS, and somebody set the position: what was copied from there on stays true until it is copied once more."""
    OTHERS = auto()
    """Another tool copied in between: of that stretch nothing is known."""
    VOID = auto()
    """One of the topics was made anew: what the counts before say is about another topic."""


class Start(NamedTuple):
    """The source offset where a count is to begin, EARLIEST and LATEST included, and what was copied before."""

    offset: int
    past: Past
    above: int = -1
    """The highest number of a count that is known to be used, where the ledger may not know it."""


class Extent(NamedTuple):
    """How far the two logs of a partition reach."""

    source_start: int
    source_end: int
    target_end: int


class Opened(NamedTuple):
    """The pages to write with the entry of a new count, by their start; None deletes one."""

    pages: dict[int, Page | None]
    former: dict[int, Page | None]
    """What the counts before copied from where the new one begins."""


def first_entry(
    start: Start,
    extent: Extent,
    *,
    known: Entry | None,
    count: int,
    rule: str,
    source_id: str,
    target_id: str,
    modulo: int = SAME,
) -> Entry:
    """Return the entry of a copy that is about to begin; `known` is the entry of the count before."""
    offset = {EARLIEST: extent.source_start, LATEST: extent.source_end}.get(start.offset, start.offset)
    return Entry(
        source_topic_id=source_id,
        target_topic_id=target_id,
        count=count,
        n=0,
        source_offset=offset,
        target_offset=extent.target_end,
        our_end=extent.target_end,
        run_source=offset,
        run_target=extent.target_end,
        source_end=extent.source_end,
        newest_ms=known.newest_ms if known is not None and start.past is not Past.VOID else -1,
        lineage=lineage_at_opening(start.past, offset, known),
        rule=rule,
        modulo=modulo,
        target_leader_epoch=known.target_leader_epoch if known is not None and start.past is not Past.VOID else -1,
    )


def lineage_at_opening(past: Past, offset: int, known: Entry | None) -> PackedLineage:
    """Return the leader epochs that are known before the offset where a new count begins."""
    if past not in (Past.OURS, Past.SET) or known is None or offset > known.source_offset:
        return ""
    return Lineage.parse(known.lineage).until(offset).pack()


def source_at(target_offset: int, entry: Entry, page: OpenPage | None, pages: Iterable[Page]) -> int | None:
    """The first source offset that is not copied when the target ends at an offset; None if no run tells.

    `page` is the one being filled, `pages` those that are written.
    """
    for run, _ in runs_back(entry, page, pages):
        if run.target < target_offset:
            return run.source + min(run.length, target_offset - run.target)
    return None


def runs_back(entry: Entry, page: OpenPage | None, pages: Iterable[Page]) -> Iterator[tuple[Run, int]]:
    """All runs with their counts, the newest first."""
    last = Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source)
    yield last, entry.count
    for run in reversed(page.runs if page is not None else []):
        last = run
        yield run, entry.count
    for older in sorted(pages, key=lambda one: one.start, reverse=True):
        if older.start < last.source:
            for run in reversed(older.runs()):
                last = run
                yield run, older.count


def pages_at_opening(
    past: Past,
    new: Entry,
    *,
    known: Entry | None,
    page: OpenPage | None,
    pages: Iterable[Page],
    former: Iterable[Page] = (),
) -> Opened:
    """What becomes of the runs of the counts before a new one."""
    stored = {old.start: old for old in pages}
    apart = _ordered(former)
    outdated: dict[int, Page | None] = {old.start: None for old in apart}
    if past is Past.VOID:
        return Opened(dict.fromkeys(stored) | _nothing_between(0, new), outdated)
    if known is None or page is None:
        return Opened(_nothing_between(0, new) if past is Past.NOTHING else {}, outdated)
    # With a position that was set, what was not written down before a crash may stand on the target too.
    unwritten = max(0, new.target_offset - known.target_offset) if past is Past.SET else 0
    reach = known.source_offset + unwritten
    copied = {**stored, **_closed(known, page)}
    if known.source_offset < reach_of(apart):
        return _open_again(past, new, copied, apart, position=known.source_offset, reach=reach)
    written = _cut(copied, new, stored)
    if past is not Past.OTHERS:
        written |= _nothing_between(reach, new)
    kept = _kept(_ordered(copied.values()), new.source_offset, reach, new) if past is Past.SET else {}
    return Opened(written, outdated | kept)


def reach_of(former: Iterable[Page]) -> int:
    """Up to where the counts before copied; 0 if nothing is kept of them."""
    return max((page.end for page in former), default=0)


def _closed(known: Entry, page: OpenPage) -> dict[int, Page]:
    """The page being filled with the open run, which a new count ends."""
    closing = OpenPage(page.start, page.runs)
    closing.close(Run(known.run_source, known.run_target, known.source_offset - known.run_source))
    return {old.start: old for old in closing.pages(known.count, known.source_offset, known.target_offset)}


def _cut(copied: Mapping[int, Page], new: Entry, stored: Mapping[int, Page]) -> dict[int, Page | None]:
    """The pages that are not yet stored as they are to be: none says anything from where the new count begins."""
    written: dict[int, Page | None] = {}
    for start in sorted(copied, reverse=True):
        left = _as_far_as(copied[start], new.source_offset, new.target_offset)
        if left is not None and left == stored.get(start):
            break  # what comes before it reaches less far on either side
        written[start] = left
    return written


def _open_again(
    past: Past, new: Entry, copied: Mapping[int, Page], former: Sequence[Page], *, position: int, reach: int
) -> Opened:
    """A new count while the last one had not come as far as those before it, which count up to there.

    It goes on with what the last one began, unless it begins before that, or leaves out what was copied once: then
    the first copies count from there on, and what was copied since counts for nothing.
    """
    begun, start, target_end = former[0].start, new.source_offset, new.target_offset
    first = [*_ordered(page for at, page in copied.items() if at < begun), *former]
    second = [run for at, page in copied.items() if at >= begun for run in page.runs() if run.target_end > target_end]
    position = min((position, *(run.source + max(0, target_end - run.target) for run in second)))
    far = max(reach_of(former), reach)
    passed_over = (page for page in first if page.end > position and page.start < start)
    once = [_between(page, position, min(page.end, start), target_end) for page in passed_over]
    is_left_out = past is not Past.OTHERS and _last_copied(once, position, min(far, start)) > position
    is_anew = start <= begun or is_left_out
    kept = (_as_far_as(page, start, new.target_offset) for page in (first if is_anew else copied.values()))
    written: dict[int, Page | None] = {page.start: page for page in kept if page is not None and page.end > page.start}
    if past is not Past.OTHERS:
        written |= _nothing_between(far if is_anew else reach, new)
    again = _kept(first, start if is_anew else begun, far, new)
    outdated: dict[int, Page | None] = {page.start: None for page in former}
    return Opened({**dict.fromkeys(copied), **written}, outdated | again)


def _kept(copied: Iterable[Page], start: int, reach: int, new: Entry) -> dict[int, Page | None]:
    """The former pages: what was copied of the source from `start` on, where a count begins to copy it once more.

    The first begins there, the last one ends with the last record that was copied or may have been: one without a
    length marks where nothing is known.
    """
    parts = [_between(page, start, page.end, new.target_offset) for page in copied if page.end > start]
    needed = _last_copied(parts, start, reach)
    if needed <= start:
        return {}
    marks = (Page.of(at, at, new.count, (), target=new.target_offset) for at in (start, needed))
    pages = (_as_far_as(page, needed, new.target_offset) for page in parts)
    return {page.start: page for page in (*marks, *pages) if page is not None}


def _last_copied(pages: Iterable[Page], start: int, reach: int) -> int:
    """Up to where, from one source offset to another, records were copied, or may have been where no page is."""
    far = end = start
    for page in pages:
        if page.start > end:
            far = page.start
        if page.number:
            far = page.runs()[-1].source_end
        end = max(end, page.end)
    return reach if end < reach else far


def _ordered(pages: Iterable[Page]) -> list[Page]:
    return sorted(pages, key=lambda page: page.start)


def _as_far_as(page: Page, source_end: int, target_end: int) -> Page | None:
    """Cut a page where source offsets from one on, or target offsets from another on, hold other records."""
    if page.start >= source_end:
        return None
    return _between(page, page.start, min(page.end, source_end), target_end)


def _between(page: Page, start: int, end: int, target_end: int) -> Page:
    """Return the part of a page for some of its source offsets, cut where target offsets hold other records."""
    start = max(page.start, start)
    runs = []
    for run in page.runs():
        skipped = max(0, start - run.source)
        source, target = run.source + skipped, run.target + skipped
        length = min(run.length - skipped, end - source, target_end - target)
        if length > 0:
            runs.append(Run(source, target, length))
    target = min(page.target, target_end)
    return Page.of(start, end, page.count, runs, target=target, is_rebuilt=page.is_rebuilt)


def _nothing_between(start: int, new: Entry) -> dict[int, Page | None]:
    if new.source_offset <= start:
        return {}
    return {start: Page.of(start, new.source_offset, new.count, (), target=new.target_offset)}
