"""Everything that can happen to records between two clusters, on real brokers: named, counted, kept, acknowledged.

One mirror with two flows from the same source: `primary` goes on and skips, `strict` stops. Topics are made ready for
all of it, the mirror is started, stopped, and started once more; each test looks at one of them.
"""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.lab import LabCluster
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    create_topic,
    delete_records,
    delete_topic,
    partition_count,
    produce,
    producer,
)

pytestmark = [pytest.mark.in_order, pytest.mark.timeout(900)]  # two starts of Spark, and many topics

EXPIRED, RECREATED, OUTGROWN, DELETED = "loss-expired", "loss-recreated", "loss-outgrown", "loss-deleted"
TARGET_DOWN, TARGET_RUNNING, NO_KEY, FUTURE = "loss-target-down", "loss-target-running", "loss-no-key", "loss-future"
STRICT_EXPIRED, STRICT_NO_KEY, SOUND = "strict-expired", "strict-no-key", "strict-sound"
PLAIN = (EXPIRED, RECREATED, OUTGROWN, DELETED, TARGET_DOWN, TARGET_RUNNING)
STRICT = (STRICT_EXPIRED, STRICT_NO_KEY, SOUND)
FUTURE_MS = 3 * 24 * 3600 * 1000


def values(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


class World:
    def __init__(self, folder: Path, primary: LabCluster, backup: LabCluster) -> None:
        self.primary, self.backup = primary, backup
        keys = {
            "primary->backup.topics": "loss-.*",
            "primary->backup.on.record.error": "skip",
            "strict->backup.topics": "strict-.*",
            "strict->backup.on.data.loss": "stop-partition",
            "strict->backup.on.topic.recreated": "stop-partition",
            "config.properties.exclude": ".*",  # targets have the settings that a test gives them
        }
        again = f"localhost:{primary.port(1)}"  # another alias of the same cluster
        self.mirror = MirrorProcess(folder, {"primary": primary, "strict": again, "backup": backup}, keys)

    def target(self, topic: str) -> View:
        return View(self.backup, f"{'strict' if topic.startswith('strict') else 'primary'}.{topic}")

    def copied(self, topic: str) -> list[int]:
        [records] = self.target(topic).read()
        return [int(record.value or b"-1") for record in records]

    def wait_copied(self, topic: str, wanted: list[int]) -> None:
        def is_there() -> bool:
            return self.target(topic).counts() == [len(wanted)] and self.copied(topic) == wanted

        self.mirror.wait_until(is_there, 300, what=f"{wanted} in {topic}")

    def command(self, *words: str) -> subprocess.CompletedProcess[str]:
        name, *rest = words
        line = [HELIOGRAPH, name, str(self.mirror.config), *rest]
        return subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)

    def losses(self, *codes: int) -> dict[tuple[str, str], dict[str, Any]]:
        """By topic and code, as `status` shows them; it exits with one of `codes`, or with 1, which says not ready."""
        done = self.command("status", "-o", "json")
        assert done.returncode in (codes or (1,)), done.stderr
        return {(loss["topic"], loss["code"]): loss for flow in json.loads(done.stdout) for loss in flow["losses"]}

    def wait_lost(self, topic: str, code: str) -> dict[str, Any]:
        self.mirror.wait_until(lambda: (topic, code) in self.losses(0, 1), 180, what=f"{code} of {topic} in status")
        return self.losses()[topic, code]


def send_keys(cluster: LabCluster, topic: str, keys: list[bytes | None], start: int, *, ahead_ms: int = 0) -> None:
    """Records without a key where there is none, all in one batch."""
    now_ms = int(time.time() * 1000)
    sender = producer(cluster, linger_ms=200)
    for index, key in enumerate(keys):
        late = ahead_ms if index == 1 else 0
        sender.produce(topic, b"%d" % (start + index), key, 0, timestamp=now_ms + late)
    assert sender.flush(30) == 0


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, primary: LabCluster, backup: LabCluster) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("losses"), primary, backup)
    for name in (f"primary.{NO_KEY}", f"strict.{STRICT_NO_KEY}"):
        create_topic(backup, name, config={"cleanup.policy": "compact"})
    for topic in (*PLAIN, NO_KEY, *STRICT):
        create_topic(primary, topic)
        produce(primary, topic, values(0, 10))
    create_topic(primary, FUTURE, config={"message.timestamp.after.max.ms": str(2 * FUTURE_MS)})
    produce(primary, FUTURE, values(0, 10))
    try:
        world.mirror.start()
        for topic in (*PLAIN, NO_KEY, FUTURE, *STRICT):
            world.wait_copied(topic, list(range(10)))
        yield world
    finally:
        world.mirror.__exit__(None, None, None)


