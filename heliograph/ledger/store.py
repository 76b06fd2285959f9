"""Positions and ledger on the target: made, read, claimed. IO around `records`."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from uuid import uuid4

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow
from heliograph.errors import BrokerRefused, ClusterChanged, NotAuthorized
from heliograph.kafka.admin.topics import EARLIEST, NewTopic, create_topics, end_offsets, new_producer_id
from heliograph.kafka.batch import iter_records
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import (
    Group,
    KeyValue,
    append,
    append_all,
    fetch_partition,
    is_out_of_range,
    read_batches,
    read_records,
    read_whole,
)
from heliograph.kafka.partitioner import partition_for
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.lineage import UNKNOWN
from heliograph.ledger.lost_records import lost_records
from heliograph.ledger.mm2.internal_records import OffsetSync
from heliograph.ledger.mm2.offset_syncs import SyncStore
from heliograph.ledger.mm2.positions import (
    SOURCE_CONNECTOR,
    encode_position_key,
    encode_position_value,
    is_connect_record,
    parse_position,
)
from heliograph.ledger.model import FlowTerms, PartitionName
from heliograph.ledger.records.entry import Entry, encode_entry, encode_entry_key
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.page import Page, encode_page
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.rejected_record import Rejected
from heliograph.ledger.records.table import Stored, group_of, iter_ledger
from heliograph.ledger.records.unreadable_records import RefusedRecords
from heliograph.ledger.translation import Syncs, keep_syncs

log = logging.getLogger("heliograph")

R = TypeVar("R")

NOTHING_WRITTEN = -1
"""Instead of an offset."""
COMPACTED = {"cleanup.policy": "compact"}
# Positions and ledger are rewritten every second: small segments keep a reader's way to the end short.
BUSY = {**COMPACTED, "segment.bytes": str(16 * 1024 * 1024), "min.cleanable.dirty.ratio": "0.2"}


async def ensure_topics(cluster: Cluster, topics: Sequence[NewTopic], *, vital: Collection[str]) -> None:
    """Create the internal topics that are not there yet; raises what the cluster answers.

    One that is not vital may be forbidden to us: whoever looks at our rights names that.
    """
    catalogue = await cluster.refresh()
    missing = [topic for topic in topics if topic.name not in catalogue.topics]
    if not missing:
        return
    made = []
    for name, error in (await create_topics(cluster, missing)).items():
        if error is None:
            made.append(name)
        elif name in vital or not isinstance(error, NotAuthorized):
            raise error
    seen = await cluster.refresh(made)
    await wait_for_topics(cluster, {name: 1 for name in made if name in vital or name in seen.topics})


async def wait_for_topics(cluster: Cluster, counts: Mapping[str, int]) -> None:
    """Wait until topics have so many partitions, or more, and each has a leader that the metadata knows."""
    found: dict[str, list[TopicPartition]] = {}
    for _ in range(100):
        catalogue = await cluster.refresh(counts)
        found = {
            name: [TopicPartition(name, index) for index in range(len(catalogue.topics[name].partitions))]
            for name in counts
            if name in catalogue.topics
        }
        if all(len(found.get(name, ())) >= count for name, count in counts.items()) and all(
            catalogue.leader_of(*partition) is not None for partitions in found.values() for partition in partitions
        ):
            break
        await asyncio.sleep(0.05)
    await end_offsets(cluster, [partition for partitions in found.values() for partition in partitions])


async def read_ledger(cluster: Cluster, topic: str, group_id: str, *, like: Ledger | None = None) -> Ledger:
    """The whole ledger of one group; of several claims the first one counts. `like` was read of it before."""
    where = TopicPartition(topic, 0)
    start = (await end_offsets(cluster, [where], timestamp=EARLIEST))[where]
    ledger = Ledger(group_id=group_id, topic=topic, end=start, refused=RefusedRecords(topic))
    if like is not None:
        ledger.refused, ledger.clock = like.refused, like.clock
    await _read_up_to(cluster, topic, ledger, (await end_offsets(cluster, [where]))[where])
    return ledger


async def read_on(cluster: Cluster, topic: str, ledger: Ledger) -> None:
    """Read to the end what came since; another that follows the same ledger meanwhile does no harm."""
    where = TopicPartition(topic, 0)
    begun, known_end = ledger.generation, ledger.end
    end = (await end_offsets(cluster, [where]))[where]
    if end < known_end:
        await read_again(cluster, topic, ledger, begun)
        return
    try:
        await _read_up_to(cluster, topic, ledger, end)
    except BrokerRefused as error:
        if not is_out_of_range(error):
            raise
        await read_again(cluster, topic, ledger, begun)


async def _read_up_to(cluster: Cluster, topic: str, ledger: Ledger, end: int) -> None:
    begun = ledger.generation
    batches = read_batches(cluster, topic, 0, ledger.end, end, read_committed=True, last_epoch=ledger.last_epoch)
    async for header, view in batches:
        if ledger.generation != begun:
            return  # another read it again, up to an end that is later than ours
        for record in iter_records(header, view) if header.record_count else ():
            if ledger.end <= record.offset < end:
                ledger.read(Stored(record.offset, record.key, record.value, header.leader_epoch))
        if ledger.end < header.next_offset <= end:
            ledger.end, ledger.last_epoch = header.next_offset, header.leader_epoch
    if ledger.generation == begun and ledger.end < end:
        ledger.end, ledger.last_epoch = end, UNKNOWN


async def follow(cluster: Cluster, topic: str, ledger: Ledger, *, max_wait_ms: int) -> list[LedgerRecord | None]:
    """Wait for records that come next, and take them over; what they say.

    A topic that was truncated, or whose start has passed us, is read again: `generation` tells that.
    """
    begun = ledger.generation
    try:
        answer = await fetch_partition(
            cluster, topic, 0, ledger.end, channel="listen", max_wait_ms=max_wait_ms, last_epoch=ledger.last_epoch
        )
    except BrokerRefused as error:
        if not is_out_of_range(error):
            raise
        await read_again(cluster, topic, ledger, begun)
        return []
    records = list(iter_ledger(answer.records, ledger.end))
    if ledger.generation != begun:
        return []
    return [ledger.read(record) for record in records]


async def read_again(cluster: Cluster, topic: str, ledger: Ledger, begun: int) -> None:
    """Read a ledger from its start whose topic does not have all that was read of it (an unclean election).

    `begun` is the generation in which that was noticed: of several who notice it one does it.
    """
    if ledger.generation != begun:
        return
    known_end = ledger.end
    found = await read_ledger(cluster, topic, ledger.group_id, like=ledger)
    if ledger.generation != begun:
        return
    lost = lost_records(ledger, found)
    ledger.begin_again(found, lost)
    ledger.refused.forget_from(0, ledger.end)
    log.warning(
        '"%s" %s lost records: it was read up to offset %d, and is read again up to %d. Known here and no longer there '
        "are %d records; the leader writes them again",
        *(cluster.alias, topic, known_end, ledger.end, len(lost)),
    )


async def read_ledgers(cluster: Cluster, topic: str, *, group_id: str | None = None) -> list[Ledger]:
    """Read the ledgers of all groups that share a ledger topic, or of one."""
    ledgers: dict[str, Ledger] = {}
    async for record in read_whole(cluster, topic):
        group = group_of(record.key)
        if group is not None and group_id in (None, group):
            ledger = ledgers.setdefault(group, Ledger(group_id=group, topic=topic, refused=RefusedRecords(topic)))
            ledger.take(record.key, record.value, offset=record.offset)
    return list(ledgers.values())


async def find_ledger(cluster: Cluster, flow: Flow) -> Ledger | None:
    """Read the ledger from its own topic, or from beside the positions where that is not allowed; the newer of two."""
    found = []
    for topic in (flow.ledger_topic, flow.offset_storage_topic):
        if topic not in cluster.catalogue.topics:
            continue
        try:
            ledger = await read_ledger(cluster, topic, flow.group_id)
        except NotAuthorized:
            continue
        if ledger.claim is not None:
            found.append(ledger)
    return max(found, key=lambda ledger: ledger.condition.time_ms if ledger.condition else 0, default=None)


async def claim_producer_id(
    cluster: Cluster, topic: str, ledger: Ledger, *, source_cluster_id: str, target_cluster_id: str, row: int = 0
) -> ProducerClaim:
    """If nobody has claimed a row of the flow yet, bid for it. The first claim wins, ours or not."""
    found = ledger.claim_of(row)
    if found is None:
        claim = ProducerClaim(
            token=uuid4().hex,
            producer_id=await new_producer_id(cluster),
            source_cluster_id=source_cluster_id,
            target_cluster_id=target_cluster_id,
            row=row,
        )
        bid = claim.encode(ledger.group_id)
        await append(cluster, topic, 0, [bid], now_ms=wall_ms())
        await read_on(cluster, topic, ledger)
        found = ledger.claim_of(row) or claim
        if found.token != claim.token:
            await append(cluster, topic, 0, [(bid[0], None)], now_ms=wall_ms())
    _check_clusters(found, source_cluster_id, target_cluster_id, where=f'"{cluster.alias}" {topic}')
    return found


def tell_refused(flow: str, refused: RefusedRecords) -> None:
    """Records that are not what their topic is for are passed over, and that is said."""
    if news := refused.news():
        log.warning("%s: %s", flow, news)


class Positions(NamedTuple):
    found: dict[PartitionName, int]
    refused: RefusedRecords


async def read_positions(
    cluster: Cluster, topic: str, source_alias: str, *, connector: str = SOURCE_CONNECTOR
) -> Positions:
    """The stored positions of one source, as MirrorMaker 2 or we left them, and how many records are no such thing."""
    await cluster.refresh([topic])
    meta = cluster.topic_meta(topic, "reading positions")
    partitions = [TopicPartition(topic, index) for index in range(len(meta.partitions))]
    starts = await end_offsets(cluster, partitions, timestamp=EARLIEST)
    ends = await end_offsets(cluster, partitions)
    positions: dict[PartitionName, int] = {}
    refused = RefusedRecords(topic)
    for where in partitions:
        async for record in read_records(cluster, topic, where.partition, starts[where], ends[where]):
            parsed = parse_position(record.key, record.value) if record.key is not None else None
            if parsed is None:
                if not is_connect_record(record.key, record.value):
                    refused.note(where.partition, record.offset)
                continue
            (name, alias, source_topic, partition), position = parsed
            if (name, alias) != (connector, source_alias):
                continue
            if position is None:
                positions.pop((source_topic, partition), None)
            else:
                positions[source_topic, partition] = position
    return Positions(positions, refused)


Pages = Mapping[PartitionName, Mapping[int, Page | None]]
"""Pages to write, by their start; None deletes one."""


async def write_records(
    cluster: Cluster, topic: str, group_id: str, records: Iterable[LedgerRecord], *, now_ms: int | None = None
) -> int:
    """Write ledger records of any kind and wait until they are durable; return the offset of the first one."""
    encoded = [record.encode(group_id) for record in records]
    if not encoded:
        return NOTHING_WRITTEN
    return await append(cluster, topic, 0, encoded, now_ms=wall_ms() if now_ms is None else now_ms)


async def write_entries(
    cluster: Cluster,
    topic: str,
    group_id: str,
    entries: Mapping[PartitionName, Entry],
    pages: Pages,
    *,
    former: Pages | None = None,
    granted: Iterable[PositionRequest] = (),
) -> None:
    """Write entries to the ledger, and pages of runs before them; requests that they fulfil are gone behind them.

    Done when all is durable.
    """
    now_ms = wall_ms()
    records = _page_records(group_id, pages, former or {})
    records += (
        (encode_entry_key(group_id, *where), encode_entry(entry.moved(time_ms=now_ms)))
        for where, entry in entries.items()
    )
    records += (replace(request, time_ms=0).encode(group_id) for request in granted)
    if records:
        await append(cluster, topic, 0, records, now_ms=now_ms)


async def write_pages(
    cluster: Cluster, topic: str, group_id: str, pages: Pages, *, former: Pages | None = None
) -> None:
    records = _page_records(group_id, pages, former or {})
    if records:
        await append(cluster, topic, 0, records, now_ms=wall_ms())


def _page_records(group_id: str, pages: Pages, former: Pages) -> list[KeyValue]:
    return [
        encode_page(group_id, *where, start, page, is_former=is_former)
        for is_former, given in ((True, former), (False, pages))
        for where, found in given.items()
        for start, page in found.items()
    ]


class StoreKeys(NamedTuple):
    """The keys under which one partition's entry and position are written."""

    entry: bytes
    position: bytes
    position_partition: TopicPartition


