"""Topics are made with the settings of their source, on real brokers; what a target refuses is named and goes on when
it may. How settings follow later is in `test_mm2_counterparts.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.kafka.admin.acls import Acl, Operation, ResourceType
from heliograph.lab import Lab, LabCluster
from tests.cluster.limited import Limited
from tests.cluster.mirror import (
    MirrorProcess,
    View,
    create_topic,
    grow_topic,
    partition_count,
    produce,
    topics,
    unique,
)
from tests.cluster.settings import (
    Setting,
    change_settings,
    changes_told,
    own_settings,
    run_command,
    settings_of,
    wait_own,
    wait_set,
)
from tests.cluster.test_heal import set_quota
from tests.cluster.test_rights import Guarded

EXCLUDED, FOLLOWED = "delete.retention.ms", "retention.bytes"


class Flowing:
    """One mirror with two flows: what their topics' defaults are differs."""

    def __init__(self, folder: Path, primary: LabCluster, backup: LabCluster) -> None:
        self.primary, self.backup = primary, backup
        again = f"localhost:{primary.port(1)}"  # another alias of the same cluster
        keys = {
            "primary->backup.topics": "configs-.*",
            "again->backup.topics": "defaults-.*",
            "again->backup.use.defaults.from": "source",
            "again->backup.replication.factor": "-1",
            "sync.topic.configs.interval.seconds": "1",
            "config.properties.exclude": r"delete\.retention\.ms, min\.insync.*",
        }
        self.mirror = MirrorProcess(folder, {"primary": primary, "again": again, "backup": backup}, keys)

    def wait_own(self, remote: str, wanted: dict[str, str]) -> None:
        wait_own(self.mirror, self.backup, remote, wanted)


@pytest.fixture(scope="module")
def flowing(tmp_path_factory: pytest.TempPathFactory, primary: LabCluster, backup: LabCluster) -> Iterator[Flowing]:
    flowing = Flowing(tmp_path_factory.mktemp("configs"), primary, backup)
    with flowing.mirror:
        yield flowing


def test_new_topic_configs(flowing: Flowing) -> None:
    """A topic is made with the filtered settings of its source; nothing is left to change."""
    config = {
        "cleanup.policy": "compact,delete",
        "compression.type": "zstd",
        "max.message.bytes": "2000000",
        "message.timestamp.after.max.ms": "7200000",
        "min.insync.replicas": "1",
        EXCLUDED: "1000",
    }
    topic = create_topic(flowing.primary, unique("configs-new"), 3, config=config)
    with_defaults = create_topic(flowing.primary, unique("defaults-new"), config=config)
    value = b"x" * 1_500_000
    produce(flowing.primary, topic, [b"small", value], partition=2, message_max_bytes=1_900_000)
    remote = f"primary.{topic}"
    flowing.mirror.wait_mirrored(View(flowing.primary, topic), View(flowing.backup, remote))
    wanted = {key: config[key] for key in ("cleanup.policy", "compression.type", "max.message.bytes")}
    assert own_settings(flowing.backup, remote) == wanted
    wait_set(flowing.mirror, flowing.backup, f"again.{with_defaults}", "segment.bytes", Setting("1073741824", True))
    found = own_settings(flowing.backup, f"again.{with_defaults}")
    assert found.items() >= wanted.items()
    assert not found.keys() & {"message.timestamp.after.max.ms", "min.insync.replicas", EXCLUDED}
    # Later passes have been over both when they have been over this one.
    marker = create_topic(flowing.primary, unique("configs-marker"))
    flowing.wait_own(f"primary.{marker}", {})
    for number in ("1", "2"):
        change_settings(flowing.primary, marker, {FOLLOWED: number})
        flowing.wait_own(f"primary.{marker}", {FOLLOWED: number})
    assert changes_told(flowing.mirror, remote) == []


def test_a_limit_that_grows_on_the_source_grows_for_lanes_too(flowing: Flowing) -> None:
    topic = create_topic(flowing.primary, unique("configs-limit"))
    remote = f"primary.{topic}"
    produce(flowing.primary, topic, [b"small"])
    flowing.mirror.wait_mirrored(View(flowing.primary, topic), View(flowing.backup, remote))
    change_settings(flowing.primary, topic, {"max.message.bytes": "3000000"})
    flowing.wait_own(remote, {"max.message.bytes": "3000000"})
    produce(flowing.primary, topic, [b"x" * 2_500_000, b"after"], message_max_bytes=2_900_000)
    flowing.mirror.wait_mirrored(View(flowing.primary, topic), View(flowing.backup, remote))


