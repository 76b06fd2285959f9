"""What names tell of upstream clusters, what checkpoints say, where a consumer goes on: without a cluster."""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client import Decision, MirrorClient, Translated, mirror_client, names
from heliograph.client.access import ClientSettings, read_config, read_properties
from heliograph.client.checkpoints import FoundCheckpoints
from heliograph.client.seek import decide
from heliograph.errors import ConfigError, Unreachable
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import BrokerAddress, TopicPartition
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.names.policies import DefaultPolicy, IdentityPolicy, ReplicationPolicy

DOT = DefaultPolicy()
SAME = IdentityPolicy(source_alias="source")
MIRROR = "org.apache.kafka.connect.mirror."

# -- names


@pytest.mark.parametrize(
    ("topic", "alias", "hops"),
    [
        ("topic", "source", -1),
        ("source", "source", -1),
        ("sourcetopic", "source", -1),
        ("source1.topic", "source2", -1),
        ("source1.topic", "source1", 1),
        ("source2.source1.topic", "source2", 1),
        ("source2.source1.topic", "source1", 2),
        ("source3.source2.source1.topic", "source1", 3),
        ("source3.source2.source1.topic", "source4", -1),
        ("a.b.a.c.topic", "c", -1),
        ("a.b.a.c.topic", "b", 2),
    ],
)
def test_hops_are_counted_along_the_prefixes(topic: str, alias: str, hops: int) -> None:
    assert names.count_hops(DOT, topic, alias) == hops


def test_hops_end_where_names_do_not_change() -> None:
    assert names.count_hops(SAME, "topic", "source") == 1
    assert names.count_hops(SAME, "topic", "other") == -1


def test_heartbeats_topics_are_those_of_any_depth() -> None:
    topics = ["topic1", "heartbeats", "source1.heartbeats", "source2.source1.heartbeats", "source3.heartbeats"]
    assert names.heartbeat_topics(DOT, [*topics, "x-heartbeats", "heartbeats.x", "heartbeats!"]) == set(topics[1:])


def test_bare_checkpoints_topic_belongs_to_nobody() -> None:
    topics = ["topic1", "checkpoints.internal", "source1.checkpoints.internal", "source2.source1.checkpoints.internal"]
    assert names.checkpoint_topics(DOT, [*topics, "source1.checkpoints"]) == set(topics[2:])


WAYS = ["topic1", "topic2", "heartbeats", "source1.heartbeats", "source1.source2.heartbeats", "source3.heartbeats"]


@pytest.mark.parametrize(("alias", "hops"), [("source1", 1), ("source2", 2), ("source3", 1), ("source4", -1)])
def test_the_shortest_way_counts(alias: str, hops: int) -> None:
    assert names.replication_hops(DOT, WAYS, alias) == hops
    assert names.replication_hops(DOT, [*WAYS, f"source5.source6.{alias}.heartbeats"], alias) == (
        hops if hops > 0 else 3
    )


def test_upstream_clusters_are_those_of_any_way() -> None:
    ways = [*WAYS, "source5.source6.source7.heartbeats", "source8.topic", "source9.checkpoints.internal"]
    expected = {"source1", "source2", "source3", "source5", "source6", "source7"}
    assert names.upstream_clusters(DOT, ways) == expected
    assert names.upstream_clusters(SAME, ways) == expected
    assert names.upstream_clusters(IdentityPolicy(), ways) == expected
    assert names.upstream_clusters(DOT, ["heartbeats", "topic"]) == set()


def test_remote_topics_are_copies_by_their_names() -> None:
    local = ["topic1", "topic2", "__topic6", "source1.checkpoints.internal", "mm2-offsets.source1.internal"]
    remote = ["source1.topic3", "source1.topic4", "source1.source2.topic5", "source3.source4.source5.topic6"]
    assert names.remote_topics(DOT, local + remote) == set(remote)
    assert names.remote_topics(DOT, local + remote, "source1") == set(remote[:3])
    assert names.remote_topics(DOT, local + remote, "source2") == set()


def test_remote_topics_follow_the_separator() -> None:
    topics = ["topic1", "source1__topic3", "source1.topic4", "source1__source2__topic5"]
    policy = DefaultPolicy(separator="__")
    assert names.remote_topics(policy, topics) == {"source1__topic3", "source1__source2__topic5"}


