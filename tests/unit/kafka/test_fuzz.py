"""Damaged answers of brokers, through the codecs, the copy of a partition and a whole lane.

Only a `HeliographError` may come of one, soon and in little memory, and no record that its checksum does not vouch
for reaches the target. A failure names kind, seed and number of its case; `outcome_of` with these has it again.
"""

from __future__ import annotations

import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager
from functools import cache, lru_cache
from types import FrameType, SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from heliograph.errors import CorruptBatch, HeliographError
from heliograph.kafka import messages
from heliograph.kafka.admin.topics import _list_at
from heliograph.kafka.batch import HEADER_SIZE, Record, check_crc, iter_records, parse_header
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.codec import k00_produce, k01_fetch
from heliograph.kafka.codec.k01_fetch import AbortedTransaction, FetchedPartition
from heliograph.kafka.connection import Connection
from heliograph.kafka.isolation import visible_batches
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.lane.partition_copy import PartitionCopy
from heliograph.ledger.model import SEQUENCE_MODULUS
from tests.fake_cluster import METADATA, PRODUCE, FakePartition
from tests.unit.helpers.damage import NOW_MS, Answer, answers, fill, spoil_answer, spoil_batches
from tests.unit.helpers.logs import ASSIGNMENT, ENTRY, PRODUCER_ID

LONGEST_S = 2.0
"""Of processor time, for one case."""
MOST_BYTES = 1024 * 1024 * 1024
"""Of memory, on top of what the tests have when they begin: four receive buffers of the largest size."""
FIXED_SEED = 11


# -- answers through the codecs ----------------------------------------------------------------


@cache
def right_answers() -> tuple[Answer, ...]:
    return tuple(answers())


def codec_case(chance: random.Random) -> None:
    """One damaged answer: decoded, and every batch in it looked at as the lane and the driver do."""
    answer = chance.choice(right_answers())
    body = memoryview(spoil_answer(answer, chance))
    if answer.request is not None:
        _understood(answer.request, body)
    elif answer.api_key == PRODUCE:
        k00_produce.decode_produce_response(body, answer.version)
    else:
        for topic in k01_fetch.decode_fetch_response(body, answer.version).topics:
            for part in topic.partitions:
                _look_at(part, read_committed=chance.random() < 0.5)


def _look_at(part: FetchedPartition, *, read_committed: bool) -> None:
    for header, view in visible_batches(part, 0, read_committed=read_committed, where="here"):
        if header.record_count:
            check_crc(view)
            for _ in iter_records(header, view):
                pass


class _Told(Cluster):
    """A cluster that gives one answer to everything."""

    def __init__(self, body: memoryview) -> None:
        super().__init__("a", (BrokerAddress("h", 1),), client_id="c")
        self._body = body

    async def call(
        self, request: messages.ApiMessage, *, node_id: int | None = None, timeout_s: float | None = None
    ) -> Any:
        return messages.decode_response(self._request, self._body, where="here")

    async def call_on(
        self, connection: Connection, request: messages.ApiMessage, *, timeout_s: float | None = None
    ) -> Any:
        return await self.call(request)

    async def _first_of(self, candidates: Iterable[BrokerAddress]) -> Connection:
        return cast(Connection, SimpleNamespace(address=next(iter(candidates))))

    def with_request(self, request: messages.ApiMessage) -> _Told:
        self._request = request
        return self


def _understood(request: messages.ApiMessage, body: memoryview) -> None:
    """Decoded, and used as the product does."""
    cluster = _Told(body).with_request(request)
    if request.API_KEY == METADATA:
        finish(cluster.refresh(None))
        for topic in cluster.catalogue.topics.values():
            for index in range(len(topic.partitions)):
                cluster.catalogue.leader_of(topic.name, index)
    elif request.API_KEY == messages.ListOffsetsRequest.API_KEY:
        finish(_list_at(cluster, 1, [TopicPartition("t", index) for index in range(3)], -1, asker=-1, level=0))
    else:
        response = messages.decode_response(request, body, where="here")
        {key.api_key: (key.min_version, key.max_version) for key in response.api_keys or ()}


def finish(work: Coroutine[Any, Any, Any]) -> Any:
    """The result of a coroutine that waits for nothing."""
    try:
        work.send(None)
    except StopIteration as done:
        return done.value
    raise AssertionError("it waits")


# -- batches through the copy of a partition ------------------------------------------------------


@cache
def source_log() -> FakePartition:
    log = FakePartition(1, [1])
    fill(log)
    return log


def vouched(data: memoryview) -> tuple[dict[int, Record | None], bool]:
    """By source offset, the records of the batches whose checksum is right; None where they cannot be read.

    And whether all checksums are. Walks on its own, knowing no more than where the length stands.
    """
    found: dict[int, Record | None] = {}
    whole = True
    pos = 0
    while len(data) - pos >= HEADER_SIZE:
        size = int.from_bytes(data[pos + 8 : pos + 12], "big", signed=True) + 12
        batch = data[pos : pos + size]
        if size < HEADER_SIZE or len(batch) < size:
            break
        pos += size
        records = _vouched_in(bytes(batch))
        whole &= records is not None
        for offset, record in (records or {}).items():
            found[offset] = record if found.get(offset, record) == record else None
    return found, whole


@lru_cache(maxsize=64)  # most are not damaged
def _vouched_in(batch: bytes) -> dict[int, Record | None] | None:
    view = memoryview(batch)
    header = parse_header(view)
    try:
        check_crc(view)
    except CorruptBatch:
        return None
    if header.is_control:
        return {}
    unread: dict[int, Record | None] = dict.fromkeys(
        range(header.base_offset, header.base_offset + min(header.last_offset_delta, 10_000) + 1)
    )
    try:
        read: dict[int, Record | None] = {record.offset: record for record in iter_records(header, view)}
    except CorruptBatch:
        return unread
    offsets = list(read)
    odd = len(read) != header.record_count or offsets != sorted(offsets) or not read.keys() <= unread.keys()
    return unread if odd or header.is_contiguous != (len(read) == len(unread)) else read


