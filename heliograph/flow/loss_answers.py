"""Answers what happened to partitions: asks the target's log what is lost, then the policies how copying goes on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from heliograph.errors import (
    CorruptBatch,
    HeliographError,
    NotAuthorized,
    RecordRefused,
    SecondWriter,
    TargetTopicLost,
    TargetTruncated,
    TopicRecreated,
)
from heliograph.flow.assignments import LaneAssignments
from heliograph.flow.loss_book import LossBook
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_table import PartitionTable
from heliograph.flow.target_inspection import inspect
from heliograph.ledger.counts import Past, Start, source_at
from heliograph.ledger.loss_outcomes import GoOn, Outcome
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.tail import Unsettled

log = logging.getLogger("heliograph")

RESTARTABLE = (RecordRefused.code, CorruptBatch.code)
"""Errors that stop a partition and that somebody may repair; a partition that a policy stops stays stopped."""
INSPECTIONS = 8
"""Partitions whose target's log is inspected at the same time."""


class LossAnswers:
    """Decides for one flow which partitions get a new count and which stop; keeps which of these may be restarted."""

    def __init__(
        self, opening: OpenedFlow, table: PartitionTable, losses: LossBook, assignments: LaneAssignments
    ) -> None:
        self._opening = opening
        self._table = table
        self._losses = losses
        self._assignments = assignments
        self.failed: set[PartitionName] = set()
        """Stopped partitions that a restart may help."""
        self.has_failed = asyncio.Event()

    def answer(self, where: PartitionName, outcome: Outcome) -> Start | None:
        """Name what happened, and decide by the policies, or by an acknowledgement, where a new count starts; None if
        the partition stops."""
        answer = self._losses.answer(where, self.with_other_leader(self._with_source(where, outcome)))
        if isinstance(answer, GoOn):
            is_recreated = outcome.code in (TopicRecreated.code, TargetTopicLost.code)
            past = Past.VOID if is_recreated else Past.OURS
            return Start(answer.source_offset, past, above=int(outcome.details.get("count", -1)))
        if outcome.code in RESTARTABLE:
            self.failed.add(where)
            self.has_failed.set()
        return None

    def restart(self) -> None:
        """Copy again what failed; the next plan and refresh of topics take it up."""
        for where in self.failed:
            self._losses.stopped.pop(where, None)
        self.failed.clear()
        self._opening.changed.set()

    async def inspect(self, outcomes: Mapping[PartitionName, Outcome]) -> dict[PartitionName, Outcome | Entry]:
        """Ask the target's log about outcomes: it adds to them, or gives the entry with which a copy goes on.

        Partitions of which it tells nothing now are left out: the next refresh, or the next lane, meets them again.
        """
        limit = asyncio.Semaphore(INSPECTIONS)
        found: dict[PartitionName, Outcome | Entry] = {}
        terms = self._assignments.terms() if outcomes else None

        async def look(where: PartitionName, outcome: Outcome) -> None:
            assert terms is not None
            copy = Unsettled.of(self._assignments.of(where, outcome.entry), outcome.entry, terms)
            page, pages = self._table.pages.get(where), list(self._opening.ledger.partition(where).pages)
            async with limit:
                try:
                    found[where] = await inspect(
                        outcome, copy, page, pages, producer_ids=terms.ids_by_row, target=self._opening.target
                    )
                except NotAuthorized:
                    found[where] = outcome
                except HeliographError as error:
                    log.warning("%s %s-%d: cannot tell yet what the target lost: %s", self._opening.name, *where, error)

        await asyncio.gather(*(look(where, outcome) for where, outcome in outcomes.items()))
        return found

    def _with_source(self, where: PartitionName, outcome: Outcome) -> Outcome:
        """Add from which source offset a truncated target is filled again, if the runs before the open one tell."""
        details = outcome.details
        if outcome.code != TargetTruncated.code or "target_end" not in details or "source_offset" in details:
            return outcome
        page, pages = self._table.pages.get(where), self._opening.ledger.partition(where).pages
        found = source_at(int(outcome.details["target_end"]), outcome.entry, page, pages)
        return outcome if found is None else outcome._replace(details={**outcome.details, "source_offset": found})

    def with_other_leader(self, outcome: Outcome) -> Outcome:
        """Add the name of a second writer, if the lease tells it."""
        if outcome.code != SecondWriter.code or not (other := self._opening.other_leader()):
            return outcome
        return outcome._replace(text=f"{outcome.text}; the last other leader of the flow was {other}")
