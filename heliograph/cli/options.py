"""Shared by several commands: options, exit codes, and words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from heliograph.cli.render import OutputFormat
from heliograph.config.settings import Flow, Settings
from heliograph.errors import ConfigError
from heliograph.names.filters import NameFilter
from heliograph.text import printable_lines

EXIT_FAILED = 1
"""Exit code of a failure, or of a check that found something wrong."""
EXIT_NOT_STARTED = 3

Configuration = Annotated[
    Path,
    typer.Argument(
        metavar="CONFIG", help="MirrorMaker 2 properties, or KafkaMirrorMaker2 YAML.", exists=True, dir_okay=False
    ),
]
Secrets = Annotated[
    Path | None,
    typer.Option(
        "--secrets",
        metavar="DIR",
        help="Folder of mounted secrets: a subfolder for each secret, with a file for each key.",
        exists=True,
        file_okay=False,
    ),
]
Output = Annotated[
    OutputFormat, typer.Option("-o", "--output", help="Output format; wide is a table with all columns.")
]


def parse_groups(pattern: str | None) -> NameFilter | None:
    """Parses the value of --groups."""
    try:
        return None if pattern is None else NameFilter((pattern,))
    except ConfigError as error:
        raise typer.BadParameter(f"{error.what}; {error.why}", param_hint="--groups") from error


def exact(text: str) -> str:
    """Returns a file for another tool unchanged; on a terminal control characters are escaped."""
    return printable_lines(text) if sys.stdout.isatty() else text


def counted(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


def flow_named(settings: Settings, name: str) -> Flow:
    """Finds the flow named by --flow."""
    for flow in settings.enabled_flows:
        if flow.name == name:
            return flow
    raise typer.BadParameter(f'there is no flow "{name}"; {known_flows(settings)}', param_hint="--flow")


def known_flows(settings: Settings) -> str:
    return f"the flows are: {', '.join(flow.name for flow in settings.enabled_flows) or 'none'}"
