"""Defines what both front ends make of a file: for each cluster and each flow the keys that its readers get.

Values are still texts, each with its file position. A property file gives all connectors of a flow the same keys, a
resource gives each its own; an absent connector does not run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from heliograph.config.findings import Config, ConfigEntry, FilePlace
from heliograph.config.keys.client_settings import ADMIN, CLIENT_NAMES

ROLES = ("consumer", "producer", "admin")


class Connector(StrEnum):
    """The three connectors that MM2 runs for a flow."""

    SOURCE = "MirrorSourceConnector"
    CHECKPOINT = "MirrorCheckpointConnector"
    HEARTBEAT = "MirrorHeartbeatConnector"


class ConnectorState(StrEnum):
    """Whether a connector should run."""

    RUNNING = "running"
    PAUSED = "paused"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowParts:
    source: str
    target: str
    worker: Config
    """The keys of MM2's worker on the target: storage topics, the producer of the copies."""
    connectors: Mapping[Connector, Config]
    source_cluster: Config = field(default_factory=dict)
    target_cluster: Config = field(default_factory=dict)
    """The keys of the two clusters, as in `Parts.clusters`."""
    states: Mapping[Connector, ConnectorState] = field(default_factory=dict)
    """States of the connectors that are not running."""
    place: FilePlace | None = None

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def first_connector(self) -> Config:
        """Returns the keys of the connector that speaks for the flow: the source connector, if it has one."""
        return next((self.connectors[kind] for kind in Connector if kind in self.connectors), {})


@dataclass(frozen=True, slots=True, kw_only=True)
class MirrorResource:
    """A `KafkaMirrorMaker2` document; `pods` keeps the fields that concern its pods."""

    name: str
    namespace: str
    api_version: str
    pods: Mapping[str, Any] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """One property file, or one document of a resource file."""

    clusters: Mapping[str, Config]
    """Each cluster's keys, with its connection settings copied to each kind of client."""
    flows: tuple[FlowParts, ...]
    top: Config
    """Keys of the whole mirror: `spark.*`, `epoch.ms`."""
    heartbeats_everywhere: bool = False
    """Whether pairs of clusters without a flow have heartbeats too, as in an MM2 started from a property file."""
    resource: MirrorResource | None = None


def with_client_copies(cluster: Config, top: Mapping[str, ConfigEntry]) -> Config:
    """Returns a cluster's keys, with its connection settings copied to each kind of client that lacks them."""
    config = dict(cluster)
    for name in CLIENT_NAMES:
        for entry in (cluster.get(name), top.get(name)):
            if entry is not None:
                for copy in (*(f"{role}.{name}" for role in ROLES), name):
                    config.setdefault(copy, entry)
    return config


def sided(config: Config, side: str) -> Config:
    """Returns a cluster's keys as a connector gets them for its source or target."""
    return {(f"{side}.{key}" if key.startswith(ROLES) else f"{side}.cluster.{key}"): e for key, e in config.items()}


def under(config: Mapping[str, ConfigEntry], prefix: str) -> Config:
    """Returns the keys below a prefix, without it."""
    return {key[len(prefix) :]: entry for key, entry in config.items() if key.startswith(prefix) and key != prefix}


def source_connection(flow: FlowParts) -> Config:
    """Collects the connection settings of the source that the flow overrides: `A->B.source.cluster.*`."""
    return _overridden(flow.first_connector, flow.source_cluster, "source")


def target_connection(flow: FlowParts) -> Config:
    """Collects the connection settings of the target that the flow overrides: `A->B.target.cluster.*`."""
    return _overridden(flow.first_connector, flow.target_cluster, "target")


def _overridden(connector: Config, cluster: Config, side: str) -> Config:
    given = under(connector, f"{side}.cluster.")
    return {key: entry for key, entry in given.items() if key in CLIENT_NAMES and cluster.get(key) is not entry}


def source_consumer(flow: FlowParts) -> Config:
    """Collects the keys that reach the consumer on the source and no other client."""
    return _own(flow.first_connector, flow.source_cluster, "consumer.", "source.consumer.")


def target_producer(flow: FlowParts) -> Config:
    """Collects the keys that reach the producer of the copies alone: the worker's, then the flow's overrides.

    `A->B.producer.x` is not among them: in MM2 it reaches the producer of offset-syncs only.
    """
    of_worker = _own(flow.worker, flow.target_cluster, "producer.")
    return of_worker | _own(flow.first_connector, flow.target_cluster, "producer.override.")


def source_admin(flow: FlowParts) -> Config:
    """Collects the keys that reach the admin client on the source alone."""
    return _admin(flow.first_connector, flow.source_cluster, "source")


def target_admin(flow: FlowParts) -> Config:
    """Collects the keys that reach the admin client on the target alone."""
    return _admin(flow.first_connector, flow.target_cluster, "target")


def _admin(connector: Config, cluster: Config, side: str) -> Config:
    given = _own(connector, cluster, "admin.", f"{side}.admin.")
    return {key: entry for key, entry in given.items() if key in ADMIN}


def _own(config: Config, cluster: Config, *prefixes: str) -> Config:
    """Returns a client's keys under some prefixes, the last of which wins, without copies of its cluster's keys."""
    return {
        key: entry
        for prefix in prefixes
        for key, entry in under(config, prefix).items()
        if cluster.get(key) is not entry
    }


def default_entries(values: Mapping[str, str]) -> Config:
    return {key: ConfigEntry(key, value) for key, value in values.items()}


def without_copies(config: Config) -> Config:
    """Returns a cluster's keys as written: without the copies of connection settings for each kind of client."""
    return {
        key: entry
        for key, entry in config.items()
        if not (key.startswith(ROLES) and config.get(key.partition(".")[2]) is entry)
    }
