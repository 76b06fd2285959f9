"""The control loops of one flow: all that is kept in step beside the copying."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any

from heliograph.control.acls import AclSync
from heliograph.control.checkpoints import GroupCheckpoints
from heliograph.control.offset_syncs import OffsetSyncSync
from heliograph.control.source_watch import PRUNE_S, WATCH_S, LogEndSync, PageSync
from heliograph.control.topic_configs import ConfigSync
from heliograph.flow.flow import FlowDriver
from heliograph.loop import Job


def loops_beside(flow: FlowDriver) -> Iterator[Coroutine[Any, Any, None]]:
    """Make the control loops of one flow, to be started when it is ready; they end by being cancelled.

    Log ends are watched while the flow is paused too: that is when there is most to lose.
    """
    log_ends, pages, offset_syncs = LogEndSync(flow), PageSync(flow), OffsetSyncSync(flow)
    checkpoints = GroupCheckpoints(flow, offset_syncs)
    configs = ConfigSync(flow)
    acls = AclSync(flow)

    async def sync_offsets() -> None:
        await offset_syncs.sync()
        await flow.epochs.flushed.wait()

    def loop(what: str, interval_s: Callable[[], float | None], sync: Job) -> Coroutine[Any, Any, None]:
        async def sync_if_leading() -> None:
            if flow.opening.leads():  # a process that stood still may have been replaced meanwhile
                await sync()

        return flow.loops.loop(what).repeat(sync_if_leading, interval_s=interval_s)

    source, target = flow.flow.source, flow.flow.target
    yield loop(f'watching "{source}"', lambda: WATCH_S, log_ends.sync)
    yield loop("pruning the ledger", lambda: PRUNE_S, pages.sync)
    yield loop("offset syncs", offset_syncs.interval_s, sync_offsets)
    yield loop(f'reading group commits on "{source}"', checkpoints.read_interval_s, checkpoints.read)
    yield loop(f'refreshing groups of "{source}"', checkpoints.refresh_interval_s, checkpoints.refresh_groups)
    yield loop(f'syncing groups to "{target}"', checkpoints.interval_s, checkpoints.sync)
    yield loop(f'syncing topic configs to "{target}"', configs.interval_s, configs.sync)
    yield loop(f'syncing ACLs to "{target}"', acls.interval_s, acls.sync)
