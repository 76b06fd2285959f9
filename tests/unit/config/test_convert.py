"""Either form of a configuration, written as the other and loaded again, gives the same settings."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import javaproperties
import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from heliograph.config import Loaded, Settings, inspect_content, inspect_file
from heliograph.config.convert import Converted, convert, to_properties, to_resources, write_secret_files
from heliograph.config.files.properties import parse_properties, property_line
from heliograph.config.findings import Report
from heliograph.config.secrets import Resolver
from heliograph.errors import ConfigError

ENVIRONMENT = {"NAME": "from-outside", "NUMBER": "7", "SWITCH": "true", "SERVERS": "outside:9092", "WORD": 'a"b\\c'}
MIRROR = "org.apache.kafka.connect.mirror."
DEFAULT, IDENTITY = f"{MIRROR}DefaultReplicationPolicy", f"{MIRROR}IdentityReplicationPolicy"
quick = settings(max_examples=20, suppress_health_check=[HealthCheck.too_slow])
thorough = settings(max_examples=1500, suppress_health_check=list(HealthCheck))


# -- values

BOOLEANS = st.sampled_from(["true", "false", "TRUE", "${env:SWITCH}"])
SECONDS = st.integers(1, 3_000).map(str) | st.just("${env:NUMBER}")
FACTORS = st.sampled_from(["-1", "1", "2", "3", "5"])
STATES = st.sampled_from(["running", "paused", "stopped"])
NAMES = st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True) | st.just("${env:NAME}")
PATTERNS = st.lists(
    st.sampled_from(
        [".*", "orders", r"a\.b", r"\w+-[0-9]{2}", "x|y", r"\Qa.b\E", "[a-c&&[^b]]", "(?i)Zeta", "ü", "€-.*"]
    ),
    max_size=3,
).map(" , ".join)
SECRETS = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\x00"), min_size=1, max_size=12
) | st.sampled_from(
    ['"', "\\", " lead", "trail\n", "a: b", "- x", "#", "${FOO}", "${", "${x:y:z}", "true", "08_9", "1_0"]
)
JAAS = SECRETS.map(lambda text: f'x.Module required username="u" password="{text}";') | st.sampled_from(
    [
        'x.Module required username="u" password="${env:WORD}";',
        'x.Module required username="${env:NAME}" password="in clear";',
        "${env:WORD}",
    ]
)

FLOW_KEYS: dict[str, st.SearchStrategy[str]] = {
    "tasks.max": st.integers(1, 99).map(str),
    "topics": PATTERNS,
    "topics.exclude": PATTERNS,
    "topics.blacklist": PATTERNS,
    "groups": PATTERNS,
    "groups.exclude": PATTERNS,
    "groups.blacklist": PATTERNS,
    "config.properties.exclude": PATTERNS,
    "replication.factor": FACTORS,
    "offset-syncs.topic.replication.factor": FACTORS,
    "checkpoints.topic.replication.factor": FACTORS,
    "heartbeats.topic.replication.factor": FACTORS,
    "refresh.topics.enabled": BOOLEANS,
    "refresh.topics.interval.seconds": SECONDS,
    "refresh.groups.interval.seconds": SECONDS,
    "sync.topic.configs.enabled": BOOLEANS,
    "sync.topic.acls.interval.seconds": SECONDS,
    "sync.group.offsets.enabled": BOOLEANS,
    "sync.group.offsets.interval.seconds": SECONDS,
    "emit.offset-syncs.enabled": BOOLEANS,
    "emit.checkpoints.enabled": BOOLEANS,
    "emit.checkpoints.interval.seconds": SECONDS,
    "emit.heartbeats.enabled": BOOLEANS,
    "emit.heartbeats.interval.seconds": SECONDS,
    "heartbeats.replication.enabled": BOOLEANS,
    "offset-syncs.topic.location": st.sampled_from(["source", "target"]),
    "offset.lag.max": st.integers(0, 2**62).map(str),
    "on.data.loss": st.sampled_from(["continue", "stop-flow"]),
    "on.topic.recreated": st.sampled_from(["restart", "continue"]),
    "max.bytes.per.second": st.sampled_from(["none", "1000"]),
    "offset.translation": st.sampled_from(["exact", "mm2"]),
    "start.position": st.sampled_from(["earliest", "latest", "2026-01-31T12:00:00Z"]),
    "name": NAMES,
    "replication.policy.class": st.sampled_from([DEFAULT, DEFAULT, IDENTITY]),
    "replication.policy.separator": st.sampled_from(["_", "", "--", " ", "é", "|"]),
    "replication.policy.internal.topic.separator.enabled": BOOLEANS,
}
STATE_KEYS = {"state": STATES, "checkpoints.state": STATES, "heartbeats.state": STATES}
FLOW_ONLY_KEYS: dict[str, st.SearchStrategy[str]] = {
    "use.defaults.from": st.sampled_from(["source", "target"]),
    "consumer.client.rack": NAMES,
    "source.consumer.client.rack": NAMES,
    "source.consumer.isolation.level": st.sampled_from(["read_committed", "READ_UNCOMMITTED"]),
    "source.consumer.ssl.key.password": SECRETS,
    "consumer.ssl.key.password": SECRETS,
    "producer.override.compression.type": st.sampled_from(["gzip", "zstd"]),
    "producer.override.ssl.key.password": SECRETS,
    "target.producer.acks": st.just("all"),
}
CLIENT_KEYS: dict[str, st.SearchStrategy[str]] = {
    "consumer.client.rack": NAMES,
    "consumer.auto.offset.reset": st.sampled_from(["earliest", "latest"]),
    "consumer.isolation.level": st.sampled_from(["read_committed", "read_uncommitted"]),
    "consumer.ssl.protocol": st.just("TLSv1.2"),
    "consumer.ssl.key.password": SECRETS,
    "producer.compression.type": st.sampled_from(["lz4", "none"]),
    "producer.linger.ms": st.integers(0, 50).map(str),
    "producer.sasl.jaas.config": JAAS,
    "admin.request.timeout.ms": st.just("9000"),
}
WORKER_KEYS: dict[str, st.SearchStrategy[str]] = {
    "group.id": NAMES,
    "client.id": NAMES,
    "offset.storage.topic": NAMES,
    "config.storage.topic": NAMES,
    "status.storage.topic": NAMES,
    "offset.storage.partitions": st.integers(1, 50).map(str),
    "offset.storage.replication.factor": FACTORS,
    "offset.flush.interval.ms": st.integers(1, 9000).map(str),
    "exactly.once.source.support": st.sampled_from(["enabled", "preparing", "disabled"]),
    "request.timeout.ms": st.just("1000"),
    "key.converter": st.just("org.apache.kafka.connect.converters.ByteArrayConverter"),
    "key.converter.schemas.enable": st.just("false"),
    "listeners": st.just("http://:1"),
    "something.unknown.xyz": NAMES,
}
CONNECTION_KEYS: dict[str, st.SearchStrategy[str]] = {
    "ssl.protocol": st.sampled_from(["TLSv1.2", "TLSv1.3"]),
    "ssl.endpoint.identification.algorithm": st.sampled_from(["", "https"]),
    "ssl.truststore.location": st.just("/etc/trust.jks"),
    "ssl.truststore.password": SECRETS | st.just("${env:WORD}"),
    "ssl.keystore.password": SECRETS,
    "ssl.key.password": SECRETS,
    "sasl.mechanism": st.sampled_from(["PLAIN", "SCRAM-SHA-512"]),
    "sasl.jaas.config": JAAS,
    "sasl.login.refresh.window.factor": st.just("0.8"),
}
TOP_WORKER_KEYS = {
    key: WORKER_KEYS[key] for key in ("offset.storage.topic", "offset.storage.replication.factor", "key.converter")
}
MIRROR_KEYS: dict[str, st.SearchStrategy[str]] = {
    "spark.executor.memory": st.just("1g"),
    "spark.ssl.keyPassword": SECRETS,
    "spark.app.name": SECRETS | st.just("${env:NAME}"),
    "epoch.ms": st.integers(1000, 90000).map(str),
    "lease.ms": st.just("7000"),
}
PROTOCOLS = st.sampled_from(["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL", "ssl"])
ALIASES = ["A", "B", "c3", "us-east", "eu_west", "a", "x.y"]


def some(keys: Mapping[str, st.SearchStrategy[str]], most: int = 4) -> st.SearchStrategy[dict[str, str]]:
    """A few of the keys, each with a value."""
    chosen = st.lists(st.sampled_from(sorted(keys)), unique=True, max_size=most)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keys[name] for name in names}))


# -- property files


@st.composite
def property_files(draw: st.DrawFn) -> str:
    aliases = draw(st.lists(st.sampled_from(ALIASES), unique=True, min_size=2, max_size=4))
    pairs = [(one, other) for one in aliases for other in aliases if one != other]
    flows = draw(st.lists(st.sampled_from(pairs), unique=True, min_size=1, max_size=3))
    lines = {"clusters": ", ".join(aliases)}
    lines |= draw(some(FLOW_KEYS | STATE_KEYS | TOP_WORKER_KEYS | CONNECTION_KEYS)) | draw(some(MIRROR_KEYS, 3))
    for index, alias in enumerate(aliases):
        lines[f"{alias}.bootstrap.servers"] = "${env:SERVERS}" if index == 0 else f"k{index}:9092, k{index}:9093"
        if draw(st.booleans()):
            lines[f"{alias}.security.protocol"] = draw(PROTOCOLS)
        own = draw(some(CONNECTION_KEYS)) | draw(some(WORKER_KEYS)) | draw(some(CLIENT_KEYS))
        lines |= {f"{alias}.{key}": value for key, value in own.items()}
    for index, (source, target) in enumerate(flows):
        lines[f"{source}->{target}.enabled"] = "true" if index == 0 else draw(BOOLEANS)
        own = draw(some(FLOW_KEYS | STATE_KEYS, 6)) | draw(some(FLOW_ONLY_KEYS))
        lines |= {f"{source}->{target}.{key}": value for key, value in own.items()}
    if draw(st.booleans()) and len(aliases) == 2:
        lines["enabled"] = draw(BOOLEANS)
    shuffled = draw(st.permutations(list(lines.items())))
    return "".join(f"{javaproperties.escape(key)}={javaproperties.escape(value)}\n" for key, value in shuffled)


# -- resources


AUTHENTICATIONS = st.sampled_from(
    [
        {"type": "scram-sha-512", "username": 'u"\\ser', "passwordSecret": {"secretName": "s", "password": "word"}},
        {"type": "plain", "username": "u", "passwordSecret": {"secretName": "s", "password": "word"}},
        {"type": "tls", "certificateAndKey": {"secretName": "s", "certificate": "crt", "key": "word"}},
        {
            "type": "oauth",
            "clientId": "me",
            "tokenEndpointUri": "https://tokens",
            "clientSecret": {"secretName": "s", "key": "word"},
            "tlsTrustedCertificates": [{"secretName": "s", "certificate": "crt"}],
        },
        {"type": "custom", "sasl": True, "config": {"sasl.mechanism": "PLAIN", "sasl.jaas.config": "in clear"}},
        {"type": "custom", "sasl": False, "config": {"ssl.keystore.location": "/x", "ssl.key.password": "in clear"}},
    ]
)
TLS = st.sampled_from(
    [
        {},
        {"trustedCertificates": [{"secretName": "s", "certificate": "crt"}]},
        {"trustedCertificates": [{"secretName": "s", "pattern": "*.pem"}, {"secretName": "s", "certificate": "crt"}]},
    ]
)


@st.composite
def resource_clusters(draw: st.DrawFn, alias: str, servers: str, *, is_target: bool, is_v1: bool) -> dict[str, Any]:
    node: dict[str, Any] = {"alias": alias, "bootstrapServers": servers}
    if draw(st.booleans()):
        node["tls"] = draw(TLS)
    if draw(st.booleans()):
        node["authentication"] = draw(AUTHENTICATIONS)
    keys = {"ssl.protocol": CONNECTION_KEYS["ssl.protocol"], "client.id": NAMES}
    if is_target:
        v1_fields = {"group.id", "offset.storage.topic", "config.storage.topic", "status.storage.topic"}
        keys |= CLIENT_KEYS | {key: value for key, value in WORKER_KEYS.items() if not (is_v1 and key in v1_fields)}
    node["config"] = draw(some(keys, 6))
    if is_target and is_v1:
        fields = ("groupId", "offsetStorageTopic", "configStorageTopic", "statusStorageTopic")
        node |= draw(some(dict.fromkeys(fields, NAMES)))
    return node


@st.composite
def connectors(draw: st.DrawFn, keys: Mapping[str, st.SearchStrategy[str]]) -> dict[str, Any]:
    block: dict[str, Any] = {"config": draw(some(keys, 6))}
    if draw(st.booleans()):
        block["tasksMax"] = draw(st.integers(1, 20))
    if draw(st.booleans()):
        block["state"] = draw(STATES)
    elif draw(st.booleans()):
        block["pause"] = draw(st.booleans())
    return block


def of(*prefixes: str) -> dict[str, st.SearchStrategy[str]]:
    return {key: value for key, value in (FLOW_KEYS | STATE_KEYS).items() if key.startswith(prefixes)}


CHECKPOINT_KEYS = of("groups", "refresh.groups", "emit.checkpoints", "sync.group", "checkpoints.")
HEARTBEAT_KEYS = of("emit.heartbeats", "heartbeats.topic", "heartbeats.state")
SHARED = ("replication.policy.", "offset-syncs.topic.location")
SOURCE_KEYS = {
    key: value
    for key, value in (FLOW_KEYS | STATE_KEYS | FLOW_ONLY_KEYS).items()
    if key not in CHECKPOINT_KEYS and key not in HEARTBEAT_KEYS and not key.startswith(SHARED)
}
SHARED_KEYS = {key: value for key, value in FLOW_KEYS.items() if key.startswith(SHARED)}


@st.composite
def mirrors(draw: st.DrawFn, *, expressible: bool) -> dict[str, Any]:
    shared = draw(some(SHARED_KEYS, 2))
    mirror: dict[str, Any] = {}
    if expressible or draw(st.booleans()):
        mirror["sourceConnector"] = draw(connectors(SOURCE_KEYS))
    if draw(st.booleans()):
        mirror["checkpointConnector"] = draw(connectors(CHECKPOINT_KEYS))
    if draw(st.booleans()) or not mirror:
        mirror["heartbeatConnector"] = draw(connectors(HEARTBEAT_KEYS))
    for block in mirror.values():
        block["config"] |= shared
        if not expressible and draw(st.booleans()):
            block["config"]["enabled"] = draw(BOOLEANS)
    fields = ("topicsPattern", "topicsExcludePattern", "groupsPattern", "groupsBlacklistPattern")
    return mirror | draw(some(dict.fromkeys(fields, PATTERNS)))


@st.composite
def documents(draw: st.DrawFn, *, number: int, expressible: bool) -> dict[str, Any]:
    """One document; those of the same file have different targets, or a property file could not keep them apart."""
    is_v1 = draw(st.booleans())
    suffix = str(number) if expressible else ""
    target, *sources = (f"{alias}{suffix}" for alias in draw(st.permutations(["T", "p", "q-1"])))
    sources = sources[: draw(st.integers(1, 2))]
    servers = {alias: f"{alias.lower()}:9092" for alias in (target, *sources)}
    nodes = [
        draw(resource_clusters(alias, servers[alias], is_target=alias == target, is_v1=is_v1))
        for alias in draw(st.permutations([target, *sources]))
    ]
    metadata: dict[str, Any] = {"name": f"m{number}"}
    if number == 0:
        keys = MIRROR_KEYS | {"emit.heartbeats.enabled": st.sampled_from(["true", "false"])}
        metadata["annotations"] = {f"heliograph/{key}": value for key, value in draw(some(keys)).items()}
    spec: dict[str, Any] = {"replicas": draw(st.sampled_from([0, 1, 3])), "mirrors": []}
    for source in sources:
        mirror = draw(mirrors(expressible=expressible))
        ends = (
            {"source": next(node for node in nodes if node["alias"] == source)}
            if is_v1
            else {"sourceCluster": source, "targetCluster": target}
        )
        spec["mirrors"].append(ends | mirror)
    if is_v1:
        spec["target"] = next(node for node in nodes if node["alias"] == target)
    else:
        spec |= {"connectCluster": target, "clusters": nodes}
    version = "v1" if is_v1 else draw(st.sampled_from(["v1beta2", "v1beta1", "v1alpha1"]))
    return {
        "apiVersion": f"kafka.strimzi.io/{version}",
        "kind": "KafkaMirrorMaker2",
        "metadata": metadata,
        "spec": spec,
    }


@st.composite
def resource_files(draw: st.DrawFn, *, expressible: bool = True) -> str:
    found = [draw(documents(number=n, expressible=expressible)) for n in range(draw(st.integers(1, 2)))]
    return yaml.safe_dump_all(found, allow_unicode=True)


# -- the round trips


@contextlib.contextmanager
def mounted(*results: Converted) -> Any:
    """A folder with the secrets that the resources name, and with those that were handed back."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        secrets = {("s", "word"): 'pass"word\\', ("s", "crt"): "CERTIFICATE", ("s", "b.pem"): "B", ("s", "a.pem"): "A"}
        write_secret_files(folder, secrets)
        for result in results:
            write_secret_files(folder, result.secrets)
        yield folder


