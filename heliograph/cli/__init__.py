"""The command line. Here is its door only: it opens at once, and Ctrl-C ends quietly from then on.

The commands are in the modules beside this one: they parse, call and render; decisions live elsewhere.
What is imported here is imported before anybody can catch an interrupt, so next to nothing is.
"""

from __future__ import annotations

import sys

EXIT_INTERRUPTED = 130


def main(arguments: list[str] | None = None) -> int:
    """Run a command; gives the exit code where the command line's library does not exit by itself."""
    try:
        from heliograph.cli.program import call

        return call(sys.argv[1:] if arguments is None else arguments)
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


def __getattr__(name: str) -> object:
    """The program as typer's tools look for it, which make docs/cli.md."""
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from heliograph.cli.program import app

    return app


def __dir__() -> list[str]:
    return [*globals(), "app"]
