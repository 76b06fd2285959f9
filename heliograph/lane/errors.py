"""Makes the errors that a lane reports about a copy in doubt. Pure.

A lane settles a copy by itself wherever the target's log tells how far it got. The errors
here are about the rest: what only the driver can decide, and what an operator should know.
"""

from __future__ import annotations

from uuid import UUID

from heliograph.errors import (
    CorruptBatch,
    DataLost,
    ForeignWrites,
    HeliographError,
    LogTruncated,
    NotAuthorized,
    PositionUnproven,
    RecordRefused,
    RulesChanged,
    SecondWriter,
    TargetTopicLost,
    TargetUnsettled,
    TopicRecreated,
)
from heliograph.kafka.error_codes import Code
from heliograph.lane.partition_copy import PartitionCopy
from heliograph.lane.refused_records import refused_by_source
from heliograph.lane.settling import Settled
from heliograph.ledger import loss_outcomes
from heliograph.ledger.model import Assignment, FlowTerms

CORRUPT_TRIES = 3
"""How often a corrupt batch is fetched again: the network may be at fault, or the disk."""
FOR_THE_DRIVER = (DataLost, LogTruncated, RecordRefused, RulesChanged, TopicRecreated)
"""Errors that settling cannot resolve: a policy decides where copying continues."""
MOST_REFUSALS = 3
"""After this many refusals in a row at an unchanged end of the target's log a new count begins."""


def cause_of_doubt(copy: PartitionCopy) -> HeliographError | None:
    """Return the error that put a copy in doubt; a batch that stays corrupt becomes a refused record."""
    error = copy.error
    if isinstance(error, CorruptBatch) and copy.failures > CORRUPT_TRIES:
        return refused_by_source(error, position=copy.entry.source_offset, log_end=copy.entry.source_end)
    return error


def cause_of_release(copy: PartitionCopy, error: HeliographError | None) -> HeliographError | None:
    """Return the error with which a copy in doubt is released to the driver; None if it is settled again."""
    if isinstance(error, FOR_THE_DRIVER):
        return error
    if error is not None and error.details.get("error_code") == Code.UNKNOWN_PRODUCER_ID and copy.failures > 1:
        return _forgotten(copy.assignment)
    if copy.refusals >= MOST_REFUSALS and error is not None:
        return _used_before(copy, error)
    return None


def was_forestalled(error: HeliographError | None) -> bool:
    """Return whether the first unexpected answer says that another producer wrote before us; nothing was lost."""
    return isinstance(error, SecondWriter) or (
        error is not None and error.details.get("error_code") == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def was_refused(error: HeliographError | None) -> bool:
    """Return whether the answer says that the broker remembers other batches of ours than the ones we sent."""
    codes = (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH)
    return isinstance(error, SecondWriter) or (error is not None and error.details.get("error_code") in codes)


def foreign_writes(copy: PartitionCopy, settled: Settled) -> ForeignWrites:
    start, end = copy.entry.target_offset, settled.entry.target_offset
    whose = ", ".join(map(str, settled.strangers)) if any(pid >= 0 for pid in settled.strangers) else "none"
    return ForeignWrites(
        f"{settled.foreign} records of other producers (id: {whose}) are in "
        f'"{copy.assignment.target_topic}" among offsets {start} to {end - 1}',
        where=copy.assignment.name,
        target_start=start,
        target_end=end,
        records=settled.foreign,
    )


def second_writer(copy: PartitionCopy, settled: Settled) -> SecondWriter:
    start, end = copy.entry.target_offset, settled.entry.target_offset
    return SecondWriter(
        f'{settled.found} records of this flow are in "{copy.assignment.target_topic}" that this lane did not send, '
        f"among offsets {start} to {end - 1}",
        where=copy.assignment.name,
        why="another process copied the same partition, or an earlier lane's last batch came late; copying goes on "
        "after them, nothing repeats",
        target_start=start,
        target_end=end,
        records=settled.found,
    )


def target_recreated(copy: PartitionCopy, topic_id: UUID) -> TargetTopicLost:
    recreated = loss_outcomes.target_made_anew(copy.entry, topic_id.hex)
    return TargetTopicLost(recreated.text, where=copy.assignment.name, **recreated.details)


def copy_rule_changed(copy: PartitionCopy, terms: FlowTerms) -> RulesChanged:
    return RulesChanged(
        f'the partition was copied by the rule "{terms.rule_of(copy.entry)}", the flow now uses "{terms.rule}": a new '
        f"count begins at source offset {copy.entry.source_offset}",
        where=copy.assignment.name,
    )


def unreplicated(copy: PartitionCopy, records: int) -> TargetUnsettled:
    return TargetUnsettled(
        f"the last {records} records of the target's log are not replicated yet, and some may be ours",
        where=copy.assignment.name,
        why="a broker that holds a replica is slow or down",
    )


def may_be_late(copy: PartitionCopy) -> TargetUnsettled:
    return TargetUnsettled(
        "the last batch had no answer and may still arrive on the target: checked again within seconds",
        where=copy.assignment.name,
        why="its records are old, and a broker that has forgotten our producer id appends a batch twice",
    )


def unread(copy: PartitionCopy, target_end: int, error: NotAuthorized) -> PositionUnproven:
    """Say that records on the target beyond the entry cannot be read for lack of rights."""
    beyond = target_end - copy.entry.target_offset
    return PositionUnproven(
        f"{beyond} records are on the target beyond the ledger's entry (source offset {copy.entry.source_offset}) "
        "and cannot be read: that many may repeat",
        where=copy.assignment.name,
        why="without Read on the target's topics copying is at-least-once",
        remedy=error.remedy,
        records=beyond,
    )


def _forgotten(assignment: Assignment) -> PositionUnproven:
    return PositionUnproven(
        "the target forgot our producer id and accepts only sequence 0: a new count begins, 0 records repeat",
        where=assignment.name,
        why="brokers before 2.5 forget a producer id whose newest record is old",
        records=0,
    )


def _used_before(copy: PartitionCopy, error: HeliographError) -> SecondWriter:
    """Say that the broker remembers batches of the copy's count that are not in its log beyond the entry."""
    entry = copy.entry
    return SecondWriter(
        f"the target refused record {entry.n} of count {entry.count} {copy.refusals} times in a row, and its log still "
        f"ends at offset {entry.target_offset}: a new count begins at source offset {entry.source_offset}",
        where=copy.assignment.name,
        why=f"count {entry.count} was used before, and the ledger lost that record ({error.what})",
        records=0 if entry.n else -1,
    )
