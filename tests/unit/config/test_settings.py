import contextlib
import pickle
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import Flow, Settings, load_settings, parse_settings
from heliograph.config.document import render
from heliograph.config.keys.key import Effect, Key, Scope, Where
from heliograph.config.keys.lookup import find_key
from heliograph.config.keys.table import KEYS
from heliograph.config.keys.values import BadValue, parse_address, parse_value, split_list
from heliograph.errors import ConfigError
from heliograph.names.policies import DefaultPolicy, IdentityPolicy
from tests.unit.helpers.samples import BASE, patterns_of


def load(more: str = "", *, base: str = BASE, only: tuple[str, ...] = ()) -> Settings:
    return parse_settings(base + more, only_targets=only)


def flow(more: str = "") -> Flow:
    return load(more).flows[0]


def refusal(more: str = "", *, base: str = BASE, only: tuple[str, ...] = ()) -> str:
    with pytest.raises(ConfigError) as caught:
        load(more, base=base, only=only)
    return str(caught.value)


def test_defaults_of_a_flow() -> None:
    settings = load()
    one = settings.flows[0]
    assert (one.name, one.enabled, settings.epoch_ms) == ("A->B", True, 60000)
    assert (one.tasks_max, one.replication_factor) == (1, 2)
    assert (one.refresh_topics_enabled, one.refresh_topics_interval_s) == (True, 10)
    assert (one.group_id, one.client_id, one.connector_name) == ("A-mm2", "A->B", "MirrorSourceConnector")
    assert (one.offset_storage_topic, one.offset_storage_partitions, one.offset_storage_replication_factor) == (
        "mm2-offsets.A.internal", 25, 3,
    )  # fmt: skip
    assert (one.config_storage_topic, one.config_storage_replication_factor) == ("mm2-configs.A.internal", 3)
    assert (one.status_storage_topic, one.status_storage_partitions, one.status_storage_replication_factor) == (
        "mm2-status.A.internal", 5, 3,
    )  # fmt: skip
    assert (one.ledger_topic, one.rejected_topic) == ("mm2-ledger.A.internal", "mm2-rejected.A.internal")
    assert (one.offset_flush_interval_ms, one.isolation_level, one.auto_offset_reset) == (
        1000, "read_uncommitted", "earliest",
    )  # fmt: skip
    assert (one.on_data_loss, one.on_topic_recreated, one.on_record_error) == ("continue", "restart", "stop-partition")
    assert (one.max_bytes_per_second, one.compression) == (None, "none")
    assert one.policy == DefaultPolicy(source_alias="A")
    assert patterns_of(one.topics).include == (".*",)
    assert settings.clusters["A"].bootstrap_servers == ("a:9092",)
    assert settings.clusters["A"].security_protocol == "PLAINTEXT"
    assert settings.notes == settings.warnings == ()


def test_settings_pickle() -> None:
    settings = load("spark.executor.memory=1g\nA.consumer.client.rack=r1\n")
    assert pickle.loads(pickle.dumps(settings)) == settings


def test_values_that_may_be_secret_stay_out_of_repr() -> None:
    settings = load("A.ssl.key.password=hunter2\nA.consumer.client.rack=hunter2\nB.producer.ssl.key.password=hunter2\n")
    assert "hunter2" not in repr(settings)


# -- layering


def test_flow_keys_beat_top_level_keys() -> None:
    one = flow("tasks.max=2\nreplication.factor=3\nA->B.tasks.max=4\ntopics=x\nA->B.topics=y, z\n")
    assert (one.tasks_max, one.replication_factor, patterns_of(one.topics).include) == (4, 3, ("y", "z"))


