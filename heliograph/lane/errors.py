"""What was found out about a copy that is in doubt, as errors that say it. Pure.

A lane settles a copy by itself wherever the target's log tells how far it got. What is
named here is the rest: what only the driver can answer, and what somebody should know.
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
"""A corrupt batch is fetched again so many times: it may be the network's fault, or the disk's."""
FOR_THE_DRIVER = (DataLost, LogTruncated, RecordRefused, RulesChanged, TopicRecreated)
"""What settling cannot mend: where to go on is a question of policy."""
MOST_REFUSALS = 3
"""So often a count is tried at an unchanged end of the target's log."""


def cause_of_doubt(copy: PartitionCopy) -> HeliographError | None:
    """What put a copy in doubt; a batch that stays corrupt is one that cannot be copied."""
    error = copy.error
    if isinstance(error, CorruptBatch) and copy.failures > CORRUPT_TRIES:
        return refused_by_source(error, position=copy.entry.source_offset, log_end=copy.entry.source_end)
    return error


def cause_of_release(copy: PartitionCopy, error: HeliographError | None) -> HeliographError | None:
    """With what a copy in doubt is given back to the driver; None if it is to be settled."""
    if isinstance(error, FOR_THE_DRIVER):
        return error
    if error is not None and error.details.get("error_code") == Code.UNKNOWN_PRODUCER_ID and copy.failures > 1:
        return _forgotten(copy.assignment)
    if copy.refusals >= MOST_REFUSALS and error is not None:
        return _used_before(copy, error)
    return None


def was_forestalled(error: HeliographError | None) -> bool:
    """The first answer that was not as expected says that another wrote before us; nothing of ours was lost."""
    return isinstance(error, SecondWriter) or (
        error is not None and error.details.get("error_code") == Code.OUT_OF_ORDER_SEQUENCE_NUMBER
    )


def was_refused(error: HeliographError | None) -> bool:
    """The answer says that the broker remembers other batches of ours than those that were sent."""
    codes = (Code.OUT_OF_ORDER_SEQUENCE_NUMBER, Code.INVALID_PRODUCER_EPOCH)
    return isinstance(error, SecondWriter) or (error is not None and error.details.get("error_code") in codes)


def foreign_writes(copy: PartitionCopy, settled: Settled) -> ForeignWrites:
    start, end = copy.entry.target_offset, settled.entry.target_offset
    whose = ", ".join(map(str, settled.strangers)) if any(pid >= 0 for pid in settled.strangers) else "none"
    return ForeignWrites(
        f"{settled.foreign} records of other producers (id: {whose}) stand in "
        f'"{copy.assignment.target_topic}" among offsets {start} to {end - 1}',
        where=copy.assignment.name,
        target_start=start,
        target_end=end,
        records=settled.foreign,
    )


def second_writer(copy: PartitionCopy, settled: Settled) -> SecondWriter:
    start, end = copy.entry.target_offset, settled.entry.target_offset
    return SecondWriter(
        f'{settled.found} records of this flow stand in "{copy.assignment.target_topic}" that this lane did not send, '
        f"among offsets {start} to {end - 1}",
        where=copy.assignment.name,
        why="another process copied the same partition, or an earlier lane's last batch came late; copying goes on "
        "behind them, nothing repeats",
        target_start=start,
        target_end=end,
        records=settled.found,
    )


def target_made_anew(copy: PartitionCopy, topic_id: UUID) -> TargetTopicLost:
    anew = loss_outcomes.target_made_anew(copy.entry, topic_id.hex)
    return TargetTopicLost(anew.text, where=copy.assignment.name, **anew.details)


def by_another_rule(copy: PartitionCopy, terms: FlowTerms) -> RulesChanged:
    return RulesChanged(
        f'the count goes by the rule "{terms.rule_of(copy.entry)}", the flow by "{terms.rule}": a new count begins '
        f"at source offset {copy.entry.source_offset}",
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
        "what was sent last had no answer and may still be on its way: looked at again within seconds",
        where=copy.assignment.name,
        why="the records are old, and a broker that does not remember us takes a batch twice",
    )


def unread(copy: PartitionCopy, target_end: int, error: NotAuthorized) -> PositionUnproven:
    """What stands on the target beyond the entry may not be read."""
    beyond = target_end - copy.entry.target_offset
    return PositionUnproven(
        f"{beyond} records stand on the target beyond the ledger's entry (source offset {copy.entry.source_offset}) "
        "and may not be read: as many may repeat",
        where=copy.assignment.name,
        why="without Read on the target's topics copying is at-least-once",
        remedy=error.remedy,
        records=beyond,
    )


def _forgotten(assignment: Assignment) -> PositionUnproven:
    return PositionUnproven(
        "the target forgot our producer id and takes no sequence but 0: a new count begins, 0 records repeat",
        where=assignment.name,
        why="brokers before 2.5 do so when our newest record is old",
        records=0,
    )


def _used_before(copy: PartitionCopy, error: HeliographError) -> SecondWriter:
    """The broker remembers batches under the copy's count that stand nowhere behind its entry."""
    entry = copy.entry
    return SecondWriter(
        f"the target refused record {entry.n} of count {entry.count} {copy.refusals} times in a row, and its log still "
        f"ends at offset {entry.target_offset}: a new count begins at source offset {entry.source_offset}",
        where=copy.assignment.name,
        why=f"the number of the count was used before, and the ledger lost that ({error.what})",
        records=0 if entry.n else -1,
    )
