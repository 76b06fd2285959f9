"""Knows the character classes that Java's patterns name: `\\d`, `\\p{Alpha}`, `\\p{IsGreek}` and others."""

from __future__ import annotations

import regex

from heliograph.names.java_regex.codepoints import ALL, Ranges, chars, complement, intersect, unicode, union


class Refused(Exception):
    """Why a pattern cannot be used; becomes a ConfigError that names the pattern."""


_DIGIT: Ranges = ((0x30, 0x39),)
_LOWER: Ranges = ((0x61, 0x7A),)
_UPPER: Ranges = ((0x41, 0x5A),)
_ALNUM = union((_DIGIT, _LOWER, _UPPER))
WORD = union((_ALNUM, chars("_")))
_SPACE = chars(" \t\n\x0b\f\r")
_HORIZONTAL = union((chars(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),)))
VERTICAL = chars("\n\x0b\f\r\x85\u2028\u2029")
LINE_END = chars("\n\r\x85\u2028\u2029")
_GRAPH: Ranges = ((0x21, 0x7E),)

SHORTHANDS: dict[str, Ranges] = {"d": _DIGIT, "s": _SPACE, "w": WORD, "h": _HORIZONTAL, "v": VERTICAL}

_POSIX: dict[str, Ranges] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ((0, 0x7F),),
    "Alpha": union((_LOWER, _UPPER)),
    "Digit": _DIGIT,
    "Alnum": _ALNUM,
    "Punct": intersect(_GRAPH, complement(_ALNUM)),
    "Graph": _GRAPH,
    "Print": ((0x20, 0x7E),),
    "Blank": chars(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "XDigit": union((_DIGIT, ((0x41, 0x46), (0x61, 0x66)))),
    "Space": _SPACE,
    "L1": ((0, 0xFF),),
    "all": ALL,
    "javaISOControl": ((0, 0x1F), (0x7F, 0x9F)),
}

_CATEGORIES = frozenset(
    major + minor
    for major, minors in {
        "C": "cfnos",
        "L": "lmotu",
        "M": "cen",
        "N": "dlo",
        "P": "cdefios",
        "S": "ckmo",
        "Z": "lps",
    }.items()
    for minor in ("", *minors)
)

_JAVA_METHODS: dict[str, str] = {
    "LC": r"\p{Ll}\p{Lu}\p{Lt}",
    "LD": r"\p{L}\p{Nd}",
    "javaLowerCase": r"\p{Lowercase}",
    "javaUpperCase": r"\p{Uppercase}",
    "javaTitleCase": r"\p{Lt}",
    "javaAlphabetic": r"\p{Alphabetic}",
    "javaIdeographic": r"\p{Ideographic}",
    "javaDigit": r"\p{Nd}",
    "javaDefined": r"\P{Cn}",
    "javaLetter": r"\p{L}",
    "javaLetterOrDigit": r"\p{L}\p{Nd}",
    "javaSpaceChar": r"\p{Z}",
}

_BINARY: dict[str, str] = {
    "ALPHABETIC": r"\p{Alphabetic}",
    "CONTROL": r"\p{Cc}",
    "DIGIT": r"\p{Nd}",
    "IDEOGRAPHIC": r"\p{Ideographic}",
    "LETTER": r"\p{L}",
    "LOWERCASE": r"\p{Lowercase}",
    "PUNCTUATION": r"\p{P}",
    "TITLECASE": r"\p{Lt}",
    "UPPERCASE": r"\p{Uppercase}",
    "WHITESPACE": r"\p{White_Space}",
    "WHITE_SPACE": r"\p{White_Space}",
}

# Java releases differ on these under (?i).
_CASE_DEPENDENT = frozenset({"Lower", "Upper", "Ll", "Lu", "Lt", "javaLowerCase", "javaUpperCase", "javaTitleCase"})


def property_class(name: str, *, ignore_case: bool) -> Ranges:
    """Returns the code points of `\\p{name}`."""
    key, equals, value = name.partition("=")
    if equals and key.lower() in ("sc", "script"):
        return _script(value, name)
    if equals and (key.lower() not in ("gc", "general_category") or value not in _CATEGORIES):
        raise Refused(f"\\p{{{name}}} is not supported")
    is_named = not equals and name.startswith("Is")
    plain = value if equals else name[2:] if is_named else name
    if is_named and (binary := _BINARY.get(plain.upper())) is not None:
        if ignore_case and "case" in binary:
            raise Refused(f"\\p{{{name}}} under (?i) means different things in different Java releases")
        return unicode(binary)
    if ignore_case and plain in _CASE_DEPENDENT:
        raise Refused(f"\\p{{{name}}} under (?i) means different things in different Java releases")
    return _plain_property(plain) or _script(plain if is_named else "", name)


def _plain_property(name: str) -> Ranges | None:
    if name in _CATEGORIES:
        return unicode(rf"\p{{{name}}}")
    if name in _JAVA_METHODS:
        return unicode(_JAVA_METHODS[name])
    if name == "javaWhitespace":
        spaces = intersect(unicode(r"\p{Z}"), complement(chars("\xa0\u2007\u202f")))
        return union((spaces, ((0x09, 0x0D), (0x1C, 0x1F))))
    return _POSIX.get(name)


def _script(value: str, name: str) -> Ranges:
    if not value.isascii() or not value.replace("_", "").isalpha():
        raise Refused(f"\\p{{{name}}} is not a class known here")
    try:
        return unicode(rf"\p{{Script={value}}}")
    except regex.error:
        raise Refused(f"\\p{{{name}}} is not a class known here") from None
