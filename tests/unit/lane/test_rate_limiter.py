"""A flow's limit: no lane sends more, what it did not send is not saved up, and the lanes' parts add up to it."""

from __future__ import annotations

import asyncio
import logging
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.driver.plan import key_of
from heliograph.driver.rate_shares import FLOOR, plan_shares, share_out
from heliograph.flow.throttling import Throttling
from heliograph.lane import flusher
from heliograph.lane.rate_limiter import BURST_S, PORTION_S, RateLimiter
from heliograph.ledger.model import Assignment, EpochPlan
from heliograph.ledger.records.throttle import LIMIT, Throttle
from tests.fake_cluster import FETCH
from tests.unit.driver.test_plan import assignment
from tests.unit.helpers.lanes import HEAVY, LaneOnFakes, numbers, recent, run
from tests.unit.helpers.logs import ENTRY
from tests.unit.kafka.test_throttle import Clock

# -- the bucket


def send(limiter: RateLimiter, clock: Clock, sizes: list[int], *, seconds: float) -> list[tuple[float, int]]:
    """What a lane with these batches sends, one after the other, in so long; (time, bytes) of each."""
    sent: list[tuple[float, int]] = []
    until = clock.now + seconds
    for size in sizes:
        if limiter.allowance() <= 0:
            clock.now += limiter.wait_s()
        if clock.now >= until:
            break
        limiter.spend(size)
        sent.append((clock.now, size))
    return sent


@given(
    rate=st.integers(1_000, 100_000_000),
    sizes=st.lists(st.integers(100, 1_000_000), min_size=1, max_size=200),
    idle_s=st.floats(0, 100),
)
def test_in_no_stretch_of_time_more_is_sent_than_the_rate_a_burst_and_a_batch(
    rate: int, sizes: list[int], idle_s: float
) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, clock)
    clock.now += idle_s
    sent = send(limiter, clock, sizes, seconds=1e12)
    assert [size for _, size in sent] == sizes
    for first, (begin, _) in enumerate(sent):
        total = 0
        for at, size in sent[first:]:
            total += size
            assert total <= (rate * (at - begin + BURST_S) + max(sizes)) * (1 + 1e-6) + 1


@given(rate=st.integers(200_000, 100_000_000), per_second=st.integers(30, 500))
def test_with_enough_to_send_the_rate_is_reached(rate: int, per_second: int) -> None:
    clock = Clock()
    limiter = RateLimiter(rate, clock)
    size, count = rate // per_second, 3 * per_second
    took_s = [at for at, _ in send(limiter, clock, [size] * count, seconds=1e12)][-1] - 100.0
    assert count * size / took_s == pytest.approx(rate, rel=0.05)


def test_what_was_not_sent_in_a_pause_is_not_saved_up() -> None:
    clock = Clock()
    limiter = RateLimiter(1000, clock)
    assert limiter.allowance() == 0, "nor is it at the start"
    clock.now += 3600
    assert limiter.allowance() == BURST_S * 1000


def test_a_batch_is_never_cut_and_a_large_one_is_paid_for_before_the_next() -> None:
    clock = Clock()
    limiter = RateLimiter(1000, clock)
    clock.now += 1
    limiter.spend(5000)
    assert limiter.allowance() < 0
    assert limiter.wait_s() == pytest.approx(5 - BURST_S + PORTION_S)


def test_a_higher_rate_takes_effect_on_a_debt_and_a_lower_one_does_not() -> None:
    clock = Clock()
    limiter = RateLimiter(1000, clock)
    limiter.spend(5000)
    limiter.set(10_000)
    assert limiter.wait_s() == pytest.approx(0.5 + PORTION_S)
    limiter.set(10)
    assert limiter.wait_s() == pytest.approx(0.5 + PORTION_S)


def test_the_time_that_was_waited_is_counted() -> None:
    clock = Clock()
    limiter = RateLimiter(1000, clock)
    limiter.spend(2000)
    wait_s = limiter.wait_s()
    clock.now += 1
    assert limiter.waited.take_s(clock.now) == pytest.approx(1)
    clock.now += wait_s
    assert limiter.waited.take_s(clock.now) == pytest.approx(wait_s - 1)


# -- the parts of lanes


@given(limit=st.integers(1, 10**9), demands=st.lists(st.floats(0, 1e9), min_size=1, max_size=12))
def test_shares_add_up_and_leave_no_lane_with_nothing(limit: int, demands: list[float]) -> None:
    shares = share_out(limit, demands)
    assert sum(shares) == pytest.approx(limit)
    assert min(shares) >= FLOOR * limit / len(demands) * (1 - 1e-9)


@given(limit=st.integers(1000, 10**9), demands=st.lists(st.floats(0, 1e9), min_size=1, max_size=12))
def test_no_lane_is_held_back_while_another_has_more_than_it_or_more_than_it_asked_for(
    limit: int, demands: list[float]
) -> None:
    shares = share_out(limit, demands)
    floor = FLOOR * limit / len(demands)
    for mine, demand in zip(shares, demands, strict=True):
        if mine < demand * (1 - 1e-6):
            assert all(other <= mine * (1 + 1e-6) for other in shares)
            assert all(other <= max(wanted, floor) * (1 + 1e-6) for other, wanted in zip(shares, demands, strict=True))


