"""The bytes of positions and ledger on the target. Pure.

Positions are Kafka Connect's source offsets, byte for byte as MirrorMaker 2
writes them, so that it can take over (docs/formats.md has test vectors).
Ledger records are compact JSON, versioned by "v"; a reader skips what it does
not know. Keys carry the flow's `group.id`, so that two instances may share a
target.

Whoever may write these topics may write anything there. A record counts only if
every number is in its own range and every value of its own type (`stored_json`):
one that is not is refused as a whole, so that it never outranks an honest one.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from heliograph.kafka.batch import check_crc, iter_batches, iter_records
from heliograph.ledger.kept_acls import NO_ACLS, KeptAcls
from heliograph.ledger.lease import TERM_MAX, Lease, LeaseState, Process
from heliograph.ledger.lineage import Lineage
from heliograph.ledger.losses import Loss
from heliograph.ledger.model import Entry
from heliograph.ledger.position_requests import PositionRequest, SelectionSeen
from heliograph.ledger.runs import Page
from heliograph.ledger.source_snapshot import Contact, GroupPass, LogEnds, Seen, SeenGroup, TopicChange
from heliograph.ledger.untrusted_json import (
    INT32_MAX,
    INT64_MAX,
    INT64_MIN,
    as_fields,
    as_flag,
    as_int,
    as_known_offset,
    as_list,
    as_number,
    as_offset,
    as_partition,
    as_set_time_ms,
    as_text,
    as_texts,
    as_time_ms,
    parse_json,
    take,
)

LIMIT = "max.bytes.per.second"
"""The key of a flow's own limit; it also stands where a cluster's alias does when a lane tells who keeps it waiting."""
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
    """Whether a record of the offset-storage topic is one at all: a position, another connector's, or the ledger's."""
    try:
        return isinstance(parse_json(key), list) and (value is None or _is_readable(value))
    except ValueError:
        return False


def _is_readable(value: bytes) -> bool:
    """JSON, or a page of runs where the ledger stands beside the positions."""
    return Page.parse(0, value) is not None or isinstance(parse_json(value), dict)


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
class ProducerClaim:
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
    """A lane's word to its driver: a cluster's quota, or the flow's own limit (`LIMIT` in the place of the alias),
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
    ProducerClaim
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
    | PositionRequest
    | SelectionSeen
)

COUNT_MAX = INT32_MAX
"""Of the numbers of counts: 65,536 producer ids used up."""
_TOPIC_ID = re.compile("[0-9a-f]{32}")
_RULE = re.compile("[a-z ]{0,64}")


def _as_topic_id(value: Any) -> str:
    if not _TOPIC_ID.fullmatch(as_text(value)):
        raise ValueError("no topic id")
    return as_text(value)


def _as_rule(value: Any) -> str:
    """Entries are written without escaping: a rule must need none."""
    if not _RULE.fullmatch(as_text(value)):
        raise ValueError("no rule of counting")
    return as_text(value)


def _as_lineage(value: Any) -> str:
    Lineage.parse(as_text(value))
    return as_text(value)


def _as_count(value: Any) -> int:
    return as_int(value, 0, COUNT_MAX)


def _as_leader_epoch(value: Any) -> int:
    """Of Kafka; -1 where it is not known."""
    return as_int(value, -1, INT32_MAX)


def _as_timestamp(value: Any) -> int:
    """Of a record: its producer may have written any."""
    return as_int(value, INT64_MIN, INT64_MAX)


_ENTRY_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
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


def encode_claim(group_id: str, claim: ProducerClaim) -> tuple[bytes, bytes]:
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


_LOSS_FIELDS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "text": ("text", as_text),
    "mark": ("mark", as_text),
    "times": ("times", as_number),
    "first": ("first_ms", as_time_ms),
    "last": ("last_ms", as_time_ms),
    "records": ("records", as_known_offset),
    "latest": ("latest", as_known_offset),
    "from": ("start", as_known_offset),
    "to": ("end", as_known_offset),
    "target": ("on_target", as_flag),
    "answer": ("answer", as_text),
    "ack": ("acknowledged_ms", as_time_ms),
}
NO_PARTITION = -1
"""In the place of a partition: the whole topic, or the whole flow."""


def _as_any_partition(value: Any) -> int:
    return as_int(value, NO_PARTITION, INT32_MAX)


