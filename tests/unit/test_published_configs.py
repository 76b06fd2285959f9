"""Configurations that labs and articles publish: each loads and means what its author lists."""

from pathlib import Path
from typing import NamedTuple

import pytest

from heliograph.config.findings import Finding, Severity
from heliograph.config.load import Loaded, inspect_file
from heliograph.config.parts import State
from heliograph.config.settings import Checkpoints, ClusterSettings, Flow, Settings
from heliograph.errors import ConfigError
from heliograph.naming import DefaultPolicy, IdentityPolicy

CONFIGS = Path(__file__).parent / "configs"
SECRETS = CONFIGS / "secrets"
PUBLISHED = sorted(path.name for path in CONFIGS.iterdir() if path.is_file())

NA, SA, EU = "northamerica", "southamerica", "europe"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"


def inspect(name: str) -> Loaded:
    return inspect_file(CONFIGS / name, secrets=SECRETS)


def load(name: str) -> Settings:
    return inspect(name).valid_settings()


def only_flow(name: str) -> Flow:
    (flow,) = load(name).flows
    return flow


def named(findings: tuple[Finding, ...], rule: str) -> list[Finding]:
    return [finding for finding in findings if finding.rule == rule]


def lines(settings: Settings, rule: str) -> list[int]:
    return [finding.place.line for finding in named(settings.findings, rule) if finding.place is not None]


def warnings(settings: Settings) -> list[str]:
    return [finding.rule for finding in settings.warnings]


def checkpoints_of(flow: Flow) -> Checkpoints:
    assert flow.checkpoints is not None
    return flow.checkpoints


def storage_topics(flow: Flow) -> tuple[str, str, str]:
    return flow.status_storage_topic, flow.offset_storage_topic, flow.config_storage_topic


def storage_factors(flow: Flow) -> tuple[int, int, int]:
    return (
        flow.status_storage_replication_factor,
        flow.offset_storage_replication_factor,
        flow.config_storage_replication_factor,
    )


def security(cluster: ClusterSettings) -> dict[str, str]:
    return {"security.protocol": cluster.security_protocol, **cluster.properties}


def scram(user: str, password: str) -> str:
    return f'{SCRAM} required username="{user}" password="{password}";'


# -- all of them


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_file_has_no_error_and_no_unknown_key(name: str) -> None:
    loaded = inspect(name)
    assert [str(finding) for finding in loaded.findings if finding.severity is Severity.ERROR] == []
    assert named(loaded.findings, "unknown-key") == []
    assert loaded.is_resource == (not name.endswith(".properties"))
    settings = loaded.valid_settings()
    assert settings.enabled_flows == settings.flows
    assert {flow.state for flow in settings.flows} == {State.RUNNING}


@pytest.mark.parametrize("name", PUBLISHED)
def test_secret_of_a_published_file_is_in_no_finding(name: str) -> None:
    assert "fake" not in "".join(map(str, inspect(name).findings))


@pytest.mark.parametrize("name", [name for name in PUBLISHED if "fake" not in (CONFIGS / name).read_text()])
def test_file_without_its_secrets_loads_only_offline(name: str) -> None:
    online, offline = inspect_file(CONFIGS / name), inspect_file(CONFIGS / name, offline=True)
    missing = named(online.findings, "missing-secret")
    assert {finding.severity for finding in missing} <= {Severity.ERROR}
    assert len(named(offline.findings, "missing-secret")) == len(missing)
    assert offline.valid_settings().flows == load(name).flows


# -- regions: aggregation, broadcast, active/passive, backup, restore, migration


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
    assert flow.topics.include == ("LH.*",)
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
    assert flow.refresh_topics_interval_s == (600_000 if region.refresh else 600)
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
    assert checkpoints.state is State.RUNNING
    assert checkpoints.interval_s == 60
    assert checkpoints.sync_group_offsets
    assert checkpoints.sync_group_offsets_interval_s == 60
    assert checkpoints.refresh_groups_enabled is region.refresh_groups
    assert checkpoints.refresh_groups_interval_s == 600
    assert checkpoints.replication_factor == 3
    assert checkpoints.groups.include == ("consumer-.*",)
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
    assert not settings.heartbeats_everywhere
    assert list(settings.heartbeat_pairs()) == ([(NA, EU)] if region.heartbeats else [])
    assert (heartbeats is not None) is region.heartbeats
    if heartbeats is not None:
        assert (heartbeats.state, heartbeats.interval_s, heartbeats.replication_factor) == (State.RUNNING, 60, 3)


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
            "MirrorCheckpointConnector: no consumer group is carried over",
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


