"""Packing assignments into lanes."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.driver.plan import IDLE_BYTES_PER_SECOND, Workforce, key_of, plan_epoch, useful_lanes
from heliograph.lane.partition_copy import may_be_forgotten
from heliograph.ledger.model import Assignment
from tests.unit.helpers.logs import ENTRY


def assignment(flow: str, topic: str, partition: int) -> Assignment:
    return Assignment(
        flow=flow, topic=topic, partition=partition, target_topic=f"a.{topic}", entry=ENTRY, max_message_bytes=1 << 20
    )


def assignments(sizes: dict[str, int]) -> list[Assignment]:
    return [assignment(flow, "t", partition) for flow, size in sizes.items() for partition in range(size)]


def test_plan_spreads_unknown_partitions_evenly() -> None:
    plan = plan_epoch(1, assignments({"a->b": 8}), rates={}, tasks_max={"a->b": 2}, slots=4)
    assert [len(lane) for lane in plan.lanes] == [4, 4]


def test_plan_packs_by_measured_bytes_per_second() -> None:
    rates = {("a->b", "t", 0): 90e6, ("a->b", "t", 1): 30e6, ("a->b", "t", 2): 30e6, ("a->b", "t", 3): 30e6}
    plan = plan_epoch(1, assignments({"a->b": 4}), rates=rates, tasks_max={"a->b": 2}, slots=2)
    lanes = sorted(sorted(item.partition for item in lane) for lane in plan.lanes)
    assert lanes == [[0], [1, 2, 3]]


def test_plan_of_nothing_has_no_lanes() -> None:
    assert plan_epoch(1, [], rates={}, tasks_max={}, slots=2).lanes == ()


sizes = st.dictionaries(st.sampled_from(["a->b", "b->a", "a->c", "c->d"]), st.integers(1, 40), min_size=1)


@given(sizes=sizes, data=st.data(), slots=st.integers(1, 9))
def test_plan_gives_every_partition_to_one_lane_within_the_limits(
    sizes: dict[str, int], data: st.DataObject, slots: int
) -> None:
    tasks_max = {flow: data.draw(st.integers(1, 6)) for flow in sizes}
    items = assignments(sizes)
    rates = {key_of(item): data.draw(st.floats(0, 1e9)) for item in items[:10]}
    plan = plan_epoch(7, items, rates=rates, tasks_max=tasks_max, slots=slots)
    assert Counter(key_of(item) for lane in plan.lanes for item in lane) == Counter(key_of(item) for item in items)
    assert len(plan.lanes) <= min(slots, useful_lanes(sizes, tasks_max))
    assert all(plan.lanes)
    for flow in sizes:
        assert sum(any(item.flow == flow for item in lane) for lane in plan.lanes) <= tasks_max[flow]


@given(sizes=sizes, data=st.data(), slots=st.integers(1, 9))
def test_no_lane_has_more_to_do_than_another_by_more_than_one_partition(
    sizes: dict[str, int], data: st.DataObject, slots: int
) -> None:
    """Flows that may use all slots share them fairly, however different their loads are."""
    items = assignments(sizes)
    rates = {key_of(item): data.draw(st.floats(0, 1e9)) for item in items[:10]}
    plan = plan_epoch(7, items, rates=rates, tasks_max=dict.fromkeys(sizes, slots), slots=slots)
    weights = {key_of(item): rates.get(key_of(item), 0.0) + IDLE_BYTES_PER_SECOND for item in items}
    loads = [sum(weights[key_of(item)] for item in lane) for lane in plan.lanes]
    assert max(loads) <= (min(loads) + max(weights.values())) * (1 + 1e-9)


def test_a_quiet_flow_gets_the_slot_that_a_busy_one_leaves() -> None:
    rates = {("a->b", "t", partition): 50e6 for partition in range(8)}
    flows = {"a->b": 8, "b->a": 8}
    plan = plan_epoch(1, assignments(flows), rates=rates, tasks_max={"a->b": 1, "b->a": 4}, slots=2)
    assert [{item.flow for item in lane} for lane in plan.lanes] == [{"a->b"}, {"b->a"}]


MESH = [f"{source}->{target}" for source in "abcd" for target in "abcd" if source != target]


@given(
    sizes=st.dictionaries(st.sampled_from(MESH), st.integers(1, 12), min_size=2),
    data=st.data(),
    slots=st.integers(1, 3),
)
def test_every_flow_is_in_every_epoch_with_fewer_slots_than_flows(
    sizes: dict[str, int], data: st.DataObject, slots: int
) -> None:
    """However busy some are; rates are those of one epoch after the other."""
    tasks_max = {flow: data.draw(st.integers(1, 4)) for flow in sizes}
    items = assignments(sizes)
    rates: dict[tuple[str, str, int], float] = {}
    for epoch_id in range(3):
        plan = plan_epoch(epoch_id, items, rates=rates, tasks_max=tasks_max, slots=slots)
        assert len(plan.lanes) == min(slots, useful_lanes(sizes, tasks_max)), "no slot is idle while there is work"
        assert {item.flow for lane in plan.lanes for item in lane} == set(sizes)
        carried = [{item.flow for item in lane} for lane in plan.lanes]
        if len(sizes) > slots:
            assert max(map(len, carried)) > 1
        rates |= {key_of(item): data.draw(st.sampled_from([0.0, 1e3, 1e9])) for item in items[:8]}


def workforce(names: str, slots: int | None = None) -> Workforce:
    return Workforce(frozenset(names), len(names) if slots is None else slots)


@pytest.mark.parametrize(
    ("planned", "now", "useful", "outdated"),
    [
        (workforce("12"), workforce("12"), 4, False),
        (workforce("1"), workforce("12"), 4, True),
        (workforce("1"), workforce("12"), 1, False),
        (workforce("12"), workforce("1"), 1, True),
        (workforce("12"), workforce("23"), 2, True),
        (workforce("12", 8), workforce("123", 12), 8, False),
        (workforce(""), workforce("1"), 3, False),
        (workforce(""), workforce("12"), 3, True),
    ],
    ids=[
        "the same",
        "one more",
        "one more and nothing to do for it",
        "one is gone",
        "one is replaced",
        "more slots than lanes",
        "the first has come, which the only lane was waiting for",
        "the first two have come",
    ],
)
def test_lanes_are_planned_anew_when_executors_are_gone_or_more_lanes_can_run(
    planned: Workforce, now: Workforce, useful: int, outdated: bool
) -> None:
    assert planned.is_outdated_by(now, useful) is outdated


def test_the_target_may_have_forgotten_us_behind_records_over_twelve_hours_old() -> None:
    hour, now = 3_600_000, 1_700_000_000_000
    copied = ENTRY.moved(n=5)
    assert may_be_forgotten(copied.moved(newest_ms=now - 13 * hour), now)
    assert not may_be_forgotten(copied.moved(newest_ms=now - 11 * hour), now)
    assert may_be_forgotten(copied, now), "nothing is known of its time"
    assert not may_be_forgotten(ENTRY, now), "nothing was copied"
    assert may_be_forgotten(ENTRY.moved(newest_ms=now - 13 * hour), now), "the count before copied old records"
