"""Measures the delay of a steady trickle, from the producer's call on the source to a consumer on the target.

Producer and consumer are librdkafka's, in this process, so that both read one clock; each value begins with its
record's number.
"""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition

from bench.end_offsets import EndOffsets
from bench.systems import RunningSystem, SystemFailed
from bench.works import FIRST_RECORD_LIMIT_S, LatencyWork

_NUMBER = struct.Struct(">q")
_ARRIVAL_LIMIT_S = 120.0
"""Time limit for the last record: MirrorMaker 2 with transactions falls behind by many seconds."""


class Arrival(NamedTuple):
    number: int
    at_ns: int


class Trickle:
    """Sends records at a steady rate from a thread of its own until stopped."""

    def __init__(self, bootstrap: str, topic: str, work: LatencyWork) -> None:
        # No linger: the mirror's delay is measured, not the producer's.
        self._producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})
        self._topic = topic
        self._work = work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._send, name="trickle", daemon=True)
        self.sent_ns: list[int] = []
        """When each record was sent, by number."""

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.flush(10)

    def _send(self) -> None:
        padding = bytes(self._work.value_bytes - _NUMBER.size)
        period_ns = 1_000_000_000 // self._work.records_per_s
        due_ns = time.monotonic_ns()
        while not self._stopping.is_set():
            ahead_ns = due_ns - time.monotonic_ns()
            if ahead_ns > 0:
                time.sleep(ahead_ns / 1e9)
            number = len(self.sent_ns)
            self.sent_ns.append(time.monotonic_ns())
            self._producer.produce(
                self._topic, _NUMBER.pack(number) + padding, partition=number % self._work.partitions
            )
            self._producer.poll(0)
            due_ns += period_ns


def delays_in_window(sent_ns: Sequence[int], arrivals: Sequence[Arrival], *, start_ns: int, end_ns: int) -> list[float]:
    """Returns the delays in ms of records sent in the window. Raises SystemFailed unless each came exactly once."""
    arrived = {arrival.number: arrival.at_ns for arrival in arrivals}
    missing = len(sent_ns) - len(arrived)
    if missing or len(arrivals) != len(arrived):
        raise SystemFailed(f"latency: {missing} records missing, {len(arrivals) - len(arrived)} twice")
    return [(arrived[number] - at) / 1e6 for number, at in enumerate(sent_ns) if start_ns <= at < end_ns]


def summarise_delays(delays_ms: Sequence[float]) -> dict[str, float]:
    percentiles = {"p50_ms": 50, "p90_ms": 90, "p99_ms": 99, "p999_ms": 99.9, "max_ms": 100}
    return {name: round(float(np.percentile(delays_ms, share)), 2) for name, share in percentiles.items()}


def measure_latency(
    running: RunningSystem, work: LatencyWork, *, source_bootstrap: str, target_bootstrap: str, topic: str, copy: str
) -> dict[str, Any]:
    """Starts the trickle, waits for the first record, warms up, measures."""
    trickle = Trickle(source_bootstrap, topic, work)
    consumer = Consumer(
        {"bootstrap.servers": target_bootstrap, "group.id": "bench", "enable.auto.commit": False, "log_level": 0}
    )
    trickle.start()
    try:
        first_record_s = _wait_for_copy(running, target_bootstrap, copy, work.partitions)
        consumer.assign([TopicPartition(copy, number, OFFSET_BEGINNING) for number in range(work.partitions)])
        return {"first_record_s": round(first_record_s, 3), **_measure(running, work, trickle, consumer)}
    finally:
        trickle.stop()
        consumer.close()


def _measure(running: RunningSystem, work: LatencyWork, trickle: Trickle, consumer: Consumer) -> dict[str, Any]:
    arrivals: list[Arrival] = []
    start_ns = time.monotonic_ns() + int(work.warm_up_s * 1e9)
    end_ns = start_ns + int(work.seconds * 1e9)
    _collect(running, consumer, arrivals, until_ns=start_ns)
    before = running.tree.sample()
    if work.kills_lane:
        _collect(running, consumer, arrivals, until_ns=(start_ns + end_ns) // 2)
        running.tree.lanes()[0].kill()
    _collect(running, consumer, arrivals, until_ns=end_ns)
    after = running.tree.sample()
    trickle.stop()
    limit_ns = end_ns + int(_ARRIVAL_LIMIT_S * 1e9)
    _collect(running, consumer, arrivals, until_ns=limit_ns, enough=len(trickle.sent_ns))
    delays_ms = delays_in_window(trickle.sent_ns, arrivals, start_ns=start_ns, end_ns=end_ns)
    gaps_ms = np.diff(trickle.sent_ns) / 1e6
    return {
        "records": len(delays_ms),
        "seconds": work.seconds,
        "cpu_s": round(after.cpu_s - before.cpu_s, 2),
        "rss_mb": round(after.rss_mb, 1),
        "producer_gap_ms_max": round(float(gaps_ms.max()), 2),
        **summarise_delays(delays_ms),
    }


def _collect(
    running: RunningSystem,
    consumer: Consumer,
    arrivals: list[Arrival],
    *,
    until_ns: int,
    enough: int | None = None,
) -> None:
    """Notes arrivals until that time, or until there are enough."""
    while time.monotonic_ns() < until_ns and (enough is None or len(arrivals) < enough):
        message = consumer.poll(0.1)
        at_ns = time.monotonic_ns()
        if message is None:
            running.check_alive()
            continue
        if message.error():
            raise KafkaException(message.error())
        arrivals.append(Arrival(_NUMBER.unpack_from(message.value() or b"")[0], at_ns))


def _wait_for_copy(running: RunningSystem, bootstrap: str, copy: str, partitions: int) -> float:
    """Waits for the first record on the target; returns the seconds since the mirror's start."""
    with EndOffsets(bootstrap, copy, partitions) as offsets:
        while True:
            found = offsets.fetch()
            elapsed_s = time.monotonic() - running.started_at
            if found is not None and found.any():
                return elapsed_s
            if elapsed_s > FIRST_RECORD_LIMIT_S:
                raise SystemFailed(f"no record within {elapsed_s:.0f} s: {running.log_tail()}")
            running.check_alive()
            time.sleep(0.05)