def test_with_equal_names_all_but_local_heartbeats_is_remote() -> None:
    topics = ["topic1", "topic2", "source2.topic3", "heartbeats", "backup.heartbeats", "__internal"]
    assert names.remote_topics(SAME, topics) == {"topic1", "topic2", "source2.topic3", "backup.heartbeats"}
    assert names.remote_topics(SAME, topics, "backup") == {"backup.heartbeats"}
    assert names.remote_topics(IdentityPolicy(), topics) == {"backup.heartbeats"}


@pytest.mark.parametrize(
    ("policy", "topic", "expected"),
    [
        (DOT, "source1.checkpoints.internal", True),
        (DOT, "checkpoints.internal", False),
        (DOT, "checkpoints-internal", False),
        (DOT, "checkpoints.internal!", False),
        (DOT, "!checkpoints.internal", False),
        (DOT, "source1checkpointsinternal", False),
        (DefaultPolicy(separator="__"), "source1__checkpoints__internal", True),
        (DefaultPolicy(separator="__"), "source1.checkpoints.internal", False),
        (DefaultPolicy(separator="__", internal_separator_enabled=False), "source1.checkpoints.internal", True),
        (SAME, "source1.checkpoints.internal", True),
    ],
)
def test_checkpoints_topic(policy: ReplicationPolicy, topic: str, expected: bool) -> None:
    assert policy.is_checkpoints_topic(topic) is expected


@given(st.lists(st.text(alphabet="ab.", max_size=8).map(lambda text: f"{text}heartbeats")), st.booleans())
def test_every_upstream_cluster_can_be_reached_and_no_other(topics: list[str], is_same: bool) -> None:
    policy = SAME if is_same else DOT
    upstream = names.upstream_clusters(policy, topics)
    for alias in upstream | {"c"}:
        assert (names.replication_hops(policy, topics, alias) > 0) is (alias in upstream)


# -- properties


def test_properties_are_those_of_a_java_client() -> None:
    settings = read_properties(
        {
            "bootstrap.servers": "k1:9092, k2:9092",
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "admin.bootstrap.servers": "k3:9092",
            "consumer.sasl.mechanism": "SCRAM-SHA-256",
            "consumer.isolation.level": "read_committed",
            "replication.policy.separator": "_",
            "replication.policy.internal.topic.separator.enabled": "False",
        }
    )
    assert settings.policy == DefaultPolicy(separator="_", internal_separator_enabled=False)
    assert settings.admin.bootstrap == (BrokerAddress("k3", 9092),)
    assert settings.consumer.bootstrap == (BrokerAddress("k1", 9092), BrokerAddress("k2", 9092))
    assert settings.admin.security.protocol == settings.consumer.security.protocol == "SASL_SSL"
    assert settings.admin.security.current() == {"sasl.mechanism": "PLAIN"}
    assert settings.consumer.security.current() == {"sasl.mechanism": "SCRAM-SHA-256"}


def test_flag_of_internal_names_counts_beside_a_separator_only() -> None:
    flag = {"replication.policy.internal.topic.separator.enabled": "false"}
    assert read_properties({"bootstrap.servers": "k:1", **flag}).policy == DefaultPolicy()


def test_identity_policy_takes_the_alias_of_the_source() -> None:
    keys = {"bootstrap.servers": "k:1", "replication.policy.class": f"{MIRROR}IdentityReplicationPolicy"}
    assert read_properties(keys).policy == IdentityPolicy()
    assert read_properties({**keys, "source.cluster.alias": "A"}).policy == IdentityPolicy(source_alias="A")