def load(text: str, file: str, folder: Path) -> Loaded:
    loaded = inspect_content(text.encode(), file, resolver=Resolver(folder=folder, environment=ENVIRONMENT))
    loaded.raise_errors()
    return loaded


def load_or_reject(text: str, file: str, folder: Path) -> Loaded:
    try:
        return load(text, file, folder)
    except ConfigError as error:
        # The strategies know no rule that joins two keys: a cycle under identity naming, nothing enabled.
        joined = ("cycle", "come back over", "push group offsets", "nothing to run", "contains the separator")
        assume(not any(words in str(error) for words in joined))
        raise


def assert_same(one: Settings | None, other: Settings | None) -> None:
    assert one is not None
    assert other is not None
    for flow, again in zip(one.flows, other.flows, strict=True):
        assert flow == again
    assert one.clusters == other.clusters
    assert one == other
    assert list(one.heartbeat_pairs()) == list(other.heartbeat_pairs())


FORMS = {
    "f.properties": ("f.yaml", to_resources, to_properties),
    "f.yaml": ("f.properties", to_properties, to_resources),
}


def round_trip(text: str, file: str) -> None:
    """To the other form and back: the same settings each time, and secrets are taken out once."""
    other, there, back = FORMS[file]
    with mounted() as folder:
        first = load_or_reject(text, file, folder)
    converted = there(first.parts)
    with mounted(converted) as folder:
        second = load(converted.text, other, folder)
        assert_same(first.settings, second.settings)
        again = back(second.parts)
        assert again.secrets == {}
        assert_same(first.settings, load(again.text, file, folder).settings)


