"""Layouts of flows, as published: exact topic lists on every cluster, every record once, no loops, no second prefix.

Here one process carries six of them, fourteen flows, on two slots. Layouts have names of their own (`layouts.py`), so
that each has its clusters to itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Message

from heliograph.lab import LabCluster
from tests.cluster.consumers import committed, consume
from tests.cluster.layouts import RECORDS, Layout, ResourceProcess
from tests.cluster.test_spark import events_of
from tests.cluster.topologies import (
    BOTH_WAYS,
    CENTRAL,
    CHAIN,
    EU,
    MESH,
    ONE_WAY,
    PASSIVE,
    REGIONS,
    World,
    lay_out,
    title_of,
)

LAYOUTS = (CENTRAL, MESH, PASSIVE, BOTH_WAYS, ONE_WAY, CHAIN)


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Spark's own record."""
    return tmp_path_factory.mktemp("events")


@pytest.fixture(scope="module")
def world(
    tmp_path_factory: pytest.TempPathFactory, events: Path, primary: LabCluster, backup: LabCluster, mid: LabCluster
) -> Iterator[World]:
    laid = lay_out(LAYOUTS, {"primary": primary, "backup": backup, "mid": mid})
    conf = {"enabled": "true", "compress": "false", "dir": events.as_uri()}
    arguments = [word for key, value in conf.items() for word in ("--conf", f"spark.eventLog.{key}={value}")]
    documents = [document for one in laid.values() for document in one.documents]
    folder = tmp_path_factory.mktemp("topologies")
    with ResourceProcess(folder, documents, arguments=("--master", "local[2]", *arguments)) as mirror:
        yield World([mirror], laid)


@pytest.mark.parametrize("layout", LAYOUTS, ids=title_of)
def test_topics_and_records_are_as_published(world: World, layout: Layout) -> None:
    world.assert_as_published(layout)


@pytest.mark.parametrize("side", ["us", EU])
def test_consumers_of_active_and_active_see_both_sides_once(world: World, side: str) -> None:
    world.assert_seen_once(BOTH_WAYS, side, "my-mm2-topic", "^.*my-mm2-topic-{token}$")


@pytest.mark.parametrize("region", REGIONS)
def test_a_consumer_in_each_region_of_the_mesh_sees_all_three_once(world: World, region: str) -> None:
    world.assert_seen_once(MESH, region, "LH.ORDERS", r"^.*LH-{token}\.ORDERS$")


def test_the_passive_side_has_the_groups_and_their_consumers_go_on_there(world: World) -> None:
    laid = world.laid[PASSIVE.title]
    group, topic, passive = laid.name("consumer-southamerica"), laid.topic("LH.ORDERS"), laid.clusters[EU]
    world.wait_until(lambda: committed(passive, group) == {(topic, 0): 4}, what="the group's place")
    unread = {0: RECORDS - 4, 1: RECORDS, 2: RECORDS}
    found = consume(passive, group, topic, sum(unread.values()))
    assert Counter(map(Message.partition, found)) == unread
    assert [message.offset() for message in found if message.partition() == 0] == list(range(4, RECORDS))


def test_with_fewer_slots_than_flows_every_flow_is_in_every_epoch(world: World, events: Path) -> None:
    flows = {flow for laid in world.laid.values() for flow in laid.flows}
    assert len(flows) == 14

    def epochs() -> list[str]:
        """What each job is called: its flows, partitions and lanes."""
        started = [event for event in events_of(events) if event["Event"] == "SparkListenerJobStart"]
        told = [str(job["Properties"]["spark.job.description"]) for job in started]
        return [line for line in told if "warm-up" not in line]

    def is_complete(epoch: str) -> bool:
        return all(flow in epoch for flow in flows)

    world.wait_until(lambda: any(map(is_complete, epochs())), what="an epoch with every flow")
    before = len(epochs())
    world.laid[ONE_WAY.title].add_late()
    world.wait_until(lambda: len(epochs()) > before, what="another epoch")
    found = epochs()
    first = next(index for index, epoch in enumerate(found) if is_complete(epoch))
    assert [epoch for epoch in found[first:] if not is_complete(epoch)] == []
    assert {epoch.rpartition(" partitions in ")[2] for epoch in found[first:]} == {"2 lanes"}
