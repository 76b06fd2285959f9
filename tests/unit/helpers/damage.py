"""Answers of brokers, and what can happen to their bytes. All of it comes from a seed: a case can be had again.

`answers` are made by the fake cluster and, where that leaves fields out, by kafka-python. `spoil` damages any bytes,
`spoil_batches` record batches; the latter makes checksums right again more often than not, so that what lies behind
them is reached.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections.abc import Callable, Sequence
from typing import NamedTuple

from crc32c import crc32c

from heliograph.errors import CorruptBatch
from heliograph.kafka import messages
from heliograph.kafka.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, NewRecord, encode_batch, iter_batches
from heliograph.kafka.codec import k00_produce, k01_fetch
from heliograph.kafka.codec.primitives import Buffer
from heliograph.kafka.compression import compress, decompress
from tests.fake_cluster import FakeCluster, FakePartition
from tests.fake_cluster.partition import as_transactional
from tests.unit.kafka.codec import test_fetch, test_produce

NOW_MS = 1_790_000_000_000
EDGES = [0, 1, 2, 6, 7, 0x3F, 0x40, 0x7F, 0x80, 0xFE, 0xFF]
WIDE_EDGES = [
    0,
    1,
    -1,
    -2,
    2,
    7,
    61,
    49,
    255,
    1 << 14,
    1 << 20,
    (1 << 31) - 1,
    1 << 31,
    1 << 40,
    (1 << 63) - 1,
    1 << 63,
]
FIELDS = [
    (0, 8),
    (8, 4),
    (12, 4),
    (16, 1),
    (17, 4),
    (21, 2),
    (23, 4),
    (27, 8),
    (35, 8),
    (43, 8),
    (51, 2),
    (53, 4),
    (57, 4),
]
"""Position and width of the fields of a batch header."""
_CRC_START = 21


class Answer(NamedTuple):
    """A right answer, from its correlation id on."""

    api_key: int
    version: int
    body: bytes
    batches: tuple[tuple[int, int], ...]
    """Where its batches begin and end."""
    request: messages.ApiMessage | None
    """For what kafka-python decodes."""


# -- right answers ---------------------------------------------------------------------------


def records(start: int, count: int, *, size: int = 5, timestamp: int = NOW_MS) -> list[NewRecord]:
    """Keys, values and headers of all kinds, each with its number."""
    return [
        NewRecord(
            timestamp + number % 7,
            None if number % 5 == 4 else b"key %d" % number,
            None if number % 11 == 10 else b"%d " % number + b"v" * size,
            (("h", b"x"), ("h", None), ("ü", b"")) if number % 3 == 2 else (),
        )
        for number in range(start, start + count)
    ]


def with_attributes(batch: bytearray, bits: int) -> bytearray:
    (attributes,) = struct.unpack_from(">h", batch, _CRC_START)
    struct.pack_into(">h", batch, _CRC_START, attributes | bits)
    return mended(batch)


def fill(log: FakePartition) -> None:
    """Every kind of batch: one-record ones, all codecs, transactions and their markers, gaps, LogAppendTime."""
    number = 0

    def add(
        count: int, *, codec: int = 0, gap: int = 0, size: int = 5, attributes: int = 0, producer: int = -1
    ) -> None:
        nonlocal number
        batch = with_attributes(encode_batch(records(number, count, size=size), codec=codec), attributes)
        log.store(as_transactional(batch, producer) if producer >= 0 else batch, gap=gap)
        number += count

    for size in (60, 70, 80):
        add(1, size=size)
    for codec in range(5):
        add(3, codec=codec, size=30)
    add(4, producer=9)
    add(3)
    log.end_transaction(9, commit=False)
    add(2, gap=5)
    add(4, producer=8, codec=1)
    log.end_transaction(8, commit=True)
    add(3, attributes=LOG_APPEND_TIME)
    for _ in range(3):
        add(1)


def answers() -> list[Answer]:
    """Right answers to what a lane and a driver ask, in every version of the hand-written codecs."""
    cluster = FakeCluster("a", brokers=3, topics={"t": 3, "u": 1})
    fill(cluster.partition("t", 0))
    cluster.append("t", 1, records(0, 3), codec=4)
    topic_id = cluster.topics["t"].topic_id
    found = []

    def ask(frame: bytes, *, node: int = 1) -> bytes:
        return asyncio.run(cluster.answer(node, frame[4:]))[4:]

    for version in k01_fetch.VERSIONS:
        key = topic_id if k01_fetch.uses_topic_ids(version) else "t"
        for isolation in (0, 1):
            for offset in (0, 33):
                wanted = [k01_fetch.FetchPartition(index, offset, 1 << 20) for index in (0, 1, 2)]
                frame = k01_fetch.encode_fetch_request(
                    version, [(key, wanted)], correlation_id=7, client_id="c", max_wait_ms=0, min_bytes=1,
                    max_bytes=1 << 20, isolation_level=isolation,
                )  # fmt: skip
                found.append(_fetched(version, ask(frame)))
        found.append(_fetched(version, test_fetch.kafka_python_response(version)))
    for version in k00_produce.VERSIONS:
        key = topic_id if k00_produce.uses_topic_ids(version) else "t"
        batch = encode_batch(records(0, 2))
        parts = [(key, [k00_produce.ProducePartition(index, bytes(batch)) for index in range(3)])]
        buffers = k00_produce.encode_produce_request(version, parts, correlation_id=7, client_id="c", timeout_ms=1)
        found.append(Answer(0, version, ask(b"".join(map(bytes, buffers))), (), None))
        found.append(Answer(0, version, test_produce.kafka_python_response(version), (), None))
    return found + _others(ask)


def _fetched(version: int, body: bytes) -> Answer:
    places = []
    for topic in k01_fetch.decode_fetch_response(memoryview(body), version).topics:
        for part in topic.partitions:
            at = body.find(bytes(part.records)) if len(part.records) > HEADER_SIZE else -1
            try:
                for _, view in iter_batches(part.records) if at >= 0 else ():
                    places.append((at, at + len(view)))
                    at += len(view)
            except CorruptBatch:  # some records of the codec's tests are none
                continue
    return Answer(1, version, body, tuple(places), None)


def _others(ask: Callable[[bytes], bytes]) -> list[Answer]:
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    part = topic.ListOffsetsPartition
    wanted = [part(partition_index=index, current_leader_epoch=-1, timestamp=-1) for index in (0, 1, 2)]
    named = messages.MetadataRequest.MetadataRequestTopic
    requests: list[tuple[Callable[[], messages.ApiMessage], tuple[int, ...]]] = [
        (lambda: messages.MetadataRequest(topics=None, allow_auto_topic_creation=False), (12, 9, 7, 1)),
        (
            lambda: messages.MetadataRequest(
                topics=[named(name=name, topic_id=None) for name in ("t", "nothing")], allow_auto_topic_creation=False
            ),
            (12, 8),
        ),
        (
            lambda: messages.ListOffsetsRequest(
                replica_id=-1, isolation_level=0, topics=[topic(name="t", partitions=wanted)]
            ),
            (7, 5, 1),
        ),
        (lambda: messages.ApiVersionsRequest(client_software_name="h", client_software_version="1"), (3,)),
    ]
    found = []
    for make, versions in requests:
        for version in versions:
            request = make()
            frame = messages.encode_request(request, version=version, correlation_id=7, client_id="c")
            found.append(Answer(request.API_KEY, version, ask(frame), (), request))
    return found


# -- damage ----------------------------------------------------------------------------------


def _place(data: bytearray, chance: random.Random) -> int:
    """Somewhere; the head of an answer, where its structure is, more often."""
    return int(chance.random() * (len(data) if chance.random() < 0.7 else min(len(data), 80)))


def _flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice((1, 1, 1, 2, 6))):
        data[_place(data, chance)] ^= 1 << int(chance.random() * 8)


def _edge(data: bytearray, chance: random.Random) -> None:
    data[_place(data, chance)] = chance.choice(EDGES)


def _number(data: bytearray, chance: random.Random) -> None:
    """A length, a count, an offset: huge, negative or nothing."""
    width = chance.choice((2, 4, 4, 8))
    at = _place(data, chance)
    value = (chance.choice(WIDE_EDGES) & (1 << 8 * width) - 1).to_bytes(width, "big")
    data[at : at + width] = value[: len(data) - at]


def _cut(data: bytearray, chance: random.Random) -> None:
    del data[_place(data, chance) :]


def _extend(data: bytearray, chance: random.Random) -> None:
    data += chance.choice((b"\x00", b"\xff", bytes(16), data[:30], chance.randbytes(5)))


def _drop(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    del data[at : at + chance.choice((1, 2, 4, 8, 61))]


def _repeat(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    piece = data[at : at + chance.choice((1, 4, 16, 61, 200))]
    data[at:at] = piece * chance.choice((1, 1, 2, 20))


def _swap(data: bytearray, chance: random.Random) -> None:
    size = chance.choice((1, 4, 16, 61))
    one, other = _place(data, chance), _place(data, chance)
    first, second = data[one : one + size], data[other : other + size]
    if len(first) == len(second) and abs(one - other) >= size:
        data[one : one + size], data[other : other + size] = second, first


def _varint(data: bytearray, chance: random.Random) -> None:
    """One that is longer than it may be, in place of what stood there or before it."""
    at = _place(data, chance)
    size = chance.choice((2, 4, 5, 6, 9, 10, 11, 40, 40, 5000))
    number = bytes((chance.choice((0x80, 0xFF)),)) * (size - 1) + bytes((chance.choice((0, 1, 0x0F, 0x7F)),))
    data[at : at + chance.choice((0, 1, size))] = number


def _noise(data: bytearray, chance: random.Random) -> None:
    at = _place(data, chance)
    size = chance.choice((2, 8, 64))
    data[at : at + size] = chance.randbytes(min(size, len(data) - at))


_KINDS = (_flip, _flip, _edge, _edge, _number, _number, _number, _cut, _extend, _drop, _repeat, _swap, _varint, _noise)


def spoil(body: bytes | bytearray, chance: random.Random) -> bytearray:
    """Any bytes, damaged in one place or several."""
    data = bytearray(body)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        chance.choice(_KINDS)(data or bytearray(1), chance)
    return data


def mended(batch: bytearray) -> bytearray:
    """With length and checksum as they should be."""
    if len(batch) >= HEADER_SIZE:
        struct.pack_into(">i", batch, 8, len(batch) - 12)
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[_CRC_START:]))
    return batch


def _spoil_fields(batch: bytearray, chance: random.Random) -> bytearray:
    for _ in range(chance.choice((1, 1, 2))):
        at, width = chance.choice(FIELDS)
        value = chance.choice(WIDE_EDGES) if chance.random() < 0.7 else chance.getrandbits(8 * width)
        if width <= 2 and chance.random() < 0.5:
            value = batch[at + width - 1] ^ 1 << chance.randrange(7)  # attributes: one bit
        batch[at : at + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "big")
    if chance.random() < 0.6:  # what lies behind the checksum is to be reached
        struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[_CRC_START:]))
    return batch


def _spoil_records(batch: bytearray, chance: random.Random) -> bytearray:
    """Damage behind the header, in what is compressed or, with the right codec around it, in the records."""
    codec = batch[22] & CODEC_MASK
    body: Buffer = batch[HEADER_SIZE:]
    if codec and chance.random() < 0.5:
        with contextlib.suppress(CorruptBatch):  # it may be damaged before
            body = compress(codec, spoil(bytes(decompress(codec, body)), chance))
            return mended(batch[:HEADER_SIZE] + body)
    return mended(batch[:HEADER_SIZE] + spoil(bytes(body), chance))


def spoil_unmended(batch: bytearray, chance: random.Random) -> bytearray:
    """Bytes that changed on the way: the checksum tells."""
    at = _CRC_START + int(chance.random() * (len(batch) - _CRC_START))
    batch[at] ^= 1 << chance.randrange(8)
    return batch


def spoil_batch(batch: bytes | bytearray, chance: random.Random) -> bytearray:
    return chance.choice((_spoil_fields, _spoil_fields, _spoil_records, _spoil_records, spoil_unmended))(
        bytearray(batch), chance
    )


def spoil_batches(batches: Sequence[bytes | bytearray], chance: random.Random) -> bytearray:
    """A log's batches one after the other: some of them damaged, or put elsewhere, or the whole of it."""
    spoilt = [bytearray(batch) for batch in batches]
    for _ in range(chance.choice((1, 1, 2))):
        index = int(chance.random() * len(spoilt))
        kind = chance.random()
        if kind < 0.8:
            spoilt[index] = spoil_batch(spoilt[index], chance) if len(spoilt[index]) > HEADER_SIZE else bytearray(70)
        elif kind < 0.9:
            other = int(chance.random() * len(spoilt))
            spoilt[index], spoilt[other] = spoilt[other], spoilt[index]
        else:
            spoilt.insert(index, bytearray(spoilt[index]))
    joined = bytearray().join(spoilt)
    return spoil(joined, chance) if chance.random() < 0.15 else joined


def spoil_answer(answer: Answer, chance: random.Random) -> bytearray:
    """An answer damaged anywhere, or in one of its batches and there only."""
    if answer.batches and chance.random() < 0.5:
        body = bytearray(answer.body)
        start, end = chance.choice(answer.batches)
        body[start:end] = spoil_batch(body[start:end], chance)[: end - start].ljust(end - start, b"\0")
        return body
    return spoil(answer.body, chance)
