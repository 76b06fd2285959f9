"""Names by rules and by classes of one's own: one mirror, two flows into one target, names that cannot be."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from heliograph.client import MirrorClient
from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import Checkpoint
from tests.cluster.carried import CARRY, numbered
from tests.cluster.consumers import commit, committed
from tests.cluster.mirror import HELIOGRAPH, MirrorProcess, View, create_topic, produce, topics, unique

OWN = """
from heliograph.names.policies import DefaultPolicy


class Suffix(DefaultPolicy):
    def __init__(self, properties):
        super().__init__(source_alias=properties["source.cluster.alias"])
        object.__setattr__(self, "suffix", properties["python.suffix"])

    def format_remote_topic(self, source_alias, topic):
        return topic + self.suffix

    def topic_source(self, topic):
        return self.source_alias if topic.endswith(self.suffix) else None

    def upstream_topic(self, topic):
        return topic.removesuffix(self.suffix) if topic.endswith(self.suffix) else None


class Chosen:
    def __init__(self, properties):
        self.names = properties["python.names"].split()

    def accepts(self, name):
        return name in self.names
"""


class World:
    """Sources `primary` and `south` are one cluster; `south` is named by classes of its own."""

    def __init__(self, folder: Path, primary: LabCluster, backup: LabCluster) -> None:
        self.base = base = unique("rename")
        self.primary, self.backup = primary, backup
        (folder / "ownnames.py").write_text(OWN)
        self.environment = {"PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])}
        self.rules = {
            **_rule("topic", 1, rf"{base}-legacy\.(.+)", f"{base}-$1.v1"),
            **_rule("topic", 2, f"{base}-(?:left|right)-(.+)", f"{base}-$1"),
            **_rule("topic", 3, f"{base}-long", base + "x" * 240),
            **_rule("topic", 4, f"{base}-point", f"{base}.dots"),
            **_rule("topic", 5, f"{base}-under", f"{base}_dots"),
            **_rule("topic", 6, f"{base}-shared", f"{base}-shared-eu"),
            **_rule("group", 1, f"{base}-app-[0-9]", f"{base}-app"),
            **_rule("group", 2, f"{base}-(.+)", f"eu-{base}-$1"),
        }
        other = f"127.1:{primary.bootstrap.rpartition(':')[2]}"  # one address under two aliases is refused
        self.mirror = MirrorProcess(
            folder,
            {"primary": primary, "south": other, "backup": backup},
            {
                "primary->backup.topics": f"{base}-.*",
                "primary->backup.topics.exclude": f"{base}-own",
                "primary->backup.groups": f"{base}-.*",
                **{f"primary->backup.{key}": value for key, value in self.rules.items()},
                "south->backup.replication.policy.class": "python:ownnames.Suffix",
                "south->backup.topic.filter.class": "python:ownnames.Chosen",
                "south->backup.python.suffix": "-eu",
                "south->backup.python.names": f"{base}-own {base}-shared",
                "south->backup.emit.checkpoints.enabled": "false",
                **CARRY,
            },
            environment=self.environment,
        )

    def topic(self, name: str, count: int, partitions: int = 1) -> str:
        topic = create_topic(self.primary, f"{self.base}-{name}", partitions)
        for partition in range(partitions):
            produce(self.primary, topic, numbered(count), partition=partition)
        return topic

    def wait_copied(self, name: str, remote: str) -> None:
        self.mirror.wait_mirrored(View(self.primary, f"{self.base}-{name}"), View(self.backup, remote))

    def copies(self) -> set[str]:
        return {name for name in topics(self.backup) if self.base in name}

    def said(self, *texts: str) -> list[str]:
        """Lines of the mirror that have all the texts."""
        return [line for line in self.mirror.output.splitlines() if all(text in line for text in texts)]

    def run(self, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [HELIOGRAPH, command, str(self.mirror.config), *arguments, "-o", "json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **self.environment},
        )

    def rows(self, command: str, *arguments: str) -> list[dict[str, Any]]:
        found = self.run(command, *arguments)
        assert found.stdout, found.stderr
        rows: list[dict[str, Any]] = json.loads(found.stdout)
        return rows

    def client(self) -> MirrorClient:
        return MirrorClient(
            {
                "bootstrap.servers": self.backup.bootstrap,
                "source.cluster.alias": "primary",
                "group.id": self.mirror.keys["backup.group.id"],
                **self.rules,
            }
        )


def _rule(of: str, number: int, pattern: str, replacement: str) -> dict[str, str]:
    return {f"{of}.rename.{number}.pattern": pattern, f"{of}.rename.{number}.replacement": replacement}


@pytest.fixture(scope="module")
def world(primary: LabCluster, backup: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    world = World(tmp_path_factory.mktemp("renaming"), primary, backup)
    for name in ("left-x", "right-x", "long", "point", "under", "shared"):
        world.topic(name, 3)
    world.topic("legacy.orders", 20, partitions=2)
    world.topic("own", 7)
    world.topic("plain", 5)
    with world.mirror:
        yield world


def test_copies_are_equal_under_their_names(world: World) -> None:
    base = world.base
    world.wait_copied("legacy.orders", f"{base}-orders.v1")
    world.wait_copied("plain", f"primary.{base}-plain")
    world.wait_copied("own", f"{base}-own-eu")
    world.wait_copied("left-x", f"{base}-x")
    world.wait_copied("point", f"{base}.dots")
    world.wait_copied("shared", f"{base}-shared-eu")


def test_names_that_cannot_be_are_named_once_and_all_others_go_on(world: World) -> None:
    base = world.base
    world.topic("legacy.later", 4)  # copied after several looks at the topics
    world.wait_copied("legacy.later", f"{base}-later.v1")
    world.wait_copied("shared", f"{base}-shared-eu")
    world.wait_copied("own", f"{base}-own-eu")
    [line] = world.said("NAME_REFUSED", f'"{base}-right-x" would be called "{base}-x"')
    assert f'as "{base}-left-x" is; their records would mix' in line
    [line] = world.said("NAME_REFUSED", f'"{base}-long" would be called')
    assert "and a topic's name has at most 249" in line
    [line] = world.said("NAME_REFUSED", f'"{base}-under" would be called "{base}_dots"')
    assert f'the same as "{base}.dots"' in line
    [line] = world.said("NAME_REFUSED", f'"{base}-shared" would be called "{base}-shared-eu"')
    assert ("as" in line, "of primary->backup is" in line or "of south->backup is" in line) == (True, True)
    assert len(world.said("NAME_REFUSED", "not mirrored")) == 4
    assert world.copies() == {
        f"{base}-orders.v1", f"{base}-later.v1", f"primary.{base}-plain", f"{base}-own-eu", f"{base}-x",
        f"{base}.dots", f"{base}-shared-eu",
    }  # fmt: skip


def test_groups_go_on_under_their_names_on_the_target(world: World) -> None:
    base, orders = world.base, f"{world.base}-legacy.orders"
    world.wait_copied("legacy.orders", f"{base}-orders.v1")
    group, here = f"{base}-billing", f"eu-{base}-billing"
    commit(world.primary, group, {(orders, 0): 12, (orders, 1): 20})
    wanted = {(f"{base}-orders.v1", 0): 12, (f"{base}-orders.v1", 1): 20}
    world.mirror.wait_until(lambda: committed(world.backup, here) == wanted, what="the group's offsets")
    assert committed(world.backup, group) == {}

    def checkpoints() -> set[tuple[str, str, int]]:
        [records] = View(world.backup, "primary.checkpoints.internal").read()
        parsed = [Checkpoint.parse(record.key, record.value) for record in records]
        return {(item.group, item.topic, item.downstream) for item in parsed if item and item.group in (group, here)}

    there = {(here, f"{base}-orders.v1", 12), (here, f"{base}-orders.v1", 20)}
    world.mirror.wait_until(lambda: checkpoints() == there, what="the checkpoints")

    client = world.client()
    for by in ("ledger", "checkpoint"):
        found = {name: client.translate_offsets("primary", name, by=by) for name in (group, here)}
        for offsets in found.values():
            assert {tuple(where): place.offset for where, place in offsets.items()} == wanted
    for name in (group, here):
        rows = world.rows("translate", "--from", "primary", "--group", name)
        assert {(row["group"], row["topic"], row["offset"]) for row in rows} == there
        [row] = [row for row in world.rows("groups", "--groups", name) if row["kind"] == "group"]
        assert (row["group"], row["target group"], row["target state"]) == (group, here, "Empty")
        assert row["would re-read now"] == 0


def test_of_two_groups_with_one_name_both_are_named(world: World) -> None:
    base, orders = world.base, f"{world.base}-legacy.orders"
    first, second = f"{base}-app-1", f"{base}-app-2"
    commit(world.primary, second, {(orders, 0): 7})
    wanted = {(f"{base}-orders.v1", 0): 7}
    world.mirror.wait_until(lambda: committed(world.backup, f"{base}-app") == wanted, what="the group's offset")
    commit(world.primary, first, {(orders, 0): 9})
    world.mirror.wait_for(f'the group "{first}" would be called "{base}-app"')
    commit(world.primary, second, {(orders, 0): 8})
    moved = {(f"{base}-orders.v1", 0): 8}
    world.mirror.wait_until(lambda: committed(world.backup, f"{base}-app") == moved, what="the group's next offset")
    [line] = world.said("not synced", f'"{first}"')
    assert f'"{second}" is called so: their offsets would mix' in line
    found = world.run("groups", "--groups", f"{base}-app.*")
    assert found.returncode == 1
    assert f'the group "{first}" would be called' in found.stderr


def test_copies_tell_their_source_and_a_check_finds_what_is_wrong(world: World) -> None:
    base = world.base
    world.wait_copied("legacy.orders", f"{base}-orders.v1")
    client = world.client()
    assert client.replication_policy.upstream_topic(f"{base}-orders.v1") == f"{base}-legacy.orders"
    assert f"{base}-orders.v1" in client.remote_topics("primary")
    rows = [row for row in world.rows("check") if row.get("verdict") == "FAIL"]
    found = {(row["step"], row["subject"]) for row in rows if row["step"] in ("names", "collisions")}
    assert found == {
        ("names", f"{base}-long"), ("names", f"{base}-under"), ("collisions", f"{base}-x"),
        ("collisions", f"{base}-shared-eu"),
    }  # fmt: skip
