"""Connections in TLS: every kind of store, every way a handshake fails, each named as what it is."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import pytest

from heliograph.errors import ConfigError, HeliographError, StoreUnusable, TlsFailed, Unreachable
from heliograph.kafka.connection import WAKE_BYTES, BufferPool, Connection, open_connection
from heliograph.kafka.security.client_security import Security, openssl_name
from heliograph.kafka.types import BrokerAddress
from heliograph.kafka.wire import TLS_RECORD_BYTES, TlsWire
from heliograph.lab.pki import Authority, Signed, key_store, trust_store, write_private

PASSWORD = "not a secret"


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority()


@pytest.fixture(scope="module")
def server(authority: Authority) -> Signed:
    return authority.sign("broker")


@contextmanager
def echoing(
    folder: Path,
    server: Signed | None,
    *,
    client_authority: Authority | None = None,
    version: ssl.TLSVersion | None = None,
    ciphers: str = "",
) -> Iterator[BrokerAddress]:
    """A peer that answers every framed request with its own bytes; in plain text if it has no certificate.

    In threads: asyncio's own TLS closes without the alert that a broker sends.
    """
    context = None
    if server is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        own = folder / "server.pem"
        own.write_text(server.pem + server.key_pem())
        context.load_cert_chain(own)
        if version is not None:
            context.minimum_version = context.maximum_version = version
        if ciphers:
            context.set_ciphers(ciphers)
        if client_authority is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=client_authority.own.pem)
    with socket.create_server(("127.0.0.1", 0)) as listening, ThreadPoolExecutor() as threads:
        threads.submit(_accept, listening, context, threads)
        try:
            yield BrokerAddress("127.0.0.1", listening.getsockname()[1])
        finally:
            listening.shutdown(socket.SHUT_RDWR)


def _accept(listening: socket.socket, context: ssl.SSLContext | None, threads: ThreadPoolExecutor) -> None:
    with contextlib.suppress(OSError):
        while True:
            sock, _ = listening.accept()
            sock.settimeout(5)
            threads.submit(_echo, sock, context)


def _echo(sock: socket.socket, context: ssl.SSLContext | None) -> None:
    with (
        contextlib.suppress(OSError, struct.error),
        sock,
        context.wrap_socket(sock, server_side=True) if context else sock as peer,
        peer.makefile("rwb") as stream,
    ):
        while True:
            size = stream.read(4)
            stream.write(size + stream.read(struct.unpack(">i", size)[0]))
            stream.flush()


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


def failure_of(folder: Path, server: Signed | None, properties: dict[str, str], **peer: Any) -> HeliographError:
    async def test() -> None:
        with echoing(folder, server, **peer) as address:
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
        with echoing(tmp_path, server, client_authority=authority) as address:
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
        with echoing(tmp_path, server, client_authority=authority) as address:
            connection = await open_to(address, properties)
            assert await echo(connection, b"x") == [b"x"]
            connection.close()

    asyncio.run(test())


class Drip:
    """A peer that encrypts into memory, so that a test says which bytes are sent, and sees those that come."""

    def __init__(self, sock: socket.socket, folder: Path, server: Signed, version: ssl.TLSVersion) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = context.maximum_version = version
        own = folder / "server.pem"
        own.write_text(server.pem + server.key_pem())
        context.load_cert_chain(own)
        self.sock = sock
        self._in, self._out = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._in, self._out, server_side=True)

    def shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
                return
            except ssl.SSLWantReadError:
                self._in.write(self._sent_and_received())
            finally:
                self.sock.sendall(self._out.read())

    def encrypt(self, data: bytes) -> bytes:
        view = memoryview(data)
        while view:
            view = view[self._tls.write(view) :]
        return self._out.read()

    def _sent_and_received(self) -> bytes:
        self.sock.sendall(self._out.read())
        return self.sock.recv(1 << 16)


@asynccontextmanager
async def dripping(
    folder: Path, authority: Authority, server: Signed, version: ssl.TLSVersion
) -> AsyncIterator[tuple[Connection, Drip]]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        opening = asyncio.create_task(
            open_to(BrokerAddress("127.0.0.1", listening.getsockname()[1]), trusting(authority))
        )
        sock, _ = await asyncio.to_thread(listening.accept)
        with sock:
            sock.settimeout(5)
            peer = Drip(sock, folder, server, version)
            await asyncio.to_thread(peer.shake_hands)
            connection = await opening
            try:
                yield connection, peer
            finally:
                connection.close()


def trusting(authority: Authority, **more: str) -> dict[str, str]:
    given = {key.replace("_", "."): value for key, value in more.items()}
    return {"ssl.truststore.certificates": authority.own.pem, **given}


VERSIONS = pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])


@VERSIONS
def test_an_answer_is_whole_with_its_last_byte_wherever_it_was_interrupted(
    authority: Authority, server: Signed, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    """The kernel is asked to wake us for many bytes, of which OpenSSL may hold up to a record already."""
    body = bytes(range(256)) * 4096

    async def test() -> None:
        async with dripping(tmp_path, authority, server, version) as (connection, peer):
            for left in (1, 5, 6, 1000, 16_405, 16_406, 40_000, WAKE_BYTES - 1, WAKE_BYTES + 20_000, 900_000):
                answer = connection.send([struct.pack(">ii", 4, left)], left)
                sealed = peer.encrypt(struct.pack(">ii", 4 + len(body), left) + body)
                for piece in (sealed[:-left], sealed[-left:-1], sealed[-1:]):
                    await asyncio.sleep(0.01)
                    await asyncio.to_thread(peer.sock.sendall, piece)
                assert bytes((await answer)[4:]) == body

    asyncio.run(test())


@VERSIONS
def test_a_large_answer_wakes_us_less_often_than_records_come(
    authority: Authority, server: Signed, tmp_path: Path, version: ssl.TLSVersion, monkeypatch: pytest.MonkeyPatch
) -> None:
    wakes: list[int] = []
    receive = TlsWire.recv_into

    def counted(wire: TlsWire, buffer: memoryview) -> int:
        try:
            return receive(wire, buffer)
        except BlockingIOError:
            wakes.append(buffer.nbytes)
            raise

    monkeypatch.setattr(TlsWire, "recv_into", counted)

    async def test() -> None:
        async with dripping(tmp_path, authority, server, version) as (connection, peer):
            answer = connection.send([struct.pack(">ii", 4, 7)], 7)
            sealed = peer.encrypt(struct.pack(">ii", 4 + (1 << 20), 7) + bytes(1 << 20))
            for at in range(0, len(sealed), TLS_RECORD_BYTES):
                await asyncio.sleep(0.002)
                peer.sock.sendall(sealed[at : at + TLS_RECORD_BYTES])
            await answer

    asyncio.run(test())
    assert len(wakes) < 12  # 8; 19 if every byte wakes us


@pytest.mark.parametrize(
    ("sizes", "records"),
    [
        ((8, 16_376), [16_384]),
        ((8, 100, 16_000, 276), [16_384]),
        ((8, 16_377), [16_384, 1]),
        ((8, 100_000, 8, 100), [16_384] * 6 + [1704, 108]),
    ],
)
def test_what_fits_one_record_is_one(
    sizes: tuple[int, ...], records: list[int], authority: Authority, server: Signed, tmp_path: Path
) -> None:
    async def test() -> list[int]:
        async with dripping(tmp_path, authority, server, ssl.TLSVersion.TLSv1_3) as (connection, peer):
            connection.send([bytes(size) for size in sizes], 7)
            return await asyncio.to_thread(record_sizes, peer.sock, sum(sizes))

    assert asyncio.run(test()) == records


def record_sizes(sock: socket.socket, total: int) -> list[int]:
    """Of records until there are that many bytes; each has 17 more, the tag and its kind."""
    found: list[int] = []
    with sock.makefile("rb") as stream:
        while sum(found) < total:
            size = struct.unpack_from(">H", stream.read(5), 3)[0]
            stream.read(size)
            found.append(size - 17)
    return found


@VERSIONS
@pytest.mark.parametrize("other", [Authority("another"), Authority()], ids=["other name", "same name, as renewed"])
def test_an_unknown_authority_is_named(
    other: Authority, server: Signed, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    error = failure_of(tmp_path, server, trusting(other), version=version)
    assert isinstance(error, TlsFailed)
    assert "not signed by a trusted authority" in str(error)
    assert "ssl.truststore" in str(error)


@VERSIONS
@pytest.mark.parametrize(("days", "expected"), [(-1, "has expired"), (130, "is not valid yet")])
def test_a_certificate_out_of_its_time_is_named(
    authority: Authority, tmp_path: Path, version: ssl.TLSVersion, days: int, expected: str
) -> None:
    error = failure_of(tmp_path, authority.sign("broker", days=days), trusting(authority), version=version)
    assert isinstance(error, TlsFailed)
    assert expected in str(error)


def test_a_certificate_of_another_host_is_named_and_the_check_can_be_switched_off(
    authority: Authority, tmp_path: Path
) -> None:
    elsewhere = authority.sign("broker", names=("elsewhere.example",))
    error = failure_of(tmp_path, elsewhere, trusting(authority))
    assert 'not for "127.0.0.1"' in str(error)

    async def test() -> None:
        with echoing(tmp_path, elsewhere) as address:
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


def test_a_port_that_hangs_up_may_be_a_plain_one(authority: Authority, tmp_path: Path) -> None:
    """Kafka's plain listener takes a ClientHello for a request of 369 MB, and closes."""
    error = failure_of(tmp_path, None, trusting(authority))
    assert isinstance(error, Unreachable | TlsFailed)

    async def test() -> None:
        listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
        async with listening:
            with pytest.raises(Unreachable, match="the port may not speak TLS"):
                await open_to(address_of(listening), trusting(authority))

    asyncio.run(test())