def store_keys(terms: FlowTerms, topic: str, partition: int) -> StoreKeys:
    position = encode_position_key(terms.source, topic, partition, connector=terms.connector)
    stored_in = TopicPartition(terms.offset_topic, partition_for(position, terms.offset_partitions))
    return StoreKeys(encode_entry_key(terms.group_id, topic, partition), position, stored_in)


async def read_parsed(
    cluster: Cluster, topic: str, parse: Callable[[bytes | None, bytes | None], R | None]
) -> tuple[list[R], RefusedRecords]:
    """All records of an internal topic's one partition, in their order, and those that are none of that kind."""
    found, refused = [], RefusedRecords(topic)
    async for record in read_whole(cluster, topic):
        parsed = parse(record.key, record.value)
        if parsed is None:
            refused.note(0, record.offset)
        else:
            found.append(parsed)
    return found, refused


async def read_syncs(cluster: Cluster, topic: str) -> tuple[Syncs, RefusedRecords]:
    """Read the offset syncs of a flow, as MirrorMaker 2 would keep them; none if the topic is not there."""
    stores: dict[PartitionName, SyncStore] = {}
    if topic not in (await cluster.refresh([topic])).topics:
        return stores, RefusedRecords(topic)
    syncs, refused = await read_parsed(cluster, topic, OffsetSync.parse)
    keep_syncs(stores, syncs)
    return stores, refused


