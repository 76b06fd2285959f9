"""Asks a cluster for offsets of many partitions: the ends of their logs, or the first offset of a time on."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping

from heliograph.kafka.admin.topics import list_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.model import PartitionName

LEADER_PAUSE_S = 0.5
"""Pause before partitions whose leader did not answer are asked again, once."""


async def source_offsets(
    source: Cluster, partitions: Iterable[PartitionName], which: int, *, read_committed: bool = False
) -> dict[PartitionName, int]:
    """Ask the source for an end of each partition's log, or for the first offset of a time on, -1 if there is none.

    Partitions whose leader does not answer are left out.
    """
    names = {where: TopicPartition(*where) for where in partitions}
    return await log_offsets(source, names, which, read_committed=read_committed)


async def log_offsets(
    cluster: Cluster, names: Mapping[PartitionName, TopicPartition], which: int, *, read_committed: bool = False
) -> dict[PartitionName, int]:
    """Ask a cluster for an offset of each partition, by its name there; those whose leader is silent are left out."""
    answers = await list_offsets(cluster, set(names.values()), which, read_committed=read_committed)
    silent = [name for name, answer in answers.items() if answer.error_code]
    if silent:
        await asyncio.sleep(LEADER_PAUSE_S)
        await cluster.refresh({name.topic for name in silent})
        answers.update(await list_offsets(cluster, silent, which, read_committed=read_committed))
    return {where: answers[name].offset for where, name in names.items() if not answers[name].error_code}
