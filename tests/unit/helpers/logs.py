"""Small logs in memory, batch by batch, for tests of copying and settling."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from heliograph.kafka.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    BatchHeader,
    NewRecord,
    Record,
    compute_crc,
    encode_batch,
    encode_record,
    iter_records,
    parse_header,
)
from heliograph.kafka.codec.k01_fetch import AbortedTransaction, FetchedPartition
from heliograph.kafka.compression import compress
from heliograph.ledger.model import Assignment, LedgerRow
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.runs import OpenPage

PRODUCER_ID = 4711
ENTRY = Entry(
    source_topic_id="0" * 31 + "1",
    target_topic_id="0" * 31 + "2",
    count=0,
    n=0,
    source_offset=0,
    target_offset=0,
    our_end=0,
    run_source=0,
    run_target=0,
)
ASSIGNMENT = Assignment(flow="a->b", topic="t", partition=0, target_topic="a.t", entry=ENTRY, max_message_bytes=1 << 20)


def row_of(**fields: Any) -> LedgerRow:
    """What a lane reports of the assignment."""
    return LedgerRow(
        **{
            "flow": "a->b",
            "topic": "t",
            "partition": 0,
            "lane": 0,
            "entry": ENTRY,
            "records": 0,
            "bytes": 0,
            "active_ms": 1,
            "host": "h",
            "state": "copying",
            "page": OpenPage(0).pack(),
            **fields,
        }
    )


def new_records(start: int, count: int) -> list[NewRecord]:
    """Records that carry their number as value."""
    return [NewRecord(1_000 + number, b"key", str(number).encode()) for number in range(start, start + count)]


def at_offset(
    batch: bytearray, base_offset: int, *, attributes: int = 0, producer_id: int | None = None, leader_epoch: int = 0
) -> bytearray:
    """The batch as it stands in a log at an offset; attributes are added without a new checksum."""
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
    if attributes:
        struct.pack_into(">h", batch, 21, attributes)
    if producer_id is not None:
        struct.pack_into(">q", batch, 43, producer_id)
    return batch


class MemoryLog:
    """A partition's log: batches at their offsets."""

    def __init__(self) -> None:
        self.stored: list[bytearray] = []
        self.end = 0

    def append(self, batch: bytearray | memoryview, *, gap: int = 0, **header: int) -> int:
        base = self.end + gap
        stored = at_offset(bytearray(batch), base, **header)
        self.stored.append(stored)
        self.end = parse_header(stored).next_offset
        return base

    def records(self) -> list[Record]:
        return [record for batch in self.stored for record in iter_records(parse_header(batch), memoryview(batch))]

    def fetched(self, offset: int, *, aborted: Sequence[AbortedTransaction] = ()) -> FetchedPartition:
        data = bytearray().join(batch for batch in self.stored if parse_header(batch).next_offset > offset)
        return FetchedPartition(0, 0, self.end, self.end, 0, tuple(aborted), -1, memoryview(data))

    async def batches(self, start: int, end: int | None = None) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        for batch in self.stored:
            await asyncio.sleep(0)
            header = parse_header(batch)
            if header.next_offset > start and (end is None or header.base_offset < end):
                yield header, memoryview(batch)


def plain_batch(start: int, count: int, codec: int = 0) -> bytearray:
    return encode_batch(new_records(start, count), codec=codec)


def kept_as(
    batch: bytearray,
    *,
    change: Callable[[Record], Record | None] = lambda record: record,
    codec: int | None = None,
    stamped_ms: int | None = None,
) -> bytearray:
    """A batch of a log as a broker may keep it: in another codec, stamped with its own time, without some records.

    Offsets, sequences and producer stay, as they do when a broker writes a batch again.
    """
    header = parse_header(batch)
    found = [left for record in iter_records(header, memoryview(batch)) if (left := change(record)) is not None]
    attributes = (header.codec if codec is None else codec) | (LOG_APPEND_TIME if stamped_ms is not None else 0)
    body = b"".join(
        encode_record(record.offset - header.base_offset, record.timestamp - header.base_timestamp, *record[2:])
        for record in found
    )
    kept = bytearray(batch[:HEADER_SIZE]) + compress(attributes & CODEC_MASK, body)
    struct.pack_into(">i", kept, 8, len(kept) - 12)
    newest_ms = max((record.timestamp for record in found), default=header.max_timestamp)
    struct.pack_into(">q", kept, 35, newest_ms if stamped_ms is None else stamped_ms)
    struct.pack_into(">h", kept, 21, attributes)
    struct.pack_into(">i", kept, 57, len(found))
    struct.pack_into(">I", kept, 17, compute_crc(kept))
    return kept
