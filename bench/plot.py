"""Draws the picture in docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl

mpl.use("Agg")

from matplotlib import pyplot as plt
from matplotlib.axes import Axes

from bench.figures import SYSTEM_ORDER, Run, median_of, ratio, works_of
from bench.systems import HELIOGRAPH, MM2_DEFAULT, MM2_TUNED
from bench.works import WORKS, LatencyWork

_COLOURS = {MM2_DEFAULT: "#b8b8b8", MM2_TUNED: "#6f7f8f", HELIOGRAPH: "#e08a1e"}
_HATCHES = {MM2_DEFAULT: "..", MM2_TUNED: "//", HELIOGRAPH: ""}


def draw_plot(runs: Sequence[Run], path: Path) -> None:
    """Draws ratios to tuned MM2 in speed and CPU, and the delays."""
    figure, (wall, cpu, delay) = plt.subplots(1, 3, figsize=(14, 4.4), width_ratios=(5, 5, 3))
    minimum = {work.name: (work.min_wall, work.min_cpu) for work in WORKS}
    _ratios(wall, runs, "mb_per_s", "times as fast as tuned MM2", {n: m[0] for n, m in minimum.items()})
    _ratios(cpu, runs, "mb_per_cpu_s", "bytes per CPU second, tuned MM2 = 1", {n: m[1] for n, m in minimum.items()})
    _delays(delay, runs)
    figure.tight_layout()
    figure.savefig(path, dpi=110, metadata={"Software": None})
    plt.close(figure)


def _ratios(axes: Axes, runs: Sequence[Run], field: str, title: str, minimum: dict[str, float | None]) -> None:
    works = [work.name for work in WORKS if work.name in works_of(runs)]
    for column, system in enumerate(SYSTEM_ORDER):
        values = [
            ratio(median_of(runs, work, system, field), median_of(runs, work, MM2_TUNED, field)) for work in works
        ]
        _bars(axes, column, [value or 0.0 for value in values], system)
    for index, work in enumerate(works):
        bound = minimum[work]
        if bound is not None:
            axes.hlines(bound, index - 0.45, index + 0.45, colors="black", linestyles="dashed", linewidth=1)
    axes.set_xticks(range(len(works)), works, rotation=20)
    axes.set_title(f"{title}\n(dashed: required)", fontsize=10)
    if works:
        axes.legend(fontsize=8)


def _delays(axes: Axes, runs: Sequence[Run]) -> None:
    fields = ("p50_ms", "p99_ms")
    for column, system in enumerate(SYSTEM_ORDER):
        values = [median_of(runs, LatencyWork().name, system, field) for field in fields]
        _bars(axes, column, [value or 0.0 for value in values], system)
    axes.set_xticks(range(len(fields)), ["p50", "p99"])
    axes.set_title("delay at 1,000 records/s, ms", fontsize=10)


def _bars(axes: Axes, column: int, values: Sequence[float], system: str) -> None:
    positions = [index + (column - 1) * 0.28 for index in range(len(values))]
    bars = axes.bar(
        positions, values, width=0.26, color=_COLOURS[system], hatch=_HATCHES[system], edgecolor="white", label=system
    )
    axes.bar_label(bars, labels=[_label(value) for value in values], fontsize=7)


def _label(value: float) -> str:
    if not value:
        return ""
    return f"{value:,.0f}" if value >= 100 else f"{value:.2g}" if value < 1 else f"{value:.1f}"
