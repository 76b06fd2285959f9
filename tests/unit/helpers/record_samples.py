"""One honest record of every kind that stands in internal topics, and ways to spoil them for tests."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from typing import Any, NamedTuple

from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat, OffsetSync
from heliograph.ledger.mm2.positions import encode_position_key, encode_position_value
from heliograph.ledger.records.entry import encode_entry, encode_entry_key
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.page import encode_page
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.throttle import Throttle
from heliograph.ledger.records.trouble import Trouble
from tests.unit.ledger import test_formats as honest

GROUP = "g"


class Sample(NamedTuple):
    key: bytes | None
    value: bytes | None


def ledger_samples() -> list[Sample]:
    """A record of every kind that a ledger has."""
    claim = ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T")
    records = [
        (encode_entry_key(GROUP, "foo", 7), encode_entry(honest.ENTRY)),
        (encode_entry_key(GROUP, "foo", 7), encode_entry(honest.ENTRY.moved(modulo=3))),
        Order(owner="me", end_epoch=9).encode(GROUP),
        honest.LEASE.encode(GROUP),
        honest.STANDBY.encode(GROUP),
        honest.TROUBLE.encode(GROUP),
        Trouble(
            topic="foo",
            partition=7,
            code="FOREIGN_WRITES",
            text="x",
            final=False,
            details={"records": 2, "target_start": 3, "target_end": 5},
        ).encode(GROUP),
        Throttle(cluster="B", client_id="c", muted_ms=2500, time_ms=1).encode(GROUP),
        claim.encode(GROUP),
        honest.CONDITION.encode(GROUP),
        honest.LOSS.encode(GROUP),
        honest.ACLS.encode(GROUP),
        honest.CONTACT.encode(GROUP),
        honest.LOG_ENDS.encode(GROUP),
        honest.CHANGE.encode(GROUP),
        honest.PASS.encode(GROUP),
        honest.GROUP.encode(GROUP),
        encode_page(GROUP, "foo", 7, 100, honest.PAGE),
        encode_page(GROUP, "foo", 7, 100, honest.PAGE, is_former=True),
        honest.WISH.encode(GROUP),
        honest.ASKED.encode(GROUP),
    ]
    return [Sample(*record) for record in records]


def position_samples() -> list[Sample]:
    return [Sample(encode_position_key("A", "foo", 7), encode_position_value(42))]


def mm2_samples() -> list[Sample]:
    checkpoint = Checkpoint(group="g", topic="A.foo", partition=7, upstream=5, downstream=6, metadata="m")
    sync = OffsetSync(topic="foo", partition=7, upstream=5, downstream=6)
    return [Sample(*record.encode()) for record in (checkpoint, sync, Heartbeat(source="A", target="B", time_ms=1))]


# -- damage ------------------------------------------------------------------------------------

NUMBERS = (
    b"-1", b"0", b"1e999", b"-1e999", b"1e18", b"1.5", b"NaN", b"Infinity", b"-Infinity", b"-0",
    b"2147483647", b"2147483648", b"4611686018427387904", b"4611686018427387905", b"9223372036854775806",
    b"9223372036854775807", b"9223372036854775808", b"10000000000000000000", b"-9223372036854775809",
    b"1" * 30, b"9" * 5000, b"253402300800000", b"1", b"7", b"7", b"100", b"100", b"1700000000000", b"1700000000000",
)  # fmt: skip
OTHERS = (
    b"true", b"false", b"null", b'""', b'"7"', b'"\\ud800"', b'"\xed\xa0\x80"', b'"\\u0000"', b"[]", b"{}", b'["x"]',
    b'{"offset":1}', b"[[[]]]", b"[" * 10_000, b"[" * 40 + b"]" * 40, b'{"a":' * 2_000, b"[" * 14 + b"]" * 14,
    b'"(((("', b'["(a+)+$","["]', b'"1:1 1:1"', b'"99999999999:1"', b'"\x1b[2J"',
)  # fmt: skip


def _tokens(value: Any) -> list[Any]:
    """Every place in a JSON value: how to reach it."""
    found: list[Any] = [()]
    if isinstance(value, dict):
        found += [(key, *rest) for key, inner in value.items() for rest in _tokens(inner)]
    elif isinstance(value, list):
        found += [(at, *rest) for at, inner in enumerate(value) for rest in _tokens(inner)]
    return found


def _replaced(data: bytes, chance: random.Random) -> bytes:
    """A JSON text with one value, anywhere in it, changed for another."""
    value = json.loads(data)
    path = chance.choice(_tokens(value))
    marker = "\x01here\x01"
    if not path:
        return chance.choice(NUMBERS + OTHERS)
    at = value
    for step in path[:-1]:
        at = at[step]
    at[path[-1]] = marker
    text = json.dumps(value, separators=(",", ":")).encode()
    return text.replace(json.dumps(marker).encode(), chance.choice(NUMBERS + OTHERS))


def _without_a_field(data: bytes, chance: random.Random) -> bytes:
    value = json.loads(data)
    if not isinstance(value, dict | list) or not value:
        return b""
    if isinstance(value, dict):
        del value[chance.choice(list(value))]
    else:
        del value[chance.randrange(len(value))]
    return json.dumps(value, separators=(",", ":")).encode()


def _with_more(data: bytes, chance: random.Random) -> bytes:
    extra = chance.choice(NUMBERS + OTHERS)
    return data[:-1] + (b',"zz":' if data[:1] == b"{" else b",") + extra + data[-1:]


def _wrapped(data: bytes, chance: random.Random) -> bytes:
    depth = chance.choice((1, 3, 15, 16, 17, 100, 10_000))
    return b"[" * depth + data + b"]" * depth


def _bits(data: bytes, chance: random.Random) -> bytes:
    spoiled = bytearray(data)
    for _ in range(chance.choice((1, 1, 2, 8))):
        if spoiled:
            spoiled[chance.randrange(len(spoiled))] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
    return bytes(spoiled)


def _cut(data: bytes, chance: random.Random) -> bytes:
    return data[: chance.randrange(len(data) + 1)]


def _longer(data: bytes, chance: random.Random) -> bytes:
    return data + chance.choice((b"\xff" * 9, b"\x80" * 2_000, b"[" * 20_000, bytes(9), data))


_ANY: tuple[Callable[[bytes, random.Random], bytes], ...] = (_bits, _cut, _longer)
_JSON = (_replaced, _replaced, _replaced, _replaced, _without_a_field, _with_more, _wrapped)


def spoil(sample: Sample, chance: random.Random) -> Sample:
    """The record with its key or its value damaged, once or more."""
    parts: list[bytes | None] = list(sample)
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        at = chance.choice((0, 1, 1))
        data = parts[at]
        if data is None or chance.random() < 0.02:
            parts[at] = None if data is not None else b"{}"
            continue
        parts[at] = chance.choice(_JSON + _ANY)(data, chance) if _is_json(data) else chance.choice(_ANY)(data, chance)
    return Sample(*parts)


def _is_json(data: bytes) -> bool:
    try:
        json.loads(data)
    except (ValueError, RecursionError):
        return False
    return True
