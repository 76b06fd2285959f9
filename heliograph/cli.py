"""The command line: commands parse, call and render; decisions live elsewhere.

The only place that prints results and exits. Exit codes: 0 done; 1 failed, or not ready; 2 bad arguments;
3 `run` could not start; 130 interrupted.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import heliograph
from heliograph.errors import ConfigError, HeliographError, LabError, ProtocolError
from heliograph.lab import (
    DEFAULT_VERSION,
    SUPPORTED_VERSIONS,
    ClusterSpec,
    Lab,
    parse_cluster_spec,
    read_lab,
    show_progress,
    stop_lab,
)
from heliograph.render import OutputFormat, render_rows

EXIT_FAILED = 1
EXIT_NOT_STARTED = 3
EXIT_INTERRUPTED = 130

app = typer.Typer(
    name="heliograph",
    help="Mirrors Apache Kafka clusters and carries consumers over when one is lost.",
    epilog="Example: heliograph lab up",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
lab_app = typer.Typer(
    help="Real Kafka clusters on this machine, to try things on.",
    epilog="Example: heliograph lab up --cluster primary --cluster backup:3",
    no_args_is_help=True,
)
app.add_typer(lab_app, name="lab")

Output = Annotated[OutputFormat, typer.Option("-o", "--output", help="Form of the result.")]
Folder = Annotated[Path, typer.Option("--folder", help="The lab's folder: data, logs and what runs.")]


def main(arguments: list[str] | None = None) -> int:
    """Run a command; gives the exit code where the command line's library does not exit by itself."""
    try:
        app(spread_clusters(sys.argv[1:] if arguments is None else arguments))
    except HeliographError as error:
        typer.echo(str(error), err=True)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return 0


def spread_clusters(arguments: list[str]) -> list[str]:
    """MM2's `FILE --clusters A B` as the option repeated, which is what the library understands."""
    if "--clusters" not in arguments[2:]:
        return arguments
    at = arguments.index("--clusters", 2) + 1
    end = next((i for i in range(at, len(arguments)) if arguments[i].startswith("-")), len(arguments))
    repeated = [word for alias in arguments[at:end] for word in ("--clusters", alias)]
    return [*arguments[: at - 1], *repeated, *arguments[end:]]


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"heliograph {heliograph.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    _version: Annotated[
        bool,
        typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """Options before the command."""


# run


@app.command(
    epilog="Example: heliograph run mm2.properties --clusters backup --conf spark.driver.memory=1g",
)
def run(
    config: Annotated[Path, typer.Argument(help="MirrorMaker 2 properties.", exists=True, dir_okay=False)],
    clusters: Annotated[
        list[str] | None,
        typer.Option("--clusters", metavar="ALIAS", help="Only flows that end in these."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master; default: local.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated.")
    ] = None,
) -> None:
    """Mirror until stopped by Ctrl-C."""
    from heliograph.mirror.run import leave, run_mirror  # noqa: PLC0415  # Spark takes a while to import

    code = 0
    try:
        run_mirror(config, only_targets=clusters or [], master=master, conf=_parse_conf(conf or []))
    except HeliographError as error:
        typer.echo(str(error), err=True)
        code = EXIT_NOT_STARTED if isinstance(error, ConfigError | ProtocolError) else EXIT_FAILED
    leave(code)


def _parse_conf(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals or not key.startswith("spark."):
            raise typer.BadParameter(f'"{key}" is not of the form spark.key=value', param_hint="--conf")
    return {key: value for key, _, value in pairs}


# lab


def _parse_specs(texts: list[str], version: str) -> list[ClusterSpec]:
    try:
        return [parse_cluster_spec(text, version=version) for text in texts]
    except LabError as error:
        raise typer.BadParameter(str(error)) from error


@lab_app.command("up", epilog="Example: heliograph lab up --cluster primary --cluster backup:3 --cluster old@2.4.1")
def lab_up(
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster", metavar="ALIAS[:BROKERS][@VERSION]", help="A cluster; may be repeated."),
    ] = None,
    kafka_version: Annotated[
        str, typer.Option("--kafka-version", help=f"One of {', '.join(SUPPORTED_VERSIONS)}.")
    ] = DEFAULT_VERSION,
    folder: Folder = Path(".lab"),
) -> None:
    """Start clusters and leave them running; without --cluster two of one broker each, primary and backup."""
    specs = _parse_specs(cluster or ["primary", "backup"], kafka_version)
    with show_progress() as progress, Lab(folder, progress=progress) as lab:
        lab.start(specs)
        bootstraps = [(started.alias, started.bootstrap) for started in lab.clusters]
        lab.detach()
    for alias, bootstrap in bootstraps:
        typer.echo(f"{alias}.bootstrap.servers={bootstrap}")


@lab_app.command("down", epilog="Example: heliograph lab down --purge")
def lab_down(
    purge: Annotated[bool, typer.Option("--purge", help="Remove the logs too.")] = False,
    folder: Folder = Path(".lab"),
) -> None:
    """Stop the clusters and remove their data; logs stay unless --purge is given."""
    stopped = stop_lab(folder, purge=purge)
    kept = "" if purge else f"; logs are in {folder / 'logs'}"
    typer.echo(f"{stopped} broker{'' if stopped == 1 else 's'} stopped, data removed{kept}")


@lab_app.command("status", epilog="Example: heliograph lab status -o json")
def lab_status(output: Output = OutputFormat.TABLE, folder: Folder = Path(".lab")) -> None:
    """Show the brokers; exit code 1 if one is not running."""
    rows = read_lab(folder).status_rows()
    running = sum(row["state"] == "running" for row in rows)
    typer.echo(render_rows(rows, output, conclusion=f"{running} of {len(rows)} brokers running"))
    if running < len(rows):
        raise typer.Exit(EXIT_FAILED)