def address_of(listening: asyncio.Server) -> BrokerAddress:
    return BrokerAddress("127.0.0.1", listening.sockets[0].getsockname()[1])


@VERSIONS
def test_plain_text_to_a_tls_port_is_named(server: Signed, tmp_path: Path, version: ssl.TLSVersion) -> None:
    """Some answer with an alert, OpenSSL hangs up."""
    alert = b"\x15" + struct.pack(">HHBB", version, 2, 2, 70)

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(alert)
        writer.close()

    async def test() -> None:
        async with await asyncio.start_server(answer, "127.0.0.1", 0) as listening:
            with pytest.raises(TlsFailed, match="the port speaks TLS, not plain text"):
                await echo_in_plain_text(address_of(listening))
        hung_up = pytest.raises(Unreachable, match="plain text was sent to a TLS listener")
        with echoing(tmp_path, server, version=version) as address, hung_up:
            await echo_in_plain_text(address)

    asyncio.run(test())


async def echo_in_plain_text(address: BrokerAddress) -> None:
    connection = await open_connection(address, where="test", pool=BufferPool(), connect_timeout_s=5, timeout_s=5)
    await echo(connection, b"x")


@VERSIONS
def test_a_listener_that_wants_a_certificate_is_named(
    authority: Authority, server: Signed, tmp_path: Path, version: ssl.TLSVersion
) -> None:
    error = failure_of(tmp_path, server, trusting(authority), client_authority=authority, version=version)
    assert isinstance(error, TlsFailed)
    assert "wants a client certificate" in str(error)
    assert "ssl.keystore" in str(error)


