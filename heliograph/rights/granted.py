"""Asks the clusters which of the rights that a flow needs its users have. Changes nothing."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from heliograph.config.settings import Flow, Settings
from heliograph.kafka.admin.acls import ResourceType
from heliograph.kafka.admin.allowed_operations import Question, allowed
from heliograph.kafka.cluster import Cluster
from heliograph.ledger.cluster_access import Role, cluster_of, security_of
from heliograph.rights.acl_text import add_command
from heliograph.rights.required import Right, flow_rights, least


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Holds one right on one cluster, and whether its user has it."""

    cluster: str
    user: str
    right: Right
    lacking: tuple[str, ...] = ()
    """Names that the right is missing for; empty if it is granted."""
    later: bool = False
    """True if the right is granted for all existing topics, but not for topics created later."""

    @property
    def is_missing(self) -> bool:
        return bool(self.lacking)

    @property
    def what(self) -> str:
        return f'{self.user} lacks {self.right} of "{self.cluster}": {self.right.without}'

    @property
    def remedy(self) -> str:
        return add_command(self.right, self.user)

    def __str__(self) -> str:
        return f"{self.what}; {self.remedy}"


class Grants:
    """Asks for the rights of one flow, with a client for each of its users."""

    def __init__(self, flow: Flow, settings: Settings, *, source: Cluster, target: Cluster) -> None:
        self._flow = flow
        self._settings = settings
        self._clients: dict[tuple[str, str], Cluster] = {}
        self._rights: dict[tuple[str, str], list[Right]] = {}
        self._own: list[Cluster] = []
        users = users_of(settings, flow)
        for role in (Role.SOURCE_ADMIN, Role.TARGET_ADMIN):
            self._clients[role.alias(flow), users[role]] = source if role is Role.SOURCE_ADMIN else target
        for role, right in flow_rights(flow, settings):
            key = role.alias(flow), users[role]
            self._rights.setdefault(key, []).append(right)
            if key not in self._clients:
                self._clients[key] = self._client(role)

    def _client(self, role: Role) -> Cluster:
        cluster = cluster_of(self._settings, self._flow, role, client_id=f"{self._flow.name}|rights|{role.kind}")
        self._own.append(cluster)
        return cluster

    async def look(self, topics: Collection[str]) -> list[Grant]:
        """Return every right with its state; `topics` are the source's topics that the flow mirrors now."""
        found = []
        for (alias, user), rights in self._rights.items():
            names = topics if alias == self._flow.source else [self._flow.remote_topic(topic) for topic in topics]
            needed = least(rights)
            there = await allowed(self._clients[alias, user], _questions(needed, names))
            found += [_grant(alias, user, right, names, there) for right in needed]
        return found

    def close(self) -> None:
        for cluster in self._own:
            cluster.close()


def users_of(settings: Settings, flow: Flow) -> dict[Role, str]:
    return {role: security_of(settings, flow, role).user(where=f'"{role.alias(flow)}"') for role in Role}


def _names(right: Right, topics: Collection[str]) -> list[str]:
    """Return the existing topics that a right on a prefix or wildcard covers."""
    if right.resource.kind is not ResourceType.TOPIC or right.resource.is_one:
        return []
    prefix = "" if right.resource.name == "*" else right.resource.name
    return [topic for topic in topics if topic.startswith(prefix)]


def _questions(rights: Collection[Right], topics: Collection[str]) -> Iterator[Question]:
    for right in rights:
        for name in (right.resource.example(), *_names(right, topics)):
            yield right.resource.kind, name, right.operation


def _grant(alias: str, user: str, right: Right, topics: Collection[str], there: dict[Question, bool]) -> Grant:
    """Judge a right by the topics that exist; a made-up name stands for topics created later."""
    kind, operation = right.resource.kind, right.operation
    names = _names(right, topics)
    lacking = tuple(name for name in names if not there[kind, name, operation])
    example = right.resource.example()
    is_allowed = there[kind, example, operation]
    if not names and not is_allowed:
        lacking = (right.resource.name,)
    return Grant(cluster=alias, user=user, right=right, lacking=lacking, later=bool(names) and not is_allowed)
