"""Rights: the printed ones are enough, each is needed, and a mirror lives without some of them."""

from __future__ import annotations

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from heliograph.config import load_settings
from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType
from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.preflight.check import check_clusters
from heliograph.preflight.steps import Step, Verdict
from tests.cluster.consumers import commit, committed
from tests.cluster.limited import Limited, parse_commands
from tests.cluster.mirror import HELIOGRAPH, MirrorProcess, View, assert_equal, create_topic, produce, unique

READ, WRITE, CREATE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DESCRIBE
IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"


class Guarded:
    """A mirror from north to south as two users who may do nothing but what they are granted.

    As in a published active-passive setup: same names on both sides, topics and groups by prefix.
    """

    def __init__(self, north: LabCluster, south: LabCluster, folder: Path, **more: str) -> None:
        self.prefix = unique("LH") + "."
        self.source = Limited(north, unique("reader"), folder)
        self.target = Limited(south, unique("writer"), folder)
        self.group = unique("mm2")
        self.topic = create_topic(north, f"{self.prefix}orders", 2)
        self.views = View(north, self.topic), View(south, self.topic)
        source, target = self.source.keys(), self.target.keys()
        keys = {
            "north->south.topics": self.prefix.replace(".", "\\.") + ".*",
            "north->south.groups": "consumer-.*",
            "replication.policy.class": IDENTITY,
            "offset-syncs.topic.location": "target",
            "emit.heartbeats.enabled": "false",
            "heartbeats.replication.enabled": "false",
            "sync.topic.acls.enabled": "false",
            "sync.group.offsets.enabled": "true",
            "sync.group.offsets.interval.seconds": "1",
            "emit.checkpoints.interval.seconds": "1",
            "refresh.groups.interval.seconds": "1",
            "south.group.id": self.group,
            **{f"south.{name}.storage.topic": f"__{self.group}_{name}" for name in ("offset", "config", "status")},
            **{f"north.{key}": value for key, value in source.items()},
            **{f"south.{key}": value for key, value in target.items()},
            **{key.replace("__", "-").replace("_", "."): value for key, value in more.items()},
        }
        bootstraps = {"north": source["bootstrap.servers"], "south": target["bootstrap.servers"]}
        self.mirror = MirrorProcess(folder, bootstraps, keys)
        self.produced = 0

    def produce(self, count: int = 50) -> None:
        values = [b"%d" % number for number in range(self.produced, self.produced + count)]
        produce(self.source.cluster, self.topic, values, partition=self.produced // count % 2)
        self.produced += count

    def wait_mirrored(self) -> None:
        self.mirror.wait_mirrored(*self.views)

    def printed(self) -> dict[Limited, list[Acl]]:
        """What `--print-acls` says, by user."""
        command = [HELIOGRAPH, "check", str(self.mirror.config), "--print-acls"]
        text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        found = parse_commands(text)
        users = {user: found[user.keys()["bootstrap.servers"]] for user in (self.source, self.target)}
        assert all(acl.principal == user.principal for user, acls in users.items() for acl in acls)
        return users

    def start_with_printed(self) -> dict[Limited, list[Acl]]:
        """Grant what is printed, and no more, and mirror."""
        printed = self.printed()
        for user, acls in printed.items():
            user.grant(acls)
        self.produce()
        self.mirror.start()
        self.wait_mirrored()
        return printed

    def check_groups(self) -> None:
        """A group is carried over: its offsets, and its checkpoint."""
        group = unique("consumer")
        commit(self.source.cluster, group, {(self.topic, 0): 7})
        south = self.target.cluster
        self.mirror.wait_until(lambda: committed(south, group) == {(self.topic, 0): 7}, 40, what="the group's offset")
        [records] = View(south, "north.checkpoints.internal").read()
        found = [Checkpoint.parse(record.key, record.value) for record in records]
        assert [item.downstream for item in found if item is not None and item.group == group] == [7]

    def bad_steps(self) -> list[Step]:
        steps = asyncio.run(check_clusters(load_settings(self.mirror.config)))
        return [step for step in steps if step.verdict is not Verdict.PASS]


@pytest.fixture
def guarded(north: LabCluster, south: LabCluster, tmp_path: Path) -> Iterator[Guarded]:
    world = Guarded(north, south, tmp_path)
    yield world
    if world.mirror.is_running:
        world.mirror.__exit__(None, None, None)


def named(acl: Acl) -> str:
    """How a right is told to users."""
    if acl.resource_type is ResourceType.CLUSTER:
        return f"{acl.operation} on the cluster"
    kind = acl.resource_type.lower()
    if acl.pattern is Pattern.PREFIXED:
        return f'{acl.operation} on all {kind}s that begin with "{acl.name}"'
    return f'{acl.operation} on {kind} "{acl.name}"'


def split(printed: dict[Limited, list[Acl]]) -> list[tuple[Limited, Acl]]:
    return [(user, acl) for user, acls in printed.items() for acl in acls]


@pytest.mark.timeout(300)
def test_the_printed_rights_are_enough_check_and_run_name_those_that_are_missing(guarded: Guarded) -> None:
    printed = guarded.start_with_printed()
    assert guarded.bad_steps() == []
    guarded.check_groups()
    assert "retrying" not in guarded.mirror.output
    for user, acl in split(printed):
        user.revoke([acl])
        found = [step.what for step in guarded.bad_steps() if step.step == "rights"]
        assert len(found) == 1, (acl, found)
        assert f"{user.principal} lacks {named(acl)} of" in found[0]
        user.grant([acl])
    assert guarded.bad_steps() == []
    taken = {
        guarded.source: [acl for acl in printed[guarded.source] if acl.operation is READ],
        guarded.target: [acl for acl in printed[guarded.target] if acl.operation in (WRITE, DESCRIBE)],
    }
    lose_and_return(guarded, taken)
    assert_equal(*(view.read() for view in guarded.views))


def is_calm(output: str) -> bool:
    """Every lack that the mirror has named is over."""
    return output.count("missing right:") == output.count("no longer missing:")


def lose_and_return(guarded: Guarded, taken: dict[Limited, list[Acl]]) -> float:
    """Take rights away until the mirror names each; the seconds that it took to go on after their return."""
    guarded.mirror.wait_until(lambda: is_calm(guarded.mirror.output), 60, what="an end of earlier lacks")
    said = len(guarded.mirror.stderr)

    def wait_for(text: str, timeout_s: float) -> None:
        guarded.mirror.wait_until(
            lambda: any(text in line for line in guarded.mirror.stderr[said:]), timeout_s, what=text
        )

    for user, acls in taken.items():
        user.revoke(acls)
    guarded.produce()
    for user, acl in split(taken):
        wait_for(f"missing right: {user.principal} lacks {named(acl)} of", 60)
    for user, acls in taken.items():
        user.grant(acls)
    began = time.monotonic()
    guarded.produce()
    guarded.mirror.wait_mirrored(*guarded.views, timeout_s=60)
    for _, acl in split(taken):
        wait_for(f"no longer missing: {named(acl)}", max(1.0, began + 60 - time.monotonic()))
    assert guarded.mirror.is_running
    for user, acl in split(taken):
        for text in (f"missing right: {user.principal} lacks {named(acl)} of", f"no longer missing: {named(acl)}"):
            found = [line for line in guarded.mirror.stderr[said:] if text in line]
            assert len(found) == 1, found
    return time.monotonic() - began


@pytest.mark.long
@pytest.mark.timeout(3000)
def test_a_running_mirror_names_every_right_by_itself(
    guarded: Guarded,
    record_property: Callable[[str, object], None],
) -> None:
    printed = guarded.start_with_printed()
    seconds = {
        f"{user.principal} {named(acl)}": lose_and_return(guarded, {user: [acl]}) for user, acl in split(printed)
    }
    assert_equal(*(view.read() for view in guarded.views))
    record_property("rights taken one by one", len(seconds))
    record_property("longest way back in s", round(max(seconds.values()), 1))


def template_rights(guarded: Guarded, *, read_target: bool) -> dict[Limited, list[Acl]]:
    """What the published templates of MirrorMaker 2 grant on the source and on the target."""

    def acls(user: Limited, kind: ResourceType, name: str, words: str, pattern: Pattern = Pattern.LITERAL) -> list[Acl]:
        return [
            Acl(principal=user.principal, operation=Operation(word), resource_type=kind, name=name, pattern=pattern)
            for word in words.split()
        ]

    topic, group, cluster = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
    source, target, many = guarded.source, guarded.target, Pattern.PREFIXED
    storage = [f"__{guarded.group}_{name}" for name in ("offset", "config", "status")]
    mirrored = "Create Alter AlterConfigs Write" + " Read" * read_target
    return {
        source: [
            *acls(source, topic, guarded.prefix, "DescribeConfigs Read", many),
            *acls(source, group, "consumer-", "Describe", many),
            *acls(source, cluster, "kafka-cluster", "Describe"),
        ],
        target: [
            *acls(target, group, guarded.group, "Read"),
            *(
                acl
                for name in storage
                for acl in acls(target, topic, name, "Create Describe DescribeConfigs Read Write")
            ),
            *acls(target, topic, "mm2-offset-syncs.north.internal", "Create DescribeConfigs Read Write"),
            *acls(target, topic, "north.checkpoints.internal", "Create Describe Read Write"),
            *acls(target, topic, guarded.prefix, mirrored, many),
            *acls(target, group, "consumer-", "Read Describe", many),
            *acls(target, cluster, "kafka-cluster", "Describe"),
            *acls(target, ResourceType.TRANSACTIONAL_ID, "*", "Write"),
        ],
    }


@pytest.mark.timeout(300)
def test_with_the_rights_of_the_published_templates_it_mirrors_and_says_what_it_lacks(guarded: Guarded) -> None:
    for user, acls in template_rights(guarded, read_target=False).items():
        user.grant([acl for acl in acls if acl.resource_type is not ResourceType.TRANSACTIONAL_ID])
    guarded.produce()
    mirror = guarded.mirror.start()
    guarded.wait_mirrored()
    unproved = "at-least-once: copied records cannot be verified"
    lacks = (
        f'Read on all topics that begin with "{guarded.prefix}" of "south": {unproved}',
        f'Write on topic "mm2-ledger.north.internal" of "south": the ledger is kept in "__{guarded.group}_offset"',
    )
    for text in lacks:
        assert sum(text in line for line in mirror.stderr) == 1, text
    command = [HELIOGRAPH, "status", str(mirror.config)]
    mirror.wait_until(lambda: subprocess.run(command, capture_output=True, check=False).returncode == 0, what="ready")
    shown = subprocess.run(command, capture_output=True, text=True, check=False)
    assert all(text in shown.stdout for text in lacks)
    assert_equal(*(view.read() for view in guarded.views))
    # With the ledger's rights the mirror moves it to its own topic, while it runs.
    own = [
        Acl(
            principal=guarded.target.principal,
            operation=operation,
            resource_type=ResourceType.TOPIC,
            name="mm2-ledger.north.internal",
        )
        for operation in (CREATE, READ, WRITE)
    ]
    guarded.target.grant(own)
    mirror.wait_for('no longer missing: Write on topic "mm2-ledger.north.internal"')
    guarded.produce()
    guarded.wait_mirrored()
    assert_equal(*(view.read() for view in guarded.views))
    shown = subprocess.run([HELIOGRAPH, "status", str(mirror.config)], capture_output=True, text=True, check=False)
    assert "mm2-ledger" not in shown.stdout


@pytest.mark.timeout(180)
def test_a_source_that_refuses_offset_syncs_and_heartbeats_is_named_once_and_mirroring_goes_on(
    north: LabCluster, south: LabCluster, tmp_path: Path
) -> None:
    world = Guarded(north, south, tmp_path, offset__syncs_topic_location="source", emit_heartbeats_enabled="true")
    refused = ("mm2-offset-syncs", "heartbeats")
    for user, acls in world.printed().items():
        user.grant([acl for acl in acls if user is world.target or not acl.name.startswith(refused)])
    world.produce()
    with world.mirror:
        world.wait_mirrored()
        world.check_groups()
        world.produce()
        world.wait_mirrored()
        world.mirror.wait_for('heartbeats into "north" are not written: NOT_AUTHORIZED', 30)
        for text in ("offset syncs: NOT_AUTHORIZED", 'heartbeats into "north"', "heartbeats into"):
            assert world.mirror.output.count(text) == 1, text
