"""`python -m bench` runs the whole benchmark, or a part of it.

Exits 0 if every figure is met, 1 if one is missed or a run failed, 130 if interrupted. A whole run at full scale
writes a report to docs/reports and makes docs/benchmarks.md from it; a part only does so with --report.
"""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Annotated, Any

import typer

from bench.figures import judge
from bench.machine import describe_commit, describe_machine
from bench.report import REPORTS, is_good, render_text, write_documents
from bench.session import Session, describe_systems
from bench.works import (
    DISCOVERY_WORKS,
    LATENCY_WORKS,
    LEDGER_WORKS,
    PLAIN,
    RESUME_WORKS,
    WORK_NAMES,
    WORKS,
    GroupsWork,
    IdleWork,
    LatencyWork,
    LoadWork,
)
from heliograph.errors import HeliographError
from heliograph.java import find_java
from heliograph.lab import DEFAULT_VERSION, Lab, ensure_jars

_REPOSITORY = Path(__file__).resolve().parent.parent
_EXIT_MISSED = 1
_EXIT_INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command(epilog="Example: python -m bench --only 1KB --only latency --scale 0.1 --repetitions 1")
def bench(
    *,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="WORK", help=f"Of {', '.join(WORK_NAMES)}; may be repeated.")
    ] = None,
    scale: Annotated[float, typer.Option("--scale", min=0.0001, help="Share of the full volumes.")] = 1.0,
    repetitions: Annotated[int, typer.Option("--repetitions", min=1, help="Of tuned MM2 and heliograph.")] = 3,
    latency_seconds: Annotated[
        float, typer.Option("--latency-seconds", min=1, help="Measured after the warm-up.")
    ] = LatencyWork().seconds,
    idle_seconds: Annotated[
        float, typer.Option("--idle-seconds", min=1, help="Measured after things have settled.")
    ] = IdleWork().seconds,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FILE", help="Write the JSON report here, and no documents.")
    ] = None,
    logs: Annotated[
        Path | None, typer.Option("--logs", metavar="FOLDER", help="Keep the logs of brokers and mirrors here.")
    ] = None,
) -> None:
    """Compare MirrorMaker 2 and heliograph on this machine."""
    works = only or list(WORK_NAMES)
    unknown = [name for name in works if name not in WORK_NAMES]
    if unknown:
        raise typer.BadParameter(f"{', '.join(unknown)}: choose of {', '.join(WORK_NAMES)}", param_hint="--only")
    defaults = (latency_seconds, idle_seconds) == (LatencyWork().seconds, IdleWork().seconds)
    is_whole = not only and scale >= 1 and repetitions >= 3 and defaults
    try:
        result = _measure(
            works,
            scale=scale,
            repetitions=repetitions,
            latencies=[replace(work, seconds=latency_seconds) for work in LATENCY_WORKS],
            idle=IdleWork(seconds=idle_seconds),
            logs=logs,
        )
    except KeyboardInterrupt:
        raise typer.Exit(_EXIT_INTERRUPTED) from None
    path = report or (_report_path(result) if is_whole else None)
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(result, indent=1) + "\n")
        _say(f"report: {path.name}")
    if is_whole and path is not None and report is None:
        write_documents(path)
    print(render_text(result))
    if not is_good(result):
        raise typer.Exit(_EXIT_MISSED)


def _measure(
    works: list[str],
    *,
    scale: float,
    repetitions: int,
    latencies: Sequence[LatencyWork],
    idle: IdleWork,
    logs: Path | None,
) -> dict[str, Any]:
    """Starts the clusters, runs the works, returns the report. Whatever happens, nothing is left running."""
    started = time.monotonic()
    result: dict[str, Any] = {
        "format": 1,
        "date": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        **describe_commit(_REPOSITORY),
        "machine": describe_machine(),
        "scale": scale,
        "repetitions": repetitions,
        "systems": describe_systems(),
    }
    folder = Path(tempfile.mkdtemp(prefix="heliograph-bench-"))
    try:
        with Lab(folder / "lab", progress=lambda subject, message: _say(f"{subject}: {message}")) as lab:
            session = Session(lab, folder, repetitions=repetitions, say=_say, folder_names=_folder_names(folder))
            tasks: list[tuple[str, Callable[[], None]]] = [
                (work.name, partial(session.throughput, work, scale=scale)) for work in WORKS
            ]
            tasks += [
                *((latency.name, partial(session.latency, latency)) for latency in latencies),
                *((resume.name, partial(session.resume, resume)) for resume in RESUME_WORKS),
                (idle.name, partial(session.idle, idle)),
                (LoadWork().name, partial(session.loading, LoadWork())),
                (GroupsWork().name, partial(session.groups, GroupsWork())),
                *((ledger.name, partial(session.ledger, ledger)) for ledger in LEDGER_WORKS),
                *((look.name, partial(session.discovery, look)) for look in DISCOVERY_WORKS),
            ]
            _attempt(session, [task for task in tasks if task[0] in works])
    finally:
        if logs is not None:
            _keep_logs(folder, logs)
        shutil.rmtree(folder, ignore_errors=True)
    figures = [
        {"work": f.work, "what": f.what, "measured": f.measured, "required": f.required, "met": f.is_met}
        for f in judge(session.runs)
    ]
    minutes = round((time.monotonic() - started) / 60, 1)
    return {**result, "minutes": minutes, "figures": figures, "runs": session.runs}


def _attempt(session: Session, tasks: Sequence[tuple[str, Callable[[], None]]]) -> None:
    """Runs one stage after the other: no work shares the machine with listeners and brokers that it does not need."""
    stages = {work.name: work.stage for work in WORKS}
    for stage in dict.fromkeys([PLAIN, *stages.values()]):
        chosen = [task for task in tasks if stages.get(task[0], PLAIN) == stage]
        if chosen:
            session.start(stage)
        for name, do in chosen:
            session.attempt(name, do)


def _folder_names(folder: Path) -> dict[str, str]:
    """Maps this machine's folders to their names in a report."""
    return {
        str(folder): "$BENCH",
        str(ensure_jars(DEFAULT_VERSION)): "$KAFKA_JARS",
        str(_REPOSITORY): "$REPOSITORY",
        sys.prefix: "$ENVIRONMENT",
        str(Path.home()): "$HOME",
        find_java().path: "java",
    }


def _keep_logs(folder: Path, logs: Path) -> None:
    for kind in ("lab/logs", "runs"):
        for file in (folder / kind).glob("*.*"):
            if file.is_file():
                logs.mkdir(parents=True, exist_ok=True)
                shutil.copy(file, logs / file.name)


def _report_path(result: dict[str, Any]) -> Path:
    return REPORTS / f"bench-{result['date'][:10]}-{result['commit'][:7]}.json"


_STARTED = time.monotonic()


def _say(line: str) -> None:
    print(f"{time.monotonic() - _STARTED:7.1f} s  {line}", file=sys.stderr, flush=True)


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main() -> None:
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGHUP, _interrupt)
    try:
        app()
    except HeliographError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
