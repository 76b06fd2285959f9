"""Connections step by step, against brokers in this process: what passes, and how each failure is named."""

from __future__ import annotations

import asyncio
import datetime
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.sasl import SaslHandshakeRequest

from heliograph.config.load import parse_settings
from heliograph.errors import ConfigError
from heliograph.kafka import messages
from heliograph.kafka.security.client_security import PLAINTEXT, Security
from heliograph.kafka.types import BrokerAddress
from heliograph.lab.pki import Authority, Signed
from heliograph.preflight import probe as probe_module
from heliograph.preflight.certificate import Certificate, judge
from heliograph.preflight.check import read_app_security
from heliograph.preflight.connect import Look, look_at
from heliograph.preflight.logins import ClusterLogin, list_logins
from heliograph.preflight.probe import judge_versions
from heliograph.preflight.steps import Step, Verdict
from tests.fake_cluster import FakeCluster
from tests.unit.helpers.samples import BASE

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
NOW = datetime.datetime.now(datetime.UTC)


@pytest.fixture(autouse=True)
def _fake_brokers_do_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """They have no administrative requests, which the check would miss."""
    monkeypatch.setattr(messages, "lacking", lambda *_: [])


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


def access(*addresses: BrokerAddress, security: Security = PLAINTEXT) -> ClusterLogin:
    return ClusterLogin(alias="A", roles=("admin", "consumer"), bootstrap=addresses, security=security)


async def looked(*addresses: BrokerAddress, security: Security = PLAINTEXT) -> Look:
    look = await look_at(access(*addresses, security=security))
    if look.cluster is not None:
        look.cluster.close()
    return look


def verdicts(steps: tuple[Step, ...]) -> list[tuple[str, Verdict]]:
    return [(step.step, step.verdict) for step in steps]


def failure(look: Look) -> Step:
    [step] = [step for step in look.steps if step.verdict is FAIL]
    return step


def unused_address() -> BrokerAddress:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return BrokerAddress("127.0.0.1", sock.getsockname()[1])