def test_worker_keys_come_from_the_target_and_some_from_the_top_which_win() -> None:
    one = flow(
        "B.offset.flush.interval.ms=50\nB.group.id=g\nB.client.id=c\nA.group.id=no\n"
        "B.offset.storage.topic=mine\noffset.storage.topic=top\nstatus.storage.replication.factor=1\n"
    )
    assert (one.offset_flush_interval_ms, one.group_id, one.client_id) == (50, "g", "c")
    assert (one.offset_storage_topic, one.status_storage_replication_factor) == ("top", 1)


@pytest.mark.parametrize(
    ("more", "level"),
    [
        ("A.consumer.isolation.level=read_committed", "read_committed"),
        ("B.consumer.isolation.level=read_committed", "read_uncommitted"),
        ("A->B.consumer.isolation.level=read_committed", "read_committed"),
        ("A->B.source.consumer.isolation.level=READ_COMMITTED", "read_committed"),
        # The cluster's key becomes source.consumer., which beats the flow's consumer.
        (
            "A.consumer.isolation.level=read_uncommitted\nA->B.consumer.isolation.level=read_committed",
            "read_uncommitted",
        ),
        (
            "A.consumer.isolation.level=read_uncommitted\nA->B.source.consumer.isolation.level=read_committed",
            "read_committed",
        ),
        ("B.exactly.once.source.support=enabled", "read_committed"),
        ("B.exactly.once.source.support=enabled\nA.consumer.isolation.level=read_uncommitted", "read_uncommitted"),
    ],
)
def test_isolation_level_by_layers(more: str, level: str) -> None:
    assert flow(more).isolation_level == level


def test_producer_of_the_data_is_the_targets() -> None:
    assert flow("B.producer.compression.type=lz4").compression == "lz4"
    offset_syncs_only = load("A->B.producer.compression.type=lz4")
    assert offset_syncs_only.flows[0].compression == "none"
    assert [note.key for note in offset_syncs_only.notes] == ["A->B.producer.compression.type"]
    assert flow("B.producer.compression.type=lz4\nA->B.producer.override.compression.type=zstd").compression == "zstd"


def test_client_keys_of_source_and_target() -> None:
    """Connection settings are the cluster's; a client has its own only where they differ."""
    settings = load(
        "A.consumer.client.rack=r\nA.ssl.protocol=TLSv1.3\nA.consumer.ssl.protocol=TLSv1.2\nB.producer.linger.ms=7\n"
    )
    [one] = settings.flows
    assert one.source_consumer == {"client.rack": "r", "ssl.protocol": "TLSv1.2"}
    assert one.target_producer == {"linger.ms": "7"}
    assert settings.clusters["A"].properties == {"ssl.protocol": "TLSv1.3"}


def test_top_level_enabled_turns_on_every_pair_that_mm2_starts() -> None:
    base = BASE.replace("A->B.enabled = true\n", "enabled = true\n")
    assert [one.name for one in load(base=base).enabled_flows] == ["A->B", "B->A"]
    assert [one.name for one in load("B->A.emit.heartbeats.enabled=false", base=base).enabled_flows] == ["A->B"]


def test_policy_and_separator() -> None:
    mirror = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
    assert flow(f"replication.policy.class={mirror}").policy == IdentityPolicy(source_alias="A")
    assert flow("A->B.replication.policy.separator=_").policy == DefaultPolicy(separator="_", source_alias="A")
    internal = "replication.policy.internal.topic.separator.enabled=false\n"
    assert flow(internal).policy == DefaultPolicy(source_alias="A")
    assert flow(internal + "replication.policy.separator=_").policy == DefaultPolicy(
        separator="_", internal_separator_enabled=False, source_alias="A"
    )


def test_flow_knows_which_topics_it_mirrors() -> None:
    more = "B->A.enabled=true\nB.offset.storage.topic=my-offsets\n"
    both = {one.name: one for one in load(more).flows}
    assert both["A->B"].mirrors("orders")
    assert both["A->B"].remote_topic("orders") == "A.orders"
    assert not both["B->A"].mirrors("my-offsets")
    assert not both["B->A"].mirrors("A.orders")
    assert not both["B->A"].mirrors("mm2-ledger.A.internal")


