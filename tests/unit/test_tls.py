"""Connections in TLS: every kind of store, every way a handshake fails, each named as what it is."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from heliograph.errors import ConfigError, HeliographError, StoreUnusable, TlsFailed, Unreachable
from heliograph.kafka.connection import BufferPool, Connection, open_connection
from heliograph.kafka.security import Security, openssl_name
from heliograph.kafka.types import BrokerAddress
from heliograph.lab.pki import Authority, Signed, key_store, trust_store, write_private

PASSWORD = "not a secret"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Signed:
    return authority.sign("broker")


@asynccontextmanager
async def echoing(
    folder: Path, server: Signed | None, *, client_authority: Authority | None = None
) -> AsyncIterator[BrokerAddress]:
    """A peer that answers every framed request with its own bytes; in plain text if it has no certificate."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError, ssl.SSLError):
            while True:
                size = await reader.readexactly(4)
                writer.write(size + await reader.readexactly(struct.unpack(">i", size)[0]))
                await writer.drain()
        writer.close()

    context = None
    if server is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own = folder / "server.pem"
        own.write_text(server.pem + server.key_pem())
        context.load_cert_chain(own)
        if client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_authority.own.pem)
    listening = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield BrokerAddress("127.0.0.1", listening.sockets[0].getsockname()[1])
    finally:
        listening.close()


async def open_to(address: BrokerAddress, properties: dict[str, str]) -> Connection:
    return await open_connection(
        address,
        where="test",
        pool=BufferPool(),
        connect_timeout_s=5,
        timeout_s=5,
        tls=Security("SSL", properties).context(where="test"),
    )


async def echo(connection: Connection, *payloads: bytes) -> list[bytes]:
    """Send payloads as one request."""
    body = b"".join(payloads)
    request = [struct.pack(">ii", len(body) + 4, 7), *payloads]
    answer = await connection.send(request, 7)
    return [bytes(answer[4:])]


def failure_of(folder: Path, server: Signed | None, properties: dict[str, str], **peer: Authority) -> HeliographError:
    async def test() -> None:
        async with echoing(folder, server, **peer) as address:
            connection = await open_to(address, properties)
            await echo(connection, b"x")

    with pytest.raises(HeliographError) as caught:
        asyncio.run(test())
    return caught.value


@pytest.mark.parametrize("kind", ["PEM", "PKCS12", "JKS"])
@pytest.mark.parametrize("named", [True, False])
def test_every_kind_of_store_trusts_and_identifies(
    kind: str, named: bool, authority: Authority, server: Signed, tmp_path: Path
) -> None:
    """Also several authorities in one store, and a type that is not named."""
    other, client = Authority("other"), authority.sign("client")
    trust = write_private(tmp_path / "trust", trust_store(kind, [other, authority], PASSWORD))
    properties = {
        "ssl.truststore.location": str(trust),
        "ssl.truststore.password": PASSWORD,
        "ssl.keystore.location": str(write_private(tmp_path / "identity", key_store(kind, client, PASSWORD))),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    }
    if named:
        properties |= {"ssl.truststore.type": kind, "ssl.keystore.type": kind}

    async def test() -> None:
        async with echoing(tmp_path, server, client_authority=authority) as address:
            connection = await open_to(address, properties)
            large = bytes(range(256)) * 8192
            assert await echo(connection, b"a", b"bc", large, b"d") == [b"abc" + large + b"d"]
            connection.close()

    asyncio.run(test())


def test_inline_pem_is_a_store_too(authority: Authority, server: Signed, tmp_path: Path) -> None:
    client = authority.sign("client")
    properties = {
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": authority.own.pem,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": client.pem,
        "ssl.keystore.key": client.key_pem(PASSWORD),
        "ssl.key.password": PASSWORD,
    }

    async def test() -> None:
        async with echoing(tmp_path, server, client_authority=authority) as address:
            connection = await open_to(address, properties)
            assert await echo(connection, b"x") == [b"x"]
            connection.close()

    asyncio.run(test())


def trusting(authority: Authority, **more: str) -> dict[str, str]:
    given = {key.replace("_", "."): value for key, value in more.items()}
    return {"ssl.truststore.certificates": authority.own.pem, **given}