def same_or_refused(text: str) -> None:
    """Without the limits of what a property file can say."""
    with mounted() as folder:
        try:
            first = load(text, "f.yaml", folder)
        except ConfigError:
            assume(False)
            raise
        resolver = Resolver(folder=folder, environment=ENVIRONMENT)
        try:
            converted = convert(first, resolver=resolver)
        except ConfigError as error:
            if "property file" not in str(error):
                raise
            return
    with mounted(converted) as folder:
        assert_same(first.settings, load(converted.text, "f.properties", folder).settings)


@quick
@given(property_files())
def test_properties_to_resources_and_back(text: str) -> None:
    round_trip(text, "f.properties")


@quick
@given(resource_files())
def test_resources_to_properties_and_back(text: str) -> None:
    round_trip(text, "f.yaml")


@quick
@given(resource_files(expressible=False))
def test_what_a_property_file_cannot_say_is_refused(text: str) -> None:
    same_or_refused(text)


@pytest.mark.long
@pytest.mark.timeout(1800)
@thorough
@given(property_files())
def test_many_properties_to_resources_and_back(text: str) -> None:
    round_trip(text, "f.properties")


@pytest.mark.long
@pytest.mark.timeout(1800)
@thorough
@given(resource_files(), resource_files(expressible=False))
def test_many_resources_to_properties_and_back(text: str, loose: str) -> None:
    same_or_refused(loose)
    round_trip(text, "f.yaml")


