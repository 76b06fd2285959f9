"""A lane: one Spark task that copies its assignments until the epoch ends.

*Runs* in a Spark task; imports no pyspark. What a lane does for each of its flows is
in `flow_lane`; here is what they share: the deadline, the tasks of the event loop, and
the worker process around them, whose connections outlive the epoch, so that the next
one starts warm. A failing partition never ends a lane, only a fault of our own does.
"""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Coroutine, Sequence
from typing import Any

from heliograph.kafka.cluster import Cluster
from heliograph.kafka.connection import BufferPool
from heliograph.kafka.host_names import give_threads
from heliograph.kafka.open_files import raise_limit
from heliograph.kafka.types import BrokerAddress
from heliograph.lane.fetch_memory import FetchMemory
from heliograph.lane.flow_lane import FlowLane
from heliograph.lane.rate_limiter import RateLimiter
from heliograph.lane.settling_room import SettlingRoom
from heliograph.ledger.model import Assignment, EpochTerms, FlowTerms, LedgerRow, Side

ClientKey = tuple[str, Side, str, tuple[BrokerAddress, ...]]
"""A flow, a side of it, and how that cluster is reached."""
PARENT_CHECK_S = 0.5
IDLE_EPOCHS = 20
"""A client that no lane here asked for in so many epochs is closed: its flow runs elsewhere, or otherwise, by now."""


def copy_lane(lane: int, assignments: Sequence[Assignment], terms: EpochTerms) -> list[LedgerRow]:
    """Copy until the epoch ends; a row for every assignment.

    *Runs* in a task. *Called* once a lane and epoch. *Pickles* nothing but its arguments.
    Garbage in cycles is collected at the epoch's end: a collector that walks over thousands of
    queued batches again and again cost a fifth of the CPU where batches hold one record. What lies
    in cycles may hold receive buffers, so it is collected before the next epoch counts its memory.
    """
    loop = _worker.loop()
    _worker.begin(terms.epoch_id)
    gc.disable()
    rows = loop.run_until_complete(Lane(lane, assignments, terms).run())
    gc.collect()
    return rows


class _Worker:
    """What a worker process keeps from epoch to epoch: its event loop, its clusters, and what limits have let pass."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._clusters: dict[ClientKey, Cluster] = {}
        self._used: dict[ClientKey, int] = {}
        """The epoch in which each of them was last asked for."""
        self._epoch_id = 0
        self.pool = BufferPool()
        self._paces: dict[str, RateLimiter] = {}

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._pid != os.getpid():
            # A forked child has its parent's sockets: start afresh.
            self._clusters, self._used, self.pool = {}, {}, BufferPool()
            self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
            give_threads(self._loop)
            raise_limit()
            gc.freeze()  # what was imported stays; collections need not look at it
        return self._loop

    def begin(self, epoch_id: int) -> None:
        """Close the clients that are not in use any more."""
        self._epoch_id = epoch_id
        for key in [key for key, used in self._used.items() if used < epoch_id - IDLE_EPOCHS]:
            self._close(key)

    def cluster(self, terms: FlowTerms, side: Side, *, client_id: str) -> Cluster:
        """The client of a flow on one side, whichever lane it is for: Spark gives a worker other lanes from epoch to
        epoch, and connections for each of them would add up."""
        alias, bootstrap, security = terms.access(side)
        key = terms.name, side, alias, bootstrap
        self._used[key] = self._epoch_id
        cluster = self._clusters.get(key)
        if cluster is None:
            for former in [known for known in self._clusters if known[:2] == key[:2]]:
                self._close(former)  # the cluster has other addresses now
            cluster = self._clusters[key] = Cluster(alias, bootstrap, client_id=client_id, pool=self.pool)
        cluster.client_id = client_id  # quotas go by it, and it names the lane
        cluster.security = security  # what is open stays; the next connection has the new secrets
        return cluster

    def _close(self, key: ClientKey) -> None:
        del self._used[key]
        self._clusters.pop(key).close()

    def pace(self, flow: str, bytes_per_second: float | None) -> RateLimiter | None:
        if bytes_per_second is None:
            self._paces.pop(flow, None)
            return None
        pace = self._paces.setdefault(flow, RateLimiter(bytes_per_second))
        pace.set(bytes_per_second)
        return pace


_worker = _Worker()


class Lane:
    """One epoch of one lane, all its flows together."""

    def __init__(self, lane: int, assignments: Sequence[Assignment], terms: EpochTerms) -> None:
        self.index = lane
        self.terms = terms
        self._started = time.monotonic()
        self._deadline = self._started + terms.duration_ms / 1000
        self._parent = os.getppid()
        self._over = asyncio.Event()
        self._crash: BaseException | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._assignments = assignments
        self._flows: list[FlowLane] = []
        self.room = SettlingRoom()
        self.memory = FetchMemory(_worker.pool, flows=len({item.flow for item in assignments}))

    async def run(self) -> list[LedgerRow]:
        flows = [
            FlowLane(self, flow, [item for item in self._assignments if item.flow == flow.name])
            for flow in self.terms.flows
            if any(item.flow == flow.name for item in self._assignments)
        ]
        self._flows = flows
        asyncio.get_running_loop().set_exception_handler(self._on_stray)
        for flow in flows:
            flow.start()
        try:
            await self._until_over()
            for flow in flows:
                flow.stop()
            await asyncio.gather(*(flow.finish() for flow in flows))
        finally:
            await self._cancel_tasks()
        if self._crash is not None:
            raise self._crash
        active_ms = int((time.monotonic() - self._started) * 1000)
        return [row for flow in flows for row in flow.rows(active_ms)]

    def time_left_ms(self) -> int:
        return max(0, int((self._deadline - time.monotonic()) * 1000))

    def end(self) -> None:
        self._over.set()

    def flow_is_over(self) -> None:
        """One of the flows may not go on; the lane does as long as another may."""
        if all(flow.is_over for flow in self._flows):
            self.end()

    def cluster(self, terms: FlowTerms, side: Side, *, client_id: str) -> Cluster:
        """The client that this worker process keeps from epoch to epoch."""
        return _worker.cluster(terms, side, client_id=client_id)

    def pace(self, flow: str, bytes_per_second: float | None) -> RateLimiter | None:
        """What keeps a flow within its limit; None: it has none."""
        return _worker.pace(flow, bytes_per_second)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._on_task_done)
        return task

    def _on_task_done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._crash = self._crash or error
            self.end()

    def _on_stray(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """An error in a callback, which nobody awaits: without this a partition would stand still in silence."""
        error = context.get("exception")
        if error is not None and "handle" in context:
            self._crash = self._crash or error
            self.end()
        loop.default_exception_handler(context)

    async def _until_over(self) -> None:
        """Wait for the deadline, the driver's word or silence, or the end of the Spark worker around us."""
        while not self._over.is_set():
            left = self._deadline - time.monotonic()
            going_on = [flow for flow in self._flows if flow.may_write()]
            if left <= 0 or os.getppid() != self._parent or not going_on:
                return
            try:
                await asyncio.wait_for(self._over.wait(), min(left, PARENT_CHECK_S))
            except TimeoutError:
                continue

    async def _cancel_tasks(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
