"""Represents sets of code points as sorted ranges: unions, intersections, and their text for `regex`."""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

import regex

Ranges = tuple[tuple[int, int], ...]
"""A set of code points: sorted, disjoint, inclusive ranges."""

LAST = 0x10FFFF
ALL: Ranges = ((0, LAST),)


def union(parts: Iterable[Ranges]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(one for part in parts for one in part):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    result, start = [], 0
    for low, high in ranges:
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    if start <= LAST:
        result.append((start, LAST))
    return tuple(result)


def intersect(left: Ranges, right: Ranges) -> Ranges:
    return complement(union((complement(left), complement(right))))


def chars(text: str) -> Ranges:
    return union(((ord(char), ord(char)),) for char in text)


def both_cases(ranges: Ranges) -> Ranges:
    """Adds the other case as Java's case-insensitive match without UNICODE_CASE does: ASCII letters only."""
    other: list[tuple[int, int]] = []
    for letters, shift in ((range(ord("a"), ord("z") + 1), -32), (range(ord("A"), ord("Z") + 1), 32)):
        for low, high in ranges:
            if (first := max(low, letters[0])) <= (last := min(high, letters[-1])):
                other.append((first + shift, last + shift))
    return union((ranges, tuple(other)))


@lru_cache(maxsize=1)
def _all_chars() -> str:
    """Returns all characters: takes 0.1 s to make and 4 MB to keep; finding a class in it takes 0.01 s."""
    return "".join(map(chr, range(LAST + 1)))


@lru_cache(maxsize=64)
def unicode(expression: str) -> Ranges:
    """Returns all code points in a class of the regex module."""
    return tuple((m.start(), m.end() - 1) for m in regex.finditer(f"[{expression}]+", _all_chars(), regex.V0))


def write_char(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def write_set(ranges: Ranges) -> str:
    if not ranges:
        return "(?!)"
    negated = ranges != ALL and ranges[-1][1] == LAST
    body = "".join(
        write_char(low) if low == high else f"{write_char(low)}-{write_char(high)}"
        for low, high in (complement(ranges) if negated else ranges)
    )
    return f"[{'^' if negated else ''}{body}]"
