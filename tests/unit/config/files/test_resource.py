"""`KafkaMirrorMaker2` resources: their fields, versions and values."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from heliograph.config.files.parts import ConnectorState
from heliograph.config.findings import Severity
from heliograph.config.load import inspect_content
from heliograph.errors import ConfigError
from heliograph.names.policies import IdentityPolicy
from tests.unit.helpers.resources import (
    IDENTITY,
    OLD,
    V1,
    errors,
    inspect,
    load,
    of,
    texts,
    with_cluster,
    with_mirror,
    with_spec,
    with_target,
)
from tests.unit.helpers.samples import patterns_of

# -- versions and documents


@pytest.mark.parametrize("group", ["kafka.strimzi.io", "eventstreams.ibm.com"])
@pytest.mark.parametrize("version", ["v1alpha1", "v1beta1", "v1beta2"])
def test_old_layout_loads_in_every_version_and_group(group: str, version: str) -> None:
    loaded = inspect(OLD.replace("kafka.strimzi.io/v1beta2", f"{group}/{version}"))
    assert [flow.name for flow in loaded.valid_settings().flows] == ["A->B"]
    assert texts(loaded, Severity.WARNING) == []


@pytest.mark.parametrize("group", ["kafka.strimzi.io", "eventstreams.ibm.com"])
def test_v1_layout_loads_in_both_groups(group: str) -> None:
    loaded = inspect(V1.replace("kafka.strimzi.io", group))
    (flow,) = loaded.valid_settings().flows
    assert (flow.name, flow.group_id) == ("A->B", "my-group")
    assert (flow.config_storage_topic, flow.status_storage_topic, flow.offset_storage_topic) == (
        "my-configs", "my-status", "my-offsets",
    )  # fmt: skip
    assert texts(loaded, Severity.WARNING) == []


@pytest.mark.parametrize("version", ["kafka.strimzi.io/v2", "strimzi.io/v1beta2", "v1beta2"])
def test_unknown_version_is_refused_at_its_line(version: str) -> None:
    (error,) = of(inspect(OLD.replace("kafka.strimzi.io/v1beta2", version)), "unknown-version")
    assert error.place is not None
    assert error.place.line == 1
    assert f'"{version}" is not known' in error.what
    assert "kafka.strimzi.io or eventstreams.ibm.com" in error.remedy


def test_misspelt_kind_is_refused_with_its_nearest_name() -> None:
    (error,) = errors(OLD.replace("kind: KafkaMirrorMaker2", "kind: KafkaMirrormaker2"))
    assert error == '"KafkaMirrormaker2" is not a known kind; did you mean "KafkaMirrorMaker2"?'


@pytest.mark.parametrize(
    ("text", "field", "belongs"),
    [
        (with_spec("connectCluster: B\nclusters: []", V1), "spec.connectCluster", "versions before v1"),
        (V1.replace("  - source:", "  - sourceCluster: A\n    source:"), "spec.mirrors[0].sourceCluster", "versions"),
        (with_spec("target:\n  alias: C"), "spec.target", "v1"),
        (with_mirror("sourceConnector: {}\nsource:\n  alias: C"), "spec.mirrors[0].source", "v1"),
    ],
)
def test_field_of_the_other_layout_is_said_to_have_no_effect(text: str, field: str, belongs: str) -> None:
    found = [finding.text for finding in of(inspect(text), "wrong-version")]
    assert any(f'"{field}" has no effect here: it belongs to {belongs}' in one for one in found)


def test_storage_field_of_v1_does_not_belong_into_an_old_cluster() -> None:
    (error,) = errors(with_target("groupId: mine"))
    assert '"groupId" is not a field of spec.clusters[1]; it belongs to spec.target of v1' in error


def test_several_documents_give_all_their_flows() -> None:
    other = (
        OLD.replace("alias: A", "alias: C").replace("sourceCluster: A", "sourceCluster: C").replace("a:9092", "c:9092")
    )
    assert {flow.name for flow in load(f"{OLD}---\n{other}").flows} == {"A->B", "C->B"}


def test_same_flow_in_two_documents_is_refused() -> None:
    assert any("the flow A->B is in two documents" in error for error in errors(f"{OLD}---\n{OLD}"))


def test_unrelated_document_is_passed_over_with_a_note() -> None:
    loaded = inspect(f"apiVersion: v1\nkind: Secret\nmetadata:\n  name: x\n---\n{OLD}---\n")
    (note,) = of(loaded, "other-document")
    assert (note.severity, note.place.line if note.place else 0) == (Severity.INFO, 1)
    assert 'kind "Secret" (v1) is ignored' in note.what
    assert len(loaded.valid_settings().flows) == 1


def test_file_without_a_mirror_is_refused() -> None:
    assert errors("apiVersion: v1\nkind: Secret\n") == [
        "no document of the file is a KafkaMirrorMaker2; give a file that has one"
    ]


def test_list_of_resources_is_unpacked() -> None:
    items = textwrap.indent(OLD, "  ").replace("  apiVersion", "- apiVersion", 1)
    loaded = inspect(f"apiVersion: v1\nkind: List\nitems:\n{items}- apiVersion: v1\n  kind: Secret\n")
    assert [flow.name for flow in loaded.valid_settings().flows] == ["A->B"]
    assert len(of(loaded, "other-document")) == 1


def test_json_is_a_resource_too() -> None:
    text = (
        '{"apiVersion": "kafka.strimzi.io/v1beta2", "kind": "KafkaMirrorMaker2", "spec": {"connectCluster": "B",'
        ' "clusters": [{"alias": "A", "bootstrapServers": "a:9092"}, {"alias": "B", "bootstrapServers": "b:9092"}],'
        ' "mirrors": [{"sourceCluster": "A", "targetCluster": "B", "sourceConnector": {"tasksMax": 3}}]}}'
    )
    assert inspect_content(text.encode(), "mm2.json").valid_settings().flows[0].tasks_max == 3


def test_version_1_is_answered_with_a_file_that_loads() -> None:
    (error,) = errors(
        "apiVersion: kafka.strimzi.io/v1beta2\nkind: KafkaMirrorMaker\nspec:\n  include: 'orders|bills'\n"
        "  consumer:\n    bootstrapServers: a:9092\n    groupId: g\n    numStreams: 4\n"
        "  producer:\n    bootstrapServers: b:9092\n"
    )
    (flow,) = inspect_content(error.partition(":")[2].encode(), "mm2.properties").valid_settings().flows
    assert (patterns_of(flow.topics).include, flow.tasks_max) == (("orders|bills",), 4)
    assert isinstance(flow.policy, IdentityPolicy)


# -- fields


POD_FIELDS = {
    "version": "4.1.0",
    "image": "registry/kafka:1",
    "resources": "{limits: {cpu: 1}, requests: {memory: 1Gi}, claims: []}",
    "livenessProbe": "{initialDelaySeconds: 1, timeoutSeconds: 1, periodSeconds: 1, successThreshold: 1}",
    "readinessProbe": "{failureThreshold: 1}",
    "jvmOptions": "{-Xms: 1g, -Xmx: 1g, -XX: {a: b}, gcLoggingEnabled: true, javaSystemProperties: []}",
    "jmxOptions": "{authentication: {type: password}}",
    "logging": "{type: external, valueFrom: {configMapKeyRef: {name: a, key: b}}}",
    "clientRackInitImage": "registry/init:1",
    "rack": "{type: topology-label, topologyKey: zone}",
    "metricsConfig": "{type: strimziMetricsReporter, values: {allowList: [a]}}",
    "metrics": "{}",
    "tracing": "{type: opentelemetry}",
    "template": "{podSet: {metadata: {labels: {a: b}}}, pod: {hostUsers: true}, jmxSecret: {}}",
    "externalConfiguration": "{env: []}",
    "affinity": "{}",
    "tolerations": "[]",
}


@pytest.mark.parametrize("base", [OLD, V1], ids=["old", "v1"])
@pytest.mark.parametrize("name", POD_FIELDS)
def test_field_of_pods_is_known_and_kept(base: str, name: str) -> None:
    loaded = inspect(with_spec(f"{name}: {POD_FIELDS[name]}", base))
    (resource,) = loaded.valid_settings().resources
    assert list(resource.pods) == [name]
    (note,) = [finding for finding in of(loaded, "resource-field") if f'"spec.{name}"' in finding.what]
    assert note.severity is Severity.INFO
    assert texts(loaded, Severity.WARNING) == []


@pytest.mark.parametrize(
    "field",
    [
        "tasksMax: 2",
        "version: '[1,2)'",
        "config: {}",
        "state: running",
        "autoRestart: {enabled: true, maxRestarts: 3}",
        "listOffsets: {toConfigMap: {name: a}}",
        "alterOffsets: {fromConfigMap: {name: a}}",
    ],
)
@pytest.mark.parametrize("block", ["sourceConnector", "checkpointConnector", "heartbeatConnector"])
def test_field_of_a_connector_is_known(block: str, field: str) -> None:
    more = "" if block == "sourceConnector" else "sourceConnector: {}\n"
    loaded = inspect(with_mirror(f"{more}{block}:\n  {field}"))
    assert loaded.valid_settings().flows
    assert texts(loaded, Severity.WARNING) == []


OAUTH_FIELDS = {
    "accessToken": "{secretName: mine, key: token}",
    "accessTokenIsJwt": "true",
    "accessTokenLocation": "/var/token",
    "audience": "a",
    "clientAssertion": "{secretName: mine, key: token}",
    "clientAssertionLocation": "/var/assertion",
    "clientAssertionType": "a",
    "clientId": "a",
    "clientSecret": "{secretName: mine, key: token}",
    "connectTimeoutSeconds": "1",
    "disableTlsHostnameVerification": "true",
    "enableMetrics": "true",
    "grantType": "client_credentials",
    "httpRetries": "1",
    "httpRetryPauseMs": "1",
    "includeAcceptHeader": "true",
    "maxTokenExpirySeconds": "1",
    "readTimeoutSeconds": "1",
    "refreshToken": "{secretName: mine, key: token}",
    "saslExtensions": "{a: b}",
    "scope": "a",
    "tlsTrustedCertificates": "[{secretName: mine, certificate: ca.crt}]",
    "tokenEndpointUri": "https://tokens.example/token",
}


@pytest.mark.parametrize("name", OAUTH_FIELDS)
def test_field_of_oauth_is_known(name: str, secrets: Path) -> None:
    loaded = inspect(with_cluster(f"authentication:\n  type: oauth\n  {name}: {OAUTH_FIELDS[name]}"), secrets)
    assert loaded.valid_settings().flows
    assert texts(loaded, Severity.WARNING) == []


def test_status_is_known() -> None:
    loaded = inspect(OLD + "status:\n  conditions: []\n  url: x\n")
    assert loaded.valid_settings().flows
    assert [finding.what for finding in of(loaded, "resource-field")] == ['"status" has no effect here']


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (with_spec("replica: 1"), '"replica" is not a field of spec; did you mean "replicas"?'),
        (with_cluster("authentiation: {}"), 'is not a field of spec.clusters[0]; did you mean "authentication"?'),
        (with_mirror("sourceConector: {}"), 'is not a field of spec.mirrors[0]; did you mean "sourceConnector"?'),
        (with_mirror("sourceConnector: {taskMax: 1}"), 'mirrors[0].sourceConnector; did you mean "tasksMax"?'),
        (with_cluster("tls: {trustedCertificate: []}"), 'clusters[0].tls; did you mean "trustedCertificates"?'),
        (
            with_mirror("sourceConnector: {config: {replication.facto: 1}}"),
            '"replication.facto" is not a known key; did you mean "replication.factor"?',
        ),
        (
            with_cluster("authentication: {type: plain, username: a, passwordSecret: {secretname: a, password: b}}"),
            'authentication.passwordSecret; did you mean "secretName"?',
        ),
        (
            with_cluster("authentication: {type: tls, certificateAndKey: {secretName: a, certificat: b, key: c}}"),
            'authentication.certificateAndKey; did you mean "certificate"?',
        ),
    ],
)
def test_misspelt_field_is_refused_with_its_nearest_name(text: str, error: str) -> None:
    assert any(error in found for found in errors(text))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (with_mirror("sourceConnector: {}\ntasksMax: 1"), '"tasksMax" is not a field of spec.mirrors[0]; it belongs'),
        (with_mirror("sourceConnector: {}\nreplication.factor: 1"), 'a key with a dot belongs to "config"'),
        (with_spec("tls: {}"), '"tls" is not a field of spec; it belongs to a cluster: check the indentation'),
        (OLD + "mirrors: []\n", '"mirrors" is not a field of the document; it belongs to spec'),
        (with_spec("sourceConector: {}"), 'did you mean "sourceConnector" of a mirror? check the indentation'),
        (OLD.replace("    sourceConnector: {}", "    sourceConnector: x"), "must have fields of its own"),
        (OLD.replace("  - sourceCluster: A\n    target", "    sourceCluster: A\n    target"), "must be a list"),
    ],
)
def test_lost_indentation_is_hinted_at(text: str, error: str) -> None:
    assert any(error in found for found in errors(text))


def test_unknown_field_that_resembles_nothing_is_a_warning() -> None:
    loaded = inspect(with_spec("zzz: 1"))
    assert loaded.valid_settings().flows
    assert [finding.rule for finding in loaded.valid_settings().warnings] == ["unknown-key"]


# -- states


def test_no_replicas_mean_paused() -> None:
    settings = load(with_mirror("sourceConnector: {}\ncheckpointConnector: {}").replace("replicas: 1", "replicas: 0"))
    (flow,) = settings.flows
    assert (flow.enabled, flow.is_running, flow.state) == (True, False, ConnectorState.PAUSED)
    assert flow.checkpoints is not None
    assert flow.checkpoints.state is ConnectorState.PAUSED
    assert [note.what for note in settings.findings if note.rule == "paused"] == [
        '"spec.replicas" is 0: all flows of this document are paused'
    ]


@pytest.mark.parametrize("value", ["-1", "many", "1.5"])
def test_replicas_must_be_a_number(value: str) -> None:
    assert any(
        '"spec.replicas" must be a number' in error
        for error in errors(OLD.replace("replicas: 1", f"replicas: {value}"))
    )


@pytest.mark.parametrize(
    ("fields", "state"),
    [
        ("{}", ConnectorState.RUNNING),
        ("{state: running}", ConnectorState.RUNNING),
        ("{state: paused}", ConnectorState.PAUSED),
        ("{state: stopped}", ConnectorState.STOPPED),
        ("{pause: true}", ConnectorState.PAUSED),
        ("{pause: 'true'}", ConnectorState.PAUSED),
        ("{pause: false}", ConnectorState.RUNNING),
        ("{pause: true, state: running}", ConnectorState.RUNNING),
    ],
)
def test_state_of_a_connector(fields: str, state: ConnectorState) -> None:
    loaded = inspect(with_mirror(f"sourceConnector: {fields}"))
    assert loaded.valid_settings().flows[0].state is state
    assert len(of(loaded, "old-name")) == ("pause:" in fields)


def test_each_connector_has_a_state_of_its_own() -> None:
    (flow,) = load(
        with_mirror("sourceConnector: {}\ncheckpointConnector: {state: stopped}\nheartbeatConnector: {state: paused}")
    ).flows
    assert flow.checkpoints is not None
    assert flow.heartbeats is not None
    assert (flow.state, flow.checkpoints.state, flow.heartbeats.state) == (
        ConnectorState.RUNNING,
        ConnectorState.STOPPED,
        ConnectorState.PAUSED,
    )


def test_unknown_state_is_refused() -> None:
    (error,) = errors(with_mirror("sourceConnector: {state: asleep}"))
    assert 'sourceConnector.state" must be one of running, paused, stopped, not "asleep"' in error


# -- flows


def test_mirror_to_another_cluster_than_its_own_is_refused() -> None:
    (error,) = errors(OLD.replace("connectCluster: B", "connectCluster: A"))
    assert '"spec.mirrors[0].targetCluster" is "B" and spec.connectCluster is "A"; they must be the same' in error


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (OLD.replace("connectCluster: B", "connectCluster: C"), 'names the unknown cluster "C"'),
        (OLD.replace("sourceCluster: A", "sourceCluster: C"), 'names the unknown cluster "C"'),
        (OLD.replace("sourceCluster: A", "sourceCluster: B"), 'mirrors "B" to itself'),
        (V1.replace("alias: A", "alias: B"), 'mirrors "B" to itself'),
        (OLD.replace("alias: A", "alias: B"), 'two clusters have the alias "B"'),
        (OLD.replace("    bootstrapServers: a:9092\n", ""), '"spec.clusters[0].bootstrapServers" is missing'),
        (OLD.replace("a:9092", "b:9092"), '"A" and "B" are the same cluster'),
        (OLD.replace("alias: A", "alias: 'A/B'").replace("Cluster: A", "Cluster: 'A/B'"), "cannot be part of a topic"),
    ],
)
def test_clusters_that_do_not_fit_are_refused(text: str, error: str) -> None:
    assert any(error in found for found in errors(text))


@pytest.mark.parametrize(
    ("present", "absent"),
    [
        ("sourceConnector", {"MirrorCheckpointConnector", "MirrorHeartbeatConnector"}),
        ("sourceConnector checkpointConnector", {"MirrorHeartbeatConnector"}),
        ("sourceConnector checkpointConnector heartbeatConnector", set()),
    ],
)
def test_absent_connector_does_not_run_and_says_so(present: str, absent: set[str]) -> None:
    loaded = inspect(with_mirror("\n".join(f"{block}: {{}}" for block in present.split())))
    (flow,) = loaded.valid_settings().flows
    assert (flow.checkpoints is None) == ("MirrorCheckpointConnector" in absent)
    assert (flow.heartbeats is None) == ("MirrorHeartbeatConnector" in absent)
    notes = of(loaded, "connector-absent")
    assert {note.what.split("has no ")[1].split(":")[0] for note in notes} == absent
    assert {note.severity for note in notes} <= {Severity.INFO}


def test_mirror_without_a_source_connector_copies_nothing() -> None:
    (error,) = errors(with_mirror("checkpointConnector: {}"))
    assert error == 'nothing to run: no flow is enabled; write "sourceConnector: {}"'


def test_block_without_a_value_is_warned_of() -> None:
    loaded = inspect(with_mirror("sourceConnector:"))
    (warning,) = of(loaded, "empty-field")
    assert 'sourceConnector" is empty, which Kubernetes takes as absent; write "sourceConnector: {}"' in warning.text
    assert loaded.valid_settings().flows[0].enabled


# -- config


@pytest.mark.parametrize(
    "key",
    [
        "ssl.truststore.location", "sasl.mechanism", "security.protocol", "listeners", "plugin.path",
        "rest.advertised.port", "bootstrap.servers", "consumer.interceptor.classes", "producer.interceptor.classes",
    ],
)  # fmt: skip
def test_forbidden_key_of_a_cluster_is_named(key: str) -> None:
    loaded = inspect(with_target(f"config:\n  {key}: x"))
    assert [warning.what for warning in of(loaded, "wrong-place")] == [f'"{key}" has no effect here']
    assert key not in loaded.valid_settings().clusters["B"].properties


@pytest.mark.parametrize("key", ["group.id", "config.storage.topic", "offset.storage.topic", "status.storage.topic"])
def test_storage_key_is_forbidden_in_v1_only(key: str) -> None:
    old = inspect(with_target(f"config:\n  {key}: mine"))
    new = inspect(V1.replace("    groupId", f"    config:\n      {key}: mine\n    groupId"))
    assert of(old, "wrong-place") == []
    assert [warning.key for warning in of(new, "wrong-place")] == [key]
    assert new.valid_settings().flows[0].group_id == "my-group"


@pytest.mark.parametrize(
    "key", ["ssl.endpoint.identification.algorithm", "ssl.cipher.suites", "ssl.protocol", "ssl.enabled.protocols"]
)
def test_allowed_exception_reaches_the_cluster(key: str) -> None:
    loaded = inspect(with_target(f"config:\n  {key}: x"))
    assert loaded.valid_settings().clusters["B"].properties == {key: "x"}
    assert texts(loaded, Severity.WARNING) == []


def test_clients_of_a_source_are_set_in_its_connector() -> None:
    (warning,) = of(inspect(with_cluster("config:\n  consumer.fetch.min.bytes: 1")), "wrong-place")
    assert warning.remedy == "write it in the config of sourceConnector"


def test_worker_key_of_a_source_has_no_effect() -> None:
    (note,) = of(inspect(with_cluster("config:\n  offset.storage.topic: x")), "wrong-place")
    assert (note.severity, note.remedy) == (Severity.INFO, "write it in the config of the target")


def test_pattern_field_beats_the_config() -> None:
    (flow,) = load(
        with_mirror(
            """
            topicsPattern: orders
            topicsExcludePattern: secret
            groupsPattern: [one, two]
            groupsExcludePattern: three
            sourceConnector: {config: {topics: other, topics.exclude: more}}
            checkpointConnector: {config: {groups: other, groups.exclude: more}}
            """
        )
    ).flows
    assert (patterns_of(flow.topics).include, patterns_of(flow.topics).exclude) == (("orders",), ("secret",))
    assert flow.checkpoints is not None
    groups = patterns_of(flow.checkpoints.groups)
    assert (groups.include, groups.exclude) == (("one", "two"), ("three",))


def test_config_counts_without_a_pattern_field() -> None:
    (flow,) = load(with_mirror("sourceConnector: {config: {topics: 'a,b'}}")).flows
    assert patterns_of(flow.topics).include == ("a", "b")


@pytest.mark.parametrize("kind", ["topics", "groups"])
def test_old_pattern_name_is_read_with_a_warning(kind: str) -> None:
    loaded = inspect(with_mirror(f"{kind}BlacklistPattern: secret\nsourceConnector: {{}}\ncheckpointConnector: {{}}"))
    (warning,) = of(loaded, "old-name")
    assert warning.text == f'"{kind}BlacklistPattern" is an old name; write "{kind}ExcludePattern"'
    (flow,) = loaded.valid_settings().flows
    assert flow.checkpoints is not None
    assert patterns_of(flow.topics if kind == "topics" else flow.checkpoints.groups).exclude == ("secret",)


def test_new_pattern_name_beats_the_old_one() -> None:
    text = with_mirror("topicsBlacklistPattern: old\ntopicsExcludePattern: new\nsourceConnector: {}")
    assert patterns_of(load(text).flows[0].topics).exclude == ("new",)


def test_pattern_that_java_rejects_is_refused_at_its_line() -> None:
    (error,) = of(inspect(with_mirror("topicsPattern: 'a('\nsourceConnector: {}")), "bad-pattern")
    assert error.place is not None
    assert OLD.splitlines()[error.place.line - 1].strip() == "sourceConnector: {}"


@pytest.mark.parametrize("value", ["false", "False", '"false"', "'false'", "' false '"])
def test_flag_means_the_same_however_it_is_written(value: str) -> None:
    (flow,) = load(with_mirror(f"sourceConnector: {{config: {{sync.topic.acls.enabled: {value}}}}}")).flows
    assert not flow.topic_sync.acls_enabled


@pytest.mark.parametrize("value", ["7", '"7"', "'7'", "' 7 '"])
def test_number_means_the_same_however_it_is_written(value: str) -> None:
    (flow,) = load(with_mirror(f"sourceConnector: {{tasksMax: {value}, config: {{offset.lag.max: {value}}}}}")).flows
    assert (flow.tasks_max, flow.offset_syncs.lag_max) == (7, 7)


@pytest.mark.parametrize(
    ("fields", "key"),
    [
        ("{tasksMax: 0}", "tasksMax"),
        ("{tasksMax: many}", "tasksMax"),
        ("{config: {offset.lag.max: -1}}", "offset.lag.max"),
        ("{config: {sync.topic.acls.enabled: 1}}", "sync.topic.acls.enabled"),
    ],
)
def test_value_of_a_wrong_type_is_refused(fields: str, key: str) -> None:
    (error,) = of(inspect(with_mirror(f"sourceConnector: {fields}")), "bad-value")
    assert (error.severity, error.key) == (Severity.ERROR, key)


def test_key_with_a_stray_blank_is_read() -> None:
    (flow,) = load(
        with_mirror("sourceConnector:\n  config:\n    offset.lag.max : 3\n    'replication.factor ': 2")
    ).flows
    assert (flow.offset_syncs.lag_max, flow.replication_factor) == (3, 2)


def test_byte_order_mark_and_other_alphabets_are_read() -> None:
    text = "\ufeff" + with_mirror("topicsPattern: 'bestellungen-größe,заказы'\nsourceConnector: {}")
    assert patterns_of(load(text).flows[0].topics).include == ("bestellungen-größe", "заказы")


def test_bytes_that_are_no_utf_8_are_refused_with_their_line() -> None:
    with pytest.raises(ConfigError, match=r"mm2\.yaml:4:.*not UTF-8"):
        inspect_content(OLD.replace("name: mirror", "name: gr\xf6\xdfe").encode("latin-1"), "mm2.yaml")


# -- what connectors must have in common


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("replication.policy.class", IDENTITY),
        ("replication.policy.separator", "_"),
        ("offset-syncs.topic.location", "target"),
    ],
)
@pytest.mark.parametrize("other", ["{}", "different"])
def test_connectors_of_a_flow_must_agree(key: str, value: str, other: str) -> None:
    defaults = {
        "replication.policy.class": "org.apache.kafka.connect.mirror.DefaultReplicationPolicy",
        "replication.policy.separator": ".",
        "offset-syncs.topic.location": "source",
    }
    second = other if other == "{}" else f"{{config: {{{key}: {defaults[key]}}}}}"
    text = with_mirror(f"sourceConnector: {{config: {{{key}: {value}}}}}\ncheckpointConnector: {second}")
    (error,) = of(inspect(text), "connectors-differ")
    assert error.what.startswith(f"{key} of A->B is {value} for the source connector and {defaults[key]} for")
    assert error.place is not None
    assert load(with_mirror(f"sourceConnector: {{config: {{{key}: {value}}}}}\nheartbeatConnector: {{}}")).flows


@pytest.mark.parametrize("setting", [f"replication.policy.class: {IDENTITY}", "replication.policy.separator: _"])
def test_heartbeat_connector_must_not_contradict(setting: str) -> None:
    key = setting.partition(":")[0]
    wrong = {"replication.policy.separator": "'-'"}.get(key, "org.apache.kafka.connect.mirror.DefaultReplicationPolicy")
    text = f"sourceConnector: {{config: {{{setting}}}}}\nheartbeatConnector: {{config: {{{key}: {wrong}}}}}"
    assert len(of(inspect(with_mirror(text)), "connectors-differ")) == 1


def test_connectors_that_agree_load() -> None:
    config = f"{{config: {{replication.policy.class: {IDENTITY}, offset-syncs.topic.location: target}}}}"
    text = with_mirror("\n".join(f"{kind}Connector: {config}" for kind in ("source", "checkpoint", "heartbeat")))
    (flow,) = load(text).flows
    assert (type(flow.policy), flow.offset_syncs_topic) == (IdentityPolicy, "mm2-offset-syncs.A.internal")
