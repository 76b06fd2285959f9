"""Lists the logins of a configuration: which clients connect to which cluster with which settings. Pure.

Roles are admin everywhere, consumer on a source, producer on a target. Clients with the same settings share one
login: it is checked once, and they are named together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from heliograph.config.settings import Flow, Settings
from heliograph.kafka.security.client_security import Security
from heliograph.kafka.types import BrokerAddress
from heliograph.ledger.cluster_access import Role, Way, way_of

ADMIN, CONSUMER, PRODUCER, APP = "admin", "consumer", "producer", "app"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterLogin:
    """One login to one cluster."""

    alias: str
    roles: tuple[str, ...]
    bootstrap: tuple[BrokerAddress, ...]
    security: Security = field(repr=False)
    clients: tuple[tuple[str, Role], ...] = ()
    """The clients that use it: names of flows with their roles."""

    @property
    def role(self) -> str:
        return ", ".join(self.roles)

    @property
    def is_admin(self) -> bool:
        return any(role.kind == ADMIN for _, role in self.clients)

    def serves(self, flow: Flow, role: Role) -> bool:
        return (flow.name, role) in self.clients


def list_logins(settings: Settings) -> list[ClusterLogin]:
    """Lists the logins of enabled flows in the order of the file; an alias's first login is the admin's."""
    used = {alias for flow in settings.enabled_flows for alias in (flow.source, flow.target)}
    return [access for alias in settings.clusters if alias in used for access in _of(settings, alias)]


def _of(settings: Settings, alias: str) -> Iterator[ClusterLogin]:
    groups: dict[object, tuple[Way, list[str], list[tuple[str, Role]]]] = {}
    for name, client, way in _clients(settings, alias):
        _, names, clients = groups.setdefault(_relevant(way), (way, [], []))
        names += [name] if name not in names else []
        clients.append(client)
    for way, names, clients in groups.values():
        yield ClusterLogin(
            alias=alias, roles=tuple(names), bootstrap=way.bootstrap, security=way.security, clients=tuple(clients)
        )


def _clients(settings: Settings, alias: str) -> Iterator[tuple[str, tuple[str, Role], Way]]:
    """Yields clients by kind; a kind whose settings differ from flow to flow is named with its flow."""
    found: dict[str, list[tuple[tuple[str, Role], Way]]] = {ADMIN: [], CONSUMER: [], PRODUCER: []}
    for flow in settings.enabled_flows:
        for role in Role:
            if role.alias(flow) == alias:
                found[role.kind].append(((flow.name, role), way_of(settings, flow, role)))
    for kind, clients in found.items():
        is_alike = len({_relevant(way) for _, way in clients}) == 1
        yield from ((kind if is_alike else f"{kind} of {client[0]}", client, way) for client, way in clients)


def _relevant(way: Way) -> object:
    """Returns the settings that matter to a connection; those of an unused protocol do not."""
    bootstrap, security = way
    used = ("ssl.",) * security.uses_tls + ("sasl.",) * security.uses_sasl
    texts = {**security.properties, **security.references}
    return bootstrap, security.protocol, tuple(item for item in sorted(texts.items()) if item[0].startswith(used))
