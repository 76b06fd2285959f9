"""Drives one TCP connection to one broker on the running event loop.

Owns framing, correlation, deadlines and buffers; knows requests only as bytes,
and no topics. Requests are sent by gather writes (`sendmsg`: a produce request is
a few small headers and the untouched batches), answers are received by `recv_into`
in buffers that are used again. Answers come back in the order of the requests
(Kafka handles one request of a connection at a time), so a late or unexpected
answer means that the connection is lost: it fails every request in flight and
never works again. A peer that vanished is noticed by a request's deadline, which
restarts whenever bytes are sent or received, and on an idle connection by the kernel's
keep-alive probes. asyncio's own transports are not used: before Python 3.12 they join
what they gather, and they always copy what they receive.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import socket
import ssl
import struct
import sys
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from heliograph.errors import HeliographError, ProtocolError, TlsFailed, Unreachable
from heliograph.kafka.host_names import Resolved, resolve, unresolved
from heliograph.kafka.open_files import shortage_of
from heliograph.kafka.throttle import MutedTime
from heliograph.kafka.types import BrokerAddress
from heliograph.kafka.wire import TLS_ALERT, PlainWire, TlsWire, Wire, explain, start_tls

Buffer = bytes | bytearray | memoryview

MAX_RESPONSE_BYTES = 256 * 1024 * 1024
"""A larger answer is taken for a protocol error; a fetch asks for far less."""

POOLED_FROM_BYTES = 64 * 1024
POOLED_SIZES = tuple(size * 1152 * 1024 // 2 for size in (1, 2, 4, 8, 16))
"""Half a MiB to 8 MiB, and an eighth more: the records that a fetch asks for, and the rest of its answer."""
WAKE_BYTES = 256 * 1024
"""While a large answer arrives, the kernel wakes us once per this many bytes: fewer iterations of the loop."""
REQUEST_TIMEOUT_S = 25.0
"""Maximum time without an answer or any bytes of one; a broken connection is noticed within 30 s in all."""
UNACKNOWLEDGED_S = 20.0
"""The kernel gives up a connection whose bytes, its own probes included, are not acknowledged for this long."""
PROBE_AFTER_S, PROBE_EVERY_S = 10, 5
"""The kernel's keep-alive probes on an idle connection: first after, then every so many seconds."""
MAX_MUTED_S = 300.0
"""Maximum throttle time that we respect: Kafka's default quotas mute for at most 10 s, so a longer one is an error."""
RECEIVE_PAUSE_S = 0.005
"""Pause before an answer that there is no room for is tried again."""
_SIZE = struct.Struct(">i")


class Allowance(Protocol):
    """Decides how much memory a request's answer may take."""

    def admits(self, size: int) -> bool:
        """Return whether an answer of this size may be received now; if not, it is asked again after a pause."""
        ...


class _Loose(bytearray):
    """Holds a buffer that its pool does not keep, and counts it until it is no longer referenced."""

    __slots__ = ("_pool",)

    def __init__(self, size: int, pool: BufferPool) -> None:
        self._pool = pool
        super().__init__(size)
        pool.loose_bytes += size

    def __del__(self) -> None:
        self._pool.loose_bytes -= len(self)


