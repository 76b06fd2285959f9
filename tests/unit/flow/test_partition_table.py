"""What the driver remembers of partitions between epochs."""

from __future__ import annotations

from heliograph.flow.partition_table import PartitionTable
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import NOT_LATE
from heliograph.ledger.partition_remap import COUNTS_OF_AN_ID
from tests.unit.helpers.logs import ENTRY, row_of

WHERE = ("t", 0)


def test_nothing_is_on_its_way_in_a_first_count_and_after_all_was_answered() -> None:
    table = PartitionTable()
    table.take_opened({WHERE: ENTRY})
    assert table.late_ms(WHERE) == NOT_LATE
    table.take_row(row_of(late_ms=0))
    assert table.late_ms(WHERE) == 0
    table.take_row(row_of(late_ms=NOT_LATE))
    assert table.late_ms(WHERE) == NOT_LATE


def test_a_later_count_knows_nothing_of_what_the_one_before_sent() -> None:
    table = PartitionTable()
    table.take_opened({WHERE: ENTRY.moved(count=3)})
    assert table.late_ms(WHERE) == 0


def test_the_wait_for_late_batches_goes_on_from_lane_to_lane() -> None:
    table = PartitionTable()
    table.take_row(row_of(late_ms=3000))
    assert 3000 <= table.late_ms(WHERE) < 60_000


def test_after_lanes_were_lost_something_may_be_on_its_way() -> None:
    table = PartitionTable()
    table.take_opened({WHERE: ENTRY})
    table.take_written(Ledger(group_id="g"))
    assert table.late_ms(WHERE) == 0


def test_counts_go_on_when_a_producer_id_has_used_up_its_epochs() -> None:
    table = PartitionTable()
    assert table.next_count(WHERE) == 0
    table.take_opened({WHERE: ENTRY.moved(count=COUNTS_OF_AN_ID - 1)})
    assert table.next_count(WHERE) == COUNTS_OF_AN_ID
    table.take_opened({WHERE: ENTRY.moved(count=COUNTS_OF_AN_ID)})
    assert table.late_ms(WHERE) == 0, "nothing is known of what was sent under the id before"
    assert table.next_count(WHERE) == COUNTS_OF_AN_ID + 1


def test_what_a_lost_lane_wrote_under_the_id_before_is_older() -> None:
    ledger, table = Ledger(group_id="g"), PartitionTable()
    now = ENTRY.moved(count=COUNTS_OF_AN_ID)
    for entry in (now, ENTRY.moved(count=COUNTS_OF_AN_ID - 1, n=9, source_offset=9)):
        ledger.partition(WHERE).take_entry(entry)
    assert ledger.entries == {WHERE: now}
    table.take_opened({WHERE: now})
    table.take_written(ledger)
    assert table.entries[WHERE] == now


def test_a_partition_is_the_first_of_a_term_until_a_lane_has_settled_it() -> None:
    table = PartitionTable()
    assert table.is_unsettled(WHERE)
    table.take_row(row_of(unseen=True))
    assert table.is_unsettled(WHERE)
    table.take_row(row_of(unseen=False))
    assert not table.is_unsettled(WHERE)
    table.begin(Ledger(group_id="g"), {})
    assert table.is_unsettled(WHERE)


def test_the_next_count_is_above_all_that_are_known_to_be_used() -> None:
    table = PartitionTable()
    assert table.next_count(WHERE, 4) == 5
    table.take_opened({WHERE: ENTRY.moved(count=7)})
    assert (table.next_count(WHERE, 4), table.next_count(WHERE, 9)) == (8, 10)
