"""Draws tables that fit the terminal: chooses columns and widths, adds symbols and colours for states. Pure.

On a terminal a table is fitted to its width, states have a symbol and a colour, long texts are below their row, and
values that all rows share are above the table. In a pipe or a file a table always has the same columns, and nothing
is cut or coloured.
"""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from rich.cells import cell_len, chop_cells

NONE = "-"
"""Text of a cell whose value is unknown."""
COLUMN_GAP = "  "
MIN_WIDTH = 12
"""Minimum width of a column of text."""
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

    def __init__(self, symbol: str, colour: str) -> None:
        self.symbol = symbol
        self.colour = colour

    @property
    def rank(self) -> int:
        return list(Level).index(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Screen:
    """The screen that a table is shown on."""

    width: int | None = None
    """Width in columns; None: no terminal."""
    has_colour: bool = False
    has_symbols: bool = False


PLAIN = Screen()


def screen_of(*, is_terminal: bool, columns: int, encoding: str | None, environment: Mapping[str, str]) -> Screen:
    """Describes the standard output; https://no-color.org for NO_COLOR."""
    if not is_terminal:
        return PLAIN
    is_dumb = environment.get("TERM", "") in ("", "dumb")
    is_unicode = (encoding or "").lower().replace("-", "").startswith("utf")
    return Screen(
        width=max(columns, 40),
        has_colour=not is_dumb and not environment.get("NO_COLOR"),
        has_symbols=not is_dumb and is_unicode,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """The usual table of a command; `-o wide` has all columns."""

    columns: Sequence[str] = ()
    """Columns shown, from left to right; empty: all."""
    headings: Mapping[str, str] = field(default_factory=dict)
    """Short headings for the usual table."""
    spare: Sequence[str] = ()
    """Columns that a narrow terminal omits, in this order."""
    shared: Sequence[str] = ()
    """Columns that are omitted and named above the table if all rows have the same value."""
    detail: str = ""
    """The column of a long text, which a terminal shows below its row."""
    level: Callable[[Cells], Level] | None = None
    """Tells what a row's state means."""
    state: str = ""
    """The column of the state, which is coloured."""


def render_table(
    rows: Sequence[Cells], layout: Layout, screen: Screen, *, numbers: frozenset[str], is_wide: bool
) -> str:
    """Draws the rows; columns in `numbers` are aligned right."""
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

    def _has_symbols(self) -> bool:
        return self.screen.has_symbols and self.layout.level is not None

    def _room(self) -> int:
        assert self.screen.width is not None
        return self.screen.width - (2 if self._has_symbols() else 0)

    def _needed(self) -> int:
        return sum(self.widths.values()) + len(COLUMN_GAP) * (len(self.widths) - 1)

    def fitted(self) -> _Drawing:
        """Omits columns for which there is no room, and cuts the long ones."""
        for name in self.layout.spare:
            if self._needed() <= self._room():
                break
            if name in self.names and len(self.names) > 1:
                self.names.remove(name)
                del self.widths[name]
        while self._needed() > self._room():
            name = max(self._elastic(), key=self.widths.__getitem__, default="")
            if not name or self.widths[name] <= self._min_width(name):
                break
            self.widths[name] -= 1
        return self

    def _elastic(self) -> list[str]:
        return [name for name in self.names if name not in self.numbers and self.widths[name] > self._min_width(name)]

    def _min_width(self, name: str) -> int:
        return max(MIN_WIDTH, cell_len(self._heading(name)))

    def text(self) -> str:
        indent = "  " if self._has_symbols() else ""
        heading = indent + self._line({name: self._heading(name) for name in self.names}, level=None)
        lines = [f"{_BOLD}{heading}{_RESET}" if self.screen.has_colour else heading]
        for row in self.rows:
            level = self.layout.level(row) if self.layout.level is not None else None
            lines.append(self._symbol(level) + self._line(row, level=level))
            if self.detail and row.get(self.detail, NONE) != NONE:
                lines += textwrap.wrap(
                    row[self.detail],
                    width=self.screen.width or 100,
                    initial_indent=f"{indent}  ",
                    subsequent_indent=f"{indent}  ",
                    break_on_hyphens=False,
                )
        return "\n".join(lines)

    def _symbol(self, level: Level | None) -> str:
        if level is None or not self._has_symbols():
            return ""
        return f"{level.colour}{level.symbol}{_RESET} " if self.screen.has_colour else f"{level.symbol} "

    def _line(self, row: Cells, *, level: Level | None) -> str:
        texts = []
        for at, name in enumerate(self.names):
            text, width = cut(row[name], self.widths[name]), self.widths[name]
            blanks = " " * (width - cell_len(text))
            is_last = at == len(self.names) - 1
            if level is not None and name == self.layout.state and self.screen.has_colour:
                text = f"{level.colour}{text}{_RESET}"
            texts.append(blanks + text if name in self.numbers else text if is_last else text + blanks)
        return COLUMN_GAP.join(texts).rstrip()


def cut(text: str, width: int) -> str:
    """Shortens a text by omitting its middle, because names differ at their ends."""
    if cell_len(text) <= width:
        return text
    if width < 2:
        return "…"[:width]
    head, tail = (width - 1 + 1) // 2, (width - 1) // 2
    start = chop_cells(text, head)[0]
    end = chop_cells(text[::-1], tail)[0][::-1] if tail else ""
    return f"{start}…{end}"
