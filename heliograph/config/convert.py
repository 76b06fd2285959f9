"""A configuration written in the other form, from its parts. Loading the result gives the same settings.

Secrets written in clear do not go along: a placeholder takes their place, and their values are handed
back, for the caller to put where the placeholder looks.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import javaproperties
import yaml

from heliograph.config.clients import CLIENT_NAMES
from heliograph.config.findings import Config, Entry
from heliograph.config.keycheck import is_secret_name
from heliograph.config.layering import BYTE_ARRAY_CONVERTER
from heliograph.config.parts import ROLES, Connector, FlowParts, Parts, without_copies
from heliograph.config.resource import ALLOWED_IN_CONFIG, ANNOTATION
from heliograph.config.secrets import secret_reference
from heliograph.config.table import owner_of
from heliograph.errors import ConfigError

_STATE_KEYS = {
    Connector.SOURCE: "state",
    Connector.CHECKPOINT: "checkpoints.state",
    Connector.HEARTBEAT: "heartbeats.state",
}
_BLOCKS = {
    Connector.SOURCE: "sourceConnector",
    Connector.CHECKPOINT: "checkpointConnector",
    Connector.HEARTBEAT: "heartbeatConnector",
}
_EMIT = {Connector.CHECKPOINT: "emit.checkpoints.enabled", Connector.HEARTBEAT: "emit.heartbeats.enabled"}
_FROM_THE_TOP = ("spark.", "epoch.", "lease.")
_SHARED = {
    Connector.SOURCE: (),
    Connector.CHECKPOINT: ("topics", "replication.policy.", "offset-syncs.topic.location", "emit.offset-syncs."),
    Connector.HEARTBEAT: ("replication.policy.",),
}
"""Keys that a connector needs besides its own."""


@dataclass(slots=True)
class Converted:
    text: str = ""
    secrets: dict[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """Values that were written in clear, by the secret and key that now stand for them."""


def to_properties(parts: Sequence[Parts]) -> Converted:
    """One property file of all parts."""
    result = Converted()
    lines: dict[str, str] = {"clusters": ", ".join(dict.fromkeys(alias for part in parts for alias in part.clusters))}
    for part in parts:
        for key, entry in part.top.items():
            if key.startswith(_FROM_THE_TOP):
                _put(lines, key, _written(key, entry, "", result))
    everywhere = any(part.heartbeats_everywhere for part in parts)
    lines["emit.heartbeats.enabled"] = str(everywhere).lower()
    for part in parts:
        for alias, config in part.clusters.items():
            for key, entry in without_copies(config).items():
                _put(lines, f"{alias}.{key}", _written(key, entry, alias, result))
        for flow in part.flows:
            for key, value in _worker_lines(flow, part, result):
                _put(lines, f"{flow.target}.{key}", value)
            for key, value in _flow_lines(flow, part, result):
                _put(lines, f"{flow.name}.{key}", value)
    result.text = "".join(f"{javaproperties.escape(key)} = {_escaped(value)}\n" for key, value in lines.items())
    return result


def _escaped(value: str) -> str:
    """A value as Java reads it back: no more escapes than it needs, ASCII only."""
    text = (
        value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t").replace("\f", "\\f")
    )
    text = "\\" + text if text.startswith(" ") else text
    units = ((c, c.encode("utf-16-be").hex()) for c in text)
    return "".join(
        c if " " <= c <= "~" else "".join(f"\\u{code[at : at + 4]}" for at in range(0, len(code), 4))
        for c, code in units
    )


def _put(lines: dict[str, str], key: str, value: str) -> None:
    if lines.setdefault(key, value) != value:
        raise ConfigError(
            f'two documents give different values for "{key}", and a property file has room for one',
            remedy="convert the documents one by one",
        )


def _worker_lines(flow: FlowParts, part: Parts, result: Converted) -> Iterator[tuple[str, str]]:
    """The worker's keys that are not the cluster's own: a resource's defaults, which differ from MM2's."""
    cluster = part.clusters[flow.target]
    for key, entry in flow.worker.items():
        if key not in cluster and key != "client.id" and entry.value != BYTE_ARRAY_CONVERTER:
            yield key, _written(key, entry, flow.target, result)


def _flow_lines(flow: FlowParts, part: Parts, result: Converted) -> Iterator[tuple[str, str]]:
    source = flow.connectors.get(Connector.SOURCE, {})
    enabled = source.get("enabled")
    yield "enabled", enabled.value if enabled is not None else "false"
    if "name" in source:
        yield "name", source["name"].value
    for kind, config in flow.connectors.items():
        for key, entry in _own_keys(config, flow, part):
            is_owner = owner_of(key) is kind or (kind is Connector.SOURCE and owner_of(key) not in flow.connectors)
            if is_owner and key not in ("enabled", "name") and key not in _STATE_KEYS.values():
                yield key, _written(key, entry, flow.source, result)
    for kind, key in _EMIT.items():
        if kind not in flow.connectors:
            yield key, "false"
        elif key not in flow.connectors[kind]:
            yield key, "true"
    for kind, state in flow.states.items():
        yield _STATE_KEYS[kind], state


def _own_keys(config: Config, flow: FlowParts, part: Parts) -> Iterator[tuple[str, Entry]]:
    """A connector's keys without its defaults and without what it has from its clusters."""
    source, target = part.clusters.get(flow.source, {}), part.clusters.get(flow.target, {})
    for key, entry in config.items():
        if entry.place is None or key in CLIENT_NAMES or _is_from(source, "source", key, entry):
            continue
        if not _is_from(target, "target", key, entry):
            yield key, entry


