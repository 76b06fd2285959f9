"""All that runs beside the copying of one flow."""

from __future__ import annotations

from collections.abc import Coroutine, Iterator
from typing import Any

from heliograph.control.checkpoints import Carrier
from heliograph.control.loop import Loop
from heliograph.control.offset_syncs import OffsetSyncs
from heliograph.control.watch import PRUNE_S, WATCH_S, Watch
from heliograph.mirror.flow import FlowDriver

SYNC_S = 0.2
"""Offset syncs follow the lanes' flushes; at most so often."""


def loops_beside(flow: FlowDriver) -> Iterator[Coroutine[Any, Any, None]]:
    """The loops of one flow, to be started when it is ready; they end by being cancelled.

    A source is watched while its flow is paused too: that is when there is most to lose.
    """
    watch, syncs = Watch(flow), OffsetSyncs(flow)
    carrier = Carrier(flow, syncs)

    async def publish_syncs() -> None:
        await syncs.publish()
        await flow.ledger_moved.wait()

    def sync_interval_s() -> float | None:
        return SYNC_S if flow.flow.is_running and flow.flow.offset_syncs.enabled else None

    source, target = flow.flow.source, flow.flow.target
    jobs = (
        Loop(f'{flow.name}: watching "{source}"', interval_s=lambda: WATCH_S, step=watch.look),
        Loop(f"{flow.name}: pruning the ledger", interval_s=lambda: PRUNE_S, step=watch.prune),
        Loop(f"{flow.name}: offset syncs", interval_s=sync_interval_s, step=publish_syncs),
        Loop(f'{flow.name}: groups of "{source}"', interval_s=carrier.refresh_interval_s, step=carrier.refresh_groups),
        Loop(f'{flow.name}: groups to "{target}"', interval_s=carrier.interval_s, step=carrier.carry),
    )
    return (job.run() for job in jobs)
