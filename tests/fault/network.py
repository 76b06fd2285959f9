"""The network among a cluster's brokers, in which one of them can be cut off from all others.

A proxy stands before every broker's replication and controller listener. Each connection there belongs to one broker's
process, and its port tells whose it is. While a broker is cut off, nothing passes on connections between it and the
others, old or new, in either direction; its clients come by other listeners and still reach it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from types import TracebackType
from typing import Self

import psutil

from heliograph.lab import ClusterSpec, Lab, LabCluster
from heliograph.lab.listeners import CONTROLLER, CONTROLLER_ENTRY, REPLICATION, REPLICATION_ENTRY
from heliograph.lab.probe import fetch_broker_ids
from tests.cluster.mirror import wait_until
from tests.fault.proxy import Proxy

SESSION_MS = 6000
"""The controller fences a broker from which it has not heard for so long."""
CONFIG = {"broker.session.timeout.ms": str(SESSION_MS), "broker.heartbeat.interval.ms": "1000"}
_FENCED_S = 90.0
_BACK_S = 120.0


class Network:
    """The proxies of one cluster; they must stand before its brokers start, and as long as these run."""

    def __init__(self, cluster: LabCluster) -> None:
        self.cluster = cluster
        self._proxies: dict[int, list[Proxy]] = {}
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        for node in self.cluster.brokers:
            ports = node.extra_ports
            self._proxies[node.node_id] = [
                self._stack.enter_context(Proxy(ports[REPLICATION_ENTRY], ports[REPLICATION])),
                self._stack.enter_context(Proxy(ports[CONTROLLER_ENTRY], ports[CONTROLLER])),
            ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, trace)

    @contextmanager
    def cut_off(self, broker: int) -> Iterator[None]:
        """Entering waits until the others have fenced the broker and lead its partitions, leaving until it is back."""
        others = [node.port for node in self.cluster.brokers if node.node_id != broker]
        self._silence(partial(is_severed, broker, self._is_of))
        try:
            wait_until(
                lambda: all(broker not in (fetch_broker_ids(port) or {broker}) for port in others),
                _FENCED_S,
                what=f"the fencing of broker {broker}",
            )
            yield
        finally:
            self._silence(lambda _destination, _port: False)
            self.cluster.wait_until_ready(timeout_s=_BACK_S)

    def _silence(self, is_silenced: Callable[[int, int], bool]) -> None:
        for destination, proxies in self._proxies.items():
            for proxy in proxies:
                proxy.silence(partial(is_silenced, destination))

    def _is_of(self, broker: int, port: int) -> bool:
        """Whether a connection's port is one of the broker's process."""
        pid = self.cluster.pids.get(broker)
        if pid is None:
            return False
        with suppress(psutil.Error):
            connections = psutil.Process(pid).net_connections("tcp")
            return port in {connection.laddr.port for connection in connections}
        return False


def is_severed(broker: int, is_of: Callable[[int, int], bool], destination: int, port: int) -> bool:
    """Whether a connection crosses the cut: one of its ends is at the broker, and the other is not."""
    return is_of(broker, port) != (destination == broker)


def start_divisible(lab: Lab, specs: Sequence[ClusterSpec], *, stack: ExitStack) -> dict[str, Network]:
    """Start clusters; the networks of those whose brokers reach each other by detours, by alias, open in the stack."""
    networks: dict[str, Network] = {}

    def open_network(cluster: LabCluster) -> None:
        if cluster.spec.inner_detoured:
            networks[cluster.alias] = stack.enter_context(Network(cluster))

    lab.start(specs, before_launch=open_network)
    return networks
