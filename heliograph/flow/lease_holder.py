"""This process's part in the lease of one flow: wait for it, take it, keep it, give it back. IO around `lease`.

What others do is read from the flow's ledger, which the driver follows all the time. A leader is sure of his lease
only by renewals that came back to him through the ledger: then he has seen all that stands before them, another's
bid too. When he is not sure any more, his flow rests; if he finds that nobody took it, he bids again and goes on
with what he has in memory, else he stands by.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from heliograph.clock import Clock, host_clock, wall_ms
from heliograph.errors import HeliographError, LeaseLost
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import lease as rule
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.process_identity import is_gone
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.standby import StandbyRecord

log = logging.getLogger("heliograph")

LOOK_S = 1.0
"""How often one who waits looks whether the leader lives, if that is on his own host."""
STANDBY_S = 10.0
"""How often one who waits says so."""
TELL_S = 1.0
RETRY_S = 0.3
RELEASE_S = 0.3
"""A stop does not wait longer for a lease to be given back."""


class LeasedFlow(Protocol):
    """What a lease holder needs of a flow."""

    target: Cluster
    ledger: Ledger
    ledger_topic: str

    @property
    def name(self) -> str: ...
    @property
    def wants_reopening(self) -> bool: ...


class _Sent(NamedTuple):
    offset: int
    at: float
    generation: int
    """The ledger's generation when it was sent: after a re-read, offsets may be those of other records."""


