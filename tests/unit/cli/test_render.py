from __future__ import annotations

import json

from heliograph.cli.render import OutputFormat, render_rows
from heliograph.views.rows import Row

ROWS: list[Row] = [
    {"alias": "primary", "pid": 12, "state": "running"},
    {"alias": "b", "pid": None, "state": "stopped"},
]


def test_table_aligns_numbers_right_and_concludes() -> None:
    assert render_rows(ROWS, OutputFormat.TABLE, conclusion="1 of 2 running").splitlines() == [
        "ALIAS    PID  STATE",
        "primary   12  running",
        "b          -  stopped",
        "1 of 2 running",
    ]


def test_json_keeps_the_fields_and_nothing_else() -> None:
    assert json.loads(render_rows(ROWS, OutputFormat.JSON, conclusion="x")) == ROWS


def test_yaml_is_a_list_of_mappings() -> None:
    text = render_rows(ROWS, OutputFormat.YAML)
    assert text.splitlines()[:3] == ['- alias: "primary"', "  pid: 12", '  state: "running"']
    assert render_rows([], OutputFormat.YAML) == "[]"
