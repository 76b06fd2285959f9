"""Java's regular expressions, translated for the `regex` module.

MM2's patterns are written for `java.util.regex.Pattern`. A pattern is parsed by Java's grammar and
written again in a small, explicit form: flags are resolved, every set of characters is computed as
ranges of code points (so Java's intersections and ASCII classes need no counterpart), anchors become
look-arounds. What cannot be kept exactly is refused, never guessed. Only whole-name matching is meant:
which text a group captured is of no interest beyond back-references.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache

import regex

from heliograph.errors import ConfigError

Ranges = tuple[tuple[int, int], ...]
"""A set of code points: sorted, disjoint, inclusive ranges."""

_LAST = 0x10FFFF
_ALL: Ranges = ((0, _LAST),)
_MAX_DEPTH = 100
_MAX_SHOWN = 500
_MAX_COUNT = 2**31 - 1
# The regex module unrolls counted repetition: {2147483647} would take all memory.
_MAX_EXPANDED = 100_000


class _Refused(Exception):
    """Why a pattern cannot be used; becomes a ConfigError that names the pattern."""


def translate(pattern: str) -> str:
    """The same pattern for `regex`, to be used with `fullmatch`."""
    try:
        return _Parser(pattern).parse()
    except _Refused as reason:
        raise ConfigError(
            f'pattern "{_shortened(pattern)}" cannot be used',
            why=str(reason),
            remedy="patterns follow java.util.regex.Pattern",
        ) from None


def _shortened(pattern: str) -> str:
    return pattern if len(pattern) <= _MAX_SHOWN else f"{pattern[:_MAX_SHOWN]}..."


# -- sets of code points


def _union(parts: Iterable[Ranges]) -> Ranges:
    merged: list[tuple[int, int]] = []
    for low, high in sorted(one for part in parts for one in part):
        if merged and low <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(merged[-1][1], high))
        else:
            merged.append((low, high))
    return tuple(merged)


def _complement(ranges: Ranges) -> Ranges:
    result, start = [], 0
    for low, high in ranges:
        if low > start:
            result.append((start, low - 1))
        start = high + 1
    if start <= _LAST:
        result.append((start, _LAST))
    return tuple(result)


def _intersect(left: Ranges, right: Ranges) -> Ranges:
    return _complement(_union((_complement(left), _complement(right))))


def _chars(text: str) -> Ranges:
    return _union(((ord(char), ord(char)),) for char in text)


def _both_cases(ranges: Ranges) -> Ranges:
    """Java's case-insensitive match without UNICODE_CASE: ASCII letters only."""
    other: list[tuple[int, int]] = []
    for letters, shift in ((range(ord("a"), ord("z") + 1), -32), (range(ord("A"), ord("Z") + 1), 32)):
        for low, high in ranges:
            if (first := max(low, letters[0])) <= (last := min(high, letters[-1])):
                other.append((first + shift, last + shift))
    return _union((ranges, tuple(other)))


@lru_cache(maxsize=1)
def _all_chars() -> str:
    """0.1 s to make, 4 MB to keep; a class takes 0.01 s to find in it."""
    return "".join(map(chr, range(_LAST + 1)))


@lru_cache(maxsize=64)
def _unicode(expression: str) -> Ranges:
    """All code points a class of the regex module holds."""
    return tuple((m.start(), m.end() - 1) for m in regex.finditer(f"[{expression}]+", _all_chars(), regex.V0))


_DIGIT: Ranges = ((0x30, 0x39),)
_LOWER: Ranges = ((0x61, 0x7A),)
_UPPER: Ranges = ((0x41, 0x5A),)
_ALNUM = _union((_DIGIT, _LOWER, _UPPER))
_WORD = _union((_ALNUM, _chars("_")))
_SPACE = _chars(" \t\n\x0b\f\r")
_HORIZONTAL = _union((_chars(" \t\xa0\u1680\u180e\u202f\u205f\u3000"), ((0x2000, 0x200A),)))
_VERTICAL = _chars("\n\x0b\f\r\x85\u2028\u2029")
_LINE_END = _chars("\n\r\x85\u2028\u2029")
_GRAPH: Ranges = ((0x21, 0x7E),)

