"""How losses add up: another occurrence, the same one met again, an acknowledgement. Pure.

A loss is kept once for each partition and code. It adds up what happens again; `mark` tells an occurrence
that is met again (after a restart, or because its partition stood still) from another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from heliograph.errors import (
    ClusterChanged,
    DataLost,
    ForeignWrites,
    LogTruncated,
    PositionUnproven,
    RecordRefused,
    SecondWriter,
    TargetTopicLost,
    TargetTruncated,
    TopicRecreated,
)
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.loss import UNKNOWN, WHOLE_FLOW, Loss, utc
from heliograph.ledger.records.untrusted_json import as_known_offset


def merge(kept: Loss | None, new: Loss) -> Loss:
    """A kept loss after another occurrence, or after the same one was met again."""
    if kept is None:
        return new
    if kept.mark == new.mark:
        return _met_again(kept, new)
    again = replace(new, times=kept.times + 1, first_ms=min(kept.first_ms, new.first_ms))
    if not kept.is_open:
        return again
    return replace(
        again,
        records=_sum(kept.records, new.records),
        start=_least(kept.start, new.start),
        end=max(kept.end, new.end),
    )


def _met_again(kept: Loss, new: Loss) -> Loss:
    """The same occurrence: it may have grown meanwhile, and what was acknowledged is what it was then."""
    known = replace(new, times=kept.times, first_ms=kept.first_ms, last_ms=kept.last_ms)
    if kept.is_open:
        before = UNKNOWN if UNKNOWN in (kept.records, kept.latest) else kept.records - kept.latest
        return replace(
            known,
            records=_sum(before, new.latest),
            start=_least(kept.start, new.start),
            end=max(kept.end, new.end),
        )
    if UNKNOWN in (kept.latest, new.latest) or new.latest <= kept.latest:
        return replace(
            known,
            records=kept.records,
            latest=kept.latest,
            start=kept.start,
            end=max(kept.end, new.end),
            acknowledged_ms=kept.acknowledged_ms,
        )
    return replace(known, records=new.latest - kept.latest, start=kept.end if kept.end >= 0 else new.start)


def newest(kept: Loss | None, read: Loss) -> Loss:
    """Return the state of a loss that knows more: an acknowledgement of an older state does not count."""
    if kept is None or (read.times, read.end) >= (kept.times, kept.end):
        return read
    return kept


def acknowledged(losses: Iterable[Loss], *, topic: str | None, now_ms: int) -> list[Loss]:
    """The losses that are open, of one topic or of all, as they stand once they are acknowledged."""
    return [
        replace(loss, acknowledged_ms=now_ms)
        for loss in sorted(losses, key=lambda loss: loss.key)
        if loss.is_open and topic in (None, loss.topic)
    ]


def _sum(one: int, other: int) -> int:
    return UNKNOWN if UNKNOWN in (one, other) else one + other


def _least(one: int, other: int) -> int:
    return min(one, other) if UNKNOWN not in (one, other) else max(one, other)


# -- from an outcome -----------------------------------------------------------------------


def mark_at(entry: Entry) -> str:
    """The mark of what happens to a copy where it stands."""
    return f"{entry.count}@{entry.source_offset}"


def loss_of(where: tuple[str, int], outcome: Outcome, *, flow: str, answer: str, since_ms: int, now_ms: int) -> Loss:
    """Return the loss that an outcome means; `since_ms` is when the partition was last known to be in order."""
    extent = _extent(outcome)
    number = UNKNOWN if UNKNOWN in (extent.start, extent.end) else max(0, extent.end - extent.start)
    records = number if extent.records is None else extent.records
    return Loss(
        topic=where[0],
        partition=where[1],
        code=outcome.code,
        text=_text(where, outcome, flow=flow, answer=answer, since_ms=since_ms),
        mark=f"{outcome.entry.count}@{extent.mark}",
        first_ms=now_ms,
        last_ms=now_ms,
        records=records,
        latest=records,
        start=extent.start,
        end=extent.end,
        on_target=extent.on_target,
        answer=answer,
    )


def loss_of_flow(error: ClusterChanged, *, now_ms: int) -> Loss:
    """Return the loss of a whole flow: one of its clusters is another one."""
    return Loss(
        topic=WHOLE_FLOW[0],
        partition=WHOLE_FLOW[1],
        code=error.code,
        text=str(error),
        mark=str(error.details.get("found", "")),
        first_ms=now_ms,
        last_ms=now_ms,
        answer="flow stopped",
    )


@dataclass(frozen=True, slots=True)
class _Extent:
    start: int
    end: int
    mark: object
    on_target: bool = False
    records: int | None = None
    """The number of records where it is not the number of offsets."""


def _extent(outcome: Outcome) -> _Extent:
    entry, details = outcome.entry, outcome.details
    at = entry.source_offset
    match outcome.code:
        case DataLost.code:
            return _Extent(at, _number(details, "log_start"), at)
        case LogTruncated.code:
            return _Extent(_number(details, "log_end"), at, at)
        case TopicRecreated.code:
            return _Extent(at, max(at, entry.source_end), details.get("source_topic_id", at))
        case TargetTruncated.code:
            return _Extent(_number(details, "target_end"), entry.target_offset, at, on_target=True)
        case TargetTopicLost.code:
            return _Extent(0, entry.target_offset, details.get("target_topic_id", at), on_target=True)
        case ForeignWrites.code:
            start, end = _number(details, "target_start"), _number(details, "target_end")
            return _Extent(start, end, f"target {start}", on_target=True, records=_number(details, "records"))
        case SecondWriter.code if "target_start" in details:
            start, end = _number(details, "target_start"), _number(details, "target_end")
            return _Extent(start, end, f"target {start}", on_target=True, records=_number(details, "records"))
        case PositionUnproven.code | SecondWriter.code:
            records = _number(details, "records")
            return _Extent(at, at + records if records >= 0 else UNKNOWN, at)
        case RecordRefused.code if "source_start" in details:
            start, end = _number(details, "source_start"), _number(details, "source_end")
            return _Extent(start, end, start, records=_number(details, "records"))
        case _:
            return _Extent(at, UNKNOWN, at)


def _number(details: Mapping[str, Any], name: str) -> int:
    """An offset or a number of records; unknown where there is none, for details may come from a topic."""
    try:
        return as_known_offset(details.get(name, UNKNOWN))
    except ValueError:
        return UNKNOWN


def _text(where: tuple[str, int], outcome: Outcome, *, flow: str, answer: str, since_ms: int) -> str:
    text = outcome.text
    if not text.startswith(outcome.code):
        text = f"{outcome.code}: {flow} {where[0]}-{where[1]}: {text}"
    since = f"; all was well at {utc(since_ms)}" if since_ms else ""
    return f"{text}{since}; {answer}" if answer else f"{text}{since}"
