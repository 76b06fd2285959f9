"""A mirror that is killed again and again under load, and the comparison after that."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

from heliograph.lab import LabCluster
from tests.cluster.load import Load
from tests.cluster.mirror import Batch, MirrorProcess, View, create_topic, read_batches, unique

SLOW_START_S = 120
TWO_DAYS_MS = 2 * 24 * 3600 * 1000
PARTITIONS = 3


def assert_one_count(batches: list[Batch]) -> None:
    """Every batch carries one producer id and the next sequence, whatever path it took."""
    assert len({(batch.producer_id, batch.producer_epoch) for batch in batches}) == 1
    assert batches[0].producer_id >= 0
    assert batches[0].base_sequence == 0
    for batch, following in pairwise(batches):
        assert following.base_sequence == batch.base_sequence + batch.count
        assert following.base_offset == batch.base_offset + batch.last_offset_delta + 1


def total(view: View) -> int:
    return sum(view.counts() or [])


def have_grown(views: Sequence[View], before: Sequence[int]) -> bool:
    return all(total(view) > count + 500 for view, count in zip(views, before, strict=True))


def mirror_through_kills(
    source: LabCluster, target: LabCluster, folder: Path, moments: Sequence[float], **keys: str
) -> int:
    """Kill the mirror's whole process tree so many seconds after each time it got going, then compare everything.

    Fresh records, one-record batches, compressed ones and records two days old; half way the target's broker is
    restarted, and forgets the producer of old records. Gives the number of records compared.
    """
    prefix = unique("kill")
    topics = [create_topic(source, f"{prefix}-{kind}", PARTITIONS) for kind in ("fresh", "single", "lz4", "old")]
    fresh, single, lz4, old = topics
    views = [View(target, f"{source.alias}.{topic}") for topic in topics]
    clusters = {source.alias: source, target.alias: target}
    mirrored = {f"{source.alias}->{target.alias}.topics": f"{prefix}-.*"}
    mirror = MirrorProcess(folder, clusters, {**mirrored, "tasks.max": "2", **keys})
    rate = {"partitions": PARTITIONS, "per_second": 800}
    with (
        Load(source, [fresh], **rate) as load,
        Load(source, [single], **rate, batch_num_messages=1),
        Load(source, [lz4], **rate, compression_type="lz4"),
        Load(source, [old], **rate, age_ms=TWO_DAYS_MS),
    ):
        for kill, moment in enumerate(moments):
            before = [total(view) for view in views]
            with mirror.until_killed():
                mirror.wait_until(
                    partial(have_grown, views, before), SLOW_START_S, what=f"progress before kill {kill + 1}"
                )
                time.sleep(moment)
            if kill == len(moments) // 2:
                target.stop_broker(1)
                target.start_broker(1)
        assert load.written > 1000
    with mirror:
        for topic, view in zip(topics, views, strict=True):
            mirror.wait_mirrored(View(source, topic), view, timeout_s=SLOW_START_S)
    for topic in topics:
        for partition in range(PARTITIONS):
            assert_one_count(read_batches(target, f"{source.alias}.{topic}", partition))
    assert "UNPROVEN" not in mirror.output
    assert "Traceback" not in mirror.output
    return sum(map(total, views))
