"""The command line: commands parse, call and render; decisions live elsewhere.

The only place that prints results and exits. Exit codes: 0 done; 1 failed, or not ready; 2 bad arguments;
3 `run` could not start; 130 interrupted.
"""

from __future__ import annotations

import asyncio
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

import heliograph
from heliograph.config import Finding, Loaded, Severity, inspect_file, load_settings
from heliograph.config.convert import convert, write_secret_files
from heliograph.config.secrets import Resolver, compare_places
from heliograph.config.settings import Flow, Settings
from heliograph.config.show import ShowFormat, effective, literal_secrets, render_effective
from heliograph.errors import ConfigError, HeliographError, LabError, ProtocolError, StoreUnusable
from heliograph.filters import NameFilter
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
from heliograph.preflight.steps import Step, Verdict, count_verdicts
from heliograph.recovery.forms import By, TranslationFormat
from heliograph.render import OutputFormat, render_rows

if TYPE_CHECKING:
    from heliograph.views.groups import GroupView

EXIT_FAILED = 1
EXIT_NOT_STARTED = 3
EXIT_INTERRUPTED = 130
_IS_SECRET = re.compile(r"(?:[.]secret|password|token|(?:access|secret)[.]key)$", re.IGNORECASE)
"""Of Spark's settings, those whose value is a secret; `spark.kubernetes.*.secrets.NAME` names a folder."""

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
config_app = typer.Typer(
    help="What a configuration means, and the same in the other form.",
    epilog="Example: heliograph config show mm2.properties",
    no_args_is_help=True,
)
secrets_app = typer.Typer(
    help="The secrets that a configuration needs.",
    epilog="Example: heliograph secrets check mirror.yaml --secrets /mnt/secrets",
    no_args_is_help=True,
)
app.add_typer(config_app, name="config")
app.add_typer(secrets_app, name="secrets")
app.add_typer(lab_app, name="lab")

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
        help="Mounted secrets: a folder for each, in it a file for each key.",
        exists=True,
        file_okay=False,
    ),
]
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
    config: Configuration,
    clusters: Annotated[
        list[str] | None,
        typer.Option("--clusters", metavar="ALIAS", help="Only flows that end in these."),
    ] = None,
    master: Annotated[str | None, typer.Option("--master", metavar="URL", help="Spark master; default: local.")] = None,
    conf: Annotated[
        list[str] | None, typer.Option("--conf", metavar="KEY=VALUE", help="Spark setting; may be repeated.")
    ] = None,
    secrets: Secrets = None,
) -> None:
    """Mirror until stopped by Ctrl-C. A changed configuration is taken up while it runs, as far as it can be."""
    from heliograph.run import leave, run_mirror  # noqa: PLC0415  # Spark takes a while to import

    code = 0
    try:
        run_mirror(config, only_targets=clusters or [], master=master, conf=_parse_conf(conf or []), secrets=secrets)
    except HeliographError as error:
        typer.echo(str(error), err=True)
        code = EXIT_NOT_STARTED if isinstance(error, ConfigError | ProtocolError | StoreUnusable) else EXIT_FAILED
    leave(code)


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


# configurations


