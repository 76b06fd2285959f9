"""Reads an MM2 property file: names its clusters and flows, checks every key, sorts the layers."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Mapping

from heliograph.config.files.layers import (
    Layers,
    connector_config,
    heartbeats_everywhere,
    make_layers,
    pair_starts,
    worker_config,
)
from heliograph.config.files.parts import Connector, FlowParts, Parts, default_entries
from heliograph.config.findings import Config, ConfigEntry, FilePlace, Report
from heliograph.config.keys.key import Where
from heliograph.config.keys.key_check import check_entry
from heliograph.config.keys.table import CONNECTOR_NAMES
from heliograph.config.keys.values import split_list

MAX_CLUSTERS = 5_000
MAX_PAIRS = 2_500
"""Maximum number of cluster pairs that a top-level `enabled` may turn into flows."""
_ALIAS = re.compile(r"[A-Za-z0-9._-]+")


def read_mm2_file(entries: Config, report: Report) -> Parts | None:
    """Turns raw keys into parts; returns None if the file does not name its clusters."""
    aliases = _read_aliases(entries, report)
    if report.has_errors:
        return None
    known = frozenset(aliases)
    for entry in entries.values():
        places = _places_of(entry.key, known)
        if places:
            check_entry(entry, places, aliases, report)
        else:
            _report_unknown_flow(entry, aliases, report)
    if "enabled" in entries and len(aliases) ** 2 > MAX_PAIRS:
        what = f'"enabled" makes too many flows: all pairs of {len(aliases)} clusters'
        report.error("too-many-flows", what, entries["enabled"], remedy='write "A->B.enabled" for each flow')
        return None
    layers = make_layers(entries, aliases, CONNECTOR_NAMES)
    return Parts(
        clusters=layers.clusters,
        flows=tuple(_flow_parts(layers, *pair) for pair in _flow_pairs(layers)),
        top=layers.top,
        heartbeats_everywhere=heartbeats_everywhere(layers),
    )


def check_alias(alias: str, entry: ConfigEntry, report: Report) -> None:
    if not _ALIAS.fullmatch(alias):
        report.error(
            "bad-alias",
            f'alias "{entry.reference or alias}" cannot be part of a topic name',
            entry,
            remedy="use letters, digits, dot, _ and -",
        )


def _read_aliases(entries: Mapping[str, ConfigEntry], report: Report) -> tuple[str, ...]:
    entry = entries.get("clusters")
    if entry is None:
        near = difflib.get_close_matches("clusters", list(entries), n=1, cutoff=0.7)
        place = entries[near[0]].place if near else None
        hint = f'"{near[0]}" stands in line {place.line}' if near and place else 'write "clusters = A, B"'
        report.error("no-clusters", 'the key "clusters" is missing', place or FilePlace(report.file, 1), remedy=hint)
        return ()
    aliases = split_list(entry.value)
    if any(" " in alias or "\t" in alias for alias in aliases):
        report.warn("blank-in-list", 'MM2 needs commas between the aliases of "clusters"', entry)
        aliases = tuple(part for alias in aliases for part in alias.split())
    if len(aliases) > MAX_CLUSTERS:
        report.error("too-many-clusters", f'"clusters" names more than {MAX_CLUSTERS} clusters', entry)
        return ()
    if not aliases:
        report.error("no-clusters", '"clusters" names no cluster', entry, remedy='write "clusters = A, B"')
    for alias, times in sorted(Counter(aliases).items()):
        if times > 1:
            report.error("alias-twice", f'"clusters" names "{entry.reference or alias}" twice', entry)
        if not alias:
            report.error("bad-alias", '"clusters" has an empty alias', entry, remedy="remove the extra comma")
        else:
            check_alias(alias, entry, report)
    return aliases


def _places_of(key: str, aliases: Collection[str]) -> list[tuple[Where, str]]:
    """Lists where a key may belong, the likeliest first; nothing for a flow of unknown clusters."""
    found: list[tuple[Where, str]] = []
    at = key.find(".")
    while at >= 0:
        prefix, rest = key[:at], key[at + 1 :]
        source, arrow, target = prefix.partition("->")
        if rest and prefix in aliases:
            found.insert(0, (Where.CLUSTER, rest))
        elif rest and arrow and source in aliases and target in aliases and source != target:
            found.insert(0, (Where.FLOW, rest))
        at = key.find(".", at + 1)
    return found if "->" in key else [*found, (Where.TOP, key)]


def _report_unknown_flow(entry: ConfigEntry, aliases: Collection[str], report: Report) -> None:
    source, _, rest = entry.key.partition("->")
    target = next((alias for alias in aliases if rest.startswith(f"{alias}.")), rest.partition(".")[0])
    if source == target:
        report.error("flow-to-itself", f'"{entry.key}" is a flow from a cluster to itself', entry)
        return
    unknown = [alias for alias in (source, target) if alias not in aliases] or [target]
    for alias in unknown:
        near = difflib.get_close_matches(alias, list(aliases), n=1, cutoff=0.5)
        hint = f'did you mean "{near[0]}"?' if near else f'"clusters" has {", ".join(aliases)}'
        report.error("unknown-cluster", f'"{entry.key}" names the unknown cluster "{alias}"', entry, remedy=hint)


def _flow_pairs(layers: Layers) -> list[tuple[str, str]]:
    """Lists the flows written in the file, and those that a top-level `enabled` turns on."""
    if "enabled" in layers.top:
        return [(source, target) for source in layers.clusters for target in layers.clusters if source != target]
    rank = {alias: index for index, alias in enumerate(layers.clusters)}
    pairs = [pair for pair in layers.flows if pair[0] != pair[1]]
    return sorted(pairs, key=lambda pair: (rank[pair[0]], rank[pair[1]]))


def _flow_parts(layers: Layers, source: str, target: str) -> FlowParts:
    # A top-level `enabled` counts only where MM2 starts the pair at all.
    off = {} if pair_starts(layers, source, target) else default_entries({"enabled": "false"})
    written = layers.flows.get((source, target), {})
    return FlowParts(
        source=source,
        target=target,
        worker=worker_config(layers, source, target),
        connectors={kind: connector_config(layers, source, target, kind) | off for kind in Connector},
        source_cluster=layers.clusters[source],
        target_cluster=layers.clusters[target],
        place=next((entry.place for entry in written.values()), None),
    )
