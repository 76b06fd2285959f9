"""Parses texts of a configuration to values, by the rules of Kafka's ConfigDef."""

from __future__ import annotations

import ipaddress
import re

from heliograph.config.keys.client_settings import ValueKind
from heliograph.config.keys.key import Key
from heliograph.names.custom_classes import HINT, is_custom

Value = bool | int | float | str | tuple[str, ...] | None

_NUMBER = re.compile(r"[+-]?[0-9]{1,40}")
_DOUBLE = re.compile(r"[+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?)")
_MAX_SHOWN = 80
_BITS = {ValueKind.SHORT: 16, ValueKind.INT: 32, ValueKind.LONG: 64}
_ADDRESS = re.compile(
    r"(?:[A-Za-z0-9_]+://)?(?:\[(?P<bracketed>[^\[\]]+)\]|(?P<host>[^\[\]/\s]+)):(?P<port>[0-9]{1,5})"
)
_ADDRESSES = "must be a list of host:port"
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]*[A-Za-z0-9_.])?")
_JAVA_BLANKS = "".join(map(chr, range(33)))
_BLANKS = " \t\n\v\f\r"


class BadValue(Exception):
    """A fault of a value, as the end of a sentence that begins with the key; `hidden` leaves the value out."""

    def __init__(self, must: str, got: str = "") -> None:
        super().__init__(must + got)
        self.hidden = must


def _short(text: str) -> str:
    """Shortens a value for a message."""
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def split_list(text: str) -> tuple[str, ...]:
    """Splits Kafka's LIST: commas with blanks around them; an empty text is an empty list."""
    text = text.strip(_JAVA_BLANKS)
    return tuple(item.strip(_BLANKS) for item in text.split(",")) if text else ()


def parse_value(key: Key, text: str) -> Value:
    """Parses the value of a known key; raises BadValue."""
    trimmed = text.strip(_JAVA_BLANKS)
    if key.default == "none" and key.kind in _BITS and trimmed.lower() == "none":
        return None
    if key.kind is ValueKind.LIST:
        return split_list(text)
    if key.kind is ValueKind.BOOLEAN:
        return _boolean(trimmed)
    if key.kind in _BITS:
        return _number(key, trimmed)
    if key.kind is ValueKind.DOUBLE:
        return _double(trimmed)
    return _choice(key, trimmed) if key.choices else text


def _boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise BadValue("must be true or false", f', not "{_short(text)}"')
    return text.lower() == "true"


def _number(key: Key, text: str) -> int:
    if not _NUMBER.fullmatch(text):
        raise BadValue("must be a whole number", f', not "{_short(text)}"')
    number, limit = int(text), 1 << (_BITS[key.kind] - 1)
    if not -limit <= number < limit:
        raise BadValue(f"must fit in {_BITS[key.kind]} bits", f"; {_short(text)} does not")
    if key.low is not None and number < key.low and number not in key.also:
        also = "".join(f" or {other}" for other in key.also)
        raise BadValue(f"must be at least {key.low}{also}", f", not {number}")
    return number


def _double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise BadValue("must be a number", f', not "{_short(text)}"')
    return float(text.rstrip("fFdD") if text[-1:].lower() in ("f", "d") else text)


def _choice(key: Key, text: str) -> str:
    for choice in key.choices:
        if choice.lower() == text.lower():
            return choice
    if key.kind is ValueKind.CLASS and is_custom(text):
        return text
    own = f", or {HINT}" if key.kind is ValueKind.CLASS else ""
    raise BadValue(f"must be one of {', '.join(key.choices)}{own}", f', not "{_short(text)}"')


def parse_address(text: str) -> str:
    """Normalises `host:port`: IPv6 in brackets, no protocol in front."""
    match = _ADDRESS.fullmatch(text)
    if match is None:
        raise BadValue(_ADDRESSES, f'; "{_short(text)}" is not')
    if not 0 < int(match["port"]) < 65536:
        raise BadValue("has a port outside 1 to 65535", f' in "{_short(text)}"')
    host = match["bracketed"] or match["host"]
    if ":" in host or match["bracketed"]:
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise BadValue(_ADDRESSES, f'; "{_short(host)}" in "{_short(text)}" is not an IPv6 address') from None
        return f"[{host}]:{int(match['port'])}"
    if not _HOST.fullmatch(host):
        raise BadValue(_ADDRESSES, f'; "{_short(host)}" is not a host name')
    return f"{host}:{int(match['port'])}"
