"""Where the copies of a flow's partitions stand on its target, by what both clusters have at one look. Pure.

The rule is in `remap`; here it meets what is there. A copy that has begun stays where it is as long as its target's
topic is the same, whatever that grows to and whatever the setting says now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from heliograph.config.settings import Flow
from heliograph.kafka.catalogue import Catalogue, TopicMeta
from heliograph.kafka.types import TopicPartition, may_be_same_topic
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_remap import SAME, plan_modulo, row_of, target_partition, turn_of
from heliograph.ledger.records.entry import Entry


class PartitionMapping:
    """Maps source partitions of one flow to target partitions, as of one refresh."""

    def __init__(
        self, flow: Flow, known: Mapping[PartitionName, Entry], *, source: Catalogue, target: Catalogue
    ) -> None:
        """`known` are the entries of all copies that ever began."""
        self._flow = flow
        self._known = known
        self._source = source
        self._target = target
        self._remotes: dict[str, TopicMeta | None] = {}
        self._in_use: dict[str, int] = {
            topic: entry.modulo
            for (topic, _), entry in known.items()
            if entry.modulo and self._is_of_target(topic, entry)
        }
        """The modulo of topics that are spread over their target, by source topic."""

    def modulo(self, where: PartitionName) -> int | None:
        """Tell over how many target partitions a topic is spread; None if the target has no partition for it."""
        topic, partition = where
        targets = self._targets(topic)
        entry = self._known.get(where)
        if entry is not None and self._is_of_target(topic, entry):
            return entry.modulo if target_partition(partition, entry.modulo) < targets else None
        return plan_modulo(
            partition,
            sources=self._sources(topic),
            targets=targets,
            in_use=self._in_use.get(topic, SAME),
            remaps=self._flow.remaps_partitions,
        )

    def target(self, where: PartitionName) -> TopicPartition | None:
        """Give the target partition; None if there is none for it."""
        modulo = self.modulo(where)
        if modulo is None:
            return None
        return TopicPartition(self._flow.remote_topic(where[0]), target_partition(where[1], modulo))

    def present(self, topics: Iterable[str], *, begun: Collection[PartitionName]) -> list[PartitionName]:
        """List the partitions of source topics that have a target partition.

        A topic that has too few there is not begun: half a topic would pass for a whole one. What was begun before
        the source grew goes on.
        """
        return [
            (topic, partition)
            for topic in topics
            for partition in range(self._sources(topic))
            if (modulo := self.modulo((topic, partition))) is not None
            and (modulo or self._sources(topic) <= self._targets(topic) or (topic, partition) in begun)
        ]

    def rows(self, counts: Mapping[PartitionName, int]) -> set[int]:
        """Give the rows of producer ids that partitions use under these counts."""
        return {
            row_of(where[1], modulo, turn_of(count))
            for where, count in counts.items()
            if (modulo := self.modulo(where)) is not None
        }

    def remapped(self, topics: Iterable[str]) -> Iterator[tuple[str, str]]:
        """Say which topics share target partitions, and how."""
        for topic in topics:
            sources, targets = self._sources(topic), self._targets(topic)
            modulo = self.modulo((topic, sources - 1)) if targets else None
            if not modulo:
                continue
            text = f"its {sources} partitions are copied into {modulo} of the target's (p modulo {modulo})"
            if targets != modulo:
                text += f"; the target has {targets} by now, and copies stay where they are"
            yield topic, text

    def _sources(self, topic: str) -> int:
        found = self._source.topics.get(topic)
        return len(found.partitions) if found is not None else 0

    def _targets(self, topic: str) -> int:
        found = self._remote(topic)
        return len(found.partitions) if found is not None else 0

    def _is_of_target(self, topic: str, entry: Entry) -> bool:
        found = self._remote(topic)
        return found is not None and may_be_same_topic(entry.target_topic_id, found.topic_id.hex)

    def _remote(self, topic: str) -> TopicMeta | None:
        if topic not in self._remotes:
            self._remotes[topic] = self._target.topics.get(self._flow.remote_topic(topic))
        return self._remotes[topic]
