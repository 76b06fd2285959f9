"""Defines an entry of the table of keys: type, default, scope, effect."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import Any

from heliograph.config.keys.client_settings import ValueKind


class Where(StrEnum):
    """The three levels of a file at which a key may be written."""

    TOP = "top level"
    FLOW = "<A>-><B>."
    CLUSTER = "<X>."


class Scope(Enum):
    """Who reads a key, and so at which levels it works; `label` is the word in the docs."""

    GLOBAL = ("global", (Where.TOP,))
    FLOW = ("flow", (Where.TOP, Where.FLOW))
    FLOW_ONLY = ("flow", (Where.FLOW,))
    WORKER = ("target", (Where.CLUSTER,))
    WORKER_OR_TOP = ("target", (Where.TOP, Where.CLUSTER))
    ANYWHERE = ("flow or target", (Where.TOP, Where.FLOW, Where.CLUSTER))
    CONNECTION = ("cluster", (Where.TOP, Where.CLUSTER))

    def __init__(self, label: str, places: tuple[Where, ...]) -> None:
        self.label = label
        self.places = places


class Effect(StrEnum):
    HONOURED = "honoured"
    LATER = "no effect yet"
    POINTLESS = "no effect"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """One entry of the table. A name that ends with `.*` stands for all keys with that prefix."""

    name: str
    kind: ValueKind
    default: str | None
    scope: Scope
    effect: Effect
    meaning: str
    low: int | None = None
    also: tuple[int, ...] = ()
    choices: tuple[str, ...] = ()
    allowed: tuple[str, ...] = ()
    """Values that a refused key may have, because they ask for nothing."""
    old_names: tuple[str, ...] = ()
    own: bool = False


def row(  # noqa: PLR0917  rows read as columns
    name: str, kind: ValueKind, default: str | None, scope: Scope, effect: Effect, meaning: str, **more: Any
) -> Key:
    """Builds an entry as the tables write it: what every key has in columns, the rest by name."""
    return replace(Key(name=name, kind=kind, default=default, scope=scope, effect=effect, meaning=meaning), **more)