@app.command(epilog="Example: heliograph check mm2.properties --app-user billing.properties")
def check(
    config: Configuration,
    *,
    offline: Annotated[
        bool, typer.Option("--offline", help="Look at the file alone; a missing secret is a warning.")
    ] = False,
    strict: Annotated[bool, typer.Option("--strict", help="Fail on warnings too.")] = False,
    app_user: Annotated[
        Path | None,
        typer.Option(
            "--app-user",
            metavar="FILE",
            help="Client properties of an application, to try on the targets; its bootstrap.servers are not used.",
            exists=True,
            dir_okay=False,
        ),
    ] = None,
    print_acls: Annotated[
        bool,
        typer.Option(
            "--print-acls",
            help="Print the rights that the configuration needs, and no more, as kafka-acls commands and KafkaUser "
            "resources; looks at no cluster.",
        ),
    ] = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Find what is wrong with a configuration, then with its clusters. Changes nothing. Exit code 1 if anything is."""
    if print_acls:
        _print_acls(config, secrets, output)
        return
    if offline and app_user is not None:
        raise typer.BadParameter("needs the clusters, which --offline leaves out", param_hint="--app-user")
    found, settings = _findings(config, offline=offline, secrets=secrets)
    severities = {severity: sum(finding.severity is severity for finding in found) for severity in Severity}
    if output is OutputFormat.TABLE:
        for finding in found:
            typer.echo(f"{finding.place or config}: {finding.severity}: {finding.text} [{finding.rule}]")
        typer.echo(", ".join(_counted(number, severity) for severity, number in severities.items()))
    steps = [] if offline or settings is None else asyncio.run(_look_at_clusters(settings, app_user))
    verdicts = count_verdicts(steps)
    if output is not OutputFormat.TABLE:
        typer.echo(render_rows([*map(_finding_row, found), *map(_step_row, steps)], output))
    elif steps:
        conclusion = ", ".join(f"{number} {verdict}" for verdict, number in verdicts.items())
        rows = [_table_row(step) for step in steps]
        typer.echo(render_rows(rows, output, conclusion=conclusion))
    is_bad = severities[Severity.ERROR] or verdicts[Verdict.FAIL]
    if is_bad or (strict and (severities[Severity.WARNING] or verdicts[Verdict.WARN])):
        raise typer.Exit(EXIT_FAILED)


def _print_acls(config: Path, secrets: Path | None, output: OutputFormat) -> None:
    from heliograph.mirror.needs import needs_of  # noqa: PLC0415  # takes 0.3 s

    needs = needs_of(load_settings(config, secrets=secrets, offline=True))
    if output is OutputFormat.TABLE:
        typer.echo("\n".join(need.text() for need in needs))
    else:
        typer.echo(render_rows([row for need in needs for row in need.rows()], output))


@app.command(epilog="Example: heliograph status mm2.properties -o json")
def status(config: Configuration, secrets: Secrets = None, output: Output = OutputFormat.TABLE) -> None:
    """Show how the flows stand, by what is written on their targets. Exit code 1 if one is not ready.

    A loss is shown, and its flow is not ready, until it is acknowledged. json and yaml have every loss in full.
    """
    from heliograph.views.status import read_status  # noqa: PLC0415  # takes 0.3 s

    found = asyncio.run(read_status(_load_flows(config, secrets)))
    ready = sum(flow.is_ready for flow in found)
    rows = [flow.row() if output is OutputFormat.TABLE else flow.full_row() for flow in found]
    typer.echo(render_rows(rows, output, conclusion=f"{ready} of {len(found)} flows ready"))
    if ready < len(found):
        raise typer.Exit(EXIT_FAILED)


@app.command(epilog="Example: heliograph acknowledge mm2.properties --flow 'primary->backup' --topic orders")
def acknowledge(
    config: Configuration,
    *,
    name: Annotated[str, typer.Option("--flow", metavar="A->B", help="The flow.")],
    topic: Annotated[str | None, typer.Option("--topic", metavar="TOPIC", help="Only of this source topic.")] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show what there is to acknowledge.")] = False,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Acknowledge what happened to a flow's records: it is ready again, and partitions that stood still go on.

    A partition that stopped goes on behind what was lost; a record that was refused is tried once more, and left out
    if it is refused again. Needs the target alone, and no running mirror.
    """
    from heliograph.recovery.acknowledge import acknowledge as apply  # noqa: PLC0415  # takes 0.3 s

    settings = load_settings(config, secrets=secrets)
    flow = next((flow for flow in settings.enabled_flows if flow.name == name), None)
    if flow is None:
        known = ", ".join(flow.name for flow in settings.enabled_flows) or "none"
        raise typer.BadParameter(f'there is no flow "{name}"; the flows are: {known}', param_hint="--flow")
    losses = asyncio.run(apply(settings, flow, topic=topic, dry_run=dry_run))
    done = "to acknowledge" if dry_run else "acknowledged"
    conclusion = f"{_counted(len(losses), 'loss', 'losses')} {done}" if losses else "nothing to acknowledge"
    typer.echo(render_rows([{"flow": name, **loss.row()} for loss in losses], output, conclusion=conclusion))


@app.command(epilog="Example: heliograph groups mm2.properties --groups 'billing-.*'")
def groups(
    config: Configuration,
    pattern: Annotated[
        str | None, typer.Option("--groups", metavar="PATTERN", help="Only these groups, by a Java regular expression.")
    ] = None,
    secrets: Secrets = None,
    output: Output = OutputFormat.TABLE,
) -> None:
    """Show consumer groups on both clusters of each flow, and what each would read again if it moved now.

    If the source does not answer, what was last seen of it stands on the target. Exit code 1 if a target does not.
    """
    from heliograph.views.groups import read_groups  # noqa: PLC0415  # takes 0.3 s

    wanted = _parse_pattern(pattern)
    found, problems = asyncio.run(read_groups(_load_flows(config, secrets), wanted=wanted))
    if found or not problems or output is not OutputFormat.TABLE:
        _show_groups(found, output)
    for problem in problems:
        typer.echo(problem, err=True)
    if problems:
        raise typer.Exit(EXIT_FAILED)


def _load_flows(config: Path, secrets: Path | None) -> Settings:
    """Of a file without an enabled flow there is nothing to show."""
    settings = load_settings(config, secrets=secrets)
    if not settings.enabled_flows:
        raise ConfigError("no flow is enabled: there is nothing to show", where=settings.file)
    return settings


def _parse_pattern(pattern: str | None) -> NameFilter | None:
    try:
        return None if pattern is None else NameFilter((pattern,))
    except ConfigError as error:
        raise typer.BadParameter(f"{error.what}; {error.why}", param_hint="--groups") from error


def _show_groups(found: Sequence[GroupView], output: OutputFormat) -> None:
    """Two tables, or rows of one shape whose `kind` says which table they are of."""
    group_rows = [view.row() for view in found]
    place_rows = [{"flow": view.flow, **row} for view in found for row in view.place_rows()]
    if output is not OutputFormat.TABLE:
        keys = dict.fromkeys(key for row in (*group_rows, *place_rows) for key in row)
        rows = [("group", row) for row in group_rows] + [("partition", row) for row in place_rows]
        typer.echo(render_rows([{"kind": kind, **dict.fromkeys(keys), **row} for kind, row in rows], output))
        return
    if found:
        typer.echo(render_rows(group_rows, output) + "\n")
    again = sum(view.reread or 0 for view in found)
    conclusion = f"{_counted(len(found), 'group')}, {_counted(again, 'record')} would be read again"
    typer.echo(render_rows(place_rows, output, conclusion=conclusion))


@app.command(epilog="Example: heliograph translate mm2.properties --from primary --group billing --execute")
def translate(
    config: Configuration,
    *,
    source: Annotated[str, typer.Option("--from", metavar="ALIAS", help="The cluster that the groups come from.")],
    target: Annotated[
        str | None, typer.Option("--to", metavar="ALIAS", help="The cluster that they go to, if there are several.")
    ] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="GROUP", help="A group; may be repeated.")
    ] = None,
    pattern: Annotated[
        str | None, typer.Option("--groups", metavar="PATTERN", help="Groups by a Java regular expression.")
    ] = None,
    by: Annotated[By, typer.Option("--by", help="Exactly, or as Java's client does.")] = By.LEDGER,
    execute: Annotated[
        bool, typer.Option("--execute", help="Write the offsets into the groups of the target.")
    ] = False,
    secrets: Secrets = None,
    output: Annotated[
        TranslationFormat, typer.Option("-o", "--output", help="Form of the result; csv is for kafka-consumer-groups.")
    ] = TranslationFormat.TABLE,
) -> None:
    """Show where groups of a lost cluster go on, by what stands on the target alone; --execute moves them there.

    A group that has members on the target is not touched, and none goes backwards. csv is the file that
    kafka-consumer-groups --reset-offsets --from-file reads. Exit code 1 if a group has no translation or was not moved,
    and if there is none.
    """
    from heliograph.recovery.translate import as_reset_file, plan_moves, run_moves  # noqa: PLC0415  # takes 0.3 s

    if not group and pattern is None:
        raise typer.BadParameter("name groups by --group or --groups", param_hint="--group")
    wanted = _parse_pattern(pattern)
    settings = load_settings(config, secrets=secrets)
    flow = _flow_between(settings, source, target)
    plan = plan_moves(settings, flow, names=group or [], wanted=wanted, by=by)
    moves = asyncio.run(run_moves(settings, flow, plan.moves)) if execute else plan.moves
    if output is TranslationFormat.CSV:
        typer.echo(as_reset_file(moves), nl=False)
    else:
        conclusion = f"{_counted(len(moves), 'offset')}; nothing was written" if not execute else ""
        typer.echo(render_rows([move.row() for move in moves], OutputFormat(output.value), conclusion=conclusion))
    for name in plan.unknown:
        typer.echo(f'the group "{name}" has no place on "{flow.target}": it was never seen on "{source}"', err=True)
    if not moves and not plan.unknown:
        typer.echo(
            f'no group like "{pattern}" has a place on "{flow.target}": none was ever seen on "{source}"', err=True
        )
    if not moves or plan.unknown or not all(move.is_good for move in moves):
        raise typer.Exit(EXIT_FAILED)


