"""`heliograph config` and `heliograph secrets` show what a configuration means, and which secrets it needs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli import layouts
from heliograph.cli.layouts import show_rows
from heliograph.cli.options import EXIT_FAILED, Configuration, Output, Secrets, counted
from heliograph.cli.render import OutputFormat
from heliograph.config import Loaded, inspect_file
from heliograph.config.convert import convert, write_secret_files
from heliograph.config.secrets import Resolver, compare_places
from heliograph.config.show import ShowFormat, effective, literal_secrets, render_effective

config_app = typer.Typer(
    help="Show what a configuration means, or convert it to the other form.",
    epilog="Example: heliograph config show mm2.properties",
    no_args_is_help=True,
)
secrets_app = typer.Typer(
    help="Check the secrets that a configuration needs.",
    epilog="Example: heliograph secrets check mirror.yaml --secrets /mnt/secrets",
    no_args_is_help=True,
)


@config_app.command("show", epilog="Example: heliograph config show mm2.properties -o json")
def config_show(
    config: Configuration,
    output: Annotated[ShowFormat, typer.Option("-o", "--output", help="Output format.")] = ShowFormat.YAML,
    secrets: Secrets = None,
) -> None:
    """Print the effective settings, each with its origin. Secrets are not shown."""
    loaded = _load(config, secrets)
    typer.echo(render_effective(effective(loaded.parts), output))


@config_app.command("convert", epilog="Example: heliograph config convert mm2.properties > mirror.yaml")
def config_convert(
    config: Configuration,
    secrets: Secrets = None,
    write_secrets: Annotated[
        Path | None,
        typer.Option(
            "--write-secrets",
            metavar="DIR",
            help="Write the secrets found in the file to this folder.",
            file_okay=False,
        ),
    ] = None,
) -> None:
    """Convert a property file to a resource, or a resource to a property file. Secrets become references."""
    loaded = _load(config, secrets)
    converted = convert(loaded, name=config.stem, resolver=Resolver(folder=secrets))
    typer.echo(converted.text, nl=False)
    if write_secrets is not None:
        write_secret_files(write_secrets, converted.secrets)
    elif converted.secrets:
        names = ", ".join(f"{secret}/{key}" for secret, key in converted.secrets)
        typer.echo(f"secrets that the result refers to: {names}; --write-secrets DIR writes them", err=True)


def _load(config: Path, secrets: Path | None) -> Loaded:
    """Loads a file without errors; its secrets need not exist."""
    loaded = inspect_file(config, secrets=secrets, offline=True)
    loaded.raise_errors()
    return loaded


@secrets_app.command("check", epilog="Example: heliograph secrets check mirror.yaml --secrets na/ --secrets eu/")
def secrets_check(
    config: Configuration,
    secrets: Annotated[
        list[Path] | None,
        typer.Option(
            "--secrets",
            metavar="DIR",
            help="Folder of mounted secrets; give several to compare them.",
            exists=True,
            file_okay=False,
        ),
    ] = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """List which secret is needed where, and what is missing or differs. Exit code 1 if anything is."""
    places: list[Path | None] = [*secrets] if secrets else [None]
    loaded = {str(place or "here"): inspect_file(config, secrets=place, offline=True) for place in places}
    first = next(iter(loaded.values()))
    rows = compare_places({place: found.references for place, found in loaded.items()}, literal_secrets(first.parts))
    faults = sum(row["state"] not in ("present", "in clear") for row in rows)
    conclusion = f"{counted(len(rows), 'secret')}, {faults} missing or different"
    show_rows(rows, output, layouts.SECRETS, conclusion=conclusion, worst_first=True)
    if faults:
        raise typer.Exit(EXIT_FAILED)
