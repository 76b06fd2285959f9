"""Acknowledge losses: they stay on the target, and no longer make their flow not ready. Needs the target alone."""

from __future__ import annotations

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.losses import acknowledged
from heliograph.ledger.records.loss import Loss


async def acknowledge(settings: Settings, flow: Flow, *, topic: str | None, dry_run: bool) -> list[Loss]:
    """The flow's losses that nobody had acknowledged, of one topic or of all; from now on somebody has.

    A mirror that runs takes up the partitions that stood still for one of them.
    """
    cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{flow.name}|acknowledge")
    try:
        await cluster.refresh()
        ledger = await store.find_ledger(cluster, flow)
        if ledger is None:
            return []
        now_ms = wall_ms()
        losses = acknowledged(ledger.losses.values(), topic=topic, now_ms=now_ms)
        if losses and not dry_run:
            await store.write_records(cluster, ledger.topic, flow.group_id, losses, now_ms=now_ms)
        return losses
    finally:
        cluster.close()
