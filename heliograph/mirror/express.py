"""Which path the next batches of a partition take: whole, merged, or record by record.

The express path hands a batch on as it stands; only its header is rewritten when it
is sent. Small batches are merged when several wait, since a produce request takes one
batch of a partition only. What may not be copied whole goes by the record path.
Pure: buffers in, chunks out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

from heliograph.kafka.batch import BatchHeader, check_crc, is_express
from heliograph.mirror.record import Chunk, merge, reencode

MERGED_BYTES = 512 * 1024
"""Size that merged batches grow to, if the target takes as much."""

SMALL_BYTES = 32 * 1024
SMALL_COMPRESSED_BYTES = 4 * 1024
FAR_SMALL_BYTES = 128 * 1024
FAR_SMALL_COMPRESSED_BYTES = 32 * 1024
"""Below these sizes batches are merged. Merging costs CPU per record, sending costs a round trip
per batch: when the target is far (slow to answer), larger batches are worth it."""

MAX_MERGED_BATCHES = 4096


def next_parts(
    queue: Sequence[tuple[BatchHeader, memoryview]],
    *,
    position: int,
    max_bytes: int,
    codec: int | None,
    far: bool,
    where: str,
) -> tuple[int, list[Chunk]]:
    """Make the next chunks from the head of the queue: how many batches they took, and the chunks.

    No chunks means that those batches hold nothing at or after the position.
    """
    header, view = queue[0]
    if codec is not None and header.codec != codec:
        return 1, reencode([queue[0]], position=position, max_bytes=max_bytes, codec=codec, where=where)
    if not is_express(header, position=position, max_message_bytes=max_bytes):
        return 1, reencode([queue[0]], position=position, max_bytes=max_bytes, where=where)
    small = _mergeable(queue, position=position, max_bytes=max_bytes, far=far)
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


def _mergeable(queue: Sequence[tuple[BatchHeader, memoryview]], *, position: int, max_bytes: int, far: bool) -> int:
    """How many batches at the head are small, alike and together within the limits."""
    codec = queue[0][0].codec
    if codec:
        small_bytes = FAR_SMALL_COMPRESSED_BYTES if far else SMALL_COMPRESSED_BYTES
    else:
        small_bytes = FAR_SMALL_BYTES if far else SMALL_BYTES
    limit = min(MERGED_BYTES, max_bytes)
    total = taken = 0
    for header, _ in islice(queue, MAX_MERGED_BATCHES):
        size = header.size
        total += size
        if (
            size > small_bytes
            or total > limit
            or header.codec != codec
            or not is_express(header, position=position, max_message_bytes=max_bytes)
        ):
            break
        taken += 1
    return taken
