"""Secrets and Spark: on no page, in no event log, on no command line, in no readable file; elsewhere only encrypted.

The secrets stand in the mirror's own file, the worst case.
"""

from __future__ import annotations

import secrets as random
from collections.abc import Mapping
from pathlib import Path

import pytest

from heliograph.lab import LabCluster
from heliograph.lab.listeners import MODULES
from heliograph.lab.pki import write_private
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique
from tests.cluster.planted import Planted, Row, secured_of
from tests.cluster.spark import Standalone, free_port
from tests.cluster.watch import Onlooker, save_pages
from tests.evidence import find_leaks, read_files

SLOW_START_S = 120
ON_LOOPBACK = {
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.executor.memory": "512m",
}


def keys_of(cluster: LabCluster, listener: str, stores: str) -> dict[str, str]:
    found = secured_of(cluster).client_properties(listener, stores=stores)
    return {f"{cluster.alias}.{key}": value for key, value in found.items()}


def shown_spark(folder: Path, port: int) -> tuple[str, ...]:
    """Arguments by which Spark shows and writes down all it can."""
    log = folder / "events"
    log.mkdir()
    conf = {
        "spark.ui.enabled": "true",
        "spark.ui.killEnabled": "false",
        "spark.ui.port": str(port),
        "spark.eventLog.enabled": "true",
        "spark.eventLog.compress": "false",
        "spark.eventLog.dir": log.as_uri(),
        "spark.sql.ui.explainMode": "extended",
    }
    return tuple(word for pair in conf.items() for word in ("--conf", "=".join(pair)))


def mirror_and_look(
    north: LabCluster,
    south: LabCluster,
    folder: Path,
    keys: Mapping[str, str],
    *,
    secrets: Mapping[str, str | bytes],
    spark: Standalone | None = None,
) -> None:
    """Mirror, here or on a standalone Spark, and see all there is to see: none of the secrets is in it."""
    topic = create_topic(north, unique("unseen"), 2)
    produce(north, topic, [b"%d" % number for number in range(300)])
    port = free_port()
    keys = {"north->south.topics": topic, "epoch.ms": "1500", **keys}
    arguments = (*(("--master", spark.master) if spark else ()), *shown_spark(folder, port))
    mirror = MirrorProcess(folder, {"north": north, "south": south}, keys, arguments=arguments, on_spark=True)
    with Onlooker(mirror.folder / "tmp", folder / "local") as onlooker, mirror:
        mirror.wait_mirrored(View(north, topic), View(south, f"north.{topic}"), timeout_s=SLOW_START_S)
        seen = save_pages(f"http://127.0.0.1:{port}/", folder / "pages")
        for index, page in enumerate(spark.pages if spark else ()):
            save_pages(page, folder / f"pages-{index}")
    for what in ("/jobs/job/", "/stages/stage/", "/environment/", "/executors/", "/SQL/execution/", "/environment"):
        assert any(what in address for address in seen), what
    assert b"SparkSubmit" in b"".join(onlooker.commands)
    assert "spark.properties" in onlooker.private
    evidence = [*onlooker.seen(), *read_files(folder)]
    assert any("/events/" in where and b"SparkListenerJobStart" in content for where, content in evidence)
    assert any("heliograph-spark-" in where for where, _ in evidence), "Spark's log"
    assert find_leaks(evidence, secrets) == []


@pytest.mark.timeout(300)
def test_spark_shows_no_secret_of_a_mirror_on_this_machine(
    north: LabCluster, south: LabCluster, planted: Planted, tmp_path: Path
) -> None:
    keys = {**keys_of(north, "SASL_SSL", "PKCS12"), **keys_of(south, "MTLS", "INLINE")}
    mirror_and_look(north, south, tmp_path, keys, secrets=planted.secrets())


@pytest.mark.timeout(400)
def test_a_remote_spark_gets_secrets_encrypted_and_shows_none(
    north: LabCluster, south: LabCluster, planted: Planted, tmp_path: Path
) -> None:
    shared = random.token_hex(16)
    encrypted = {
        "spark.authenticate": "true",
        "spark.authenticate.secret": shared,
        "spark.network.crypto.enabled": "true",
    }
    keys = {**keys_of(north, "MTLS", "INLINE"), **keys_of(south, "SASL_SSL", "PEM"), **ON_LOOPBACK, **encrypted}
    row = Row(secret=shared, connect=lambda secret: None)
    with Standalone(tmp_path, encrypted) as spark:
        spark.start_worker("worker")
        planted.rows["Spark's secret"] = row
        mirror_and_look(north, south, tmp_path, keys, secrets=planted.secrets(), spark=spark)
        keys |= {"north->south.topics": "x", "spark.authenticate.secret": row.altered()}
        clusters = {"north": north, "south": south}
        with MirrorProcess(tmp_path, clusters, keys, arguments=("--master", spark.master)) as mirror:
            mirror.wait_until(lambda: "Failed to connect to master" in mirror.spark_log, what="a refusal by Spark")
    planted.used.add("Spark's secret")


def test_secrets_do_not_go_to_a_remote_spark_in_clear(north: LabCluster, south: LabCluster, tmp_path: Path) -> None:
    keys = {**keys_of(north, "SASL_SSL", "PEM"), **keys_of(south, "SASL_SSL", "PEM"), "north->south.topics": "x"}
    arguments = ("--master", "spark://127.0.0.1:1")
    with MirrorProcess(tmp_path, {"north": north, "south": south}, keys, arguments=arguments) as mirror:
        assert mirror.wait_exit() == 3
    assert "would travel to Spark's executors in clear" in mirror.output
    encryption = "spark.authenticate=true and spark.network.crypto.enabled=true"
    assert f"set {encryption}, or executor.secrets=mount" in mirror.output


@pytest.mark.long
@pytest.mark.timeout(400)
def test_executors_that_have_the_secrets_need_no_encryption(
    north: LabCluster, south: LabCluster, planted: Planted, tmp_path: Path
) -> None:
    keys = {"executor.secrets": "mount", **ON_LOOPBACK}
    for cluster in (north, south):
        write_private(tmp_path / f"{cluster.alias}.secret", secured_of(cluster).password("mirror"))
        password = f"${{dir:{tmp_path}:{cluster.alias}.secret}}"
        keys |= keys_of(cluster, "SASL_SSL", "PEM")
        keys[f"{cluster.alias}.sasl.jaas.config"] = (
            f'{MODULES["SCRAM-SHA-512"]} required username="mirror" password="{password}";'
        )
    with Standalone(tmp_path) as spark:
        spark.start_worker("worker")
        mirror_and_look(north, south, tmp_path, keys, secrets=planted.secrets(), spark=spark)
