"""A ledger that lost its newest records: what was copied is found on the target, and not copied again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique, wait_until
from tests.fault.checker import false_names
from tests.fault.conftest import Start
from tests.fault.lost_tail import lose_tail
from tests.fault.world import spec

START_S = 180.0
LONG_MS = "3600000"
LEDGER = "mm2-ledger.primary.internal"
pytestmark = pytest.mark.timeout(600)


class Copied:
    """A topic of one partition whose records are numbers, and its copy."""

    def __init__(self, primary: LabCluster, target: LabCluster, folder: Path) -> None:
        self.topic = create_topic(primary, unique("tail"))
        self.primary = primary
        self.target = target
        self.remote = View(target, f"primary.{self.topic}")
        self.written = 0
        replicas = str(target.spec.brokers)
        keys = {
            f"primary->{target.alias}.topics": self.topic,
            "replication.factor": replicas,
            "offset.storage.replication.factor": replicas,
        }
        self.mirror = MirrorProcess(folder, {"primary": primary, target.alias: target}, keys)

    def write(self, number: int) -> None:
        values = [b"%d" % value for value in range(self.written, self.written + number)]
        produce(self.primary, self.topic, values)
        self.written += number

    def numbers(self) -> list[int]:
        return [int(record.value or b"-1") for record in self.remote.read()[0]]

    def wait_copied(self) -> None:
        """Until the last number is there."""
        last = self.written - 1
        self.mirror.wait_until(
            lambda: self.remote.counts() and last in self.numbers(), START_S, what=f"the copy of record {last}"
        )

    def wait_noted(self) -> int:
        """Until the ledger says that all is copied; where the ledger ends then."""
        self.mirror.wait_until(lambda: self._noted() == self.written, START_S, what="the ledger's entry")
        return self.ledger_end()

    def ledger_end(self) -> int:
        [end] = View(self.target, LEDGER).counts() or [0]
        return end

    def _noted(self) -> int:
        """The position in the newest entry."""
        if not View(self.target, LEDGER).counts():
            return -1
        entries = [
            json.loads(record.value)["s"]
            for record in View(self.target, LEDGER).read()[0]
            if record.key and record.value and json.loads(record.key)[0::2][:2] == ["entry", self.topic]
        ]
        return int(entries[-1]) if entries else -1

    def assert_exact(self) -> None:
        assert self.numbers() == list(range(self.written)), self.mirror.output
        assert not false_names(self.mirror.output)


@pytest.fixture(scope="module")
def three(start_clusters: Start) -> LabCluster:
    return start_clusters([spec("three", brokers=3)])["three"].cluster


@pytest.fixture(params=["backup", pytest.param("three", marks=pytest.mark.long)])
def copied(primary: LabCluster, request: pytest.FixtureRequest, tmp_path: Path) -> Copied:
    """Into one broker, and into three."""
    return Copied(primary, request.getfixturevalue(request.param), tmp_path)


def test_what_was_copied_behind_the_ledgers_end_and_the_stored_position_is_not_copied_again(copied: Copied) -> None:
    """The position that is stored is ahead of the entry that is left, and the target ahead of both."""
    mirror = copied.mirror
    with mirror:
        copied.write(50)
        kept = copied.wait_noted()
        copied.write(50)
        copied.wait_noted()
    mirror.write({**mirror.keys, f"{copied.target.alias}.offset.flush.interval.ms": LONG_MS})
    with mirror.until_killed():
        copied.write(100)
        copied.wait_copied()
    lost = lose_tail(copied.target, LEDGER, records=copied.ledger_end() - kept)
    assert lost.start == kept
    wait_until(lambda: copied.ledger_end() == kept, START_S, what="the shorter ledger")
    mirror.write(mirror.keys)
    with mirror:
        copied.write(50)
        copied.wait_copied()
    copied.assert_exact()


@pytest.mark.long
def test_a_mirror_goes_on_when_its_ledger_loses_records_while_it_runs(copied: Copied) -> None:
    """And after a kill it knows from the new ledger where it was."""
    with copied.mirror.until_killed():
        for _ in range(4):
            copied.write(25)
            copied.wait_noted()
        lost = lose_tail(copied.target, LEDGER, records=10)
        assert lost.records >= 10
        copied.write(100)
        copied.wait_copied()
        copied.wait_noted()
    with copied.mirror:
        copied.write(50)
        copied.wait_copied()
        copied.wait_noted()
    copied.assert_exact()
