"""The bytes of positions and ledger; the vectors stand in docs/formats.md too."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType
from heliograph.kafka.partitioner import partition_for
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.positions import SOURCE_CONNECTOR, encode_position_key, encode_position_value, parse_position
from heliograph.ledger.records.condition import Condition
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.entry import Entry, EntryRecord, encode_entry, encode_entry_key
from heliograph.ledger.records.group_pass import GroupPass, PassKind
from heliograph.ledger.records.kept_acls import KeptAcls
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.log_ends import LogEnd, LogEnds
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.page import Page, PageRecord, Run, encode_page
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.rejected_record import Rejected
from heliograph.ledger.records.seen_group import GroupCommit, GroupMember, SeenGroup
from heliograph.ledger.records.selection_seen import SelectionSeen
from heliograph.ledger.records.standby import StandbyRecord
from heliograph.ledger.records.table import is_foreign, parse_ledger
from heliograph.ledger.records.throttle import Throttle
from heliograph.ledger.records.topic_change import ChangeKind, TopicChange
from heliograph.ledger.records.trouble import Trouble

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
STANDBY = StandbyRecord(owner="us", time_ms=1_700_000_000_000, host="h2")
CONDITION = Condition(lacks=("x",), is_blocked=False, time_ms=1_700_000_000_000, failing=("y",))
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
TROUBLE = Trouble(topic="foo", partition=1, code="DATA_LOST", text="x", final=True)
KINDS = [
    record.encode("g")
    for record in (
        *(LEASE, STANDBY, CONDITION, ACLS, CONTACT, PASS, LOG_ENDS, CHANGE, GROUP, WISH, ASKED, LOSS, TROUBLE),
        EntryRecord(topic="foo", partition=7, entry=ENTRY),
        PageRecord(topic="foo", partition=7, start=100, page=PAGE),
        PageRecord(topic="foo", partition=7, start=100, page=PAGE, is_former=True),
        ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T"),
        Throttle(cluster="B", client_id="c", muted_ms=2500, time_ms=1),
        Order(owner="me", end_epoch=9),
    )
]


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
    assert encode_position_key(cluster, topic, partition) == key
    assert partition_for(key, 25) == stored_in


def test_a_stored_offset_is_the_last_copied_record() -> None:
    assert encode_position_value(42) == b'{"offset":41}'


@given(st.text(max_size=5), st.text(max_size=5), st.integers(0, 2**31 - 1), st.integers(1, 2**62))
def test_positions_come_back(cluster: str, topic: str, partition: int, position: int) -> None:
    key = encode_position_key(cluster, topic, partition)
    parsed = parse_position(key, encode_position_value(position))
    assert parsed == ((SOURCE_CONNECTOR, cluster, topic, partition), position)


def test_a_position_is_read_in_any_field_order() -> None:
    key = json.dumps(["MirrorSourceConnector", {"topic": "t", "cluster": "A", "partition": 1}]).encode()
    assert parse_position(key, b'{ "offset" : 4 }') == (("MirrorSourceConnector", "A", "t", 1), 5)


@pytest.mark.parametrize("value", [None, b'{"offset":-1}', b'{"offset":null}', b'{"offset":"7"}', b'{"offset":true}'])
def test_a_deleted_or_useless_offset_is_no_position(value: bytes | None) -> None:
    parsed = parse_position(encode_position_key("A", "t", 0), value)
    assert parsed is not None
    assert parsed[1] is None


@pytest.mark.parametrize("key", [b"", b"x", b"[]", b"{}", b'["a"]', b'["a",{"topic":"t"}]', b"\xff\xff"])
def test_other_records_are_no_positions(key: bytes) -> None:
    assert parse_position(key, b'{"offset":1}') is None


def test_entry_bytes_do_not_change() -> None:
    assert encode_entry_key("A-mm2", "foo", 7) == b'["entry","A-mm2","foo",7]'
    assert encode_entry(ENTRY) == (
        b'{"v":1,"st":"00000000000000000000000000000001","tt":"00000000000000000000000000000002","e":3,'
        b'"n":5000000000,"b":77,"s":12,"t":34,"o":33,"rs":2,"rt":24,"end":99,"le":"0:0 4:9","ms":1700000000000,'
        b'"ts":1690000000000,"ru":"all","tl":6}'
    )


def test_an_entry_of_a_release_without_leader_epochs_is_read() -> None:
    key, value = encode_entry_key("g", "foo", 7), encode_entry(ENTRY)
    old = value.replace(b'"le":"0:0 4:9",', b"")
    assert old != value
    expected = EntryRecord(topic="foo", partition=7, entry=ENTRY.moved(lineage=""))
    assert parse_ledger("g", key, old) == expected


@pytest.mark.parametrize("lineage", [b"x", b"1", b"1:2:3", b"1:y"])
def test_an_entry_with_nonsense_for_leader_epochs_is_none(lineage: bytes) -> None:
    key, value = encode_entry_key("g", "foo", 7), encode_entry(ENTRY)
    assert parse_ledger("g", key, value.replace(b"0:0 4:9", lineage)) is None


@pytest.mark.parametrize(
    ("encoded", "record"),
    [
        (
            (encode_entry_key("g", "foo", 7), encode_entry(ENTRY)),
            EntryRecord(topic="foo", partition=7, entry=ENTRY),
        ),
        (
            Order(owner="me", end_epoch=9).encode("g"),
            Order(owner="me", end_epoch=9),
        ),
        (LEASE.encode("g"), LEASE),
        (
            StandbyRecord(owner="us", time_ms=5, host="h2").encode("g"),
            StandbyRecord(owner="us", time_ms=5, host="h2"),
        ),
        (
            StandbyRecord(owner="us", time_ms=0).encode("g"),
            StandbyRecord(owner="us", time_ms=0),
        ),
        (
            Trouble(topic="foo", partition=1, code="DATA_LOST", text="x", final=True).encode("g"),
            Trouble(topic="foo", partition=1, code="DATA_LOST", text="x", final=True),
        ),
        (
            ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T").encode("g"),
            ProducerClaim(token="t", producer_id=5, source_cluster_id="S", target_cluster_id="T"),
        ),
        (
            CONDITION.encode("g"),
            CONDITION,
        ),
        (
            replace(TROUBLE, final=False, details={"records": 2}).encode("g"),
            replace(TROUBLE, final=False, details={"records": 2}),
        ),
        (LOSS.encode("g"), LOSS),
        (
            replace(LOSS, on_target=True, acknowledged_ms=9).encode("g"),
            replace(LOSS, on_target=True, acknowledged_ms=9),
        ),
        (ACLS.encode("g"), ACLS),
        (NO_ACLS.encode("g"), NO_ACLS),
        (CONTACT.encode("g"), CONTACT),
        (LOG_ENDS.encode("g"), LOG_ENDS),
        (CHANGE.encode("g"), CHANGE),
        (GROUP.encode("g"), GROUP),
        (PASS.encode("g"), PASS),
        (STILL.encode("g"), STILL),
        (
            encode_page("g", "foo", 7, 100, PAGE),
            PageRecord(topic="foo", partition=7, start=100, page=PAGE),
        ),
        (
            encode_page("g", "foo", 7, 100, PAGE, is_former=True),
            PageRecord(topic="foo", partition=7, start=100, page=PAGE, is_former=True),
        ),
        (WISH.encode("g"), WISH),
        (replace(WISH, offset=None).encode("g"), replace(WISH, offset=None)),
        (replace(WISH, time_ms=0).encode("g"), replace(WISH, time_ms=0, offset=None)),
        (ASKED.encode("g"), ASKED),
    ],
)
def test_ledger_records_come_back_for_their_group_only(
    encoded: tuple[bytes, bytes | None], record: LedgerRecord
) -> None:
    assert parse_ledger("g", *encoded) == record
    assert parse_ledger("other", *encoded) is None
    assert is_foreign("other", encoded[0])
    assert not is_foreign("g", encoded[0])
    # Where the ledger is not allowed its records stand among the positions.
    assert parse_position(*encoded) is None
    assert is_foreign("g", encode_position_key("A", "t", 0))


def test_counts_beyond_the_epochs_of_a_producer_are_written_as_any_other() -> None:
    entry, page = ENTRY.moved(count=98_304), replace(PAGE, count=98_304)
    encoded = encode_entry(entry)
    assert encoded == encode_entry(ENTRY).replace(b'"e":3,', b'"e":98304,')
    key = encode_entry_key("g", "foo", 7)
    assert parse_ledger("g", key, encoded) == EntryRecord(topic="foo", partition=7, entry=entry)
    found = parse_ledger("g", *encode_page("g", "foo", 7, 100, page))
    assert found == PageRecord(topic="foo", partition=7, start=100, page=page)


def test_a_deleted_page_is_told_and_a_broken_one_is_passed_over() -> None:
    key, value = encode_page("g", "foo", 7, 100, PAGE)
    assert value is not None
    gone = PageRecord(topic="foo", partition=7, start=100, page=None)
    assert parse_ledger("g", key, None) == gone
    assert parse_ledger("g", key, value[:-1]) is None
    assert parse_ledger("g", key, b'{"v":1}') is None
    assert parse_ledger("g", key.replace(b"100", b"-1"), value) is None


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_garbage_in_the_ledger_is_passed_over(key: bytes, value: bytes) -> None:
    assert parse_ledger("g", key, value) is None


@given(
    st.recursive(st.none() | st.integers() | st.text(max_size=5), lambda x: st.lists(x) | st.dictionaries(st.text(), x))
)
def test_unexpected_json_in_the_ledger_is_passed_over(value: object) -> None:
    text = json.dumps(value).encode()
    assert parse_ledger("g", b'["entry","g","t",0]', text) is None
    assert parse_ledger("g", text, b'{"v":1}') is None


@pytest.mark.parametrize("sample", KINDS, ids=lambda sample: json.loads(sample[0])[0])
def test_a_key_with_an_element_too_few_or_too_many_is_passed_over_and_counted(
    sample: tuple[bytes, bytes | None],
) -> None:
    key, value = json.loads(sample[0]), sample[1]
    for changed in ([*key, "x"], key[:-1]):
        ledger = Ledger(group_id="g")
        assert ledger.take(json.dumps(changed).encode(), value, offset=1) is None
        assert ledger.unreadable == 1


def test_a_newer_ledger_version_is_passed_over() -> None:
    key, value = Order(owner="me", end_epoch=9).encode("g")
    assert parse_ledger("g", key, (value or b"").replace(b'"v":1', b'"v":2')) is None


def test_a_record_of_a_kind_that_is_not_known_is_passed_over_and_counted() -> None:
    key, value = ACLS.encode("g")
    ledger = Ledger(group_id="g")
    assert ledger.take(key.replace(b'"acls"', b'"acls of a later release"'), value) is None
    assert ledger.unreadable == 1
    assert ledger.acls == {}


@pytest.mark.parametrize("word", [b'"Topic"', b'"Literal"', b'"Read"', b'"Prefixed"', b'"Write"', b'"made"'])
def test_access_rules_of_a_kind_that_is_not_known_are_passed_over(word: bytes) -> None:
    key, value = ACLS.encode("g")
    assert value is not None
    assert parse_ledger("g", key.replace(word, b'"Other"'), value.replace(word, b'"Other"')) is None


def test_deleted_access_rules_are_forgotten() -> None:
    ledger = Ledger(group_id="g")
    key, value = ACLS.encode("g")
    ledger.take(key, value)
    assert list(ledger.acls.values()) == [ACLS]
    ledger.take(key, None)
    assert ledger.acls == {}
    assert ledger.unreadable == 0


def test_a_lease_of_an_unknown_kind_is_passed_over() -> None:
    key, value = LEASE.encode("g")
    assert parse_ledger("g", key, (value or b"").replace(b'"held"', b'"sold"')) is None


def test_an_entry_without_the_time_of_our_last_batch_is_read() -> None:
    older = encode_entry(ENTRY).replace(b',"ts":1690000000000,"ru":"all","tl":6', b"")
    record = parse_ledger("g", encode_entry_key("g", "foo", 7), older)
    assert isinstance(record, EntryRecord)
    assert record.entry == ENTRY.moved(newest_ms=-1, rule="", target_leader_epoch=-1)
