"""Where partitions begin that a flow is asked for the first time, or whose position somebody set. IO around a rule.

What a start leaves out is no loss: it was asked for, and is said once for each topic.
"""

from __future__ import annotations

import logging
from collections.abc import Container, Iterable, Mapping
from typing import NamedTuple

from heliograph.config.start_points import StartPoint
from heliograph.flow.log_offsets import source_offsets
from heliograph.kafka.admin.topics import EARLIEST, LATEST
from heliograph.kafka.cluster import Cluster
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.text import some_of

log = logging.getLogger("heliograph")

NONE = -1
"""Kafka's answer where no record is as late as a time."""


class Beginning(NamedTuple):
    """A start position as an offset of one partition."""

    offset: int
    asked: int
    """What was asked for: the same, unless it is outside the log."""
    log_start: int
    log_end: int

    @property
    def left_out(self) -> int:
        """Offsets of the source's log before it."""
        return self.offset - self.log_start

    @property
    def note(self) -> str:
        """Say what became of an offset outside the log; empty if it is inside."""
        if self.asked < self.offset:
            return f"{self.asked} is before the start of the log, {self.log_start}: it begins there"
        if self.asked > self.offset:
            return f"{self.asked} is beyond the end of the log, {self.log_end}: it begins there"
        return ""


def place_start(point: StartPoint, partition: int, *, log_start: int, log_end: int, at_time: int) -> Beginning:
    """`at_time` is the first offset of the point's time on, if it has one; a time after the last record is the end."""
    if point.offsets:
        asked = dict(point.offsets).get(partition, log_start)
    elif point.moment == EARLIEST:
        asked = log_start
    elif point.moment == LATEST or at_time == NONE:
        asked = log_end
    else:
        asked = at_time
    return Beginning(max(log_start, min(asked, log_end)), asked, log_start, log_end)


async def find_starts(
    points: Mapping[PartitionName, StartPoint], source: Cluster, *, read_committed: bool
) -> dict[PartitionName, Beginning]:
    """Find start positions as offsets; partitions whose leader does not answer are left out."""
    if not points:
        return {}
    first = await source_offsets(source, points, EARLIEST)
    last = await source_offsets(source, points, LATEST, read_committed=read_committed)
    timed: dict[PartitionName, int] = {}
    for moment in {point.moment for point in points.values() if point.moment >= 0 and not point.offsets}:
        at = [where for where, point in points.items() if point.moment == moment and not point.offsets]
        timed |= await source_offsets(source, at, moment, read_committed=read_committed)
    return {
        where: place_start(point, where[1], log_start=first[where], log_end=last[where], at_time=timed.get(where, NONE))
        for where, point in points.items()
        if where in first and where in last and (where in timed or point.offsets or point.moment < 0)
    }


def tell_beginnings(
    flow: str,
    opened: Container[PartitionName],
    found: Mapping[PartitionName, Beginning],
    points: Mapping[PartitionName, StartPoint],
    requests: Mapping[PartitionName, PositionRequest],
) -> None:
    """Log where opened partitions begin, and why, once for each topic."""
    begun = {where: start for where, start in found.items() if where in opened}
    was_set = {where for where, request in requests.items() if request.offset is not None}
    for topic, starts in _by_topic(where for where in begun if where not in was_set).items():
        _tell_start(flow, topic, {where: begun[where] for where in starts}, points[starts[0]])
    for topic, starts in _by_topic(was_set & begun.keys()).items():
        places = [f"{where[1]} at {begun[where].offset}{_in_brackets(begun[where].note)}" for where in starts]
        log.info("%s: %s goes on where it was set: partition %s", flow, topic, some_of(places))
    for topic, reset in _by_topic(where for where in requests if where not in was_set and where in opened).items():
        log.info("%s: %s was reset: %d of its partitions begin as in a new flow", flow, topic, len(reset))


def _tell_start(flow: str, topic: str, starts: Mapping[PartitionName, Beginning], point: StartPoint) -> None:
    notes = [f"{topic}-{partition}: {start.note}" for (_, partition), start in starts.items() if start.note]
    if notes:
        log.warning("%s: start position: %s", flow, some_of(notes))
    left_out = [start.left_out for start in starts.values() if start.left_out]
    if left_out:
        log.info(
            "%s: %s begins at %s: %d records before that, in %d of its partitions, are not copied",
            *(flow, topic, "its offsets" if point.offsets else point, sum(left_out), len(left_out)),
        )


def _by_topic(partitions: Iterable[PartitionName]) -> dict[str, list[PartitionName]]:
    found: dict[str, list[PartitionName]] = {}
    for where in sorted(partitions):
        found.setdefault(where[0], []).append(where)
    return found


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""
