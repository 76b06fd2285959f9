"""Checks what clusters have against what flows need: ids, brokers, partitions, names. Pure.

Every function returns the steps of one question, at least one: a passed check is a step too.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from heliograph.config.settings import Flow
from heliograph.flow import producer_memory
from heliograph.flow.required_topics import (
    absent_storage,
    internal_topics,
    too_few_brokers,
    topics_beside,
    wanted_topics,
)
from heliograph.flow.start_checks import FORGETFUL, Policies
from heliograph.kafka.catalogue import Catalogue
from heliograph.ledger.copy_names import names_of, plan_names
from heliograph.preflight.limits import Limits, compare_limits
from heliograph.preflight.steps import NAMED, Note, Step, failed, passed, warned
from heliograph.text import some_of

Catalogues = Mapping[str, Catalogue]
"""Catalogues by alias; a cluster that could not be reached has none."""
Topic = tuple[str, str]
"""(alias, name)"""


def check_ways(ways: Sequence[tuple[str, str, str]]) -> list[Step]:
    """Checks that all clients of an alias, (alias, role, cluster id), connect to the same cluster."""
    first: dict[str, str] = {}
    steps = []
    for alias, role, cluster_id in ways:
        other = first.setdefault(alias, cluster_id)
        if other != cluster_id:
            what = f"connects to cluster {cluster_id}, but others of this alias to {other}"
            steps.append(
                failed("cluster id", what, "check the bootstrap.servers of the flow and of its clients").of(alias, role)
            )
    return steps


def check_ids(ids: Mapping[str, str]) -> list[Step]:
    """Reports one cluster under two aliases: it would be mirrored into itself."""
    first: dict[str, str] = {}
    steps = []
    for alias, cluster_id in ids.items():
        other = first.setdefault(cluster_id, alias)
        if cluster_id and other != alias:
            note = failed(
                "cluster id", f'is the same cluster as "{other}" ({cluster_id})', "check the two bootstrap.servers"
            )
        else:
            note = passed("cluster id", f"{cluster_id or 'none'}, no other alias has it")
        steps.append(note.of(alias))
    return steps


def check_replicas(alias: str, catalogue: Catalogue) -> list[Step]:
    """Reports brokers that hold replicas and are down: no other check names them."""
    there = catalogue.brokers.keys()
    missing: dict[int, int] = {}
    leaderless: list[str] = []
    for topic in catalogue.topics.values():
        for index, partition in enumerate(topic.partitions):
            for node_id in set(partition.replicas) - there:
                missing[node_id] = missing.get(node_id, 0) + 1
            if partition.leader not in there:
                leaderless.append(f"{topic.name}-{index}")
    notes = [
        warned("brokers", f"broker {node_id} is down; {count} partitions have a replica there", "start it again")
        for node_id, count in sorted(missing.items())
    ]
    if leaderless:
        notes.append(failed("brokers", f"no leader: {some_of(leaderless, NAMED)}", "start the brokers that are down"))
    return [
        note.of(alias) for note in notes or [passed("brokers", f"{len(there)} running, every partition has a leader")]
    ]


def check_memory(flow: Flow, *, is_short: bool, expiration_ms: int | None) -> list[Step]:
    """Checks how long a target's brokers remember producer ids; `expiration_ms` is None where they do not tell."""
    if is_short:
        return [warned("brokers", f'"{flow.target}" {FORGETFUL}', "upgrade them").of(flow.name)]
    what = producer_memory.told(
        flow.target, producer_memory.DEFAULT_EXPIRATION_MS if expiration_ms is None else expiration_ms
    )
    assumed = " (assumed: we may not read it, or the brokers are older than Kafka 3.4)" if expiration_ms is None else ""
    return [passed("brokers", what + assumed).of(flow.name)]


