"""Reads typed values of a configuration. Faults were reported by the key check; the default replaces them."""

from __future__ import annotations

from functools import cache
from typing import TypeVar

from heliograph.config.files.parts import Connector, FlowParts, under
from heliograph.config.findings import Config, ConfigEntry
from heliograph.config.keys.table import DEFAULTS, owner_of
from heliograph.config.keys.values import BadValue, Value, parse_value

_V = TypeVar("_V", bool, int, str, tuple[str, ...])


@cache
def _default_value(name: str) -> Value:
    return parse_value(DEFAULTS[name], DEFAULTS[name].default or "")


class Reader:
    """Reads typed values of one configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def entry(self, name: str) -> ConfigEntry | None:
        key = DEFAULTS[name]
        return next((self.config[n] for n in (name, *key.old_names) if n in self.config), None)

    def value(self, name: str) -> Value:
        key, entry = DEFAULTS[name], self.entry(name)
        if entry is not None and not entry.is_missing:
            try:
                return parse_value(key, entry.value)
            except BadValue:
                pass
        return _default_value(name)

    def shown(self, name: str) -> str:
        """Returns the value for a message; a placeholder is shown instead of its value."""
        entry = self.entry(name)
        return entry.reference if entry is not None and entry.reference else str(self.value(name))

    def _typed(self, name: str, kind: type[_V]) -> _V:
        value = self.value(name)
        assert isinstance(value, kind), name
        return value

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def number(self, name: str) -> int:
        return self._typed(name, int)

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def items(self, name: str) -> tuple[str, ...]:
        return self._typed(name, tuple)

    def family(self, prefix: str) -> Config:
        """Returns all keys with a prefix, without it."""
        return under(self.config, prefix)


class Connectors(Reader):
    """Reads typed values of a flow, each key from the connector that it belongs to."""

    def __init__(self, parts: FlowParts) -> None:
        self._readers = {kind: Reader(config) for kind, config in parts.connectors.items()}
        present = [kind for kind in Connector if kind in parts.connectors]
        super().__init__(parts.connectors[present[0]] if present else {})

    def entry(self, name: str) -> ConfigEntry | None:
        reader = self._readers.get(owner_of(name))
        return super().entry(name) if reader is None or reader.config is self.config else reader.entry(name)

    def family(self, prefix: str) -> Config:
        reader = self._readers.get(owner_of(prefix))
        return super().family(prefix) if reader is None else reader.family(prefix)
