"""Which leader epochs of both clusters the copies of a flow have seen: leaders of older ones were deposed. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from heliograph.config.settings import Flow
from heliograph.kafka.cluster import SeenEpoch
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.copy_names import maybe_remote
from heliograph.ledger.lineage import Lineage
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_remap import target_partition
from heliograph.ledger.records.entry import Entry


def source_epochs(entries: Mapping[PartitionName, Entry]) -> Iterator[SeenEpoch]:
    """Give the leader epoch of the last batch that was copied of each partition."""
    for where, entry in entries.items():
        if entry.lineage:
            epoch = Lineage.parse(entry.lineage).before(entry.source_offset)
            yield TopicPartition(*where), epoch, entry.source_topic_id


def target_epochs(entries: Mapping[PartitionName, Entry], flow: Flow) -> Iterator[SeenEpoch]:
    """Give the highest leader epoch that is known of each copy."""
    for (topic, partition), entry in entries.items():
        if entry.target_leader_epoch >= 0:
            remote = maybe_remote(flow, topic)
            if remote is not None:
                copy = TopicPartition(remote, target_partition(partition, entry.modulo))
                yield copy, entry.target_leader_epoch, entry.target_topic_id
