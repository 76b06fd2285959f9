"""Makes what lanes are told: the terms of one flow, and the assignment of each partition that they copy."""

from __future__ import annotations

from heliograph.flow.loss_book import LossBook
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_table import PartitionTable
from heliograph.flow.producer_memory import TargetMemory
from heliograph.flow.target_topics import TargetTopics
from heliograph.ledger.model import Assignment, FlowTerms, PartitionName
from heliograph.ledger.partition_remap import target_partition
from heliograph.ledger.records.entry import Entry


class LaneAssignments:
    """Reads what the driver knows of one flow; changes nothing."""

    def __init__(
        self,
        opening: OpenedFlow,
        table: PartitionTable,
        losses: LossBook,
        *,
        targets: TargetTopics,
        memory: TargetMemory,
    ) -> None:
        self._opening = opening
        self._table = table
        self._losses = losses
        self._targets = targets
        self._memory = memory

    def terms(self) -> FlowTerms:
        """Make what lanes are told of the flow, with the secrets as they are now."""
        opening = self._opening
        return opening.terms(
            append_bytes=self._targets.append_bytes(opening.ledger_topic, opening.flow.offset_storage_topic),
            memory_ms=self._memory.doubtful_ms,
        )

    def all(self) -> list[Assignment]:
        """Make the assignments of all partitions that are to be copied now."""
        if not self._opening.flow.is_running:
            return []
        return [
            self.of(where, entry)
            for where, entry in self._table.entries.items()
            if self._opening.leads() and self._losses.is_copied(*where)
        ]

    def of(self, where: PartitionName, entry: Entry) -> Assignment:
        """Make the assignment with which a partition is copied on from an entry."""
        topic, partition = where
        opening, remote = self._opening, self._opening.flow.remote_topic(topic)
        limits = self._targets.limits(remote)
        page = self._table.pages.get(where)
        return Assignment(
            flow=opening.name,
            topic=topic,
            partition=partition,
            target_topic=remote,
            entry=self._with_target_epoch(entry, remote, partition),
            max_message_bytes=limits.max_message_bytes,
            target_stamps_time=limits.stamps_time,
            page=page.pack() if page is not None else b"",
            late_ms=self._table.late_ms(where),
            first_of_term=self._table.is_unsettled(where),
            source_leader_epoch=opening.source.catalogue.leader_epoch_of(topic, partition),
        )

    def _with_target_epoch(self, entry: Entry, remote: str, partition: int) -> Entry:
        """Give the entry the newest leader epoch of its copy that we know; a lane's metadata may be older."""
        known = self._opening.target.catalogue.leader_epoch_of(remote, target_partition(partition, entry.modulo))
        return entry.moved(target_leader_epoch=known) if known > entry.target_leader_epoch else entry
