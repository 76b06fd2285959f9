"""One connection against peers that answer well, badly, late or not at all: a typed error in time, never a hang."""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.errors import ProtocolError, Unreachable
from heliograph.kafka.connection import (
    MAX_RESPONSE_BYTES,
    POOLED_FROM_BYTES,
    Buffer,
    BufferPool,
    Connection,
    capacity_of,
    open_connection,
)
from heliograph.kafka.host_names import loopback_or_same
from heliograph.kafka.types import BrokerAddress
from heliograph.kafka.wire import IOV_MAX

IN_TIME_S = 5.0

Peer = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(3 * IN_TIME_S):
            await test

    asyncio.run(in_time())


@asynccontextmanager
async def connected(
    peer: Peer, *, timeout_s: float = IN_TIME_S, pool: BufferPool | None = None
) -> AsyncIterator[Connection]:
    """A connection to a peer that behaves as told; the peer's end is closed when it returns."""
    serving: list[asyncio.Task[None]] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            await peer(reader, writer)

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        task.add_done_callback(lambda _: writer.transport.abort() if task.cancelled() else writer.close())
        serving.append(task)

    server = await asyncio.start_server(accept, "127.0.0.1", 0, limit=1 << 20)
    address = BrokerAddress("127.0.0.1", server.sockets[0].getsockname()[1])
    connection = await open_connection(
        address, where="peer", pool=pool or BufferPool(), connect_timeout_s=IN_TIME_S, timeout_s=timeout_s
    )
    try:
        yield connection
    finally:
        connection.close()
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)
        await asyncio.sleep(0)


