"""The checker of the fault tests finds what is planted, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypedDict

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import SecondWriter
from heliograph.kafka.batch import encode_batch, parse_header
from heliograph.ledger import tail as tails
from heliograph.ledger.loss_outcomes import GoOn, Outcome, never_written_down
from heliograph.ledger.losses import loss_of
from tests.cluster.mirror import Record
from tests.fault.checker import announced_repeats, false_names, judge, missing
from tests.fault.stamp import HEADER, Shape, Stamp, stamp_of
from tests.unit.helpers.logs import ASSIGNMENT, ENTRY, new_records

PLAIN = Shape(writer="plain", age_ms=1000)
KEYED = Shape(writer="keyed", keys=3, tombstones=True)
TIME_MS = 1_700_000_000_000


def written(shape: Shape, sequences: Sequence[int], *, partition: int = 1) -> list[Record]:
    """A log whose records have these sequences; offsets follow each other."""
    records = []
    for offset, sequence in enumerate(sequences):
        stamp = Stamp(shape.writer, partition, sequence, TIME_MS + 10 * sequence)
        timestamp, key, value, headers = shape.content(stamp)
        records.append(
            Record(
                partition=partition,
                offset=offset,
                timestamp=timestamp,
                timestamp_type=TIMESTAMP_CREATE_TIME,
                key=key,
                value=value,
                headers=headers,
            )
        )
    return records


def compact(records: Sequence[Record], clean: Sequence[bool]) -> list[Record]:
    """Without some of the records that have a later one of their key."""
    last = {record.key: record.offset for record in records}
    return [
        record for record, gone in zip(records, clean, strict=True) if last[record.key] == record.offset or not gone
    ]


sequences = st.lists(st.integers(0, 200), unique=True, min_size=2, max_size=40).map(sorted)


@given(sequences)
def test_an_equal_copy_is_good(numbers: list[int]) -> None:
    verdict = judge(written(PLAIN, numbers), written(PLAIN, numbers), PLAIN)
    assert verdict.is_good
    assert verdict.compared == len(numbers)


@given(sequences, st.data())
def test_every_planted_loss_is_found(numbers: list[int], data: st.DataObject) -> None:
    gone = data.draw(st.sets(st.sampled_from(numbers), min_size=1))
    verdict = judge(written(PLAIN, numbers), written(PLAIN, [n for n in numbers if n not in gone]), PLAIN)
    assert verdict.lost == sorted(gone)
    assert not verdict.is_good
    assert not verdict.reordered + verdict.repeated + verdict.altered + verdict.unwanted


@given(sequences, st.data())
def test_every_planted_repeat_is_found(numbers: list[int], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(numbers) - 1))
    again = numbers[start:]
    target = written(PLAIN, numbers + again)
    verdict = judge(written(PLAIN, numbers), target, PLAIN)
    assert verdict.repeated == again
    assert not verdict.is_good
    assert not verdict.reordered + verdict.lost
    assert judge(written(PLAIN, numbers), target, PLAIN, announced=len(again)).is_good
    assert judge(written(PLAIN, numbers), target, PLAIN, announced=len(again) - 1).repeated == again[-1:]


def test_what_the_source_has_twice_the_target_must_have_twice() -> None:
    source = written(PLAIN, [0, 1, 2, 1, 2, 3])
    assert judge(source, source, PLAIN).is_good
    assert judge(source, written(PLAIN, [0, 1, 2, 3]), PLAIN).lost == [1, 2]
    assert judge(source, written(PLAIN, [0, 1, 2, 1, 2, 1, 3]), PLAIN).repeated == [1]


@given(sequences, st.data())
def test_every_planted_disorder_is_found(numbers: list[int], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(numbers) - 2))
    swapped = [*numbers[:at], numbers[at + 1], numbers[at], *numbers[at + 2 :]]
    verdict = judge(written(PLAIN, numbers), written(PLAIN, swapped), PLAIN)
    assert verdict.reordered == [numbers[at]]
    assert not verdict.is_good


class Change(TypedDict, total=False):
    """Fields of a record, and what they become."""

    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@pytest.mark.parametrize(
    "change",
    [
        {"value": b"other"},
        {"value": None},
        {"key": b"other"},
        {"key": None},
        {"timestamp": TIME_MS},
        {"headers": ()},
        {"headers": ((HEADER, b"garbage"),)},
        {"headers": ((HEADER, b"other/1/5/7"),)},
        {"partition": 0},
    ],
)
@pytest.mark.parametrize("compacted", [False, True])
def test_every_planted_alteration_is_found(change: Change, compacted: bool) -> None:
    source = written(PLAIN, range(10))
    target = [replace(record, **change) if record.offset == 5 else record for record in source]
    verdict = judge(source, target, PLAIN, compacted=compacted)
    assert verdict.altered == [5]
    assert not verdict.is_good


def test_an_extra_header_is_an_alteration() -> None:
    source = written(PLAIN, range(3))
    target = [replace(source[0], headers=(*source[0].headers, ("x", b""))), *source[1:]]
    assert judge(source, target, PLAIN).altered == [0]


def test_a_changed_source_record_is_seen_although_the_target_fits_its_stamp() -> None:
    source = written(PLAIN, range(3))
    assert judge([replace(source[0], value=b"x"), *source[1:]], source, PLAIN).altered == [0]


@given(sequences)
def test_records_that_the_source_lacks_are_unwanted(numbers: list[int]) -> None:
    """Those of aborted transactions, for example."""
    verdict = judge(written(PLAIN, numbers[:-1]), written(PLAIN, numbers), PLAIN)
    assert verdict.unwanted == numbers[-1:]
    assert not verdict.is_good


@given(sequences, st.data())
def test_compaction_of_either_side_is_no_loss(numbers: list[int], data: st.DataObject) -> None:
    full = written(KEYED, numbers)
    drawn = [data.draw(st.lists(st.booleans(), min_size=len(full), max_size=len(full))) for _ in range(2)]
    source, target = (compact(full, clean) for clean in drawn)
    verdict = judge(source, target, KEYED, compacted=True)
    assert verdict.is_good, str(verdict)
    assert verdict.compared + verdict.compacted_away == len(target)


@given(sequences, st.data())
def test_the_last_record_of_a_key_may_not_be_missing(numbers: list[int], data: st.DataObject) -> None:
    full = written(KEYED, numbers)
    last = {record.key: record for record in full}
    gone = data.draw(st.sampled_from(sorted(last.values(), key=lambda record: record.offset)))
    rest = [record for record in full if record is not gone]
    stamp = stamp_of(gone)
    assert stamp is not None
    assert judge(full, rest, KEYED, compacted=True).lost == [stamp.sequence]
    assert judge(rest, full, KEYED, compacted=True).unwanted == [stamp.sequence]


def test_keyed_records_have_tombstones_and_few_keys_and_every_fourth_its_own() -> None:
    records = written(KEYED, range(200))
    assert [record.key for record in records[::4]] == [b"own-%d" % number for number in range(0, 200, 4)]
    assert {record.key for index, record in enumerate(records) if index % 4} == {b"key-0", b"key-1", b"key-2"}
    assert all(record.value is not None for record in records[::4])
    assert 0 < sum(record.value is None for record in records) < 40


def test_what_was_acknowledged_and_is_not_on_the_source_is_named() -> None:
    assert missing({0, 1, 2, 5}, written(PLAIN, [0, 1]), PLAIN, partition=1) == [2, 5]
    assert missing({0, 1, 2, 5}, written(KEYED, [1, 2]), KEYED, partition=1) == [0, 5]


def unproven(topic: str, partition: int, records: int, *, at: int, since_ms: int = 0) -> str:
    """What a mirror logs."""
    entry = ENTRY.moved(source_offset=at)
    error = tails.unproven(replace(ASSIGNMENT, topic=topic, partition=partition), entry, records, "why")
    outcome = Outcome(error.code, str(error), entry, error.details)
    answer = str(GoOn(at))
    return loss_of((topic, partition), outcome, flow="a->b", answer=answer, since_ms=since_ms, now_ms=0).text


def test_announced_repeats_are_read_from_the_log() -> None:
    lines = [unproven("x-y", 1, 5, at=3), unproven("x-y", 1, 2, at=8), unproven("z", 0, 1, at=3), "5 records"]
    assert announced_repeats("\n".join(lines)) == {("x-y", 1): 7, ("z", 0): 1}


def test_an_announcement_that_is_logged_again_counts_once() -> None:
    met, grown = (unproven("t", 0, records, at=3, since_ms=TIME_MS) for records in (5, 6))
    assert announced_repeats("\n".join([met, met, grown, met])) == {("t", 0): 6}


def test_another_count_from_the_same_offset_is_announced_for_itself() -> None:
    lines = [unproven("t", 0, 5, at=3, since_ms=since_ms) for since_ms in (TIME_MS, TIME_MS + 1000)]
    assert announced_repeats("\n".join(lines)) == {("t", 0): 10}


def test_losses_that_no_fault_causes_are_false() -> None:
    lost = "LOG_TRUNCATED: a->b t-0: offsets 60 to 99 (40 records) are gone"
    output = f"12:00 {lost}\n12:01 {lost}\n{unproven('t', 0, 5, at=3)}\nflow a->b: 5 records/s"
    assert false_names(output) == [lost]
    assert not false_names(unproven("t", 0, 5, at=3))


def test_a_later_count_announces_its_repeats_too() -> None:
    tail = tails.Tail(tails.Unsettled(ASSIGNMENT, ENTRY.moved(source_offset=40), 7), [7])
    batch = parse_header(encode_batch(new_records(0, 5), producer_id=7, producer_epoch=3, base_sequence=0))
    tail.take(batch, memoryview(b""))
    with pytest.raises(SecondWriter) as caught:
        tail.check()
    outcome = Outcome("SECOND_WRITER", str(caught.value), ENTRY.moved(source_offset=40), caught.value.details)
    text = loss_of(("t", 0), outcome, flow="a->b", answer="went on at 40", since_ms=TIME_MS, now_ms=0).text
    assert announced_repeats(f"{text}\n{text}") == {("t", 0): 5}


def test_a_count_that_the_ledger_lost_announces_its_repeats() -> None:
    outcome = never_written_down(ENTRY.moved(source_offset=40), 0, 12)
    text = loss_of(("t", 0), outcome, flow="a->b", answer="went on behind them", since_ms=0, now_ms=0).text
    assert announced_repeats(text) == {("t", 0): 12}
