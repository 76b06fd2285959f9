"""Defines the settings that the rest of the program uses: frozen, validated, the same from either file form.

Any value may come from a secret, so the repr of these objects shows names only.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import permutations

from heliograph.config.files.parts import ConnectorState, MirrorResource
from heliograph.config.findings import Finding, Severity
from heliograph.config.secrets import SecretReader
from heliograph.config.start_points import StartPositions
from heliograph.names.filters import Filter, should_mirror
from heliograph.names.policies import ReplicationPolicy
from heliograph.names.renaming import Arrivals, Renames, comes_home

MAX_ALL_PAIRED = 50
"""Maximum number of clusters for which all pairs have heartbeats, connected or not."""


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ClusterSettings:
    alias: str
    bootstrap_servers: tuple[str, ...]
    security_protocol: str
    client_id: str
    properties: dict[str, str]
    """The other connection settings, `ssl.*` and `sasl.*`. May hold secrets."""
    references: dict[str, str] = field(default_factory=dict, compare=False)
    """Those of them that have placeholders, as written."""

    def __repr__(self) -> str:
        return f"<cluster {self.alias}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetSyncSettings:
    """Settings of offset-syncs, MM2's records of which source offset is which target offset."""

    enabled: bool
    location: str
    """`source` or `target`: the cluster of their topic."""
    lag_max: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoints:
    """Settings of the sync of consumer groups."""

    state: ConnectorState
    interval_s: int
    replication_factor: int
    groups: Filter
    refresh_groups_enabled: bool
    refresh_groups_interval_s: int
    sync_group_offsets: bool
    sync_group_offsets_interval_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AutoRestart:
    """Settings of automatic restarts after a permanent failure."""

    max_restarts: int | None
    """Maximum number of restarts in a row; None: no limit."""
    max_backoff_minutes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSettings:
    state: ConnectorState
    interval_s: int
    replication_factor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSync:
    """Settings of what is synced for topics besides their records."""

    configs_enabled: bool
    configs_interval_s: int
    configs_exclude: Filter
    use_defaults_from: str
    acls_enabled: bool
    acls_interval_s: int
    acls_prefixed: bool
    """Whether ACLs on prefixes and on all resources are synced too."""
    acls_delete: bool
    group_acls: Filter | None
    """The groups whose ACLs are synced too; None: no groups."""
    write_on_failover: bool

    @property
    def copies_acls(self) -> bool:
        return self.acls_enabled or self.group_acls is not None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Flow:
    """All settings of a flow `source->target`; with aliases, not clusters."""

    source: str
    target: str
    enabled: bool
    state: ConnectorState
    """State of the copying; a paused flow stays in the settings and copies nothing."""
    topics: Filter
    policy: ReplicationPolicy
    group_renames: Renames = field(default_factory=Renames)
    arrivals: Arrivals = field(default=(), compare=False)
    """Renaming policies of the enabled flows: a topic may have got its name from one of them on its way here."""
    heartbeats_replicated: bool
    never_mirrored: frozenset[str]
    """Storage topics of the whole configuration."""
    tasks_max: int
    replication_factor: int
    refresh_topics_enabled: bool
    refresh_topics_interval_s: int
    topic_sync: TopicSync
    offset_syncs: OffsetSyncSettings
    checkpoints: Checkpoints | None
    """Settings of the group sync; None: no group is synced."""
    heartbeats: HeartbeatSettings | None
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
    makes_internal_topics: bool
    """Whether missing storage topics are created; otherwise they must exist."""
    offset_flush_interval_ms: int
    exactly_once: str
    isolation_level: str
    auto_offset_reset: str
    start_positions: StartPositions
    """Where copying starts for topics that are mirrored for the first time."""
    source_admin: dict[str, str]
    source_consumer: dict[str, str]
    target_admin: dict[str, str]
    target_producer: dict[str, str]
    references: dict[str, dict[str, str]] = field(compare=False)
    """For each of these four, the connection settings with placeholders, as written."""
    compression: str
    """Codec asked for on the target; `none` keeps the source's."""
    on_data_loss: str
    on_topic_recreated: str
    on_record_error: str
    offset_translation: str
    partition_remap: str
    max_bytes_per_second: int | None
    provenance_headers: bool
    """Whether records get headers that name their origin; records that return to it are skipped."""
    auto_restart: AutoRestart | None
    """Settings of automatic restarts; None: a permanent failure lasts until the next start."""
    stall_timeout_ms: int
    """How long records may wait without progress, or a cluster may not answer, before the flow is not ready."""

    def __repr__(self) -> str:
        return f"<flow {self.name}>"

    @property
    def name(self) -> str:
        return f"{self.source}->{self.target}"

    @property
    def is_running(self) -> bool:
        return self.enabled and self.state is ConnectorState.RUNNING

    @property
    def remaps_partitions(self) -> bool:
        """Tells whether a topic may have more partitions than its target."""
        return self.partition_remap == "modulo"

    @property
    def ledger_topic(self) -> str:
        return f"mm2-ledger.{self.source}.internal"

    @property
    def rejected_topic(self) -> str:
        return f"mm2-rejected.{self.source}.internal"

    @property
    def translates_by_syncs(self) -> bool:
        """Whether MirrorMaker 2's rule translates offsets (`offset.translation=mm2`)."""
        return self.offset_translation == "mm2"

    @property
    def offset_syncs_topic(self) -> str:
        """Returns the topic's name; it contains the alias of the cluster that it is not on."""
        other = self.target if self.offset_syncs.location == "source" else self.source
        return self.policy.offset_syncs_topic(other)

    @property
    def checkpoints_topic(self) -> str:
        return self.policy.checkpoints_topic(self.source)

    def mirrors(self, topic: str) -> bool:
        """Tells whether the flow copies this topic of the source."""
        return self.selects(topic) and not self.comes_home(topic)

    def selects(self, topic: str) -> bool:
        """Applies the filters and MM2's protection against cycles."""
        return should_mirror(
            self.policy,
            self.topics,
            topic,
            self.target,
            heartbeats_enabled=self.heartbeats_replicated,
            never=self.never_mirrored,
        )

    def comes_home(self, topic: str) -> bool:
        """Tells whether the topic is a copy of one of the target's own topics, renamed by a rule on its way."""
        if not self.arrivals:
            return False
        return comes_home(self.policy, self.arrivals, topic, source=self.source, target=self.target)

    def remote_topic(self, topic: str) -> str:
        """Returns the name on the target of a topic of the source."""
        return self.policy.format_remote_topic(self.source, topic)

    def remote_group(self, group: str) -> str:
        """Returns the name on the target of a consumer group of the source."""
        renamed = self.group_renames.apply(group)
        return group if renamed is None else renamed


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Settings:
    """A valid configuration. `flows` are those written in the file, disabled ones included."""

    file: str = field(compare=False)
    clusters: dict[str, ClusterSettings]
    flows: tuple[Flow, ...]
    spark: dict[str, str]
    epoch_ms: int
    lease_ms: int
    executor_secrets: str
    """`send` or `mount`: how secrets reach Spark's executors on other machines."""
    executor_packages: str
    """`ship` or `installed`: how executors get the packages that a lane needs."""
    other_heartbeats: HeartbeatSettings | None
    """Heartbeats of pairs of clusters without a flow; None: they have none."""
    only_targets: tuple[str, ...] = ()
    """The clusters that flows and heartbeats may write to; empty: all."""
    elsewhere: tuple[Flow, ...] = field(default=(), compare=False)
    """The other flows of the file, which end in none of these clusters: another process may run them."""
    resources: tuple[MirrorResource, ...] = field(default=(), compare=False)
    """The documents of a resource file."""
    findings: tuple[Finding, ...] = field(default=(), compare=False)
    secrets: SecretReader = field(default=SecretReader(), compare=False)
    """Looks up what the clusters' references refer to."""

    def __repr__(self) -> str:
        return f"<settings of {self.file}: {', '.join(flow.name for flow in self.flows)}>"

    @property
    def enabled_flows(self) -> tuple[Flow, ...]:
        return tuple(flow for flow in self.flows if flow.enabled)

    @property
    def warnings(self) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is Severity.WARNING)

    @property
    def notes(self) -> tuple[Finding, ...]:
        """Returns the findings about keys that are accepted and have no effect."""
        return tuple(finding for finding in self.findings if finding.rule == "no-effect")

    def heartbeat_pairs(self) -> dict[tuple[str, str], HeartbeatSettings]:
        """Returns the pairs (source, target) for which MM2 would write heartbeats, into the target.

        Above MAX_ALL_PAIRED clusters only pairs that a flow connects, in either direction.
        """
        flows = {(flow.source, flow.target): flow.heartbeats for flow in self.flows}
        found = {pair: flows.get(pair, self.other_heartbeats) for pair in self._pairs(list(flows))}
        return {pair: heartbeats for pair, heartbeats in found.items() if heartbeats is not None}

    def _pairs(self, connected: list[tuple[str, str]]) -> Iterator[tuple[str, str]]:
        """Yields all pairs that may have heartbeats; the target must have bootstrap servers."""
        pairs = connected
        if self.other_heartbeats is not None:
            is_few = len(self.clusters) <= MAX_ALL_PAIRED
            pairs = list(permutations(self.clusters, 2)) if is_few else [*pairs, *((b, a) for a, b in pairs)]
        reachable = {alias for alias, cluster in self.clusters.items() if cluster.bootstrap_servers}
        reachable |= {flow.target for flow in self.flows if "bootstrap.servers" in flow.target_admin}
        for source, target in pairs:
            if target in reachable and (not self.only_targets or target in self.only_targets):
                yield source, target
