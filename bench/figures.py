"""Computes medians, ratios and verdicts from raw runs; pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from bench.systems import HELIOGRAPH, MM2_DEFAULT, MM2_TUNED
from bench.works import (
    DISCOVERY_WORKS,
    IDLE_LIMIT_PERCENT,
    LANE_MEMORY_LIMIT_MB,
    LATENCY_WORKS,
    LEDGER_WORKS,
    REFERENCE_WORK,
    RESUME_WORKS,
    WIDE_CPU_FACTOR,
    WIDE_WORK,
    WORKS,
    DiscoveryWork,
    GroupsWork,
    IdleWork,
    LatencyWork,
    LedgerWork,
    LoadWork,
    ResumeWork,
    Work,
)

Run = Mapping[str, Any]

SYSTEM_ORDER = (MM2_DEFAULT, MM2_TUNED, HELIOGRAPH)


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One requirement: its bound and the measured value; None where a run failed or is missing."""

    work: str
    what: str
    value: float | None
    bound: float
    at_least: bool
    strict: bool = False
    unit: str = ""

    @property
    def is_met(self) -> bool:
        if self.value is None:
            return False
        if self.strict and self.value == self.bound:
            return False
        return self.value >= self.bound if self.at_least else self.value <= self.bound

    @property
    def required(self) -> str:
        words = {(True, False): "at least", (True, True): "over", (False, False): "at most", (False, True): "under"}
        return f"{words[self.at_least, self.strict]} {self.bound:g}{self.unit}"

    @property
    def measured(self) -> str:
        if self.value is None:
            return "failed"
        return f"{self.value:.{2 if self.value < 100 else 0}f}{self.unit}"


def select_runs(runs: Iterable[Run], work: str, system: str) -> list[Run]:
    return [run for run in runs if run["work"] == work and run["system"] == system]


def median_of(runs: Iterable[Run], work: str, system: str, field: str) -> float | None:
    """Returns the median of one result; None if no run, or one of ours failed. MM2's failed runs were repeated."""
    chosen = select_runs(runs, work, system)
    good = [run for run in chosen if not run.get("error")]
    if not good or (system == HELIOGRAPH and good != chosen):
        return None
    return float(median(run["result"][field] for run in good))


def ratio(numerator: float | None, denominator: float | None) -> float | None:
    return None if numerator is None or not denominator else numerator / denominator


def works_of(runs: Iterable[Run]) -> list[str]:
    """Lists the works that were measured: those of WORKS in its order, then the others in that of the runs."""
    order = {work.name: index for index, work in enumerate(WORKS)}
    return sorted(dict.fromkeys(run["work"] for run in runs), key=lambda name: order.get(name, len(order)))


def judge(runs: Sequence[Run]) -> list[Figure]:
    """Returns a figure for every requirement on the works that were measured."""
    measured = works_of(runs)
    rules: list[tuple[str, Callable[[], list[Figure]]]] = [
        *((work.name, partial(_throughput_figures, runs, work)) for work in WORKS),
        (WIDE_WORK, partial(_wide_figures, runs, measured)),
        *((latency.name, partial(_latency_figures, runs, latency)) for latency in LATENCY_WORKS),
        *((resume.name, partial(_resume_figures, runs, resume)) for resume in RESUME_WORKS),
        (IdleWork().name, partial(_idle_figures, runs)),
        (LoadWork().name, partial(_load_figures, runs)),
        (GroupsWork().name, partial(_groups_figures, runs)),
        *((ledger.name, partial(_ledger_figures, runs, ledger)) for ledger in LEDGER_WORKS),
        *((look.name, partial(_discovery_figures, runs, look)) for look in DISCOVERY_WORKS),
    ]
    return [figure for work, figures in rules if work in measured for figure in figures()] + _lane_figures(runs)


def _throughput_figures(runs: Sequence[Run], work: Work) -> list[Figure]:
    def versus_tuned(field: str) -> float | None:
        return ratio(median_of(runs, work.name, HELIOGRAPH, field), median_of(runs, work.name, MM2_TUNED, field))

    wall = Figure(
        work=work.name,
        what="times faster than tuned MM2",
        value=versus_tuned("mb_per_s"),
        bound=work.min_wall,
        at_least=True,
        strict=work.min_wall == 1,
    )
    if work.min_cpu is None:
        return [wall]
    cpu = Figure(
        work=work.name,
        what="times less CPU per byte than tuned MM2",
        value=versus_tuned("mb_per_cpu_s"),
        bound=work.min_cpu,
        at_least=True,
    )
    return [wall, cpu]


