"""The published configurations of three regions: aggregation, broadcast, active/passive, backup, restore, migration."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from heliograph.config.files.parts import ConnectorState
from heliograph.config.findings import Severity
from heliograph.config.load import inspect_file
from heliograph.config.settings import Flow
from heliograph.names.policies import DefaultPolicy, IdentityPolicy
from tests.unit.helpers.published import (
    CONFIGS,
    EU,
    NA,
    SA,
    SECRETS,
    checkpoints_of,
    lines,
    load,
    named,
    scram,
    storage_factors,
    storage_topics,
    warnings,
)
from tests.unit.helpers.samples import patterns_of


class Region(NamedTuple):
    """A row of the table that compares the regions' files; checkpoints: None, or whether groups are looked for."""

    file: str
    flows: tuple[tuple[str, str, str], ...]
    """Source, target, and the mark in the names of group and storage topics."""
    identity: bool
    location: str
    lag_max: int
    refresh: bool = True
    refresh_groups: bool | None = None
    exactly_once: bool = False
    heartbeats: bool = False


REGIONS = (
    Region("aggregate-central.yaml", ((NA, EU, ""), (SA, EU, "")), False, "source", 100),
    Region("aggregate-distributed.yaml", ((NA, EU, "na"), (SA, EU, "sa")), False, "source", 100),
    Region("broadcast.yaml", ((EU, NA, "na"), (EU, SA, "sa")), True, "target", 100),
    Region(
        "shared-aggregate.yaml",
        ((SA, NA, "na"), (EU, NA, "na"), (NA, SA, "sa"), (EU, SA, "sa"), (NA, EU, "eu"), (SA, EU, "eu")),
        False, "target", 100,
    ),
    Region("active-passive.yaml", ((NA, EU, ""),), True, "target", 25, refresh_groups=True, exactly_once=True),
    Region(
        "backup.yaml", ((NA, EU, "backup"),), True, "target", 25,
        refresh_groups=True, exactly_once=True, heartbeats=True,
    ),
    Region(
        "restore.yaml", ((EU, NA, "restore"),), True, "target", 1,
        refresh=False, refresh_groups=False, exactly_once=True,
    ),
    Region(
        "migration.yaml", ((NA, EU, ""),), True, "target", 0,
        refresh=False, refresh_groups=True, exactly_once=True,
    ),
)  # fmt: skip
REGION_FLOWS = [
    pytest.param(region, index, id=f"{region.file}-{flow[0]}-{flow[1]}")
    for region in REGIONS
    for index, flow in enumerate(region.flows)
]


def flow_of(region: Region, index: int) -> Flow:
    source, target, _ = region.flows[index]
    return next(flow for flow in load(region.file).flows if flow.name == f"{source}->{target}")


@pytest.mark.parametrize("region", REGIONS, ids=lambda region: region.file)
def test_regions_have_their_flows(region: Region) -> None:
    flows = load(region.file).flows
    assert len(flows) == len(region.flows)
    assert {(flow.source, flow.target) for flow in flows} == {(source, target) for source, target, _ in region.flows}


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_name_topics_by_their_policy(region: Region, index: int) -> None:
    flow = flow_of(region, index)
    assert type(flow.policy) is (IdentityPolicy if region.identity else DefaultPolicy)
    assert flow.remote_topic("LH.ORDERS") == ("LH.ORDERS" if region.identity else f"{flow.source}.LH.ORDERS")
    assert patterns_of(flow.topics).include == ("LH.*",)
    assert flow.mirrors("LH.ORDERS")
    assert flow.mirrors("LHX"), "the dot is not escaped"
    assert not flow.mirrors("ORDERS")
    assert not flow.mirrors(f"{flow.target}.LH.ORDERS"), "the pattern has to match the whole name"


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_name_internal_topics_after_the_other_cluster(region: Region, index: int) -> None:
    flow = flow_of(region, index)
    other = flow.target if region.location == "source" else flow.source
    assert flow.offset_syncs.location == region.location
    assert flow.offset_syncs_topic == f"mm2-offset-syncs.{other}.internal"
    assert flow.checkpoints_topic == f"{flow.source}.checkpoints.internal"


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_keep_their_group_and_storage_topics(region: Region, index: int) -> None:
    flow, mark = flow_of(region, index), region.flows[index][2]
    assert flow.group_id == ("mm2" if not mark else f"mm2-{mark}")
    start = "__mm2" if not mark else f"__mm2_{mark}"
    assert storage_topics(flow) == (f"{start}_status", f"{start}_offsets", f"{start}_configs")
    assert storage_factors(flow) == (3, 3, 3)
    assert {"mm2", *storage_topics(flow)} & flow.never_mirrored == set(storage_topics(flow))


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_keep_their_intervals_and_factors(region: Region, index: int) -> None:
    flow = flow_of(region, index)
    assert flow.offset_syncs.enabled
    assert flow.offset_syncs.lag_max == region.lag_max
    assert flow.offset_syncs.replication_factor == 3
    assert flow.replication_factor == 3
    assert flow.tasks_max == 1
    assert flow.refresh_topics_enabled is region.refresh
    assert flow.refresh_topics_interval_s == (600_000 if region.refresh else 10)
    assert flow.topic_sync.configs_enabled is region.refresh
    assert flow.topic_sync.configs_interval_s == 600
    assert not flow.topic_sync.acls_enabled


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_carry_groups_over_where_a_checkpoint_connector_is(region: Region, index: int) -> None:
    flow = flow_of(region, index)
    if region.refresh_groups is None:
        assert flow.checkpoints is None
        return
    checkpoints = checkpoints_of(flow)
    assert checkpoints.state is ConnectorState.RUNNING
    assert checkpoints.interval_s == 60
    assert checkpoints.sync_group_offsets
    assert checkpoints.sync_group_offsets_interval_s == 60
    assert checkpoints.refresh_groups_enabled is region.refresh_groups
    assert checkpoints.refresh_groups_interval_s == (600 if region.refresh_groups else 5)
    assert checkpoints.replication_factor == 3
    assert patterns_of(checkpoints.groups).include == ("consumer-.*",)
    assert checkpoints.groups.accepts("consumer-southamerica")
    assert not checkpoints.groups.accepts("southamerica")


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_are_exactly_once_where_it_is_asked_for(region: Region, index: int) -> None:
    flow = flow_of(region, index)
    assert flow.exactly_once == ("enabled" if region.exactly_once else "disabled")
    assert flow.isolation_level == ("read_committed" if region.exactly_once else "read_uncommitted")


