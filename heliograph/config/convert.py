"""Writes a configuration in the other form, from its parts. Loading the result gives the same settings.

Secrets written in clear are replaced by placeholders; their values are returned, for the caller to store where the
placeholders look. What the other form cannot express is an error.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import yaml

from heliograph.config.files.layers import BYTE_ARRAY_CONVERTER
from heliograph.config.files.parts import ROLES, Connector, ConnectorState, FlowParts, Parts, without_copies
from heliograph.config.files.properties import property_line
from heliograph.config.files.resource import ALLOWED_IN_CONFIG, ANNOTATION
from heliograph.config.findings import Config, ConfigEntry
from heliograph.config.keys.client_settings import CLIENT_NAMES
from heliograph.config.keys.key import Scope, Where
from heliograph.config.keys.key_check import is_secret_name
from heliograph.config.keys.keys_read import BLOCKS
from heliograph.config.keys.lookup import find_key
from heliograph.config.keys.table import DEFAULTS, OF_THE_WHOLE, OTHER_HEARTBEATS, owner_of
from heliograph.config.load import Loaded, inspect_content
from heliograph.config.secrets import Resolver, secret_reference, shown_reference
from heliograph.config.settings import ClusterSettings, Flow, Settings
from heliograph.errors import ConfigError

_OF_THE_WHOLE = ("spark", "epoch_ms", "lease_ms", "executor_secrets", "executor_packages")
_STATE_KEYS = {
    Connector.SOURCE: "state",
    Connector.CHECKPOINT: "checkpoints.state",
    Connector.HEARTBEAT: "heartbeats.state",
}
_EMIT = {Connector.CHECKPOINT: "emit.checkpoints.enabled", Connector.HEARTBEAT: "emit.heartbeats.enabled"}
_SHARED = {
    Connector.SOURCE: (),
    Connector.CHECKPOINT: ("topics", "replication.policy.", "offset-syncs.topic.location", "emit.offset-syncs."),
    Connector.HEARTBEAT: ("replication.policy.",),
}
"""Keys that a connector needs besides its own."""
_BY_SOURCE = {
    "group.id": "{}-mm2",
    "offset.storage.topic": "mm2-offsets.{}.internal",
    "config.storage.topic": "mm2-configs.{}.internal",
    "status.storage.topic": "mm2-status.{}.internal",
}
"""A target's keys whose defaults differ from flow to flow in a property file."""
_OF_WORKERS = (Scope.WORKER, Scope.WORKER_OR_TOP)
_WITHOUT_EFFECT = ("listeners", "plugin.path", "rest.", "security.providers")
"""Keys of a cluster that a resource refuses and that have no effect here."""
_DUMPER = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


@dataclass(slots=True)
class Converted:
    text: str = field(default="", repr=False)
    secrets: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """Values that were written in clear, by the secret and key of the placeholder that replaces them."""


def convert(loaded: Loaded, *, name: str = "heliograph", resolver: Resolver | None = None) -> Converted:
    """Converts a file to the other form, loads the result and compares; raises ConfigError if the meaning would change.

    `resolver` is configured like the one that the file was loaded with.
    """
    settings = loaded.valid_settings()
    if loaded.is_resource:
        converted, file = to_properties(loaded.parts), "the property file"
    else:
        converted, file = to_resources(loaded.parts, name=name), "the resource"
    resolver = resolver or Resolver()
    resolver = replace(resolver, given={**resolver.given, **converted.secrets}, references=[], offline=True)
    suffix = ".properties" if loaded.is_resource else ".yaml"
    again = inspect_content(converted.text.encode(), f"converted{suffix}", resolver=resolver).valid_settings()
    different = list(_differences(settings, again))
    if different:
        raise ConfigError(
            f"{file} would mean something else: {', '.join(different)}",
            where=loaded.file,
            remedy="make the flows and clusters alike in this, or convert them one by one",
        )
    return converted


