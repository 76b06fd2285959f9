"""The proxy of the fault tests passes bytes, and misbehaves as told."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tests.cluster.spark import free_port
from tests.fault.proxy import FINE, Proxy, Weather, nobody


@pytest.fixture
def echo() -> Iterator[int]:
    """The port of a server that sends back what it gets."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    peer, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=answer, args=(peer,), daemon=True).start()

        def answer(peer: socket.socket) -> None:
            with peer:
                try:
                    while data := peer.recv(4096):
                        peer.sendall(data)
                except OSError:
                    return

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def proxied(echo: int) -> Iterator[tuple[Proxy, int]]:
    port = free_port()
    with Proxy(port, echo) as proxy:
        yield proxy, port


def connect(port: int, timeout_s: float = 5.0) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout_s)


def exchange(peer: socket.socket, data: bytes) -> bytes:
    peer.sendall(data)
    answer = b""
    while len(answer) < len(data) and (chunk := peer.recv(len(data))):
        answer += chunk
    return answer


def test_in_fine_weather_bytes_go_through_both_ways(proxied: tuple[Proxy, int]) -> None:
    with connect(proxied[1]) as peer:
        assert exchange(peer, b"x" * 200_000) == b"x" * 200_000


def test_delay_and_stalls_hold_bytes_back(proxied: tuple[Proxy, int]) -> None:
    proxy, port = proxied
    with connect(port) as peer:
        for weather, least_s in ((Weather(delay_s=0.1), 0.2), (Weather(stall_share=1.0), 2.0)):
            proxy.become(weather)
            began = time.monotonic()
            peer.settimeout(10)
            assert exchange(peer, b"slow") == b"slow"
            assert time.monotonic() - began >= least_s


def test_a_cut_resets_old_and_new_connections_until_it_is_over(proxied: tuple[Proxy, int]) -> None:
    proxy, port = proxied
    with connect(port) as peer:
        assert exchange(peer, b"a") == b"a"
        proxy.become(Weather(is_cut=True))
        with pytest.raises(ConnectionResetError):
            exchange(peer, b"b")
    with pytest.raises(ConnectionResetError), connect(port) as peer:
        exchange(peer, b"c")
    proxy.become(FINE)
    with connect(port) as peer:
        assert exchange(peer, b"d") == b"d"


def test_resets_end_open_connections_and_let_new_ones_in(proxied: tuple[Proxy, int]) -> None:
    proxy, port = proxied
    with connect(port) as peer:
        assert exchange(peer, b"a") == b"a"
        proxy.become(Weather(resets_per_s=0.1))
        with pytest.raises(ConnectionResetError):
            exchange(peer, b"b")
    with connect(port) as peer:
        assert exchange(peer, b"c") == b"c"


def test_a_half_open_connection_stays_dead_and_new_ones_work(proxied: tuple[Proxy, int]) -> None:
    proxy, port = proxied
    with connect(port, 0.3) as peer:
        assert exchange(peer, b"a") == b"a"
        proxy.become(Weather(swallows=True))
        with pytest.raises(TimeoutError):
            exchange(peer, b"b")
        proxy.become(FINE)
        with pytest.raises(TimeoutError):
            exchange(peer, b"c")
        with connect(port) as other:
            assert exchange(other, b"d") == b"d"


def test_who_is_silenced_hears_nothing_until_it_is_over_and_others_go_on(proxied: tuple[Proxy, int]) -> None:
    proxy, port = proxied
    with connect(port, 0.3) as peer, connect(port) as other:
        ours = peer.getsockname()[1]
        assert exchange(peer, b"a") == b"a"
        proxy.silence(lambda client: client == ours)
        with pytest.raises(TimeoutError):
            exchange(peer, b"b")
        assert exchange(other, b"c") == b"c"
        proxy.silence(nobody)
        with pytest.raises(ConnectionResetError):
            exchange(peer, b"d")
    with connect(port) as peer:
        assert exchange(peer, b"e") == b"e"


def test_who_connects_while_silenced_hears_nothing(proxied: tuple[Proxy, int]) -> None:
    proxy, port = proxied
    proxy.silence(lambda _: True)
    with connect(port, 0.3) as peer:
        with pytest.raises(TimeoutError):
            exchange(peer, b"a")
        proxy.silence(nobody)
        with pytest.raises(ConnectionResetError):
            exchange(peer, b"b")
