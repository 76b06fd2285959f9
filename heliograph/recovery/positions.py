"""Where the copies of a flow's partitions stand, and how somebody sets or resets that while nobody leads the flow.

A position that is set is written twice: into the topic where MirrorMaker 2 looks, and then as a request into the
ledger, by which the next leader opens a new count. Whoever writes it leads the flow meanwhile, so that none can start.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.config.start_points import StartPoint
from heliograph.errors import ConfigError, HeliographError, LeaseLost
from heliograph.flow.lease_holder import LeaseHolder
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.required_topics import wanted_topics
from heliograph.flow.start_positions import Beginning, find_starts
from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.copy_names import names_of
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import PartitionName
from heliograph.ledger.process_identity import this_process
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.lease import LeaseState
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.recovery.offsets_file import Given, faulty_names
from heliograph.text import some_of

SOURCE_PATIENCE_S = 8.0
"""A source that does not answer by then counts as gone."""
LEASE_MS = 30_000
"""Longer than writing positions takes: the lease is not renewed."""
LOOK_S = 0.2


class Origin(StrEnum):
    """Who says where a partition stands."""

    COPIED = "copied"
    SET = "set"
    RESET = "reset"
    OTHERS = "another tool"
    NONE = "not begun"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionRow:
    """Where one partition goes on at the next start; None where there is nothing to say."""

    flow: str
    topic: str
    partition: int
    position: int | None
    origin: Origin
    log_start: int | None = None
    log_end: int | None = None

    @property
    def to_copy(self) -> int | None:
        if self.log_end is None or self.log_start is None:
            return None
        return max(0, self.log_end - max(self.log_start, self.position or 0))

    def row(self) -> dict[str, str | int | None]:
        return {
            "flow": self.flow,
            "topic": self.topic,
            "partition": self.partition,
            "position": self.position,
            "by": self.origin,
            "source start": self.log_start,
            "source end": self.log_end,
            "to copy": self.to_copy,
        }


def position_of(known: Entry | None, stored: int | None, request: PositionRequest | None) -> tuple[int | None, Origin]:
    """By the ledger's entry, the stored position, and what somebody set."""
    if request is not None and request.holds(known, stored):
        return request.offset, Origin.RESET if request.offset is None else Origin.SET
    if stored is not None and (known is None or stored > known.source_offset):
        return stored, Origin.OTHERS
    return (None, Origin.NONE) if known is None else (known.source_offset, Origin.COPIED)


class ChangeOutcome(StrEnum):
    PLANNED = "planned"
    WRITTEN = "written"


@dataclass(frozen=True, slots=True, kw_only=True)
class PositionChange:
    """Of one partition's position."""

    place: PositionRow
    to: int | None
    """None: it begins as in a new flow."""
    note: str = ""
    outcome: ChangeOutcome = ChangeOutcome.PLANNED

    @property
    def where(self) -> PartitionName:
        return self.place.topic, self.place.partition

    @property
    def again(self) -> int | None:
        """Source offsets that were copied and will be once more."""
        before = self.place.position
        if self.to is None:
            return None
        return max(0, before - self.to) if before is not None else 0

    @property
    def left_out(self) -> int | None:
        """Source offsets that will not be copied."""
        if self.to is None or self.place.log_start is None:
            return None
        return max(0, self.to - max(self.place.log_start, self.place.position or 0))

    def row(self) -> dict[str, str | int | None]:
        return {
            "flow": self.place.flow,
            "topic": self.place.topic,
            "partition": self.place.partition,
            "position": self.place.position,
            "to": self.to,
            "copied again": self.again,
            "left out": self.left_out,
            "outcome": f"{self.outcome}{': ' + self.note if self.note else ''}",
        }


class FlowPositions(NamedTuple):
    """What is known of a flow's positions."""

    flow: Flow
    source: Cluster
    places: Mapping[PartitionName, PositionRow]
    ledger: Ledger


Planner = Callable[[FlowPositions], Awaitable[list[PositionChange]]]


# -- looking


class Listing(NamedTuple):
    places: list[PositionRow]
    problem: str = ""
    """Why the source's columns are empty."""


async def list_places(settings: Settings, flow: Flow) -> Listing:
    """Of all partitions that the flow copies, or has copied."""
    source, target = _clusters(settings, flow)
    problem = ""
    try:
        await target.refresh()
        try:
            await asyncio.wait_for(source.refresh(), SOURCE_PATIENCE_S)
        except (HeliographError, TimeoutError) as error:
            problem = f'{flow.name}: "{flow.source}" does not tell its topics: {str(error) or "no answer in time"}'
        view = await _look(flow, source, target, await _ledger_of(flow, target))
        return Listing([view.places[where] for where in sorted(view.places)], problem)
    finally:
        source.close()
        target.close()


