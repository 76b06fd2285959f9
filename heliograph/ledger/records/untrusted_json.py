"""JSON that stands in topics, read without trust: anybody who may write there may have written it. Pure.

`parse_json` bounds size, depth and numbers before anything is made of the text. The functions after it say of
which type a value must be, and in which range. All raise ValueError: a parser of records catches that one error
and refuses the record.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from math import isfinite
from typing import Any, Never

MAX_BYTES = 4 * 1024 * 1024
"""Four times what a broker takes by default for a whole batch; larger text is not parsed."""
MAX_DEPTH = 16
"""Brackets within brackets. Our own records have at most 4."""
INT32_MAX = 2**31 - 1
INT64_MIN, INT64_MAX = -(2**63), 2**63 - 1
OFFSET_MAX = INT64_MAX - 1
"""The highest offset of which the next one fits 64 bits too."""
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond that a calendar has: the end of the year 9999."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.?[^"\\]*+)*+"?', re.DOTALL)
"""A string, also one that is cut off: matching it never begins again in its middle."""
_NOT_BRACKETS = bytes(byte for byte in range(256) if byte not in b"[]{}")
_MANY_DIGITS = re.compile(rb"[0-9]{19}")
_SURROGATE = re.compile(rb"\\u[dD]")


def _no_constant(name: str) -> Never:
    raise ValueError(f"{name} is no number of JSON")


def _finite(digits: str) -> float:
    number = float(digits)
    if not isfinite(number):
        raise ValueError("a number beyond the range of floating point")
    return number


def _int64(digits: str) -> int:
    return as_int(int(digits) if len(digits) <= 20 else None, INT64_MIN, INT64_MAX)


_DECODER = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite)
_STRICT = json.JSONDecoder(parse_constant=_no_constant, parse_float=_finite, parse_int=_int64)


def parse_json(data: bytes | None) -> Any:
    """The value of a JSON text in UTF-8 with at most `MAX_DEPTH` levels, whose integers fit 64 bits.

    A driver reads an entry of each partition that moves every second. So what is checked only for hostile text is
    looked for with fast searches first.
    """
    if data is None or len(data) > MAX_BYTES:
        raise ValueError("no JSON text, or one that is too large")
    if data.count(b"[") + data.count(b"{") > MAX_DEPTH:
        _check_depth(data)
    decoder = _STRICT if _MANY_DIGITS.search(data) else _DECODER
    value = decoder.decode(data.decode())
    if _SURROGATE.search(data):
        json.dumps(value, ensure_ascii=False).encode()  # half a character cannot be written again: ValueError
    return value


def _check_depth(data: bytes) -> None:
    """Take away innermost pairs of brackets, level by level. Text that is not balanced is no JSON anyway."""
    brackets = _STRING.sub(b"", data).translate(None, _NOT_BRACKETS)
    for _ in range(MAX_DEPTH):
        left = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if not left:
            return
        if len(left) == len(brackets):
            break
        brackets = left
    raise ValueError(f"more than {MAX_DEPTH} levels")


# -- values ------------------------------------------------------------------------------


def as_int(value: Any, least: int, most: int) -> int:
    """An integer from `least` to `most`; True and False are none."""
    if type(value) is not int or not least <= value <= most:
        raise ValueError("no integer of that range")
    return value


def as_number(value: Any) -> int:
    """A count of something."""
    return as_int(value, 0, INT64_MAX)


def as_offset(value: Any) -> int:
    return as_int(value, 0, OFFSET_MAX)


def as_known_offset(value: Any) -> int:
    """An offset, or -1 where it is not known."""
    return as_int(value, -1, OFFSET_MAX)


def as_partition(value: Any) -> int:
    return as_int(value, 0, INT32_MAX)


def as_time_ms(value: Any) -> int:
    """A time of a clock, or 0."""
    return as_int(value, 0, TIME_MS_MAX)


def as_set_time_ms(value: Any) -> int:
    """A time of a clock, where 0 would mean that there is none."""
    return as_int(value, 1, TIME_MS_MAX)


def as_text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("no text")
    return value


def as_flag(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError("neither true nor false")
    return value


def as_list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise ValueError("no array")
    return value


def as_fields(value: Any) -> dict[str, Any]:
    if type(value) is not dict:
        raise ValueError("no object")
    return value


def as_texts(value: Any) -> tuple[str, ...]:
    return tuple(map(as_text, as_list(value)))


def take(values: Sequence[Any], number: int) -> Sequence[Any]:
    """The elements of an array that must have so many."""
    if len(values) != number:
        raise ValueError(f"not {number} elements")
    return values
