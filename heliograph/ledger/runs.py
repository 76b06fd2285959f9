"""Runs: which source offset is which target offset; and pages, many runs packed into one record. Pure.

A mirror of an ordinary topic is one run for each partition. Markers of transactions,
compaction, or records of others on the target break a run, and the broken ones are kept
in pages:

    source  0  1  2  M  4  5  M  7  8  9 ...        M: a marker, nothing to copy
    target  30 31 32    33 34    35 36 37 ...
            [   page: runs   )   [ open run, in the entry

A page is the truth for its stretch of source offsets [start, end): those in a run were
copied to where the run says, the others had nothing to copy. Where no page and no open
run has a word, nothing is known.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.ledger.untrusted_json import OFFSET_MAX

VERSION = 1
PAGE_RUNS = 128
"""Runs of a full page. Each flush rewrites the page that is being filled, and a translation unpacks one page."""
_REBUILT, _BY_LANE = 1, 2
_TOO_LONG = re.compile(rb"[\x80-\xff]{9}")
"""In a row of varints, one of over 63 bits."""
_LARGE = re.compile(rb"[\x80-\xff]{4}")
"""One of over 28 bits. Of smaller ones a record that fits a batch has too few to exceed 2^62 by their sum."""
_SMALL_START = 1 << 62
_START = struct.Struct(">q")


class Run(NamedTuple):
    """Source offset source + i is target offset target + i, for i below length."""

    source: int
    target: int
    length: int

    @property
    def source_end(self) -> int:
        return self.source + self.length

    @property
    def target_end(self) -> int:
        return self.target + self.length


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """What was copied of the source offsets [start, end), under one count."""

    start: int
    end: int
    count: int
    """Under which it was copied."""
    target: int
    """The first run's target offset; without runs, the target's end at that time."""
    number: int
    packed: bytes
    is_rebuilt: bool = False
    """Made from offset syncs after the ledger was lost: what is missing in it may be missing in knowledge only."""
    by_lane: bool = field(default=False, compare=False)
    """A lane wrote it, with its entry: in a count it only grows. The driver writes others, which cut them too."""

    @classmethod
    def of(
        cls, start: int, end: int, count: int, runs: Sequence[Run], *, target: int, is_rebuilt: bool = False
    ) -> Page:
        """`target` counts only where there are no runs."""
        first = runs[0].target if runs else target
        return cls(
            start=start,
            end=end,
            count=count,
            target=first,
            number=len(runs),
            packed=_pack(start, first, runs),
            is_rebuilt=is_rebuilt,
        )

    def encode(self) -> bytes:
        head = bytearray((VERSION, (_REBUILT if self.is_rebuilt else 0) | (_BY_LANE if self.by_lane else 0)))
        for number in (self.count, self.end - self.start, self.target, self.number):
            _append_varint(head, number)
        return bytes(head) + self.packed

    @classmethod
    def parse(cls, start: int, value: bytes) -> Page | None:
        """None for another version, and for what is no page."""
        if len(value) < 2 or value[0] != VERSION:
            return None
        if _TOO_LONG.search(value, 2):
            return None
        try:
            count, at = _varint(value, 2)
            length, at = _varint(value, at)
            target, at = _varint(value, at)
            number, at = _varint(value, at)
        except IndexError:
            return None
        packed = value[at:]
        if not _is_whole(packed, number) or max(start + length, target) > OFFSET_MAX:
            return None
        page = cls(
            start=start,
            end=start + length,
            count=count,
            target=target,
            number=number,
            packed=packed,
            is_rebuilt=bool(value[1] & _REBUILT),
            by_lane=bool(value[1] & _BY_LANE),
        )
        return page if page._is_within_64_bits() else None

    def _is_within_64_bits(self) -> bool:
        """Unpacking takes time, and a ledger may have a million pages: where all numbers are small it is not needed."""
        if not _LARGE.search(self.packed) and max(self.start, self.target) < _SMALL_START:
            return True
        return all(max(run.source_end, run.target_end) <= OFFSET_MAX for run in self.runs())

    def runs(self) -> list[Run]:
        return _unpack(self.start, self.target, self.packed)


class OpenPage:
    """The page that a copy fills. It goes into the ledger with the entry, whose open run begins where it ends."""

    def __init__(self, start: int, runs: Iterable[Run] = ()) -> None:
        self.start = start
        self.runs = list(runs)
        self._written: tuple[int, int] | None = None

    def pack(self) -> bytes:
        """For the way between driver and lane."""
        return _START.pack(self.start) + _pack(self.start, 0, self.runs)

    @classmethod
    def unpack(cls, data: bytes) -> OpenPage:
        (start,) = _START.unpack_from(data)
        return cls(start, _unpack(start, 0, data[_START.size :]))

    def close(self, run: Run) -> None:
        """The open run is broken; one without records leaves nothing to keep."""
        if run.length:
            self.runs.append(run)

    def pages(self, count: int, end: int, target: int) -> list[Page]:
        """What to write now: full pages, and the one being filled if it has changed. `end` begins the open run."""
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


# -- bytes -------------------------------------------------------------------------------


def _pack(start: int, target: int, runs: Sequence[Run]) -> bytes:
    """Of each run the distance to the one before it, on either side, and its length."""
    packed = bytearray()
    for run in runs:
        for number in (run.source - start, run.target - target, run.length):
            if 0 <= number < 0x80:
                packed.append(number)
            else:
                _append_varint(packed, number)
        start, target = run.source + run.length, run.target + run.length
    return bytes(packed)


def _unpack(start: int, target: int, packed: bytes) -> list[Run]:
    runs = []
    at, end = 0, len(packed)
    while at < end:
        source_gap, at = _varint(packed, at)
        target_gap, at = _varint(packed, at)
        length, at = _varint(packed, at)
        start, target = start + source_gap, target + target_gap
        runs.append(Run(start, target, length))
        start, target = start + length, target + length
    return runs


def _is_whole(packed: bytes, number: int) -> bool:
    """Whether these are so many runs: a varint ends with a byte below 128."""
    if not packed:
        return number == 0
    return packed[-1] < 0x80 and len(packed) - len(packed.translate(None, _LAST_BYTES)) == 3 * number


_LAST_BYTES = bytes(range(0x80))


def _append_varint(data: bytearray, number: int) -> None:
    assert number >= 0, number
    while number > 0x7F:
        data.append(number & 0x7F | 0x80)
        number >>= 7
    data.append(number)


def _varint(data: bytes, at: int) -> tuple[int, int]:
    byte = data[at]
    at += 1
    if byte < 0x80:
        return byte, at
    number, shift = byte & 0x7F, 7
    while True:
        byte = data[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
