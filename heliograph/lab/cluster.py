"""Runs real Kafka clusters on this machine, for tests, the demo and benchmarks.

    with Lab(folder) as lab:
        lab.start([ClusterSpec(alias="primary"), ClusterSpec(alias="backup", brokers=3)])
        lab.cluster("primary").bootstrap

A cluster is ready when every broker answers and lists all the others. The servers end with this process, however
it ends (see keeper.py), unless the lab was detached.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from heliograph.errors import LabError
from heliograph.java import find_java
from heliograph.lab import proxy
from heliograph.lab.folder import BrokerRecord, LabFolder, LabRecord, RunningProcess
from heliograph.lab.jars import JavaCommand, ensure_jars, java_command
from heliograph.lab.keeper_client import KeeperClient
from heliograph.lab.pki import write_private
from heliograph.lab.probe import fetch_broker_ids, is_listening
from heliograph.lab.progress import Progress, silent
from heliograph.lab.secured import Secured
from heliograph.lab.servers import Node, count_ports, format_properties, new_cluster_id, plan_nodes
from heliograph.lab.spec import DEFAULT_VERSION, TEST_JVM, ClusterSpec, Jvm

_START_TIMEOUT_S = 120.0
_STOP_TIMEOUT_S = 30.0
_LOG_TAIL_LINES = 15


class LabCluster:
    """A cluster of the lab. Broker ids start at 1."""

    def __init__(self, spec: ClusterSpec, nodes: Sequence[Node], lab: Lab, secured: Secured | None = None) -> None:
        self.spec = spec
        self.secured = secured
        """Keys, users and client settings; None if the cluster has its plain listener only."""
        self.nodes = tuple(nodes)
        self._lab = lab
        self._processes: dict[int, RunningProcess] = {}

    @property
    def alias(self) -> str:
        return self.spec.alias

    @property
    def brokers(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if node.is_broker)

    @property
    def bootstrap(self) -> str:
        """Returns `bootstrap.servers` with all brokers, running or not."""
        return ",".join(f"127.0.0.1:{node.port}" for node in self.brokers)

    @property
    def running_ids(self) -> frozenset[int]:
        return frozenset(node.node_id for node in self.brokers if node.node_id in self._processes)

    @property
    def pids(self) -> dict[int, int]:
        """Returns process ids of the running brokers by broker id; ZooKeeper's is under 0."""
        return {node_id: process.pid for node_id, process in self._processes.items()}

    def port(self, broker_id: int) -> int:
        return self._node(broker_id).port

    @property
    def proxy_name(self) -> str:
        return f"{self.alias}-proxy"

    @property
    def _proxy_log(self) -> Path:
        return self._lab.folder.logs / f"{self.proxy_name}.log"

    def log_file(self, broker_id: int) -> Path:
        return self._node(broker_id).log_file

    def stop_broker(self, broker_id: int, *, timeout_s: float = _STOP_TIMEOUT_S) -> None:
        """Shuts a broker down cleanly; kills it after `timeout_s`."""
        self._lab.keeper.stop(self._running(broker_id).name, timeout_s=timeout_s)
        self._forget(broker_id)

    def kill_broker(self, broker_id: int) -> None:
        """Kills a broker with SIGKILL."""
        self._lab.keeper.kill(self._running(broker_id).name)
        self._forget(broker_id)

    def signal_broker(self, broker_id: int, number: int) -> None:
        """Sends any signal, for example SIGSTOP and SIGCONT to freeze a broker for a while."""
        self._lab.keeper.send_signal(self._running(broker_id).name, number)

    def start_broker(self, broker_id: int, *, timeout_s: float = _START_TIMEOUT_S) -> None:
        """Starts a stopped or killed broker on its old port and data, and waits until it is back."""
        if broker_id in self._processes:
            raise LabError(f'broker {broker_id} of "{self.alias}" runs already')
        self.launch([self._node(broker_id)])
        self.wait_until_ready(timeout_s=timeout_s)

    def launch(self, nodes: Sequence[Node]) -> None:
        """Starts processes without waiting."""
        for node in nodes:
            self._processes[node.node_id] = self._lab.keeper.start(
                node.name, node.start_command(), cwd=node.folder, log=node.log_file, last=not node.is_broker
            )
        self._lab.write_record()

    def launch_proxy(self, secured: Secured) -> None:
        """Starts the SNI proxy as a child of the keeper, like the brokers; it ends with the lab."""
        routes = [f"{name}={','.join(map(str, ports))}" for name, ports in secured.routes().items()]
        # Run by its path and isolated, like the keeper: it needs the standard library only.
        argv = [sys.executable, "-I", proxy.__file__, str(secured.proxy_port), *routes]
        command = JavaCommand(argv, {})
        self._lab.keeper.start(self.proxy_name, command, cwd=secured.folder, log=self._proxy_log)

    def wait_for_proxy(self, secured: Secured, *, timeout_s: float) -> None:
        """Waits until the proxy answers; raises LabError."""
        deadline = time.monotonic() + timeout_s
        while not is_listening(secured.proxy_port):
            if self.proxy_name in self._lab.keeper.exit_codes() or time.monotonic() > deadline:
                log_file = self._proxy_log
                raise LabError(f'the proxy of "{self.alias}" does not answer', where=str(log_file), why=tail(log_file))
            time.sleep(0.1)

    def wait_until_ready(self, *, timeout_s: float) -> None:
        """Waits until every running broker answers and lists all running ones. Raises LabError."""
        deadline = time.monotonic() + timeout_s
        waiting = set(self.running_ids)
        while waiting:
            self._lab.check_alive([node for node in self.nodes if node.node_id in self._processes])
            waiting -= {broker_id for broker_id in waiting if self._is_ready(broker_id)}
            if waiting and time.monotonic() > deadline:
                node = self._node(min(waiting))
                raise LabError(
                    f'broker {node.node_id} of "{self.alias}" does not answer after {timeout_s:.0f} s',
                    where=str(node.log_file),
                    why=tail(node.log_file),
                )
            time.sleep(0.1 if waiting else 0)

    def records(self) -> list[BrokerRecord]:
        return [
            BrokerRecord(
                alias=self.alias,
                broker=node.node_id,
                port=node.port,
                version=self.spec.version,
                process=self._processes.get(node.node_id),
            )
            for node in self.brokers
        ]

    def _is_ready(self, broker_id: int) -> bool:
        seen = fetch_broker_ids(self._node(broker_id).port)
        return seen is not None and seen >= self.running_ids

    def _node(self, node_id: int) -> Node:
        for node in self.nodes:
            if node.node_id == node_id:
                return node
        raise LabError(f'cluster "{self.alias}" has no broker {node_id}')

    def _running(self, broker_id: int) -> Node:
        node = self._node(broker_id)
        if broker_id not in self._processes:
            raise LabError(f'broker {broker_id} of "{self.alias}" is not running')
        return node

    def _forget(self, broker_id: int) -> None:
        del self._processes[broker_id]
        self._lab.write_record()


