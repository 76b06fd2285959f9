"""Chooses the path of a partition's next batches: whole, merged, or record by record.

The express path passes a batch on as it is; only its header is rewritten when it is sent.
Small batches are merged when several wait, since a produce request holds one batch per
partition. Batches that cannot be copied whole take the record path, and so do all batches
of a flow that adds provenance headers.
Pure: buffers in, chunks out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from heliograph.kafka.batch import CODEC_MASK, TRANSACTIONAL, BatchHeader, check_crc, is_express
from heliograph.lane.batches.provenance import Marks
from heliograph.lane.batches.records import MERGED_BYTES, Chunk, merge, reencode

FEW_RECORDS = 16
FEW_RECORDS_BYTES = 32 * 1024
"""Batches of so few records are always merged: a merged record costs 2 us, a sent batch 30 us."""

MAX_SMALL_BYTES = 128 * 1024
WANTED_BYTES_PER_SECOND = 50e6
COMPRESSED_SHARE = 4
"""Compressed batches count as small below a quarter of the size: they must be decompressed and compressed again."""

MAX_MERGED_BATCHES = 4096
_EXPRESS_BITS = CODEC_MASK | TRANSACTIONAL


def small_bytes_at(answer_s: float, in_flight: int) -> int:
    """Return the batch size below which merging pays, for a target that answers in `answer_s`.

    A partition sends `in_flight` batches per round trip; smaller batches would not reach
    `WANTED_BYTES_PER_SECOND`. At 1 ms (a near broker) it is 10 KB, at 5 ms (three replicas) 50 KB.
    """
    return min(MAX_SMALL_BYTES, int(answer_s * WANTED_BYTES_PER_SECOND / in_flight))


def next_parts(
    queue: Sequence[tuple[BatchHeader, memoryview]],
    *,
    position: int,
    max_bytes: int,
    codec: int | None,
    small_bytes: int,
    where: str,
    marks: Marks | None = None,
) -> tuple[int, list[Chunk]]:
    """Make the next chunks from the head of the queue; return how many batches they took, and the chunks.

    No chunks means that those batches hold nothing to copy: all records are before the position or left out.
    """
    if marks is not None:
        taken = _together(queue, max_bytes=max_bytes)
        batches = list(islice(queue, taken))
        return taken, reencode(batches, position=position, max_bytes=max_bytes, codec=codec, marks=marks, where=where)
    header, view = queue[0]
    if codec is not None and header.codec != codec:
        return 1, reencode([queue[0]], position=position, max_bytes=max_bytes, codec=codec, where=where)
    if not is_express(header, position=position, max_message_bytes=max_bytes):
        return 1, reencode([queue[0]], position=position, max_bytes=max_bytes, where=where)
    small = _mergeable(queue, max_bytes=max_bytes, small_bytes=small_bytes)
    if small > 1:
        batches = list(islice(queue, small))
        return small, merge(batches, position=position, max_bytes=max_bytes, where=where)
    check_crc(view, where=where)
    return 1, [
        Chunk(
            view,
            header.record_count,
            header.base_offset,
            header.next_offset,
            header.max_timestamp,
            ((header.base_offset, header.record_count),),
        )
    ]


def _mergeable(queue: Sequence[tuple[BatchHeader, memoryview]], *, max_bytes: int, small_bytes: int) -> int:
    """Return how many batches at the head are small, alike and together within the limits.

    Hot where batches hold one record: it repeats the test of `is_express`, by index.
    """
    codec = queue[0][0].codec
    if codec:
        small_bytes //= COMPRESSED_SHARE
    few_bytes = FEW_RECORDS_BYTES // COMPRESSED_SHARE if codec else FEW_RECORDS_BYTES
    limit = min(MERGED_BYTES, max_bytes)
    total = taken = 0
    for header, view in islice(queue, MAX_MERGED_BATCHES):
        size, attributes, count = len(view), header[5], header[12]
        total += size
        small = size < small_bytes or (count <= FEW_RECORDS and size < few_bytes)
        express = not attributes & ~_EXPRESS_BITS and count == header[6] + 1
        if not small or not express or total > limit or attributes & CODEC_MASK != codec:
            break
        taken += 1
    return taken


def _together(queue: Sequence[tuple[BatchHeader, memoryview]], *, max_bytes: int) -> int:
    """Return how many batches at the head, at least one, have one codec and fit into a merged batch.

    For batches that are decoded anyway: merging them costs nothing.
    """
    codec = queue[0][0].codec
    left = min(MERGED_BYTES, max_bytes) // (COMPRESSED_SHARE if codec else 1)
    taken = 0
    for header, view in islice(queue, MAX_MERGED_BATCHES):
        left -= len(view)
        if taken and (left < 0 or header.codec != codec or not header.record_count):
            break
        taken += 1
    return taken
