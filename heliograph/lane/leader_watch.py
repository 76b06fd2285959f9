"""What a lane hears of its leader: it follows the flow's ledger on the target while it copies.

Two things stand there. An order of the driver's ends the epoch. Renewals of the lease say
that our driver still leads; a lane that hears of another leader, or nothing for too long,
may write nothing more for this flow: what it knows may be of the past.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from heliograph.clock import host_clock
from heliograph.errors import HeliographError, NotAuthorized
from heliograph.kafka.admin.topics import EARLIEST, end_offsets
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import fetch_partition, is_out_of_range
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.lease import LANE_SHARE
from heliograph.ledger.model import FlowTerms
from heliograph.ledger.records.lease import Lease
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.table import is_word, iter_ledger, parse_ledger

log = logging.getLogger("heliograph")

LISTEN_WAIT_MS = 5_000
ASKS_PER_LEASE = 12
"""A renewal is taken for as old as the question that it answers, so that one must not be old either."""
FORBIDDEN_PAUSE_S = 1.0
"""Between tries to read a ledger that we may not read now."""
PAUSE_S = 0.05


class LeaderWatch:
    """The ear of one flow in a lane."""

    def __init__(
        self,
        target: Cluster,
        terms: FlowTerms,
        *,
        owner: str,
        epoch_id: int,
        time_left_ms: Callable[[], int],
        end: Callable[[], None],
        lose: Callable[[], None],
        begin: Callable[[], None],
    ) -> None:
        """`owner` is our driver; `end` ends the lane, `lose` its part in this flow, `begin` says that it may send."""
        self._target = target
        self._terms = terms
        self._owner = owner
        self._epoch_id = epoch_id
        self._time_left_ms = time_left_ms
        self._end = end
        self._lose = lose
        self._begin = begin
        self._patience_s = LANE_SHARE * terms.lease_ms / 1000
        self._heard_at = host_clock()
        """When we last heard that our leader leads."""
        self._asked_elsewhere_at = 0.0
        self._is_deposed = self._is_ended = False
        self.restarts = 0
        """How often the ledger was read again from its start."""
        self.has_heard = not self._patience_s
        """All that stood in the ledger was read once: a lane that starts late may be over, or its leader deposed."""

    def may_send(self) -> bool:
        """Whether records may go out."""
        return self.has_heard and not self._is_ended and self.may_write()

    def may_write(self) -> bool:
        """Whether our leader's lease holds, as far as we have heard; asked before anything is sent.

        A process that was stopped for a while finds out here, before its timers run.
        """
        patience_s = self._patience_s
        if not self._is_deposed and (not patience_s or host_clock() < self._heard_at + patience_s):
            return True
        self._lose()
        return False

    async def run(self) -> None:
        """Hear every word in the ledger from the epoch's start on."""
        offset, last_epoch, old_end = self._terms.ledger_end, -1, 0
        wait_ms = min(LISTEN_WAIT_MS, self._terms.lease_ms // ASKS_PER_LEASE or LISTEN_WAIT_MS)
        while True:
            asked_at = host_clock()
            try:
                answer = await fetch_partition(
                    self._target,
                    self._terms.ledger_topic,
                    0,
                    offset,
                    channel="listen",
                    last_epoch=last_epoch,
                    max_wait_ms=min(wait_ms, max(1, self._time_left_ms())) if self.has_heard else 0,
                )
                is_shown = answer.high_watermark >= offset
                records = list(iter_ledger(answer.records, offset))
            except HeliographError as error:
                if is_out_of_range(error):
                    offset, last_epoch, old_end = await self._log_bounds(offset)
                await asyncio.sleep(FORBIDDEN_PAUSE_S if isinstance(error, NotAuthorized) else PAUSE_S)
                continue
            for record in records:
                offset, last_epoch = record.offset + 1, record.epoch
                if is_word(record.key):
                    word = parse_ledger(self._terms.group_id, record.key, record.value)
                    self._hear(word, asked_at, is_old=record.offset < old_end)
            if not self.has_heard and is_shown and (not records or offset >= answer.high_watermark):
                self.has_heard = True
                self._begin()
            elif not is_shown:
                await asyncio.sleep(PAUSE_S)  # a new leader
            await self._ask_elsewhere()

    async def _ask_elsewhere(self) -> None:
        """After silence for half of our patience, ask one broker after the other who leads the ledger's partition: the
        one that answers us may be deposed, and hear as little as we do, and so may be the first one asked."""
        due_at = max(self._heard_at + self._patience_s / 2, self._asked_elsewhere_at + self._patience_s / 8)
        if not self._patience_s or host_clock() < due_at:
            return
        self._asked_elsewhere_at = host_clock()
        with contextlib.suppress(HeliographError, TimeoutError):
            async with asyncio.timeout(self._patience_s / 4):
                await self._target.refresh([self._terms.ledger_topic], elsewhere=True)

    async def _log_bounds(self, offset: int) -> tuple[int, int, int]:
        """Where to begin again in a ledger that does not have our offset: at its start, with no epoch known.

        It was truncated or made anew, or its start has passed us. What stands there before its present end may be
        older than what was heard. Where the cluster does not answer, nothing changes.
        """
        topic = self._terms.ledger_topic
        where = TopicPartition(topic, 0)
        try:
            start = (await end_offsets(self._target, [where], timestamp=EARLIEST))[where]
            end = (await end_offsets(self._target, [where]))[where]
        except HeliographError:
            return offset, -1, 0
        self.restarts += 1
        log.warning(
            '%s: "%s" has no offset %d any more: reading it again from %d', self._terms.name, topic, offset, start
        )
        return start, -1, end

    def _hear(self, word: LedgerRecord | None, asked_at: float, *, is_old: bool = False) -> None:
        """An order of our driver's, or a sign that he leads, or that another does.

        What is read again (`is_old`) is no sign of life.

        An answer may have waited for us while this process stood still: it says nothing of the time after `asked_at`.
        Nor does a renewal help that is read when the lease has run out: it may be older than that, and what was
        given up meanwhile stands further on.
        """
        match word:
            case Order() if word.owner == self._owner and word.end_epoch >= self._epoch_id:
                self._is_ended = True
                self._end()
            case Lease() if word.term > self._terms.term > 0:
                self._is_deposed = True
                self._lose()
            case Lease() if word.term == self._terms.term and word.holder.owner == self._owner and self.may_write():
                if not is_old:
                    self._heard_at = max(self._heard_at, asked_at)
