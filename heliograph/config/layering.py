"""How a key reaches a flow: MM2's layers, in its order. No types, no defaults of values.

The connector's configuration: top level < cluster-derived < `A->B.`. The worker's: the target's keys
< some top-level prefixes. Every derived key keeps the entry it came from, and so its place.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from heliograph.config.clients import CLIENT_NAMES
from heliograph.config.properties import Entry

Config = dict[str, Entry]

WORKER_PREFIXES = (
    "offset.storage", "config.storage", "status.storage", "key.converter", "value.converter", "header.converter",
    "task", "worker", "replication.policy",
)  # fmt: skip
"""Top-level keys that begin so reach the worker, even against the target's own ones."""

BYTE_ARRAY_CONVERTER = "org.apache.kafka.connect.converters.ByteArrayConverter"
SOURCE_CONNECTOR = "org.apache.kafka.connect.mirror.MirrorSourceConnector"
_ROLES = ("consumer", "producer", "admin")


@dataclass(frozen=True, slots=True)
class Layers:
    """The raw keys, sorted by what they are written under."""

    top: Config
    clusters: dict[str, Config]
    """Each cluster's keys, its connection settings copied to each kind of client."""
    flows: dict[tuple[str, str], Config]
    for_connectors: Config
    """Top-level keys that every connector gets."""
    for_workers: Config
    """Top-level keys that every worker gets."""


def make_layers(entries: Mapping[str, Entry], aliases: Collection[str], connector_names: Collection[str]) -> Layers:
    """Sort the keys; `connector_names` are those that a connector takes from the top level."""
    known = frozenset(aliases)
    clusters: dict[str, Config] = {alias: {} for alias in aliases}
    flows: dict[tuple[str, str], Config] = {}
    for key, entry in entries.items():
        for prefix, rest in _prefixes(key):
            if prefix in known:
                clusters[prefix][rest] = entry
            elif (flow := _flow_of(prefix, known)) is not None:
                flows.setdefault(flow, {})[rest] = entry
    shared = ("config.providers", "replication.policy")
    return Layers(
        top=dict(entries),
        clusters={alias: _with_client_copies(config, entries) for alias, config in clusters.items()},
        flows=flows,
        for_connectors={k: e for k, e in entries.items() if k in connector_names or k.startswith(shared)},
        for_workers={k: e for k, e in entries.items() if k.startswith((*WORKER_PREFIXES, "config.providers"))},
    )


def pair_starts(layers: Layers, source: str, target: str) -> bool:
    """Whether MM2 would start anything for the pair: it is enabled, or has heartbeats."""
    flow = layers.flows.get((source, target), {})
    heartbeats = _java_boolean(layers.top.get("emit.heartbeats.enabled"), default=True)
    return _java_boolean(flow.get("enabled"), default=False) or _java_boolean(
        flow.get("emit.heartbeats.enabled"), default=heartbeats
    )


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
    return _default_entries(defaults) | config


def connector_config(layers: Layers, source: str, target: str) -> Config:
    """What the source connector of the flow is given."""
    config = dict(layers.for_connectors)
    for side, alias in (("source", source), ("target", target)):
        for key, entry in layers.clusters[alias].items():
            config[f"{side}.{key}" if key.startswith(_ROLES) else f"{side}.cluster.{key}"] = entry
    defaults = {
        "name": SOURCE_CONNECTOR.rpartition(".")[2],
        "connector.class": SOURCE_CONNECTOR,
        "source.cluster.alias": source,
        "target.cluster.alias": target,
        "enabled": "false",
    }
    return _default_entries(defaults) | config | layers.flows.get((source, target), {})


def source_consumer(connector: Config) -> Config:
    """What the consumer on the source is given."""
    return _client(connector, "source", "consumer")


def target_producer(worker: Config, connector: Config) -> Config:
    """What the producer of the data is given: the worker's, then the flow's overrides.

    `A->B.producer.x` is not among them: in MM2 it reaches the producer of offset-syncs only.
    """
    return _under(worker, "producer.") | _under(connector, "producer.override.")


def _client(connector: Config, side: str, role: str) -> Config:
    cluster = {k: e for k, e in _under(connector, f"{side}.cluster.").items() if k in CLIENT_NAMES}
    return cluster | _under(connector, f"{role}.") | _under(connector, f"{side}.{role}.")


def _under(config: Config, prefix: str) -> Config:
    return {key[len(prefix) :]: entry for key, entry in config.items() if key.startswith(prefix) and key != prefix}


def _prefixes(key: str) -> Iterable[tuple[str, str]]:
    at = key.find(".")
    while at >= 0:
        if at + 1 < len(key):
            yield key[:at], key[at + 1 :]
        at = key.find(".", at + 1)


def _flow_of(prefix: str, aliases: frozenset[str]) -> tuple[str, str] | None:
    source, arrow, target = prefix.partition("->")
    return (source, target) if arrow and source in aliases and target in aliases else None


def _with_client_copies(cluster: Config, top: Mapping[str, Entry]) -> Config:
    config = dict(cluster)
    for name in CLIENT_NAMES:
        for entry in (cluster.get(name), top.get(name)):
            if entry is not None:
                for copy in (*(f"{role}.{name}" for role in _ROLES), name):
                    config.setdefault(copy, entry)
    return config


def _java_boolean(entry: Entry | None, *, default: bool) -> bool:
    return default if entry is None else entry.value.lower() == "true"


def _default_entries(values: dict[str, str]) -> Config:
    return {key: Entry(key, value) for key, value in values.items()}