# -- Event Streams to Event Streams


@pytest.mark.parametrize(("name", "factor"), [("event-streams-lab.yaml", 3), ("event-streams-lab-scram.yaml", 1)])
def test_event_streams_lab_copies_with_prefix(name: str, factor: int) -> None:
    flow = only_flow(name)
    assert flow.name == "es-src->es-tgt"
    assert type(flow.policy) is DefaultPolicy
    assert flow.remote_topic("products") == "es-src.products"
    assert flow.mirrors("products")
    assert flow.offset_syncs.location == "source"
    assert flow.offset_syncs_topic == "mm2-offset-syncs.es-tgt.internal"
    assert flow.checkpoints_topic == "es-src.checkpoints.internal"
    assert flow.offset_syncs.lag_max == 100
    assert flow.group_id == "mirrormaker2-cluster"
    assert storage_topics(flow) == tuple(f"mirrormaker2-cluster-{what}" for what in ("status", "offsets", "configs"))
    assert storage_factors(flow) == (factor, factor, factor)
    assert flow.connector_name == "es-src->es-tgt.MirrorSourceConnector"


def test_event_streams_lab_of_the_text_has_only_a_source_connector() -> None:
    settings = load("event-streams-lab.yaml")
    (flow,) = settings.flows
    assert flow.topics.include == (".*",)
    assert (flow.checkpoints, flow.heartbeats) == (None, None)
    assert any("es-src->es-tgt has no MirrorCheckpointConnector" in finding.what for finding in settings.findings)
    assert settings.resources[0].pods["version"] == "2.6.0"
    assert settings.resources[0].pods["template"]["pod"]["metadata"]["annotations"]["productCloudpakRatio"] == "2:1"


def test_event_streams_lab_trusts_the_system_where_tls_is_empty() -> None:
    assert security(load("event-streams-lab.yaml").clusters["es-src"]) == {"security.protocol": "SSL"}


def test_event_streams_lab_repaired_has_all_connectors() -> None:
    settings = load("event-streams-lab-scram.yaml")
    (flow,) = settings.flows
    assert flow.topics.include == ("products",)
    assert not flow.mirrors("orders")
    assert checkpoints_of(flow).interval_s == 60
    assert not checkpoints_of(flow).sync_group_offsets
    assert flow.heartbeats is not None
    assert flow.heartbeats.interval_s == 1
    assert warnings(settings) == []
    assert settings.resources[0].pods["logging"]["loggers"] == {"connect.root.logger.level": "INFO"}


def test_event_streams_lab_repaired_has_scram_at_the_source() -> None:
    source = load("event-streams-lab-scram.yaml").clusters["es-src"]
    assert source.bootstrap_servers == ("es-src.apps.example:443",)
    assert security(source) == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": scram("app-user", "fake-password-of-es-src"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "fake certificate of es-src",
        "ssl.endpoint.identification.algorithm": "https",
    }


@pytest.mark.parametrize("name", ["event-streams-lab.yaml", "event-streams-lab-scram.yaml"])
def test_event_streams_lab_has_mutual_tls_at_the_target(name: str) -> None:
    target = load(name).clusters["es-tgt"]
    assert target.bootstrap_servers == ("es-tgt-kafka-bootstrap.eventstreams.svc:9093",)
    assert security(target) == {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": "fake certificate of es-tgt",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": "fake user certificate of es-tgt",
        "ssl.keystore.key": "fake user key of es-tgt",
        "ssl.endpoint.identification.algorithm": "https",
    }


