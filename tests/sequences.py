"""What a broker does with batches whose sequences fit or do not fit: the table that exactly-once rests on.

One table for real brokers (`tests/cluster/test_sequences.py`) and for the fake one (`tests/unit/test_fake_cluster.py`),
so that the fake tells the truth. Each row has a partition of its own, which begins with the batches of `BEFORE`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.ledger.model import SEQUENCE_MODULUS

OUT_OF_ORDER_SEQUENCE, INVALID_PRODUCER_EPOCH = 45, 47
EPOCH = 3
LAST_SEQUENCE = SEQUENCE_MODULUS - 1


class Sent(NamedTuple):
    """One batch, and the broker's answer to it."""

    sequence: int
    records: int = 2
    code: int = 0
    offset: int = -1
    known: int | None = None
    """It was there before: the time of the last record of the batch that the broker found, counted in records."""
    epoch: int = EPOCH
    first: int | None = None
    """The number of its first record; what the sequence is, unless said otherwise."""

    @property
    def numbers(self) -> range:
        """Of its records."""
        first = self.sequence if self.first is None else self.first
        return range(first, first + self.records)

    @property
    def is_appended(self) -> bool:
        return not self.code and self.known is None

    def batch(self, producer_id: int, start_ms: int) -> bytearray:
        """Its records carry their number as value, and in their time, a millisecond each from `start_ms` on."""
        return encode_batch(
            [NewRecord(time_of(number, start_ms), b"key", b"%d" % number) for number in self.numbers],
            producer_id=producer_id,
            producer_epoch=self.epoch,
            base_sequence=self.sequence,
        )

    def answer(self, start_ms: int) -> Answer:
        return Answer(self.code, self.offset, -1 if self.known is None else time_of(self.known, start_ms))


class Answer(NamedTuple):
    error_code: int
    base_offset: int
    log_append_time_ms: int
    """-1 unless the batch was there before."""


BEFORE = tuple(Sent(sequence, offset=sequence) for sequence in range(0, 14, 2))
"""Seven batches of two records."""


class Row(NamedTuple):
    name: str
    sent: tuple[Sent, ...]
    before: tuple[Sent, ...] = BEFORE

    @property
    def log(self) -> list[Sent]:
        """The batches that stand in the log in the end."""
        return [sent for sent in (*self.before, *self.sent) if sent.is_appended]


def time_of(number: int, start_ms: int) -> int:
    return start_ms + number % 1000


ROWS = (
    Row("the next one", (Sent(14, offset=14),)),
    Row("the last one again", (Sent(12, offset=12, known=13),)),
    Row("the fifth last again", (Sent(4, offset=4, known=5),)),
    Row("the last one again, with other content", (Sent(12, first=70, offset=12, known=13),)),
    Row(
        "the last two again, then the next one",
        (
            Sent(10, offset=10, known=11),
            Sent(12, offset=12, known=13),
            Sent(14, offset=14),
        ),
    ),
    Row("older than the last five", (Sent(2, code=OUT_OF_ORDER_SEQUENCE),)),
    Row("a hole", (Sent(16, code=OUT_OF_ORDER_SEQUENCE),)),
    Row("a hole that is filled", (Sent(16, code=OUT_OF_ORDER_SEQUENCE), Sent(14, offset=14), Sent(16, offset=16))),
    Row("a part of the last one", (Sent(12, 1, code=OUT_OF_ORDER_SEQUENCE),)),
    Row("the end of the last one and more", (Sent(13, 2, code=OUT_OF_ORDER_SEQUENCE),)),
    Row("the last two as one", (Sent(10, 4, code=OUT_OF_ORDER_SEQUENCE),)),
    Row("the last one and more as one", (Sent(12, 4, code=OUT_OF_ORDER_SEQUENCE),)),
    Row("a lower epoch, next sequence", (Sent(14, epoch=2, code=INVALID_PRODUCER_EPOCH),)),
    Row("a lower epoch, sequence 0", (Sent(0, epoch=2, code=INVALID_PRODUCER_EPOCH),)),
    Row("a higher epoch, next sequence", (Sent(14, epoch=4, code=OUT_OF_ORDER_SEQUENCE), Sent(14, offset=14))),
    Row(
        "a higher epoch, sequence 0",
        (
            Sent(0, epoch=4, offset=14),
            Sent(14, code=INVALID_PRODUCER_EPOCH),
            Sent(12, code=INVALID_PRODUCER_EPOCH),
            Sent(0, epoch=4, offset=14, known=1),
            Sent(2, epoch=4, offset=16),
        ),
    ),
    Row("an unknown producer begins anywhere", (Sent(40, offset=0), Sent(42, offset=2)), before=()),
    Row(
        "a batch across the wrap",
        (
            Sent(LAST_SEQUENCE - 1, 4, offset=0),
            Sent(LAST_SEQUENCE - 1, 4, offset=0, known=LAST_SEQUENCE + 2),
            Sent(3, 1, code=OUT_OF_ORDER_SEQUENCE),
            Sent(LAST_SEQUENCE, 1, code=OUT_OF_ORDER_SEQUENCE),
            Sent(2, 1, offset=4),
        ),
        before=(),
    ),
    Row(
        "a batch up to the wrap and one behind it",
        (
            Sent(LAST_SEQUENCE - 1, 2, offset=0),
            Sent(0, 2, offset=2),
            Sent(LAST_SEQUENCE - 1, 2, offset=0, known=LAST_SEQUENCE),
        ),
        before=(),
    ),
)


def steps() -> Iterator[list[tuple[int, Sent]]]:
    """What is sent to all rows at once, step by step: number of the row and batch."""
    told = [(*row.before, *row.sent) for row in ROWS]
    for step in range(max(map(len, told))):
        yield [(number, batches[step]) for number, batches in enumerate(told) if step < len(batches)]