async def write_positions(cluster: Cluster, terms: FlowTerms, positions: Mapping[PartitionName, int]) -> None:
    """Write positions; a partition of which nothing is copied, 0, has none."""
    records: dict[TopicPartition, list[Group]] = {}
    for where, position in positions.items():
        keys = store_keys(terms, *where)
        value = encode_position_value(position) if position else None
        records.setdefault(keys.position_partition, []).append([(keys.position, value)])
    await append_all(cluster, records, now_ms=wall_ms(), max_bytes=terms.append_bytes)


async def write_rejected(cluster: Cluster, flow: Flow, rejected: Sequence[Rejected], *, now_ms: int) -> None:
    """Keep the coordinates of records that are left out; their topic is made when it is first needed."""
    topic = NewTopic(
        name=flow.rejected_topic,
        partitions=1,
        replication_factor=flow.offset_storage_replication_factor,
        configs={"cleanup.policy": "delete"},
    )
    await ensure_topics(cluster, [topic], vital={topic.name})
    await append(cluster, topic.name, 0, [record.encode(flow.group_id) for record in rejected], now_ms=now_ms)


async def write_lost(cluster: Cluster, topic: str, ledger: Ledger) -> int:
    """Write again what the ledger's topic lost; how many records. Lanes that write meanwhile do no harm: of two
    entries the newer one counts, and an older one that stands last only makes settling longer."""
    lost = dict(ledger.lost)
    if lost:
        await append(cluster, topic, 0, list(lost.items()), now_ms=wall_ms())
        ledger.lost = {key: value for key, value in ledger.lost.items() if lost.get(key) != value}
    return len(lost)


def _check_clusters(claim: ProducerClaim, source_id: str, target_id: str, *, where: str) -> None:
    for side, known, found in (
        ("source", claim.source_cluster_id, source_id),
        ("target", claim.target_cluster_id, target_id),
    ):
        if known != found:
            raise ClusterChanged(
                f"the {side} is cluster {found}, the ledger was written for {known}",
                where=where,
                why="offsets of one cluster mean nothing on another",
                remedy="check bootstrap.servers, or give the new cluster another alias",
                found=f"{side} {found}",
            )
