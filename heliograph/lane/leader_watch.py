"""Reads a flow's ledger while a lane copies, to learn whether our driver still holds the lease.

Two kinds of records matter. An order of our driver ends the epoch. Lease renewals say that
our driver still leads; a lane that reads of another leader, or of no renewal for too long,
writes nothing more for this flow: another driver may lead by now.
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
"""Minimum number of fetches per lease: a renewal counts from the time of the fetch that returned it."""
FORBIDDEN_PAUSE_S = 1.0
"""Pause between attempts to read a ledger that we have no right to read."""
PAUSE_S = 0.05


class LeaderWatch:
    """Watches the lease of one flow in a lane."""

    def __init__(
        self,
        target: Cluster,
        terms: FlowTerms,
        *,
        owner: str,
        epoch_id: int,
        time_left_ms: Callable[[], int],
        end: Callable[[], None],
        on_lease_lost: Callable[[], None],
        on_may_send: Callable[[], None],
    ) -> None:
        """`owner` is our driver; `end` ends the lane, `on_lease_lost` ends this flow in it, `on_may_send` starts it."""
        self._target = target
        self._terms = terms
        self._owner = owner
        self._epoch_id = epoch_id
        self._time_left_ms = time_left_ms
        self._end = end
        self._on_lease_lost = on_lease_lost
        self._on_may_send = on_may_send
        self._patience_s = LANE_SHARE * terms.lease_ms / 1000
        self._heard_at = host_clock()
        """When our driver last held the lease, as far as we know."""
        self._asked_elsewhere_at = 0.0
        self._is_deposed = self._is_ended = False
        self.restarts = 0
        """How often the ledger was read again from its start."""
        self.has_caught_up = not self._patience_s
        """True once the ledger was read to its end: a late lane's epoch may be over, or its driver deposed."""

    def may_send(self) -> bool:
        """Return whether records may be sent."""
        return self.has_caught_up and not self._is_ended and self.may_write()

    def may_write(self) -> bool:
        """Return whether our driver's lease holds, by the renewals read so far; asked before anything is sent.

        A process that was paused for a while finds out here, before its timers run.
        """
        patience_s = self._patience_s
        if not self._is_deposed and (not patience_s or host_clock() < self._heard_at + patience_s):
            return True
        self._on_lease_lost()
        return False

    async def run(self) -> None:
        """Read the ledger from the epoch's start on, until the lane ends."""
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
                    max_wait_ms=min(wait_ms, max(1, self._time_left_ms())) if self.has_caught_up else 0,
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
            if not self.has_caught_up and is_shown and (not records or offset >= answer.high_watermark):
                self.has_caught_up = True
                self._on_may_send()
            elif not is_shown:
                await asyncio.sleep(PAUSE_S)  # the ledger's new leader does not know the high watermark yet
            await self._ask_elsewhere()

    async def _ask_elsewhere(self) -> None:
        """Refresh the ledger's metadata from another broker when half the time without a renewal has passed.

        The broker that answers our fetches may be deposed and get no new records; so may be the first one asked.
        """
        due_at = max(self._heard_at + self._patience_s / 2, self._asked_elsewhere_at + self._patience_s / 8)
        if not self._patience_s or host_clock() < due_at:
            return
        self._asked_elsewhere_at = host_clock()
        with contextlib.suppress(HeliographError, TimeoutError):
            async with asyncio.timeout(self._patience_s / 4):
                await self._target.refresh([self._terms.ledger_topic], elsewhere=True)

    async def _log_bounds(self, offset: int) -> tuple[int, int, int]:
        """Return where to continue in a ledger that does not have our offset: start, no epoch, and its present end.

        It was truncated or recreated, or its start has passed our offset. Records before its present end may be older
        than those read before. If the cluster does not answer, nothing changes.
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
            '%s: ledger topic "%s" no longer has offset %d (recreated, truncated or expired); reading it again from %d',
            self._terms.name,
            topic,
            offset,
            start,
        )
        return start, -1, end

    def _hear(self, word: LedgerRecord | None, asked_at: float, *, is_old: bool = False) -> None:
        """Act on an order of our driver, on a renewal of its lease, or on another driver's lease.

        A record that is read again (`is_old`) renews nothing.

        An answer may have waited while this process was paused: it proves nothing about the time after `asked_at`.
        A renewal that is read after the lease has run out does not help either: it may be older than that, and
        another driver's lease may follow it in the ledger.
        """
        match word:
            case Order() if word.owner == self._owner and word.end_epoch >= self._epoch_id:
                self._is_ended = True
                self._end()
            case Lease() if word.term > self._terms.term > 0:
                self._is_deposed = True
                self._on_lease_lost()
            case Lease() if word.term == self._terms.term and word.holder.owner == self._owner and self.may_write():
                if not is_old:
                    self._heard_at = max(self._heard_at, asked_at)