def test_storage_factors_of_a_source_are_said_to_have_no_effect() -> None:
    notes = named(load("event-streams-lab.yaml").findings, "wrong-place")
    assert [note.key for note in notes] == [
        f"{what}.storage.replication.factor" for what in ("config", "offset", "status")
    ]
    assert all(note.severity is Severity.INFO and '"es-src"' in note.what for note in notes)


# -- property files of the sister labs


@pytest.mark.parametrize(
    ("name", "source"), [("cloud-to-local.properties", "es-ic"), ("platform-to-local.properties", "es-cp4i")]
)
def test_lab_to_local_brokers(name: str, source: str) -> None:
    settings = load(name)
    (flow,) = settings.flows
    assert flow.name == f"{source}->target"
    assert type(flow.policy) is DefaultPolicy
    assert flow.remote_topic("products") == f"{source}.products"
    assert flow.topics.include == ("products",)
    assert flow.tasks_max == 10
    assert flow.replication_factor == 1
    assert not flow.topic_sync.acls_enabled
    assert flow.group_id == f"{source}-mm2"
    assert storage_topics(flow) == tuple(f"mm2-{what}.{source}.internal" for what in ("status", "offsets", "configs"))
    assert (flow.offset_storage_partitions, flow.status_storage_partitions) == (25, 5)
    assert storage_factors(flow) == (3, 3, 3), "internal.topic.replication.factor is read by nobody"
    assert flow.checkpoints_topic == f"{source}.checkpoints.internal"
    assert flow.offset_syncs_topic == "mm2-offset-syncs.target.internal"
    assert flow.mirrors("heartbeats")
    assert flow.remote_topic("heartbeats") == f"{source}.heartbeats"
    assert checkpoints_of(flow).groups.include == (".*",)
    assert settings.heartbeats_everywhere
    assert set(settings.heartbeat_pairs()) == {(source, "target"), ("target", source)}
    target = settings.clusters["target"]
    assert target.bootstrap_servers == ("kafka1:9091", "kafka2:9092", "kafka3:9093")
    assert security(target) == {"security.protocol": "PLAINTEXT"}


def test_cloud_to_local_has_an_api_key() -> None:
    cloud = load("cloud-to-local.properties").clusters["es-ic"]
    assert cloud.bootstrap_servers == tuple(f"broker-{number}.cloud.example:9093" for number in range(3))
    assert security(cloud) == {
        "security.protocol": "SASL_SSL",
        "ssl.protocol": "TLSv1.2",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="token" password="fake-api-key";',
    }


def test_platform_to_local_has_a_store_and_an_unquoted_login() -> None:
    platform = load("platform-to-local.properties").clusters["es-cp4i"]
    assert platform.bootstrap_servers == ("es-cp4i.apps.example:443",)
    assert security(platform) == {
        "security.protocol": "SASL_SSL",
        "ssl.protocol": "TLSv1.2",
        "ssl.endpoint.identification.algorithm": "https",
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.location": "/home/es-cert.p12",
        "ssl.truststore.password": "fake-store-password",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f"{SCRAM} required username=app-user password=fake-password;",
    }


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("cloud-to-local.properties", ["es-ic.configs.storage.topic", "internal.topic.replication.factor"]),
        ("platform-to-local.properties", ["internal.topic.replication.factor"]),
        ("strimzi-to-cloud.properties", ["internal.topic.replication.factor"]),
        ("cloud-to-docker.properties", []),
        ("strimzi-to-docker.properties", []),
    ],
)
def test_keys_that_mm2_never_reads_are_warned_of(name: str, keys: list[str]) -> None:
    found = load(name).warnings
    assert [warning.key for warning in found] == keys
    assert all("MM2 never reads it; it may mean" in warning.remedy for warning in found)


@pytest.mark.parametrize("name", ["cloud-to-docker.properties", "strimzi-to-docker.properties"])
def test_notes_to_docker_copy_orders(name: str) -> None:
    settings = load(name)
    (flow,) = settings.flows
    assert flow.name == "source->target"
    assert flow.remote_topic("orders") == "source.orders"
    assert flow.topics.include == ("orders",)
    assert not flow.mirrors("products")
    assert flow.tasks_max == 1
    assert flow.replication_factor == 2
    assert storage_topics(flow) == tuple(f"mm2-{what}.source.internal" for what in ("status", "offsets", "configs"))
    assert settings.clusters["target"].bootstrap_servers == ("kafka1:9092", "kafka2:9093", "kafka3:9094")
    assert settings.clusters["target"].security_protocol == "PLAINTEXT"


