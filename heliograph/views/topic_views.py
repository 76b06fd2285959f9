"""Topics of a flow as people want to see them: how each stands on both clusters, and why. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite
from typing import NamedTuple

from heliograph.config.settings import Flow
from heliograph.errors import ConfigError, NameRefused
from heliograph.ledger.copy_names import Rank, maybe_remote, names_of, plan_names
from heliograph.ledger.kept_troubles import Troubles
from heliograph.ledger.loss_outcomes import FLOW_STOPPED, PARTITION_STOPPED
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_remap import SAME, target_partition
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.trouble import WHOLE_TOPIC
from heliograph.names.filters import NameFilter
from heliograph.names.policies import is_cycle, is_own_internal_topic
from heliograph.views.differences import ConfigDifference
from heliograph.views.rows import Row


class TopicState(StrEnum):
    """The state of a partition or a topic, the worst first."""

    STOPPED = "stopped"
    REFUSED = "refused"
    WAITING = "waiting"
    NOT_LED = "nobody leads the flow"
    PAUSED = "flow paused"
    COPYING = "copying"
    DELETED = "deleted on the source"
    NOT_MIRRORED = "not mirrored"


_RANKS = {state: rank for rank, state in enumerate(TopicState)}


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionView:
    """One partition of one topic; None where nothing is known."""

    partition: int
    target_partition: int
    state: TopicState
    position: int | None
    source_end: int | None
    target_end: int | None
    records_per_s: float | None
    error: str = ""

    @property
    def lag(self) -> int | None:
        if self.source_end is None or self.position is None:
            return None
        return max(0, self.source_end - self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicView:
    """One topic of one flow."""

    flow: str
    topic: str
    target_topic: str | None
    """None: it has no copy, and is to have none."""
    source_partitions: int | None
    target_partitions: int | None
    state: TopicState
    why: str = ""
    """Why the topic is not mirrored."""
    partitions: tuple[PartitionView, ...] = ()
    differing: tuple[ConfigDifference, ...] | None = None
    """None: not compared."""
    error: str = ""
    """The last one, also if copying goes on."""
    seen_s: float | None = None
    """How old what is known of the source is; None if it answered just now, endless if it never did."""

    @property
    def rank(self) -> tuple[int, str, str]:
        return _RANKS[self.state], self.flow, self.topic

    def row(self) -> Row:
        parts = self.partitions
        rates = [part.records_per_s for part in parts if part.records_per_s is not None]
        differing = None if self.differing is None else ", ".join(item.key for item in self.differing) or "none"
        return {
            "flow": self.flow,
            "topic": self.topic,
            "target topic": self.target_topic,
            "source partitions": self.source_partitions,
            "target partitions": self.target_partitions,
            "state": f"{self.state}: {self.why}" if self.why else str(self.state),
            "position": _sum(part.position for part in parts),
            "source end": _sum(part.source_end for part in parts),
            "lag": _sum(part.lag for part in parts),
            "records/s": round(sum(rates), 1) if rates else None,
            "configs that differ": differing,
            "source seen": _ago(self.seen_s),
            "last error": self.error or None,
        }

    def partition_rows(self) -> list[Row]:
        return [
            {
                "flow": self.flow,
                "topic": self.topic,
                "partition": part.partition,
                "target topic": self.target_topic,
                "target partition": part.target_partition,
                "state": str(part.state),
                "position": part.position,
                "source end": part.source_end,
                "lag": part.lag,
                "records/s": None if part.records_per_s is None else round(part.records_per_s, 1),
                "target end": part.target_end,
                "source seen": _ago(self.seen_s),
                "last error": part.error or None,
            }
            for part in self.partitions
        ]

    def difference_rows(self) -> list[Row]:
        return [
            {
                "flow": self.flow,
                "topic": self.topic,
                "target topic": self.target_topic,
                "setting": difference.key,
                "source": difference.source,
                "target": difference.target,
                "action": difference.action,
            }
            for difference in self.differing or ()
        ]


def _ago(seen_s: float | None) -> str:
    if seen_s is None:
        return "now"
    return f"{seen_s:.0f} s ago" if isfinite(seen_s) else "never"


def _sum(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


# -- what was read ---------------------------------------------------------------------------


class TopicSide(NamedTuple):
    """One cluster."""

    counts: Mapping[str, int]
    """Partitions of its topics, by its own names."""
    ends: Mapping[PartitionName, int]
    """Of the logs, by the source's names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """All that is known of one flow."""

    source: TopicSide
    seen_s: float | None
    """How old that is; None if the source answered just now, endless if it never did."""
    target: TopicSide
    before: Mapping[PartitionName, Entry]
    """The ledger's entries at a first look, and `entries` at a second one."""
    entries: Mapping[PartitionName, Entry]
    troubles: Troubles
    losses: Sequence[Loss]
    is_led: bool
    differing: Mapping[str, tuple[ConfigDifference, ...]]
    """By topic, of those that were compared."""


