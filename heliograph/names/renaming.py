"""Renames topics and groups by rules: a name that a pattern matches gets the replacement's name, and back. Pure.

Patterns and replacements are Java's, and a pattern must match the whole name. A rule is reversed where that is
possible: the name on the target then gives the name on the source.

    orders-(.+)  ->  eu.$1.orders          orders-x  ->  eu.x.orders
                                            orders-x  <-  eu.x.orders     by  eu\\.(.+)\\.orders  ->  orders-$1
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import regex

from heliograph.errors import ConfigError
from heliograph.names.java_regex.classes import Refused
from heliograph.names.java_regex.codepoints import Ranges, chars, intersect, union, write_char, write_set
from heliograph.names.java_regex.translation import Shape, parse
from heliograph.names.policies import ReplicationPolicy, is_own_internal_topic

MATCH_TIMEOUT_S = 5.0
Part = str | int
"""A part of a replacement: text, or the number of a group; 0 is the whole name."""


@dataclass(frozen=True, slots=True)
class Rename:
    """One renaming rule; raises ConfigError if Java would refuse its pattern or its replacement."""

    pattern: str
    replacement: str

    def __post_init__(self) -> None:
        _rule(self.pattern, self.replacement)

    def apply(self, name: str) -> str | None:
        """Returns the new name; None if the rule does not match."""
        rule = _rule(self.pattern, self.replacement)
        match = _match(rule.text, name, self.pattern)
        return None if match is None else _filled(rule.parts, match)

    def invert(self, name: str) -> str | None:
        """Returns the name from which the rule makes this one; None if it does not, or cannot be reversed."""
        rule = _rule(self.pattern, self.replacement)
        match = _match(rule.back.text, name, self.pattern) if rule.back is not None else None
        if rule.back is None or match is None:
            return None
        before = _filled(rule.back.parts, match)
        return before if self.apply(before) == name else None

    @property
    def one_way(self) -> str:
        """Tells why the rule cannot be reversed; empty if it can."""
        return _rule(self.pattern, self.replacement).one_way

    @property
    def stem(self) -> tuple[str, bool]:
        """Returns the text with which all matching names begin, and whether it is the whole name."""
        parts = _rule(self.pattern, self.replacement).parts
        begins = "".join(part for part in parts[:1] if isinstance(part, str))
        return begins, begins == "".join(map(str, parts))

    @property
    def is_for_all(self) -> bool:
        """Tells whether the rule is known to match every name."""
        return self.pattern.removeprefix("^").removesuffix("$") in (".*", "(.*)", ".+", "(.+)")


@dataclass(frozen=True, slots=True)
class Renames:
    """Renaming rules in their order: the first that matches wins."""

    rules: tuple[Rename, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rules)

    def apply(self, name: str) -> str | None:
        """Returns the new name; None if no rule matches."""
        return next((new for rule in self.rules if (new := rule.apply(name)) is not None), None)

    def origins(self, name: str) -> tuple[str, ...]:
        """Returns the names that become this one, as far as rules can be reversed; only one of them can be mirrored."""
        before = [found for rule in self.rules if (found := rule.invert(name)) is not None]
        return tuple(dict.fromkeys(found for found in before if self.apply(found) == name))


# -- a rule, taken apart


class _Back(NamedTuple):
    """The reverse of a rule: a pattern for new names, and the parts of the old name."""

    text: str
    parts: tuple[Part, ...]


class _Rule(NamedTuple):
    text: str
    parts: tuple[Part, ...]
    back: _Back | None
    one_way: str


@lru_cache(maxsize=1024)
def _rule(pattern: str, replacement: str) -> _Rule:
    shape = parse(pattern)
    try:
        parts = parse_replacement(replacement, shape)
    except Refused as reason:
        raise ConfigError(
            f'replacement "{replacement}" cannot be used',
            why=str(reason),
            remedy="replacements follow java.util.regex.Matcher: $1 or ${name} for a group, \\$ and \\\\ for the signs",
        ) from None
    try:
        return _Rule(shape.whole.text, parts, _reversed(shape, parts), "")
    except _OneWay as reason:
        return _Rule(shape.whole.text, parts, None, str(reason))


def parse_replacement(text: str, shape: Shape) -> tuple[Part, ...]:
    """Parses a replacement by the grammar of `Matcher.appendReplacement`; raises Refused."""
    parts: list[Part] = []
    literal, at = "", 0
    while at < len(text):
        char, at = text[at], at + 1
        if char == "$":
            number, at = _reference(text, at, shape)
            parts += [literal, number]
            literal = ""
            continue
        if char == "\\":
            if at == len(text):
                raise Refused("\\ at the end escapes nothing")
            char, at = text[at], at + 1
        literal += char
    return tuple(part for part in (*parts, literal) if part != "")


def _reference(text: str, at: int, shape: Shape) -> tuple[int, int]:
    """Returns the group that follows a $, and the index after it."""
    if text.startswith("{", at):
        name, closed, _ = text[at + 1 :].partition("}")
        if not closed or name not in shape.names:
            raise Refused(f"the pattern has no group <{name}>" if closed else "${ is not closed")
        number, at = shape.names[name], at + len(name) + 2
    else:
        number, at = _number(text, at, len(shape.groups))
    if number in shape.loose:
        raise Refused(
            f"group {number} is in a repetition, a look-around or an atomic group, and its text is not certain there"
        )
    return number, at


def _number(text: str, at: int, groups: int) -> tuple[int, int]:
    """Takes as many digits as there are groups for."""
    digits = text[at : at + 1]
    if not (digits.isascii() and digits.isdigit()):
        raise Refused("$ is not followed by a group")
    if int(digits) > groups:
        raise Refused(f"the pattern has no group {digits}")
    number, at = int(digits), at + 1
    while (more := text[at : at + 1]).isascii() and more.isdigit() and number * 10 + int(more) <= groups:
        number, at = number * 10 + int(more), at + 1
    return number, at


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Any:
    return regex.compile(text, regex.V1)


def _match(text: str, name: str, pattern: str) -> Any:
    try:
        return _compiled(text).fullmatch(name, timeout=MATCH_TIMEOUT_S)
    except TimeoutError:
        raise ConfigError(
            f'pattern "{pattern}" takes more than {MATCH_TIMEOUT_S:.0f} s on "{name}"',
            why="nested repetitions make the matcher try every way to cut the name",
            remedy="write the pattern without a repetition inside a repetition",
        ) from None


def _filled(parts: Sequence[Part], match: Any) -> str:
    """Fills the parts from a match; as in Java, a group that took no part in the match is empty."""
    return "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


# -- the way back


class _OneWay(Exception):
    """Why a rule cannot be reversed."""


class _Item(NamedTuple):
    """A part of the new name: bounds of its length, and its characters.

    The bounds may be too wide: the old name is checked anyway.
    """

    part: Part
    low: int
    high: int | None
    letters: Ranges
    first: Ranges
    last: Ranges

    @property
    def text(self) -> str:
        if isinstance(self.part, str):
            return "".join(write_char(ord(char)) for char in self.part)
        if not self.letters:
            return "()"
        return f"({write_set(self.letters)}{{{self.low},{'' if self.high is None else self.high}}})"


def _reversed(shape: Shape, parts: tuple[Part, ...]) -> _Back:
    before = _skeleton(shape, parts)
    items = [_item(part, shape) for part in parts]
    _check_clear(items)
    places = [part for part in parts if isinstance(part, int)]
    numbers = {group: places.index(group) + 1 for group in set(places)}
    return _Back(
        "".join(item.text for item in items),
        tuple(part if isinstance(part, str) else numbers[part] for part in before),
    )


def _skeleton(shape: Shape, parts: tuple[Part, ...]) -> list[Part]:
    """Returns the parts of a matched name, if the new name contains all of them."""
    if 0 in parts:
        return [0]
    if len(shape.branches) > 1:
        raise _OneWay("its pattern has alternatives, and the new name does not tell which; write a rule for each")
    found: list[Part] = []
    for piece in shape.branches[0]:
        if piece.literal is not None:
            found.append(piece.literal)
        elif piece.group:
            if piece.group not in parts:
                raise _OneWay(f"its replacement leaves group {piece.group} out")
            found.append(piece.group)
        elif piece.high != 0:
            raise _OneWay(
                "outside its groups its pattern matches more than one text, and the replacement has none of it; "
                "put it into a group"
            )
    return found


def _item(part: Part, shape: Shape) -> _Item:
    if isinstance(part, str):
        return _Item(part, len(part), len(part), chars(part), chars(part[0]), chars(part[-1]))
    piece = shape.groups[part] if part else shape.whole
    always = part == 0 or any(piece.group == part for branch in shape.branches for piece in branch)
    letters = union(piece.letters)
    return _Item(part, piece.low if always else 0, piece.high, letters, letters, letters)


def _check_clear(items: Sequence[_Item]) -> None:
    """Checks that a new name can be split into its parts in one way only.

    From the left an end is certain if the part's length is, or if what follows cannot be more of it; from the right
    likewise. One part in between may have any length.
    """
    left = _certain([(one, other.first if other.low else None) for one, other in pairwise(items)])
    right = _certain([(one, other.last if other.low else None) for one, other in pairwise(items[::-1])])
    left_out = items[left : len(items) - right]
    if len(left_out) > 1:
        one, other = (item.part for item in (left_out[0], left_out[-1]))
        raise _OneWay(
            f"where {_label(one)} ends and {_label(other)} begins in the new name is not certain; "
            "put a character between them that they cannot contain"
        )


def _certain(pairs: Sequence[tuple[_Item, Ranges | None]]) -> int:
    """Counts the parts, in this direction, whose end is certain; each has what may follow it, if anything must."""
    for count, (item, following) in enumerate(pairs):
        is_fixed = item.low == item.high
        if not is_fixed and (following is None or intersect(item.letters, following)):
            return count
    return len(pairs)


def _label(part: Part) -> str:
    return f'"{part}"' if isinstance(part, str) else f"group {part}" if part else "the old name"


# -- a policy with rules


@dataclass(frozen=True, slots=True)
class RenamingPolicy:
    """A policy with renaming rules; heartbeats and internal topics are not renamed."""

    base: ReplicationPolicy
    rules: tuple[tuple[str, Renames], ...]
    """The renaming rules by the alias of the source."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        renamed = None if self._is_apart(topic) else self._of(source_alias).apply(topic)
        return self.base.format_remote_topic(source_alias, topic) if renamed is None else renamed

    def origins(self, topic: str) -> Iterator[tuple[str, str]]:
        """Yields the alias and the old name of every topic that a rule gives this name."""
        if not self._is_apart(topic):
            for alias, renames in self.rules:
                yield from ((alias, name) for name in renames.origins(topic) if not self._is_apart(name))

    def topic_source(self, topic: str) -> str | None:
        origin = next(self.origins(topic), None)
        return self.base.topic_source(topic) if origin is None else origin[0]

    def upstream_topic(self, topic: str) -> str | None:
        origin = next(self.origins(topic), None)
        return self.base.upstream_topic(topic) if origin is None else origin[1]

    def original_topic(self, topic: str) -> str:
        origin = next(self.origins(topic), None)
        return self.base.original_topic(topic if origin is None else origin[1])

    def is_heartbeats_topic(self, topic: str) -> bool:
        return self.base.is_heartbeats_topic(topic)

    def is_checkpoints_topic(self, topic: str) -> bool:
        return self.base.is_checkpoints_topic(topic)

    def is_mm2_internal_topic(self, topic: str) -> bool:
        return self.base.is_mm2_internal_topic(topic)

    def is_internal_topic(self, topic: str) -> bool:
        return self.base.is_internal_topic(topic)

    def offset_syncs_topic(self, alias: str) -> str:
        return self.base.offset_syncs_topic(alias)

    def checkpoints_topic(self, alias: str) -> str:
        return self.base.checkpoints_topic(alias)

    def heartbeats_topic(self) -> str:
        return self.base.heartbeats_topic()

    def _of(self, alias: str) -> Renames:
        return next((renames for source, renames in self.rules if source == alias), Renames())

    def _is_apart(self, topic: str) -> bool:
        base = self.base
        return base.is_heartbeats_topic(topic) or base.is_internal_topic(topic) or is_own_internal_topic(topic)


