"""Renders rows as text: a table for people, JSON, YAML and CSV with the same field names for programs.

Control characters are escaped in tables and CSV; JSON and YAML keep them with their own escapes.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence
from enum import StrEnum

from heliograph.cli.tables import NONE, PLAIN, Layout, Screen, render_table
from heliograph.text import printable
from heliograph.views.rows import Row


class OutputFormat(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    """A table with all columns."""
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"

    @property
    def is_table(self) -> bool:
        """Tells whether the format is for people, not for programs."""
        return self in (OutputFormat.TABLE, OutputFormat.WIDE)


_USUAL = Layout()


def render_rows(
    rows: Sequence[Row],
    output: OutputFormat,
    *,
    conclusion: str = "",
    layout: Layout = _USUAL,
    screen: Screen = PLAIN,
) -> str:
    """Renders rows; `layout`, `screen` and the last line, `conclusion`, are for tables only."""
    if output is OutputFormat.JSON:
        return json.dumps(rows, indent=2)
    if output is OutputFormat.YAML:
        return _yaml(rows)
    if output is OutputFormat.CSV:
        return _csv(rows)
    table = _table(rows, layout, screen, is_wide=output is OutputFormat.WIDE)
    return "\n".join(filter(None, [table, conclusion]))


def render_csv(rows: Sequence[Row]) -> str:
    """Renders CSV with a line of headings; unknown values are empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerows([list(rows[0]), *(list(row.values()) for row in rows)] if rows else [])
    return text.getvalue()


def _yaml(rows: Sequence[Row]) -> str:
    """Renders a list of flat mappings. JSON's scalars are valid YAML, so the quoting is JSON's."""
    blocks = ["\n  ".join(f"{key}: {json.dumps(value)}" for key, value in row.items()) for row in rows]
    return "\n".join(f"- {block}" for block in blocks) or "[]"


def _csv(rows: Sequence[Row]) -> str:
    """Renders a line of headings, then a line for each row; a list is a cell of JSON."""
    out = io.StringIO()
    writer = csv.DictWriter(out, list(rows[0]) if rows else [], lineterminator="\n")
    if rows:
        writer.writeheader()
    for row in rows:
        writer.writerow(
            {key: json.dumps(cell) if isinstance(cell, list | tuple) else _plain(cell) for key, cell in row.items()}
        )
    return out.getvalue().removesuffix("\n")


def _plain(cell: object) -> object:
    return printable(cell) if isinstance(cell, str) else cell


def _table(rows: Sequence[Row], layout: Layout, screen: Screen, *, is_wide: bool) -> str:
    cells = [{name: NONE if value is None else printable(str(value)) for name, value in row.items()} for row in rows]
    names = rows[0] if rows else {}
    numbers = frozenset(name for name in names if all(isinstance(row[name], int | float | None) for row in rows))
    return render_table(cells, layout, screen, numbers=numbers, is_wide=is_wide)