@pytest.mark.parametrize("other", [Authority("another"), Authority()], ids=["other name", "same name, as renewed"])
def test_an_unknown_authority_is_named(other: Authority, server: Signed, tmp_path: Path) -> None:
    error = failure_of(tmp_path, server, trusting(other))
    assert isinstance(error, TlsFailed)
    assert "not signed by a trusted authority" in str(error)
    assert "ssl.truststore" in str(error)


def test_an_expired_certificate_is_named(authority: Authority, tmp_path: Path) -> None:
    error = failure_of(tmp_path, authority.sign_expired("broker"), trusting(authority))
    assert "has expired" in str(error)


def test_a_certificate_of_another_host_is_named_and_the_check_can_be_switched_off(
    authority: Authority, tmp_path: Path
) -> None:
    elsewhere = authority.sign("broker", names=("elsewhere.example",))
    error = failure_of(tmp_path, elsewhere, trusting(authority))
    assert 'not for "127.0.0.1"' in str(error)

    async def test() -> None:
        async with echoing(tmp_path, elsewhere) as address:
            connection = await open_to(address, trusting(authority, ssl_endpoint_identification_algorithm=""))
            assert await echo(connection, b"x") == [b"x"]
            connection.close()

    asyncio.run(test())


def test_a_plain_port_is_named(authority: Authority, tmp_path: Path) -> None:
    async def test() -> None:
        async def babble(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            await writer.drain()

        listening = await asyncio.start_server(babble, "127.0.0.1", 0)
        try:
            address = BrokerAddress("127.0.0.1", listening.sockets[0].getsockname()[1])
            with pytest.raises(TlsFailed, match="speaks plain text"):
                await open_to(address, trusting(authority))
        finally:
            listening.close()

    asyncio.run(test())


def test_a_listener_that_wants_a_certificate_is_named(authority: Authority, server: Signed, tmp_path: Path) -> None:
    error = failure_of(tmp_path, server, trusting(authority), client_authority=authority)
    assert isinstance(error, TlsFailed | Unreachable)


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        ({"ssl.truststore.location": "/no/such/file"}, "cannot be read"),
        ({"ssl.truststore.certificates": "nonsense"}, "no certificate in PEM form"),
        ({"ssl.truststore.certificates": "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"}, "damaged"),
        ({"ssl.keystore.key": "nonsense"}, "no private key"),
        ({"ssl.truststore.type": "BKS", "ssl.truststore.location": __file__}, 'store type "BKS" is not known'),
        ({"ssl.truststore.location": contextlib.__file__}, "neither a JKS, a PKCS12 nor a PEM store"),
    ],
)
def test_an_unusable_store_is_named(properties: dict[str, str], expected: str) -> None:
    with pytest.raises(StoreUnusable) as caught:
        Security("SSL", properties).context(where='"A"')
    assert expected in str(caught.value)


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_a_wrong_password_is_named_and_not_shown(kind: str, authority: Authority, tmp_path: Path) -> None:
    path = write_private(tmp_path / "trust", trust_store(kind, [authority], PASSWORD))
    properties = {"ssl.truststore.location": str(path), "ssl.truststore.password": "hunter2"}
    with pytest.raises(StoreUnusable) as caught:
        Security("SSL", properties).context(where='"A"')
    assert "check ssl.truststore.password" in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_tls_versions_and_ciphers() -> None:
    context = Security("SSL", {"ssl.enabled.protocols": "TLSv1.2"}).context(where="x")
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    context = Security("SSL", {"ssl.protocol": "TLSv1.2"}).context(where="x")
    assert context.minimum_version == ssl.TLSVersion.TLSv1_2
    assert openssl_name("TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256") == "ECDHE-RSA-AES128-GCM-SHA256"
    with pytest.raises(ConfigError, match="cannot be used"):
        Security("SSL", {"ssl.protocol": "TLSv9"}).context(where="x")
    with pytest.raises(ConfigError, match="no cipher known"):
        Security("SSL", {"ssl.cipher.suites": "TLS_MADE_UP"}).context(where="x")


def test_a_replaced_store_is_noticed(authority: Authority, tmp_path: Path) -> None:
    path = write_private(tmp_path / "trust", trust_store("PEM", [authority], ""))
    security = Security("SSL", {"ssl.truststore.location": str(path)})
    before = security.stamp()
    path.write_text(Authority("new").own.pem + authority.own.pem)
    assert security.stamp() != before
