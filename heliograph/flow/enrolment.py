"""Gives partitions the entry with which they are copied: the ledger's, or the first one of a new count.

`takeover` tells another tool's position from ours, `loss_answers` what follows from a loss, `count_opening` writes new
counts; here is the order in which these are asked.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

from heliograph.config.start_points import BEGINNING, StartPoint
from heliograph.flow.assignments import LaneAssignments
from heliograph.flow.count_opening import open_counts, topic_ids
from heliograph.flow.log_offsets import source_offsets
from heliograph.flow.loss_answers import LossAnswers
from heliograph.flow.loss_book import LossBook
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_mapping import PartitionMapping
from heliograph.flow.partition_table import PartitionTable, past_of, resume_of
from heliograph.flow.start_positions import find_starts, tell_beginnings
from heliograph.flow.takeover import find_ours
from heliograph.flow.target_inspection import INSPECTED
from heliograph.kafka.admin.topics import EARLIEST, LATEST
from heliograph.ledger.counts import Past, Start
from heliograph.ledger.loss_outcomes import Outcome, never_written_down
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.entry import Entry

log = logging.getLogger("heliograph")


class Enrolment:
    """Enrols the partitions of one flow in its table; holds nothing of its own."""

    def __init__(
        self,
        opening: OpenedFlow,
        table: PartitionTable,
        losses: LossBook,
        *,
        answers: LossAnswers,
        assignments: LaneAssignments,
    ) -> None:
        self._opening = opening
        self._table = table
        self._losses = losses
        self._answers = answers
        self._assignments = assignments

    async def enrol(
        self, fresh: Sequence[PartitionName], mapping: PartitionMapping, is_first: Callable[[PartitionName], bool]
    ) -> int:
        """Give partitions their entry, the ledger's or a new count; return how many got one.

        `is_first` tells whether a partition that was never copied begins at its start position; else it is new and is
        copied whole.
        """
        table, requests, points_of = self._table, self._opening.ledger.position_requests, self._opening.flow
        starts: dict[PartitionName, Start] = {}
        points: dict[PartitionName, StartPoint] = {}
        begun: dict[PartitionName, Entry] = {}
        known_counts = {where: table.known[where].count for where in fresh if where in table.known}
        await self._claim_rows(known_counts, mapping)
        for where in fresh:
            known, stored = table.known.get(where), table.positions.get(where)
            request = requests.get(where)
            if request is not None and request.holds(known, stored):
                points[where] = request.point(points_of.start_positions.of(where[0]))
            elif known is not None:
                begun[where] = known
            elif stored is not None:
                starts[where] = Start(stored, Past.OTHERS)
            else:
                points[where] = points_of.start_positions.of(where[0]) if is_first(where) else BEGINNING
        going_on = await self._resume(begun, starts)
        for where, end in (await source_offsets(self._opening.source, going_on, LATEST)).items():
            table.copy(where, going_on[where].moved(source_end=end))
        await self._losses.flush()
        await self.open_counts(starts)
        await self._begin(points)
        return sum(where in table.entries for where in fresh)

    async def _resume(
        self, begun: Mapping[PartitionName, Entry], starts: dict[PartitionName, Start]
    ) -> dict[PartitionName, Entry]:
        """Find the entries with which begun partitions resume; add a start for those that need a new count."""
        opening = self._opening
        going_on: dict[PartitionName, Entry] = {}
        ahead: dict[PartitionName, tuple[Entry, Start]] = {}
        unclear: dict[PartitionName, Outcome] = {}
        decided: dict[PartitionName, Entry | Start | Outcome] = {}
        for where, known in begun.items():
            if (ids := topic_ids(where, opening.flow, source=opening.source, target=opening.target)) is None:
                continue
            found = resume_of(known, self._table.positions.get(where), source_id=ids[0], target_id=ids[1])
            if isinstance(found, Outcome) and found.code in INSPECTED:
                unclear[where] = found
            elif isinstance(found, Outcome):
                decided[where] = found
            elif self._losses.restore_stop(where, known):
                continue
            elif isinstance(found, Entry):
                going_on[where] = found
            else:
                ahead[where] = known.moved(source_topic_id=ids[0], target_topic_id=ids[1]), found
        decided |= await self._told_apart(ahead)
        decided |= await self._answers.inspect(unclear)
        for where, found in decided.items():
            if isinstance(found, Entry):
                going_on[where] = found
            elif isinstance(found, Start):
                starts[where] = found
            elif (start := self._answers.answer(where, found)) is not None:
                starts[where] = start
        return going_on

    async def _told_apart(
        self, ahead: Mapping[PartitionName, tuple[Entry, Start]]
    ) -> dict[PartitionName, Entry | Start]:
        """Decide about partitions whose stored position is ahead of the ledger's entry: they resume with the entry
        where the ledger lost its newest records, else in a new count where another tool left off; those of which we
        cannot tell yet wait for the next refresh."""
        if not ahead:
            return {}
        opening, assignments = self._opening, self._assignments
        asked = {where: (assignments.of(where, known), start.offset) for where, (known, start) in ahead.items()}
        ours = await find_ours(asked, assignments.terms(), source=opening.source, target=opening.target)
        found: dict[PartitionName, Entry | Start] = {}
        for where, is_ours in ours.items():
            known, start = ahead[where]
            found[where] = known if is_ours else start
            said = (opening.name, *where, start.offset, known.source_offset)
            if is_ours:
                log.warning(
                    "%s %s-%d: the ledger lost its newest records: the stored position is %d, the ledger's %d; what "
                    "the target has beyond that is found in its log",
                    *said,
                )
            else:
                log.info(
                    "%s %s-%d: another tool mirrored this partition: its position is %d, the ledger's %d; resuming at "
                    "its position",
                    *said,
                )
        return found

    async def _claim_rows(self, counts: Mapping[PartitionName, int], mapping: PartitionMapping) -> None:
        """Claim a producer id for every row that partitions stand in, before anything is sent under it."""
        for row in sorted(mapping.rows(counts) - self._opening.ledger.producer_ids.keys()):
            self._opening.check_lead()
            await self._opening.claim_producer_id(row=row)

    async def _begin(self, points: Mapping[PartitionName, StartPoint]) -> None:
        """Open counts for partitions that are new, or whose position somebody set, and log where; those whose leader
        does not answer wait for the next refresh."""
        opening = self._opening
        later = {where: point for where, point in points.items() if not point.is_earliest}
        found = await find_starts(later, opening.source, read_committed=opening.is_read_committed)
        offsets = {where: EARLIEST for where in points if where not in later}
        offsets |= {where: beginning.offset for where, beginning in found.items()}
        starts: dict[PartitionName, Start] = {}
        for where, offset in offsets.items():
            ids = topic_ids(where, opening.flow, source=opening.source, target=opening.target)
            if ids is not None:
                starts[where] = Start(offset, past_of(self._table.known.get(where), *ids))
        kept = opening.ledger.position_requests
        requests = {where: request for where in starts if (request := kept.get(where)) is not None}
        await self.open_counts(starts)
        tell_beginnings(opening.name, self._table.entries, found, points, requests)

    async def open_counts(self, starts: Mapping[PartitionName, Start]) -> None:
        """Open a new count for each partition; one that cannot have it now waits for the next refresh."""
        if not starts:
            return
        opening, table = self._opening, self._table
        mapping = PartitionMapping(
            opening.flow, table.known, source=opening.source.catalogue, target=opening.target.catalogue
        )
        await self._claim_rows(
            {where: table.next_count(where, start.above) for where, start in starts.items()}, mapping
        )
        used = await open_counts(
            starts,
            table,
            flow=opening.flow,
            terms=self._assignments.terms(),
            source=opening.source,
            target=opening.target,
            ledger=opening.ledger,
            check=opening.check_lead,
        )
        for where, found in used.items():
            self._losses.inform(where, never_written_down(table.entries[where], found.number, found.records))
        if used:
            await self._losses.flush()
