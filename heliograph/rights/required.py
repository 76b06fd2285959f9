"""Works out the rights that a configuration needs on each cluster: the fewest for the features it uses. Pure.

Where a pattern of topics or groups is not one name, the right is on the longest prefix that all its names share: ACLs
know names and prefixes, no patterns. A right that another one of the same user includes is left out, so that each
right in the list is needed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from heliograph.config.settings import Flow, Settings
from heliograph.kafka.admin.acls import CLUSTER_NAME, WILDCARD, Operation, Pattern, ResourceType
from heliograph.ledger.cluster_access import Role
from heliograph.names.filters import Filter, NameFilter
from heliograph.names.policies import CustomPolicy
from heliograph.names.renaming import Rename, RenamingPolicy, without_rules

_IMPLIED_BY = {
    Operation.DESCRIBE: {Operation.READ, Operation.WRITE, Operation.ALTER, Operation.DELETE},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
"""Operations that a broker allows too with another right."""

READ, WRITE, CREATE, ALTER = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.ALTER
DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS


@dataclass(frozen=True, slots=True)
class Resource:
    """Names what a right is on: the cluster, or topics or groups by name, prefix or wildcard."""

    kind: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL

    def covers(self, other: Resource) -> bool:
        if self.kind is not other.kind:
            return False
        if self.pattern is Pattern.PREFIXED:
            return other.name.startswith(self.name) and other != Resource(other.kind, WILDCARD)
        return self.name == WILDCARD or self == other

    @property
    def is_one(self) -> bool:
        """Return whether it is one name, neither prefix nor wildcard."""
        return self.pattern is Pattern.LITERAL and self.name != WILDCARD

    def example(self) -> str:
        """Return a name that it covers."""
        return self.name if self.is_one else f"{self.name.removesuffix(WILDCARD)}heliograph-check"

    def __str__(self) -> str:
        if self.kind is ResourceType.CLUSTER:
            return "the cluster"
        many = f'all {self.kind.lower()}s that begin with "{self.name}"'
        every = f"all {self.kind.lower()}s"
        one = f'{self.kind.lower()} "{self.name}"'
        return many if self.pattern is Pattern.PREFIXED else every if self.name == WILDCARD else one


@dataclass(frozen=True, slots=True)
class Right:
    """Holds one operation on a resource; `without` says what does not work if it is not granted."""

    operation: Operation
    resource: Resource
    without: str = field(compare=False, default="")
    is_vital: bool = field(compare=False, default=True)
    """True if nothing is copied without it; else the mirror goes on without a feature."""

    def includes(self, other: Right) -> bool:
        implied = self.operation is other.operation or self.operation in _IMPLIED_BY.get(other.operation, ())
        return implied and self.resource.covers(other.resource)

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource}"


def rights_of(settings: Settings, role_user: dict[tuple[str, str], str]) -> dict[tuple[str, str], list[Right]]:
    """Return the rights that the enabled flows need, by cluster and user.

    `role_user` has the user by flow name and role.
    """
    found: dict[tuple[str, str], list[Right]] = {}
    for flow in settings.enabled_flows:
        for role, right in flow_rights(flow, settings):
            key = role.alias(flow), role_user[flow.name, role]
            found.setdefault(key, []).append(right)
    return {key: least(rights) for key, rights in found.items()}


def least(rights: Iterable[Right]) -> list[Right]:
    """Return the rights that no other one includes; of two equal ones the vital one stays."""
    ordered = list(dict.fromkeys(sorted(rights, key=lambda right: not right.is_vital)))
    kept = [right for right in ordered if not any(other.includes(right) for other in ordered if other != right)]
    return sorted(kept, key=lambda right: (right.resource.kind, right.resource.name, right.operation))


def flow_rights(flow: Flow, settings: Settings) -> Iterator[tuple[Role, Right]]:
    """Yield the rights for all that a flow does, role by role, with repetitions."""
    yield from _copying(flow)
    yield from _storage(flow)
    yield from _topics(flow)
    yield from _positions(flow)
    yield from _heartbeats(flow, settings)


def _copying(flow: Flow) -> Iterator[tuple[Role, Right]]:
    for resource in _sources(flow):
        yield Role.SOURCE_ADMIN, Right(DESCRIBE, resource, "its topics are not found")
        yield Role.SOURCE_CONSUMER, Right(READ, resource, "it is not copied")
    if flow.heartbeats_replicated:
        beats = flow.policy.heartbeats_topic()
        remote = _topic(flow.remote_topic(beats))
        for role, operation, resource in (
            (Role.SOURCE_ADMIN, DESCRIBE, _topic(beats)),
            (Role.SOURCE_CONSUMER, READ, _topic(beats)),
            (Role.TARGET_PRODUCER, WRITE, remote),
            (Role.TARGET_PRODUCER, READ, remote),
            (Role.TARGET_ADMIN, CREATE, remote),
        ):
            yield role, Right(operation, resource, "heartbeats are not copied", False)
    for resource in _remotes(flow):
        yield Role.TARGET_PRODUCER, Right(WRITE, resource, "nothing is copied into it")
        yield Role.TARGET_PRODUCER, Right(READ, resource, "at-least-once: copied records cannot be verified", False)
        yield Role.TARGET_ADMIN, Right(DESCRIBE, resource, "its topics are not found")
        yield Role.TARGET_ADMIN, Right(CREATE, resource, "new topics are not created there", False)


def _storage(flow: Flow) -> Iterator[tuple[Role, Right]]:
    """Yield the rights on positions, ledger, and Connect's other two topics, which MM2 needs to take over."""
    for role in (Role.TARGET_ADMIN, Role.TARGET_PRODUCER):
        for operation in (READ, WRITE):
            yield role, Right(operation, _topic(flow.offset_storage_topic), "positions are not kept")
            without = f'the ledger is kept in "{flow.offset_storage_topic}"'
            yield role, Right(operation, _topic(flow.ledger_topic), without, False)
    for name in (flow.offset_storage_topic, flow.config_storage_topic, flow.status_storage_topic, flow.ledger_topic):
        vital = name == flow.offset_storage_topic
        if flow.makes_internal_topics:
            yield Role.TARGET_ADMIN, Right(CREATE, _topic(name), "it is not created if it is missing", vital)
        yield Role.TARGET_ADMIN, Right(DESCRIBE, _topic(name), "it is not found", vital)
    if flow.on_record_error == "skip":
        for operation in (CREATE, WRITE):
            without = "a record that the target refuses stops its partition"
            yield Role.TARGET_ADMIN, Right(operation, _topic(flow.rejected_topic), without, False)
    without = "a MirrorMaker 2 that still runs is not noticed"
    yield Role.TARGET_ADMIN, Right(DESCRIBE, Resource(ResourceType.GROUP, flow.group_id), without, False)


