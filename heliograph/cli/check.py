"""`heliograph check` finds what is wrong with a configuration, then with its clusters."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import EXIT_FAILED, Configuration, Output, Secrets, counted
from heliograph.cli.render import OutputFormat, render_rows
from heliograph.config import Finding, Severity, inspect_file, load_settings
from heliograph.config.settings import Settings
from heliograph.errors import ConfigError
from heliograph.preflight.steps import Step, Verdict, count_verdicts
from heliograph.text import printable, printable_lines

_STEP_KEYS = ("verdict", "cluster", "role", "step", "subject", "what", "remedy")
_ROW_KEYS = ("kind", "severity", "rule", "file", "line", "column", "key", *_STEP_KEYS)
"""Columns shared by findings and steps; `kind` says which a row is."""


def check(
    config: Configuration,
    *,
    offline: Annotated[
        bool, typer.Option("--offline", help="Check the file only, not the clusters; a missing secret is a warning.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    app_user: Annotated[
        Path | None,
        typer.Option(
            "--app-user",
            metavar="FILE",
            help="Client properties of an application, to try on the targets; its bootstrap.servers are ignored.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    print_acls: Annotated[
        bool,
        typer.Option(
            "--print-acls",
            help="Print the rights that the configuration needs, as kafka-acls commands and KafkaUser "
            "resources; connects to no cluster.",
        ),
    ] = False,
    verbose: Annotated[bool, typer.Option("-v", "--verbose", help="Also show the checks that pass.")] = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Find what is wrong with a configuration, then with its clusters. Changes nothing.

    Exit code 1 if anything is wrong. Checks that pass are only counted; -v shows them, and json, yaml and csv always
    have them.
    """
    if print_acls:
        _print_acls(config, secrets, output)
        return
    if offline and app_user is not None:
        raise typer.BadParameter("cannot be used with --offline: it connects to the clusters", param_hint="--app-user")
    found, settings = _findings(config, offline=offline, secrets=secrets)
    severities = {severity: sum(finding.severity is severity for finding in found) for severity in Severity}
    if output.is_table:
        for finding in found:
            typer.echo(printable(f"{finding.place or config}: {finding.severity}: {finding.text} [{finding.rule}]"))
        typer.echo(", ".join(counted(number, severity) for severity, number in severities.items()))
    steps = [] if offline or settings is None else asyncio.run(_look_at_clusters(settings, app_user))
    verdicts = count_verdicts(steps)
    if not output.is_table:
        typer.echo(render_rows([*map(_finding_row, found), *map(_step_row, steps)], output))
    elif steps:
        shown = [step for step in steps if verbose or step.verdict is not Verdict.PASS]
        conclusion = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
        conclusion += " (-v shows all)" if len(shown) < len(steps) else ""
        rows = [_table_row(step) for step in shown]
        show_rows(rows, output, layouts.CHECK, conclusion=conclusion, worst_first=True)
    is_bad = severities[Severity.ERROR] or verdicts[Verdict.FAIL]
    if is_bad or (strict and (severities[Severity.WARNING] or verdicts[Verdict.WARN])):
        raise typer.Exit(EXIT_FAILED)


def _print_acls(config: Path, secrets: Path | None, output: OutputFormat) -> None:
    from heliograph.rights.needs import needs_of

    needs = needs_of(load_settings(config, secrets=secrets, offline=True))
    if output.is_table:
        typer.echo(printable_lines("\n".join(need.text() for need in needs)))
    else:
        typer.echo(render_rows([row for need in needs for row in need.rows()], output))


def _findings(config: Path, *, offline: bool, secrets: Path | None) -> tuple[tuple[Finding, ...], Settings | None]:
    """Returns all findings, and the settings if there is no error; an unparsable file has one more finding."""
    try:
        loaded = inspect_file(config, secrets=secrets, offline=offline)
    except ConfigError as error:
        place = error.details.get("place")
        remedy = error.remedy or error.why
        last = Finding(severity=Severity.ERROR, rule="syntax", what=error.what, place=place, remedy=remedy)
        return (*error.details.get("findings", ()), last), None
    return loaded.findings, loaded.settings


async def _look_at_clusters(settings: Settings, app_user: Path | None) -> list[Step]:
    from heliograph.preflight.check import check_app_user, check_clusters

    steps = await check_clusters(settings)
    return steps if app_user is None else [*steps, *await check_app_user(settings, app_user)]


def _finding_row(finding: Finding) -> dict[str, str | int | None]:
    place = finding.place
    return dict.fromkeys(_ROW_KEYS) | {
        "kind": "finding",
        "severity": finding.severity,
        "rule": finding.rule,
        "file": place.file if place else None,
        "line": place.line if place else None,
        "column": place.column if place else None,
        "key": finding.key or None,
        "what": finding.what,
        "remedy": finding.remedy or None,
    }


def _step_row(step: Step) -> dict[str, str | int | None]:
    return dict.fromkeys(_ROW_KEYS) | {
        "kind": "step",
        "cluster": step.cluster,
        "role": step.role or None,
        "step": step.step,
        "subject": step.subject or None,
        "verdict": step.verdict,
        "what": step.what,
        "remedy": step.remedy or None,
    }


def _table_row(step: Step) -> dict[str, str | int | None]:
    """Puts the remedy after the fault: the last column of a table may be long."""
    row = _step_row(step)
    return {**{key: row[key] for key in _STEP_KEYS[:-2]}, "what": "; ".join(filter(None, (step.what, step.remedy)))}
