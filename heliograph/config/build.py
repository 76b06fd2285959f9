"""Builds settings from parts: parses values by type, makes flows and clusters; dictionaries of strings end here.

Pure. Every fault goes into the report; the caller raises them all together.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from heliograph.config.files.parts import (
    Connector,
    ConnectorState,
    FlowParts,
    Parts,
    source_admin,
    source_connection,
    source_consumer,
    target_admin,
    target_connection,
    target_producer,
    under,
)
from heliograph.config.findings import Config, ConfigEntry, FilePlace, Report
from heliograph.config.keys.client_settings import CLIENT_NAMES
from heliograph.config.keys.typed_reader import Connectors as _Connectors
from heliograph.config.keys.typed_reader import Reader as _Reader
from heliograph.config.keys.values import BadValue, parse_address, split_list
from heliograph.config.name_settings import (
    GROUP_RENAME,
    build_config_exclude,
    build_group_filter,
    build_policy,
    build_renames,
    build_topic_filter,
)
from heliograph.config.settings import (
    AutoRestart,
    Checkpoints,
    ClusterSettings,
    Flow,
    HeartbeatSettings,
    OffsetSyncSettings,
    Settings,
    TopicSync,
)
from heliograph.config.start_points import build_starts
from heliograph.names.renaming import RenamingPolicy

_SECURITY_NAMES = CLIENT_NAMES - {"bootstrap.servers", "security.protocol"}
_MUST_AGREE = ("replication.policy.class", "replication.policy.separator", "offset-syncs.topic.location")
"""Keys that must agree in all connectors of a flow, or one looks for topics that another never writes."""


def build_settings(
    parts: Sequence[Parts], report: Report, *, only_targets: Sequence[str] = (), need_flow: bool = True
) -> Settings:
    """Builds one settings object from all parts of a file; faults go into the report."""
    flows = [_build_flow(flow, report) for part in parts for flow in part.flows]
    flows = _with_arrivals(_without_storage_topics(flows))
    _check_flows_once(parts, report)
    aliases = list(dict.fromkeys(alias for part in parts for alias in part.clusters))
    rank = {alias: index for index, alias in enumerate(aliases)}
    flows.sort(key=lambda flow: (rank.get(flow.source, 0), rank.get(flow.target, 0)))  # one order for either file form
    all_flows, flows = flows, _keep_targets(flows, aliases, only_targets, report)
    clusters = _build_clusters(parts, flows, report)
    _check_same_cluster(clusters, parts, report)
    _check_flows_to_themselves(flows, clusters, parts, report)
    top = _Reader({key: entry for part in parts for key, entry in part.top.items()})
    everywhere = any(part.heartbeats_everywhere for part in parts)
    settings = Settings(
        file=report.file,
        clusters=clusters,
        flows=tuple(flows),
        spark={key: entry.value for key, entry in top.config.items() if key.startswith("spark.")},
        epoch_ms=top.number("epoch.ms"),
        lease_ms=top.number("lease.ms"),
        executor_secrets=top.text("executor.secrets"),
        executor_packages=top.text("executor.packages"),
        other_heartbeats=_read_heartbeats(top, ConnectorState(top.text("heartbeats.state"))) if everywhere else None,
        only_targets=tuple(only_targets),
        elsewhere=tuple(flow for flow in all_flows if only_targets and flow.target not in only_targets),
        resources=tuple(part.resource for part in parts if part.resource is not None),
    )
    if need_flow and not settings.enabled_flows:
        _report_nothing(parts, settings, report)
    return replace(settings, findings=report.findings)


# -- flows


def _build_flow(parts: FlowParts, report: Report) -> Flow:
    flow, store = _Connectors(parts), _Reader(parts.worker)
    copying = parts.connectors.get(Connector.SOURCE)
    if not parts.connectors:
        report.error(
            "no-connector",
            f"no connector is enabled for the flow {parts.name}, so nothing is mirrored",
            parts.place,
            remedy='write "sourceConnector: {}", and "checkpointConnector: {}" to sync consumer groups',
        )
    _check_aliases_kept(parts, flow.config, report)
    _check_agreement(parts, report)
    _check_connections_agree(parts, report)
    clients = _build_clients(parts, report)
    texts = {role: _texts(config) for role, config in clients.items()}
    consumer, producer = texts["source_consumer"], texts["target_producer"]
    exactly_once = store.text("exactly.once.source.support")
    reset = consumer.get("auto.offset.reset", "earliest").strip().lower()
    rate = flow.value("max.bytes.per.second")
    return Flow(
        source=parts.source,
        target=parts.target,
        enabled=copying is not None and flow.flag("enabled"),
        state=_state(parts, Connector.SOURCE, flow, "state"),
        topics=build_topic_filter(flow, parts, report),
        policy=build_policy(flow, parts, report),
        group_renames=build_renames(flow, GROUP_RENAME, report),
        arrivals=(),
        heartbeats_replicated=flow.flag("heartbeats.replication.enabled"),
        never_mirrored=frozenset(),
        tasks_max=flow.number("tasks.max"),
        replication_factor=flow.number("replication.factor"),
        refresh_topics_enabled=flow.flag("refresh.topics.enabled"),
        refresh_topics_interval_s=flow.number("refresh.topics.interval.seconds"),
        topic_sync=_build_topic_sync(parts, flow, report),
        offset_syncs=OffsetSyncSettings(
            enabled=flow.flag("emit.offset-syncs.enabled"),
            location=flow.text("offset-syncs.topic.location"),
            lag_max=flow.number("offset.lag.max"),
            replication_factor=flow.number("offset-syncs.topic.replication.factor"),
        ),
        checkpoints=_build_checkpoints(parts, flow, report),
        heartbeats=_build_heartbeats(parts, flow),
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
        makes_internal_topics=store.flag("internal.topics.automatic.creation.enable"),
        offset_flush_interval_ms=store.number("offset.flush.interval.ms"),
        exactly_once=exactly_once,
        isolation_level=_isolation(consumer, exactly_once=exactly_once == "enabled"),
        auto_offset_reset=reset,
        start_positions=build_starts(copying or {}, reset=reset, report=report),
        **texts,
        references={role: _references(config) for role, config in clients.items()},
        compression=producer.get("compression.type", "none").strip().lower(),
        on_data_loss=flow.text("on.data.loss"),
        on_topic_recreated=flow.text("on.topic.recreated"),
        on_record_error=flow.text("on.record.error"),
        offset_translation=flow.text("offset.translation"),
        partition_remap=flow.text("partition.remap"),
        max_bytes_per_second=rate if isinstance(rate, int) else None,
        provenance_headers=flow.flag("provenance.headers"),
        auto_restart=_build_auto_restart(flow),
        stall_timeout_ms=flow.number("stall.timeout.ms"),
    )


def _build_clients(parts: FlowParts, report: Report) -> dict[str, Config]:
    """Builds the keys of each client of the flow beyond its cluster's, by the client's role in `Flow`.

    As in MM2 a client's own keys win over those of the flow's `source.cluster.*` and `target.cluster.*`, and these
    over the cluster's.
    """
    source, target = source_connection(parts), target_connection(parts)
    clients = {
        "source_admin": source | source_admin(parts),
        "source_consumer": source | source_consumer(parts),
        "target_admin": target | target_admin(parts),
        "target_producer": target | target_producer(parts),
    }
    return {role: _with_addresses(config, report) for role, config in clients.items()}


def _with_addresses(config: Config, report: Report) -> Config:
    """Returns the config with its bootstrap servers, if any, in normal form."""
    servers = config.get("bootstrap.servers")
    if servers is None:
        return config
    addresses = _addresses(servers, servers.key, report)
    rest = {key: entry for key, entry in config.items() if entry is not servers}
    return rest | ({"bootstrap.servers": replace(servers, value=",".join(addresses))} if addresses else {})


def _addresses(servers: ConfigEntry, name: str, report: Report) -> list[str]:
    """Parses bootstrap servers as `host:port`, without repeats; faults are reported under the key's name."""
    addresses: list[str] = []
    for text in dict.fromkeys(split_list(servers.value)) if not servers.is_missing else ():
        try:
            addresses += [parse_address(text)] if text else []
        except BadValue as error:
            report.error("bad-value", f'"{name}" {error.hidden if servers.reference else error}', servers)
    return list(dict.fromkeys(addresses))


