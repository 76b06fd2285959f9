"""Represents translated pieces of a Java pattern: their text for `regex`, and bounds of the texts they match.

Pure data and sums of it; the grammar is in `translation`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import NamedTuple

from heliograph.names.java_regex.classes import Refused
from heliograph.names.java_regex.codepoints import Ranges, write_char, write_set

# The regex module unrolls counted repetition: {2147483647} would take all memory.
_MAX_EXPANDED = 100_000


class PatternPiece(NamedTuple):
    """A translated piece, with bounds for Java's look-behind, the memory limit and the texts it may match."""

    text: str
    size: int = 1
    bounded: bool = True
    captures: bool = False
    low: int = 0
    """Lower bound of the length of a matching text, in characters."""
    high: int | None = 0
    """Upper bound of that length; None: no limit."""
    letters: tuple[Ranges, ...] = ()
    """All characters that a matching text may have, or more."""
    literal: str | None = None
    """The text itself, if the piece is one literal character."""
    group: int = 0
    """The group's number, if the piece is one capturing group and nothing else."""


@lru_cache(maxsize=256)
def literal(code: int) -> PatternPiece:
    return PatternPiece(write_char(code), low=1, high=1, letters=(((code, code),),), literal=chr(code))


def one_of(ranges: Ranges) -> PatternPiece:
    return PatternPiece(write_set(ranges), low=1, high=1, letters=(ranges,))


def in_sequence(pieces: Sequence[PatternPiece]) -> PatternPiece:
    highs = [piece.high for piece in pieces]
    return _joined(pieces, "", sum(piece.low for piece in pieces), _added(highs))


def alternatives_of(branches: Sequence[PatternPiece]) -> PatternPiece:
    """Joins alternatives."""
    highs = [branch.high for branch in branches]
    high = None if None in highs else max(high for high in highs if high is not None)
    return _joined(branches, "|", min(branch.low for branch in branches), high)


def repeated(atom: PatternPiece, text: str, *, low: int, high: int | None, is_counted: bool) -> PatternPiece:
    """Repeats an atom between `low` and `high` times."""
    counts_group = atom.text.startswith("(") and is_counted
    return PatternPiece(
        text,
        checked_size(max(1, atom.size) * max(1, low, high or 0)),
        atom.bounded and high is not None and not counts_group,
        atom.captures,
        atom.low * low,
        None if high is None or atom.high is None else atom.high * high,
        atom.letters,
    )


def checked_size(size: int) -> int:
    if size > _MAX_EXPANDED:
        raise Refused(f"its repetitions add up to more than {_MAX_EXPANDED}")
    return size


def _joined(pieces: Sequence[PatternPiece], between: str, low: int, high: int | None) -> PatternPiece:
    return PatternPiece(
        between.join(piece.text for piece in pieces),
        checked_size(sum(piece.size for piece in pieces)),
        all(piece.bounded for piece in pieces),
        any(piece.captures for piece in pieces),
        low,
        high,
        tuple(dict.fromkeys(ranges for piece in pieces for ranges in piece.letters)),
    )


def _added(highs: Iterable[int | None]) -> int | None:
    total = 0
    for high in highs:
        if high is None:
            return None
        total += high
    return total
