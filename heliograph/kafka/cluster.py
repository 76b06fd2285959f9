"""One Kafka cluster as one client sees it: brokers, leaders, and a connection to each.

Owns the connections, version negotiation and what the cluster's metadata says.
It knows nothing of mirroring. Connections are cached per broker and *channel*:
a broker handles one request of a connection at a time, so a long-polling fetch
and an urgent question must not share one.
"""

from __future__ import annotations

import asyncio
import random
import ssl
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple
from uuid import UUID

from heliograph.errors import (
    AuthenticationFailed,
    BrokerRefused,
    HeliographError,
    NotAuthorized,
    ProtocolError,
    Unreachable,
    UnsupportedVersion,
)
from heliograph.kafka import messages
from heliograph.kafka.codes import error_name, is_retriable
from heliograph.kafka.connection import REQUEST_TIMEOUT_S, BufferPool, Connection, open_connection
from heliograph.kafka.sasl import Login, refused_login
from heliograph.kafka.security import PLAINTEXT, Security
from heliograph.kafka.throttle import MutedTime
from heliograph.kafka.types import NO_TOPIC_ID, BrokerAddress

MAIN = "main"
_VERSION_PROBE_TIMEOUT_S = 10.0
METADATA_TIMEOUT_S = 10.0
"""Any broker knows it at once: another one is asked if this one does not answer."""
UNKNOWN_TOPIC, LEADER_NOT_AVAILABLE = 3, 5
RENEW_SHARE = 0.8
"""Of a session's lifetime; then we log in again."""
MIN_RENEW_S = 0.5
"""A session that ends sooner than we can log in is the broker's mistake; we do not log in without pause."""
MAX_ROUNDS = 4
"""Of a login; no mechanism needs more than two."""


class PartitionMeta(NamedTuple):
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


