"""The line that says what is flowing."""

from __future__ import annotations

import pytest

from heliograph.flow.progress import Progress
from tests.unit.helpers.logs import ENTRY


def started(**fields: int) -> Progress:
    """Progress that has its starting point and has given its first line at second 0."""
    progress = Progress()
    progress.note("t", 0, ENTRY.moved(**fields))
    progress.line(0.0)
    return progress


def test_nothing_known_is_up_to_date() -> None:
    assert Progress().line(1.0) == "0 records/s, 0.0 MB/s, lag 0 records, up to date"


def test_rates_are_what_moved_since_the_last_line() -> None:
    progress = started(source_end=10_000)
    progress.note("t", 0, ENTRY.moved(n=5_000, bytes_copied=10_000_000, source_offset=5_000, source_end=10_000))
    assert progress.line(5.0) == "1,000 records/s, 2.0 MB/s, lag 5,000 records, caught up in 5 s"
    assert progress.line(10.0) == "0 records/s, 0.0 MB/s, lag 5,000 records, standing still"


def test_what_was_copied_before_the_start_does_not_count() -> None:
    progress = started(n=1_000_000, bytes_copied=1 << 40, source_offset=7, source_end=7)
    assert progress.line(1.0) == "0 records/s, 0.0 MB/s, lag 0 records, up to date"


def test_partitions_are_added_up() -> None:
    progress = started(source_end=100)
    progress.note("t", 1, ENTRY.moved(source_end=50))
    progress.note("t", 1, ENTRY.moved(n=20, source_offset=20, source_end=50))
    progress.note("t", 0, ENTRY.moved(n=40, source_offset=40, source_end=100))
    assert progress.lag == 90
    assert progress.line(1.0).startswith("60 records/s")


def test_a_new_count_begins_from_0() -> None:
    progress = started(n=500, bytes_copied=900)
    progress.note("t", 0, ENTRY.moved(count=1, n=10, bytes_copied=2_000_000))
    assert progress.line(1.0).startswith("10 records/s, 2.0 MB/s")


def test_an_older_entry_takes_nothing_away() -> None:
    progress = started(n=500)
    progress.note("t", 0, ENTRY.moved(n=300))
    assert progress.line(1.0).startswith("0 records/s")


def test_a_source_whose_end_is_not_known_yet_has_no_lag() -> None:
    progress = Progress()
    progress.note("t", 0, ENTRY.moved(source_offset=50, source_end=-1))
    assert progress.lag == 0


@pytest.mark.parametrize(("lag", "text"), [(119, "119 s"), (120, "2 min"), (7_199, "120 min"), (9_000, "2.5 h")])
def test_the_time_to_catch_up_has_a_fitting_unit(lag: int, text: str) -> None:
    progress = started(source_end=lag)
    progress.note("t", 0, ENTRY.moved(n=1, source_end=lag))
    assert progress.line(1.0).endswith(f"caught up in {text}")
