"""`heliograph check` on real brokers: what passes, and each thing that is wrong by its name."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from heliograph import cli
from heliograph.config import load_settings
from heliograph.config.files.properties import property_line
from heliograph.lab import LabCluster
from heliograph.preflight.check import check_app_user, check_clusters
from heliograph.preflight.steps import Step, Verdict
from tests.cluster.mirror import (
    MirrorProcess,
    View,
    create_topic,
    grow_topic,
    produce,
    set_broker_config,
    topics,
    unique,
)

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
IDENTITY = {"replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"}


def configured(folder: Path, clusters: Mapping[str, LabCluster | str], keys: Mapping[str, str]) -> Path:
    """A file as a mirror of the tests has it; the mirror is not started."""
    return MirrorProcess(folder, clusters, keys).config


def checked(folder: Path, clusters: Mapping[str, LabCluster | str], keys: Mapping[str, str]) -> list[Step]:
    return asyncio.run(check_clusters(load_settings(configured(folder, clusters, keys))))


def bad(steps: list[Step]) -> list[Step]:
    return [step for step in steps if step.verdict is not PASS]


def only_bad(steps: list[Step]) -> Step:
    [step] = bad(steps)
    assert step.remedy
    return step


@pytest.fixture
def both(primary: LabCluster, backup: LabCluster) -> dict[str, LabCluster | str]:
    return {"primary": primary, "backup": backup}


def test_a_good_configuration_passes_and_nothing_is_changed(
    both: dict[str, LabCluster | str],
    primary: LabCluster,
    backup: LabCluster,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    topic = create_topic(primary, unique("good"), 2)
    before = topics(primary), topics(backup)
    config = configured(tmp_path, both, {"primary->backup.topics": topic})
    with pytest.raises(SystemExit) as ended:
        cli.main(["check", str(config), "--strict"])
    lines = capsys.readouterr().out.splitlines()
    assert ended.value.code == 0, "\n".join(lines)
    assert lines[-1].endswith(" PASS, 0 WARN, 0 FAIL (-v shows all)")
    assert not [line for line in lines if line.startswith(("VERDICT", "PASS"))]
    assert (topics(primary), topics(backup)) == before


def test_what_a_mirror_has_written_is_its_own(
    both: dict[str, LabCluster | str], primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """Another flow's records in a target topic are named; the mirror's own are not."""
    topic = create_topic(primary, unique("own"))
    produce(primary, topic, [b"x"] * 10)
    with MirrorProcess(tmp_path, both, {"primary->backup.topics": topic}) as mirror:
        mirror.wait_mirrored(View(primary, topic), View(backup, f"primary.{topic}"))
    assert not bad(asyncio.run(check_clusters(load_settings(mirror.config))))
    step = only_bad(
        checked(
            tmp_path,
            both,
            {
                "primary->backup.topics": topic,
                "backup.group.id": unique("else"),
                "backup.offset.storage.topic": unique("else"),
                "group.id": unique("else"),
                "primary->backup.name": unique("else"),
            },
        )
    )
    assert (step.step, step.subject, step.verdict) == ("names", f"primary.{topic}", WARN)


def test_an_unreachable_broker_of_three_is_named(trio: LabCluster, backup: LabCluster, tmp_path: Path) -> None:
    create_topic(trio, topic := unique("three"), 3, replicas=3)
    first = trio.bootstrap.split(",")[0]
    victim = trio.brokers[-1].node_id
    trio.kill_broker(victim)
    steps = checked(tmp_path, {"trio": first, "backup": backup}, {"trio->backup.topics": topic})
    [step] = [step for step in steps if step.step == "advertised" and step.verdict is FAIL]
    assert (step.cluster, step.role) == ("trio", "admin, consumer")
    assert f"the advertised listener of broker {victim} cannot be reached" in step.what
    assert [step for step in steps if step.step == "partitions"]


def test_a_cluster_that_is_away_leaves_the_others(primary: LabCluster, tmp_path: Path) -> None:
    clusters: dict[str, LabCluster | str] = {"primary": primary, "backup": "127.0.0.1:1"}
    steps = checked(tmp_path, clusters, {"primary->backup.topics": "x"})
    step = only_bad(steps)
    assert (step.cluster, step.step) == ("backup", "tcp")
    assert [step for step in steps if step.cluster == "primary" and step.step == "cluster"]


def test_one_cluster_under_two_aliases_fails(primary: LabCluster, tmp_path: Path) -> None:
    other = primary.bootstrap.replace("127.0.0.1", "localhost")
    assert other != primary.bootstrap
    steps = checked(tmp_path, {"primary": primary, "backup": other}, {"primary->backup.topics": unique("none")})
    step = only_bad(steps)
    assert (step.verdict, step.step) == (FAIL, "cluster id")
    assert 'the same cluster as "primary"' in step.what


def test_more_replicas_than_brokers_fail(
    both: dict[str, LabCluster | str], primary: LabCluster, tmp_path: Path
) -> None:
    topic = create_topic(primary, unique("many"))
    step = only_bad(checked(tmp_path, both, {"primary->backup.topics": topic, "replication.factor": "3"}))
    assert (step.verdict, step.step) == (FAIL, "replication factor")
    assert f'"primary.{topic}" needs 3' in step.what


def test_limits_and_partition_counts_are_compared(
    both: dict[str, LabCluster | str], primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    topic = create_topic(primary, unique("limits"), 4, config={"max.message.bytes": "2000000"})
    keys = {"primary->backup.topics": topic}
    assert not bad(checked(tmp_path, both, keys)), "a new topic has its source's settings"
    step = only_bad(checked(tmp_path, both, {**keys, "config.properties.exclude": "max.message.bytes"}))
    assert (step.verdict, step.step, step.subject) == (WARN, "max.message.bytes", topic)
    config = {"max.message.bytes": "1000000", "message.timestamp.before.max.ms": "1000"}
    create_topic(backup, f"primary.{topic}", 2, config=config)
    partitions, size, times = bad(checked(tmp_path, both, keys))
    assert (partitions.step, partitions.subject) == ("partitions", f"primary.{topic}")
    assert "the target accepts 1000000 bytes, the source 2000000" in size.what
    assert "older than 1000 ms" in times.what
    grow_topic(backup, f"primary.{topic}", 6)
    assert "stay empty" in bad(checked(tmp_path, both, keys))[0].what


def test_a_cycle_of_equal_names_fails(
    both: dict[str, LabCluster | str], primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    """One direction is paused: with both running the file alone is an error."""
    topic = unique("round")
    create_topic(primary, topic)
    keys = {"primary->backup.topics": topic, "backup->primary.topics": topic, "backup->primary.state": "paused"}
    step = only_bad(checked(tmp_path, both, {**keys, **IDENTITY}))
    assert (step.verdict, step.step, step.subject) == (FAIL, "cycles", topic)


def test_two_sources_for_one_name_fail(
    both: dict[str, LabCluster | str], primary: LabCluster, backup: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    topic = unique("twice")
    create_topic(primary, topic)
    create_topic(backup, topic)
    keys = {"primary->trio.topics": topic, "backup->trio.topics": topic, **IDENTITY}
    step = only_bad(checked(tmp_path, {**both, "trio": trio}, keys))
    assert (step.verdict, step.step, step.cluster, step.subject) == (FAIL, "collisions", "trio", topic)


def test_an_application_is_tried_on_the_target(
    both: dict[str, LabCluster | str], backup: LabCluster, tmp_path: Path
) -> None:
    topic = unique("app")
    create_topic(backup, f"primary.{topic}")
    config = configured(tmp_path, both, {"primary->backup.topics": topic})
    application = tmp_path / "app.properties"
    application.write_text("bootstrap.servers = elsewhere:9092\ngroup.id = billing\n")
    steps = asyncio.run(check_app_user(load_settings(config), application))
    assert not bad(steps)
    assert {(step.cluster, step.role) for step in steps} == {("backup", "app")}
    assert "may read all 1 mirrored topics" in [step.what for step in steps]


def test_an_old_cluster_without_access_rules_has_every_right(
    old: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    keys = {"old->backup.topics": "x", "backup->old.topics": "x"}
    steps = [step for step in checked(tmp_path, {"old": old, "backup": backup}, keys) if step.step == "rights"]
    assert {step.cluster for step in steps} == {"old", "backup"}
    assert {step.verdict for step in steps} == {Verdict.PASS}


def test_an_application_is_tried_on_the_passive_side(north: LabCluster, south: LabCluster, tmp_path: Path) -> None:
    """With the credentials it has on the active side: right and wrong ones."""
    assert south.secured is not None
    topic = unique("north.orders")
    create_topic(south, topic)
    access = south.secured.client_properties("SASL_SSL", stores="PKCS12")
    keys = {f"south.{key}": value for key, value in access.items()}
    original = topic.removeprefix("north.")
    config = configured(tmp_path, {"north": north, "south": south}, {**keys, "north->south.topics": original})
    application = south.secured.client_properties("SASL_SSL", user="app", stores="PKCS12")
    steps = app_steps(config, application, tmp_path)
    assert [step.what for step in steps if step.step in ("read", "write")] == [
        "may read all 1 mirrored topics",
        "may write all 1 mirrored topics",
    ]
    assert {step.verdict for step in steps} == {Verdict.PASS}
    wrong = application["sasl.jaas.config"].replace('username="app"', 'username="nobody"')
    [failure] = [
        step
        for step in app_steps(config, {**application, "sasl.jaas.config": wrong}, tmp_path)
        if step.verdict is Verdict.FAIL and step.step == "sasl"
    ]
    assert 'login as "nobody" with SCRAM-SHA-512 was refused' in failure.what


def app_steps(config: Path, application: dict[str, str], folder: Path) -> list[Step]:
    file = folder / "app.properties"
    file.write_text("".join(f"{property_line(key, value)}\n" for key, value in application.items()))
    return asyncio.run(check_app_user(load_settings(config), file))


def test_a_storage_topic_that_is_not_compacted_fails_with_the_command(
    both: dict[str, LabCluster | str], backup: LabCluster, tmp_path: Path
) -> None:
    storage = create_topic(backup, unique("storage"), 2, config={"cleanup.policy": "compact,delete"})
    keys = {"primary->backup.topics": unique("none"), "backup.offset.storage.topic": storage}
    step = only_bad(checked(tmp_path, both, keys))
    assert (step.verdict, step.step, step.subject) == (FAIL, "internal topics", storage)
    assert f"--entity-name {storage} --add-config cleanup.policy=compact" in step.remedy


def test_how_long_the_target_remembers_producers_is_read_from_its_brokers(
    both: dict[str, LabCluster | str], backup: LabCluster, tmp_path: Path
) -> None:
    def told(name: str) -> str:
        (tmp_path / name).mkdir()
        steps = checked(tmp_path / name, both, {"primary->backup.topics": unique("none")})
        [what] = [step.what for step in steps if "remembers producers" in step.what]
        return what

    assert told("default").startswith('"backup" remembers producers for 24 h (producer.id.expiration.ms)')
    set_broker_config(backup, producer_id_expiration_ms="72000000")
    try:
        assert "for 20 h (producer.id.expiration.ms): behind records over 10 h old" in told("shorter")
    finally:
        set_broker_config(backup, producer_id_expiration_ms="86400000")
