"""Where copies begin, and how that is set while nobody leads the flow: one mirror, started three times."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest

from heliograph.client import MirrorClient
from heliograph.config import load_settings
from heliograph.kafka.types import TopicPartition
from heliograph.lab import LabCluster
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    create_topic,
    produce,
    producer,
    unique,
)

FLOW = "primary->backup"
TEN = [b"%d" % number for number in range(10)]


class World:
    """Topics of which each begins in another way; all but those that rules name begin at their end."""

    def __init__(self, primary: LabCluster, backup: LabCluster, folder: Path) -> None:
        self.primary, self.backup, self.folder = primary, backup, folder
        self.name = unique("positions")
        now_ms = int(time.time() * 1000)
        at = datetime.fromtimestamp((now_ms - 50_000) / 1000, UTC).isoformat()
        self.mirror = MirrorProcess(
            folder,
            {"primary": primary, "backup": backup},
            {
                f"{FLOW}.topics": f"{self.name}-.*",
                "start.position": "latest",
                "start.position.1.topics": f"{self.name}-timed",
                "start.position.1.from": at,
                "start.position.2.topics": f"{self.name}-offsets",
                "start.position.2.from": "0:7,1:99",
                "start.position.3.topics": f"{self.name}-whole, nothing-else",
                "start.position.3.from": "earliest",
            },
        )
        for topic, partitions in (("latest", 2), ("timed", 1), ("offsets", 2), ("whole", 2)):
            create_topic(primary, f"{self.name}-{topic}", partitions)
        for topic in ("latest", "offsets", "whole"):
            for partition in range(2):
                self.produce(topic, partition, TEN)
        sender = producer(primary)
        for number in range(10):
            age_ms = 100_000 if number < 4 else 0
            sender.produce(f"{self.name}-timed", b"%d" % number, partition=0, timestamp=now_ms - age_ms + number)
        assert sender.flush(30) == 0

    def produce(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        produce(self.primary, f"{self.name}-{topic}", values, partition=partition)

    def wait_for(self, wanted: dict[tuple[str, int], Sequence[bytes]], mark: bytes) -> None:
        """Write a last record to each partition; when it has come, nothing but these values may stand before it."""
        for topic, partition in wanted:
            self.produce(topic, partition, [mark])
        for topic in dict.fromkeys(topic for topic, _ in wanted):
            view = View(self.backup, f"primary.{self.name}-{topic}")
            expected = {at: [*values, mark] for (name, at), values in wanted.items() if name == topic}

            def have_come(view: View = view, expected: dict[int, list[bytes]] = expected) -> bool:
                ends = view.counts()
                return ends is not None and all(ends[at] >= len(values) for at, values in expected.items())

            self.mirror.wait_until(have_come, 180, what=f"the last records of {topic}")
            found = view.read()
            assert {at: [record.value for record in found[at]] for at in expected} == expected, topic

    def positions(self, *arguments: str, code: int = 0) -> str:
        """`heliograph positions`; what it says."""
        command = [HELIOGRAPH, "positions", arguments[0], str(self.mirror.config), *arguments[1:]]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout if not code else done.stderr

    def listed(self) -> dict[tuple[str, int], tuple[int | None, str]]:
        rows = json.loads(self.positions("list", "--flow", FLOW, "-o", "json"))
        return {
            (row["topic"].removeprefix(f"{self.name}-"), row["partition"]): (row["position"], row["by"]) for row in rows
        }

    def translated(self, topic: str, offset: int) -> int:
        settings = load_settings(self.mirror.config)
        client = MirrorClient.of_flow(settings, settings.flows[0])
        found = client.translate_positions("primary", {(f"{self.name}-{topic}", 0): offset})
        return found[TopicPartition(f"primary.{self.name}-{topic}", 0)].offset


@pytest.mark.timeout(600)
def test_copies_begin_where_they_are_told_to_and_go_on_where_they_are_set(
    primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    world = World(primary, backup, tmp_path)
    whole, both = TEN, [("whole", 0), ("whole", 1)]
    with world.mirror as mirror:
        mirror.wait_for(f"{FLOW}: 4 topics, 7 partitions")
        create_topic(primary, f"{world.name}-new")
        world.produce("new", 0, TEN)
        found: dict[tuple[str, int], Sequence[bytes]] = {
            ("latest", 0): [],
            ("latest", 1): [],
            ("timed", 0): TEN[4:],
            ("offsets", 0): TEN[7:],
            ("offsets", 1): [],
            **dict.fromkeys(both, whole),
            ("new", 0): TEN,
        }
        world.wait_for(found, b"first")
        assert f"{FLOW}: {world.name}-latest begins at latest: 20 records before that, in 2 of its" in mirror.output
        assert f"{world.name}-offsets-1: 99 is beyond the end of the log, 10: it begins there" in mirror.output
        refused = world.positions(
            "set", "--flow", FLOW, "--topic", f"{world.name}-whole", "--to", "0", "--execute", code=1
        )
        assert "LEASE_LOST" in refused
        assert f"(pid {mirror.process.pid}) leads the flow" in refused
        mirror.stop()

        assert world.listed() == dict.fromkeys(found, (11, "copied"))
        # As Kafka Connect's REST has it: the last copied record is 0, so nine of ten come again, and the mark.
        body = tmp_path / "offsets.json"
        given = [{"cluster": "primary", "partition": index, "topic": f"{world.name}-whole"} for index in range(2)]
        body.write_text(json.dumps({"offsets": [{"partition": item, "offset": {"offset": 0}} for item in given]}))
        world.positions("set", "--flow", FLOW, "--from-file", str(body), "--execute")
        set_one = ("set", "--flow", FLOW, "--topic", f"{world.name}-offsets", "--partition", "0")
        assert "nothing was written" in world.positions(*set_one, "--to", "5")
        world.positions(*set_one, "--to", "5", "--execute")
        world.produce("latest", 1, TEN)
        world.positions("set", "--flow", FLOW, "--topic", f"{world.name}-latest", "--to", "latest", "--execute")
        create_topic(primary, f"{world.name}-down")
        world.produce("down", 0, TEN)
        listed = world.listed()
        assert {listed[where] for where in both} == {(1, "set")}
        assert listed["offsets", 0] == (5, "set")
        assert (listed["latest", 0], listed["latest", 1]) == ((11, "set"), (21, "set"))
        assert listed["down", 0] == (None, "not begun")
        assert world.translated("whole", 6) == 6

        mirror.start()
        again: dict[tuple[str, int], Sequence[bytes]] = {
            ("latest", 0): [b"first"],
            ("latest", 1): [b"first"],
            ("offsets", 0): [*TEN[7:], b"first", *TEN[5:], b"first"],
            **{where: [*TEN, b"first", *TEN[1:], b"first"] for where in both},
            ("down", 0): TEN,
        }
        world.wait_for(again, b"second")
        mirror.stop()
        assert world.translated("whole", 6) == 11 + 5, "the second copies count"
        assert world.translated("whole", 0) == 0

        world.positions("reset", "--flow", FLOW, "--execute")
        assert {position for position, _ in world.listed().values()} == {None}
        mirror.start()
        mirror.wait_for(f"{world.name}-latest was reset: 2 of its partitions")  # what comes later is after its end
        once_more: dict[tuple[str, int], Sequence[bytes]] = {
            ("latest", 1): [*again["latest", 1], b"second"],
            ("timed", 0): [*TEN[4:], b"first", *TEN[4:], b"first"],
            ("offsets", 0): [*again["offsets", 0], b"second", *TEN[7:], b"first", b"second"],
            **{where: [*again[where], b"second", *TEN, b"first", b"second"] for where in both},
        }
        world.wait_for(once_more, b"third")
        mirror.stop()
        assert "SECOND_WRITER" not in mirror.output
        assert "POSITION_UNPROVEN" not in mirror.output
