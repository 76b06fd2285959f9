"""Translates group offsets of a lost cluster: a plan by the ledger or by checkpoints, and its execution."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from heliograph.client import MirrorClient
from heliograph.config.settings import Flow, Settings
from heliograph.kafka.admin.commits import Commit
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.group_commits import Moved, move_forward
from heliograph.names.filters import NameFilter
from heliograph.recovery.choices import By


class MoveOutcome(StrEnum):
    PLANNED = "planned"
    WRITTEN = "written"
    KEPT = "kept: it is further already"
    ALIVE = "refused: the group has members there"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A group's new offset in one partition of the target."""

    group: str
    topic: str
    partition: int
    offset: int
    metadata: str
    grade: str
    source_offset: int | None
    reread: int = 0
    """Records that are read again because source partitions share a target partition."""
    outcome: MoveOutcome = MoveOutcome.PLANNED
    why: str = ""

    @property
    def is_good(self) -> bool:
        return self.outcome in (MoveOutcome.PLANNED, MoveOutcome.WRITTEN, MoveOutcome.KEPT)

    @property
    def where(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    def row(self) -> dict[str, str | int | None]:
        return {
            "group": self.group,
            "topic": self.topic,
            "partition": self.partition,
            "source offset": self.source_offset,
            "offset": self.offset,
            "translation": self.grade,
            "re-read": self.reread,
            "outcome": f"{self.outcome}{': ' + self.why if self.why else ''}",
        }


def as_reset_file(moves: list[Move]) -> str:
    """Writes what `kafka-consumer-groups --reset-offsets --from-file` reads: a single group is not named."""
    several = len({move.group for move in moves}) > 1
    lines = [
        ",".join(
            [*([_quoted(move.group)] if several else []), _quoted(move.topic), str(move.partition), str(move.offset)]
        )
        for move in moves
    ]
    return "".join(f"{line}\n" for line in lines)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"' if any(sign in name for sign in ',"\n') else name


class Plan(NamedTuple):
    moves: list[Move]
    unknown: list[str]
    """Groups asked for by name that have no translated offset on the target."""


def plan_moves(settings: Settings, flow: Flow, *, names: Sequence[str], wanted: NameFilter | None, by: By) -> Plan:
    """Plans the new offsets of groups, by name or by filter, from either cluster's names. Reads the target alone."""
    client = MirrorClient.of_flow(settings, flow)
    found = client.translate_groups(
        flow.source, lambda name: name in names or (wanted is not None and wanted.accepts(name)), by=by.value
    )
    for name in names:
        here = flow.remote_group(name)  # a group with this name on the target is meant first
        is_asked = here in names or (wanted is not None and (wanted.accepts(name) or wanted.accepts(here)))
        if here != name and name in found and not is_asked:
            found.pop(here, None)
    moves = [
        Move(
            group=group,
            topic=where.topic,
            partition=where.partition,
            offset=place.offset,
            metadata=place.metadata,
            grade=place.grade,
            source_offset=place.upstream,
            reread=place.reread,
        )
        for group, offsets in sorted(found.items())
        for where, place in sorted(offsets.items())
    ]
    return Plan(moves, [name for name in names if not found.get(name) and not found.get(flow.remote_group(name))])


async def run_moves(settings: Settings, flow: Flow, moves: list[Move]) -> list[Move]:
    cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{flow.name}|translate")
    try:
        await cluster.refresh()
        return await apply_moves(cluster, moves)
    finally:
        cluster.close()


async def apply_moves(cluster: Cluster, moves: list[Move]) -> list[Move]:
    """Commits the offsets and returns each outcome. A group with members is not changed, and none moves backward."""
    wanted: dict[str, dict[TopicPartition, Commit]] = {}
    for move in moves:
        wanted.setdefault(move.group, {})[move.where] = Commit(move.offset, move.metadata)
    moved = await move_forward(cluster, wanted)
    return [_became(move, moved) for move in moves]


def _became(move: Move, moved: Moved) -> Move:
    if move.group in moved.alive:
        return replace(move, outcome=MoveOutcome.ALIVE)
    if move.group in moved.failed:
        return replace(move, outcome=MoveOutcome.FAILED, why=str(moved.failed[move.group]))
    is_written = move.where in moved.written.get(move.group, {})
    return replace(move, outcome=MoveOutcome.WRITTEN if is_written else MoveOutcome.KEPT)
