"""Sync consumer groups: their commits on the source become checkpoints, and if wished offsets, on the target.

A pass reads what the groups committed, waits until the lanes have written down what they copied by
then, and translates through the ledger. `plan_checkpoints` decides which translations are news.

`read` does less, and more often: whatever the intervals are, it keeps in the ledger what the groups committed, so
that a group is known when the source is gone.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.config.files.parts import ConnectorState
from heliograph.config.settings import Checkpoints, Flow
from heliograph.control.group_sync import GroupSync
from heliograph.control.groups_left_out import LeftOut, encode_checkpoints
from heliograph.control.offset_syncs import OffsetSyncSync
from heliograph.errors import NameRefused
from heliograph.flow.flow import FlowDriver
from heliograph.flow.flow_names import tell_refused
from heliograph.flow.required_topics import checkpoints_topic
from heliograph.kafka.admin.commits import Commit, fetch_commits
from heliograph.kafka.admin.groups import DEAD, GroupListing, describe_groups, list_groups
from heliograph.kafka.admin.topics import EARLIEST, list_offsets
from heliograph.kafka.log import append_apart
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.copy_names import plan_groups
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.group_pass import GroupPass, PassKind
from heliograph.ledger.records.seen_group import DELETED, GroupCommit, SeenGroup
from heliograph.ledger.translation import (
    Grade,
    JointTranslation,
    Syncs,
    Translation,
    lowest_translations,
    neighbours_in,
    uncommitted,
)
from heliograph.processor_time import Cost, stretched_s

log = logging.getLogger("heliograph")

CATCH_UP_S = 2.0
"""Longest time that a pass waits for lanes to write down what a group has read already."""
_LOOK_AGAIN_S = 0.1
READ_S = 1.0
"""How often commits are read, unless that costs more than its share."""
READ_SHARE = 0.03
"""At most so much of one core goes to reading commits. Measured on real brokers, idle and with all groups moved: 100
groups of 3 partitions take 5 and 7 ms of processor time, 1,000 take 37 and 51 ms, with 10 partitions 97 and 154 ms."""
TOLD_S = 2.0
"""How often the ledger is told of a pass, at most."""

GroupPartition = tuple[str, TopicPartition]
"""(group, partition), both by their names on the target"""


class GroupPosition(NamedTuple):
    """A group's place in one partition."""

    upstream: int
    downstream: int
    metadata: str
    mirrored_end: int
    """Where the copy ends on the target: no checkpoint may lead past it."""
    is_shared: bool = False
    """The lowest of several, whose copies share the partition: `upstream` may be another one's the next time."""
    is_exact: bool = False
    """The ledger knows where this very record stands."""


def group_position(
    commits: Mapping[TopicPartition, Commit], found: JointTranslation, ends: Mapping[TopicPartition, int]
) -> GroupPosition:
    """Return a group's position in one partition of the target; `ends` are where the copies end there."""
    commit = commits[found.lowest]
    return GroupPosition(
        commit.offset,
        found.offset,
        commit.metadata,
        max(ends[where] for where in found.parts),
        is_shared=found.is_shared,
        is_exact=found.parts[found.lowest].grade is Grade.EXACT,
    )


def plan_checkpoints(
    positions: Mapping[GroupPartition, GroupPosition], last: Mapping[GroupPartition, Checkpoint]
) -> list[Checkpoint]:
    """Checkpoints that are news: forward on the target, or back because the group went back on the source.

    MirrorMaker 2's rule, and three more: a checkpoint past what is mirrored (the target lost records) is taken back, so
    is one that the ledger knows to lead too far (the target's topic was made anew and filled again), and where source
    partitions share one of the target, their offsets on the source say nothing to each other.
    """
    news = []
    for (group, where), position in positions.items():
        before = last.get((group, where))
        if (
            before is None
            or position.upstream < before.upstream
            or position.downstream > before.downstream
            or ((position.is_shared or position.is_exact) and position.downstream < before.downstream)
            or before.downstream > position.mirrored_end
        ):
            news.append(
                Checkpoint(
                    group=group,
                    topic=where.topic,
                    partition=where.partition,
                    upstream=position.upstream,
                    downstream=position.downstream,
                    metadata=position.metadata,
                )
            )
    return news


