"""A flow's `source.cluster.*` and `target.cluster.*` are how it reaches its clusters, against what these say."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from heliograph.client.access import settings_of_flow
from heliograph.config import Loaded, inspect_content, parse_settings
from heliograph.config.convert import convert
from heliograph.config.settings import Flow, Settings
from heliograph.config.show import effective, literal_secrets
from heliograph.control.heartbeats import Heartbeats
from heliograph.flow.lane_terms import terms_of
from heliograph.kafka.types import BrokerAddress
from heliograph.ledger.cluster_access import Role, admin_way, bootstrap_of, cluster_of, security_of, way_of
from heliograph.preflight.check import check_clusters
from heliograph.preflight.logins import list_logins
from heliograph.preflight.steps import Verdict
from heliograph.preflight.topics import check_ways
from heliograph.rights.needs import needs_of
from heliograph.views.status import read_status
from tests.fake_cluster import FakeCluster

ROOT = Path(__file__).parents[3]
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="{}" password="hunter2";'
BASE = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
"""
ROLES = {"source": (Role.SOURCE_ADMIN, Role.SOURCE_CONSUMER), "target": (Role.TARGET_ADMIN, Role.TARGET_PRODUCER)}


def override(side: str) -> dict[str, str]:
    return {
        f"{side}.cluster.bootstrap.servers": f"secure-{side}:9093",
        f"{side}.cluster.security.protocol": "SASL_SSL",
        f"{side}.cluster.sasl.mechanism": "SCRAM-SHA-512",
        f"{side}.cluster.sasl.jaas.config": JAAS.format(side),
    }


def property_file(keys: dict[str, str], more: str = "") -> Loaded:
    lines = "".join(f"a->b.{key} = {value}\n" for key, value in keys.items())
    return inspect_content((BASE + more + lines).encode(), "mm2.properties")


def resource(*configs: dict[str, str]) -> Loaded:
    blocks = dict(zip(("sourceConnector", "checkpointConnector", "heartbeatConnector"), configs, strict=False))
    document = {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaMirrorMaker2",
        "spec": {
            "connectCluster": "b",
            "clusters": [{"alias": alias, "bootstrapServers": f"{alias}:9092"} for alias in "ab"],
            "mirrors": [
                {
                    "sourceCluster": "a",
                    "targetCluster": "b",
                    **{name: {"config": keys} for name, keys in blocks.items()},
                }
            ],
        },
    }
    return inspect_content(json.dumps(document).encode(), "mirror.yaml")


def one_flow(loaded: Loaded) -> tuple[Settings, Flow]:
    settings = loaded.valid_settings()
    return settings, settings.flows[0]


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("is_resource", [False, True])
def test_all_clients_of_a_side_come_as_the_flow_says(side: str, *, is_resource: bool) -> None:
    keys = override(side)
    settings, flow = one_flow(resource(keys) if is_resource else property_file(keys))
    for role in Role:
        bootstrap, security = way_of(settings, flow, role)
        if role in ROLES[side]:
            assert bootstrap == (BrokerAddress(f"secure-{side}", 9093),)
            assert security.protocol == "SASL_SSL"
            login = security.login(where="x")
            assert login is not None
            assert (login.mechanism, login.user) == ("SCRAM-SHA-512", side)
        else:
            assert (str(bootstrap[0]), security.protocol) == (f"{role.alias(flow)}:9092", "PLAINTEXT")


def test_the_flow_wins_over_what_its_clusters_say_and_over_the_top_level() -> None:
    more = "security.protocol = PLAINTEXT\na.security.protocol = PLAINTEXT\nb.security.protocol = SASL_PLAINTEXT\n"
    keys = {"source.cluster.security.protocol": "SASL_SSL", "target.cluster.security.protocol": "SSL"}
    settings, flow = one_flow(property_file(keys, more))
    assert [security_of(settings, flow, role).protocol for role in ROLES["source"]] == ["SASL_SSL", "SASL_SSL"]
    assert [security_of(settings, flow, role).protocol for role in ROLES["target"]] == ["SSL", "SSL"]


