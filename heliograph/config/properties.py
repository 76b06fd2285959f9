"""Java `.properties` text to raw keys, each with its place. No defaults and no meaning of keys here."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator

import javaproperties

from heliograph.config.findings import Config, Entry, Place, Report
from heliograph.errors import ConfigError

_DROPPED = re.compile(r"(?<!\\)(?:\\\\)*\\([^tnrfu\\ :=#!\r\n])")
"""A single backslash before a character that needs none: Java drops it."""


def parse_properties(content: bytes, report: Report) -> Config:
    """Parse the bytes of a file: all keys in order, of two equal ones the later.

    UTF-8 is read as such, where Java would read every byte as Latin-1.
    """
    entries: Config = {}
    for entry in _entries(_decode(content, report), report):
        earlier = entries.pop(entry.key, None)
        if earlier is not None and earlier.place is not None and entry.place is not None:
            note = f'"{entry.key}" is given twice; line {entry.place.line} replaces line {earlier.place.line}'
            report.warn("given-twice", note, entry)
        entries[entry.key] = entry
    return entries


def _decode(content: bytes, report: Report) -> str:
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        report.warn("encoding", "not UTF-8; the file is read as Latin-1", Place(report.file, line))
        return content.decode("latin-1")


def _entries(text: str, report: Report) -> Iterator[Entry]:
    line = 1
    items = javaproperties.parse(text)
    while True:
        try:
            item = next(items)
        except StopIteration:
            return
        except javaproperties.InvalidUEscapeError as error:
            raise ConfigError(
                f"invalid escape {error.escape}",
                where=str(Place(report.file, line)),
                remedy="write \\u and four hexadecimal digits, or \\\\u for a backslash and a u",
            ) from error
        if isinstance(item, javaproperties.KeyValue):
            column = len(item.source) - len(item.source.lstrip(" \t\f")) + 1
            entry = Entry(item.key, item.value, Place(report.file, line, column))
            _warn_of_dropped_backslash(item.source, entry, report)
            yield entry
        line += _line_ends(item.source)


def _warn_of_dropped_backslash(source: str, entry: Entry, report: Report) -> None:
    dropped = _DROPPED.search(source)
    if dropped is not None:
        character = dropped[1]
        report.warn(
            "dropped-backslash",
            f'"{entry.key}": Java drops the backslash before "{character}"',
            entry,
            remedy=f'write "\\\\{character}" to keep it, or leave it out',
        )


def _line_ends(source: str) -> int:
    return source.count("\n") + source.count("\r") - source.count("\r\n")