# -- files that people use

CONFIGS = Path(__file__).parents[2] / "published_configs"
NOT_EXPRESSIBLE = {"aggregate-distributed.yaml": "the flows into .* have different values for group.id"}
"""Documents with groups of their own on the same target."""


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.[py]*")), ids=lambda path: path.name)
def test_published_file_there_and_back(path: Path) -> None:
    first = inspect_file(path, offline=True)
    if path.name in NOT_EXPRESSIBLE:
        with pytest.raises(ConfigError, match=NOT_EXPRESSIBLE[path.name]):
            convert(first)
        return
    suffixes = (".properties", ".yaml") if first.is_resource else (".yaml", ".properties")
    converted = convert(first)
    second = inspect_content(
        converted.text.encode(), f"f{suffixes[0]}", resolver=Resolver(given=converted.secrets, offline=True)
    )
    assert_same(first.settings, second.settings)
    back = convert(second, resolver=Resolver(given=converted.secrets))
    third = inspect_content(
        back.text.encode(), f"f{suffixes[1]}", resolver=Resolver(given=converted.secrets, offline=True)
    )
    assert_same(first.settings, third.settings)


BASE = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nA->B.enabled=true\n"


def test_a_cluster_without_servers_has_no_place_in_a_resource() -> None:
    with pytest.raises(ConfigError, match='cluster "C" has no bootstrap servers, which a resource needs'):
        convert(inspect_content(BASE.encode(), "f.properties"))