class BufferPool:
    """Keeps receive buffers, which are used again once they are no longer referenced.

    A fresh large buffer costs a page fault for every 4 KiB, as much as the copy
    itself. Whether a buffer is free is read from its reference count: every
    slice of an answer keeps its bytearray alive, so nothing has to be given
    back by hand. Buffers come in a few sizes, so that they fit each other's
    answers. The lane's memory limit uses `in_use_bytes`.
    """

    def __init__(self, limit_bytes: int = 64 * 1024 * 1024) -> None:
        self._buffers: list[bytearray] = []
        self._limit_bytes = limit_bytes
        self.loose_bytes = 0
        """Bytes of the buffers that are in use and not kept."""

    def take(self, size: int) -> bytearray:
        """Return a buffer of at least `size` bytes; a small one is not kept, nor is one beyond the limit."""
        capacity = capacity_of(size)
        if size < POOLED_FROM_BYTES:
            return _Loose(size, self)
        for index in range(len(self._buffers)):
            if len(self._buffers[index]) == capacity and self._is_free(index):
                return self._buffers[index]
        while sum(map(len, self._buffers)) + capacity > self._limit_bytes:
            if not self._drop_one_free():
                return _Loose(capacity, self)
        buffer = bytearray(capacity)
        self._buffers.append(buffer)
        return buffer

    def in_use_bytes(self) -> int:
        """Return the bytes of all referenced buffers, kept or not."""
        kept = sum(len(self._buffers[index]) for index in range(len(self._buffers)) if not self._is_free(index))
        return kept + self.loose_bytes

    def _is_free(self, index: int) -> bool:
        return sys.getrefcount(self._buffers[index]) == _FREE_REFCOUNT

    def _drop_one_free(self) -> bool:
        for index in range(len(self._buffers)):
            if self._is_free(index):
                del self._buffers[index]
                return True
        return False


def capacity_of(size: int) -> int:
    """Return the size of the buffer that holds this many bytes."""
    if size < POOLED_FROM_BYTES:
        return size
    return next((pooled for pooled in POOLED_SIZES if pooled >= size), size)


def _free_refcount() -> int:
    """Return what getrefcount answers for an object that only one list holds."""
    holder = [bytearray(1)]
    return sys.getrefcount(holder[0])


_FREE_REFCOUNT = _free_refcount()


class _Waiting(NamedTuple):
    correlation_id: int
    answer: asyncio.Future[memoryview]
    sent_at: float
    timeout_s: float
    allowance: Allowance | None


class _Held(NamedTuple):
    buffers: Sequence[Buffer]
    correlation_id: int
    timeout_s: float | None
    answer: asyncio.Future[memoryview]
    allowance: Allowance | None


