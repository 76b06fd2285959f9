"""Translates Java's regular expressions for the `regex` module.

MM2's patterns are written for `java.util.regex.Pattern`. A pattern is parsed by Java's grammar and written again in a
small, explicit form: flags are resolved, every set of characters is computed as ranges of code points (so Java's
intersections and ASCII classes need no counterpart), anchors become look-arounds. A pattern that cannot be kept
exactly is refused, never guessed. The result is for matching whole names: the text that a group captures equals
Java's only if `Shape` does not list the group as loose.
"""

from __future__ import annotations

from typing import NamedTuple

from heliograph.errors import ConfigError
from heliograph.names.java_regex.classes import LINE_END, SHORTHANDS, VERTICAL, WORD, Refused, property_class
from heliograph.names.java_regex.codepoints import (
    ALL,
    LAST,
    Ranges,
    both_cases,
    chars,
    complement,
    intersect,
    union,
    write_set,
)
from heliograph.names.java_regex.pieces import PatternPiece, alternatives_of, in_sequence, literal, one_of, repeated

_MAX_DEPTH = 100
_MAX_SHOWN = 500
_MAX_COUNT = 2**31 - 1


class Shape(NamedTuple):
    """A parsed pattern: the whole and its pieces."""

    whole: PatternPiece
    branches: tuple[tuple[PatternPiece, ...], ...]
    """Its alternatives, each a sequence."""
    groups: dict[int, PatternPiece]
    """The piece that each capturing group may hold."""
    names: dict[str, int]
    loose: frozenset[int]
    """Groups inside repetitions, look-arounds and atomic groups: engines differ in what these capture."""


def translate(pattern: str) -> str:
    """Returns the pattern for `regex`, to be used with `fullmatch`."""
    return parse(pattern).whole.text


def parse(pattern: str) -> Shape:
    try:
        return _Parser(pattern).parse()
    except Refused as reason:
        raise ConfigError(
            f'pattern "{_shortened(pattern)}" cannot be used',
            why=str(reason),
            remedy="patterns follow java.util.regex.Pattern",
        ) from None


def _shortened(pattern: str) -> str:
    return pattern if len(pattern) <= _MAX_SHOWN else f"{pattern[:_MAX_SHOWN]}..."


_WORD_BOUNDARY = "(?:(?<={0})(?!{0})|(?<!{0})(?={0}))".format(write_set(WORD))
_NO_WORD_BOUNDARY = "(?:(?<={0})(?={0})|(?<!{0})(?!{0}))".format(write_set(WORD))
_ANY_END = write_set(LINE_END)
_OTHER_END = write_set(intersect(LINE_END, complement(chars("\r\n"))))
# Java takes \r\n as one line end: nothing matches between the two. In `regex`, \Z is the very end.
_END = rf"(?:(?!(?<=\r)\n)(?=(?:\r\n|{_ANY_END})?\Z))"
_UNIX_END = r"(?=\n?\Z)"
_EVERY_END = rf"(?=\Z|\r|{_OTHER_END}|(?<!\r)\n)"
_UNIX_EVERY_END = r"(?=\Z|\n)"
_EVERY_START = rf"(?:(?!\Z)(?:\A|(?<=\n)|(?<={_OTHER_END})|(?<=\r)(?!\n)))"
_UNIX_EVERY_START = r"(?:(?!\Z)(?:\A|(?<=\n)))"
_LINE_BREAK = rf"(?:\r\n|{write_set(VERTICAL)})"


# -- reading

_DIGITS = "0123456789"
_HEX_DIGITS = "0123456789abcdefABCDEF"
_GROUPS = {":": "(?:", "=": "(?=", "!": "(?!", ">": "(?>", "<=": "(?<=", "<!": "(?<!"}


