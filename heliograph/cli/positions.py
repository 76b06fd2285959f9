"""`heliograph positions` lists the positions of a flow, and sets or resets them while the flow is stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import EXIT_FAILED, Configuration, Output, Secrets, counted, exact, flow_named
from heliograph.cli.render import OutputFormat, render_csv
from heliograph.config import load_settings
from heliograph.config.keys.values import BadValue
from heliograph.config.settings import Flow, Settings
from heliograph.config.start_points import StartPoint, parse_point
from heliograph.errors import HeliographError
from heliograph.recovery.choices import PositionsFormat
from heliograph.text import printable

if TYPE_CHECKING:
    from heliograph.recovery.offsets_file import Given
    from heliograph.recovery.positions import ChangedPositions, Planner, PositionRow

positions_app = typer.Typer(
    help="List, set and reset the positions of a flow: the next source offset to copy.",
    epilog="Example: heliograph positions list mm2.properties",
    no_args_is_help=True,
)
FlowName = Annotated[str, typer.Option("--flow", metavar="A->B", help="The flow.")]
Topic = Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this source topic.")]
Partition = Annotated[
    int | None, typer.Option("--partition", metavar="NUMBER", min=0, help="Only this partition of the topic.")
]
Execute = Annotated[bool, typer.Option("--execute", help="Make the changes; without it only the plan is shown.")]


@positions_app.command("list", epilog="Example: heliograph positions list mm2.properties --topic orders -o csv")
def positions_list(
    config: Configuration,
    *,
    name: Annotated[str | None, typer.Option("--flow", metavar="A->B", help="Only this flow.")] = None,
    topic: Topic = None,
    secrets: Secrets = None,
    output: Annotated[
        PositionsFormat,
        typer.Option(
            "-o", "--output", help="Output format; connect is the JSON that --from-file and Connect's REST API accept."
        ),
    ] = PositionsFormat.TABLE,
) -> None:
    """Show the position of every partition, the next source offset to copy, beside the ends of the source's log.

    The column "by" says where a position comes from: from what was copied, from a set or reset that takes effect at
    the next start, or from another tool. Exit code 1 if a target does not answer.
    """
    from heliograph.recovery.positions import list_places

    settings = load_settings(config, secrets=secrets)
    flows = settings.enabled_flows if name is None else (flow_named(settings, name),)
    if output is PositionsFormat.CONNECT and len(flows) != 1:
        raise typer.BadParameter("this output format is for one flow: name it", param_hint="--flow")
    found: list[PositionRow] = []
    problems: list[str] = []
    for flow in flows:
        try:
            places, problem = asyncio.run(list_places(settings, flow))
            found += (place for place in places if topic in (None, place.topic))
            if problem:
                typer.echo(printable(problem), err=True)
        except HeliographError as error:
            problems.append(f"{flow.name}: {error}")
    _show_positions(found, flows[0] if flows else None, output)
    for problem in problems:
        typer.echo(printable(problem), err=True)
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _show_positions(found: Sequence[PositionRow], flow: Flow | None, output: PositionsFormat) -> None:
    rows = [place.row() for place in found]
    if output is PositionsFormat.CSV:
        typer.echo(exact(render_csv(rows)), nl=False)
    elif output is PositionsFormat.CONNECT:
        from heliograph.recovery.offsets_file import as_body

        assert flow is not None
        typer.echo(as_body(flow.source, ((place.topic, place.partition, place.position) for place in found)))
    else:
        left = sum(place.to_copy or 0 for place in found)
        conclusion = f"{counted(len(found), 'position')}, {counted(left, 'record')} to copy"
        show_rows(rows, OutputFormat(output.value), layouts.POSITIONS, conclusion=conclusion)


@positions_app.command(
    "set",
    epilog="Example: heliograph positions set mm2.properties --flow 'primary->backup' --topic orders --to earliest",
)
def positions_set(
    config: Configuration,
    *,
    name: FlowName,
    topic: Topic = None,
    partition: Partition = None,
    to: Annotated[
        str | None,
        typer.Option(
            "--to",
            metavar="OFFSET|earliest|latest|TIME",
            help="The next source offset to copy, earliest, latest, or a time for the first record from then on "
            "(2026-01-31T12:00:00Z).",
        ),
    ] = None,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file",
            metavar="FILE",
            help="Positions of many partitions. JSON as in PATCH /connectors/<name>/offsets of Kafka Connect, or "
            ".csv with the columns topic,partition,offset: an offset is that of the last copied record, so that "
            "copying continues after it; null or an empty cell resets. A column position is the next offset to copy.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    execute: Execute = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Set where copying continues at the next start. Refused while a process runs the flow.

    Backward: records are copied again and are on the target twice. Forward: records are skipped. Group offsets keep
    their translation: the first copies count until the second copies have come as far. An offset outside the source's
    log becomes its start or its end. MirrorMaker 2 finds the position too.
    """
    from heliograph.recovery.positions import to_given, to_point

    settings = load_settings(config, secrets=secrets)
    flow = flow_named(settings, name)
    if (from_file is None) == (to is None):
        raise typer.BadParameter("give either --to, with --topic, or --from-file", param_hint="--to")
    if from_file is not None:
        if topic is not None or partition is not None:
            raise typer.BadParameter("the file names topics and partitions", param_hint="--topic")
        _change(settings, flow, to_given(_read(from_file, flow)), execute=execute, output=output)
        return
    if topic is None or to is None:
        raise typer.BadParameter("name the topic whose positions are set", param_hint="--topic")
    _change(settings, flow, to_point(topic, partition, _parse_to(to)), execute=execute, output=output)


