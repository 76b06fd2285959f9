"""Peers that break the rules of TLS, SASL and HTTP, each steered by a seeded source of chance.

A peer is a pair of a kind, for the report, and a coroutine for `asyncio.start_server`.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import hmac
import itertools
import json
import random
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field

from heliograph.kafka.types import BrokerAddress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
HTTP_ANSWER = b"HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain\r\n\r\nno\n"
_PATIENCE_S = 3.0


@contextlib.asynccontextmanager
async def listening(serve: Serve) -> AsyncIterator[BrokerAddress]:
    """Serves on a port of its own; at the end every conversation is over, finished or not."""
    talks: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, EOFError, struct.error, TimeoutError):
                async with asyncio.timeout(_PATIENCE_S):
                    await serve(reader, writer)
        finally:
            writer.close()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        talks[asyncio.ensure_future(talk(reader, writer))] = writer

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    try:
        yield BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for _ in range(3):
            await asyncio.sleep(0)  # a connection that was just made begins its talk
        for ongoing in talks:
            ongoing.cancel()
        outcomes = await asyncio.gather(*talks, return_exceptions=True)
        for writer in talks.values():
            writer.transport.abort()
        await asyncio.sleep(0)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome


def damaged(rng: random.Random, content: bytes, start: int = 0) -> bytes:
    """Some bits flipped, bytes cut out, put in or overwritten, from `start` on."""
    result = bytearray(content)
    for _ in range(rng.choice((1, 1, 2, 8))):
        at = rng.randrange(start, max(start + 1, len(result)))
        how = rng.choice(("flip", "flip", "insert", "delete", "overwrite", "length"))
        if how == "flip" and at < len(result):
            result[at] ^= 1 << rng.randrange(8)
        elif how == "insert":
            result[at:at] = rng.randbytes(rng.randint(1, 9))
        elif how == "delete":
            del result[at : at + rng.randint(1, 9)]
        elif how == "overwrite":
            result[at : at + 4] = rng.randbytes(4)
        else:
            result[at : at + 4] = rng.choice((b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\x80\0\0\0"))
    return bytes(result)


async def dribble(rng: random.Random, writer: asyncio.StreamWriter, content: bytes) -> None:
    """A byte now and then, for longer than anyone waits."""
    while True:
        for byte in content:
            writer.write(bytes([byte]))
            await writer.drain()
            await asyncio.sleep(rng.uniform(0.02, 0.1))


async def stay(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(_PATIENCE_S)


# -- TLS


def record(kind: int, body: bytes, *, version: int = 0x0303, length: int | None = None) -> bytes:
    return struct.pack(">BHH", kind, version & 0xFFFF, (len(body) if length is None else length) & 0xFFFF) + body


def _say(*parts: bytes, then_stay: bool = False, half: bool = False) -> Serve:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(4096)
        for part in parts:
            writer.write(part)
        await writer.drain()
        if half:
            writer.write_eof()
        if half or then_stay:
            await stay(reader, writer)

    return serve


def tls_peer(rng: random.Random, context: ssl.SSLContext) -> tuple[str, Serve]:
    """What answers a ClientHello."""
    hello = bytes.fromhex("020000260303") + rng.randbytes(32) + b"\0\x13\x01\0"

    async def drip(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await dribble(rng, writer, record(22, rng.randbytes(16000)))

    async def close_at_once(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        return

    hold = rng.random() < 0.1
    makers: dict[str, Callable[[], Serve]] = {
        "random bytes": lambda: _say(rng.randbytes(rng.randint(1, 600)), then_stay=hold),
        "truncated hello": lambda: _say(record(22, hello)[: rng.randint(1, 46)], half=hold),
        "damaged hello": lambda: _say(damaged(rng, record(22, hello)), then_stay=hold),
        "alert": lambda: _say(record(21, bytes([rng.choice((1, 2, 2, rng.randrange(256))), rng.randrange(256)]))),
        "record version": lambda: _say(record(22, hello, version=rng.randrange(65536))),
        "record length": lambda: _say(record(22, hello, length=rng.choice((0, 1, 40, 16385, 65535)))),
        "record type": lambda: _say(record(rng.randrange(256), hello)),
        "plain Kafka": lambda: _say(struct.pack(">iih", 10, 1, 0) + bytes(4)),
        "HTTP": lambda: _say(HTTP_ANSWER),
        "close": lambda: close_at_once,
        "half close": lambda: _say(half=True),
        "silence": lambda: stay,
        "dribble": lambda: drip,
        "empty records": lambda: _say(record(22, b"") * rng.randint(1, 3000)),
        "broken handshake": lambda: RealTls(rng, context).serve,
        "broken after the handshake": lambda: RealTls(rng, context, breaks_later=True).serve,
    }
    weights = [8, 6, 8, 10, 4, 4, 4, 2, 2, 1, 1, 1, 1, 1, 25, 12]
    (kind,) = rng.choices(list(makers), weights)
    return kind, makers[kind]()


@dataclass
class RealTls:
    """A real handshake that breaks at some byte, or a session that breaks after it."""

    rng: random.Random
    context: ssl.SSLContext
    breaks_later: bool = False
    _inward: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)
    _outward: ssl.MemoryBIO = field(default_factory=ssl.MemoryBIO)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tls = self.context.wrap_bio(self._inward, self._outward, server_side=True)
        await self._until_done(tls.do_handshake, reader, writer)
        if not self.breaks_later:
            return
        await self._until_done(lambda: tls.read(65536), reader, writer)
        tls.write(self._answer())
        flight = self._outward.read()
        how = self.rng.choice(("as it is", "damaged", "cut", "plain", "alert", "notify", "stay"))
        if how == "damaged":
            flight = damaged(self.rng, flight)
        elif how == "cut":
            flight = flight[: self.rng.randrange(len(flight))]
        elif how == "plain":
            flight = self._answer()
        elif how == "alert":
            flight = record(21, bytes([2, self.rng.randrange(256)]))
        elif how == "notify":
            with contextlib.suppress(ssl.SSLError):
                tls.unwrap()
            flight += self._outward.read()
        writer.write(flight)
        await writer.drain()
        if how == "stay" and self.rng.random() < 0.3:
            await stay(reader, writer)

    def _answer(self) -> bytes:
        """Never a whole one."""
        return self.rng.choice((HTTP_ANSWER, struct.pack(">ii", 5000, 1) + bytes(100), self.rng.randbytes(200)))

    async def _until_done(
        self, step: Callable[[], object], reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while True:
            try:
                step()
                done = True
            except ssl.SSLWantReadError:
                done = False
            flight = self._outward.read()
            if flight and not self.breaks_later:
                if self.rng.random() < 0.3:
                    writer.write(flight[: self.rng.randrange(len(flight))])
                    return
                flight = damaged(self.rng, flight)
            writer.write(flight)
            await writer.drain()
            if done:
                return
            received = await reader.read(65536)
            if not received:
                raise EOFError
            self._inward.write(received)


# -- SASL


MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_API_VERSIONS, _HANDSHAKE, _AUTHENTICATE = 18, 17, 36
_ANYWHERE = ("cut", "damage", "frame length", "correlation", "close", "silence", "dribble", "random answer")
_AT_LOGIN = ("error code", "echo", "random token", "endless", "lifetime", "null token")
_AT_SCRAM = ("nonce", "salt", "iterations", "missing field", "signature", "not UTF-8", "server error")
_ITERATIONS = ("0", "-1", "1", "4095", "1000001", "2147483648", "9" * 30, "x", "", "4e3", " 4096", "1_000_000")


class SaslPeer:
    """A broker that knows ApiVersions, SaslHandshake and SaslAuthenticate, and breaks one rule."""

    def __init__(self, rng: random.Random, mechanism: str, secret: str) -> None:
        self._rng = rng
        self._mechanism = mechanism
        self._secret = secret
        kinds = [*_ANYWHERE, *_AT_LOGIN, *_AT_LOGIN, "versions", "mechanisms"]
        kinds += _AT_SCRAM * 3 if mechanism.startswith("SCRAM") else ()
        self.kind = rng.choice(kinds)
        if self.kind in ("silence", "dribble") and rng.random() < 0.7:
            self.kind = "cut"
        self._break_at = rng.randrange(3 + mechanism.startswith("SCRAM"))
        self._transcript = b""
        self._round = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for turn in itertools.count():
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            request = await reader.readexactly(size)
            api_key, version = struct.unpack_from(">hh", request)
            answer = request[4:8] + self._body(api_key, version, request)
            frame = struct.pack(">i", len(answer)) + answer
            if turn == self._break_at and self.kind in _ANYWHERE:
                if await self._break(frame, reader, writer):
                    return
            else:
                writer.write(frame)
            await writer.drain()

    async def _break(self, frame: bytes, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """True if that was the end."""
        rng = self._rng
        if self.kind == "silence":
            await stay(reader, writer)
        elif self.kind == "dribble":
            await dribble(rng, writer, struct.pack(">i", 100_000) + frame[4:])
        elif self.kind == "cut":
            writer.write(frame[: rng.randrange(len(frame))])
        elif self.kind == "damage":
            body = damaged(rng, frame[8:])
            writer.write(struct.pack(">i", len(body) + 4) + frame[4:8] + body)
        elif self.kind == "random answer":
            body = rng.randbytes(rng.randrange(300))
            writer.write(struct.pack(">i", len(body) + 4) + frame[4:8] + body)
        elif self.kind == "frame length":
            length = rng.choice((0, -1, 3, 4, 2**31 - 1, -(2**31), 0x15030300, len(frame), rng.randrange(2**31)))
            writer.write(struct.pack(">i", length) + frame[4:])
            writer.write_eof()
        elif self.kind == "correlation":
            writer.write(frame[:4] + rng.randbytes(4) + frame[8:])
        return self.kind not in ("damage", "random answer")

    def _body(self, api_key: int, version: int, request: bytes) -> bytes:
        if api_key == _API_VERSIONS:
            return self._versions()
        if api_key == _HANDSHAKE:
            return self._mechanisms()
        (client_id,) = struct.unpack_from(">h", request, 8)
        (size,) = struct.unpack_from(">i", request, 10 + client_id)
        return self._authenticate(request[14 + client_id :][:size])

    def _versions(self) -> bytes:
        """Version 3; SaslAuthenticate up to 1, whose fields are easy to write."""
        keys = [(_API_VERSIONS, 0, 3), (_HANDSHAKE, 0, 1), (_AUTHENTICATE, 0, 1), (3, 0, 12)]
        if self.kind == "versions":
            wrong = self._rng.choice(("none", "null", "one", "old", "error"))
            if wrong == "null":
                return bytes(2) + b"\0" + bytes(5)
            if wrong == "error":
                return struct.pack(">h", self._rng.randint(1, 100)) + b"\x01" + bytes(5)
            keys = {"none": [], "one": keys[:2], "old": [(key, 90, 99) for key, *_ in keys]}[wrong]
        fields = b"".join(struct.pack(">hhhb", *key, 0) for key in keys)
        return bytes(2) + bytes([len(keys) + 1]) + fields + bytes(5)

    def _mechanisms(self) -> bytes:
        if self.kind != "mechanisms":
            return struct.pack(">hi", 0, 0)
        code = self._rng.choice((33, 58, -1, 999))
        names = [self._rng.choice(("GSSAPI", "\x1b[2J", "x" * 3000, "", "ä" * 20)) for _ in range(3)]
        if self._rng.random() < 0.3:
            return struct.pack(">hi", code, -1)
        fields = b"".join(struct.pack(">h", len(name.encode())) + name.encode() for name in names)
        return struct.pack(">hi", code, len(names)) + fields

    def _authenticate(self, token: bytes) -> bytes:
        rng, kind = self._rng, self.kind
        code, message, lifetime = 0, None, 0
        answer: bytes | None = self._token(token)
        self._round += 1
        if kind in ("error code", "echo"):
            code = rng.choice((58, 34, -1, 76, 32767))
            message = (
                rng.choice((None, "", "no\r\nforged line\x1b[0m", "x" * 30_000))
                if kind == "error code"
                else (f"login with {self._secret} failed")
            )
        elif kind == "random token":
            answer = rng.randbytes(rng.randint(1, 200))
        elif kind == "null token":
            answer = None
        elif kind == "endless":
            answer = answer or b'{"status":"invalid_token"}'
        elif kind == "lifetime":
            lifetime = rng.choice((-1, 1, -(2**63), 2**63 - 1))
        said = (message or "").encode() + (b"\xff" if kind == "echo" and rng.random() < 0.3 else b"")
        text = struct.pack(">h", -1 if message is None else len(said)) + said
        body = struct.pack(">i", -1) if answer is None else struct.pack(">i", len(answer)) + answer
        return struct.pack(">h", code) + text + body + struct.pack(">q", lifetime)

    def _token(self, token: bytes) -> bytes:
        if not self._mechanism.startswith("SCRAM"):
            return b""
        rng, kind = self._rng, self.kind
        hashname = "sha" + self._mechanism[-3:]
        if self._round == 0:
            bare = token.removeprefix(b"n,,")
            fields = {"r": bare.partition(b"r=")[2].decode() + "server", "s": "c2FsdHNhbHQ=", "i": "4096"}
            if kind == "nonce":
                fields["r"] = rng.choice(("", "other", fields["r"][1:], fields["r"].upper()))
            elif kind == "salt":
                fields["s"] = rng.choice(("a", "=", "ä", "a=b=c", "AAAAA"))
            elif kind == "iterations":
                fields["i"] = rng.choice(_ITERATIONS)
            elif kind == "missing field":
                del fields[rng.choice("rsi")]
            first = ",".join(f"{name}={value}" for name, value in fields.items()).encode()
            if kind == "not UTF-8":
                first += b",x=\xff\xfe"
            self._transcript = bare + b"," + first
            return first
        if kind == "server error":
            return b"e=" + rng.choice((b"other-error", b"invalid-proof", b"\xff", b""))
        salted = hashlib.pbkdf2_hmac(hashname, self._secret.encode(), b"saltsalt", 4096)
        key = hmac.digest(salted, b"Server Key", hashname)
        proof = hmac.digest(key, self._transcript + b"," + token.partition(b",p=")[0], hashname)
        if kind == "signature":
            proof = rng.choice((b"", proof[:-1], rng.randbytes(len(proof))))
        return b"v=" + base64.b64encode(proof)


# -- token endpoints


def token_peer(rng: random.Random, secret: str) -> tuple[str, Serve]:
    """An HTTP server that gives no token."""
    deep = b"[" * 100_000
    wrong: object = rng.choice((1, None, [], {}, "", "two words", "a\x01b", "a\nb", "ä", True, "\ud800"))
    status = rng.choice((201, 204, 400, 401, 403, 404, 429, 500, 503, 999))
    location = rng.choice((b"file:///etc/passwd", b"ftp://x/", b"http://127.0.0.1:1/", b"/again", b"https://x/"))
    kind = rng.choice(
        ("no JSON", "wrong type", "deep", "huge", "redirect", "status", "slow", "silence", "cut", "garbage", "headers")
    )

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        bodies = {
            "no JSON": rng.choice((b"", b"{", b"null", b"[]", b'"x"', rng.randbytes(50), secret.encode())),
            "wrong type": json.dumps({"access_token": wrong}).encode(),
            "deep": deep,
        }
        if kind in bodies:
            writer.write(_http(200, bodies[kind]))
        elif kind == "huge":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\n" + b'{"access_token": "')
            for _ in range(64):
                writer.write(b"x" * 65536)
                await writer.drain()
        elif kind == "redirect":
            code = rng.choice((301, 302, 303, 307, 308))
            writer.write(b"HTTP/1.1 %d Moved\r\nLocation: %b\r\nContent-Length: 0\r\n\r\n" % (code, location))
        elif kind == "status":
            writer.write(_http(status, f'{{"error": "{secret}"}}'.encode()))
        elif kind == "slow":
            await dribble(rng, writer, rng.choice((b"HTTP/1.1 200 OK\r\n", b"x")))
        elif kind == "silence":
            await stay(reader, writer)
        elif kind == "cut":
            whole = _http(200, b'{"access_token": "abc"}')
            writer.write(whole[: rng.randrange(len(whole))])
        elif kind == "garbage":
            writer.write(rng.randbytes(rng.randint(1, 300)) + b"\r\n\r\n")
        else:
            writer.write(b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 5000)
        await writer.drain()

    return kind, serve


def _http(status: int, body: bytes) -> bytes:
    return b"HTTP/1.1 %d Any\r\nContent-Length: %d\r\n\r\n" % (status, len(body)) + body