def test_a_clients_own_key_wins_over_the_flows_key_for_all_clients() -> None:
    keys = {"source.cluster.security.protocol": "SSL", "source.consumer.security.protocol": "SASL_SSL"}
    settings, flow = one_flow(property_file(keys, "b.producer.bootstrap.servers = near:1\n"))
    assert security_of(settings, flow, Role.SOURCE_ADMIN).protocol == "SSL"
    assert security_of(settings, flow, Role.SOURCE_CONSUMER).protocol == "SASL_SSL"
    assert bootstrap_of(settings, flow, Role.TARGET_PRODUCER) == (BrokerAddress("near", 1),)
    assert bootstrap_of(settings, flow, Role.TARGET_ADMIN) == (BrokerAddress("b", 9092),)


def test_a_flows_key_for_one_kind_of_client_wins_over_its_clusters() -> None:
    settings, flow = one_flow(property_file({"consumer.security.protocol": "SSL"}, "a.security.protocol = PLAINTEXT\n"))
    assert security_of(settings, flow, Role.SOURCE_CONSUMER).protocol == "SSL"


def test_lanes_get_the_flows_way() -> None:
    settings, flow = one_flow(property_file(override("source") | override("target")))
    terms = terms_of(
        flow,
        settings,
        is_local=True,
        producer_ids={},
        ledger_topic="l",
        ledger_end=0,
        offset_partitions=1,
        append_bytes=1,
        term=None,
    )
    assert [str(terms.source_bootstrap[0]), str(terms.target_bootstrap[0])] == [
        "secure-source:9093",
        "secure-target:9093",
    ]
    assert [terms.source_security.protocol, terms.target_security.protocol] == ["SASL_SSL", "SASL_SSL"]


def test_client_needs_and_preflight_go_the_flows_way() -> None:
    settings, flow = one_flow(property_file(override("source") | override("target")))
    access = settings_of_flow(settings, flow).admin
    assert (str(access.bootstrap[0]), access.security.protocol) == ("secure-target:9093", "SASL_SSL")
    assert {(need.cluster, need.bootstrap) for need in needs_of(settings)} == {
        ("a", ("secure-source:9093",)),
        ("b", ("secure-target:9093",)),
    }
    assert {(found.alias, str(found.bootstrap[0]), found.security.protocol) for found in list_logins(settings)} == {
        ("a", "secure-source:9093", "SASL_SSL"),
        ("b", "secure-target:9093", "SASL_SSL"),
    }


def test_a_cluster_needs_no_address_that_its_flows_bring() -> None:
    text = "clusters = a, b\na->b.enabled = true\na->b.source.cluster.bootstrap.servers = s:1\n"
    settings = parse_settings(text + "a->b.target.cluster.bootstrap.servers = t:1\n")
    assert str(admin_way(settings, "b").bootstrap[0]) == "t:1"
    assert ("a", "b") in settings.heartbeat_pairs()


def test_no_module_but_one_reads_where_a_cluster_is_found() -> None:
    """Else it would pass a flow's own addresses by."""
    reading = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "heliograph").rglob("*.py")
        if ".bootstrap_servers" in path.read_text() and "heliograph/config/" not in path.as_posix()
    }
    assert reading == {"heliograph/ledger/cluster_access.py", "heliograph/client/access.py"}


# -- what is said of it


def test_overrides_are_shown_with_their_place_and_without_secrets() -> None:
    loaded = property_file(override("source"))
    rows = {row.key: (row.value, row.origin) for row in effective(loaded.parts) if row.owner == "a->b"}
    assert rows["source.cluster.security.protocol"] == ("SASL_SSL", "mm2.properties:6:1")
    assert rows["source.cluster.bootstrap.servers"] == ("secure-source:9093", "mm2.properties:5:1")
    assert rows["source.cluster.sasl.jaas.config"][1] == "mm2.properties:8:1"
    assert "hunter2" not in str(rows)
    assert [(found.owner, found.key) for found in literal_secrets(loaded.parts)] == [
        ("a", "source.cluster.sasl.jaas.config")
    ]


def test_a_secret_of_an_override_belongs_to_its_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PASSWORD", "hunter2")
    keys = override("source") | override("target")
    loaded = property_file({key: value.replace("hunter2", "${env:PASSWORD}") for key, value in keys.items()})
    assert [reference.owner for reference in loaded.references] == ["a", "b"]
    settings, flow = one_flow(loaded)
    security = security_of(settings, flow, Role.SOURCE_CONSUMER)
    assert "hunter2" not in str(security.properties)
    monkeypatch.setenv("PASSWORD", "changed")
    login = security.login(where="a")
    assert login is not None
    assert login.options["password"] == "changed"


