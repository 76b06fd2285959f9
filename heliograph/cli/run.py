"""`heliograph run` runs the mirror."""

from __future__ import annotations

import re
from typing import Annotated

import typer

from heliograph.cli import EXIT_INTERRUPTED
from heliograph.cli.options import EXIT_FAILED, EXIT_NOT_STARTED, Configuration, Secrets
from heliograph.errors import ConfigError, HeliographError, StoreUnusable
from heliograph.logs import LogLevel

_IS_SECRET = re.compile(r"(?:[.]secret|password|token|(?:access|secret)[.]key)$", re.IGNORECASE)
"""Matches Spark settings whose value is a secret; `spark.kubernetes.*.secrets.NAME` names a folder instead."""


def run(
    config: Configuration,
    *,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--clusters", metavar="ALIAS", help="Only flows into this cluster; may be repeated."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master; default: local.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated.")
    ] = None,
    log_level: Annotated[LogLevel, typer.Option("--log-level", help="Lowest level that is logged.")] = LogLevel.INFO,
    secrets: Secrets = None,
) -> None:
    """Mirror until stopped by Ctrl-C. Changes of the configuration file take effect while it runs, where possible.

    Progress goes to the standard output, the rest of the log to the standard error; with LOG_DIR in the environment
    both also go to heliograph.log in that folder.
    """
    from heliograph.run import leave, run_mirror

    code = 0
    try:
        run_mirror(
            config,
            only_targets=clusters or [],
            master=master,
            conf=_parse_conf(conf or []),
            secrets=secrets,
            log_level=log_level,
        )
    except HeliographError as error:
        typer.echo(str(error), err=True)
        code = EXIT_NOT_STARTED if isinstance(error, ConfigError | StoreUnusable) else EXIT_FAILED
    leave(code)


def prepare() -> None:
    """Store the Java classes that Spark loads next to the Python packages: Spark then starts in half the time."""
    from heliograph.driver.spark.epochs import make_archive
    from heliograph.driver.spark.jvm_class_archive import archive_path
    from heliograph.java import find_java
    from heliograph.run import leave

    find_java()
    archive = archive_path()
    if archive.is_file():
        typer.echo(f"{archive} exists already")
        return
    try:
        make_archive(archive)
    except KeyboardInterrupt:
        leave(EXIT_INTERRUPTED)
    typer.echo(f"{archive}: {archive.stat().st_size / 1e6:.0f} MB; every start with this Java and Spark uses it")


def _parse_conf(texts: list[str]) -> dict[str, str]:
    pairs = [text.partition("=") for text in texts]
    for key, equals, _ in pairs:
        if not equals or not key.startswith("spark."):
            raise typer.BadParameter(f'"{key}" is not of the form spark.key=value', param_hint="--conf")
        if _IS_SECRET.search(key) and ".secrets." not in key:
            raise typer.BadParameter(
                f'"{key}" is a secret, and every user of this machine can read command lines: write it into the '
                "configuration file, there best as ${file:/path:key}",
                param_hint="--conf",
            )
    return {key: value for key, _, value in pairs}
