"""Derives a cluster's upstream clusters from its topic names, with MirrorMaker 2's answers. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heliograph.names.policies import ReplicationPolicy

UNREACHABLE = -1


def heartbeat_topics(policy: ReplicationPolicy, names: Iterable[str]) -> set[str]:
    """The cluster's own `heartbeats` included."""
    return {name for name in names if policy.is_heartbeats_topic(name)}


def checkpoint_topics(policy: ReplicationPolicy, names: Iterable[str]) -> set[str]:
    return {name for name in names if policy.is_checkpoints_topic(name)}


def upstream_clusters(policy: ReplicationPolicy, names: Iterable[str]) -> set[str]:
    """Every alias that a heartbeats topic came through."""
    return {source for name in heartbeat_topics(policy, names) for source in _sources(policy, name)}


def remote_topics(policy: ReplicationPolicy, names: Iterable[str], source: str | None = None) -> set[str]:
    """Copies; with a source, those that came from that cluster last."""
    sources = {name: policy.topic_source(name) for name in names if not policy.is_internal_topic(name)}
    return {name for name, found in sources.items() if found is not None and source in (None, found)}


def replication_hops(policy: ReplicationPolicy, names: Iterable[str], alias: str) -> int:
    """Return the number of hops on the shortest way from that cluster to this one; -1 if there is none."""
    hops = [count_hops(policy, name, alias) for name in heartbeat_topics(policy, names)]
    return min((count for count in hops if count != UNREACHABLE), default=UNREACHABLE)


def count_hops(policy: ReplicationPolicy, topic: str, alias: str) -> int:
    """How many times the topic has been copied since it was on that cluster; -1 if it was not."""
    for hops, source in enumerate(_sources(policy, topic), start=1):
        if source == alias:
            return hops
    return UNREACHABLE


def _sources(policy: ReplicationPolicy, topic: str) -> Iterator[str]:
    """The clusters of a topic's way, the last one first. Ends where it would go round: with names that stay as they
    are, it would do so for ever."""
    seen: set[str] = set()
    at: str | None = topic
    while at is not None and (source := policy.topic_source(at)) is not None and source not in seen:
        yield source
        seen.add(source)
        at = policy.upstream_topic(at)
