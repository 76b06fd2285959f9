"""Reads and writes `sasl.jaas.config`: Java's line with a login module and its options. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from heliograph.errors import ConfigError

_TOKEN = re.compile(r"""\s*(?:(?P<quoted>"(?:\\.|[^"\\])*")|(?P<mark>[=;])|(?P<word>[^\s=;"]+))""", re.DOTALL)
_FLAGS = ("required", "requisite", "sufficient", "optional")


@dataclass(frozen=True, slots=True)
class Jaas:
    module: str
    options: dict[str, str] = field(repr=False)

    @property
    def short_name(self) -> str:
        """The class name without its package."""
        return self.module.rpartition(".")[2]


def format_jaas(module: str, options: Mapping[str, str]) -> str:
    """Return the line that `parse_jaas`, and Java, read."""
    words = [f'{name}="{_escaped(value)}"' for name, value in options.items()]
    return " ".join([module, "required", *words]) + ";"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def parse_jaas(text: str, *, where: str) -> Jaas:
    """Parse one login module; values may be quoted or not, and the semicolon at the end may be missing."""
    tokens = _tokens(text, where)
    words = [value for _, value in tokens]
    ends = [index for index, token in enumerate(tokens) if token == ("mark", ";")]
    if len(words) < 2 or words[1].lower() not in _FLAGS:
        raise _refusal("it must begin with a login module and a flag such as required", where)
    if ends and ends[0] != len(words) - 1:
        raise _refusal("it has more than one login module", where)
    rest = [token for token in tokens[2:] if token != ("mark", ";")]
    options: dict[str, str] = {}
    if len(rest) % 3:
        raise _refusal('an option is not of the form name="value"', where)
    for (kind, name), equals, (value_kind, value) in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        if kind == "mark" or equals != ("mark", "=") or value_kind == "mark":
            raise _refusal('an option is not of the form name="value"', where)
        options[name] = value
    return Jaas(words[0], options)


def _tokens(text: str, where: str) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    at = 0
    stripped = text.rstrip()
    while at < len(stripped):
        match = _TOKEN.match(stripped, at)
        if match is None:
            raise _refusal("a quote is not closed", where)
        at = match.end()
        kind = match.lastgroup or ""
        value = match[kind]
        found.append((kind, re.sub(r"\\(.)", r"\1", value[1:-1], flags=re.DOTALL) if kind == "quoted" else value))
    return found


def _refusal(why: str, where: str) -> ConfigError:
    """Make an error that does not show the text: it has passwords."""
    return ConfigError(
        "sasl.jaas.config cannot be read", where=where, why=why, remedy='Module required username="u" password="p";'
    )
