"""Consumer groups on both clusters of a flow, side by side: where they are, where they would go on.

The source is asked if it answers; if it does not, what was last seen of it stands on the target.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError
from heliograph.kafka.admin.commits import Commit, fetch_commits
from heliograph.kafka.admin.groups import GroupDescription, describe_groups, list_groups
from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.copy_names import GroupPlan, plan_groups
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.group_pass import PassKind
from heliograph.ledger.records.seen_group import DELETED, GroupCommit, GroupMember, SeenGroup
from heliograph.ledger.translation import (
    Grade,
    Neighbours,
    Syncs,
    Translation,
    lowest_translations,
    neighbours_in,
    uncommitted,
)
from heliograph.names.filters import NameFilter

SOURCE_PATIENCE_S = 8.0
"""A source that does not answer by then counts as gone."""
UNKNOWN = "-"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlace:
    """One partition of a group, on both sides; None where there is nothing to say."""

    topic: str
    partition: int
    target_partition: int
    source_committed: int
    source_end: int | None
    mirrored: int
    """The next source offset to be copied."""
    translated: int | None
    grade: str
    target_committed: int | None
    target_end: int | None
    reread: int | None
    """Records that the group would read again if it moved to the target now."""

    @property
    def source_lag(self) -> int | None:
        return None if self.source_end is None else max(0, self.source_end - self.source_committed)

    @property
    def target_lag(self) -> int | None:
        if self.target_end is None or self.target_committed is None:
            return None
        return max(0, self.target_end - self.target_committed)


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """One group of one flow."""

    flow: str
    group: str
    target_group: str
    """Its name on the target."""
    source_state: str
    source_members: tuple[GroupMember, ...]
    unconsumed: int
    """Partitions of the source that no member reads."""
    seen_s: float | None
    """How old what is known of the source is; None if it answered just now."""
    read_every_s: float | None
    """How often the mirror reads the commits of the flow's groups; None if that is not known."""
    target_state: str
    target_members: int
    places: tuple[GroupPlace, ...]

    @property
    def reread(self) -> int | None:
        known = [place.reread for place in self.places if place.reread is not None]
        return sum(known) if len(known) == len(self.places) else None

    def row(self) -> dict[str, str | int | float | None]:
        return {
            "flow": self.flow,
            "group": self.group,
            "target group": self.target_group,
            "source state": self.source_state,
            "members": len(self.source_members),
            "client ids": ", ".join(sorted({member.client_id for member in self.source_members})) or None,
            "unconsumed partitions": self.unconsumed,
            "seen": "now" if self.seen_s is None else f"{self.seen_s:.0f} s ago",
            "target state": self.target_state,
            "target members": self.target_members,
            "would re-read now": self.reread,
            "commits read every s": self.read_every_s,
        }

    def place_rows(self) -> list[dict[str, str | int | float | None]]:
        return [
            {
                "group": self.group,
                "topic": place.topic,
                "partition": place.partition,
                "target partition": place.target_partition,
                "source committed": place.source_committed,
                "source end": place.source_end,
                "source lag": place.source_lag,
                "mirrored": place.mirrored,
                "translated": place.translated,
                "translation": place.grade,
                "target committed": place.target_committed,
                "target end": place.target_end,
                "target lag": place.target_lag,
                "would re-read now": place.reread,
            }
            for place in self.places
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """The source's side, live or as last seen."""

    groups: Mapping[str, SeenGroup]
    names: GroupPlan
    """The groups' names on the target."""
    ends: Mapping[PartitionName, int]
    unconsumed: Mapping[str, int]
    is_live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class _Target:
    groups: Mapping[str, GroupDescription]
    commits: Mapping[str, Mapping[TopicPartition, Commit]]
    starts: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, int]


class GroupViews(NamedTuple):
    views: list[GroupView]
    problems: list[str]
    """Flows that cannot be shown, groups that are not synced, offset syncs that cannot be read, and why."""


async def read_groups(settings: Settings, *, wanted: NameFilter | None = None) -> GroupViews:
    """All groups that flows carry over. A flow whose target does not answer hides no other."""
    found = await asyncio.gather(*(_flow_groups(flow, settings, wanted) for flow in settings.enabled_flows))
    return GroupViews(
        [view for part in found for view in part.views], [text for part in found for text in part.problems]
    )


async def _flow_groups(flow: Flow, settings: Settings, wanted: NameFilter | None) -> GroupViews:
    try:
        views = await _read_flow(flow, settings, wanted)
    except HeliographError as error:
        return GroupViews([], [f"{flow.name}: {error}"])
    return GroupViews([], [f"{flow.name}: it has not run yet"]) if views is None else views