def test_secrets_are_looked_up_for_each_connection_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STORE_PASSWORD", "first")
    keys = {
        "bootstrap.servers": "k:1",
        "security.protocol": "SSL",
        "ssl.truststore.password": "${env:STORE_PASSWORD}",
        "ssl.key.password": "plainly",
    }
    security = read_properties(keys).consumer.security
    assert security.current()["ssl.truststore.password"] == "first"
    monkeypatch.setenv("STORE_PASSWORD", "second")
    assert security.current()["ssl.truststore.password"] == "second"
    assert not re.search("first|second|plainly", repr(MirrorClient(keys)) + repr(read_properties(keys)))


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, r"no bootstrap\.servers"),
        ({"bootstrap.servers": " , "}, r"no bootstrap\.servers"),
        ({"bootstrap.servers": "k"}, "host:port"),
        ({"bootstrap.servers": "k:1", "security.protocol": "TLS"}, "SASL_SSL"),
        ({"bootstrap.servers": "k:1", "consumer.security.protocol": "TLS"}, "SASL_SSL"),
        ({"bootstrap.servers": "k:1", "replication.policy.class": "com.example.Mine"}, "not built in"),
        ({"bootstrap.servers": "k:1", "sasl.jaas.config": "${env:HELIOGRAPH_NO_SUCH}"}, "HELIOGRAPH_NO_SUCH"),
        (
            {
                "bootstrap.servers": "k:1",
                "replication.policy.separator": "_",
                "replication.policy.internal.topic.separator.enabled": "maybe",
            },
            "separator.enabled",
        ),
    ],
)
def test_properties_that_cannot_be_used_are_refused_at_once(keys: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        MirrorClient(keys)


# -- a configuration file

FILE = """
clusters = A, B, C
A.bootstrap.servers = a:1
B.bootstrap.servers = b:1, b:2
C.bootstrap.servers = c:1
B.security.protocol = SSL
B.ssl.truststore.password = x
A->B.enabled = true
C->B.enabled = true
"""


def _settings(tmp_path: Path, text: str, alias: str) -> ClientSettings:
    file = tmp_path / "mm2.properties"
    file.write_text(FILE + text)
    return read_config(file, alias)


def test_a_configuration_says_how_its_target_is_reached(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "replication.policy.separator = _\nB.admin.ssl.truststore.password = y", "B")
    assert settings.policy == DefaultPolicy(separator="_")
    assert settings.admin == settings.consumer
    assert settings.admin.bootstrap == (BrokerAddress("b", 1), BrokerAddress("b", 2))
    assert settings.admin.security.protocol == "SSL"
    assert settings.admin.security.current() == {"ssl.truststore.password": "y"}


def test_with_equal_names_one_source_is_known_and_several_are_not(tmp_path: Path) -> None:
    same = f"replication.policy.class = {MIRROR}IdentityReplicationPolicy\n"
    assert _settings(tmp_path, same, "B").policy == IdentityPolicy()
    assert _settings(tmp_path, f"{same}A->C.enabled = true", "C").policy == IdentityPolicy(source_alias="A")


def test_a_cluster_without_a_flow_is_reached_by_its_own_settings(tmp_path: Path) -> None:
    settings = _settings(tmp_path, "replication.policy.separator = _\nA.security.protocol = SSL", "A")
    assert (settings.policy, settings.admin.security.protocol) == (DefaultPolicy(separator="_"), "SSL")


def test_an_unknown_alias_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r'no cluster "D".*A, B, C'):
        _settings(tmp_path, "", "D")


# -- checkpoints

X0 = TopicPartition("A.x", 0)


def _checkpoint(group: str = "g", topic: str = "A.x", partition: int = 0, downstream: int = 5) -> tuple[bytes, bytes]:
    checkpoint = Checkpoint(
        group=group, topic=topic, partition=partition, upstream=9, downstream=downstream, metadata="md"
    )
    return checkpoint.encode()


def test_the_last_checkpoint_of_a_partition_counts_even_if_it_is_lower() -> None:
    found = FoundCheckpoints(lambda group: group != "other")
    for downstream in (7, 5):
        found.take(*_checkpoint(downstream=downstream))
    found.take(*_checkpoint("h", partition=1))
    found.take(*_checkpoint("other"))
    assert found.groups == {"g": {X0: Translated(5, "md", 9)}, "h": {TopicPartition("A.x", 1): Translated(5, "md", 9)}}
    assert found.skipped == 0


def test_what_is_no_checkpoint_is_counted_and_changes_nothing() -> None:
    found = FoundCheckpoints(lambda group: True)
    key, value = _checkpoint()
    found.take(key, value)
    for record in ((b"garbage", b"x"), (key, value[:5]), (key[:4], value), (None, value), (b"", b""), (None, None)):
        found.take(*record)
    found.take(*_checkpoint(downstream=-1))
    assert (found.groups, found.skipped) == ({"g": {X0: Translated(5, "md", 9)}}, 7)