def request(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ihhi", 8 + len(body), 1, 1, correlation_id) + body


def frame(correlation_id: int, body: bytes = b"") -> bytes:
    return struct.pack(">ii", 4 + len(body), correlation_id) + body


async def read_request(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    size = int.from_bytes(await reader.readexactly(4), "big")
    data = await reader.readexactly(size)
    return int.from_bytes(data[4:8], "big"), data[8:]


def ask(connection: Connection, body: bytes = b"", *, timeout_s: float | None = None) -> asyncio.Future[memoryview]:
    correlation_id = connection.next_correlation_id()
    return connection.send([request(correlation_id, body)], correlation_id, timeout_s=timeout_s)


def speaking(data: bytes, *, then_close: bool = False) -> Peer:
    """A peer that says the same to every request."""

    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        writer.write(data)
        await writer.drain()
        if not then_close:
            await reader.read()

    return peer


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while True:
        correlation_id, body = await read_request(reader)
        writer.write(frame(correlation_id, body))
        await writer.drain()


async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read()


@pytest.mark.parametrize(
    ("peer", "expected", "text"),
    [
        (speaking(b"HTTP/1.1 400 Bad Request\r\n\r\n"), ProtocolError, "does not seem to speak Kafka"),
        (speaking(struct.pack(">i", MAX_RESPONSE_BYTES + 1)), ProtocolError, "allowed"),
        (speaking(struct.pack(">i", -1)), ProtocolError, "-1 bytes announced"),
        (speaking(struct.pack(">i", 3) + b"abc"), ProtocolError, "3 bytes announced"),
        (speaking(frame(99)), ProtocolError, "answer to request 99 where 1 is due"),
        (speaking(b"", then_close=True), Unreachable, "hung up before its first answer"),
        (speaking(b"\x00\x00", then_close=True), Unreachable, "hung up"),
        (speaking(frame(1, b"half of it")[:-3], then_close=True), Unreachable, "hung up"),
    ],
    ids=["http", "oversized", "negative", "tiny", "correlation", "closes", "cut in size", "cut in body"],
)
def test_a_peer_that_does_not_answer_properly(peer: Peer, expected: type[Exception], text: str) -> None:
    async def test() -> None:
        async with connected(peer) as connection:
            with pytest.raises(expected, match=text):
                await asyncio.wait_for(ask(connection), IN_TIME_S)
            assert not connection.is_open

    run(test())


@pytest.mark.parametrize("data", [b"", b"\x00\x00", frame(1, b"half of it")[:-3]], ids=["silent", "size", "body"])
def test_a_peer_that_stops_talking_is_given_up_in_time(data: bytes) -> None:
    async def test() -> None:
        async with connected(speaking(data), timeout_s=0.1) as connection:
            with pytest.raises(Unreachable, match="no answer in time"):
                await asyncio.wait_for(ask(connection), IN_TIME_S)
            assert not connection.is_open

    run(test())


def test_an_answer_nobody_asked_for_ends_the_connection() -> None:
    async def peer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(frame(7))
        await reader.read()

    async def test() -> None:
        async with connected(peer) as connection:
            while connection.is_open:
                await asyncio.sleep(0.001)
            assert isinstance(connection.failure, ProtocolError)
            with pytest.raises(ProtocolError):
                await ask(connection)

    run(test())


def test_one_failure_fails_everything_in_flight() -> None:
    async def test() -> None:
        async with connected(speaking(frame(2))) as connection:
            answers = [ask(connection) for _ in range(3)]
            results = await asyncio.gather(*answers, return_exceptions=True)
            assert all(isinstance(result, ProtocolError) for result in results)
            assert connection.in_flight == 0

    run(test())


def test_a_short_deadline_counts_behind_and_after_a_long_one() -> None:
    """The timer was armed for the first request only: later ones waited for its deadline, not for theirs."""

    async def answer_first(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        writer.write(frame(correlation_id))
        await reader.read()

    async def test() -> None:
        async with connected(answer_first, timeout_s=60.0) as connection:
            await ask(connection)
            with pytest.raises(Unreachable):
                await asyncio.wait_for(ask(connection, timeout_s=0.05), IN_TIME_S)
        async with connected(silent, timeout_s=60.0) as connection:
            first = ask(connection)
            with pytest.raises(Unreachable):
                await asyncio.wait_for(ask(connection, timeout_s=0.05), IN_TIME_S)
            with pytest.raises(Unreachable):
                await first

    run(test())


def test_a_connection_stays_open_while_nothing_is_asked() -> None:
    async def test() -> None:
        async with connected(echo, timeout_s=0.05) as connection:
            assert bytes((await ask(connection, b"a"))[4:]) == b"a"
            await asyncio.sleep(0.15)
            assert bytes((await ask(connection, b"b"))[4:]) == b"b"

    run(test())


def test_answers_belong_to_their_requests_however_they_are_cut() -> None:
    async def in_crumbs(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        data = b""
        for _ in range(20):
            correlation_id, body = await read_request(reader)
            data += frame(correlation_id, body)
        for start in range(0, len(data), 7):
            writer.write(data[start : start + 7])
            await writer.drain()
            await asyncio.sleep(0)
        await reader.read()

    async def test() -> None:
        async with connected(in_crumbs) as connection:
            answers = [ask(connection, str(number).encode() * number) for number in range(20)]
            for number, answer in enumerate(answers):
                assert bytes((await answer)[4:]) == str(number).encode() * number

    run(test())


@pytest.mark.parametrize("size", [300_000, 1_000_003, 5_000_001])
def test_a_large_answer_in_small_pieces_arrives_whole(size: int) -> None:
    """However few bytes come last: they wake us too."""
    body = random.Random(size).randbytes(size)

    async def trickle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for _ in range(2):
            correlation_id, _ = await read_request(reader)
            data = frame(correlation_id, body)
            for start in range(0, len(data) - 3, 200_000):
                writer.write(data[start : min(start + 200_000, len(data) - 3)])
                await writer.drain()
                await asyncio.sleep(0.001)
            writer.write(data[-3:])
        await reader.read()

    async def test() -> None:
        async with connected(trickle) as connection:
            for _ in range(2):
                assert (await asyncio.wait_for(ask(connection), IN_TIME_S))[4:] == body

    run(test())


class Reluctant:
    """Has room for an answer when it was asked so many times."""

    def __init__(self, refusals: int) -> None:
        self.refusals = refusals
        self.sizes: set[int] = set()

    def admits(self, size: int) -> bool:
        self.refusals -= 1
        self.sizes.add(size)
        return self.refusals < 0


def test_an_answer_waits_for_room_beyond_its_deadline_and_arrives_whole() -> None:
    body = random.Random(1).randbytes(3_000_000)

    async def test() -> None:
        pool, reluctant = BufferPool(), Reluctant(60)
        async with connected(echo, timeout_s=0.1, pool=pool) as connection:
            before = asyncio.get_running_loop().time()
            correlation_id = connection.next_correlation_id()
            first = connection.send([request(correlation_id, body)], correlation_id, allowance=reluctant)
            second = ask(connection, b"b")
            while reluctant.refusals > 0:
                assert pool.in_use_bytes() == 0
                await asyncio.sleep(0.01)
            assert (await first)[4:] == body
            assert asyncio.get_running_loop().time() - before > 0.25
            assert bytes((await second)[4:]) == b"b"
            assert reluctant.sizes == {len(body) + 4}

    run(test())


def test_a_connection_that_is_closed_while_an_answer_waits_for_room_fails_it() -> None:
    async def test() -> None:
        reluctant = Reluctant(1_000_000)
        async with connected(echo) as connection:
            correlation_id = connection.next_correlation_id()
            answer = connection.send([request(correlation_id, bytes(100))], correlation_id, allowance=reluctant)
            while not reluctant.sizes:
                await asyncio.sleep(0)
            connection.close()
            with pytest.raises(Unreachable):
                await answer

    run(test())


def test_an_answer_that_nobody_waits_for_any_more_disturbs_nobody() -> None:
    go = asyncio.Event()

    async def late(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first, second = await read_request(reader), await read_request(reader)
        await go.wait()
        writer.write(frame(*first) + frame(*second))
        await reader.read()

    async def test() -> None:
        async with connected(late) as connection:
            first, second = ask(connection, b"first"), ask(connection, b"second")
            first.cancel()
            go.set()
            assert bytes((await second)[4:]) == b"second"
            assert connection.is_open

    run(test())


def test_gather_writes_arrive_whole_at_a_slow_reader() -> None:
    chance = random.Random(4)
    small = [chance.randbytes(chance.randrange(0, 30)) for _ in range(3 * IOV_MAX)]
    huge: list[Buffer] = [
        chance.randbytes(3_000_000),
        bytearray(chance.randbytes(2_000_000)),
        memoryview(chance.randbytes(70_000)),
    ]
    payload: list[Buffer] = [*small, *huge, *small]
    expected = b"".join(bytes(part) for part in payload)
    arrived: asyncio.Future[bytes]

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(0.05)
        size = int.from_bytes(await reader.readexactly(4), "big")
        data = b""
        while len(data) < size:
            data += await reader.read(100_000)
            await asyncio.sleep(0)
        arrived.set_result(data[8:])
        writer.write(frame(int.from_bytes(data[4:8], "big")))
        await reader.read()

    async def test() -> None:
        nonlocal arrived
        arrived = asyncio.get_running_loop().create_future()
        async with connected(slow) as connection:
            correlation_id = connection.next_correlation_id()
            head = struct.pack(">ihhi", 8 + len(expected), 1, 1, correlation_id)
            await connection.send([head, *payload], correlation_id)
            assert arrived.result() == expected

    run(test())


def test_requests_behind_a_full_socket_keep_their_order() -> None:
    async def test() -> None:
        async with connected(echo) as connection:
            bodies = [bytes([number]) * 700_000 for number in range(8)]
            answers = [ask(connection, body) for body in bodies]
            for body, answer in zip(bodies, answers, strict=True):
                assert (await answer)[4:] == body

    run(test())


def test_a_peer_that_goes_away_in_mid_write() -> None:
    async def rude(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)

    async def test() -> None:
        async with connected(rude) as connection:
            with pytest.raises(Unreachable):
                await asyncio.wait_for(ask(connection, bytes(20_000_000)), IN_TIME_S)

    run(test())


def test_closing_fails_what_is_in_flight_and_all_that_follows() -> None:
    async def test() -> None:
        async with connected(silent) as connection:
            answer = ask(connection)
            connection.close()
            for late in (answer, ask(connection)):
                with pytest.raises(Unreachable, match="connection closed"):
                    await late

    run(test())


@pytest.mark.parametrize("host", ["127.0.0.1", "no-such-host.invalid"])
def test_no_connection_is_unreachable(host: str) -> None:
    async def test() -> None:
        server = await asyncio.start_server(echo, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        server.close()
        await server.wait_closed()
        with pytest.raises(Unreachable):
            await open_connection(
                BrokerAddress(host, port), where="x", pool=BufferPool(), connect_timeout_s=IN_TIME_S, timeout_s=1
            )

    run(test())


# -- buffers -------------------------------------------------------------------------------

sizes = st.integers(POOLED_FROM_BYTES, 3 << 20)


@settings(max_examples=60)
@given(data=st.data(), limit_bytes=st.sampled_from([1 << 20, 5 << 20, 64 << 20]))
def test_a_buffer_that_is_looked_at_is_never_handed_out_again(data: st.DataObject, limit_bytes: int) -> None:
    pool = BufferPool(limit_bytes)
    held: list[tuple[memoryview, bytes]] = []
    for number in range(data.draw(st.integers(1, 25))):
        size = data.draw(sizes)
        buffer = pool.take(size)
        assert len(buffer) >= size
        mark = number.to_bytes(4, "big")
        buffer[:4] = mark
        if data.draw(st.booleans()):
            held.append((memoryview(buffer)[:size][1:], mark))
        del buffer
        if data.draw(st.booleans()) and held:
            held.pop(data.draw(st.integers(0, len(held) - 1)))
        assert all(view[:3] == known[1:] for view, known in held)


def test_a_free_buffer_is_used_again() -> None:
    pool = BufferPool()
    first = pool.take(100_000)
    view = memoryview(first)[10:20]
    identity = id(first)
    del first
    assert id(pool.take(100_000)) != identity
    view.release()
    del view
    assert pool.in_use_bytes() == 0
    assert id(pool.take(200_000)) == identity


def test_small_buffers_are_not_pooled_and_exact() -> None:
    pool = BufferPool()
    small = pool.take(100)
    assert len(small) == 100
    del small
    assert pool.in_use_bytes() == 0


def test_whatever_somebody_looks_at_counts_kept_or_not() -> None:
    pool = BufferPool(2 * capacity_of(1 << 20))
    held = [memoryview(pool.take(size))[:size] for size in (100, 1 << 20, 1 << 20, 1 << 20, 100 << 20)]
    assert pool.in_use_bytes() == 100 + 3 * capacity_of(1 << 20) + (100 << 20)
    del held[-1], held[0]
    assert pool.in_use_bytes() == 3 * capacity_of(1 << 20)
    held.clear()
    assert pool.in_use_bytes() == 0


def test_a_huge_free_buffer_is_not_spent_on_a_small_answer() -> None:
    pool = BufferPool()
    huge = pool.take(20 << 20)
    identity = id(huge)
    del huge
    assert id(pool.take(POOLED_FROM_BYTES)) != identity


def test_the_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(2 * capacity_of(1 << 20))
    held = [pool.take(1 << 20) for _ in range(5)]
    held.clear()
    assert sum(map(len, pool._buffers)) == 2 * capacity_of(1 << 20)


@pytest.mark.parametrize("host", ["a.localhost", "broker-1.North.LOCALHOST", "a.localhost."])
def test_names_under_localhost_are_this_machine(host: str) -> None:
    assert loopback_or_same(host) == "127.0.0.1"


@pytest.mark.parametrize("host", ["localhost", "a.localhost.example", "notlocalhost", "10.0.0.1", "::1"])
def test_other_names_are_left_to_the_resolver(host: str) -> None:
    assert loopback_or_same(host) == host
