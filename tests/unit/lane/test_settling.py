"""Settling against a model: crash anywhere, and the position is exact or said to be unproven."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import DataError, PositionUnproven, SecondWriter, TargetTruncated
from heliograph.kafka.batch import BatchHeader, Record, encode_batch, iter_records
from heliograph.lane import settling as settle_module
from heliograph.lane.partition_copy import PartitionCopy
from heliograph.lane.settling import Settled, settle
from heliograph.ledger.lineage import Lineage
from heliograph.ledger.model import Assignment
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Run
from heliograph.ledger.tail import Unsettled, read_tails
from tests.unit.helpers.logs import ASSIGNMENT, ENTRY, PRODUCER_ID, MemoryLog, kept_as, new_records, plain_batch


def copy_all(source: MemoryLog, target: MemoryLog, entry: Entry = ENTRY) -> list[Entry]:
    """Copy what the source has as a lane does; the entry after every acknowledged piece."""
    copy = PartitionCopy(ASSIGNMENT, producer_id=PRODUCER_ID, read_committed=False, codec=None)
    copy.settled(entry)
    copy.take(source.fetched(entry.source_offset))
    entries = [copy.entry]
    while (piece := copy.next_piece(now_ms=0, small_bytes=1000)) is not None:
        copy.acknowledged(target.append(piece.data))
        entries.append(copy.entry)
    return entries


def settle_now(entry: Entry, source: MemoryLog, target: MemoryLog, assignment: Assignment = ASSIGNMENT) -> Settled:
    async def settled() -> Settled:
        copy = Unsettled(assignment, entry, PRODUCER_ID)
        [tail] = await read_tails([copy], target.end, ours=[PRODUCER_ID], target=target)
        if isinstance(tail, DataError):
            raise tail
        return await settle(copy, tail, target.end, source)

    return asyncio.run(settled())


Shape = tuple[int, int, int]
"""Records in the batch, offsets missing before it, codec."""

shapes_of_source = st.lists(
    st.tuples(st.integers(1, 6), st.sampled_from([0, 0, 0, 1, 5]), st.sampled_from([0, 0, 1, 3])),
    min_size=1,
    max_size=12,
)


def make_source(shapes: list[Shape]) -> MemoryLog:
    source, number = MemoryLog(), 0
    for count, gap, codec in shapes:
        source.append(plain_batch(number, count, codec), gap=gap)
        number += count
    return source


@given(shapes=shapes_of_source, data=st.data())
def test_settling_after_a_crash_finds_the_exact_position(shapes: list[Shape], data: st.DataObject) -> None:
    source, target = make_source(shapes), MemoryLog()
    entries = copy_all(source, target)
    known = data.draw(st.integers(0, len(entries) - 1))
    settled = settle_now(entries[known], source, target)
    assert settled.entry.n == entries[-1].n
    assert settled.entry.source_offset == entries[-1].source_offset
    assert settled.entry.target_offset == target.end
    assert settled.found == entries[-1].n - entries[known].n


@given(shapes=shapes_of_source, data=st.data())
def test_settling_finds_the_leader_epochs_that_the_lost_lane_had(shapes: list[Shape], data: st.DataObject) -> None:
    source, target, number, epoch = MemoryLog(), MemoryLog(), 0, 0
    for count, gap, codec in shapes:
        epoch += data.draw(st.sampled_from([0, 0, 1, 3]))
        source.append(plain_batch(number, count, codec), gap=gap, leader_epoch=epoch)
        number += count
    entries = copy_all(source, target)
    assert Lineage.parse(entries[-1].lineage).before(source.end) == epoch
    known = entries[data.draw(st.integers(0, len(entries) - 1))]
    cut = known.moved(lineage=Lineage.parse(known.lineage).until(known.source_offset).pack())
    assert settle_now(cut, source, target).entry.lineage == entries[-1].lineage
    assert settle_now(known, source, target).entry.lineage == entries[-1].lineage


class WithMarkers(MemoryLog):
    """A source that has a marker, which is not to be seen, where offsets are missing."""

    async def batches(self, start: int, end: int | None = None) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
        before = start
        async for header, view in super().batches(start, end):
            if header.base_offset > before:
                marker = header._replace(
                    base_offset=before, last_offset_delta=header.base_offset - before - 1, record_count=0
                )
                yield marker, view[:0]
            yield header, view
            before = header.next_offset


@given(shapes=shapes_of_source, data=st.data())
def test_settling_after_a_crash_passes_over_markers(shapes: list[Shape], data: st.DataObject) -> None:
    plain, target, source = make_source(shapes), MemoryLog(), WithMarkers()
    source.stored, source.end = plain.stored, plain.end
    entries = copy_all(plain, target)
    known = data.draw(st.integers(0, len(entries) - 1))
    assert settle_now(entries[known], source, target).entry.source_offset == entries[-1].source_offset


@given(shapes=shapes_of_source, data=st.data())
def test_a_copy_with_crashes_in_between_has_every_record_once(shapes: list[Shape], data: st.DataObject) -> None:
    source, target, entry = MemoryLog(), MemoryLog(), ENTRY
    number = 0
    for count, gap, codec in shapes:
        source.append(plain_batch(number, count, codec), gap=gap)
        number += count
        entries = copy_all(source, target, settle_now(entry, source, target).entry)
        entry = entries[data.draw(st.integers(0, len(entries) - 1))]
    assert [record.value for record in target.records()] == [str(value).encode() for value in range(number)]
    assert [record.timestamp for record in target.records()] == [1_000 + value for value in range(number)]


@given(shapes=shapes_of_source, data=st.data())
def test_settling_finds_the_runs_that_the_lost_lane_had(shapes: list[Shape], data: st.DataObject) -> None:
    source, target = make_source(shapes), MemoryLog()
    entries = copy_all(source, target)
    if data.draw(st.booleans()):
        target.append(encode_batch(new_records(900, 2)))
    known = data.draw(st.integers(0, len(entries) - 1))
    settled = settle_now(entries[known], source, target)
    last = settled.entry
    before = entries[known]
    open_run = Run(last.run_source, last.run_target, last.source_offset - last.run_source)
    found = {run.source + i: run.target + i for run in (*settled.closed, open_run) for i in range(run.length)}
    numbers = {record.value: record.offset for record in target.records()}
    wanted = {record.offset: numbers[record.value] for record in source.records() if record.offset >= before.run_source}
    assert found == wanted


def test_foreign_records_are_counted_and_the_copy_goes_on_behind_them() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    entry = copy_all(source, target)[-1]
    target.append(plain_batch(90, 2))
    settled = settle_now(entry, source, target)
    assert (settled.foreign, settled.found) == (2, 0)
    assert settled.entry.target_offset == 5
    assert settled.entry.source_offset == 3


def test_foreign_records_between_ours_do_not_hide_ours() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    entry = copy_all(source, target)[-1]
    target.append(plain_batch(90, 2))
    source.append(plain_batch(3, 2))
    last = copy_all(source, target, entry.moved(target_offset=5))[-1]
    settled = settle_now(entry, source, target)
    assert (settled.foreign, settled.found) == (2, 2)
    assert settled.entry.source_offset == last.source_offset


def test_a_shorter_target_is_named() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    entry = copy_all(source, target)[-1]
    with pytest.raises(TargetTruncated):
        settle_now(entry.moved(target_offset=9, our_end=9), source, target)


def test_a_target_whose_tail_is_not_ours_is_named() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    entry = copy_all(source, target)[-1]
    target.stored.clear()
    target.end = 0
    target.append(plain_batch(50, 3))
    target.append(plain_batch(60, 3))
    with pytest.raises(TargetTruncated):
        settle_now(entry, source, target)


def test_a_tail_with_other_content_than_the_source_is_unproven() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    forged = encode_batch(
        new_records(70, 3),
        producer_id=PRODUCER_ID,
        producer_epoch=0,
        base_sequence=0,
    )
    target.append(forged)
    with pytest.raises(PositionUnproven) as caught:
        settle_now(ENTRY, source, target)
    assert caught.value.details["records"] == 3


def test_no_record_is_decoded_before_the_source_has_been_read(monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = make_source([(4, 0, 0)] * 5), MemoryLog()
    entries = copy_all(source, target)
    done: list[str] = []

    def decoding(header: BatchHeader, view: memoryview) -> Any:
        done.append("decoded")
        return iter_records(header, view)

    class Reading(MemoryLog):
        async def batches(self, start: int, end: int | None = None) -> AsyncIterator[tuple[BatchHeader, memoryview]]:
            async for batch in source.batches(start, end):
                done.append("read")
                yield batch

    monkeypatch.setattr(settle_module, "iter_records", decoding)
    assert settle_now(ENTRY, Reading(), target).entry.n == entries[-1].n == 20
    assert done == [*["read"] * 5, *["decoded"] * (len(done) - 5)]
    assert "decoded" in done


def test_a_source_that_lost_the_records_in_between_is_unproven() -> None:
    source, target = make_source([(3, 0, 0), (3, 0, 0)]), MemoryLog()
    copy_all(source, target)
    source.stored.pop(0)
    with pytest.raises(PositionUnproven):
        settle_now(ENTRY, source, target)


def test_a_later_count_on_the_target_is_a_second_writer() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    copy_all(source, target, ENTRY.moved(count=4))
    with pytest.raises(SecondWriter, match=r"3 records of count 4, .* 3 may repeat") as caught:
        settle_now(ENTRY, source, target)
    assert caught.value.details["records"] == 3


def test_batches_of_an_earlier_count_that_came_late_are_announced_with_their_number() -> None:
    source, target = make_source([(3, 0, 0), (2, 0, 0)]), MemoryLog()
    copy_all(source, target, ENTRY.moved(count=0))
    with pytest.raises(PositionUnproven, match="5 of them are of an earlier count") as caught:
        settle_now(ENTRY.moved(count=1), source, target)
    assert caught.value.details["records"] == 5


def test_foreign_records_twice_while_the_source_is_idle_are_no_loss() -> None:
    source, target = make_source([(3, 0, 0)]), MemoryLog()
    entry = copy_all(source, target)[-1]
    for round_number in (1, 2):
        target.append(plain_batch(90, 2))
        settled = settle_now(entry, source, target)
        assert (settled.foreign, settled.found) == (2, 0)
        entry = settled.entry
        assert entry.target_offset == 3 + 2 * round_number


def test_a_target_that_lost_its_oldest_records_goes_on_by_the_sequence() -> None:
    source, target = make_source([(3, 0, 0), (3, 0, 0)]), MemoryLog()
    entries = copy_all(source, target)
    target.stored.pop(0)
    settled = settle_now(entries[1], source, target)
    assert settled.entry.source_offset == 6


NONE, GZIP, LZ4, ZSTD = 0, 1, 3, 4
BATCH = 4


def two_batches(codec: int = NONE) -> tuple[MemoryLog, MemoryLog]:
    """A source and its copy, batch by batch; no entry of the ledger knows of it."""
    source, target, entry = MemoryLog(), MemoryLog(), ENTRY
    for first in (0, BATCH):
        source.append(plain_batch(first, BATCH, codec))
        entry = copy_all(source, target, entry)[-1]
    return source, target


def other(record: Record) -> Record:
    return record._replace(value=b"other") if record.offset == BATCH + 3 else record


def later(record: Record) -> Record:
    return record._replace(timestamp=record.timestamp + 1)


def cleaned(record: Record) -> Record | None:
    """Of the last batch the second and the last one are left."""
    return record if record.offset in (BATCH + 1, BATCH + 3) else None


@pytest.mark.parametrize("source_codec", [NONE, LZ4])
@pytest.mark.parametrize(
    ("kept", "stamps_time"),
    [
        pytest.param({"codec": ZSTD}, False, id="zstd"),
        pytest.param({"codec": GZIP}, False, id="gzip"),
        pytest.param({"codec": NONE}, False, id="not compressed"),
        pytest.param({"stamped_ms": 9_000}, True, id="stamped"),
        pytest.param({"stamped_ms": 9_000}, False, id="stamped, and no more now"),
        pytest.param({}, True, id="not stamped yet"),
        pytest.param({"stamped_ms": 9_000, "codec": ZSTD}, True, id="stamped, zstd"),
        pytest.param({"change": cleaned}, False, id="compacted"),
        pytest.param({"change": cleaned, "stamped_ms": 9_000, "codec": GZIP}, True, id="compacted, stamped, gzip"),
    ],
)
def test_a_target_that_keeps_records_in_its_own_way_is_proved_by_what_they_are(
    source_codec: int, kept: dict[str, Any], stamps_time: bool
) -> None:
    source, target = two_batches(source_codec)
    target.stored[-1] = kept_as(target.stored[-1], **kept)
    settled = settle_now(ENTRY, source, target, replace(ASSIGNMENT, target_stamps_time=stamps_time))
    assert (settled.found, settled.entry.n) == (2 * BATCH, 2 * BATCH)
    assert settled.entry.source_offset == settled.entry.target_offset == 2 * BATCH


@pytest.mark.parametrize(
    ("kept", "stamps_time"),
    [
        pytest.param({"codec": ZSTD, "change": other}, False, id="zstd, other content"),
        pytest.param({"codec": ZSTD, "change": later}, False, id="zstd, other times"),
        pytest.param({"stamped_ms": 9_000, "change": other}, True, id="stamped, other content"),
        pytest.param({"change": later}, False, id="other times, not stamped"),
        pytest.param({"change": lambda record: cleaned(later(record))}, False, id="compacted, other times"),
        pytest.param(
            {"change": lambda record: cleaned(record) and other(record)}, False, id="compacted, other content"
        ),
        pytest.param({"change": lambda _: None}, False, id="compacted, nothing left"),
    ],
)
def test_a_target_with_other_records_than_the_source_is_unproven_however_it_keeps_them(
    kept: dict[str, Any], stamps_time: bool
) -> None:
    source, target = two_batches()
    target.stored[-1] = kept_as(target.stored[-1], **kept)
    with pytest.raises(PositionUnproven) as caught:
        settle_now(ENTRY, source, target, replace(ASSIGNMENT, target_stamps_time=stamps_time))
    assert caught.value.details["records"] == 2 * BATCH


def test_a_batch_that_compaction_took_whole_leaves_a_hole_and_the_tail_unproven() -> None:
    source, target = two_batches()
    del target.stored[0]
    with pytest.raises(PositionUnproven) as caught:
        settle_now(ENTRY, source, target)
    assert "sequence 4 follows 0" in str(caught.value)
