"""Makes everything that comes from a report: the tables on the terminal, docs/benchmarks.md and its plot.

`python -m bench.report REPORT.json ...` writes the two documents again; no figure in them has another source. If
several reports, given from the oldest to the newest, measured a work, the last one counts.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bench.figures import SYSTEM_ORDER, Figure, Run, judge, median_of, ratio, select_runs, works_of
from bench.plot import draw_plot
from bench.systems import HELIOGRAPH, MM2_TUNED
from bench.works import DISCOVERY_WORKS, LATENCY_WORKS, LEDGER_WORKS, RESUME_WORKS, GroupsWork, IdleWork, LoadWork

Report = Mapping[str, Any]
Table = list[list[str]]

DOCS = Path(__file__).resolve().parent.parent / "docs"
REPORTS = DOCS / "reports"
PAGE = DOCS / "benchmarks.md"
PLOT = DOCS / "benchmarks.png"

_SPECIAL = tuple(
    work.name
    for work in (
        *LATENCY_WORKS,
        *RESUME_WORKS,
        IdleWork(),
        LoadWork(),
        GroupsWork(),
        *LEDGER_WORKS,
        *DISCOVERY_WORKS,
    )
)


def throughput_table(runs: Sequence[Run]) -> Table:
    rows = [
        [
            "work",
            "system",
            "MB/s",
            "records/s",
            "MB per CPU s",
            "wall ratio",
            "CPU ratio",
            "peak MB",
            "first record s",
            "runs",
        ]
    ]
    for work in works_of(runs):
        for system in SYSTEM_ORDER if work not in _SPECIAL else ():
            count = len(select_runs(runs, work, system))
            if not count:
                continue

            def cell(field: str, form: str, work: str = work, system: str = system) -> str:
                value = median_of(runs, work, system, field)
                return "failed" if value is None else format(value, form)

            def versus(field: str, work: str = work, system: str = system) -> str:
                value = ratio(median_of(runs, work, system, field), median_of(runs, work, MM2_TUNED, field))
                return "-" if value is None else f"{value:.2f}"

            rows.append(
                [
                    work,
                    system,
                    cell("mb_per_s", ".1f"),
                    cell("records_per_s", ",.0f"),
                    cell("mb_per_cpu_s", ".1f"),
                    versus("mb_per_s"),
                    versus("mb_per_cpu_s"),
                    cell("peak_rss_mb", ",.0f"),
                    cell("first_record_s", ".1f"),
                    str(count),
                ]
            )
    return rows


def latency_table(runs: Sequence[Run]) -> Table:
    rows = [["work", "system", "p50 ms", "p99 ms", "p99.9 ms", "max ms", "CPU s", "runs"]]
    for work in LATENCY_WORKS:
        for system in SYSTEM_ORDER:
            count = len(select_runs(runs, work.name, system))
            if count:
                fields = ("p50_ms", "p99_ms", "p999_ms", "max_ms", "cpu_s")
                values = [median_of(runs, work.name, system, field) for field in fields]
                cells = ("failed" if value is None else f"{value:.1f}" for value in values)
                rows.append([work.name, system, *cells, str(count)])
    return rows


def figure_table(figures: Sequence[Figure], numbers: Mapping[Figure, int] | None = None) -> Table:
    """Builds the table of figures, missed ones first; with `numbers` of their reports in a last column."""
    rows = [["work", "figure", "measured", "required", "verdict", *(["report"] if numbers else [])]]
    for figure in sorted(figures, key=lambda figure: figure.is_met):
        verdict = "met" if figure.is_met else "MISSED"
        number = [str(numbers[figure])] if numbers else []
        rows.append([figure.work, figure.what, figure.measured, figure.required, verdict, *number])
    return rows


def conclude(figures: Sequence[Figure], runs: Sequence[Run]) -> str:
    met, failed = sum(figure.is_met for figure in figures), sum("error" in run for run in runs)
    return f"{met} of {len(figures)} figures met, {failed} of {len(runs)} runs failed"


def is_good(report: Report) -> bool:
    """Tells whether every figure is met and every run of heliograph succeeded."""
    runs: list[Run] = report["runs"]
    failed = any("error" in run for run in runs if run["system"] == HELIOGRAPH)
    return all(figure.is_met for figure in judge(runs)) and not failed


def render_text(report: Report) -> str:
    """Renders the result for a terminal."""
    runs: list[Run] = report["runs"]
    figures = judge(runs)
    tables = [throughput_table(runs), latency_table(runs), figure_table(figures)]
    texts = [_columns(table) for table in tables if len(table) > 1]
    return "\n\n".join([*texts, conclude(figures, runs)])


def newest(reports: Mapping[str, Report]) -> tuple[list[Run], list[tuple[Figure, int]]]:
    """Returns the runs of each work in the last report that measured it, and the figures with their report's number.

    Figures are judged within their own report: no ratio is between two benchmarks.
    """
    owners = {run["work"]: name for name, report in reports.items() for run in report["runs"]}
    whole = next(iter(reports))
    runs = [run for name, report in reports.items() for run in report["runs"] if owners[run["work"]] == name]
    figures = [
        (figure, number)
        for number, (name, report) in enumerate(reports.items(), 1)
        for figure in judge(report["runs"])
        if owners.get(figure.work, whole) == name
    ]
    return runs, figures


def render_page(reports: Mapping[str, Report]) -> str:
    """Renders docs/benchmarks.md from reports by their names, the oldest first."""
    runs, numbered = newest(reports)
    figures = [figure for figure, _ in numbered]
    report_name, report = list(reports.items())[-1]
    machine = report["machine"]
    sources = "\n".join(
        f"{number}. [reports/{name}](reports/{name}): {one['date']}, commit {one['commit'][:7]}"
        f"{', with changes not committed' if one['changed'] else ''}"
        for number, (name, one) in enumerate(reports.items(), 1)
    )
    facts = "\n".join(f"| {name.replace('_', ' ')} | {value} |" for name, value in machine.items())
    tuned = _settings(report, MM2_TUNED)
    ours = _settings(report, HELIOGRAPH)
    return f"""\
