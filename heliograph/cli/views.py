"""`heliograph status`, `topics` and `groups` show the state of flows, topics and groups."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import EXIT_FAILED, Configuration, Output, Secrets, counted, flow_named, parse_groups
from heliograph.cli.render import OutputFormat, render_rows
from heliograph.config import load_settings
from heliograph.config.settings import Flow, Settings
from heliograph.errors import ConfigError
from heliograph.text import printable

if TYPE_CHECKING:
    from heliograph.views.groups import GroupView
    from heliograph.views.status import FlowStatus
    from heliograph.views.topic_views import TopicView


def status(config: Configuration, secrets: Secrets = None, output: Output = OutputFormat.TABLE) -> None:
    """Show the state of the flows, from what is stored on their targets. Exit code 1 if an enabled flow is not ready.

    A flow is ready if a process runs it, source and target answer, records and group offsets make progress, and all
    losses are acknowledged. What is missing is shown with its remedy. json and yaml have every condition and every
    loss in full. Paused, stopped and disabled flows are shown as such.
    """
    from heliograph.views.status import read_status

    settings = load_settings(config, secrets=secrets)
    if not settings.flows:
        raise ConfigError("the file has no flow", where=settings.file)
    found = asyncio.run(read_status(settings))
    _show_status(found, output)
    if not all(flow.is_ready for flow in found if flow.is_to_run):
        raise typer.Exit(EXIT_FAILED)


def _show_status(found: Sequence[FlowStatus], output: OutputFormat) -> None:
    """Prints the worst flows first, and below the table what keeps flows from being ready."""
    if not output.is_table:
        typer.echo(render_rows([flow.full_row() for flow in found], output))
        return
    ranked = sorted(found, key=lambda flow: flow.rank)
    faults = [f"{flow.flow}: {fault}" for flow in ranked for fault in flow.faults]
    others = Counter(flow.state for flow in found if not flow.is_to_run)
    wanted = [flow for flow in found if flow.is_to_run]
    ready = f"{sum(flow.is_ready for flow in wanted)} of {counted(len(wanted), 'flow')} ready"
    conclusion = ", ".join([ready, *(f"{number} {state}" for state, number in others.items())])
    rows = [flow.row() for flow in ranked]
    show_rows(rows, output, layouts.STATUS, conclusion="\n".join([*map(printable, faults), conclusion]))


def topics(
    config: Configuration,
    *,
    name: Annotated[str | None, typer.Option("--flow", metavar="A->B", help="Only this flow.")] = None,
    by_partition: Annotated[bool, typer.Option("--partitions", help="A row for each partition.")] = False,
    diff: Annotated[
        bool, typer.Option("--diff", help="Show which configs of the target's topics would change, and how.")
    ] = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show the topics of each flow on both clusters: progress, speed, and why a topic is not copied.

    Positions, ends and lags of a topic are the sums over its partitions. --diff writes nothing. If the source does
    not answer, its last known state is shown, which is stored on the target. Exit code 1 if a target does not answer.
    """
    from heliograph.views.topics import read_topics

    settings = _load_flows(config, secrets)
    flows = settings.enabled_flows if name is None else (flow_named(settings, name),)
    found, problems, unread = asyncio.run(read_topics(settings, flows))
    if found or not problems or not output.is_table:
        _show_topics(found, output, by_partition=by_partition, diff=diff)
    if diff:
        problems += unread + _not_compared(flows, found)
    for problem in problems:
        typer.echo(printable(problem), err=True)
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _not_compared(flows: Sequence[Flow], found: Sequence[TopicView]) -> list[str]:
    """Lists flows whose sources do not answer; says which flows sync no topic configs."""
    silent = {view.flow for view in found if view.seen_s is not None}
    for flow in flows:
        if not flow.topic_sync.configs_enabled:
            typer.echo(f"{flow.name}: sync.topic.configs.enabled is false: no topic config is changed", err=True)
    return [
        f'{flow.name}: "{flow.source}" does not answer: topic configs cannot be compared'
        for flow in flows
        if flow.name in silent
    ]