class _Parser:
    """Parses by recursive descent along Java's grammar. `flags` holds those of i, m, s, d that are on."""

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
        self.pieces: dict[int, PatternPiece] = {}
        self.loose: set[int] = set()
        self.branches: list[list[PatternPiece]] = []

    def parse(self) -> Shape:
        piece = self._alternatives()
        if self.at < len(self.tokens):
            raise Refused("unmatched )")
        if self.references and self.captures_behind:
            raise Refused("groups inside a look-behind together with back-references are not supported")
        branches = tuple(map(tuple, self.branches))
        return Shape(piece, branches, self.pieces, self.names, frozenset(self.loose))

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
        """Takes characters that are among these."""
        taken = ""
        while (char := self._peek()) is not None and char in of and len(taken) != most:
            taken += char
            self.at += 1
        return taken

    def _take_until(self, closing: str) -> str | None:
        """Takes characters up to the closing one, which is skipped; None if there is none."""
        taken = ""
        while (char := self._peek()) is not None and char != closing:
            taken += char
            self.at += 1
        return taken if self._take(closing) else None

    def _next(self, missing: str) -> str:
        """Takes the next character whatever it is."""
        if self.at >= len(self.tokens):
            raise Refused(missing)
        self.at += 1
        return self.tokens[self.at - 1][0]

    def _alternatives(self) -> PatternPiece:
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Refused(f"groups are nested more than {_MAX_DEPTH} deep")
        branches = [self._sequence()]
        while self._take("|"):
            branches.append(self._sequence())
        self.depth -= 1
        if not self.depth:
            self.branches = branches
        return alternatives_of([in_sequence(branch) for branch in branches])

    def _sequence(self) -> list[PatternPiece]:
        pieces = []
        while self.at < len(self.tokens) and self._peek() not in ("|", ")"):
            before = self.groups
            atom = self._atom()
            if atom is not None:
                pieces.append(self._quantified(atom, before))
        return pieces

    def _loosen(self, before: int) -> None:
        """Marks groups opened since then as loose: what they capture is not relied on."""
        self.loose.update(range(before + 1, self.groups + 1))

    def _atom(self) -> PatternPiece | None:
        """Parses one thing that can be repeated; None for a group that only sets flags."""
        char = self._peek()
        if char == "(":
            return self._group()
        if char == "[":
            self.at += 1
            return one_of(self._set())
        if char == "\\":
            self.at += 1
            return self._escape()
        if char in ("*", "+", "?", "{"):
            # Java repeats nothing for {2}, and refuses the others.
            reason = "a { that follows nothing is not supported" if char == "{" else f"{char} has nothing to repeat"
            raise Refused(reason + _comma_hint(char))
        self.at += 1
        if char == ".":
            return one_of(self._dot())
        if char == "^":
            return PatternPiece(self._start())
        if char == "$":
            return PatternPiece(self._end())
        return self._literal(ord(self.tokens[self.at - 1][0]))

    def _literal(self, code: int) -> PatternPiece:
        if "i" in self.flags and (both := both_cases(((code, code),))) != ((code, code),):
            return one_of(both)
        return literal(code)

    def _dot(self) -> Ranges:
        if "s" in self.flags:
            return ALL
        return complement(chars("\n") if "d" in self.flags else LINE_END)

    def _start(self) -> str:
        if "m" not in self.flags:
            return r"\A"
        return _UNIX_EVERY_START if "d" in self.flags else _EVERY_START

    def _end(self) -> str:
        if "m" in self.flags:
            return _UNIX_EVERY_END if "d" in self.flags else _EVERY_END
        return _UNIX_END if "d" in self.flags else _END

    def _quantified(self, atom: PatternPiece, before: int) -> PatternPiece:
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
        if written != "?" or mode == "+":
            self._loosen(before)
        # In Java, a possessive repetition keeps what each round took, too.
        opening = "(?>" if mode == "+" else "(?:"
        text = f"{opening}{atom.text}){written}{mode}"
        return repeated(atom, text, low=low, high=high, is_counted=written != "?")

    def _counts(self) -> tuple[int, int | None]:
        low = self._number()
        high: int | None = low
        if self._take(","):
            high = None if self._peek() == "}" else self._number()
        if not self._take("}"):
            raise Refused("{ is not closed" + _comma_hint("{"))
        if high is not None and high < low:
            raise Refused(f"{{{low},{high}}} ends before it begins")
        return low, high

    def _number(self) -> int:
        digits = self._take_any(_DIGITS)
        if not digits or int(digits[:12]) > _MAX_COUNT:
            raise Refused("{ is not followed by a usable number" + _comma_hint("{"))
        return int(digits[:12])

    # -- groups

    def _group(self) -> PatternPiece | None:
        self.at += 1
        outside, before = self.flags, self.groups
        if not self._take("?"):
            piece = self._capture(None)
        elif (kind := next((kind for kind in _GROUPS if self._take(kind)), None)) is not None:
            piece = self._closed_group(_GROUPS[kind])
            if kind != ":":
                self._loosen(before)
            if kind in ("<=", "<!"):
                self._check_look_behind(piece)
            if kind not in (":", ">"):
                piece = piece._replace(low=0, high=0, letters=())
        elif self._take("<"):
            piece = self._capture(self._name())
        else:
            self._read_flags()
            if self._take(")"):
                return None  # to the end of the enclosing group, later alternatives included
            if not self._take(":"):
                raise Refused("(? is not followed by a kind of group that Java knows")
            piece = self._closed_group("(?:")
        self.flags = outside
        return piece

    def _closed_group(self, opening: str) -> PatternPiece:
        inside = self._alternatives()
        if not self._take(")"):
            raise Refused("( is not closed")
        return inside._replace(text=f"{opening}{inside.text})")

    def _check_look_behind(self, piece: PatternPiece) -> None:
        if not piece.bounded:
            # Java refuses most of these; which ones depends on overflows of its arithmetic and on its optimizer.
            raise Refused("a repetition without limit, or of a group, inside a look-behind is not supported")
        self.captures_behind |= piece.captures

    def _capture(self, name: str | None) -> PatternPiece:
        self.groups += 1
        number = self.groups
        if name is not None:
            if name in self.names:
                raise Refused(f"group <{name}> is defined twice")
            self.names[name] = number
        self.pieces[number] = piece = self._closed_group("(")._replace(captures=True, group=number)
        self.closed.add(number)
        return piece

    def _name(self) -> str:
        name = self._take_until(">")
        if not name or not (name.isascii() and name.isalnum() and name[0].isalpha()):
            raise Refused("a group's name must be a letter followed by letters and digits")
        return name

    def _read_flags(self) -> None:
        on, off, adding = set(self.flags), set[str](), True
        while (char := self._peek()) is not None and char in "idmsuxcU-":
            self.at += 1
            if char == "-" and adding:
                adding = False
            elif char == "-":
                raise Refused("(? has two minus signs")
            elif adding and char in "uxcU":
                raise Refused(f"the flag {char} is not supported")
            else:
                (on if adding else off).add(char)
        self.flags = frozenset(on - off)

    # -- escapes

    def _escape(self) -> PatternPiece:
        char = self._peek()
        simple = {
            "A": r"\A", "G": r"\A", "z": r"\Z", "Z": _UNIX_END if "d" in self.flags else _END,
            "b": _WORD_BOUNDARY, "B": _NO_WORD_BOUNDARY,
        }  # fmt: skip
        if char is not None and char in simple:
            self.at += 1
            if char == "b" and self._peek() == "{":
                raise Refused("\\b{g} is not supported")
            return PatternPiece(simple[char])
        if self._take("R"):
            return PatternPiece(_LINE_BREAK, low=1, high=2, letters=(VERTICAL,))
        if char is not None and char in _DIGITS and char != "0":
            return self._numbered_reference()
        if self._take("k"):
            if not self._take("<"):
                raise Refused("\\k is not followed by <name>")
            name = self._name()
            if name not in self.names:
                raise Refused(f"\\k<{name}> refers to no group before it")
            return self._reference(self.names[name])
        value = self._char_or_class()
        return self._literal(value) if isinstance(value, int) else one_of(value)

    def _numbered_reference(self) -> PatternPiece:
        number = int(self._next(""))
        while (char := self._peek()) is not None and char in _DIGITS and number * 10 + int(char) <= self.groups:
            number = number * 10 + int(char)
            self.at += 1
        return self._reference(number)

    def _reference(self, number: int) -> PatternPiece:
        if number not in self.closed:
            # In Java, one to a group that does not exist never matches.
            raise Refused(f"back-reference {number} without a complete group {number} before it is not supported")
        if "i" in self.flags:
            raise Refused("a back-reference under (?i) is not supported")
        self.references = True
        return PatternPiece(f"(?:\\{number})", bounded=False, high=None, letters=(ALL,))

    def _char_or_class(self) -> int | Ranges:
        """Parses what follows a backslash: one character or a set."""
        if self.at < len(self.tokens) and self.tokens[self.at][1]:
            raise Refused("\\ before \\Q is not supported")
        char = self._next("\\ at the end")
        if char in "pP":
            ranges = property_class(self._property_name(), ignore_case="i" in self.flags)
            return complement(ranges) if char == "P" else ranges
        if char.lower() in SHORTHANDS and char.isascii():
            ranges = SHORTHANDS[char.lower()]
            return complement(ranges) if char.isupper() else ranges
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
            raise Refused(f"\\{char} is not supported" if char in "NX" else f"\\{char} is not known to Java here")
        return ord(char)

    def _property_name(self) -> str:
        if not self._take("{"):
            return self._next("\\p at the end")
        name = self._take_until("}")
        if not name:
            raise Refused("\\p{ is not closed")
        return name

    def _octal(self) -> int:
        digits = self._take_any("01234567", 2)
        if len(digits) == 2 and digits[0] <= "3":
            digits += self._take_any("01234567", 1)
        if not digits:
            raise Refused("\\0 is not followed by an octal digit")
        return int(digits, 8)

    def _hex(self, length: int) -> int:
        digits = self._take_any(_HEX_DIGITS, length)
        if len(digits) != length:
            raise Refused(f"\\{'x' if length == 2 else 'u'} is not followed by {length} hexadecimal digits")
        return int(digits, 16)

    def _hex_braced(self) -> int:
        digits = self._take_any(_HEX_DIGITS)
        if not self._take("}") or not digits or len(digits) > 8 or int(digits, 16) > LAST:
            raise Refused("\\x{ is not followed by a code point and }")
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
        """Parses a set whose [ has been read: unions joined by &&, which binds weaker than union."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise Refused(f"sets are nested more than {_MAX_DEPTH} deep")
        negated = self._take("^")
        result: Ranges | None = None
        members: list[Ranges] = []
        while True:
            if self.at >= len(self.tokens):
                raise Refused("[ is not closed")
            if self._peek() == "]" and (members or result is not None):
                break
            if self._take("&&"):
                if members:  # Java takes [&&a] for [a]
                    result = _meet(result, members)
                members = []
                if self._peek() in ("]", "&"):
                    # Java's answers depend on what was read before: [a&&] is [a].
                    raise Refused("&& with nothing at its right is not supported")
            elif self._take("["):
                members.append(self._set())
            else:
                members.append(self._set_item())
        self.at += 1
        self.depth -= 1
        result = _meet(result, members)
        return complement(result) if negated else result

    def _set_item(self) -> Ranges:
        """Parses a range, a single character, or a class like \\d."""
        low = self._set_char()
        if not isinstance(low, int):
            return low
        high = low
        if self._peek() == "-" and self._peek(1) not in ("[", "]") and self.at + 1 < len(self.tokens):
            self.at += 1
            end = self._set_char()
            if not isinstance(end, int) or end < low:
                raise Refused("a range in [...] ends before it begins")
            high = end
        item: Ranges = ((low, high),)
        return both_cases(item) if "i" in self.flags else item

    def _set_char(self) -> int | Ranges:
        if self._take("\\"):
            return self._char_or_class()
        return ord(self._next("[ is not closed"))


def _meet(result: Ranges | None, members: list[Ranges]) -> Ranges:
    together = union(members)
    return together if result is None else intersect(result, together)


def _unquote(pattern: str) -> list[tuple[str, bool]]:
    """Splits the pattern into characters, each with whether it is between \\Q and \\E."""
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