# Benchmarks

Made by `python -m bench.report` from these reports, which have every single run; each work is shown as the last of \
them that measured it has it. {conclude(figures, runs)}.

{sources}

![Speed, CPU and delay compared with MirrorMaker 2](benchmarks.png)

## Figures

Medians of the runs. Ratios are to tuned MirrorMaker 2 (MM2) in the same benchmark: how many times faster, how many \
times less CPU per byte.

{_markdown(figure_table(figures, dict(numbered)))}

## Throughput

{_markdown(throughput_table(runs), numbers_from=2)}

MB are 1,000,000 bytes of record values. "Peak MB" is the resident memory of all processes of the mirror together.

## Delay at 1,000 records a second

{_markdown(latency_table(runs), numbers_from=2)}

CPU seconds are those of all processes of the mirror during the {_seconds(runs)} s measured.

## How it is measured

- Two clusters of one broker each (Kafka {machine["kafka"]}, 1 GB heap, Kafka's own JVM flags), started once, on the \
machine that runs the mirrors and the benchmark too; for factor-3 two of three brokers, every topic with three replicas.
- exactly-once is 1KB once more, read_committed; MM2 has `exactly.once.source.support=enabled` besides and copies in \
transactions, heliograph is as it always is. latency-exactly-once is the delay with the same settings.
- 1KB-tls and 1KB-sasl-ssl are 1KB once more, on two clusters that also have secured listeners; these are started \
after the other works are done, with the first two stopped. Every system comes to source and target in TLS and checks \
the broker's certificate and its host name; the second logs in besides, with SCRAM-SHA-512. Trust stores are PKCS12. \
Version and cipher of TLS are left to Java and OpenSSL. The topic is filled, sampled and counted through the plain \
listener.
- A work's topic is filled once by librdkafka, in batches of about 255 KB, half of each value \
random; one-record batches are written one by one. Every system then copies that topic from its start, under \
a target name, group and storage topics of its own; copies are deleted after each run.
- What each does besides copying: MM2 writes heartbeats, offset syncs and checkpoints, as it does by default; so does \
heliograph in reports from 2026-11-16 08:00 UTC on, beside its positions and its ledger.
- No system is told to compress. MM2 takes the lz4 batches apart and writes records uncompressed; heliograph passes \
batches on as they are.
- Default MM2 runs once and first, on cold brokers; tuned MM2 and heliograph take turns.
- The target's end offsets and the mirror's processes are sampled every 50 ms (100 ms on 1,000 partitions). The window \
begins with the last sample without records and ends with the first that has all, so start-up does not count; it is \
shown apart, as "first record s", from the start of the process.
- CPU is user and system time of the whole process tree within the window: Java, Python, and children that ended.
- At the end each partition of the copy must have exactly as many records as the source's, or the run has failed. A \
failed run of heliograph's fails the benchmark; one of MM2's is counted and done again, since its producer at times \
stalls for good on a sequence error of its own.
- On both clusters `log.index.size.max.bytes` is 256 KB: the first write to an index file of the usual 10 MB makes \
the kernel read ahead, 2 to 14 ms of the broker's CPU on a disk with 8 MB of read-ahead, and 1,000 new partitions then \
measure that instead of a mirror.
- Delay: a producer sends 1,000 records a second of 1 KB to 8 partitions; a librdkafka consumer on the target notes \
when each arrives. Measured after a warm-up, for as long as an epoch of heliograph lasts, so that one change of epochs \
falls within. Every record must arrive exactly once.
- latency-lane-kill: in the middle of the window one of heliograph's lanes gets kill -9; the figures are shown, not \
judged.
- Resume: heliograph is killed in the middle of copying 1,000 partitions and started again; from its Spark's start to \
the first new record on the target.
- settle-memory: the same with one lane, 1 GB of small records in batches of 500 KB and a flush interval of a minute, \
so that every partition has all that was copied before the kill to settle; the memory of the lane counts, and the time \
to the first new record.
- Idle: 100 partitions with nothing flowing; CPU of heliograph's whole process tree over five minutes.
- Loading: a configuration with 1,000 flows, as properties and as resources, each loaded by a fresh interpreter whose \
imports do not count.
- Groups: 4,000 groups of heliograph's source commit anew before each pass; the longest pass counts (reading their \
commits, translating, checkpoints, writing the target's groups), as the mirror tells it, after the first one, which \
makes the groups.
- Ledger: a group is translated by `MirrorClient` in a fresh interpreter, from a ledger of runs of three records with \
a marker between; the time is that of the call, the memory that of the process.
- Discovery: the driver's side of a flow looks at its topics, without Spark, on the fake clusters of the tests (a \
process of their own, whose time to answer counts) and on the two real ones. The longest of five looks that find \
nothing new counts, then one that finds 50 new topics, makes their copies and opens their counts; the plan is that for \
two lanes.

