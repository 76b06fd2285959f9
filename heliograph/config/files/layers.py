"""Applies MM2's layers: how a key of a property file reaches a flow, in MM2's order. No types, no defaults of values.

The connector's configuration: top level < cluster-derived < `A->B.`. The worker's: the target's keys < some top-level
prefixes. Every derived key keeps the entry it came from, and so its file position.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from heliograph.config.files.parts import Connector, default_entries, sided, with_client_copies
from heliograph.config.findings import Config, ConfigEntry

WORKER_PREFIXES = (
    "offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter",
    "task", "worker", "replication.policy",
)  # fmt: skip
"""Prefixes of top-level keys that reach the worker, even against the target's own ones."""

OWN_FAMILIES = ("topic.rename.", "group.rename.", "python.", "start.position.")
"""Prefixes of heliograph's own keys that reach every flow from the top level."""

BYTE_ARRAY_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
CONNECTOR_PACKAGE = "org.apache.kafka.connect.mirror"


@dataclass(frozen=True, slots=True)
class Layers:
    """The raw keys, sorted by the prefix they are written under."""

    top: Config
    clusters: dict[str, Config]
    """Each cluster's keys, with its connection settings copied to each kind of client."""
    flows: dict[tuple[str, str], Config]
    for_connectors: Config
    """Top-level keys that every connector gets."""
    for_workers: Config
    """Top-level keys that every worker gets."""


def make_layers(
    entries: Mapping[str, ConfigEntry], aliases: Collection[str], connector_names: Collection[str]
) -> Layers:
    """Sorts the keys; `connector_names` are those that a connector takes from the top level."""
    known = frozenset(aliases)
    clusters: dict[str, Config] = {alias: {} for alias in aliases}
    flows: dict[tuple[str, str], Config] = {}
    for key, entry in entries.items():
        for prefix, rest in _prefixes(key):
            if prefix in known:
                clusters[prefix][rest] = entry
            elif (flow := _flow_of(prefix, known)) is not None:
                flows.setdefault(flow, {})[rest] = entry
    shared = ("config.providers", "replication.policy", *OWN_FAMILIES)
    return Layers(
        top=dict(entries),
        clusters={alias: with_client_copies(config, entries) for alias, config in clusters.items()},
        flows=flows,
        for_connectors={k: e for k, e in entries.items() if k in connector_names or k.startswith(shared)},
        for_workers={k: e for k, e in entries.items() if k.startswith((*WORKER_PREFIXES, "config.providers"))},
    )


def pair_starts(layers: Layers, source: str, target: str) -> bool:
    """Tells whether MM2 would start anything for the pair: it is enabled, or has heartbeats."""
    flow = layers.flows.get((source, target), {})
    return _java_boolean(flow.get("enabled"), default=False) or _java_boolean(
        flow.get("emit.heartbeats.enabled"), default=heartbeats_everywhere(layers)
    )


def heartbeats_everywhere(layers: Layers) -> bool:
    """Tells whether pairs without keys of their own have heartbeats."""
    return _java_boolean(layers.top.get("emit.heartbeats.enabled"), default=True)


def worker_config(layers: Layers, source: str, target: str) -> Config:
    config = layers.clusters[target] | layers.for_workers
    defaults = {
        "client.id": f"{source}->{target}",
        "group.id": f"{source}-mm2",
        "offset.storage.topic": f"mm2-offsets.{source}.internal",
        "status.storage.topic": f"mm2-status.{source}.internal",
        "config.storage.topic": f"mm2-configs.{source}.internal",
        "key.converter": BYTE_ARRAY_CONVERTER,
        "value.converter": BYTE_ARRAY_CONVERTER,
        "header.converter": BYTE_ARRAY_CONVERTER,
    }
    return default_entries(defaults) | config


def connector_config(layers: Layers, source: str, target: str, connector: Connector = Connector.SOURCE) -> Config:
    """Collects the keys that a connector of the flow gets."""
    defaults = {
        "name": connector.value,
        "connector.class": f"{CONNECTOR_PACKAGE}.{connector.value}",
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "enabled": "false",
    }
    return (
        default_entries(defaults)
        | layers.for_connectors
        | sided(layers.clusters[source], "source")
        | sided(layers.clusters[target], "target")
        | layers.flows.get((source, target), {})
    )


def _prefixes(key: str) -> Iterable[tuple[str, str]]:
    at = key.find(".")
    while at >= 0:
        if at + 1 < len(key):
            yield key[:at], key[at + 1 :]
        at = key.find(".", at + 1)


def _flow_of(prefix: str, aliases: frozenset[str]) -> tuple[str, str] | None:
    source, arrow, target = prefix.partition("->")
    return (source, target) if arrow and source in aliases and target in aliases else None


def _java_boolean(entry: ConfigEntry | None, *, default: bool) -> bool:
    return default if entry is None else entry.value.lower() == "true"
