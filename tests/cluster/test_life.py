"""Exactness under life: when all dies amid traffic, every group goes on where it stood. MM2 goes beside it."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest

from heliograph.lab import ClusterSpec, Lab, LabCluster
from tests.cluster.life import INTERVAL_S, Life, live, tell

REPETITIONS = 20
SEED = 5
Property = Callable[[str, object], None]


both = pytest.mark.parametrize("stopped", [True, False], ids=["stopped", "mid-traffic"])


class Town(NamedTuple):
    lab: Lab
    clusters: tuple[LabCluster, LabCluster]
    """A pair of its own: the source dies each time."""
    lives: list[Life]


@pytest.fixture(scope="module")
def town(lab: Lab, request: pytest.FixtureRequest) -> Iterator[Town]:
    """All that the tests have lived through is told in a table at the end."""
    # A broker that was killed is let in again when its last session is over, by default after 9 s.
    soon = {"broker.session.timeout.ms": "2000", "broker.heartbeat.interval.ms": "500"}
    lab.start([ClusterSpec(alias="lively", config=soon), ClusterSpec(alias="spare")])
    town = Town(lab, (lab.cluster("lively"), lab.cluster("spare")), [])
    yield town
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        sys.stdout.write("\n".join(["", *tell(town.lives), ""]))


@pytest.mark.timeout(300)
@both
def test_every_group_goes_on_where_it_stood(
    town: Town, tmp_path: Path, stopped: bool, record_property: Property
) -> None:
    """After the last commit and one interval: at the very next record. While commits go on: at one of the last."""
    life = live(town.lab, town.clusters, tmp_path, stopped=stopped, pause_s=INTERVAL_S / 2)
    town.lives.append(life)
    record_property("life", life.figures())
    assert not life.broken()


@pytest.mark.long
@pytest.mark.timeout(REPETITIONS * 120)
@both
def test_every_group_goes_on_where_it_stood_every_time(
    town: Town, tmp_path: Path, stopped: bool, record_property: Property
) -> None:
    """Mirrors, topic and groups are new each time; the kill hits any moment between two passes."""
    source, _ = town.clusters
    chance = random.Random(SEED)
    lives: list[Life] = []
    try:
        for _ in range(REPETITIONS):
            if 1 not in source.running_ids:
                source.start_broker(1)
            pause_s = round(chance.uniform(0, INTERVAL_S), 2)
            lives.append(live(town.lab, town.clusters, tmp_path, stopped=stopped, pause_s=pause_s))
    finally:
        town.lives.extend(lives)
        record_property("seed_of_pauses", SEED)
        record_property("table", tell(lives))
        record_property("lives", [life.figures() for life in lives])
    assert not [broken for life in lives for broken in life.broken()]