## Settings

All systems get the same file with one flow, a replica on each broker, the same security settings where there are any, \
and besides:

| system | settings |
|---|---|
| mm2-default | none |
| mm2-tuned | {tuned} |
| heliograph | {ours} |

## Machine

| | |
|---|---|
{facts}

## Run it

```
make bench                              # everything, about 40 minutes; exits 1 when a figure is missed
.venv/bin/python -m bench --only 1KB --scale 0.1 --repetitions 1
.venv/bin/python -m bench.report docs/reports/{report_name}
```

Nothing else should run on the machine meanwhile.
"""


def write_documents(*report_files: Path) -> None:
    reports = {file.name: json.loads(file.read_text()) for file in report_files}
    PAGE.write_text(render_page(reports))
    draw_plot(newest(reports)[0], PLOT)


def _settings(report: Report, name: str) -> str:
    [system] = [system for system in report["systems"] if system["name"] == name]
    return "<br>".join(f"`{key}={value}`" for key, value in system["settings"].items())


def _seconds(runs: Sequence[Run]) -> str:
    value = median_of(runs, LATENCY_WORKS[0].name, HELIOGRAPH, "seconds")
    return "-" if value is None else f"{value:.0f}"


def _columns(table: Table) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    right = [all(_is_number(cell) for cell in column[1:]) for column in zip(*table, strict=True)]
    lines = [
        "  ".join(
            cell.rjust(width) if is_right else cell.ljust(width)
            for cell, width, is_right in zip(row, widths, right, strict=True)
        )
        for row in table
    ]
    return "\n".join(line.rstrip() for line in lines)


def _is_number(cell: str) -> bool:
    return cell in {"-", "failed"} or cell.replace(",", "").replace(".", "", 1).isdigit()


def _markdown(table: Table, *, numbers_from: int | None = None) -> str:
    rule = ["---:" if numbers_from is not None and index >= numbers_from else "---" for index in range(len(table[0]))]
    return "\n".join(f"| {' | '.join(row)} |" for row in [table[0], rule, *table[1:]])


def main(arguments: Sequence[str]) -> int:
    if not arguments:
        print("usage: python -m bench.report REPORT.json ...", file=sys.stderr)
        return 2
    write_documents(*map(Path, arguments))
    print(f"{PAGE.name} and {PLOT.name} written")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
