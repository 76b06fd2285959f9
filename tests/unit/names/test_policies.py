import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.errors import ConfigError
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, ReplicationPolicy, is_cycle, make_policy

DOT = DefaultPolicy()
DASH = DefaultPolicy(separator="__", internal_separator_enabled=False)
SAME = IdentityPolicy(source_alias="A")
NAMES = st.text(alphabet="ab._-", max_size=12)


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("foo", None, None, "foo"),
        ("A.b", "A", "b", "b"),
        ("A.b.c", "A", "b.c", "c"),
        ("A.", None, None, "A."),
        ("A..", None, None, "A.."),
        ("A..b", "A", ".b", "b"),
        (".b", "", "b", "b"),
        ("..b", "", ".b", "b"),
        (".", None, None, "."),
        ("", None, None, ""),
        ("my.topic.", "my", "topic.", "topic."),
    ],
)
def test_default_takes_names_apart_as_java_splits(topic: str, source: str, upstream: str, original: str) -> None:
    assert (DOT.topic_source(topic), DOT.upstream_topic(topic), DOT.original_topic(topic)) == (
        source, upstream, original,
    )  # fmt: skip


def test_empty_separator_splits_between_characters() -> None:
    policy = DefaultPolicy(separator="")
    assert policy.topic_source("abc") == "a"
    assert policy.upstream_topic("abc") == "bc"
    assert policy.original_topic("abc") == "c"


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (DOT, "heartbeats", True),
        (DOT, "x.y.heartbeats", True),
        (DOT, "x-heartbeats", False),
        (DASH, "x.heartbeats", False),
        (DASH, "x__heartbeats", True),
        (SAME, "A.heartbeats", True),
        (SAME, "prod-heartbeats", False),
        (SAME, "heartbeats", True),
    ],
)
def test_heartbeats_topic(policy: ReplicationPolicy, topic: str, expected: bool) -> None:
    assert policy.is_heartbeats_topic(topic) is expected


@pytest.mark.parametrize(
    ("policy", "topic", "internal"),
    [
        (DOT, "mm2-offsets.A.internal", True),
        (DOT, "mm2.anything.internal", True),
        (DOT, "orders.internal", False),
        (DOT, "orders-internal", False),
        (DOT, "A.checkpoints.internal", True),
        (DOT, "__consumer_offsets", True),
        (DOT, ".hidden", True),
        (DOT, "_schemas", False),
        (DefaultPolicy(separator="_"), "mm2-offsets.A.internal", False),
        (DefaultPolicy(separator="_"), "mm2-offset-syncs_A_internal", True),
        (DefaultPolicy(separator="_"), "A.checkpoints.internal", False),
        (DASH, "mm2-offset-syncs.A.internal", True),
        (SAME, "A.checkpoints.internal", True),
    ],
)
def test_internal_topics_of_kafka_four(policy: ReplicationPolicy, topic: str, internal: bool) -> None:
    assert policy.is_internal_topic(topic) is internal


def test_internal_names_follow_the_separator_only_when_enabled() -> None:
    follows = DefaultPolicy(separator="_")
    assert follows.offset_syncs_topic("B") == "mm2-offset-syncs_B_internal"
    assert follows.checkpoints_topic("A") == "A_checkpoints_internal"
    assert DASH.offset_syncs_topic("B") == "mm2-offset-syncs.B.internal"
    assert DASH.checkpoints_topic("A") == "A.checkpoints.internal"
    assert follows.heartbeats_topic() == "heartbeats"


def test_identity_prefixes_only_what_ends_with_heartbeats() -> None:
    assert SAME.format_remote_topic("A", "orders") == "orders"
    assert SAME.format_remote_topic("A", "heartbeats") == "A.heartbeats"
    assert SAME.format_remote_topic("A", "prod-heartbeats") == "A.prod-heartbeats"
    assert SAME.topic_source("B.orders") == "A"
    assert SAME.upstream_topic("B.orders") == "B.orders"
    assert SAME.original_topic("B.orders") == "B.orders"
    assert IdentityPolicy().topic_source("orders") is None


@pytest.mark.parametrize(
    ("policy", "topic", "cycle"),
    [
        (DOT, "B.x", True),
        (DOT, "A.B.x", True),
        (DOT, "B.A.B.x", True),
        (DOT, "A.x", False),
        (DOT, "x", False),
        (DOT, "xB.x", False),
        (DOT, "B.", False),
        (SAME, "B.x", False),
        (SAME, "B.heartbeats", True),
        (IdentityPolicy(source_alias="B"), "x", True),
    ],
)
def test_cycle_towards_b(policy: ReplicationPolicy, topic: str, cycle: bool) -> None:
    assert is_cycle(policy, topic, "B") is cycle


@given(NAMES, st.sampled_from([".", "_", "__", "-", ""]))
def test_original_topic_is_a_fixed_point(topic: str, separator: str) -> None:
    policy = DefaultPolicy(separator=separator)
    original = policy.original_topic(topic)
    assert policy.original_topic(original) == original
    assert topic.endswith(original)


@given(st.text(alphabet="ab", min_size=1), st.text(alphabet="ab._-", min_size=1).filter(lambda t: t.strip(".") != ""))
def test_remote_name_gives_back_alias_and_topic(alias: str, topic: str) -> None:
    remote = DOT.format_remote_topic(alias, topic)
    assert DOT.topic_source(remote) == alias
    assert DOT.upstream_topic(remote) == topic
    assert is_cycle(DOT, remote, alias)


def test_policies_by_java_class_name() -> None:
    mirror = "org.apache.kafka.connect.mirror."
    assert make_policy(mirror + "DefaultReplicationPolicy", "_", "A") == DefaultPolicy(separator="_", source_alias="A")
    for name in (mirror, "io.strimzi.kafka.connect.mirror."):
        assert make_policy(name + "IdentityReplicationPolicy", source_alias="A") == SAME
    with pytest.raises(ConfigError, match=r"DefaultReplicationPolicy.*IdentityReplicationPolicy"):
        make_policy("com.example.Mine")


def test_policies_pickle() -> None:
    assert pickle.loads(pickle.dumps((DOT, SAME))) == (DOT, SAME)
