"""Lists what an administrator has to grant for a configuration, by cluster and user. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.config.settings import Settings
from heliograph.errors import StoreUnusable
from heliograph.kafka.security.client_security import Security
from heliograph.ledger.cluster_access import Role, bootstrap_of, security_of
from heliograph.rights.acl_text import commands, kafka_user
from heliograph.rights.required import Right, rights_of

_STRIMZI = {"SCRAM-SHA-512": "scram-sha-512", "SCRAM-SHA-256": "scram-sha-512"}
"""Strimzi's authentication type by SASL mechanism; `KafkaUser` supports no other passwords."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Need:
    """Holds the rights that one user needs on one cluster."""

    cluster: str
    user: str
    rights: tuple[Right, ...]
    bootstrap: tuple[str, ...]
    authentication: str
    """Strimzi's authentication type; empty if it has none for this login."""

    def text(self) -> str:
        """Return the commands, and the same rights as a `KafkaUser` resource."""
        lines = commands(self.rights, self.user, self.bootstrap)
        head = f'# {self.user} on cluster "{self.cluster}"'
        return "\n".join([head, *lines, "", kafka_user(self.rights, self.user, self.cluster, self.authentication)])

    def rows(self) -> list[dict[str, str]]:
        return [
            {
                "cluster": self.cluster,
                "user": self.user,
                "operation": right.operation,
                "resource": right.resource.kind,
                "name": right.resource.name,
                "pattern": right.resource.pattern,
                "without it": right.without,
            }
            for right in self.rights
        ]


def needs_of(settings: Settings) -> list[Need]:
    users: dict[tuple[str, str], str] = {}
    authentications: dict[tuple[str, str], str] = {}
    servers: dict[tuple[str, str], tuple[str, ...]] = {}
    for flow in settings.enabled_flows:
        for role in Role:
            user, authentication = _who(security_of(settings, flow, role), role.alias(flow))
            users[flow.name, role] = user
            authentications.setdefault((role.alias(flow), user), authentication)
            servers.setdefault((role.alias(flow), user), tuple(map(str, bootstrap_of(settings, flow, role))))
    return [
        Need(
            cluster=alias,
            user=user,
            rights=tuple(rights),
            bootstrap=servers[alias, user],
            authentication=authentications[alias, user],
        )
        for (alias, user), rights in rights_of(settings, users).items()
    ]


def _who(security: Security, alias: str) -> tuple[str, str]:
    """Return the user and Strimzi's authentication type; the user is a placeholder if its secret cannot be read."""
    where = f'"{alias}"'
    try:
        login = security.login(where=where)
        kind = _STRIMZI.get(login.mechanism, "") if login else "tls" if security.has_secrets else ""
        return security.user(where=where), kind
    except StoreUnusable:
        return "User:<user>", ""