def test_overrides_survive_a_conversion() -> None:
    loaded = property_file(override("source") | override("target"))
    converted = convert(loaded)  # compares the settings
    assert "secure-source:9093" in converted.text
    assert "hunter2" not in converted.text


def test_addresses_of_a_flow_are_checked() -> None:
    loaded = property_file({"source.cluster.bootstrap.servers": "nowhere"})
    assert [finding.rule for finding in loaded.findings] == ["bad-value"]
    loaded = property_file({"source.cluster.bootstrap.servers": "B:9092"})
    assert [finding.rule for finding in loaded.findings] == ["same-cluster"]


def test_connectors_that_differ_in_the_way_to_a_cluster_are_refused() -> None:
    keys = override("source")
    assert resource(keys, keys, keys).settings is not None
    assert resource(keys, {}, {}).settings is not None
    other = keys | {"source.cluster.bootstrap.servers": "elsewhere:1"}
    for loaded in (resource(keys, other), resource({}, keys)):
        assert {finding.rule for finding in loaded.findings if finding.severity == "error"} == {"connectors-differ"}


def test_clients_of_one_alias_that_come_to_two_clusters_fail_the_check() -> None:
    steps = check_ways([("a", "admin of a->b", "one"), ("a", "admin of a->c", "two"), ("b", "admin", "three")])
    assert [(step.cluster, step.role, step.verdict) for step in steps] == [("a", "admin of a->c", Verdict.FAIL)]


# -- on clusters


def settings_through(source: FakeCluster, target: FakeCluster, more: str = "") -> Settings:
    """The clusters' own addresses lead nowhere, the flow's to the clusters."""
    return parse_settings(
        "clusters = a, b, c\na.bootstrap.servers = 127.0.0.1:1\nb.bootstrap.servers = 127.0.0.1:2\n"
        "c.bootstrap.servers = 127.0.0.1:3\na->b.enabled = true\n"
        f"a->b.source.cluster.bootstrap.servers = 127.0.0.1:{source.brokers[1].port}\n"
        f"a->b.target.cluster.bootstrap.servers = 127.0.0.1:{target.brokers[1].port}\n"
        f"heartbeats.topic.replication.factor = 1\n{more}"
    )


def test_check_status_and_heartbeats_come_by_the_flows_addresses() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as source, FakeCluster("b", topics={"heartbeats": 1}) as target:
            settings = settings_through(source, target, "c->b.emit.heartbeats.enabled = true\n")
            beats = Heartbeats(settings)
            running = asyncio.ensure_future(beats.run())
            await target.wait_until(lambda: beats.written > 0)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            [status] = [found for found in await read_status(settings) if found.is_to_run]
            assert {condition.reason for condition in status.conditions} == {"NeverRun"}
            steps = await check_clusters(settings)
            assert [step for step in steps if step.verdict is Verdict.FAIL and "127.0.0.1:1" in step.subject] == []
            assert {step.cluster for step in steps if step.step == "cluster"} == {"a", "b"}

    asyncio.run(test())


def test_flows_that_reach_a_cluster_in_different_ways_are_each_checked() -> None:
    async def test() -> None:
        async with FakeCluster("a", topics={"t": 1}) as source, FakeCluster("b", topics={}) as target:
            more = f"c->b.enabled = true\nc.bootstrap.servers = 127.0.0.1:{source.brokers[1].port}\n"
            settings = settings_through(source, target, more.replace("c.bootstrap", "c->b.source.cluster.bootstrap"))
            accesses = list_logins(settings)
            assert [access.roles for access in accesses if access.alias == "b"] == [
                ("admin of a->b", "producer of a->b"),
                ("admin of c->b", "producer of c->b"),
            ]
            steps = await check_clusters(settings)
            assert any(step.cluster == "a->b" for step in steps)  # its topics are judged, though c->b is cut off

    asyncio.run(test())


def test_client_of_each_role_is_made_for_the_flows_address() -> None:
    settings, flow = one_flow(property_file(override("target")))
    cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id="x")
    assert (cluster.alias, cluster.security.protocol) == ("b", "SASL_SSL")
    cluster.close()
