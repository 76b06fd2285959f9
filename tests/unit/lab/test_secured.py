"""What brokers and clients of a secured cluster are told."""

from __future__ import annotations

import base64
import json
import stat
from pathlib import Path

import pytest

from heliograph.errors import LabError
from heliograph.kafka.security.client_security import Security
from heliograph.kafka.security.jaas import parse_jaas
from heliograph.lab.cluster import Lab, LabCluster
from heliograph.lab.listeners import LISTENERS, MODULES, broker_name
from heliograph.lab.pki import Authority
from heliograph.lab.secured import STORES, USERS, Secured, unsigned_token
from heliograph.lab.servers import count_ports, format_properties, plan_nodes
from heliograph.lab.spec import ClusterSpec
from heliograph.lab.starter_files import WAYS, remove_ready_files, write_ready_files


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Secured:
    made = Secured("No_rth", tmp_path_factory.mktemp("lab") / "security", Authority(), proxy_port=9)
    made.locate({1: {name: 100 + at for at, name in enumerate(LISTENERS)}, 2: dict.fromkeys(LISTENERS, 200)})
    made.write()
    return made


def test_every_file_is_its_owners_alone(secured: Secured) -> None:
    paths = [secured.folder, *secured.folder.rglob("*")]
    assert {stat.S_IMODE(path.stat().st_mode) for path in paths} == {0o600, 0o700}
    names = {str(path.relative_to(secured.folder)) for path in paths if path.is_file()}
    assert {
        "ca.crt",
        "ca.p12",
        "ca.jks",
        *(f"users/mirror/user.{kind}" for kind in ("crt", "key", "p12", "jks", "pem")),
    } <= names


@pytest.mark.parametrize("stores", STORES)
@pytest.mark.parametrize("user", USERS)
def test_every_store_makes_a_context(stores: str, user: str, secured: Secured) -> None:
    properties = secured.client_properties("MTLS", user=user, stores=stores)
    assert properties["bootstrap.servers"] == "127.0.0.1:101,127.0.0.1:200"
    Security(properties["security.protocol"], properties).context(where="x")


@pytest.mark.parametrize("mechanism", MODULES)
@pytest.mark.parametrize("listener", ["SASL_PLAINTEXT", "SASL_SSL", "SNI"])
def test_every_login_can_be_read(mechanism: str, listener: str, secured: Secured) -> None:
    properties = secured.client_properties(listener, mechanism=mechanism, user="app")
    login = Security(properties["security.protocol"], properties).login(where="x")
    assert login is not None
    assert login.mechanism == mechanism
    if mechanism != "OAUTHBEARER":
        assert (login.user, login.options["password"]) == ("app", secured.password("app"))


def test_passwords_must_be_escaped_and_no_two_are_alike(secured: Secured) -> None:
    texts = [secured.store_password, secured.key_password, *secured.passwords.values()]
    assert len(set(texts)) == 4
    assert all({'"', "\\", " "} <= set(text) for text in texts)
    assert set(texts) <= set(secured.secrets().values())


def test_brokers_advertise_the_proxy_under_names_of_their_own(tmp_path: Path) -> None:
    spec = ClusterSpec(alias="No_rth", brokers=2, authority=Authority(), config={"connections.max.reauth.ms": "7"})
    secured = Secured(spec.alias, tmp_path, Authority(), proxy_port=9)
    ports = list(range(1, count_ports(spec) + 1))
    nodes = plan_nodes(spec, ports, jars=tmp_path, data=tmp_path, logs=tmp_path, secured=secured)
    secured.locate({node.node_id: node.extra_ports for node in nodes})
    properties = nodes[1].properties
    assert broker_name("No_rth", 2) == "broker-2.no-rth.localhost"
    assert "SNI://broker-2.no-rth.localhost:9" in properties["advertised.listeners"].split(",")
    assert len({node.properties["listeners"] for node in nodes}) == 2
    assert properties["connections.max.reauth.ms"] == "7"
    own = nodes[1].extra_ports["SNI"]
    assert secured.routes()["broker-2.no-rth.localhost"] == (own,)
    assert secured.routes()["bootstrap.no-rth.localhost"] == (nodes[0].extra_ports["SNI"], own)
    assert secured.client_properties("SNI")["bootstrap.servers"] == "bootstrap.no-rth.localhost:9"


def test_brokers_know_the_users_passwords(secured: Secured) -> None:
    text = secured.broker_properties(1)["listener.name.sasl_ssl.plain.sasl.jaas.config"]
    assert parse_jaas(text, where="x").options == {f"user_{user}": secured.password(user) for user in USERS}
    assert text.replace("\\", "\\\\") in format_properties(secured.broker_properties(1))


def test_unsigned_token_names_the_user() -> None:
    head, claims, signature = unsigned_token("mirror", lifetime_s=60).split(".")
    decoded = [json.loads(base64.urlsafe_b64decode(part + "===")) for part in (head, claims)]
    assert decoded[0] == {"alg": "none"}
    assert decoded[1]["sub"] == "mirror"
    assert decoded[1]["exp"] - decoded[1]["iat"] == 60
    assert signature == ""


@pytest.mark.parametrize(("listener", "stores"), [("PLAINTEXT", "PEM"), ("TLS", "BKS")])
def test_what_there_is_not_is_named(listener: str, stores: str, secured: Secured) -> None:
    with pytest.raises(LabError, match="listeners: TLS"):
        secured.client_properties(listener, stores=stores)
    with pytest.raises(LabError, match='no user "x"'):
        secured.password("x")
    with pytest.raises(LabError, match='no mechanism "GSSAPI"'):
        secured.client_properties("SNI", mechanism="GSSAPI")


def test_old_kafka_cannot_be_secured() -> None:
    with pytest.raises(LabError, match="cannot be secured"):
        ClusterSpec(alias="old", version="2.4.1", authority=Authority())


@pytest.mark.parametrize("way", WAYS)
def test_ready_files_have_no_secret_and_go_again(way: str, secured: Secured, tmp_path: Path) -> None:
    clusters = [
        LabCluster(ClusterSpec(alias=alias, authority=secured.authority), (), Lab(tmp_path), secured)
        for alias in ("north", "south", "north.x")
    ]
    shown = write_ready_files(tmp_path, clusters, way)
    files = {path.name: path.read_text() for path in tmp_path.iterdir()}
    assert files.keys() == {
        "mm2.properties", "north-client.properties", "south-client.properties", "north.x-client.properties"
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in tmp_path.iterdir()} == {0o600}
    everything = "".join([*files.values(), *shown.values()])
    assert [name for name, secret in secured.secrets().items() if secret in everything] == []
    assert "north.x" not in files["mm2.properties"]
    remove_ready_files(tmp_path)
    assert not list(tmp_path.iterdir())


def test_ready_files_leave_those_of_others_alone(secured: Secured, tmp_path: Path) -> None:
    cluster = LabCluster(ClusterSpec(alias="north", authority=secured.authority), (), Lab(tmp_path), secured)
    theirs = tmp_path / "north-client.properties"
    theirs.write_text("x=1\n")
    with pytest.raises(LabError, match="already"):
        write_ready_files(tmp_path, [cluster], "tls")
    remove_ready_files(tmp_path)
    assert theirs.read_text() == "x=1\n"
