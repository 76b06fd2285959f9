"""Plans the server processes of a cluster: ports, properties files and Java commands; starts nothing.

A node is one process: a broker (with its controller, from 3.x on) or the ZooKeeper of an old cluster.
"""

from __future__ import annotations

import uuid
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from heliograph.lab.jars import JavaCommand, java_command
from heliograph.lab.listeners import (
    CONTROLLER,
    CONTROLLER_ENTRY,
    DETOUR,
    DETOUR_ENTRY,
    LISTENERS,
    REPLICATION,
    REPLICATION_ENTRY,
    broker_name,
)
from heliograph.lab.secured import Secured
from heliograph.lab.spec import TEST_JVM, ClusterSpec

ZOOKEEPER_ID = 0

_BROKER_DEFAULTS = {
    "auto.create.topics.enable": "false",
    "background.threads": "2",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "num.io.threads": "4",
    "num.network.threads": "2",
    "num.recovery.threads.per.data.dir": "1",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "5",
}
_KAFKA_4_DEFAULTS = {
    "group.coordinator.threads": "1",
    "share.coordinator.threads": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "5",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """A planned server process, and the files it uses. Broker ids start at 1; ZooKeeper is 0."""

    alias: str
    node_id: int
    port: int
    folder: Path
    log_file: Path
    properties: Mapping[str, str]
    jars: Path
    spec: ClusterSpec
    extra_ports: Mapping[str, int] = field(default_factory=dict)
    """Ports of the listeners beside the plain one; includes the controller's where a detour leads to it."""

    @property
    def is_broker(self) -> bool:
        return self.node_id != ZOOKEEPER_ID

    @property
    def name(self) -> str:
        return f"{self.alias}-{self.node_id}" if self.is_broker else f"{self.alias}-zookeeper"

    @property
    def properties_file(self) -> Path:
        return self.folder / "server.properties"

    def start_command(self) -> JavaCommand:
        main_class = "kafka.Kafka" if self.is_broker else "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        return java_command(
            self.jars,
            main_class,
            str(self.properties_file),
            jvm=self.spec.jvm if self.is_broker else TEST_JVM,
            options=(
                "-Dheliograph.log.level=INFO",
                f"-Djava.io.tmpdir={self.folder}",  # native codec libraries are unpacked there
                f"-XX:ErrorFile={self.log_file.with_suffix('.crash')}",
                "-XX:+ExitOnOutOfMemoryError",
            ),
        )

    def format_command(self, cluster_id: str) -> JavaCommand:
        """Returns the command that makes a KRaft node's log folder."""
        arguments = ("format", "-t", cluster_id, "-c", str(self.properties_file))
        return java_command(self.jars, "kafka.tools.StorageTool", *arguments, jvm=TEST_JVM)