@positions_app.command(
    "reset", epilog="Example: heliograph positions reset mm2.properties --flow 'primary->backup' --topic orders"
)
def positions_reset(
    config: Configuration,
    *,
    name: FlowName,
    topic: Topic = None,
    partition: Partition = None,
    execute: Execute = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Forget positions: at the next start partitions begin as in a new flow, by start.position.

    Records that were copied stay on the target, and are copied again from the start position on. Refused while a
    process runs the flow.
    """
    from heliograph.recovery.positions import to_nothing

    if partition is not None and topic is None:
        raise typer.BadParameter("name the topic of the partition", param_hint="--topic")
    settings = load_settings(config, secrets=secrets)
    _change(settings, flow_named(settings, name), to_nothing(topic, partition), execute=execute, output=output)


def _parse_to(text: str) -> StartPoint | int:
    trimmed = text.strip()
    if trimmed.isdecimal():
        return int(trimmed)
    try:
        point = parse_point(trimmed)
    except BadValue as error:
        raise typer.BadParameter(f"{error}; or an offset that is not negative", param_hint="--to") from error
    if point.offsets:
        raise typer.BadParameter(
            "set the offset of one partition with --partition, or use --from-file", param_hint="--to"
        )
    return point


def _read(file: Path, flow: Flow) -> list[Given]:
    from heliograph.recovery.offsets_file import read_offsets

    given, unknown = read_offsets(file.read_text(), name=str(file), source=flow.source)
    if unknown:
        typer.echo(f"{counted(unknown, 'reset')} ignored: not a partition of {flow.name}", err=True)
    return given


def _change(settings: Settings, flow: Flow, plan: Planner, *, execute: bool, output: OutputFormat) -> None:
    from heliograph.recovery.positions import apply_changes, plan_changes

    changed: ChangedPositions = asyncio.run((apply_changes if execute else plan_changes)(settings, flow, plan))
    number = counted(len(changed.changes), "position")
    conclusion = (
        f"{number} written; they take effect at the next start" if execute else f"{number}; nothing was written"
    )
    if changed.leader:
        conclusion += f", nor could be: {changed.leader} leads {flow.name}"
    show_rows([change.row() for change in changed.changes], output, layouts.CHANGES, conclusion=conclusion)
