"""The lab's secured clusters: every listener lets in whom it should, by our own client and by Java's."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import TypeVar

import pytest

from heliograph.client import MirrorClient, Translated
from heliograph.config.files.properties import property_line
from heliograph.errors import (
    AuthenticationFailed,
    BrokerRefused,
    HeliographError,
    NotAuthorized,
    TlsFailed,
    Unreachable,
)
from heliograph.kafka import cluster as kafka
from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType, create_acls, delete_acls, describe_acls
from heliograph.kafka.admin.topics import NewTopic, create_topics
from heliograph.kafka.security.client_security import PLAINTEXT, Security
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.lab import Lab, LabCluster, Secured
from heliograph.lab.listeners import MODULES
from heliograph.lab.secured import STORES, unsigned_token
from heliograph.lab.users import RULES
from heliograph.ledger.mm2.internal_records import Checkpoint
from tests.cluster.judge import Judge, start_java
from tests.cluster.limited import ask
from tests.cluster.mirror import admin, create_topic, produce, unique

Answer = TypeVar("Answer")
Question = Callable[[kafka.Cluster], Awaitable[Answer]]


def ask_as(properties: Mapping[str, str], question: Question[Answer]) -> Answer:
    return ask(properties["bootstrap.servers"], Security(properties["security.protocol"], properties), question)


async def reach_all(client: kafka.Cluster) -> set[int]:
    """The brokers, each of which let us in at the address it advertises."""
    for node_id in client.catalogue.brokers:
        await client.connection(node_id)
    return set(client.catalogue.brokers)


@pytest.fixture(scope="module")
def keys(north: LabCluster) -> Secured:
    assert north.secured is not None
    return north.secured


@pytest.mark.parametrize("stores", STORES)
@pytest.mark.parametrize("listener", ["TLS", "MTLS"])
def test_tls_with_every_kind_of_store(listener: str, stores: str, keys: Secured) -> None:
    assert ask_as(keys.client_properties(listener, stores=stores), reach_all) == {1}


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL", "SNI"])
@pytest.mark.parametrize("user", ["mirror", "app"])
def test_logins(user: str, listener: str, mechanism: str, keys: Secured) -> None:
    assert ask_as(keys.client_properties(listener, mechanism=mechanism, user=user), reach_all) == {1}


def test_mutual_tls_wants_a_certificate(keys: Secured) -> None:
    properties = {**keys.client_properties("TLS"), "bootstrap.servers": keys.bootstrap("MTLS")}
    with pytest.raises((TlsFailed, Unreachable)):
        ask_as(properties, reach_all)


@pytest.mark.parametrize(("listener", "text"), [("EXPIRED", "has expired"), ("WRONG_HOST", 'not for "127.0.0.1"')])
def test_bad_certificates_are_refused(listener: str, text: str, keys: Secured) -> None:
    with pytest.raises(TlsFailed, match=text):
        ask_as(keys.client_properties(listener), reach_all)


def test_each_cluster_has_an_authority_of_its_own(keys: Secured, south: LabCluster) -> None:
    assert south.secured is not None
    properties = {**south.secured.client_properties("TLS"), "bootstrap.servers": keys.bootstrap("TLS")}
    with pytest.raises(TlsFailed, match="trusted authority"):
        ask_as(properties, reach_all)


def test_a_token_that_has_ended_is_refused(keys: Secured) -> None:
    properties = keys.client_properties("SASL_SSL", mechanism="OAUTHBEARER")
    del properties["sasl.oauthbearer.token.endpoint.url"]
    ended = unsigned_token("mirror", lifetime_s=-3600)
    module = properties["sasl.jaas.config"].split()[0]
    with pytest.raises(AuthenticationFailed):
        ask_as({**properties, "sasl.jaas.config": f'{module} required oauth.access.token="{ended}";'}, reach_all)


# -- rights


async def _create_topic(client: kafka.Cluster) -> HeliographError | None:
    name = unique("rights")
    return (await create_topics(client, [NewTopic(name=name, partitions=1, replication_factor=1)]))[name]


@pytest.mark.parametrize("listener", ["MTLS", "SASL_SSL"])
def test_a_right_is_refused_granted_and_taken_back(listener: str, north: LabCluster, keys: Secured) -> None:
    """By certificate and by password one is the same user."""
    properties = keys.client_properties(listener, user="app")
    rule = Acl(
        principal="User:app",
        operation=Operation.CREATE,
        resource_type=ResourceType.TOPIC,
        name="rights-",
        pattern=Pattern.PREFIXED,
    )

    def as_admin(question: Question[Answer]) -> Answer:
        return ask(north.bootstrap, PLAINTEXT, question)

    def is_refused() -> bool:
        error = ask_as(properties, _create_topic)
        assert error is None or isinstance(error, NotAuthorized)
        return error is not None

    assert is_refused()
    assert as_admin(lambda client: create_acls(client, [rule, rule])) == {rule: None}
    assert rule in as_admin(describe_acls)
    _wait(lambda: not is_refused())
    assert as_admin(lambda client: delete_acls(client, [rule])) == {rule: None}
    _wait(is_refused)
    assert as_admin(lambda client: delete_acls(client, [rule])) == {rule: None}
    assert rule not in as_admin(describe_acls)


def _wait(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline


def test_rules_are_for_those_who_may_see_them(keys: Secured) -> None:
    properties = keys.client_properties("SASL_PLAINTEXT", user="app")
    with pytest.raises(NotAuthorized, match="grant Describe"):
        ask_as(properties, describe_acls)
    outcome = ask_as(properties, lambda client: create_acls(client, RULES[:1]))
    assert isinstance(outcome[RULES[0]], NotAuthorized)


def test_a_cluster_without_an_authorizer_says_so(primary: LabCluster) -> None:
    with pytest.raises(BrokerRefused, match="SECURITY_DISABLED"):
        ask(primary.bootstrap, PLAINTEXT, describe_acls)


# -- the proxy


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_three_brokers_behind_one_port(mechanism: str, trio: LabCluster) -> None:
    assert trio.secured is not None

    async def addresses(client: kafka.Cluster) -> set[BrokerAddress]:
        await reach_all(client)
        return set(client.catalogue.brokers.values())

    found = ask_as(trio.secured.client_properties("SNI", mechanism=mechanism), addresses)
    port = trio.secured.proxy_port
    assert found == {BrokerAddress(f"broker-{number}.trio.localhost", port) for number in (1, 2, 3)}


def test_the_proxy_leads_to_the_broker_that_is_named(trio: LabCluster) -> None:
    assert trio.secured is not None
    properties = trio.secured.client_properties("SNI")

    trio.stop_broker(2)
    for name in ("bootstrap", "broker-1", "broker-3"):
        address = f"{name}.trio.localhost:{trio.secured.proxy_port}"
        assert ask_as({**properties, "bootstrap.servers": address}, reach_all) == {1, 3}
    address = f"broker-2.trio.localhost:{trio.secured.proxy_port}"
    with pytest.raises(Unreachable):
        ask_as({**properties, "bootstrap.servers": address}, reach_all)


@pytest.mark.parametrize("name", ["broker-9.trio.localhost", "127.0.0.1"])
def test_the_proxy_closes_on_names_it_does_not_know(name: str, trio: LabCluster) -> None:
    assert trio.secured is not None
    port = trio.secured.proxy_port
    with pytest.raises(Unreachable, match="hung up during the TLS handshake"):
        ask_as({**trio.secured.client_properties("SNI"), "bootstrap.servers": f"{name}:{port}"}, reach_all)


# -- others


@pytest.mark.parametrize(
    ("listener", "mechanism", "stores"),
    [
        *(("MTLS", "", stores) for stores in STORES),
        *(("SASL_SSL", mechanism, "PKCS12") for mechanism in MODULES),
    ],
)
def test_java_comes_in_by_the_same_keys(listener: str, mechanism: str, stores: str, keys: Secured, java: Judge) -> None:
    properties = keys.client_properties(listener, mechanism=mechanism, stores=stores)
    assert nodes_seen_by(java, properties) == 1


@pytest.fixture
def upstream(north: LabCluster) -> Iterator[str]:
    """The alias of a cluster with heartbeats and a checkpoint here; mirrors of other tests would copy them."""
    alias = unique("us")
    made = [create_topic(north, f"{alias}.{kind}") for kind in ("heartbeats", "checkpoints.internal")]
    key, value = Checkpoint(group="g", topic="t", partition=0, upstream=1, downstream=2).encode()
    produce(north, made[1], [value], keys=[key])
    yield alias
    for deleted in admin(north).delete_topics(made).values():
        deleted.result(30)


def test_applications_ask_by_the_same_keys_as_with_java(upstream: str, keys: Secured, java: Judge) -> None:
    """Each role with a login of its own, where the common one would be refused."""
    common = keys.client_properties("SASL_SSL")
    common["sasl.jaas.config"] = common["sasl.jaas.config"].replace("mirror", "nobody")
    properties = {
        **common,
        **{f"admin.{name}": text for name, text in keys.client_properties("SASL_SSL", user="app").items()},
        **{f"consumer.{name}": text for name, text in keys.client_properties("MTLS", user="app").items()},
    }
    with pytest.raises(AuthenticationFailed):
        MirrorClient(common).upstream_clusters()
    client, theirs = MirrorClient(properties), java.mirror("RemoteClusterUtils")
    assert upstream in client.upstream_clusters()
    assert client.upstream_clusters() == set(theirs.upstreamClusters(properties))
    assert client.translate_offsets(upstream, "g") == {TopicPartition("t", 0): Translated(2, "", 1)}
    minute = java.jvm.java.time.Duration.ofSeconds(60)
    [offset] = list(theirs.translateOffsets(properties, upstream, "g", minute).entrySet())
    assert (offset.getKey().toString(), offset.getValue().offset()) == ("t-0", 2)


def test_java_comes_in_by_the_proxy(trio: LabCluster) -> None:
    assert trio.secured is not None
    with start_java(f"-Djdk.net.hosts.file={trio.secured.hosts}") as java:
        assert nodes_seen_by(java, trio.secured.client_properties("SNI")) == 3


def nodes_seen_by(java: Judge, properties: Mapping[str, str]) -> int:
    text = "\n".join(property_line(key, value) for key, value in properties.items())
    admin = java.jvm.org.apache.kafka.clients.admin.Admin.create(java.properties(text))
    try:
        return int(admin.describeCluster().nodes().get().size())
    finally:
        admin.close()


def test_no_secret_is_in_a_log(lab: Lab, keys: Secured) -> None:
    for path in lab.folder.logs.glob("north*"):
        text = path.read_text()
        assert [name for name, secret in keys.secrets().items() if secret in text] == []
