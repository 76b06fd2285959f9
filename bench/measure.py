"""One throughput run: samples of the target and of the mirror's processes, and the window between two of them."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from bench.offsets import EndOffsets
from bench.systems import RunningSystem, SystemFailed
from bench.works import FIRST_RECORD_LIMIT_S, MB, STALL_LIMIT_S, Work

_PSS_EVERY_S = 2.0
_LINGER_S = 1.0
"""How long a finished run is watched for records too many."""
_CURVE_POINTS = 40


class Sample(NamedTuple):
    """The copy and the mirror's processes at one moment, in seconds since the mirror's start."""

    at_s: float
    records: int
    cpu_s: float
    rss_mb: float
    lane_rss_mb: float


class Window(NamedTuple):
    """From the last sample without records to the first with all of them."""

    start_s: float
    end_s: float
    records: int
    cpu_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def find_window(samples: Sequence[Sample], total: int) -> Window | None:
    """None unless there is a sample before the first record, and one with all."""
    first = next((index for index, sample in enumerate(samples) if sample.records), 0)
    last = next((sample for sample in samples if sample.records >= total), None)
    if first == 0 or last is None:
        return None
    before = samples[first - 1]
    return Window(before.at_s, last.at_s, last.records - before.records, last.cpu_s - before.cpu_s)


def summarise_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Number, distance and a thinned curve, for the report."""
    distances = np.diff([sample.at_s for sample in samples]) if len(samples) > 1 else np.zeros(1)
    copying = [sample for sample in samples if sample.records]
    step = max(1, -(-len(copying) // _CURVE_POINTS))
    thinned = [*copying[::step], *copying[-1:]]
    return {
        "count": len(samples),
        "interval_ms_median": round(float(np.median(distances)) * 1000, 1),
        "interval_ms_max": round(float(distances.max()) * 1000, 1),
        "curve_columns": ["seconds since start", "records", "CPU seconds", "RSS MB"],
        "curve": [[round(s.at_s, 3), s.records, round(s.cpu_s, 2), round(s.rss_mb, 1)] for s in thinned],
    }


def measure_throughput(
    running: RunningSystem, work: Work, *, target_bootstrap: str, copy: str, expected: Sequence[int]
) -> dict[str, Any]:
    """Watch the copy until it is whole; raises SystemFailed if it is not to be, or is not equal in number."""
    total = sum(expected)
    samples: list[Sample] = []
    with EndOffsets(target_bootstrap, copy, work.partitions) as offsets:
        pss_mb = _watch(running, work, offsets, samples, total)
        time.sleep(_LINGER_S)
        found = offsets.fetch()
    got = [] if found is None else found.tolist()
    if got != list(expected):
        raise SystemFailed(f"{copy} has {sum(got)} records, not the {total} of the source, or in other partitions")
    window = find_window(samples, total)
    if window is None:
        raise SystemFailed(f"{copy} had records before the first sample")
    payload_mb = window.records * work.value_bytes / MB
    return {
        "records": window.records,
        "payload_mb": round(payload_mb, 3),
        "first_record_s": round(window.start_s, 3),
        "cpu_before_window_s": round(next(s.cpu_s for s in samples if s.at_s == window.start_s), 2),
        "window": {"start_s": round(window.start_s, 3), "end_s": round(window.end_s, 3)},
        "seconds": round(window.seconds, 3),
        "cpu_s": round(window.cpu_s, 2),
        "mb_per_s": round(payload_mb / window.seconds, 2),
        "records_per_s": round(window.records / window.seconds),
        "mb_per_cpu_s": round(payload_mb / max(window.cpu_s, 0.01), 2),
        "peak_rss_mb": round(max(sample.rss_mb for sample in samples), 1),
        "peak_pss_mb": round(pss_mb, 1),
        "peak_lane_rss_mb": round(max(sample.lane_rss_mb for sample in samples), 1),
        "samples": summarise_samples(samples),
    }


def _watch(running: RunningSystem, work: Work, offsets: EndOffsets, samples: list[Sample], total: int) -> float:
    """Sample until all records are there; gives the peak PSS."""
    records, peak_pss_mb = 0, 0.0
    pss_at = progress_at = time.monotonic()
    while records < total:
        found = offsets.fetch()
        now = time.monotonic()
        tree = running.tree.sample()
        before, records = records, 0 if found is None else int(found.sum())
        samples.append(Sample(now - running.started_at, records, tree.cpu_s, tree.rss_mb, tree.lane_rss_mb))
        progress_at = now if records != before else progress_at
        limit_s = STALL_LIMIT_S if records else FIRST_RECORD_LIMIT_S
        if now - progress_at > limit_s:
            raise SystemFailed(f"{records} of {total} records, then none for {limit_s:.0f} s: {running.log_tail()}")
        running.check_alive()
        if now - pss_at > _PSS_EVERY_S:
            peak_pss_mb = max(peak_pss_mb, running.tree.pss_mb())
            pss_at = now
        time.sleep(max(0.0, now + work.sample_s - time.monotonic()))
    return max(peak_pss_mb, running.tree.pss_mb())
