"""Medians, ratios and verdicts of the benchmark, and the documents made from a report."""

from __future__ import annotations

from typing import Any

import pytest

from bench.figures import Figure, judge, median_of, ratio, works_of
from bench.report import conclude, is_good, render_page, render_text
from bench.session import describe_systems
from bench.systems import HELIOGRAPH, MM2_DEFAULT, MM2_TUNED
from bench.works import WORKS


def throughput_run(work: str, system: str, mb_per_s: float, mb_per_cpu_s: float, *, lane_mb: float = 0) -> Any:
    result = {
        "mb_per_s": mb_per_s,
        "records_per_s": round(mb_per_s * 1000),
        "mb_per_cpu_s": mb_per_cpu_s,
        "peak_rss_mb": 900.0,
        "peak_lane_rss_mb": lane_mb,
        "first_record_s": 9.0,
    }
    return {"work": work, "system": system, "result": result}


def latency_run(system: str, p50_ms: float, p99_ms: float) -> Any:
    result = {"p50_ms": p50_ms, "p99_ms": p99_ms, "p999_ms": p99_ms, "max_ms": p99_ms, "cpu_s": 1.0, "seconds": 30.0}
    return {"work": "latency", "system": system, "result": result}


def good_runs() -> list[Any]:
    runs = []
    for work in WORKS:
        runs.append(throughput_run(work.name, MM2_DEFAULT, 30, 20))
        runs += [throughput_run(work.name, MM2_TUNED, speed, 40) for speed in (59, 61, 60)]
        runs += [throughput_run(work.name, HELIOGRAPH, speed, 500, lane_mb=150) for speed in (230, 240, 250)]
    runs += [latency_run(MM2_TUNED, 40, 400), latency_run(HELIOGRAPH, 29, 147)]
    idle = {"percent_of_core": 3.2, "peak_lane_rss_mb": 160.0}
    return [*runs, {"work": "idle", "system": HELIOGRAPH, "result": idle}]


def report_of(runs: list[Any]) -> dict[str, Any]:
    return {
        "date": "2026-01-02 03:04 UTC",
        "commit": "0123456789abcdef",
        "changed": False,
        "machine": {"cores": 2, "kafka": "4.3.1"},
        "systems": describe_systems(),
        "runs": runs,
    }


def find_figure(runs: list[Any], work: str, what: str) -> Figure:
    [figure] = [figure for figure in judge(runs) if figure.work == work and what in figure.what]
    return figure


def test_median_of_three_ignores_the_extremes() -> None:
    assert median_of(good_runs(), "1KB", HELIOGRAPH, "mb_per_s") == 240
    assert median_of(good_runs(), "1KB", MM2_TUNED, "mb_per_s") == 60


def test_median_with_a_failed_run_is_none() -> None:
    runs = [*good_runs(), {"work": "1KB", "system": HELIOGRAPH, "error": "stalled"}]
    assert median_of(runs, "1KB", HELIOGRAPH, "mb_per_s") is None
    assert not find_figure(runs, "1KB", "faster").is_met
    assert not is_good(report_of(runs))


def test_a_failed_run_of_mm2_is_left_out_since_it_was_done_again() -> None:
    runs = [{"work": "1KB", "system": MM2_TUNED, "error": "stalled"}, *good_runs()]
    assert median_of(runs, "1KB", MM2_TUNED, "mb_per_s") == 60
    assert is_good(report_of(runs))
    assert median_of(runs[:1], "1KB", MM2_TUNED, "mb_per_s") is None


@pytest.mark.parametrize(
    ("numerator", "denominator", "expected"), [(6, 3, 2), (None, 3, None), (3, None, None), (3, 0, None)]
)
def test_ratio(numerator: float | None, denominator: float | None, expected: float | None) -> None:
    assert ratio(numerator, denominator) == expected


def test_all_figures_of_good_runs_are_met() -> None:
    figures = judge(good_runs())
    assert len(figures) == 2 * 7 + 2 + 1 + 2 + 1 + 1
    assert all(figure.is_met for figure in figures)
    assert is_good(report_of(good_runs()))


def test_works_are_shown_in_one_order_whenever_they_were_measured() -> None:
    runs = sorted(good_runs(), key=lambda run: "-tls" in run["work"])
    assert works_of(runs) == works_of(good_runs()) == [*(work.name for work in WORKS), "latency", "idle"]


def test_a_first_record_that_comes_late_is_missed_and_a_lane_that_is_killed_is_only_shown() -> None:
    runs = [{"work": "resume", "system": HELIOGRAPH, "result": {"resume_s": 5.0}}]
    runs.append({**latency_run(HELIOGRAPH, 30, 900), "work": "latency-lane-kill"})
    [figure] = judge(runs)
    assert (figure.work, figure.is_met) == ("resume", False)
    assert ["latency-lane-kill", "heliograph", "30.0", "900.0"] in [
        line.split()[:4] for line in render_text(report_of(runs)).splitlines()
    ]


