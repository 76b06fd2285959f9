"""Defines the tables of the commands: their columns, the order by severity, and the screen."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence

import typer

from heliograph.cli.render import OutputFormat, render_rows
from heliograph.cli.tables import NONE, Cells, Layout, Level, Screen, screen_of
from heliograph.config.files.parts import ConnectorState
from heliograph.views.rows import Row

_TOPIC_LEVELS = {
    "stopped": Level.BAD,
    "refused": Level.BAD,
    "nobody leads the flow": Level.BAD,
    "waiting": Level.WARN,
    "copying": Level.GOOD,
}
_VERDICTS = {"FAIL": Level.BAD, "WARN": Level.WARN, "PASS": Level.GOOD}
_SECRETS = {"present": Level.GOOD, "in clear": Level.WARN}
_OUTCOMES = {"planned": Level.GOOD, "written": Level.GOOD, "kept": Level.REST}


def _by_word(column: str, levels: Mapping[str, Level], default: Level) -> Callable[[Cells], Level]:
    """Returns a function that maps a column's text, up to a colon, to its level."""
    return lambda row: levels.get(row[column].partition(":")[0], default)


def _flow_level(row: Cells) -> Level:
    if row["ready"] == "yes":
        return Level.GOOD
    return Level.BAD if row["state"] == ConnectorState.RUNNING else Level.REST


def _group_level(row: Cells) -> Level:
    return {"0": Level.GOOD, NONE: Level.BAD}.get(row["would re-read now"], Level.WARN)


STATUS = Layout(
    columns=("flow", "state", "ready", "partitions", "records behind", "exposed seconds", "source answered", "leader"),
    headings={"records behind": "behind", "exposed seconds": "exposed s", "source answered": "source seen"},
    spare=("leader", "partitions", "source answered"),
    detail="trouble",
    level=_flow_level,
    state="ready",
)
_topic_level = _by_word("state", _TOPIC_LEVELS, Level.REST)
TOPICS = Layout(
    level=_topic_level,
    state="state",
    columns=("flow", "topic", "state", "lag", "records/s", "source seen"),
    shared=("flow", "source seen"),
    detail="last error",
)
TOPIC_PARTITIONS = Layout(
    level=_topic_level,
    state="state",
    columns=("flow", "topic", "partition", "state", "position", "source end", "lag", "records/s", "source seen"),
    spare=("source end", "position"),
    shared=("flow", "source seen"),
    detail="last error",
)
TOPIC_DIFFERENCES = Layout(spare=("target topic",), shared=("flow",))
GROUPS = Layout(
    columns=("flow", "group", "target group", "source state", "members", "target state", "would re-read now", "seen"),
    headings={"source state": "source", "target state": "target", "would re-read now": "re-read"},
    spare=("seen", "members", "target group"),
    shared=("flow", "seen"),
    level=_group_level,
    state="would re-read now",
)
GROUP_PLACES = Layout(
    columns=("flow", "group", "topic", "partition", "source lag", "target lag", "translation", "would re-read now"),
    headings={"would re-read now": "re-read"},
    spare=("target lag", "translation"),
    shared=("flow",),
    level=_group_level,
    state="would re-read now",
)
CHECK = Layout(
    level=_by_word("verdict", _VERDICTS, Level.REST),
    state="verdict",
    columns=("verdict", "cluster", "role", "step", "subject"),
    spare=("role",),
    detail="what",
)
SECRETS = Layout(
    level=_by_word("state", _SECRETS, Level.BAD),
    state="state",
    columns=("clusters", "secret", "key", "state", "needed_by"),
    spare=("needed_by",),
)
MOVES = Layout(
    level=_by_word("outcome", _OUTCOMES, Level.BAD),
    state="outcome",
    columns=("group", "topic", "partition", "source offset", "offset", "re-read", "outcome"),
    spare=("source offset",),
)
POSITIONS = Layout(
    spare=("source start", "source end", "by"),
    shared=("flow",),
)
CHANGES = Layout(
    level=_by_word("outcome", _OUTCOMES, Level.BAD),
    state="outcome",
    columns=("flow", "topic", "partition", "position", "to", "copied again", "left out", "outcome"),
    shared=("flow",),
)
LOSSES = Layout(
    columns=("flow", "code", "topic", "partition", "records", "last"), spare=("last",), shared=("flow",), detail="what"
)
LAB = Layout(level=_by_word("state", {"running": Level.GOOD}, Level.BAD), state="state")


def show_rows(
    rows: Sequence[Row],
    output: OutputFormat,
    layout: Layout,
    *,
    conclusion: str = "",
    worst_first: bool = False,
) -> None:
    """Prints rows in the output format; `worst_first` sorts those of a table by level."""
    ordered = sorted(rows, key=lambda row: rank(layout, row)) if worst_first and output.is_table else rows
    typer.echo(render_rows(ordered, output, conclusion=conclusion, layout=layout, screen=screen()))


def rank(layout: Layout, row: Row) -> int:
    if layout.level is None:
        return 0
    return layout.level({name: NONE if value is None else str(value) for name, value in row.items()}).rank


def screen() -> Screen:
    """Returns the screen that this process prints on."""
    return screen_of(
        is_terminal=sys.stdout.isatty(),
        columns=shutil.get_terminal_size().columns,
        encoding=sys.stdout.encoding,
        environment=os.environ,
    )