def check_factors(flow: Flow, source: Catalogue, target: Catalogue) -> list[Step]:
    """Checks brokers against replication factors, as at the start; what mirroring can do without is a warning."""
    beside = []
    for alias, topic, key in topics_beside(flow):
        cluster = source if alias == flow.source else target
        if topic.name not in cluster.topics and topic.replication_factor > len(cluster.brokers):
            what = (
                f'"{topic.name}" cannot be created: it needs {topic.replication_factor} brokers, and "{alias}" has '
                f"{len(cluster.brokers)}; topics are mirrored without it"
            )
            beside.append(warned("replication factor", what, f"lower {key} (-1: the broker's default)").of(flow.name))
    fault = too_few_brokers(flow, target, wanted_topics(flow, source).values())
    if fault is not None:
        return [failed("replication factor", fault).of(flow.name), *beside]
    highest = max(flow.replication_factor, *(topic.replication_factor for topic in internal_topics(flow)))
    brokers = len(target.brokers)
    return [passed("replication factor", f"at most {highest}, {brokers} on the target").of(flow.name), *beside]


def check_storage(flow: Flow, target: Catalogue) -> list[Step]:
    """Checks internal topics that the mirror must not create."""
    fault = absent_storage(flow, target)
    if fault is None:
        return []
    judged = failed if fault.details["is_vital"] else warned
    return [judged("internal topics", f"{fault.what}: {fault.why}", fault.remedy).of(flow.name)]


def check_policies(flow: Flow, policies: Policies) -> list[Step]:
    """Reports internal topics whose records retention would delete, as at the start."""
    steps = [
        (failed if topic.is_vital else warned)("internal topics", f"{fault.what}: {fault.why}", fault.remedy).of(
            flow.name, subject=topic.topic
        )
        for topic, fault in policies.faults(flow)
    ]
    if not steps and policies.found:
        unread = f"; {len(policies.unread)} cannot be read with our rights" if policies.unread else ""
        steps.append(
            passed("internal topics", f"{len(policies.found)} have cleanup.policy=compact{unread}").of(flow.name)
        )
    return steps


def check_partitions(flow: Flow, source: Catalogue, target: Catalogue) -> list[Step]:
    found: list[tuple[str, Note]] = []
    pairs = [(name, remote) for name, remote in wanted_topics(flow, source).items() if remote in target.topics]
    for name, remote in pairs:
        here, there = len(source.topics[name].partitions), len(target.topics[remote].partitions)
        if there < here and flow.remaps_partitions:
            what = f"the target has {there} partitions, the source {here}: source partition p goes to p modulo {there}"
            found.append((remote, warned("partitions", what, "nothing, if source partitions may share the target's")))
        elif there < here:
            what = f"the target has {there} partitions, the source {here}: it gets the missing ones at the start"
            found.append((remote, warned("partitions", what, "nothing, if the mirror may alter the topic")))
        elif there > here:
            what = f"the target has {there} partitions, the source {here}: the extra ones stay empty"
            remedy = f"if keys must stay in their partitions after a failover, give the source {there} too"
            found.append((remote, warned("partitions", what, remedy)))
    return _grouped(flow.name, found) or [
        passed("partitions", f"{len(pairs)} topics on both sides, with equal numbers of partitions").of(flow.name)
    ]


def check_names(flow: Flow, source: Catalogue, target: Catalogue) -> list[Step]:
    """Reports topics whose target name is not allowed; names that two topics share are collisions."""
    refused = plan_names(flow, source.topics, there=target.topics).refused
    return [
        failed("names", f"{error.what.partition(' ')[2]}: {error.why}", error.remedy).of(flow.name, subject=name)
        for name, error in refused.items()
        if "rival" not in error.details
    ]


def check_limits(flow: Flow, limits: Mapping[str, tuple[Limits, Limits]], unread: Sequence[str]) -> list[Step]:
    """Compares limits by source topic, its own and the target's; `unread` are topics whose configs are not shown."""
    found = [(name, note) for name, (source, target) in limits.items() for note in compare_limits(source, target)]
    if unread:
        remedy = "grant DescribeConfigs on the topics of both sides, and on the target cluster"
        found += [(name, warned("limits", "the topic configs of one side cannot be read", remedy)) for name in unread]
    return _grouped(flow.name, found) or [
        passed("limits", f"{len(limits)} topics: the target accepts all that the source has").of(flow.name)
    ]


