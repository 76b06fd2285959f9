"""The bytes of positions and ledger on the target. Pure.

Positions are Kafka Connect's source offsets, byte for byte as MirrorMaker 2
writes them, so that it can take over (docs/formats.md has test vectors).
Ledger records are compact JSON, versioned by "v"; a reader skips what it does
not know. Keys carry the flow's `group.id`, so that two instances may share a
target.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from heliograph.kafka.batch import check_crc, iter_batches, iter_records
from heliograph.mirror.kept_acls import NO_ACLS, KeptAcls
from heliograph.mirror.lease import Lease, Process, Tenancy
from heliograph.mirror.lineage import Lineage
from heliograph.mirror.losses import Loss
from heliograph.mirror.model import Entry
from heliograph.mirror.remap import SAME
from heliograph.mirror.runs import Page
from heliograph.mirror.seen import Change, Contact, GroupPass, LogEnds, Seen, SeenGroup
from heliograph.mirror.wishes import Asked, Wish

VERSION = 1
SOURCE_CONNECTOR = "MirrorSourceConnector"


def _compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# -- positions (Connect offset storage) --------------------------------------------------


def encode_position_key(cluster: str, topic: str, partition: int, *, connector: str = SOURCE_CONNECTOR) -> bytes:
    """Field order is that of Java's HashMap: MirrorMaker 2 compares these bytes."""
    return _compact([connector, {"cluster": cluster, "partition": partition, "topic": topic}])


def encode_position_value(position: int) -> bytes:
    """A stored offset names the last copied record; the position is the next one."""
    return b'{"offset":%d}' % (position - 1)


def parse_position(key: bytes, value: bytes | None) -> tuple[tuple[str, str, str, int], int | None] | None:
    """((connector, cluster, topic, partition), position), the position None when deleted; None if not one of these."""
    try:
        connector, fields = json.loads(key)
        where = (str(connector), str(fields["cluster"]), str(fields["topic"]), int(fields["partition"]))
        if value is None:
            return where, None
        offset = json.loads(value)["offset"]
    except (ValueError, TypeError, KeyError):
        return None
    if type(offset) is not int or offset < 0:
        return where, None
    return where, offset + 1


def is_connect_record(key: bytes | None, value: bytes | None) -> bool:
    """Whether a record of the offset-storage topic is one at all: a position, another connector's, or the ledger's."""
    try:
        return isinstance(json.loads(key or b""), list) and (value is None or _is_readable(value))
    except ValueError:
        return False


def _is_readable(value: bytes) -> bool:
    """JSON, or a page of runs where the ledger stands beside the positions."""
    return Page.parse(0, value) is not None or isinstance(json.loads(value), dict)


