"""The log of one partition, with what a broker remembers of its producers.

The sequence check is that of Kafka 4.3 (design: exactly-once without transactions): a batch again,
one of the last five, is a success at its old offset; a hole or another cut is 45, a lower epoch 47,
a higher epoch begins with 0, and an unknown producer may begin anywhere.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID, uuid4

from crc32c import crc32c

from heliograph.errors import CorruptBatch
from heliograph.kafka.batch import (
    CONTROL,
    TRANSACTIONAL,
    BatchHeader,
    NewRecord,
    Record,
    check_crc,
    encode_batch,
    iter_records,
    parse_header,
)
from heliograph.ledger.model import SEQUENCE_MODULUS

CORRUPT_MESSAGE, MESSAGE_TOO_LARGE, OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH = 2, 10, 45, 47


class Appended(NamedTuple):
    error_code: int
    base_offset: int = -1
    log_append_time_ms: int = -1


class AbortedRange(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int


@dataclass
class _Producer:
    epoch: int
    recent: deque[tuple[int, int, int, int]] = field(default_factory=lambda: deque(maxlen=5))
    """First and last sequence, base offset and newest time of the last five batches."""


class FakePartition:
    """Batches at their offsets; `leader` and `replicas` say which broker answers for it."""

    def __init__(self, leader: int, replicas: Sequence[int]) -> None:
        self.leader = leader
        self.leader_epoch = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """Every leader epoch and the offset where it began, as a broker's checkpoint file has them."""
        self.replicas = tuple(replicas)
        self.preferred_replica = -1
        self.max_message_bytes = 1_048_588
        self.start = 0
        self.end = 0
        self.unreplicated = 0
        """So many records at the end of the log are with the leader only: consumers do not see them."""
        self.batches: list[bytearray] = []
        self.producers: dict[int, _Producer] = {}
        self.aborted: list[AbortedRange] = []
        self._open: dict[int, int] = {}

    @property
    def high_watermark(self) -> int:
        return self.end - self.unreplicated

    @property
    def last_stable_offset(self) -> int:
        return min((self.high_watermark, *self._open.values()))

    def produce(self, batch: bytes) -> Appended:
        """What a broker does with a client's batch."""
        try:
            check_crc(memoryview(batch))
        except CorruptBatch:
            return Appended(CORRUPT_MESSAGE)
        header = parse_header(batch)
        if len(batch) > self.max_message_bytes:
            return Appended(MESSAGE_TOO_LARGE)
        if header.producer_id < 0:
            return Appended(0, self.store(batch))
        known = self._check_sequence(header)
        if known is not None:
            return known
        base = self.store(batch)
        last = (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
        self.producers[header.producer_id].recent.append((header.base_sequence, last, base, header.max_timestamp))
        return Appended(0, base)

    def _check_sequence(self, header: BatchHeader) -> Appended | None:
        """The answer if the batch is not to be appended."""
        producer = self.producers.get(header.producer_id)
        first = header.base_sequence
        last = (first + header.last_offset_delta) % SEQUENCE_MODULUS
        if producer is None:
            self.producers[header.producer_id] = _Producer(header.producer_epoch)
            return None
        if header.producer_epoch < producer.epoch:
            return Appended(INVALID_PRODUCER_EPOCH)
        if header.producer_epoch > producer.epoch:
            if first:
                return Appended(OUT_OF_ORDER_SEQUENCE)
            self.producers[header.producer_id] = _Producer(header.producer_epoch)
            return None
        for known_first, known_last, base, newest_ms in producer.recent:
            if (known_first, known_last) == (first, last):
                return Appended(0, base, newest_ms)
        if producer.recent and first != (producer.recent[-1][1] + 1) % SEQUENCE_MODULUS:
            return Appended(OUT_OF_ORDER_SEQUENCE)
        return None

    def store(self, batch: bytes | bytearray, *, gap: int = 0) -> int:
        """Put a batch at the end of the log, whatever it is."""
        stored = bytearray(batch)
        base = self.end + gap
        struct.pack_into(">q", stored, 0, base)
        struct.pack_into(">i", stored, 12, self.leader_epoch)
        self.batches.append(stored)
        header = parse_header(stored)
        self.end = header.next_offset
        if header.is_transactional and not header.is_control:
            self._open.setdefault(header.producer_id, base)
        return base

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """Write the marker that ends a producer's transaction."""
        key = struct.pack(">hh", 0, int(commit))
        marker = as_transactional(encode_batch([NewRecord(0, key, bytes(6))]), producer_id, control=True)
        first = self._open.pop(producer_id)
        base = self.store(marker)
        if not commit:
            self.aborted.append(AbortedRange(producer_id, first, base))

    def forget(self) -> None:
        """As after a restart with old records: no producer is known any more."""
        self.producers.clear()

    def truncate(self, end: int) -> None:
        """Lose whole batches at the end."""
        while self.batches and parse_header(self.batches[-1]).next_offset > end:
            self.batches.pop()
        self.end = end
        self.epochs = [(epoch, start) for epoch, start in self.epochs if start < end]
        for producer_id in list(self.producers):
            self._remember_by_log(producer_id)

    def _remember_by_log(self, producer_id: int) -> None:
        """Know of a producer what the log tells, as a broker does after it lost records."""
        headers = [header for header in self.headers() if header.producer_id == producer_id]
        del self.producers[producer_id]
        for header in headers:
            if (known := self.producers.get(producer_id)) is None or known.epoch != header.producer_epoch:
                known = self.producers[producer_id] = _Producer(header.producer_epoch)
            last = (header.base_sequence + header.last_offset_delta) % SEQUENCE_MODULUS
            known.recent.append((header.base_sequence, last, header.base_offset, header.max_timestamp))

    def begin_epoch(self, epoch: int | None = None) -> None:
        """A leader is elected; the next batches are its."""
        self.leader_epoch = self.leader_epoch + 1 if epoch is None else epoch
        self.epochs = [(known, start) for known, start in self.epochs if start < self.end]
        self.epochs.append((self.leader_epoch, self.end))

    def epoch_end(self, epoch: int) -> tuple[int, int] | None:
        """The last epoch up to one and where it ends, as OffsetForLeaderEpoch has it; None if it is not known."""
        if epoch == self.epochs[-1][0]:
            return epoch, self.end
        later = [start for known, start in self.epochs if known > epoch]
        if not later:
            return None
        return max((known for known, _ in self.epochs if known <= epoch), default=epoch), later[0]

    def epoch_at(self, offset: int) -> int:
        """The leader epoch of an offset; -1 if none is known."""
        return next((epoch for epoch, start in reversed(self.epochs) if start <= offset), -1)

    def expire(self, start: int) -> None:
        """Lose batches at the start, by retention."""
        self.batches = [batch for batch in self.batches if parse_header(batch).next_offset > start]
        self.start = start
        kept = [(epoch, begin) for epoch, begin in self.epochs if begin > start]
        self.epochs = [(max(epoch for epoch, begin in self.epochs if begin <= start), start), *kept]

    def read(self, offset: int, *, limit: int, end: int) -> bytes:
        """Batches from the one with `offset` on; the first one whole, the last one cut at the limit."""
        found = [
            batch
            for batch in self.batches
            if (header := parse_header(batch)).next_offset > offset and header.next_offset <= end
        ]
        return b"".join(found)[: max(limit, len(found[0]))] if found else b""

    def headers(self) -> list[BatchHeader]:
        return [parse_header(batch) for batch in self.batches]

    def records(self) -> Iterator[Record]:
        """All data records."""
        for batch in self.batches:
            header = parse_header(batch)
            if not header.is_control:
                yield from iter_records(header, memoryview(batch))

    def values(self) -> list[bytes | None]:
        return [record.value for record in self.records()]


class FakeTopic:
    def __init__(self, name: str, partitions: Sequence[FakePartition]) -> None:
        self.name = name
        self.topic_id: UUID = uuid4()
        self.partitions = list(partitions)
        self.configs: dict[str, str] = {}


def as_transactional(batch: bytearray, producer_id: int, *, control: bool = False) -> bytearray:
    """Mark a batch as part of a producer's transaction, or as the marker that ends it."""
    attributes = parse_header(batch).attributes | TRANSACTIONAL | (CONTROL if control else 0)
    struct.pack_into(">h", batch, 21, attributes)
    struct.pack_into(">qhi", batch, 43, producer_id, 0, 0)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return batch