def _topics(flow: Flow) -> Iterator[tuple[Role, Right]]:
    """Yield the rights to sync topic configs, partition counts and ACLs."""
    sync = flow.topic_sync
    for resource in _sources(flow):
        without = f"{'configs of topics' if sync.configs_enabled else 'configs of new topics'} are not copied"
        yield Role.SOURCE_ADMIN, Right(DESCRIBE_CONFIGS, resource, without, False)
    for resource in _remotes(flow):
        if not flow.remaps_partitions:
            yield Role.TARGET_ADMIN, Right(ALTER, resource, "new partitions of source topics are not added", False)
        without = "size limits of its topics are not known until they refuse a batch"
        yield Role.TARGET_ADMIN, Right(DESCRIBE_CONFIGS, resource, without, False)
        if sync.configs_enabled:
            yield Role.TARGET_ADMIN, Right(ALTER_CONFIGS, resource, "configs of topics are not copied", False)
    if sync.copies_acls:
        cluster = Resource(ResourceType.CLUSTER, CLUSTER_NAME)
        yield Role.SOURCE_ADMIN, Right(DESCRIBE, cluster, "ACLs are not copied", False)
        yield Role.TARGET_ADMIN, Right(ALTER, cluster, "ACLs are not copied", False)


def _positions(flow: Flow) -> Iterator[tuple[Role, Right]]:
    """Yield the rights for consumers' positions: offset-syncs, checkpoints, groups."""
    if flow.offset_syncs.enabled:
        admin = Role.SOURCE_ADMIN if flow.offset_syncs.location == "source" else Role.TARGET_ADMIN
        for operation in (CREATE, READ, WRITE):
            yield admin, Right(operation, _topic(flow.offset_syncs_topic), "offset-syncs are not written", False)
    if flow.checkpoints is None:
        return
    for operation in (CREATE, READ, WRITE):
        yield Role.TARGET_ADMIN, Right(operation, _topic(flow.checkpoints_topic), "checkpoints are not written", False)
    for resource in _resources(ResourceType.GROUP, flow.checkpoints.groups):
        yield Role.SOURCE_ADMIN, Right(DESCRIBE, resource, "groups are not synced", False)
    for resource in _remote_groups(flow) if flow.checkpoints.sync_group_offsets else ():
        yield Role.TARGET_ADMIN, Right(READ, resource, "groups' offsets are not written", False)