def _differences(one: Settings, other: Settings) -> Iterator[str]:
    """Names the differences; without values, which may be secrets."""
    flows, clusters = {flow.name: flow for flow in other.flows}, other.clusters
    for flow in one.flows:
        yield from _different_fields(flow, flows.get(flow.name), flow.name)
    for alias, cluster in one.clusters.items():
        yield from _different_fields(cluster, clusters.get(alias), f'cluster "{alias}"')
    if [flow.name for flow in one.flows] != [flow.name for flow in other.flows]:
        yield "the flows"
    if one.clusters.keys() != clusters.keys():
        yield "the clusters"
    if list(one.heartbeat_pairs().items()) != list(other.heartbeat_pairs().items()):
        yield "the pairs with heartbeats"
    if any(getattr(one, name) != getattr(other, name) for name in _OF_THE_WHOLE):
        yield "spark.*, epoch.ms, lease.ms, executor.secrets or executor.packages"


def _different_fields(one: Flow | ClusterSettings, other: Flow | ClusterSettings | None, name: str) -> Iterator[str]:
    if other is None:
        yield name
        return
    for item in fields(one):
        if item.compare and getattr(one, item.name) != getattr(other, item.name):
            yield f"{item.name.replace('_', ' ')} of {name}"


# -- property files


def to_properties(parts: Sequence[Parts]) -> Converted:
    """Writes all parts as one property file."""
    result = Converted()
    lines: dict[str, str] = {}
    for key, value in _all_lines(parts, result):
        if lines.setdefault(key, value) != value:
            raise ConfigError(
                f'two documents give different values for "{key}", and a property file can hold only one',
                remedy="convert the documents one by one",
            )
    result.text = "".join(f"{property_line(key, value)}\n" for key, value in lines.items())
    return result


def _all_lines(parts: Sequence[Parts], result: Converted) -> Iterator[tuple[str, str]]:
    """Yields keys and values; a key may come twice."""
    yield "clusters", ", ".join(dict.fromkeys(alias for part in parts for alias in part.clusters))
    for part in parts:
        top = {key: entry for key, entry in part.top.items() if key.startswith(OF_THE_WHOLE)}
        yield from ((key, _written(key, entry, "", result)) for key, entry in (top | _other_heartbeats(part)).items())
    yield "emit.heartbeats.enabled", str(any(part.heartbeats_everywhere for part in parts)).lower()
    for part in parts:
        for alias, config in part.clusters.items():
            for key, value in _cluster_lines(config, alias, result):
                yield f"{alias}.{key}", value
        for flow in part.flows:
            for key, value in _worker_lines(flow, part, result):
                yield f"{flow.target}.{key}", value
    yield from _lines_by_target([flow for part in parts for flow in part.flows], result)
    for part in parts:
        for flow in part.flows:
            for key, value in _flow_lines(flow, part, result):
                yield f"{flow.name}.{key}", value


def _other_heartbeats(part: Parts) -> Config:
    """Returns the top-level keys that configure heartbeats of pairs without a flow."""
    keys = OTHER_HEARTBEATS[1:] if part.heartbeats_everywhere else ()
    return {key: part.top[key] for key in keys if key in part.top}


def _cluster_lines(config: Config, alias: str, result: Converted) -> Iterator[tuple[str, str]]:
    for key, entry in without_copies(config).items():
        if key not in _BY_SOURCE and _is_known(Where.CLUSTER, key):
            yield key, _written(key, entry, alias, result)


def _is_known(where: Where, key: str) -> bool:
    """Tells whether a key has an effect there; a key without effect is not converted."""
    return find_key(where, key).key is not None


def _worker_lines(flow: FlowParts, part: Parts, result: Converted) -> Iterator[tuple[str, str]]:
    """Yields the worker's keys that are not the cluster's own: a resource's defaults, where they differ from MM2's."""
    cluster = part.clusters[flow.target]
    for key, entry in flow.worker.items():
        if key in cluster or key in _BY_SOURCE or key == "client.id" or entry.value == BYTE_ARRAY_CONVERTER:
            continue
        yield key, _written(key, entry, flow.target, result)


