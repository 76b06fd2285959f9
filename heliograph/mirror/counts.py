"""A new count: its first entry, and what it means for the runs of the counts before it. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum, auto
from typing import NamedTuple

from heliograph.kafka.admin import EARLIEST, LATEST
from heliograph.mirror.lineage import Lineage
from heliograph.mirror.model import Entry, PackedLineage
from heliograph.mirror.remap import SAME
from heliograph.mirror.runs import OpenPage, Page, Run


class Past(Enum):
    """What stands on the target when a count begins."""

    NOTHING = auto()
    """Nothing of this partition."""
    OURS = auto()
    """What the counts before copied; what lies between them and the new one was never copied."""
    OTHERS = auto()
    """Another tool copied in between: of that stretch nothing is known."""
    VOID = auto()
    """One of the topics was made anew: what the counts before say is about another topic."""


class Start(NamedTuple):
    """Where a count is to begin on the source, EARLIEST and LATEST included, and after what."""

    offset: int
    past: Past


class Extent(NamedTuple):
    """How far the two logs of a partition reach."""

    source_start: int
    source_end: int
    target_end: int


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
    """Where a copy stands that is about to begin; `known` is the entry of the count before."""
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
        lineage=lineage_at_opening(start.past, offset, known),
        rule=rule,
        modulo=modulo,
    )


def lineage_at_opening(past: Past, offset: int, known: Entry | None) -> PackedLineage:
    """What is known of the source's log before the offset where a new count begins."""
    if past is not Past.OURS or known is None or offset > known.source_offset:
        return ""
    return Lineage.parse(known.lineage).until(offset).pack()


def source_at(target_offset: int, entry: Entry, page: OpenPage | None, pages: Iterable[Page]) -> int | None:
    """The first source offset that is not copied when the target ends at an offset; None if no run tells.

    `page` is the one being filled, `pages` those that are written.
    """
    runs = [Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source)]
    runs += reversed(page.runs if page is not None else [])
    for older in sorted(pages, key=lambda one: one.start, reverse=True):
        if runs[-1].target < target_offset:
            break
        if older.start < runs[-1].source:
            runs += reversed(older.runs())
    for run in runs:
        if run.target < target_offset:
            return run.source + min(run.length, target_offset - run.target)
    return None


def pages_at_opening(
    past: Past, new: Entry, *, known: Entry | None, page: OpenPage | None, pages: Iterable[Page]
) -> dict[int, Page | None]:
    """The pages to write with the entry of a new count, by their start; None deletes one."""
    if past is Past.VOID:
        gone: dict[int, Page | None] = {old.start: None for old in pages}
        return gone | _nothing_between(0, new)
    if known is None or page is None:
        return _nothing_between(0, new) if past is Past.NOTHING else {}
    closing = OpenPage(page.start, page.runs)
    closing.close(Run(known.run_source, known.run_target, known.source_offset - known.run_source))
    closed = {old.start: old for old in closing.pages(known.count, known.source_offset, known.target_offset)}
    written: dict[int, Page | None] = {**closed}
    kept = {old.start: old for old in pages} | closed
    for start in sorted(kept, reverse=True):
        before = kept[start]
        left = _as_far_as(before, new.source_offset, new.target_offset)
        if left == before:
            break  # what comes before it reaches less far on either side
        written[start] = left
    return written | (_nothing_between(known.source_offset, new) if past is Past.OURS else {})


def _as_far_as(page: Page, source_end: int, target_end: int) -> Page | None:
    """What a page still says when source offsets from one on, or target offsets from another on, hold other records."""
    runs = [
        run._replace(length=min(run.length, source_end - run.source, target_end - run.target))
        for run in page.runs()
        if run.source < source_end and run.target < target_end
    ]
    if page.start >= source_end:
        return None
    target = min(page.target, target_end)
    return Page.of(page.start, min(page.end, source_end), page.count, runs, target=target, is_rebuilt=page.is_rebuilt)


def _nothing_between(start: int, new: Entry) -> dict[int, Page | None]:
    if new.source_offset <= start:
        return {}
    return {start: Page.of(start, new.source_offset, new.count, (), target=new.target_offset)}
