"""DNS gone for a while: named, never in the event loop's way, and over when names resolve again."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.errors import Unreachable
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.host_names import give_threads, resolve
from heliograph.kafka.types import BrokerAddress
from tests.fake_cluster import FakeCluster
from tests.unit.helpers.lanes import LaneOnFakes, numbers, recent, run


class Resolver:
    """Stands before the real one."""

    def __init__(self) -> None:
        self.is_gone = False
        self.is_silent = False
        self.asked = 0
        self.awake = threading.Event()
        self._real = socket.getaddrinfo

    def __call__(self, host: str, *arguments: Any, **more: Any) -> Any:
        if not host.endswith(".test"):
            return self._real(host, *arguments, **more)
        self.asked += 1
        if self.is_silent:
            self.awake.wait(10)
        if self.is_gone or self.is_silent:
            raise socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution")
        return self._real("127.0.0.1", *arguments, **more)


@pytest.fixture
def resolver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Resolver]:
    resolver = Resolver()
    monkeypatch.setattr(socket, "getaddrinfo", resolver)
    yield resolver
    resolver.awake.set()


def named(cluster: FakeCluster) -> tuple[BrokerAddress, ...]:
    return tuple(BrokerAddress(f"broker-{at.port}.test", at.port) for at in cluster.bootstrap)


def test_a_name_that_does_not_resolve_is_named_and_tried_again(resolver: Resolver) -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as fake:
            cluster = Cluster("a", named(fake), client_id="test")
            resolver.is_gone = True
            for _ in range(2):
                with pytest.raises(Unreachable) as caught:
                    await cluster.refresh()
                assert f'host name "{named(fake)[0].host}" cannot be resolved' in str(caught.value)
                assert "Temporary failure in name resolution" in str(caught.value)
            resolver.is_gone = False
            assert "t" in (await cluster.refresh()).topics
            cluster.close()

    run(test())


def test_a_silent_resolver_holds_neither_the_event_loop_nor_many_threads(resolver: Resolver) -> None:
    async def test() -> None:
        async with FakeCluster("a") as fake:
            cluster = Cluster("a", named(fake), client_id="test", connect_timeout_s=0.1)
            resolver.is_silent = True
            slowest, last = 0.0, time.monotonic()

            async def tick() -> None:
                nonlocal slowest, last
                while True:
                    await asyncio.sleep(0.01)
                    slowest, last = max(slowest, time.monotonic() - last), time.monotonic()

            ticking = asyncio.ensure_future(tick())
            for _ in range(3):
                with pytest.raises(Unreachable, match=r"cannot be resolved; no answer within 0\.1 s"):
                    await cluster.refresh()
            ticking.cancel()
            assert resolver.asked == 1
            assert slowest < 5
            resolver.is_silent = False
            resolver.awake.set()
            while not cluster.catalogue.brokers:
                with contextlib.suppress(Unreachable):  # the lookup that was silent has failed at last
                    await cluster.refresh()
            cluster.close()

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_lane_goes_on_when_names_resolve_again(resolver: Resolver) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            resolver.is_gone = True
            async with world.lane(source_bootstrap=named(world.source), target_bootstrap=named(world.target)) as lane:
                await lane.until(lambda: resolver.asked > 2)
                resolver.is_gone = False
                await lane.until_copied(3)
            assert world.copied() == numbers(3)

    run(test())


def test_names_that_nobody_answers_for_keep_no_others_waiting(resolver: Resolver) -> None:
    """Those of one cluster are more than the threads that Python would give."""

    async def test() -> None:
        give_threads(asyncio.get_running_loop())
        resolver.is_silent = True
        silent = [BrokerAddress(f"broker-{number}.test", 9092) for number in range(40)]
        lookups = [asyncio.ensure_future(resolve(address, where="a")) for address in silent]
        while resolver.asked < len(silent):
            await asyncio.sleep(0.01)
        assert await asyncio.wait_for(resolve(BrokerAddress("127.0.0.1", 9092), where="b"), 5)
        resolver.awake.set()
        assert all(isinstance(found, Unreachable) for found in await asyncio.gather(*lookups, return_exceptions=True))

    run(test())
