"""`heliograph acknowledge` and `heliograph translate`: commands for recovery."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import (
    EXIT_FAILED,
    Configuration,
    Output,
    Secrets,
    counted,
    exact,
    flow_named,
    known_flows,
    parse_groups,
)
from heliograph.cli.render import OutputFormat
from heliograph.config import load_settings
from heliograph.config.settings import Flow, Settings
from heliograph.recovery.choices import By, TranslationFormat
from heliograph.text import printable

if TYPE_CHECKING:
    from heliograph.recovery.translate import Move


def acknowledge(
    config: Configuration,
    *,
    name: Annotated[str, typer.Option("--flow", metavar="A->B", help="The flow.")],
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only this source topic.")] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show the losses that would be acknowledged.")
    ] = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Acknowledge losses: the flow is ready again, and stopped partitions continue.

    A partition that stopped continues after the lost records; a refused record is retried once, and skipped if it is
    refused again. Needs only the target, and no running mirror.
    """
    from heliograph.recovery.acknowledge import acknowledge as apply

    settings = load_settings(config, secrets=secrets)
    losses = asyncio.run(apply(settings, flow_named(settings, name), topic=topic, dry_run=dry_run))
    done = "to acknowledge" if dry_run else "acknowledged"
    conclusion = f"{counted(len(losses), 'loss', 'losses')} {done}" if losses else "nothing to acknowledge"
    rows = [{"flow": name, **loss.row()} for loss in losses]
    show_rows(rows, output, layouts.LOSSES, conclusion=conclusion)


def translate(
    config: Configuration,
    *,
    source: Annotated[str, typer.Option("--from", metavar="ALIAS", help="The cluster that the groups come from.")],
    target: Annotated[
        str | None,
        typer.Option("--to", metavar="ALIAS", help="The cluster that the groups go to; needed if there are several."),
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A group; may be repeated.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--groups", metavar="PATTERN", help="All groups that match a Java regular expression.")
    ] = None,
    by: Annotated[
        By, typer.Option("--by", help="Translate exactly by the ledger, or by checkpoints as Java's client does.")
    ] = By.LEDGER,
    execute: Annotated[
        bool, typer.Option("--execute", help="Write the offsets into the groups of the target.")
    ] = False,
    secrets: Secrets = None,
    output: Annotated[
        TranslationFormat, typer.Option("-o", "--output", help="Output format; csv is for kafka-consumer-groups.")
    ] = TranslationFormat.TABLE,
) -> None:
    """Show where groups of a lost cluster continue, from data on the target alone; --execute commits the offsets.

    A group with members on the target is not changed, and no offset moves backward. csv is the file that
    kafka-consumer-groups --reset-offsets --from-file reads. Exit code 1 if a group has no translation or was not
    moved, or if no group matches.
    """
    from heliograph.recovery.translate import plan_moves, run_moves

    if not group and pattern is None:
        raise typer.BadParameter("name groups with --group or --groups", param_hint="--group")
    wanted = parse_groups(pattern)
    settings = load_settings(config, secrets=secrets)
    flow = _flow_between(settings, source, target)
    plan = plan_moves(settings, flow, names=group or [], wanted=wanted, by=by)
    moves = asyncio.run(run_moves(settings, flow, plan.moves)) if execute else plan.moves
    _show_moves(moves, output, is_plan=not execute)
    for name in plan.unknown:
        unknown = f'the group "{name}" has no translated offset on "{flow.target}": it was never seen on "{source}"'
        typer.echo(printable(unknown), err=True)
    if not moves and not plan.unknown:
        typer.echo(f'no group that matches "{pattern}" has a translated offset on "{flow.target}"', err=True)
    if not moves or plan.unknown or not all(move.is_good for move in moves):
        raise typer.Exit(EXIT_FAILED)


def _show_moves(moves: list[Move], output: TranslationFormat, *, is_plan: bool) -> None:
    from heliograph.recovery.translate import as_reset_file

    if output is TranslationFormat.CSV:
        typer.echo(exact(as_reset_file(moves)), nl=False)
        return
    conclusion = f"{counted(len(moves), 'offset')}; nothing was written" if is_plan else ""
    rows = [move.row() for move in moves]
    show_rows(rows, OutputFormat(output.value), layouts.MOVES, conclusion=conclusion, worst_first=True)


def _flow_between(settings: Settings, source: str, target: str | None) -> Flow:
    """Finds the one flow from a cluster, to another one if that is named."""
    for option, alias in (("--from", source), ("--to", target)):
        if alias is not None and alias not in settings.clusters:
            known = ", ".join(settings.clusters)
            raise typer.BadParameter(f'there is no cluster "{alias}"; the clusters are: {known}', param_hint=option)
    found = [flow for flow in settings.enabled_flows if flow.source == source and target in (None, flow.target)]
    if not found:
        asked = f'"{source}"' if target is None else f'"{source}" to "{target}"'
        raise typer.BadParameter(f"there is no flow from {asked}; {known_flows(settings)}", param_hint="--from")
    if len(found) > 1:
        raise typer.BadParameter(f'"{source}" has several flows; {known_flows(settings)}', param_hint="--to")
    return found[0]
