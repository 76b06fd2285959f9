"""Makes the errors for a source whose log is not, or no longer, the one that was copied. Pure."""

from __future__ import annotations

from heliograph.errors import BrokerRefused, DataLost, LogTruncated
from heliograph.kafka.codec.k01_fetch import EpochEnd
from heliograph.ledger.lineage import Lineage


def out_of_range(position: int, start: int, end: int, *, alias: str, where: str) -> DataLost | LogTruncated | None:
    """Judge a position that the source refused: expired, or beyond the end; None if the log has it now."""
    if position < start:
        return DataLost(
            f'offsets {position} to {start - 1} ({start - position} records) expired on "{alias}" uncopied',
            where=where,
            remedy="raise retention.ms",
            position=position,
            log_start=start,
            log_end=end,
        )
    if position > end:
        return LogTruncated(
            f"the source's log ends at offset {end}, but it was copied up to {position}",
            where=where,
            why="unclean leader election, or the topic was recreated",
            position=position,
            log_start=start,
            log_end=end,
        )
    return None


def diverged(position: int, lineage: Lineage, theirs: EpochEnd, *, where: str) -> LogTruncated:
    """Say from which offset on the leader's log is not the one that was copied."""
    parting, epoch = lineage.parting(position, theirs), lineage.before(position)
    return LogTruncated(
        f"the source lost offsets {parting} to {position - 1} ({position - parting} records) after they were copied",
        where=where,
        why=f"its log has leader epoch {theirs.leader_epoch} up to offset {theirs.end_offset}, the copy ends with "
        f"epoch {epoch}: unclean leader election, or a broker that lost its last writes",
        position=position,
        log_end=parting,
        leader_epoch=theirs.leader_epoch,
        copied_epoch=epoch,
    )


def unknown_epoch(position: int, epoch: int, *, alias: str, where: str) -> BrokerRefused:
    """Say that the leader does not know the leader epoch of what was copied; this is retried."""
    return BrokerRefused(
        f'the leader on "{alias}" does not know leader epoch {epoch}, in which offset {position - 1} was written',
        where=where,
        why="it is behind, or the cluster was restored from a backup",
    )


def another_log(position: int, epoch: int, start: int, *, where: str) -> LogTruncated:
    """Say that the leader still does not know that epoch: none of its log was copied."""
    return LogTruncated(
        f"offsets up to {position} were copied from another log: all of this one, from offset {start} on, is new",
        where=where,
        why=f"its leader does not know leader epoch {epoch}: it was restored from a backup, or recreated",
        position=position,
        log_start=start,
        log_end=start,
        copied_epoch=epoch,
    )