async def _read_flow(flow: Flow, settings: Settings, wanted: NameFilter | None) -> GroupViews | None:
    """None if the flow has never run."""
    source_cluster = cluster_of(settings, flow, Role.SOURCE_ADMIN, client_id=f"{flow.name}|groups")
    target_cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{flow.name}|groups")
    try:
        await target_cluster.refresh()
        ledger = await store.find_ledger(target_cluster, flow)
        if ledger is None:
            return None
        source = await _look_at_source(flow, source_cluster, ledger, wanted)
        target = await _look_at_target(flow, target_cluster, ledger, source)
        problems = [f"not carried over: {error}" for _, error in sorted(source.names.refused.items())]
        on_source = flow.offset_syncs.location == "source"
        with_syncs = source_cluster if on_source else target_cluster
        syncs = await _read_syncs(flow, with_syncs, problems, answers=source.is_live or not on_source)
    finally:
        source_cluster.close()
        target_cluster.close()
    sides = _Sides(flow, ledger, syncs, source, target, neighbours_in(ledger.entries))
    return GroupViews([sides.view(group) for _, group in sorted(source.groups.items())], problems)


async def _read_syncs(flow: Flow, cluster: Cluster, problems: list[str], *, answers: bool) -> Syncs | None:
    """Read the offset syncs if MirrorMaker 2's rule translates; None: the ledger does.

    Where they cannot be read the ledger does too, and that is added to the problems.
    """
    if not flow.translates_by_syncs:
        return None
    why = "it does not answer"
    try:
        if answers:
            return (await store.read_syncs(cluster, flow.offset_syncs_topic))[0]
    except HeliographError as error:
        why = str(error)
    problems.append(f'{flow.name}: offset syncs on "{cluster.alias}" cannot be read, so the ledger translates: {why}')
    return None


def _names(flow: Flow, ledger: Ledger, wanted: NameFilter | None, groups: Iterable[str]) -> GroupPlan:
    """Those of the groups that are asked for, by either of their names."""
    known = {name for name, seen in ledger.groups.items() if seen.state != DELETED}
    names, refused = plan_groups(flow, groups, known=known)
    if wanted is None:
        return GroupPlan(names, refused)
    asked = {name: there for name, there in names.items() if wanted.accepts(name) or wanted.accepts(there)}
    return GroupPlan(asked, {name: error for name, error in refused.items() if wanted.accepts(name)})


async def _look_at_source(flow: Flow, cluster: Cluster, ledger: Ledger, wanted: NameFilter | None) -> _Source:
    try:
        return await asyncio.wait_for(_ask_source(flow, cluster, ledger, wanted), SOURCE_PATIENCE_S)
    except (HeliographError, TimeoutError):
        names = _names(flow, ledger, wanted, ledger.groups)
        groups = {name: group for name, group in ledger.groups.items() if name in names.wanted}
        return _Source(
            groups=groups,
            names=names,
            ends={where: end.offset for where, end in ledger.log_ends.items() if end.offset >= 0},
            unconsumed={
                name: max(0, len(group.commits) - sum(member.partitions for member in group.members))
                for name, group in groups.items()
            },
            is_live=False,
        )


async def _ask_source(flow: Flow, cluster: Cluster, ledger: Ledger, wanted: NameFilter | None) -> _Source:
    await cluster.refresh()
    there = await list_groups(cluster)
    plan = _names(flow, ledger, wanted, [*there, *(ledger.groups.keys() - there)])
    listed = {name: found for name, found in there.items() if name in plan.wanted}
    described = await describe_groups(cluster, {name: found.kind for name, found in listed.items()})
    commits = await fetch_commits(cluster, list(listed))
    names = [TopicPartition(*where) for where in ledger.partitions]
    answers = await list_offsets(cluster, names, LATEST)
    neighbours = neighbours_in(ledger.entries)
    starts = await list_offsets(cluster, [TopicPartition(*where) for where in neighbours], EARLIEST)
    now_ms = wall_ms()
    groups: dict[str, SeenGroup] = {}
    unconsumed: dict[str, int] = {}
    for name, found in listed.items():
        has = {
            where: GroupCommit(commit.offset, commit.metadata)
            for where, commit in commits.found.get(name, {}).items()
            if (where.topic, where.partition) in ledger.partitions
        }
        if not has:
            continue
        detail = described.found.get(name)
        begun = {where: GroupCommit(max(0, starts[where].offset), "") for where in uncommitted(has, neighbours)}
        groups[name] = SeenGroup.of(found, detail, has | begun, time_ms=now_ms)
        read = {where for member in (detail.members if detail else ()) for where in member.partitions}
        unconsumed[name] = len(has.keys() - read)
    gone = {name: group for name, group in ledger.groups.items() if name not in listed and name in plan.wanted}
    ends = {(at.topic, at.partition): answer.offset for at, answer in answers.items() if not answer.error_code}
    return _Source(groups={**gone, **groups}, names=plan, ends=ends, unconsumed=unconsumed, is_live=True)


