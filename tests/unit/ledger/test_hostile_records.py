"""Hostile records in internal topics: refused, counted, named once; none ends a reader or stands for an honest one."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import Any

import pytest

from heliograph.errors import LeaseLost
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.lease import Leadership
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.ledger.losses import loss_of
from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat, OffsetSync
from heliograph.ledger.mm2.positions import encode_position_key, parse_position
from heliograph.ledger.records.entry import EntryRecord, encode_entry, encode_entry_key
from heliograph.ledger.records.lease import TERM_MAX, Lease, Process
from heliograph.ledger.records.page import Page
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.records.unreadable_records import NAMED, RefusedRecords
from heliograph.ledger.records.untrusted_json import MAX_BYTES, MAX_DEPTH, parse_json
from tests.fake_cluster import FakeCluster
from tests.unit.helpers.record_samples import GROUP, ledger_samples
from tests.unit.ledger.test_formats import ENTRY, LEASE, PAGE, TROUBLE

ENTRY_KEY = encode_entry_key(GROUP, "foo", 7)
DEEP = b"[" * 10_000


def changed(record: tuple[bytes, bytes | None], **fields: Any) -> tuple[bytes, bytes]:
    """A record with other fields; a field of bytes is put there as it is."""
    key, value = record
    values = json.loads(value or b"{}") | {name: "\x01" + name for name in fields}
    text = json.dumps(values, separators=(",", ":")).encode()
    for name, new in fields.items():
        raw = new if isinstance(new, bytes) else json.dumps(new).encode()
        text = text.replace(json.dumps("\x01" + name).encode(), raw)
    return key, text


# -- JSON ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        b"NaN", b"Infinity", b"-Infinity", b"1e999", b"-1e999", b"[1e400]", b"9223372036854775808", b"1" * 5000,
        b"-9223372036854775809", b'{"a":10000000000000000000}', DEEP, DEEP + b"]" * 10_000, b'{"a":' * 5_000,
        b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), b'"\\ud800"', b'{"\\uDFFF":1}', b'"\xed\xa0\x80"', b"\xff\xfe",
        b"", b" ", b"{", b'"', b'"\\', b"[1,]", b"1" + b" " * MAX_BYTES, None,
    ],
)  # fmt: skip
def test_json_that_is_hostile_is_refused_with_the_one_error(text: bytes | None) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - any of its kinds
        parse_json(text)


@pytest.mark.parametrize(
    "value",
    [
        2**63 - 1, -(2**63), 0, 1.5, True, None, "00000000000000000000000000000001", '[[[["\\', "\U0001f600",
        [[1], [2]] * 50,
        {"a": "[" * 100, "b": ["}" * 100] * 20}, [[[[[[[[[[[[[[[["x"]]]]]]]]]]]]]]]], {"n": 9_223_372_036_854_775_807},
    ],
)  # fmt: skip
@pytest.mark.parametrize("is_escaped", [False, True])
def test_json_that_is_honest_is_read(value: Any, is_escaped: bool) -> None:
    assert parse_json(json.dumps(value, ensure_ascii=is_escaped).encode()) == value


# -- the ledger's records ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "record",
    [
        (b'["contact","g"]', b'{"v":1,"ms":1e999}'),
        (DEEP, b"{}"),
        (b'["entry","g",' + DEEP, b'{"v":1}'),
        (ENTRY_KEY, DEEP),
        changed((ENTRY_KEY, encode_entry(ENTRY)), n=10**19),
        changed((ENTRY_KEY, encode_entry(ENTRY)), e=2**31),
        changed((ENTRY_KEY, encode_entry(ENTRY)), e=True),
        changed((ENTRY_KEY, encode_entry(ENTRY)), s=-1),
        changed((ENTRY_KEY, encode_entry(ENTRY)), s=2**63 - 1),
        changed((ENTRY_KEY, encode_entry(ENTRY)), t="34"),
        changed((ENTRY_KEY, encode_entry(ENTRY)), o=33.0),
        changed((ENTRY_KEY, encode_entry(ENTRY)), ms=2**62),
        changed((ENTRY_KEY, encode_entry(ENTRY)), st='","e":9,"x":"'),
        changed((ENTRY_KEY, encode_entry(ENTRY)), ru='","e":9,"x":"'),
        changed((ENTRY_KEY, encode_entry(ENTRY)), le="4294967296:0"),
        changed((ENTRY_KEY, encode_entry(ENTRY)), le="1_0:0"),
        changed((ENTRY_KEY, encode_entry(ENTRY)), le="٣:0"),
        changed((ENTRY_KEY, encode_entry(ENTRY)), mod=-1),
        changed((ENTRY_KEY, encode_entry(ENTRY)), v=True),
        (b'["entry","g","foo",-1]', encode_entry(ENTRY)),
        (b'["entry","g","foo",7.0]', encode_entry(ENTRY)),
        (b'["entry","g","foo",2147483648]', encode_entry(ENTRY)),
        (b'["entry","g","foo",7,"more"]', encode_entry(ENTRY)),
        (b'["entry","g",["foo"],7]', encode_entry(ENTRY)),
        (b'["entry","g","\\ud800",7]', encode_entry(ENTRY)),
        changed(LEASE.encode(GROUP), term=2**63),
        changed(LEASE.encode(GROUP), term=-1),
        changed(LEASE.encode(GROUP), pid=2**31),
        changed(LEASE.encode(GROUP), lease=b"1e999"),
        changed(LEASE.encode(GROUP), owner=["x"]),
        changed(TROUBLE.encode(GROUP), details=[1]),
        changed(TROUBLE.encode(GROUP), final=1),
        changed((b'["asked","g"]', b'{"v":1,"topics":[],"exclude":[],"waiting":{}}'), topics=["("]),
        changed((b'["asked","g"]', b'{"v":1,"topics":[],"exclude":[],"waiting":{}}'), topics=["(" * 40_000]),
        (b'["runs","g","foo",7,100]', b"\x01\x00" + b"\xff" * 1_000_000),
        (b'["runs","g","foo",7,100]', b"\x01\x00\x03\x78\x82\x01\x01" + b"\xff" * 9 + b"\x01\x00\x0a"),
        (b'["runs","g","foo",7,100]', b"\x01\x00\x03\x78\x82\x01\x01\x00\x00" + b"\xff" * 8 + b"\x7f"),
        (b'["runs","g","foo",7,9223372036854775800]', PAGE.encode()),
        (b'["runs","g","foo",7,100]', Page.of(100, 110, 2**31, [], target=0).encode()),
    ],
)  # fmt: skip
def test_a_hostile_record_is_refused_counted_and_takes_nothing_from_honest_ones(
    record: tuple[bytes, bytes | None],
) -> None:
    ledger, alone = Ledger(group_id=GROUP), Ledger(group_id=GROUP)
    for sample in ledger_samples():
        ledger.take(*sample)
        alone.take(*sample)
    assert ledger.take(*record) is None
    assert ledger.unreadable == 1
    assert ledger.entries == alone.entries
    assert ledger.leadership.lease == alone.leadership.lease
    assert ledger.contact_ms == alone.contact_ms


def test_every_honest_record_is_read() -> None:
    ledger = Ledger(group_id=GROUP)
    for sample in ledger_samples():
        assert ledger.take(*sample) is not None, sample
    assert ledger.unreadable == 0


def test_the_largest_numbers_that_count_are_read() -> None:
    largest = ENTRY.moved(n=2**63 - 2, source_offset=2**63 - 2, newest_ms=-(2**63), count=2**31 - 1)
    assert parse_ledger(GROUP, ENTRY_KEY, encode_entry(largest)) == EntryRecord(topic="foo", partition=7, entry=largest)


def test_a_term_that_nobody_can_exceed_is_named() -> None:
    leadership = Leadership()
    record = parse_ledger(GROUP, *changed(LEASE.encode(GROUP), term=TERM_MAX))
    assert isinstance(record, Lease)
    leadership.take(record, 0.0)
    with pytest.raises(LeaseLost, match="no bid can exceed"):
        leadership.next_bid(Process(owner="me", host="h", pid=1), lease_ms=6000, now_ms=0)


@pytest.mark.parametrize(
    "code", ["FOREIGN_WRITES", "SECOND_WRITER", "POSITION_UNPROVEN", "RECORD_REFUSED", "DATA_LOST"]
)
@pytest.mark.parametrize("number", ["x", None, True, 1.5, [], {}, -5, 2**63 - 1])
def test_details_that_are_no_numbers_are_unknown(code: str, number: Any) -> None:
    names = ("target_start", "target_end", "records", "source_start", "source_end", "log_start")
    outcome = Outcome(code, "text", ENTRY, dict.fromkeys(names, number))
    loss = loss_of(("foo", 7), outcome, flow="a->b", answer="", since_ms=0, now_ms=1)
    assert loss.records == -1
    outcome = Outcome(code, "text", ENTRY, {"target_start": 1, "source_start": 1})
    assert loss_of(("foo", 7), outcome, flow="a->b", answer="", since_ms=0, now_ms=1).records == -1


# -- other topics --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"t"}]', DEEP),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":true,"topic":"t"}]', b'{"offset":1}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":1e999,"topic":"t"}]', b'{"offset":1}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":-1,"topic":"t"}]', b'{"offset":1}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":"0","topic":"t"}]', b'{"offset":1}'),
        (b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":5}]', b'{"offset":1}'),
        (DEEP, b'{"offset":1}'),
    ],
)
def test_a_hostile_position_is_none(key: bytes, value: bytes) -> None:
    assert parse_position(key, value) is None


@pytest.mark.parametrize("offset", [b"9223372036854775807", b"1e999", b"10000000000000000000", b"1.0", b"NaN"])
def test_an_offset_beyond_64_bits_is_no_position(offset: bytes) -> None:
    parsed = parse_position(encode_position_key("A", "t", 0), b'{"offset":' + offset + b"}")
    assert parsed is None or parsed[1] is None


def test_records_of_mm2_with_negative_numbers_are_none() -> None:
    for partition, upstream, downstream in ((-1, 1, 1), (0, -1, 1), (0, 1, -1), (0, 2**63 - 1, 1)):
        numbers: dict[str, Any] = {"partition": partition, "upstream": upstream, "downstream": downstream}
        assert OffsetSync.parse(*OffsetSync(topic="t", **numbers).encode()) is None
        assert Checkpoint.parse(*Checkpoint(group="g", topic="t", **numbers).encode()) is None
    assert Heartbeat.parse(*Heartbeat(source="a", target="b", time_ms=2**62).encode()) is None


# -- counted and named ---------------------------------------------------------------------------


def test_refused_records_are_named_once_and_many_of_them_in_few_lines() -> None:
    refused = RefusedRecords("ledger")
    assert refused.news() == ""
    refused.note(0, 12)
    refused.note(3, 4)
    assert refused.news() == (
        '2 records of "ledger" could not be read, and are ignored: partition 0 offset 12, partition 3 offset 4'
    )
    refused.note(0, 12)
    assert (refused.number, refused.news()) == (2, "")
    lines = []
    for offset in range(13, 100_013):
        refused.note(0, offset)
        lines.append(refused.news())
    said = [line for line in lines if line]
    assert len(said) < 25
    assert max(line.count("offset") for line in said) == NAMED
    assert "more" in said[-1]
    assert refused.number == 100_002


def test_a_ledger_with_hostile_records_is_read_and_they_are_named_with_their_place(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, "heliograph")

    async def run() -> None:
        async with FakeCluster("b", topics={"ledger": 1}) as fake:
            cluster = Cluster("b", fake.bootstrap, client_id="c")
            honest = (ENTRY_KEY, encode_entry(ENTRY))
            hostile = [changed(honest, n=10**19), (DEEP, b"{}"), (b'["contact","g"]', b'{"v":1,"ms":1e999}')]
            for key, value in (honest, *hostile):
                fake.append("ledger", 0, [NewRecord(0, key, value)])
            await cluster.refresh(["ledger"])
            ledger = await store.read_ledger(cluster, "ledger", GROUP)
            store.tell_refused("a->b", ledger.refused)
            assert ledger.entries == {("foo", 7): ENTRY}
            assert ledger.unreadable == 3
            fake.append("ledger", 0, [NewRecord(0, ENTRY_KEY, DEEP)])
            await store.follow(cluster, "ledger", ledger, max_wait_ms=1000)
            store.tell_refused("a->b", ledger.refused)
            cluster.close()

    asyncio.run(run())
    assert [message.partition(": ")[2] for message in caplog.messages] == [
        '3 records of "ledger" could not be read, and are ignored: '
        + ", ".join(f"partition 0 offset {offset}" for offset in (1, 2, 3)),
        '1 record of "ledger" could not be read, and is ignored: partition 0 offset 4',
    ]