def test_cloud_to_docker_has_six_brokers_and_an_api_key() -> None:
    cloud = load("cloud-to-docker.properties").clusters["source"]
    assert cloud.bootstrap_servers == tuple(f"broker-{number}.cloud.example:9093" for number in range(6))
    assert security(cloud) == {
        "security.protocol": "SASL_SSL",
        "ssl.protocol": "TLSv1.2",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="token" password="fake-api-key";',
    }


def test_strimzi_to_docker_has_a_java_store() -> None:
    assert security(load("strimzi-to-docker.properties").clusters["source"]) == {
        "security.protocol": "SSL",
        "ssl.truststore.location": "/home/truststore.jks",
        "ssl.truststore.password": "fake-store-password",
    }


# -- both forms


@pytest.mark.parametrize("name", ["strimzi-to-cloud.properties", "strimzi-to-cloud.yaml"])
def test_strimzi_to_cloud_means_the_same_in_both_forms(name: str) -> None:
    settings = load(name)
    (flow,) = settings.flows
    assert flow.name == "source->target"
    assert type(flow.policy) is DefaultPolicy
    assert flow.remote_topic("products") == "source.products"
    assert flow.topics.include == ("products",)
    assert flow.tasks_max == 10
    assert flow.replication_factor == 3
    assert storage_factors(flow) == (3, 3, 3)
    assert flow.refresh_topics_interval_s == 10
    assert checkpoints_of(flow).refresh_groups_interval_s == 10
    assert not flow.topic_sync.acls_enabled
    assert flow.offset_syncs_topic == "mm2-offset-syncs.target.internal"
    assert flow.checkpoints_topic == "source.checkpoints.internal"
    assert security(settings.clusters["source"]) == {
        "security.protocol": "PLAINTEXT",
        "ssl.endpoint.identification.algorithm": "",
    }
    assert security(settings.clusters["target"]) == {
        "security.protocol": "SASL_SSL",
        "ssl.protocol": "TLSv1.2",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="token" password="fake-api-key";',
    }


@pytest.mark.parametrize(
    ("name", "group", "topic"),
    [
        ("strimzi-to-cloud.properties", "source-mm2", "mm2-offsets.source.internal"),
        ("strimzi-to-cloud.yaml", "mirrormaker2-cluster", "mirrormaker2-cluster-offsets"),
    ],
)
def test_each_form_has_the_names_of_its_own_runner(name: str, group: str, topic: str) -> None:
    flow = only_flow(name)
    assert (flow.group_id, flow.offset_storage_topic) == (group, topic)


def test_cloud_to_strimzi() -> None:
    settings = load("cloud-to-strimzi.yaml")
    (flow,) = settings.flows
    assert flow.name == "cloud->strimzi"
    assert flow.remote_topic("products") == "cloud.products"
    assert flow.topics.include == ("products",)
    assert checkpoints_of(flow).groups.include == (".*",)
    assert checkpoints_of(flow).replication_factor == 1
    assert flow.heartbeats is not None
    assert flow.heartbeats.replication_factor == 1
    assert (flow.replication_factor, flow.offset_syncs.replication_factor) == (1, 1)
    assert storage_factors(flow) == (3, 3, 3)
    assert not flow.topic_sync.acls_enabled
    assert security(settings.clusters["strimzi"]) == {"security.protocol": "PLAINTEXT"}
    assert security(settings.clusters["cloud"]) == {
        "security.protocol": "SASL_SSL",
        "ssl.endpoint.identification.algorithm": "https",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN} required username="token" password="fake-api-key";',
    }
    assert warnings(settings) == []


