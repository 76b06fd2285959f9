"""The losses of one flow on the driver: answered by policy, counted, logged, kept on the target, acknowledged."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace

from heliograph.clock import wall_ms
from heliograph.errors import ClusterChanged, LogTruncated, RecordRefused
from heliograph.flow.opening import OpenedFlow
from heliograph.ledger import store
from heliograph.ledger.loss_outcomes import FLOW_STOPPED, GoOn, Outcome, Stop, answer_to
from heliograph.ledger.losses import loss_of, loss_of_flow, mark_at, merge
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.loss import WHOLE_FLOW, Loss, LossKey
from heliograph.ledger.records.rejected_record import Rejected, rejected_of

log = logging.getLogger("heliograph")


class LossBook:
    """Keeps what happened to a flow's records, and which partitions stopped for it."""

    def __init__(self, opening: OpenedFlow) -> None:
        self._opening = opening
        """Its ledger has at once what is noted here."""
        self.counts: dict[str, int] = {}
        """Occurrences by code, since the start."""
        self.stopped: dict[PartitionName, Loss] = {}
        """Partitions that are not copied any more, and why."""
        self._unkept: dict[LossKey, Loss] = {}
        self._rejected: dict[tuple[str, int, int], Rejected] = {}
        """What is not durable on the target yet."""
        self._keeping = asyncio.Lock()

    @property
    def is_halted(self) -> bool:
        """Whether a loss stopped the whole flow."""
        return any(loss.answer == FLOW_STOPPED for loss in self.stopped.values())

    def is_copied(self, topic: str, partition: int) -> bool:
        """Whether a partition is copied."""
        return (topic, partition) not in self.stopped and not self.is_halted

    # -- what happens --------------------------------------------------------------------

    def answer(self, where: PartitionName, outcome: Outcome) -> GoOn | Stop:
        """Name what happened to a partition, and say how it goes on; an occurrence that was acknowledged stops nothing.

        Nobody may act on the answer before `keep` is done.
        """
        kept = self._opening.ledger.losses.get((*where, outcome.code))
        is_accepted = kept is not None and not kept.is_open and kept.mark == self._loss(where, outcome, "").mark
        answer = answer_to(outcome, self._opening.flow, is_accepted=is_accepted)
        loss = self._note(self._loss(where, outcome, str(answer)))
        if isinstance(answer, Stop):
            self.stopped[where] = loss
        elif outcome.code == RecordRefused.code:
            found = rejected_of(where, outcome.details, now_ms=wall_ms())
            self._rejected |= {(*where, record.offset): record for record in found}
        return answer

    def inform(self, where: PartitionName, outcome: Outcome) -> None:
        """Note what does not keep a partition from being copied."""
        self._note(self._loss(where, outcome, "went on behind them"))

    def _loss(self, where: PartitionName, outcome: Outcome, answer: str) -> Loss:
        written = self._opening.ledger.partition(where).entry
        since_ms = written.time_ms if written is not None else 0
        return loss_of(where, outcome, flow=self._opening.flow.name, answer=answer, since_ms=since_ms, now_ms=wall_ms())

    def _note(self, new: Loss) -> Loss:
        kept = self._opening.ledger.losses.get(new.key)
        loss = merge(kept, new)
        if kept is None or kept.mark != new.mark:
            self.counts[new.code] = self.counts.get(new.code, 0) + 1
        if loss.is_open:
            log.error("%s%s", new.text, self._hint(new))
        else:
            place = f"{new.topic}-{new.partition}"
            log.info("%s %s: %s was acknowledged: %s", self._opening.flow.name, place, new.code, new.answer)
        self._opening.ledger.losses[loss.key] = self._unkept[loss.key] = loss
        return loss

    def _hint(self, loss: Loss) -> str:
        if not loss.blocks or loss.answer.startswith("went on"):
            return ""
        return f' until "heliograph acknowledge CONFIG --flow {self._opening.flow.name} --topic {loss.topic}"'

    # -- what is kept --------------------------------------------------------------------

    async def flush(self) -> None:
        """Write down what happened, one caller at a time; what fails here is tried again with the next."""
        opening = self._opening
        async with self._keeping:
            rejected, losses = dict(self._rejected), dict(self._unkept)
            if rejected:
                await store.write_rejected(opening.target, opening.flow, list(rejected.values()), now_ms=wall_ms())
                self._rejected = {key: item for key, item in self._rejected.items() if key not in rejected}
            if losses:
                group_id, topic = opening.flow.group_id, opening.ledger_topic
                await store.write_records(opening.target, topic, group_id, losses.values(), now_ms=wall_ms())
                self._unkept = {key: loss for key, loss in self._unkept.items() if losses.get(key) != loss}

    async def keep_changed(self, error: ClusterChanged) -> None:
        """Write down that the flow cannot run, for `status`: acknowledged or not, as long as it is so."""
        opening = self._opening
        ledger = await store.read_ledger(opening.target, opening.ledger_topic, opening.flow.group_id)
        loss = merge(ledger.losses.get((*WHOLE_FLOW, error.code)), loss_of_flow(error, now_ms=wall_ms()))
        self._unkept[loss.key] = replace(loss, acknowledged_ms=0)
        await self.flush()

    def restore_stop(self, where: PartitionName, known: Entry) -> bool:
        """Whether a loss stopped the partition before a restart that a lane might not meet again: it stays stopped."""
        for loss in self._opening.ledger.losses.values():
            is_lasting = loss.answer == FLOW_STOPPED or loss.code == LogTruncated.code
            is_same = (loss.topic, loss.partition, loss.mark) == (*where, mark_at(known))
            if not (loss.is_open and is_lasting and is_same):
                continue
            outcome = Outcome(loss.code, loss.text, known, {"log_start": loss.end, "log_end": loss.start})
            if isinstance(answer_to(outcome, self._opening.flow), Stop):
                log.error("%s%s", loss.text, self._hint(loss))
                self.stopped[where] = loss
                return True
        return False

    def take(self, loss: Loss) -> bool:
        """Take a record about a loss; True if a partition that it had stopped resumes."""
        mine = self._opening.ledger.losses[loss.key]
        if mine != loss:  # an acknowledgement of less than what has happened meanwhile
            self._unkept[mine.key] = mine
            return False
        where = (loss.topic, loss.partition)
        if loss.is_open or where not in self.stopped or self.stopped[where].code != loss.code:
            return False
        log.info("%s %s-%d: %s was acknowledged: copying goes on", self._opening.flow.name, *where, loss.code)
        del self.stopped[where]
        return True
