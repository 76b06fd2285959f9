"""A Java client's properties as heliograph uses them: addresses, security, replication policy. No IO but secrets.

As in MirrorMaker 2's client, `admin.` and `consumer.` before a connection setting give it to that role alone; other
settings of a role have no effect.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from heliograph.config.findings import Config, ConfigEntry, Report
from heliograph.config.keys.client_settings import CLIENT_NAMES
from heliograph.config.keys.table import DEFAULTS
from heliograph.config.keys.typed_reader import Reader
from heliograph.config.keys.values import BadValue, parse_address, parse_value, split_list
from heliograph.config.load import load_settings
from heliograph.config.name_settings import GROUP_RENAME, TOPIC_RENAME, build_renames
from heliograph.config.secrets import Resolver
from heliograph.config.settings import Flow, Settings
from heliograph.errors import ConfigError
from heliograph.kafka.security.client_security import PROTOCOLS, Security
from heliograph.kafka.types import BrokerAddress
from heliograph.ledger.cluster_access import Role, Way, addresses, cluster_security, way_of
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, ReplicationPolicy, make_policy
from heliograph.names.renaming import Renames, RenamingPolicy, with_rules, without_rules

WHERE = "client properties"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAccess:
    """The way to a cluster."""

    alias: str
    """For messages."""
    bootstrap: tuple[BrokerAddress, ...]
    security: Security


class SyncsPlace(NamedTuple):
    """The topic with the offset syncs of a flow that translates by them."""

    topic: str
    is_here: bool
    """They stand on the target."""


class LedgerPlace(NamedTuple):
    """The topics in which the ledger of a flow is looked for."""

    topics: tuple[str, ...]
    group_id: str | None
    """The mirror's; None if it does not matter."""
    syncs: SyncsPlace | None = None
    """With `offset.translation=mm2` the offset syncs; None: the ledger translates."""

    @classmethod
    def of_flow(cls, flow: Flow) -> LedgerPlace:
        syncs = SyncsPlace(flow.offset_syncs_topic, flow.offset_syncs.location == "target")
        return cls(
            (flow.ledger_topic, flow.offset_storage_topic),
            flow.group_id,
            syncs if flow.translates_by_syncs else None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    policy: ReplicationPolicy
    admin: ClientAccess
    consumer: ClientAccess
    ledgers: Mapping[str, LedgerPlace] = field(default_factory=dict)
    """By source alias, where it is not the usual place."""
    group_id: str | None = None
    """Of the mirror, if several share the target."""
    group_renames: Mapping[str, Renames] = field(default_factory=dict)
    """By source alias; under an empty one those for all sources."""

    def renames_of(self, alias: str) -> Renames:
        return self.group_renames.get(alias) or self.group_renames.get("") or Renames()

    def ledger_of(self, alias: str) -> LedgerPlace:
        usual = LedgerPlace((f"mm2-ledger.{alias}.internal", f"mm2-offsets.{alias}.internal"), self.group_id)
        return self.ledgers.get(alias, usual)


def read_properties(properties: Mapping[str, str]) -> ClientSettings:
    """Placeholders in the values are looked up; raises ConfigError."""
    report, resolver = Report(WHERE), Resolver()
    entries = {key: ConfigEntry(key, value) for key, value in properties.items()}
    config = resolver.resolve_all(entries, report)
    report.raise_errors()
    groups, topics = (build_renames(Reader(config), family, report) for family in (GROUP_RENAME, TOPIC_RENAME))
    report.raise_errors()
    alias = config.get("source.cluster.alias")
    if topics and alias is None:
        raise ConfigError(
            "rules topic.rename.<n> are those of one source", where=WHERE, remedy="name it by source.cluster.alias"
        )
    return ClientSettings(
        policy=with_rules(_policy(config), [(alias.value if alias else "", topics)]),
        group_renames={alias.value if alias else "": groups},
        admin=_access(config, resolver, "admin"),
        consumer=_access(config, resolver, "consumer"),
        group_id=config["group.id"].value if "group.id" in config else None,
    )


def _access(config: Config, resolver: Resolver, role: str) -> ClientAccess:
    own = {name: config[f"{role}.{name}"] for name in CLIENT_NAMES if f"{role}.{name}" in config}
    merged = {name: config[name] for name in CLIENT_NAMES if name in config} | own
    servers = merged.pop("bootstrap.servers", None)
    bootstrap = _addresses(servers)
    entry = merged.pop("security.protocol", None)
    protocol = entry.value.strip().upper() if entry else "PLAINTEXT"
    if protocol not in PROTOCOLS:
        raise ConfigError("security.protocol is not known", where=WHERE, remedy=f"one of {', '.join(PROTOCOLS)}")
    references = {name: entry.reference for name, entry in merged.items() if entry.reference}
    values = {name: entry.value for name, entry in merged.items() if name not in references}
    security = Security(protocol, values, references, resolver.reader())
    return ClientAccess(alias=str(bootstrap[0]), bootstrap=bootstrap, security=security)


def _addresses(servers: ConfigEntry | None) -> tuple[BrokerAddress, ...]:
    texts = [text for text in split_list(servers.value) if text] if servers else []
    if not texts:
        raise ConfigError("there are no bootstrap.servers", where=WHERE, remedy="give them as host:port")
    try:
        return tuple(BrokerAddress.parse(parse_address(text)) for text in dict.fromkeys(texts))
    except BadValue as error:
        raise ConfigError(f"bootstrap.servers {error}", where=WHERE) from None


def _policy(config: Config) -> ReplicationPolicy:
    separator = config.get("replication.policy.separator")
    # As in Java, the flag counts only beside a separator.
    flag = config.get("replication.policy.internal.topic.separator.enabled") if separator else None
    class_name = config.get("replication.policy.class")
    alias = config.get("source.cluster.alias")
    return make_policy(
        class_name.value if class_name else str(DEFAULTS["replication.policy.class"].default),
        separator.value if separator else ".",
        alias.value if alias else None,
        internal_separator_enabled=_flag(flag) if flag else True,
        properties={key: entry.value for key, entry in config.items()},
    )


def _flag(entry: ConfigEntry) -> bool:
    try:
        return bool(parse_value(DEFAULTS[entry.key], entry.value))
    except BadValue as error:
        raise ConfigError(f"{entry.key} {error}", where=WHERE) from None


# -- from a configuration file


def read_config(path: Path | str, target_alias: str, secrets: Path | None = None) -> ClientSettings:
    """Return the settings with which flows to the cluster reach it; the cluster's own if there is none."""
    settings = load_settings(path, secrets=secrets)
    if target_alias not in settings.clusters:
        raise ConfigError(
            f'there is no cluster "{target_alias}"',
            where=settings.file,
            remedy=f"the clusters are {', '.join(settings.clusters)}",
        )
    flows = [flow for flow in settings.enabled_flows or settings.flows if flow.target == target_alias]
    access = _access_of(settings, target_alias, flows)
    policy = _common_policy(flows or settings.enabled_flows or settings.flows, where=settings.file)
    ledgers = {flow.source: LedgerPlace.of_flow(flow) for flow in flows}
    renames = {flow.source: flow.group_renames for flow in flows}
    return ClientSettings(policy=policy, admin=access, consumer=access, ledgers=ledgers, group_renames=renames)


def settings_of_flow(settings: Settings, flow: Flow) -> ClientSettings:
    access = _access_of(settings, flow.target, [flow])
    return ClientSettings(
        policy=flow.policy,
        admin=access,
        consumer=access,
        ledgers={flow.source: LedgerPlace.of_flow(flow)},
        group_renames={flow.source: flow.group_renames},
    )


def _access_of(settings: Settings, alias: str, flows: Iterable[Flow]) -> ClientAccess:
    cluster = settings.clusters[alias]
    own = Way(addresses(cluster.bootstrap_servers), cluster_security(settings, cluster))
    way = next((way_of(settings, flow, Role.TARGET_ADMIN) for flow in flows), own)
    if not way.bootstrap:
        raise ConfigError(f'cluster "{alias}" has no bootstrap servers', where=settings.file)
    return ClientAccess(alias=alias, bootstrap=way.bootstrap, security=way.security)


def _common_policy(flows: Iterable[Flow], *, where: str) -> ReplicationPolicy:
    """With names that stay as they are, the source is known only if there is one."""
    policies = [flow.policy for flow in flows]
    bases = [without_rules(policy) for policy in policies]
    alike = {replace(base, source_alias=None) if isinstance(base, DefaultPolicy) else base for base in bases}
    if len(alike) > 1:
        raise ConfigError(
            "the flows to this cluster have different replication policies",
            where=where,
            remedy="give the client's properties, with the policy to go by",
        )
    sources = {base.source_alias for base in bases if isinstance(base, IdentityPolicy)}
    [policy] = alike
    if isinstance(policy, DefaultPolicy) and len(sources) == 1:
        policy = replace(policy, source_alias=sources.pop())
    return with_rules(policy, [rule for one in policies if isinstance(one, RenamingPolicy) for rule in one.rules])
