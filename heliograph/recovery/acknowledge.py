"""Acknowledges losses: they stay stored on the target, but their flow is ready again. Needs the target alone."""

from __future__ import annotations

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.losses import acknowledged
from heliograph.ledger.records.loss import Loss


async def acknowledge(settings: Settings, flow: Flow, *, topic: str | None, dry_run: bool) -> list[Loss]:
    """Acknowledges the flow's losses that are not yet acknowledged, of one topic or of all, and returns them.

    A running mirror then resumes the partitions that stopped because of them.
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
