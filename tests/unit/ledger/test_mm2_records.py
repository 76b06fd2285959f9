"""MirrorMaker 2's records: its bytes, and what is not one of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat, OffsetSync

OFFSETS = st.integers(0, 2**63 - 2)
NAMES = st.text(max_size=40)
RECORDS = st.one_of(
    st.builds(OffsetSync, topic=NAMES, partition=st.integers(0, 2**31 - 1), upstream=OFFSETS, downstream=OFFSETS),
    st.builds(
        Checkpoint,
        group=NAMES,
        topic=NAMES,
        partition=st.integers(0, 2**31 - 1),
        upstream=OFFSETS,
        downstream=OFFSETS,
        metadata=NAMES,
    ),
    st.builds(Heartbeat, source=NAMES, target=NAMES, time_ms=st.integers(0, 253_402_300_799_999)),
)
VECTORS: list[tuple[OffsetSync | Checkpoint | Heartbeat, str, str]] = [
    (
        OffsetSync(topic="topic1", partition=2, upstream=5, downstream=6),
        "0006746f7069633100000002",
        "00000000000000050000000000000006",
    ),
    (
        Checkpoint(group="group-1", topic="A.topic1", partition=2, upstream=5, downstream=6, metadata="md"),
        "000767726f75702d310008412e746f7069633100000002",
        "00000000000000000005000000000000000600026d64",
    ),
    (
        Checkpoint(group="group-1", topic="A.topic1", partition=2, upstream=5, downstream=6),
        "000767726f75702d310008412e746f7069633100000002",
        "0000000000000000000500000000000000060000",
    ),
    (Heartbeat(source="A", target="B", time_ms=1_700_000_000_000), "000141000142", "00000000018bcfe56800"),
]


@pytest.mark.parametrize(("record", "key", "value"), VECTORS)
def test_records_have_mirrormaker_2s_bytes(record: OffsetSync | Checkpoint | Heartbeat, key: str, value: str) -> None:
    assert record.encode() == (bytes.fromhex(key), bytes.fromhex(value))
    assert type(record).parse(bytes.fromhex(key), bytes.fromhex(value)) == record


@given(RECORDS)
def test_every_record_comes_back_as_it_was(record: OffsetSync | Checkpoint | Heartbeat) -> None:
    assert type(record).parse(*record.encode()) == record


@given(RECORDS, st.data())
def test_a_record_that_is_cut_off_is_none(record: OffsetSync | Checkpoint | Heartbeat, data: st.DataObject) -> None:
    key, value = record.encode()
    shorter = data.draw(st.integers(0, len(value) - 1))
    assert type(record).parse(key, value[:shorter]) is None
    assert type(record).parse(key[: data.draw(st.integers(0, len(key) - 1))], value) is None


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_none_or_a_record_and_never_an_error(key: bytes, value: bytes) -> None:
    for kind in (OffsetSync, Checkpoint, Heartbeat):
        found = kind.parse(key, value)
        assert found is None or isinstance(found, kind)


def test_a_deleted_record_is_none() -> None:
    assert Checkpoint.parse(VECTORS[1][0].encode()[0], None) is None
    assert Heartbeat.parse(None, b"") is None


def test_a_string_that_does_not_fit_is_refused() -> None:
    with pytest.raises(ValueError, match="32768 bytes"):
        Checkpoint(group="g" * 32768, topic="t", partition=0, upstream=0, downstream=0).encode()
