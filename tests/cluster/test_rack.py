"""With `client.rack` the lane fetches from the replica in its own rack, as Kafka's consumers do."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from heliograph.lab import LabCluster
from tests.cluster.mirror import MirrorProcess, View, create_topic, leader_of, produce, unique

RACKS = {1: "a", 2: "b", 3: "c"}


def lane_ports(mirror: MirrorProcess) -> set[int]:
    """The ports that the mirror's lanes are connected to."""
    return {
        connection.raddr.port
        for process in mirror.lanes()
        for connection in process.net_connections()
        if connection.status == psutil.CONN_ESTABLISHED and connection.raddr
    }


@pytest.mark.timeout(300)
def test_a_lane_fetches_from_the_replica_in_its_rack(backup: LabCluster, trio: LabCluster, tmp_path: Path) -> None:
    topic = create_topic(trio, unique("rack"), 1, replicas=3)
    near = next(broker for broker in RACKS if broker != leader_of(trio, topic))
    keys = {"trio->backup.topics": topic, "trio.consumer.client.rack": RACKS[near]}
    produce(trio, topic, [str(number).encode() for number in range(500)])
    with MirrorProcess(tmp_path, {"trio": trio, "backup": backup}, keys) as mirror:
        mirror.wait_mirrored(View(trio, topic), View(backup, f"trio.{topic}"), timeout_s=120)
        mirror.wait_until(lambda: trio.port(near) in lane_ports(mirror), what="a connection to the near replica")
        produce(trio, topic, [str(number).encode() for number in range(500)])
        mirror.wait_mirrored(View(trio, topic), View(backup, f"trio.{topic}"))
