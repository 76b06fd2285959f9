"""Foreign text on a terminal and in the log: what does not print is escaped, wherever it comes out."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import logging
import sys
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from heliograph import run as run_module
from heliograph.cli.options import exact
from heliograph.cli.render import OutputFormat, render_rows
from heliograph.cli.views import _show_groups
from heliograph.control.groups_left_out import LeftOut
from heliograph.errors import ConfigError, GroupRefused, NameRefused, Unreachable, named
from heliograph.kafka.cluster import refused
from heliograph.logs import LineFormatter, start_log
from heliograph.text import printable, printable_lines, some_of
from heliograph.views.groups import read_groups
from heliograph.views.status import FlowStatus
from tests.fake_cluster import DESCRIBE_GROUPS, Call, FakeGroup
from tests.unit.helpers.placed import a_world

EVIL = "x\x1b[2J\x1b]0;title\x07\r\n12:00:00 ERROR forged\x85\u2028\u202eback\u2066\u200b\x9b31m[red]y[/red]"
"""Clears a screen, renames its window, forges a line of the log, turns text around, hides itself, and is markup."""


def is_safe(text: str) -> bool:
    """Nothing but what prints, in lines."""
    return all(line.isprintable() for line in text.split("\n"))


def test_what_does_not_print_is_escaped_and_the_rest_stays() -> None:
    assert printable("a\x1b[2J\n\u202eb \\ ü 漢 [bold]") == r"a\x1b[2J\n\u202eb \ ü 漢 [bold]"
    assert printable("\U000e0001\ud800\x00\x7f") == r"\U000e0001\ud800\x00\x7f"
    assert printable_lines("a\nb\x1b") == "a\nb\\x1b"


@given(st.text(st.characters(), max_size=50))
def test_it_prints_is_one_line_and_doing_it_twice_changes_nothing(text: str) -> None:
    once = printable(text)
    assert once.isprintable()
    assert printable(once) == once
    if text.isprintable():
        assert once == text


def test_errors_print_whatever_a_broker_said() -> None:
    errors = [
        Unreachable(EVIL, where=EVIL, why=EVIL, remedy=EVIL),
        refused(42, f"OffsetCommit for group {EVIL}", where=EVIL, message=EVIL),
        NameRefused(f'the group "{EVIL}" would be called "x"'),
        named(ValueError(EVIL), where=EVIL),
    ]
    for error in errors:
        assert str(error).isprintable()
        assert "forged" in str(error)
        assert error.where != printable(EVIL), "programs have it exactly"


def test_findings_in_a_file_have_lines_of_their_own() -> None:
    error = ConfigError("2 errors\n  line 1: \x1b[2J\n  line 2: y")
    assert str(error) == "CONFIG: 2 errors\n  line 1: \\x1b[2J\n  line 2: y"


def test_a_record_of_the_log_is_one_line_and_its_traceback_follows() -> None:
    out = io.StringIO()
    handler = logging.StreamHandler(out)
    handler.setFormatter(LineFormatter())
    log = logging.getLogger("heliograph.test")
    log.propagate = False
    log.addHandler(handler)
    log.warning('the group "%s" is gone', EVIL)
    try:
        raise ValueError(EVIL)
    except ValueError:
        log.exception("failed")
    lines = out.getvalue().splitlines()
    assert is_safe(out.getvalue())
    assert ' WARNING the group "x\\x1b[2J' in lines[0]
    assert lines[1].endswith(" ERROR failed")
    assert lines[2].startswith("Traceback")


@pytest.mark.usefixtures("own_log")
def test_the_log_of_a_run_and_its_progress_print_foreign_names(capsys: pytest.CaptureFixture[str]) -> None:
    start_log()
    left_out = LeftOut("a->b", "carried over")
    left_out.note([EVIL], {EVIL: GroupRefused(EVIL)})
    run_module._report(f"a->b: {EVIL}")
    captured = capsys.readouterr()
    for text in (captured.out, captured.err):
        assert is_safe(text)
        assert len(text.splitlines()) == 1
        assert "forged" in text


# -- tables


ROWS: list[dict[str, str | int | None]] = [
    {"group": EVIL, "lag": 3, "host": None},
    {"group": "plain", "lag": 14, "host": EVIL},
]


def test_a_table_has_a_line_for_each_row_and_its_columns_stay_straight() -> None:
    text = render_rows(ROWS, OutputFormat.TABLE)
    assert is_safe(text)
    heading, first, second = text.split("\n")
    width = len(printable(EVIL))
    assert heading.index("LAG") == width + 2
    assert (first[: width + 5].endswith("  3"), second[: width + 5].endswith(" 14")) == (True, True)
    assert "[red]y[/red]" in first, "nobody takes it for markup"


def test_csv_has_a_line_for_each_row_too() -> None:
    text = render_rows(ROWS, OutputFormat.CSV)
    assert is_safe(text)
    assert list(csv.reader(io.StringIO(text)))[1] == [printable(EVIL), "3", ""]


def test_json_and_yaml_have_the_very_text_and_print_as_well() -> None:
    for output, parse in ((OutputFormat.JSON, json.loads), (OutputFormat.YAML, yaml.safe_load)):
        text = render_rows(ROWS, output)
        assert is_safe(text)
        assert parse(text) == ROWS


def test_a_status_prints_what_others_wrote_into_the_ledger() -> None:
    row = FlowStatus(flow="a->b", state="running", lacks=(EVIL,), failing=(EVIL,), problem=EVIL).row()
    assert is_safe(render_rows([row], OutputFormat.TABLE))


def test_a_file_for_another_tool_is_exact_unless_somebody_looks_at_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert exact(EVIL) == EVIL
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    assert is_safe(exact(EVIL))


def test_groups_and_their_members_are_shown_whatever_they_are_called(capsys: pytest.CaptureFixture[str]) -> None:
    async def named_so(call: Call) -> Any:
        answer = await call.proceed()
        for group in answer.groups:
            for member in group.members:
                member.client_id = member.client_host = EVIL
        return answer

    async def scenario() -> Any:
        async with a_world() as world, world.leader() as flow:
            await world.copy(flow, "t", 0)
            world.source.groups[EVIL] = FakeGroup(members=1, commits={("t", 0): (5, EVIL, -1)})
            world.source.control(DESCRIBE_GROUPS, named_so)
            return await read_groups(world.settings("groups = (?s).*\n"), wanted=None)

    found, problems = asyncio.run(scenario())
    assert [view.group for view in found] == [EVIL]
    _show_groups(found, OutputFormat.TABLE, by_partition=True)
    shown = capsys.readouterr().out
    assert is_safe(shown)
    assert printable(EVIL) in shown
    assert all(map(is_safe, problems))


# -- long lists --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "expected"),
    [(0, ""), (1, "0"), (5, "0, 1, 2, 3, 4"), (6, "0, 1, 2, 3, 4 and 1 more"), (2006, "0, 1, 2, 3, 4 and 2,001 more")],
)
def test_the_first_of_many_are_listed_and_the_others_counted(number: int, expected: str) -> None:
    assert some_of(range(number)) == expected


def test_how_many_are_listed_and_what_stands_between_them_may_be_chosen() -> None:
    assert some_of(["a", "b", "c", "d"], 2, separator="; ") == "a; b and 2 more"
