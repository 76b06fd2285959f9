"""Finds cycles of flows, in which records, topic configs, ACLs or group offsets would be copied in circles. Pure.

Prefixes tell where a topic has been (`policies.is_cycle`). Where names are kept only the headers of
`provenance.headers` do. The topics themselves are not known here, only patterns: two patterns are assumed to have
names in common unless their literal beginnings differ.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from heliograph.config.settings import Flow
from heliograph.errors import ConfigError
from heliograph.names.filters import Filter, NameFilter
from heliograph.names.policies import DefaultPolicy, IdentityPolicy
from heliograph.names.renaming import RenamingPolicy, without_rules

Way = tuple[Flow, ...]
"""A path: flows, each of which starts at the cluster where the one before it ends."""

MAX_STEPS = 20_000
"""Maximum number of steps when names are followed from cluster to cluster: a large mesh has endless paths."""
_LITERAL = re.compile(r"[A-Za-z0-9_\-]|\\[^A-Za-z0-9]")
_OPTIONAL = ("*", "?", "{")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_\-.*+?{}|]|\\[^A-Za-z0-9])*")


class Head(NamedTuple):
    """The literal beginning of the names that a pattern matches."""

    text: str
    is_whole: bool
    """Whether the beginning is the whole name."""
    takes_all: bool = False
    """Whether the pattern matches anything that follows."""


class Return(NamedTuple):
    name: str
    way: Way
    back: str
    """The name under which the copies come back."""

    @property
    def keeps_names(self) -> bool:
        return all(keeps_names(flow) for flow in self.way)

    @property
    def is_stopped(self) -> bool:
        """Tells whether provenance headers stop the cycle: they name cluster and topic, so only under the same name."""
        return self.back == self.name and all(flow.provenance_headers for flow in self.way)


def keeps_names(flow: Flow) -> bool:
    """Tells whether some topics of the flow have the same name on the target."""
    if isinstance(flow.policy, RenamingPolicy) and any(
        rule.is_for_all for _, renames in flow.policy.rules for rule in renames.rules
    ):
        return False
    return isinstance(without_rules(flow.policy), IdentityPolicy)


def unmarked_cycles(flows: Sequence[Flow]) -> list[Way]:
    """Finds cycles with kept names in which a flow writes no provenance headers; shortest paths, each once."""
    keeping = _in_cycles(flow for flow in flows if flow.is_running and keeps_names(flow))
    return _cycles(keeping, _topic_heads, _may_mirror, begins=lambda flow: not flow.provenance_headers)


def cycles_of_groups(flows: Sequence[Flow]) -> list[Way]:
    """Finds cycles of flows that keep names and sync the offsets of groups that they may have in common."""
    groups = {
        flow.name: flow.checkpoints.groups
        for flow in _in_cycles(flow for flow in flows if flow.is_running and keeps_names(flow))
        if flow.checkpoints is not None and flow.checkpoints.sync_group_offsets
    }
    return _cycles_by(flows, groups)


def cycles_of_configs(flows: Sequence[Flow]) -> list[Way]:
    """Finds cycles of flows with provenance headers that sync the configs of topics that they may have in common."""
    return _cycles([flow for flow in _sharing(flows) if flow.topic_sync.configs_enabled], _topic_heads, _may_mirror)


def cycles_of_acls(flows: Sequence[Flow]) -> list[Way]:
    """Finds cycles of flows that sync the ACLs of topics that they may have in common."""
    return _cycles([flow for flow in _sharing(flows) if flow.topic_sync.acls_enabled], _topic_heads, _may_mirror)


def cycles_of_group_acls(flows: Sequence[Flow]) -> list[Way]:
    """Finds cycles of flows that sync ACLs of groups; group names stay the same whatever the topics are called."""
    groups = {
        flow.name: flow.topic_sync.group_acls
        for flow in flows
        if flow.is_running
        and flow.topic_sync.group_acls is not None
        and not any(rule.is_for_all for rule in flow.group_renames.rules)
    }
    return _cycles_by(flows, groups)


def rivals_of_configs(flows: Sequence[Flow]) -> list[tuple[Flow, Flow]]:
    """Finds flows of two sources that sync configs to the same topics of a target; one pair for each target."""
    found: dict[str, tuple[Flow, Flow]] = {}
    setting = [flow for flow in _sharing(flows) if flow.topic_sync.configs_enabled]
    for head in dict.fromkeys(head for flow in setting for head in _topic_heads(flow)):
        first: dict[str, Flow] = {}
        for flow in setting:
            if _may_mirror(flow, head) and (other := first.setdefault(flow.target, flow)) is not flow:
                found.setdefault(flow.target, (other, flow))
    return list(found.values())


def _sharing(flows: Sequence[Flow]) -> list[Flow]:
    """Returns the flows whose copies share topics with other flows: they keep names and write provenance headers."""
    return [flow for flow in flows if flow.is_running and flow.provenance_headers and keeps_names(flow)]


def _cycles(
    flows: Sequence[Flow],
    heads: Callable[[Flow], Iterable[Head]],
    accepts: Callable[[Flow, Head], bool],
    *,
    begins: Callable[[Flow], bool] = lambda _: True,
) -> list[Way]:
    """Finds cycles of flows that may have a name in common; shortest paths that begin with such a flow, each once."""
    found: dict[frozenset[str], Way] = {}
    for head in dict.fromkeys(head for flow in flows for head in heads(flow)):
        sharing = [flow for flow in flows if accepts(flow, head)]
        for flow in filter(begins, sharing):
            if (back := _way(sharing, flow.target, flow.source)) is not None:
                found.setdefault(frozenset(step.name for step in (flow, *back)), (flow, *back))
    return list(found.values())


def _cycles_by(flows: Sequence[Flow], names: Mapping[str, Filter]) -> list[Way]:
    """Finds cycles by the filters of the flows; flows without a filter are left out."""
    return _cycles(
        [flow for flow in flows if flow.name in names],
        lambda flow: _heads(_patterns(names[flow.name]).include),
        lambda flow, head: _may_accept(names[flow.name], head),
    )


def _topic_heads(flow: Flow) -> Iterable[Head]:
    return _heads(_patterns(flow.topics).include)


def double_ways(flows: Sequence[Flow]) -> list[tuple[Way, Way]]:
    """Finds clusters whose records reach another by two paths of flows with provenance headers; one pair per target."""
    marking = _in_cycles(flow for flow in flows if flow.is_running and flow.provenance_headers)
    found: dict[str, tuple[Way, Way]] = {}
    for head in dict.fromkeys(head for flow in marking for head in _heads(_patterns(flow.topics).include)):
        mirroring = [flow for flow in marking if keeps_names(flow) and _may_mirror(flow, head)]
        for source in dict.fromkeys(flow.source for flow in mirroring):
            if (pair := _two_ways(mirroring, source)) is not None:
                found.setdefault(pair[0][-1].target, pair)
    return list(found.values())


def returning_names(flows: Sequence[Flow]) -> Iterator[Return]:
    """Finds names that come back to the cluster where they began and are copied again, under the same or another name.

    Follows the names written in the patterns of flows that do more than add a prefix, and one name for each pattern's
    beginning. Cycles that only keep names are left to `unmarked_cycles`.
    """
    running = _in_cycles(flow for flow in flows if flow.is_running)
    by_source: dict[str, list[Flow]] = {}
    for flow in running:
        by_source.setdefault(flow.source, []).append(flow)
    if all(keeps_names(flow) for flow in running):
        return
    steps = MAX_STEPS
    for flow in running:
        if type(flow.policy) is DefaultPolicy:
            continue
        for head in _heads(_patterns(flow.topics).include):
            name = head.text if head.is_whole else f"{head.text}x"
            if (remote := _copy(flow, name)) is not None:
                found, steps = _return(by_source, (flow,), name, remote, steps)
                if found is not None:
                    yield found


def _return(
    by_source: dict[str, list[Flow]], begin: Way, name: str, copy: str, steps: int
) -> tuple[Return | None, int]:
    """Finds the shortest path back within the allowed steps; also returns the steps left."""
    waiting: deque[tuple[Way, str]] = deque([(begin, copy)])
    first = begin[0]
    while waiting:
        way, topic = waiting.popleft()
        for flow in by_source.get(way[-1].target, ()):
            steps -= 1
            if steps <= 0:
                return None, 0
            if (remote := _copy(flow, topic)) is None:
                continue
            if flow.target == first.source:
                found = Return(name, (*way, flow), remote)
                if _copy(first, remote) is not None and not found.keeps_names:
                    return found, steps
            elif all(flow.target != step.target for step in way):
                waiting.append(((*way, flow), remote))
    return None, steps


def _copy(flow: Flow, topic: str) -> str | None:
    """Returns the name of a topic's copy; None if it has none, also if a custom class fails."""
    try:
        return flow.remote_topic(topic) if flow.mirrors(topic) else None
    except ConfigError:
        return None


