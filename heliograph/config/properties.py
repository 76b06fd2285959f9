"""Java `.properties` text to raw keys, each with its place. No defaults and no meaning of keys here."""

from __future__ import annotations

import codecs
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import javaproperties

from heliograph.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Place:
    """Where something is written."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file} line {self.line}"


@dataclass(frozen=True, slots=True)
class Entry:
    """A key as it stands in the file; `place` is None for a default."""

    key: str
    value: str
    place: Place | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RawFile:
    """All keys of a file, in order, the later of two equal ones."""

    file: str
    entries: dict[str, Entry]
    warnings: tuple[tuple[Place, str], ...] = ()


def read_properties(path: Path) -> RawFile:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise ConfigError(
            f'cannot read "{path}"', why=error.strerror or str(error), remedy="give the path of a readable file"
        ) from error
    return parse_properties(content, str(path))


def parse_properties(content: bytes, file: str) -> RawFile:
    """Parse the bytes of a file; UTF-8 is read as such, where Java would read every byte as Latin-1."""
    text, warnings = _decode(content, file)
    entries: dict[str, Entry] = {}
    for entry in _entries(text, file):
        assert entry.place is not None
        earlier = entries.pop(entry.key, None)
        if earlier is not None and earlier.place is not None:
            note = f'"{entry.key}" is given twice; line {entry.place.line} replaces line {earlier.place.line}'
            warnings.append((entry.place, note))
        entries[entry.key] = entry
    return RawFile(file=file, entries=entries, warnings=tuple(warnings))


def _decode(content: bytes, file: str) -> tuple[str, list[tuple[Place, str]]]:
    content = content.removeprefix(codecs.BOM_UTF8)
    try:
        return content.decode("utf-8"), []
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        return content.decode("latin-1"), [(Place(file, line), "not UTF-8; the file is read as Latin-1")]


def _entries(text: str, file: str) -> Iterator[Entry]:
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
                where=str(Place(file, line)),
                remedy="write \\u and four hexadecimal digits, or \\\\u for a backslash and a u",
            ) from error
        if isinstance(item, javaproperties.KeyValue):
            yield Entry(item.key, item.value, Place(file, line))
        line += _line_ends(item.source)


def _line_ends(source: str) -> int:
    return source.count("\n") + source.count("\r") - source.count("\r\n")