def test_own_settings() -> None:
    settings = load(
        "epoch.ms=5000\non.data.loss=stop-flow\nA->B.on.topic.recreated=continue\non.record.error=stop-partition\n"
        "max.bytes.per.second=1000\nspark.master=local[2]\n"
    )
    one = settings.flows[0]
    assert settings.epoch_ms == 5000
    assert (one.on_data_loss, one.on_topic_recreated, one.on_record_error) == (
        "stop-flow",
        "continue",
        "stop-partition",
    )
    assert one.max_bytes_per_second == 1000
    assert settings.spark == {"spark.master": "local[2]"}
    assert flow("max.bytes.per.second=none").max_bytes_per_second is None


def test_old_names_work_with_a_warning_and_new_ones_win() -> None:
    settings = load("topics.blacklist=x\n")
    assert patterns_of(settings.flows[0].topics).exclude == ("x",)
    assert [str(w) for w in settings.warnings] == [
        'mm2.properties:5:1: "topics.blacklist" is an old name; write "topics.exclude"'
    ]
    assert patterns_of(flow("topics.blacklist=x\ntopics.exclude=y\n").topics).exclude == ("y",)


def test_empty_topic_list_mirrors_nothing_but_heartbeats() -> None:
    one = flow("A->B.topics=\n")
    assert not one.mirrors("orders")
    assert one.mirrors("heartbeats")
    assert not flow("A->B.topics=\nheartbeats.replication.enabled=false\n").mirrors("heartbeats")


# -- clusters


@pytest.mark.parametrize("text", ["A,B", "A, B", " A ,B ", "A B", "A  ,  B"])
def test_clusters_in_both_spacing_styles(text: str) -> None:
    assert list(load(base=BASE.replace("A, B", text)).clusters) == ["A", "B"]


def test_published_lab_file_without_security_loads() -> None:
    text = """\
clusters=source, target
source.bootstrap.servers=k1:9093,k2:9093
target.bootstrap.servers=kafka1:9092,kafka2:9093,kafka3:9094
source.ssl.endpoint.identification.algorithm=
sync.topic.acls.enabled=false
replication.factor=3
internal.topic.replication.factor=3
refresh.topics.interval.seconds=10
refresh.groups.interval.seconds=10
source.configs.storage.topic=mm2-cluster-configs
source->target.enabled=true
source->target.topics=products
tasks.max=10
"""
    settings = load(base=text)
    one = settings.flows[0]
    assert (one.name, one.tasks_max, one.replication_factor) == ("source->target", 10, 3)
    assert one.remote_topic("products") == "source.products"
    assert [w.key for w in settings.warnings] == ["internal.topic.replication.factor", "source.configs.storage.topic"]


def test_only_targets() -> None:
    more = "B->A.enabled=true\n"
    assert [one.name for one in load(more, only=("A",)).flows] == ["B->A"]
    assert 'unknown cluster "X"' in refusal(more, only=("X",))
    off = "emit.heartbeats.enabled=false\n"
    assert "nothing to run: no flow that ends in A is enabled" in refusal(off, only=("A",))


THREE = "clusters=A,B,C\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:1\nC.bootstrap.servers=c:1\n"


def heartbeats(more: str = "", *, base: str = THREE, only: tuple[str, ...] = ()) -> dict[str, int]:
    """Intervals by pair."""
    pairs = load(more, base=base, only=only).heartbeat_pairs()
    return {f"{source}{target}": wanted.interval_s for (source, target), wanted in pairs.items()}


def test_file_without_a_flow_has_heartbeats_for_every_pair() -> None:
    assert heartbeats() == dict.fromkeys(["AB", "AC", "BA", "BC", "CA", "CB"], 1)
    assert [w.rule for w in load(base=THREE).warnings] == ["only-heartbeats"]