@VERSIONS
@pytest.mark.parametrize("days", [30, -1])
def test_a_certificate_that_the_listener_refuses_is_named(
    authority: Authority, server: Signed, tmp_path: Path, version: ssl.TLSVersion, days: int
) -> None:
    signer = authority if days < 0 else Authority("unknown")
    client = signer.sign("client", days=days)
    properties = trusting(authority) | {
        "ssl.keystore.certificate.chain": client.pem,
        "ssl.keystore.key": client.key_pem(),
    }
    error = failure_of(tmp_path, server, properties, client_authority=authority, version=version)
    assert isinstance(error, TlsFailed)
    assert "refuses our certificate" in str(error)


@pytest.mark.parametrize(("ours", "theirs"), [("TLSv1.2", "TLSv1_3"), ("TLSv1.3", "TLSv1_2")])
def test_no_common_version_is_named(
    authority: Authority, server: Signed, tmp_path: Path, ours: str, theirs: str
) -> None:
    properties = trusting(authority, ssl_enabled_protocols=ours)
    error = failure_of(tmp_path, server, properties, version=ssl.TLSVersion[theirs])
    assert isinstance(error, TlsFailed)
    assert "no TLS version in common" in str(error)


def test_no_common_cipher_is_named(authority: Authority, server: Signed, tmp_path: Path) -> None:
    properties = trusting(authority, ssl_cipher_suites="TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256")
    error = failure_of(
        tmp_path, server, properties, version=ssl.TLSVersion.TLSv1_2, ciphers="ECDHE-ECDSA-AES256-GCM-SHA384"
    )
    assert isinstance(error, TlsFailed)
    assert "no cipher in common" in str(error)


@pytest.mark.parametrize("address", [("", 1), ("a" * 70 + ".b", 1), ("..", 1), ("127.0.0.1", 70_000), ("x\0y", 1)])
def test_an_address_that_is_none_is_named(authority: Authority, address: tuple[str, int]) -> None:
    """A broker may say anything of itself in its metadata."""
    with pytest.raises(Unreachable):
        asyncio.run(open_to(BrokerAddress(*address), trusting(authority)))


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
