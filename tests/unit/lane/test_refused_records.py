"""Records that cannot be copied: the lane finds them, copies what stands before, and gives the partition back there."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.protocol.producer import ProduceResponse

from heliograph.errors import CorruptBatch
from heliograph.kafka.batch import NewRecord, Record, encode_batch, iter_records, parse_header
from heliograph.kafka.compression import Codec
from heliograph.lane.batches.records import reencode
from heliograph.lane.partition_copy import Piece
from heliograph.lane.refused_records import KEY_BYTES, MAX_STRETCH, refused_by_source, refused_by_target
from heliograph.ledger.counts import Past, pages_at_opening
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.partition_ledger import PartitionLedger
from heliograph.ledger.records.rejected_record import Rejected, rejected_of
from heliograph.ledger.runs import OpenPage
from heliograph.ledger.translation import Grade
from tests.fake_cluster import PRODUCE, Call
from tests.unit.helpers.lanes import HEAVY, LaneOnFakes, is_data, numbers, recent, run
from tests.unit.helpers.logs import ENTRY
from tests.unit.helpers.placed import PositionsOnFakes

pytestmark = pytest.mark.usefixtures("own_worker")


def piece_of(records: int, *, first: int = 100, gap_at: int = -1) -> Piece:
    """A piece whose source offsets leave one out at `gap_at`."""
    data = memoryview(encode_batch([NewRecord(1000 + i, b"k%d" % i, b"value") for i in range(records)]))
    runs = ((first, records),) if gap_at < 0 else ((first, gap_at), (first + gap_at + 1, records - gap_at))
    return Piece(data, records, 0, 0, first, first + records + (gap_at >= 0), 2000, runs)


@given(st.integers(1, 30), st.sets(st.integers(0, 29), min_size=1))
def test_the_first_stretch_of_what_the_target_names_is_given_up(count: int, named: set[int]) -> None:
    bad = sorted(index for index in named if index < count)
    if not bad:
        return
    refusal = refused_by_target(piece_of(count), 87, list(named), message="no key", where="f t-0")
    length = next(n for n in range(1, len(bad) + 1) if n == len(bad) or bad[n] != bad[0] + n)
    details = refusal.details
    assert (details["source_start"], details["source_end"]) == (100 + bad[0], 100 + bad[0] + length)
    assert details["records"] == length == len(details["rejected"])


def test_offsets_are_those_of_the_source_behind_a_gap() -> None:
    refusal = refused_by_target(piece_of(5, gap_at=2), 32, [2, 3], message=None, where="f t-0")
    assert [record["offset"] for record in refusal.details["rejected"]] == [103, 104]
    assert refusal.details["source_end"] == 105
    assert "source offsets 103 to 104 (2 records)" in str(refusal)


def test_one_record_alone_is_the_one_at_fault() -> None:
    refusal = refused_by_target(piece_of(1), 10, [], message=None, where="f t-0")
    assert (refusal.details["source_start"], refusal.details["source_end"]) == (100, 101)


def test_a_refusal_that_names_nobody_says_so() -> None:
    refusal = refused_by_target(piece_of(4), 10, [], message=None, where="f t-0")
    assert "source_start" not in refusal.details
    assert refusal.details["piece_bytes"] == piece_of(4).data.nbytes


@pytest.mark.parametrize("records", [1, 4])
def test_a_piece_that_cannot_be_read_names_nobody(records: int) -> None:
    """Passed on as the source has it: only when it is taken apart it turns out to be corrupt."""
    whole = encode_batch([NewRecord(1000, b"k", b"value")] * records, codec=1)
    whole[-20:] = bytes(20)
    piece = piece_of(records)._replace(data=memoryview(whole))
    refusal = refused_by_target(piece, 87, [0], message=None, where="f t-0")
    assert "source_start" not in refusal.details
    assert refusal.details["piece_bytes"] == len(whole)


def test_a_long_stretch_is_given_up_in_parts() -> None:
    refusal = refused_by_target(piece_of(700), 87, list(range(700)), message=None, where="f t-0")
    assert refusal.details["records"] == MAX_STRETCH


def test_coordinates_are_those_of_the_record() -> None:
    batch = memoryview(encode_batch([NewRecord(7, b"k" * 300, b"value", (("h", b"xy"),))]))
    piece = Piece(batch, 1, 0, 0, 5, 6, 7, ((5, 1),))
    refusal = refused_by_target(piece, 32, [0], message="too old", where="f t-0")
    (record,) = rejected_of(("t", 3), refusal.details, now_ms=99)
    key = base64.b64encode(b"k" * KEY_BYTES).decode()
    assert record == Rejected(
        topic="t",
        partition=3,
        offset=5,
        last_offset=5,
        timestamp=7,
        size=308,
        key=key,
        code=32,
        why="too old",
        time_ms=99,
    )


def test_a_corrupt_batch_is_given_up_whole_if_it_says_where_it_ends() -> None:
    error = CorruptBatch("wrong checksum", why="disk", base_offset=10, next_offset=20)
    assert refused_by_source(error, position=5, log_end=30).details["records"] == 10
    cut = refused_by_source(error, position=12, log_end=30).details
    assert (cut["source_start"], cut["source_end"], cut["records"]) == (12, 20, 8)
    for position, log_end in ((20, 30), (5, 19)):
        assert "source_start" not in refused_by_source(error, position=position, log_end=log_end).details
    assert "source_start" not in refused_by_source(CorruptBatch("magic"), position=0, log_end=9).details


@given(st.integers(1, 20), st.integers(0, 20), st.integers(0, 20), st.sampled_from([Codec.NONE, Codec.GZIP]))
def test_the_record_path_ends_where_it_is_told(count: int, start: int, length: int, codec: int) -> None:
    view = memoryview(encode_batch([NewRecord(1, b"k", b"%d" % i) for i in range(count)], codec=codec))
    end = start + length
    chunks = reencode([(parse_header(view), view)], position=start, end=end, max_bytes=10_000)
    copied = [record for chunk in chunks for record in iter_records(parse_header(chunk.data), memoryview(chunk.data))]
    assert [record.value for record in copied] == [b"%d" % i for i in range(start, min(end, count))]
    if chunks:
        assert chunks[-1].source_end == min(end, count)


# -- a lane ----------------------------------------------------------------------------------


def refuse_records(
    world: LaneOnFakes | PositionsOnFakes, is_bad: Callable[[Record], bool], *, code: int, names_them: bool
) -> None:
    """The target refuses batches with such records, as a broker does: whole, and naming them if it can."""

    kind = ProduceResponse.TopicProduceResponse
    part = kind.PartitionProduceResponse

    def refusal(wanted: Any) -> Any:
        """None if a partition's batch has no such record."""
        records = memoryview(wanted.records)
        bad = [i for i, record in enumerate(iter_records(parse_header(records), records)) if is_bad(record)]
        named = [part.BatchIndexAndErrorMessage(batch_index=i, batch_index_error_message="bad") for i in bad]
        return bad and part(
            index=wanted.index,
            error_code=code,
            base_offset=-1,
            log_append_time_ms=-1,
            log_start_offset=0,
            record_errors=named if names_them else [],
            error_message="refused" if names_them else None,
        )

    async def hook(call: Call) -> Any:
        refused = []
        for topic in call.request.topic_data if is_data(call) else ():
            answers = [answer for wanted in topic.partition_data if (answer := refusal(wanted))]
            topic.partition_data = [wanted for wanted in topic.partition_data if not refusal(wanted)]
            refused.append(kind(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        response = await call.proceed()
        response.responses = [*response.responses, *refused]
        return response

    world.target.control(PRODUCE, hook)


def number_of(record: Record) -> int:
    return int((record.value or b"-1").split()[0])


async def give_back(world: LaneOnFakes) -> LedgerRow:
    async with world.lane() as lane:
        await lane.until_trouble()
    row = lane.rows[0]
    assert (row.state, row.error_code) == ("released", "RECORD_REFUSED")
    return row


@pytest.mark.parametrize("names_them", [True, False], ids=["named", "bisected"])
@pytest.mark.parametrize("size", [0, HEAVY], ids=["merged", "whole"])
def test_what_stands_before_a_refused_record_is_copied(names_them: bool, size: int) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for start in range(0, 12, 4):
                world.source.append("t", 0, recent(start, 4, size=size))
            refuse_records(world, lambda record: number_of(record) in (6, 7, 10), code=87, names_them=names_them)
            row = await give_back(world)
            assert world.copied() == numbers(6)
            assert (row.entry.n, row.entry.source_offset) == (6, 6)
            assert row.details["source_start"] == 6
            assert row.details["source_end"] == (8 if names_them else 7)
            assert [record["offset"] for record in row.details["rejected"]] == ([6, 7] if names_them else [6])
            assert base64.b64decode(row.details["rejected"][0]["key"]) == b"key"

    run(test())


def test_a_batch_that_is_too_large_is_halved_until_the_record_stands_alone() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, [*recent(0, 3, size=10), *recent(3, 1, size=HEAVY), *recent(4, 3, size=10)])
            refuse_records(world, lambda record: len(record.value or b"") > 1000, code=10, names_them=False)
            row = await give_back(world)
            assert world.copied() == numbers(3)
            assert (row.details["source_start"], row.details["source_end"]) == (3, 4)

    run(test())


def test_the_rest_of_the_batch_is_copied_in_the_next_count() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 8))
            refuse_records(world, lambda record: number_of(record) == 3, code=32, names_them=True)
            row = await give_back(world)
            behind = world.entry(source_offset=row.details["source_end"], target_offset=3, count=1)
            async with world.lane(world.assignments(behind)) as lane:
                await lane.until_copied(7)
            assert world.copied() == [0, 1, 2, 4, 5, 6, 7]
            assert (lane.rows[0].state, lane.rows[0].entry.source_offset) == ("copying", 8)

    run(test())


