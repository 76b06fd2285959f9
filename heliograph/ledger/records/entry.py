"""The ledger record "entry": where the copy of one partition stands. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from heliograph.kafka.log import KeyValue
from heliograph.ledger.lineage import Lineage, PackedLineage
from heliograph.ledger.partition_remap import COUNTS_OF_AN_ID, SAME, producer_epoch_of, turn_of
from heliograph.ledger.records.ledger_record import VERSION, LedgerRecord, encode_key, parse_known_version
from heliograph.ledger.records.untrusted_json import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    as_int,
    as_known_offset,
    as_number,
    as_offset,
    as_partition,
    as_text,
    as_time_ms,
    take,
)

COUNT_MAX = INT32_MAX
"""The highest number of a count: 65,536 producer ids used up."""
_TOPIC_ID = re.compile("[0-9a-f]{32}")
_RULE = re.compile("[a-z ]{0,64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """The state of one partition's copy.

    The count: `n` records were copied in the count of this number, and the next one
    has sequence n modulo 2^31. Counts go on beyond a producer's epochs: their number
    tells the producer id and the epoch (`partition_remap`). `source_offset` is the position, the next
    source offset to copy; `target_offset` the offset its copy is expected to get.
    The open run began at (`run_source`, `run_target`): since then source offset
    s is target offset s - run_source + run_target.
    """

    source_topic_id: str
    target_topic_id: str
    count: int
    n: int
    source_offset: int
    target_offset: int
    our_end: int
    """The target offset after our last batch; others may have written between it and `target_offset`."""
    run_source: int
    run_target: int
    bytes_copied: int = 0
    """Size of the batches written in this count."""
    source_end: int = -1
    """The source's log end as last seen; -1 before the first fetch."""
    lineage: PackedLineage = ""
    """The source's leader epochs up to the position, and maybe beyond it; empty where they are not known."""
    time_ms: int = 0
    """When the entry was written, by the writer's clock."""
    newest_ms: int = -1
    """Timestamp of our last batch, by which the target's broker remembers us; -1: not known."""
    rule: str = ""
    """The rule that selects the records of this count (`FlowTerms.rule`); empty in entries of older releases."""
    modulo: int = SAME
    """Over so many partitions of the target its topic is spread (`partition_remap`)."""
    target_leader_epoch: int = -1
    """The highest leader epoch of the target's partition that is known; -1 in entries of older releases."""

    @property
    def producer_epoch(self) -> int:
        return producer_epoch_of(self.count)

    @property
    def turn(self) -> int:
        """How many producer ids the copy has used up (`partition_remap`)."""
        return turn_of(self.count)

    @property
    def is_unfenced(self) -> bool:
        """No later epoch shuts out what comes late: the id is at its last one, or has just followed one that was."""
        is_last = self.producer_epoch == COUNTS_OF_AN_ID - 1
        return is_last or (self.turn > 0 and self.producer_epoch == 0 and self.n == 0)

    def moved(self, **changes: Any) -> Entry:
        """Do what `dataclasses.replace` does in a quarter of its time: this happens twice for every batch."""
        entry = object.__new__(Entry)
        for name in Entry.__slots__:
            object.__setattr__(entry, name, changes[name] if name in changes else getattr(self, name))
        return entry


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord(LedgerRecord):
    """The entry of one partition, as it stands in the ledger."""

    KIND: ClassVar[str] = "entry"
    topic: str
    partition: int
    entry: Entry

    def encode(self, group_id: str) -> KeyValue:
        return encode_entry_key(group_id, self.topic, self.partition), encode_entry(self.entry)

    @classmethod
    def parse(cls, rest: Sequence[Any], value: bytes | None) -> EntryRecord | None:
        fields = parse_known_version(value) if value is not None else None
        if fields is None:
            return None
        topic, partition = take(rest, 2)
        values: dict[str, Any] = {
            name: parse(fields[short])
            for short, (name, parse) in _FIELDS.items()
            if short in fields or short not in _LATER_FIELDS
        }
        return cls(topic=as_text(topic), partition=as_partition(partition), entry=Entry(**values))


def encode_entry_key(group_id: str, topic: str, partition: int) -> bytes:
    """Return the key alone: a lane makes it once and writes many entries under it."""
    return encode_key(EntryRecord.KIND, group_id, topic, partition)


def encode_entry(entry: Entry) -> bytes:
    """Return the value as JSON, four times as fast as `json`: every partition that moves writes one a second.

    Nothing in it needs escaping: ids are hexadecimal, rules are lower-case words.
    """
    e = entry
    modulo = f',"mod":{e.modulo}' if e.modulo else ""
    target_epoch = f',"tl":{e.target_leader_epoch}' if e.target_leader_epoch >= 0 else ""
    return (
        f'{{"v":{VERSION},"st":"{e.source_topic_id}","tt":"{e.target_topic_id}","e":{e.count},"n":{e.n},'
        f'"b":{e.bytes_copied},"s":{e.source_offset},"t":{e.target_offset},"o":{e.our_end},'
        f'"rs":{e.run_source},"rt":{e.run_target},"end":{e.source_end},"le":"{e.lineage}","ms":{e.time_ms},'
        f'"ts":{e.newest_ms},"ru":"{e.rule}"{modulo}{target_epoch}}}'
    ).encode()


def _as_topic_id(value: Any) -> str:
    if not _TOPIC_ID.fullmatch(as_text(value)):
        raise ValueError("no topic id")
    return as_text(value)


def _as_rule(value: Any) -> str:
    """Return a rule of counting. Entries are written without escaping: a rule must need none."""
    if not _RULE.fullmatch(as_text(value)):
        raise ValueError("no rule of counting")
    return as_text(value)


def _as_lineage(value: Any) -> str:
    Lineage.parse(as_text(value))
    return as_text(value)


def _as_count(value: Any) -> int:
    return as_int(value, 0, COUNT_MAX)


def _as_leader_epoch(value: Any) -> int:
    """Return one of Kafka's leader epochs; -1 where it is not known."""
    return as_int(value, -1, INT32_MAX)


def _as_timestamp(value: Any) -> int:
    """Return a record's timestamp: its producer may have written any number."""
    return as_int(value, INT64_MIN, INT64_MAX)


_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "st": ("source_topic_id", _as_topic_id),
    "tt": ("target_topic_id", _as_topic_id),
    "e": ("count", _as_count),
    "n": ("n", as_offset),
    "b": ("bytes_copied", as_number),
    "s": ("source_offset", as_offset),
    "t": ("target_offset", as_offset),
    "o": ("our_end", as_offset),
    "rs": ("run_source", as_offset),
    "rt": ("run_target", as_offset),
    "end": ("source_end", as_known_offset),
    "le": ("lineage", _as_lineage),
    "ms": ("time_ms", as_time_ms),
    "ts": ("newest_ms", _as_timestamp),
    "ru": ("rule", _as_rule),
    "mod": ("modulo", as_partition),
    "tl": ("target_leader_epoch", _as_leader_epoch),
}
"""By the name in the record: the field, and what its value must be."""
_LATER_FIELDS = ("le", "ts", "ru", "mod", "tl")
"""Entries written before these came have their defaults."""
