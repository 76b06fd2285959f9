"""A lane between two fake clusters, for tests to steer."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, Self

from heliograph.kafka.batch import NewRecord
from heliograph.lane import lane as lane_module
from heliograph.lane.lane import Lane
from heliograph.ledger.model import Assignment, EpochTerms, FlowTerms, LedgerRow
from heliograph.ledger.records.entry import Entry, EntryRecord
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import Call, FakeCluster

FLOW, GROUP, OWNER, CONNECTOR = "a->b", "a-mm2", "owner", "MirrorSourceConnector"
LEDGER, OFFSETS = "mm2-ledger.a.internal", "mm2-offsets.a.internal"
PRODUCER_ID = 4711
HEAVY = 40_000
"""Values of this size keep a batch from being merged with its neighbours."""
PATIENCE_S = 30.0


def recent(start: int, count: int = 1, *, size: int = 0) -> list[NewRecord]:
    """Records of today that carry their number."""
    now_ms = int(time.time() * 1000)
    return [NewRecord(now_ms, b"key", b"%d " % number + bytes(size)) for number in range(start, start + count)]


class LaneOnFakes:
    """Topic `t` on cluster "a", its mirror `a.t` and the internal topics on cluster "b"."""

    def __init__(self, *, partitions: int = 1, targets: int | None = None, brokers: int = 1) -> None:
        self.source = FakeCluster("a", brokers=brokers, topics={"t": partitions})
        self.target = FakeCluster("b", brokers=brokers, topics={"a.t": targets or partitions, LEDGER: 1, OFFSETS: 5})

    async def __aenter__(self) -> Self:
        await self.source.__aenter__()
        await self.target.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for cluster in lane_module._worker._clusters.values():
            await asyncio.gather(*cluster._opening.values(), return_exceptions=True)
            cluster.close()
        await self.source.__aexit__()
        await self.target.__aexit__()

    def entry(self, **fields: Any) -> Entry:
        """A count that has just been opened."""
        start = {"source_offset": 0, "target_offset": 0, "count": 0, "n": 0, **fields}
        return Entry(
            **{
                "source_topic_id": self.source.topics["t"].topic_id.hex,
                "target_topic_id": self.target.topics["a.t"].topic_id.hex,
                "our_end": start["target_offset"],
                "run_source": start["source_offset"],
                "run_target": start["target_offset"],
                **start,
            }
        )

    def assignments(self, *entries: Entry, **fields: Any) -> list[Assignment]:
        """All partitions of the topic; an entry is given for each, or all begin."""
        count = len(self.source.topics["t"].partitions)
        return [
            Assignment(
                flow=FLOW,
                topic="t",
                partition=index,
                target_topic="a.t",
                entry=entries[index] if entries else self.entry(),
                **{"max_message_bytes": 1_000_000, **fields},
            )
            for index in range(count)
        ]

    def terms(self, *, duration_ms: int, **fields: Any) -> EpochTerms:
        flow = FlowTerms(
            **{
                "name": FLOW,
                "source": "a",
                "target": "b",
                "source_bootstrap": self.source.bootstrap,
                "target_bootstrap": self.target.bootstrap,
                "group_id": GROUP,
                "connector": CONNECTOR,
                "client_id": "test",
                "producer_id": PRODUCER_ID,
                "ledger_topic": LEDGER,
                "ledger_end": self.target.partition(LEDGER, 0).end,
                "offset_topic": OFFSETS,
                "offset_partitions": 5,
                "flush_ms": 20,
                "fetch_max_wait_ms": 100,
                **fields,
            }
        )
        return EpochTerms(owner=OWNER, epoch_id=3, duration_ms=duration_ms, flows=(flow,))

    @asynccontextmanager
    async def lane(
        self, assignments: list[Assignment] | None = None, *, duration_ms: int = 60_000, **terms: Any
    ) -> AsyncIterator[Running]:
        """A lane at work; at the end of the block the driver's order ends it, and its rows are there."""
        lane = Lane(0, assignments or self.assignments(), self.terms(duration_ms=duration_ms, **terms))
        running = Running(self, asyncio.ensure_future(lane.run()))
        try:
            yield running
            self.order()
            await running.end()
        finally:
            running.task.cancel()
            await asyncio.gather(running.task, return_exceptions=True)

    def order(self, *, owner: str = OWNER, end_epoch: int = 3) -> None:
        key, value = Order(owner=owner, end_epoch=end_epoch).encode(GROUP)
        self.target.append(LEDGER, 0, [NewRecord(0, key, value)])

    def copied(self, partition: int = 0) -> list[int]:
        """The numbers of the records on the target."""
        return [int((value or b"-1").split()[0]) for value in self.target.partition("a.t", partition).values()]

    def ledger(self) -> list[LedgerRecord | None]:
        return [parse_ledger(GROUP, record.key, record.value) for record in self.target.partition(LEDGER, 0).records()]


class Running:
    """A lane that runs beside the test."""

    def __init__(self, world: LaneOnFakes, task: asyncio.Task[list[LedgerRow]]) -> None:
        self.task = task
        self.rows: list[LedgerRow] = []
        self._world = world

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for something while the lane runs; if the lane ends before, its error is raised."""
        async with asyncio.timeout(PATIENCE_S):
            while not condition():
                if self.task.done():
                    self.task.result()
                    raise AssertionError("the lane ended")
                await self._world.target.wait_for_change(0.02)

    async def until_copied(self, *numbers: int) -> None:
        """Wait until each partition has so many records, or more."""
        await self.until(lambda: all(len(self._world.copied(i)) >= number for i, number in enumerate(numbers)))

    async def until_entry(self, n: int) -> None:
        """Wait until the ledger says that so many records were copied."""
        await self.until(lambda: any(isinstance(r, EntryRecord) and r.entry.n == n for r in self._world.ledger()))

    async def until_trouble(self) -> None:
        """Wait until the lane has told in the ledger that it gave a partition back."""
        await self.until(lambda: any(isinstance(r, Trouble) and r.final for r in self._world.ledger()))

    async def end(self) -> list[LedgerRow]:
        self.rows = await asyncio.wait_for(self.task, PATIENCE_S)
        return self.rows


def run(test: Coroutine[Any, Any, None]) -> None:
    async def in_time() -> None:
        async with asyncio.timeout(2 * PATIENCE_S):
            await test

    asyncio.run(in_time())


def is_data(call: Call) -> bool:
    """A lane's own Produce names topics by id; those of ledger and positions do not."""
    return call.version >= 13


def numbers(count: int) -> list[int]:
    return list(range(count))