@pytest.mark.parametrize("size", [0, HEAVY], ids=["merged", "whole"])
def test_what_stands_before_a_corrupt_batch_is_copied(size: int) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for start in range(0, 9, 3):
                world.source.append("t", 0, recent(start, 3, size=size))
            world.source.partition("t", 0).batches[1][-1] ^= 1
            row = await give_back(world)
            assert world.copied() == numbers(3)
            assert (row.details["source_start"], row.details["source_end"]) == (3, 6)
            behind = world.entry(source_offset=6, target_offset=3, count=1)
            async with world.lane(world.assignments(behind)) as lane:
                await lane.until_copied(6)
            assert world.copied() == [0, 1, 2, 6, 7, 8]

    run(test())


def test_an_offset_that_was_left_out_leads_to_the_next_record_copied() -> None:
    known = ENTRY.moved(count=0, n=11, source_offset=11, target_offset=11, our_end=11, run_source=0, run_target=0)
    behind = known.moved(count=1, n=0, source_offset=13, run_source=13, run_target=11)
    ledger = PartitionLedger()
    opened = pages_at_opening(Past.OURS, behind, known=known, page=OpenPage(0), pages=[])
    for start, page in opened.pages.items():
        ledger.take_page(start, page)
    ledger.entry = behind.moved(n=7, source_offset=20, target_offset=18)
    found = [ledger.translate(offset) for offset in (10, 11, 12, 13, 14)]
    assert [(item.offset, item.grade) for item in found if item] == [(at, Grade.EXACT) for at in (10, 11, 11, 11, 12)]
