"""What heals by itself, on real brokers: quotas are obeyed, shown, and over when they are lifted."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from kafka.protocol.admin.client_quotas import AlterClientQuotasRequest

from heliograph.kafka import cluster as kafka
from heliograph.kafka.security.client_security import PLAINTEXT
from heliograph.lab import LabCluster
from tests.cluster.limited import ask
from tests.cluster.mirror import (
    HELIOGRAPH,
    MirrorProcess,
    View,
    assert_equal,
    create_topic,
    produce,
    unique,
)

RATE = 200_000
VALUE_BYTES, VALUES = 50_000, 60
"""3 MB: a quarter of a minute at that rate."""


def set_quota(cluster: LabCluster, quotas: Mapping[str, float | None]) -> None:
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


@pytest.fixture(scope="module")
def mirror(
    tmp_path_factory: pytest.TempPathFactory, primary: LabCluster, backup: LabCluster
) -> Iterator[MirrorProcess]:
    clusters = {"primary": primary, "backup": backup}
    with MirrorProcess(tmp_path_factory.mktemp("heal"), clusters, {"primary->backup.topics": "heal-.*"}) as mirror:
        yield mirror


def lines(mirror: MirrorProcess, text: str, since: int) -> list[str]:
    return [line for line in mirror.stderr[since:] if text in line]


@pytest.mark.timeout(700)
@pytest.mark.parametrize(("alias", "key"), [("backup", "producer_byte_rate"), ("primary", "consumer_byte_rate")])
def test_a_quota_is_obeyed_and_shown(
    alias: str, key: str, mirror: MirrorProcess, primary: LabCluster, backup: LabCluster
) -> None:
    topic = create_topic(primary, unique("heal-quota"), 2)
    source, target = View(primary, topic), View(backup, f"primary.{topic}")
    produce(primary, topic, [b"before"])
    mirror.wait_mirrored(source, target, timeout_s=300)  # Spark may still be starting
    said = len(mirror.stderr)
    limited = {"primary": primary, "backup": backup}[alias]
    set_quota(limited, {key: RATE})
    try:
        for partition in range(2):
            values = [os.urandom(VALUE_BYTES) for _ in range(VALUES // 2)]
            produce(primary, topic, values, partition=partition)
        mirror.wait_for(f': throttled by "{alias}"', 60)
        shown = subprocess.run([HELIOGRAPH, "status", str(mirror.config)], capture_output=True, text=True, check=False)
        assert f'throttled by "{alias}"' in shown.stdout
        mirror.wait_mirrored(source, target, timeout_s=120)
    finally:
        set_quota(limited, {key: None})
    mirror.wait_for(f'no longer throttled by "{alias}"', 60)
    assert any(f', throttled by "{alias}"' in line for line in mirror.stdout), "the line of progress"
    assert len(lines(mirror, f': throttled by "{alias}"', said)) == 1
    assert len(lines(mirror, f'no longer throttled by "{alias}"', said)) == 1
    produce(primary, topic, [b"after"])
    mirror.wait_mirrored(source, target)
    assert_equal(source.read(), target.read())
    assert lines(mirror, "UNREACHABLE", said) == []


@pytest.mark.long
@pytest.mark.timeout(700)
def test_a_target_with_too_few_replicas_is_waited_for(tmp_path: Path, primary: LabCluster, trio: LabCluster) -> None:
    topic = create_topic(primary, unique("heal-replicas"))
    remote = create_topic(trio, f"primary.{topic}", replicas=3, config={"min.insync.replicas": "3"})
    source, target = View(primary, topic), View(trio, remote)
    keys = {
        "primary->trio.topics": topic,
        **{f"{kind}replication.factor": "3" for kind in ("", "offset.storage.", "offset-syncs.topic.")},
    }
    with MirrorProcess(tmp_path, {"primary": primary, "trio": trio}, keys) as mirror:
        produce(primary, topic, [b"before"] * 10)
        mirror.wait_mirrored(source, target, timeout_s=300)
        trio.stop_broker(2)
        produce(primary, topic, [b"meanwhile"] * 10)
        mirror.wait_for("NOT_ENOUGH_REPLICAS", 120)
        assert target.counts() == [10]
        trio.start_broker(2)
        mirror.wait_mirrored(source, target, timeout_s=300)
        assert [line for line in mirror.stderr if "WARNING" in line and "waiting" in line and "ENOUGH" in line][
            1:
        ] == []
