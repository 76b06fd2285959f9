"""Who leads a flow: the rule, in a world where everybody reads late and clocks disagree."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.ledger.lease import LANE_SHARE, Leadership
from heliograph.ledger.records.lease import Lease, LeaseState, Process

LEASE_MS = 6000
LEASE_S = LEASE_MS / 1000


def process(owner: str) -> Process:
    return Process(owner=owner, host=f"host-{owner}", pid=ord(owner[0]))


def lease(owner: str, term: int, state: LeaseState = LeaseState.HELD) -> Lease:
    return Lease(holder=process(owner), term=term, state=state, since_ms=0, time_ms=0, lease_ms=LEASE_MS)


def seen(*records: Lease) -> Leadership:
    leadership = Leadership()
    for now, record in enumerate(records):
        leadership.take(record, float(now))
    return leadership


# -- one observer


def test_the_first_bid_of_a_term_wins() -> None:
    assert seen(lease("a", 1, LeaseState.BID), lease("b", 1, LeaseState.BID)).is_led_by("a", 1)


def test_a_higher_term_wins_and_a_lower_one_changes_nothing() -> None:
    leadership = seen(lease("a", 1), lease("b", 2, LeaseState.BID), lease("a", 1))
    assert leadership.is_led_by("b", 2)
    assert leadership.seen_at == 1.0


def test_a_winner_whose_bid_was_compacted_away_is_known_by_his_renewal() -> None:
    assert seen(lease("b", 1, LeaseState.BID), lease("a", 1)).is_led_by("a", 1)
    assert seen(lease("a", 1), lease("b", 1, LeaseState.BID)).is_led_by("a", 1)


def test_a_lease_lasts_from_the_last_renewal_that_was_seen() -> None:
    leadership = seen(lease("a", 1, LeaseState.BID), lease("a", 1), lease("a", 1))
    assert not leadership.is_free(2 + LEASE_S - 0.001)
    assert leadership.is_free(2 + LEASE_S)


def test_nobody_waits_for_a_lease_that_was_given_back_or_never_taken() -> None:
    assert Leadership().is_free(0.0)
    assert seen(lease("a", 1), lease("a", 1, LeaseState.RELEASED)).is_free(1.0)


def test_the_other_leader_is_the_present_one_or_the_one_before_us() -> None:
    leadership = seen(lease("a", 1), lease("b", 2))
    assert leadership.other_than("a") == "host host-b (pid 98)"
    assert leadership.other_than("b") == "host host-a (pid 97)"
    assert leadership.next_bid(process("c"), lease_ms=1, now_ms=2).former == "host host-b (pid 98)"
    assert Leadership().other_than("a") == ""


def test_the_one_before_is_told_by_the_record_when_his_own_are_gone() -> None:
    before = seen(lease("a", 1))
    bid = before.next_bid(process("b"), lease_ms=LEASE_MS, now_ms=0)
    assert seen(bid).other_than("b") == "host host-a (pid 97)"


# -- a world of several


@dataclass
class Contender:
    """Does what a process does, in steps between which anything may happen."""

    name: str
    skew: float
    """What his clock says when the world's says 0."""
    log: list[Lease]
    leadership: Leadership = field(default_factory=Leadership)
    read: int = 0
    bid: tuple[Lease, float] | None = None
    """Made up after a look, not yet written."""
    written: tuple[int, float] | None = None
    """Offset and time of a bid that was not yet read back."""
    renewal: tuple[Lease, float] | None = None
    """On its way."""
    sent: list[tuple[int, float]] = field(default_factory=list)
    term: int = 0
    waits_until: float = float("-inf")

    def take(self, now: float, most: int | None = None) -> None:
        end = len(self.log) if most is None else min(len(self.log), self.read + most)
        for record in self.log[self.read : end]:
            self.leadership.take(record, now + self.skew)
        self.read = end

    def leads(self, now: float) -> bool:
        if not self.term or not self.leadership.is_led_by(self.name, self.term):
            return False
        back = [at for offset, at in self.sent if offset < self.read]
        return bool(back) and self.waits_until <= now + self.skew < max(back) + LEASE_S

    def look(self, now: float) -> None:
        self.take(now)
        if not self.leads(now) and self.leadership.is_free(now + self.skew):
            self.bid = (self.leadership.next_bid(process(self.name), lease_ms=LEASE_MS, now_ms=0), now + self.skew)

    def send(self) -> None:
        if self.bid is not None:
            self.log.append(self.bid[0])
            self.written, self.bid = (len(self.log) - 1, self.bid[1]), None

    def judge(self, now: float) -> None:
        """Read our bid back."""
        if self.written is None:
            return
        self.take(now)
        (offset, at), self.written = self.written, None
        record = self.log[offset]
        if self.leadership.is_led_by(self.name, record.term) and now + self.skew < at + LEASE_S:
            self.term, self.sent, self.waits_until = record.term, [(offset, at)], self.leadership.former_free_at

    def renew(self, now: float) -> None:
        if self.leads(now):
            self.renewal = (lease(self.name, self.term), now + self.skew)

    def land(self) -> None:
        """A renewal may reach the log long after it was sent."""
        if self.renewal is not None:
            self.log.append(self.renewal[0])
            self.sent.append((len(self.log) - 1, self.renewal[1]))
            self.renewal = None

    def release(self, now: float) -> None:
        if self.leads(now) and self.renewal is None:
            self.log.append(lease(self.name, self.term, LeaseState.RELEASED))
            self.term = 0


