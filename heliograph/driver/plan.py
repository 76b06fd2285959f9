"""Who copies what in the next epoch. Pure: assignments and rates in, a plan out.

Partitions are packed by measured bytes per second, heaviest first, on the lane
that has least to do. A flow uses at most `tasks.max` lanes, all flows together
at most the slots that Spark has, and a lane may carry several flows. Partitions that are
copied into the same one of the target (`remap`) stay together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.kafka.types import TopicPartition
from heliograph.ledger.model import Assignment, EpochPlan

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


def together(assignments: Sequence[Assignment]) -> list[list[Assignment]]:
    """Group the assignments that must be in one lane; most are alone."""
    found: dict[tuple[str, TopicPartition], list[Assignment]] = {}
    for assignment in assignments:
        found.setdefault((assignment.flow, assignment.target), []).append(assignment)
    return list(found.values())


def useful_lanes(targets_per_flow: Mapping[str, int], tasks_max: Mapping[str, int]) -> int:
    """Count the lanes that could work at the same time if there were slots for all; each target partition has one."""
    return sum(min(tasks_max[flow], count) for flow, count in targets_per_flow.items())


def plan_epoch(
    epoch_id: int,
    assignments: Sequence[Assignment],
    *,
    rates: Mapping[PartitionKey, float],
    tasks_max: Mapping[str, int],
    slots: int,
) -> EpochPlan:
    """Pack assignments into lanes; every assignment is in exactly one lane."""
    by_flow: dict[str, list[list[Assignment]]] = {}
    for unit in together(assignments):
        by_flow.setdefault(unit[0].flow, []).append(unit)
    lane_count = min(slots, useful_lanes({flow: len(units) for flow, units in by_flow.items()}, tasks_max))
    lanes: list[list[Assignment]] = [[] for _ in range(lane_count)]
    loads = [0.0] * lane_count

    def weight(unit: Sequence[Assignment]) -> float:
        return sum(rates.get(key_of(assignment), 0.0) + IDLE_BYTES_PER_SECOND for assignment in unit)

    for flow in sorted(by_flow, key=lambda name: (-sum(map(weight, by_flow[name])), name)):
        units = sorted(by_flow[flow], key=lambda unit: (-weight(unit), unit[0].topic, unit[0].partition))
        width = min(tasks_max[flow], lane_count, len(units))
        allowed = sorted(range(lane_count), key=lambda lane: (loads[lane], lane))[:width]
        for unit in units:
            lane = min(allowed, key=lambda index: (loads[index], len(lanes[index]), index))
            lanes[lane].extend(unit)
            loads[lane] += weight(unit)
    return EpochPlan(epoch_id=epoch_id, lanes=tuple(tuple(lane) for lane in lanes if lane))
