"""The effective settings of a file, each value with where it came from; secrets are never shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

import yaml

from heliograph.config.findings import Config, Entry
from heliograph.config.key import Key, Scope
from heliograph.config.keycheck import is_secret_name
from heliograph.config.parts import Connector, FlowParts, Parts, source_consumer, target_producer, without_copies
from heliograph.config.properties import property_line
from heliograph.config.secrets import MASK, Reference, fingerprint, shown_reference
from heliograph.config.table import KEYS, owner_of

_FLOW_SCOPES = (Scope.FLOW, Scope.FLOW_ONLY, Scope.ANYWHERE)
_WORKER_SCOPES = (Scope.WORKER, Scope.WORKER_OR_TOP)


class ShowFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"
    PROPERTIES = "properties"


class Effective(NamedTuple):
    """One value in force: of a cluster or a flow (`owner`), or of the whole mirror."""

    owner: str
    key: str
    value: str
    origin: str


def shown_value(key: str, entry: Entry) -> str:
    """A value as it may be seen: placeholders as written, secrets masked."""
    if entry.reference:
        return shown_reference(key, entry.reference)
    return MASK if is_secret_name(key) and entry.value else entry.value


def literal_secrets(parts: Iterable[Parts]) -> list[Reference]:
    """Secrets that stand in the file itself."""
    return [
        Reference("literal", "", key, f"{key} ({entry.place})", alias, fingerprint(entry.value))
        for part in parts
        for alias, config in part.clusters.items()
        for key, entry in without_copies(config).items()
        if is_secret_name(key) and entry.value and not entry.reference
    ]


def effective(parts: Iterable[Parts]) -> Iterator[Effective]:
    for part in parts:
        for key, entry in sorted(part.top.items()):
            if key.startswith(("spark.", "epoch.", "lease.")):
                yield _of_entry("", key, entry)
        for alias, config in part.clusters.items():
            for key, entry in sorted(without_copies(config).items()):
                yield _of_entry(alias, key, entry)
        for flow in part.flows:
            yield from _of_flow(flow)


def _of_flow(flow: FlowParts) -> Iterator[Effective]:
    for kind in Connector:
        if kind not in flow.connectors:
            yield Effective(flow.name, str(kind), "absent", "does not run")
        elif kind in flow.states:
            yield Effective(flow.name, str(kind), flow.states[kind], str(flow.place or "default"))
    given = flow.connectors.get(Connector.SOURCE, {})
    for key in sorted(KEYS, key=lambda key: key.name):
        if key.name.endswith(".*"):
            yield from _of_family(flow, key)
            continue
        config = _config_of(flow, key)
        entry = next((config[name] for name in (key.name, *key.old_names) if name in config), None)
        if entry is not None:
            yield _of_entry(flow.name, key.name, entry)
        elif key.default is not None and key.scope in (*_FLOW_SCOPES, *_WORKER_SCOPES):
            yield Effective(flow.name, key.name, key.default, "default")
    for prefix, clients in (
        ("source.consumer.", source_consumer(given)),
        ("producer.override.", target_producer(flow.worker, given)),
    ):
        for name, entry in sorted(clients.items()):
            yield _of_entry(flow.name, prefix + name, entry)


def _of_family(flow: FlowParts, key: Key) -> Iterator[Effective]:
    """All keys that begin as one of our own does."""
    if key.own and key.scope in _FLOW_SCOPES:
        for name, entry in sorted(_config_of(flow, key).items()):
            if name.startswith(key.name[:-1]):
                yield _of_entry(flow.name, name, entry)


def _config_of(flow: FlowParts, key: Key) -> Config:
    if key.scope in _WORKER_SCOPES:
        return flow.worker
    if key.scope not in _FLOW_SCOPES:
        return {}
    return flow.connectors.get(owner_of(key.name)) or flow.connectors.get(Connector.SOURCE, {})


def _of_entry(owner: str, key: str, entry: Entry) -> Effective:
    return Effective(owner, key, shown_value(key, entry), str(entry.place or "default"))


def render_effective(rows: Iterable[Effective], output: ShowFormat) -> str:
    if output is ShowFormat.PROPERTIES:
        lines = []
        for row in rows:
            key = f"{row.owner}.{row.key}" if row.owner else row.key
            lines += [f"# {row.origin}", property_line(key, row.value)]
        return "\n".join(lines)
    tree: dict[str, dict[str, dict[str, str]]] = {}
    for row in rows:
        tree.setdefault(row.owner or "mirror", {})[row.key] = {"value": row.value, "from": row.origin}
    if output is ShowFormat.JSON:
        return json.dumps(tree, indent=2, ensure_ascii=False)
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, width=1_000_000).rstrip()