class Connection:
    """Represents a connected broker; `open_connection` makes it."""

    def __init__(
        self,
        wire: Wire,
        address: BrokerAddress,
        *,
        where: str,
        pool: BufferPool,
        timeout_s: float,
        muted: MutedTime | None = None,
    ) -> None:
        self.address = address
        self.where = where
        self.timeout_s = timeout_s
        self.versions: dict[int, tuple[int, int]] = {}
        self.failure: HeliographError | None = None
        self._wire = wire
        self._fd = wire.fileno()
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._ids = itertools.count(1)
        self._waiting: deque[_Waiting] = deque()
        self._held: list[_Held] = []
        self._is_held = False
        self._muted = muted or MutedTime()
        self._muted_until = 0.0
        self._unmuting: asyncio.TimerHandle | None = None
        self._alive_at = 0.0
        """When bytes were last sent or received."""
        self._unsent: deque[memoryview] = deque()
        self._writing = False
        self._timer: asyncio.TimerHandle | None = None
        self._answered_once = False
        self._head = bytearray(4)
        self._target = memoryview(self._head)
        self._filled = 0
        self._body = False
        self._wake_bytes = 1
        self._receiving: asyncio.TimerHandle | None = None
        """Set while there is no room for the next answer."""
        self._loop.add_reader(self._fd, self._on_readable)

    @property
    def is_open(self) -> bool:
        return self.failure is None

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    def next_correlation_id(self) -> int:
        return next(self._ids) & 0x7FFFFFFF

    def send(
        self,
        buffers: Sequence[Buffer],
        correlation_id: int,
        *,
        timeout_s: float | None = None,
        urgent: bool = False,
        allowance: Allowance | None = None,
    ) -> asyncio.Future[memoryview]:
        """Send one framed request; the future gives the answer's body from its correlation id on.

        While the connection is held or muted only urgent requests are sent; the others follow after that. The answer is
        received when its `allowance` has room for it; until then it stays with the broker and in the kernel's buffers.
        """
        answer: asyncio.Future[memoryview] = self._loop.create_future()
        request = _Held(buffers, correlation_id, timeout_s, answer, allowance)
        if (self._is_held or self._held or self.is_muted) and not urgent:
            self._held.append(request)
        else:
            self._send(request)
        return answer

    def hold(self) -> None:
        """Send only urgent requests: between the steps of a login the broker accepts no other."""
        self._is_held = True

    def release(self) -> None:
        self._is_held = False
        self._send_held()

    @property
    def is_muted(self) -> bool:
        return self._muted_until > self._loop.time()

    def throttle(self, throttle_ms: int) -> None:
        """Send nothing for as long as the broker mutes us; no deadline runs meanwhile (KIP-219)."""
        if throttle_ms <= 0 or not self.is_open:
            return
        now, seconds = self._loop.time(), min(throttle_ms / 1000, MAX_MUTED_S)
        self._muted.note(now, seconds)
        self._muted_until = max(self._muted_until, now + seconds)
        self._wire.set_unacknowledged_s(seconds + UNACKNOWLEDGED_S)  # a full window is the throttle's work too
        if self._unmuting is None:
            self._unmuting = self._loop.call_at(self._muted_until, self._on_unmute)

    def _on_unmute(self) -> None:
        self._unmuting = None
        if not self.is_open:
            return
        if self.is_muted:
            self._unmuting = self._loop.call_at(self._muted_until, self._on_unmute)
            return
        self._wire.set_unacknowledged_s(UNACKNOWLEDGED_S)
        self._send_held()

    def _send_held(self) -> None:
        if self._is_held or self.is_muted:
            return
        held, self._held = self._held, []
        for request in held:
            if not request.answer.done():
                self._send(request)

    def _send(self, request: _Held) -> None:
        buffers, correlation_id, timeout_s, answer, allowance = request
        if self.failure is not None:
            answer.set_exception(self.failure.bare())
            return
        item = _Waiting(correlation_id, answer, self._loop.time(), timeout_s or self.timeout_s, allowance)
        self._waiting.append(item)
        self._unsent.extend(memoryview(buffer) for buffer in buffers if len(buffer))
        if not self._writing:
            self._flush()
        deadline = self._deadline_of(item)
        if self.is_open and (self._timer is None or deadline < self._timer.when()):
            self._set_timer(deadline)

    def close(self, failure: HeliographError | None = None) -> None:
        """Close for good; all requests in flight fail with `failure`."""
        if self.failure is not None:
            return
        self.failure = failure.bare() if failure else Unreachable("connection closed", where=self.where)
        self._loop.remove_reader(self._fd)
        if self._writing:
            self._loop.remove_writer(self._fd)
        for timer in (self._timer, self._unmuting, self._receiving):
            if timer is not None:
                timer.cancel()
        if self._waiting:
            self._wire.drop()
        else:
            self._wire.close()
        self._unsent.clear()
        self._target = memoryview(b"")
        waiting, self._waiting = self._waiting, deque()
        held, self._held = self._held, []
        for answer in (*(item.answer for item in waiting), *(request.answer for request in held)):
            if not answer.done():
                answer.set_exception(self.failure.bare())  # each its own: a traceback grows where it is raised
                answer.exception()  # nobody may wait for it any more: asyncio must not log its failure

    def _flush(self) -> None:
        unsent = self._unsent
        try:
            while unsent:
                sent = self._wire.send(unsent)
                if self._writing:  # the socket has room again: the peer receives what we send
                    self._alive_at = self._loop.time()
                while unsent and sent >= unsent[0].nbytes:
                    sent -= unsent.popleft().nbytes
                if sent:
                    unsent[0] = unsent[0][sent:]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError as error:
            self.close(self._broken(error))
            return
        if bool(unsent) != self._writing:
            self._writing = bool(unsent)
            if self._writing:
                self._loop.add_writer(self._fd, self._flush)
            else:
                self._loop.remove_writer(self._fd)

    def _on_readable(self) -> None:
        try:
            while self.failure is None and self._receiving is None:
                received = self._wire.recv_into(self._target[self._filled :])
                if received == 0:
                    self.close(self._hung_up())
                    return
                self._filled += received
                self._alive_at = self._loop.time()
                if self._filled == self._target.nbytes:
                    self._on_filled()
        except (BlockingIOError, InterruptedError):
            self._set_wake_bytes(self._target.nbytes - self._filled if self._body else 1)
        except OSError as error:
            self.close(self._broken(error))

    def _on_filled(self) -> None:
        if not self._body:
            self._on_size(_SIZE.unpack(self._head)[0])
            return
        body, self._target = self._target, memoryview(self._head)
        self._filled, self._body = 0, False
        self._answered_once = True
        self._on_answer(body)

    def _on_size(self, size: int) -> None:
        if not self._answered_once and self._head.startswith(TLS_ALERT):
            self.close(
                TlsFailed("the port speaks TLS, not plain text", where=self.where, remedy="check security.protocol")
            )
            return
        if not 4 <= size <= MAX_RESPONSE_BYTES:
            self.close(
                ProtocolError(
                    f"answer of {size} bytes announced, {MAX_RESPONSE_BYTES} allowed",
                    where=self.where,
                    why="" if self._answered_once else "the port does not seem to speak Kafka's plain protocol",
                    remedy="check bootstrap.servers and security.protocol",
                )
            )
            return
        self._receive(size)

    def _receive(self, size: int) -> None:
        """Prepare for an answer of this size, as soon as there is room for it."""
        allowance = self._waiting[0].allowance if self._waiting else None
        if allowance is not None and not allowance.admits(size):
            if self._receiving is None:
                self._loop.remove_reader(self._fd)
            self._receiving = self._loop.call_later(RECEIVE_PAUSE_S, self._receive, size)
            self._alive_at = self._loop.time()  # we make the broker wait, not the other way round
            return
        self._target = memoryview(self._pool.take(size))[:size]
        self._filled, self._body = 0, True
        if self._receiving is not None:
            self._receiving = None
            self._loop.add_reader(self._fd, self._on_readable)
            self._on_readable()  # TLS may hold bytes that the kernel has already delivered

    def _set_wake_bytes(self, missing: int) -> None:
        """Set the wake-up size before waiting, to no more than is missing: the kernel would wait for further bytes."""
        wake_bytes = WAKE_BYTES if missing >= WAKE_BYTES else missing if self._wake_bytes > 1 and missing > 1 else 1
        if wake_bytes != self._wake_bytes:
            self._wake_bytes = wake_bytes
            self._wire.set_wake_bytes(wake_bytes)

    def _on_answer(self, body: memoryview) -> None:
        correlation_id = _SIZE.unpack_from(body)[0]
        if not self._waiting or self._waiting[0].correlation_id != correlation_id:
            expected = self._waiting[0].correlation_id if self._waiting else None
            self.close(ProtocolError(f"answer to request {correlation_id} where {expected} is due", where=self.where))
            return
        item = self._waiting.popleft()
        if not item.answer.done():
            item.answer.set_result(body)

    def _deadline_of(self, item: _Waiting) -> float:
        return max(item.sent_at, self._alive_at, self._muted_until) + item.timeout_s

    def _set_timer(self, deadline: float) -> None:
        """Check the deadlines at this time; answers do not move the timer, since leaving it costs less."""
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(deadline, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        if not self._waiting:
            return
        deadline = min(map(self._deadline_of, self._waiting))
        if deadline > self._loop.time():
            self._set_timer(deadline)
            return
        self.close(
            Unreachable(
                "no answer in time",
                where=self.where,
                remedy="is the broker alive and the network whole?",
            )
        )

    def _broken(self, error: OSError) -> HeliographError:
        if isinstance(error, ssl.SSLError) and not isinstance(
            error, ssl.SSLEOFError
        ):  # in TLS 1.3 our certificate is judged after the handshake
            return explain(error, self.address.host, self.where, has_cipher=True)
        if isinstance(error, ConnectionError | ssl.SSLEOFError) and not self._answered_once:
            return self._hung_up()
        return Unreachable("connection broken", where=self.where, why=error.strerror or str(error))

    def _hung_up(self) -> Unreachable:
        if self._answered_once:
            return Unreachable("the broker closed the connection", where=self.where)
        if isinstance(self._wire, TlsWire):
            cause, keys = "it wants a client certificate", "ssl.keystore.* and security.protocol"
        else:
            cause, keys = "plain text was sent to a TLS listener", "security.protocol"
        return Unreachable(
            "the broker hung up before its first answer",
            where=self.where,
            why=f"it is down behind a proxy, or {cause}",
            remedy=f"if this stays, check {keys}",
        )


async def open_connection(
    address: BrokerAddress,
    *,
    where: str,
    pool: BufferPool,
    connect_timeout_s: float,
    timeout_s: float,
    tls: ssl.SSLContext | None = None,
    muted: MutedTime | None = None,
) -> Connection:
    """Connect to one broker, with TLS if a context is given; raises Unreachable, TlsFailed or TooManyOpenFiles."""
    found: list[Resolved] | None = None
    try:
        async with asyncio.timeout(connect_timeout_s):
            found = await resolve(address, where=where)
            sock = await dial(found, where=where)
            wire: Wire = PlainWire(sock) if tls is None else await start_tls(sock, tls, address.host, where=where)
    except TimeoutError as error:
        if found is None:
            raise unresolved(address, f"no answer within {connect_timeout_s:g} s", where=where) from error
        raise too_slow(connect_timeout_s, where=where) from error
    except (ValueError, OverflowError, TypeError) as error:  # the metadata may hold any text as a host
        raise Unreachable(f'"{address.host}" port {address.port} is no address', where=where) from error
    return Connection(wire, address, where=where, pool=pool, timeout_s=timeout_s, muted=muted)


def too_slow(timeout_s: float, *, where: str) -> Unreachable:
    return Unreachable(
        f"no connection within {timeout_s:g} s", where=where, remedy="is a firewall in between, and the port right?"
    )


async def dial(found: Sequence[Resolved], *, where: str) -> socket.socket:
    """Return a connected socket; raises Unreachable or TooManyOpenFiles. The caller sets the time limit."""
    try:
        return await _connect_any(asyncio.get_running_loop(), found)
    except OSError as error:
        if (shortage := shortage_of(error, where=where)) is not None:
            raise shortage from error
        remedy = "is the broker running, and the port right?" if isinstance(error, ConnectionRefusedError) else ""
        # asyncio puts the address in place of the reason
        why = os.strerror(error.errno) if error.errno else str(error)
        raise Unreachable("no connection", where=where, why=why, remedy=remedy) from error


async def _connect_any(loop: asyncio.AbstractEventLoop, infos: Sequence[Resolved]) -> socket.socket:
    """Try a name's addresses one after the other; raise the last failure."""
    failure: OSError = OSError("no address")
    for family, kind, protocol, _, sockaddr in infos:
        sock = socket.socket(family, kind, protocol)
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        _watch(sock)
        try:
            await loop.sock_connect(sock, sockaddr)
            return sock
        except OSError as error:
            failure = error
            sock.close()
        except BaseException:
            sock.close()
            raise
    raise failure


def _watch(sock: socket.socket) -> None:
    """Let the kernel notice a vanished peer, as far as the system supports it; Linux supports all of it."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if sys.platform == "linux":
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, PROBE_AFTER_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, PROBE_EVERY_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(UNACKNOWLEDGED_S * 1000))