def test_heartbeats_only_into_the_clusters_asked_for() -> None:
    """Also where the file has a flow into another one."""
    flow = "A->B.enabled=true\n"
    assert list(heartbeats(flow, only=("B", "C"))) == ["AB", "AC", "BC", "CB"]
    assert list(heartbeats(flow, only=("A",))) == ["BA", "CA"]


def test_heartbeats_are_switched_and_timed_by_pair() -> None:
    more = "emit.heartbeats.interval.seconds=7\nA->B.emit.heartbeats.interval.seconds=3\n"
    more += "B->A.emit.heartbeats.enabled=false\n"
    assert heartbeats(more) == {"AB": 3, "AC": 7, "BC": 7, "CA": 7, "CB": 7}
    only = "emit.heartbeats.enabled=false\nA->B.emit.heartbeats.enabled=true\n"
    assert heartbeats(only) == {"AB": 1}


def test_no_heartbeats_into_a_cluster_without_an_address() -> None:
    assert list(heartbeats(base=THREE.replace("C.bootstrap.servers=c:1\n", ""))) == ["AB", "BA", "CA", "CB"]


def test_many_clusters_have_heartbeats_where_a_flow_is() -> None:
    aliases = [f"c{index}" for index in range(51)]
    base = f"clusters={','.join(aliases)}\n" + "".join(f"{alias}.bootstrap.servers={alias}:1\n" for alias in aliases)
    pairs = load("c0->c1.enabled=true\n", base=base).heartbeat_pairs()
    assert list(pairs) == [("c0", "c1"), ("c1", "c0")]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("k:9092", "k:9092"),
        ("PLAINTEXT://k.example.com:9092", "k.example.com:9092"),
        ("[::1]:9092", "[::1]:9092"),
        ("::1:9092", "[::1]:9092"),
        ("10.0.0.1:1", "10.0.0.1:1"),
    ],
)
def test_addresses(text: str, address: str) -> None:
    assert parse_address(text) == address


@pytest.mark.parametrize(
    "text", ["k", "k:", ":9092", "k:0", "k:65536", "k:x", "[zz]:1", "a b:1", "http://k:1/x", "-k:1"]
)
def test_bad_addresses(text: str) -> None:
    with pytest.raises(BadValue):
        parse_address(text)