def _lines_by_target(flows: Sequence[FlowParts], result: Converted) -> Iterator[tuple[str, str]]:
    """Yields group and storage topics: all flows into a target share them unless each has its source's default."""
    by_target: dict[str, list[FlowParts]] = {}
    for flow in flows:
        by_target.setdefault(flow.target, []).append(flow)
    for target, ending in by_target.items():
        for key, default in _BY_SOURCE.items():
            values = [_written(key, flow.worker[key], target, result) for flow in ending]
            if values == [default.format(flow.source) for flow in ending]:
                continue
            if len(set(values)) > 1:
                raise ConfigError(
                    f'the flows into "{target}" have different values for {key}, and a property file can hold only one',
                    remedy="convert the documents one by one",
                )
            yield f"{target}.{key}", values[0]


def _flow_lines(flow: FlowParts, part: Parts, result: Converted) -> Iterator[tuple[str, str]]:
    first = next((flow.connectors[kind] for kind in Connector if kind in flow.connectors), {})
    source = flow.connectors.get(Connector.SOURCE)
    _check_checkpoints(flow)
    yield "enabled", _written("enabled", source["enabled"], "", result) if source is not None else "false"
    yield "name", _written("name", first["name"], "", result)
    apart = {"enabled", "name", *_EMIT.values(), *(_STATE_KEYS[kind] for kind in flow.states)}
    for config in flow.connectors.values():
        for key, entry in _own_keys(config, flow, part):
            is_read = config is flow.connectors.get(owner_of(key), first)
            if is_read and key not in apart and _is_known(Where.FLOW, key):
                yield key, _written(key, entry, flow.source, result)
    for kind, key in _EMIT.items():
        given = flow.connectors.get(kind)
        if given is None or (kind is Connector.CHECKPOINT and not _flag(given, "enabled")):
            yield key, "false"
        else:
            yield key, _written(key, given[key], "", result) if key in given else "true"
    for kind, state in flow.states.items():
        yield _STATE_KEYS[kind], state
    beats = flow.connectors.get(Connector.HEARTBEAT, {})
    for key in _other_heartbeats(part):  # top-level keys are for pairs without a flow
        if key not in beats and key not in apart:
            yield key, DEFAULTS[key].default or ""


def _check_checkpoints(flow: FlowParts) -> None:
    """Refuses a checkpoint connector alone: a property file has one switch for it and the source connector."""
    source, checkpoint = flow.connectors.get(Connector.SOURCE), flow.connectors.get(Connector.CHECKPOINT)
    if checkpoint is None or not (_flag(checkpoint, "enabled") and _flag(checkpoint, _EMIT[Connector.CHECKPOINT])):
        return
    if source is None or not _flag(source, "enabled"):
        raise ConfigError(
            f"{flow.name} has a checkpoint connector without a source connector, which a property file cannot express",
            where=str(flow.place or ""),
            remedy="remove the checkpoint connector, or add a source connector whose state is stopped",
        )


def _flag(config: Config, key: str) -> bool:
    entry = config.get(key)
    text = DEFAULTS[key].default if entry is None or entry.is_missing else entry.value
    return (text or "").strip().lower() == "true"


def _own_keys(config: Config, flow: FlowParts, part: Parts) -> Iterator[tuple[str, ConfigEntry]]:
    """Yields a connector's keys without its defaults and without those inherited from its clusters."""
    source, target = part.clusters.get(flow.source, {}), part.clusters.get(flow.target, {})
    for key, entry in config.items():
        if entry.place is None or key in CLIENT_NAMES or _is_from(source, "source", key, entry):
            continue
        if not _is_from(target, "target", key, entry):
            yield key, entry


def _is_from(cluster: Config, side: str, key: str, entry: ConfigEntry) -> bool:
    for prefix in (f"{side}.cluster.", f"{side}."):
        if key.startswith(prefix) and cluster.get(key[len(prefix) :]) is entry:
            return True
    return False


