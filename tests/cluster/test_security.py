"""Secured clusters: the protocols and stores that users have, mirrored end to end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from heliograph.lab import Cluster, Secured
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique


def secured_of(cluster: Cluster) -> Secured:
    assert cluster.secured is not None
    return cluster.secured


def keys_of(cluster: Cluster, listener: str, mechanism: str, stores: str) -> dict[str, str]:
    found = secured_of(cluster).client_properties(listener, mechanism=mechanism, stores=stores)
    return {f"{cluster.alias}.{key}": value for key, value in found.items()}


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    ("northern", "southern"),
    [
        (("SASL_SSL", "SCRAM-SHA-512", "PKCS12"), ("MTLS", "", "JKS")),
        (("SASL_PLAINTEXT", "PLAIN", "PEM"), ("SASL_SSL", "SCRAM-SHA-256", "PEM")),
    ],
)
def test_mirroring_between_secured_clusters_both_ways(
    northern: tuple[str, str, str], southern: tuple[str, str, str], north: Cluster, south: Cluster, tmp_path: Path
) -> None:
    there, back = (create_topic(cluster, unique("secure"), 2) for cluster in (north, south))
    views = [
        (View(north, there), View(south, f"north.{there}")),
        (View(south, back), View(north, f"south.{back}")),
    ]
    for source, _ in views:
        produce(source.cluster, source.topic, [b"%d" % number for number in range(500)])
    settings = {
        **keys_of(north, *northern),
        **keys_of(south, *southern),
        "north->south.topics": there,
        "south->north.topics": back,
    }
    with MirrorProcess(tmp_path, {"north": north, "south": south}, settings) as mirror:
        started = time.monotonic()
        for source, target in views:
            mirror.wait_mirrored(source, target)
        # Longer than the broker lets a session live: without logging in again the connections would break.
        mirror.wait_until(lambda: time.monotonic() > started + 40, what="the end of some sessions")
        for source, target in views:
            produce(source.cluster, source.topic, [b"later"])
            mirror.wait_mirrored(source, target)
    assert "connection" not in "".join(mirror.stderr).lower()
    for name, secret in (*secured_of(north).secrets().items(), *secured_of(south).secrets().items()):
        assert secret not in mirror.output, name


def test_a_wrong_password_is_named(north: Cluster, south: Cluster, tmp_path: Path) -> None:
    wrong = keys_of(north, "SASL_PLAINTEXT", "SCRAM-SHA-512", "PEM")
    module = wrong["north.sasl.jaas.config"].split()[0]
    settings = {
        **wrong,
        "north.sasl.jaas.config": f'{module} required username="x" password="y";',
        "north->south.topics": "x",
    }
    with MirrorProcess(tmp_path, {"north": north, "south": south}, settings) as mirror:
        mirror.wait_for('login as "x" with SCRAM-SHA-512 was refused')