_SHORTHANDS: dict[str, Ranges] = {"d": _DIGIT, "s": _SPACE, "w": _WORD, "h": _HORIZONTAL, "v": _VERTICAL}

_POSIX: dict[str, Ranges] = {
    "Lower": _LOWER,
    "Upper": _UPPER,
    "ASCII": ((0, 0x7F),),
    "Alpha": _union((_LOWER, _UPPER)),
    "Digit": _DIGIT,
    "Alnum": _ALNUM,
    "Punct": _intersect(_GRAPH, _complement(_ALNUM)),
    "Graph": _GRAPH,
    "Print": ((0x20, 0x7E),),
    "Blank": _chars(" \t"),
    "Cntrl": ((0, 0x1F), (0x7F, 0x7F)),
    "XDigit": _union((_DIGIT, ((0x41, 0x46), (0x61, 0x66)))),
    "Space": _SPACE,
    "L1": ((0, 0xFF),),
    "all": _ALL,
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


def _property(name: str, *, ignore_case: bool) -> Ranges:
    """The code points of `\\p{name}`."""
    key, equals, value = name.partition("=")
    if equals and key.lower() in ("sc", "script"):
        return _script(value, name)
    if equals and (key.lower() not in ("gc", "general_category") or value not in _CATEGORIES):
        raise _Refused(f"\\p{{{name}}} is not supported")
    is_named = not equals and name.startswith("Is")
    plain = value if equals else name[2:] if is_named else name
    if is_named and (binary := _BINARY.get(plain.upper())) is not None:
        if ignore_case and "case" in binary:
            raise _Refused(f"\\p{{{name}}} under (?i) means different things in different Java releases")
        return _unicode(binary)
    if ignore_case and plain in _CASE_DEPENDENT:
        raise _Refused(f"\\p{{{name}}} under (?i) means different things in different Java releases")
    return _plain_property(plain) or _script(plain if is_named else "", name)


def _plain_property(name: str) -> Ranges | None:
    if name in _CATEGORIES:
        return _unicode(rf"\p{{{name}}}")
    if name in _JAVA_METHODS:
        return _unicode(_JAVA_METHODS[name])
    if name == "javaWhitespace":
        spaces = _intersect(_unicode(r"\p{Z}"), _complement(_chars("\xa0\u2007\u202f")))
        return _union((spaces, ((0x09, 0x0D), (0x1C, 0x1F))))
    return _POSIX.get(name)


def _script(value: str, name: str) -> Ranges:
    if not value.isascii() or not value.replace("_", "").isalpha():
        raise _Refused(f"\\p{{{name}}} is not a class known here")
    try:
        return _unicode(rf"\p{{Script={value}}}")
    except regex.error:
        raise _Refused(f"\\p{{{name}}} is not a class known here") from None


# -- writing


def _write_char(code: int) -> str:
    if chr(code).isascii() and chr(code).isalnum():
        return chr(code)
    if code <= 0xFF:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _write_set(ranges: Ranges) -> str:
    if not ranges:
        return "(?!)"
    negated = ranges != _ALL and ranges[-1][1] == _LAST
    body = "".join(
        _write_char(low) if low == high else f"{_write_char(low)}-{_write_char(high)}"
        for low, high in (_complement(ranges) if negated else ranges)
    )
    return f"[{'^' if negated else ''}{body}]"


_WORD_BOUNDARY = "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))".format(_write_set(_WORD))
_NO_WORD_BOUNDARY = "(?:(?<={0})(?={0})|(?<!{0})(?!{0}))".format(_write_set(_WORD))
_ANY_END = _write_set(_LINE_END)
_OTHER_END = _write_set(_intersect(_LINE_END, _complement(_chars("\r\n"))))
# Java takes \r\n as one line end: nothing matches between the two. In `regex`, \Z is the very end.
_END = rf"(?:(?!(?<=\r)\n)(?=(?:\r\n|{_ANY_END})?\Z))"
_UNIX_END = r"(?=\n?\Z)"
_EVERY_END = rf"(?=\Z|\r|{_OTHER_END}|(?<!\r)\n)"
_UNIX_EVERY_END = r"(?=\Z|\n)"
_EVERY_START = rf"(?:(?!\Z)(?:\A|(?<=\n)|(?<={_OTHER_END})|(?<=\r)(?!\n)))"
_UNIX_EVERY_START = r"(?:(?!\Z)(?:\A|(?<=\n)))"
_LINE_BREAK = rf"(?:\r\n|{_write_set(_VERTICAL)})"


@dataclass(frozen=True, slots=True)
class _Piece:
    """Translated text, with what Java's look-behind and the memory limit ask of it."""

    text: str
    size: int = 1
    bounded: bool = True
    captures: bool = False


def _joined(pieces: list[_Piece], between: str = "") -> _Piece:
    return _Piece(
        between.join(piece.text for piece in pieces),
        _checked_size(sum(piece.size for piece in pieces)),
        all(piece.bounded for piece in pieces),
        any(piece.captures for piece in pieces),
    )


def _checked_size(size: int) -> int:
    if size > _MAX_EXPANDED:
        raise _Refused(f"its repetitions add up to more than {_MAX_EXPANDED}")
    return size


# -- reading

_DIGITS = "0123456789"
_HEX_DIGITS = "0123456789abcdefABCDEF"
_GROUPS = {":": "(?:", "=": "(?=", "!": "(?!", ">": "(?>", "<=": "(?<=", "<!": "(?<!"}


class _Parser:
    """Recursive descent along Java's grammar. `flags` holds those of i, m, s, d that are on."""

    def __init__(self, pattern: str) -> None:
        self.tokens = _unquote(pattern)
        self.at = 0
        self.depth = 0
        self.flags: frozenset[str] = frozenset()
        self.groups = 0
        self.closed: set[int] = set()
        self.names: dict[str, int] = {}
        self.captures_behind = False
        self.references = False

    def parse(self) -> str:
        piece = self._alternatives()
        if self.at < len(self.tokens):
            raise _Refused("unmatched )")
        if self.references and self.captures_behind:
            raise _Refused("groups inside a look-behind together with back-references are not supported")
        return piece.text

    # A quoted character never equals a meta character: it is seen as None here.
    def _peek(self, ahead: int = 0) -> str | None:
        index = self.at + ahead
        if index >= len(self.tokens):
            return None
        char, quoted = self.tokens[index]
        return None if quoted else char

    def _take(self, expected: str) -> bool:
        if all(self._peek(i) == char for i, char in enumerate(expected)):
            self.at += len(expected)
            return True
        return False

    def _take_any(self, of: str, most: int | None = None) -> str:
        """Characters that are among these."""
        taken = ""
        while (char := self._peek()) is not None and char in of and len(taken) != most:
            taken += char
            self.at += 1
        return taken

    def _take_until(self, closing: str) -> str | None:
        """Characters up to the closing one, which is skipped; None if there is none."""
        taken = ""
        while (char := self._peek()) is not None and char != closing:
            taken += char
            self.at += 1
        return taken if self._take(closing) else None

    def _next(self, missing: str) -> str:
        """The next character whatever it is."""
        if self.at >= len(self.tokens):
            raise _Refused(missing)
        self.at += 1
        return self.tokens[self.at - 1][0]

    def _alternatives(self) -> _Piece:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _Refused(f"groups are nested more than {_MAX_DEPTH} deep")
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self.depth -= 1
        return _joined(branches, "|")

    def _sequence(self) -> _Piece:
        pieces = []
        while self.at < len(self.tokens) and self._peek() not in ("|", ")"):
            atom = self._atom()
            if atom is not None:
                pieces.append(self._quantified(atom))
        return _joined(pieces)

    def _atom(self) -> _Piece | None:
        """One thing that can be repeated; None for a group that only sets flags."""
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "[":
            self.at += 1
            return _Piece(_write_set(self._set()))
        if char == "\\":
            self.at += 1
            return self._escape()
        if char in ("*", "+", "?", "{"):
            # Java repeats nothing for {2}, and refuses the others.
            reason = "a { that follows nothing is not supported" if char == "{" else f"{char} has nothing to repeat"
            raise _Refused(reason + _comma_hint(char))
        self.at += 1
        if char == ".":
            return _Piece(self._dot())
        if char == "^":
            return _Piece(self._start())
        if char == "$":
            return _Piece(self._end())
        return self._literal(ord(self.tokens[self.at - 1][0]))

    def _literal(self, code: int) -> _Piece:
        if "i" in self.flags and (both := _both_cases(((code, code),))) != ((code, code),):
            return _Piece(_write_set(both))
        return _Piece(_write_char(code))

    def _dot(self) -> str:
        if "s" in self.flags:
            return _write_set(_ALL)
        return _write_set(_complement(_chars("\n") if "d" in self.flags else _LINE_END))

    def _start(self) -> str:
        if "m" not in self.flags:
            return r"\A"
        return _UNIX_EVERY_START if "d" in self.flags else _EVERY_START

    def _end(self) -> str:
        if "m" in self.flags:
            return _UNIX_EVERY_END if "d" in self.flags else _EVERY_END
        return _UNIX_END if "d" in self.flags else _END

    def _quantified(self, atom: _Piece) -> _Piece:
        char = self._peek()
        if char in ("*", "+", "?"):
            self.at += 1
            low, high, written = {"*": (0, None, "*"), "+": (1, None, "+"), "?": (0, 1, "?")}[str(char)]
        elif char == "{":
            self.at += 1
            low, high = self._counts()
            written = f"{{{low},{'' if high is None else high}}}"
        else:
            return atom
        mode = "+" if self._take("+") else "?" if self._take("?") else ""
        size = _checked_size(max(1, atom.size) * max(1, low, high or 0))
        counts_group = atom.text.startswith("(") and written != "?"
        bounded = atom.bounded and high is not None and not counts_group
        # In Java, a possessive repetition keeps what each round took, too.
        opening = "(?>" if mode == "+" else "(?:"
        return _Piece(f"{opening}{atom.text}){written}{mode}", size, bounded, atom.captures)

    def _counts(self) -> tuple[int, int | None]:
        low = self._number()
        high: int | None = low
        if self._take(","):
            high = None if self._peek() == "}" else self._number()
        if not self._take("}"):
            raise _Refused("{ is not closed" + _comma_hint("{"))
        if high is not None and high < low:
            raise _Refused(f"{{{low},{high}}} ends before it begins")
        return low, high

    def _number(self) -> int:
        digits = self._take_any(_DIGITS)
        if not digits or int(digits[:12]) > _MAX_COUNT:
            raise _Refused("{ is not followed by a usable number" + _comma_hint("{"))
        return int(digits[:12])

    # -- groups

    def _group(self) -> _Piece | None:
        self.at += 1
        outside = self.flags
        if not self._take("?"):
            piece = self._capture(None)
        elif (kind := next((kind for kind in _GROUPS if self._take(kind)), None)) is not None:
            piece = self._closed_group(_GROUPS[kind])
            if kind in ("<=", "<!"):
                self._check_look_behind(piece)
        elif self._take("<"):
            piece = self._capture(self._name())
        else:
            self._read_flags()
            if self._take(")"):
                return None  # to the end of the enclosing group, later alternatives included
            if not self._take(":"):
                raise _Refused("(? is not followed by a kind of group that Java knows")
            piece = self._closed_group("(?:")
        self.flags = outside
        return piece

    def _closed_group(self, opening: str) -> _Piece:
        inside = self._alternatives()
        if not self._take(")"):
            raise _Refused("( is not closed")
        return _Piece(f"{opening}{inside.text})", inside.size, inside.bounded, inside.captures)

    def _check_look_behind(self, piece: _Piece) -> None:
        if not piece.bounded:
            # Java refuses most of these; which ones depends on overflows of its arithmetic and on its optimizer.
            raise _Refused("a repetition without limit, or of a group, inside a look-behind is not supported")
        self.captures_behind |= piece.captures

    def _capture(self, name: str | None) -> _Piece:
        self.groups += 1
        number = self.groups
        if name is not None:
            if name in self.names:
                raise _Refused(f"group <{name}> is defined twice")
            self.names[name] = number
        piece = self._closed_group("(")
        self.closed.add(number)
        return _Piece(piece.text, piece.size, piece.bounded, captures=True)

    def _name(self) -> str:
        name = self._take_until(">")
        if not name or not (name.isascii() and name.isalnum() and name[0].isalpha()):
            raise _Refused("a group's name must be a letter followed by letters and digits")
        return name

    def _read_flags(self) -> None:
        on, off, adding = set(self.flags), set[str](), True
        while (char := self._peek()) is not None and char in "idmsuxcU-":
            self.at += 1
            if char == "-" and adding:
                adding = False
            elif char == "-":
                raise _Refused("(? has two minus signs")
            elif adding and char in "uxcU":
                raise _Refused(f"the flag {char} is not supported")
            else:
                (on if adding else off).add(char)
        self.flags = frozenset(on - off)

    # -- escapes

    def _escape(self) -> _Piece:
        char = self._peek()
        simple = {
            "A": r"\A", "G": r"\A", "z": r"\Z", "Z": _UNIX_END if "d" in self.flags else _END,
            "b": _WORD_BOUNDARY, "B": _NO_WORD_BOUNDARY, "R": _LINE_BREAK,
        }  # fmt: skip
        if char is not None and char in simple:
            self.at += 1
            if char == "b" and self._peek() == "{":
                raise _Refused("\\b{g} is not supported")
            return _Piece(simple[char])
        if char is not None and char in _DIGITS and char != "0":
            return self._numbered_reference()
        if self._take("k"):
            if not self._take("<"):
                raise _Refused("\\k is not followed by <name>")
            name = self._name()
            if name not in self.names:
                raise _Refused(f"\\k<{name}> refers to no group before it")
            return self._reference(self.names[name])
        value = self._char_or_class()
        return self._literal(value) if isinstance(value, int) else _Piece(_write_set(value))

    def _numbered_reference(self) -> _Piece:
        number = int(self._next(""))
        while (char := self._peek()) is not None and char in _DIGITS and number * 10 + int(char) <= self.groups:
            number = number * 10 + int(char)
            self.at += 1
        return self._reference(number)

    def _reference(self, number: int) -> _Piece:
        if number not in self.closed:
            # In Java, one to a group that does not exist never matches.
            raise _Refused(f"back-reference {number} without a complete group {number} before it is not supported")
        if "i" in self.flags:
            raise _Refused("a back-reference under (?i) is not supported")
        self.references = True
        return _Piece(f"(?:\\{number})", bounded=False)

    def _char_or_class(self) -> int | Ranges:
        """What follows a backslash and is one character or a set of them."""
        if self.at < len(self.tokens) and self.tokens[self.at][1]:
            raise _Refused("\\ before \\Q is not supported")
        char = self._next("\\ at the end")
        if char in "pP":
            ranges = _property(self._property_name(), ignore_case="i" in self.flags)
            return _complement(ranges) if char == "P" else ranges
        if char.lower() in _SHORTHANDS and char.isascii():
            ranges = _SHORTHANDS[char.lower()]
            return _complement(ranges) if char.isupper() else ranges
        if char in "tnrfae":
            return {"t": 9, "n": 10, "r": 13, "f": 12, "a": 7, "e": 27}[char]
        if char == "0":
            return self._octal()
        if char == "x":
            return self._hex_braced() if self._take("{") else self._hex(2)
        if char == "u":
            return self._utf16()
        if char == "c":
            return ord(self._next("\\c at the end")) ^ 64
        if char.isascii() and char.isalnum():
            raise _Refused(f"\\{char} is not supported" if char in "NX" else f"\\{char} is not known to Java here")
        return ord(char)

    def _property_name(self) -> str:
        if not self._take("{"):
            return self._next("\\p at the end")
        name = self._take_until("}")
        if not name:
            raise _Refused("\\p{ is not closed")
        return name

    def _octal(self) -> int:
        digits = self._take_any("01234567", 2)
        if len(digits) == 2 and digits[0] <= "3":
            digits += self._take_any("01234567", 1)
        if not digits:
            raise _Refused("\\0 is not followed by an octal digit")
        return int(digits, 8)

    def _hex(self, length: int) -> int:
        digits = self._take_any(_HEX_DIGITS, length)
        if len(digits) != length:
            raise _Refused(f"\\{'x' if length == 2 else 'u'} is not followed by {length} hexadecimal digits")
        return int(digits, 16)

    def _hex_braced(self) -> int:
        digits = self._take_any(_HEX_DIGITS)
        if not self._take("}") or not digits or len(digits) > 8 or int(digits, 16) > _LAST:
            raise _Refused("\\x{ is not followed by a code point and }")
        return int(digits, 16)

    def _utf16(self) -> int:
        high = self._hex(4)
        if 0xD800 <= high < 0xDC00 and self._peek() == "\\" and self._peek(1) == "u":
            here = self.at
            self.at += 2
            low = self._hex(4)
            if 0xDC00 <= low < 0xE000:
                return 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00)
            self.at = here
        return high

    # -- sets

    def _set(self) -> Ranges:
        """A set whose [ has been read: unions joined by &&, which binds weaker than union."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise _Refused(f"sets are nested more than {_MAX_DEPTH} deep")
        negated = self._take("^")
        result: Ranges | None = None
        members: list[Ranges] = []
        while True:
            if self.at >= len(self.tokens):
                raise _Refused("[ is not closed")
            if self._peek() == "]" and (members or result is not None):
                break
            if self._take("&&"):
                if members:  # Java takes [&&a] for [a]
                    result = _meet(result, members)
                members = []
                if self._peek() in ("]", "&"):
                    # Java's answers depend on what was read before: [a&&] is [a].
                    raise _Refused("&& with nothing at its right is not supported")
            elif self._take("["):
                members.append(self._set())
            else:
                members.append(self._set_item())
        self.at += 1
        self.depth -= 1
        result = _meet(result, members)
        return _complement(result) if negated else result

    def _set_item(self) -> Ranges:
        """A range, a single character, or a class like \\d."""
        low = self._set_char()
        if not isinstance(low, int):
            return low
        high = low
        if self._peek() == "-" and self._peek(1) not in ("[", "]") and self.at + 1 < len(self.tokens):
            self.at += 1
            end = self._set_char()
            if not isinstance(end, int) or end < low:
                raise _Refused("a range in [...] ends before it begins")
            high = end
        item: Ranges = ((low, high),)
        return _both_cases(item) if "i" in self.flags else item

    def _set_char(self) -> int | Ranges:
        if self._take("\\"):
            return self._char_or_class()
        return ord(self._next("[ is not closed"))


def _meet(result: Ranges | None, members: list[Ranges]) -> Ranges:
    union = _union(members)
    return union if result is None else _intersect(result, union)


def _unquote(pattern: str) -> list[tuple[str, bool]]:
    """Characters, each with whether it stood between \\Q and \\E."""
    tokens: list[tuple[str, bool]] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("\\Q", at):
            end = pattern.find("\\E", at + 2)
            quoted = pattern[at + 2 :] if end < 0 else pattern[at + 2 : end]
            tokens.extend((char, True) for char in quoted)
            at = len(pattern) if end < 0 else end + 2
        elif pattern[at] == "\\":
            tokens.extend((char, False) for char in pattern[at : at + 2])
            at += 2
        else:
            tokens.append((pattern[at], False))
            at += 1
    return tokens


def _comma_hint(char: str | None) -> str:
    return "; a comma ends a pattern in a list, so {1,3} cannot be written there" if char == "{" else ""
