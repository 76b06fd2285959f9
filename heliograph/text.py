"""Text for people: foreign text made fit for a terminal and for a line of a log, long lists made short. Pure.

This module imports nothing of ours.

Names of groups, client ids and principals, hosts of members, messages of brokers, metadata of commits and values of
settings are whatever somebody wrote into Kafka. They may hold escape sequences that redraw a terminal, newlines that
forge a line of the log, and marks that turn the direction of the text around. Errors, log lines and cells of tables
pass through here; JSON and YAML escape by themselves.

What looks like rich's markup stays: nothing here is printed as markup. Who prints foreign text by rich gives it as
`Text`, never as a string.
"""

from __future__ import annotations

from collections.abc import Sequence

NAMED = 5
"""Maximum number of items that a message lists."""


def printable(text: str) -> str:
    """The text with every character that does not print itself as an escape: `\\n`, `\\x1b`, `\\u202e`.

    That is all of Unicode's "other" (control, format, surrogate, private, unassigned) and every separator but the plain
    space. Printable text stays as it is, so that doing it twice changes nothing.
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else _escape(char) for char in text)


def printable_lines(text: str) -> str:
    """The same for text of our own that has several lines: these stay."""
    return "\n".join(map(printable, text.split("\n")))


def some_of(items: Sequence[object], most: int = NAMED, *, separator: str = ", ") -> str:
    """List the first of many items, and say how many more there are: `a, b and 3 more`."""
    shown = separator.join(map(str, items[:most]))
    return f"{shown} and {len(items) - most:,} more" if len(items) > most else shown


def _escape(char: str) -> str:
    return char.encode("unicode_escape").decode("ascii")
