"""Brokers on loopback ports, in the running event loop; knows framing and hooks, no request.

A broker handles one request of a connection at a time, as Kafka does. Not modelled: replication
(every replica has the one log, but for brokers that are cut off), quotas, authentication, TLS.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any, Self
from uuid import UUID

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.kafka.types import BrokerAddress
from tests.fake_cluster import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k15_describe_groups,
    k16_list_groups,
    k18_api_versions,
    k19_create_topics,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k29_describe_acls,
    k32_describe_configs,
    k37_create_partitions,
    k44_incremental_alter_configs,
)
from tests.fake_cluster.group import FakeGroup
from tests.fake_cluster.partition import FakePartition, FakeTopic

HANDLERS: dict[int, ModuleType] = {
    module.REQUEST.API_KEY: module
    for module in (
        k00_produce,
        k01_fetch,
        k02_list_offsets,
        k03_metadata,
        k08_offset_commit,
        k09_offset_fetch,
        k10_find_coordinator,
        k15_describe_groups,
        k16_list_groups,
        k18_api_versions,
        k19_create_topics,
        k22_init_producer_id,
        k23_offset_for_leader_epoch,
        k29_describe_acls,
        k32_describe_configs,
        k37_create_partitions,
        k44_incremental_alter_configs,
    )
}
SILENCE = b""
"""A hook's answer: none at all."""


class Cut(Exception):
    """Raised by a hook: the broker closes the connection instead of answering."""


Hook = Callable[["Call"], Awaitable[Any]]
"""Sees a request; returns the answer (a message or raw bytes with their size prefix), often `call.proceed()`."""


@dataclass
class Call:
    """One request on its way through the hooks to its handler."""

    cluster: FakeCluster
    node_id: int
    api_key: int
    version: int
    correlation_id: int
    client_id: str
    request: Any
    hooks: list[Hook] = field(default_factory=list)

    @property
    def sight(self) -> Sight:
        """The cluster as the broker knows it that answers."""
        return self.cluster.sight_of(self.node_id)

    async def proceed(self) -> Any:
        """What the next hook, or in the end the broker itself, answers."""
        if self.hooks:
            return await self.hooks.pop()(self)
        return await HANDLERS[self.api_key].answer(self)

    def encode(self, response: Any) -> bytes:
        if isinstance(response, bytes):
            return response
        response.API_VERSION = self.version
        response.with_header(correlation_id=self.correlation_id)
        return bytes(response.encode(header=True, framed=True))


@dataclass
class _Refusal:
    api_key: int
    topic: str
    partition: int
    error_code: int
    times: int


@dataclass
class Sight:
    """What a broker knows: topics with their logs and leaders, and the brokers that are alive."""

    topics: dict[str, FakeTopic]
    brokers: dict[int, FakeBroker]
    is_cut_off: bool = False

    def find(self, key: str | UUID, index: int) -> FakePartition | None:
        topic = self.topics.get(self.name_of(key))
        return topic.partitions[index] if topic is not None and index < len(topic.partitions) else None

    def name_of(self, key: str | UUID) -> str:
        if isinstance(key, str):
            return key if key in self.topics else ""
        return next((topic.name for topic in self.topics.values() if key == topic.topic_id), "")


class FakeBroker:
    def __init__(self, cluster: FakeCluster, node_id: int) -> None:
        self.node_id = node_id
        self.port = 0
        self._cluster = cluster
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def address(self) -> BrokerAddress:
        return BrokerAddress("127.0.0.1", self.port)

    async def start(self) -> None:
        """Listen; after a stop, on the same port again."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def stop(self) -> None:
        """Close the port and cut every connection."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for _ in range(5):  # connections that are being accepted arrive, transports close
            await asyncio.sleep(0)
            for task in self._serving:
                task.cancel()

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(self._serve(reader, writer))
        self._serving.add(task)
        task.add_done_callback(partial(self._close, writer))

    def _close(self, writer: asyncio.StreamWriter, task: asyncio.Task[None]) -> None:
        self._serving.discard(task)
        if task.cancelled() or self._server is None:
            writer.transport.abort()
        else:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, Cut):
            while self._server is not None:
                size = int.from_bytes(await reader.readexactly(4), "big")
                writer.write(await self._cluster.answer(self.node_id, await reader.readexactly(size)))
                await writer.drain()