# -- refusals


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            "A->B.topcs=x",
            'CONFIG: mm2.properties:5:1: "A->B.topcs" is not a known key; did you mean "topics"?',
        ),
        ("taks.max=2", 'mm2.properties:5:1: "taks.max" is not a known key; did you mean "tasks.max"?'),
        ("A.bootstrap.server=x:1", 'did you mean "A.bootstrap.servers"?'),
        ("A.consumer.isolation.levl=x", 'did you mean "A.consumer.isolation.level"?'),
        ("A->B.source.consumer.isolation.levl=x", 'did you mean "source.consumer.isolation.level"?'),
        ("BB.group.id=x", 'did you mean "B.group.id"?'),
        ("A->C.enabled=true", 'names the unknown cluster "C"'),
        ("A->A.enabled=true", "from a cluster to itself"),
        ("tasks.max=0", '"tasks.max" must be at least 1, not 0'),
        ("tasks.max=two", '"tasks.max" must be a whole number, not "two"'),
        ("tasks.max=1_0", "must be a whole number"),
        ("tasks.max=3000000000", "must fit in 32 bits"),
        ("replication.factor=0", "must be at least 1 or -1, not 0"),
        ("A->B.enabled=yes", 'must be true or false, not "yes"'),
        ("on.data.loss=ignore", "must be one of continue, stop-partition, stop-flow"),
        ("A.consumer.isolation.level=x", "must be one of read_uncommitted, read_committed"),
        ("A->B.transforms=x", "is refused: transforms change records"),
        ("A->B.transforms.x.type=y", "is refused"),
        ("A->B.predicates.x.type=y", "is refused"),
        ("errors.tolerance=all", "is refused"),
        ("key.converter=org.apache.kafka.connect.json.JsonConverter", "is refused"),
        ("B.value.converter=org.apache.kafka.connect.json.JsonConverter", "is refused"),
        ("topic.filter.class=com.example.Mine", "DefaultTopicFilter, or python:module.Class for a class of your own"),
        ("B.producer.interceptor.classes=x", "is refused"),
        ("topic.rename.1.from=x", '"topic.rename.1.from" is not part of a rule; write topic.rename.1.pattern and'),
        ("provenance.headers=yes", "must be true or false"),
        ("replication.policy.class=com.example.Mine", "must be one of org.apache.kafka.connect.mirror.Default"),
        ("A->B.topics=*x", '"A->B.topics": pattern "*x" cannot be used'),
        ("A->B.topics=a{1,3}", "a comma ends a pattern"),
        ("A.security.protocol=TLS", "must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL"),
        ("B.bootstrap.servers=a:9092", "are the same cluster: both have a:9092"),
        ("B.bootstrap.servers=A:9092, x:1", "are the same cluster"),
        ("B.bootstrap.servers=", 'cluster "B" has no bootstrap servers'),
        ("B.bootstrap.servers=k:1,k2", '"B.bootstrap.servers" must be a list of host:port; "k2" is not'),
        ("clusters=A, B, A", '"clusters" names "A" twice'),
        ("clusters=A, B,", "has an empty alias"),
        ("clusters=", "names no cluster"),
        ("clusters=A, B, Ü", "cannot be part of a topic name"),
        ("A->B.source.cluster.alias=C", "differs from the source of A->B"),
        ("A.consumer.client.rack=${env:NO_SUCH_RACK}", 'the environment variable "NO_SUCH_RACK", which is not set'),
        ("A->B.enabled=false\nemit.heartbeats.enabled=false", "nothing to run: no flow is enabled"),
        ("replication.policy.separator=A", 'alias "A" contains the separator'),
    ],
)
def test_bad_input_is_named_with_its_remedy(more: str, expected: str) -> None:
    assert expected in refusal(more)


def test_missing_clusters_points_at_a_near_key() -> None:
    assert 'the key "clusters" is missing; "cluster" stands in line 1' in refusal(
        base=BASE.replace("clusters", "cluster")
    )


def test_all_errors_come_together_in_the_order_of_the_file() -> None:
    text = refusal("taks.max=1\nreplication.factor=x\nA->C.enabled=true\nB.bootstrap.servers=b\n")
    assert text.splitlines() == [
        "CONFIG: mm2.properties: 4 errors",
        '  mm2.properties:5:1: "taks.max" is not a known key; did you mean "tasks.max"?',
        '  mm2.properties:6:1: "replication.factor" must be a whole number, not "x"',
        '  mm2.properties:7:1: "A->C.enabled" names the unknown cluster "C"; "clusters" has A, B',
        '  mm2.properties:8:1: "B.bootstrap.servers" must be a list of host:port; "b" is not',
    ]


def test_config_error_with_findings_pickles() -> None:
    with pytest.raises(ConfigError) as caught:
        load("topcs=1\ntaks.max=2\n")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert len(caught.value.details["findings"]) == 2


# -- notes and warnings


def test_a_key_that_resembles_none_is_a_warning() -> None:
    [warning] = load("something.else=1").warnings
    assert str(warning).startswith('mm2.properties:5:1: "something.else" is not a known key')


