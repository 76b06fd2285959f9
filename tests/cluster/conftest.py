"""What tests on real brokers share, besides the brokers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heliograph.lab import LabCluster
from tests.cluster.judge import Judge, start_java
from tests.cluster.planted import Planted, plant
from tests.evidence import Evidence


@pytest.fixture(scope="module")
def java() -> Iterator[Judge]:
    """A Java with Kafka's jars."""
    with start_java() as judge:
        yield judge


@pytest.fixture(scope="session")
def planted(
    north: LabCluster, south: LabCluster, evidence: Evidence, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Planted]:
    """Secrets to search for: the run's end searches for them too."""
    with plant(north, south, tmp_path_factory.mktemp("planted")) as planted:
        yield planted
        evidence.add_secrets(planted.secrets())