def _clusters(settings: Settings, flow: Flow) -> tuple[Cluster, Cluster]:
    client_id = f"{flow.name}|positions"
    return (
        cluster_of(settings, flow, Role.SOURCE_ADMIN, client_id=client_id),
        cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=client_id),
    )


async def _ledger_of(flow: Flow, target: Cluster) -> Ledger:
    """Also of a flow that has not run yet: a position may have been set for it."""
    found = await store.find_ledger(target, flow)
    if found is None and flow.ledger_topic in target.catalogue.topics:
        found = await store.read_ledger(target, flow.ledger_topic, flow.group_id)
    return found or Ledger(group_id=flow.group_id)


async def _look(flow: Flow, source: Cluster, target: Cluster, ledger: Ledger) -> FlowPositions:
    stored: Mapping[PartitionName, int] = {}
    if (topic := flow.offset_storage_topic) in target.catalogue.topics:
        stored = (await store.read_positions(target, topic, flow.source, connector=flow.connector_name)).found
    partitions = _partitions(flow, source)
    selected = {(topic, index) for topic, number in partitions.items() for index in range(number)}
    mirrored = names_of(flow, {topic for topic, _ in stored})  # the rest is of mirrors that share the topic
    others = {where for where in stored if where[0] in mirrored}
    names = selected | ledger.entries.keys() | others | ledger.position_requests.keys()
    asked = [TopicPartition(*where) for where in names if source.catalogue.leader_of(*where) is not None]
    starts, ends = await asyncio.gather(list_offsets(source, asked, EARLIEST), list_offsets(source, asked, LATEST))
    first = {(at.topic, at.partition): answer.offset for at, answer in starts.items() if not answer.error_code}
    last = {(at.topic, at.partition): answer.offset for at, answer in ends.items() if not answer.error_code}
    places = {}
    for where in names:
        position, origin = position_of(
            ledger.entries.get(where), stored.get(where), ledger.position_requests.get(where)
        )
        places[where] = PositionRow(
            flow=flow.name,
            topic=where[0],
            partition=where[1],
            position=position,
            origin=origin,
            log_start=first.get(where),
            log_end=last.get(where),
        )
    return FlowPositions(flow, source, places, ledger)


def _partitions(flow: Flow, source: Cluster) -> dict[str, int]:
    """How many partitions each topic has that is mirrored."""
    topics = source.catalogue.topics
    return {topic: len(topics[topic].partitions) for topic in wanted_topics(flow, source.catalogue)}


# -- planning


def to_point(topic: str, partition: int | None, point: StartPoint | int) -> Planner:
    """Set a topic's positions, of one partition or all, to an offset or a start position."""

    async def plan(view: FlowPositions) -> list[PositionChange]:
        number = _partitions(view.flow, view.source).get(topic, 0)
        _refuse(view, [Given(topic, partition or 0, 0)])
        indexes = range(number) if partition is None else [partition]
        points = {
            (topic, index): StartPoint(offsets=((index, point),)) if isinstance(point, int) else point
            for index in indexes
        }
        return await _set_to(view, points)

    return plan


def to_given(given: Sequence[Given]) -> Planner:
    """Set and reset positions as a file has them."""

    async def plan(view: FlowPositions) -> list[PositionChange]:
        _refuse(view, given)
        points = {
            (topic, index): StartPoint(offsets=((index, position),))
            for topic, index, position in given
            if position is not None
        }
        resets = [(topic, index) for topic, index, position in given if position is None]
        return sorted([*await _set_to(view, points), *_reset(view, resets)], key=lambda change: change.where)

    return plan


def to_nothing(topic: str | None, partition: int | None) -> Planner:
    """Forget the positions of a flow, a topic or a partition: they begin as in a new flow."""

    async def plan(view: FlowPositions) -> list[PositionChange]:
        chosen = [
            where
            for where in sorted(view.places)
            if (topic is None or where[0] == topic) and (partition is None or where[1] == partition)
        ]
        if topic is not None and not chosen:
            _refuse(view, [Given(topic, partition or 0, 0)])
        return _reset(view, chosen)

    return plan


def _refuse(view: FlowPositions, given: Sequence[Given]) -> None:
    partitions = _partitions(view.flow, view.source)
    if faults := faulty_names(given, partitions):
        known = sorted(partitions)
        raise ConfigError(
            some_of(faults, separator="; "),
            where=view.flow.name,
            remedy=f"topics have their names of the source; mirrored are {some_of(known) or 'none'}",
        )


