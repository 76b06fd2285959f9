"""Parses YAML text into a tree whose nodes know their file positions.

The tree is made from the parser's events: no object is constructed, nesting needs no stack, and a file that expands
without end is refused before it does.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import yaml

from heliograph.config.findings import FilePlace
from heliograph.errors import ConfigError

MAX_DEPTH = 60
MAX_NODES = 100_000
"""Maximum number of nodes of a file with its aliases expanded; a resource of 1,000 mirrors has 30,000."""
MAX_KEY = 500
"""Maximum length of a key in characters."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NUMBER = re.compile(r"[-+]?[0-9][0-9_]*")
_resolver = yaml.resolver.Resolver()


@dataclass(slots=True)
class Scalar:
    """A value as text; booleans are always `true` and `false`; None is an empty value or `null`."""

    text: str | None
    place: FilePlace
    is_plain: bool = True
    size: int = 1


@dataclass(slots=True)
class Sequence:
    place: FilePlace
    items: list[Node] = field(default_factory=list)
    size: int = 1


@dataclass(slots=True)
class Mapping:
    place: FilePlace
    items: dict[str, Node] = field(default_factory=dict)
    keys: dict[str, FilePlace] = field(default_factory=dict)
    """The file position of each key."""
    size: int = 1

    def get(self, name: str) -> Node | None:
        return self.items.get(name)


Node = Scalar | Sequence | Mapping


def parse_documents(text: str, file: str) -> list[Node]:
    """Parses all documents of a file; empty ones are left out."""
    try:
        return [node for node in _Builder(file).documents(text) if not (isinstance(node, Scalar) and node.text is None)]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        place = FilePlace(file, mark.line + 1, mark.column + 1) if mark else None
        raise ConfigError(
            f"not valid YAML: {error.problem or error.context}",
            where=str(place or file),
            remedy="check the indentation and the quotes of this line and the one before",
            place=place,
        ) from None  # not chained: that error may quote the text around, secrets included
    except yaml.YAMLError as error:
        raise ConfigError(f"not valid YAML: {str(error).splitlines()[0]}", where=file) from None


@dataclass(slots=True)
class _Open:
    """A collection that is being built."""

    node: Sequence | Mapping
    anchor: str | None
    key: Scalar | None = None
    """The key of a mapping whose value comes next."""
    merged: list[Node] = field(default_factory=list)


class _Builder:
    def __init__(self, file: str) -> None:
        self._file = file
        self._anchors: dict[str, Node] = {}
        self._open: list[_Open] = []
        self._done = 0
        """Number of nodes in the documents before this one."""

    def documents(self, text: str) -> Iterator[Node]:
        """Builds each document from the events, with a stack of open collections."""
        for event in yaml.parse(text, Loader=_LOADER):
            done: Node | None = None
            if isinstance(event, yaml.DocumentStartEvent):
                self._anchors = {}
            elif isinstance(event, yaml.SequenceStartEvent | yaml.MappingStartEvent):
                self._begin(event)
            elif isinstance(event, yaml.SequenceEndEvent | yaml.MappingEndEvent):
                done = self._end()
            elif isinstance(event, yaml.ScalarEvent):
                done = _scalar(event, self._place(event))
                self._remember(event.anchor, done)
            elif isinstance(event, yaml.AliasEvent):
                done = self._aliased(event)
            if done is not None and self._open:
                self._attach(self._open[-1], done)
            elif done is not None:
                self._done += done.size
                yield done

    def _place(self, event: yaml.Event) -> FilePlace:
        mark = event.start_mark
        assert mark is not None
        return FilePlace(self._file, mark.line + 1, mark.column + 1)

    def _begin(self, event: yaml.SequenceStartEvent | yaml.MappingStartEvent) -> None:
        place = self._place(event)
        if len(self._open) >= MAX_DEPTH:
            raise _refusal(f"nested more than {MAX_DEPTH} deep", place)
        node = Sequence(place) if isinstance(event, yaml.SequenceStartEvent) else Mapping(place)
        self._open.append(_Open(node, event.anchor))

    def _end(self) -> Node:
        closed = self._open.pop()
        if isinstance(closed.node, Mapping):
            _apply_merges(closed.node, closed.merged)
        self._remember(closed.anchor, closed.node)
        return closed.node

    def _remember(self, anchor: str | None, node: Node) -> None:
        """Remembers an anchor once its node is complete, so that nothing can contain itself."""
        if anchor:
            self._anchors[anchor] = node

    def _aliased(self, event: yaml.AliasEvent) -> Node:
        if event.anchor not in self._anchors:
            raise _refusal(f'the alias "*{event.anchor}" has no anchor before it', self._place(event))
        return self._anchors[event.anchor]

    def _attach(self, parent: _Open, node: Node) -> None:
        parent.node.size += node.size
        if self._done + parent.node.size > MAX_NODES:
            raise _refusal(f"more than {MAX_NODES} values", parent.node.place)
        if isinstance(parent.node, Sequence):
            parent.node.items.append(node)
        elif parent.key is None:
            if not isinstance(node, Scalar):
                raise _refusal("a key must be a plain text", node.place)
            parent.key = node
        else:
            _set(parent, parent.node, parent.key, node)
            parent.key = None


def _set(parent: _Open, mapping: Mapping, key: Scalar, node: Node) -> None:
    name = (key.text or "").strip()
    if len(name) > MAX_KEY:
        raise _refusal(f"a key of {len(name)} characters", key.place)
    if name == "<<" and key.is_plain:
        parent.merged.append(node)
        return
    if name in mapping.items:
        raise _refusal(f'the key "{name}" is given twice, first in line {mapping.keys[name].line}', key.place)
    mapping.items[name], mapping.keys[name] = node, key.place


def _refusal(what: str, place: FilePlace) -> ConfigError:
    return ConfigError(what, where=str(place), place=place)


def _apply_merges(mapping: Mapping, merged_ones: list[Node]) -> None:
    """Applies `<<: *anchor`: adds keys of the other mapping that this one lacks."""
    for merged in merged_ones:
        for other in merged.items if isinstance(merged, Sequence) else [merged]:
            if isinstance(other, Mapping):
                for name, node in other.items.items():
                    if name not in mapping.items:
                        mapping.items[name], mapping.keys[name] = node, other.keys[name]


def _scalar(event: yaml.ScalarEvent, place: FilePlace) -> Scalar:
    text, plain = event.value, not event.style  # the C parser says "" where the Python one says None
    if plain and event.tag is None:
        # The library's stubs leave this one method without types.
        tag: str = _resolver.resolve(yaml.ScalarNode, text, (True, False))  # type: ignore[no-untyped-call]
        if tag.endswith(":null"):
            return Scalar(None, place)
        if tag.endswith(":bool"):
            return Scalar(str(text.lower() in ("true", "yes", "on")).lower(), place)
        if tag.endswith(":int") and _NUMBER.fullmatch(text):
            return Scalar(text.replace("_", ""), place)
    return Scalar(text, place, is_plain=plain)


def to_plain(node: Node) -> object:
    """Turns the tree into dictionaries, lists and texts, for parts that are only stored."""
    if isinstance(node, Scalar):
        return node.text
    if isinstance(node, Sequence):
        return [to_plain(item) for item in node.items]
    return {name: to_plain(item) for name, item in node.items.items()}