def with_rules(policy: ReplicationPolicy, rules: Sequence[tuple[str, Renames]]) -> ReplicationPolicy:
    """Returns the policy with rules, or the policy itself if there are none."""
    known = tuple((alias, renames) for alias, renames in rules if renames)
    return RenamingPolicy(policy, known) if known else policy


def without_rules(policy: ReplicationPolicy) -> ReplicationPolicy:
    return policy.base if isinstance(policy, RenamingPolicy) else policy


Arrivals = tuple[tuple[str, RenamingPolicy], ...]
"""For each flow with rules, the cluster that it ends in, and its policy."""


def comes_home(policy: ReplicationPolicy, arrivals: Arrivals, topic: str, *, source: str, target: str) -> bool:
    """Tells whether a topic of the source is a copy of a topic of the target, by the rules of the flows on its way.

    A path that visits a cluster twice is not followed: such a copy would not have been made.
    """
    ways = [(source, topic, frozenset[str]())]
    while ways:
        here, name, passed = ways.pop()
        for alias, upstream in _origins(policy, arrivals, here, name):
            if alias == target:
                return True
            if alias not in passed:
                ways.append((alias, upstream, passed | {here}))
    return False


def _origins(policy: ReplicationPolicy, arrivals: Arrivals, here: str, topic: str) -> Iterator[tuple[str, str]]:
    for end, arriving in arrivals:
        if end == here:
            yield from arriving.origins(topic)
    base = without_rules(policy)
    source, upstream = base.topic_source(topic), base.upstream_topic(topic)
    if source is not None and upstream is not None and upstream != topic:
        yield source, upstream
