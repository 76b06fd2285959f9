"""Secured clusters: the protocols and stores that users have, mirrored end to end."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from heliograph.lab import Cluster, ClusterSpec, Lab
from tests.cluster.mirror import MirrorProcess, View, admin, create_topic, produce, unique
from tests.unit.certificates import Authority, write_identity, write_trust

USER, PASSWORD = "mirror", 'p"ss w\\rd'
STORE_PASSWORD = "store password"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
LOGIN = 'required username="mirror" password="p\\"ss w\\\\rd";'


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("stores")


@pytest.fixture(scope="module")
def secured(lab: Lab, authority: Authority, folder: Path) -> Iterator[Cluster]:
    """One broker with every protocol; SSL wants the client's certificate."""
    broker = folder / "broker"
    broker.mkdir()
    keystore = write_identity(broker, "PKCS12", authority.sign("broker"), STORE_PASSWORD)
    truststore = write_trust(broker, "JKS", [authority], STORE_PASSWORD)
    config = {
        "ssl.keystore.location": str(keystore),
        "ssl.keystore.password": STORE_PASSWORD,
        "ssl.key.password": STORE_PASSWORD,
        "ssl.keystore.type": "PKCS12",
        "ssl.truststore.location": str(truststore),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.truststore.type": "JKS",
        "listener.name.ssl.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
        "connections.max.reauth.ms": "10000",
    }
    for listener in ("sasl_ssl", "sasl_plaintext"):
        config |= {
            f"listener.name.{listener}.plain.sasl.jaas.config": f'{PLAIN} required user_{USER}="p\\"ss w\\\\rd";',
            f"listener.name.{listener}.scram-sha-256.sasl.jaas.config": f"{SCRAM} required;",
            f"listener.name.{listener}.scram-sha-512.sasl.jaas.config": f"{SCRAM} required;",
        }
    lab.start([ClusterSpec(alias="secured", config=config, listeners=("SSL", "SASL_PLAINTEXT", "SASL_SSL"))])
    cluster = lab.cluster("secured")
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        upsertion = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for done in admin(cluster).alter_user_scram_credentials([upsertion]).values():
            done.result(30)
    return cluster


def stores(folder: Path, authority: Authority, kind: str, *, identity: bool) -> dict[str, str]:
    own = folder / unique(kind)
    own.mkdir()
    keys = {
        "ssl.truststore.location": str(write_trust(own, kind, [Authority("other"), authority], STORE_PASSWORD)),
        "ssl.truststore.password": STORE_PASSWORD,
        "ssl.truststore.type": kind,
    }
    if identity:
        keys |= {
            "ssl.keystore.location": str(write_identity(own, kind, authority.sign("mirror"), STORE_PASSWORD)),
            "ssl.keystore.password": STORE_PASSWORD,
            "ssl.key.password": STORE_PASSWORD,
            "ssl.keystore.type": kind,
        }
    return keys


def login(mechanism: str) -> dict[str, str]:
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {"sasl.mechanism": mechanism, "sasl.jaas.config": f"{module} {LOGIN}"}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("into", "out"),
    [
        (("SASL_SSL", "SCRAM-SHA-512", "PKCS12"), ("SSL", "", "JKS")),
        (("SASL_PLAINTEXT", "PLAIN", ""), ("SASL_SSL", "SCRAM-SHA-256", "PEM")),
    ],
)
def test_mirroring_into_and_out_of_a_secured_cluster(  # noqa: PLR0917
    into: tuple[str, str, str],
    out: tuple[str, str, str],
    secured: Cluster,
    primary: Cluster,
    authority: Authority,
    folder: Path,
    tmp_path: Path,
) -> None:
    """Two aliases for one cluster would be refused, so each direction has a mirror of its own."""
    for direction, (protocol, mechanism, kind) in (("into", into), ("out", out)):
        keys = {"security.protocol": protocol, **(login(mechanism) if mechanism else {})}
        keys |= stores(folder, authority, kind, identity=protocol == "SSL") if kind else {}
        source, target = (primary, secured) if direction == "into" else (secured, primary)
        names = ("primary", "secured") if direction == "into" else ("secured", "primary")
        topic = create_topic(source, unique(f"secure-{direction}"), 2)
        produce(source, topic, [b"%d" % number for number in range(500)])
        clusters = {"primary": primary, "secured": secured.bootstrap_of(protocol)}
        settings = {f"{'->'.join(names)}.topics": topic, **{f"secured.{key}": value for key, value in keys.items()}}
        with MirrorProcess(tmp_path, clusters, settings) as mirror:
            started = time.monotonic()
            mirror.wait_mirrored(View(source, topic), View(target, f"{names[0]}.{topic}"))
            # Longer than the broker lets a session live: without logging in again the connections would break.
            mirror.wait_until(lambda at=started + 40: time.monotonic() > at, what="the end of some sessions")
            produce(source, topic, [b"later"])
            mirror.wait_mirrored(View(source, topic), View(target, f"{names[0]}.{topic}"))
        assert "connection" not in "".join(mirror.stderr).lower()
        assert PASSWORD not in mirror.output
        assert STORE_PASSWORD not in mirror.output


def test_a_wrong_password_is_named(secured: Cluster, primary: Cluster, tmp_path: Path) -> None:
    wrong = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": f'{SCRAM} required username="x" password="y";'}
    keys = {"secured.security.protocol": "SASL_PLAINTEXT", **{f"secured.{k}": v for k, v in wrong.items()}}
    clusters = {"primary": primary, "secured": secured.bootstrap_of("SASL_PLAINTEXT")}
    with MirrorProcess(tmp_path, clusters, {"secured->primary.topics": "x", **keys}) as mirror:
        mirror.wait_for('login as "x" with SCRAM-SHA-512 was refused')
