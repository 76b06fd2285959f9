"""Tells which entries of a configuration are read, and as which key; the others have no effect. Pure.

`config show` prints these entries; the loader reports written keys that are not among them and would act elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heliograph.config.files.parts import (
    ROLES,
    Connector,
    FlowParts,
    Parts,
    source_admin,
    source_connection,
    source_consumer,
    target_admin,
    target_connection,
    target_producer,
    without_copies,
)
from heliograph.config.findings import Config, ConfigEntry, Report
from heliograph.config.keys.client_settings import CLIENT_NAMES
from heliograph.config.keys.key import Effect, Key, Scope, Where
from heliograph.config.keys.lookup import find_key
from heliograph.config.keys.table import KEYS, OF_THE_WHOLE, OTHER_HEARTBEATS, owner_of

FLOW_SCOPES = (Scope.FLOW, Scope.FLOW_ONLY, Scope.ANYWHERE)
WORKER_SCOPES = (Scope.WORKER, Scope.WORKER_OR_TOP)
BLOCKS = {
    Connector.SOURCE: "sourceConnector",
    Connector.CHECKPOINT: "checkpointConnector",
    Connector.HEARTBEAT: "heartbeatConnector",
}
"""The field of a resource for each connector."""

Read = tuple[str, ConfigEntry]
"""A key as its reader names it, and the entry that the reader gets."""


def top_reads(part: Parts) -> Iterator[Read]:
    """Yields the entries that concern the whole mirror."""
    others = OTHER_HEARTBEATS[: None if part.heartbeats_everywhere else 1] if part.resource is not None else ()
    for key, entry in part.top.items():
        if key.startswith(OF_THE_WHOLE) or key in others:
            yield key, entry


def config_of(flow: FlowParts, key: Key) -> Config:
    """Returns the keys among which an entry of the table is looked up."""
    if key.scope in WORKER_SCOPES:
        return flow.worker
    if key.scope not in FLOW_SCOPES:
        return {}
    return flow.connectors.get(owner_of(key.name), flow.first_connector)


def connection_reads(flow: FlowParts) -> Iterator[Read]:
    """Yields the flow's overrides of its clusters' connection settings."""
    for side, config in (("source", source_connection(flow)), ("target", target_connection(flow))):
        yield from ((f"{side}.cluster.{name}", entry) for name, entry in sorted(config.items()))


def client_reads(flow: FlowParts) -> Iterator[Read]:
    """Yields the additional keys of single clients of the flow."""
    for prefix, config in (
        ("source.admin.", source_admin(flow)),
        ("source.consumer.", source_consumer(flow)),
        ("target.admin.", target_admin(flow)),
        ("producer.override.", target_producer(flow)),
    ):
        yield from ((prefix + name, entry) for name, entry in sorted(config.items()))


def checkpoint_switch(flow: FlowParts) -> Iterator[Read]:
    """Yields a checkpoint connector's own `enabled`; it may differ from the source connector's."""
    entry = flow.connectors.get(Connector.CHECKPOINT, {}).get("enabled")
    if entry is not None and entry is not flow.connectors.get(Connector.SOURCE, {}).get("enabled"):
        yield f"{Connector.CHECKPOINT}.enabled", entry


def _flow_reads(flow: FlowParts) -> Iterator[Read]:
    for key in KEYS:
        config = config_of(flow, key)
        if key.name.endswith(".*"):
            yield from ((name, entry) for name, entry in config.items() if name.startswith(key.name[:-1]))
        else:
            yield from ((key.name, config[name]) for name in (key.name, *key.old_names) if name in config)
    yield from connection_reads(flow)
    yield from client_reads(flow)
    yield from checkpoint_switch(flow)


def report_unread(parts: Iterable[Parts], report: Report) -> None:
    """Reports each key that would have an effect elsewhere and that nobody reads where it is written."""
    for part in parts:
        _report_of_clusters(part, report)
        if part.resource is not None:
            _report_of_top(part, report)
            for flow in part.flows:
                _report_of_connectors(flow, report)


def _acts(where: Where, name: str, entry: ConfigEntry) -> bool:
    """Tells whether a written key would have an effect if it were read."""
    key = find_key(where, name).key if entry.place is not None else None
    return key is not None and key.effect is Effect.HONOURED


def _report_of_clusters(part: Parts, report: Report) -> None:
    sources, targets = {flow.source for flow in part.flows}, {flow.target: flow for flow in part.flows}
    for alias, config in part.clusters.items():
        for name, entry in without_copies(config).items():
            if name in CLIENT_NAMES or name == "client.id":
                continue
            what, remedy = _unread_at_cluster(name, entry, alias in sources, targets.get(alias))
            if what and _acts(Where.CLUSTER, name, entry):
                report.inform("no-effect", f'"{entry.key}" has no effect: {what}', entry, remedy=remedy)


def _unread_at_cluster(name: str, entry: ConfigEntry, is_source: bool, ending: FlowParts | None) -> tuple[str, str]:
    """Explains why a cluster's key is not read, and what to do; empty if it is. `ending` is a flow into the cluster."""
    role = name.partition(".")[0]
    if role == "consumer":
        return ("" if is_source else "no flow has this cluster as its source"), ""
    if role == "admin" and is_source:
        return "", ""
    if name.startswith("replication.policy."):
        return "names are set for flows", f"write it at the top level, or as <A>-><B>.{name}"
    if ending is None:
        return "no flow has this cluster as its target", "" if role in ROLES else "write it at the target"
    is_read = role in ROLES or ending.worker.get(name) is entry
    return ("" if is_read else "the key at the top level wins"), ""


def _report_of_top(part: Parts, report: Report) -> None:
    read = {id(entry) for _, entry in top_reads(part)}
    for name, entry in part.top.items():
        if id(entry) not in read and _acts(Where.TOP, name, entry):
            remedy = "write it in the config of the connectors"
            report.inform("no-effect", f'"{entry.key}" has no effect in an annotation', entry, remedy=remedy)


def _report_of_connectors(flow: FlowParts, report: Report) -> None:
    read = {id(entry) for _, entry in _flow_reads(flow)}
    for kind, config in flow.connectors.items():
        for name, entry in config.items():
            if id(entry) in read or not _acts(Where.FLOW, name, entry):
                continue
            owner = owner_of(name)
            there = flow.connectors.get(owner, flow.first_connector).get(name)
            if there is not None and there.value == entry.value:
                continue  # MM2's connectors want the same value in several of them
            meant = (
                "write emit.heartbeats.enabled" if name == "enabled" else f"write it in the config of {BLOCKS[owner]}"
            )
            what = f'"{entry.key}" of {BLOCKS[kind]} has no effect in {flow.name}'
            report.inform("no-effect", what, entry, remedy=meant)
