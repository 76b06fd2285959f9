"""Pieces of a Java pattern, translated: their text for `regex`, and what is known of the texts they match.

Pure data and sums of it; the grammar is in `javaregex`.
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
    """Translated text, with what Java's look-behind and the memory limit ask of it, and the texts it may match."""

    text: str
    size: int = 1
    bounded: bool = True
    captures: bool = False
    low: int = 0
    """The shortest text that it matches, in characters; or less."""
    high: int | None = 0
    """The longest one, or more; None: no limit."""
    letters: tuple[Ranges, ...] = ()
    """All characters of these texts, or more."""
    literal: str | None = None
    """Its one text, if it is a character that stands for itself."""
    group: int = 0
    """Its number, if it is a capturing group and nothing else."""


@lru_cache(maxsize=256)
def literal(code: int) -> PatternPiece:
    return PatternPiece(write_char(code), low=1, high=1, letters=(((code, code),),), literal=chr(code))


def one_of(ranges: Ranges) -> PatternPiece:
    return PatternPiece(write_set(ranges), low=1, high=1, letters=(ranges,))


def in_sequence(pieces: Sequence[PatternPiece]) -> PatternPiece:
    highs = [piece.high for piece in pieces]
    return _joined(pieces, "", sum(piece.low for piece in pieces), _added(highs))


def in_turn(branches: Sequence[PatternPiece]) -> PatternPiece:
    """Alternatives."""
    highs = [branch.high for branch in branches]
    high = None if None in highs else max(high for high in highs if high is not None)
    return _joined(branches, "|", min(branch.low for branch in branches), high)


def repeated(atom: PatternPiece, text: str, *, low: int, high: int | None, is_counted: bool) -> PatternPiece:
    """An atom between `low` and `high` times, written so."""
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
