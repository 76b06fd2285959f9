"""How a flow reaches its two clusters: the security of each role, and in which form it goes to Spark's executors.

Secrets leave this machine encrypted or not at all: with a master elsewhere they are sent only through an encrypted
Spark, or stay references that each executor looks up by itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from heliograph.config.keys.client_settings import CLIENT_NAMES
from heliograph.config.keys.key_check import is_secret_name
from heliograph.config.keys.values import split_list
from heliograph.config.settings import ClusterSettings, Flow, Settings
from heliograph.errors import ConfigError
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.security.client_security import Security
from heliograph.kafka.types import BrokerAddress
from heliograph.ledger.model import METADATA_MAX_AGE_MS

SPARK_ENCRYPTION = ("spark.authenticate", "spark.network.crypto.enabled")


class Role(StrEnum):
    """Kinds of clients of a flow, which may have settings of their own."""

    SOURCE_ADMIN = "source_admin"
    SOURCE_CONSUMER = "source_consumer"
    TARGET_ADMIN = "target_admin"
    TARGET_PRODUCER = "target_producer"

    @property
    def kind(self) -> str:
        """The word that MM2's keys have for it: admin, consumer or producer."""
        return self.value.partition("_")[2]

    def alias(self, flow: Flow) -> str:
        """The cluster that it is a client of."""
        return flow.source if self.value.startswith("source") else flow.target


def security_of(settings: Settings, flow: Flow, role: Role) -> Security:
    """How a role of the flow reaches its cluster: by the cluster's settings and its own, which win."""
    cluster = settings.clusters[role.alias(flow)]
    own = {key: value for key, value in getattr(flow, role).items() if key in CLIENT_NAMES}
    own.pop("bootstrap.servers", None)
    protocol = own.pop("security.protocol", cluster.security_protocol).strip().upper()
    written = {**{key: text for key, text in cluster.references.items() if key not in own}, **flow.references[role]}
    values = {key: value for key, value in {**cluster.properties, **own}.items() if key not in written}
    return Security(protocol, values, written, settings.secrets)


def cluster_of(settings: Settings, flow: Flow, role: Role, *, client_id: str) -> Cluster:
    """A client in one of the flow's roles."""
    cluster = Cluster(role.alias(flow), bootstrap_of(settings, flow, role), client_id=client_id)
    apply_settings(cluster, settings, flow, role)
    return cluster


def apply_settings(cluster: Cluster, settings: Settings, flow: Flow, role: Role) -> None:
    """Give a client the settings of its role; what is open stays, the next connection has the new secrets."""
    cluster.security = security_of(settings, flow, role)
    cluster.metadata_max_age_s = metadata_max_age_ms(flow, role) / 1000


def metadata_max_age_ms(flow: Flow, role: Role) -> int:
    """When a role asks for metadata again at the latest."""
    return int(getattr(flow, role).get("metadata.max.age.ms", METADATA_MAX_AGE_MS))


def bootstrap_of(settings: Settings, flow: Flow, role: Role) -> tuple[BrokerAddress, ...]:
    """Return where a role of the flow finds its cluster: at its own addresses, else at the cluster's."""
    own = getattr(flow, role).get("bootstrap.servers")
    return addresses(split_list(own) if own else settings.clusters[role.alias(flow)].bootstrap_servers)


def addresses(texts: Iterable[str]) -> tuple[BrokerAddress, ...]:
    return tuple(BrokerAddress.parse(text) for text in texts)


class Way(NamedTuple):
    """The addresses of a cluster, and the security to connect with."""

    bootstrap: tuple[BrokerAddress, ...]
    security: Security


def way_of(settings: Settings, flow: Flow, role: Role) -> Way:
    """How a role of the flow comes to its cluster."""
    return Way(bootstrap_of(settings, flow, role), security_of(settings, flow, role))


def admin_way(settings: Settings, alias: str, *, source: str = "") -> Way:
    """How an administrator reaches a cluster: as in a flow that ends there, that from `source` first, or that begins
    there, else by its own settings."""
    roles = [(flow, role) for flow in settings.flows for role in (Role.TARGET_ADMIN, Role.SOURCE_ADMIN)]
    fitting = [(flow, role) for flow, role in roles if role.alias(flow) == alias]
    if fitting:
        flow, role = min(fitting, key=lambda one: _distance(one[0], one[1], source))
        return way_of(settings, flow, role)
    cluster = settings.clusters[alias]
    return Way(addresses(cluster.bootstrap_servers), cluster_security(settings, cluster))


def _distance(flow: Flow, role: Role, source: str) -> tuple[bool, bool, bool]:
    is_target = role is Role.TARGET_ADMIN
    return not (is_target and flow.source == source), not flow.enabled, not is_target


def cluster_security(settings: Settings, cluster: ClusterSettings) -> Security:
    """How a cluster is reached where no flow says it otherwise."""
    values = {key: value for key, value in cluster.properties.items() if key not in cluster.references}
    return Security(cluster.security_protocol, values, cluster.references, settings.secrets)


def check_security(settings: Settings, spark: Mapping[str, str], *, is_local: bool) -> None:
    """Refuse what cannot work, or would send secrets in clear, before anything is contacted."""
    for flow in settings.enabled_flows:
        for role in Role:
            security, alias = security_of(settings, flow, role), role.alias(flow)
            if security.uses_tls:
                security.context(where=f'"{alias}"')
            security.login(where=f'"{alias}"')
            if not is_local and security.has_secrets:
                _check_travel(settings, security, alias, spark)


def unchecked_hosts(settings: Settings) -> set[str]:
    """Clusters whose brokers' names are not compared with their certificates."""
    roles = [(flow, role) for flow in settings.enabled_flows for role in Role]
    found = [(role.alias(flow), security_of(settings, flow, role)) for flow, role in roles]
    found += [
        (target, admin_way(settings, target, source=source).security) for source, target in settings.heartbeat_pairs()
    ]
    return {alias for alias, security in found if security.uses_tls and not security.checks_host}


def _check_travel(settings: Settings, security: Security, alias: str, spark: Mapping[str, str]) -> None:
    """Whether the secrets of a cluster reach an executor on another machine safely."""
    encryption = " and ".join(f"{key}=true" for key in SPARK_ENCRYPTION)
    if settings.executor_secrets == "send":
        if not all(spark.get(key) == "true" for key in SPARK_ENCRYPTION):
            raise ConfigError(
                f'the secrets of "{alias}" would travel to Spark\'s executors in clear',
                where=settings.file,
                remedy=f"set {encryption}, or executor.secrets=mount if the executors have the files themselves",
            )
        return
    literal = sorted(key for key, value in security.properties.items() if is_secret_name(key) and value.strip())
    if literal:
        raise ConfigError(
            f'executor.secrets=mount, and {", ".join(literal)} of "{alias}" stands in the configuration itself',
            where=settings.file,
            remedy="refer to a file that the executors have, as in ${file:/path:key}, or set executor.secrets=send "
            f"with {encryption}",
        )


def for_executors(security: Security, settings: Settings, *, is_local: bool, where: str) -> Security:
    """In the form that goes to the lanes: here and with mounts as it is, else with all that it refers to."""
    if is_local or settings.executor_secrets == "mount" or security.protocol == "PLAINTEXT":
        return security
    return security.inlined(where=where)
