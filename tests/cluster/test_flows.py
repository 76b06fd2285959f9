"""Many flows in one process, on real brokers: a limit is kept to, and a cluster that stands still holds up no other."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator

import pytest

from heliograph.lab import LabCluster
from tests.background import Background
from tests.cluster.load import Load
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    create_topic,
    produce,
    read_batches,
    unique,
)
from tests.cluster.test_changes import edit

RATE = 1_000_000
VALUE_BYTES, PARTITIONS = 10_000, 4
BATCH_BYTES = 150_000
"""Batches are not cut: each is to be a small part of what ten seconds let pass, and too large to be merged."""
SHARE = 0.05
"""Of the rate, over ten seconds."""
LONGEST_S = 4.0
"""Without a new copy, while another cluster stands still: a turnover between epochs and what a busy machine adds."""


@pytest.fixture(scope="module")
def mirror(
    tmp_path_factory: pytest.TempPathFactory, primary: LabCluster, backup: LabCluster, mid: LabCluster
) -> Iterator[MirrorProcess]:
    """Four flows on two slots; one has a limit, which its two lanes share."""
    keys = {
        "primary->backup.topics": "flows-.*",
        "primary->mid.topics": "flows-.*",
        "mid->backup.topics": "flows-.*",
        "backup->primary.topics": "paced-.*",
        "backup->primary.tasks.max": "2",
        "backup->primary.max.bytes.per.second": str(RATE),
    }
    clusters = {"primary": primary, "backup": backup, "mid": mid}
    with MirrorProcess(tmp_path_factory.mktemp("flows"), clusters, keys, arguments=("--master", "local[2]")) as mirror:
        yield mirror


# -- limits


def stored_bytes(cluster: LabCluster, topic: str) -> int:
    """What stands in the broker's files."""
    return sum(batch.size for index in range(PARTITIONS) for batch in read_batches(cluster, topic, index))


@pytest.mark.timeout(400)
def test_a_limit_is_kept_shown_and_changed_while_the_flow_runs(
    mirror: MirrorProcess, primary: LabCluster, backup: LabCluster
) -> None:
    """Two of four partitions have all there is: a lane may have both, and then it is to have all of the limit."""
    topic = create_topic(backup, unique("paced"), PARTITIONS)
    remote = f"backup.{topic}"
    for partition in (0, 1):
        values = [os.urandom(VALUE_BYTES) for _ in range(28 * RATE // VALUE_BYTES)]
        produce(backup, topic, values, partition=partition, batch_size=BATCH_BYTES)

    def stored() -> int:
        return stored_bytes(primary, remote)

    def rate_over(seconds: float) -> float:
        before, began = stored(), time.monotonic()
        time.sleep(seconds)
        return (stored() - before) / (time.monotonic() - began)

    rates: list[float] = []

    def is_reached() -> bool:
        """A busy machine may hold up a flow for a while; more than its limit it never has."""
        rates.append(rate_over(10))
        assert rates[-1] < (1 + SHARE) * RATE
        return rates[-1] > (1 - SHARE) * RATE

    mirror.wait_until(lambda: stored() > RATE, what="a second's worth of copies")
    mirror.wait_until(is_reached, 35, what=f"the limit over ten seconds, after {rates}")
    status = subprocess.run([HELIOGRAPH, "status", str(mirror.config)], capture_output=True, text=True, check=False)
    assert "held back by max.bytes.per.second" in status.stdout.replace("\n", " ")
    mirror.wait_for(", held back by max.bytes.per.second ", 20)

    edit(mirror.config, f"backup->primary.max.bytes.per.second = {2 * RATE}")
    mirror.wait_for("backup->primary: max bytes per second: takes effect now")
    mirror.wait_until(lambda: rate_over(3) > 1.5 * RATE, 20, what="the higher rate")

    edit(mirror.config, "backup->primary.max.bytes.per.second = none")
    mirror.wait_mirrored(View(backup, topic), View(primary, remote), timeout_s=15)
    assert len([line for line in mirror.stderr if ": held back by" in line]) == 1, "told once"


# -- a cluster that stands still


class Arrivals(Background):
    """Watches how long a topic of one partition gets no new record."""

    def __init__(self, view: View) -> None:
        super().__init__()
        self._view = view
        self.longest_s = 0.0

    def run(self) -> None:
        last, at = sum(self._view.counts() or []), time.monotonic()
        while not self.over.wait(0.1):
            now = sum(self._view.counts() or [])
            self.longest_s = max(self.longest_s, time.monotonic() - at)
            if now > last:
                last, at = now, time.monotonic()


@pytest.mark.timeout(400)
def test_a_cluster_that_stands_still_holds_up_no_other(
    mirror: MirrorProcess, primary: LabCluster, backup: LabCluster, mid: LabCluster
) -> None:
    """It is the target of one flow and the source of another; lanes carry those beside the sound one."""
    topic = create_topic(primary, unique("flows-steady"))
    elsewhere = create_topic(mid, unique("flows-elsewhere"))
    copy = View(backup, f"primary.{topic}")
    with Load(primary, [topic], partitions=1, per_second=100) as load:
        produce(mid, elsewhere, [b"before"] * 10)
        mirror.wait_until(lambda: sum(copy.counts() or []) > 100, what="a steady flow")
        mirror.wait_mirrored(View(mid, elsewhere), View(backup, f"mid.{elsewhere}"))
        mirror.wait_until(lambda: sum(View(mid, f"primary.{topic}").counts() or []) > 100, what="the other flow")
        mid.signal_broker(1, signal.SIGSTOP)
        try:
            with Arrivals(copy) as arrivals:
                time.sleep(3)  # lanes and driver notice one after the other
                for _ in range(3):
                    late = create_topic(primary, unique("flows-late"))
                    produce(primary, late, [b"v"])
                    mirror.wait_mirrored(View(primary, late), View(backup, f"primary.{late}"), timeout_s=10)
                    time.sleep(5)
        finally:
            mid.signal_broker(1, signal.SIGCONT)
        assert arrivals.longest_s < LONGEST_S, mirror.output
    assert load.written
    produce(mid, elsewhere, [b"after"] * 10)
    for source, target in (
        (View(primary, topic), copy),
        (View(primary, topic), View(mid, f"primary.{topic}")),
        (View(mid, elsewhere), View(backup, f"mid.{elsewhere}")),
    ):
        mirror.wait_mirrored(source, target, timeout_s=120)
