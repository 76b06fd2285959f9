"""Loads and calls custom classes, named in a configuration as `python:module.Class`.

They are looked for on the Python path of the driver and of the commands; lanes do not use them. Whatever such a class
does wrong becomes an error that names it.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from heliograph.errors import ConfigError

PREFIX = "python:"
HINT = "python:module.Class for a class of your own on the Python path (docs/naming.md)"
_NAME = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")


@dataclass(frozen=True, slots=True)
class CustomObject:
    """An object of a custom class. Two are equal if their class names and properties are."""

    name: str
    properties: tuple[tuple[str, str], ...] = field(repr=False)
    instance: Any = field(compare=False, repr=False)

    def text(self, method: str, *arguments: str) -> str:
        answer = self._ask(method, arguments)
        if not isinstance(answer, str):
            raise self._misfit(method, arguments, answer, "a text")
        return answer

    def maybe_text(self, method: str, *arguments: str) -> str | None:
        answer = self._ask(method, arguments)
        if answer is not None and not isinstance(answer, str):
            raise self._misfit(method, arguments, answer, "a text or None")
        return answer

    def flag(self, method: str, *arguments: str) -> bool:
        answer = self._ask(method, arguments)
        if not isinstance(answer, bool):
            raise self._misfit(method, arguments, answer, "True or False")
        return answer

    def _ask(self, method: str, arguments: tuple[str, ...]) -> Any:
        try:
            return getattr(self.instance, method)(*arguments)
        except Exception as error:  # custom code may raise anything
            raise ConfigError(
                f"{self._call(method, arguments)} failed: {type(error).__name__}: {error}", remedy="fix the class"
            ) from error

    def _misfit(self, method: str, arguments: tuple[str, ...], answer: object, wanted: str) -> ConfigError:
        what = f"{self._call(method, arguments)} gave {type(answer).__name__}, not {wanted}"
        return ConfigError(what, remedy="fix the class")

    def _call(self, method: str, arguments: tuple[str, ...]) -> str:
        return f"{self.name}: {method}({', '.join(map(repr, arguments))})"


def is_custom(class_name: str) -> bool:
    return class_name.strip().startswith(PREFIX)


def make_custom(class_name: str, protocol: type, properties: Mapping[str, str]) -> CustomObject:
    """Loads the class, makes an object with the properties, checks that it has every method of the protocol."""
    name = class_name.strip()
    made = _made(name, _load(name), dict(properties))
    methods = [method for method in vars(protocol) if not method.startswith("_")]
    missing = [method for method in methods if not callable(getattr(made, method, None))]
    if missing:
        raise ConfigError(
            f"{name} lacks {', '.join(missing)}",
            why=f"such a class needs the methods {', '.join(methods)}",
            remedy="add what is missing (docs/naming.md has an example)",
        )
    return CustomObject(name, tuple(sorted(properties.items())), made)


def _load(name: str) -> Any:
    path = name.removeprefix(PREFIX).strip()
    if not _NAME.fullmatch(path):
        raise ConfigError(f'"{name}" names no class', remedy="write python:module.Class")
    module, _, attribute = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute, None)
    except Exception as error:  # loading runs custom code
        raise ConfigError(
            f'the module "{module}" of {name} cannot be loaded: {type(error).__name__}: {error}',
            remedy="add its folder to PYTHONPATH, and check that the module can be imported",
        ) from error
    if not isinstance(found, type):
        raise ConfigError(f'the module "{module}" has no class "{attribute}"', remedy="write python:module.Class")
    return found


def _made(name: str, kind: Any, properties: dict[str, str]) -> Any:
    try:
        return kind(properties)
    except Exception as error:  # custom code may raise anything
        raise ConfigError(
            f"{name} cannot be created: {type(error).__name__}: {error}",
            why="it is called with one argument, the flow's properties as a dict",
            remedy="fix its __init__",
        ) from error