def _build_auto_restart(flow: _Reader) -> AutoRestart | None:
    if not flow.flag("auto.restart.enabled"):
        return None
    limit = flow.value("auto.restart.max.restarts")
    return AutoRestart(
        max_restarts=limit if isinstance(limit, int) else None,
        max_backoff_minutes=flow.number("auto.restart.max.backoff.minutes"),
    )


def _build_topic_sync(parts: FlowParts, flow: _Reader, report: Report) -> TopicSync:
    return TopicSync(
        configs_enabled=flow.flag("sync.topic.configs.enabled"),
        configs_interval_s=flow.number("sync.topic.configs.interval.seconds"),
        configs_exclude=build_config_exclude(flow, parts, report),
        use_defaults_from=flow.text("use.defaults.from"),
        acls_enabled=flow.flag("sync.topic.acls.enabled"),
        acls_interval_s=flow.number("sync.topic.acls.interval.seconds"),
        acls_prefixed=flow.flag("sync.topic.acls.prefixed"),
        acls_delete=flow.flag("sync.topic.acls.delete"),
        group_acls=build_group_filter(flow, parts, report) if flow.flag("sync.group.acls.enabled") else None,
        write_on_failover=flow.flag("write.on.failover"),
    )


def _build_checkpoints(parts: FlowParts, flow: _Reader, report: Report) -> Checkpoints | None:
    groups = build_group_filter(flow, parts, report)
    given = parts.connectors.get(Connector.CHECKPOINT)
    if given is None or not _Reader(given).flag("enabled") or not flow.flag("emit.checkpoints.enabled"):
        return None
    return Checkpoints(
        state=_state(parts, Connector.CHECKPOINT, flow, "checkpoints.state"),
        interval_s=flow.number("emit.checkpoints.interval.seconds"),
        replication_factor=flow.number("checkpoints.topic.replication.factor"),
        groups=groups,
        refresh_groups_enabled=flow.flag("refresh.groups.enabled"),
        refresh_groups_interval_s=flow.number("refresh.groups.interval.seconds"),
        sync_group_offsets=flow.flag("sync.group.offsets.enabled"),
        sync_group_offsets_interval_s=flow.number("sync.group.offsets.interval.seconds"),
    )