def encode_loss(group_id: str, loss: Loss) -> tuple[bytes, bytes]:
    return (
        _compact(["outcome", group_id, loss.topic, loss.partition, loss.code]),
        _compact({"v": VERSION, **{short: getattr(loss, name) for short, (name, _) in _LOSS_FIELDS.items()}}),
    )


def _parse_loss(rest: list[Any], fields: dict[str, Any]) -> Loss:
    topic, partition, code = take(rest, 3)
    values: dict[str, Any] = {name: parse(fields[short]) for short, (name, parse) in _LOSS_FIELDS.items()}
    return Loss(topic=as_text(topic), partition=_as_any_partition(partition), code=as_text(code), **values)


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
        case TopicChange():
            key = ["change", group_id, seen.topic]
    return _compact(key), _compact({"v": VERSION, **seen.fields()})


def encode_lease(group_id: str, lease: Lease) -> tuple[bytes, bytes]:
    who = lease.holder
    fields = {
        "v": VERSION,
        "term": lease.term,
        "is": str(lease.state),
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


class Stored(NamedTuple):
    """A record of the ledger's topic, and the leader epoch of its batch."""

    offset: int
    key: bytes | None
    value: bytes | None
    epoch: int


def iter_ledger(records: memoryview, start: int) -> Iterator[Stored]:
    """The records of a fetch answer from offset `start` on; one without key and value where a batch ends with none."""
    for header, view in iter_batches(records):
        if header.next_offset <= start:
            continue
        check_crc(view)
        offset = -1
        for record in () if header.is_control else iter_records(header, view):
            offset = record.offset
            if offset >= start:
                yield Stored(offset, record.key, record.value, header.leader_epoch)
        if offset < header.next_offset - 1:
            yield Stored(header.next_offset - 1, None, None, header.leader_epoch)


def parse_ledger(group_id: str, key: bytes | None, value: bytes | None) -> LedgerRecord | None:
    """One ledger record of this group; None for another's, an unknown one, and a deleted one, but for pages, standbys
    and requests."""
    if key is None:
        return None
    try:
        kind, group, *rest = as_list(parse_json(key))
        return _parse_record(as_text(kind), rest, value) if group == group_id else None
    except (ValueError, KeyError):
        return None


def _parse_record(kind: str, rest: list[Any], value: bytes | None) -> LedgerRecord | None:
    if kind in ("runs", "former"):
        return _parse_page(rest, value, is_former=kind == "former")
    if value is None:
        return _DELETED[kind](rest) if kind in _DELETED else None
    fields = as_fields(parse_json(value))
    return _PARSERS[kind](rest, fields) if _is_known_version(fields) else None


def _is_known_version(fields: Mapping[str, Any]) -> bool:
    return as_int(fields["v"], 0, INT32_MAX) == VERSION


def _parse_page(rest: list[Any], value: bytes | None, *, is_former: bool) -> PageRecord | None:
    topic, partition = as_text(take(rest, 3)[0]), as_partition(rest[1])
    start = as_offset(rest[2])
    page = Page.parse(start, value) if value is not None else None
    if value is not None and (page is None or page.count > COUNT_MAX):
        return None
    return PageRecord(topic=topic, partition=partition, start=start, page=page, is_former=is_former)


def group_of(key: bytes | None) -> str | None:
    """Whose record of the ledger this is, by its `group.id`; None if it is none."""
    try:
        _, group, *_ = as_list(parse_json(key))
        return as_text(group)
    except ValueError:
        return None


def is_foreign(group_id: str, key: bytes | None) -> bool:
    """The record belongs to another group that shares the ledger topic, or is a position."""
    try:
        _, group, *_ = as_list(parse_json(key))
    except ValueError:
        return False
    return bool(group != group_id)


def _parse_entry(rest: list[Any], fields: dict[str, Any]) -> EntryRecord:
    topic, partition = take(rest, 2)
    values: dict[str, Any] = {
        name: parse(fields[short])
        for short, (name, parse) in _ENTRY_FIELDS.items()
        if short in fields or short not in _LATER_ENTRY_FIELDS
    }
    return EntryRecord(topic=as_text(topic), partition=as_partition(partition), entry=Entry(**values))


def _parse_trouble(rest: list[Any], fields: dict[str, Any]) -> Trouble:
    topic, partition = take(rest, 2)
    return Trouble(
        topic=as_text(topic),
        partition=_as_any_partition(partition),
        code=as_text(fields["code"]),
        text=as_text(fields["text"]),
        final=as_flag(fields["final"]),
        details=as_fields(fields.get("details", {})),
    )


def _parse_throttle(rest: list[Any], fields: dict[str, Any]) -> Throttle:
    cluster, client_id = take(rest, 2)
    return Throttle(
        cluster=as_text(cluster),
        client_id=as_text(client_id),
        muted_ms=as_number(fields["muted"]),
        time_ms=as_time_ms(fields["ms"]),
    )


def _parse_condition(rest: list[Any], fields: dict[str, Any]) -> Condition:
    take(rest, 0)
    return Condition(
        lacks=as_texts(fields["lacks"]),
        is_blocked=as_flag(fields["blocked"]),
        time_ms=as_time_ms(fields["ms"]),
        failing=as_texts(fields.get("failing", [])),
    )


def _parse_claim(rest: list[Any], fields: dict[str, Any]) -> ProducerClaim:
    [token] = take(rest, 1)
    return ProducerClaim(
        token=as_text(token),
        producer_id=as_number(fields["pid"]),
        source_cluster_id=as_text(fields["source"]),
        target_cluster_id=as_text(fields["target"]),
        row=as_number(fields.get("row", 0)),
    )


def _parse_lease(rest: list[Any], fields: dict[str, Any]) -> Lease:
    take(rest, 0)
    return Lease(
        holder=Process(
            owner=as_text(fields["owner"]),
            host=as_text(fields["host"]),
            pid=as_int(fields["pid"], 0, INT32_MAX),
            place=as_text(fields["place"]),
            born=as_number(fields["born"]),
        ),
        term=as_int(fields["term"], 0, TERM_MAX),
        state=LeaseState(as_text(fields["is"])),
        since_ms=as_time_ms(fields["since"]),
        time_ms=as_time_ms(fields["ms"]),
        lease_ms=as_number(fields["lease"]),
        restarts=as_number(fields.get("restarts", 0)),
        former=as_text(fields["former"]),
    )


def _parse_standby(rest: list[Any], fields: dict[str, Any]) -> StandbyRecord:
    [owner] = take(rest, 1)
    return StandbyRecord(owner=as_text(owner), time_ms=as_set_time_ms(fields["ms"]), host=as_text(fields["host"]))


def _parse_order(rest: list[Any], fields: dict[str, Any]) -> Order:
    take(rest, 0)
    return Order(owner=as_text(fields["owner"]), end_epoch=as_number(fields["end"]))


def _one_text(rest: list[Any]) -> str:
    [text] = take(rest, 1)
    return as_text(text)


_DELETED: dict[str, Callable[[list[Any]], LedgerRecord]] = {
    "acls": lambda rest: KeptAcls.parse(rest, NO_ACLS),
    "standby": lambda rest: StandbyRecord(owner=_one_text(rest), time_ms=0),
    "wish": lambda rest: PositionRequest.parse(rest, None),
}
"""By the kind that a key names: what it means that a record is deleted. Of other kinds it means nothing."""

_PARSERS: dict[str, Callable[[list[Any], dict[str, Any]], LedgerRecord | None]] = {
    "acls": KeptAcls.parse,
    "change": lambda rest, fields: TopicChange.parse(_one_text(rest), fields),
    "asked": lambda _, fields: SelectionSeen.parse(fields),
    "claim": _parse_claim,
    "condition": _parse_condition,
    "contact": lambda _, fields: Contact.parse(fields),
    "ends": lambda rest, fields: LogEnds.parse(_one_text(rest), fields),
    "entry": _parse_entry,
    "group": lambda rest, fields: SeenGroup.parse(_one_text(rest), fields),
    "lease": _parse_lease,
    "order": _parse_order,
    "outcome": _parse_loss,
    "pass": lambda rest, fields: GroupPass.parse(str(rest[0]), fields),
    "standby": _parse_standby,
    "throttle": _parse_throttle,
    "trouble": _parse_trouble,
    "wish": PositionRequest.parse,
}
"""By the kind that a key names: what follows in the key, and the fields of the value, to a record."""
