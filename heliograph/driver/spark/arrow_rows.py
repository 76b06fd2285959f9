"""Assignments and ledger rows as Arrow tables, the shape in which they cross Spark. Pure."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from heliograph.ledger.model import Assignment, EpochPlan, LedgerRow
from heliograph.ledger.records.entry import Entry

_ARROW = {
    "int": pa.int64(),
    "str": pa.string(),
    "bool": pa.bool_(),
    "PackedPage": pa.binary(),
    "PackedLineage": pa.string(),
}


def _struct_of(cls: type, special: dict[str, pa.DataType]) -> pa.StructType:
    return pa.struct(
        [(field.name, special.get(field.name) or _ARROW[str(field.type)]) for field in dataclasses.fields(cls)]
    )


ENTRY = _struct_of(Entry, {})
ASSIGNMENT = _struct_of(Assignment, {"entry": ENTRY})
LANE_SCHEMA = pa.schema([("lane", pa.int64()), ("assignments", pa.list_(ASSIGNMENT))])
ROW_SCHEMA = pa.schema(list(_struct_of(LedgerRow, {"entry": ENTRY, "details": pa.string()})))


def _sql(kind: pa.DataType) -> str:
    if pa.types.is_struct(kind):
        return "struct<" + ", ".join(f"{field.name}: {_sql(field.type)}" for field in kind) + ">"
    return {pa.int64(): "bigint", pa.string(): "string", pa.bool_(): "boolean", pa.binary(): "binary"}[kind]


ROW_SCHEMA_SQL = ", ".join(f"{field.name} {_sql(field.type)}" for field in ROW_SCHEMA)


def lanes_table(plan: EpochPlan) -> pa.Table:
    """One row for each lane."""
    return pa.Table.from_pylist(
        [
            {"lane": lane, "assignments": [dataclasses.asdict(assignment) for assignment in assignments]}
            for lane, assignments in enumerate(plan.lanes)
        ],
        schema=LANE_SCHEMA,
    )


def assignments_of(batch: pa.RecordBatch) -> Iterator[tuple[int, list[Assignment]]]:
    for row in batch.to_pylist():
        yield row["lane"], [_with_entry(Assignment, fields) for fields in row["assignments"]]


def rows_batch(rows: Sequence[LedgerRow]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(
        [{**dataclasses.asdict(row), "details": json.dumps(row.details, default=str)} for row in rows],
        schema=ROW_SCHEMA,
    )


def ledger_rows(table: pa.Table) -> list[LedgerRow]:
    return [
        _with_entry(LedgerRow, {**fields, "details": json.loads(fields["details"])}) for fields in table.to_pylist()
    ]


def _with_entry(cls: Any, fields: dict[str, Any]) -> Any:
    return cls(**{**fields, "entry": Entry(**fields["entry"])})