async def _set_to(view: FlowPositions, points: Mapping[PartitionName, StartPoint]) -> list[PositionChange]:
    is_committed = view.flow.isolation_level == "read_committed"
    found = await find_starts(points, view.source, read_committed=is_committed)
    if silent := sorted(points.keys() - found.keys()):
        names = some_of([f"{topic}-{partition}" for topic, partition in silent])
        raise ConfigError(
            f"{len(silent)} partitions have no leader: {names}", where=f'"{view.flow.source}"', remedy="try again later"
        )
    return [
        PositionChange(
            place=_with_log(view.places[where], found[where]), to=found[where].offset, note=found[where].note
        )
        for where in sorted(points)
    ]


def _with_log(place: PositionRow, found: Beginning) -> PositionRow:
    return replace(place, log_start=found.log_start, log_end=found.log_end)


def _reset(view: FlowPositions, partitions: Iterable[PartitionName]) -> list[PositionChange]:
    """Of those that have a position; the others begin as in a new flow anyway."""
    chosen = [view.places[where] for where in partitions if where in view.places]
    return [
        PositionChange(place=place, to=None, note=f"begins at {view.flow.start_positions.of(place.topic)}")
        for place in chosen
        if place.origin is not Origin.NONE
    ]


# -- acting


class ChangedPositions(NamedTuple):
    changes: list[PositionChange]
    leader: str = ""
    """Who seems to lead the flow, so that nothing could be written; known before an attempt only."""


async def plan_changes(settings: Settings, flow: Flow, plan: Planner) -> ChangedPositions:
    """What would be changed. Changes nothing."""
    source, target = _clusters(settings, flow)
    try:
        await asyncio.gather(source.refresh(), target.refresh())
        view = await _look(flow, source, target, await _ledger_of(flow, target))
        return ChangedPositions(await plan(view), _leader(view.ledger))
    finally:
        source.close()
        target.close()


def _leader(ledger: Ledger) -> str:
    lease = ledger.leadership.lease
    if lease is None or lease.state is LeaseState.RELEASED or lease.time_ms + lease.lease_ms < wall_ms():
        return ""
    return lease.holder.name


async def apply_changes(settings: Settings, flow: Flow, plan: Planner) -> ChangedPositions:
    """Change positions, if nobody leads the flow."""
    opened = OpenedFlow(flow, settings, is_local=True)
    try:
        async with _leading(opened) as lease_holder:
            view = await _look(flow, opened.source, opened.target, opened.ledger)
            changes = await plan(view)
            if changes:
                await _write(opened, lease_holder, changes)
        return ChangedPositions([replace(change, outcome=ChangeOutcome.WRITTEN) for change in changes])
    finally:
        opened.close()


async def _write(opened: OpenedFlow, lease_holder: LeaseHolder, changes: Sequence[PositionChange]) -> None:
    """MirrorMaker 2's positions first: once the request is there they must not look like another tool's."""
    now_ms = wall_ms()
    lease_holder.check()
    positions = {change.where: change.to or 0 for change in changes}
    await store.write_positions(opened.target, opened.terms(), positions)
    lease_holder.check()
    requests = [PositionRequest(topic=c.where[0], partition=c.where[1], time_ms=now_ms, offset=c.to) for c in changes]
    await store.write_records(opened.target, opened.ledger_topic, opened.flow.group_id, requests, now_ms=now_ms)


@asynccontextmanager
async def _leading(opened: OpenedFlow) -> AsyncIterator[LeaseHolder]:
    """Lead a flow that nobody leads."""
    await opened.open()
    lease_holder = opened.lease_holder = LeaseHolder(opened, this_process(), lease_ms=lambda: LEASE_MS)
    before = opened.ledger.leadership.lease
    while not lease_holder.may_bid():
        await asyncio.sleep(LOOK_S)
        await store.read_on(opened.target, opened.ledger_topic, opened.ledger)
        if opened.ledger.leadership.lease != before and not lease_holder.may_bid():
            raise _led(opened, lease_holder)
    if not await lease_holder.bid():
        raise _led(opened, lease_holder)
    try:
        yield lease_holder
    finally:
        await lease_holder.release()


def _led(opened: OpenedFlow, lease_holder: LeaseHolder) -> LeaseLost:
    return LeaseLost(
        f"positions are not changed: {lease_holder.other() or 'another process'} leads the flow",
        where=opened.name,
        why="it has them in memory",
        remedy="stop it first; positions that are set take effect at the next start",
    )
