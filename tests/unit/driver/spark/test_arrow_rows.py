"""Assignments and ledger rows go through Arrow unchanged."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from heliograph.driver.spark.arrow_rows import (
    LANE_SCHEMA,
    ROW_SCHEMA,
    ROW_SCHEMA_SQL,
    assignments_of,
    lanes_table,
    ledger_rows,
    rows_batch,
)
from heliograph.ledger.model import Assignment, EpochPlan, LedgerRow
from heliograph.ledger.records.entry import Entry
from tests.unit.helpers.logs import row_of

numbers = st.integers(-(1 << 63), (1 << 63) - 1)
texts = st.text(max_size=12)
details = st.dictionaries(texts, st.one_of(st.none(), st.booleans(), numbers, texts), max_size=3)
entries = st.builds(
    Entry, **{name: texts if name.endswith(("id", "lineage", "rule")) else numbers for name in Entry.__slots__}
)
assignments = st.builds(
    Assignment,
    flow=texts,
    topic=texts,
    partition=numbers,
    target_topic=texts,
    entry=entries,
    max_message_bytes=numbers,
    target_stamps_time=st.booleans(),
)
rows = st.builds(
    LedgerRow,
    flow=texts,
    topic=texts,
    partition=numbers,
    lane=numbers,
    entry=entries,
    records=numbers,
    bytes=numbers,
    active_ms=numbers,
    host=texts,
    state=texts,
    error_code=texts,
    error_text=texts,
    details=details,
)


@settings(max_examples=50)
@given(lanes=st.lists(st.lists(assignments, min_size=1, max_size=4).map(tuple), max_size=4))
def test_a_plan_comes_back_from_its_table(lanes: list[tuple[Assignment, ...]]) -> None:
    table = lanes_table(EpochPlan(epoch_id=3, lanes=tuple(lanes)))
    assert table.schema == LANE_SCHEMA
    found = [pair for batch in table.to_batches(max_chunksize=1) for pair in assignments_of(batch)]
    assert found == [(lane, list(items)) for lane, items in enumerate(lanes)]


@settings(max_examples=50)
@given(reported=st.lists(rows, max_size=5))
def test_rows_come_back_from_their_batch(reported: list[LedgerRow]) -> None:
    batch = rows_batch(reported)
    assert batch.schema == ROW_SCHEMA
    assert ledger_rows(pa.Table.from_batches([batch])) == reported


def test_details_that_json_does_not_know_become_text() -> None:
    row = row_of(state="released", details={"cause": ValueError("odd")})
    (back,) = ledger_rows(pa.Table.from_batches([rows_batch([row])]))
    assert back.details == {"cause": "odd"}


def test_spark_is_told_the_same_columns() -> None:
    for field in ROW_SCHEMA:
        assert f"{field.name} " in ROW_SCHEMA_SQL
    assert ROW_SCHEMA_SQL.count("struct<") == 1
    assert "source_offset: bigint" in ROW_SCHEMA_SQL