@pytest.mark.parametrize("name", ["two-ways.properties", "two-ways.yaml"])
def test_two_ways_mean_the_same_in_both_forms(name: str) -> None:
    settings = load(name)
    flows = {flow.name: flow for flow in settings.flows}
    assert set(flows) == {"cloud->on-premise", "on-premise->cloud"}
    assert flows["cloud->on-premise"].topics.include == ("accounts", "orders")
    assert flows["on-premise->cloud"].topics.include == ("accounts", "customers")
    for flow in settings.flows:
        assert type(flow.policy) is DefaultPolicy
        assert flow.remote_topic("accounts") == f"{flow.source}.accounts"
        assert flow.mirrors("accounts")
        assert not flow.mirrors(f"{flow.target}.accounts")
        assert (flow.replication_factor, flow.offset_syncs.replication_factor) == (1, 1)
        assert checkpoints_of(flow).replication_factor == 1
        assert flow.heartbeats is not None
        assert flow.heartbeats.replication_factor == 1
        assert storage_factors(flow) == (3, 3, 3)
        assert not flow.topic_sync.acls_enabled
    cloud, premise = settings.clusters["cloud"], settings.clusters["on-premise"]
    assert (cloud.security_protocol, cloud.properties["sasl.mechanism"]) == ("SASL_SSL", "PLAIN")
    assert premise.security_protocol == "SSL"
    assert premise.properties["ssl.truststore.type"] == "PEM"
    certificates = premise.properties["ssl.truststore.certificates"]
    assert "fake clients certificate of strimzi" in certificates
    assert "fake certificate of strimzi" in certificates


# -- us and europe


def test_active_active_has_a_mirror_on_each_side() -> None:
    settings = load("us-europe-active-active.yaml")
    assert {flow.name for flow in settings.flows} == {"us->europe", "europe->us"}
    for flow in settings.flows:
        assert flow.policy == DefaultPolicy(source_alias=flow.source)
        assert flow.remote_topic("my-mm2-topic") == f"{flow.source}.my-mm2-topic"
        assert flow.mirrors("my-mm2-topic")
        assert not flow.mirrors(f"{flow.target}.my-mm2-topic"), "it would go round"
        assert (flow.topics.include, checkpoints_of(flow).groups.include) == ((".*",), (".*",))
        assert checkpoints_of(flow).interval_s == 5
        assert not checkpoints_of(flow).sync_group_offsets
        assert checkpoints_of(flow).replication_factor == 1
        assert (flow.replication_factor, flow.offset_syncs.replication_factor) == (1, 1)
        assert flow.heartbeats is not None
        assert flow.heartbeats.replication_factor == 1
        assert storage_factors(flow) == (1, 1, 1)
        assert not flow.topic_sync.acls_enabled
        assert flow.offset_syncs_topic == f"mm2-offset-syncs.{flow.target}.internal"
        assert flow.checkpoints_topic == f"{flow.source}.checkpoints.internal"
    assert warnings(settings) == []


@pytest.mark.parametrize("name", ["us-europe-active-active.yaml", "us-europe-active-passive.yaml"])
def test_us_and_europe_connect_without_security(name: str) -> None:
    for alias, cluster in load(name).clusters.items():
        assert cluster.bootstrap_servers == (f"{alias}-kafka-bootstrap.kafka-{alias}.svc:9092",)
        assert security(cluster) == {"security.protocol": "PLAINTEXT"}


@pytest.mark.parametrize(
    ("name", "syncs"), [("us-europe-active-passive.yaml", True), ("us-europe-client-recovery.yaml", False)]
)
def test_active_passive_keeps_names_and_translates_every_record(name: str, syncs: bool) -> None:
    settings = load(name)
    (flow,) = settings.flows
    assert flow.name == "us->europe"
    assert type(flow.policy) is IdentityPolicy
    assert flow.remote_topic("topic-us-active") == "topic-us-active"
    assert flow.offset_syncs.lag_max == 0
    assert flow.offset_syncs.location == "source"
    assert flow.offset_syncs_topic == "mm2-offset-syncs.europe.internal"
    assert flow.checkpoints_topic == "us.checkpoints.internal"
    checkpoints = checkpoints_of(flow)
    assert checkpoints.interval_s == 5
    assert checkpoints.sync_group_offsets is syncs
    assert checkpoints.sync_group_offsets_interval_s == 5
    assert checkpoints.refresh_groups_interval_s == 10
    assert checkpoints.groups.accepts("activepassive-consumer")
    assert storage_factors(flow) == (1, 1, 1)
    assert (flow.replication_factor, flow.offset_syncs.replication_factor, checkpoints.replication_factor) == (1, 1, 1)
    assert warnings(settings) == []
    assert len([finding for finding in settings.findings if "autoRestart" in finding.what]) == 3


