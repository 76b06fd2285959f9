"""Who copies what in the next epoch. Pure: assignments and rates in, a plan out.

Partitions are packed by measured bytes per second, heaviest first, on the lane
that has least to do. A flow uses at most `tasks.max` lanes, all flows together
at most the slots that Spark has, and a lane may carry several flows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.mirror.model import Assignment, EpochPlan

PartitionKey = tuple[str, str, int]
"""(flow, topic, partition)"""

IDLE_BYTES_PER_SECOND = 4096.0
"""What a partition weighs even when nothing flows: it is fetched, settled and reported all the same."""


@dataclass(frozen=True, slots=True)
class Workforce:
    """Executors of Spark, and how many lanes they can run at the same time."""

    executors: frozenset[str]
    slots: int

    def is_outdated_by(self, now: Workforce, useful: int) -> bool:
        """Whether lanes planned for this workforce want another plan: one of it is gone, or more lanes can run."""
        return bool(self.executors - now.executors) or min(useful, now.slots) > min(useful, max(1, self.slots))

    def change_to(self, now: Workforce) -> str:
        came, went = len(now.executors - self.executors), len(self.executors - now.executors)
        return f"{went} executors gone, {came} new, {now.slots} slots now"


def key_of(assignment: Assignment) -> PartitionKey:
    return assignment.flow, assignment.topic, assignment.partition


def useful_lanes(partitions_per_flow: Mapping[str, int], tasks_max: Mapping[str, int]) -> int:
    """How many lanes could work at the same time if there were slots for all."""
    return sum(min(tasks_max[flow], count) for flow, count in partitions_per_flow.items())


def plan_epoch(
    epoch_id: int,
    assignments: Sequence[Assignment],
    *,
    rates: Mapping[PartitionKey, float],
    tasks_max: Mapping[str, int],
    slots: int,
) -> EpochPlan:
    """Pack assignments into lanes; every assignment is in exactly one lane."""
    by_flow: dict[str, list[Assignment]] = {}
    for assignment in assignments:
        by_flow.setdefault(assignment.flow, []).append(assignment)
    lane_count = min(slots, useful_lanes({flow: len(items) for flow, items in by_flow.items()}, tasks_max))
    lanes: list[list[Assignment]] = [[] for _ in range(lane_count)]
    loads = [0.0] * lane_count

    def weight(assignment: Assignment) -> float:
        return rates.get(key_of(assignment), 0.0) + IDLE_BYTES_PER_SECOND

    for flow in sorted(by_flow, key=lambda name: (-sum(map(weight, by_flow[name])), name)):
        items = sorted(by_flow[flow], key=lambda item: (-weight(item), item.topic, item.partition))
        width = min(tasks_max[flow], lane_count, len(items))
        allowed = sorted(range(lane_count), key=lambda lane: (loads[lane], lane))[:width]
        for assignment in items:
            lane = min(allowed, key=lambda index: (loads[index], len(lanes[index]), index))
            lanes[lane].append(assignment)
            loads[lane] += weight(assignment)
    return EpochPlan(epoch_id=epoch_id, lanes=tuple(tuple(lane) for lane in lanes if lane))
