"""Sends and receives bytes on one socket, plain or TLS, without blocking. Knows no frames and no requests.

Both kinds raise BlockingIOError when nothing can be done now. Plain sockets gather what they send; TLS cannot,
so small buffers are joined there, or each would be a TLS record of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import re
import socket
import ssl
import struct
import sys
from collections.abc import Sequence
from typing import Protocol

from heliograph.errors import TlsFailed, Unreachable

IOV_MAX = 1024
TLS_RECORD_BYTES = 16 * 1024

_EXPIRED, _NOT_YET = 10, 9
_HOST_MISMATCH, _ADDRESS_MISMATCH = 62, 64
_UNKNOWN_ISSUER = (2, 7, 18, 19, 20, 21)  # 7: an authority of the same name, as a renewed one has, but another key
_NOT_TLS = ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "PACKET_LENGTH_TOO_LONG", "HTTP_REQUEST")
_NO_COMMON_VERSION = ("UNSUPPORTED_PROTOCOL", "ALERT_PROTOCOL_VERSION", "WRONG_SSL_VERSION", "NO_PROTOCOLS_AVAILABLE")
_NO_COMMON_CIPHER = ("NO_SHARED_CIPHER", "INSUFFICIENT_SECURITY", "NO_CIPHERS_AVAILABLE")
_ALERT = re.compile(r"ALERT_.*(CERTIFICATE|UNKNOWN_CA|ACCESS_DENIED)")
_NO_LINGER = struct.pack("ii", 1, 0)
TLS_ALERT = b"\x15\x03"
"""The first bytes of a TLS alert, which a TLS port sends in answer to plain text."""


class Wire(Protocol):
    """Sends and receives on a connected socket."""

    def fileno(self) -> int: ...
    def send(self, buffers: Sequence[memoryview]) -> int:
        """Send from the head of the buffers; return how many bytes were sent."""
        ...

    def recv_into(self, buffer: memoryview) -> int: ...
    def set_wake_bytes(self, count: int) -> None:
        """Ask the kernel to wake us only when this many bytes are there."""
        ...

    def set_unacknowledged_s(self, seconds: float) -> None:
        """Set how long the kernel waits for the peer to acknowledge or take bytes."""
        ...

    def close(self) -> None: ...
    def drop(self) -> None:
        """Close, and discard what the peer has not received yet, so that it does not arrive later."""
        ...


class PlainWire:
    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self.fileno = sock.fileno
        self.recv_into = sock.recv_into
        self.close = sock.close

    def send(self, buffers: Sequence[memoryview]) -> int:
        return self._sock.sendmsg(list(itertools.islice(buffers, IOV_MAX)))

    def set_wake_bytes(self, count: int) -> None:
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)

    def set_unacknowledged_s(self, seconds: float) -> None:
        _set_unacknowledged_s(self._sock, seconds)

    def drop(self) -> None:
        _drop(self._sock)


class TlsWire:
    def __init__(self, sock: ssl.SSLSocket) -> None:
        self._sock = sock
        self.fileno = sock.fileno
        self.close = sock.close

    @property
    def certificate(self) -> bytes:
        """The broker's certificate, as DER."""
        return self._sock.getpeercert(binary_form=True) or b""

    @property
    def version(self) -> str:
        return self._sock.version() or ""

    def send(self, buffers: Sequence[memoryview]) -> int:
        first = buffers[0]
        data: memoryview | bytes = first
        if first.nbytes < TLS_RECORD_BYTES and len(buffers) > 1:
            data = _joined(buffers)
        try:
            return self._sock.send(data)
        except (ssl.SSLWantWriteError, ssl.SSLWantReadError) as error:
            raise BlockingIOError from error
        except (ConnectionError, ssl.SSLEOFError):
            self._sock.recv(1)  # read what the peer sent before it closed: a TLS alert says why
            raise

    def recv_into(self, buffer: memoryview) -> int:
        try:
            return self._sock.recv_into(buffer)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError) as error:
            raise BlockingIOError from error
        except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
            return 0

    def set_wake_bytes(self, count: int) -> None:
        """Ask for one TLS record less: OpenSSL takes one at a time from the kernel, and may hold a part of the next.

        Bytes are never fewer on the wire than in the clear, so that what is asked for does come. A Java broker
        encrypts more slowly than we decrypt: 2 to 3 iterations of the loop per MB with this, 6 to 22 without.
        """
        self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, max(1, count - TLS_RECORD_BYTES))

    def set_unacknowledged_s(self, seconds: float) -> None:
        _set_unacknowledged_s(self._sock, seconds)

    def drop(self) -> None:
        _drop(self._sock)