def _build_heartbeats(parts: FlowParts, flow: _Reader) -> HeartbeatSettings | None:
    """Builds the heartbeat settings; a heartbeat connector runs whether or not its flow is enabled."""
    if Connector.HEARTBEAT not in parts.connectors or not flow.flag("emit.heartbeats.enabled"):
        return None
    return _read_heartbeats(flow, _state(parts, Connector.HEARTBEAT, flow, "heartbeats.state"))


def _read_heartbeats(flow: _Reader, state: ConnectorState) -> HeartbeatSettings:
    return HeartbeatSettings(
        state=state,
        interval_s=flow.number("emit.heartbeats.interval.seconds"),
        replication_factor=flow.number("heartbeats.topic.replication.factor"),
    )


def _state(parts: FlowParts, kind: Connector, flow: _Reader, name: str) -> ConnectorState:
    """Returns a connector's state: the resource's if it gives one, else the property file's."""
    return parts.states.get(kind) or ConnectorState(flow.text(name))


def _texts(config: Config) -> dict[str, str]:
    return {key: entry.value for key, entry in config.items()}


def _isolation(consumer: dict[str, str], *, exactly_once: bool) -> str:
    default = "read_committed" if exactly_once else "read_uncommitted"
    return consumer.get("isolation.level", default).strip().lower()


def _check_aliases_kept(parts: FlowParts, config: Config, report: Report) -> None:
    for side, alias in (("source", parts.source), ("target", parts.target)):
        entry = config.get(f"{side}.cluster.alias")
        if entry is not None and entry.value.strip() != alias:
            report.error(
                "alias-changed",
                f'"{entry.key}" = {entry.reference or entry.value} differs from the {side} of {parts.name}',
                entry,
                remedy="remove it",
            )


def _check_agreement(parts: FlowParts, report: Report) -> None:
    """Checks that the connectors of a flow agree; the heartbeat connector's keys count only where they are written."""
    readers = {kind: _Reader(config) for kind, config in parts.connectors.items()}
    first = readers.get(Connector.SOURCE)
    if first is None:
        return
    for name in _MUST_AGREE:
        for kind, reader in readers.items():
            entry = reader.entry(name)
            if reader.value(name) == first.value(name) or (kind is Connector.HEARTBEAT and entry is None):
                continue
            there = first.entry(name)
            report.error(
                "connectors-differ",
                f"{name} of {parts.name} is {first.shown(name)} for the source connector "
                f"and {reader.shown(name)} for {kind}",
                entry or there or parts.place,
                remedy="write the same value in all connectors of the flow",
            )


