"""Connects one client to one Kafka cluster: brokers, leaders, and a connection to each.

Owns the connections, version negotiation and the cluster's metadata; knows nothing of
mirroring. Metadata about leaders never goes back to an older epoch, unless all brokers
agree on that (`catalogue`). Connections are cached per broker and *channel*: a broker
handles one request of a connection at a time, so a long-polling fetch and an urgent
request must not share one.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import Any
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
from heliograph.kafka.catalogue import (
    UNKNOWN_EPOCH,
    UNNAMED_LEADER,
    Catalogue,
    PartitionMeta,
    TopicMeta,
    outdated,
    with_known,
)
from heliograph.kafka.connection import REQUEST_TIMEOUT_S, BufferPool, Connection, open_connection
from heliograph.kafka.error_codes import Code, error_name, is_retriable
from heliograph.kafka.security.client_security import PLAINTEXT, Security
from heliograph.kafka.security.sasl import Login, refused_login
from heliograph.kafka.throttle import MutedTime
from heliograph.kafka.types import NO_TOPIC_ID, BrokerAddress, TopicPartition

MAIN = "main"
_VERSION_PROBE_TIMEOUT_S = 10.0
METADATA_TIMEOUT_S = 10.0
"""How long a broker may take to answer a metadata request, which needs no work; then another one is asked."""
METADATA_MAX_AGE_S = 300.0
"""Metadata older than this is refreshed although nothing seems to have changed (Kafka's metadata.max.age.ms)."""
SAME_BROKER_S = 1.0
"""How long the same broker is asked for metadata: another one may not know a topic that was just created."""
LOGIN_AGAIN_SHARE = 0.8
"""Share of a session's lifetime after which we log in again."""
MIN_LOGIN_AGAIN_S = 0.5
"""Minimum time between two logins on one connection, even if the broker allows shorter sessions."""
MAX_ROUNDS = 4
"""Maximum number of round trips of a login; no mechanism needs more than two."""
SeenEpoch = tuple[TopicPartition, int, str]
"""A partition, a leader epoch seen for it, and its topic id in hexadecimal."""


_NOTHING = Catalogue(cluster_id="", brokers={})


class Cluster:
    """Talks to one cluster as one client; all methods run on one event loop."""

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
        """Coordinators of groups, as far as known; see `admin.coordinators`."""
        self.muted = MutedTime()
        """The time for which brokers muted us because of quotas."""
        self.pool = pool or BufferPool()
        self._bootstrap = tuple(bootstrap)
        self._connect_timeout_s = connect_timeout_s
        self._timeout_s = timeout_s
        self.security = security
        """May be replaced; the next connection uses it."""
        self.metadata_max_age_s = METADATA_MAX_AGE_S
        self._tls: tuple[object, ssl.SSLContext] | None = None
        """A TLS context, and the stamp of the stores it was made from."""
        self._connections: dict[tuple[BrokerAddress, str], Connection] = {}
        self._opening: dict[tuple[BrokerAddress, str], asyncio.Task[Connection]] = {}
        self._silent: set[BrokerAddress] = set()
        """Brokers that did not answer lately, although they may accept connections: asked last where any will do."""
        self._behind: set[BrokerAddress] = set()
        """Brokers that named older leaders than are known: asked last for metadata."""
        self._last_metadata_broker: tuple[BrokerAddress, float] | None = None
        """The broker that answered the last metadata request, and since when it is the same one."""
        self._refreshed_at: dict[str, float] = {}
        """When the metadata of each topic was last refreshed."""
        self._reset_epochs: dict[TopicPartition, int] = {}
        """Partitions whose leader epochs went back, as all brokers say: epochs up to these no longer count."""
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
        """Number of connections kept."""
        return len(self._connections)

    async def connection(self, node_id: int, channel: str = MAIN) -> Connection:
        """Return the connection to one broker; open it if needed."""
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
        """Make the error for a partition without a leader: no such topic, no such partition, or no leader now."""
        where = f'"{self.alias}" {where}'
        meta = self.catalogue.topics.get(topic)
        if meta is None or partition >= len(meta.partitions):
            thing = f'topic "{topic}"' if meta is None else f"partition {partition}"
            return BrokerRefused(
                f"{what}: there is no {thing} on the cluster",
                where=where,
                why="it was deleted, was never made, or we may not see it",
                error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
            )
        leader, epoch = meta.partitions[partition].leader, meta.partitions[partition].leader_epoch
        if leader == UNNAMED_LEADER:
            return BrokerRefused(
                f"{what}: no broker names the partition's leader of epoch {epoch}, only older ones",
                where=where,
                why="the brokers that answer are cut off from their controllers, or have not heard of it yet",
                remedy="see to it that all brokers can be reached from here",
                error_code=Code.LEADER_NOT_AVAILABLE,
            )
        return BrokerRefused(
            f"{what}: the partition has no leader now",
            where=where,
            why="none of its replicas is in sync and alive" if leader < 0 else f"broker {leader}, its leader, is gone",
            remedy="start the brokers that are down",
            error_code=Code.LEADER_NOT_AVAILABLE,
        )

    def topic_meta(self, topic: str, what: str) -> TopicMeta:
        """Return the metadata of a topic; raise if there is none."""
        meta = self.catalogue.topics.get(topic)
        if meta is None:
            raise self.no_leader(topic, 0, what, where=topic)
        return meta

    async def any_connection(self) -> Connection:
        """Return a connection to some broker: one that is open, else the first that answers."""
        for (address, channel), connection in self._connections.items():
            if channel == MAIN and connection.is_open and address not in self._silent:
                return connection
        candidates = [*random.sample(self._bootstrap, len(self._bootstrap)), *self._known]
        return await self._first_of(sorted(candidates, key=lambda address: address in self._silent))

    @property
    def _known(self) -> list[BrokerAddress]:
        """Brokers named by metadata, besides the bootstrap servers."""
        return [address for address in self.catalogue.brokers.values() if address not in self._bootstrap]

    async def _first_of(self, candidates: Iterable[BrokerAddress]) -> Connection:
        """Return a connection to the first of these brokers that answers."""
        failures: dict[BrokerAddress, HeliographError] = {}
        for address in candidates:
            try:
                return await self._connected(address, MAIN)
            except HeliographError as error:
                failures[address] = error
                if isinstance(error, Unreachable):
                    self._silent.add(address)
        told = (*self._bootstrap, *self._known, *failures)  # in the same order every time
        in_order = {address: failures[address] for address in told if address in failures}
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
        """Send one of the library's requests to a broker and decode its answer."""
        connection = await (self.any_connection() if node_id is None else self.connection(node_id))
        return await self._call_on(connection, request, timeout_s=timeout_s)

    async def _call_on(self, connection: Connection, request: messages.ApiMessage, *, timeout_s: float | None) -> Any:
        """Do the same as `call_on`; a broker that does not answer is asked last from now on, where any will do."""
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
        """Do the same as `call`, on this connection."""
        version = messages.pick_version(request.API_KEY, connection.versions, where=connection.where)
        return await self._exchange(connection, request, version=version, timeout_s=timeout_s)

    # -- metadata ------------------------------------------------------------------------

    async def refresh(self, topics: Iterable[str] | None = None, *, elsewhere: bool = False) -> Catalogue:
        """Refresh the metadata of the given topics, or of all; keep and return the catalogue.

        Asking for some topics keeps what is known of the others. If a broker names older leaders than are known, the
        other brokers are asked. `elsewhere` asks another broker than the last time, if one answers.
        """
        wanted = None if topics is None else sorted(set(topics))
        informant, told = await self._ask_for_metadata(wanted, self._metadata_brokers(elsewhere=elsewhere))
        if outdated(self.catalogue.topics, told.topics):
            told = await self._believable(wanted, informant, told)
        else:
            self._behind.discard(informant)
        kept = {} if wanted is None else {n: t for n, t in self.catalogue.topics.items() if n not in wanted}
        now = time.monotonic()
        renewed = dict.fromkeys(told.topics if wanted is None else wanted, now)
        self._refreshed_at = renewed if wanted is None else self._refreshed_at | renewed
        self.catalogue = replace(told, topics={**kept, **told.topics})
        return self.catalogue

    def age_s(self, topics: Iterable[str]) -> float:
        """Return the age of these topics' metadata; 0 if there is none."""
        now = time.monotonic()
        return max((now - self._refreshed_at.get(topic, now) for topic in topics), default=0.0)

    async def refresh_if_old(self, topics: Collection[str]) -> bool:
        """Refresh these topics from another broker if older than `metadata_max_age_s`; return whether they were."""
        if self.age_s(topics) < self.metadata_max_age_s:
            return False
        await self.refresh(topics, elsewhere=True)
        return True

    def saw_epoch(self, where: TopicPartition, epoch: int, topic_id: str) -> None:
        """Note a leader epoch seen for the topic with this id (in hexadecimal): leaders of older epochs no longer
        count."""
        if epoch > self._reset_epochs.get(where, UNKNOWN_EPOCH) and self.catalogue.is_behind(where, epoch, topic_id):
            self.catalogue = self.catalogue.with_epoch(where, epoch)

    async def heed(self, seen: Iterable[SeenEpoch]) -> None:
        """Note leader epochs that were seen; where the metadata names older leaders, ask other brokers."""
        partitions = set()
        for where, epoch, topic_id in seen:
            self.saw_epoch(where, epoch, topic_id)
            partitions.add(where)
        if unnamed := {where.topic for where in partitions if self.catalogue.has_unnamed_leader(where)}:
            await self.refresh(unnamed)

    async def _believable(self, wanted: Sequence[str] | None, informant: BrokerAddress, told: Catalogue) -> Catalogue:
        """Return the catalogue to use when a broker names older leaders than are known: ask the other brokers.

        If all agree that epochs went back, as in a cluster that was restored from a backup, their answer counts; else
        the known leaders stay.
        """
        asked, silent = {informant}, set[BrokerAddress]()
        named = set(told.brokers.values())
        while others := (named | set(self.catalogue.brokers.values())) - asked - silent:
            address = min(others, key=lambda one: (one in self._silent, one in self._behind, one))
            try:
                _, other = await self._ask_for_metadata(wanted, [address])
            except HeliographError:
                silent.add(address)
                continue
            asked.add(address)
            named |= set(other.brokers.values())
            newer = with_known(other.topics, told.topics, outdated(told.topics, other.topics))
            told = replace(other, topics=newer)
            if not outdated(self.catalogue.topics, told.topics):
                self._behind |= asked - {address}
                return told
        older = outdated(self.catalogue.topics, told.topics)
        if not named & silent:
            self._reset_epochs |= older
            return told
        return replace(
            told,
            topics=with_known(told.topics, self.catalogue.topics, older),
            brokers={**self.catalogue.brokers, **told.brokers},
        )

    def _metadata_brokers(self, *, elsewhere: bool) -> list[BrokerAddress]:
        """Return the brokers to ask for metadata, in order: not always the same one first, as it may be cut off."""
        known = set(self.catalogue.brokers.values())
        last, since = self._last_metadata_broker or (None, 0.0)
        same_again = not elsewhere and time.monotonic() - since < SAME_BROKER_S

        def rank(address: BrokerAddress) -> tuple[bool, ...]:
            is_next = (address == last) is same_again
            return address in self._silent, address in self._behind, not is_next, address not in known

        candidates = list(known.union(self._bootstrap))
        return sorted(random.sample(candidates, len(candidates)), key=rank)

    async def _ask_for_metadata(
        self, wanted: Sequence[str] | None, candidates: Sequence[BrokerAddress]
    ) -> tuple[BrokerAddress, Catalogue]:
        """Return the first of these brokers that answers, and its metadata of the given topics, or of all."""
        connection = await self._first_of(candidates)
        request = messages.MetadataRequest(
            topics=None
            if wanted is None
            else [messages.MetadataRequest.MetadataRequestTopic(name=name, topic_id=None) for name in wanted],
            allow_auto_topic_creation=False,
        )
        response = await self._call_on(connection, request, timeout_s=min(METADATA_TIMEOUT_S, self._timeout_s))
        if self._last_metadata_broker is None or self._last_metadata_broker[0] != connection.address:
            self._last_metadata_broker = connection.address, time.monotonic()
        return connection.address, Catalogue(
            cluster_id=response.cluster_id or "",
            brokers={node.node_id: BrokerAddress(node.host, node.port) for node in response.brokers},
            topics=_parse_topics(response, where=self._where()),
        )

    async def controller(self) -> int:
        """Return the broker for administrative requests (in KRaft any broker forwards them)."""
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
            task.exception()  # nobody waits for it any more: asyncio must not log its failure

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
        """Return the TLS context; made again when a store was replaced, so that new connections use it."""
        if not self.security.uses_tls:
            return None
        stamp = self.security.stamp()
        if self._tls is None or self._tls[0] != stamp:
            self._tls = stamp, self.security.context(where=self._where())
        return self._tls[1]

    async def greet(self, connection: Connection) -> None:
        """Ask which versions the broker supports; the first exchange of every connection."""
        connection.versions = await self._probe_versions(connection)

    async def log_in(self, connection: Connection) -> None:
        """Log in by SASL if the cluster uses it, and again before the broker ends the session."""
        login = self.security.login(where=self._where())
        if login is None:
            return
        try:
            async with asyncio.timeout(self._timeout_s):
                lifetime_ms = await self._exchange_tokens(connection, login)
        except TimeoutError as error:
            raise Unreachable(f"no login within {self._timeout_s:g} s", where=connection.where) from error
        if lifetime_ms > 0:
            pause_s = max(lifetime_ms * LOGIN_AGAIN_SHARE / 1000, MIN_LOGIN_AGAIN_S)
            asyncio.get_running_loop().call_later(pause_s, self._renew_login, connection)

    async def _exchange_tokens(self, connection: Connection, login: Login) -> int:
        """Exchange SASL tokens; return the session's lifetime in ms, 0 if it does not end."""
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
        """Log in again on the same connection; if that is refused, the session's end would be too."""
        connection.hold()
        try:
            await self.log_in(connection)
        except HeliographError as error:
            connection.close(error)
        finally:
            connection.release()

    async def ask(self, connection: Connection, request: messages.ApiMessage) -> Any:
        """Send a request on this connection, ahead of requests that are held back."""
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


_FORBIDDEN = (
    Code.TOPIC_AUTHORIZATION_FAILED,
    Code.GROUP_AUTHORIZATION_FAILED,
    Code.CLUSTER_AUTHORIZATION_FAILED,
    Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
)
"""TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED."""
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
"""What only the operator can do, while we retry."""


def refused(
    code: int, what: str, *, where: str, message: str | None = None, remedy: str = ""
) -> BrokerRefused | NotAuthorized:
    """Make the error for a broker's error code; `what` begins with the request's name."""
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
