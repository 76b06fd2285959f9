"""Reads YAML nodes as the expected types and reports the others with their file positions. Knows no field."""

from __future__ import annotations

from heliograph.config.files.yaml_tree import Mapping as Map
from heliograph.config.files.yaml_tree import Node, Scalar, Sequence
from heliograph.config.findings import Config, ConfigEntry, FilePlace, Report


class NodeReader:
    """Reads the nodes of one file."""

    def __init__(self, report: Report) -> None:
        self.report = report

    def map(self, parent: Map, name: str, path: str) -> Map | None:
        """Returns a mapping below a node; an empty one for an empty field."""
        node = parent.get(name)
        if node is None or isinstance(node, Map):
            return node
        if is_empty(node):
            return Map(parent.keys[name])
        self.report.error(
            "bad-value",
            f'"{path}.{name}" must have fields of its own',
            node.place,
            remedy="check the indentation",
        )
        return None

    def warn_empty(self, parent: Map, name: str, path: str) -> None:
        """Warns of a field without a value where its presence matters: Kubernetes drops it."""
        if is_empty(parent.get(name)):
            what = f'"{path}.{name}" is empty, which Kubernetes takes as absent'
            self.report.warn("empty-field", what, parent.keys[name], remedy=f'write "{name}: {{}}"')

    def maps(self, parent: Map, name: str, path: str) -> list[tuple[Map, str]]:
        """Returns the mappings of a list below a node, each with its path."""
        node = parent.get(name)
        if node is None or is_empty(node):
            return []
        if not isinstance(node, Sequence):
            self.report.error(
                "bad-value", f'"{path}.{name}" must be a list', node.place, remedy='begin each item with "- "'
            )
            return []
        found = []
        for index, item in enumerate(node.items):
            where = f"{path}.{name}[{index}]"
            if isinstance(item, Map):
                found.append((item, where))
            else:
                self.report.error(
                    "bad-value", f'"{where}" must have fields', item.place, remedy="check the indentation"
                )
        return found

    def scalar(self, node: Node, path: str) -> str | None:
        """Returns a text; a list of texts is joined with commas."""
        if isinstance(node, Scalar):
            return node.text or ""
        if isinstance(node, Sequence) and all(isinstance(item, Scalar) for item in node.items):
            return ",".join(item.text or "" for item in node.items if isinstance(item, Scalar))
        self.report.error("bad-value", f'"{path}" must be a single value', node.place, remedy="check the indentation")
        return None

    def required(self, parent: Map, name: str, path: str) -> ConfigEntry | None:
        node = parent.get(name)
        if node is None or is_empty(node):
            self.report.error("missing-field", f'"{path}.{name}" is missing', parent.place)
            return None
        text = self.scalar(node, f"{path}.{name}")
        return None if text is None else ConfigEntry(name, text, node.place)

    def raw_config(self, node: Map | None, path: str) -> Config:
        config: Config = {}
        for key, value in node.items.items() if node is not None else ():
            text = self.scalar(value, f"{path}.{key}")
            if text is not None and node is not None:
                config[key] = ConfigEntry(key, text, node.keys[key])
        return config

    def check_number(self, parent: Map, name: str, path: str, *, low: int) -> None:
        text = text_of(parent, name)
        if text and not (text.isdigit() and int(text[:12]) >= low):
            place = key_place(parent, name)
            self.report.error("bad-value", f'"{path}.{name}" must be a number of at least {low}, not "{text}"', place)

    def check_flag(self, text: str, path: str, place: FilePlace | None) -> None:
        if text not in ("true", "false"):
            self.report.error("bad-value", f'"{path}" must be true or false, not "{text}"', place)


def is_empty(node: Node | None) -> bool:
    return isinstance(node, Scalar) and not node.text


def text_of(node: Map | None, name: str) -> str:
    value = node.get(name) if node is not None else None
    return (value.text or "") if isinstance(value, Scalar) else ""


def texts_of(node: Map) -> dict[str, str]:
    return {key: value.text or "" for key, value in node.items.items() if isinstance(value, Scalar)}


def key_place(node: Map, name: str) -> FilePlace:
    return node.keys.get(name, node.place)
