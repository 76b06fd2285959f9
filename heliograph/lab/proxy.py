"""Runs a proxy that hides a cluster's brokers behind one port: it routes TLS connections by server name.

    client --TLS, server name broker-2.north.localhost--> proxy port --same bytes--> SNI listener of broker 2

Reads the ClientHello, which is in clear, and pumps the rest unread; it has no certificate. A connection without
a name, or with one it does not know, is closed. Run by its path, by the keeper: imports nothing of ours.

    proxy.py PORT NAME=PORT[,PORT...] ...
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
from collections.abc import Mapping, Sequence

_HANDSHAKE = 22
_CLIENT_HELLO = 1
_SERVER_NAME = 0
_RECORD_BYTES = 1 << 14
_MAX_HELLO_BYTES = 1 << 16
_HELLO_TIMEOUT_S = 10.0
_CHUNK_BYTES = 1 << 16


class NotAHello(ValueError):
    """The bytes are no ClientHello, whatever may follow."""


class _Reader:
    """Takes fields off the head of some bytes; raises NotAHello if there are too few."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def __bool__(self) -> bool:
        return self._at < len(self._data)

    def take(self, size: int) -> bytes:
        if self._at + size > len(self._data):
            raise NotAHello("a length points beyond the end")
        self._at += size
        return self._data[self._at - size : self._at]

    def number(self, width: int) -> int:
        return int.from_bytes(self.take(width), "big")

    def vector(self, width: int) -> bytes:
        """Reads a length of this many bytes, then that many bytes."""
        return self.take(self.number(width))


def parse_server_name(data: bytes) -> str | None:
    """Parses the server name in the ClientHello at the head of `data`; empty if it has none, None if it is cut.

    A hello may be spread over several records. Raises NotAHello.
    """
    hello = _join_records(data)
    if hello[:1] and hello[0] != _CLIENT_HELLO:
        raise NotAHello("the handshake does not begin with a ClientHello")
    if len(hello) < 4:
        return None
    size = int.from_bytes(hello[1:4], "big")
    if size > _MAX_HELLO_BYTES:
        raise NotAHello(f"a ClientHello of {size} bytes")
    return _name_in(_Reader(hello[4 : 4 + size])) if len(hello) >= 4 + size else None


def _join_records(data: bytes) -> bytes:
    """Joins the handshake bytes of all records, the last of which may be cut."""
    joined = b""
    while data:
        if data[0] != _HANDSHAKE or data[1:2] not in (b"", b"\x03"):
            raise NotAHello("not a TLS handshake")
        size = int.from_bytes(data[3:5], "big")
        if size > _RECORD_BYTES or (len(data) >= 5 and size == 0):
            raise NotAHello(f"a record of {size} bytes")
        joined += data[5 : 5 + size]
        if _is_whole(joined):
            break  # what follows, early data for instance, is not ours to judge
        data = data[5 + size :] if len(data) >= 5 else b""
    return joined


def _is_whole(hello: bytes) -> bool:
    return len(hello) >= 4 and len(hello) >= 4 + int.from_bytes(hello[1:4], "big")


def _name_in(hello: _Reader) -> str:
    hello.take(2 + 32)  # version, random
    hello.vector(1)  # session
    hello.vector(2)  # ciphers
    hello.vector(1)  # compressions
    extensions = _Reader(hello.vector(2) if hello else b"")
    while extensions:
        kind, content = extensions.number(2), _Reader(extensions.vector(2))
        if kind == _SERVER_NAME:
            names = _Reader(content.vector(2))
            while names:
                name_kind, name = names.number(1), names.vector(2)
                if name_kind == 0:
                    return name.decode("ascii", "replace").lower()
    return ""


Routes = Mapping[str, Sequence[int]]


async def serve(port: int, routes: Routes) -> None:
    """Routes connections until cancelled."""

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, NotAHello):
            await _route(reader, writer, routes)
        writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", port)
    async with server:
        await server.serve_forever()


async def _route(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, routes: Routes) -> None:
    async with asyncio.timeout(_HELLO_TIMEOUT_S):
        name, hello = await _read_hello(reader)
        if name not in routes:
            return
        onward_reader, onward_writer = await _connect(routes[name])
    onward_writer.write(hello)
    await asyncio.gather(_pump(reader, onward_writer), _pump(onward_reader, writer))


async def _read_hello(reader: asyncio.StreamReader) -> tuple[str, bytes]:
    """Returns the server name, and the bytes that had to be read to find it."""
    data = b""
    while chunk := await reader.read(_CHUNK_BYTES):
        data += chunk
        name = parse_server_name(data)
        if name is not None:
            return name, data
    return "", data


async def _connect(ports: Sequence[int]) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connects to any of the ports that answers."""
    *others, last = random.sample(ports, len(ports))
    for port in others:
        with contextlib.suppress(OSError):
            return await asyncio.open_connection("127.0.0.1", port)
    return await asyncio.open_connection("127.0.0.1", last)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copies one direction; its end closes the other side, and so ends the other direction."""
    with contextlib.suppress(OSError):
        while chunk := await reader.read(_CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()


def parse_routes(texts: Sequence[str]) -> Routes:
    """Parses `name=port,port` of each name."""
    pairs = (text.partition("=") for text in texts)
    return {name: tuple(map(int, ports.split(","))) for name, _, ports in pairs}


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), parse_routes(sys.argv[2:])))
