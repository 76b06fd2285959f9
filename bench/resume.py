"""Measures how soon a mirror copies again after it was killed in the middle of a wide copy."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from bench.end_offsets import EndOffsets
from bench.systems import RunningSystem, SystemFailed
from bench.works import FIRST_RECORD_LIMIT_S, STALL_LIMIT_S, ResumeWork

_SAMPLE_S = 0.02
_SPARK_IS_UP = "Spark is up"


def measure_resume(
    running: RunningSystem, work: ResumeWork, *, target_bootstrap: str, copy: str, expected: Sequence[int]
) -> dict[str, Any]:
    """Kills the mirror half way and starts it again.

    Returns seconds from Spark's start to the first record and to the last, and the memory of the largest lane until
    then.
    """
    total = sum(expected)
    lane_mb = 0.0
    with EndOffsets(target_bootstrap, copy, work.partitions) as offsets:

        def copied() -> int:
            nonlocal lane_mb
            lane_mb = max(lane_mb, running.tree.sample().lane_rss_mb)
            found = offsets.fetch()
            return 0 if found is None else int(found.sum())

        _wait(running, lambda: copied() >= total // 2, FIRST_RECORD_LIMIT_S, "half of the copy")
        running.crash_and_restart()
        lane_mb = 0.0
        before = copied()
        if before >= total:
            raise SystemFailed("resume: all was copied before the kill")
        _wait(running, lambda: _SPARK_IS_UP in running.log_file.read_text(), FIRST_RECORD_LIMIT_S, "Spark")
        spark_at = time.monotonic()
        _wait(running, lambda: copied() > before, STALL_LIMIT_S, "the first record")
        first_at = time.monotonic()
        _wait(running, lambda: copied() >= total, FIRST_RECORD_LIMIT_S, "the whole copy")
        ended_at = time.monotonic()
        time.sleep(1.0)
        found = offsets.fetch()
    if found is None or found.tolist() != list(expected):
        raise SystemFailed(f"resume: {copy} has not the {total} records of the source, or in other partitions")
    return {
        "copied_before": before,
        "records": total,
        "spark_s": round(spark_at - running.started_at, 3),
        "resume_s": round(first_at - spark_at, 3),
        "whole_s": round(ended_at - spark_at, 3),
        "peak_lane_rss_mb": round(lane_mb, 1),
    }


def _wait(running: RunningSystem, condition: Callable[[], bool], limit_s: float, what: str) -> None:
    began = time.monotonic()
    while not condition():
        if time.monotonic() - began > limit_s:
            raise SystemFailed(f"resume: {what} did not come within {limit_s:.0f} s: {running.log_tail()}")
        running.check_alive()
        time.sleep(_SAMPLE_S)
