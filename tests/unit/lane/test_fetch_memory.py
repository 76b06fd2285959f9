"""What a lane holds of fetched bytes stays within its limit, whoever fetches, and one oversized answer passes alone."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.kafka.connection import BufferPool, capacity_of
from heliograph.lane import fetch_memory
from heliograph.lane import lane as lane_module
from heliograph.lane.fetch_memory import BESIDE_BYTES, FetchMemory
from tests.fake_cluster import FETCH, PRODUCE, SILENCE, Call
from tests.unit.helpers.lanes import LaneOnFakes, recent, run

MIB = 1024 * 1024


def no_queue() -> int:
    return 0


# -- who may ask for how much ----------------------------------------------------------------


def test_a_fetch_waits_until_others_have_given_back_what_they_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", 2 * capacity_of(MIB + BESIDE_BYTES))

    async def test() -> None:
        flow = FetchMemory(BufferPool()).flow(no_queue)
        first, _ = await flow.reserve(MIB), await flow.reserve(MIB)
        third = asyncio.ensure_future(flow.reserve(MIB))
        fourth = asyncio.ensure_future(flow.reserve(100))
        await asyncio.sleep(3 * fetch_memory.MEMORY_PAUSE_S)
        assert not third.done()
        assert not fourth.done(), "a small one must not overtake"
        first.release()
        first.release()
        assert (await third).answer_bytes == MIB
        fourth.cancel()

    asyncio.run(test())


def test_received_and_assembled_bytes_count_as_long_as_anybody_holds_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", 4 * MIB)

    class Copy:
        made_bytes = 0

    async def test() -> None:
        pool, copy = BufferPool(limit_bytes=MIB), Copy()
        memory = FetchMemory(pool)
        memory.watch([copy])
        reservation = await memory.flow(no_queue).reserve(MIB)
        assert reservation.admits(MIB)
        assert memory.reserved_bytes == 0
        held = [pool.take(MIB)]
        assert memory.used_bytes() == capacity_of(MIB)
        copy.made_bytes = 2 * MIB
        assert not memory.has_room(MIB)
        held.clear()
        assert memory.has_room(MIB)

    asyncio.run(test())


def test_a_flow_whose_share_is_free_asks_for_what_fits_in_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", 9 * MIB)
    monkeypatch.setattr(fetch_memory, "RESERVED_BYTES", 4 * MIB)

    async def test() -> None:
        memory = FetchMemory(BufferPool(), flows=2)
        stuck, sound = memory.flow(lambda: 9 * MIB), memory.flow(no_queue)
        await stuck.reserve(8 * MIB)
        reservation = await sound.reserve(8 * MIB)
        assert MIB <= reservation.answer_bytes < 2 * MIB
        assert sound.reserved_bytes <= 2 * MIB

    asyncio.run(test())


def test_an_answer_that_is_larger_than_asked_for_passes_where_there_is_room_or_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", 4 * MIB)
    monkeypatch.setattr(fetch_memory, "OVERSIZED_PATIENCE_S", 60.0)

    async def test() -> None:
        pool = BufferPool()
        memory = FetchMemory(pool)
        flow = memory.flow(no_queue)
        first, second = await flow.reserve(MIB), await flow.reserve(MIB)
        assert first.admits(100 * MIB)
        held = [pool.take(100 * MIB)]
        assert not second.admits(100 * MIB)
        assert second.admits(MIB), "what is not oversized was reserved"
        third = memory.gate(MIB)
        assert not third.admits(3 * MIB)
        held.clear()
        assert third.admits(3 * MIB)

    asyncio.run(test())


def test_oversized_answers_do_not_wait_for_each_other_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", MIB)
    monkeypatch.setattr(fetch_memory, "OVERSIZED_PATIENCE_S", 0.0)
    pool = BufferPool()
    gate = FetchMemory(pool).gate(100)
    held = pool.take(50 * MIB)
    assert not gate.admits(50 * MIB)
    while not gate.admits(50 * MIB):
        pass
    assert gate.admits(50 * MIB), "who was let through goes on"
    del held


# -- in a lane -------------------------------------------------------------------------------


async def silent(call: Call) -> Any:
    """A target that does not answer what a lane sends to it."""
    return await call.proceed() if call.version < 13 else SILENCE


@pytest.mark.usefixtures("own_worker")
def test_brokers_whose_answers_are_under_way_do_not_exceed_the_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    limit = 6 * MIB
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", limit)
    under_way = most = 0

    async def note(call: Call) -> Any:
        nonlocal under_way, most
        asked = call.request.max_bytes
        under_way += asked
        most = max(most, under_way + lane_module._worker.pool.in_use_bytes())
        answer = await call.proceed()
        under_way -= asked
        return answer

    async def test() -> None:
        async with LaneOnFakes(partitions=8, brokers=8) as world:
            for index in range(8):
                for number in range(30):
                    world.source.append("t", index, recent(number, size=100_000))
            world.source.control(FETCH, note)
            world.target.control(PRODUCE, silent)
            async with world.lane() as lane:
                await lane.until(lambda: lane_module._worker.pool.in_use_bytes() > limit - 2 * MIB)
                seen = len(world.target.calls)
                await lane.until(lambda: len(world.target.calls) >= seen + 5)
            assert most <= limit

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_oversized_batches_pass_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    size = 5 * MIB
    monkeypatch.setattr(fetch_memory, "MEMORY_BYTES", 2 * MIB)
    monkeypatch.setattr(fetch_memory, "OVERSIZED_PATIENCE_S", 60.0)
    asked: set[int] = set()
    all_asked, held = asyncio.Event(), asyncio.Event()

    async def note(call: Call) -> Any:
        """Nobody has an answer before all were asked: what is received first would keep others from asking."""
        asked.add(call.node_id)
        if len(asked) == 3:
            all_asked.set()
        await all_asked.wait()
        return await call.proceed()

    async def hold(call: Call) -> Any:
        if call.version >= 13:
            await held.wait()
        return await call.proceed()

    def used() -> int:
        return lane_module._worker.pool.in_use_bytes()

    async def test() -> None:
        async with LaneOnFakes(partitions=3, brokers=3) as world:
            for index in range(3):
                world.source.append("t", index, recent(0, size=size))
                world.target.partition("a.t", index).max_message_bytes = 10 * MIB
            world.source.control(FETCH, note)
            world.target.control(PRODUCE, hold)
            async with world.lane(world.assignments(max_message_bytes=10 * MIB)) as lane:
                await lane.until(lambda: used() >= size)
                seen = len(world.target.calls)
                await lane.until(lambda: len(world.target.calls) >= seen + 5)
                assert used() < 2 * size
                held.set()
                await lane.until_copied(1, 1, 1)

    run(test())
