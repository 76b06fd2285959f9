"""The bytes of positions and ledger; the vectors stand in docs/formats.md too."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import formats
from heliograph.ledger.kept_acls import KeptAcls
from heliograph.ledger.lease import Lease, LeaseState, Process
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.losses import Loss
from heliograph.ledger.model import Entry
from heliograph.ledger.position_requests import PositionRequest, SelectionSeen
from heliograph.ledger.rejected_records import Rejected
from heliograph.ledger.runs import Page, Run
from heliograph.ledger.source_snapshot import (
    ChangeKind,
    Contact,
    GroupCommit,
    GroupMember,
    GroupPass,
    LogEnd,
    LogEnds,
    PassKind,
    SeenGroup,
    TopicChange,
)

CONTACT = Contact(time_ms=1_700_000_000_000, since_ms=1_699_999_000_000)
PASS = GroupPass(kind=PassKind.COMMITS, time_ms=1_700_000_000_000, every_ms=1000, groups=12)
LOG_ENDS = LogEnds(topic="foo", time_ms=1_700_000_000_000, ends=(LogEnd(99, 1_699_999_999_000), LogEnd(-1, 0)))
STILL = LogEnds(topic="foo", time_ms=1, ends=(LogEnd(99, 5, 6), LogEnd(-1, 0)))
CHANGE = TopicChange(topic="foo", what=ChangeKind.RESIZED)
GROUP = SeenGroup(
    group="billing",
    state="Stable",
    kind="classic",
    time_ms=1_700_000_000_000,
    members=(GroupMember("app", "/10.0.0.7", 1),),
    commits={TopicPartition("foo", 7): GroupCommit(42, "m")},
)
LEASE = Lease(
    holder=Process(owner="me", host="h1", pid=77, place="boot/1", born=9),
    term=4,
    state=LeaseState.HELD,
    since_ms=1_700_000_000_000,
    time_ms=1_700_000_002_000,
    lease_ms=6000,
    former="host h0 (pid 5)",
    restarts=2,
)
STANDBY = formats.StandbyRecord(owner="us", time_ms=1_700_000_000_000, host="h2")
CONDITION = formats.Condition(lacks=("x",), is_blocked=False, time_ms=1_700_000_000_000, failing=("y",))
ORDERS: dict[str, Any] = {"resource_type": ResourceType.TOPIC, "name": "A.orders"}
ACLS = KeptAcls(
    kind=ResourceType.TOPIC,
    pattern=Pattern.LITERAL,
    name="A.orders",
    made={
        (made := Acl(principal="User:app", operation=Operation.READ, **ORDERS)): replace(made, name="orders"),
        (deny := Acl(principal="User:x", operation=Operation.ALL, host="10.0.0.7", allow=False, **ORDERS)): replace(
            deny, name="ord", pattern=Pattern.PREFIXED
        ),
    },
    withheld=frozenset({Acl(principal="User:app", operation=Operation.WRITE, **ORDERS)}),
    handed=frozenset({Acl(principal="User:app", operation=Operation.ALL, **ORDERS)}),
)
NO_ACLS = KeptAcls(kind=ResourceType.GROUP, pattern=Pattern.PREFIXED, name="billing")
WISH = PositionRequest(topic="foo", partition=7, time_ms=1_700_000_000_000, offset=50)
ASKED = SelectionSeen(include=("foo.*",), exclude=("__.*",), waiting={"foo": 8})
PAGE = replace(Page.of(100, 220, 3, [Run(100, 130, 10), Run(111, 140, 100)], target=0), by_lane=True)

ENTRY = Entry(
    source_topic_id="00000000000000000000000000000001",
    target_topic_id="00000000000000000000000000000002",
    count=3,
    n=5_000_000_000,
    bytes_copied=77,
    source_offset=12,
    target_offset=34,
    our_end=33,
    run_source=2,
    run_target=24,
    source_end=99,
    lineage="0:0 4:9",
    time_ms=1_700_000_000_000,
    newest_ms=1_690_000_000_000,
    rule="all",
    target_leader_epoch=6,
)


LOSS = Loss(
    topic="foo",
    partition=7,
    code="DATA_LOST",
    text="x",
    mark="3@40",
    times=2,
    first_ms=1_699_999_999_000,
    last_ms=1_700_000_000_000,
    records=120,
    latest=100,
    start=40,
    end=160,
    answer="went on at 160",
)
REJECTED = Rejected(
    topic="foo",
    partition=7,
    offset=40,
    last_offset=40,
    timestamp=1_699_999_999_000,
    size=9,
    key="a2V5",
    code=32,
    why="x",
    time_ms=1_700_000_000_000,
)
TROUBLE = formats.Trouble(topic="foo", partition=1, code="DATA_LOST", text="x", final=True)


@pytest.mark.parametrize(
    ("cluster", "topic", "partition", "key", "stored_in"),
    [
        ("A", "foo", 0, b'["MirrorSourceConnector",{"cluster":"A","partition":0,"topic":"foo"}]', 16),
        (
            "primary",
            "test-topic-1",
            3,
            b'["MirrorSourceConnector",{"cluster":"primary","partition":3,"topic":"test-topic-1"}]',
            13,
        ),
    ],
)
def test_position_keys_are_the_bytes_of_mm2(
    cluster: str, topic: str, partition: int, key: bytes, stored_in: int
) -> None:
    assert formats.encode_position_key(cluster, topic, partition) == key
    assert formats.partition_for(key, 25) == stored_in


def test_a_stored_offset_is_the_last_copied_record() -> None:
    assert formats.encode_position_value(42) == b'{"offset":41}'


@given(st.text(max_size=5), st.text(max_size=5), st.integers(0, 2**31 - 1), st.integers(1, 2**62))
def test_positions_come_back(cluster: str, topic: str, partition: int, position: int) -> None:
    key = formats.encode_position_key(cluster, topic, partition)
    parsed = formats.parse_position(key, formats.encode_position_value(position))
    assert parsed == ((formats.SOURCE_CONNECTOR, cluster, topic, partition), position)


def test_a_position_is_read_in_any_field_order() -> None:
    key = json.dumps(["MirrorSourceConnector", {"topic": "t", "cluster": "A", "partition": 1}]).encode()
    assert formats.parse_position(key, b'{ "offset" : 4 }') == (("MirrorSourceConnector", "A", "t", 1), 5)


@pytest.mark.parametrize("value", [None, b'{"offset":-1}', b'{"offset":null}', b'{"offset":"7"}', b'{"offset":true}'])
def test_a_deleted_or_useless_offset_is_no_position(value: bytes | None) -> None:
    parsed = formats.parse_position(formats.encode_position_key("A", "t", 0), value)
    assert parsed is not None
    assert parsed[1] is None


@pytest.mark.parametrize("key", [b"", b"x", b"[]", b"{}", b'["a"]', b'["a",{"topic":"t"}]', b"\xff\xff"])
def test_other_records_are_no_positions(key: bytes) -> None:
    assert formats.parse_position(key, b'{"offset":1}') is None


def test_entry_bytes_do_not_change() -> None:
    assert formats.encode_entry_key("A-mm2", "foo", 7) == b'["entry","A-mm2","foo",7]'
    assert formats.encode_entry(ENTRY) == (
        b'{"v":1,"st":"00000000000000000000000000000001","tt":"00000000000000000000000000000002","e":3,'
        b'"n":5000000000,"b":77,"s":12,"t":34,"o":33,"rs":2,"rt":24,"end":99,"le":"0:0 4:9","ms":1700000000000,'
        b'"ts":1690000000000,"ru":"all","tl":6}'
    )


def test_an_entry_of_a_release_without_leader_epochs_is_read() -> None:
    key, value = formats.encode_entry_key("g", "foo", 7), formats.encode_entry(ENTRY)
    old = value.replace(b'"le":"0:0 4:9",', b"")
    assert old != value
    expected = formats.EntryRecord(topic="foo", partition=7, entry=ENTRY.moved(lineage=""))
    assert formats.parse_ledger("g", key, old) == expected


@pytest.mark.parametrize("lineage", [b"x", b"1", b"1:2:3", b"1:y"])
def test_an_entry_with_nonsense_for_leader_epochs_is_none(lineage: bytes) -> None:
    key, value = formats.encode_entry_key("g", "foo", 7), formats.encode_entry(ENTRY)
    assert formats.parse_ledger("g", key, value.replace(b"0:0 4:9", lineage)) is None


@pytest.mark.parametrize(
    ("encoded", "record"),
    [
        (
            (formats.encode_entry_key("g", "foo", 7), formats.encode_entry(ENTRY)),
            formats.EntryRecord(topic="foo", partition=7, entry=ENTRY),
        ),
        (
            formats.encode_order("g", formats.Order(owner="me", end_epoch=9)),
            formats.Order(owner="me", end_epoch=9),
        ),
        (formats.encode_lease("g", LEASE), LEASE),
        (
            formats.encode_standby("g", formats.StandbyRecord(owner="us", time_ms=5, host="h2")),
            formats.StandbyRecord(owner="us", time_ms=5, host="h2"),
        ),
        (
            formats.encode_standby("g", formats.StandbyRecord(owner="us", time_ms=0)),
            formats.StandbyRecord(owner="us", time_ms=0),
        ),
        (
            formats.encode_trouble(
                "g", formats.Trouble(topic="foo", partition=1, code="DATA_LOST", text="x", final=True)
            ),
            formats.Trouble(topic="foo", partition=1, code="DATA_LOST", text="x", final=True),
        ),
        (
            formats.encode_claim(
                "g", formats.ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T")
            ),
            formats.ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T"),
        ),
        (
            formats.encode_condition("g", CONDITION),
            CONDITION,
        ),
        (
            formats.encode_trouble("g", replace(TROUBLE, final=False, details={"records": 2})),
            replace(TROUBLE, final=False, details={"records": 2}),
        ),
        (formats.encode_loss("g", LOSS), LOSS),
        (
            formats.encode_loss("g", replace(LOSS, on_target=True, acknowledged_ms=9)),
            replace(LOSS, on_target=True, acknowledged_ms=9),
        ),
        (formats.encode_acls("g", ACLS), ACLS),
        (formats.encode_acls("g", NO_ACLS), NO_ACLS),
        (formats.encode_seen("g", CONTACT), CONTACT),
        (formats.encode_seen("g", LOG_ENDS), LOG_ENDS),
        (formats.encode_seen("g", CHANGE), CHANGE),
        (formats.encode_seen("g", GROUP), GROUP),
        (formats.encode_seen("g", PASS), PASS),
        (formats.encode_seen("g", STILL), STILL),
        (
            formats.encode_page("g", "foo", 7, 100, PAGE),
            formats.PageRecord(topic="foo", partition=7, start=100, page=PAGE),
        ),
        (
            formats.encode_page("g", "foo", 7, 100, PAGE, is_former=True),
            formats.PageRecord(topic="foo", partition=7, start=100, page=PAGE, is_former=True),
        ),
        (WISH.encode("g"), WISH),
        (replace(WISH, offset=None).encode("g"), replace(WISH, offset=None)),
        (replace(WISH, time_ms=0).encode("g"), replace(WISH, time_ms=0, offset=None)),
        (ASKED.encode("g"), ASKED),
    ],
)
def test_ledger_records_come_back_for_their_group_only(
    encoded: tuple[bytes, bytes | None], record: formats.LedgerRecord
) -> None:
    assert formats.parse_ledger("g", *encoded) == record
    assert formats.parse_ledger("other", *encoded) is None
    assert formats.is_foreign("other", encoded[0])
    assert not formats.is_foreign("g", encoded[0])
    # Where the ledger is not allowed its records stand among the positions.
    assert formats.parse_position(*encoded) is None
    assert formats.is_foreign("g", formats.encode_position_key("A", "t", 0))


def test_counts_beyond_the_epochs_of_a_producer_are_written_as_any_other() -> None:
    entry, page = ENTRY.moved(count=98_304), replace(PAGE, count=98_304)
    encoded = formats.encode_entry(entry)
    assert encoded == formats.encode_entry(ENTRY).replace(b'"e":3,', b'"e":98304,')
    key = formats.encode_entry_key("g", "foo", 7)
    assert formats.parse_ledger("g", key, encoded) == formats.EntryRecord(topic="foo", partition=7, entry=entry)
    found = formats.parse_ledger("g", *formats.encode_page("g", "foo", 7, 100, page))
    assert found == formats.PageRecord(topic="foo", partition=7, start=100, page=page)


def test_a_deleted_page_is_told_and_a_broken_one_is_passed_over() -> None:
    key, value = formats.encode_page("g", "foo", 7, 100, PAGE)
    assert value is not None
    gone = formats.PageRecord(topic="foo", partition=7, start=100, page=None)
    assert formats.parse_ledger("g", key, None) == gone
    assert formats.parse_ledger("g", key, value[:-1]) is None
    assert formats.parse_ledger("g", key, b'{"v":1}') is None
    assert formats.parse_ledger("g", key.replace(b"100", b"-1"), value) is None


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_garbage_in_the_ledger_is_passed_over(key: bytes, value: bytes) -> None:
    assert formats.parse_ledger("g", key, value) is None


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_unexpected_json_in_the_ledger_is_passed_over(value: object) -> None:
    text = json.dumps(value).encode()
    assert formats.parse_ledger("g", b'["entry","g","t",0]', text) is None
    assert formats.parse_ledger("g", text, b'{"v":1}') is None


def test_a_newer_ledger_version_is_passed_over() -> None:
    key, value = formats.encode_order("g", formats.Order(owner="me", end_epoch=9))
    assert formats.parse_ledger("g", key, value.replace(b'"v":1', b'"v":2')) is None


def test_a_record_of_a_kind_that_is_not_known_is_passed_over_and_counted() -> None:
    key, value = formats.encode_acls("g", ACLS)
    ledger = Ledger(group_id="g")
    assert ledger.take(key.replace(b'"acls"', b'"acls of a later release"'), value) is None
    assert ledger.unreadable == 1
    assert ledger.acls == {}


@pytest.mark.parametrize("word", [b'"Topic"', b'"Literal"', b'"Read"', b'"Prefixed"', b'"Write"', b'"made"'])
def test_access_rules_of_a_kind_that_is_not_known_are_passed_over(word: bytes) -> None:
    key, value = formats.encode_acls("g", ACLS)
    assert value is not None
    assert formats.parse_ledger("g", key.replace(word, b'"Other"'), value.replace(word, b'"Other"')) is None


def test_deleted_access_rules_are_forgotten() -> None:
    ledger = Ledger(group_id="g")
    key, value = formats.encode_acls("g", ACLS)
    ledger.take(key, value)
    assert list(ledger.acls.values()) == [ACLS]
    ledger.take(key, None)
    assert ledger.acls == {}
    assert ledger.unreadable == 0


def test_a_lease_of_an_unknown_kind_is_passed_over() -> None:
    key, value = formats.encode_lease("g", LEASE)
    assert formats.parse_ledger("g", key, value.replace(b'"held"', b'"sold"')) is None


def test_an_entry_without_the_time_of_our_last_batch_is_read() -> None:
    older = formats.encode_entry(ENTRY).replace(b',"ts":1690000000000,"ru":"all","tl":6', b"")
    record = formats.parse_ledger("g", formats.encode_entry_key("g", "foo", 7), older)
    assert isinstance(record, formats.EntryRecord)
    assert record.entry == ENTRY.moved(newest_ms=-1, rule="", target_leader_epoch=-1)