def _set_unacknowledged_s(sock: socket.socket, seconds: float) -> None:
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(seconds * 1000))


def _drop(sock: socket.socket) -> None:
    """Reset the connection; otherwise the kernel goes on sending for a closed socket."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
    sock.close()


def _joined(buffers: Sequence[memoryview]) -> bytes:
    """Join the first buffers, about as much as a TLS record holds."""
    pieces: list[memoryview] = []
    size = 0
    for buffer in buffers:
        pieces.append(buffer[: TLS_RECORD_BYTES - size])
        size += pieces[-1].nbytes
        if size >= TLS_RECORD_BYTES:
            break
    return b"".join(pieces)


async def start_tls(sock: socket.socket, context: ssl.SSLContext, host: str, *, where: str) -> TlsWire:
    """Do the TLS handshake; the server's name is always sent. Raises TlsFailed for what is wrong with certificates."""
    try:
        wrapped = context.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
    except BaseException:
        sock.close()
        raise
    loop = asyncio.get_running_loop()
    while True:
        ready: asyncio.Future[None] = loop.create_future()
        try:
            wrapped.do_handshake()
            return TlsWire(wrapped)
        except ssl.SSLWantReadError:
            loop.add_reader(wrapped, _set, ready)
        except ssl.SSLWantWriteError:
            loop.add_writer(wrapped, _set, ready)
        except (ssl.SSLError, OSError) as error:
            has_cipher = wrapped.cipher() is not None
            wrapped.close()
            raise explain(error, host, where, has_cipher=has_cipher) from error
        try:
            await ready
        except BaseException:
            loop.remove_reader(wrapped)
            loop.remove_writer(wrapped)
            wrapped.close()
            raise
        loop.remove_reader(wrapped)
        loop.remove_writer(wrapped)


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def explain(error: OSError, host: str, where: str, *, has_cipher: bool) -> TlsFailed | Unreachable:
    """Explain a failed handshake. `has_cipher` means that the broker had agreed on a cipher before."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _explain_certificate(error, host, where)
    if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
        return Unreachable(
            "the broker hung up during the TLS handshake",
            where=where,
            why="the port may not speak TLS, or want a client certificate",
            remedy="check security.protocol, and ssl.keystore.* if the listener asks for a certificate",
        )
    what, remedy = _explain_reason(error.reason or "", has_cipher=has_cipher)
    return TlsFailed(what, where=where, why=error.reason or "", remedy=remedy)


def _explain_reason(reason: str, *, has_cipher: bool) -> tuple[str, str]:
    """Return what OpenSSL's reason means, and what to do; Java and OpenSSL name a missing certificate differently."""
    if reason in _NOT_TLS and not has_cipher:
        return "the port speaks plain text, not TLS", "check security.protocol and the port"
    if "CERTIFICATE_REQUIRED" in reason or (has_cipher and "ALERT_HANDSHAKE_FAILURE" in reason):
        return "the broker wants a client certificate", "set ssl.keystore.*"
    if _ALERT.search(reason):
        return "the broker refuses our certificate, or misses one", "check ssl.keystore.*"
    if any(word in reason for word in _NO_COMMON_VERSION):
        return "the broker and we have no TLS version in common", "check ssl.enabled.protocols on both sides"
    if any(word in reason for word in (*_NO_COMMON_CIPHER, "ALERT_HANDSHAKE_FAILURE")):
        return "the broker and we have no cipher in common", "check ssl.cipher.suites and the broker's certificate"
    return "TLS with the broker failed", "check ssl.enabled.protocols and ssl.cipher.suites"


def _explain_certificate(error: ssl.SSLCertVerificationError, host: str, where: str) -> TlsFailed:
    code = error.verify_code
    if code in (_EXPIRED, _NOT_YET):
        when = "has expired" if code == _EXPIRED else "is not valid yet"
        return TlsFailed(
            f"the broker's certificate {when}", where=where, remedy="renew it, or set this machine's clock"
        )
    if code in (_HOST_MISMATCH, _ADDRESS_MISMATCH):
        return TlsFailed(
            f'the broker\'s certificate is not for "{host}"',
            where=where,
            why=error.verify_message,
            remedy="use a name that is in it, or set ssl.endpoint.identification.algorithm to nothing",
        )
    if code in _UNKNOWN_ISSUER:
        return TlsFailed(
            "the broker's certificate is not signed by a trusted authority",
            where=where,
            why=error.verify_message,
            remedy="put its CA certificate into ssl.truststore.*",
        )
    return TlsFailed("the broker's certificate is refused", where=where, why=error.verify_message)
