"""Who settles when: few at a time, in order, and nobody behind a broker that he does not ask."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Hashable
from typing import Any

from heliograph.lane.settling_room import SettlingRoom


class Visitors:
    """Partitions that ask for places, and say when they have one."""

    def __init__(self, room: SettlingRoom) -> None:
        self._room = room
        self.inside: list[int] = []
        self.ever: list[int] = []
        self._ends: dict[int, asyncio.Event] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}

    async def come(self, *numbers: int, brokers: Hashable = "a", size: int = 0) -> None:
        for number in numbers:
            self._ends[number] = asyncio.Event()
            self._tasks[number] = asyncio.ensure_future(self._visit(number, brokers, size))
        await self._turns()

    async def leave(self, *numbers: int) -> None:
        for number in numbers:
            self._ends[number].set()
        await self._turns()

    async def cancel(self, *numbers: int) -> None:
        for number in numbers:
            self._tasks[number].cancel()
        await self._turns()

    async def _turns(self) -> None:
        for _ in range(10):
            await asyncio.sleep(0)

    async def _visit(self, number: int, brokers: Hashable, size: int) -> None:
        async with self._room.admit(brokers) as ticket:
            ticket.hold(size)
            self.inside.append(number)
            self.ever.append(number)
            try:
                await self._ends[number].wait()
            finally:
                self.inside.remove(number)


def visit(test: Callable[[Visitors], Coroutine[Any, Any, None]], *, partitions: int = 3, max_bytes: int = 100) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(10):
            await test(Visitors(SettlingRoom(partitions=partitions, max_bytes=max_bytes)))

    asyncio.run(in_time())


def test_so_many_settle_at_a_time_and_the_others_in_the_order_in_which_they_came() -> None:
    async def test(visitors: Visitors) -> None:
        await visitors.come(*range(7))
        assert visitors.inside == [0, 1, 2]
        await visitors.leave(1)
        assert visitors.inside == [0, 2, 3]
        await visitors.leave(0, 2, 3)
        assert visitors.inside == [4, 5, 6]
        await visitors.leave(4, 5, 6)
        assert visitors.ever == [0, 1, 2, 3, 4, 5, 6]

    visit(test)


def test_while_those_inside_hold_many_bytes_nobody_else_begins_and_an_oversized_one_settles_alone() -> None:
    async def test(visitors: Visitors) -> None:
        await visitors.come(0, size=1000)
        await visitors.come(1, 2)
        assert visitors.inside == [0]
        await visitors.leave(0)
        assert visitors.inside == [1, 2]

    visit(test)


def test_partitions_behind_a_broker_that_does_not_answer_keep_nobody_else_waiting() -> None:
    async def test(visitors: Visitors) -> None:
        await visitors.come(0, 1, 2, 3, brokers="silent", size=1000)
        await visitors.come(10, 11, brokers="well")
        assert visitors.inside == [0, 10]
        await visitors.leave(10)
        assert visitors.inside == [0, 11]

    visit(test)


def test_who_gives_up_waiting_or_settling_leaves_his_place_to_others() -> None:
    async def test(visitors: Visitors) -> None:
        await visitors.come(*range(6))
        await visitors.cancel(3)
        await visitors.cancel(0)
        assert visitors.inside == [1, 2, 4]
        await visitors.leave(1, 2, 4)
        assert visitors.inside == [5]
        await visitors.leave(5)
        await visitors.come(6, 7, 8)
        assert visitors.inside == [6, 7, 8]

    visit(test)
