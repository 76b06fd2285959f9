"""Peers that vanished without a word: noticed in time, on every connection, and nobody else waits for them."""

from __future__ import annotations

import asyncio
import random
import socket
from contextlib import suppress
from typing import Any

import pytest

from heliograph.errors import Unreachable
from heliograph.kafka import cluster as cluster_module
from heliograph.kafka import connection as connection_module
from heliograph.kafka import log as log_module
from heliograph.kafka.cluster import METADATA_TIMEOUT_S, Cluster
from heliograph.lane import fetcher, leader_watch, sender
from tests.fake_cluster import FETCH, LIST_OFFSETS, METADATA, PRODUCE, SILENCE, Call, FakeCluster
from tests.unit.helpers.lanes import HEAVY, LaneOnFakes, is_data, numbers, recent, run
from tests.unit.kafka.test_connection import ask, connected, frame, read_request

LIMIT_S = 30.0


def test_every_way_to_notice_ends_within_the_limit() -> None:
    cluster = Cluster("a", [], client_id="test")
    default_wait_s = 0.5
    ways = {
        "fetch": default_wait_s + log_module.FETCH_GRACE_S,
        "listen": leader_watch.LISTEN_WAIT_MS / 1000 + log_module.FETCH_GRACE_S,
        "produce": sender.REQUEST_TIMEOUT_MS / 1000 + log_module.PRODUCE_GRACE_S,
        "append": log_module.APPEND_TIMEOUT_MS / 1000 + log_module.PRODUCE_GRACE_S,
        "metadata": METADATA_TIMEOUT_S,
        "ask": cluster._timeout_s,
        "idle": max(connection_module.PROBE_AFTER_S, connection_module.UNACKNOWLEDGED_S)
        + connection_module.PROBE_EVERY_S,
    }
    assert {name: seconds for name, seconds in ways.items() if seconds + cluster._connect_timeout_s > LIMIT_S} == {}


def test_the_kernel_watches_idle_connections() -> None:
    sock = socket.socket()
    with sock:
        connection_module._watch(sock)
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == connection_module.PROBE_AFTER_S
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 20_000


def test_a_slow_answer_that_keeps_coming_is_waited_for() -> None:
    """Longer in all than the deadline, never without a sign for so long."""
    body = random.Random(1).randbytes(40_000)

    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation_id, _ = await read_request(reader)
        data = frame(correlation_id, body)
        for start in range(0, len(data), 4_000):
            writer.write(data[start : start + 4_000])
            await asyncio.sleep(0.2)
        await reader.read()

    async def test() -> None:
        async with connected(slow, timeout_s=1.5) as connection:
            assert (await ask(connection))[4:] == body

    run(test())


def test_requests_behind_slow_ones_are_not_blamed_for_them() -> None:
    async def slow(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            correlation_id, _ = await read_request(reader)
            await asyncio.sleep(0.4)
            writer.write(frame(correlation_id))

    async def test() -> None:
        async with connected(slow, timeout_s=1.5) as connection:
            await asyncio.gather(*(ask(connection) for _ in range(5)))

    run(test())


def test_asking_on_and_on_does_not_keep_a_vanished_peer_alive() -> None:
    async def vanished(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(60)

    async def test() -> None:
        async with connected(vanished, timeout_s=0.3) as connection:
            first = ask(connection)
            for _ in range(20):
                ask(connection)
                await asyncio.sleep(0.05)
            assert isinstance(first.exception(), Unreachable)

    run(test())


# -- lanes


class Swallow:
    """The next requests of a kind get no answer; what they ask for is done or not."""

    def __init__(self, times: int, *, after: bool = False, node: int | None = None) -> None:
        self.left, self.after, self.node = times, after, node
        self.swallowed = 0

    async def __call__(self, call: Call) -> Any:
        is_meant = (call.api_key != PRODUCE or is_data(call)) and self.node in (None, call.node_id)
        if not self.left or not is_meant:
            return await call.proceed()
        self.left -= 1
        self.swallowed += 1
        if self.after:
            await call.proceed()
        return SILENCE


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch, own_worker: None) -> None:
    """Deadlines of a moment."""
    monkeypatch.setattr(fetcher, "FETCH_GRACE_S", 0.2)
    monkeypatch.setattr(sender, "REQUEST_TIMEOUT_MS", 200)
    monkeypatch.setattr(sender, "PRODUCE_GRACE_S", 0.1)


@pytest.mark.usefixtures("soon")
@pytest.mark.parametrize(
    ("side", "api_key", "after"),
    [("source", FETCH, False), ("target", PRODUCE, False), ("target", PRODUCE, True)],
    ids=["source", "target, not appended", "target, appended"],
)
def test_a_lane_gives_a_vanished_connection_up_and_goes_on(side: str, api_key: int, after: bool) -> None:
    swallow = Swallow(1, after=after)

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(2)
                cluster: FakeCluster = getattr(world, side)
                cluster.control(api_key, swallow)
                for number in range(2, 8):
                    world.source.append("t", 0, recent(number, size=HEAVY))
                await lane.until_copied(8)
            assert swallow.swallowed == 1
            assert world.copied() == numbers(8)

    run(test())


@pytest.mark.usefixtures("soon")
def test_partitions_of_other_brokers_do_not_wait_for_one_that_vanished(monkeypatch: pytest.MonkeyPatch) -> None:
    """Partition 1 is on broker 2 of the target, which is silent; partition 0 has a doubt to settle at broker 1."""
    monkeypatch.setattr(sender, "REQUEST_TIMEOUT_MS", 300)
    monkeypatch.setattr(sender, "PRODUCE_GRACE_S", 0.0)
    monkeypatch.setattr(cluster_module, "METADATA_TIMEOUT_S", 0.3)

    async def test() -> None:
        async with LaneOnFakes(partitions=2, brokers=2) as world:
            for partition in range(2):
                world.source.append("t", partition, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(2, 2)
                for api_key in (PRODUCE, LIST_OFFSETS, METADATA):
                    world.target.control(api_key, Swallow(10_000, node=2))
                silent_from = len(world.target.calls)
                world.source.append("t", 1, recent(2, 2))
                await lane.until(
                    lambda: any(
                        call.api_key == LIST_OFFSETS and call.node_id == 2 for call in world.target.calls[silent_from:]
                    )
                )
                world.target.refuse(PRODUCE, "a.t", 0, 19)
                world.source.append("t", 0, recent(2, 2))
                await lane.until_copied(4, 2)
            assert world.copied(0) == numbers(4)
            assert world.copied(1) == numbers(2)

    run(test())


def test_a_broker_that_did_not_answer_is_asked_last(monkeypatch: pytest.MonkeyPatch) -> None:
    """Broker 2 takes connections and answers nothing else: whoever may ask any broker asks it once at the most."""
    monkeypatch.setattr(cluster_module, "METADATA_TIMEOUT_S", 0.2)

    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}, brokers=2) as fake:
            fake.control(METADATA, swallow := Swallow(100, node=2))
            cluster = Cluster("a", fake.bootstrap, client_id="test")
            try:
                failures = 0
                for _ in range(20):
                    try:
                        await cluster.refresh()
                    except Unreachable:
                        failures += 1
                    with suppress(Unreachable):
                        await cluster.connection(2)  # open, and first in line for some reason
                assert failures == swallow.swallowed <= 1
            finally:
                cluster.close()

    run(test())
