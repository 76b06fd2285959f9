"""Flows that would carry records, or what belongs to topics and groups, round: cycles of clusters. Pure.

Prefixes tell where a topic has been (`naming.is_cycle`). Where names are kept nothing does, but for the
marks of `provenance.headers`. Which topics there are is not known here, only patterns of their names: two
of them are taken to have names in common unless what they begin with says otherwise.
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
"""Flows, each beginning where the one before it ends."""

MAX_STEPS = 20_000
"""So far names are followed from cluster to cluster: in a mesh of many the ways are without number."""
_LITERAL = re.compile(r"[A-Za-z0-9_\-]|\\[^A-Za-z0-9]")
_OPTIONAL = ("*", "?", "{")
_PLAIN = re.compile(r"(?:[A-Za-z0-9_\-.*+?{}|]|\\[^A-Za-z0-9])*")


class Head(NamedTuple):
    """What names begin with that a pattern matches."""

    text: str
    is_whole: bool
    """It is the whole name."""
    takes_all: bool = False
    """Whatever follows is matched."""


class Return(NamedTuple):
    name: str
    way: Way
    back: str
    """With what name its copies come back."""

    @property
    def keeps_names(self) -> bool:
        return all(keeps_names(flow) for flow in self.way)

    @property
    def is_stopped(self) -> bool:
        """Marks keep what comes back out: they name cluster and topic, so not under another name."""
        return self.back == self.name and all(flow.provenance_headers for flow in self.way)


def keeps_names(flow: Flow) -> bool:
    """Whether some of its topics are called on the target as on the source."""
    if isinstance(flow.policy, RenamingPolicy) and any(
        rule.is_for_all for _, renames in flow.policy.rules for rule in renames.rules
    ):
        return False
    return isinstance(without_rules(flow.policy), IdentityPolicy)


def unmarked_cycles(flows: Sequence[Flow]) -> list[Way]:
    """Cycles under kept names, each with a flow that does not mark what it copies; shortest ways, each once."""
    keeping = _in_cycles(flow for flow in flows if flow.is_running and keeps_names(flow))
    return _cycles(keeping, _topic_heads, _may_mirror, begins=lambda flow: not flow.provenance_headers)


def cycles_of_groups(flows: Sequence[Flow]) -> list[Way]:
    """Cycles of flows that keep names and write the positions of groups they may have in common."""
    groups = {
        flow.name: flow.checkpoints.groups
        for flow in _in_cycles(flow for flow in flows if flow.is_running and keeps_names(flow))
        if flow.checkpoints is not None and flow.checkpoints.sync_group_offsets
    }
    return _cycles_by(flows, groups)


def cycles_of_configs(flows: Sequence[Flow]) -> list[Way]:
    """Cycles of flows that mark records and let copies have the settings of topics they may have in common."""
    return _cycles([flow for flow in _sharing(flows) if flow.topic_sync.configs_enabled], _topic_heads, _may_mirror)


def cycles_of_acls(flows: Sequence[Flow]) -> list[Way]:
    """The same of access rules of topics."""
    return _cycles([flow for flow in _sharing(flows) if flow.topic_sync.acls_enabled], _topic_heads, _may_mirror)


def cycles_of_group_acls(flows: Sequence[Flow]) -> list[Way]:
    """The same of access rules of groups, which keep their names whatever topics are called."""
    groups = {
        flow.name: flow.topic_sync.group_acls
        for flow in flows
        if flow.is_running
        and flow.topic_sync.group_acls is not None
        and not any(rule.is_for_all for rule in flow.group_renames.rules)
    }
    return _cycles_by(flows, groups)


def rivals_of_configs(flows: Sequence[Flow]) -> list[tuple[Flow, Flow]]:
    """Flows of two sources that give the same topics of a target their settings; a pair for each target."""
    found: dict[str, tuple[Flow, Flow]] = {}
    setting = [flow for flow in _sharing(flows) if flow.topic_sync.configs_enabled]
    for head in dict.fromkeys(head for flow in setting for head in _topic_heads(flow)):
        first: dict[str, Flow] = {}
        for flow in setting:
            if _may_mirror(flow, head) and (other := first.setdefault(flow.target, flow)) is not flow:
                found.setdefault(flow.target, (other, flow))
    return list(found.values())


def _sharing(flows: Sequence[Flow]) -> list[Flow]:
    """Flows whose copies share topics with others: they keep names, and marks let them."""
    return [flow for flow in flows if flow.is_running and flow.provenance_headers and keeps_names(flow)]


def _cycles(
    flows: Sequence[Flow],
    heads: Callable[[Flow], Iterable[Head]],
    accepts: Callable[[Flow, Head], bool],
    *,
    begins: Callable[[Flow], bool] = lambda _: True,
) -> list[Way]:
    """Cycles of flows that may have a name in common; shortest ways that begin with such a flow, each once."""
    found: dict[frozenset[str], Way] = {}
    for head in dict.fromkeys(head for flow in flows for head in heads(flow)):
        sharing = [flow for flow in flows if accepts(flow, head)]
        for flow in filter(begins, sharing):
            if (back := _way(sharing, flow.target, flow.source)) is not None:
                found.setdefault(frozenset(step.name for step in (flow, *back)), (flow, *back))
    return list(found.values())


def _cycles_by(flows: Sequence[Flow], names: Mapping[str, Filter]) -> list[Way]:
    """The same by filters of the flows, those that have one."""
    return _cycles(
        [flow for flow in flows if flow.name in names],
        lambda flow: _heads(_patterns(names[flow.name]).include),
        lambda flow, head: _may_accept(names[flow.name], head),
    )


def _topic_heads(flow: Flow) -> Iterable[Head]:
    return _heads(_patterns(flow.topics).include)


def double_ways(flows: Sequence[Flow]) -> list[tuple[Way, Way]]:
    """Where flows that mark records bring those of one cluster to another by two ways; one pair for each target."""
    marking = _in_cycles(flow for flow in flows if flow.is_running and flow.provenance_headers)
    found: dict[str, tuple[Way, Way]] = {}
    for head in dict.fromkeys(head for flow in marking for head in _heads(_patterns(flow.topics).include)):
        mirroring = [flow for flow in marking if keeps_names(flow) and _may_mirror(flow, head)]
        for source in dict.fromkeys(flow.source for flow in mirroring):
            if (pair := _two_ways(mirroring, source)) is not None:
                found.setdefault(pair[0][-1].target, pair)
    return list(found.values())


def returning_names(flows: Sequence[Flow]) -> Iterator[Return]:
    """Names that come back to where they began and go round again, the same or others.

    Of names that are written in the patterns of flows that do more than to put a prefix before them, and of one for
    each pattern's beginning. What only keeps names is `unmarked_cycles`' to say.
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
    """The shortest way back, if it is found in so many steps; the steps that are left."""
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
    """The name of a topic's copy; None if it has none, also because a class of one's own fails."""
    try:
        return flow.remote_topic(topic) if flow.mirrors(topic) else None
    except ConfigError:
        return None


