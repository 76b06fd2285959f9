"""The command line's entry point: it starts at once, and Ctrl-C ends it quietly from then on.

The commands are in the modules beside this one: they parse, call and render; decisions live elsewhere. Almost nothing
is imported here, because an interrupt during these imports cannot be caught.
"""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Runs a command; returns the exit code where typer does not exit by itself."""
    try:
        from heliograph.cli.program import call

        return call(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def __getattr__(name: str) -> object:
    """Provides `app` for typer's tools, which make docs/cli.md."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heliograph.cli.program import app

    return app


def __dir__() -> list[str]:
    return [*globals(), "app"]