@pytest.fixture(scope="module")
def running(world: World) -> World:
    """What happens while the mirror runs has happened."""
    delete_topic(world.backup, f"primary.{TARGET_RUNNING}")
    delete_topic(world.primary, DELETED)
    send_keys(world.primary, NO_KEY, [b"a", None, None, b"b", None, b"c"], 10)
    send_keys(world.primary, FUTURE, [b"a", b"b", b"c"], 10, ahead_ms=FUTURE_MS)
    send_keys(world.primary, STRICT_NO_KEY, [b"a", None, b"b"], 10)
    return world


@pytest.fixture(scope="module")
def restarted(running: World) -> World:
    """What happens while the mirror is down has happened."""
    world = running
    world.wait_lost(STRICT_NO_KEY, "RECORD_REFUSED")
    world.wait_lost(FUTURE, "RECORD_REFUSED")
    world.wait_copied(NO_KEY, [*range(11), 13, 15])
    world.wait_copied(TARGET_RUNNING, list(range(10)))
    world.mirror.stop()
    for topic in (EXPIRED, STRICT_EXPIRED):
        produce(world.primary, topic, values(10, 20))
        delete_records(world.primary, topic, 15)
    for topic, number in ((RECREATED, 3), (OUTGROWN, 25)):
        delete_topic(world.primary, topic)
        create_topic(world.primary, topic)
        produce(world.primary, topic, values(100, 100 + number))
    delete_topic(world.backup, f"primary.{TARGET_DOWN}")
    world.mirror.start()
    return world


# -- while it runs


def test_a_target_topic_that_was_deleted_is_made_and_filled_again(running: World) -> None:
    loss = running.wait_lost(TARGET_RUNNING, "TARGET_TOPIC_LOST")
    assert (loss["records"], loss["offsets"]) == (10, "target offsets 0 to 9")
    running.wait_copied(TARGET_RUNNING, list(range(10)))


def test_a_source_topic_that_was_deleted_is_named_and_its_copy_stays(running: World) -> None:
    running.mirror.wait_for(f"no longer mirrored: {DELETED}", 60)
    assert running.copied(DELETED) == list(range(10))


def rejected(world: World, topic: str) -> list[dict[str, Any]]:
    if not partition_count(world.backup, "mm2-rejected.primary.internal"):
        return []
    [records] = View(world.backup, "mm2-rejected.primary.internal").read()
    found = [json.loads(record.value or b"{}") for record in records]
    return [item for item in found if item["topic"] == topic]


def test_records_without_a_key_are_left_out_of_a_compacted_topic_and_the_others_copied(running: World) -> None:
    running.wait_copied(NO_KEY, [*range(11), 13, 15])
    running.mirror.wait_until(lambda: len(rejected(running, NO_KEY)) >= 3, 30, what="the coordinates")
    assert [(item["offset"], item["code"], item["key"]) for item in rejected(running, NO_KEY)] == [
        (11, 87, None),
        (12, 87, None),
        (14, 87, None),
    ]
    loss = running.wait_lost(NO_KEY, "RECORD_REFUSED")
    assert (loss["records"], loss["times"], loss["offsets"]) == (3, 2, "offsets 11 to 14")


def test_a_record_from_the_future_is_left_out(running: World) -> None:
    running.wait_copied(FUTURE, [*range(11), 12])
    [item] = rejected(running, FUTURE)
    assert (item["offset"], item["code"], item["size"]) == (11, 32, 3)
    assert item["timestamp"] > time.time() * 1000 + FUTURE_MS / 2
    loss = running.wait_lost(FUTURE, "RECORD_REFUSED")
    assert (loss["records"], loss["offsets"], loss["answer"]) == (1, "offset 11", "went on at 12")