def _check_connections_agree(parts: FlowParts, report: Report) -> None:
    """Checks that all connectors of a flow reach each of its two clusters in the same way."""
    first = parts.first_connector
    for config in parts.connectors.values():
        for side, cluster in (("source", parts.source_cluster), ("target", parts.target_cluster)):
            for name, entry in under(config, f"{side}.cluster.").items():
                there = first.get(f"{side}.cluster.{name}")
                is_own = name in CLIENT_NAMES and cluster.get(name) is not entry
                if is_own and (there is None or there.value != entry.value):
                    report.error(
                        "connectors-differ",
                        f'"{side}.cluster.{name}" of {parts.name} is not the same in all of its connectors',
                        entry,
                        remedy="write the same value in all connectors of the flow",
                    )


def _without_storage_topics(flows: list[Flow]) -> list[Flow]:
    """Adds all storage topics to what no flow mirrors: they are on targets, which may be the sources of other flows."""
    storage = frozenset(
        topic
        for flow in flows
        for topic in (flow.offset_storage_topic, flow.config_storage_topic, flow.status_storage_topic)
    )
    return [replace(flow, never_mirrored=storage) for flow in flows]


def _with_arrivals(flows: list[Flow]) -> list[Flow]:
    """Gives each flow the renaming policies of all enabled flows: their copies may arrive at its source."""
    arrivals = tuple(
        (flow.target, flow.policy) for flow in flows if flow.enabled and isinstance(flow.policy, RenamingPolicy)
    )
    return [replace(flow, arrivals=arrivals) for flow in flows] if arrivals else flows


def _check_flows_once(parts: Iterable[Parts], report: Report) -> None:
    seen: set[str] = set()
    for flow in (flow for part in parts for flow in part.flows):
        if flow.name in seen:
            what = f"the flow {flow.name} is in two documents"
            report.error("flow-twice", what, flow.place, remedy="keep one of them")
        seen.add(flow.name)


def _keep_targets(
    flows: list[Flow], aliases: Collection[str], only_targets: Sequence[str], report: Report
) -> list[Flow]:
    for alias in only_targets:
        if alias not in aliases:
            report.error(
                "unknown-cluster",
                f'--clusters names the unknown cluster "{alias}"',
                remedy=f"it has {', '.join(aliases)}",
            )
    return [flow for flow in flows if not only_targets or flow.target in only_targets]


def _report_nothing(parts: Sequence[Parts], settings: Settings, report: Report) -> None:
    """Reports that no flow is enabled; MM2 then still writes heartbeats, and so do we, but that is seldom meant."""
    in_resource = any(part.resource is not None for part in parts)
    if in_resource and not any(flow.connectors for part in parts for flow in part.flows):
        return  # already reported for each mirror
    ending = f" that ends in {', '.join(settings.only_targets)}" if settings.only_targets else ""
    switch = "sourceConnector: {}" if in_resource else "A->B.enabled = true"
    place = next((flow.place for part in parts for flow in part.flows if flow.place), None) or _clusters_entry(parts)
    remedy = f'write "{switch}"'
    if settings.heartbeat_pairs():
        report.warn("only-heartbeats", f"no flow{ending} is enabled: only heartbeats are written", place, remedy=remedy)
        return
    report.error("nothing-to-run", f"nothing to run: no flow{ending} is enabled", place, remedy=remedy)


def _clusters_entry(parts: Iterable[Parts]) -> ConfigEntry | None:
    """Returns the `clusters` entry of a property file: where findings about a cluster without keys are located."""
    return next((part.top["clusters"] for part in parts if "clusters" in part.top), None)


# -- clusters


def _build_clusters(parts: Sequence[Parts], flows: Collection[Flow], report: Report) -> dict[str, ClusterSettings]:
    """Builds each cluster once; two documents must agree on its settings."""
    clusters: dict[str, ClusterSettings] = {}
    needed = {alias for flow in flows if flow.enabled for alias in _without_servers(flow)}
    for part in parts:
        for alias, config in part.clusters.items():
            place = _clusters_entry(parts) or next((flow.place for flow in part.flows), None)
            cluster = _build_cluster(alias, config, report, needed=alias in needed, place=place)
            known = clusters.setdefault(alias, cluster)
            if known != cluster:
                report.error(
                    "cluster-differs",
                    f'two documents differ in {_difference(known, cluster)} of cluster "{alias}"',
                    config.get("bootstrap.servers"),
                    remedy="give the clusters different aliases, or run the documents one by one",
                )
    return clusters


