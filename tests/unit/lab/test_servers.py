from __future__ import annotations

from pathlib import Path

from heliograph.lab.jars import ivy_module
from heliograph.lab.servers import broker_properties, count_ports, format_properties, new_cluster_id, plan_nodes
from heliograph.lab.spec import ClusterSpec


def test_every_kraft_broker_names_all_voters() -> None:
    spec = ClusterSpec(alias="trio", brokers=3)
    nodes = plan_nodes(spec, [1, 2, 3, 11, 12, 13], jars=Path("j"), data=Path("d"), logs=Path("l"))
    assert [(node.name, node.port) for node in nodes] == [("trio-1", 1), ("trio-2", 2), ("trio-3", 3)]
    voters = {node.properties["controller.quorum.voters"] for node in nodes}
    assert voters == {"1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13"}
    assert nodes[1].properties["listeners"] == "PLAINTEXT://127.0.0.1:2,CONTROLLER://127.0.0.1:12"


def test_zookeeper_starts_before_its_brokers() -> None:
    spec = ClusterSpec(alias="old", brokers=2, version="2.4.1")
    assert count_ports(spec) == 3
    nodes = plan_nodes(spec, [1, 2, 11], jars=Path("j"), data=Path("d"), logs=Path("l"))
    assert [node.name for node in nodes] == ["old-zookeeper", "old-1", "old-2"]
    assert nodes[2].properties["zookeeper.connect"] == "127.0.0.1:11"
    assert "process.roles" not in nodes[2].properties


def test_own_config_wins_and_rack_is_per_broker() -> None:
    spec = ClusterSpec(alias="a", brokers=2, config={"num.io.threads": "9"}, racks=("x", "y"))
    properties = broker_properties(spec, 2, [1000], [2000, 2001])
    assert properties["num.io.threads"] == "9"
    assert properties["broker.rack"] == "y"
    assert properties["offsets.topic.replication.factor"] == "2"


def test_a_detour_is_advertised_elsewhere() -> None:
    spec = ClusterSpec(alias="a", brokers=2, detoured=True)
    ports = list(range(1, count_ports(spec) + 1))
    _, second = plan_nodes(spec, ports, jars=Path("j"), data=Path("d"), logs=Path("l"))
    assert second.extra_ports == {"DETOUR": 5, "DETOUR_ENTRY": 6}
    assert second.properties["listeners"] == "PLAINTEXT://127.0.0.1:4,CONTROLLER://127.0.0.1:8,DETOUR://127.0.0.1:5"
    assert second.properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:4,DETOUR://127.0.0.1:6"
    assert second.properties["listener.security.protocol.map"].endswith(",DETOUR:PLAINTEXT")


def test_brokers_and_controllers_meet_by_their_inner_detours() -> None:
    spec = ClusterSpec(alias="a", brokers=2, inner_detoured=True)
    ports = list(range(1, count_ports(spec) + 1))
    nodes = plan_nodes(spec, ports, jars=Path("j"), data=Path("d"), logs=Path("l"))
    assert [node.extra_ports for node in nodes] == [
        {"REPLICATION": 2, "REPLICATION_ENTRY": 3, "CONTROLLER_ENTRY": 4, "CONTROLLER": 9},
        {"REPLICATION": 6, "REPLICATION_ENTRY": 7, "CONTROLLER_ENTRY": 8, "CONTROLLER": 10},
    ]
    second = nodes[1].properties
    assert second["controller.quorum.voters"] == "1@127.0.0.1:4,2@127.0.0.1:8"
    assert second["inter.broker.listener.name"] == "REPLICATION"
    assert second["listeners"] == "PLAINTEXT://127.0.0.1:5,CONTROLLER://127.0.0.1:10,REPLICATION://127.0.0.1:6"
    advertised = "PLAINTEXT://127.0.0.1:5,REPLICATION://127.0.0.1:7,CONTROLLER://127.0.0.1:8"
    assert second["advertised.listeners"] == advertised


def test_properties_file_doubles_backslashes() -> None:
    assert format_properties({"b": "x\\y", "a": "1"}) == "a=1\nb=x\\\\y\n"


def test_cluster_ids_differ_and_have_kafkas_length() -> None:
    first, second = new_cluster_id(), new_cluster_id()
    assert first != second
    assert len(first) == 22


def test_ivy_module_names_mirrormaker_where_it_was_published() -> None:
    assert 'name="connect-mirror" rev="4.3.1"' in ivy_module("4.3.1")
    assert "connect-mirror" not in ivy_module("2.4.1")