def murmur2(data: bytes) -> int:
    """Kafka's partitioner hash, as an unsigned 32-bit number."""
    mask, m = 0xFFFFFFFF, 0x5BD1E995
    length = len(data)
    h = (0x9747B28C ^ length) & mask
    for i in range(0, length & ~3, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = (h * m & mask) ^ k
    tail = data[length & ~3 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


def partition_for(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


# -- ledger ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A driver's bid for a producer id of the flow; of each row the lowest offset in the ledger wins."""

    token: str
    producer_id: int
    source_cluster_id: str
    target_cluster_id: str
    row: int = 0
    """Of the copies that have this id (`remap`). Without remapping there is the first one only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The driver's word to its lanes: epochs up to `end_epoch` are to end now."""

    owner: str
    end_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """A lane's word to its driver: what keeps a partition from being copied.

    `final`: the partition is given back before the epoch ends. Else it is tried again, and
    an empty text says that it goes on.
    """

    topic: str
    partition: int
    code: str
    text: str
    final: bool
    details: dict[str, Any] = field(default_factory=dict)
    """Numbers of an outcome that does not end the copying."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throttle:
    """A lane's word to its driver: a cluster's quota, or the flow's own limit (`pace.LIMIT` in the place of the alias),
    kept it waiting for so long since it last told."""

    cluster: str
    client_id: str
    muted_ms: int
    time_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """The driver's word to whoever asks: what the flow lacks, what fails beside its copying, and since when this is
    known."""

    lacks: tuple[str, ...]
    is_blocked: bool
    """Nothing, or not all, is copied for lack of it."""
    time_ms: int
    failing: tuple[str, ...] = ()
    """Side loops whose last try failed, each with its error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EntryRecord:
    topic: str
    partition: int
    entry: Entry


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRecord:
    topic: str
    partition: int
    start: int
    page: Page | None
    """None: it was deleted."""
    is_former: bool = False
    """It tells of copies that the present count is to make once more (`counts`)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StandbyRecord:
    """Who waits for the flow's lease; for `status`."""

    owner: str
    time_ms: int
    """0: it waits no more."""
    host: str = ""


LedgerRecord = (
    Claim
    | Order
    | Trouble
    | Throttle
    | Condition
    | EntryRecord
    | PageRecord
    | Loss
    | Seen
    | Lease
    | StandbyRecord
    | KeptAcls
    | Wish
    | Asked
)

_ENTRY_FIELDS = {
    "st": "source_topic_id",
    "tt": "target_topic_id",
    "e": "count",
    "n": "n",
    "b": "bytes_copied",
    "s": "source_offset",
    "t": "target_offset",
    "o": "our_end",
    "rs": "run_source",
    "rt": "run_target",
    "end": "source_end",
    "le": "lineage",
    "ms": "time_ms",
    "ts": "newest_ms",
    "ru": "rule",
    "mod": "modulo",
    "tl": "target_leader_epoch",
}
_ENTRY_TEXT = ("source_topic_id", "target_topic_id", "lineage", "rule")
_LATER_ENTRY_FIELDS = ("le", "ts", "ru", "mod", "tl")
"""Entries written before these came have their defaults."""


def encode_entry_key(group_id: str, topic: str, partition: int) -> bytes:
    return _compact(["entry", group_id, topic, partition])


def encode_entry(entry: Entry) -> bytes:
    """As JSON, four times as fast as `json`: every partition that moves has one a second. Ids are hexadecimal."""
    e = entry
    modulo = f',"mod":{e.modulo}' if e.modulo else ""
    target_epoch = f',"tl":{e.target_leader_epoch}' if e.target_leader_epoch >= 0 else ""
    return (
        f'{{"v":{VERSION},"st":"{e.source_topic_id}","tt":"{e.target_topic_id}","e":{e.count},"n":{e.n},'
        f'"b":{e.bytes_copied},"s":{e.source_offset},"t":{e.target_offset},"o":{e.our_end},'
        f'"rs":{e.run_source},"rt":{e.run_target},"end":{e.source_end},"le":"{e.lineage}","ms":{e.time_ms},'
        f'"ts":{e.newest_ms},"ru":"{e.rule}"{modulo}{target_epoch}}}'
    ).encode()


def encode_claim(group_id: str, claim: Claim) -> tuple[bytes, bytes]:
    return (
        _compact(["claim", group_id, claim.token]),
        _compact(
            {
                "v": VERSION,
                "pid": claim.producer_id,
                "source": claim.source_cluster_id,
                "target": claim.target_cluster_id,
                **({"row": claim.row} if claim.row else {}),
            }
        ),
    )


def encode_order(group_id: str, order: Order) -> tuple[bytes, bytes]:
    return (
        _compact(["order", group_id]),
        _compact({"v": VERSION, "owner": order.owner, "end": order.end_epoch}),
    )


def encode_trouble(group_id: str, trouble: Trouble) -> tuple[bytes, bytes]:
    return (
        _compact(["trouble", group_id, trouble.topic, trouble.partition]),
        _compact(
            {
                "v": VERSION,
                "code": trouble.code,
                "text": trouble.text,
                "final": trouble.final,
                **({"details": trouble.details} if trouble.details else {}),
            }
        ),
    )


def encode_throttle(group_id: str, throttle: Throttle) -> tuple[bytes, bytes]:
    return (
        _compact(["throttle", group_id, throttle.cluster, throttle.client_id]),
        _compact({"v": VERSION, "muted": throttle.muted_ms, "ms": throttle.time_ms}),
    )


_LOSS_FIELDS = {
    "text": "text",
    "mark": "mark",
    "times": "times",
    "first": "first_ms",
    "last": "last_ms",
    "records": "records",
    "latest": "latest",
    "from": "start",
    "to": "end",
    "target": "on_target",
    "answer": "answer",
    "ack": "acknowledged_ms",
}
_LOSS_TEXT = ("text", "mark", "answer")


def encode_loss(group_id: str, loss: Loss) -> tuple[bytes, bytes]:
    return (
        _compact(["outcome", group_id, loss.topic, loss.partition, loss.code]),
        _compact({"v": VERSION, **{short: getattr(loss, name) for short, name in _LOSS_FIELDS.items()}}),
    )


def _parse_loss(rest: list[Any], fields: dict[str, Any]) -> Loss:
    values: dict[str, Any] = {
        name: str(fields[short]) if name in _LOSS_TEXT else int(fields[short]) for short, name in _LOSS_FIELDS.items()
    }
    topic, partition, code = str(rest[0]), int(rest[1]), str(rest[2])
    return Loss(topic=topic, partition=partition, code=code, **values | {"on_target": bool(values["on_target"])})


def encode_condition(group_id: str, condition: Condition) -> tuple[bytes, bytes]:
    return (
        _compact(["condition", group_id]),
        _compact(
            {
                "v": VERSION,
                "lacks": list(condition.lacks),
                "blocked": condition.is_blocked,
                "ms": condition.time_ms,
                **({"failing": list(condition.failing)} if condition.failing else {}),
            }
        ),
    )


def encode_page(
    group_id: str, topic: str, partition: int, start: int, page: Page | None, *, is_former: bool = False
) -> tuple[bytes, bytes | None]:
    """A page of runs; None deletes it."""
    kind = "former" if is_former else "runs"
    return _compact([kind, group_id, topic, partition, start]), page.encode() if page is not None else None


def encode_seen(group_id: str, seen: Seen) -> tuple[bytes, bytes]:
    match seen:
        case Contact():
            key: list[Any] = ["contact", group_id]
        case LogEnds():
            key = ["ends", group_id, seen.topic]
        case SeenGroup():
            key = ["group", group_id, seen.group]
        case GroupPass():
            key = ["pass", group_id, str(seen.kind)]
        case Change():
            key = ["change", group_id, seen.topic]
    return _compact(key), _compact({"v": VERSION, **seen.fields()})


def encode_lease(group_id: str, lease: Lease) -> tuple[bytes, bytes]:
    who = lease.holder
    fields = {
        "v": VERSION,
        "term": lease.term,
        "is": str(lease.tenancy),
        "owner": who.owner,
        "host": who.host,
        "pid": who.pid,
        "place": who.place,
        "born": who.born,
        "since": lease.since_ms,
        "ms": lease.time_ms,
        "lease": lease.lease_ms,
        "former": lease.former,
        "restarts": lease.restarts,
    }
    return _compact(["lease", group_id]), _compact(fields)


def encode_standby(group_id: str, standby: StandbyRecord) -> tuple[bytes, bytes | None]:
    """One that waits no more is deleted."""
    value = _compact({"v": VERSION, "host": standby.host, "ms": standby.time_ms}) if standby.time_ms else None
    return _compact(["standby", group_id, standby.owner]), value


def encode_acls(group_id: str, kept: KeptAcls) -> tuple[bytes, bytes | None]:
    """One that has nothing to say is deleted."""
    value = _compact({"v": VERSION, **kept.fields()}) if not kept.is_empty else None
    return _compact(["acls", group_id, *kept.resource]), value


def is_word(key: bytes | None) -> bool:
    """Whether a ledger record is an order or a lease of any group: a lane looks at no others."""
    return key is not None and key.startswith((b'["order",', b'["lease",'))


def iter_ledger(records: memoryview, start: int) -> Iterator[tuple[bytes | None, bytes | None, int]]:
    """Key, value and next offset of each record of a fetch answer from offset `start` on."""
    for header, view in iter_batches(records):
        if header.is_control or header.next_offset <= start:
            continue
        check_crc(view)
        for record in iter_records(header, view):
            if record.offset >= start:
                yield record.key, record.value, record.offset + 1


def parse_ledger(group_id: str, key: bytes | None, value: bytes | None) -> LedgerRecord | None:
    """One ledger record of this group; None for another's, an unknown one, and a deleted one, but for pages, standbys
    and wishes."""
    if key is None:
        return None
    try:
        kind, group, *rest = json.loads(key)
        if group != group_id:
            return None
        if kind in ("runs", "former"):
            return _parse_page(rest, value, is_former=kind == "former")
        if kind == "standby" and value is None:
            return StandbyRecord(owner=str(rest[0]), time_ms=0)
        if kind == "acls" and value is None:
            return KeptAcls.parse(rest, NO_ACLS)
        if kind == "wish" and value is None:
            return Wish.parse(rest, None)
        if value is None:
            return None
        fields = json.loads(value)
        if fields.get("v") != VERSION:
            return None
        return _PARSERS[kind](rest, fields)
    except (ValueError, TypeError, KeyError, AttributeError, IndexError):
        return None


def _parse_page(rest: list[Any], value: bytes | None, *, is_former: bool) -> PageRecord | None:
    topic, partition, start = str(rest[0]), int(rest[1]), int(rest[2])
    page = Page.parse(start, value) if value is not None and start >= 0 else None
    if value is not None and page is None:
        return None
    return PageRecord(topic=topic, partition=partition, start=start, page=page, is_former=is_former)


def group_of(key: bytes | None) -> str | None:
    """Whose record of the ledger this is, by its `group.id`; None if it is none."""
    try:
        group = json.loads(key or b"")[1]
    except (ValueError, TypeError, KeyError, IndexError):
        return None
    return group if isinstance(group, str) else None


def is_foreign(group_id: str, key: bytes | None) -> bool:
    """The record belongs to another group that shares the ledger topic."""
    try:
        return bool(json.loads(key or b"")[1] != group_id)
    except (ValueError, TypeError, KeyError, IndexError):
        return False


def _parse_entry(rest: list[Any], fields: dict[str, Any]) -> EntryRecord:
    values: dict[str, Any] = {
        name: str(fields[short]) if name in _ENTRY_TEXT else int(fields[short])
        for short, name in _ENTRY_FIELDS.items()
        if short in fields or short not in _LATER_ENTRY_FIELDS
    }
    Lineage.parse(values.get("lineage", ""))
    if values.get("modulo", SAME) < 0:
        raise ValueError("a negative modulo")
    return EntryRecord(topic=str(rest[0]), partition=int(rest[1]), entry=Entry(**values))


def _parse_trouble(rest: list[Any], fields: dict[str, Any]) -> Trouble:
    return Trouble(
        topic=str(rest[0]),
        partition=int(rest[1]),
        code=str(fields["code"]),
        text=str(fields["text"]),
        final=bool(fields["final"]),
        details=dict(fields.get("details", {})),
    )


def _parse_throttle(rest: list[Any], fields: dict[str, Any]) -> Throttle:
    muted_ms, time_ms = int(fields["muted"]), int(fields["ms"])
    return Throttle(cluster=str(rest[0]), client_id=str(rest[1]), muted_ms=muted_ms, time_ms=time_ms)


def _parse_condition(_: list[Any], fields: dict[str, Any]) -> Condition:
    lacks = tuple(str(text) for text in fields["lacks"])
    failing = tuple(str(text) for text in fields.get("failing", ()))
    return Condition(lacks=lacks, is_blocked=bool(fields["blocked"]), time_ms=int(fields["ms"]), failing=failing)


def _parse_claim(rest: list[Any], fields: dict[str, Any]) -> Claim:
    return Claim(
        token=str(rest[0]),
        producer_id=int(fields["pid"]),
        source_cluster_id=str(fields["source"]),
        target_cluster_id=str(fields["target"]),
        row=int(fields.get("row", 0)),
    )


def _parse_lease(_: list[Any], fields: dict[str, Any]) -> Lease:
    return Lease(
        holder=Process(
            owner=str(fields["owner"]),
            host=str(fields["host"]),
            pid=int(fields["pid"]),
            place=str(fields["place"]),
            born=int(fields["born"]),
        ),
        term=int(fields["term"]),
        tenancy=Tenancy(fields["is"]),
        since_ms=int(fields["since"]),
        time_ms=int(fields["ms"]),
        lease_ms=int(fields["lease"]),
        restarts=int(fields.get("restarts", 0)),
        former=str(fields["former"]),
    )


def _parse_standby(rest: list[Any], fields: dict[str, Any]) -> StandbyRecord:
    return StandbyRecord(owner=str(rest[0]), time_ms=int(fields["ms"]), host=str(fields["host"]))


def _parse_order(_: list[Any], fields: dict[str, Any]) -> Order:
    return Order(owner=str(fields["owner"]), end_epoch=int(fields["end"]))


_PARSERS: dict[str, Callable[[list[Any], dict[str, Any]], LedgerRecord | None]] = {
    "acls": KeptAcls.parse,
    "change": lambda rest, fields: Change.parse(str(rest[0]), fields),
    "asked": lambda _, fields: Asked.parse(fields),
    "claim": _parse_claim,
    "condition": _parse_condition,
    "contact": lambda _, fields: Contact.parse(fields),
    "ends": lambda rest, fields: LogEnds.parse(str(rest[0]), fields),
    "entry": _parse_entry,
    "group": lambda rest, fields: SeenGroup.parse(str(rest[0]), fields),
    "lease": _parse_lease,
    "order": _parse_order,
    "outcome": _parse_loss,
    "pass": lambda rest, fields: GroupPass.parse(str(rest[0]), fields),
    "standby": _parse_standby,
    "throttle": _parse_throttle,
    "trouble": _parse_trouble,
    "wish": Wish.parse,
}
"""By the kind that a key names: what follows in the key, and the fields of the value, to a record."""
