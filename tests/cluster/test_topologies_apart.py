"""Layouts of flows, as published, with a process for each mirror: of the published files, each document is a mirror.

Two processes with a file each carry four layouts; of the mesh, the third mirror is in the second's file.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from heliograph.lab import LabCluster
from tests.cluster.layouts import Layout, ResourceProcess
from tests.cluster.topologies import BOTH_WAYS, BROADCAST, DISTRIBUTED, EU, MESH, World, lay_out, title_of

pytestmark = pytest.mark.long  # some starts of Spark, minutes in all

LAYOUTS = (DISTRIBUTED, BROADCAST, MESH, BOTH_WAYS)


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, primary: LabCluster, backup: LabCluster, mid: LabCluster
) -> Iterator[World]:
    laid = lay_out(LAYOUTS, {"primary": primary, "backup": backup, "mid": mid})
    first = [one.documents[0] for one in laid.values()]
    second = [document for one in laid.values() for document in one.documents[1:]]
    folder = tmp_path_factory.mktemp("topologies-apart")
    slots = ("--master", "local[2]")
    with (
        ResourceProcess(folder, first, arguments=slots) as one,
        ResourceProcess(folder, second, arguments=slots) as other,
    ):
        yield World([one, other], laid)


@pytest.mark.parametrize("layout", LAYOUTS, ids=title_of)
def test_topics_and_records_are_as_published(world: World, layout: Layout) -> None:
    world.assert_as_published(layout)


@pytest.mark.parametrize("side", ["us", EU])
def test_consumers_of_active_and_active_see_both_sides_once(world: World, side: str) -> None:
    world.assert_seen_once(BOTH_WAYS, side, "my-mm2-topic", "^.*my-mm2-topic-{token}$")
