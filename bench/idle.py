"""Measures what a mirror costs when no records arrive."""

from __future__ import annotations

import time
from typing import Any

from bench.end_offsets import EndOffsets
from bench.systems import RunningSystem, SystemFailed
from bench.works import FIRST_RECORD_LIMIT_S, IdleWork

_SAMPLE_S = 1.0


def measure_idle(running: RunningSystem, work: IdleWork, *, target_bootstrap: str, copy: str) -> dict[str, Any]:
    """Waits until the one record of each partition is copied and the mirror is idle, then measures CPU."""
    with EndOffsets(target_bootstrap, copy, work.partitions) as offsets:
        while True:
            found = offsets.fetch()
            elapsed_s = time.monotonic() - running.started_at
            if found is not None and found.tolist() == [1] * work.partitions:
                break
            if elapsed_s > FIRST_RECORD_LIMIT_S:
                raise SystemFailed(f"idle: not copied within {elapsed_s:.0f} s: {running.log_tail()}")
            running.check_alive()
            time.sleep(0.1)
    time.sleep(work.settle_s)
    started = time.monotonic()
    first = last = running.tree.sample()
    peak_rss_mb = peak_lane_rss_mb = 0.0
    seconds = 0.0
    while seconds < work.seconds:
        time.sleep(min(_SAMPLE_S, work.seconds - seconds))
        running.check_alive()
        last = running.tree.sample()
        seconds = time.monotonic() - started
        peak_rss_mb, peak_lane_rss_mb = max(peak_rss_mb, last.rss_mb), max(peak_lane_rss_mb, last.lane_rss_mb)
    cpu_s = last.cpu_s - first.cpu_s
    return {
        "seconds": round(seconds, 2),
        "cpu_s": round(cpu_s, 2),
        "percent_of_core": round(100 * cpu_s / seconds, 2),
        "first_record_s": round(elapsed_s, 3),
        "peak_rss_mb": round(peak_rss_mb, 1),
        "peak_lane_rss_mb": round(peak_lane_rss_mb, 1),
        "processes": last.processes,
    }
