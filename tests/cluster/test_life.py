"""Exactness under life: when all dies amid traffic, every group goes on where it stood. MM2 goes beside it."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest

from heliograph.lab import Cluster, ClusterSpec, Lab
from tests.cluster.life import INTERVAL_S, Life, live, tell

REPETITIONS = 20
SEED = 5
Property = Callable[[str, object], None]


@pytest.fixture(scope="module")
def lively(lab: Lab) -> tuple[Cluster, Cluster]:
    """A pair of their own: the source dies each time."""
    lab.start([ClusterSpec(alias="lively"), ClusterSpec(alias="spare")])
    return lab.cluster("lively"), lab.cluster("spare")


@pytest.fixture(scope="module")
def lives(request: pytest.FixtureRequest) -> Iterator[list[Life]]:
    """All that the module's tests have lived through; the table is printed at its end."""
    lives: list[Life] = []
    yield lives
    capture = request.config.pluginmanager.get_plugin("capturemanager")
    with capture.global_and_fixture_disabled() if capture is not None else nullcontext():
        print("", *tell(lives), sep="\n")


@pytest.fixture(params=[True, False], ids=["stopped", "mid-traffic"])
def stopped(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.mark.timeout(300)
def test_every_group_goes_on_where_it_stood(
    lab: Lab,
    lively: tuple[Cluster, Cluster],
    tmp_path: Path,
    stopped: bool,
    lives: list[Life],
    record_property: Property,
) -> None:
    """After the last commit and one interval: at the very next record. While commits go on: at one of the last ones."""
    life = live(lab, *lively, tmp_path, stopped=stopped, pause_s=0.0)
    lives.append(life)
    record_property("life", life.figures())
    assert not life.broken()


@pytest.mark.long
@pytest.mark.timeout(REPETITIONS * 120)
def test_every_group_goes_on_where_it_stood_every_time(
    lab: Lab,
    lively: tuple[Cluster, Cluster],
    tmp_path: Path,
    stopped: bool,
    lives: list[Life],
    record_property: Property,
) -> None:
    """Mirrors, topic and groups are new each time; the kill hits any moment between two passes."""
    source, target = lively
    chance = random.Random(SEED)
    here: list[Life] = []
    try:
        for _ in range(REPETITIONS):
            if 1 not in source.running_ids:
                source.start_broker(1)
            pause_s = round(chance.uniform(0, INTERVAL_S), 2)
            here.append(live(lab, source, target, tmp_path, stopped=stopped, pause_s=pause_s))
    finally:
        lives += here
        record_property("seed_of_pauses", SEED)
        record_property("table", tell(here))
        record_property("lives", [life.figures() for life in here])
    assert not [broken for life in here for broken in life.broken()]
