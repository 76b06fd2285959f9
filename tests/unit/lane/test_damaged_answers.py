"""Damaged answers that once did harm, each by its name; `test_fuzz.py` looks for more."""

from __future__ import annotations

import struct
import time
from typing import Any

import pytest

from heliograph.errors import CorruptBatch, ProtocolError
from heliograph.kafka import messages
from heliograph.kafka.batch import CONTROL, NewRecord, encode_batch, iter_batches, iter_records, parse_header
from heliograph.kafka.codec.k01_fetch import FetchedPartition
from heliograph.kafka.compression import Codec, compress, decompress
from heliograph.kafka.isolation import visible_batches
from heliograph.lane.batches.records import reencode
from heliograph.lane.batches.singles import merge_singles
from heliograph.ledger.records.table import iter_ledger
from tests.fake_cluster import FETCH, Call, FakePartition
from tests.unit.helpers.damage import mended
from tests.unit.helpers.lanes import LEDGER, PRODUCER_ID, LaneOnFakes, numbers, recent, run
from tests.unit.helpers.logs import MemoryLog, new_records, plain_batch
from tests.unit.lane.test_partition_copy import fetched, new_copy
from tests.unit.lane.test_settling import copy_all, settle_now

LAST = (1 << 63) - 1


def log_of(*counts: int) -> FakePartition:
    log = FakePartition(1, [1])
    for count in counts:
        log.store(plain_batch(log.end, count))
    return log


# -- records that vanished -------------------------------------------------------------------


@pytest.mark.parametrize(("at", "form", "value"), [(57, ">i", 0), (21, ">h", CONTROL)], ids=["empty", "control"])
def test_a_damaged_header_that_says_there_is_nothing_to_copy_is_not_believed(at: int, form: str, value: int) -> None:
    log = log_of(3, 3)
    struct.pack_into(form, log.batches[0], at, value)
    with pytest.raises(CorruptBatch, match="wrong checksum"):
        new_copy().take(fetched(log, 0))


def test_a_damaged_header_that_ends_before_the_position_is_not_believed() -> None:
    log = log_of(9, 3)
    answer = fetched(log, 5)
    struct.pack_into(">i", answer.records, 23, 2)
    with pytest.raises(CorruptBatch, match="wrong checksum"):
        list(visible_batches(answer, 5, read_committed=False, where=""))


# -- records that were doubled ---------------------------------------------------------------


def test_batches_that_go_back_are_not_merged() -> None:
    log = log_of(3, 3, 3)
    log.batches[2] = log.batches[1]
    with pytest.raises(CorruptBatch, match="begins at offset 3, but the one before it ends at 5"):
        new_copy().take(fetched(log, 0))


def test_a_batch_that_goes_back_behind_merged_ones_is_not_passed_over() -> None:
    log = FakePartition(1, [1])
    for number in range(3):
        log.store(encode_batch([NewRecord(1_000, b"k", b"%d" % number + b"v" * 80)]))
    log.batches.append(log.batches.pop(0))
    with pytest.raises(CorruptBatch, match="begins at offset 0, but the one before it ends at 2"):
        new_copy().take(fetched(log, 0))


def test_a_damaged_batch_of_ours_on_the_target_is_not_taken_for_somebody_elses() -> None:
    source, target = MemoryLog(), MemoryLog()
    source.append(plain_batch(0, 3))
    entries = copy_all(source, target)
    struct.pack_into(">q", target.stored[0], 43, PRODUCER_ID + 1)
    with pytest.raises(CorruptBatch, match="wrong checksum"):
        settle_now(entries[0], source, target)


def test_a_damaged_batch_of_the_source_does_not_make_the_tail_unproven() -> None:
    source, target = MemoryLog(), MemoryLog()
    source.append(plain_batch(0, 3))
    entries = copy_all(source, target)
    source.stored[0][-1] ^= 1
    with pytest.raises(CorruptBatch, match="wrong checksum"):
        settle_now(entries[0], source, target)


@pytest.mark.usefixtures("own_worker")
def test_a_tail_that_comes_damaged_is_read_again_before_copying_goes_on() -> None:
    spoilt = 0

    async def spoil(call: Call) -> Any:
        nonlocal spoilt
        response = await call.proceed()
        answer = response.responses[0].partitions[0]
        if answer.records and call.client_id.endswith("producer") and spoilt < 2:
            spoilt += 1
            answer.records = answer.records[:-1] + bytes([answer.records[-1] ^ 1])
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(FETCH, spoil)
            world.source.append("t", 0, recent(0, 3))
            ours = encode_batch(
                [NewRecord(r.timestamp, r.key, r.value) for r in world.source.partition("t", 0).records()],
                producer_id=PRODUCER_ID,
                producer_epoch=0,
                base_sequence=0,
            )
            world.target.partition("a.t", 0).produce(bytes(ours))
            world.source.append("t", 0, recent(3, 3))
            async with world.lane() as lane:
                await lane.until_copied(6)
            assert (spoilt, world.copied(), lane.rows[0].error_code) == (2, numbers(6), "")

    run(test())


# -- what is fetched again and again -----------------------------------------------------------


def test_bytes_without_a_whole_batch_are_an_error() -> None:
    answer = fetched(log_of(3), 0)
    struct.pack_into(">i", answer.records, 8, 1 << 20)
    with pytest.raises(CorruptBatch, match="no complete batch"):
        new_copy().take(answer)


