"""Nothing lost, nothing repeated, nothing reordered: kill -9, forgetful brokers, leaders that move."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

from heliograph.lab import Cluster
from tests.cluster.load import Load
from tests.cluster.mirror import Batch, MirrorProcess, View, create_topic, read_batches, unique, wait_until

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


def has_grown(load: Load, before: int) -> bool:
    return load.written > before + 500


def mirror_through_kills(primary: Cluster, backup: Cluster, folder: Path, moments: Sequence[float], **keys: str) -> int:
    """Kill the mirror's whole process tree so many seconds after each time it got going, then compare everything.

    Fresh records, one-record batches, compressed ones and records two days old; half way the target's broker is
    restarted, and forgets the producer of old records. Gives the number of records compared.
    """
    prefix = unique("kill")
    topics = [create_topic(primary, f"{prefix}-{kind}", PARTITIONS) for kind in ("fresh", "single", "lz4", "old")]
    fresh, single, lz4, old = topics
    views = [View(backup, f"primary.{topic}") for topic in topics]
    clusters = {"primary": primary, "backup": backup}
    mirror = MirrorProcess(folder, clusters, {"primary->backup.topics": f"{prefix}-.*", "tasks.max": "2", **keys})
    rate = {"partitions": PARTITIONS, "per_second": 800}
    with (
        Load(primary, [fresh], **rate) as load,
        Load(primary, [single], **rate, batch_num_messages=1),
        Load(primary, [lz4], **rate, compression_type="lz4"),
        Load(primary, [old], **rate, age_ms=TWO_DAYS_MS),
    ):
        for kill, moment in enumerate(moments):
            before = [total(view) for view in views]
            with mirror.until_killed():
                mirror.wait_until(
                    partial(have_grown, views, before), SLOW_START_S, what=f"progress before kill {kill + 1}"
                )
                time.sleep(moment)
            if kill == len(moments) // 2:
                backup.stop_broker(1)
                backup.start_broker(1)
        assert load.written > 1000
    with mirror:
        for topic, view in zip(topics, views, strict=True):
            mirror.wait_mirrored(View(primary, topic), view, timeout_s=SLOW_START_S)
    for topic in topics:
        for partition in range(PARTITIONS):
            assert_one_count(read_batches(backup, f"primary.{topic}", partition))
    assert "UNPROVEN" not in mirror.output
    assert "Traceback" not in mirror.output
    return sum(map(total, views))


@pytest.mark.timeout(600)
def test_five_kills_under_load_lose_and_repeat_nothing(primary: Cluster, backup: Cluster, tmp_path: Path) -> None:
    mirror_through_kills(primary, backup, tmp_path, [0.0] * 5)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_moments_lose_and_repeat_nothing(
    primary: Cluster, backup: Cluster, tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Turnovers of epochs, flushes and settlings are hit too."""
    chance = random.Random(seed)
    moments = [round(chance.uniform(0, 6), 2) for _ in range(10)]
    record_property("seed", seed)
    record_property("seconds_to_each_kill", moments)
    compared = mirror_through_kills(primary, backup, tmp_path, moments, **{"epoch.ms": "2000"})
    record_property("records_compared", compared)


@pytest.mark.timeout(400)
def test_order_is_kept_when_leaders_move(primary: Cluster, backup: Cluster, trio: Cluster, tmp_path: Path) -> None:
    """Three brokers as target of one flow and source of another; each broker is stopped and started under load."""
    into, out = unique("into"), unique("out")
    create_topic(primary, into, PARTITIONS)
    create_topic(trio, out, PARTITIONS, replicas=3)
    keys = {
        "primary->trio.topics": into,
        "trio->backup.topics": out,
        "primary->trio.replication.factor": "3",
        "tasks.max": "2",
        "trio.offset.storage.replication.factor": "3",
    }
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup, "trio": trio}, keys) as mirror:
        with (
            Load(primary, [into], partitions=PARTITIONS, per_second=1000) as load,
            Load(trio, [out], partitions=PARTITIONS, per_second=1000),
        ):
            targets = [View(trio, f"primary.{into}"), View(backup, f"trio.{out}")]
            mirror.wait_until(
                lambda: all(total(view) > 100 for view in targets), SLOW_START_S, what="the first records"
            )
            for broker in (1, 2):
                trio.stop_broker(broker)
                wait_until(partial(has_grown, load, load.written), what="load with a broker down")
                trio.start_broker(broker)
        mirror.wait_mirrored(View(primary, into), View(trio, f"primary.{into}"))
        mirror.wait_mirrored(View(trio, out), View(backup, f"trio.{out}"))
    assert "Traceback" not in mirror.output