async def _look_at_target(flow: Flow, cluster: Cluster, ledger: Ledger, source: _Source) -> _Target:
    wanted = {source.names.wanted[name] for name in source.groups}
    listed = {name: found for name, found in (await list_groups(cluster)).items() if name in wanted}
    described = await describe_groups(cluster, {name: found.kind for name, found in listed.items()})
    commits = await fetch_commits(cluster, list(listed))
    names = {TopicPartition(flow.remote_topic(where[0]), ledger.target_partition(where)) for where in ledger.partitions}
    names = {where for where in names if where.topic in cluster.catalogue.topics}
    starts, ends = await list_offsets(cluster, names, EARLIEST), await list_offsets(cluster, names, LATEST)
    return _Target(
        groups=described.found,
        commits=commits.found,
        starts={where: answer.offset for where, answer in starts.items() if not answer.error_code},
        ends={where: answer.offset for where, answer in ends.items() if not answer.error_code},
    )


@dataclass(frozen=True, slots=True)
class _Sides:
    """All that is known of one flow."""

    flow: Flow
    ledger: Ledger
    syncs: Syncs | None
    """What translates with `offset.translation=mm2`."""
    source: _Source
    target: _Target
    neighbours: Neighbours

    def view(self, group: SeenGroup) -> GroupView:
        name = self.source.names.wanted[group.group]
        there, commits = self.target.groups.get(name), self.target.commits.get(name, {})
        reading = self.ledger.passes.get(PassKind.COMMITS)
        read_ms = reading.time_ms if reading is not None else self.ledger.contact_ms
        last_seen_s = time.time() - max(group.time_ms, read_ms) / 1000
        return GroupView(
            flow=self.flow.name,
            group=group.group,
            target_group=name,
            source_state=group.state or UNKNOWN,
            source_members=group.members,
            unconsumed=self.source.unconsumed.get(group.group, 0),
            seen_s=None if self.source.is_live else max(0.0, last_seen_s),
            read_every_s=reading.every_ms / 1000 if reading is not None else None,
            target_state=there.state if there is not None else "none",
            target_members=len(there.members) if there is not None else 0,
            places=self._places(group, commits),
        )

    def _places(self, group: SeenGroup, there: Mapping[TopicPartition, Commit]) -> tuple[GroupPlace, ...]:
        own = {where: self._translated(where, commit.offset) for where, commit in sorted(group.commits.items())}
        joint = lowest_translations(own, self._target_of)
        lowest = {target: found.offset for target, found in joint.items()}
        return tuple(
            self._place(where, group.commits[where].offset, own[where], lowest.get(self._target_of(where)), there)
            for where in own
        )

    def _target_of(self, where: PartitionName) -> TopicPartition:
        return TopicPartition(self.flow.remote_topic(where[0]), self.ledger.target_partition(where))

    def _translated(self, where: PartitionName, committed: int) -> Translation | None:
        at, translation = self._target_of(where), self.ledger.translate(where, committed, syncs=self.syncs)
        start, end = self.target.starts.get(at), self.target.ends.get(at)
        if translation is None or start is None or end is None:
            return translation
        return translation.within(start, end)

    def _place(
        self,
        where: PartitionName,
        committed: int,
        own: Translation | None,
        lowest: int | None,
        there: Mapping[TopicPartition, Commit],
    ) -> GroupPlace:
        at = self._target_of(where)
        start, end = self.target.starts.get(at), self.target.ends.get(at)
        goes_on = there[at].offset if at in there else start
        known = self.ledger.partitions.get(where)
        entry = known.entry if known is not None else None
        return GroupPlace(
            topic=where[0],
            partition=where[1],
            target_partition=at.partition,
            source_committed=committed,
            source_end=self.source.ends.get(where),
            mirrored=entry.source_offset if entry is not None else 0,
            translated=lowest,
            grade=self._grade(where, own, lowest),
            target_committed=there[at].offset if at in there else None,
            target_end=end,
            reread=self._reread(where, own.offset, goes_on) if own is not None and goes_on is not None else None,
        )

    def _grade(self, where: PartitionName, own: Translation | None, lowest: int | None) -> Grade:
        if own is None or lowest is None:
            return Grade.DEGRADED
        return Grade.SHARED if self._reread(where, own.offset, lowest) else own.grade

    def _reread(self, where: PartitionName, translated: int, goes_on: int) -> int:
        """Between where the group goes on and where it should, other partitions may have records too."""
        if where in self.neighbours:
            return self.ledger.partition(where).copied_between(goes_on, translated)
        return max(0, translated - goes_on)