# -- resources


def to_resources(parts: Sequence[Parts], *, name: str = "heliograph") -> Converted:
    """Writes one document per flow, each with the group and the storage topics that MM2 would give it."""
    result = Converted()
    documents: dict[str, dict[str, Any]] = {}
    for part in parts:
        for flow in part.flows:
            label = _unused(_label(f"{name}-{flow.source}-{flow.target}"), documents)
            documents[label] = _document(flow, part, label, result)
    if not documents:
        raise ConfigError(
            "the file has no flow, and a resource can only describe flows", remedy='write "A->B.enabled = true"'
        )
    result.text = yaml.dump_all(
        documents.values(), Dumper=_DUMPER, sort_keys=False, allow_unicode=True, explicit_start=True, width=1_000_000
    )
    return result


def _label(text: str) -> str:
    """Returns the name with only the characters that Kubernetes allows."""
    return re.sub(r"[^a-z0-9-]+", "-", text.lower()).strip("-") or "mirror"


def _unused(text: str, used: Mapping[str, object]) -> str:
    number = 2
    candidate = text
    while candidate in used:
        candidate, number = f"{text}-{number}", number + 1
    return candidate


def _document(flow: FlowParts, part: Parts, label: str, result: Converted) -> dict[str, Any]:
    top = {key: entry for key, entry in part.top.items() if key.startswith(OF_THE_WHOLE)}
    annotations = {f"{ANNOTATION}{key}": _written(key, entry, "", result) for key, entry in top.items()}
    if part.heartbeats_everywhere:
        annotations[f"{ANNOTATION}emit.heartbeats.enabled"] = "true"
    annotations |= {f"{ANNOTATION}{k}": _written(k, entry, "", result) for k, entry in _other_heartbeats(part).items()}
    mirror: dict[str, Any] = {"sourceCluster": flow.source, "targetCluster": flow.target}
    for kind, config in flow.connectors.items():
        mirror[BLOCKS[kind]] = _connector(kind, config, flow, part, result)
    # The first document names all clusters: their order is that of the flows, and some may have no flow.
    aliases = [alias for alias in part.clusters if flow is part.flows[0] or alias in (flow.source, flow.target)]
    return {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": label} | ({"annotations": annotations} if annotations else {}),
        "spec": {
            "replicas": 1,
            "connectCluster": flow.target,
            "clusters": [_cluster(alias, flow, part, result) for alias in aliases],
            "mirrors": [mirror],
        },
    }


def _cluster(alias: str, flow: FlowParts, part: Parts, result: Converted) -> dict[str, Any]:
    config = without_copies(part.clusters[alias])
    servers = config.get("bootstrap.servers")
    if servers is None or not servers.value.strip():
        raise ConfigError(
            f'cluster "{alias}" has no bootstrap servers, which a resource needs',
            remedy='remove it from "clusters", or give it some',
        )
    protocol = config.get("security.protocol")
    kind = protocol.value.strip().upper() if protocol is not None else "PLAINTEXT"
    security: dict[str, str] = {}
    own: dict[str, str] = {}
    for key, entry in config.items():
        if _is_written_at_cluster(key, is_target=alias == flow.target):
            is_security = key.startswith(("ssl.", "sasl.")) and key not in ALLOWED_IN_CONFIG
            (security if is_security else own)[key] = _written(key, entry, alias, result)
    if alias == flow.target:
        own |= {key: _written(key, entry, alias, result) for key, entry in _worker_keys(flow, part)}
    node: dict[str, Any] = {"alias": alias, "bootstrapServers": _written("bootstrap.servers", servers, alias, result)}
    if kind.endswith("SSL"):
        node["tls"] = {}
    if security or kind.startswith("SASL"):
        node["authentication"] = {"type": "custom", "sasl": kind.startswith("SASL"), "config": security}
    return node | ({"config": own} if own else {})