def copy_case(chance: random.Random) -> None:
    """A damaged stretch of a log, queued, put in pieces and acknowledged; what is sent is judged as a broker would."""
    log = source_log()
    first = int(chance.random() * len(log.batches))
    chosen = log.batches[first : first + chance.choice((1, 2, 3, 6, 12))]
    position = parse_header(chosen[0]).base_offset + chance.choice((0, 0, 0, 1))
    data = memoryview(spoil_batches(chosen, chance))
    read_committed = chance.random() < 0.3
    aborted = tuple(AbortedTransaction(item.producer_id, item.first_offset) for item in log.aborted)
    allowed, whole = vouched(data)
    entry = ENTRY.moved(source_offset=position, run_source=position)
    assignment = type(ASSIGNMENT)(
        flow="a->b", topic="t", partition=0, target_topic="a.t", entry=entry,
        max_message_bytes=chance.choice((1 << 20, 1 << 20, 300, 70)),
    )  # fmt: skip
    codec = chance.choice((None, None, None, 0, 1, 4))
    copy = PartitionCopy(assignment, producer_id=PRODUCER_ID, read_committed=read_committed, codec=codec)
    copy.settled(entry)
    small_bytes = chance.choice((0, 1 << 17))
    last, sent = position - 1, 0
    copy.take(FetchedPartition(0, 0, log.end, log.end, 0, aborted if read_committed else (), -1, data))
    while (piece := copy.next_piece(now_ms=NOW_MS, small_bytes=small_bytes)) is not None:
        check_crc(piece.data)
        header = parse_header(piece.data)
        assert (header.producer_id, header.base_offset, header.size) == (PRODUCER_ID, 0, len(piece.data))
        assert header.base_sequence == piece.base_n % SEQUENCE_MODULUS
        assert sum(length for _, length in piece.runs) == piece.records == header.record_count
        last = _judge(piece.data, piece.runs, allowed, last)
        sent += piece.records
        assert last < piece.source_end
        copy.acknowledged(piece.target_offset)
    copy.pages()
    copy.page.pack()
    assert whole, "a batch with a wrong checksum was passed over"
    if not read_committed and None not in allowed.values():
        assert sent == sum(offset >= position for offset in allowed), "a record was passed over"


def _judge(data: memoryview, runs: tuple[tuple[int, int], ...], allowed: dict[int, Record | None], last: int) -> int:
    """Each record is the source's own, and behind the one before; the offset of the last one."""
    originals: list[Record | None] = []
    for start, length in runs:
        assert start > last
        last = start + length - 1
        if length > 10_000:
            return last  # a header that lies, under a right checksum: the broker counts
        originals += (allowed[offset] for offset in range(start, start + length))
    if None not in originals:  # else the source itself has what cannot be read, and a broker refuses it
        sent = list(iter_records(parse_header(data), data))
        assert [record[1:] for record in sent] == [original[1:] for original in originals if original]
        assert [record.offset for record in sent] == list(range(len(originals)))
    return last


# -- running them --------------------------------------------------------------------------------

CASES: dict[str, Callable[[random.Random], None]] = {"codec": codec_case, "copy": copy_case}


class TookTooLong(BaseException):
    """Not an Exception, so that nothing on the way takes it for one of its own."""


@contextmanager
def limits() -> Iterator[None]:
    """Memory ends soon, and a case that takes too much of the processor is interrupted."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise TookTooLong

    before = signal.signal(signal.SIGVTALRM, give_up)
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (psutil.Process().memory_info().vms + MOST_BYTES, hard))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def outcome_of(kind: str, seed: int, number: int, chance: random.Random) -> str:
    """What became of a case: the code of its error, or that it was harmless; anything else is a failure."""
    chance.seed(seed << 32 | number)
    signal.setitimer(signal.ITIMER_VIRTUAL, LONGEST_S)
    try:
        CASES[kind](chance)
    except HeliographError as error:
        return error.code
    except (Exception, TookTooLong) as error:
        raise AssertionError(f"{type(error).__name__} in {kind} case {number} of seed {seed}: {error}") from error
    return "harmless"


def fuzz(kind: str, seed: int, number: int) -> Counter[str]:
    right_answers()
    chance = random.Random()
    with limits():
        return Counter(outcome_of(kind, seed, index, chance) for index in range(number))


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("is_drawn", [False, True], ids=["fixed", "drawn"])
def test_damaged_answers_are_harmless_or_typed_errors(kind: str, is_drawn: bool, run_seed: int) -> None:
    seed = run_seed if is_drawn else FIXED_SEED
    outcomes = fuzz(kind, seed, 2_000)
    assert outcomes["harmless"] > 100, (seed, outcomes)  # else the damage is too coarse to get past the first layer
    assert outcomes["CORRUPT_BATCH"] > 100, (seed, outcomes)
    assert outcomes["PROTOCOL"] > 100 or kind == "copy", (seed, outcomes)


SHARES = {"codec": 790_000, "copy": 190_000}
"""With the 20,000 of `test_fuzz_lane.py` a million."""


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", CASES)
def test_a_million_damaged_answers(kind: str, run_seed: int, record_property: Callable[[str, object], None]) -> None:
    record_property("cases_seed", run_seed)
    start = time.process_time()
    outcomes = fuzz(kind, run_seed, SHARES[kind])
    record_property("cases", outcomes.total())
    record_property("outcomes", dict(outcomes.most_common()))
    record_property("processor_seconds", round(time.process_time() - start, 1))
