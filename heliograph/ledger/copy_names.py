"""Names copies on the target: which topics and groups get a name, which are refused one, and why. Pure.

A name that cannot be concerns its own topic or group: the others go on. Of two topics that would have one name, the
one keeps it that is copied already, then the one that was before, then that of the first flow, then the first by name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from heliograph.config.settings import Flow
from heliograph.errors import ConfigError, NameRefused
from heliograph.names.filters import Filter
from heliograph.names.policies import MAX_TOPIC, CustomPolicy, DefaultPolicy, is_own_internal_topic
from heliograph.names.renaming import without_rules

_LEGAL = re.compile(r"[A-Za-z0-9._-]+")
_MAX_GROUP = 32767
"""Bytes of a text in Kafka's protocol."""


class Rank(IntEnum):
    """How good a topic's claim to its name is."""

    COPIED = 0
    """It is being copied under it."""
    KNOWN = 1
    """It was; the ledger has it."""
    NEW = 2


class NameClaim(NamedTuple):
    """A topic's claim to a name on the target; the least one wins."""

    rank: Rank
    order: int
    """Place of the flow among those of the configuration."""
    topic: str
    flow: str


class NamePlan(NamedTuple):
    wanted: dict[str, str]
    """Topics of the source and their names on the target."""
    refused: dict[str, NameRefused]
    """Topics that have none, by their names on the source."""
    home: frozenset[str]
    """Topics that are copies of the target's own, by the rules of the flows that brought them."""
    taken: frozenset[str]
    """Names on the target that are somebody's, of this flow or of another that it must not mix with."""


def plan_names(
    flow: Flow,
    topics: Iterable[str],
    *,
    there: Collection[str] = (),
    ranks: Mapping[str, Rank] | None = None,
    order: int = 0,
    rivals: Iterable[Mapping[str, NameClaim]] = (),
) -> NamePlan:
    """Of the source's topics; `there` are those of the target, `rivals` what other flows claim of its names."""
    names, refused, home = _named(flow, topics)
    claims = [claims_of(flow, names, ranks=ranks, order=order), *rivals]
    owners = _best(claim for some in claims for claim in some.items())
    for topic, remote in names.items():
        owner = owners[remote]
        if owner.topic != topic or owner.flow != flow.name:
            refused[topic] = _taken(flow, topic, remote, owner)
    wanted = {topic: remote for topic, remote in names.items() if topic not in refused}
    for topic, alike in _alike(wanted, there, owners):
        why = f'brokers take it for the same as "{alike}" in their metrics and do not make both'
        refused[topic] = _refusal(flow, topic, wanted.pop(topic), why)
    return NamePlan(wanted, refused, home, frozenset(owners))


def _alike(wanted: Mapping[str, str], there: Collection[str], owners: Mapping[str, NameClaim]) -> list[tuple[str, str]]:
    """Topics to be made whose names differ from another's in dots and underscores alone; with that other name."""
    new = [(owners[remote], remote) for remote in wanted.values() if remote not in there]
    flat = {_flat(name): name for name in there} if new else {}
    found = ((owner.topic, flat.setdefault(_flat(remote), remote), remote) for owner, remote in sorted(new))
    return [(topic, alike) for topic, alike, remote in found if alike != remote]


def claims_of(
    flow: Flow, names: Mapping[str, str], *, ranks: Mapping[str, Rank] | None = None, order: int = 0
) -> dict[str, NameClaim]:
    """Return the best claim of the flow's own topics, by name on the target."""
    known, name = ranks or {}, flow.name
    return _best((remote, NameClaim(known.get(topic, Rank.NEW), order, topic, name)) for topic, remote in names.items())


def names_of(flow: Flow, topics: Iterable[str]) -> dict[str, str]:
    """Topics that the flow would mirror, with their names, whoever else claims them."""
    return _named(flow, topics)[0]


def maybe_remote(flow: Flow, topic: str) -> str | None:
    """Return the name of a topic on the target, mirrored or not; None if the user's own class fails."""
    try:
        return flow.remote_topic(topic)
    except ConfigError:
        return None


def may_clash(one: Flow, other: Flow) -> bool:
    """Whether two flows may have one name for two topics, and must not.

    With the aliases of their sources in front they have none. Flows that both mark their records share a topic as they
    share it with applications: each has a producer id of its own, and marks tell whose records are whose.
    """
    if one.provenance_headers and other.provenance_headers:
        return False
    policies = (one.policy, other.policy)
    is_plain = all(type(policy) is DefaultPolicy for policy in policies)
    return one.target == other.target and not (
        is_plain and len({getattr(policy, "separator", None) for policy in policies}) == 1
    )


