"""Secured clusters: the set-ups that users have, mirrored end to end in both directions, data compared."""

from __future__ import annotations

import dataclasses
import itertools
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import pytest
import yaml

from heliograph.kafka import cluster as kafka
from heliograph.kafka.admin.acls import Acl, Operation, ResourceType, create_acls
from heliograph.kafka.admin.scram_users import set_passwords
from heliograph.kafka.security.client_security import PLAINTEXT
from heliograph.lab import LabCluster, Secured
from heliograph.lab.listeners import LISTENERS
from heliograph.lab.secured import STORES
from tests.cluster.limited import ask
from tests.cluster.mirror import HELIOGRAPH, MirrorProcess, View, assert_equal, create_topic, produce, unique

SESSION_S = 11.0
SYSTEM = "SYSTEM"
"""No store: the authorities of the system are trusted."""


@dataclasses.dataclass(frozen=True)
class Setup:
    """How a cluster is reached; `row` says who has it so."""

    row: str
    listener: str
    mechanism: str = ""
    stores: str = "PEM"
    extra: tuple[tuple[str, str], ...] = ()

    def keys(self, cluster: LabCluster) -> dict[str, str]:
        """Of a client, as Java spells them."""
        if self.listener == "PLAINTEXT":
            return {"bootstrap.servers": cluster.bootstrap}
        stores = "PEM" if self.stores == SYSTEM else self.stores
        found = secured_of(cluster).client_properties(self.listener, mechanism=self.mechanism, stores=stores)
        if self.stores == SYSTEM:
            found = {key: value for key, value in found.items() if not key.startswith("ssl.truststore.")}
        return {**found, **dict(self.extra)}

    def access(self, cluster: LabCluster) -> dict[str, str]:
        """The same for librdkafka, which knows PEM alone; what it cannot do comes in by the plain listener."""
        if self.listener in ("PLAINTEXT", "SNI") or self.mechanism == "OAUTHBEARER":
            return {}
        secured = secured_of(cluster)
        protocol = LISTENERS[self.listener]
        found = {"bootstrap.servers": secured.bootstrap(self.listener), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            found["ssl.ca.location"] = str(secured.folder / "ca.crt")
        if self.listener == "MTLS":
            own = secured.folder / "users" / "mirror"
            found |= {"ssl.certificate.location": str(own / "user.crt"), "ssl.key.location": str(own / "user.key")}
        if protocol.startswith("SASL"):
            mechanism = self.mechanism or "SCRAM-SHA-512"
            found |= {"sasl.mechanism": mechanism, "sasl.username": "mirror"}
            found["sasl.password"] = secured.password("mirror")
        return found


PLAIN_12 = (("ssl.protocol", "TLSv1.2"), ("ssl.endpoint.identification.algorithm", "https"))
EVENT_STREAMS_ROUTE = Setup("Event Streams by its route", "SNI", "SCRAM-SHA-512")
EVENT_STREAMS_INSIDE = Setup(
    "Event Streams by its service", "MTLS", extra=(("ssl.endpoint.identification.algorithm", "HTTPS"),)
)
CLOUD = Setup("Event Streams on Cloud: API key, the system's authorities", "SASL_SSL", "PLAIN", SYSTEM, PLAIN_12)
CLOUD_PAK = Setup("Event Streams with a PKCS12 store", "SASL_SSL", "SCRAM-SHA-512", "PKCS12")
STRIMZI_ROUTE = Setup("Strimzi by a route, JKS", "TLS", stores="JKS")
LOCAL = Setup("plain Kafka", "PLAINTEXT")
REGION = Setup("regions with a user each and ACLs", "SASL_SSL", "SCRAM-SHA-512")
RECOVERY = Setup("Strimzi lab, PKCS12", "TLS", stores="PKCS12")
AMQ = Setup("AMQ Streams by a route", "TLS", extra=(("ssl.endpoint.identification.algorithm", ""),))
TOKEN = Setup("OAuth without TLS", "SASL_PLAINTEXT", "OAUTHBEARER")
SHORT_SCRAM = Setup("SCRAM-SHA-256, certificates in the file", "SASL_SSL", "SCRAM-SHA-256", "INLINE")
OWN_KEY = Setup("certificates of both sides, JKS", "MTLS", stores="JKS")

MATRIX = [(CLOUD, CLOUD_PAK, STRIMZI_ROUTE), (LOCAL, RECOVERY, AMQ)]
"""Each column is a cluster; all of them are mirrored into the next one and back."""
FURTHER = (TOKEN, SHORT_SCRAM, OWN_KEY)


def secured_of(cluster: LabCluster) -> Secured:
    assert cluster.secured is not None
    return cluster.secured


class Ring:
    """Clusters that are mirrored into each other, pair by pair and both ways."""

    def __init__(self, setups: Mapping[LabCluster, Setup]) -> None:
        self.setups = setups
        self.topics = {cluster.alias: create_topic(cluster, unique("secure"), 2) for cluster in setups}
        clusters = list(setups)
        pairs = list(itertools.pairwise(clusters))
        self.flows = [*pairs, *((target, source) for source, target in pairs)]

    def flow_keys(self) -> dict[str, str]:
        return {f"{one.alias}->{other.alias}.topics": self.topics[one.alias] for one, other in self.flows}

    def client_keys(self) -> dict[str, str]:
        return {
            f"{cluster.alias}.{key}": value
            for cluster, setup in self.setups.items()
            for key, value in setup.keys(cluster).items()
        }

    def produce(self, values: list[bytes]) -> None:
        for cluster in self.setups:
            produce(cluster, self.topics[cluster.alias], values)

    def wait_mirrored(self, mirror: MirrorProcess) -> None:
        for source, target in self.flows:
            topic = self.topics[source.alias]
            mirror.wait_mirrored(View(source, topic), View(target, f"{source.alias}.{topic}"))

    def assert_equal_to_others_view(self) -> None:
        """What librdkafka reads by the same listeners."""
        for source, target in self.flows:
            topic = self.topics[source.alias]
            read = View(source, topic, access=self.setups[source].access(source)).read()
            copied = View(target, f"{source.alias}.{topic}", access=self.setups[target].access(target)).read()
            assert sum(map(len, read)) > 0
            assert_equal(read, copied)

    def assert_silent_about_secrets(self, mirror: MirrorProcess) -> None:
        for cluster in self.setups:
            for name, secret in secured_of(cluster).secrets().items():
                assert secret not in mirror.output, name


def environment(clusters: list[LabCluster], folder: Path) -> dict[str, str]:
    """One in which the clusters' authorities are the system's."""
    bundle = folder / "system.crt"
    bundle.write_text("".join(secured_of(cluster).authority.own.pem for cluster in clusters))
    return {"SSL_CERT_FILE": str(bundle)}


def mirror_ring(ring: Ring, folder: Path, *, stay_s: float) -> None:
    """Mirror, compare, stay until sessions have ended, and compare again."""
    clusters = list(ring.setups)
    bootstraps = {cluster.alias: "127.0.0.1:1" for cluster in clusters}
    keys = {**ring.flow_keys(), **ring.client_keys()}
    mirror = MirrorProcess(folder, bootstraps, keys, environment=environment(clusters, folder))
    ring.produce([b"%d" % number for number in range(300)])
    with mirror:
        began = time.monotonic()
        ring.wait_mirrored(mirror)
        # Sessions of north and south end after 10 s: without logging in again connections would break.
        mirror.wait_until(lambda: time.monotonic() > began + stay_s, what="the end of some sessions")
        ring.produce([b"later"])
        ring.wait_mirrored(mirror)
    ring.assert_equal_to_others_view()
    ring.assert_silent_about_secrets(mirror)
    assert "connection" not in "".join(mirror.stderr).lower()


@pytest.mark.timeout(300)
@pytest.mark.parametrize("setups", MATRIX, ids=lambda setups: " + ".join(setup.row for setup in setups))
def test_set_ups_of_users_mirror_both_ways(
    setups: tuple[Setup, ...], north: LabCluster, south: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    stay_s = SESSION_S if setups[0].mechanism else 0.0
    mirror_ring(Ring(dict(zip((north, south, trio), setups, strict=True))), tmp_path, stay_s=stay_s)


@pytest.mark.long
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("stores", STORES)
def test_every_set_up_with_every_kind_of_store(
    stores: str, north: LabCluster, south: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    every = [EVENT_STREAMS_ROUTE, EVENT_STREAMS_INSIDE, REGION, *(setup for row in MATRIX for setup in row), *FURTHER]
    for at in range(0, len(every), 3):
        three = [
            setup if setup.stores == SYSTEM else dataclasses.replace(setup, stores=stores)
            for setup in every[at : at + 3]
        ]
        mirror_ring(Ring(dict(zip((north, south, trio), three, strict=True))), tmp_path, stay_s=SESSION_S)


# -- a resource, as operators have it


def write_secret(folder: Path, name: str, **files: str) -> None:
    (folder / name).mkdir(parents=True)
    for key, text in files.items():
        (folder / name / key.replace("_", ".")).write_text(text)


def resource(ring: Ring, folder: Path) -> str:
    """A `KafkaMirrorMaker2` of the ring; its secrets are in the folder."""
    clusters = []
    for cluster, setup in ring.setups.items():
        secured = secured_of(cluster)
        own = secured.folder / "users" / "mirror"
        write_secret(folder, f"{cluster.alias}-ca", ca_crt=secured.authority.own.pem)
        write_secret(
            folder,
            f"{cluster.alias}-user",
            password=secured.password("mirror"),
            user_crt=(own / "user.crt").read_text(),
            user_key=(own / "user.key").read_text(),
        )
        pair = {"certificate": "user.crt", "key": "user.key", "secretName": f"{cluster.alias}-user"}
        login: dict[str, object] = {"type": "scram-sha-512", "username": "mirror"}
        login |= {"passwordSecret": {"secretName": f"{cluster.alias}-user", "password": "password"}}
        clusters.append(
            {
                "alias": cluster.alias,
                "bootstrapServers": secured.bootstrap(setup.listener),
                "config": {
                    **{f"{name}.storage.replication.factor": 1 for name in ("config", "offset", "status")},
                    "ssl.endpoint.identification.algorithm": "https",
                },
                "tls": {"trustedCertificates": [{"secretName": f"{cluster.alias}-ca", "certificate": "ca.crt"}]},
                "authentication": {"type": "tls", "certificateAndKey": pair} if setup.listener == "MTLS" else login,
            }
        )
    documents = []
    for target in ring.setups:
        sources = [source for source, other in ring.flows if other is target]
        aliases = [source.alias for source in sources]
        documents.append(
            {
                "apiVersion": "kafka.strimzi.io/v1beta2",
                "kind": "KafkaMirrorMaker2",
                "metadata": {"name": f"to-{target.alias}-{unique('mirror')}"},
                "spec": {
                    "connectCluster": target.alias,
                    "clusters": [entry for entry in clusters if entry["alias"] in (target.alias, *aliases)],
                    "mirrors": [
                        {
                            "sourceCluster": source.alias,
                            "targetCluster": target.alias,
                            "topicsPattern": ring.topics[source.alias],
                            "sourceConnector": {"config": {"replication.factor": 1}},
                        }
                        for source in sources
                    ],
                },
            }
        )
    return yaml.safe_dump_all(documents)


@pytest.mark.timeout(300)
def test_a_resource_with_mounted_secrets_mirrors_by_route_service_and_region(
    north: LabCluster, south: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    ring = Ring({north: REGION, south: EVENT_STREAMS_INSIDE, trio: EVENT_STREAMS_ROUTE})
    secrets = tmp_path / "secrets"
    mirror = MirrorProcess(tmp_path, {}, {}, arguments=["--secrets", str(secrets)])
    mirror.config = mirror.folder / "mirror.yaml"
    mirror.config.write_text(resource(ring, secrets))
    ring.produce([b"%d" % number for number in range(300)])
    with mirror:
        ring.wait_mirrored(mirror)
    ring.assert_equal_to_others_view()
    ring.assert_silent_about_secrets(mirror)


# -- faults, each named as what it is


Change = Callable[[LabCluster], dict[str, str]]


def with_listener(listener: str, **changes: str) -> Change:
    def keys(cluster: LabCluster) -> dict[str, str]:
        found = secured_of(cluster).client_properties(listener)
        return {**found, **{key.replace("_", "."): value for key, value in changes.items()}}

    return keys


def plain_to_tls(cluster: LabCluster) -> dict[str, str]:
    return {"bootstrap.servers": secured_of(cluster).bootstrap("TLS")}


def tls_to_plain(cluster: LabCluster) -> dict[str, str]:
    return {**secured_of(cluster).client_properties("TLS"), "bootstrap.servers": cluster.bootstrap}


def without_certificate(cluster: LabCluster) -> dict[str, str]:
    found = secured_of(cluster).client_properties("MTLS")
    return {key: value for key, value in found.items() if "keystore" not in key and "key.password" not in key}


SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
FAULTS: dict[str, tuple[Change, str]] = {
    "expired": (with_listener("EXPIRED"), "the broker's certificate has expired"),
    "wrong host": (with_listener("WRONG_HOST"), 'the broker\'s certificate is not for "127.0.0.1"'),
    "wrong password": (
        with_listener("SASL_SSL", sasl_jaas_config=f'{SCRAM} required username="x" password="y";'),
        'login as "x" with SCRAM-SHA-512 was refused',
    ),
    "plain text to a TLS port": (plain_to_tls, "the port speaks TLS, not plain text"),
    "TLS to a plain port": (tls_to_plain, "the port speaks plain text, not TLS"),
    "no certificate of ours": (without_certificate, "the broker refuses our certificate, or misses one"),
}


@pytest.mark.timeout(120)
@pytest.mark.parametrize("fault", FAULTS)
def test_check_names_each_fault_as_what_it_is(fault: str, north: LabCluster, south: LabCluster, tmp_path: Path) -> None:
    change, expected = FAULTS[fault]
    keys = {f"north.{key}": value for key, value in change(north).items()}
    mirror = MirrorProcess(tmp_path, {"north": "127.0.0.1:1", "south": south}, {**keys, "north->south.topics": "x"})
    done = subprocess.run([HELIOGRAPH, "check", str(mirror.config)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert expected in done.stdout


# -- what is replaced while a mirror runs


@pytest.mark.timeout(180)
def test_a_store_and_a_password_that_are_replaced_count_from_the_next_connection_on(
    north: LabCluster, south: LabCluster, tmp_path: Path
) -> None:
    """First the wrong authority is trusted; later the password changes, in its file and on the cluster."""
    user, passwords, store = unique("rotating"), tmp_path / "passwords", tmp_path / "ca.crt"
    rules = [
        Acl(principal=f"User:{user}", operation=Operation.ALL, resource_type=kind, name="*")
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
    ]
    as_admin(north, lambda cluster: create_acls(cluster, rules))

    def change(password: str) -> None:
        passwords.write_text(f"mirror = {password}\n")
        as_admin(north, lambda cluster: set_passwords(cluster, {user: password}))

    change("first")
    store.write_text(secured_of(south).authority.own.pem)
    ring = Ring({north: REGION, south: LOCAL})
    replaced = {
        "north.ssl.truststore.location": str(store),
        "north.sasl.jaas.config": f'{SCRAM} required username="{user}" password="${{file:{passwords}:mirror}}";',
    }
    keys = {**ring.flow_keys(), **ring.client_keys(), **replaced}
    ring.produce([b"1"])
    with MirrorProcess(tmp_path, {"north": "127.0.0.1:1", "south": "127.0.0.1:1"}, keys) as mirror:
        mirror.wait_for("the broker's certificate is not signed by a trusted authority")
        both = (secured_of(north).authority.own.pem, secured_of(south).authority.own.pem)
        store.write_text("".join(both))  # as during a change of authorities
        ring.wait_mirrored(mirror)
        change("second")
        changed = time.monotonic()
        mirror.wait_until(lambda: time.monotonic() > changed + SESSION_S, what="the end of all sessions")
        ring.produce([b"2"])
        ring.wait_mirrored(mirror)


def as_admin(cluster: LabCluster, work: Callable[[kafka.Cluster], Awaitable[object]]) -> None:
    ask(cluster.bootstrap, PLAINTEXT, work)
