"""Nothing lost, nothing repeated, nothing reordered: kill -9, forgetful brokers, leaders that move."""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from tests.cluster.kills import PARTITIONS, SLOW_START_S, mirror_through_kills, total
from tests.cluster.load import Load
from tests.cluster.mirror import MirrorProcess, View, create_topic, replica_counts, unique, wait_until


def has_grown(load: Load, before: int) -> bool:
    return load.written > before + 500


@pytest.mark.timeout(600)
def test_five_kills_under_load_lose_and_repeat_nothing(primary: LabCluster, backup: LabCluster, tmp_path: Path) -> None:
    mirror_through_kills(primary, backup, tmp_path, [0.0] * 5)


@pytest.mark.long
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", [1, 2])
def test_kills_at_random_moments_lose_and_repeat_nothing(
    primary: LabCluster, backup: LabCluster, tmp_path: Path, seed: int, record_property: Callable[[str, object], None]
) -> None:
    """Turnovers of epochs, flushes and settlings are hit too."""
    chance = random.Random(seed)
    moments = [round(chance.uniform(0, 6), 2) for _ in range(10)]
    record_property("seed", seed)
    record_property("seconds_to_each_kill", moments)
    compared = mirror_through_kills(primary, backup, tmp_path, moments, **{"epoch.ms": "2000"})
    record_property("records_compared", compared)


@pytest.mark.timeout(400)
def test_order_is_kept_when_leaders_move(
    primary: LabCluster, backup: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
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
        assert replica_counts(trio, f"primary.{into}") == [3] * PARTITIONS
        mirror.wait_mirrored(View(trio, out), View(backup, f"trio.{out}"))
    assert "Traceback" not in mirror.output