def _without_servers(flow: Flow) -> Iterable[str]:
    """Yields the clusters of a flow for which at least one of its clients has no bootstrap servers of its own."""
    sides = {
        flow.source: (flow.source_admin, flow.source_consumer),
        flow.target: (flow.target_admin, flow.target_producer),
    }
    return [alias for alias, clients in sides.items() if not all("bootstrap.servers" in client for client in clients)]


def _difference(one: ClusterSettings, other: ClusterSettings) -> str:
    """Names the fields that differ; without values, which may be secrets."""
    fields: dict[str, tuple[object, object]] = {
        "bootstrap servers": (one.bootstrap_servers, other.bootstrap_servers),
        "security.protocol": (one.security_protocol, other.security_protocol),
        "client.id": (one.client_id, other.client_id),
    }
    keys = sorted(one.properties.keys() | other.properties.keys())
    fields |= {key: (one.properties.get(key), other.properties.get(key)) for key in keys}
    return ", ".join(name for name, (left, right) in fields.items() if left != right)


def _build_cluster(
    alias: str, config: Config, report: Report, *, needed: bool, place: ConfigEntry | FilePlace | None
) -> ClusterSettings:
    servers = config.get("bootstrap.servers")
    addresses = _addresses(servers, f"{alias}.bootstrap.servers", report) if servers else []
    if needed and not (servers and split_list(servers.value)):
        report.error(
            "no-bootstrap-servers",
            f'cluster "{alias}" has no bootstrap servers',
            servers or place,
            remedy=f'write "{alias}.bootstrap.servers = host:port"',
        )
    protocol = config.get("security.protocol")
    client_id = config.get("client.id")
    return ClusterSettings(
        alias=alias,
        bootstrap_servers=tuple(addresses),
        security_protocol=protocol.value.strip().upper() if protocol else "PLAINTEXT",
        client_id=client_id.value if client_id else "",
        properties={key: entry.value for key, entry in config.items() if key in _SECURITY_NAMES},
        references=_references(config),
    )


def _references(config: Config) -> dict[str, str]:
    """Returns the security settings that have placeholders, as written."""
    return {key: entry.reference for key, entry in config.items() if entry.reference and key in _SECURITY_NAMES}


def _check_same_cluster(clusters: Mapping[str, ClusterSettings], parts: Sequence[Parts], report: Report) -> None:
    """Reports a cluster that has two aliases: it would be mirrored to itself."""
    owners: dict[str, str] = {}
    for cluster in clusters.values():
        for address in cluster.bootstrap_servers:
            other = owners.setdefault(address.lower(), cluster.alias)
            if other != cluster.alias:
                at = next(
                    (p.clusters[cluster.alias].get("bootstrap.servers") for p in parts if cluster.alias in p.clusters),
                    None,
                )
                report.error(
                    "same-cluster",
                    f'"{other}" and "{cluster.alias}" are the same cluster: both have '
                    f"{at.reference if at is not None and at.reference else address}",
                    at,
                    remedy="a cluster cannot be mirrored to itself",
                )
                break


def _check_flows_to_themselves(
    flows: Iterable[Flow], clusters: Mapping[str, ClusterSettings], parts: Sequence[Parts], report: Report
) -> None:
    """Reports a flow whose own bootstrap servers lead from one of its sides to the other."""
    places = {flow.name: flow.place for part in parts for flow in part.flows}
    for flow in flows:
        own = [client.get("bootstrap.servers") for client in (flow.source_admin, flow.target_admin)]
        if any(own):
            source, target = (
                set(split_list(text.lower()))
                if text
                else {address.lower() for address in clusters[alias].bootstrap_servers}
                for text, alias in zip(own, (flow.source, flow.target), strict=True)
            )
            if source & target:
                report.error(
                    "same-cluster",
                    f"source and target of {flow.name} are the same cluster: they have a bootstrap server in common",
                    places.get(flow.name),
                    remedy="a cluster cannot be mirrored to itself",
                )
