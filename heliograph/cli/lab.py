"""`heliograph lab`: real clusters on this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import EXIT_FAILED, Output
from heliograph.errors import LabError
from heliograph.lab import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    WAYS,
    Authority,
    ClusterSpec,
    Lab,
    parse_cluster_spec,
    read_lab,
    remove_ready_files,
    show_progress,
    stop_lab,
    write_ready_files,
)
from heliograph.render import OutputFormat

lab_app = typer.Typer(
    help="Real Kafka clusters on this machine, to try things on.",
    epilog="Example: heliograph lab up --cluster primary --cluster backup:3",
    no_args_is_help=True,
)
Folder = Annotated[Path, typer.Option("--folder", help="The lab's folder: data, logs and what runs.")]


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
        typer.Option("--security", metavar="NAME", help=f"Secured clusters, and how to come in: {', '.join(WAYS)}."),
    ] = None,
    folder: Folder = Path(".lab"),
) -> None:
    """Start clusters and leave them running; without --cluster two of one broker each, primary and backup.

    With --security the folder gets an mm2.properties and a client file for each cluster; secrets are not shown.
    """
    specs = _parse_specs(cluster or ["primary", "backup"], kafka_version, security)
    with show_progress() as progress, Lab(folder, progress=progress) as lab:
        lab.start(specs)
        if security is None:
            settings = {f"{started.alias}.bootstrap.servers": started.bootstrap for started in lab.clusters}
        else:
            settings = write_ready_files(lab.folder.path, lab.clusters, security)
        lab.detach()
    for key, value in settings.items():
        typer.echo(f"{key}={value}")


@lab_app.command("down", epilog="Example: heliograph lab down --purge")
def lab_down(
    purge: Annotated[bool, typer.Option("--purge", help="Remove the logs too.")] = False,
    folder: Folder = Path(".lab"),
) -> None:
    """Stop the clusters and remove their data; logs stay unless --purge is given."""
    remove_ready_files(folder)
    stopped = stop_lab(folder, purge=purge)
    kept = "" if purge else f"; logs are in {folder / 'logs'}"
    typer.echo(f"{stopped} broker{'' if stopped == 1 else 's'} stopped, data removed{kept}")


@lab_app.command("status", epilog="Example: heliograph lab status -o json")
def lab_status(output: Output = OutputFormat.TABLE, folder: Folder = Path(".lab")) -> None:
    """Show the brokers; exit code 1 if one is not running."""
    rows = read_lab(folder).status_rows()
    running = sum(row["state"] == "running" for row in rows)
    show_rows(rows, output, layouts.LAB, conclusion=f"{running} of {len(rows)} brokers running")
    if running < len(rows):
        raise typer.Exit(EXIT_FAILED)


def _parse_specs(texts: list[str], version: str, security: str | None) -> list[ClusterSpec]:
    if security is not None and security not in WAYS:
        raise typer.BadParameter(f'"{security}" is not one of {", ".join(WAYS)}', param_hint="--security")
    try:
        return [
            parse_cluster_spec(text, version=version, authority=Authority() if security else None) for text in texts
        ]
    except LabError as error:
        raise typer.BadParameter(str(error)) from error