def _in_cycles(flows: Iterable[Flow]) -> list[Flow]:
    """Removes flows that nothing follows or nothing precedes until none is left to remove: the rest is in cycles."""
    left = list(flows)
    while True:
        sources, targets = {flow.source for flow in left}, {flow.target for flow in left}
        kept = [flow for flow in left if flow.target in sources and flow.source in targets]
        if len(kept) == len(left):
            return kept
        left = kept


def _way(flows: Sequence[Flow], start: str, end: str) -> Way | None:
    """Finds the shortest path between two clusters."""
    waiting: deque[tuple[str, Way]] = deque([(start, ())])
    seen = {start}
    while waiting:
        cluster, way = waiting.popleft()
        if cluster == end:
            return way
        for flow in flows:
            if flow.source == cluster and flow.target not in seen:
                seen.add(flow.target)
                waiting.append((flow.target, (*way, flow)))
    return None


def _two_ways(flows: Sequence[Flow], source: str) -> tuple[Way, Way] | None:
    """Finds the first two paths from a cluster to another that pass no cluster twice."""
    first: dict[str, Way] = {}
    waiting: deque[Way] = deque([(flow,) for flow in flows if flow.source == source])
    while waiting:
        way = waiting.popleft()
        target = way[-1].target
        if target in first:
            return first[target], way
        first[target] = way
        passed = {source, *(flow.target for flow in way)}
        waiting += [(*way, flow) for flow in flows if flow.source == target and flow.target not in passed]
    return None