class Lab:
    """The clusters in one folder. Nothing is started or written before the first `start`."""

    def __init__(self, folder: Path | str, *, progress: Progress = silent) -> None:
        self.folder = LabFolder(folder)
        self._progress = progress
        self._keeper: KeeperClient | None = None
        self._clusters: dict[str, LabCluster] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @property
    def keeper(self) -> KeeperClient:
        if self._keeper is None:
            raise LabError("the lab is not up", where=str(self.folder.path))
        return self._keeper

    @property
    def clusters(self) -> tuple[LabCluster, ...]:
        return tuple(self._clusters.values())

    def cluster(self, alias: str) -> LabCluster:
        if alias not in self._clusters:
            raise LabError(f'the lab has no cluster "{alias}"', why=f"it has {', '.join(self._clusters) or 'none'}")
        return self._clusters[alias]

    def start(
        self,
        specs: Sequence[ClusterSpec],
        *,
        timeout_s: float = _START_TIMEOUT_S,
        before_launch: Callable[[LabCluster], object] = lambda _: None,
    ) -> None:
        """Starts clusters beside those that run, all at once; all are ready on return, or none is left.

        `before_launch` gets each cluster when its ports are known and nothing of it runs.
        """
        self._check_aliases(specs)
        find_java()
        if self._keeper is None:
            self._keeper = KeeperClient(self.folder)
        jars = {version: ensure_jars(version, progress=self._progress) for version in {s.version for s in specs}}
        clusters = [self._plan(spec, jars[spec.version]) for spec in specs]
        self._clusters |= {cluster.alias: cluster for cluster in clusters}
        try:
            for cluster in clusters:
                before_launch(cluster)
            self._bring_up(clusters, timeout_s)
        except BaseException:
            self.remove(clusters)
            raise

    def remove(self, clusters: Sequence[LabCluster]) -> None:
        """Kills some clusters at once and removes their data; logs stay, other clusters keep running."""
        for cluster in clusters:
            self._clusters.pop(cluster.alias, None)
        if not self._clusters:
            self.stop(grace_s=0.0)
            return
        for node in (node for cluster in clusters for node in cluster.nodes):
            self.keeper.discard([node.name, _format_name(node)])
            shutil.rmtree(node.folder, ignore_errors=True)
        for cluster in clusters:
            if cluster.secured is not None:
                self.keeper.discard([cluster.proxy_name])
                shutil.rmtree(cluster.secured.folder, ignore_errors=True)
        self.write_record()

    def stop(self, *, grace_s: float = 10.0) -> None:
        """Stops everything and removes the data; logs stay. May be repeated."""
        if self._keeper is None:
            return
        keeper, self._keeper = self._keeper, None
        self._clusters.clear()
        keeper.end(grace_s=grace_s)
        self.folder.remove_record()

    def detach(self) -> None:
        """Leaves the clusters running after this process; `stop_lab` stops them."""
        self.keeper.detach()
        self._keeper = None

    def java(
        self, main_class: str, *arguments: str, version: str = DEFAULT_VERSION, jvm: Jvm = TEST_JVM
    ) -> JavaCommand:
        """Returns the command to run any class of Kafka's jars: its tools, or MirrorMaker."""
        return java_command(ensure_jars(version, progress=self._progress), main_class, *arguments, jvm=jvm)

    def check_alive(self, nodes: Sequence[Node]) -> None:
        """Raises LabError with the end of the log if one of these servers has ended."""
        codes = self.keeper.exit_codes()
        for node in nodes:
            if node.name in codes:
                raise LabError(
                    f"{node.name} (Kafka {node.spec.version}) ended with exit code {codes[node.name]}",
                    where=str(node.log_file),
                    why=tail(node.log_file),
                )

    def write_record(self) -> None:
        brokers = tuple(record for cluster in self.clusters for record in cluster.records())
        self.folder.write_record(LabRecord(keeper=self.keeper.process, brokers=brokers))

    def _check_aliases(self, specs: Sequence[ClusterSpec]) -> None:
        aliases = [*self._clusters, *(spec.alias for spec in specs)]
        for alias in aliases:
            if aliases.count(alias) > 1:
                raise LabError(f'there would be two clusters "{alias}"', remedy="give each cluster its own alias")

    def _plan(self, spec: ClusterSpec, jars: Path) -> LabCluster:
        ports = self.keeper.take_ports(count_ports(spec))
        secured = None
        if spec.authority is not None:
            folder = self.folder.data / f"{spec.alias}-security"
            secured = Secured(spec.alias, folder, spec.authority, proxy_port=self.keeper.take_ports(1)[0])
        nodes = plan_nodes(spec, ports, jars=jars, data=self.folder.data, logs=self.folder.logs, secured=secured)
        if secured is not None:
            secured.locate({node.node_id: node.extra_ports for node in nodes})
        return LabCluster(spec, nodes, self, secured)

    def _bring_up(self, clusters: Sequence[LabCluster], timeout_s: float) -> None:
        for cluster in clusters:
            brokers = f"{cluster.spec.brokers} broker{'s' if cluster.spec.brokers > 1 else ''}"
            self._progress(cluster.alias, f"starting {brokers}, Kafka {cluster.spec.version}")
            for node in cluster.nodes:
                node.folder.mkdir(parents=True)
                write_private(node.properties_file, format_properties(node.properties))
            if cluster.secured is not None:
                cluster.secured.write()
                cluster.launch_proxy(cluster.secured)
        self._format(clusters, timeout_s)
        for cluster in clusters:
            cluster.launch(cluster.nodes)
        for cluster in clusters:
            cluster.wait_until_ready(timeout_s=timeout_s)
            if cluster.secured is not None:
                from heliograph.lab.users import make_users  # noqa: PLC0415  # takes 0.3 s

                cluster.wait_for_proxy(cluster.secured, timeout_s=timeout_s)
                ports = [node.port for node in cluster.brokers]
                make_users(cluster.alias, ports, cluster.secured.passwords, timeout_s=timeout_s)
            self._progress(cluster.alias, f"ready at {cluster.bootstrap}")

    def _format(self, clusters: Sequence[LabCluster], timeout_s: float) -> None:
        """Makes the log folders of all KRaft nodes, in parallel."""
        pending: dict[str, Node] = {}
        for cluster in clusters:
            cluster_id = new_cluster_id()
            for node in cluster.nodes if not cluster.spec.has_zookeeper else ():
                command = node.format_command(cluster_id)
                self.keeper.start(_format_name(node), command, cwd=node.folder, log=node.log_file)
                pending[_format_name(node)] = node
        deadline = time.monotonic() + timeout_s
        while pending:
            codes = self.keeper.exit_codes()
            late = time.monotonic() > deadline
            for name, node in pending.items():
                if late or codes.get(name, 0) != 0:
                    raise LabError(
                        f"the log folder of {node.name} could not be made",
                        where=str(node.log_file),
                        why=tail(node.log_file),
                    )
            pending = {name: node for name, node in pending.items() if name not in codes}
            time.sleep(0.05)


def _format_name(node: Node) -> str:
    return f"{node.name}-format"


def tail(log_file: Path) -> str:
    """Returns the last lines of a server's log, for an error's text."""
    try:
        lines = log_file.read_text(errors="replace").splitlines()
    except FileNotFoundError:
        return "it has written no log"
    return "the log ends:\n  " + "\n  ".join(lines[-_LOG_TAIL_LINES:])
