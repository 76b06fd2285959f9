"""Reads the topics on both clusters of a flow, for `topic_views` to say how they stand.

The source is asked if it answers; if it does not, what was last seen of it stands on the target. How fast a partition
is copied is told by two looks at the ledger.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from math import inf
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError
from heliograph.flow.leader_epochs import source_epochs, target_epochs
from heliograph.kafka.admin.topics import LATEST, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.copy_names import maybe_remote
from heliograph.ledger.ledger import Ledger
from heliograph.text import some_of
from heliograph.views.differences import Differences, compared, read_differences
from heliograph.views.status import Leader
from heliograph.views.topic_views import Reading, TopicSide, TopicView, shown_names, topic_views

SOURCE_PATIENCE_S = 8.0
"""A source that does not answer by then counts as gone."""
MIN_RATE_S, MAX_RATE_S, FLUSHES = 1.0, 5.0, 1.2
"""How far apart the two looks at the ledger are: a little more than lanes take between two flushes, within limits."""


class TopicViews(NamedTuple):
    views: list[TopicView]
    problems: list[str]
    """Flows of which nothing can be shown, and why."""
    unread: list[str]
    """Topics whose settings a cluster does not show us, and why."""


class _Source(NamedTuple):
    side: TopicSide
    seen_s: float | None
    differences: Differences | None
    """None: it did not answer."""


async def read_topics(settings: Settings, flows: Sequence[Flow]) -> TopicViews:
    """All topics of the sources, worst first. A flow whose target does not answer hides no other."""
    found = await asyncio.gather(*(_flow_topics(flow, settings) for flow in flows))
    views = sorted((view for part in found for view in part.views), key=lambda view: view.rank)
    return TopicViews(
        views, [text for part in found for text in part.problems], [text for part in found for text in part.unread]
    )


async def _flow_topics(flow: Flow, settings: Settings) -> TopicViews:
    source, target = (
        cluster_of(settings, flow, role, client_id=f"{flow.name}|topics")
        for role in (Role.SOURCE_ADMIN, Role.TARGET_ADMIN)
    )
    try:
        return await _read(flow, source, target)
    except HeliographError as error:
        return TopicViews([], [f"{flow.name}: {error}"], [])
    finally:
        source.close()
        target.close()


async def _read(flow: Flow, source: Cluster, target: Cluster) -> TopicViews:
    await target.refresh()
    ledger = await store.find_ledger(target, flow) or Ledger(group_id=flow.group_id)
    before, began = ledger.entries, time.monotonic()
    here, there = await asyncio.gather(_look_at_source(flow, source, target, ledger), _ask_target(flow, target, ledger))
    if _is_led(ledger):
        between_s = min(max(MIN_RATE_S, FLUSHES * flow.offset_flush_interval_ms / 1000), MAX_RATE_S)
        await asyncio.sleep(max(0.0, began + between_s - time.monotonic()))
        await store.read_on(target, ledger.topic, ledger)
    differences = here.differences
    reading = Reading(
        source=here.side,
        seen_s=here.seen_s,
        target=there,
        before=before,
        entries=ledger.entries,
        troubles=ledger.troubles,
        losses=tuple(ledger.losses.values()),
        is_led=_is_led(ledger),
        differing=differences.found if differences is not None else {},
    )
    reasons: dict[str, list[str]] = {}
    for topic, why in (differences.unread if differences is not None else {}).items():
        reasons.setdefault(why, []).append(topic)
    unread = [f"{flow.name}: settings of {some_of(names)} are not shown to us: {why}" for why, names in reasons.items()]
    return TopicViews(topic_views(flow, reading), [], unread)


async def _look_at_source(flow: Flow, source: Cluster, target: Cluster, ledger: Ledger) -> _Source:
    """As it is now, or as it was last seen."""
    with suppress(HeliographError, TimeoutError):
        return await asyncio.wait_for(_ask_source(flow, source, target, ledger), SOURCE_PATIENCE_S)
    ends = {where: entry.source_end for where, entry in ledger.entries.items()}
    for where, end in ledger.log_ends.items():
        ends[where] = max(end.offset, ends.get(where, -1))
    counts: dict[str, int] = {}
    for topic, partition in ends:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    side = TopicSide(counts, {where: end for where, end in ends.items() if end >= 0})
    return _Source(side, max(0.0, time.time() - ledger.contact_ms / 1000) if ledger.contact_ms else inf, None)


async def _ask_source(flow: Flow, source: Cluster, target: Cluster, ledger: Ledger) -> _Source:
    await source.refresh()
    await source.heed(source_epochs(ledger.entries))
    catalogue, there = source.catalogue, target.catalogue.topics
    counts = {name: len(meta.partitions) for name, meta in catalogue.topics.items()}
    names, refused = shown_names(flow, counts, there=there, entries=ledger.entries, troubles=ledger.troubles)
    places = [TopicPartition(name, index) for name in (*names, *refused) for index in range(counts[name])]
    is_committed = flow.isolation_level == "read_committed"
    answers = await list_offsets(source, places, LATEST, read_committed=is_committed)
    ends = {(at.topic, at.partition): answer.offset for at, answer in answers.items() if not answer.error_code}
    shared = compared(names, there=there, entries=ledger.entries, troubles=ledger.troubles)
    return _Source(TopicSide(counts, ends), None, await read_differences(flow, source, target, shared))


async def _ask_target(flow: Flow, target: Cluster, ledger: Ledger) -> TopicSide:
    await target.heed(target_epochs(ledger.entries, flow))
    topics = target.catalogue.topics
    places = {
        where: TopicPartition(remote, ledger.target_partition(where))
        for where in ledger.partitions
        if (remote := maybe_remote(flow, where[0])) is not None
    }
    there = {at for at in places.values() if at.topic in topics and at.partition < len(topics[at.topic].partitions)}
    answers = await list_offsets(target, there, LATEST)
    ends = {at: answer.offset for at, answer in answers.items() if not answer.error_code}
    return TopicSide(
        {name: len(meta.partitions) for name, meta in topics.items()},
        {where: ends[at] for where, at in places.items() if at in ends},
    )


def _is_led(ledger: Ledger) -> bool:
    lease, now_ms = ledger.leadership.lease, wall_ms()
    return lease is not None and Leader.of(lease, now_ms=now_ms).until_ms > now_ms