class TopicMeta(NamedTuple):
    name: str
    topic_id: UUID
    partitions: tuple[PartitionMeta, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Catalogue:
    """What the cluster said of itself at one moment."""

    cluster_id: str
    brokers: Mapping[int, BrokerAddress]
    topics: Mapping[str, TopicMeta] = field(default_factory=dict)

    def leader_of(self, topic: str, partition: int) -> int | None:
        meta = self.topics.get(topic)
        if meta is None or partition >= len(meta.partitions):
            return None
        leader = meta.partitions[partition].leader
        return leader if leader in self.brokers else None

    def leader_epoch_of(self, topic: str, partition: int) -> int:
        """-1 if it is not known."""
        meta = self.topics.get(topic)
        return -1 if meta is None or partition >= len(meta.partitions) else meta.partitions[partition].leader_epoch


_NOTHING = Catalogue(cluster_id="", brokers={})


class Cluster:
    """A client of one cluster; all methods run on one event loop."""

    def __init__(
        self,
        alias: str,
        bootstrap: Sequence[BrokerAddress],
        *,
        client_id: str,
        connect_timeout_s: float = 5.0,
        timeout_s: float = REQUEST_TIMEOUT_S,
        pool: BufferPool | None = None,
        security: Security = PLAINTEXT,
    ) -> None:
        self.alias = alias
        self.client_id = client_id
        self.catalogue = _NOTHING
        self.coordinators: dict[str, int] = {}
        """Of groups, as far as known; see groups.py."""
        self.muted = MutedTime()
        """For the sake of its quotas."""
        self.pool = pool or BufferPool()
        self._bootstrap = tuple(bootstrap)
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self.security = security
        """May be exchanged; counts from the next connection on."""
        self._tls: tuple[object, ssl.SSLContext] | None = None
        """A context, and the stamp of the stores it was made from."""
        self._connections: dict[tuple[BrokerAddress, str], Connection] = {}
        self._opening: dict[tuple[BrokerAddress, str], asyncio.Task[Connection]] = {}
        self._silent: set[BrokerAddress] = set()
        """Those that did not answer lately, although they may take connections: asked last where any will do."""
        self._renewals: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        for renewal in self._renewals:
            renewal.cancel()
        for opening in self._opening.values():
            opening.cancel()
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def connections(self) -> int:
        """How many are kept."""
        return len(self._connections)

    async def connection(self, node_id: int, channel: str = MAIN) -> Connection:
        """The connection to one broker, opened when needed."""
        address = self.catalogue.brokers.get(node_id)
        if address is None:
            raise Unreachable(f"broker {node_id} is not in the cluster's metadata", where=self._where())
        try:
            return await self._connected(address, channel)
        except Unreachable as error:
            if address in self._bootstrap:
                raise
            raise Unreachable(
                f"broker {node_id} cannot be reached at the address that it advertises: {error.what}",
                where=error.where,
                why=error.why,
                remedy="if the broker is alive, its advertised.listeners must hold an address that is reachable here",
            ) from error

    def no_leader(self, topic: str, partition: int, what: str, *, where: str) -> BrokerRefused:
        """Why there is nobody to ask about a partition: no such topic, no such partition, or no leader now."""
        where = f'"{self.alias}" {where}'
        meta = self.catalogue.topics.get(topic)
        if meta is None or partition >= len(meta.partitions):
            thing = f'topic "{topic}"' if meta is None else f"partition {partition}"
            return BrokerRefused(
                f"{what}: there is no {thing} on the cluster",
                where=where,
                why="it was deleted, was never made, or we may not see it",
                error_code=UNKNOWN_TOPIC,
            )
        leader = meta.partitions[partition].leader
        return BrokerRefused(
            f"{what}: the partition has no leader now",
            where=where,
            why="none of its replicas is in sync and alive" if leader < 0 else f"broker {leader}, its leader, is gone",
            remedy="start the brokers that are down",
            error_code=LEADER_NOT_AVAILABLE,
        )

    def topic_meta(self, topic: str, what: str) -> TopicMeta:
        """What is known of a topic; raises if nothing is."""
        meta = self.catalogue.topics.get(topic)
        if meta is None:
            raise self.no_leader(topic, 0, what, where=topic)
        return meta

    async def any_connection(self) -> Connection:
        """A connection to some broker: one that is open, else the first that answers."""
        for (address, channel), connection in self._connections.items():
            if channel == MAIN and connection.is_open and address not in self._silent:
                return connection
        known = [address for address in self.catalogue.brokers.values() if address not in self._bootstrap]
        failures: dict[BrokerAddress, HeliographError] = {}
        candidates = [*random.sample(self._bootstrap, len(self._bootstrap)), *known]
        for address in sorted(candidates, key=lambda address: address in self._silent):
            try:
                return await self._connected(address, MAIN)
            except HeliographError as error:
                failures[address] = error
        in_order = {address: failures[address] for address in (*self._bootstrap, *known)}  # said the same every time
        telling = [error for error in in_order.values() if not isinstance(error, Unreachable)]
        if telling or len(in_order) == 1:
            raise (telling or list(in_order.values()))[0]
        raise Unreachable(
            f"none of {len(in_order)} brokers answers",
            where=f'"{self.alias}"',
            why="; ".join(f"{address}: {error.what}" for address, error in in_order.items()),
        )

    async def call(
        self, request: messages.ApiMessage, *, node_id: int | None = None, timeout_s: float | None = None
    ) -> Any:
        """Send one of the library's requests and decode its answer."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        try:
            answer = await self.call_on(connection, request, timeout_s=timeout_s)
        except Unreachable:
            self._silent.add(connection.address)
            raise
        self._silent.discard(connection.address)
        return answer

    async def call_on(
        self, connection: Connection, request: messages.ApiMessage, *, timeout_s: float | None = None
    ) -> Any:
        """As `call`, on this very connection."""
        version = messages.pick_version(request.API_KEY, connection.versions, where=connection.where)
        return await self._exchange(connection, request, version=version, timeout_s=timeout_s)

    async def refresh(self, topics: Iterable[str] | None = None) -> Catalogue:
        """Ask for the metadata of the given topics, or of all; keeps and returns the catalogue.

        Asking for some topics renews those and keeps what is known of the others.
        """
        wanted = None if topics is None else sorted(set(topics))
        request = messages.MetadataRequest(
            topics=None
            if wanted is None
            else [messages.MetadataRequest.MetadataRequestTopic(name=name, topic_id=None) for name in wanted],
            allow_auto_topic_creation=False,
        )
        response = await self.call(request, timeout_s=min(METADATA_TIMEOUT_S, self._timeout_s))
        found = _parse_topics(response, where=self._where())
        kept = {} if wanted is None else {n: t for n, t in self.catalogue.topics.items() if n not in wanted}
        self.catalogue = Catalogue(
            cluster_id=response.cluster_id or "",
            brokers={node.node_id: BrokerAddress(node.host, node.port) for node in response.brokers},
            topics={**kept, **found},
        )
        return self.catalogue

    async def controller(self) -> int:
        """The broker to send administrative requests to (in KRaft any broker forwards them)."""
        response = await self.call(messages.MetadataRequest(topics=[], allow_auto_topic_creation=False))
        return int(response.controller_id)

    async def _connected(self, address: BrokerAddress, channel: str) -> Connection:
        key = (address, channel)
        connection = self._connections.get(key)
        if connection is not None and connection.is_open:
            return connection
        opening = self._opening.get(key)
        if opening is None:
            opening = asyncio.ensure_future(self._open(key))
            self._opening[key] = opening
            opening.add_done_callback(lambda task: self._opened(key, task))
        return await asyncio.shield(opening)

    def _opened(self, key: tuple[BrokerAddress, str], task: asyncio.Task[Connection]) -> None:
        self._opening.pop(key, None)
        if not task.cancelled():
            task.exception()  # a failure nobody waits for any more is no news

    async def _open(self, key: tuple[BrokerAddress, str]) -> Connection:
        address, _ = key
        connection = await open_connection(
            address,
            where=self._where(address),
            pool=self.pool,
            connect_timeout_s=self._connect_timeout_s,
            timeout_s=self._timeout_s,
            tls=self.tls_context(),
            muted=self.muted,
        )
        try:
            await self.greet(connection)
            await self.log_in(connection)
        except BaseException:
            connection.close()
            raise
        self._connections = {kept: found for kept, found in self._connections.items() if found.is_open}
        self._connections[key] = connection
        self._silent &= {*self._bootstrap, *self.catalogue.brokers.values()}
        return connection

    def tls_context(self) -> ssl.SSLContext | None:
        """Made anew when a store has been replaced, so that the next connection has the new certificates."""
        if not self.security.uses_tls:
            return None
        stamp = self.security.stamp()
        if self._tls is None or self._tls[0] != stamp:
            self._tls = stamp, self.security.context(where=self._where())
        return self._tls[1]

    async def greet(self, connection: Connection) -> None:
        """Learn which requests the broker understands; the first exchange of every connection."""
        connection.versions = await self._probe_versions(connection)

    async def log_in(self, connection: Connection) -> None:
        """SASL if the cluster has it, once the versions are known; and again before the broker ends the session."""
        login = self.security.login(where=self._where())
        if login is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                lifetime_ms = await self._exchange_tokens(connection, login)
        except TimeoutError as error:
            raise Unreachable(f"no login within {self._timeout_s:g} s", where=connection.where) from error
        if lifetime_ms > 0:
            pause_s = max(lifetime_ms * RENEW_SHARE / 1000, MIN_RENEW_S)
            asyncio.get_running_loop().call_later(pause_s, self._renew_login, connection)

    async def _exchange_tokens(self, connection: Connection, login: Login) -> int:
        """How long the session lasts, in ms; 0 for ever."""
        where = connection.where
        hello = await self.ask(connection, messages.SaslHandshakeRequest(mechanism=login.mechanism))
        if hello.error_code:
            raise AuthenticationFailed(
                f"the broker does not take sasl.mechanism {login.mechanism}",
                where=where,
                remedy=f"it takes {login.shown(', '.join(map(str, hello.mechanisms or ()))) or 'none'}",
            )
        exchange = await login.begin(where=where)
        lifetime_ms = 0
        for _ in range(MAX_ROUNDS):
            answer = await self.ask(connection, messages.SaslAuthenticateRequest(auth_bytes=exchange.auth_bytes()))
            if answer.error_code:
                raise refused_login(login, answer.error_message, where=where)
            lifetime_ms = int(getattr(answer, "session_lifetime_ms", 0) or 0)
            try:  # beside the event loop: SCRAM hashes for as long as the broker asks, within limits
                await asyncio.to_thread(exchange.receive, bytes(answer.auth_bytes or b""))
            except (ValueError, KeyError):
                raise refused_login(login, "the broker's answer proves nothing", where=where) from None
            if exchange.is_done():
                break
        if not exchange.is_authenticated():
            raise refused_login(login, "", where=where)
        return lifetime_ms

    def _renew_login(self, connection: Connection) -> None:
        if connection.is_open:
            renewal = asyncio.ensure_future(self._log_in_again(connection))
            self._renewals.add(renewal)
            renewal.add_done_callback(self._renewals.discard)

    async def _log_in_again(self, connection: Connection) -> None:
        """On the same connection; what is refused now would be refused at the session's end."""
        connection.hold()
        try:
            await self.log_in(connection)
        except HeliographError as error:
            connection.close(error)
        finally:
            connection.release()

    async def ask(self, connection: Connection, request: messages.ApiMessage) -> Any:
        """Send a request on this very connection, ahead of what is held back."""
        version = messages.pick_version(request.API_KEY, connection.versions, where=connection.where)
        return await self._exchange(connection, request, version=version, timeout_s=self._timeout_s, urgent=True)

    async def _probe_versions(self, connection: Connection) -> dict[int, tuple[int, int]]:
        request = messages.ApiVersionsRequest(client_software_name="heliograph", client_software_version="1")
        response = await self._exchange(
            connection,
            request,
            version=messages.API_VERSIONS_VERSION,
            timeout_s=min(_VERSION_PROBE_TIMEOUT_S, self._timeout_s),
        )
        if response.error_code:
            raise UnsupportedVersion(
                "the broker is older than 2.4", where=connection.where, remedy="heliograph works with 2.4 and newer"
            )
        return {key.api_key: (key.min_version, key.max_version) for key in response.api_keys or ()}

    async def _exchange(
        self,
        connection: Connection,
        request: messages.ApiMessage,
        *,
        version: int,
        timeout_s: float | None,
        urgent: bool = False,
    ) -> Any:
        correlation_id = connection.next_correlation_id()
        data = messages.encode_request(
            request, version=version, correlation_id=correlation_id, client_id=self.client_id
        )
        body = await connection.send([data], correlation_id, timeout_s=timeout_s, urgent=urgent)
        try:
            response = messages.decode_response(request, body, where=connection.where)
        except ProtocolError as error:
            connection.close(error)
            raise
        connection.throttle(int(getattr(response, "throttle_time_ms", 0) or 0))
        return response

    def _where(self, address: BrokerAddress | None = None) -> str:
        return f'"{self.alias}"' if address is None else f'"{self.alias}" broker {address}'


_FORBIDDEN = (29, 30, 31, 53)
"""Not authorized for a topic, a group, the cluster, a transactional id."""
_RIGHTS = {
    "Fetch": "Read",
    "Produce": "Write",
    "ListOffsets": "Describe",
    "OffsetForLeaderEpoch": "Describe",
    "CreateTopics": "Create",
    "CreatePartitions": "Alter",
    "DescribeConfigs": "DescribeConfigs",
    "IncrementalAlterConfigs": "AlterConfigs",
    "FindCoordinator": "Describe",
    "DescribeGroups": "Describe",
    "ConsumerGroupDescribe": "Describe",
    "OffsetFetch": "Describe",
    "OffsetCommit": "Read",
    "DescribeCluster": "Describe",
    "InitProducerId": "Write on a topic, or IdempotentWrite on the cluster,",
}


_REMEDIES = {
    19: "start the brokers that are down, or lower min.insync.replicas",
    20: "start the brokers that are down, or lower min.insync.replicas",
    56: "is the broker's disk full, or broken?",
}
"""What only the operator can do, while we try again."""


def refused(
    code: int, what: str, *, where: str, message: str | None = None, remedy: str = ""
) -> BrokerRefused | NotAuthorized:
    """The error for a broker's error code; `what` begins with the request's name."""
    if code in _FORBIDDEN:
        right = _RIGHTS.get(what.partition(" ")[0], "")
        remedies = [f"grant {right} there" if right else "", remedy]
        return NotAuthorized(
            f"{what} is not allowed", where=where, remedy=", or ".join(filter(None, remedies)), error_code=code
        )
    remedy = remedy or _REMEDIES.get(code, "")
    return BrokerRefused(
        f"{what} refused with {error_name(code)}", where=where, why=message or "", remedy=remedy, error_code=code
    )


def _parse_topics(response: Any, *, where: str) -> dict[str, TopicMeta]:
    topics: dict[str, TopicMeta] = {}
    for topic in response.topics:
        if topic.error_code and not is_retriable(topic.error_code):
            continue  # unknown, deleted or not allowed: not in the catalogue
        if topic.name is None or (topic.error_code and not topic.partitions):
            continue
        partitions = sorted(topic.partitions, key=lambda partition: int(partition.partition_index))
        if [partition.partition_index for partition in partitions] != list(range(len(partitions))):
            raise ProtocolError(f'the metadata of topic "{topic.name}" has holes', where=where)
        topics[topic.name] = TopicMeta(
            topic.name,
            _topic_id(topic),
            tuple(
                PartitionMeta(
                    partition.leader_id,
                    partition.leader_epoch,
                    tuple(partition.replica_nodes),
                    tuple(partition.isr_nodes),
                )
                for partition in partitions
            ),
        )
    return topics


def _topic_id(topic: Any) -> UUID:
    value = getattr(topic, "topic_id", None)
    if value is None:
        return NO_TOPIC_ID
    return value if isinstance(value, UUID) else UUID(str(value))