class LeaseHolder:
    """Competes for the lease of one flow, for one process."""

    def __init__(
        self,
        flow: LeasedFlow,
        me: Process,
        *,
        lease_ms: Callable[[], int],
        on_change: Callable[[], None] = lambda: None,
        restarts: Callable[[], int] = lambda: 0,
        clock: Clock = host_clock,
    ) -> None:
        """`on_change` is called when it begins or ceases to lead; `restarts` counts the restarts of the flow."""
        self._flow = flow
        self._me = me
        self._lease_ms = lease_ms
        self._on_change = on_change
        self._restarts = restarts
        self._clock = clock
        self._held: Lease | None = None
        """Our last record."""
        self._sent: list[_Sent] = []
        """Our records, the last one that came back and those that have not yet."""
        self._stirred = asyncio.Event()
        self._said = ""

    # -- what is known -------------------------------------------------------------------

    @property
    def term(self) -> int:
        return self._held.term if self._held is not None else 0

    def leads(self) -> bool:
        """Whether we lead now, for certain."""
        return self._is_ours() and self._clock() < self._sure_until()

    def _is_ours(self) -> bool:
        held = self._held
        if held is None or held.state is LeaseState.RELEASED:
            return False
        return self._flow.ledger.leadership.is_led_by(self._me.owner, held.term)

    def _sure_until(self) -> float:
        """Tell until when we lead for certain, by the last record that came back, counted from before it was sent."""
        ledger = self._flow.ledger
        self._sent = [sent for sent in self._sent if sent.generation == ledger.generation]
        while len(self._sent) > 1 and ledger.end > self._sent[1].offset:
            del self._sent[0]
        if not self._sent or ledger.end <= self._sent[0].offset or self._held is None:
            return float("-inf")
        return self._sent[0].at + self._held.lease_ms / 1000

    def check(self) -> None:
        """Raise unless we lead; to be called before anything is written that a leader alone may write."""
        if not self.leads():
            raise LeaseLost(
                "nothing is written: this process does not lead the flow now",
                where=self._flow.name,
                why=f"{other} leads" if (other := self.other()) else "its lease ran out",
            )

    def other(self) -> str:
        """Name who else leads, or led before us; empty if nobody is known."""
        return self._flow.ledger.leadership.other_than(self._me.owner)

    def stir(self) -> None:
        """Look at the lease at once: something happened to it or to the flow."""
        self._stirred.set()

    # -- waiting and taking --------------------------------------------------------------

    async def wait_until_free(self) -> None:
        """Return when nobody leads, as far as we can see."""
        told_at = float("-inf")
        while not self.may_bid():
            leadership = self._flow.ledger.leadership
            assert leadership.lease is not None
            leader = leadership.lease.holder
            if self._said != leader.owner:
                self._said = leader.owner
                log.info("%s: %s leads; standing by", self._flow.name, leader.name)
            if self._clock() - told_at >= STANDBY_S:
                told_at = self._clock()
                await self._tell(StandbyRecord(owner=self._me.owner, time_ms=wall_ms(), host=self._me.host))
            await self._pause(min(leadership.free_at - self._clock(), LOOK_S))

    def may_bid(self) -> bool:
        """Nobody leads; or the one who does is a former life of ours, or dead on this very host."""
        leadership = self._flow.ledger.leadership
        lease = leadership.lease
        if lease is None or leadership.is_free(self._clock()) or lease.holder.owner == self._me.owner:
            return True
        return is_gone(lease.holder, self._me)

    async def bid(self) -> bool:
        """Try to lead; False if another does, or was quicker."""
        flow = self._flow
        await store.read_on(flow.target, flow.ledger_topic, flow.ledger)
        leadership = flow.ledger.leadership
        before, silent_s = leadership.lease, self._clock() - leadership.seen_at
        if not self.may_bid():
            return False
        bid = leadership.next_bid(self._me, lease_ms=self._lease_ms(), now_ms=wall_ms())
        sent = await self._send(bid)
        await store.read_on(flow.target, flow.ledger_topic, flow.ledger)
        self._held, self._sent = bid, [sent]
        if not self.leads() or await self._is_too_soon():
            self._held, self._sent = None, []
            return False
        await self._renew()  # a bid that was compacted away must not make another's later one the first
        self._say_leading(before, silent_s)
        waiting = [StandbyRecord(owner=owner, time_ms=0) for owner in flow.ledger.standbys]
        await self._tell(*waiting)  # those who live say so again
        self._on_change()
        return True

    async def _is_too_soon(self) -> bool:
        """Whether the leader before us renewed while we bid: it may not know of us until its lease runs out."""
        leadership = self._flow.ledger.leadership
        wait_s = leadership.former_free_at - self._clock()
        if wait_s <= 0 or (leadership.former is not None and is_gone(leadership.former, self._me)):
            return False
        await asyncio.sleep(wait_s)
        return True

    def _say_leading(self, before: Lease | None, silent_s: float) -> None:
        name, self._said = self._flow.name, ""
        if before is None or before.holder.owner == self._me.owner:
            log.info("%s: leading", name)
        elif before.state is LeaseState.RELEASED:
            log.info("%s: leading; %s gave it back", name, before.holder.name)
        elif is_gone(before.holder, self._me):
            log.info("%s: leading; %s, who led, is dead", name, before.holder.name)
        else:
            log.warning("%s: taking over from %s, silent for %.1f s", name, before.holder.name, silent_s)
            log.info("%s: leading", name)

    async def _tell(self, *standbys: StandbyRecord) -> None:
        """Write down for `status` who stands by; a failure does no harm."""
        flow = self._flow
        writing = store.write_records(flow.target, flow.ledger_topic, flow.ledger.group_id, standbys)
        if (error := await self._try(writing, TELL_S)) is not None:
            log.debug("%s: who stands by was not written down: %s", flow.name, error)

    # -- keeping -------------------------------------------------------------------------

    async def hold(self, reopen: Callable[[], Awaitable[None]]) -> None:
        """Renew until another leads, or the ledger is to be kept, or had to be made, elsewhere.

        `reopen` looks at the clusters anew, before a lease that ran out is bid for again.
        """
        ledger = self._flow.ledger
        trouble: HeliographError | TimeoutError | None = None
        while not self._flow.wants_reopening:
            if not self._is_ours() or self._flow.ledger is not ledger:
                self._step_down()
                return
            if self.leads():
                if self._next_s() <= 0:
                    trouble = await self._try(self._renew(), self._period_s())
                await self._pause(self._next_s() if trouble is None else RETRY_S)
                continue
            self._say_unsure(trouble)
            trouble = await self._try(self._regain(reopen), 10 * self._period_s())
            if trouble is not None:
                await self._pause(RETRY_S)

    async def _renew(self) -> None:
        assert self._held is not None
        held = self._held.moved(LeaseState.HELD, wall_ms(), restarts=self._restarts())
        sent = await self._send(held)
        self._held = held
        self._sent.append(sent)

    async def _send(self, lease: Lease) -> _Sent:
        """Write a record of ours. If it stands where another one was read before, the ledger was truncated: then
        nothing that we sent counts until the ledger is read again."""
        flow, at = self._flow, self._clock()
        ledger, generation, end = flow.ledger, flow.ledger.generation, flow.ledger.end
        offset = await store.write_records(
            flow.target, flow.ledger_topic, ledger.group_id, [lease], now_ms=lease.time_ms
        )
        if offset < end:
            await store.read_again(flow.target, flow.ledger_topic, ledger, generation)
        return _Sent(offset, at, generation)

    async def _regain(self, reopen: Callable[[], Awaitable[None]]) -> None:
        """Find out who leads; if nobody does, we go on."""
        ledger = self._flow.ledger
        await reopen()
        if self._flow.ledger is ledger and self._is_ours():
            await self.bid()

    def _step_down(self) -> None:
        self._held, self._sent = None, []
        leader = self._flow.ledger.leadership.lease
        if leader is not None and leader.holder.owner != self._me.owner:
            self._said = leader.holder.owner
            log.warning("%s: stepping down: %s leads now; standing by", self._flow.name, leader.holder.name)
        self._on_change()

    def _say_unsure(self, trouble: BaseException | None) -> None:
        if self._said != "unsure":
            self._said = "unsure"
            why = "this process or its network stood still" if trouble is None else str(trouble) or "no answer in time"
            log.warning("%s: the lease ran out (%s): copying rests until it is clear who leads", self._flow.name, why)
            self._on_change()

    async def _try(self, work: Awaitable[object], timeout_s: float) -> HeliographError | TimeoutError | None:
        try:
            await asyncio.wait_for(work, timeout_s)
        except (HeliographError, TimeoutError) as error:
            return error
        return None

    def _period_s(self) -> float:
        return (self._held.lease_ms if self._held is not None else self._lease_ms()) / 1000 / rule.RENEWALS

    def _next_s(self) -> float:
        last = self._sent[-1].at if self._sent else float("-inf")
        return last + self._period_s() - self._clock()

    async def _pause(self, seconds: float) -> None:
        """Wait, or until something happens to the lease."""
        try:
            await asyncio.wait_for(self._stirred.wait(), max(0.01, seconds))
        except TimeoutError:
            return
        self._stirred.clear()

    # -- giving back ---------------------------------------------------------------------

    async def release(self) -> None:
        """Let the next one lead at once. Nothing of ours may still be copying."""
        flow, held = self._flow, self._held
        if held is None:
            if self._said and flow.ledger_topic:
                await self._give_up(self._tell(StandbyRecord(owner=self._me.owner, time_ms=0)))
            return
        is_ours, self._held, self._sent = self._is_ours(), None, []
        if is_ours:
            record = held.moved(LeaseState.RELEASED, wall_ms())
            await self._give_up(store.write_records(flow.target, flow.ledger_topic, flow.ledger.group_id, [record]))

    async def _give_up(self, work: Awaitable[object]) -> None:
        try:
            await asyncio.wait_for(work, RELEASE_S)
        except (HeliographError, TimeoutError) as error:
            log.warning("%s: the lease was not given back: %s; it runs out by itself", self._flow.name, error)
