"""What heals by itself, on real brokers: quotas are obeyed and shown, a target short of replicas is waited for."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from heliograph.kafka import cluster as kafka
from heliograph.kafka.security import PLAINTEXT
from heliograph.lab import Cluster
from tests.cluster.limited import ask
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    admin,
    assert_equal,
    create_topic,
    produce,
    unique,
)

RATE = 200_000
VALUE_BYTES, VALUES = 50_000, 60
"""3 MB: a quarter of a minute at that rate."""


def set_quota(cluster: Cluster, quotas: Mapping[str, float | None]) -> None:
    """Of every client id that has none of its own; None lifts one."""
    entry = AlterClientQuotasRequest.EntryData
    request = AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[entry.EntityData(entity_type="client-id", entity_name=None)],
                ops=[entry.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in quotas.items()],
            )
        ],
        validate_only=False,
    )

    async def alter(client: kafka.Cluster) -> list[int]:
        connection = await client.connection(await client.controller())
        answer = await client._exchange(connection, request, version=1, timeout_s=30)
        return [item.error_code for item in answer.entries]

    assert ask(cluster.bootstrap, PLAINTEXT, alter) == [0]


def set_topic_config(cluster: Cluster, topic: str, **config: str | None) -> None:
    """None goes back to the default; underscores stand for dots."""
    entries = [
        ConfigEntry(
            name.replace("_", "."),
            value or "",
            incremental_operation=AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET,
        )
        for name, value in config.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin(cluster).incremental_alter_configs([resource])[resource].result(30)


@pytest.fixture(scope="module")
def mirror(tmp_path_factory: pytest.TempPathFactory, primary: Cluster, backup: Cluster) -> Iterator[MirrorProcess]:
    clusters = {"primary": primary, "backup": backup}
    with MirrorProcess(tmp_path_factory.mktemp("heal"), clusters, {"primary->backup.topics": "heal-.*"}) as mirror:
        yield mirror


def lines(mirror: MirrorProcess, text: str, since: int) -> list[str]:
    return [line for line in mirror.stderr[since:] if text in line]


@pytest.mark.timeout(700)
def test_quotas_on_both_sides_are_obeyed_and_shown(mirror: MirrorProcess, primary: Cluster, backup: Cluster) -> None:
    topic = create_topic(primary, unique("heal-quota"), 2)
    source, target = View(primary, topic), View(backup, f"primary.{topic}")
    produce(primary, topic, [b"before"])
    mirror.wait_mirrored(source, target, timeout_s=300)  # Spark may still be starting
    said = len(mirror.stderr)
    sides = {"primary": (primary, "consumer_byte_rate"), "backup": (backup, "producer_byte_rate")}
    try:
        for cluster, key in sides.values():
            set_quota(cluster, {key: RATE})
        for partition in range(2):
            values = [os.urandom(VALUE_BYTES) for _ in range(VALUES // 2)]
            produce(primary, topic, values, partition=partition)
        for alias in sides:
            mirror.wait_for(f'throttled by "{alias}"', 60)
        shown = subprocess.run([HELIOGRAPH, "status", str(mirror.config)], capture_output=True, text=True, check=False)
        assert "throttled by" in shown.stdout
        mirror.wait_mirrored(source, target, timeout_s=120)
        mirror.wait_until(lambda: any("throttled by" in line for line in mirror.stdout), what="the line of progress")
    finally:
        for cluster, key in sides.values():
            set_quota(cluster, {key: None})
    for alias in sides:
        mirror.wait_for(f'no longer throttled by "{alias}"', 60)
        assert len(lines(mirror, f': throttled by "{alias}"', said)) == 1
        assert len(lines(mirror, f'no longer throttled by "{alias}"', said)) == 1
    produce(primary, topic, [b"after"])
    mirror.wait_mirrored(source, target)
    assert_equal(source.read(), target.read())
    assert lines(mirror, "UNREACHABLE", said) == []


@pytest.mark.timeout(500)
def test_a_target_short_of_replicas_is_waited_for(mirror: MirrorProcess, primary: Cluster, backup: Cluster) -> None:
    topic, other = create_topic(primary, unique("heal-isr")), create_topic(primary, unique("heal-other"))
    source, target = View(primary, topic), View(backup, f"primary.{topic}")
    produce(primary, topic, [b"before"] * 10)
    mirror.wait_mirrored(source, target, timeout_s=300)
    said = len(mirror.stderr)
    set_topic_config(backup, f"primary.{topic}", min_insync_replicas="2")
    produce(primary, topic, [b"while it refuses"] * 10)
    mirror.wait_until(lambda: bool(lines(mirror, "NOT_ENOUGH_REPLICAS", said)), 60, what="the refusal's name")
    produce(primary, other, [b"v"] * 10)
    mirror.wait_mirrored(View(primary, other), View(backup, f"primary.{other}"))
    assert target.counts() == [10]
    set_topic_config(backup, f"primary.{topic}", min_insync_replicas=None)
    mirror.wait_mirrored(source, target)
    mirror.wait_until(lambda: len(lines(mirror, "NOT_ENOUGH_REPLICAS", said)) == 2, 60, what="its end")
    begun, over = lines(mirror, "NOT_ENOUGH_REPLICAS", said)
    assert "primary->backup: waiting: " in begun
    assert "lower min.insync.replicas" in begun
    assert "primary->backup: over after " in over
    assert_equal(source.read(), target.read())
