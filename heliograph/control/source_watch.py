"""Watch the source: its log ends and its answers are written to the target, and runs that it outlived are pruned.

What would be lost with the source is then known on the target when the source is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from heliograph.clock import wall_ms
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.log_ends import LogEnd, LogEnds
from heliograph.ledger.records.page import Page

WATCH_S = 2.0
PRUNE_S = 60.0


def plan_log_ends(
    found: Mapping[PartitionName, int],
    *,
    positions: Mapping[PartitionName, int],
    known: Mapping[PartitionName, LogEnd],
    last_look_ms: int,
    positions_then: Mapping[PartitionName, int] | None = None,
) -> dict[PartitionName, LogEnd]:
    """The log ends as found now (-1: no answer, what was known stays), and since when each is not reached by the copy.

    Records that were not there at the last look may have come right after it. `positions_then` are those of the last
    look: a copy that has not moved since, and had something to copy then, stands still.
    """
    ends: dict[PartitionName, LogEnd] = {}
    for where, end in found.items():
        before = known.get(where, LogEnd(-1, 0))
        if end < 0:
            ends[where] = before
            continue
        position = positions.get(where, 0)
        still = _still_ms(position, before, (positions_then or {}).get(where), last_look_ms)
        if position >= end:
            since = still = 0
        elif before.since_ms and position < before.offset:
            since = before.since_ms
        else:
            since = last_look_ms
        ends[where] = LogEnd(end, since, still)
    return ends


def _still_ms(position: int, before: LogEnd, position_then: int | None, last_look_ms: int) -> int:
    """Tell since when a copy with something to copy has not moved; 0 if it has, or had nothing to copy before."""
    if position_then is None:
        return before.still_ms  # the first look of this leader
    if position != position_then or position >= before.offset:
        return 0
    return before.still_ms or last_look_ms


class LogEndSync:
    """Writes the log ends of one flow's source to the ledger."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow
        self._positions: dict[PartitionName, int] | None = None
        """The positions at the last sync."""

    async def sync(self) -> None:
        """Ask for the log ends; write down which moved, and that the source answered."""
        flow = self._flow
        await flow.topics.renew_metadata()
        wanted = list(flow.entries)
        answers = await list_offsets(
            flow.source,
            [TopicPartition(*where) for where in wanted],
            LATEST,
            read_committed=flow.opening.is_read_committed,
        )
        if not wanted:
            await flow.source.refresh([])  # nothing is copied, so nothing was asked
        now_ms = wall_ms()
        found = {(at.topic, at.partition): -1 if answer.error_code else answer.offset for at, answer in answers.items()}
        if found and all(end < 0 for end in found.values()):
            await flow.source.refresh()  # raises if nobody answers
            return
        positions = {where: entry.source_offset for where, entry in flow.ledger.entries.items()}
        ends = plan_log_ends(
            found,
            positions=positions,
            known=flow.ledger.log_ends,
            last_look_ms=flow.ledger.contact_ms or now_ms,
            positions_then=self._positions,
        )
        self._positions = positions
        moved = {where[0] for where, end in ends.items() if flow.ledger.log_ends.get(where) != end}
        contact = Contact.after(flow.ledger.contact, now_ms=now_ms, stall_ms=flow.flow.stall_timeout_ms)
        seen: list[LedgerRecord] = [contact, *_log_ends(moved, ends, now_ms)]
        await store.write_records(flow.target, flow.ledger_topic, flow.flow.group_id, seen, now_ms=now_ms)
        await self._forget_absent(now_ms)
        if silent := {topic for (topic, _), end in found.items() if end < 0}:
            await flow.source.refresh(silent)  # their leaders may have moved

    async def _forget_absent(self, now_ms: int) -> None:
        """Write down that topics which are deleted or deselected have nothing left to copy: they expose nothing."""
        flow = self._flow
        mirrored, written = flow.topics.names.plan().wanted, flow.ledger.entries
        ends = {
            where: LogEnd(entry.source_offset, 0)
            for where, entry in written.items()
            if where[0] not in mirrored and _is_behind(entry, flow.ledger.log_ends.get(where))
        }
        if not ends:
            return
        entries = {where: written[where].moved(source_end=end.offset) for where, end in ends.items()}
        known = flow.ledger.log_ends | ends
        seen = _log_ends({topic for topic, _ in ends}, known, now_ms)
        await store.write_entries(flow.target, flow.ledger_topic, flow.flow.group_id, entries, {})
        await store.write_records(flow.target, flow.ledger_topic, flow.flow.group_id, seen, now_ms=now_ms)


class PageSync:
    """Prunes the pages of one flow's ledger."""

    def __init__(self, flow: FlowDriver) -> None:
        self._flow = flow

    async def sync(self) -> None:
        """Delete pages of records that the source does not have any more, or of which newer copies count; write again
        what a late lane overwrote."""
        flow = self._flow
        again = {where: found for where, known in flow.ledger.partitions.items() if (found := known.overwritten())}
        await store.write_pages(flow.target, flow.ledger_topic, flow.flow.group_id, again)
        outrun = {where: gone for where, known in flow.ledger.partitions.items() if (gone := known.outrun())}
        await store.write_pages(flow.target, flow.ledger_topic, flow.flow.group_id, {}, former=outrun)
        wanted = [
            where for where, known in flow.ledger.partitions.items() if any(known.pages) and where in flow.entries
        ]
        if not wanted:
            return
        answers = await list_offsets(flow.source, [TopicPartition(*where) for where in wanted], EARLIEST)
        pages: dict[PartitionName, dict[int, Page | None]] = {}
        for where in wanted:
            answer = answers[TopicPartition(*where)]
            if not answer.error_code:
                pages[where] = flow.ledger.partition(where).pruned(answer.offset)
        await store.write_pages(flow.target, flow.ledger_topic, flow.flow.group_id, pages)


def _is_behind(entry: Entry, seen: LogEnd | None) -> bool:
    return max(entry.source_end, seen.offset if seen is not None else -1) > entry.source_offset


def _log_ends(topics: Collection[str], ends: Mapping[PartitionName, LogEnd], now_ms: int) -> list[LogEnds]:
    counts: dict[str, int] = {}
    for topic, partition in ends:
        counts[topic] = max(counts.get(topic, 0), partition + 1)
    return [
        LogEnds(
            topic=topic,
            time_ms=now_ms,
            ends=tuple(ends.get((topic, partition), LogEnd(-1, 0)) for partition in range(counts[topic])),
        )
        for topic in sorted(topics)
    ]
