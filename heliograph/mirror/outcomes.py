"""What to do when something happened to records: the policies, as one pure function.

The named outcomes are the codes of `DataError` and its children. Going on is the
default, because a stopped partition loses more with every minute of retention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from heliograph.config.settings import Flow
from heliograph.kafka.admin import EARLIEST
from heliograph.mirror.model import Entry


class Outcome(NamedTuple):
    """What happened to a partition whose copy stands at `entry`."""

    code: str
    text: str
    entry: Entry
    details: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class GoOn:
    """Open a new count at this source offset; EARLIEST is the start of the source's log."""

    source_offset: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Copy this partition no more until the mirror is started again; or none of the flow's."""

    whole_flow: bool = False


def answer_to(outcome: Outcome, flow: Flow) -> GoOn | Stop:
    """Where the copy of a partition goes on after an outcome, if it does."""
    code, _, entry, details = outcome
    match code:
        case "DATA_LOST" | "LOG_TRUNCATED" if flow.on_data_loss != "continue":
            return Stop(whole_flow=flow.on_data_loss == "stop-flow")
        case "DATA_LOST":
            return GoOn(int(details["log_start"]))
        case "LOG_TRUNCATED":
            return GoOn(int(details["log_end"]))
        case "TOPIC_RECREATED" if flow.on_topic_recreated == "stop-partition":
            return Stop()
        case "TOPIC_RECREATED" if flow.on_topic_recreated == "continue":
            return GoOn(entry.source_offset)
        case "TOPIC_RECREATED" | "TARGET_TOPIC_LOST":
            return GoOn(EARLIEST)
        case "TARGET_TRUNCATED":
            return GoOn(_source_of(int(details["target_end"]), entry))
        case "POSITION_UNPROVEN" | "SECOND_WRITER":
            return GoOn(entry.source_offset)
        case _:
            return Stop()


def _source_of(target_offset: int, entry: Entry) -> int:
    """The source offset whose copy stood at a target offset; before the open run all must be copied again."""
    if target_offset < entry.run_target:
        return EARLIEST
    return entry.run_source + target_offset - entry.run_target