def _show_topics(found: Sequence[TopicView], output: OutputFormat, *, by_partition: bool, diff: bool) -> None:
    if diff:
        rows = [row for view in found for row in view.difference_rows()]
        changed = sum(bool(view.differing) for view in found)
        conclusion = f"{counted(len(rows), 'setting')} of {counted(changed, 'topic')} would be changed"
        layout = layouts.TOPIC_DIFFERENCES
    elif by_partition:
        rows = [row for view in found for row in view.partition_rows()]
        conclusion = counted(len(rows), "partition")
        layout = layouts.TOPIC_PARTITIONS
    else:
        rows = [view.row() for view in found]
        conclusion = _count_states(found)
        layout = layouts.TOPICS
    show_rows(rows, output, layout, conclusion=conclusion)


def _count_states(found: Sequence[TopicView]) -> str:
    numbers: dict[str, int] = {}
    for view in found:
        numbers[view.state] = numbers.get(view.state, 0) + 1
    return f"{counted(len(found), 'topic')}: " + ", ".join(f"{number} {state}" for state, number in numbers.items())


def groups(
    config: Configuration,
    pattern: Annotated[
        str | None, typer.Option("--groups", metavar="PATTERN", help="Only these groups, by a Java regular expression.")
    ] = None,
    by_partition: Annotated[bool, typer.Option("--partitions", help="Also a row for each partition.")] = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show consumer groups on both clusters of each flow, and what each would read again if it moved now.

    -o wide, json, yaml and csv show the partitions too.

    If the source does not answer, its last known state is shown, which is stored on the target. Exit code 1 if a
    target does not answer, or if a group cannot have its name on the target.
    """
    from heliograph.views.groups import read_groups

    wanted = parse_groups(pattern)
    found, problems = asyncio.run(read_groups(_load_flows(config, secrets), wanted=wanted))
    if found or not problems or not output.is_table:
        _show_groups(found, output, by_partition=by_partition)
    for problem in problems:
        typer.echo(printable(problem), err=True)
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _load_flows(config: Path, secrets: Path | None) -> Settings:
    """Loads a file that has at least one enabled flow."""
    settings = load_settings(config, secrets=secrets)
    if not settings.enabled_flows:
        raise ConfigError("no flow is enabled", where=settings.file)
    return settings


def _show_groups(found: Sequence[GroupView], output: OutputFormat, *, by_partition: bool) -> None:
    """Prints one table or two, or rows of one shape whose `kind` says which table they belong to."""
    group_rows = [view.row() for view in found]
    if output.is_table and all(view.group == view.target_group for view in found):
        group_rows = [{name: value for name, value in row.items() if name != "target group"} for row in group_rows]
    place_rows = [{"flow": view.flow, **row} for view in found for row in view.place_rows()]
    if not output.is_table:
        keys = dict.fromkeys(key for row in (*group_rows, *place_rows) for key in row)
        rows = [("group", row) for row in group_rows] + [("partition", row) for row in place_rows]
        typer.echo(render_rows([{"kind": kind, **dict.fromkeys(keys), **row} for kind, row in rows], output))
        return
    again = sum(view.reread or 0 for view in found)
    conclusion = f"{counted(len(found), 'group')}, {counted(again, 'record')} would be read again"
    if (every_s := max((view.read_every_s or 0.0 for view in found), default=0.0)) > 0:
        conclusion += f"; group offsets are read every {every_s:.3g} s"
    if by_partition or output is OutputFormat.WIDE:
        show_rows(place_rows, output, layouts.GROUP_PLACES, worst_first=True)
        typer.echo("")
    show_rows(group_rows, output, layouts.GROUPS, conclusion=conclusion, worst_first=True)
