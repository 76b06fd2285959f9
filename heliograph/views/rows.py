"""Defines the row that views return and the command line prints: column names with plain values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Value = str | int | float | bool | None
Row = Mapping[str, Value | Sequence[Mapping[str, Value]]]
"""One row; a list as a value is for programs only, tables have none."""