# -- two OpenShift clusters


def test_two_openshift_clusters_copy_everything_with_prefix() -> None:
    settings = load("two-openshift-clusters.yaml")
    (flow,) = settings.flows
    assert flow.name == "my-cluster-source->my-cluster-target"
    assert type(flow.policy) is DefaultPolicy
    assert flow.remote_topic("mytopic") == "my-cluster-source.mytopic"
    assert flow.remote_topic("mm2-topic") == "my-cluster-source.mm2-topic"
    assert flow.mirrors("mytopic")
    assert flow.mirrors("mm2-topic")
    assert (flow.checkpoints, flow.heartbeats) == (None, None)
    assert storage_topics(flow) == tuple(f"mirrormaker2-cluster-{what}" for what in ("status", "offsets", "configs"))
    assert flow.group_id == "mirrormaker2-cluster"
    assert warnings(settings) == []


def test_two_openshift_clusters_trust_a_certificate_each() -> None:
    for side, number in (("source", "one"), ("target", "two")):
        cluster = load("two-openshift-clusters.yaml").clusters[f"my-cluster-{side}"]
        assert cluster.bootstrap_servers == (f"my-cluster-{side}.apps.{number}.example:443",)
        assert security(cluster) == {
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": f"fake certificate of {side}",
        }


def test_other_documents_of_the_file_are_passed_over() -> None:
    notes = named(load("two-openshift-clusters.yaml").findings, "other-document")
    assert [note.severity for note in notes] == [Severity.INFO, Severity.INFO]
    assert ['kind "Kafka"' in notes[0].what, 'kind "KafkaTopic"' in notes[1].what] == [True, True]


def test_trust_of_the_target_stands_in_its_cluster() -> None:
    settings = load("target-trust.yaml")
    (flow,) = settings.flows
    assert (flow.replication_factor, flow.offset_syncs.replication_factor) == (1, 1)
    assert not flow.topic_sync.acls_enabled
    assert settings.clusters["my-cluster-source"].security_protocol == "PLAINTEXT"
    assert settings.clusters["my-cluster-target"].security_protocol == "SSL"


# -- broken as published: what is said, and where


def errors_of(name: str) -> list[tuple[int, str]]:
    """Line and text of each error."""
    loaded = inspect(f"broken/{name}")
    assert loaded.settings is None
    with pytest.raises(ConfigError):
        loaded.raise_errors()
    errors = [finding for finding in loaded.findings if finding.severity is Severity.ERROR]
    return [(error.place.line if error.place else 0, error.text) for error in errors]


def line_of(name: str, text: str) -> int:
    found = (CONFIGS / "broken" / name).read_text().splitlines()
    return next(number for number, line in enumerate(found, 1) if line.strip().startswith(text))


def test_lost_indentation_that_is_no_yaml_is_refused_at_its_line() -> None:
    with pytest.raises(ConfigError) as caught:
        inspect("broken/lost-indentation.yaml")
    line = line_of("lost-indentation.yaml", "bootstrapServers")
    assert f"lost-indentation.yaml:{line}:" in caught.value.where
    assert "look at the indentation" in caught.value.remedy


@pytest.mark.parametrize(
    ("key", "level"),
    [("name", "metadata"), ("connectCluster", "spec"), ("clusters", "spec"), ("mirrors", "spec")],
)
def test_field_without_its_indentation_is_named_with_its_level(key: str, level: str) -> None:
    text = f'"{key}" is not a field of the document; it belongs into {level}: look at the indentation'
    assert (line_of("flush-left.yaml", key), text) in errors_of("flush-left.yaml")


