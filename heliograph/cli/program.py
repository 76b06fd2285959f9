"""Assembles all commands and runs one: an error becomes a line and an exit code.

Exit codes: 0 done; 1 failed, or not ready; 2 bad arguments; 3 `run` could not start; 130 interrupted.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

import typer

import heliograph
from heliograph.cli.check import check
from heliograph.cli.config import config_app, secrets_app
from heliograph.cli.lab import lab_app
from heliograph.cli.options import EXIT_FAILED
from heliograph.cli.positions import positions_app
from heliograph.cli.recovery import acknowledge, translate
from heliograph.cli.run import prepare, run
from heliograph.cli.views import groups, status, topics
from heliograph.errors import HeliographError

COMMANDS: dict[Callable[..., None], str] = {
    run: "heliograph run mm2.properties --clusters backup --conf spark.driver.memory=1g",
    prepare: "heliograph prepare",
    check: "heliograph check mm2.properties --app-user billing.properties",
    status: "heliograph status mm2.properties -o json",
    topics: "heliograph topics mm2.properties --flow 'primary->backup' --diff",
    acknowledge: "heliograph acknowledge mm2.properties --flow 'primary->backup' --topic orders",
    groups: "heliograph groups mm2.properties --groups 'billing-.*'",
    translate: "heliograph translate mm2.properties --from primary --group billing --execute",
}
"""The commands in the order of the help, each with the example at the end of its own help."""

app = typer.Typer(
    name="heliograph",
    help="Mirrors Apache Kafka clusters, and moves consumers to the copy when one is lost.",
    epilog="Example: heliograph lab up",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)
for command, example in COMMANDS.items():
    app.command(epilog=f"Example: {example}")(command)
app.add_typer(positions_app, name="positions")
app.add_typer(config_app, name="config")
app.add_typer(secrets_app, name="secrets")
app.add_typer(lab_app, name="lab")


def call(arguments: list[str]) -> int:
    """Runs a command; returns the exit code where typer does not exit by itself."""
    try:
        app(spread_clusters(arguments))
    except HeliographError as error:
        typer.echo(str(error), err=True)
        return EXIT_FAILED
    return 0


def spread_clusters(arguments: list[str]) -> list[str]:
    """Rewrites MM2's `FILE --clusters A B` as a repeated option, which typer understands."""
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
