"""Parses Java `.properties` text into raw keys with their file positions, and writes lines. Knows no key's meaning."""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator
from typing import NamedTuple

from javaproperties import InvalidUEscapeError, escape, unescape

from heliograph.config.findings import Config, ConfigEntry, FilePlace, Report
from heliograph.config.keys.key_check import is_secret_name
from heliograph.errors import ConfigError

_LINE = re.compile(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+")
_BLANKS = " \t\f"
_CONTINUED = re.compile(r"(?<!\\)(?:\\\\)*\\\Z")
_PAIR = re.compile(r"((?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(.*)", re.DOTALL)
_HALF = re.compile("[\ud800-\udfff]")
_DROPPED = re.compile(r"(?<!\\)(?:\\\\)*\\([^tnrfu\\ :=#!\r\n])")
"""A single backslash before a character that needs none; Java drops it."""


def parse_properties(content: bytes, report: Report) -> Config:
    """Parses the bytes of a file: all keys in order; the later of two equal keys wins.

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
        report.warn("encoding", "not UTF-8; the file is read as Latin-1", FilePlace(report.file, line))
        return content.decode("latin-1")


class _Logical(NamedTuple):
    """One line as Java sees it: continued lines joined; `source` is the text as written."""

    text: str
    source: str
    place: FilePlace


def _entries(text: str, report: Report) -> Iterator[ConfigEntry]:
    for line in _logical_lines(text, report.file):
        pair = _PAIR.fullmatch(line.text)
        assert pair is not None  # the pattern matches any text
        entry = ConfigEntry(_unescaped(pair[1], line.place), _unescaped(pair[2], line.place), line.place)
        _warn_of_dropped_backslash(line.source, entry, report)
        yield entry


def _logical_lines(text: str, file: str) -> Iterator[_Logical]:
    """Yields logical lines without blanks and comments.

    A line with only a backslash is blank, so that a comment may follow it.
    """
    lines = _LINE.findall(text)
    at = 0
    while at < len(lines):
        start, parts, more = at, list[str](), True
        while more and at < len(lines):
            part = lines[at].lstrip(_BLANKS).rstrip("\r\n")
            at += 1
            if not parts and part.startswith(("#", "!")):
                break
            continued = _CONTINUED.search(part) is not None
            if part := part[:-1] if continued else part:
                parts.append(part)
            more = continued and bool(parts)
        if parts:
            source = "".join(lines[start:at])
            column = len(source) - len(source.lstrip(_BLANKS)) + 1
            yield _Logical("".join(parts), source, FilePlace(file, start + 1, column))


def _unescaped(text: str, place: FilePlace) -> str:
    try:
        plain = unescape(text)
    except InvalidUEscapeError:
        # The text that follows may be part of a password: it is not shown, and the error is not chained.
        raise ConfigError(
            "\\u without four hexadecimal digits",
            where=str(place),
            remedy="write \\u and four hexadecimal digits, or \\\\u for a backslash and a u",
            place=place,
        ) from None
    if (half := _HALF.search(plain)) is not None:
        raise ConfigError(
            f"\\u{ord(half[0]):04x} is half a character",
            where=str(place),
            remedy="write both halves next to each other, or the character itself",
            place=place,
        )
    return plain


def _warn_of_dropped_backslash(source: str, entry: ConfigEntry, report: Report) -> None:
    dropped = _DROPPED.search(source)
    if dropped is not None:
        character = "X" if is_secret_name(entry.key) else dropped[1]
        report.warn(
            "dropped-backslash",
            f'"{entry.key}": Java drops the backslash before "{character}"',
            entry,
            remedy=f'write "\\\\{character}" to keep it, or leave it out',
        )


def property_line(key: str, value: str) -> str:
    """Writes a key and its value as a line of a property file."""
    return f"{escape(key)} = {_escaped(value)}"


def _escaped(value: str) -> str:
    """Escapes a value for Java with as few escapes as possible, ASCII only."""
    text = (
        value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    )
    text = "\\" + text if text.startswith(" ") else text
    if text.isascii() and text.isprintable():
        return text
    units = ((c, c.encode("utf-16-be").hex()) for c in text)
    return "".join(
        c if " " <= c <= "~" else "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
        for c, code in units
    )
