"""As whom a configuration comes to which cluster. Pure.

Roles are admin everywhere, consumer on a source, producer on a target. Those with the same settings are one access:
looked at once, and named together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from heliograph.config.settings import ClusterSettings, Settings
from heliograph.kafka.security import Security
from heliograph.kafka.types import BrokerAddress
from heliograph.mirror.flow import security_of

ADMIN, CONSUMER, PRODUCER, APP = "admin", "consumer", "producer", "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """One way to one cluster."""

    alias: str
    roles: tuple[str, ...]
    bootstrap: tuple[BrokerAddress, ...]
    security: Security = field(repr=False)

    @property
    def role(self) -> str:
        return ", ".join(self.roles)


def list_accesses(settings: Settings) -> list[Access]:
    """Of the clusters that enabled flows need, in the order of the file; an alias's first access is the admin's."""
    used = {alias for flow in settings.enabled_flows for alias in (flow.source, flow.target)}
    return [
        access for alias, cluster in settings.clusters.items() if alias in used for access in _of(settings, cluster)
    ]


def bootstrap_of(cluster: ClusterSettings) -> tuple[BrokerAddress, ...]:
    return tuple(BrokerAddress.parse(text) for text in cluster.bootstrap_servers)


def _of(settings: Settings, cluster: ClusterSettings) -> Iterator[Access]:
    groups: dict[object, tuple[Security, list[str]]] = {}
    for role, security in _roles(settings, cluster):
        _, roles = groups.setdefault(_relevant(security), (security, []))
        if role not in roles:
            roles.append(role)
    for security, roles in groups.values():
        yield Access(alias=cluster.alias, roles=tuple(roles), bootstrap=bootstrap_of(cluster), security=security)


def _roles(settings: Settings, cluster: ClusterSettings) -> Iterator[tuple[str, Security]]:
    yield ADMIN, security_of(cluster)
    flows = settings.enabled_flows
    consumers = [(flow, flow.source_consumer) for flow in flows if flow.source == cluster.alias]
    producers = [(flow, flow.target_producer) for flow in flows if flow.target == cluster.alias]
    for role, clients in ((CONSUMER, consumers), (PRODUCER, producers)):
        found = [(flow.name, security_of(cluster, client)) for flow, client in clients]
        alike = len({_relevant(security) for _, security in found}) == 1
        yield from ((role if alike else f"{role} of {name}", security) for name, security in found)


def _relevant(security: Security) -> object:
    """What makes a difference to a connection: of an unused protocol nothing does."""
    used = ("ssl.",) * security.uses_tls + ("sasl.",) * security.uses_sasl
    return security.protocol, tuple(item for item in sorted(security.properties.items()) if item[0].startswith(used))
