"""Two processes of one configuration: one leads, the other takes over when it dies, stands still or stops."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.kafka.cluster import Cluster as Client
from heliograph.kafka.log import _produce
from heliograph.kafka.security.client_security import PLAINTEXT
from heliograph.kafka.types import TopicPartition
from heliograph.lab import LabCluster
from tests.cluster.limited import ask
from tests.cluster.load import Load
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    assert_numbered,
    create_topic,
    producer,
    read_batches,
    unique,
    wait_until,
)

PARTITIONS = 2
SLOW_START_S = 400.0
TAKE_OVER_S = 30.0
"""A third of it on a machine that has nothing else to do."""
PROMISED_S = 10.0
TURNS, FREEZES = 4, 2
HOST = socket.gethostname()
_WAITS = ", and waits for a flow to copy"


class Pair:
    """Two mirrors of one topic, started at the same moment, one of them on Spark."""

    def __init__(self, primary: LabCluster, backup: LabCluster, folder: Path) -> None:
        self._primary, self._backup = primary, backup
        self.topic = create_topic(primary, unique("standby"), PARTITIONS)
        self.source, self.target = View(primary, self.topic), View(backup, f"primary.{self.topic}")
        clusters = {"primary": primary, "backup": backup}
        one = MirrorProcess(folder, clusters, {"primary->backup.topics": self.topic, "tasks.max": "2"})
        self.mirrors = (one, MirrorProcess(folder, clusters, one.keys, on_spark=True))

    def sort(self) -> tuple[MirrorProcess, MirrorProcess]:
        """(who leads, who stands by), when both know."""
        one, other = self.mirrors
        wait_until(lambda: one.output and other.output, SLOW_START_S)
        wait_until(lambda: _leads(one) or _leads(other), SLOW_START_S, what="a leader")
        leader, standby = (one, other) if _leads(one) else (other, one)
        standby.wait_for(f"host {HOST} (pid {leader.process.pid}) leads; standing by", SLOW_START_S)
        assert not _leads(standby)
        return leader, standby

    def total(self) -> int:
        return sum(self.target.counts() or [])

    def wait_progress(self, mirror: MirrorProcess, timeout_s: float) -> float:
        """The seconds until something more is copied."""
        before, began = self.total(), time.monotonic()
        mirror.wait_until(lambda: self.total() > before, timeout_s, what="a copied record")
        return time.monotonic() - began

    def forestall(self, mirror: MirrorProcess, count: int) -> None:
        """Write new records of the source to the target with the flow's producer id and next sequence: as a second
        leader would whose batch comes when the first one has looked at the target for the last time.

        The mirror stands still meanwhile, for much less than its lease; so all is prepared before.
        """
        now_ms = int(time.time() * 1000)
        records = [NewRecord(now_ms, b"key", b"late %d" % number) for number in range(count)]
        last = read_batches(self._backup, self.target.topic)[-1]
        batch = encode_batch(
            records,
            producer_id=last.producer_id,
            producer_epoch=last.producer_epoch,
            base_sequence=last.base_sequence + last.count,
        )
        where = TopicPartition(self.target.topic, 0)
        sender = producer(self._primary, linger_ms=0)
        sender.list_topics(self.topic, 10)

        async def send(client: Client) -> tuple[int, int]:
            await client.refresh([where.topic])
            leader = client.catalogue.leader_of(*where)
            assert leader is not None
            await client.connection(leader, "append")
            with mirror.frozen():
                for record in records:
                    sender.produce(self.topic, record.value, record.key, 0, timestamp=now_ms)
                assert sender.flush(10) == 0
                return (await _produce(client, leader, [(where, batch)]))[where]

        assert ask(self._backup.bootstrap, PLAINTEXT, send) == (0, last.base_offset + last.count)

    def status(self) -> dict[str, Any]:
        command = [HELIOGRAPH, "status", str(self.mirrors[0].config), "-o", "json"]
        [row] = json.loads(subprocess.run(command, check=False, capture_output=True).stdout)
        return dict(row)


def _leads(mirror: MirrorProcess) -> bool:
    return "primary->backup: leading" in mirror.output


def note(what: str, seconds: float) -> None:
    sys.stdout.write(f"copying goes on {seconds:.1f} s after the leader {what}\n")
    sys.stdout.flush()


def _wait_for_spark(standby: MirrorProcess, starts: int) -> None:
    standby.wait_until(lambda: standby.output.count(_WAITS) >= starts, SLOW_START_S, what="the standby's Spark")


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_standby_takes_over_within_ten_seconds(
    primary: LabCluster, backup: LabCluster, tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """From the leader's death, or SIGSTOP, to the first record copied after it; a machine with nothing else to do.

    A process that stands still is not known to be dead: its lease (6 s) has to pass.
    """
    pair = Pair(primary, backup, tmp_path)
    one, other = pair.mirrors
    killed: list[float] = []
    frozen: list[float] = []
    with one, other, Load(primary, [pair.topic], partitions=PARTITIONS, per_second=400):
        leader, standby = pair.sort()
        _wait_for_spark(standby, 1)
        for _ in range(TURNS):
            pair.wait_progress(leader, SLOW_START_S)
            began = time.monotonic()
            leader.kill()
            standby.wait_for(f"(pid {leader.process.pid}), who led, is dead", SLOW_START_S)
            pair.wait_progress(standby, SLOW_START_S)
            killed.append(round(time.monotonic() - began, 1))
            waited = leader.output.count(_WAITS)
            leader.start()
            leader, standby = standby, leader
            _wait_for_spark(standby, waited + 1)
        for _ in range(FREEZES):
            pair.wait_progress(leader, SLOW_START_S)
            began = time.monotonic()
            with leader.frozen():
                standby.wait_for(f"taking over from host {HOST} (pid {leader.process.pid}), silent for", SLOW_START_S)
                pair.wait_progress(standby, SLOW_START_S)
                frozen.append(round(time.monotonic() - began, 1))
            leader.wait_for(f"host {HOST} (pid {standby.process.pid}) leads now; standing by", SLOW_START_S)
            leader, standby = standby, leader
    record_property("seconds_to_the_first_record", killed)
    record_property("seconds_after_sigstop", frozen)
    assert max(killed) < PROMISED_S, killed
    assert max(frozen) < PROMISED_S, frozen


@pytest.mark.timeout(900)
def test_a_standby_takes_over_and_the_copy_stays_exact(primary: LabCluster, backup: LabCluster, tmp_path: Path) -> None:
    pair = Pair(primary, backup, tmp_path)
    one, other = pair.mirrors
    with one, other, Load(primary, [pair.topic], partitions=PARTITIONS, per_second=400) as load:
        first, second = pair.sort()
        pair.wait_progress(first, SLOW_START_S)
        _wait_for_spark(second, 1)
        status = pair.status()
        assert status["leader"] == f"{HOST} (pid {first.process.pid})"
        assert status["standbys"] == 1

        with first.frozen():
            note("stood still", pair.wait_progress(second, TAKE_OVER_S))
            second.wait_for(f"taking over from host {HOST} (pid {first.process.pid}), silent for")
            assert pair.status()["leader"] == f"{HOST} (pid {second.process.pid})"
        first.wait_for(f"host {HOST} (pid {second.process.pid}) leads now; standing by")
        pair.wait_progress(second, TAKE_OVER_S)

        second.process.kill()  # the driver alone; what it leaves behind ends by itself
        second.process.wait()
        seen = first.wait_for(f"(pid {second.process.pid}), who led, is dead", TAKE_OVER_S)
        took = seen + pair.wait_progress(first, TAKE_OVER_S)
        note("was killed", took)
        assert took < PROMISED_S
        assert pair.status()["leader"] == f"{HOST} (pid {first.process.pid})"

        second.kill()
        second.start()
        wait_until(lambda: second.output.count("standing by") == 2, SLOW_START_S, what="the standby's return")
        _wait_for_spark(second, 2)
        assert first.stop(signal.SIGTERM).code == 0
        note("stopped", pair.wait_progress(second, TAKE_OVER_S))
        second.wait_for(f"leading; host {HOST} (pid {first.process.pid}) gave it back")

        second.kill()
        dead = second.process.pid
        leaderless = pair.status()["leader"]
        second.start()
        second.wait_for(f"leading; host {HOST} (pid {dead}), who led, is dead", SLOW_START_S)
        assert second.output.count("standing by") == 2, "a restart after a crash does not wait"
        note("was started again", pair.wait_progress(second, SLOW_START_S))
        assert leaderless == f"{HOST} (pid {dead})" or leaderless.startswith(f"nobody ({HOST} until")
        load.stop()
        second.wait_mirrored(pair.source, pair.target, timeout_s=SLOW_START_S)

        pair.forestall(second, 3)
        second.wait_for(f"SECOND_WRITER: primary->backup {pair.topic}-0: 3 records of this flow are in")
        assert f"the last other leader of the flow was host {HOST} (pid " in second.output
        second.wait_mirrored(pair.source, pair.target)
        assert pair.status()["losses"]
    for partition in range(PARTITIONS):
        assert_numbered(read_batches(backup, pair.target.topic, partition))
    for mirror in pair.mirrors:
        assert "Traceback" not in mirror.output
        assert "UNPROVEN" not in mirror.output