def test_a_target_grows_before_it_is_copied_and_one_with_more_partitions_is_left_alone(flowing: Flowing) -> None:
    wide, narrow = unique("configs-wide"), unique("configs-narrow")
    create_topic(flowing.backup, f"primary.{wide}", 5)
    create_topic(flowing.backup, f"primary.{narrow}", 1)
    for topic in (wide, narrow):
        create_topic(flowing.primary, topic, 3)
        for partition in range(3):
            produce(flowing.primary, topic, [b"%d" % partition], partition=partition)
    flowing.mirror.wait_mirrored(View(flowing.primary, narrow), View(flowing.backup, f"primary.{narrow}"))
    flowing.mirror.wait_until(
        lambda: View(flowing.backup, f"primary.{wide}").counts() == [1, 1, 1, 0, 0], what="the copy of the wide one"
    )
    grow_topic(flowing.primary, wide, 4)
    produce(flowing.primary, wide, [b"3"], partition=3)
    flowing.mirror.wait_until(
        lambda: View(flowing.backup, f"primary.{wide}").counts() == [1, 1, 1, 1, 0], what="the fourth partition"
    )


def test_a_quota_on_new_partitions_holds_topics_up_and_loses_none(flowing: Flowing) -> None:
    flowing.mirror.wait_for("primary->backup: ")
    names = [unique("configs-quota") for _ in range(3)]
    set_quota(flowing.backup, {"controller_mutation_rate": 0.5})
    try:
        for topic in names:
            create_topic(flowing.primary, topic, 20)
            produce(flowing.primary, topic, [topic.encode()])
        flowing.mirror.wait_for("THROTTLING_QUOTA_EXCEEDED")
    finally:
        set_quota(flowing.backup, {"controller_mutation_rate": None})
    told: list[str] = []
    for topic in names:
        flowing.mirror.wait_mirrored(View(flowing.primary, topic), View(flowing.backup, f"primary.{topic}"))
        refusals = [line for line in flowing.mirror.stderr if f'"primary.{topic}" is not mirrored' in line]
        assert len(refusals) <= 1, "told once"
        told += refusals
    assert told, "the quota lets one topic pass, and not three"
    assert [
        line for line in told if "raise controller_mutation_rate" not in line or "--partitions 20" not in line
    ] == []


# -- with few rights


def prefixed(user: Limited, acls: list[Acl], prefix: str, *operations: Operation) -> list[Acl]:
    """Those of a user's rules on all topics that begin so."""
    found = [acl for acl in acls if acl.name == prefix and acl.operation in operations]
    assert len(found) == len(operations), (user, acls)
    return found


def commands(mirror: MirrorProcess, topic: str) -> list[str]:
    """What administrators were told to run for a topic, in the order of the messages."""
    about = (f"--topic {topic} ", f"--entity-name {topic} ")
    found = [line.partition(": kafka-")[2] for line in mirror.stderr if any(text in line for text in about)]
    return [f"kafka-{command}" for command in found]


@pytest.mark.timeout(300)
def test_missing_describe_configs_acl_and_other_rights_are_named_with_commands_that_help(
    lab: Lab, north: LabCluster, south: LabCluster, tmp_path: Path
) -> None:
    """Settings are not shown by the source; the target lets us neither make, grow nor change topics."""
    world = Guarded(north, south, tmp_path, sync_topic_configs_interval_seconds="1")
    prefix, mirror, orders = world.prefix, world.mirror, world.topic
    new = create_topic(north, f"{prefix}new")
    short = create_topic(north, f"{prefix}short", 3)
    create_topic(south, orders, 2)
    create_topic(south, short, 1)
    change_settings(north, orders, {"cleanup.policy": "compact,delete"})
    change_settings(south, orders, {"retention.ms": "86400000"})
    for topic in (new, short):
        produce(north, topic, [b"waiting"])
    printed = world.printed()
    hidden = prefixed(world.source, printed[world.source], prefix, Operation.DESCRIBE_CONFIGS)
    kinds = (Operation.CREATE, Operation.ALTER, Operation.ALTER_CONFIGS)
    refused = prefixed(world.target, printed[world.target], prefix, *kinds)
    world.source.grant([acl for acl in printed[world.source] if acl not in hidden])
    kept = [acl for acl in printed[world.target] if acl not in refused]
    seen = Acl(
        principal=world.target.principal,
        operation=Operation.DESCRIBE_CONFIGS,
        resource_type=ResourceType.TOPIC,
        name=prefix,
        pattern=refused[0].pattern,
    )
    world.target.grant([*kept, seen])
    world.produce()
    with mirror:
        world.wait_mirrored()
        mirror.wait_for(f'settings of {orders} are not copied: NOT_AUTHORIZED: "north": DescribeConfigs', 30)
        mirror.wait_for(f'"{new}" is not mirrored: NOT_AUTHORIZED')
        mirror.wait_for(f'"{short}" has too few partitions')
        assert not partition_count(south, new)
        assert View(south, short).counts() == [0], "half a topic would pass for a whole one"
        world.source.grant(hidden)
        mirror.wait_for(f'settings of "{orders}" stay as they are')
        mirror.wait_for("settings are copied again")
        world.produce()
        world.wait_mirrored()

        for topic in (new, short, orders):
            [command] = commands(mirror, topic)
            run_command(lab, south, command)
        for topic in (new, short):
            mirror.wait_mirrored(View(north, topic), View(south, topic))
            mirror.wait_for(f'"{topic}" is as it should be now')
        mirror.wait_for(f'settings of "{orders}" follow the source again')
        assert own_settings(south, orders) == {"cleanup.policy": "compact,delete"}
        for text in (
            f"settings of {orders} are not copied",
            f'settings of "{orders}" stay as they are',
            f'"{new}" is not mirrored: ',
            f'"{short}" has too few partitions',
        ):
            assert sum(text in line for line in mirror.stderr) == 1, text