@pytest.mark.parametrize(
    ("more", "hint"),
    [
        ("producer.acks=all", "write <target>.producer.acks"),
        ("consumer.isolation.level=read_committed", "write <source>.consumer.isolation.level"),
        ("isolation.level=read_committed", "write <source>.consumer.isolation.level"),
        ("A.isolation.level=read_committed", "write <source>.consumer.isolation.level"),
        ("offset.flush.interval.ms=5", "write <target>.offset.flush.interval.ms"),
        ("A->B.offset.flush.interval.ms=5", "write <target>.offset.flush.interval.ms"),
        ("exactly.once.source.support=enabled", "write <target>.exactly.once.source.support"),
        ("use.defaults.from=source", "write <A>-><B>.use.defaults.from"),
        ("A.topics=x", "write topics at the top level or <A>-><B>.topics"),
        ("source.consumer.client.rack=x", "write <A>-><B>.source.consumer.client.rack"),
        ("A->B.clusters=A", "write clusters at the top level"),
    ],
)
def test_key_that_mm2_ignores_at_its_place_gives_the_right_place(more: str, hint: str) -> None:
    [warning] = load(more).warnings
    assert str(warning) == f'mm2.properties:5:1: "{more.partition("=")[0]}" has no effect here; {hint}'


def test_keys_without_effect_are_noted_with_their_place() -> None:
    notes = load("admin.timeout.ms=9\nA->B.metric.names.formats=new\nB.consumer.check.crcs=true\n").notes
    assert [str(note) for note in notes] == [
        'mm2.properties:5:1: "admin.timeout.ms" has no effect yet',
        'mm2.properties:6:1: "A->B.metric.names.formats" has no effect yet',
        'mm2.properties:7:1: "B.consumer.check.crcs" has no effect: checksums are always checked',
    ]


# -- the table


def _sample(name: str) -> str:
    return name.replace(".*", ".x")


@pytest.mark.parametrize("key", [key for key in KEYS if key.effect is not Effect.REFUSED], ids=lambda key: key.name)
def test_every_key_is_accepted_with_its_default_where_it_belongs(key: Key) -> None:
    if key.name == "clusters" or key.default is None or key.default.startswith("<") or "<source>" in key.default:
        assert find_key(key.scope.places[0], _sample(key.name)).key is not None
        return
    prefixes = {Where.TOP: "", Where.FLOW: "A->B.", Where.CLUSTER: "B."}
    for where in key.scope.places:
        if (where, key.name) == (Where.TOP, "enabled"):
            continue
        default = "true" if key.name == "enabled" else key.default.replace("\\", "\\\\")
        load(f"{prefixes[where]}{key.name}={default}\n")


def test_defaults_fit_their_own_types() -> None:
    for key in KEYS:
        if key.default is not None:
            parse_value(key, key.default)


def test_names_are_unique_within_a_place() -> None:
    seen = [(where, key.name) for key in KEYS for where in key.scope.places]
    assert len(seen) == len(set(seen))
    assert {key.scope for key in KEYS} <= set(Scope)


@given(st.lists(st.text(alphabet="ab.* ", max_size=4).map(str.strip)))
def test_list_splits_what_was_joined(items: list[str]) -> None:
    joined = " , ".join(items)
    assert split_list(joined) == (tuple(items) if joined.strip() else ())


@given(st.text(alphabet="AB->.= topics\\\n#enabled", max_size=60))
def test_any_text_loads_or_gives_a_config_error(text: str) -> None:
    with contextlib.suppress(ConfigError):
        load(text)


def test_a_thousand_flows_load_in_a_second() -> None:
    aliases = [f"c{i}" for i in range(1001)]
    text = f"clusters={','.join(aliases)}\n" + "".join(f"{a}.bootstrap.servers={a}:1\n" for a in aliases)
    text += "".join(f"c0->{a}.enabled=true\nc0->{a}.topics=t{a}\n" for a in aliases[1:])
    start = time.process_time()
    assert len(load(base=text).enabled_flows) == 1000
    assert time.process_time() - start < 3  # half a second where nobody else computes


def test_load_settings_reads_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mm2.properties"
    path.write_text(BASE)
    assert load_settings(path).file == str(path)


def test_document_is_not_stale() -> None:
    document = Path(__file__).parents[3] / "docs" / "configuration.md"
    assert document.read_text() == render(), "run: python -m heliograph.config.document > docs/configuration.md"
