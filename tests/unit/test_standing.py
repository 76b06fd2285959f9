"""What the driver remembers of partitions between epochs."""

from __future__ import annotations

import pytest

from heliograph.mirror.ledger import Ledger
from heliograph.mirror.model import NOT_LATE
from heliograph.mirror.standing import MAX_COUNT, Standing
from tests.unit.logs import ENTRY, row_of

WHERE = ("t", 0)


def test_nothing_is_on_its_way_in_a_first_count_and_after_all_was_answered() -> None:
    standing = Standing("a->b")
    standing.take_opened({WHERE: ENTRY})
    assert standing.late_ms(WHERE) == NOT_LATE
    standing.take_row(row_of(late_ms=0))
    assert standing.late_ms(WHERE) == 0
    standing.take_row(row_of(late_ms=NOT_LATE))
    assert standing.late_ms(WHERE) == NOT_LATE


def test_a_later_count_knows_nothing_of_what_the_one_before_sent() -> None:
    standing = Standing("a->b")
    standing.take_opened({WHERE: ENTRY.moved(count=3)})
    assert standing.late_ms(WHERE) == 0


def test_the_wait_for_late_batches_goes_on_from_lane_to_lane() -> None:
    standing = Standing("a->b")
    standing.take_row(row_of(late_ms=3000))
    assert 3000 <= standing.late_ms(WHERE) < 60_000


def test_after_lanes_were_lost_something_may_be_on_its_way() -> None:
    standing = Standing("a->b")
    standing.take_opened({WHERE: ENTRY})
    standing.take_written(Ledger(group_id="g"))
    assert standing.late_ms(WHERE) == 0


def test_a_partition_without_a_count_left_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    standing = Standing("a->b")
    standing.take_opened({WHERE: ENTRY.moved(count=MAX_COUNT - 1)})
    assert standing.next_count(WHERE) == MAX_COUNT
    standing.take_opened({WHERE: ENTRY.moved(count=MAX_COUNT)})
    assert [standing.next_count(WHERE) for _ in range(3)] == [None] * 3
    assert len(caplog.records) == 1
    assert standing.next_count(("t", 1)) == 0
