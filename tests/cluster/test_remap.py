"""More source than target partitions: `partition.remap=modulo` on real brokers."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from heliograph.client import MirrorClient
from heliograph.lab import LabCluster
from tests.cluster.carried import CARRY
from tests.cluster.consumers import committed, consume, consumer, read
from tests.cluster.kills import SLOW_START_S, TWO_DAYS_MS, total
from tests.cluster.load import Load
from tests.cluster.mirror import (
    HELIOGRAPH,
    Batch,
    MirrorProcess,
    Record,
    View,
    create_topic,
    grow_topic,
    partition_count,
    produce,
    read_batches,
    unique,
)

pytestmark = pytest.mark.long  # some starts of Spark, minutes in all

SOURCES, TARGETS = 7, 3
Contents = list[tuple[object, object]]
"""Keys and values."""
Numbers = dict[int, list[int]]
"""Of each source partition the numbers of its records, in the order in which they came."""


def number_of(value: object) -> int:
    assert isinstance(value, bytes)
    return int(value.rstrip(b"."))


def numbers_on(records: Sequence[Sequence[Record]]) -> Numbers:
    found: Numbers = {}
    for partition, there in enumerate(records):
        for record in there:
            assert record.key is not None
            assert int(record.key) % len(records) == partition
            found.setdefault(int(record.key), []).append(number_of(record.value))
    return found


def assert_counts(batches: Sequence[Batch], ids: int) -> None:
    """Each producer id counts its own batches without a hole, in one count; together they fill the log."""
    by_id: dict[int, list[Batch]] = {}
    for batch in batches:
        assert (batch.producer_epoch, batch.count) == (0, batch.last_offset_delta + 1)
        by_id.setdefault(batch.producer_id, []).append(batch)
    assert len(by_id) == ids
    for own in by_id.values():
        assert own[0].base_sequence == 0
        assert all(other.base_sequence == one.base_sequence + one.count for one, other in pairwise(own))
    assert all(other.base_offset == one.base_offset + one.count for one, other in pairwise(batches))


@pytest.mark.timeout(600)
def test_seven_partitions_into_three_lose_and_repeat_nothing_through_kills_and_neither_does_a_group(
    primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """Fresh records and old ones, whose producers the target forgets; the way back, without the setting, grows."""
    prefix, group = unique("remap"), unique("remap-group")
    topics = [create_topic(primary, f"{prefix}-{kind}", SOURCES) for kind in ("fresh", "old")]
    views = [View(backup, create_topic(backup, f"primary.{topic}", TARGETS)) for topic in topics]
    back = create_topic(backup, f"{prefix}-back", SOURCES)
    create_topic(primary, f"backup.{back}", TARGETS)
    for partition in range(SOURCES):
        produce(backup, back, [b"%d" % partition] * 10, partition=partition)
    mirror = MirrorProcess(
        tmp_path,
        {"primary": primary, "backup": backup},
        {
            "primary->backup.topics": f"{prefix}-(fresh|old)",
            "primary->backup.partition.remap": "modulo",
            "backup->primary.topics": back,
            "primary->backup.groups": group,
            "tasks.max": "2",
            **CARRY,
        },
    )
    rate = {"partitions": SOURCES, "per_second": 1400}
    fresh, old = topics
    read_before: Contents = []
    with Load(primary, [fresh], **rate) as load, Load(primary, [old], **rate, age_ms=TWO_DAYS_MS) as old_load:
        for kill in range(2):
            before = [total(view) for view in views]
            with mirror.until_killed():
                mirror.wait_until(
                    partial(_have_grown, views, before), SLOW_START_S, what=f"progress before kill {kill + 1}"
                )
                if not kill:
                    little = {"max_partition_fetch_bytes": 1000}  # so that all partitions have their turn
                    read_before = [(m.key(), m.value()) for m in consume(primary, group, fresh, 1500, **little)]
        assert load.written > 300
    with mirror:
        wanted = {topics[0]: load.written, topics[1]: old_load.written}
        for topic, view in zip(topics, views, strict=True):
            is_copied = partial(_holds, view, SOURCES * wanted[topic])
            mirror.wait_until(is_copied, SLOW_START_S, what=f"the copy of {topic}")
            assert numbers_on(view.read()) == {p: list(range(wanted[topic])) for p in range(SOURCES)}
            assert partition_count(backup, view.topic) == TARGETS
        mirror.wait_mirrored(View(backup, back), View(primary, f"backup.{back}"))
        assert partition_count(primary, f"backup.{back}") == SOURCES, "without the setting the target grows as ever"
        _check_group(mirror, primary, backup, group=group, topic=fresh, before=read_before)
        _check_growth(mirror, primary, backup, fresh, load.written)
    for view in views:
        for partition in range(TARGETS):
            rows = len(range(partition, SOURCES, TARGETS))
            assert_counts(read_batches(backup, view.topic, partition), rows)
    assert f"its {SOURCES} partitions are copied into {TARGETS} of the target's (p modulo {TARGETS})" in mirror.output
    for word in ("UNPROVEN", "FOREIGN", "SECOND_WRITER", "Traceback"):
        assert word not in mirror.output


def _holds(view: View, records: int) -> bool:
    return total(view) >= records


def _have_grown(views: Sequence[View], before: Sequence[int]) -> bool:
    return all(total(view) > count + 500 for view, count in zip(views, before, strict=True))


def _check_group(
    mirror: MirrorProcess, primary: LabCluster, backup: LabCluster, *, group: str, topic: str, before: Contents
) -> None:
    """What it read on the source and what it reads on the target are together all there is."""
    remote = f"primary.{topic}"
    asked = ("translate", "--from", "primary", "--group", group)
    mirror.wait_until(lambda: _places(_rows(mirror, *asked)) == committed(backup, group), 60, what="the group's sync")
    moves, there = _rows(mirror, *asked), committed(backup, group)
    assert there.keys() == {(remote, partition) for partition in range(TARGETS)}
    with MirrorClient.from_config(mirror.config, "backup") as client:
        found = client.translate_offsets("primary", group)
    assert {(where.topic, where.partition): place.offset for where, place in found.items()} == there
    [shown] = [row for row in _rows(mirror, "groups", "--groups", group) if row["kind"] == "group"]
    left = sum(end - there[remote, partition] for partition, end in enumerate(View(backup, remote).counts() or []))
    reader = consumer(backup, group)
    try:
        reader.subscribe([remote])
        after = [(message.key(), message.value()) for message in read(reader, left)]
    finally:
        reader.close()
    records = [(record.key, record.value) for part in View(primary, topic).read() for record in part]
    assert set(before) | set(after) == set(records), "nothing is skipped"
    again = len(before) + len(after) - len(records)
    assert again == sum(row["re-read"] for row in moves) == shown["would re-read now"], "and what is read again is told"


def _rows(mirror: MirrorProcess, command: str, *arguments: str) -> list[dict[str, Any]]:
    asked = [HELIOGRAPH, command, str(mirror.config), *arguments, "-o", "json"]
    found = subprocess.run(asked, capture_output=True, text=True, check=False)
    rows: list[dict[str, Any]] = json.loads(found.stdout)
    return rows


def _places(moves: Sequence[Mapping[str, Any]]) -> dict[tuple[str, int], int]:
    return {(row["topic"], row["partition"]): row["offset"] for row in moves}


def _check_growth(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster, topic: str, start: int) -> None:
    """A target that grows leaves copies where they are."""
    remote = View(backup, f"primary.{topic}")
    grow_topic(backup, remote.topic, TARGETS + 2)
    mirror.wait_for(f"the target has {TARGETS + 2} by now, and copies stay where they are")
    for partition in range(SOURCES):
        values = [b"%d" % number for number in range(start, start + 5)]
        produce(primary, topic, values, partition=partition, keys=[b"%d" % partition] * 5)
    mirror.wait_until(lambda: total(remote) >= SOURCES * (start + 5), what="what came after the growth")
    records = remote.read()
    assert records[TARGETS:] == [[], []]
    assert numbers_on(records[:TARGETS]) == {p: list(range(start + 5)) for p in range(SOURCES)}