def _named(flow: Flow, topics: Iterable[str]) -> tuple[dict[str, str], dict[str, NameRefused], frozenset[str]]:
    """Names that are possible in themselves, topics that have none, copies that came home."""
    names: dict[str, str] = {}
    refused: dict[str, NameRefused] = {}
    home = set()
    kept = frozenset((*_kept_topics(flow), *flow.never_mirrored))
    for topic in topics:
        try:
            if not flow.selects(topic):
                continue
            if flow.comes_home(topic):
                home.add(topic)
                continue
            remote = flow.remote_topic(topic)
            fault = _fault(flow, topic, remote, kept)
        except ConfigError as error:  # a class of one's own, or a pattern that takes too long
            refused[topic] = NameRefused(
                f'"{topic}" has no name on "{flow.target}"', where=flow.name, why=error.what, remedy=error.remedy
            )
            continue
        if fault:
            refused[topic] = _refusal(flow, topic, remote, fault)
        else:
            names[topic] = remote
    return names, refused, frozenset(home)


def _best(claims: Iterable[tuple[str, NameClaim]]) -> dict[str, NameClaim]:
    """By name."""
    found: dict[str, NameClaim] = {}
    for remote, claim in claims:
        known = found.get(remote)
        if known is None or claim < known:
            found[remote] = claim
    return found


def _fault(flow: Flow, topic: str, remote: str, kept: Collection[str]) -> str:
    """Why no copy can have this name; empty if it can. `kept` are the mirror's own topics."""
    if remote in ("", ".", ".."):
        return "no topic can be called so"
    if len(remote) > MAX_TOPIC:
        return f"it has {len(remote)} characters, and a topic's name has at most {MAX_TOPIC}"
    if not _LEGAL.fullmatch(remote):
        return "a topic's name has letters, digits, dot, _ and - alone"
    if remote in kept:
        return "the mirror keeps its own records there"
    policy = flow.policy
    if _is_built_in(flow, topic, remote):
        return ""
    is_heartbeats = policy.is_heartbeats_topic(topic)  # who makes the copy asks too, and must get an answer
    if policy.is_internal_topic(remote) or is_own_internal_topic(remote):
        return "topics called so are internal to Kafka or to a mirror"
    if policy.is_heartbeats_topic(remote) and not is_heartbeats:
        return "heartbeats are called so"
    return ""


def _is_built_in(flow: Flow, topic: str, remote: str) -> bool:
    """Whether the name is MM2's choice, and not that of a rule or of a class of one's own."""
    base = without_rules(flow.policy)
    if isinstance(base, CustomPolicy):
        return False
    return base is flow.policy or base.format_remote_topic(flow.source, topic) == remote


def _kept_topics(flow: Flow) -> Iterator[str]:
    yield from (flow.ledger_topic, flow.rejected_topic, flow.checkpoints_topic)
    if flow.offset_syncs.location == "target":
        yield flow.offset_syncs_topic


def _flat(name: str) -> str:
    return name.replace(".", "_")


def _refusal(flow: Flow, topic: str, remote: str, why: str) -> NameRefused:
    return NameRefused(
        f'"{topic}" would be called "{remote}" on "{flow.target}"',
        where=flow.name,
        why=why,
        remedy="give it another name by a rule (topic.rename.<n>), or leave it out of topics",
    )


def _taken(flow: Flow, topic: str, remote: str, owner: NameClaim) -> NameRefused:
    of = "" if owner.flow == flow.name else f" of {owner.flow}"
    return NameRefused(
        f'"{topic}" would be called "{remote}" on "{flow.target}", as "{owner.topic}"{of} is',
        where=flow.name,
        why="their records would mix",
        remedy="give one of them another name by a rule (topic.rename.<n>), or leave one out of topics",
        rival=owner.topic,
    )


# -- groups


class GroupPlan(NamedTuple):
    wanted: dict[str, str]
    """Groups of the source and their names on the target."""
    refused: dict[str, NameRefused]


def plan_groups(
    flow: Flow, groups: Iterable[str], *, known: Collection[str] = (), selected: Filter | None = None
) -> GroupPlan:
    """Of groups that are `selected`, if not said else those that the flow carries over.

    Of two with one name, `known` are those that had theirs before.
    """
    if selected is None and flow.checkpoints is not None:
        selected = flow.checkpoints.groups
    names: dict[str, str] = {}
    refused: dict[str, NameRefused] = {}
    for group in groups:
        try:
            if selected is not None and not selected.accepts(group):
                continue
            remote = flow.remote_group(group)
        except ConfigError as error:
            refused[group] = NameRefused(
                f'the group "{group}" has no name on "{flow.target}"',
                where=flow.name,
                why=error.what,
                remedy=error.remedy,
            )
            continue
        if 0 < len(remote.encode("utf-8", "replace")) <= _MAX_GROUP:
            names[group] = remote
        else:
            refused[group] = _group_refusal(flow, group, remote, "no group can be called so")
    owners: dict[str, str] = {}
    for group in sorted(names, key=lambda name: (name not in known, name)):
        if (owner := owners.setdefault(names[group], group)) != group:
            why = f'"{owner}" is called so: their offsets would mix'
            refused[group] = _group_refusal(flow, group, names.pop(group), why)
    return GroupPlan(names, refused)


def _group_refusal(flow: Flow, group: str, remote: str, why: str) -> NameRefused:
    return NameRefused(
        f'the group "{group}" would be called "{remote[:MAX_TOPIC]}" on "{flow.target}"',
        where=flow.name,
        why=why,
        remedy="give it another name by a rule (group.rename.<n>), or leave it out of groups",
    )
