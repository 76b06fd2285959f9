"""Opens counts on the target; the driver alone does. IO around `counts`.

A count is in the ledger before any lane can send a batch of its. Its position is stored
before that: a position ahead of its entry would look like another tool's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from heliograph.config.settings import Flow
from heliograph.flow.ledger_rebuild import rebuild_ledger
from heliograph.flow.log_offsets import log_offsets, source_offsets
from heliograph.flow.partition_mapping import PartitionMapping
from heliograph.flow.partition_table import PartitionTable
from heliograph.flow.takeover import Ended, Used, find_used
from heliograph.kafka.admin.topics import EARLIEST, LATEST
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.counts import Extent, Past, Start, first_entry, pages_at_opening
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import FlowTerms, PartitionName
from heliograph.ledger.partition_remap import row_of, turn_of
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page


async def open_counts(
    starts: Mapping[PartitionName, Start],
    table: PartitionTable,
    *,
    flow: Flow,
    terms: FlowTerms,
    source: Cluster,
    target: Cluster,
    ledger: Ledger,
    check: Callable[[], None],
) -> dict[PartitionName, Used]:
    """Begin a new count for each partition at a source offset; EARLIEST and LATEST are the ends of its log.

    A partition without a leader, a topic or a claimed producer id waits for the next look. `check` raises if we may
    not write any more. The counts that the target has of partitions without an entry are given back: theirs is the
    next number, and what they copied may repeat.
    """
    opened: dict[PartitionName, Entry] = {}
    pages: dict[PartitionName, dict[int, Page | None]] = {}
    former: dict[PartitionName, dict[int, Page | None]] = {}
    mapping = PartitionMapping(flow, table.known, source=source.catalogue, target=target.catalogue)
    copies = {where: _target_of(where, mapping, flow, source=source, target=target) for where in starts}
    found = {where: copy for where, copy in copies.items() if copy is not None}
    rows = terms.ids_by_row.keys()
    extents = await _extents(found, source=source, target=target)
    unknown = {
        where: Ended(found[where].target, found[where].modulo, extent.target_end)
        for where, extent in extents.items()
        if where not in table.known
    }
    used = await find_used(unknown, terms.ids_by_row, target=target)
    for where, extent in extents.items():
        start, known, copy = starts[where], table.known.get(where), found[where]
        is_there = topic_ids(where, flow, source=source, target=target) == (copy.source_id, copy.target_id)
        count = table.next_count(where, used[where].number if where in used else start.above)
        if not is_there or row_of(where[1], copy.modulo, turn_of(count)) not in rows:
            continue
        opened[where] = first_entry(
            start,
            extent,
            known=known,
            count=count,
            rule=terms.rule,
            source_id=copy.source_id,
            target_id=copy.target_id,
            modulo=copy.modulo,
        )
        pages[where], former[where] = pages_at_opening(
            start.past,
            opened[where],
            known=known,
            page=table.pages.get(where),
            pages=ledger.partition(where).pages,
            former=ledger.partition(where).former,
        )
    others = {where: entry for where, entry in opened.items() if starts[where].past is Past.OTHERS}
    for where, rebuilt in (await rebuild_ledger(flow, others, source=source, target=target)).items():
        known_to = ledger.partition(where).reach  # what the ledger says is worth more
        pages[where] |= {start: page for start, page in rebuilt.items() if start >= known_to}
    check()
    await store.write_positions(target, terms, {where: entry.source_offset for where, entry in opened.items()})
    await store.write_entries(
        target,
        terms.ledger_topic,
        terms.group_id,
        opened,
        pages,
        former=former,
        granted=[request for where, request in ledger.position_requests.items() if where in opened],
    )
    for where in opened:
        ledger.position_requests.pop(where, None)
    table.take_opened(opened)
    return {where: count for where, count in used.items() if where in opened}


def topic_ids(where: PartitionName, flow: Flow, *, source: Cluster, target: Cluster) -> tuple[str, str] | None:
    """Give the ids of a partition's topic on the source and on the target; None if one of them is gone."""
    topic = source.catalogue.topics.get(where[0])
    remote = target.catalogue.topics.get(flow.remote_topic(where[0]))
    return None if topic is None or remote is None else (topic.topic_id.hex, remote.topic_id.hex)


class _CopyTarget(NamedTuple):
    """The target of a copy, as the clusters were at one moment."""

    source_id: str
    target_id: str
    modulo: int
    target: TopicPartition


def _target_of(
    where: PartitionName, mapping: PartitionMapping, flow: Flow, *, source: Cluster, target: Cluster
) -> _CopyTarget | None:
    ids, modulo, remote = (
        topic_ids(where, flow, source=source, target=target),
        mapping.modulo(where),
        mapping.target(where),
    )
    if ids is None or modulo is None or remote is None:
        return None
    return _CopyTarget(*ids, modulo, remote)


async def _extents(
    copies: Mapping[PartitionName, _CopyTarget], *, source: Cluster, target: Cluster
) -> dict[PartitionName, Extent]:
    """Ask for the extents of each partition whose leaders on both sides answer."""
    wanted = list(copies)
    remotes = {where: copy.target for where, copy in copies.items()}
    starts = await source_offsets(source, wanted, EARLIEST)
    ends = await source_offsets(source, wanted, LATEST)
    targets = await log_offsets(target, remotes, LATEST)
    return {
        where: Extent(starts[where], ends[where], targets[where])
        for where in wanted
        if where in starts and where in ends and where in targets
    }