def _in_cycles(flows: Iterable[Flow]) -> list[Flow]:
    """Without those that nothing follows or nothing precedes, again and again: without a cycle none stays."""
    left = list(flows)
    while True:
        sources, targets = {flow.source for flow in left}, {flow.target for flow in left}
        kept = [flow for flow in left if flow.target in sources and flow.source in targets]
        if len(kept) == len(left):
            return kept
        left = kept


def _way(flows: Sequence[Flow], start: str, end: str) -> Way | None:
    """The shortest way between two clusters."""
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
    """Two ways from a cluster to another that pass no cluster twice; ends with the first pair, so that it is quick."""
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
    """Whether a flow may copy topics whose names begin so.

    Patterns with a longer beginning say nothing here: what they have in common with others is asked with that.
    """
    return _copy(flow, head.text) is not None if head.is_whole else _may_accept(flow.topics, head)


def _may_accept(names: Filter, head: Head) -> bool:
    if head.is_whole:
        try:
            return names.accepts(head.text)
        except ConfigError:  # a class of one's own
            return False
    patterns = _patterns(names)
    if any(out.takes_all and head.text.startswith(out.text) for out in _heads(patterns.exclude)):
        return False
    return any(not own.is_whole and head.text.startswith(own.text) for own in _heads(patterns.include))


def _patterns(names: Filter) -> NameFilter:
    """Of a class of somebody's own nothing is known: it may take any name."""
    return names if isinstance(names, NameFilter) else NameFilter((".*",))


@lru_cache(maxsize=4096)
def _heads(patterns: tuple[str, ...]) -> tuple[Head, ...]:
    """Of each alternative; of patterns with groups, classes or flags nothing is said but that any name may match."""
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
