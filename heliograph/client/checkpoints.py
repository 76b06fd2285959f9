"""Groups' offsets by the checkpoints on a target, MirrorMaker 2's or ours. `FoundCheckpoints` is pure.

The last checkpoint of a partition counts. What is none is passed over and counted, where Java's client fails on some
of it: a null key or value, a negative offset.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from heliograph.errors import BrokerRefused
from heliograph.kafka.admin.topics import EARLIEST, end_offsets
from heliograph.kafka.batch import iter_records
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.error_codes import Code
from heliograph.kafka.log import read_batches
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.mm2.internal_records import Checkpoint

_NO_VALUE = bytes(20)
"""A checkpoint's shortest value, to read a key without one."""


class Translated(NamedTuple):
    """The place where a group goes on in a partition of the target."""

    offset: int
    metadata: str
    """The metadata of the group's commit on the source."""
    upstream: int
    """Its offset on the source when it was translated."""
    grade: str = "checkpoint"
    """How sure this is: by a checkpoint, or by the ledger `exact`, `ahead` of what is mirrored, `degraded`, or `shared`
    with other partitions of the source, of which some records are read again."""
    ahead: int = 0
    """Source offsets that the group has read and the target does not have."""
    reread: int = 0
    """Records that are read again because the group stands further in partitions that share the target's."""


Offsets = dict[TopicPartition, Translated]
Wanted = Callable[[str], bool]
"""Whether a group is asked for."""


@dataclass(slots=True)
class FoundCheckpoints:
    """The groups' offsets by the records of a checkpoints topic that were read so far."""

    wanted: Wanted
    groups: dict[str, Offsets] = field(default_factory=dict)
    skipped: int = 0
    is_begun: bool = False
    is_complete: bool = False

    def take(self, key: bytes | None, value: bytes | None) -> None:
        checkpoint = Checkpoint.parse(key, value)
        if checkpoint is not None and checkpoint.downstream >= 0:
            if self.wanted(checkpoint.group):
                where = TopicPartition(checkpoint.topic, checkpoint.partition)
                translated = Translated(checkpoint.downstream, checkpoint.metadata, checkpoint.upstream)
                self.groups.setdefault(checkpoint.group, {})[where] = translated
            return
        self.skipped += 1
        if value is None:
            self._forget(key)

    def _forget(self, key: bytes | None) -> None:
        """A checkpoint that somebody deleted: gone, whether or not the broker has compacted the topic yet."""
        deleted = Checkpoint.parse(key, _NO_VALUE)
        if deleted is None or deleted.group not in self.groups:
            return
        offsets = self.groups[deleted.group]
        offsets.pop(TopicPartition(deleted.topic, deleted.partition), None)
        if not offsets:
            del self.groups[deleted.group]


async def read_checkpoints(cluster: Cluster, topic: str, found: FoundCheckpoints) -> None:
    """All records up to the end of now. Like Java's client it reads partition 0, and uncommitted records too."""
    if topic not in (await cluster.refresh([topic])).topics:
        raise BrokerRefused(
            f'there is no topic "{topic}"',
            where=f'"{cluster.alias}"',
            why="no checkpoints of that cluster were ever written here, or we may not see them",
            remedy="check the alias, the replication policy and its separator, and the right to Read the topic",
            error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
        )
    where = TopicPartition(topic, 0)
    start = (await end_offsets(cluster, [where], timestamp=EARLIEST))[where]
    end = (await end_offsets(cluster, [where]))[where]
    found.is_begun = True
    async for header, view in read_batches(cluster, topic, 0, start, end):
        for record in iter_records(header, view) if header.record_count else ():
            if record.offset < end:
                found.take(record.key, record.value)
    found.is_complete = True