def _flow_between(settings: Settings, source: str, target: str | None) -> Flow:
    found = [flow for flow in settings.enabled_flows if flow.source == source and target in (None, flow.target)]
    if len(found) != 1:
        known = ", ".join(flow.name for flow in settings.enabled_flows) or "none"
        raise ConfigError(
            f'{"no" if not found else "more than one"} flow from "{source}"' + (f' to "{target}"' if target else ""),
            where=settings.file,
            remedy=f"the flows are: {known}" + ("; choose by --to" if found else ""),
        )
    return found[0]


def _findings(config: Path, *, offline: bool, secrets: Path | None) -> tuple[tuple[Finding, ...], Settings | None]:
    """Settings only if there is no error; a file that cannot be parsed to its end has one more finding, for that."""
    try:
        loaded = inspect_file(config, secrets=secrets, offline=offline)
    except ConfigError as error:
        place = error.details.get("place")
        remedy = error.remedy or error.why
        last = Finding(severity=Severity.ERROR, rule="syntax", what=error.what, place=place, remedy=remedy)
        return (*error.details.get("findings", ()), last), None
    return loaded.findings, loaded.settings


async def _look_at_clusters(settings: Settings, app_user: Path | None) -> list[Step]:
    from heliograph.preflight.check import check_app_user, check_clusters  # noqa: PLC0415  # takes 0.3 s

    steps = await check_clusters(settings)
    return steps if app_user is None else [*steps, *await check_app_user(settings, app_user)]


