"""Configurations that labs and articles publish: each loads and means what its author lists."""

from __future__ import annotations

import pytest

from heliograph.config.files.parts import ConnectorState
from heliograph.config.findings import Severity
from heliograph.config.load import inspect_file
from heliograph.names.policies import DefaultPolicy, IdentityPolicy
from tests.unit.helpers.published import (
    CONFIGS,
    PLAIN,
    PUBLISHED,
    SCRAM,
    checkpoints_of,
    inspect,
    load,
    named,
    only_flow,
    scram,
    security,
    storage_factors,
    storage_topics,
    warnings,
)
from tests.unit.helpers.samples import patterns_of

# -- all of them


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_file_has_no_error_and_no_unknown_key(name: str) -> None:
    loaded = inspect(name)
    assert [str(finding) for finding in loaded.findings if finding.severity is Severity.ERROR] == []
    assert named(loaded.findings, "unknown-key") == []
    assert loaded.is_resource == (not name.endswith(".properties"))
    settings = loaded.valid_settings()
    assert settings.enabled_flows == settings.flows
    assert {flow.state for flow in settings.flows} == {ConnectorState.RUNNING}


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
    assert patterns_of(flow.topics).include == (".*",)
    assert (flow.checkpoints, flow.heartbeats) == (None, None)
    assert any("es-src->es-tgt has no MirrorCheckpointConnector" in finding.what for finding in settings.findings)
    assert settings.resources[0].pods["version"] == "2.6.0"
    assert settings.resources[0].pods["template"]["pod"]["metadata"]["annotations"]["productCloudpakRatio"] == "2:1"


def test_event_streams_lab_trusts_the_system_where_tls_is_empty() -> None:
    assert security(load("event-streams-lab.yaml").clusters["es-src"]) == {"security.protocol": "SSL"}


def test_event_streams_lab_repaired_has_all_connectors() -> None:
    settings = load("event-streams-lab-scram.yaml")
    (flow,) = settings.flows
    assert patterns_of(flow.topics).include == ("products",)
    assert not flow.mirrors("orders")
    assert checkpoints_of(flow).interval_s == 5
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
    assert patterns_of(flow.topics).include == ("products",)
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
    assert patterns_of(checkpoints_of(flow).groups).include == (".*",)
    assert settings.other_heartbeats is not None
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
    assert patterns_of(flow.topics).include == ("orders",)
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
    assert patterns_of(flow.topics).include == ("products",)
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
    assert patterns_of(flow.topics).include == ("products",)
    assert patterns_of(checkpoints_of(flow).groups).include == (".*",)
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
    assert patterns_of(flows["cloud->on-premise"].topics).include == ("accounts", "orders")
    assert patterns_of(flows["on-premise->cloud"].topics).include == ("accounts", "customers")
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
        assert (patterns_of(flow.topics).include, patterns_of(checkpoints_of(flow).groups).include) == (
            (".*",),
            (".*",),
        )
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
    assert flow.auto_restart is not None
    assert flow.auto_restart.max_restarts is None
    assert len([finding for finding in settings.findings if "autoRestart" in finding.what]) == 2, "tried for ever"


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
