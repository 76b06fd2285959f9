"""Takes what the lanes of one flow report, in their rows and in the ledger, and answers it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from heliograph.errors import ForeignWrites, RulesChanged, SecondWriter
from heliograph.flow.loss_answers import LossAnswers
from heliograph.flow.loss_book import LossBook
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_table import PartitionTable
from heliograph.flow.target_inspection import INSPECTED
from heliograph.flow.topics import FlowTopics
from heliograph.ledger import store
from heliograph.ledger.counts import Past, Start
from heliograph.ledger.loss_outcomes import Outcome, outcome_of
from heliograph.ledger.model import LedgerRow, PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.topic_change import ChangeKind, TopicChange
from heliograph.ledger.records.trouble import WHOLE_TOPIC, Trouble
from heliograph.outage_log import Unwritten

log = logging.getLogger("heliograph")


class FlowEpochs:
    """Follows the epochs of one flow."""

    def __init__(
        self,
        opening: OpenedFlow,
        table: PartitionTable,
        losses: LossBook,
        *,
        answers: LossAnswers,
        topics: FlowTopics,
    ) -> None:
        self._opening = opening
        self._table = table
        self._losses = losses
        self._answers = answers
        self._topics = topics
        self._unwritten = Unwritten(opening.name)
        self.left_out = 0
        """Records that were not copied because their provenance header names the target, since the start."""
        self.flushed = asyncio.Event()
        """Set when lanes wrote to the ledger what they copied."""

    # -- an epoch ------------------------------------------------------------------------

    async def take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Take over the rows that lanes report; answer what they could not decide."""
        starts: dict[PartitionName, Start] = {}
        unclear: dict[PartitionName, Outcome] = {}
        for row in rows:
            self._take_row(row, starts, unclear)
        if rows:
            self._unwritten.note([row.unwritten for row in rows if row.unwritten])
        with self._topics.reopening(starts.keys() | unclear.keys()):
            for where, found in (await self._answers.inspect(unclear)).items():
                if isinstance(found, Entry):
                    self._table.resume(where, found)
                else:
                    self._answer(where, found, starts)
            await self._losses.flush()
            await self._topics.keep_troubles(over={(row.topic, row.partition) for row in rows if not row.error_code})
            if starts:
                await self._topics.reopen(starts)

    def _take_row(
        self, row: LedgerRow, starts: dict[PartitionName, Start], unclear: dict[PartitionName, Outcome]
    ) -> None:
        where = (row.topic, row.partition)
        self._table.take_row(row)
        self.left_out += row.left_out
        if not row.error_code:
            self._topics.goes_on(where)
        if row.error_code == RulesChanged.code:
            log.info("%s", row.error_text)
            starts[where] = Start(row.entry.source_offset, Past.OURS)
        elif row.state == "released" and row.error_code in INSPECTED:
            unclear[where] = outcome_of(row)
        elif row.state == "released":
            self._answer(where, outcome_of(row), starts)

    def _answer(self, where: PartitionName, outcome: Outcome, starts: dict[PartitionName, Start]) -> None:
        if (start := self._answers.answer(where, outcome)) is not None:
            starts[where] = start

    def take_written(self) -> None:
        """After a job that failed: go on with what its lanes wrote to the ledger."""
        self._table.take_written(self._opening.ledger)

    async def order_end(self, owner: str, epoch_id: int) -> None:
        """Tell the lanes of this epoch, and of all before it, to end now."""
        opening = self._opening
        order = Order(owner=owner, end_epoch=epoch_id)
        await store.write_records(opening.target, opening.ledger_topic, opening.flow.group_id, [order])

    # -- records of the ledger -----------------------------------------------------------

    def note_loss(self, loss: Loss) -> bool:
        """Take a record about a loss; True if a partition that it had stopped resumes."""
        resumes = self._losses.take(loss)
        if resumes:
            self._opening.changed.set()
        return resumes

    def note_trouble(self, trouble: Trouble) -> None:
        """Log what keeps partitions waiting: once when it begins and once when it is over, not for each partition."""
        where = (trouble.topic, trouble.partition)
        if trouble.partition == WHOLE_TOPIC:
            return  # the driver wrote it
        if trouble.code in (ForeignWrites.code, SecondWriter.code) and not trouble.final:
            entry = self._opening.ledger.partition(where).entry
            if entry is not None:
                outcome = Outcome(trouble.code, trouble.text, entry, trouble.details)
                self._losses.inform(where, self._answers.with_other_leader(outcome))
            return
        if trouble.text and not trouble.final:
            self._topics.waits.note(where, trouble.text)
        else:
            self._topics.goes_on(where)

    def note_change(self, change: TopicChange) -> None:
        """A lane found a topic changed: refresh the topics before that is due."""
        log.debug("%s: %s: %s", self._opening.name, change.topic, change.what)
        if change.what is ChangeKind.GONE:
            self._topics.miss(change.topic)
        self._opening.changed.set()