@pytest.mark.parametrize(("region", "index"), REGION_FLOWS)
def test_regions_have_heartbeats_only_in_the_backup(region: Region, index: int) -> None:
    settings = load(region.file)
    heartbeats = flow_of(region, index).heartbeats
    assert settings.other_heartbeats is None
    assert list(settings.heartbeat_pairs()) == ([(NA, EU)] if region.heartbeats else [])
    assert (heartbeats is not None) is region.heartbeats
    if heartbeats is not None:
        assert (heartbeats.state, heartbeats.interval_s, heartbeats.replication_factor) == (
            ConnectorState.RUNNING,
            60,
            3,
        )


@pytest.mark.parametrize("region", REGIONS, ids=lambda region: region.file)
def test_regions_connect_with_scram_over_tls(region: Region) -> None:
    names = {NA: ("na", "north-america"), SA: ("sa", "south-america"), EU: ("eu", "europe")}
    suffix = {"backup.yaml": "-backup", "restore.yaml": "-restore"}.get(region.file, "")
    for alias, cluster in load(region.file).clusters.items():
        short, namespace = names[alias]
        host = f"{short}-eventstreams-kafka-bootstrap.{namespace}.svc"
        assert cluster.bootstrap_servers == (f"{host}:9098",)
        assert cluster.security_protocol == "SASL_SSL"
        assert cluster.properties == {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": scram(f"mm2-{alias}{suffix}", f"fake-password-of-{alias}{suffix}"),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": f"fake certificate of {alias}",
        }


@pytest.mark.parametrize("region", REGIONS, ids=lambda region: region.file)
def test_regions_have_the_expected_warnings(region: Region) -> None:
    settings = load(region.file)
    long = ["long-interval"] * len(region.flows) * region.refresh
    failing_over = region.identity and region.refresh_groups is None
    absent = ["no-checkpoints"] * len(region.flows) * failing_over
    assert sorted(warnings(settings)) == sorted(long + absent)
    assert len(lines(settings, "unescaped-dot")) == len(region.flows)
    for warning in named(settings.warnings, "long-interval"):
        assert 'refresh.topics.interval.seconds" is 6.9 days' in warning.text
        assert "if milliseconds are meant, write 600" in warning.text


def test_absent_connectors_of_a_region_are_named() -> None:
    notes = [finding.what for finding in named(load("aggregate-central.yaml").findings, "connector-absent")]
    assert notes == [
        f"{source}->europe has no {what}"
        for source in (NA, SA)
        for what in (
            "MirrorCheckpointConnector: no consumer group is synced",
            "MirrorHeartbeatConnector: no heartbeats are written",
        )
    ]


def test_place_of_a_warning_is_the_line_of_its_key() -> None:
    settings = load("active-passive.yaml")
    text = (CONFIGS / "active-passive.yaml").read_text().splitlines()
    (line,) = lines(settings, "long-interval")
    assert "refresh.topics.interval.seconds: 600000" in text[line - 1]


def test_pods_of_a_region_are_kept_for_later() -> None:
    (resource,) = load("active-passive.yaml").resources
    assert (resource.name, resource.namespace) == ("mm2", "europe")
    assert resource.api_version == "eventstreams.ibm.com/v1beta2"
    assert resource.pods["resources"]["limits"] == {"cpu": "2000m", "memory": "2Gi"}
    assert resource.pods["metricsConfig"]["type"] == "jmxPrometheusExporter"
    assert [one.name for one in load("shared-aggregate.yaml").resources] == ["mm2-na", "mm2-sa", "mm2-eu"]


def test_mirrors_of_the_shared_aggregate_do_not_go_round() -> None:
    for flow in load("shared-aggregate.yaml").flows:
        assert not flow.mirrors(f"{flow.target}.LH.ORDERS")
        assert not flow.mirrors(f"{flow.source}.checkpoints.internal")


def test_backup_and_restore_together_are_a_cycle(tmp_path: Path) -> None:
    both = tmp_path / "both.yaml"
    both.write_text("---\n".join((CONFIGS / name).read_text() for name in ("backup.yaml", "restore.yaml")))
    errors = named(inspect_file(both, secrets=SECRETS).findings, "identity-cycle")
    assert [error.severity for error in errors] == [Severity.ERROR]
