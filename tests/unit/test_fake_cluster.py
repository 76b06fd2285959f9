"""The fake broker's sequence check: the table that exactly-once rests on."""

from __future__ import annotations

import pytest

from heliograph.kafka.batch import encode_batch
from tests.fake_cluster import FakePartition
from tests.fake_cluster.partition import Appended
from tests.unit.logs import PRODUCER_ID, new_records


def batch(sequence: int, count: int, *, epoch: int = 3, first: int = 0) -> bytes:
    records = new_records(first or sequence, count)
    return bytes(
        encode_batch(records, producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=sequence % (1 << 31))
    )


@pytest.fixture
def partition() -> FakePartition:
    """Seven batches of two records, sequences 0 to 13."""
    partition = FakePartition(1, [1])
    for sequence in range(0, 14, 2):
        assert partition.produce(batch(sequence, 2)) == Appended(0, sequence)
    return partition


@pytest.mark.parametrize(
    ("sent", "expected"),
    [
        (batch(12, 2), Appended(0, 12, 1_013)),
        (batch(4, 2), Appended(0, 4, 1_005)),
        (batch(12, 2, first=70), Appended(0, 12, 1_071)),
        (batch(2, 2), Appended(45)),
        (batch(16, 2), Appended(45)),
        (batch(12, 1), Appended(45)),
        (batch(14, 2, epoch=2), Appended(47)),
        (batch(14, 2, epoch=4), Appended(45)),
    ],
    ids=["last", "fifth last", "other content", "older", "hole", "other cut", "lower epoch", "higher epoch, not 0"],
)
def test_what_does_not_fit_leaves_the_log_unchanged(partition: FakePartition, sent: bytes, expected: Appended) -> None:
    assert partition.produce(sent) == expected
    assert partition.end == 14


def test_a_higher_epoch_begins_with_0_and_shuts_the_lower_one_out(partition: FakePartition) -> None:
    assert partition.produce(batch(0, 2, epoch=4)) == Appended(0, 14)
    assert partition.produce(batch(14, 2)) == Appended(47)


def test_a_forgotten_producer_may_begin_anywhere(partition: FakePartition) -> None:
    partition.forget()
    assert partition.produce(batch(4, 2)) == Appended(0, 14)


def test_sequences_wrap() -> None:
    partition = FakePartition(1, [1])
    assert partition.produce(batch((1 << 31) - 1, 3)) == Appended(0, 0)
    assert partition.produce(batch(2, 1)) == Appended(0, 3)


def test_a_damaged_batch_is_refused(partition: FakePartition) -> None:
    damaged = bytearray(batch(14, 2))
    damaged[-1] ^= 1
    assert partition.produce(bytes(damaged)) == Appended(2)
