"""The lease of a flow: which process leads it. Pure, but for the clock that callers may bring.

Lease records stand in the flow's ledger under one key, and their order there is the same for all.

A  Of the records of one term the first names its owner; later ones of that term count only if they are its own.
   (A `held` record beats a `bid` of its term: only a winner writes it, and compaction may have taken his bid.)
B  A higher term ends all lower ones at once.
C  An observer believes in a lease until `lease_ms` after he last SAW it move, by his own clock: clocks of two hosts
   are never compared. A leader counts from before he sent the record, so his time is up before anyone else's is.
D  Who bids has read the ledger to its end before, and acts only when he has read his own bid there, first of its term,
   and before its time was up. Between his look and his bid another may bid: the first one wins. Or the leader may
   renew: then the bid ends his term, and who won it still waits for what he believes in (`former_free_at`).
"""

from __future__ import annotations

from dataclasses import dataclass

from heliograph.errors import LeaseLost
from heliograph.ledger.records.lease import TERM_MAX, Lease, LeaseState, Process

LANE_SHARE = 0.8
"""A lane that saw no renewal for this share of a lease ends, before a standby may take over."""
RENEWALS = 3
"""A lease is renewed so often while it lasts."""


@dataclass(slots=True)
class Leadership:
    """The knowledge of one observer about a flow's lease."""

    lease: Lease | None = None
    former: Process | None = None
    """Who led before the present holder, if that was seen."""
    seen_at: float = float("-inf")
    former_free_at: float = float("-inf")
    """Until when the one before the present holder may believe that he leads."""

    def take(self, record: Lease, now: float) -> bool:
        """Take over the next record of the ledger; whether it counts (A, B)."""
        known = self.lease
        if known is not None and not _counts(record, known):
            return False
        if known is not None and known.holder.owner != record.holder.owner:
            self.former = known.holder
            self.former_free_at = float("-inf") if known.state is LeaseState.RELEASED else self.free_at
        self.lease = record
        self.seen_at = now
        return True

    def is_free(self, now: float) -> bool:
        """Whether one may bid (C)."""
        lease = self.lease
        return lease is None or lease.state is LeaseState.RELEASED or self.free_at <= now

    @property
    def free_at(self) -> float:
        return self.seen_at + (self.lease.lease_ms / 1000 if self.lease is not None else 0.0)

    def is_led_by(self, owner: str, term: int) -> bool:
        lease = self.lease
        return lease is not None and (lease.holder.owner, lease.term) == (owner, term)

    def next_bid(self, who: Process, *, lease_ms: int, now_ms: int) -> Lease:
        known = self.lease
        if known is not None and known.term >= TERM_MAX:
            raise LeaseLost(
                f"the lease in the ledger has term {known.term}, which no bid can exceed",
                why="no release of heliograph writes such a term",
                remedy="find out who else writes the ledger's topic, and delete the record of the lease there",
            )
        return Lease(
            holder=who,
            term=known.term + 1 if known is not None else 1,
            state=LeaseState.BID,
            since_ms=now_ms,
            time_ms=now_ms,
            lease_ms=lease_ms,
            former=known.holder.name if known is not None and known.holder.owner != who.owner else "",
        )

    def other_than(self, owner: str) -> str:
        """Return who else leads or led; empty if nobody is known."""
        if self.lease is None:
            return ""
        if self.lease.holder.owner != owner:
            return self.lease.holder.name
        return self.former.name if self.former is not None else self.lease.former


def _counts(record: Lease, known: Lease) -> bool:
    if record.term != known.term:
        return record.term > known.term
    beats = known.state is LeaseState.BID and record.state is not LeaseState.BID
    return record.holder.owner == known.holder.owner or beats
