"""A lane is one Spark task: it copies its assignments until the epoch ends.

*Runs* in a Spark task; imports no pyspark. `flow_lane` does the work for each flow; this
module holds what the flows share: the deadline, the tasks of the event loop, and the worker
process. Connections outlive the epoch, so that the next one starts warm. A failing partition
never ends a lane; only a bug of our own does.
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
"""Flow name, side, cluster alias and bootstrap servers."""
PARENT_CHECK_S = 0.5
"""How often a lane checks that the Spark worker that started it is alive."""
IDLE_EPOCHS = 20
"""A client that no lane of this process used for this many epochs is closed: its flow runs elsewhere by now."""


def copy_lane(lane: int, assignments: Sequence[Assignment], terms: EpochTerms) -> list[LedgerRow]:
    """Copy until the epoch ends; return a row for every assignment.

    *Runs* in a task. *Called* once per lane and epoch. *Pickles* nothing but its arguments.
    The garbage collector is off during the epoch: walking over thousands of queued batches again
    and again cost a fifth of the CPU where batches hold one record. It runs once at the end, because
    cyclic garbage may hold receive buffers, and the next epoch counts them as memory in use.
    """
    loop = _worker.loop()
    _worker.begin(terms.epoch_id)
    gc.disable()
    rows = loop.run_until_complete(Lane(lane, assignments, terms).run())
    gc.collect()
    return rows


class _Worker:
    """Keeps what a worker process reuses from epoch to epoch: its event loop, clients and rate limiters."""

    def __init__(self) -> None:
        self._loop: asyncio.AbstractEventLoop | None = None
        self._pid = 0
        self._clusters: dict[ClientKey, Cluster] = {}
        self._used: dict[ClientKey, int] = {}
        """The epoch in which each client was last used."""
        self._epoch_id = 0
        self.pool = BufferPool()
        self._limiters: dict[str, RateLimiter] = {}

    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._pid != os.getpid():
            # A forked child inherits its parent's sockets: start without them.
            self._clusters, self._used, self.pool = {}, {}, BufferPool()
            self._loop, self._pid = asyncio.new_event_loop(), os.getpid()
            give_threads(self._loop)
            raise_limit()
            gc.freeze()  # imported modules stay; collections need not visit them
        return self._loop

    def begin(self, epoch_id: int) -> None:
        """Start an epoch: close the clients that are no longer used."""
        self._epoch_id = epoch_id
        for key in [key for key, used in self._used.items() if used < epoch_id - IDLE_EPOCHS]:
            self._close(key)

    def cluster(self, terms: FlowTerms, side: Side, *, client_id: str) -> Cluster:
        """Return the client for one side of a flow, shared by all lanes of this process.

        Spark gives a worker other lanes from epoch to epoch; connections per lane would add up.
        """
        alias, bootstrap, security = terms.access(side)
        key = terms.name, side, alias, bootstrap
        self._used[key] = self._epoch_id
        cluster = self._clusters.get(key)
        if cluster is None:
            for former in [known for known in self._clusters if known[:2] == key[:2]]:
                self._close(former)  # the bootstrap servers changed
            cluster = self._clusters[key] = Cluster(alias, bootstrap, client_id=client_id, pool=self.pool)
        cluster.client_id = client_id  # it names the lane, and quotas apply to it
        cluster.security = security  # open connections stay; the next one uses the new secrets
        return cluster

    def _close(self, key: ClientKey) -> None:
        del self._used[key]
        self._clusters.pop(key).close()

    def rate_limiter(self, flow: str, bytes_per_second: float | None) -> RateLimiter | None:
        if bytes_per_second is None:
            self._limiters.pop(flow, None)
            return None
        limiter = self._limiters.setdefault(flow, RateLimiter(bytes_per_second))
        limiter.set(bytes_per_second)
        return limiter


_worker = _Worker()


class Lane:
    """Runs one epoch of one lane, all its flows together."""

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
        """Copy until the epoch ends; raise the error of the first task that crashed, if one did."""
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
        """End the epoch now."""
        self._over.set()

    def flow_is_over(self) -> None:
        """End the lane if all its flows have stopped; else the others go on."""
        if all(flow.is_over for flow in self._flows):
            self.end()

    def cluster(self, terms: FlowTerms, side: Side, *, client_id: str) -> Cluster:
        """Return the client that this worker process keeps from epoch to epoch."""
        return _worker.cluster(terms, side, client_id=client_id)

    def rate_limiter(self, flow: str, bytes_per_second: float | None) -> RateLimiter | None:
        """Return the limiter of a flow that has a rate limit, else None."""
        return _worker.rate_limiter(flow, bytes_per_second)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Start a task that ends with the lane; if it crashes, the lane crashes."""
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
        """Crash the lane if a callback raised: nobody awaits it, and its partition would silently stop."""
        error = context.get("exception")
        if error is not None and "handle" in context:
            self._crash = self._crash or error
            self.end()
        loop.default_exception_handler(context)

    async def _until_over(self) -> None:
        """Wait for the deadline, the driver's order to end, the loss of all leases, or the end of the Spark worker."""
        while not self._over.is_set():
            left = self._deadline - time.monotonic()
            leased = [flow for flow in self._flows if flow.may_write()]
            if left <= 0 or os.getppid() != self._parent or not leased:
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