# -- what it means ---------------------------------------------------------------------------


def topic_views(flow: Flow, reading: Reading) -> list[TopicView]:
    """Every topic that is mirrored, was mirrored, or is not for a reason worth telling; worst first."""
    copied: dict[str, int] = {}
    for topic, partition in reading.entries:
        copied[topic] = max(copied.get(topic, 0), partition + 1)
    losses: dict[str, list[Loss]] = {}
    for loss in reading.losses:
        losses.setdefault(loss.topic, []).append(loss)
    is_halted = any(loss.is_open and loss.answer == FLOW_STOPPED for loss in reading.losses)
    counts, there = reading.source.counts, reading.target.counts
    shown = shown_names(flow, counts, there=there, entries=reading.entries, troubles=reading.troubles)
    mirrored = shown.names | names_of(flow, copied.keys() - counts.keys())
    views = [
        _Topic(
            flow=flow,
            reading=reading,
            topic=topic,
            copied=copied.get(topic, 0),
            losses=tuple(losses.get(topic, ())),
            is_halted=is_halted,
            name=mirrored.get(topic),
            refused=shown.refused.get(topic, ""),
        ).view()
        for topic in {*counts, *copied}
        if not _is_internal(flow, topic)
    ]
    return sorted(views, key=lambda view: view.rank)


class Shown(NamedTuple):
    names: dict[str, str]
    """Return the names on the target of topics that are mirrored."""
    refused: dict[str, str]
    """Topics that would be and have no name there, and why."""


def shown_names(
    flow: Flow,
    topics: Collection[str],
    *,
    there: Collection[str],
    entries: Collection[PartitionName],
    troubles: Troubles,
) -> Shown:
    """As the flow gives them, as far as its ledger tells: what it was last refused stays so until it runs again."""
    told = {
        topic: trouble.text
        for (topic, partition), trouble in troubles.items()
        if partition == WHOLE_TOPIC and trouble.code == NameRefused.code and topic in topics
    }
    ranks = dict.fromkeys((topic for topic, _ in entries), Rank.COPIED)
    plan = plan_names(flow, [topic for topic in topics if topic not in told], there=there, ranks=ranks)
    again = plan_names(flow, told)
    refused = {topic: str(error) for topic, error in plan.refused.items()}
    return Shown(plan.wanted, refused | {topic: told[topic] for topic in (*again.wanted, *again.refused)})


def _is_internal(flow: Flow, topic: str) -> bool:
    """Nobody expects these to be mirrored."""
    if topic in flow.never_mirrored or is_own_internal_topic(topic):
        return True
    try:
        return flow.policy.is_internal_topic(topic)
    except ConfigError:  # a class of one's own: the topic is refused
        return False