def _is_from(cluster: Config, side: str, key: str, entry: Entry) -> bool:
    for prefix in (f"{side}.cluster.", f"{side}."):
        if key.startswith(prefix) and cluster.get(key[len(prefix) :]) is entry:
            return True
    return False


# -- resources


def to_resources(parts: Sequence[Parts], *, name: str = "heliograph") -> Converted:
    """A document for each flow: each has the group and the storage topics that MM2 would give it."""
    result = Converted()
    documents = [_document(flow, part, name, result) for part in parts for flow in part.flows]
    result.text = yaml.safe_dump_all(
        documents, sort_keys=False, allow_unicode=True, explicit_start=True, width=1_000_000
    )
    return result


def _document(flow: FlowParts, part: Parts, name: str, result: Converted) -> dict[str, Any]:
    top = {key: entry for key, entry in part.top.items() if key.startswith(_FROM_THE_TOP)}
    annotations = {f"{ANNOTATION}{key}": _written(key, entry, "", result) for key, entry in top.items()}
    if part.heartbeats_everywhere:
        annotations[f"{ANNOTATION}emit.heartbeats.enabled"] = "true"
    label = re.sub(r"[^a-z0-9-]+", "-", f"{name}-{flow.source}-{flow.target}".lower()).strip("-")
    mirror: dict[str, Any] = {"sourceCluster": flow.source, "targetCluster": flow.target}
    for kind, config in flow.connectors.items():
        mirror[_BLOCKS[kind]] = _connector(kind, config, flow, part, result)
    return {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"name": label} | ({"annotations": annotations} if annotations else {}),
        "spec": {
            "replicas": 1,
            "connectCluster": flow.target,
            "clusters": [
                _cluster(alias, flow, part, result) for alias in part.clusters if alias in _needed(flow, part)
            ],
            "mirrors": [mirror],
        },
    }


def _needed(flow: FlowParts, part: Parts) -> set[str]:
    """The flow's two clusters; those that no flow has go with the first one."""
    mentioned = {alias for other in part.flows for alias in (other.source, other.target)}
    extra = set(part.clusters) - mentioned if flow is part.flows[0] else set()
    return {flow.source, flow.target} | extra


def _cluster(alias: str, flow: FlowParts, part: Parts, result: Converted) -> dict[str, Any]:
    config = without_copies(part.clusters[alias])
    servers = config.get("bootstrap.servers")
    protocol = config.get("security.protocol")
    kind = protocol.value.strip().upper() if protocol is not None else "PLAINTEXT"
    security: dict[str, str] = {}
    own: dict[str, str] = {}
    for key, entry in config.items():
        if key in ("bootstrap.servers", "security.protocol") or (key.startswith(ROLES) and alias != flow.target):
            continue  # a source's clients are configured in its connector
        is_security = key.startswith(("ssl.", "sasl.")) and key not in ALLOWED_IN_CONFIG
        (security if is_security else own)[key] = _written(key, entry, alias, result)
    if alias == flow.target:
        own |= {
            key: _written(key, entry, alias, result)
            for key, entry in flow.worker.items()
            if key not in part.clusters[alias] or part.clusters[alias][key] is not entry
            if key not in CLIENT_NAMES and key != "client.id" and entry.value != BYTE_ARRAY_CONVERTER
        }
    node: dict[str, Any] = {"alias": alias, "bootstrapServers": servers.reference or servers.value if servers else ""}
    if kind.endswith("SSL"):
        node["tls"] = {}
    if security or kind.startswith("SASL"):
        node["authentication"] = {"type": "custom", "sasl": kind.startswith("SASL"), "config": security}
    return node | ({"config": own} if own else {})


def _connector(kind: Connector, config: Config, flow: FlowParts, part: Parts, result: Converted) -> dict[str, Any]:
    source = part.clusters.get(flow.source, {})
    own = {
        key: _written(key, entry, flow.source, result)
        for key, entry in _own_keys(config, flow, part)
        if (owner_of(key) is kind or key.startswith(_SHARED[kind])) and key not in _STATE_KEYS.values()
    }
    # What a source gives to its clients has no place in the resource but here.
    if kind is Connector.SOURCE:
        own |= {
            f"source.{key}": _written(key, entry, flow.source, result)
            for key, entry in without_copies(source).items()
            if key.startswith(ROLES) and f"source.{key}" not in own
        }
    own["name"] = config["name"].value
    own["enabled"] = config["enabled"].value
    state = flow.states.get(kind)
    return {"config": own} | ({"state": str(state)} if state is not None else {})


def _written(key: str, entry: Entry, owner: str, result: Converted) -> str:
    """The value as it may be written: placeholders as they were, secrets by a placeholder of ours."""
    if entry.reference:
        return entry.reference
    if not is_secret_name(key) or not entry.value:
        return entry.value
    secret = re.sub(r"[^a-z0-9-]+", "-", f"{owner}-credentials".lower()).strip("-")
    result.secrets[secret, key] = entry.value
    return secret_reference(secret, key)


def write_secret_files(folder: Path, secrets: Mapping[tuple[str, str], str]) -> None:
    """One folder for each secret, one file for each key; for the owner's eyes only."""
    for (secret, key), value in secrets.items():
        place = folder / secret
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(place / key, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(value)
