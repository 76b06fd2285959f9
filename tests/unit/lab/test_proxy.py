"""The proxy finds the server name in any ClientHello, and takes nothing else for one."""

from __future__ import annotations

import contextlib
import socket
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.lab import proxy
from heliograph.lab.proxy import NotAHello, parse_routes, parse_server_name


def hello(name: str | None) -> bytes:
    """The first bytes of a real client."""
    context = ssl.create_default_context()
    context.check_hostname = False
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = context.wrap_bio(received, sent, server_hostname=name)
    with contextlib.suppress(ssl.SSLWantReadError):
        client.do_handshake()
    return sent.read()


HELLO = hello("broker-2.north.localhost")


def test_name_of_a_real_hello() -> None:
    assert parse_server_name(HELLO) == "broker-2.north.localhost"
    assert parse_server_name(hello("Broker-2.North.Localhost")) == "broker-2.north.localhost"


@pytest.mark.parametrize("name", [None, "127.0.0.1"])
def test_no_name_is_empty(name: str | None) -> None:
    assert parse_server_name(hello(name)) == ""


def test_what_follows_a_hello_does_not_matter() -> None:
    assert parse_server_name(HELLO + b"\x17\x03\x03\x00\x05early") == "broker-2.north.localhost"


def test_every_shorter_hello_needs_more() -> None:
    assert {parse_server_name(HELLO[:size]) for size in range(len(HELLO))} == {None}


@given(st.lists(st.integers(1, 40), min_size=1, max_size=30))
def test_a_hello_in_several_records(sizes: list[int]) -> None:
    body, records = HELLO[5:], b""
    for size in sizes:
        piece, body = body[:size], body[size:]
        records += b"\x16\x03\x01" + len(piece).to_bytes(2, "big") + piece if piece else b""
    records += b"\x16\x03\x01" + len(body).to_bytes(2, "big") + body if body else b""
    assert parse_server_name(records) == "broker-2.north.localhost"


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/1.1\r\n",
        b"\x00\x00\x00\x2a\x00\x12\x00\x03",  # Kafka without TLS
        b"\x16\x02\x00\x00\x01\x01",
        b"\x16\x03\x01\x00\x00",
        b"\x16\x03\x01\xff\xff",
        b"\x16\x03\x01\x00\x04\x02\x00\x00\x00",  # a ServerHello
        b"\x16\x03\x01\x00\x04\x01\xff\xff\xff",
        b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03",  # ends after the version
    ],
)
def test_anything_else_is_no_hello(data: bytes) -> None:
    with pytest.raises(NotAHello):
        parse_server_name(data)


@given(st.binary(max_size=300), st.integers(0, len(HELLO)))
def test_garbage_gives_a_name_or_a_refusal_and_never_another_error(garbage: bytes, keep: int) -> None:
    for data in (garbage, HELLO[:keep] + garbage, HELLO[:keep] + garbage + HELLO[keep + len(garbage) :]):
        with contextlib.suppress(NotAHello):
            parse_server_name(data)


def test_routes_of_the_command_line() -> None:
    assert parse_routes(["a=1", "b=1,2"]) == {"a": (1,), "b": (1, 2)}


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while chunk := self.request.recv(1 << 16):
            self.request.sendall(chunk)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        return int(unused.getsockname()[1])


@pytest.fixture(scope="module")
def proxy_port() -> Iterator[int]:
    """A proxy as the lab starts it, before a server that sends back what it gets; "gone" leads nowhere."""
    port, gone = free_port(), free_port()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo) as behind:
        here = behind.server_address[1]
        threading.Thread(target=behind.serve_forever).start()
        routes = [f"here={here}", f"gone={gone}", f"any={gone},{here}"]
        with subprocess.Popen([sys.executable, "-I", proxy.__file__, str(port), *routes]) as process:
            wait_for(port)
            yield port
            process.kill()
        behind.shutdown()


def wait_for(port: int) -> None:
    for _ in range(100):
        with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
            return
        time.sleep(0.05)


def answer(port: int, data: bytes) -> bytes:
    """What comes back, until as much came as was sent or the other side closed."""
    received = b""
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        sending = threading.Thread(target=send, args=(connection, data))
        sending.start()
        with contextlib.suppress(ConnectionResetError):
            while len(received) < len(data) and (chunk := connection.recv(1 << 16)):
                received += chunk
        sending.join()
    return received


def send(connection: socket.socket, data: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        connection.sendall(data)


@pytest.mark.parametrize(
    ("name", "reached"), [("here", True), ("any", True), ("gone", False), ("x", False), (None, False)]
)
def test_connections_go_where_their_name_says_or_end(name: str | None, reached: bool, proxy_port: int) -> None:
    data = hello(name) + b"\x17" * 1_000_000
    assert answer(proxy_port, data) == (data if reached else b"")


def test_a_connection_that_is_no_tls_ends(proxy_port: int) -> None:
    assert answer(proxy_port, b"GET / HTTP/1.1\r\n\r\n") == b""
