"""`heliograph lab` runs real Kafka clusters on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import EXIT_FAILED, Output
from heliograph.cli.render import OutputFormat
from heliograph.errors import LabError
from heliograph.lab import (
    DEFAULT_FOLDER,
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    WAYS,
    Act,
    Authority,
    ClusterSpec,
    Lab,
    change_brokers,
    next_commands,
    parse_cluster_spec,
    read_lab,
    remove_ready_files,
    show_progress,
    stop_lab,
    write_ready_files,
)

lab_app = typer.Typer(
    help="Real Kafka clusters on this machine, to try things on.",
    epilog="Example: heliograph lab up --cluster primary --cluster backup:3",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Option("--folder", help="The lab's folder, with data, logs and state.")]
Brokers = Annotated[str, typer.Argument(metavar="CLUSTER[:BROKER]", help="A cluster, or one of its brokers.")]


@lab_app.command("up", epilog="Example: heliograph lab up --cluster primary --cluster backup:3 --cluster old@2.4.1")
def lab_up(
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="ALIAS[:BROKERS][@VERSION]", help="A cluster; may be repeated."),
    ] = None,
    kafka_version: Annotated[
        str, typer.Option("--kafka-version", help=f"One of {', '.join(SUPPORTED_VERSIONS)}.")
    ] = DEFAULT_VERSION,
    security: Annotated[
        str | None,
        typer.Option(
            "--security", metavar="NAME", help=f"Start secured clusters with this kind of login: {', '.join(WAYS)}."
        ),
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Start clusters and leave them running; without --cluster two with one broker each, primary and backup.

    The folder gets an mm2.properties that mirrors the first cluster into the second, and with --security a client
    file for each cluster; secrets are not shown.
    """
    specs = _parse_specs(cluster or ["primary", "backup"], kafka_version, security)
    with show_progress() as progress, Lab(folder, progress=progress) as lab:
        lab.start(specs)
        settings = write_ready_files(lab.folder.path, lab.clusters, security)
        lab.detach()
    for key, value in settings.items():
        typer.echo(f"{key}={value}")
    if commands := next_commands(folder, [spec.alias for spec in specs]):
        typer.echo("\n".join(["", "try next:", *(f"  {command}" for command in commands)]))


@lab_app.command("down", epilog="Example: heliograph lab down --purge")
def lab_down(
    purge: Annotated[bool, typer.Option("--purge", help="Remove the logs too.")] = False,
    folder: Folder = DEFAULT_FOLDER,
) -> None:
    """Stop the clusters and remove their data; logs stay unless --purge is given."""
    remove_ready_files(folder)
    stopped = stop_lab(folder, purge=purge)
    kept = "" if purge else f"; logs are in {folder / 'logs'}"
    typer.echo(f"{stopped} broker{'' if stopped == 1 else 's'} stopped, data removed{kept}")


@lab_app.command("status", epilog="Example: heliograph lab status -o json")
def lab_status(output: Output = OutputFormat.TABLE, folder: Folder = DEFAULT_FOLDER) -> None:
    """Show the brokers; exit code 1 if one is not running."""
    rows = read_lab(folder).status_rows()
    running = sum(row["state"] == "running" for row in rows)
    show_rows(rows, output, layouts.LAB, conclusion=f"{running} of {len(rows)} brokers running")
    if running < len(rows):
        raise typer.Exit(EXIT_FAILED)


@lab_app.command("kill", epilog="Example: heliograph lab kill primary:1")
def lab_kill(which: Brokers, folder: Folder = DEFAULT_FOLDER) -> None:
    """Kill a cluster or one of its brokers at once, as a power cut would; data stays for "lab start"."""
    _change(Act.KILL, which, folder, "killed")


@lab_app.command("stop", epilog="Example: heliograph lab stop backup")
def lab_stop(which: Brokers, folder: Folder = DEFAULT_FOLDER) -> None:
    """Shut a cluster or one of its brokers down in an orderly way; data stays for "lab start"."""
    _change(Act.STOP, which, folder, "stopped")


@lab_app.command("start", epilog="Example: heliograph lab start primary")
def lab_start(which: Brokers, folder: Folder = DEFAULT_FOLDER) -> None:
    """Start again what "lab kill" or "lab stop" ended, with the same port and data, and wait until it answers."""
    _change(Act.START, which, folder, "started")


def _change(act: Act, which: str, folder: Path, done: str) -> None:
    changed = change_brokers(folder, act, which)
    names = ", ".join(f"{broker.alias}:{broker.broker}" for broker in changed)
    typer.echo(f"{names} {done}")


def _parse_specs(texts: list[str], version: str, security: str | None) -> list[ClusterSpec]:
    if security is not None and security not in WAYS:
        raise typer.BadParameter(f'"{security}" is not one of {", ".join(WAYS)}', param_hint="--security")
    try:
        return [
            parse_cluster_spec(text, version=version, authority=Authority() if security else None) for text in texts
        ]
    except LabError as error:
        raise typer.BadParameter(str(error)) from error
