"""Reads and writes files of positions: JSON of Kafka Connect's REST API (KIP-875), or CSV with named columns. Pure.

    {"offsets": [{"partition": {"cluster": "A", "topic": "t", "partition": 0}, "offset": {"offset": 41}}]}

    topic,partition,offset        or        topic,partition,position
    t,0,41                                  t,0,42

As in Connect, `offset` is that of the last copied record, and null (in CSV: nothing) resets a partition.
`position` is the next offset to copy. Whatever MirrorMaker 2 refuses is refused here too, in its words. Also refused,
because they would have no effect or an unexpected one: a cluster other than the flow's source, a partition that is
given twice, an offset that no log can reach, and topics and partitions that are not mirrored.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from heliograph.errors import ConfigError
from heliograph.text import some_of

_MAX_PARTITION = (1 << 31) - 1
_MAX_OFFSET = (1 << 63) - 2


class Given(NamedTuple):
    topic: str
    partition: int
    position: int | None
    """The next offset to copy; None: reset it."""


class _Fault(Exception):
    """A fault of one item, as a sentence."""


def read_offsets(text: str, *, name: str, source: str) -> tuple[list[Given], int]:
    """Reads the positions in a file, for a flow from the cluster `source`; also counts resets of unknown partitions.

    A reset is allowed for anything, so that garbage can be cleaned up with the same file everywhere.
    """
    items = list(_csv_items(text, source) if name.lower().endswith(".csv") else _json_items(text, name))
    given: dict[tuple[str, int], Given] = {}
    faults: list[str] = []
    unknown = 0
    for number, (partition, offset, measure) in enumerate(items, 1):
        try:
            found = _read_item(partition, offset, measure, source)
            if found is None:
                unknown += 1
            elif given.setdefault(found[:2], found) != found:
                raise _Fault(f"Source partition {_shown(partition)} is given twice")
        except _Fault as fault:
            faults.append(f"{number}: {fault}")
    if faults:
        raise ConfigError(
            f"{len(faults)} of {len(items)} positions cannot be used",
            where=name,
            why=some_of(faults, separator="; "),
            remedy="nothing was changed",
        )
    return list(given.values()), unknown


def as_body(source: str, positions: Iterable[tuple[str, int, int | None]]) -> str:
    """Writes (topic, partition, position) as Connect's REST API takes them; those without a position are left out."""
    offsets = [
        {"partition": {"cluster": source, "partition": partition, "topic": topic}, "offset": {"offset": position - 1}}
        for topic, partition, position in positions
        if position
    ]
    return json.dumps({"offsets": offsets}, indent=2, ensure_ascii=False)


_Item = tuple[Any, Any, str]
"""Partition and offset as written, and the offset's key: `offset`, or `position`, which is one more."""
_MISSING = object()


def _json_items(text: str, name: str) -> Iterator[_Item]:
    try:
        body = json.loads(text)
    except ValueError as error:
        raise ConfigError("not valid JSON", where=name, why=str(error)) from error
    offsets = body.get("offsets") if isinstance(body, Mapping) else None
    if not isinstance(offsets, list):
        raise ConfigError('the list "offsets" is missing', where=name, remedy='write {"offsets": [...]}')
    for item in offsets:
        if not isinstance(item, Mapping) or not {"partition", "offset"} <= item.keys():
            yield item, _MISSING, "offset"
        else:
            yield item["partition"], item["offset"], "offset"


def _csv_items(text: str, source: str) -> Iterator[_Item]:
    rows = csv.DictReader(io.StringIO(text))
    columns = rows.fieldnames or ()
    measure = next((column for column in ("offset", "position") if column in columns), None)
    if measure is None or not {"topic", "partition"} <= set(columns):
        raise ConfigError(
            "the first line must name the columns",
            where="CSV",
            why=f"it has {', '.join(map(repr, columns)) or 'none'}",
            remedy="write topic,partition,offset (the last copied one) or topic,partition,position (the next one)",
        )
    for row in rows:
        partition = {
            "cluster": row.get("cluster", source),
            "topic": row["topic"],
            "partition": _number(row["partition"]),
        }
        value = (row[measure] or "").strip()
        yield partition, {measure: _number(value)} if value else None, measure


def _number(text: str | None) -> int | str | None:
    try:
        return int(text or "")
    except ValueError:
        return text


def _read_item(partition: Any, offset: Any, measure: str, source: str) -> Given | None:
    if offset is _MISSING:
        raise _Fault(f'{_shown(partition)} must have the keys "partition" and "offset"')
    if offset is None:
        try:
            return Given(*_read_partition(partition, source), None)
        except _Fault:
            return None
    where = _read_partition(partition, source)
    what = f"Source offset {_shown(offset)} for source partition {_shown(partition)}"
    value = _whole(_field(offset, measure, what), measure, what, most=_MAX_OFFSET)
    return Given(*where, value + 1 if measure == "offset" else value)


def _read_partition(partition: Any, source: str) -> tuple[str, int]:
    if partition is None:
        raise _Fault("Source partitions may not be null")
    what = f"Source partition {_shown(partition)}"
    cluster, topic = (_text(_field(partition, key, what), key, what) for key in ("cluster", "topic"))
    number = _whole(_field(partition, "partition", what), "partition", what, most=_MAX_PARTITION)
    if cluster != source:
        raise _Fault(f'{what} is of the cluster "{cluster}", and the flow comes from "{source}"')
    return topic, number


# These are MirrorMaker 2's own sentences; values are written as JSON.


def _field(fields: Any, key: str, what: str) -> Any:
    if not isinstance(fields, Mapping) or key not in fields:
        raise _Fault(f"{what} is missing the '{key}' key, which is required")
    return fields[key]


def _text(value: Any, key: str, what: str) -> str:
    if not isinstance(value, str):
        raise _Fault(f"{_invalid(value, key, what)}, which must be a string")
    return value


def _whole(value: Any, key: str, what: str, *, most: int) -> int:
    if type(value) is not int or value > most:
        raise _Fault(f"{_invalid(value, key, what)}, which must be an integer{_up_to(value, most)}")
    if value < 0:
        raise _Fault(f"{_invalid(value, key, what)}, which cannot be negative")
    return value


def _invalid(value: Any, key: str, what: str) -> str:
    return f"{what} has an invalid value {_shown(value)} for the '{key}' key"


def _up_to(value: Any, most: int) -> str:
    """Adds our limit for a number that is too large; MirrorMaker 2 would call it no integer at all."""
    return f" up to {most}" if type(value) is int else ""


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 200 else f"{text[:200]}..."


def faulty_names(given: Sequence[Given], partitions: Mapping[str, int]) -> list[str]:
    """Lists what is wrong with positions; `partitions` has the number of partitions of each mirrored topic."""
    faults = []
    for topic, partition, position in given:
        if position is None:
            continue
        if topic not in partitions:
            faults.append(f'the topic "{topic}" is unknown, or not mirrored')
        elif partition >= partitions[topic]:
            faults.append(f"{topic} has {partitions[topic]} partitions, no partition {partition}")
    return list(dict.fromkeys(faults))