class DueTime:
    """Tells when a job that shares its loop with another is due.

    A step comes a little early or late, and never just when a job is due: the nearest step is the job's. To ask for
    the exact time would leave a step out whenever it is quicker than the one before.
    """

    def __init__(self) -> None:
        self._due = 0.0

    def is_at(self, step: float, *, every_s: float) -> bool:
        """Whether a step is the job's, where steps are so far apart."""
        return step + every_s / 2 >= self._due

    def take(self, step: float, *, interval_s: float) -> None:
        following = self._due + interval_s
        self._due = following if following > step else step + interval_s


class _Selection(NamedTuple):
    """The selected groups of the source: patterns are matched again only when there are other groups."""

    flow: Flow
    among: set[str]
    names: list[str]


class GroupCheckpoints:
    """Syncs the groups of one flow: reads their commits, emits checkpoints, writes offsets."""

    def __init__(self, flow: FlowDriver, syncs: OffsetSyncSync) -> None:
        self._flow = flow
        self._syncs = syncs
        self._sync = GroupSync(flow)
        self._groups: dict[str, SeenGroup] | None = None
        """The groups that are synced, as they were last described."""
        self._listed: dict[str, GroupListing] | None = None
        """The groups whose commits are read, as they were last listed."""
        self._selection: _Selection | None = None
        self._names: dict[str, str] = {}
        """The names of these groups on the target."""
        self._refused: dict[str, NameRefused] = {}
        self._last: dict[GroupPartition, Checkpoint] | None = None
        self._emission, self._writing = DueTime(), DueTime()
        self._failed: frozenset[str] = frozenset()
        self._unkept = LeftOut(flow.name, "written down in the ledger")
        self._unchecked = LeftOut(flow.name, "given checkpoints")
        self._is_slow = False
        self._read_cost = Cost()
        self._told: dict[PassKind, float] = {}
        """When the ledger was last told of a pass."""
        self.skipped = 0
        """Records of the checkpoints topic that are no checkpoints."""

    @property
    def settings(self) -> Checkpoints | None:
        """The settings of checkpoints; None while no group is to be synced."""
        found = self._flow.flow.checkpoints
        return found if found is not None and found.state is ConnectorState.RUNNING else None

    def interval_s(self) -> float | None:
        settings = self.settings
        if settings is None:
            return None
        wanted = [
            settings.interval_s,
            *([settings.sync_group_offsets_interval_s] if settings.sync_group_offsets else []),
        ]
        return float(min(wanted))

    def refresh_interval_s(self) -> float | None:
        settings = self.settings
        if settings is None or (self._groups is not None and not settings.refresh_groups_enabled):
            return None
        return float(settings.refresh_groups_interval_s)

    def read_interval_s(self) -> float | None:
        """Return how often commits are read: also while groups are not synced because that is paused."""
        found = self._flow.flow.checkpoints
        if found is None or found.state is ConnectorState.STOPPED:
            return None
        return stretched_s(READ_S, cost_s=self._read_cost.last_s, share=READ_SHARE)

    # -- commits ---------------------------------------------------------------------------

    async def read(self) -> None:
        """Read what the groups committed and write down what changed, for the day when the source cannot be asked."""
        with self._read_cost.measure():
            began_ms = wall_ms()
            listed = await self._list()
            commits = await self._commits(listed)
            found = [self._seen(listed[group], commits[group], began_ms) for group in commits]
            known = self._flow.ledger.groups
            moved = [group for group in found if is_news(group, known.get(group.group))]
            every_s = self.read_interval_s() or READ_S
            await self._write_down([*moved, *self._passes(PassKind.COMMITS, len(listed), every_s=every_s)])

    async def _list(self) -> dict[str, GroupListing]:
        """List the selected groups; without `refresh.groups.enabled` those that were there at first."""
        settings, flow = self._flow.flow.checkpoints, self._flow
        if self._listed is not None and settings is not None and not settings.refresh_groups_enabled:
            return self._listed
        there = await list_groups(flow.source)
        if self._selection is None or self._selection.flow is not flow.flow or self._selection.among != there.keys():
            known = {name for name, seen in flow.ledger.groups.items() if seen.state != DELETED}
            names = plan_groups(flow.flow, [*there, *(known - there.keys())], known=known).wanted
            self._selection = _Selection(flow.flow, set(there), [name for name in there if name in names])
        self._listed = {name: there[name] for name in self._selection.names}
        return self._listed

    def _seen(self, found: GroupListing, commits: Mapping[TopicPartition, Commit], time_ms: int) -> SeenGroup:
        """Make the ledger's record of a group with its commits, and its members as far as they were described."""
        described = (self._groups or {}).get(found.group_id)
        return SeenGroup(
            group=found.group_id,
            state=found.state or (described.state if described is not None else ""),
            kind=found.kind,
            time_ms=time_ms,
            members=described.members if described is not None else (),
            commits={where: GroupCommit(commit.offset, commit.metadata) for where, commit in commits.items()},
        )

    def _passes(self, kind: PassKind, groups: int, *, every_s: float) -> list[GroupPass]:
        """Make the ledger's record that a pass was made; none if one was written a moment ago."""
        now = time.monotonic()
        if now - self._told.get(kind, float("-inf")) < TOLD_S:
            return []
        self._told[kind] = now
        return [GroupPass(kind=kind, time_ms=wall_ms(), every_ms=round(every_s * 1000), groups=groups)]

    # -- groups ----------------------------------------------------------------------------

    async def refresh_groups(self) -> None:
        """List and describe the source's groups; log those that are gone."""
        settings = self.settings
        if settings is None:
            return
        flow = self._flow
        there = await list_groups(flow.source)
        before = self._groups if self._groups is not None else flow.ledger.groups
        known = {name: seen for name, seen in before.items() if seen.state != DELETED}
        names, refused = plan_groups(flow.flow, [*there, *(known.keys() - there)], known=known)
        listed = {name: found for name, found in there.items() if name in names}
        described = await describe_groups(flow.source, {name: found.kind for name, found in listed.items()})
        now_ms = wall_ms()
        groups: dict[str, SeenGroup] = {}
        for name, found in listed.items():
            commits = before[name].commits if name in before else {}
            groups[name] = SeenGroup.of(found, described.found.get(name), commits, time_ms=now_ms)
        absent = {name: seen for name, seen in known.items() if name not in groups and name in names}
        groups |= await self._still_there(absent, now_ms)
        tell_refused(flow.name, "group", "synced", self._refused, refused)
        self._groups, self._names, self._refused = groups, names, refused

    async def _still_there(self, absent: Mapping[str, SeenGroup], now_ms: int) -> dict[str, SeenGroup]:
        """Return the unlisted groups that are not said to be gone: a coordinator may be away."""
        flow = self._flow
        answers = await describe_groups(flow.source, {name: seen.kind for name, seen in absent.items()})
        gone = [name for name, found in answers.found.items() if found.state == DEAD]
        self._forget(gone)
        for name in gone:
            log.warning(
                '%s: group "%s" is gone from "%s"; its offsets on "%s" stay as they are',
                *(flow.name, name, flow.flow.source, flow.flow.target),
            )
        await self._write_down(
            [SeenGroup(group=name, state=DELETED, kind=absent[name].kind, time_ms=now_ms) for name in gone]
        )
        return {name: seen for name, seen in absent.items() if name not in gone}

    def _forget(self, gone: Iterable[str]) -> None:
        """Forget what is known of groups that are gone: groups come and go for ever."""
        there = {self._names.get(name, name) for name in gone}
        self._unkept.forget(gone)
        self._unchecked.forget(there)
        if self._last is not None:
            self._last = {place: item for place, item in self._last.items() if place[0] not in there}

    # -- a pass ----------------------------------------------------------------------------

    async def sync(self) -> None:
        """Translate the commits of all groups; emit checkpoints and write offsets as they are due."""
        settings, every_s, began = self.settings, self.interval_s(), time.monotonic()
        if settings is None or every_s is None:
            return
        if self._groups is None:
            await self.refresh_groups()
        commits = await self._commits(self._groups or ())
        waited_s = await self._until_written_down(commits)
        positions = self._standings(commits, await self._target_starts(commits))
        work = []
        if self._emission.is_at(began, every_s=every_s):
            work.append(self._emit(settings, positions, began))
        if settings.sync_group_offsets and self._writing.is_at(began, every_s=every_s):
            work.append(self._write_offsets(settings, positions, began))
        for outcome in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(outcome, BaseException):
                raise outcome
        await self._write_down(self._passes(PassKind.CHECKPOINTS, len(commits), every_s=every_s))
        self._tell_time(len(commits), time.monotonic() - began - waited_s)

    def _tell_time(self, groups: int, seconds: float) -> None:
        """Log once that a sync takes longer than its interval, waiting for lanes not counted."""
        self._flow.groups_told = f"{groups:,} groups synced in {seconds:.2f} s" if groups else ""
        interval = self.interval_s()
        is_slow = interval is not None and seconds > interval
        if is_slow and not self._is_slow:
            log.warning(
                "%s: syncing %d groups took %.1f s, longer than the interval of %.0f s: offsets are older by that",
                *(self._flow.name, groups, seconds, interval),
            )
        self._is_slow = is_slow

    async def _commits(self, groups: Iterable[str]) -> dict[str, dict[TopicPartition, Commit]]:
        """Fetch what the groups committed on topics that are mirrored."""
        flow = self._flow
        asked = set(groups)
        answers = await fetch_commits(flow.source, asked)
        for group, error in answers.failed.items():
            if group not in self._failed:
                log.warning('%s: group "%s" is not synced: %s', flow.name, group, error)
        for group in sorted((self._failed & asked) - answers.failed.keys()):
            log.info('%s: group "%s" is synced again', flow.name, group)
        unasked = (self._failed - asked) & (self._listed or {}).keys()
        self._failed = unasked | answers.failed.keys()
        mirrored = flow.entries.keys() & flow.ledger.partitions.keys()
        found = {
            group: {where: commit for where, commit in commits.items() if (where.topic, where.partition) in mirrored}
            for group, commits in answers.found.items()
        }
        await self._add_starts(found)
        return {group: commits for group, commits in found.items() if commits}

    async def _add_starts(self, commits: dict[str, dict[TopicPartition, Commit]]) -> None:
        """Where source partitions share one of the target, a group without a commit stands at the source's start, or
        at 0, which is before it, if nobody tells."""
        neighbours = neighbours_in(self._flow.ledger.entries)
        missing = {group: uncommitted(found, neighbours) for group, found in commits.items()} if neighbours else {}
        starts = await list_offsets(self._flow.source, set().union(*missing.values()), EARLIEST) if missing else {}
        for group, wanted in missing.items():
            commits[group] |= {where: Commit(max(0, starts[where].offset)) for where in wanted}

    async def _until_written_down(self, commits: Mapping[str, Mapping[TopicPartition, Commit]]) -> float:
        """Lanes write the ledger once a flush interval: a group right behind them seems to be ahead until then.

        How long that took, in seconds.
        """
        began = time.monotonic()
        wanted: dict[PartitionName, int] = {}
        for found in commits.values():
            for (topic, partition), commit in found.items():
                wanted[topic, partition] = max(commit.offset, wanted.get((topic, partition), 0))
        give_up = began + min(CATCH_UP_S, 1.5 * self._flow.flow.offset_flush_interval_ms / 1000 + 0.3)
        while any(offset > self._position(where) for where, offset in wanted.items()) and time.monotonic() < give_up:
            await asyncio.sleep(_LOOK_AGAIN_S)
        return time.monotonic() - began

    def _position(self, where: PartitionName) -> int:
        known = self._flow.ledger.partitions.get(where)
        return known.entry.source_offset if known is not None and known.entry is not None else 0

    async def _target_starts(
        self, commits: Mapping[str, Mapping[TopicPartition, Commit]]
    ) -> dict[TopicPartition, tuple[TopicPartition, int]]:
        """Find for each partition with commits its target partition and that log's start; 0 if nobody says."""
        ledger = self._flow.ledger
        wanted = {
            where: TopicPartition(self._flow.flow.remote_topic(where.topic), ledger.target_partition(where))
            for where in {where for found in commits.values() for where in found}
        }
        starts = await list_offsets(self._flow.target, set(wanted.values()), EARLIEST)
        return {where: (remote, max(0, starts[remote].offset)) for where, remote in wanted.items()}

    def _standings(
        self,
        commits: Mapping[str, Mapping[TopicPartition, Commit]],
        targets: Mapping[TopicPartition, tuple[TopicPartition, int]],
    ) -> dict[GroupPartition, GroupPosition]:
        """Translate commits to within what the target has: not before its log's start, not past what is mirrored."""
        entries, syncs = self._flow.ledger.entries, self._syncs_that_count()
        positions: dict[GroupPartition, GroupPosition] = {}
        ends = {
            where: max(start, entries[where].target_offset) for where, (_, start) in targets.items() if where in entries
        }
        for group, found in commits.items():
            name = self._names.get(group)
            if name is None:
                continue
            translations: dict[TopicPartition, Translation | None] = {}
            for where, commit in found.items():
                one = self._flow.ledger.translate(where, commit.offset, syncs=syncs) if where in ends else None
                translations[where] = one.within(targets[where][1], ends[where]) if one is not None else None
            joint = lowest_translations(translations, lambda where: targets[where][0])
            for remote, lowest in joint.items():
                positions[name, remote] = group_position(found, lowest, ends)
        return positions

    def _syncs_that_count(self) -> Syncs | None:
        """Return the offset syncs if MirrorMaker 2's rule translates."""
        return self._syncs.stores if self._flow.flow.translates_by_syncs else None

    async def _write_down(self, seen: Sequence[SeenGroup | GroupPass]) -> None:
        """Write to the ledger; a group whose record is too large for it is left out alone."""
        flow, topic = self._flow, self._flow.ledger_topic
        group_id, now_ms = flow.flow.group_id, wall_ms()
        groups = {item.group: [item.encode(group_id)] for item in seen if isinstance(item, SeenGroup)}
        if groups:
            refused = await append_apart(flow.target, topic, 0, groups, suspects=self._unkept.groups, now_ms=now_ms)
            self._unkept.note(groups, self._unkept.too_large(groups, refused, topic))
        if passes := [item for item in seen if isinstance(item, GroupPass)]:
            await store.write_records(flow.target, topic, group_id, passes, now_ms=now_ms)

    # -- checkpoints -----------------------------------------------------------------------

    async def _write_offsets(
        self, settings: Checkpoints, positions: Mapping[GroupPartition, GroupPosition], began: float
    ) -> None:
        await self._sync.sync(_offsets_of(positions))
        self._writing.take(began, interval_s=settings.sync_group_offsets_interval_s)

    async def _emit(
        self, settings: Checkpoints, positions: Mapping[GroupPartition, GroupPosition], began: float
    ) -> None:
        flow = self._flow
        topic = flow.flow.checkpoints_topic
        if self._last is None:
            await store.ensure_topics(flow.target, [checkpoints_topic(flow.flow, settings)], vital={topic})
            checkpoints, unread = await store.read_parsed(flow.target, topic, Checkpoint.parse)
            self.skipped = unread.number
            store.tell_refused(flow.name, unread)
            self._last = last_of(checkpoints)
        news = plan_checkpoints(positions, self._last)
        if news:
            records, failed = encode_checkpoints(news)
            refused = await append_apart(
                flow.target, topic, 0, records, suspects=self._unchecked.groups, now_ms=wall_ms()
            )
            failed |= self._unchecked.too_large(records, refused, topic)
            self._unchecked.note({item.group for item in news}, failed)
            self._last |= last_of(item for item in news if item.group not in failed)
        self._emission.take(began, interval_s=settings.interval_s)


def is_news(found: SeenGroup, known: SeenGroup | None) -> bool:
    """Whether a group is not as the ledger has it; one that was deleted since it was looked at is no news."""
    if known is None:
        return True
    if known.state == DELETED and known.time_ms >= found.time_ms:
        return False
    return (found.commits, found.state, found.members) != (known.commits, known.state, known.members)


def last_of(checkpoints: Iterable[Checkpoint]) -> dict[GroupPartition, Checkpoint]:
    """Give the last checkpoint of each group and partition."""
    return {(item.group, TopicPartition(item.topic, item.partition)): item for item in checkpoints}


def _offsets_of(positions: Mapping[GroupPartition, GroupPosition]) -> dict[str, dict[TopicPartition, Commit]]:
    offsets: dict[str, dict[TopicPartition, Commit]] = {}
    for (group, where), position in positions.items():
        offsets.setdefault(group, {})[where] = Commit(position.downstream, position.metadata)
    return offsets