_STEP_KEYS = ("verdict", "cluster", "role", "step", "subject", "what", "remedy")
_ROW_KEYS = ("kind", "severity", "rule", "file", "line", "column", "key", *_STEP_KEYS)
"""Findings and steps are rows of one shape; `kind` says which it is."""


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
    """With the remedy behind what it cures: a table's last column may be as long as it likes."""
    row = _step_row(step)
    return {**{key: row[key] for key in _STEP_KEYS[:-2]}, "what": "; ".join(filter(None, (step.what, step.remedy)))}


def _counted(number: int, noun: str, nouns: str = "") -> str:
    return f"{number} {noun if number == 1 else nouns or noun + 's'}"


@config_app.command("show", epilog="Example: heliograph config show mm2.properties -o json")
def config_show(
    config: Configuration,
    output: Annotated[ShowFormat, typer.Option("-o", "--output", help="Form of the result.")] = ShowFormat.YAML,
    secrets: Secrets = None,
) -> None:
    """Print the settings in force, each with where it came from. Secrets are not shown."""
    loaded = _load(config, secrets)
    typer.echo(render_effective(effective(loaded.parts), output))


@config_app.command("convert", epilog="Example: heliograph config convert mm2.properties > mirror.yaml")
def config_convert(
    config: Configuration,
    secrets: Secrets = None,
    write_secrets: Annotated[
        Path | None,
        typer.Option(
            "--write-secrets", metavar="DIR", help="Put secrets that stand in the file there.", file_okay=False
        ),
    ] = None,
) -> None:
    """Write properties as a resource, and a resource as properties. Secrets become references."""
    loaded = _load(config, secrets)
    converted = convert(loaded, name=config.stem, resolver=Resolver(folder=secrets))
    typer.echo(converted.text, nl=False)
    if write_secrets is not None:
        write_secret_files(write_secrets, converted.secrets)
    elif converted.secrets:
        names = ", ".join(f"{secret}/{key}" for secret, key in converted.secrets)
        typer.echo(f"secrets that the result refers to: {names}; --write-secrets DIR writes them", err=True)


def _load(config: Path, secrets: Path | None) -> Loaded:
    """A file without errors; secrets need not be there to look at it."""
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
            help="Mounted secrets; give several to compare them.",
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
    typer.echo(render_rows(rows, output, conclusion=f"{_counted(len(rows), 'secret')}, {faults} missing or different"))
    if faults:
        raise typer.Exit(EXIT_FAILED)


# lab


def _parse_specs(texts: list[str], version: str, security: str | None) -> list[ClusterSpec]:
    if security is not None and security not in WAYS:
        raise typer.BadParameter(f'"{security}" is not one of {", ".join(WAYS)}', param_hint="--security")
    try:
        return [
            parse_cluster_spec(text, version=version, authority=Authority() if security else None) for text in texts
        ]
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
    typer.echo(render_rows(rows, output, conclusion=f"{running} of {len(rows)} brokers running"))
    if running < len(rows):
        raise typer.Exit(EXIT_FAILED)