def _wide_figures(runs: Sequence[Run], measured: Sequence[str]) -> list[Figure]:
    if REFERENCE_WORK not in measured:
        return []
    here = median_of(runs, WIDE_WORK, HELIOGRAPH, "mb_per_cpu_s")
    return [
        Figure(
            work=WIDE_WORK,
            what=f"times our own CPU per byte of {REFERENCE_WORK}",
            value=ratio(median_of(runs, REFERENCE_WORK, HELIOGRAPH, "mb_per_cpu_s"), here),
            bound=WIDE_CPU_FACTOR,
            at_least=False,
        )
    ]


def _latency_figures(runs: Sequence[Run], work: LatencyWork) -> list[Figure]:
    def figure(field: str, label: str, bound: float) -> Figure:
        ours, theirs = (median_of(runs, work.name, system, field) for system in (HELIOGRAPH, MM2_TUNED))
        return Figure(
            work=work.name,
            what=f"{label}, share of tuned MM2's",
            value=ratio(ours, theirs),
            bound=bound,
            at_least=False,
            strict=True,
        )

    bounds = (("p50_ms", "p50", work.max_p50), ("p99_ms", "p99", work.max_p99))
    return [figure(field, label, bound) for field, label, bound in bounds if bound is not None]


def _resume_figures(runs: Sequence[Run], work: ResumeWork) -> list[Figure]:
    return [
        Figure(
            work=work.name,
            what=f"first record after a crash with {work.partitions:,} partitions, once Spark is up",
            value=median_of(runs, work.name, HELIOGRAPH, "resume_s"),
            bound=work.limit_s,
            at_least=False,
            strict=True,
            unit=" s",
        )
    ]


def _idle_figures(runs: Sequence[Run]) -> list[Figure]:
    return [
        Figure(
            work=IdleWork().name,
            what="CPU of the whole process tree",
            value=median_of(runs, IdleWork().name, HELIOGRAPH, "percent_of_core"),
            bound=IDLE_LIMIT_PERCENT,
            at_least=False,
            strict=True,
            unit=" % of a core",
        )
    ]


def _load_figures(runs: Sequence[Run]) -> list[Figure]:
    """Judges the slower of the two file forms."""
    work = LoadWork()
    forms = {run["form"] for run in select_runs(runs, work.name, HELIOGRAPH)}
    times = [median_of([r for r in runs if r.get("form") == form], work.name, HELIOGRAPH, "load_s") for form in forms]
    return [
        Figure(
            work=work.name,
            what=f"loading a file with {work.flows:,} flows",
            value=None if None in times else max(time for time in times if time is not None),
            bound=work.limit_s,
            at_least=False,
            strict=True,
            unit=" s",
        )
    ]


def _groups_figures(runs: Sequence[Run]) -> list[Figure]:
    work = GroupsWork()
    return [
        Figure(
            work=work.name,
            what=f"a pass over {work.groups:,} groups, {work.partitions} partitions each",
            value=median_of(runs, work.name, HELIOGRAPH, "pass_s"),
            bound=work.interval_s,
            at_least=False,
            strict=True,
            unit=" s",
        )
    ]


def _ledger_figures(runs: Sequence[Run], work: LedgerWork) -> list[Figure]:
    what = f"a group translated on {work.partitions:,} partitions of {work.runs:,} runs"

    def figure(field: str, bound: float, unit: str) -> Figure:
        value = median_of(runs, work.name, HELIOGRAPH, field)
        return Figure(work=work.name, what=what, value=value, bound=bound, at_least=False, strict=True, unit=unit)

    return [figure("translate_s", work.limit_s, " s"), figure("peak_mb", work.limit_mb, " MB")]


def _discovery_figures(runs: Sequence[Run], work: DiscoveryWork) -> list[Figure]:
    where = "real brokers" if work.on_brokers else "fake clusters"
    on = f"{work.all_partitions:,} partitions on {where}"

    def figure(what: str, field: str, bound: float) -> Figure:
        value = median_of(runs, work.name, HELIOGRAPH, field)
        return Figure(work=work.name, what=what, value=value, bound=bound, at_least=False, strict=True, unit=" s")

    return [
        figure(f"a refresh of {on}", "refresh_s", work.limit_s),
        figure(f"a refresh that finds {work.new} new topics", "look_with_new_s", work.limit_s),
        figure("the plan for all of them", "plan_s", work.plan_limit_s),
    ]


def _lane_figures(runs: Sequence[Run]) -> list[Figure]:
    if not any(_lane_memories(runs)):
        return []
    return [
        Figure(
            work="all",
            what="memory of a lane's process",
            value=max(_lane_memories(runs)),
            bound=LANE_MEMORY_LIMIT_MB,
            at_least=False,
            strict=True,
            unit=" MB",
        )
    ]


def _lane_memories(runs: Sequence[Run]) -> list[float]:
    """Returns the peaks of heliograph's runs; a failed run has none."""
    return [
        float(run["result"]["peak_lane_rss_mb"])
        for run in runs
        if run["system"] == HELIOGRAPH and not run.get("error") and "peak_lane_rss_mb" in run["result"]
    ]
