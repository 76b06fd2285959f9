"""Measures one throughput run: samples the target and the mirror's processes, and finds the window."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from bench.end_offsets import EndOffsets
from bench.systems import RunningSystem, SystemFailed
from bench.works import FIRST_RECORD_LIMIT_S, MB, STALL_LIMIT_S, Work

_PSS_EVERY_S = 2.0
_LINGER_S = 1.0
"""How long a finished run is watched for surplus records."""
_CURVE_POINTS = 40
_COUNT_LIMIT_S = 30.0
_QUIET_S = 3.0
"""Where end offsets count more than records, the copy is complete when they have not moved for this long."""


class Sample(NamedTuple):
    """The copy and the mirror's processes at one moment, in seconds since the mirror's start."""

    at_s: float
    records: int
    cpu_s: float
    rss_mb: float
    lane_rss_mb: float


class Window(NamedTuple):
    """The time from the last sample without records to the first with all of them."""

    start_s: float
    end_s: float
    records: int
    cpu_s: float

    @property
    def seconds(self) -> float:
        return self.end_s - self.start_s


def find_window(samples: Sequence[Sample], total: int) -> Window | None:
    """Finds the window; None unless there is a sample before the first record, and one with all."""
    first = next((index for index, sample in enumerate(samples) if sample.records), 0)
    last = next((sample for sample in samples if sample.records >= total), None)
    if first == 0 or last is None:
        return None
    before = samples[first - 1]
    return Window(before.at_s, last.at_s, last.records - before.records, last.cpu_s - before.cpu_s)


def summarise_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Returns number, interval and a thinned curve of the samples, for the report."""
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
    running: RunningSystem, work: Work, *, target_bootstrap: str, copy: str, expected: Sequence[int], markers: bool
) -> dict[str, Any]:
    """Watches the copy until it is complete; raises SystemFailed if it stalls or the number of records differs.

    With `markers` the mirror writes in transactions, and end offsets count their markers too: then the copy is
    complete at the last of them, and its records are counted by reading them.
    """
    total = sum(expected)
    samples: list[Sample] = []
    with EndOffsets(target_bootstrap, copy, work.partitions) as offsets:
        pss_mb = _watch(running, work, offsets, samples, total, quiet_s=_QUIET_S if markers else 0.0)
        time.sleep(_LINGER_S)
        found = offsets.fetch()
    got = [] if found is None else found.tolist()
    if markers:
        if sum(got) == total:
            raise SystemFailed(f"{copy} has no marker of a transaction: it was not copied in any")
        got = count_records(target_bootstrap, copy, work.partitions)
    if got != list(expected):
        raise SystemFailed(f"{copy} has {sum(got)} records, not the {total} of the source, or in other partitions")
    window = find_window(samples, samples[-1].records)
    if window is None:
        raise SystemFailed(f"{copy} had records before the first sample")
    records = total if markers else window.records
    payload_mb = records * work.value_bytes / MB
    return {
        "records": records,
        "payload_mb": round(payload_mb, 3),
        "first_record_s": round(window.start_s, 3),
        "cpu_before_window_s": round(next(s.cpu_s for s in samples if s.at_s == window.start_s), 2),
        "window": {"start_s": round(window.start_s, 3), "end_s": round(window.end_s, 3)},
        "seconds": round(window.seconds, 3),
        "cpu_s": round(window.cpu_s, 2),
        "mb_per_s": round(payload_mb / window.seconds, 2),
        "records_per_s": round(records / window.seconds),
        "mb_per_cpu_s": round(payload_mb / max(window.cpu_s, 0.01), 2),
        "peak_rss_mb": round(max(sample.rss_mb for sample in samples), 1),
        "peak_pss_mb": round(pss_mb, 1),
        "peak_lane_rss_mb": round(max(sample.lane_rss_mb for sample in samples), 1),
        "samples": summarise_samples(samples),
    }


def count_records(bootstrap: str, topic: str, partitions: int) -> list[int]:
    """Counts the records of each partition by reading all of them, without markers and aborted records."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed",
            "log_level": 0,
        }
    )
    counts, left = [0] * partitions, set(range(partitions))
    try:
        consumer.assign([TopicPartition(topic, number, OFFSET_BEGINNING) for number in range(partitions)])
        while left:
            messages = consumer.consume(10_000, timeout=_COUNT_LIMIT_S)
            if not messages:
                raise SystemFailed(f"{topic} cannot be read to its end")
            for message in messages:
                error, partition = message.error(), message.partition()
                if error is None and partition is not None:
                    counts[partition] += 1
                elif error is not None and error.code() == KafkaError._PARTITION_EOF and partition is not None:
                    left.discard(partition)
                else:
                    raise KafkaException(error)
    finally:
        consumer.close()
    return counts


def _watch(
    running: RunningSystem, work: Work, offsets: EndOffsets, samples: list[Sample], total: int, *, quiet_s: float
) -> float:
    """Samples until all records have arrived and nothing moves; returns the peak PSS."""
    records, peak_pss_mb = 0, 0.0
    pss_at = progress_at = time.monotonic()
    while records < total or time.monotonic() - progress_at < quiet_s:
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