def test_a_deleted_checkpoint_is_gone() -> None:
    found = FoundCheckpoints(lambda group: True)
    found.take(*_checkpoint())
    found.take(_checkpoint()[0], None)
    found.take(_checkpoint("never")[0], None)
    assert (found.groups, found.skipped) == ({}, 2)


@given(st.lists(st.tuples(st.none() | st.binary(max_size=30), st.none() | st.binary(max_size=30))))
def test_garbage_is_counted_and_never_an_error(records: list[tuple[bytes | None, bytes | None]]) -> None:
    found = FoundCheckpoints(lambda group: True)
    for record in records:
        found.take(*record)
    assert found.skipped <= len(records)


# -- where a consumer goes on


@pytest.mark.parametrize(
    ("mirrored", "local", "seeks_to", "text"),
    [
        (7, 5, 7, "A.x-0: seeking to mirrored offset 7, local offset is 5"),
        (5, 7, None, "A.x-0: keeping local offset 7, mirrored offset is 5"),
        (5, 5, None, "A.x-0: keeping local offset 5, mirrored offset is 5"),
        (7, None, 7, "A.x-0: no local offset, seeking to mirrored offset 7"),
        (0, None, 0, "A.x-0: no local offset, seeking to mirrored offset 0"),
        (None, 5, None, "A.x-0: no mirrored offset exists, left as it is"),
        (None, None, None, "A.x-0: no mirrored offset exists, left as it is"),
    ],
)
def test_a_consumer_goes_on_where_its_group_was_further(
    mirrored: int | None, local: int | None, seeks_to: int | None, text: str
) -> None:
    decision = Decision(partition=X0, mirrored=mirrored, local=local)
    assert (decision.seeks_to, str(decision)) == (seeks_to, text)


def test_the_highest_offset_of_all_upstream_clusters_counts() -> None:
    other = TopicPartition("A.x", 1)
    mirrored = [{X0: Translated(5, "", 9)}, {X0: Translated(8, "", 9), other: Translated(1, "", 9)}, {}]
    decisions = decide([X0, other, TopicPartition("y", 0)], mirrored, {X0: 6})
    assert {where: (d.mirrored, d.local) for where, d in decisions.items()} == {
        X0: (8, 6),
        other: (1, None),
        TopicPartition("y", 0): (None, None),
    }


# -- the client


def test_a_client_needs_neither_spark_nor_a_consumer_library() -> None:
    code = "import sys, heliograph.client; print(sorted({'pyspark', 'confluent_kafka', 'pyarrow'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60)
    assert found.stdout.strip() == "[]"


def test_a_cluster_that_does_not_answer_is_an_error_of_ours() -> None:
    client = MirrorClient({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(Unreachable):
        client.upstream_clusters()
    with pytest.raises(Unreachable):
        client.translate_offsets("A", "g", timeout_s=5)


def test_what_was_read_in_time_is_the_answer_and_counted(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def read_slowly(cluster: Cluster, topic: str, found: FoundCheckpoints) -> None:
        found.is_begun = True
        found.take(*_checkpoint())
        await asyncio.sleep(60)

    monkeypatch.setattr(mirror_client, "read_checkpoints", read_slowly)
    client = MirrorClient({"bootstrap.servers": "127.0.0.1:1"})
    assert client.translate_offsets("A", "g", timeout_s=0.01) == {X0: Translated(5, "md", 9)}
    assert client.incomplete == {"A.checkpoints.internal": 1}
    assert "not read to its end within 0.01 s" in caplog.text


def test_a_cluster_that_is_too_slow_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(cluster: Cluster, topic: str, found: FoundCheckpoints) -> None:
        await asyncio.sleep(60)

    monkeypatch.setattr(mirror_client, "read_checkpoints", never)
    with pytest.raises(Unreachable, match=r"within 0\.01 s"):
        MirrorClient({"bootstrap.servers": "127.0.0.1:1"}).translate_offsets("A", "g", timeout_s=0.01)
