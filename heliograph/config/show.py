"""Shows the effective settings of a file, each value with its origin; secrets are never shown."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple

import yaml

from heliograph.config.files.parts import Connector, FlowParts, Parts, without_copies
from heliograph.config.files.properties import property_line
from heliograph.config.findings import Config, ConfigEntry
from heliograph.config.keys.key import Effect
from heliograph.config.keys.key_check import is_secret_name
from heliograph.config.keys.keys_read import (
    FLOW_SCOPES,
    WORKER_SCOPES,
    checkpoint_switch,
    client_reads,
    config_of,
    connection_reads,
    top_reads,
)
from heliograph.config.keys.table import KEYS
from heliograph.config.secrets import MASK, Reference, fingerprint, shown_reference


class ShowFormat(StrEnum):
    YAML = "yaml"
    JSON = "json"
    PROPERTIES = "properties"


class Effective(NamedTuple):
    """One effective value of a cluster or a flow (`owner`), or of the whole mirror."""

    owner: str
    key: str
    value: str
    origin: str


def shown_value(key: str, entry: ConfigEntry) -> str:
    """Returns a value as it may be shown: placeholders as written, secrets masked."""
    if entry.reference:
        return shown_reference(key, entry.reference)
    return MASK if is_secret_name(key) and entry.value else entry.value


def literal_secrets(parts: Iterable[Parts]) -> list[Reference]:
    """Lists the secrets that are written in the file itself."""
    found = {
        (key, entry): alias
        for part in parts
        for alias, config in [
            *((alias, without_copies(config)) for alias, config in part.clusters.items()),
            *(owned for flow in part.flows for owned in _of_clients(flow)),
        ]
        for key, entry in config.items()
        if is_secret_name(key) and entry.value and not entry.reference
    }
    return [
        Reference("literal", "", key, f"{key} ({entry.place})", alias, fingerprint(entry.value))
        for (key, entry), alias in found.items()
    ]


def _of_clients(flow: FlowParts) -> Iterator[tuple[str, Config]]:
    """Yields a flow's connection settings with the cluster that they connect to."""
    for name, entry in (*connection_reads(flow), *client_reads(flow)):
        is_of_cluster = entry in flow.source_cluster.values() or entry in flow.target_cluster.values()
        if not is_of_cluster:
            yield flow.source if name.startswith("source.") else flow.target, {name: entry}


def effective(parts: Iterable[Parts]) -> Iterator[Effective]:
    for part in parts:
        for key, entry in sorted(top_reads(part)):
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
            yield Effective(flow.name, str(kind), str(flow.states[kind]), str(flow.place or "default"))
    for key in sorted(KEYS, key=lambda key: key.name):
        config = config_of(flow, key)
        if key.name.endswith(".*"):
            if key.effect is Effect.HONOURED:
                yield from _of_family(flow, key.name[:-1], config)
            continue
        entry = next((config[name] for name in (key.name, *key.old_names) if name in config), None)
        if entry is not None:
            yield _of_entry(flow.name, key.name, entry)
        elif key.default is not None and key.scope in (*FLOW_SCOPES, *WORKER_SCOPES):
            yield Effective(flow.name, key.name, key.default, "default")
    for name, entry in (*checkpoint_switch(flow), *connection_reads(flow), *client_reads(flow)):
        if entry.place is not None:
            yield _of_entry(flow.name, name, entry)


def _of_family(flow: FlowParts, prefix: str, config: Config) -> Iterator[Effective]:
    for name, entry in sorted(config.items()):
        if name.startswith(prefix):
            yield _of_entry(flow.name, name, entry)


def _of_entry(owner: str, key: str, entry: ConfigEntry) -> Effective:
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