@asynccontextmanager
async def in_tls(
    fake: FakeCluster, signed: Signed, folder: Path, *, client_authority: Authority | None = None
) -> AsyncIterator[BrokerAddress]:
    """A TLS port before the only broker of a cluster, which advertises that port."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    own = folder / "server.pem"
    own.write_text(signed.pem + signed.key_pem())
    context.load_cert_chain(own)
    if client_authority is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(cadata=client_authority.own.pem)
    [broker] = fake.brokers.values()
    await broker.stop()
    server = await asyncio.start_server(broker._accept, "127.0.0.1", 0, ssl=context)
    broker._server, broker.port = server, server.sockets[0].getsockname()[1]
    yield broker.address


def trusting(authority: Authority, **more: str) -> Security:
    given = {key.replace("_", "."): value for key, value in more.items()}
    return Security("SSL", {"ssl.truststore.certificates": authority.own.pem, **given})


def test_a_good_cluster_passes() -> None:
    async def test() -> None:
        async with FakeCluster("A", brokers=2) as fake:
            look = await looked(fake.bootstrap[0])
            assert look.cluster is not None
            assert look.cluster_id == "cluster-A"
            address = ["name", "tcp", "api versions", "round trip"]
            assert verdicts(look.steps) == [(step, PASS) for step in [*address, "cluster", "advertised", *address]]
            assert {step.role for step in look.steps} == {"admin, consumer"}
            assert look.steps[-1].subject == f"broker 2 at {fake.bootstrap[1]}"

    asyncio.run(test())


def test_a_name_that_cannot_be_resolved() -> None:
    step = failure(asyncio.run(looked(BrokerAddress("no-such-host.invalid", 1))))
    assert (step.step, step.subject) == ("name", "no-such-host.invalid:1")
    assert "cannot be resolved" in step.what
    assert "DNS" in step.remedy


def test_a_port_that_nobody_listens_to() -> None:
    step = failure(asyncio.run(looked(unused_address())))
    assert step.step == "tcp"
    assert "refused" in step.what
    assert "is the broker running" in step.remedy


def test_a_broker_that_never_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        monkeypatch.setattr("heliograph.preflight.connect.TIMEOUT_S", 0.2)

        async def wait(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.read()
            writer.close()

        listening = await asyncio.start_server(wait, "127.0.0.1", 0)
        try:
            address = BrokerAddress("127.0.0.1", listening.sockets[0].getsockname()[1])
            step = failure(await looked(address))
            assert step.step == "api versions"
            assert "no answer in time" in step.what
            await asyncio.sleep(0.05)
        finally:
            listening.close()

    monkeypatch.setattr(probe_module, "STEP_TIMEOUT_S", 0.2)
    asyncio.run(test())


def test_one_of_two_bootstrap_addresses_is_enough() -> None:
    async def test() -> None:
        async with FakeCluster("A") as fake:
            look = await looked(unused_address(), fake.bootstrap[0])
            assert look.cluster is not None
            assert [step.step for step in look.steps if step.verdict is WARN] == ["tcp"]
            assert not [step for step in look.steps if step.verdict is FAIL]

    asyncio.run(test())


@pytest.mark.parametrize("is_bootstrap", [True, False])
def test_an_advertised_listener_that_cannot_be_reached_is_named(is_bootstrap: bool) -> None:
    async def test() -> None:
        async with FakeCluster("A", brokers=3) as fake:
            await fake.brokers[2].stop()
            look = await looked(*(fake.bootstrap if is_bootstrap else fake.bootstrap[:1]))
            step = failure(look)
            assert (step.step, step.subject) == ("advertised", f"broker 2 at {fake.bootstrap[1]}")
            assert step.what.startswith("the advertised listener of broker 2 cannot be reached: no connection")
            assert "advertised.listeners" in step.remedy
            assert look.steps[-1].subject.startswith("broker 3")

    asyncio.run(test())


def test_addresses_of_different_clusters() -> None:
    async def test() -> None:
        async with FakeCluster("A") as one, FakeCluster("B") as other:
            step = failure(await looked(*one.bootstrap, *other.bootstrap))
            assert step.step == "cluster"
            assert "different clusters" in step.what

    asyncio.run(test())


# -- TLS


def test_a_good_certificate_is_shown(authority: Authority, tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeCluster("A") as fake, in_tls(fake, authority.sign("b", days=50), tmp_path) as address:
            look = await looked(address, security=trusting(authority))
            step = next(step for step in look.steps if step.step == "tls")
            assert step.verdict is PASS
            assert "certificate for localhost, 127.0.0.1, by CN=lab authority, until 20" in step.what
            assert look.cluster is not None

    asyncio.run(test())


@pytest.mark.parametrize(
    ("days", "names", "trusted", "text", "remedy"),
    [
        (50, ("elsewhere.example",), True, 'not for "127.0.0.1"', "use a name that is in it"),
        (-1, ("127.0.0.1",), True, "has expired", "renew it"),
        (50, ("127.0.0.1",), False, "not signed by a trusted authority", "ssl.truststore"),
    ],
)
def test_a_bad_certificate_is_named_and_shown(
    *, days: int, names: tuple[str, ...], trusted: bool, text: str, remedy: str, authority: Authority, tmp_path: Path
) -> None:
    async def test() -> None:
        signed = authority.sign("b", names=names, days=days)
        async with FakeCluster("A") as fake, in_tls(fake, signed, tmp_path) as address:
            step = failure(await looked(address, security=trusting(authority if trusted else Authority("other"))))
            assert step.step == "tls"
            assert text in step.what
            assert f"certificate for {names[0]}, by CN=lab authority" in step.what
            assert remedy in step.remedy

    asyncio.run(test())


def test_tls_to_a_plain_port(authority: Authority) -> None:
    async def test() -> None:
        async with FakeCluster("A") as fake:
            # Kafka takes the handshake for a size and hangs up; so does the fake, once the read ends.
            step = failure(await looked(fake.bootstrap[0], security=trusting(authority)))
            assert step.step == "tls"
            assert "plain text" in step.what
            assert "security.protocol" in step.remedy

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe_module, "STEP_TIMEOUT_S", 0.5)
        asyncio.run(test())


def test_plain_text_to_a_tls_port(authority: Authority, tmp_path: Path) -> None:
    async def test() -> None:
        async with FakeCluster("A") as fake, in_tls(fake, authority.sign("b"), tmp_path) as address:
            step = failure(await looked(address))
            assert step.step == "api versions"
            assert "the port speaks TLS" in step.what
            assert "security.protocol to SSL" in step.remedy

    asyncio.run(test())


def test_a_listener_that_wants_our_certificate(authority: Authority, tmp_path: Path) -> None:
    async def test() -> None:
        signed = authority.sign("b", days=50)
        async with FakeCluster("A") as fake, in_tls(fake, signed, tmp_path, client_authority=authority) as address:
            step = failure(await looked(address, security=trusting(authority)))
            assert "certificate" in step.what
            assert "ssl.keystore" in step.remedy

    asyncio.run(test())


def test_a_store_that_cannot_be_used_is_said_once() -> None:
    async def test() -> None:
        async with FakeCluster("A", brokers=2) as fake:
            security = Security("SSL", {"ssl.truststore.location": "/no/such/file"})
            look = await looked(*fake.bootstrap, security=security)
            assert failure(look).subject == "stores"
            assert verdicts(look.steps[1:]) == [("name", PASS), ("tcp", PASS)] * 2

    asyncio.run(test())


def test_what_a_certificate_is_judged_by() -> None:
    certificate = Certificate(names=("h",), issuer="CN=x", expires=NOW + datetime.timedelta(days=31))
    [note] = judge(certificate, version="TLSv1.3", checks_host=True, now=NOW)
    assert note.verdict is PASS
    late = NOW + datetime.timedelta(days=2)
    expiring, unchecked = judge(certificate, version="TLSv1.3", checks_host=False, now=late)
    assert (expiring.verdict, unchecked.verdict) == (WARN, WARN)
    assert "expires in 29 days" in expiring.what
    assert unchecked.what.startswith("host names are not checked")


# -- SASL


def scram(protocol: str = "SASL_PLAINTEXT") -> Security:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    keys = {
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="u" password="not shown";',
    }
    return Security(protocol, keys)


class _Answer:
    """A broker's part of a handshake, as the client reads it."""

    def __init__(self, **fields: Any) -> None:
        self.__dict__.update(fields)


