"""Stored positions: Kafka Connect's source offsets, byte for byte as MirrorMaker 2 writes them. Pure.

The same bytes let MirrorMaker 2 take over, and us from it (docs/formats.md has test vectors).
"""

from __future__ import annotations

from heliograph.ledger.records.ledger_record import compact
from heliograph.ledger.records.page import Page
from heliograph.ledger.records.untrusted_json import (
    as_fields,
    as_list,
    as_offset,
    as_partition,
    as_text,
    parse_json,
    take,
)

SOURCE_CONNECTOR = "MirrorSourceConnector"


def encode_position_key(cluster: str, topic: str, partition: int, *, connector: str = SOURCE_CONNECTOR) -> bytes:
    """Return the key of a position. Its fields have the order of Java's HashMap: MirrorMaker 2 compares these bytes."""
    return compact([connector, {"cluster": cluster, "partition": partition, "topic": topic}])


def encode_position_value(position: int) -> bytes:
    """Return the value of a position: the stored offset names the last copied record, the position is the next one."""
    return b'{"offset":%d}' % (position - 1)


def parse_position(key: bytes, value: bytes | None) -> tuple[tuple[str, str, str, int], int | None] | None:
    """Return ((connector, cluster, topic, partition), position), the position None if it was deleted.

    None stands for a record that is no position.
    """
    try:
        connector, partition = take(as_list(parse_json(key)), 2)
        fields = as_fields(partition)
        where = (
            as_text(connector),
            as_text(fields["cluster"]),
            as_text(fields["topic"]),
            as_partition(fields["partition"]),
        )
        if value is None:
            return where, None
        offset = as_fields(parse_json(value))["offset"]
    except (ValueError, KeyError):
        return None
    try:
        return where, as_offset(offset) + 1
    except ValueError:
        return where, None


def is_connect_record(key: bytes | None, value: bytes | None) -> bool:
    """Tell whether a record belongs to the offset-storage topic: a position, another connector's, or the ledger's."""
    try:
        return isinstance(parse_json(key), list) and (value is None or _is_readable(value))
    except ValueError:
        return False


def _is_readable(value: bytes) -> bool:
    """Tell whether a value is JSON, or a page of runs where the ledger stands beside the positions."""
    return Page.parse(0, value) is not None or isinstance(parse_json(value), dict)
