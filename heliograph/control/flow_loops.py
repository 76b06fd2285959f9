"""All that runs beside the copying of one flow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any

from heliograph.control.acls import AclSync
from heliograph.control.checkpoints import GroupCheckpoints
from heliograph.control.offset_syncs import OffsetSyncs
from heliograph.control.source_watch import PRUNE_S, WATCH_S, Watch
from heliograph.control.topic_configs import ConfigSync
from heliograph.flow.flow import FlowDriver
from heliograph.loop import Loop

SYNC_S = 0.2
"""Offset syncs follow the lanes' flushes; at most so often."""


def loops_beside(flow: FlowDriver) -> Iterator[Coroutine[Any, Any, None]]:
    """The loops of one flow, to be started when it is ready; they end by being cancelled.

    A source is watched while its flow is paused too: that is when there is most to lose.
    """
    watch, syncs = Watch(flow), OffsetSyncs(flow)
    checkpoints = GroupCheckpoints(flow, syncs)
    configs = ConfigSync(flow)
    acls = AclSync(flow)

    async def publish_syncs() -> None:
        await syncs.publish()
        await flow.epochs.flushed.wait()

    def sync_interval_s() -> float | None:
        return SYNC_S if flow.flow.is_running and flow.flow.offset_syncs.enabled else None

    def loop(what: str, interval_s: Callable[[], float | None], step: Callable[[], Awaitable[None]]) -> Loop:
        async def if_we_lead() -> None:
            if flow.opening.leads():  # a process that stood still may have been replaced meanwhile
                await step()

        return Loop(flow.side_loops.loop(what), interval_s=interval_s, step=if_we_lead)

    source, target = flow.flow.source, flow.flow.target
    jobs = (
        loop(f'watching "{source}"', lambda: WATCH_S, watch.look),
        loop("pruning the ledger", lambda: PRUNE_S, watch.prune),
        loop("offset syncs", sync_interval_s, publish_syncs),
        loop(f'commits of groups of "{source}"', checkpoints.read_interval_s, checkpoints.read),
        loop(f'groups of "{source}"', checkpoints.refresh_interval_s, checkpoints.refresh_groups),
        loop(f'groups to "{target}"', checkpoints.interval_s, checkpoints.sync),
        loop(f'settings of topics to "{target}"', configs.interval_s, configs.look),
        loop("access rules", acls.interval_s, acls.sync),
    )
    return (job.run() for job in jobs)
