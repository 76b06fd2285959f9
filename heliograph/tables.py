"""Tables that fit the terminal: which columns are shown, how wide they are, how states are marked. Pure.

On a terminal a table is fitted to its width, states have a mark and a colour, long texts stand below their row, and
what all rows have in common above them. Elsewhere, in a pipe or a file, a table has the same columns always, and
nothing is cut, marked or coloured.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rich.cells import cell_len, chop_cells

NONE = "-"
"""What a cell shows of which nothing is known."""
GAP = "  "
LEAST = 12
"""Columns of texts are not cut below this."""
_RESET = "\x1b[0m"
_BOLD = "\x1b[1m"

Cells = Mapping[str, str]
"""One row: the text of each column."""


class Level(Enum):
    """What a state means to somebody who has to act; the worst first."""

    BAD = ("✗", "\x1b[31m")
    WARN = ("!", "\x1b[33m")
    REST = ("·", "\x1b[2m")
    GOOD = ("✓", "\x1b[32m")

    def __init__(self, mark: str, colour: str) -> None:
        self.mark = mark
        self.colour = colour

    @property
    def rank(self) -> int:
        return list(Level).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """What a table is shown on."""

    width: int | None = None
    """None: no terminal."""
    has_colour: bool = False
    has_marks: bool = False


PLAIN = Screen()


def screen_of(*, is_terminal: bool, columns: int, encoding: str | None, environment: Mapping[str, str]) -> Screen:
    """By what is known of the standard output; https://no-color.org for NO_COLOR."""
    if not is_terminal:
        return PLAIN
    is_dumb = environment.get("TERM", "") in ("", "dumb")
    is_unicode = (encoding or "").lower().replace("-", "").startswith("utf")
    return Screen(
        width=max(columns, 40),
        has_colour=not is_dumb and not environment.get("NO_COLOR"),
        has_marks=not is_dumb and is_unicode,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The usual table of a command; `-o wide` has all columns."""

    columns: Sequence[str] = ()
    """Those shown, from left to right; empty: all."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """Short ones for the usual table."""
    spare: Sequence[str] = ()
    """Columns that a narrow terminal goes without, the first ones first."""
    shared: Sequence[str] = ()
    """Columns that are left out, and named above the table, if all rows have the same in them."""
    detail: str = ""
    """A long text, which stands below its row on a terminal."""
    level: Callable[[Cells], Level] | None = None
    """What the row's state means."""
    state: str = ""
    """The column of the state, which is coloured."""


def render_table(
    rows: Sequence[Cells], layout: Layout, screen: Screen, *, numbers: frozenset[str], is_wide: bool
) -> str:
    """The rows as text; `numbers` are columns to be aligned right."""
    if not rows:
        return ""
    names = list(rows[0])
    if is_wide:
        return _Drawing(names, rows, layout, screen, numbers, headings={}, detail="").text()
    shown = [name for name in layout.columns or names if name in names]
    if screen.width is None:
        shown += [layout.detail] if layout.detail in names and layout.detail not in shown else []
        return _Drawing(shown, rows, layout, screen, numbers, headings=layout.headings, detail="").text()
    common = [name for name in layout.shared if name in shown and len({row[name] for row in rows}) == 1]
    empty = [name for name in layout.spare if name in shown and all(row[name] == NONE for row in rows)]
    shown = [name for name in shown if name not in (*common, *empty, layout.detail)]
    above = [", ".join(f"{name}: {rows[0][name]}" for name in common)] if common else []
    drawing = _Drawing(shown, rows, layout, screen, numbers, headings=layout.headings, detail=layout.detail)
    return "\n".join([*above, drawing.fitted().text()])


@dataclass(slots=True)
class _Drawing:
    """A table whose columns are chosen."""

    names: list[str]
    rows: Sequence[Cells]
    layout: Layout
    screen: Screen
    numbers: frozenset[str]
    headings: Mapping[str, str]
    detail: str
    widths: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.widths = {
            name: max(cell_len(text) for text in (self._heading(name), *(row[name] for row in self.rows)))
            for name in self.names
        }

    def _heading(self, name: str) -> str:
        return self.headings.get(name, name).upper()

    def _marks_rows(self) -> bool:
        return self.screen.has_marks and self.layout.level is not None

    def _room(self) -> int:
        assert self.screen.width is not None
        return self.screen.width - (2 if self._marks_rows() else 0)

    def _needed(self) -> int:
        return sum(self.widths.values()) + len(GAP) * (len(self.widths) - 1)

    def fitted(self) -> _Drawing:
        """Without the columns that there is no room for, and with the long ones cut."""
        for name in self.layout.spare:
            if self._needed() <= self._room():
                break
            if name in self.names and len(self.names) > 1:
                self.names.remove(name)
                del self.widths[name]
        while self._needed() > self._room():
            name = max(self._elastic(), key=self.widths.__getitem__, default="")
            if not name or self.widths[name] <= self._least(name):
                break
            self.widths[name] -= 1
        return self

    def _elastic(self) -> list[str]:
        return [name for name in self.names if name not in self.numbers and self.widths[name] > self._least(name)]

    def _least(self, name: str) -> int:
        return max(LEAST, cell_len(self._heading(name)))

    def text(self) -> str:
        indent = "  " if self._marks_rows() else ""
        heading = indent + self._line({name: self._heading(name) for name in self.names}, level=None)
        lines = [f"{_BOLD}{heading}{_RESET}" if self.screen.has_colour else heading]
        for row in self.rows:
            level = self.layout.level(row) if self.layout.level is not None else None
            lines.append(self._mark(level) + self._line(row, level=level))
            if self.detail and row.get(self.detail, NONE) != NONE:
                lines += textwrap.wrap(
                    row[self.detail],
                    width=self.screen.width or 100,
                    initial_indent=f"{indent}  ",
                    subsequent_indent=f"{indent}  ",
                    break_on_hyphens=False,
                )
        return "\n".join(lines)

    def _mark(self, level: Level | None) -> str:
        if level is None or not self._marks_rows():
            return ""
        return f"{level.colour}{level.mark}{_RESET} " if self.screen.has_colour else f"{level.mark} "

    def _line(self, row: Cells, *, level: Level | None) -> str:
        texts = []
        for at, name in enumerate(self.names):
            text, width = cut(row[name], self.widths[name]), self.widths[name]
            blanks = " " * (width - cell_len(text))
            is_last = at == len(self.names) - 1
            if level is not None and name == self.layout.state and self.screen.has_colour:
                text = f"{level.colour}{text}{_RESET}"
            texts.append(blanks + text if name in self.numbers else text if is_last else text + blanks)
        return GAP.join(texts).rstrip()


def cut(text: str, width: int) -> str:
    """A text that is too long, with its middle left out: names differ at their ends."""
    if cell_len(text) <= width:
        return text
    if width < 2:
        return "…"[:width]
    head, tail = (width - 1 + 1) // 2, (width - 1) // 2
    start = chop_cells(text, head)[0]
    end = chop_cells(text[::-1], tail)[0][::-1] if tail else ""
    return f"{start}…{end}"
