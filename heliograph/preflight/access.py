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
from heliograph.mirror.access import Role, security_of

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
    """By the kinds of clients; a kind that differs from flow to flow is named with its flow."""
    found: dict[str, list[tuple[str, Security]]] = {ADMIN: [], CONSUMER: [], PRODUCER: []}
    for flow in settings.enabled_flows:
        for role in Role:
            if role.alias(flow) == cluster.alias:
                found[role.kind].append((flow.name, security_of(settings, flow, role)))
    for kind, clients in found.items():
        is_alike = len({_relevant(security) for _, security in clients}) == 1
        yield from ((kind if is_alike else f"{kind} of {name}", security) for name, security in clients)


def _relevant(security: Security) -> object:
    """What makes a difference to a connection: of an unused protocol nothing does."""
    used = ("ssl.",) * security.uses_tls + ("sasl.",) * security.uses_sasl
    texts = {**security.properties, **security.references}
    return security.protocol, tuple(item for item in sorted(texts.items()) if item[0].startswith(used))