# -- patterns ----------------------------------------------------------------------------


def _may_mirror(flow: Flow, head: Head) -> bool:
    """Tells whether a flow may copy topics whose names begin so.

    Patterns with a longer beginning are ignored here: they are compared under their own beginning.
    """
    return _copy(flow, head.text) is not None if head.is_whole else _may_accept(flow.topics, head)


def _may_accept(names: Filter, head: Head) -> bool:
    if head.is_whole:
        try:
            return names.accepts(head.text)
        except ConfigError:  # a custom class
            return False
    patterns = _patterns(names)
    if any(out.takes_all and head.text.startswith(out.text) for out in _heads(patterns.exclude)):
        return False
    return any(not own.is_whole and head.text.startswith(own.text) for own in _heads(patterns.include))


def _patterns(names: Filter) -> NameFilter:
    """Returns the filter's patterns; a custom class is unknown, so it may accept any name."""
    return names if isinstance(names, NameFilter) else NameFilter((".*",))


@lru_cache(maxsize=4096)
def _heads(patterns: tuple[str, ...]) -> tuple[Head, ...]:
    """Returns the beginning of each alternative; patterns with groups, classes or flags may match any name."""
    joined = "|".join(patterns)
    if not joined:
        return ()
    if not _PLAIN.fullmatch(joined):
        return (Head("", is_whole=False),)
    return tuple(dict.fromkeys(_head(pattern) for pattern in _alternatives(joined)))


def _alternatives(joined: str) -> Iterable[str]:
    return re.findall(r"(?:\\.|[^|\\])+", joined)


def _head(pattern: str) -> Head:
    text, at = "", 0
    while (found := _LITERAL.match(pattern, at)) is not None:
        if pattern.startswith(_OPTIONAL, found.end()):
            break
        text, at = text + found[0][-1], found.end()
        if pattern.startswith("+", at):
            break
    return Head(text, is_whole=at == len(pattern), takes_all=pattern[at:] == ".*")