def test_a_protocol_behind_a_missing_placeholder_is_refused() -> None:
    text = f"{BASE}C.bootstrap.servers=c:1\nA.security.protocol=${{env:NO_SUCH_PROTOCOL}}\n"
    loaded = inspect_content(text.encode(), "f.properties", resolver=Resolver(offline=True))
    with pytest.raises(ConfigError, match='would mean something else: security protocol of cluster "A"'):
        convert(loaded)


def test_checkpoints_without_a_source_connector_are_refused() -> None:
    text = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
spec:
  connectCluster: B
  clusters:
  - {alias: A, bootstrapServers: "a:1"}
  - {alias: B, bootstrapServers: "b:1"}
  - {alias: C, bootstrapServers: "c:1"}
  mirrors:
  - {sourceCluster: A, targetCluster: B, sourceConnector: {}}
  - {sourceCluster: C, targetCluster: B, checkpointConnector: {}}
"""
    with pytest.raises(ConfigError, match=r"f\.yaml:11:5: C->B has a checkpoint connector without a source connector"):
        convert(inspect_content(text.encode(), "f.yaml"))


def test_two_flows_of_one_name_for_kubernetes() -> None:
    text = "clusters=A,B,a,b\nenabled=false\n" + "".join(
        f"{x}.bootstrap.servers=h{n}:1\n" for n, x in enumerate("ABab")
    )
    loaded = inspect_content(f"{text}A->B.enabled=true\na->b.enabled=true\n".encode(), "f.properties")
    names = [document["metadata"]["name"] for document in yaml.safe_load_all(convert(loaded, name="m").text)]
    assert len(names) == len(set(names)) == 12


@given(st.text(st.characters(codec="utf-8"), max_size=30), st.text(st.characters(codec="utf-8"), max_size=30))
def test_property_text_reads_back(key: str, value: str) -> None:
    """By our own parser and by another one."""
    text = f"{property_line(key, value)}\n"
    entries = parse_properties(text.encode(), Report("f"))
    assert [(entry.key, entry.value) for entry in entries.values()] == [(key, value)]
    assert javaproperties.loads(text) == {key: value}


def test_heartbeats_of_pairs_without_a_flow_are_kept(tmp_path: Path) -> None:
    text = (
        f"{BASE}C.bootstrap.servers=c:1\nemit.heartbeats.interval.seconds=5\nA->B.emit.heartbeats.interval.seconds=1\n"
    )
    first = load(text, "f.properties", tmp_path)
    resources = load(to_resources(first.parts).text, "f.yaml", tmp_path)
    assert_same(first.settings, resources.settings)
    assert_same(first.settings, load(to_properties(resources.parts).text, "f.properties", tmp_path).settings)


def test_resource_without_a_flow_is_refused(tmp_path: Path) -> None:
    first = load(BASE.replace("A->B.enabled=true\n", ""), "f.properties", tmp_path)
    with pytest.raises(ConfigError, match="the file has no flow"):
        to_resources(first.parts)