class FakeCluster:
    """Topics on brokers 1 to `brokers`; use as an async context manager."""

    def __init__(self, alias: str, *, brokers: int = 1, topics: Mapping[str, int] | None = None) -> None:
        self.alias = alias
        self.cluster_id = f"cluster-{alias}"
        self.brokers = {node: FakeBroker(self, node) for node in range(1, brokers + 1)}
        self.topics: dict[str, FakeTopic] = {}
        self._cut_off: dict[int, Sight] = {}
        self.groups: dict[str, FakeGroup] = {}
        self.broker_configs: dict[int, dict[str, str]] = {}
        """Settings of brokers, by node id."""
        self.versions: dict[int, tuple[int, int]] = {key: module.VERSIONS for key, module in HANDLERS.items()}
        self.calls: list[Call] = []
        """Every request that arrived, in order."""
        self._hooks: list[tuple[int, Hook]] = []
        self._refusals: list[_Refusal] = []
        self._changed = asyncio.Event()
        for name, partitions in (topics or {}).items():
            self.create(name, partitions)

    async def __aenter__(self) -> Self:
        for broker in self.brokers.values():
            await broker.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    # -- what is there -------------------------------------------------------------------

    @property
    def bootstrap(self) -> tuple[BrokerAddress, ...]:
        return tuple(broker.address for broker in self.brokers.values())

    def create(self, name: str, partitions: int = 1) -> FakeTopic:
        """Make a topic, or make it anew with another id; leaders go round. Internal ones of a mirror are compacted."""
        self.topics[name] = FakeTopic(name, [])
        if name.startswith("mm2-"):
            self.topics[name].configs["cleanup.policy"] = "compact"
        self.grow(name, partitions)
        return self.topics[name]

    def grow(self, name: str, partitions: int) -> None:
        """Give a topic so many partitions."""
        nodes, topic = list(self.brokers), self.topics[name]
        there = len(topic.partitions)
        topic.partitions += (FakePartition(nodes[index % len(nodes)], nodes) for index in range(there, partitions))

    def delete(self, name: str) -> None:
        del self.topics[name]

    def partition(self, topic: str, index: int) -> FakePartition:
        return self.topics[topic].partitions[index]

    def sight_of(self, node: int) -> Sight:
        """The cluster as one of its brokers knows it; one that is cut off knows it as it was."""
        if (sight := self._cut_off.get(node)) is not None:
            return sight
        return Sight(self.topics, {node: broker for node, broker in self.brokers.items() if node not in self._cut_off})

    def append(self, topic: str, index: int, records: Sequence[NewRecord], *, codec: int = 0, gap: int = 0) -> int:
        """Append one batch as some producer without an id would; `gap` leaves offsets out before it."""
        base = self.partition(topic, index).store(encode_batch(records, codec=codec), gap=gap)
        self.notify()
        return base

    def move_leader(self, topic: str, index: int, leader: int) -> None:
        partition = self.partition(topic, index)
        partition.leader = leader
        partition.begin_epoch()

    def cut_off(self, node: int) -> Sight:
        """Cut a broker off from its controllers and replicas while clients still reach it; what it knows from now on.

        It goes on as the leader that it was, under its old epochs and with its own logs, and what it appends is never
        committed. The others elect new leaders and do not name it any more.
        """
        known = self.sight_of(node)
        self._cut_off[node] = sight = Sight(copy.deepcopy(known.topics), known.brokers, is_cut_off=True)
        left = list(self.sight_of(-1).brokers)
        for topic in self.topics.values():
            for index, partition in enumerate(topic.partitions):
                if partition.leader == node:
                    self.move_leader(topic.name, index, left[index % len(left)] if left else -1)
        self.notify()
        return sight

    def rejoin(self, node: int) -> None:
        """A broker that was cut off hears from its controllers again, and drops what it alone had appended."""
        del self._cut_off[node]
        self.notify()

    def notify(self) -> None:
        """Something changed: long polls look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def wait_for_change(self, timeout_s: float) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):  # wait_for may swallow a cancellation before Python 3.12
                await self._changed.wait()

    async def wait_until(self, condition: Callable[[], bool], timeout_s: float = 10.0) -> None:
        """For tests: until something holds; it is looked at after every request and append."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                await self.wait_for_change(0.05)

    # -- steering ------------------------------------------------------------------------

    def refuse(self, api_key: int, topic: str, partition: int, error_code: int, *, times: int = 1) -> None:
        """Answer the next requests for a partition with an error, and do nothing; other partitions go on."""
        self._refusals.append(_Refusal(api_key, topic, partition, error_code, times))

    def relent(self) -> None:
        """Refuse nothing more."""
        self._refusals.clear()

    def refusal_of(self, api_key: int, topic: str, partition: int) -> int:
        for refusal in self._refusals:
            if (refusal.api_key, refusal.topic, refusal.partition) == (api_key, topic, partition) and refusal.times:
                refusal.times -= 1
                return refusal.error_code
        return 0

    def control(self, api_key: int, hook: Hook) -> None:
        """Let a hook see every request of a kind; the newest hook is asked first."""
        self._hooks.append((api_key, hook))

    def cut_next(self, api_key: int, *, after: bool, times: int = 1) -> None:
        """Close the connection at the next request of a kind, before or after doing what it asks."""
        left = times

        async def hook(call: Call) -> Any:
            nonlocal left
            if not left:
                return await call.proceed()
            left -= 1
            if after:
                await call.proceed()
            raise Cut

        self.control(api_key, hook)

    async def answer(self, node_id: int, data: bytes) -> bytes:
        """The framed answer to a request."""
        api_key, version = int.from_bytes(data[:2], "big"), int.from_bytes(data[2:4], "big")
        request = HANDLERS[api_key].REQUEST.decode(data, version=version, header=True)
        header = request.header
        hooks = [hook for key, hook in self._hooks if key == api_key]
        call = Call(self, node_id, api_key, version, header.correlation_id, header.client_id, request, hooks)
        self.calls.append(call)
        response = await call.proceed()
        self.notify()
        return call.encode(response)
