"""Finds which records cannot be copied. Pure.

The target's answer names the refused records by their index in the batch, or says only that the batch was refused;
then the lane sends smaller batches until one record is alone. A batch that cannot be read is refused whole.
"""

from __future__ import annotations

import base64
from collections.abc import Sequence
from typing import Any

from heliograph.errors import CorruptBatch, RecordRefused
from heliograph.kafka.batch import Record, iter_records, parse_header
from heliograph.kafka.error_codes import Code
from heliograph.lane.partition_copy import Piece

REFUSALS: dict[int, str] = {
    Code.MESSAGE_TOO_LARGE: "it is larger than the target's max.message.bytes",
    Code.RECORD_LIST_TOO_LARGE: "it is larger than the target's segment",
    Code.INVALID_TIMESTAMP: "its timestamp is out of the range that the target accepts",
    Code.INVALID_RECORD: "the target does not accept it (a null key in a compacted topic?)",
}
"""Reasons by Kafka's error code; a retry does not help."""
MAX_STRETCH = 500
"""Maximum number of records refused at a time; the rest of a longer row is found when copying goes on."""
KEY_BYTES = 192


def refused_by_target(
    piece: Piece, code: int, indexes: Sequence[int], *, message: str | None, where: str
) -> RecordRefused:
    """Make the error for a refused piece: it names the first refused records, or says that one of the piece is.

    A piece that cannot be read here names no records; sent in smaller batches it shows as corrupt on the source.
    """
    cause = message or REFUSALS[code]
    known = sorted({index for index in indexes if 0 <= index < piece.records}) or ([0] if piece.records == 1 else [])
    records = _records_of(piece) if known else []
    if len(records) != piece.records:
        return RecordRefused(
            f"the target refuses a record among source offsets {piece.source_start} to {piece.source_end - 1}",
            where=where,
            why=cause,
            error_code=code,
            piece_bytes=piece.data.nbytes,
        )
    first = known[0]
    stretch = [index for at, index in enumerate(known[:MAX_STRETCH]) if index == first + at]
    offsets = [source + at for source, length in piece.runs for at in range(length)]
    return _refused(
        "the target refuses",
        [_coordinates(offsets[index], records[index]) for index in stretch],
        source_end=offsets[stretch[-1]] + 1,
        code=code,
        cause=cause,
        where=where,
    )


def _records_of(piece: Piece) -> list[Record]:
    try:
        return list(iter_records(parse_header(piece.data), piece.data))
    except CorruptBatch:
        return []


def refused_by_source(error: CorruptBatch, *, position: int, log_end: int) -> RecordRefused:
    """Make the error for a batch that stays corrupt: all its offsets are refused, if its header tells them."""
    base, following = error.details.get("base_offset", -1), error.details.get("next_offset", -1)
    if not (0 <= base < following <= log_end and following > position):
        return RecordRefused(error.what, where=error.where, why=error.why, error_code=Code.CORRUPT_MESSAGE)
    start = max(base, position)
    whole = {"offset": start, "last_offset": following - 1, "timestamp": -1, "size": -1, "key": None}
    return _refused(
        "the source has a corrupt batch at",
        [whole],
        source_end=following,
        code=Code.CORRUPT_MESSAGE,
        cause=f"{error.what}; {error.why}" if error.why else error.what,
        where=error.where,
    )


def _refused(
    what: str, rejected: list[dict[str, Any]], *, source_end: int, code: int, cause: str, where: str
) -> RecordRefused:
    start = int(rejected[0]["offset"])
    number = source_end - start if rejected[0]["size"] < 0 else len(rejected)
    offsets = f"offset {start}" if source_end == start + 1 else f"offsets {start} to {source_end - 1}"
    return RecordRefused(
        f"{what} source {offsets} ({number} record{'' if number == 1 else 's'})",
        where=where,
        why=cause,
        error_code=code,
        cause=cause,
        source_start=start,
        source_end=source_end,
        records=number,
        rejected=rejected,
    )


def _coordinates(offset: int, record: Record) -> dict[str, Any]:
    size = len(record.key or b"") + len(record.value or b"")
    size += sum(len(name) + len(value or b"") for name, value in record.headers)
    key = None if record.key is None else base64.b64encode(bytes(record.key[:KEY_BYTES])).decode()
    return {"offset": offset, "last_offset": offset, "timestamp": record.timestamp, "size": size, "key": key}
