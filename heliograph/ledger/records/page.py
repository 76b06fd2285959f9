"""The ledger records "runs" and "former": pages, each with many runs packed into one record. Pure.

A page is the truth for its stretch of source offsets [start, end): those in a run were copied to where the run says,
the others had nothing to copy. `runs` says how runs come about.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from heliograph.kafka.log import KeyValue
from heliograph.ledger.records.entry import COUNT_MAX
from heliograph.ledger.records.ledger_record import LedgerRecord, encode_key
from heliograph.ledger.records.untrusted_json import OFFSET_MAX, as_offset, as_partition, as_text, take

VERSION = 1
_REBUILT, _BY_LANE = 1, 2
_TOO_LONG = re.compile(rb"[\x80-\xff]{9}")
"""Finds a varint of over 63 bits in a row of them."""
_LARGE = re.compile(rb"[\x80-\xff]{4}")
"""Finds a varint of over 28 bits. A record that fits a batch has too few smaller ones to exceed 2^62 by their sum."""
_SMALL_START = 1 << 62


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
    """The runs that one count copied of the source offsets [start, end)."""

    start: int
    end: int
    count: int
    """The number of the count that copied it."""
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
            packed=pack_runs(start, first, runs),
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
        return unpack_runs(self.start, self.target, self.packed)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRecord(LedgerRecord):
    """A page of one partition, as it stands in the ledger."""

    KIND: ClassVar[str] = "runs"
    KIND_OF_FORMER: ClassVar[str] = "former"
    topic: str
    partition: int
    start: int
    page: Page | None
    """None: it was deleted."""
    is_former: bool = False
    """It tells of copies that the present count is to make once more (`counts`)."""

    def encode(self, group_id: str) -> KeyValue:
        return encode_page(group_id, self.topic, self.partition, self.start, self.page, is_former=self.is_former)

    @classmethod
    def parse(cls, rest: Sequence[Any], value: bytes | None, *, is_former: bool = False) -> PageRecord | None:
        name, number, first = take(rest, 3)
        topic, partition, start = as_text(name), as_partition(number), as_offset(first)
        page = Page.parse(start, value) if value is not None else None
        if value is not None and (page is None or page.count > COUNT_MAX):
            return None
        return cls(topic=topic, partition=partition, start=start, page=page, is_former=is_former)

    @classmethod
    def parse_former(cls, rest: Sequence[Any], value: bytes | None) -> PageRecord | None:
        return cls.parse(rest, value, is_former=True)


def encode_page(
    group_id: str, topic: str, partition: int, start: int, page: Page | None, *, is_former: bool = False
) -> KeyValue:
    """Return key and value of a page of runs; None deletes it."""
    kind = PageRecord.KIND_OF_FORMER if is_former else PageRecord.KIND
    return encode_key(kind, group_id, topic, partition, start), page.encode() if page is not None else None


# -- bytes -------------------------------------------------------------------------------


def pack_runs(start: int, target: int, runs: Sequence[Run]) -> bytes:
    """Pack runs: each as its distance to the one before it, on either side, and its length."""
    packed = bytearray()
    for run in runs:
        for number in (run.source - start, run.target - target, run.length):
            if 0 <= number < 0x80:
                packed.append(number)
            else:
                _append_varint(packed, number)
        start, target = run.source + run.length, run.target + run.length
    return bytes(packed)


def unpack_runs(start: int, target: int, packed: bytes) -> list[Run]:
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