# -- internal topics

RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata:
  name: {name}
spec:
  connectCluster: backup
  clusters:
  - alias: kept
    bootstrapServers: {source}
  - alias: backup
    bootstrapServers: {target}
    config:
      offset.storage.replication.factor: 1
      config.storage.replication.factor: 1
      status.storage.replication.factor: 1
  mirrors:
  - sourceCluster: kept
    targetCluster: backup
    topicsPattern: {topic}
    sourceConnector:
      config:
        replication.factor: 1
        offset-syncs.topic.location: target
        offset-syncs.topic.replication.factor: 1
        refresh.topics.interval.seconds: 1
"""


def shape(cluster: LabCluster, topic: str) -> tuple[int, str]:
    return partition_count(cluster, topic), settings_of(cluster, topic)["cleanup.policy"].value


@pytest.mark.timeout(300)
def test_two_instances_with_names_of_their_own_share_a_target_and_one_makes_no_internal_topic(
    lab: Lab, primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """One has its storage topics made by hand, with the commands that it prints; the other is Strimzi's."""
    one, other, group = unique("shared-one"), unique("shared-other"), unique("mm2")
    for topic in (one, other):
        create_topic(primary, topic)
        produce(primary, topic, [topic.encode()])
    storage = {name: f"__{group}_{name}" for name in ("offset", "config", "status")}
    keys = {
        "kept->backup.topics": one,
        "backup.group.id": group,
        "backup.internal.topics.automatic.creation.enable": "false",
        "offset-syncs.topic.location": "target",
        "emit.checkpoints.enabled": "false",
        **{f"backup.{name}.storage.topic": topic for name, topic in storage.items()},
    }
    first = MirrorProcess(tmp_path, {"kept": primary, "backup": backup}, keys)
    second = MirrorProcess(tmp_path, {}, {})
    second.config = second.folder / "mm2.yaml"
    text = RESOURCE.format(name=unique("strimzi"), source=primary.bootstrap, target=backup.bootstrap, topic=other)
    second.config.write_text(text)
    before = topics(backup)

    assert first.start().wait_exit(60) == 3
    assert topics(backup) == before
    [line] = [line for line in first.stderr if "internal.topics.automatic.creation.enable = true" in line]
    for command in line.partition("have them made: ")[2].split(" ; "):
        if "mm2-ledger" not in command:
            run_command(lab, backup, command)
    with first:
        first.wait_mirrored(View(primary, one), View(backup, f"kept.{one}"))
        assert f'the ledger is kept in "{storage["offset"]}"' in first.output
        assert not partition_count(backup, "mm2-ledger.kept.internal")
        with second:  # which makes that topic, so that the first moves its ledger
            second.wait_mirrored(View(primary, other), View(backup, f"kept.{other}"))
            for topic, mirror in ((one, first), (other, second)):
                produce(primary, topic, [b"more"])
                mirror.wait_mirrored(View(primary, topic), View(backup, f"kept.{topic}"))
        assert shape(backup, storage["offset"]) == (25, "compact")
        assert shape(backup, storage["config"]) == (1, "compact")
        assert shape(backup, storage["status"]) == (5, "compact")
        assert shape(backup, "mirrormaker2-cluster-offsets") == (25, "compact")
        assert shape(backup, "mirrormaker2-cluster-configs") == (1, "compact")
        assert shape(backup, "mirrormaker2-cluster-status") == (5, "compact")
        assert shape(backup, "mm2-ledger.kept.internal") == (1, "compact")
    made = {name for name in topics(backup) - before if "heartbeats" not in name and "checkpoints" not in name}
    assert made == {
        *storage.values(),
        *(f"mirrormaker2-cluster-{name}" for name in ("offsets", "configs", "status")),
        "mm2-ledger.kept.internal",
        "mm2-offset-syncs.kept.internal",
        f"kept.{one}",
        f"kept.{other}",
    }
