"""A mirror that runs for long under load, while topics come and go, grows neither in memory nor in open files, nor in
what its driver remembers."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from tests.cluster.load import Load
from tests.cluster.mirror import MirrorProcess, View, create_topic, delete_topic, produce, unique
from tests.cluster.soak import Sampler, SizedMirror, grown, growth_of

PARTITIONS = 100
PER_SECOND = 5000
MINUTES = float(os.environ.get("SOAK_MINUTES", "20"))
TOPIC_EVERY_S = 60.0
MAX_GROWTH_PERCENT = 5.0
LEAST_SHARE = 0.95
"""Of the load that is wanted; a busy machine may miss some of it."""
FILES_LEEWAY = 4
"""A connection more or less at the moment of a sample is none too many."""
SIZES_LEEWAY = 8
"""A topic or two that come and go, and the tasks that see to them."""
STORED = "ledger"
"""Partitions of topics that are gone stay in the ledger: whoever recreates one is told what became of its copy."""
SHORT = {"retention.bytes": "50000000", "segment.bytes": "10000000", "retention.ms": "-1"}
"""An hour of load does not stay on the disk."""


def wait_for_ten(mirror: MirrorProcess, copy: View) -> None:
    mirror.wait_until(lambda: copy.counts() == [10], 60, what=f"the copy {copy.topic}")


@pytest.mark.long
@pytest.mark.timeout(MINUTES * 60 + 900)
def test_memory_and_open_files_stay_flat_under_load_while_topics_come_and_go(
    primary: LabCluster, backup: LabCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    prefix = unique("soak")
    topic = create_topic(primary, f"{prefix}-load", PARTITIONS, config=SHORT)
    create_topic(backup, f"primary.{topic}", PARTITIONS, config=SHORT)
    keys = {
        "primary->backup.topics": f"{prefix}-.*",
        "tasks.max": "2",
        "primary->backup.emit.heartbeats.enabled": "true",
    }
    with (
        SizedMirror(tmp_path, {"primary": primary, "backup": backup}, keys, on_spark=True) as mirror,
        Load(primary, [topic], partitions=PARTITIONS, per_second=PER_SECOND) as load,
    ):
        view = View(backup, f"primary.{topic}")
        mirror.wait_until(lambda: sum(view.counts() or [0]) > 0, 120, what="the first record")
        with Sampler(mirror, every_s=5.0) as sampler:
            ends_at = time.monotonic() + MINUTES * 60
            for number in itertools.count():
                began = time.monotonic()
                if began >= ends_at:
                    break
                passing = create_topic(primary, f"{prefix}-passing-{number}")
                produce(primary, passing, [b"passing"] * 10)
                wait_for_ten(mirror, View(backup, f"primary.{passing}"))
                delete_topic(primary, passing)
                time.sleep(max(0.0, TOPIC_EVERY_S - (time.monotonic() - began)))
        load.stop()
        source = View(primary, topic)
        mirror.wait_until(lambda: view.counts() == source.counts(), 60, what="the last records")
    assert load.written * PARTITIONS >= LEAST_SHARE * PER_SECOND * MINUTES * 60
    growths = {kind: growth_of(samples) for kind, samples in sampler.samples.items()}
    record_property("minutes", MINUTES)
    record_property("records_written", load.written * PARTITIONS)
    record_property("topics_that_came_and_went", number)
    record_property(
        "growth", {kind: {**found._asdict(), "percent": found.rss_percent} for kind, found in growths.items()}
    )
    sizes = mirror.sizes()
    record_property("sizes", {"first": sizes[0], "last": sizes[-1]})
    assert "Traceback" not in mirror.output
    assert "INTERNAL" not in mirror.output
    assert grown(sizes, leeway=SIZES_LEEWAY).keys() <= {STORED}, (sizes[0], sizes[-1])
    for kind in ("driver", "lanes"):
        assert growths[kind].rss_percent < MAX_GROWTH_PERCENT, growths
    for kind, found in growths.items():
        assert found.files[1] <= found.files[0] + FILES_LEEWAY, (kind, growths)