def why_not_mirrored(flow: Flow, topic: str) -> str:
    """Why a flow does not copy a topic that is no internal one."""
    try:
        if flow.comes_home(topic) or is_cycle(flow.policy, topic, flow.target):
            return f'it came from "{flow.target}"'
    except ConfigError as error:  # a class of one's own
        return error.what
    if isinstance(flow.topics, NameFilter) and NameFilter(flow.topics.include).accepts(topic):
        return "excluded by topics.exclude"
    return "not selected by topics"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Topic:
    """One topic, and what of a reading concerns it."""

    flow: Flow
    reading: Reading
    topic: str
    copied: int
    """Partitions up to the last that has an entry."""
    losses: tuple[Loss, ...]
    is_halted: bool
    """A loss stops the whole flow."""
    name: str | None
    """On the target, if it is mirrored."""
    refused: str
    """Why it has none there although it would be mirrored."""

    @property
    def there(self) -> int:
        """Partitions on the source, now or as last seen."""
        return self.reading.source.counts.get(self.topic, 0)

    @property
    def remote(self) -> str | None:
        """Also of a copy that stays behind; None if there is none."""
        is_left = self.name is None and self.copied and not self.refused
        return maybe_remote(self.flow, self.topic) if is_left else self.name

    def view(self) -> TopicView:
        is_mirrored = self.name is not None or bool(self.refused)
        remote = self.remote
        parts = tuple(map(self._partition, range(max(self.there, self.copied)))) if is_mirrored else ()
        state, why = self._state(parts), ""
        if not is_mirrored:
            state, why = TopicState.NOT_MIRRORED, why_not_mirrored(self.flow, self.topic)
        return TopicView(
            flow=self.flow.name,
            topic=self.topic,
            target_topic=remote,
            source_partitions=self.there or None,
            target_partitions=self.reading.target.counts.get(remote) if remote is not None else None,
            state=state,
            why=why,
            partitions=parts,
            differing=self.reading.differing.get(self.topic),
            error=self._last_error(parts) if is_mirrored else "",
            seen_s=self.reading.seen_s,
        )

    def _state(self, parts: Sequence[PartitionView]) -> TopicState:
        if not self.there:
            return TopicState.DELETED
        if self._refusal and not self.is_halted and self.flow.is_running:
            return TopicState.REFUSED
        alive = [part.state for part in parts if part.state is not TopicState.DELETED]
        return min(alive, key=_RANKS.__getitem__, default=TopicState.COPYING)

    @property
    def _refusal(self) -> str:
        trouble = self.reading.troubles.get((self.topic, WHOLE_TOPIC))
        return trouble.text if trouble is not None else self.refused

    def _last_error(self, parts: Sequence[PartitionView]) -> str:
        """Return what keeps the topic from being copied now, else what happened last to its records."""
        waiting = [part.error for part in parts if (self.topic, part.partition) in self.reading.troubles]
        if self._refusal or not waiting:
            return self._refusal or _newest(self.losses)
        return waiting[0] + (f" (and {len(waiting) - 1} more partitions)" if waiting[1:] else "")

    def _partition(self, index: int) -> PartitionView:
        where, reading = (self.topic, index), self.reading
        entry, trouble = reading.entries.get(where), reading.troubles.get(where)
        error = (
            trouble.text if trouble is not None else _newest(loss for loss in self.losses if loss.partition == index)
        )
        return PartitionView(
            partition=index,
            target_partition=self._place(index),
            state=self._state_of(index),
            position=entry.source_offset if entry is not None else None,
            source_end=reading.source.ends.get(where),
            target_end=reading.target.ends.get(where),
            records_per_s=_rate(reading.before.get(where), entry) if reading.is_led else None,
            error=error,
        )

    def _place(self, index: int) -> int:
        """Its number on the target."""
        entry = self.reading.entries.get((self.topic, index))
        return target_partition(index, entry.modulo if entry is not None else SAME)

    def _state_of(self, index: int) -> TopicState:
        where, reading = (self.topic, index), self.reading
        if index >= self.there:
            return TopicState.DELETED
        if self.is_halted or any(_stops(loss, index) for loss in self.losses):
            return TopicState.STOPPED
        if not self.flow.is_running:
            return TopicState.PAUSED
        if self.refused or (self._refusal and self._place(index) >= reading.target.counts.get(self.name or "", 0)):
            return TopicState.REFUSED
        if not reading.is_led:
            return TopicState.NOT_LED
        return TopicState.WAITING if where not in reading.entries or where in reading.troubles else TopicState.COPYING


def _stops(loss: Loss, partition: int) -> bool:
    return loss.is_open and loss.partition == partition and loss.answer == PARTITION_STOPPED


def _newest(losses: Iterable[Loss]) -> str:
    newest = max(losses, key=lambda loss: loss.last_ms, default=None)
    return newest.text if newest is not None else ""


def _rate(before: Entry | None, now: Entry | None) -> float | None:
    """Records a second between two looks; None where there is nothing to compare."""
    if before is None or now is None:
        return None
    records = now.n - before.n if now.count == before.count else now.n
    between_ms = now.time_ms - before.time_ms
    return max(0, records) * 1000 / between_ms if between_ms > 0 else 0.0