def _heartbeats(flow: Flow, settings: Settings) -> Iterator[tuple[Role, Right]]:
    pairs = settings.heartbeat_pairs()
    sides = (((flow.source, flow.target), Role.TARGET_ADMIN), ((flow.target, flow.source), Role.SOURCE_ADMIN))
    for pair, role in sides:
        for operation in (CREATE, WRITE) if pair in pairs else ():
            yield role, Right(operation, _topic(flow.policy.heartbeats_topic()), "no heartbeats are written", False)


# -- patterns

_META = re.compile(r"[\\^$.|?*+()\[\]{}&]")
_PLAIN_DOT = re.compile(r"(?:\\.)|\.(?![*+?{])")
_ESCAPED = re.compile(r"\\([^A-Za-z0-9])")


def _topic(name: str) -> Resource:
    return Resource(ResourceType.TOPIC, name)


def _sources(flow: Flow) -> list[Resource]:
    return _resources(ResourceType.TOPIC, flow.topics)


def _remotes(flow: Flow) -> list[Resource]:
    """Return the source's resources by their names on the target; a custom replication policy may give any name."""
    base = without_rules(flow.policy)
    if isinstance(base, CustomPolicy):
        return [Resource(ResourceType.TOPIC, WILDCARD)]
    rules = flow.policy.rules if isinstance(flow.policy, RenamingPolicy) else ()
    found = [_renamed_by(ResourceType.TOPIC, rule) for _, renames in rules for rule in renames.rules]
    for resource in _sources(flow):
        name = "" if resource.name == WILDCARD else resource.name
        if resource.is_one:
            found.append(_topic(flow.remote_topic(name)))
        else:
            remote = base.format_remote_topic(flow.source, name)
            found.append(Resource(ResourceType.TOPIC, remote, Pattern.PREFIXED) if remote else resource)
    return list(dict.fromkeys(found))


def _remote_groups(flow: Flow) -> list[Resource]:
    """Return the groups by their names on the target; only rename rules change them."""
    found = [_renamed_by(ResourceType.GROUP, rule) for rule in flow.group_renames.rules]
    for resource in _resources(ResourceType.GROUP, flow.checkpoints.groups) if flow.checkpoints else ():
        name = flow.remote_group(resource.name) if resource.is_one else resource.name
        found.append(Resource(ResourceType.GROUP, name, resource.pattern))
    return list(dict.fromkeys(found))


def _renamed_by(kind: ResourceType, rule: Rename) -> Resource:
    """Return the resource that covers the names that a rename rule makes."""
    begins, is_whole = rule.stem
    if not begins:
        return Resource(kind, WILDCARD)
    return Resource(kind, begins, Pattern.LITERAL if is_whole else Pattern.PREFIXED)


def _resources(kind: ResourceType, names: Filter) -> list[Resource]:
    if not isinstance(names, NameFilter):
        return [Resource(kind, WILDCARD)]  # a custom filter class may accept any name
    return list(dict.fromkeys(covering(kind, pattern) for pattern in _alternatives(names.include)))


def _alternatives(patterns: Sequence[str]) -> Iterator[str]:
    """Yield a list's patterns, split at `|` unless they have brackets or escapes."""
    for pattern in patterns:
        yield from pattern.split("|") if not re.search(r"[\\(\[]", pattern) else [pattern]


def covering(kind: ResourceType, pattern: str) -> Resource:
    """Return the name or prefix that covers a Java pattern; a dot without a quantifier is taken literally."""
    text = pattern.strip()
    plain = _ESCAPED.sub(lambda match: _PLACEHOLDERS.get(match[1], match[1]), text)
    plain = _PLAIN_DOT.sub(_PLACEHOLDERS["."], plain)
    match = _META.search(plain)
    if match is None:
        return Resource(kind, _without_placeholders(plain))
    stem = plain[: match.start()]
    if "|" in plain:
        stem = ""
    elif match[0] in "?*{":
        stem = stem[:-1]  # the quantified character may be absent
    stem = _without_placeholders(stem)
    return Resource(kind, stem, Pattern.PREFIXED) if stem else Resource(kind, WILDCARD)


_PLACEHOLDERS = {".": "\ue000"}
"""Placeholders for literal characters while a pattern is parsed."""


def _without_placeholders(text: str) -> str:
    return text.replace(_PLACEHOLDERS["."], ".")