def test_a_refused_record_stops_its_partition_alone(running: World) -> None:
    loss = running.wait_lost(STRICT_NO_KEY, "RECORD_REFUSED")
    assert (loss["records"], loss["offsets"], loss["answer"]) == (1, "offset 11", "partition stopped")
    assert running.copied(STRICT_NO_KEY) == list(range(11))
    produce(running.primary, SOUND, [b"10"])
    running.wait_copied(SOUND, list(range(11)))


# -- while it was down


@pytest.mark.parametrize(
    ("topic", "code", "lost", "copied"),
    [
        (EXPIRED, "DATA_LOST", (5, "offsets 10 to 14"), [*range(10), *range(15, 20)]),
        (RECREATED, "TOPIC_RECREATED", (0, "offset 10"), [*range(10), *range(100, 103)]),
        (OUTGROWN, "TOPIC_RECREATED", (0, "offset 10"), [*range(10), *range(100, 125)]),
        (TARGET_DOWN, "TARGET_TOPIC_LOST", (10, "target offsets 0 to 9"), list(range(10))),
    ],
)
def test_what_happened_while_it_was_down_is_named_and_it_goes_on(
    restarted: World, topic: str, code: str, lost: tuple[int, str], copied: list[int]
) -> None:
    restarted.wait_copied(topic, copied)
    loss = restarted.wait_lost(topic, code)
    assert (loss["records"], loss["offsets"], loss["times"]) == (*lost, 1)
    assert loss["answer"].startswith("went on at")


def test_loss_stops_a_partition_and_a_restart_counts_nothing_twice(restarted: World) -> None:
    loss = restarted.wait_lost(STRICT_EXPIRED, "DATA_LOST")
    assert (loss["records"], loss["offsets"], loss["answer"]) == (5, "offsets 10 to 14", "partition stopped")
    restarted.mirror.wait_until(
        lambda: restarted.mirror.output.count(f"RECORD_REFUSED: strict->backup {STRICT_NO_KEY}-0") >= 2,
        60,
        what="the same refusal once more",
    )
    assert restarted.wait_lost(STRICT_NO_KEY, "RECORD_REFUSED")["times"] == 1
    assert restarted.copied(STRICT_EXPIRED) == list(range(10))


def test_the_table_tells_each_loss_in_short(restarted: World) -> None:
    done = restarted.command("status")
    assert done.returncode == 1
    assert f"DATA_LOST {EXPIRED}-0: 5 records (offsets 10 to 14)" in done.stdout
    assert "0 of 2 flows ready" in done.stdout


# -- acknowledged


def test_an_unknown_flow_is_refused_with_the_names_that_exist(restarted: World) -> None:
    done = restarted.command("acknowledge", "--flow", "a->b")
    assert done.returncode == 2
    assert "primary->backup" in done.stderr


def test_what_stood_still_goes_on_when_it_is_acknowledged(restarted: World) -> None:
    restarted.wait_lost(STRICT_EXPIRED, "DATA_LOST")
    looked = restarted.command("acknowledge", "--flow", "strict->backup", "--dry-run")
    assert "2 losses to acknowledge" in looked.stdout, looked.stderr
    done = restarted.command("acknowledge", "--flow", "strict->backup", "--topic", STRICT_EXPIRED, "-o", "json")
    assert done.returncode == 0, done.stderr
    [loss] = json.loads(done.stdout)
    assert (loss["topic"], loss["code"], loss["records"]) == (STRICT_EXPIRED, "DATA_LOST", 5)
    restarted.wait_copied(STRICT_EXPIRED, [*range(10), *range(15, 20)])
    assert "1 loss acknowledged" in restarted.command("acknowledge", "--flow", "strict->backup").stdout
    restarted.wait_copied(STRICT_NO_KEY, [*range(11), 12])
    assert not any(topic in STRICT for topic, _ in restarted.losses())


def test_a_flow_is_ready_again_when_all_is_acknowledged(restarted: World) -> None:
    for flow in ("primary->backup", "strict->backup"):
        assert restarted.command("acknowledge", "--flow", flow).returncode == 0
    assert restarted.losses(0) == {}
    assert "nothing to acknowledge" in restarted.command("acknowledge", "--flow", "primary->backup").stdout