def check_foreign(flow: Flow, records: Mapping[str, int], ours: Iterable[str]) -> list[Step]:
    """Reports target topics with records though the flow never wrote there; `records` is by target topic."""
    if flow.provenance_headers:
        what = "provenance headers are on: records of other producers in the same topics are expected"
        return [passed("names", what).of(flow.name)]
    known = set(ours)
    found = [
        (
            remote,
            warned(
                "names",
                "exists on the target with records that this flow has not written; copies would follow them",
                "if that is not intended, rename or delete it, or exclude its source topic with topics.exclude",
            ),
        )
        for remote, count in records.items()
        if count and remote not in known
    ]
    return _grouped(flow.name, found) or [passed("names", "no target topic has records of others").of(flow.name)]


def check_collisions(flows: Sequence[Flow], catalogues: Catalogues) -> list[Step]:
    """Reports source topics with the same target name, unless all their flows write provenance headers."""
    sources: dict[Topic, list[tuple[Flow, str]]] = {}
    for flow in flows:
        topics = catalogues[flow.source].topics if flow.source in catalogues else ()
        for name, remote in names_of(flow, topics).items():
            sources.setdefault((flow.target, remote), []).append((flow, name))
    several = {place: origins for place, origins in sources.items() if len(origins) > 1}
    found = [
        failed(
            "collisions",
            f"receives {' and '.join(f'{flow.source}:{name}' for flow, name in origins)}: their records would mix",
            "rename one by a rule (topic.rename.<n>) or the default policy, or exclude one",
        ).of(target, subject=remote)
        for (target, remote), origins in several.items()
        if len({flow.name for flow, _ in origins}) < len(origins)
        or not all(flow.provenance_headers for flow, _ in origins)
    ]
    marked = f", but {len(several)} with several, whose records have provenance headers" if several else ""
    return found or [passed("collisions", f"{len(sources)} target topics, each with one source{marked}").of("all")]


def check_cycles(flows: Sequence[Flow], catalogues: Catalogues) -> list[Step]:
    """Reports topics whose copies come back to them; names of topics that do not exist yet are followed too."""
    found: dict[frozenset[Topic], list[Topic]] = {}
    for alias, catalogue in catalogues.items():
        for name in catalogue.topics:
            for path in _round_trips(flows, [(alias, name)], marked=True):
                found.setdefault(frozenset(path), path)
    steps = [
        failed(
            "cycles",
            f"is copied in a cycle for ever: {' -> '.join(f'{alias}:{topic}' for alias, topic in [*path, path[0]])}",
            "set provenance.headers = true for these flows, or exclude the topic in one of them",
        ).of(path[0][0], subject=path[0][1])
        for path in found.values()
    ]
    return steps or [passed("cycles", "no topic's copies come back to it").of("all")]


def _round_trips(flows: Sequence[Flow], path: list[Topic], *, marked: bool) -> Iterator[list[Topic]]:
    """Yields paths from a topic back to itself. One that passes a cluster twice is found from elsewhere, or is none.

    `marked`: all flows so far write provenance headers. Where all do, nothing comes back.
    """
    alias, name = path[-1]
    for flow in flows:
        remote = names_of(flow, [name]).get(name) if flow.source == alias else None
        if remote is None:
            continue
        copy = (flow.target, remote)
        all_marked = marked and flow.provenance_headers
        if copy == path[0]:
            if not all_marked:
                yield path
        elif all(flow.target != passed_by for passed_by, _ in path):
            yield from _round_trips(flows, [*path, copy], marked=all_marked)


def _grouped(cluster: str, found: Iterable[tuple[str, Note]]) -> list[Step]:
    """Joins equal notes of several topics into one step."""
    names: dict[Note, list[str]] = {}
    for name, note in found:
        names.setdefault(note, []).append(name)
    return [note.of(cluster, subject=some_of(subjects, NAMED)) for note, subjects in names.items()]
