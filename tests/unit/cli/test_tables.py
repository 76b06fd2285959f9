"""Tables on terminals of different widths, and elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from heliograph.cli import layouts
from heliograph.cli.render import OutputFormat, render_rows
from heliograph.cli.tables import PLAIN, Layout, Screen, cut, screen_of
from heliograph.views.rows import Row

NAME = "payments.settlement.outgoing.v2"
ERROR = (
    f'RECORD_REFUSED: east->west {NAME}-3: "west" refused a record at source offset 48812: the target accepts no '
    "timestamps over an hour ahead; set on.record.error=skip, or acknowledge it"
)


def topic(name: str, state: str, lag: int | None, error: str | None = None, flow: str = "east->west") -> Row:
    return {
        "flow": flow, "topic": name, "target topic": f"east.{name}", "source partitions": 24, "target partitions": 24,
        "state": state, "position": 1203344, "source end": 1299344, "lag": lag, "records/s": 51234.5,
        "configs that differ": "none", "source seen": "now", "last error": error,
    }  # fmt: skip


TOPICS = [topic(NAME, "stopped", 96000, ERROR), topic("orders", "waiting", 100), topic("clicks", "copying", 0)]


def table(width: int | None, *, colour: bool = False, marks: bool = False, rows: list[Row] = TOPICS) -> str:
    screen = Screen(width=width, has_colour=colour, has_symbols=marks)
    return render_rows(rows, OutputFormat.TABLE, layout=layouts.TOPICS, screen=screen, conclusion="3 topics")


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    lines = table(width, marks=True).splitlines()
    assert max(map(cell_len, lines)) <= width


def test_usual_table_has_few_columns_and_the_whole_error_below_its_row() -> None:
    lines = table(80, marks=True).splitlines()
    assert lines[0] == "flow: east->west, source seen: now"
    assert lines[1].split() == ["TOPIC", "STATE", "LAG", "RECORDS/S"]
    assert lines[2].startswith(f"✗ {NAME}  stopped")
    shown = " ".join(line.strip() for line in lines[3:-3])
    assert shown == ERROR
    assert [line[:2] for line in lines[-3:-1]] == ["! ", "✓ "]
    assert lines[-1] == "3 topics"


def test_flow_has_a_column_where_there_are_several() -> None:
    rows = [*TOPICS, topic("x", "copying", 0, flow="north->west")]
    assert table(120, rows=rows).splitlines()[1].split()[:2] == ["FLOW", "TOPIC"]


def test_wide_table_has_all_columns_whole() -> None:
    screen = Screen(width=80, has_colour=False, has_symbols=True)
    text = render_rows(TOPICS, OutputFormat.WIDE, layout=layouts.TOPICS, screen=screen)
    heading, first = text.splitlines()[:2]
    assert all(name.upper() in heading for name in TOPICS[0])
    assert ERROR in first


def test_elsewhere_nothing_is_cut_marked_or_coloured() -> None:
    text = table(None)
    heading, first, *_ = text.splitlines()
    assert heading.split() == ["FLOW", "TOPIC", "STATE", "LAG", "RECORDS/S", "SOURCE", "SEEN", "LAST", "ERROR"]
    assert first.endswith(ERROR)
    assert "\x1b" not in text
    assert text.isascii()


def test_states_are_coloured_on_a_terminal_and_never_by_colour_alone() -> None:
    text = table(120, colour=True, marks=True)
    assert "\x1b[31m✗\x1b[0m" in text
    assert "\x1b[31mstopped\x1b[0m" in text
    assert "\x1b[32mcopying\x1b[0m" in text


def test_a_narrow_terminal_goes_without_spare_columns() -> None:
    rows: list[Row] = [{"name": "a" * 30, "lag": 5, "leader": "b" * 30}]
    layout = Layout(columns=("name", "lag", "leader"), spare=("leader",))
    wide = render_rows(rows, OutputFormat.TABLE, layout=layout, screen=Screen(width=100))
    narrow = render_rows(rows, OutputFormat.TABLE, layout=layout, screen=Screen(width=40))
    assert wide.splitlines()[0].split() == ["NAME", "LAG", "LEADER"]
    assert narrow.splitlines()[0].split() == ["NAME", "LAG"]
    assert "…" not in narrow  # names are cut only when no column can be spared any more
    bare = render_rows(rows, OutputFormat.TABLE, layout=layout, screen=Screen(width=25))
    assert "…" in bare


@pytest.mark.parametrize(
    ("environment", "terminal", "screen"),
    [
        ({"TERM": "xterm"}, True, Screen(width=100, has_colour=True, has_symbols=True)),
        ({"TERM": "xterm", "NO_COLOR": "1"}, True, Screen(width=100, has_symbols=True)),
        ({"TERM": "xterm", "NO_COLOR": ""}, True, Screen(width=100, has_colour=True, has_symbols=True)),
        ({"TERM": "dumb"}, True, Screen(width=100)),
        ({"TERM": "xterm"}, False, PLAIN),
    ],
)
def test_screen_by_environment(environment: dict[str, str], screen: Screen, *, terminal: bool) -> None:
    assert screen_of(is_terminal=terminal, columns=100, encoding="utf-8", environment=environment) == screen


def test_a_terminal_without_unicode_has_no_marks() -> None:
    screen = screen_of(is_terminal=True, columns=80, encoding="ANSI_X3.4-1968", environment={"TERM": "xterm"})
    assert (screen.has_symbols, screen.has_colour) == (False, True)


@given(st.text(max_size=60), st.integers(1, 40))
def test_cut_texts_fit_and_short_ones_stay(text: str, width: int) -> None:
    shown = cut(text, width)
    assert cell_len(shown) <= width
    assert shown == text or cell_len(text) > width


def test_worst_flow_comes_first() -> None:
    rows = [
        {"ready": "yes", "state": "running"},
        {"ready": "no", "state": "running"},
        {"ready": "no", "state": "paused"},
    ]
    ordered = sorted(rows, key=lambda row: layouts.rank(layouts.STATUS, row))
    assert [row["state"] + row["ready"] for row in ordered] == ["runningno", "pausedno", "runningyes"]
