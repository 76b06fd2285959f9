"""The ledger record "group": a consumer group of the source, as last seen. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from heliograph.kafka.admin.groups import GroupDescription, GroupListing
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.records.ledger_record import JsonRecord, one_text
from heliograph.ledger.records.untrusted_json import (
    as_fields,
    as_known_offset,
    as_list,
    as_number,
    as_partition,
    as_text,
    as_time_ms,
    take,
)

DELETED = "Deleted"
"""The state of a group that was there and is not any more; Kafka has no word for it."""


class GroupCommit(NamedTuple):
    offset: int
    metadata: str


class GroupMember(NamedTuple):
    client_id: str
    host: str
    partitions: int
    """How many partitions it has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenGroup(JsonRecord):
    """A consumer group of the source, with its members and commits."""

    KIND: ClassVar[str] = "group"
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
        """Return the group as it was listed, and as it was described if it could be."""
        members = detail.members if detail is not None else ()
        return cls(
            group=found.group_id,
            state=detail.state if detail is not None else found.state,
            kind=found.kind,
            time_ms=time_ms,
            members=tuple(GroupMember(member.client_id, member.host, len(member.partitions)) for member in members),
            commits=commits,
        )

    def key_parts(self) -> Sequence[Any]:
        return (self.group,)

    def fields(self) -> Mapping[str, Any]:
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
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> SeenGroup:
        return cls(
            group=one_text(rest),
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
