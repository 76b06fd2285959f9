"""Raw keys to frozen, validated `Settings`; dictionaries of strings end here.

Every fault of a file is gathered and reported together. The only input is the raw keys: the file is read
by `load_settings`, everything else is pure.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

from heliograph.config.layering import (
    Config,
    Layers,
    connector_config,
    make_layers,
    pair_starts,
    source_consumer,
    target_producer,
    worker_config,
)
from heliograph.config.properties import Entry, Place, RawFile, read_properties
from heliograph.config.table import CONNECTOR_NAMES, DEFAULTS, Effect, Key, Where, find_key
from heliograph.config.values import BadValue, Value, parse_address, parse_value, split_list
from heliograph.errors import ConfigError
from heliograph.filters import NameFilter, should_mirror
from heliograph.naming import IdentityPolicy, ReplicationPolicy, make_policy

SUPPORTED_PROTOCOLS = ("PLAINTEXT",)
_ALIAS = re.compile(r"[A-Za-z0-9._-]+")
_PLACEHOLDER = re.compile(r"\$\{[^{}:]+:[^{}]*\}")


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to say about a configuration, with its place."""

    severity: Severity
    what: str
    place: Place | None = None
    remedy: str = ""
    key: str = ""

    @property
    def text(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSettings:
    alias: str
    bootstrap_servers: tuple[str, ...]
    security_protocol: str
    client_id: str
    properties: dict[str, str] = field(repr=False)
    """The cluster's keys without the alias, connection settings of the top level included. May hold secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flow:
    """All that a flow `source->target` is to do; aliases, not clusters."""

    source: str
    target: str
    enabled: bool
    topics: NameFilter
    policy: ReplicationPolicy
    heartbeats_replicated: bool
    never_mirrored: frozenset[str]
    """Storage topics of the whole configuration."""
    tasks_max: int
    replication_factor: int
    refresh_topics_enabled: bool
    refresh_topics_interval_s: int
    group_id: str
    client_id: str
    connector_name: str
    offset_storage_topic: str
    offset_storage_partitions: int
    offset_storage_replication_factor: int
    config_storage_topic: str
    config_storage_replication_factor: int
    status_storage_topic: str
    status_storage_partitions: int
    status_storage_replication_factor: int
    offset_flush_interval_ms: int
    isolation_level: str
    auto_offset_reset: str
    source_consumer: dict[str, str] = field(repr=False)
    target_producer: dict[str, str] = field(repr=False)
    compression: str
    """Codec asked for on the target; `none` keeps the source's."""
    on_data_loss: str
    on_topic_recreated: str
    on_record_error: str
    max_bytes_per_second: int | None

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def ledger_topic(self) -> str:
        return f"mm2-ledger.{self.source}.internal"

    @property
    def rejected_topic(self) -> str:
        return f"mm2-rejected.{self.source}.internal"

    def mirrors(self, topic: str) -> bool:
        """Whether the flow copies this topic of the source."""
        return should_mirror(
            self.policy,
            self.topics,
            topic,
            self.target,
            heartbeats_enabled=self.heartbeats_replicated,
            never=self.never_mirrored,
        )

    def remote_topic(self, topic: str) -> str:
        """The name on the target of a topic of the source."""
        return self.policy.format_remote_topic(self.source, topic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """A valid configuration. `flows` are those written in the file, disabled ones included."""

    file: str
    clusters: dict[str, ClusterSettings]
    flows: tuple[Flow, ...]
    spark: dict[str, str]
    epoch_ms: int
    notes: tuple[Finding, ...]
    """Keys that are accepted and have no effect."""
    warnings: tuple[Finding, ...]

    @property
    def enabled_flows(self) -> tuple[Flow, ...]:
        return tuple(flow for flow in self.flows if flow.enabled)


def load_settings(path: Path | str, *, only_targets: Sequence[str] = ()) -> Settings:
    """Read and validate a file; `only_targets` keeps the flows that end in these clusters."""
    return build_settings(read_properties(Path(path)), only_targets=only_targets)


def build_settings(raw: RawFile, *, only_targets: Sequence[str] = ()) -> Settings:
    """Raw keys to settings, or one ConfigError with everything that is wrong."""
    report = _Report(raw)
    aliases = _read_aliases(raw.entries, report)
    report.raise_errors()
    for entry in raw.entries.values():
        _check_entry(entry, aliases, report)
    layers = make_layers(raw.entries, aliases, CONNECTOR_NAMES)
    flows = [_build_flow(layers, pair, report) for pair in _flow_pairs(layers)]
    flows = _without_storage_topics(flows)
    flows = _keep_targets(flows, aliases, only_targets, report)
    clusters = {alias: _build_cluster(layers, alias, report, needed=_needed(flows, alias)) for alias in aliases}
    _check_flows(flows, clusters, layers, report)
    report.raise_errors()
    top = _Reader(layers.top)
    return Settings(
        file=raw.file,
        clusters=clusters,
        flows=tuple(flows),
        spark={key: entry.value for key, entry in raw.entries.items() if key.startswith("spark.")},
        epoch_ms=top.number("epoch.ms"),
        notes=report.of(Severity.NOTE),
        warnings=report.of(Severity.WARNING),
    )


class _Report:
    """Gathers findings."""

    def __init__(self, raw: RawFile) -> None:
        self.file = raw.file
        given = [Finding(severity=Severity.WARNING, what=text, place=place) for place, text in raw.warnings]
        self.findings = dict.fromkeys(given)  # an ordered set: several flows may find the same fault

    def add(self, severity: Severity, what: str, entry: Entry | None = None, *, remedy: str = "") -> None:
        place, key = (entry.place, entry.key) if entry else (None, "")
        self.findings[Finding(severity=severity, what=what, place=place, remedy=remedy, key=key)] = None

    def error(self, what: str, entry: Entry | None = None, *, remedy: str = "") -> None:
        self.add(Severity.ERROR, what, entry, remedy=remedy)

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        found = [finding for finding in self.findings if finding.severity is severity]
        return tuple(sorted(found, key=lambda finding: finding.place.line if finding.place else 0))

    def raise_errors(self) -> None:
        errors = self.of(Severity.ERROR)
        if len(errors) == 1:
            only = errors[0]
            raise ConfigError(only.what, where=str(only.place or self.file), remedy=only.remedy, findings=errors)
        if errors:
            lines = "".join(f"\n  {f'line {e.place.line}: ' if e.place else ''}{e.text}" for e in errors)
            raise ConfigError(f"{len(errors)} errors{lines}", where=self.file, findings=errors)


# -- the check of every written key


def _read_aliases(entries: Mapping[str, Entry], report: _Report) -> tuple[str, ...]:
    entry = entries.get("clusters")
    if entry is None:
        near = difflib.get_close_matches("clusters", list(entries), n=1, cutoff=0.7)
        hint = f'"{near[0]}" stands in line {_line(entries[near[0]])}' if near else 'write "clusters = A, B"'
        report.error('the key "clusters" is missing', remedy=hint)
        return ()
    aliases = split_list(entry.value)
    if any(" " in alias or "\t" in alias for alias in aliases):
        report.add(Severity.WARNING, 'MM2 wants commas between the aliases of "clusters"', entry)
        aliases = tuple(part for alias in aliases for part in alias.split())
    if not aliases:
        report.error('"clusters" names no cluster', entry, remedy='write "clusters = A, B"')
    for alias in sorted(set(aliases)):
        if aliases.count(alias) > 1:
            report.error(f'"clusters" names "{alias}" twice', entry)
        if not alias:
            report.error('"clusters" has an empty alias', entry, remedy="remove the surplus comma")
        elif not _ALIAS.fullmatch(alias):
            report.error(
                f'alias "{alias}" cannot be part of a topic name', entry, remedy="use letters, digits, dot, _ and -"
            )
    return aliases


def _line(entry: Entry) -> int:
    return entry.place.line if entry.place else 0


def _check_entry(entry: Entry, aliases: Collection[str], report: _Report) -> None:
    places = _places_of(entry.key, aliases)
    if not places:
        _report_unknown_flow(entry, aliases, report)
        return
    for where, name in places:
        found = find_key(where, name)
        if found.key is not None:
            if found.replaced_by:
                report.add(Severity.WARNING, f'"{name}" is an old name', entry, remedy=f'write "{found.replaced_by}"')
            _check_value(found.key, entry, report)
            return
    hints = [found.hint for found in (find_key(where, name) for where, name in places) if found.hint]
    if hints:
        report.add(Severity.WARNING, f'"{entry.key}" has no effect at this place', entry, remedy=hints[0])
        return
    where, name = places[0]
    nearest = find_key(where, name).nearest
    if nearest:
        written = entry.key[: len(entry.key) - len(name)] + nearest
        remedy = f'did you mean "{nearest if where is Where.FLOW else written}"?'
    else:
        remedy = _nearest_alias(entry.key, aliases) or "docs/configuration.md lists all keys"
    report.error(f'"{entry.key}" is not a known key', entry, remedy=remedy)


def _places_of(key: str, aliases: Collection[str]) -> list[tuple[Where, str]]:
    """The places a key may be meant for, the likeliest first; none for a flow of unknown clusters."""
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


def _report_unknown_flow(entry: Entry, aliases: Collection[str], report: _Report) -> None:
    source, _, rest = entry.key.partition("->")
    target = next((alias for alias in aliases if rest.startswith(f"{alias}.")), rest.partition(".")[0])
    if source == target:
        report.error(f'"{entry.key}" is a flow from a cluster to itself', entry)
        return
    unknown = [alias for alias in (source, target) if alias not in aliases] or [target]
    for alias in unknown:
        near = difflib.get_close_matches(alias, list(aliases), n=1, cutoff=0.5)
        hint = f'did you mean "{near[0]}"?' if near else f'"clusters" has {", ".join(aliases)}'
        report.error(f'"{entry.key}" names the unknown cluster "{alias}"', entry, remedy=hint)


def _nearest_alias(key: str, aliases: Collection[str]) -> str:
    """`primry.bootstrap.servers` is a misspelt alias, not a misspelt key."""
    prefix, _, rest = key.partition(".")
    near = difflib.get_close_matches(prefix, list(aliases), n=1, cutoff=0.6)
    if near and find_key(Where.CLUSTER, rest).key is not None:
        return f'did you mean "{near[0]}.{rest}"?'
    return ""


def _check_value(key: Key, entry: Entry, report: _Report) -> None:
    if _PLACEHOLDER.search(entry.value):
        report.error(f'"{entry.key}" has a placeholder', entry, remedy="they are not supported yet; write the value")
        return
    if key.effect is Effect.REFUSED:
        if entry.value.strip() not in key.allowed:
            report.error(f'"{entry.key}" is refused: {key.meaning}', entry, remedy=_allowed(key))
        return
    try:
        value = parse_value(key, entry.value)
    except BadValue as error:
        report.error(f'"{entry.key}" {error}', entry)
        return
    if key.name.endswith("security.protocol"):
        _check_protocol(str(value), entry, report)
    if key.effect in (Effect.LATER, Effect.POINTLESS):
        report.add(Severity.NOTE, f'"{entry.key}" has no effect{_because(key)}', entry)


def _allowed(key: Key) -> str:
    values = [value for value in key.allowed if value]
    return f"only {values[0]} is possible" if values else "remove the key"


def _because(key: Key) -> str:
    return " yet" if key.effect is Effect.LATER else f": {key.meaning}"


def _check_protocol(value: str, entry: Entry, report: _Report) -> None:
    if value not in SUPPORTED_PROTOCOLS:
        supported = ", ".join(SUPPORTED_PROTOCOLS)
        report.error(f'"{entry.key}" = {value} is not supported yet', entry, remedy=f"use a {supported} listener")


# -- typed reading; faults were reported when the keys were checked, so the default stands in for them

_V = TypeVar("_V", bool, int, str, tuple[str, ...])


class _Reader:
    """Values of a layered configuration."""

    def __init__(self, config: Config) -> None:
        self.config = config

    def entry(self, name: str) -> Entry | None:
        key = DEFAULTS[name]
        return next((self.config[n] for n in (name, *key.old_names) if n in self.config), None)

    def value(self, name: str) -> Value:
        key, entry = DEFAULTS[name], self.entry(name)
        if entry is not None:
            try:
                return parse_value(key, entry.value)
            except BadValue:
                pass
        return parse_value(key, key.default or "")

    def _typed(self, name: str, kind: type[_V]) -> _V:
        value = self.value(name)
        assert isinstance(value, kind), name
        return value

    def flag(self, name: str) -> bool:
        return self._typed(name, bool)

    def number(self, name: str) -> int:
        return self._typed(name, int)

    def text(self, name: str) -> str:
        return self._typed(name, str)

    def items(self, name: str) -> tuple[str, ...]:
        return self._typed(name, tuple)


# -- flows and clusters


def _flow_pairs(layers: Layers) -> list[tuple[str, str]]:
    """Flows written in the file, and those that a top-level `enabled` turns on."""
    by_default = "enabled" in layers.top
    return [
        (source, target)
        for source in layers.clusters
        for target in layers.clusters
        if source != target and (by_default or (source, target) in layers.flows)
    ]


def _build_flow(layers: Layers, pair: tuple[str, str], report: _Report) -> Flow:
    source, target = pair
    connector, worker = connector_config(layers, source, target), worker_config(layers, source, target)
    flow, store = _Reader(connector), _Reader(worker)
    _check_aliases_kept(connector, pair, report)
    consumer, producer = _texts(source_consumer(connector)), _texts(target_producer(worker, connector))
    exactly_once = store.text("exactly.once.source.support") == "enabled"
    rate = flow.value("max.bytes.per.second")
    return Flow(
        source=source,
        target=target,
        # A top-level `enabled` counts only where MM2 starts the pair at all.
        enabled=flow.flag("enabled") and pair_starts(layers, source, target),
        topics=_build_filter(flow, report),
        policy=_build_policy(flow, pair, report),
        heartbeats_replicated=flow.flag("heartbeats.replication.enabled"),
        never_mirrored=frozenset(),
        tasks_max=flow.number("tasks.max"),
        replication_factor=flow.number("replication.factor"),
        refresh_topics_enabled=flow.flag("refresh.topics.enabled"),
        refresh_topics_interval_s=flow.number("refresh.topics.interval.seconds"),
        group_id=store.text("group.id"),
        client_id=store.text("client.id"),
        connector_name=flow.text("name"),
        offset_storage_topic=store.text("offset.storage.topic"),
        offset_storage_partitions=store.number("offset.storage.partitions"),
        offset_storage_replication_factor=store.number("offset.storage.replication.factor"),
        config_storage_topic=store.text("config.storage.topic"),
        config_storage_replication_factor=store.number("config.storage.replication.factor"),
        status_storage_topic=store.text("status.storage.topic"),
        status_storage_partitions=store.number("status.storage.partitions"),
        status_storage_replication_factor=store.number("status.storage.replication.factor"),
        offset_flush_interval_ms=store.number("offset.flush.interval.ms"),
        isolation_level=_isolation(consumer, exactly_once=exactly_once),
        auto_offset_reset=consumer.get("auto.offset.reset", "earliest").strip().lower(),
        source_consumer=consumer,
        target_producer=producer,
        compression=producer.get("compression.type", "none").strip().lower(),
        on_data_loss=flow.text("on.data.loss"),
        on_topic_recreated=flow.text("on.topic.recreated"),
        on_record_error=flow.text("on.record.error"),
        max_bytes_per_second=rate if isinstance(rate, int) else None,
    )


def _texts(config: Config) -> dict[str, str]:
    return {key: entry.value for key, entry in config.items()}


def _isolation(consumer: dict[str, str], *, exactly_once: bool) -> str:
    default = "read_committed" if exactly_once else "read_uncommitted"
    return consumer.get("isolation.level", default).strip().lower()


def _check_aliases_kept(connector: Config, pair: tuple[str, str], report: _Report) -> None:
    for side, alias in zip(("source", "target"), pair, strict=True):
        entry = connector[f"{side}.cluster.alias"]
        if entry.value.strip() != alias:
            report.error(
                f'"{entry.key}" = {entry.value} differs from the {side} of {"->".join(pair)}', entry, remedy="remove it"
            )


def _build_filter(flow: _Reader, report: _Report) -> NameFilter:
    patterns: dict[str, tuple[str, ...]] = {}
    for name in ("topics", "topics.exclude"):
        patterns[name] = flow.items(name)
        try:
            NameFilter(patterns[name])
        except ConfigError as error:
            entry = flow.entry(name)
            report.error(f'"{entry.key if entry else name}": {error.what}: {error.why}', entry, remedy=error.remedy)
            patterns[name] = ()
    return NameFilter(patterns["topics"], patterns["topics.exclude"])


def _build_policy(flow: _Reader, pair: tuple[str, str], report: _Report) -> ReplicationPolicy:
    entry = flow.entry("replication.policy.separator")
    separator = entry.value if entry else "."
    internal = flow.flag("replication.policy.internal.topic.separator.enabled") if entry else True
    policy = make_policy(flow.text("replication.policy.class"), separator, pair[0], internal_separator_enabled=internal)
    for alias in pair:
        if separator and separator in alias and not isinstance(policy, IdentityPolicy):
            report.error(
                f'alias "{alias}" contains the separator "{separator}", so remote topics cannot be told apart',
                entry,
                remedy="choose another alias or set replication.policy.separator",
            )
    return policy


def _without_storage_topics(flows: list[Flow]) -> list[Flow]:
    """Storage topics lie on targets, which may be the sources of other flows."""
    storage = frozenset(
        topic
        for flow in flows
        for topic in (flow.offset_storage_topic, flow.config_storage_topic, flow.status_storage_topic)
    )
    return [replace(flow, never_mirrored=storage) for flow in flows]


def _keep_targets(
    flows: list[Flow], aliases: Collection[str], only_targets: Sequence[str], report: _Report
) -> list[Flow]:
    for alias in only_targets:
        if alias not in aliases:
            report.error(f'--clusters names the unknown cluster "{alias}"', remedy=f"it has {', '.join(aliases)}")
    kept = [flow for flow in flows if not only_targets or flow.target in only_targets]
    if not any(flow.enabled for flow in kept):
        ending = f" that ends in {', '.join(only_targets)}" if only_targets else ""
        report.error(f"nothing to run: no flow{ending} is enabled", remedy='write "A->B.enabled = true"')
    return kept


def _needed(flows: Iterable[Flow], alias: str) -> bool:
    return any(flow.enabled and alias in (flow.source, flow.target) for flow in flows)


def _build_cluster(layers: Layers, alias: str, report: _Report, *, needed: bool) -> ClusterSettings:
    config = layers.clusters[alias]
    servers = config.get("bootstrap.servers")
    addresses: list[str] = []
    for text in split_list(servers.value) if servers else ():
        try:
            addresses += [parse_address(text)] if text else []
        except BadValue as error:
            report.error(f'"{alias}.bootstrap.servers" {error}', servers)
    if needed and not (servers and split_list(servers.value)):
        report.error(
            f'cluster "{alias}" has no bootstrap servers',
            servers,
            remedy=f'write "{alias}.bootstrap.servers = host:port"',
        )
    protocol = config.get("security.protocol")
    client_id = config.get("client.id")
    return ClusterSettings(
        alias=alias,
        bootstrap_servers=tuple(dict.fromkeys(addresses)),
        security_protocol=protocol.value.strip().upper() if protocol else "PLAINTEXT",
        client_id=client_id.value if client_id else "",
        properties=_texts(config),
    )


def _check_flows(
    flows: Iterable[Flow], clusters: Mapping[str, ClusterSettings], layers: Layers, report: _Report
) -> None:
    for flow in flows:
        source, target = (set(clusters[alias].bootstrap_servers) for alias in (flow.source, flow.target))
        if flow.enabled and (both := {a.lower() for a in source} & {a.lower() for a in target}):
            report.error(
                f"source and target of {flow.name} are the same cluster: both have {min(both)}",
                layers.clusters[flow.target].get("bootstrap.servers"),
                remedy="a cluster cannot be mirrored to itself",
            )