# -- other errors than ours ---------------------------------------------------------------------


def at_offset(base: int, count: int) -> memoryview:
    batch = encode_batch([NewRecord(1_000, b"k", b"v" * 80)] * count)
    struct.pack_into(">q", batch, 0, base)
    return memoryview(batch)


def test_an_offset_after_which_there_is_none_is_corrupt() -> None:
    with pytest.raises(CorruptBatch, match="cannot be"):
        list(iter_batches(at_offset(LAST, 2)))
    singles = memoryview(bytes(at_offset(LAST - 1, 1)) + bytes(at_offset(LAST, 1)))
    assert merge_singles(singles, position=0, max_bytes=1 << 20) == ([], 0)


@pytest.mark.parametrize(("base", "delta"), [(LAST, 5), (-1, -LAST), (LAST, LAST), (0, LAST), (-LAST, -LAST)])
def test_timestamps_wrap_as_javas_do(base: int, delta: int) -> None:
    batch = encode_batch([NewRecord(0, b"k", b"a"), NewRecord(delta, b"k", b"b"), NewRecord(3, b"k", b"c")])
    struct.pack_into(">q", batch, 27, base)
    view = memoryview(mended(batch))
    read = list(iter_records(parse_header(view), view))
    assert read[1].timestamp == (base + delta + (1 << 63)) % (1 << 64) - (1 << 63)
    (chunk,) = reencode([(parse_header(view), view)], position=0, max_bytes=1 << 20, codec=Codec.GZIP)
    again = list(iter_records(parse_header(chunk.data), memoryview(chunk.data)))
    assert [record.timestamp for record in again] == [record.timestamp for record in read]


def test_a_record_of_negative_length_is_corrupt() -> None:
    batch = plain_batch(0, 2)
    batch[61] |= 1
    view = memoryview(mended(batch))
    with pytest.raises(CorruptBatch, match="cannot be read"):
        reencode([(parse_header(view), view)], position=0, max_bytes=1 << 20)


def test_a_damaged_ledger_batch_is_an_error() -> None:
    batch = encode_batch(new_records(0, 2))
    batch[-1] ^= 1
    with pytest.raises(CorruptBatch, match="wrong checksum"):
        list(iter_ledger(memoryview(batch), 0))


@pytest.mark.usefixtures("own_worker")
def test_a_ledger_that_comes_damaged_does_not_end_a_lane() -> None:
    spoilt = 0

    async def spoil(call: Call) -> Any:
        nonlocal spoilt
        response = await call.proceed()
        answer = response.responses[0].partitions[0]
        if answer.records and spoilt < 3:
            spoilt += 1
            answer.records = bytes(70)
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(FETCH, spoil)
            world.target.append(LEDGER, 0, new_records(0, 1))
            world.source.append("t", 0, recent(0, 3))
            async with world.lane(ledger_end=0) as lane:
                await lane.until_copied(3)
                await lane.until(lambda: spoilt == 3)
            assert lane.rows[0].error_code == ""

    run(test())


@pytest.mark.parametrize("codec", [Codec.GZIP, Codec.LZ4, Codec.ZSTD])
def test_what_cannot_be_decompressed_takes_no_room(codec: Codec) -> None:
    data = bytearray(compress(codec, b"some words " * 200))
    data[len(data) // 2 :] = b"\xff" * 40
    start = time.process_time()
    for _ in range(20):
        with pytest.raises(CorruptBatch):
            decompress(codec, data)
    assert time.process_time() - start < 0.5  # one try with the largest buffer takes a tenth of a second


def metadata(body: bytes, version: int = 12) -> Any:
    request = messages.MetadataRequest(topics=None)
    messages.encode_request(request, version=version, correlation_id=1, client_id="c")
    return messages.decode_response(request, memoryview(bytes((0, 0, 0, 1)) + body), where="here")


@pytest.mark.parametrize(
    ("body", "why"),
    [
        # Tags, throttle, brokers, cluster id, controller, topics, tags.
        (bytes.fromhex("00 00000000 00 00 00000000 01 00"), "brokers is null"),
        (bytes.fromhex("00 00000000 01 00 00000000 00 00"), "topics is null"),
        (bytes.fromhex("00 00000000 02 00000001 00 00000001 00 00 00 00000000 01 00"), "host is null"),
        (bytes.fromhex("00 00000000") + b"\xff" * 200_000 + b"\x01", "a number without end"),
        (bytes.fromhex("00 00000000") + b"\xff" * 40 + b"\x01" + bytes(20), ""),
        (bytes.fromhex("00 00000000 01") + b"\xff" * 20 + b"\x01" + bytes(20), ""),
    ],
    ids=["brokers", "topics", "host", "endless", "huge count", "huge length"],
)
def test_what_kafka_python_lets_pass_is_a_protocol_error(body: bytes, why: str) -> None:
    start = time.process_time()
    with pytest.raises(ProtocolError, match=why or None):
        metadata(body)
    assert time.process_time() - start < 1.0


def test_metadata_with_nulls_where_they_may_be_is_read() -> None:
    body = bytes.fromhex("00 00000000 02 00000001 02 68 00000001 00 00 00 00000000 01 00")
    (broker,) = metadata(body).brokers
    assert (broker.host, broker.rack) == ("h", None)


def test_an_answer_without_records_is_none_of_these() -> None:
    new_copy().take(FetchedPartition(0, 0, 5, 5, 0, (), -1, memoryview(b"")))
