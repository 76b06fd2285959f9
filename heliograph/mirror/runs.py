"""Runs: consecutive source offsets that stand at consecutive target offsets. Pure."""

from __future__ import annotations

from typing import NamedTuple


class Run(NamedTuple):
    source: int
    target: int
    length: int
