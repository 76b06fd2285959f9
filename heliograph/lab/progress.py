"""Shows progress of long work on stderr: a live line per subject on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from typing import TextIO

from rich.console import Console, Group
from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table

# Called with a subject ("primary", "Kafka 4.3.1") and its current state.
Progress = Callable[[str, str], None]


def silent(_subject: str, _message: str) -> None:
    """Shows no progress: the default of the library."""


@contextlib.contextmanager
def show_progress(stream: TextIO | None = None) -> Iterator[Progress]:
    """Shows progress to a person, or in a log file."""
    console = Console(file=stream or sys.stderr, highlight=False)
    if console.is_terminal:
        with _live_progress(console) as progress:
            yield progress
    else:
        yield _plain_progress(stream or sys.stderr)


def _plain_progress(stream: TextIO) -> Progress:
    started = time.monotonic()

    def progress(subject: str, message: str) -> None:
        print(f"{time.monotonic() - started:6.1f} s  {subject}: {message}", file=stream, flush=True)

    return progress


@contextlib.contextmanager
def _live_progress(console: Console) -> Iterator[Progress]:
    messages: dict[str, str] = {}
    spinner = Spinner("dots")

    def lines() -> Table:
        grid = Table.grid(padding=(0, 2))
        for subject, message in messages.items():
            grid.add_row(subject, message)
        return grid

    with Live(spinner, console=console, refresh_per_second=8) as live:

        def progress(subject: str, message: str) -> None:
            messages[subject] = message
            live.update(Group(lines(), spinner))

        try:
            yield progress
        finally:
            live.update(lines())