def new_cluster_id() -> str:
    """Makes a random id; never one that begins with a dash, which Kafka's tools would take for an option."""
    while (text := urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")).startswith("-"):
        continue
    return text


def count_ports(spec: ClusterSpec) -> int:
    """Counts the listeners of all brokers, then ZooKeeper's or one controller listener for each broker."""
    return spec.brokers * (1 + len(spec.listeners)) + (1 if spec.has_zookeeper else spec.brokers)


def plan_nodes(
    spec: ClusterSpec, ports: Sequence[int], *, jars: Path, data: Path, logs: Path, secured: Secured | None = None
) -> tuple[Node, ...]:
    """Plans the nodes of a cluster in the order to start them."""
    width = 1 + len(spec.listeners)
    broker_ports = [ports[at : at + width] for at in range(0, spec.brokers * width, width)]
    inner_ports = ports[spec.brokers * width :]
    voter_ports = [of_broker[width - 1] for of_broker in broker_ports] if spec.inner_detoured else inner_ports

    def node(node_id: int, port: int, properties: Mapping[str, str], extra: Sequence[int] = ()) -> Node:
        name = f"{spec.alias}-{node_id}" if node_id else f"{spec.alias}-zookeeper"
        folder = data / name
        return Node(
            alias=spec.alias,
            node_id=node_id,
            port=port,
            folder=folder,
            log_file=logs / f"{name}.log",
            properties={**properties, "dataDir" if node_id == ZOOKEEPER_ID else "log.dirs": str(folder / "log")},
            jars=jars,
            spec=spec,
            extra_ports=_named_ports(spec, node_id, extra, inner_ports) if node_id else {},
        )

    brokers = tuple(
        node(
            broker_id,
            port,
            broker_properties(spec, broker_id, (port, *extra), inner_ports, secured, voter_ports=voter_ports),
            extra,
        )
        for broker_id, (port, *extra) in enumerate(broker_ports, start=1)
    )
    if spec.has_zookeeper:
        return (node(ZOOKEEPER_ID, inner_ports[0], _zookeeper_properties(inner_ports[0])), *brokers)
    return brokers


def _named_ports(spec: ClusterSpec, broker_id: int, extra: Sequence[int], inner_ports: Sequence[int]) -> dict[str, int]:
    named = dict(zip(spec.listeners, extra, strict=True))
    return {**named, CONTROLLER: inner_ports[broker_id - 1]} if spec.inner_detoured else named


def broker_properties(
    spec: ClusterSpec,
    broker_id: int,
    ports: Sequence[int],
    inner_ports: Sequence[int],
    secured: Secured | None = None,
    *,
    voter_ports: Sequence[int] = (),
) -> dict[str, str]:
    """Builds the properties of one broker; `ports` are those of its plain listener and of the others.

    `voter_ports` are where controllers are reached, if that is not where they listen.
    """
    factor = str(min(3, spec.brokers))
    port = ports[0]
    properties = {
        **_BROKER_DEFAULTS,
        "offsets.topic.replication.factor": factor,
        "transaction.state.log.replication.factor": factor,
        **(_zookeeper_mode(broker_id, port, inner_ports) if spec.has_zookeeper else {}),
        **(_kraft_mode(broker_id, port, inner_ports, voter_ports or inner_ports) if not spec.has_zookeeper else {}),
    }
    if spec.version.startswith("4."):
        properties |= {**_KAFKA_4_DEFAULTS, "share.coordinator.state.topic.replication.factor": factor}
    extra = dict(zip(spec.listeners, ports[1:], strict=True))
    if spec.detoured:
        _add_detour(properties, extra.pop(DETOUR), extra.pop(DETOUR_ENTRY))
    if spec.inner_detoured:
        _add_inner_detour(properties, extra.pop(REPLICATION), extra.pop(REPLICATION_ENTRY), extra.pop(CONTROLLER_ENTRY))
    if secured is not None:
        _add_listeners(properties, extra, broker_id, secured)
        properties |= secured.broker_properties(broker_id)
    if spec.racks:
        properties["broker.rack"] = spec.racks[broker_id - 1]
    return {**properties, **spec.config}


def _add_listeners(properties: dict[str, str], ports: Mapping[str, int], broker_id: int, secured: Secured) -> None:
    for name, port in ports.items():
        address = f"127.0.0.1:{port}"
        routed = f"{broker_name(secured.alias, broker_id)}:{secured.proxy_port}"
        properties["listeners"] += f",{name}://{address}"
        properties["advertised.listeners"] += f",{name}://{routed if name == 'SNI' else address}"
        properties["listener.security.protocol.map"] += f",{name}:{LISTENERS[name]}"


def _add_detour(properties: dict[str, str], port: int, entry: int) -> None:
    properties["listeners"] += f",{DETOUR}://127.0.0.1:{port}"
    properties["advertised.listeners"] += f",{DETOUR}://127.0.0.1:{entry}"
    properties["listener.security.protocol.map"] += f",{DETOUR}:PLAINTEXT"


def _add_inner_detour(properties: dict[str, str], port: int, entry: int, controller_entry: int) -> None:
    properties["listeners"] += f",{REPLICATION}://127.0.0.1:{port}"
    properties["advertised.listeners"] += (
        f",{REPLICATION}://127.0.0.1:{entry},{CONTROLLER}://127.0.0.1:{controller_entry}"
    )
    properties["listener.security.protocol.map"] += f",{REPLICATION}:PLAINTEXT"
    properties["inter.broker.listener.name"] = REPLICATION


def format_properties(properties: Mapping[str, str]) -> str:
    """Formats a properties file; keys and values here need no escapes but the backslash's."""
    return "".join(f"{key}={value}\n" for key, value in sorted(properties.items())).replace("\\", "\\\\")


def _kraft_mode(
    broker_id: int, port: int, controller_ports: Sequence[int], voter_ports: Sequence[int]
) -> dict[str, str]:
    voters = ",".join(f"{node_id}@127.0.0.1:{inner}" for node_id, inner in enumerate(voter_ports, start=1))
    return {
        "process.roles": "broker,controller",
        "node.id": str(broker_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_ports[broker_id - 1]}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": voters,
        "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
    }


def _zookeeper_mode(broker_id: int, port: int, inner_ports: Sequence[int]) -> dict[str, str]:
    return {
        "broker.id": str(broker_id),
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "zookeeper.connect": f"127.0.0.1:{inner_ports[0]}",
        "zookeeper.connection.timeout.ms": "60000",
    }


def _zookeeper_properties(port: int) -> dict[str, str]:
    return {
        "admin.enableServer": "false",
        "clientPort": str(port),
        "clientPortAddress": "127.0.0.1",
        "maxClientCnxns": "0",
        "tickTime": "2000",
    }
