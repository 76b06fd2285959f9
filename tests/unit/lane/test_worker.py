"""What a worker process keeps from epoch to epoch: connections, memory, and room for files."""

from __future__ import annotations

import asyncio
import errno
import gc
import os
import resource
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph import run as run_module
from heliograph.errors import TooManyOpenFiles
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.connection import POOLED_FROM_BYTES
from heliograph.kafka.open_files import raise_limit
from heliograph.lane import lane as lane_module
from heliograph.lane.lane import Lane, copy_lane
from tests.fake_cluster import FakeCluster
from tests.unit.helpers.lanes import HEAVY, LaneOnFakes, recent, run

pytestmark = pytest.mark.usefixtures("own_worker")


@pytest.fixture
def uncollected() -> Iterator[None]:
    """As in a worker: nothing is collected while an epoch runs."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()
    gc.unfreeze()


def large_bytes() -> int:
    """In receive buffers that are in use, but for the small ones of answers without records."""
    return lane_module._worker.pool.in_use_bytes() // POOLED_FROM_BYTES * POOLED_FROM_BYTES


# -- memory ----------------------------------------------------------------------------------


@pytest.mark.usefixtures("uncollected")
def test_the_error_of_a_partition_that_was_given_back_holds_no_receive_buffer() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for number in (0, 3):  # where ours should stand
                world.target.append("a.t", 0, recent(number, 3, size=HEAVY))
            entry = world.entry(n=3, source_offset=3, target_offset=3)
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until_trouble()
                assert large_bytes() == 0
            assert lane.rows[0].error_code == "TARGET_TRUNCATED"

    run(test())


def test_what_an_epoch_leaves_in_cycles_is_collected_at_its_end(
    monkeypatch: pytest.MonkeyPatch, uncollected: None
) -> None:
    class Leaving:
        def __init__(self, *_: Any) -> None:
            self.buffer = lane_module._worker.pool.take(1 << 20)
            self.itself = self

        async def run(self) -> list[Any]:
            return []

    monkeypatch.setattr(lane_module, "Lane", Leaving)
    terms = LaneOnFakes().terms(duration_ms=1)
    try:
        copy_lane(0, [], terms)
        assert lane_module._worker.pool.in_use_bytes() == 0
    finally:
        lane_module._worker.loop().close()


# -- connections and files -------------------------------------------------------------------


def open_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_connections_do_not_grow_with_the_lanes_that_a_worker_has_had() -> None:
    async def epoch(world: LaneOnFakes, number: int) -> None:
        """One of eight lanes, as Spark gives it to this worker: another one every time."""
        lane = Lane(number * 3 % 8, world.assignments(), world.terms(duration_ms=60_000))
        running = asyncio.ensure_future(lane.run())
        await world.target.wait_until(lambda: len(world.copied()) == number + 1)
        world.order()
        await running

    async def test() -> None:
        async with LaneOnFakes() as world:
            counts = []
            for number in range(20):
                world.source.append("t", 0, recent(number))
                await epoch(world, number)
                counts.append(open_files())
            assert counts[2:] == [counts[2]] * 18

    run(test())


def test_a_flow_whose_cluster_has_other_addresses_gets_new_connections_and_the_old_ones_are_closed() -> None:
    async def test() -> None:
        async with LaneOnFakes() as first, LaneOnFakes() as second:
            for world in (first, second):
                world.source.append("t", 0, recent(0))
                async with world.lane() as lane:
                    await lane.until_copied(1)
            clusters = lane_module._worker._clusters.values()
            assert [cluster._bootstrap for cluster in clusters] == [second.source.bootstrap, second.target.bootstrap]

    run(test())


def test_the_limit_of_open_files_is_raised_as_far_as_it_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [(1024, 4096)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, wanted: limits.append(wanted))
    raise_limit()
    assert limits[-1] == (4096, 4096)


def test_a_worker_raises_its_limit_when_it_starts(monkeypatch: pytest.MonkeyPatch, uncollected: None) -> None:
    raised: list[bool] = []
    monkeypatch.setattr(lane_module, "raise_limit", lambda: raised.append(True))
    lane_module._worker.loop().close()
    assert raised == [True]


def test_a_driver_raises_its_limit_before_it_starts_spark(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Raised(Exception):
        pass

    def raised() -> None:
        raise Raised

    file = tmp_path / "mm2.properties"
    file.write_text("clusters = a, b\na.bootstrap.servers = a:9092\nb.bootstrap.servers = b:9092\n")
    monkeypatch.setattr(run_module, "start_log", lambda **_: None)
    monkeypatch.setattr(run_module, "raise_limit", raised)
    with pytest.raises(Raised):
        run_module.run_mirror(file)


def test_a_limit_that_the_system_refuses_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ValueError("not allowed to raise maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (1024, resource.RLIM_INFINITY))
    monkeypatch.setattr(resource, "setrlimit", refuse)
    raise_limit()


@pytest.mark.parametrize(
    ("number", "text"), [(errno.EMFILE, "LimitNOFILE="), (errno.ENFILE, "fs.file-max")], ids=["process", "machine"]
)
def test_a_shortage_of_files_is_named_with_what_to_do(number: int, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> socket.socket:
        raise OSError(number, os.strerror(number))

    async def test() -> None:
        async with FakeCluster("a") as fake:
            cluster = Cluster("a", fake.bootstrap, client_id="test")
            monkeypatch.setattr("socket.socket", refuse)
            with pytest.raises(TooManyOpenFiles, match=text) as caught:
                await cluster.refresh()
            assert caught.value.retriable

    run(test())
