"""Compares a changed configuration with the running one: what takes effect now, what needs a restart. Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Any

from heliograph.config.settings import Flow, Settings
from heliograph.text import some_of

LIVE = frozenset({
    "state", "topics", "heartbeats_replicated", "tasks_max", "replication_factor", "refresh_topics_enabled",
    "refresh_topics_interval_s", "topic_sync", "checkpoints", "heartbeats", "offset_flush_interval_ms",
    "on_data_loss", "on_topic_recreated", "on_record_error", "max_bytes_per_second", "start_positions",
    "auto_restart", "partition_remap", "stall_timeout_ms",
})  # fmt: skip
"""Fields of a flow that take effect with the next plan."""
_AT_START = {
    "spark": "spark.*",
    "executor_packages": "executor.packages",
    "executor_secrets": "executor.secrets",
    "lease_ms": "lease.ms",
}
"""Fields of the whole mirror that are read once at start, with their keys."""
_DERIVED = frozenset({"never_mirrored"})
"""Fields derived from other flows, whose own changes are reported."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Changes:
    """The settings to continue with, and one line for each difference."""

    settings: Settings
    applied: tuple[str, ...] = ()
    need_restart: tuple[str, ...] = ()


def compare(running: Settings, wanted: Settings) -> Changes:
    """Compares settings: which of the wanted changes apply now, and which must wait for a restart."""
    applied: list[str] = []
    waiting: list[str] = []
    flows = []
    by_name = {flow.name: flow for flow in wanted.flows}
    for flow in running.flows:
        new = by_name.pop(flow.name, None)
        if new is None and not flow.enabled:
            continue
        if new is None:
            waiting.append(f"{flow.name} was removed")
            flows.append(flow)
            continue
        flows.append(_take_over(flow, new, applied, waiting))
    waiting += [f"{name} is new" for name, flow in by_name.items() if flow.enabled]
    flows += [flow for flow in by_name.values() if not flow.enabled]  # a disabled flow only matters for heartbeats
    clusters = dict(running.clusters)
    for alias in sorted(running.clusters.keys() | wanted.clusters.keys()):
        before, after = running.clusters.get(alias), wanted.clusters.get(alias)
        if before == after:
            clusters |= {alias: after} if after else {}  # its placeholders may have changed
            continue
        if before is None or after is None or before.bootstrap_servers != after.bootstrap_servers:
            waiting.append(f'cluster "{alias}"')
        else:
            clusters[alias] = after
            applied.append(f'cluster "{alias}": how it is reached, from the next connection on')
    waiting += [key for field, key in _AT_START.items() if getattr(running, field) != getattr(wanted, field)]
    if running.epoch_ms != wanted.epoch_ms:
        applied.append(f"epoch.ms: {running.epoch_ms} -> {wanted.epoch_ms}")
    settings = replace(
        running,
        clusters=clusters,
        flows=tuple(flows),
        epoch_ms=wanted.epoch_ms,
        other_heartbeats=wanted.other_heartbeats,
        secrets=wanted.secrets,
    )
    applied += _other_heartbeats(running, settings)
    return Changes(settings=settings, applied=tuple(applied), need_restart=tuple(sorted(waiting)))


def _other_heartbeats(before: Settings, after: Settings) -> list[str]:
    """Returns a line if the heartbeats of cluster pairs without a flow change."""
    known = {(flow.source, flow.target) for flow in before.flows} & {(flow.source, flow.target) for flow in after.flows}
    one, other = before.heartbeat_pairs(), after.heartbeat_pairs()
    changed = [pair for pair in {**one, **other} if one.get(pair) != other.get(pair) and pair not in known]
    names = [f"{source}->{target}" for source, target in changed]
    return [f"heartbeats of {some_of(names)}"] if names else []


def _take_over(flow: Flow, new: Flow, applied: list[str], waiting: list[str]) -> Flow:
    changes: dict[str, Any] = {"references": new.references}
    for field in fields(Flow):
        before, after = getattr(flow, field.name), getattr(new, field.name)
        if before == after or not field.compare or field.name in _DERIVED:
            continue
        if field.name in LIVE:
            changes[field.name] = after
            applied.append(f"{flow.name}: {field.name.replace('_', ' ')}")
        else:
            waiting.append(f"{flow.name}: {field.name.replace('_', ' ')}")
    return replace(flow, **changes)