@pytest.mark.parametrize(
    ("key", "parent", "hint"),
    [
        ("trustedCertificates", "spec.clusters[0]", "it belongs into tls: look at the indentation"),
        ("authentiation", "spec.clusters[1]", 'did you mean "authentication"?'),
        ("targetCluster", "spec", "it belongs into a mirror: look at the indentation"),
        ("sourceConnector", "spec", "it belongs into a mirror: look at the indentation"),
        (
            "targetConnector",
            "spec",
            'did you mean "heartbeatConnector" of a mirror? look at the indentation',
        ),
    ],
)
def test_list_item_without_its_indentation_is_refused_field_by_field(key: str, parent: str, hint: str) -> None:
    name = "flush-left-within.yaml"
    assert (line_of(name, key), f'"{key}" is not a field of {parent}; {hint}') in errors_of(name)


def test_connector_of_the_target_does_not_exist() -> None:
    ((line, text),) = errors_of("target-connector.yaml")
    assert line == line_of("target-connector.yaml", "targetConnector")
    assert text.startswith('"targetConnector" is not a field of spec.mirrors[0]; did you mean "')
    assert text.endswith('Connector"?')


def test_misspelt_authentication_is_refused_with_its_nearest_name() -> None:
    name = "misspelt-authentication.yaml"
    text = '"authentiation" is not a field of spec.clusters[0]; did you mean "authentication"?'
    assert errors_of(name) == [(line_of(name, "authentiation"), text)]


def test_authentication_spelt_right_loads(tmp_path: Path) -> None:
    repaired = tmp_path / "repaired.yaml"
    broken = (CONFIGS / "broken" / "misspelt-authentication.yaml").read_text()
    repaired.write_text(broken.replace("authentiation", "authentication"))
    source = inspect_file(repaired, secrets=SECRETS).valid_settings().clusters["my-cluster-source"]
    assert (source.security_protocol, source.properties["sasl.mechanism"]) == ("SASL_SSL", "SCRAM-SHA-512")


def test_mirror_without_a_connector_is_refused() -> None:
    name = "no-connector.yaml"
    (first, no_connector), (second, enabled) = errors_of(name)
    assert (first, second) == (line_of(name, "- sourceCluster"), line_of(name, "target.enabled"))
    assert "no connector is enabled for the flow es-src->es-tgt, so nothing would be mirrored" in no_connector
    assert 'write "sourceConnector: {}"' in no_connector
    assert enabled.startswith(
        '"target.enabled" is not a field of spec.mirrors[0]; a key with a dot belongs into "config"'
    )
    assert "look at the indentation" in enabled


def test_mirror_to_another_cluster_than_its_own_is_refused() -> None:
    ((line, text),) = errors_of("two-targets.yaml")
    assert (CONFIGS / "broken" / "two-targets.yaml").read_text().splitlines()[
        line - 1
    ].strip() == "targetCluster: cloud"
    assert '"spec.mirrors[1].targetCluster" is "cloud" and spec.connectCluster is "on-premise"' in text


def test_connect_cluster_that_is_no_alias_is_refused() -> None:
    ((line, text),) = errors_of("unknown-connect-cluster.yaml")
    assert line == line_of("unknown-connect-cluster.yaml", "connectCluster")
    assert '"spec.connectCluster" names the unknown cluster "mirror"; spec.clusters has one, two' in text


def test_mirror_maker_of_version_1_is_answered_with_its_equivalent(tmp_path: Path) -> None:
    ((_, text),) = errors_of("mirror-maker-1.yaml")
    assert "this is a KafkaMirrorMaker, version 1, which is not run here" in text
    equivalent = tmp_path / "equivalent.properties"
    equivalent.write_text(text.partition(":")[2])
    (flow,) = inspect_file(equivalent).valid_settings().flows
    assert flow.topics.include == ("us.*",)
    assert flow.tasks_max == 2
    assert flow.remote_topic("us-my-mm1-topic") == "us-my-mm1-topic"