@pytest.mark.parametrize(
    ("hello", "text", "remedy"),
    [
        (_Answer(error_code=33, mechanisms=["PLAIN"]), "does not take sasl.mechanism SCRAM-SHA-512", "it takes PLAIN"),
        (_Answer(error_code=0, mechanisms=["SCRAM-SHA-512"]), 'login as "u" with SCRAM-SHA-512', "check user"),
    ],
)
def test_a_login_that_is_refused(hello: _Answer, text: str, remedy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from heliograph.kafka.cluster import Cluster

    async def ask(_self: Cluster, _connection: object, request: Any) -> Any:
        return hello if isinstance(request, SaslHandshakeRequest) else _Answer(error_code=58, error_message="")

    monkeypatch.setattr(Cluster, "ask", ask)

    async def test() -> None:
        async with FakeCluster("A") as fake:
            look = await looked(fake.bootstrap[0], security=scram())
            step = failure(look)
            assert step.step == "sasl"
            assert text in step.what
            assert remedy in step.remedy
            assert "not shown" not in str(look.steps)

    asyncio.run(test())


def test_a_listener_that_wants_a_login() -> None:
    """It tells its versions to everybody and hangs up at the first other request."""

    async def test() -> None:
        async with FakeCluster("A") as fake:
            fake.cut_next(3, after=False, times=9)
            step = failure(await looked(fake.bootstrap[0]))
            assert step.step == "round trip"
            assert "may require a login" in step.what
            assert "SASL_PLAINTEXT" in step.remedy

    asyncio.run(test())


# -- who comes


def accesses(more: str) -> list[tuple[str, str]]:
    return [(found.alias, found.role) for found in list_logins(parse_settings(BASE + more))]


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ("", [("A", "admin, consumer"), ("B", "admin, producer")]),
        ("B->A.enabled = true\n", [("A", "admin, consumer, producer"), ("B", "admin, consumer, producer")]),
        ("A->B.consumer.ssl.key.password = x\n", [("A", "admin, consumer"), ("B", "admin, producer")]),
        ("A.consumer.security.protocol = SSL\n", [("A", "admin"), ("A", "consumer"), ("B", "admin, producer")]),
    ],
)
def test_roles_with_the_same_settings_are_one_access(more: str, expected: list[tuple[str, str]]) -> None:
    assert accesses(more) == expected


def test_a_cluster_of_no_enabled_flow_is_not_looked_at() -> None:
    settings = parse_settings(BASE.replace("A, B", "A, B, C") + "C.bootstrap.servers = c:1\nB->C.enabled = false\n")
    assert {found.alias for found in list_logins(settings)} == {"A", "B"}


def test_versions_that_are_lacking_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    versions = dict.fromkeys(range(60), (0, 99))
    assert judge_versions(versions).verdict is PASS
    note = judge_versions(versions | {3: (50, 60), 1: (0, 4)})
    assert note.verdict is FAIL
    assert "Metadata" in note.what
    assert "2.4" in note.remedy


def test_an_applications_properties(tmp_path: Path) -> None:
    file = tmp_path / "app.properties"
    file.write_text("bootstrap.servers=x:1\nsecurity.protocol=sasl_ssl\nsasl.mechanism=PLAIN\ngroup.id=g\n")
    security = read_app_security(file)
    assert (security.protocol, dict(security.properties)) == ("SASL_SSL", {"sasl.mechanism": "PLAIN"})
    file.write_text("security.protocol=TLS\n")
    with pytest.raises(ConfigError, match="TLS"):
        read_app_security(file)


def test_a_login_that_is_not_supported_is_named_although_no_broker_answers() -> None:
    async def test() -> None:
        look = await looked(BrokerAddress("127.0.0.1", 1), security=Security("SASL_PLAINTEXT", {}))
        step = next(step for step in look.steps if step.step == "sasl")
        assert (step.verdict, step.subject) == (FAIL, "settings")
        assert "Kerberos is not supported" in step.what

    asyncio.run(test())
