"""How a flow's limit in bytes per second is divided among its lanes. Pure.

By demand, anew for every epoch: what a lane's partitions brought of late, and what waits for
them on the source. Small demands are met, the others share the rest equally; so a hot lane has
what quiet ones do not need, and a lane that was held back is not taken for a quiet one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from heliograph.driver.plan import PartitionKey, key_of
from heliograph.ledger.model import Assignment, EpochPlan

FLOOR = 0.02
"""Part of an equal share that every lane has whatever it asked for: what was quiet may wake."""
HEADROOM = 1.1
"""A lane that is not behind gets a little more than it had: rates are averages."""
GUESSED_BYTES = 1000.0
"""Assumed size of a record, in a flow that has copied none yet."""


def plan_shares(
    plan: EpochPlan, *, limits: Mapping[str, int], rates: Mapping[PartitionKey, float], epoch_s: float
) -> dict[str, tuple[float, ...]]:
    """Bytes per second of every lane of the plan, by flow; only flows with a limit have an item."""
    shares = {}
    for flow, limit in limits.items():
        mine = [[item for item in lane if item.flow == flow] for lane in plan.lanes]
        record_bytes = _record_bytes([item for lane in mine for item in lane])
        demands = [
            sum(HEADROOM * rates.get(key_of(item), 0.0) + _backlog(item) * record_bytes / epoch_s for item in lane)
            for lane in mine
            if lane
        ]
        divided = iter(share_out(limit, demands))
        shares[flow] = tuple(next(divided) if lane else 0.0 for lane in mine)
    return shares


def share_out(limit: float, demands: Sequence[float]) -> list[float]:
    """Parts of a limit that add up to it: the smallest demands first, none with more than an equal part of what is
    left; what nobody asks for goes to all alike."""
    floor = FLOOR * limit / max(1, len(demands))
    shares, left = [floor] * len(demands), limit - floor * len(demands)
    for done, index in enumerate(sorted(range(len(demands)), key=demands.__getitem__)):
        more = min(max(0.0, demands[index] - floor), left / (len(demands) - done))
        shares[index] += more
        left -= more
    return [share + left / len(demands) for share in shares]


def _backlog(item: Assignment) -> int:
    """Count the source offsets that wait to be copied."""
    return max(0, item.entry.source_end - item.entry.source_offset)


def _record_bytes(items: Sequence[Assignment]) -> float:
    """Give the mean size of the records copied so far."""
    records = sum(item.entry.n for item in items)
    return sum(item.entry.bytes_copied for item in items) / records if records else GUESSED_BYTES
