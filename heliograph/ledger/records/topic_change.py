"""The ledger record "change": a lane saw that a topic is not as it was planned. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, ClassVar

from heliograph.kafka.catalogue import TopicMeta
from heliograph.ledger.records.ledger_record import JsonRecord, one_text
from heliograph.ledger.records.untrusted_json import as_text


class ChangeKind(StrEnum):
    """The kinds of changes to a topic."""

    GONE = "gone"
    MOVED = "leaders moved"
    RESIZED = "partitions changed"


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicChange(JsonRecord):
    """A lane tells its driver that a topic is not as it was planned, so that the driver looks at all topics again."""

    KIND: ClassVar[str] = "change"
    topic: str
    what: ChangeKind

    def key_parts(self) -> Sequence[Any]:
        return (self.topic,)

    def fields(self) -> Mapping[str, Any]:
        return {"what": str(self.what)}

    @classmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> TopicChange:
        return cls(topic=one_text(rest), what=ChangeKind(as_text(fields["what"])))


def change_of(before: TopicMeta | None, now: TopicMeta | None) -> ChangeKind | None:
    """Tell what happened to a topic between two looks of a lane; None if nothing, or if it saw the topic only once."""
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
