"""Decides what happens after a loss: the policies, as one pure function.

The named outcomes are the codes of `DataError` and its children. Going on is the
default, because a stopped partition loses more with every minute of retention.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from heliograph.config.settings import Flow
from heliograph.kafka.admin.topics import EARLIEST
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.records.entry import Entry


class Outcome(NamedTuple):
    """Something that happened to a partition whose copy stands at `entry`."""

    code: str
    text: str
    entry: Entry
    details: Mapping[str, Any] = {}


@dataclass(frozen=True, slots=True)
class GoOn:
    """Open a new count at this source offset; EARLIEST is the start of the source's log."""

    source_offset: int

    def __str__(self) -> str:
        return f"went on at {'the start of the source log' if self.source_offset == EARLIEST else self.source_offset}"


@dataclass(frozen=True, slots=True)
class Stop:
    """Copy no more of this partition, or of the flow, until it is acknowledged or the mirror started again."""

    whole_flow: bool = False

    def __str__(self) -> str:
        return FLOW_STOPPED if self.whole_flow else PARTITION_STOPPED


FLOW_STOPPED, PARTITION_STOPPED = "flow stopped", "partition stopped"


def answer_to(outcome: Outcome, flow: Flow, *, is_accepted: bool = False) -> GoOn | Stop:
    """Decide whether and where the copy of a partition goes on; after an acknowledged outcome it does."""
    code, _, entry, details = outcome
    match code:
        case "DATA_LOST" | "LOG_TRUNCATED" if flow.on_data_loss != "continue" and not is_accepted:
            return Stop(whole_flow=flow.on_data_loss == "stop-flow")
        case "DATA_LOST":
            return GoOn(int(details["log_start"]))
        case "LOG_TRUNCATED":
            return GoOn(int(details["log_end"]))
        case "TOPIC_RECREATED" if flow.on_topic_recreated == "stop-partition" and not is_accepted:
            return Stop()
        case "TOPIC_RECREATED" if flow.on_topic_recreated == "continue":
            return GoOn(entry.source_offset)
        case "TOPIC_RECREATED" | "TARGET_TOPIC_LOST":
            return GoOn(EARLIEST)
        case "TARGET_TRUNCATED" if "source_offset" in details:
            return GoOn(int(details["source_offset"]))
        case "TARGET_TRUNCATED":
            return GoOn(int(details.get("source_offset", _source_of(int(details["target_end"]), entry))))
        case "POSITION_UNPROVEN" | "SECOND_WRITER":
            return GoOn(entry.source_offset)
        case "RECORD_REFUSED" if "source_end" in details and (is_accepted or flow.on_record_error == "skip"):
            return GoOn(int(details["source_end"]))
        case _:
            return Stop()


def outcome_of(row: LedgerRow) -> Outcome:
    """Return the outcome that a lane reports and could not decide about.

    Where topics have no ids, a log that starts at 0 and ends before the position is taken for a topic made anew.
    """
    outcome = Outcome(row.error_code, row.error_text, row.entry, row.details)
    has_id = row.entry.source_topic_id != NO_TOPIC_ID.hex
    if outcome.code != "LOG_TRUNCATED" or has_id or outcome.details.get("log_start") != 0:
        return outcome
    return outcome._replace(code="TOPIC_RECREATED", text=outcome.text.replace("LOG_TRUNCATED", "TOPIC_RECREATED", 1))


def source_made_anew(known: Entry, topic_id: str) -> Outcome:
    """The source's topic has another id than the entry."""
    text = (
        f"the source topic was made anew (id {known.source_topic_id} before, {topic_id} now); "
        f"the old one was copied up to offset {known.source_offset - 1} of {known.source_end - 1}"
    )
    return Outcome("TOPIC_RECREATED", text, known, {"source_topic_id": topic_id})


def target_made_anew(known: Entry, topic_id: str) -> Outcome:
    """The target's topic has another id than the entry."""
    text = (
        f"the target topic was made anew (id {known.target_topic_id} before, {topic_id} now): its offsets up to "
        f"{known.target_offset - 1} are gone"
    )
    return Outcome("TARGET_TOPIC_LOST", text, known, {"target_topic_id": topic_id})


def never_written_down(opened: Entry, count: int, records: int) -> Outcome:
    """The target has batches of a count that the ledger does not know; the copy begins again behind them."""
    text = (
        f"{records} records on the target are of count {count}, of which the ledger has no entry: they cannot be "
        f"matched with the source and may repeat (source offset {opened.source_offset})"
    )
    return Outcome("POSITION_UNPROVEN", text, opened, {"records": records})


def _source_of(target_offset: int, entry: Entry) -> int:
    """The source offset whose copy stood at a target offset; before the open run all must be copied again."""
    if target_offset < entry.run_target:
        return EARLIEST
    return entry.run_source + target_offset - entry.run_target