STEPS = st.sampled_from(["come to lead", "look", "send", "judge", "renew", "land", "release", "read", "read one"])
PAUSES = st.sampled_from([0.0, 0.0, 0.1, 1.0, 3.0, LEASE_S - 0.1, LEASE_S])


LATE_RENEWAL = [
    (0, "come to lead", 0.0),
    (1, "read", 0.0),
    (0, "renew", LEASE_S - 0.1),
    (1, "look", 0.1),
    (0, "land", 0.0),
    (1, "send", 0.0),
    (1, "judge", 0.0),
    (0, "read one", 0.0),
    (0, "read one", 0.0),
]
"""A renewal that was long on its way reaches the log between another's look and his bid."""


@example([0.0, 0.0], LATE_RENEWAL)
@given(
    st.lists(st.integers(-1000, 1000).map(float), min_size=2, max_size=3),
    st.lists(st.tuples(st.integers(0, 2), STEPS, PAUSES), max_size=40),
)
def test_never_do_two_lead_at_the_same_time(skews: list[float], steps: list[tuple[int, str, float]]) -> None:
    log: list[Lease] = []
    contenders = [Contender(name, skew, log) for name, skew in zip("abc", skews, strict=False)]
    now = 0.0
    winners: dict[int, str] = {}
    for who, step, later in steps:
        now += later
        actor = contenders[who % len(contenders)]
        match step:
            case "look":
                actor.look(now)
            case "send":
                actor.send()
            case "judge":
                actor.judge(now)
            case "come to lead":
                actor.look(now)
                actor.send()
                actor.judge(now)
            case "renew":
                actor.renew(now)
            case "land":
                actor.land()
            case "release":
                actor.release(now)
            case "read" | "read one":
                actor.take(now, 1 if step == "read one" else None)
        leaders = [contender for contender in contenders if contender.leads(now)]
        assert len(leaders) <= 1
        for leader in leaders:
            assert winners.setdefault(leader.term, leader.name) == leader.name


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 4), st.sampled_from(list(LeaseState))), max_size=30))
def test_observers_who_read_all_agree_however_late_they_read(records: list[tuple[str, int, LeaseState]]) -> None:
    early, late = Leadership(), Leadership()
    leases = [lease(owner, term, state) for owner, term, state in records]
    for now, record in enumerate(leases):
        early.take(record, float(now))
    for record in leases:
        late.take(record, 1000.0)
    assert early.lease == late.lease


def test_a_lane_ends_before_a_standby_may_take_over() -> None:
    assert 0 < LANE_SHARE * LEASE_S <= LEASE_S - 1