def waiting(flow: str, partition: int, records: int) -> Assignment:
    """A partition with so many records behind, each of 1,000 bytes."""
    item = assignment(flow, "t", partition)
    entry = ENTRY.moved(n=10, bytes_copied=10_000, source_offset=10, source_end=10 + records)
    return Assignment(
        flow=flow, topic="t", partition=partition, target_topic=item.target_topic, entry=entry, max_message_bytes=1
    )


def test_a_hot_lane_has_what_quiet_ones_do_not_need() -> None:
    plan = EpochPlan(epoch_id=1, lanes=((waiting("f", 0, 10**6),), (waiting("f", 1, 0),), (waiting("g", 0, 0),)))
    rates = {key_of(plan.lanes[1][0]): 1000.0}
    shares = plan_shares(plan, limits={"f": 1_000_000}, rates=rates, epoch_s=60.0)
    hot, quiet, none = shares["f"]
    assert hot + quiet == pytest.approx(1_000_000)
    assert hot > 0.98 * 1_000_000
    assert quiet >= 1000
    assert none == 0.0
    assert shares.keys() == {"f"}


def test_a_lane_that_was_held_back_is_not_taken_for_a_quiet_one() -> None:
    """It could send little, and much waits for it."""
    plan = EpochPlan(epoch_id=2, lanes=((waiting("f", 0, 10**6),), (waiting("f", 1, 10**6),)))
    rates = {key_of(plan.lanes[0][0]): 990_000.0, key_of(plan.lanes[1][0]): 10_000.0}
    shares = plan_shares(plan, limits={"f": 1_000_000}, rates=rates, epoch_s=60.0)
    assert shares["f"] == pytest.approx((500_000, 500_000))


# -- a lane


RATE = 400_000


@pytest.mark.usefixtures("own_worker")
def test_a_lane_keeps_to_its_share_tells_and_fetches_little_in_advance(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(flusher, "THROTTLE_TELL_S", 0.1)
    count = 20  # 800 kB, two seconds' worth

    async def test() -> None:
        async with LaneOnFakes(partitions=2, brokers=2) as world:
            for number in range(count):
                world.source.append("t", number % 2, recent(number, size=HEAVY))
            async with world.lane(shares=(float(RATE),)) as lane:
                began = time.monotonic()
                half = count // 4
                await lane.until_copied(half, half)
                copied = sum(len(world.copied(partition)) for partition in range(2))
                asked = [
                    partition.partition_max_bytes
                    for call in world.source.calls
                    if call.api_key == FETCH
                    for topic in call.request.topics
                    for partition in topic.partitions
                ]
                assert copied * HEAVY <= RATE * (time.monotonic() - began + BURST_S) + 2 * HEAVY
                await lane.until_copied(count // 2, count // 2)
                assert count * HEAVY <= RATE * (time.monotonic() - began + BURST_S) + 2 * HEAVY
                assert max(asked) <= RATE
                await lane.until(lambda: bool(told(world)))
            assert sorted(world.copied(0) + world.copied(1)) == numbers(count)

    run(test())


def told(world: LaneOnFakes) -> list[Throttle]:
    return [item for item in world.ledger() if isinstance(item, Throttle) and item.cluster == LIMIT]


@pytest.mark.usefixtures("own_worker")
def test_partitions_of_all_brokers_get_their_turn() -> None:
    """Each broker has a channel; the first one could always take all that the limit allows."""

    async def test() -> None:
        async with LaneOnFakes(partitions=4, brokers=4) as world:
            for partition in range(4):
                for number in range(40):
                    world.source.append("t", partition, recent(number, size=HEAVY))
            async with world.lane(shares=(1_000_000.0,)) as lane:
                await lane.until(lambda: sum(len(world.copied(index)) for index in range(4)) >= 24)
                counts = [len(world.copied(index)) for index in range(4)]
                assert min(counts) >= 3, counts

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_debt_is_not_forgotten_with_the_epoch() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for number in range(3):
                world.source.append("t", 0, recent(number, size=HEAVY))
            began = time.monotonic()
            async with world.lane(shares=(HEAVY / 2.0,)) as lane:
                await lane.until_copied(1)
            [row] = lane.rows
            async with world.lane(world.assignments(row.entry), shares=(HEAVY * 2.0,)) as lane:
                await lane.until_copied(2)
                assert time.monotonic() - began > 0.5, "the first batch, at the higher rate"

    run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_lane_that_waits_for_its_limit_ends_at_once() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for number in range(3):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane(shares=(10.0,)) as lane:
                await lane.until_copied(1)
                await asyncio.sleep(0.1)
                began = time.monotonic()
                world.order()
                [row] = await lane.end()
                assert time.monotonic() - began < 2.0
                assert row.entry.n == 1
            assert world.copied() == [0]

    run(test())


# -- what is said


def test_the_limit_is_told_by_its_name_and_as_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    clock = Clock()
    throttling = Throttling("a->b", clock)
    for _ in range(3):
        throttling.note(LIMIT, "me-0", 4.0)
        clock.now += 5
    assert throttling.look() == "held back by max.bytes.per.second 12.0 s of the last 15 s"
    clock.now += 15
    assert throttling.look() == ""
    assert [record.levelname for record in caplog.records] == ["INFO", "INFO"]
    began, over = caplog.messages
    assert began == "a->b: held back by max.bytes.per.second: 4.0 s so far; copying goes on at that rate"
    assert over.startswith("a->b: no longer held back by max.bytes.per.second: it was for 10.0 s")
