"""What was last seen of the source, kept in the ledger: its log ends, its groups, when it last answered. Pure.

So is what lanes see of a topic that is not as it was planned.

With these on the target, what a loss of the source would cost is known when the source is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple

from heliograph.kafka.admin.groups import GroupDescription, GroupListing
from heliograph.kafka.catalogue import TopicMeta
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.untrusted_json import (
    as_fields,
    as_known_offset,
    as_list,
    as_number,
    as_partition,
    as_text,
    as_time_ms,
    take,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Contact:
    """The source answered at this time."""

    time_ms: int
    since_ms: int = 0
    """Since when it has answered without a silence of `stall.timeout.ms`; 0 where that is not known."""

    def fields(self) -> dict[str, Any]:
        return {"ms": self.time_ms, "since": self.since_ms}

    @classmethod
    def parse(cls, fields: Mapping[str, Any]) -> Contact:
        return cls(time_ms=as_time_ms(fields["ms"]), since_ms=as_time_ms(fields.get("since", 0)))

    @classmethod
    def after(cls, before: Contact | None, *, now_ms: int, stall_ms: int) -> Contact:
        """The contact that follows another."""
        if before is None or not before.since_ms or now_ms - before.time_ms > stall_ms:
            return cls(time_ms=now_ms, since_ms=now_ms)
        return cls(time_ms=now_ms, since_ms=before.since_ms)


class LogEnd(NamedTuple):
    """The end of one source partition's log."""

    offset: int
    """-1: its leader did not answer."""
    since_ms: int
    """Since when records stand there that are not copied; 0 if all are."""
    still_ms: int = 0
    """Since when the copy stands still although there are such records; 0 if it moves, or all are copied."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnds:
    """The log ends of a topic of the source, by partition."""

    topic: str
    time_ms: int
    ends: tuple[LogEnd, ...]

    def fields(self) -> dict[str, Any]:
        return {
            "ms": self.time_ms,
            "ends": [end.offset for end in self.ends],
            "since": [end.since_ms for end in self.ends],
            **({"still": [end.still_ms for end in self.ends]} if any(end.still_ms for end in self.ends) else {}),
        }

    @classmethod
    def parse(cls, topic: str, fields: Mapping[str, Any]) -> LogEnds:
        ends = as_list(fields["ends"])
        still = as_list(fields.get("still", [0] * len(ends)))
        return cls(
            topic=topic,
            time_ms=as_time_ms(fields["ms"]),
            ends=tuple(
                LogEnd(as_known_offset(end), as_time_ms(since), as_time_ms(still_since))
                for end, since, still_since in zip(ends, as_list(fields["since"]), still, strict=True)
            ),
        )


class GroupCommit(NamedTuple):
    offset: int
    metadata: str


class GroupMember(NamedTuple):
    client_id: str
    host: str
    partitions: int
    """How many partitions it has."""


DELETED = "Deleted"
"""The state of a group that was there and is not any more; Kafka has no word for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup:
    """A consumer group of the source."""

    group: str
    state: str
    kind: str
    time_ms: int
    members: tuple[GroupMember, ...] = ()
    commits: dict[TopicPartition, GroupCommit] = field(default_factory=dict)
    """By the source's topic names."""

    @classmethod
    def of(
        cls,
        found: GroupListing,
        detail: GroupDescription | None,
        commits: dict[TopicPartition, GroupCommit],
        *,
        time_ms: int,
    ) -> SeenGroup:
        """As listed, and as described if it could be."""
        members = detail.members if detail is not None else ()
        return cls(
            group=found.group_id,
            state=detail.state if detail is not None else found.state,
            kind=found.kind,
            time_ms=time_ms,
            members=tuple(GroupMember(member.client_id, member.host, len(member.partitions)) for member in members),
            commits=commits,
        )

    def fields(self) -> dict[str, Any]:
        commits: dict[str, list[list[Any]]] = {}
        for (topic, partition), commit in self.commits.items():
            commits.setdefault(topic, []).append([partition, commit.offset, commit.metadata])
        return {
            "ms": self.time_ms,
            "state": self.state,
            "kind": self.kind,
            "members": [list(member) for member in self.members],
            "commits": commits,
        }

    @classmethod
    def parse(cls, group: str, fields: Mapping[str, Any]) -> SeenGroup:
        return cls(
            group=group,
            state=as_text(fields["state"]),
            kind=as_text(fields["kind"]),
            time_ms=as_time_ms(fields["ms"]),
            members=tuple(map(_parse_member, as_list(fields["members"]))),
            commits={
                TopicPartition(topic, partition): commit
                for topic, found in as_fields(fields["commits"]).items()
                for partition, commit in map(_parse_commit, as_list(found))
            },
        )


def _parse_member(value: Any) -> GroupMember:
    client_id, host, partitions = take(as_list(value), 3)
    return GroupMember(as_text(client_id), as_text(host), as_number(partitions))


def _parse_commit(value: Any) -> tuple[int, GroupCommit]:
    partition, offset, metadata = take(as_list(value), 3)
    return as_partition(partition), GroupCommit(as_known_offset(offset), as_text(metadata))


class PassKind(StrEnum):
    """What is done to all groups of a flow again and again."""

    COMMITS = "commits"
    """Their commits are read and kept in the ledger."""
    CHECKPOINTS = "checkpoints"
    """They are carried over: checkpoints, and offsets if that is wished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPass:
    """The last pass over the groups of the source, whether or not one of them had moved."""

    kind: PassKind
    time_ms: int
    """When it ended."""
    every_ms: int
    """How far apart passes are; they are stretched where they cost too much."""
    groups: int

    def fields(self) -> dict[str, Any]:
        return {"ms": self.time_ms, "every": self.every_ms, "groups": self.groups}

    @classmethod
    def parse(cls, kind: str, fields: Mapping[str, Any]) -> GroupPass:
        return cls(
            kind=PassKind(kind),
            time_ms=as_time_ms(fields["ms"]),
            every_ms=as_number(fields["every"]),
            groups=as_number(fields["groups"]),
        )


class ChangeKind(StrEnum):
    """What may have happened to a topic."""

    GONE = "gone"
    MOVED = "leaders moved"
    RESIZED = "partitions changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange:
    """A lane's word to its driver: a topic is not as it was planned, so that all are worth a look."""

    topic: str
    what: ChangeKind

    def fields(self) -> dict[str, Any]:
        return {"what": str(self.what)}

    @classmethod
    def parse(cls, topic: str, fields: Mapping[str, Any]) -> TopicChange:
        return cls(topic=topic, what=ChangeKind(as_text(fields["what"])))


def change_of(before: TopicMeta | None, now: TopicMeta | None) -> ChangeKind | None:
    """What happened to a topic between two looks of a lane; None if nothing, or if it saw the topic only once."""
    if now is None:
        return ChangeKind.GONE
    if before is None or before == now:
        return None
    if len(before.partitions) != len(now.partitions):
        return ChangeKind.RESIZED
    moved = any(
        (old.leader, old.leader_epoch) != (new.leader, new.leader_epoch)
        for old, new in zip(before.partitions, now.partitions, strict=True)
    )
    return ChangeKind.MOVED if moved else None


Seen = Contact | LogEnds | SeenGroup | GroupPass | TopicChange
