"""Compares what the target has with what the source has. Pure: it is given records and knows no cluster.

The source's content is the truth. A record may be missing on either side of a compacted topic only where a later
record of its key stands on that side. A repeat is allowed only where the mirror announced it, and as many.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.cluster.mirror import Record
from tests.fault.stamp import Shape, Stamp, stamp_of

_EXAMPLES = 5
_UNPROVEN = re.compile(
    r"POSITION_UNPROVEN: \S+ (?P<topic>\S+)-(?P<partition>\d+): (?P<records>\d+) records"
    r".*?\(source offset (?P<offset>\d+)\)(?:.*?; all was well at (?P<since>[^;\n]+))?"
)
_LATER_COUNT = re.compile(
    r"SECOND_WRITER: \S+ (?P<topic>\S+)-(?P<partition>\d+): .*? (?P<records>\d+) may repeat "
    r"from source offset (?P<offset>\d+) on(?:.*?; all was well at (?P<since>[^;\n]+))?"
)
"""`since` is when the ledger's entry was written: another count that began at the same offset has another one."""
_LOSSES = re.compile(r"\b(?:DATA_LOST|LOG_TRUNCATED|TARGET_TRUNCATED|TARGET_TOPIC_LOST|TOPIC_RECREATED): [^\n]*")
_FAULTS = ("lost", "repeated", "reordered", "altered", "unwanted")


@dataclass(slots=True)
class Verdict:
    """Of one partition. Sequences of the records concerned, in the order in which they were found."""

    compared: int = 0
    compacted_away: int = 0
    """Records on the target that the source has no more."""
    lost: list[int] = field(default_factory=list)
    repeated: list[int] = field(default_factory=list)
    announced: list[int] = field(default_factory=list)
    """Repeats that the mirror said would be there."""
    reordered: list[int] = field(default_factory=list)
    altered: list[int] = field(default_factory=list)
    """Target offsets: an altered record may have no sequence."""
    unwanted: list[int] = field(default_factory=list)
    """Records that the source never had, or whose transaction was aborted."""

    @property
    def is_good(self) -> bool:
        return not any(getattr(self, name) for name in _FAULTS)

    def __str__(self) -> str:
        found = {name: getattr(self, name) for name in _FAULTS if getattr(self, name)}
        told = [f"{len(items)} {name} ({', '.join(map(str, items[:_EXAMPLES]))})" for name, items in found.items()]
        return f"{self.compared} compared: {', '.join(told) or 'all there, once, in order, unaltered'}"


class _Known(NamedTuple):
    """The records of one side by sequence, and the last sequence of each key."""

    by_sequence: dict[int, Record]
    times: Counter[int]
    """How often each is there: a source that forgot its writer may have one twice, and then so must the target."""
    last_of_key: dict[bytes | None, int]


def judge(
    source: Sequence[Record], target: Sequence[Record], shape: Shape, *, compacted: bool = False, announced: int = 0
) -> Verdict:
    """Compare one partition's records, each side in the order of its offsets."""
    verdict = Verdict()
    wanted = _known(((stamp_of(record), record) for record in source), compacted=compacted)
    stamped: list[tuple[Stamp | None, Record]] = [(stamp_of(record), record) for record in target]
    found = _known(stamped, compacted=compacted)
    seen: Counter[int] = Counter()
    highest = -1
    for stamp, record in stamped:
        if stamp is None or not _is_intact(stamp, record, wanted.by_sequence.get(stamp.sequence), shape):
            verdict.altered.append(record.offset)
            continue
        sequence = stamp.sequence
        seen[sequence] += 1
        if seen[sequence] > max(1, wanted.times[sequence]):
            (verdict.repeated if len(verdict.announced) >= announced else verdict.announced).append(sequence)
        if seen[sequence] > 1:
            continue
        if sequence < highest:
            verdict.reordered.append(sequence)
        highest = max(highest, sequence)
        if sequence in wanted.by_sequence:
            verdict.compared += 1
        elif _was_compacted(record, sequence, wanted, compacted=compacted):
            verdict.compacted_away += 1
        else:
            verdict.unwanted.append(sequence)
    verdict.lost = [
        sequence
        for sequence, record in wanted.by_sequence.items()
        if seen[sequence] < wanted.times[sequence] and not _was_compacted(record, sequence, found, compacted=compacted)
    ]
    return verdict


def missing(acknowledged: Collection[int], source: Sequence[Record], shape: Shape, *, partition: int) -> list[int]:
    """Acknowledged sequences that the source lacks although it may not: then it is no truth to compare with.

    In a topic whose keys come again, only the last one of each key must be there, and its key is in no log:
    all below the source's newest sequence are taken for compacted, but for those with a key of their own.
    """
    there = {stamp.sequence for stamp in map(stamp_of, source) if stamp is not None and stamp.partition == partition}
    floor = max(there, default=-1) if shape.keys else -1
    return sorted(
        sequence
        for sequence in acknowledged
        if sequence not in there and (sequence > floor or shape.has_own_key(sequence))
    )


def announced_repeats(output: str) -> Mapping[tuple[str, int], int]:
    """How many records of which source partition may repeat, as the mirror's log says, all times together.

    One occurrence may be met, and logged, again before a new count is open: it counts once, with its largest number.
    """
    occurrences: dict[tuple[str, int, int, str | None], int] = {}
    for match in (*_UNPROVEN.finditer(output), *_LATER_COUNT.finditer(output)):
        key = (match["topic"], int(match["partition"]), int(match["offset"]), match["since"])
        occurrences[key] = max(occurrences.get(key, 0), int(match["records"]))
    repeats: Counter[tuple[str, int]] = Counter()
    for (topic, partition, _, _), records in occurrences.items():
        repeats[topic, partition] += records
    return repeats


def false_names(output: str) -> list[str]:
    """Losses that the mirror named, each once: no fault takes records or topics away that the mirror has to do with."""
    return sorted(set(_LOSSES.findall(output)))


def _known(stamped: Iterable[tuple[Stamp | None, Record]], *, compacted: bool) -> _Known:
    by_sequence: dict[int, Record] = {}
    times: Counter[int] = Counter()
    last_of_key: dict[bytes | None, int] = {}
    for stamp, record in stamped:
        if stamp is None:
            continue
        by_sequence.setdefault(stamp.sequence, record)
        times[stamp.sequence] += 1
        if compacted:
            last_of_key[record.key] = max(last_of_key.get(record.key, -1), stamp.sequence)
    return _Known(by_sequence, times, last_of_key)


def _is_intact(stamp: Stamp, record: Record, original: Record | None, shape: Shape) -> bool:
    """As it was written, in the partition it was written to, and equal to what the source has of it."""
    return (
        stamp.writer == shape.writer
        and stamp.partition == record.partition
        and record.content == tuple(shape.content(stamp))
        and (original is None or record.content == original.content)
    )


def _was_compacted(record: Record, sequence: int, side: _Known, *, compacted: bool) -> bool:
    """Whether a side may lack a record because it has a later one of the same key."""
    return compacted and side.last_of_key.get(record.key, -1) > sequence