def _is_written_at_cluster(key: str, *, is_target: bool) -> bool:
    """Tells whether a key is written at the cluster: a source has no worker, its connector has its clients' keys."""
    if key in ("bootstrap.servers", "security.protocol") or key.startswith(_WITHOUT_EFFECT):
        return False
    if not is_target and key != "client.id" and (key.startswith(ROLES) or _is_of_worker(key)):
        return False
    return _is_known(Where.CLUSTER, key)


def _is_of_worker(key: str) -> bool:
    return key in DEFAULTS and DEFAULTS[key].scope in _OF_WORKERS


def _worker_keys(flow: FlowParts, part: Parts) -> Iterator[tuple[str, ConfigEntry]]:
    """Yields the worker's keys from the top level, and the defaults in which a resource differs."""
    cluster = part.clusters[flow.target]
    for key, entry in flow.worker.items():
        if cluster.get(key) is entry or key in CLIENT_NAMES or key == "client.id":
            continue
        is_needed = not key.startswith("replication.policy.") and entry.value != BYTE_ARRAY_CONVERTER
        if is_needed and _is_known(Where.CLUSTER, key):
            yield key, entry


def _connector(kind: Connector, config: Config, flow: FlowParts, part: Parts, result: Converted) -> dict[str, Any]:
    own = {
        key: _written(key, entry, flow.source, result)
        for key, entry in _own_keys(config, flow, part)
        if (owner_of(key) is kind or key.startswith(_SHARED[kind])) and _is_known(Where.FLOW, key)
    }
    # A resource has no other field for the client settings of a source.
    if kind is Connector.SOURCE:
        own |= {
            f"source.{key}": _written(key, entry, flow.source, result)
            for key, entry in without_copies(part.clusters.get(flow.source, {})).items()
            if key.startswith(ROLES) and f"source.{key}" not in own and _is_known(Where.FLOW, f"source.{key}")
        }
    for key in ("name", "enabled"):
        own[key] = _written(key, config[key], "", result)
    state = flow.states.get(kind) or _plain_state(config.get(_STATE_KEYS[kind]))
    if state is None:
        return {"config": own}
    own.pop(_STATE_KEYS[kind], None)
    return {"config": own, "state": str(state)}


def _plain_state(entry: ConfigEntry | None) -> ConnectorState | None:
    """Returns a state that fits the resource's field for it, or None; a placeholder does not fit."""
    return ConnectorState(entry.value.strip().lower()) if entry is not None and not entry.reference else None


# -- secrets


def _written(key: str, entry: ConfigEntry, owner: str, result: Converted) -> str:
    """Returns the value that may be written: placeholders as they were, a clear secret as a new placeholder."""
    if entry.reference and shown_reference(key, entry.reference) == entry.reference:
        return entry.reference
    if not is_secret_name(key) or not entry.value:
        return entry.value
    if entry.is_missing:
        raise ConfigError(
            f'"{entry.key}" has a secret in clear beside a placeholder that cannot be resolved',
            where=str(entry.place or ""),
            remedy="give the folder of the mounted secrets with --secrets",
        )
    secret, name = _label(f"{owner}-credentials"), re.sub(r"[^A-Za-z0-9._-]", "-", key)
    number, candidate = 2, name
    while result.secrets.setdefault((secret, candidate), entry.value) != entry.value:
        number, candidate = number + 1, f"{name}-{number}"
    return secret_reference(secret, candidate)


def write_secret_files(folder: Path, secrets: Mapping[tuple[str, str], str]) -> None:
    """Writes one folder per secret with one file per key, readable by the owner only."""
    for (secret, key), value in secrets.items():
        place = folder / secret
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(place / key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        os.fchmod(descriptor, 0o600)  # the file may have existed
        with os.fdopen(descriptor, "wb") as file:
            # Reading strips one final line end, which editors add; this one protects a value that ends with one.
            file.write((f"{value}\n" if value.endswith("\n") else value).encode("utf-8", "surrogateescape"))
