"""Which path the next batches of a partition take: whole, merged, or record by record.

The express path hands a batch on as it stands; only its header is rewritten when it
is sent. Small batches are merged when several wait, since a produce request takes one
batch of a partition only. What may not be copied whole goes by the record path, and so
does all of a flow that marks its records.
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
"""Batches of so few records are merged wherever the target is: a merged record costs 2 us, a sent batch 30 us."""

MAX_SMALL_BYTES = 128 * 1024
WANTED_BYTES_PER_SECOND = 50e6
COMPRESSED_SHARE = 4
"""Compressed batches must be decompressed and compressed again: they count as small below a quarter only."""

MAX_MERGED_BATCHES = 4096
_EXPRESS_BITS = CODEC_MASK | TRANSACTIONAL


def small_bytes_at(answer_s: float, in_flight: int) -> int:
    """Below which size merging pays, for a target that takes so long to answer.

    A partition sends `in_flight` batches per round trip; below this size that is less than
    it should. At 1 ms (a near broker) 10 KB, at 5 ms (three replicas) 50 KB.
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
    """Make the next chunks from the head of the queue: how many batches they took, and the chunks.

    No chunks means that those batches hold nothing at or after the position, or nothing but what comes home.
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
    """How many batches at the head are small, alike and together within the limits.

    Hot where batches hold one record: the express test of `detour_of` stands here once more, by index.
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
    """How many batches at the head, one at least, are of one codec and together within the limit of a merged one.

    For batches that are taken apart anyway: merging them costs nothing.
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