def test_looks_and_plans_that_take_too_long_are_missed_by_name() -> None:
    def run(work: str, **result: float) -> Any:
        good = {"refresh_s": 0.6, "look_with_new_s": 1.1, "plan_s": 0.05}
        return {"work": work, "system": HELIOGRAPH, "result": {**good, **result}}

    runs = [run("discovery"), run("discovery-brokers", plan_s=1.0), run("discovery-brokers", plan_s=1.0)]
    figures = judge(runs)
    assert [figure.what for figure in figures if figure.work == "discovery"] == [
        "a refresh of 10,000 partitions on fake clusters",
        "a refresh that finds 50 new topics",
        "the plan for all of them",
    ]
    assert [(figure.work, figure.what) for figure in figures if not figure.is_met] == [
        ("discovery-brokers", "the plan for all of them")
    ]
    assert not find_figure([run("discovery", refresh_s=5.0)], "discovery", "10,000").is_met
    assert "1,500 partitions on real brokers" in render_text(report_of(runs))
    assert "times less CPU" not in render_text(report_of(runs))


def test_figures_only_for_works_that_were_measured() -> None:
    runs = [run for run in good_runs() if run["work"] == "100B"]
    assert {figure.work for figure in judge(runs)} == {"100B", "all"}


@pytest.mark.parametrize(
    ("work", "system", "field", "value", "what"),
    [
        ("1KB", HELIOGRAPH, "mb_per_s", 179.0, "faster"),
        ("1KB-lz4", HELIOGRAPH, "mb_per_cpu_s", 399.0, "less CPU"),
        ("1KB-tls", HELIOGRAPH, "mb_per_s", 119.0, "faster"),
        ("1KB-sasl-ssl", HELIOGRAPH, "mb_per_cpu_s", 119.0, "less CPU"),
        ("200B-single", HELIOGRAPH, "mb_per_s", 119.0, "faster"),
        ("1000-partitions", HELIOGRAPH, "mb_per_s", 60.0, "faster"),
        ("1000-partitions", HELIOGRAPH, "mb_per_cpu_s", 333.0, "our own CPU"),
        ("latency", HELIOGRAPH, "p50_ms", 40.0, "p50"),
        ("latency", HELIOGRAPH, "p99_ms", 200.0, "p99"),
        ("exactly-once", HELIOGRAPH, "mb_per_s", 239.0, "faster"),
        ("factor-3", HELIOGRAPH, "mb_per_s", 119.0, "faster"),
        ("idle", HELIOGRAPH, "percent_of_core", 5.0, "CPU of the whole"),
    ],
)
def test_each_figure_can_be_missed(work: str, system: str, field: str, value: float, what: str) -> None:
    runs = good_runs()
    for run in runs:
        if run["work"] == work and run["system"] == system:
            run["result"][field] = value
    assert not find_figure(runs, work, what).is_met
    assert sum(not figure.is_met for figure in judge(runs)) == 1


def test_lane_memory_is_the_largest_of_all_runs() -> None:
    runs = [*good_runs(), throughput_run("1KB", HELIOGRAPH, 240, 500, lane_mb=300.0)]
    figure = find_figure(runs, "all", "memory")
    assert (figure.value, figure.is_met) == (300.0, False)


@pytest.mark.parametrize(
    ("at_least", "strict", "text"),
    [(True, False, "at least 3"), (True, True, "over 3"), (False, False, "at most 3"), (False, True, "under 3")],
)
def test_bound_in_words_and_at_the_bound(at_least: bool, strict: bool, text: str) -> None:
    figure = Figure(work="w", what="x", value=3, bound=3, at_least=at_least, strict=strict)
    assert figure.required == text
    assert figure.is_met is not strict


def test_text_puts_missed_figures_first_and_concludes() -> None:
    runs = good_runs()
    runs[-1]["result"]["percent_of_core"] = 7.0
    lines = render_text(report_of(runs)).splitlines()
    assert "MISSED" in lines[[line.startswith("work ") and "verdict" in line for line in lines].index(True) + 1]
    assert lines[-1] == conclude(judge(runs), runs) == f"20 of 21 figures met, 0 of {len(runs)} runs failed"


def test_page_names_its_report_and_shows_the_figures() -> None:
    page = render_page({"bench-x.json": report_of(good_runs())})
    assert "1. [reports/bench-x.json](reports/bench-x.json): 2026-01-02 03:04 UTC, commit 0123456\n" in page
    assert "| 1KB | times faster than tuned MM2 | 4.00 | at least 3 | met | 1 |" in page
    assert "`tgt.producer.batch.size=524288`" in page


def test_page_shows_each_work_as_the_last_report_that_measured_it_has_it() -> None:
    delays = [latency_run(MM2_TUNED, 40, 400), latency_run(HELIOGRAPH, 20, 100)]
    page = render_page({"whole.json": report_of(good_runs()), "later.json": report_of(delays)})
    assert "| 1KB | times faster than tuned MM2 | 4.00 | at least 3 | met | 1 |" in page
    assert "| latency | p99, share of tuned MM2's | 0.25 | under 0.5 | met | 2 |" in page
    assert "0.37" not in page
