"""The fake broker's sequence check is that of real ones (`tests/cluster/test_sequences.py`)."""

from __future__ import annotations

import pytest

from tests.fake_cluster import FakePartition
from tests.fake_cluster.partition import Appended
from tests.sequences import BEFORE, ROWS, Answer, Row, Sent
from tests.unit.helpers.logs import PRODUCER_ID

START_MS = 1_000


def send(partition: FakePartition, sent: Sent) -> Answer:
    return Answer(*partition.produce(bytes(sent.batch(PRODUCER_ID, START_MS))))


@pytest.fixture
def partition() -> FakePartition:
    """Seven batches of two records, sequences 0 to 13."""
    partition = FakePartition(1, [1])
    for sent in BEFORE:
        send(partition, sent)
    return partition


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_the_table_of_real_brokers(row: Row) -> None:
    partition = FakePartition(1, [1])
    for sent in (*row.before, *row.sent):
        assert send(partition, sent) == sent.answer(START_MS)
    assert [(header.producer_epoch, header.base_sequence) for header in partition.headers()] == [
        (sent.epoch, sent.sequence) for sent in row.log
    ]
    assert partition.values() == [b"%d" % number for sent in row.log for number in sent.numbers]


def test_a_forgotten_producer_may_begin_anywhere(partition: FakePartition) -> None:
    partition.forget()
    assert send(partition, Sent(4)) == Answer(0, 14, -1)


def test_a_damaged_batch_is_refused(partition: FakePartition) -> None:
    damaged = Sent(14).batch(PRODUCER_ID, START_MS)
    damaged[-1] ^= 1
    assert partition.produce(bytes(damaged)) == Appended(2)
