"""The rights that a configuration needs: as few as possible, and named as administrators grant them."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.load import parse_settings
from heliograph.config.settings import Settings
from heliograph.kafka.admin.acls import Operation, Pattern, ResourceType
from heliograph.ledger.cluster_access import Role
from heliograph.rights.acl_text import commands, kafka_user
from heliograph.rights.required import Resource, Right, covering, flow_rights, least, rights_of

BASE = "clusters = na, eu\nna.bootstrap.servers = a:1\neu.bootstrap.servers = b:2\nna->eu.enabled = true\n"
PASSIVE = """
na->eu.topics = LH\\\\..*
na->eu.groups = consumer-.*
replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy
offset-syncs.topic.location = target
emit.heartbeats.enabled = false
heartbeats.replication.enabled = false
sync.topic.acls.enabled = false
sync.group.offsets.enabled = true
eu.group.id = mm2
eu.offset.storage.topic = __mm2_offsets
eu.config.storage.topic = __mm2_configs
eu.status.storage.topic = __mm2_status
"""


def settings_of(keys: str) -> Settings:
    return parse_settings(BASE + keys)


def rights(keys: str, cluster: str) -> set[str]:
    settings = settings_of(keys)
    users: dict[tuple[str, str], str] = {(flow.name, role): "User:mirror" for flow in settings.flows for role in Role}
    return {str(right) for right in rights_of(settings, users)[cluster, "User:mirror"]}


def test_the_rights_of_an_active_passive_pair_are_these_and_no_more() -> None:
    assert rights(PASSIVE, "na") == {
        'Read on all topics that begin with "LH."',
        'DescribeConfigs on all topics that begin with "LH."',
        'Describe on all groups that begin with "consumer-"',
    }
    assert rights(PASSIVE, "eu") == {
        *(
            f'{operation} on all topics that begin with "LH."'
            for operation in ("Create", "Alter", "AlterConfigs", "Read", "Write")
        ),
        *(
            f'{operation} on topic "{name}"'
            for name in (
                "__mm2_offsets",
                "mm2-ledger.na.internal",
                "mm2-offset-syncs.na.internal",
                "na.checkpoints.internal",
            )
            for operation in ("Create", "Read", "Write")
        ),
        *(
            f'{operation} on topic "{name}"'
            for name in ("__mm2_configs", "__mm2_status")
            for operation in ("Create", "Describe")
        ),
        'Describe on group "mm2"',
        'Read on all groups that begin with "consumer-"',
    }


def test_mm2s_defaults_ask_for_offset_syncs_and_heartbeats_on_the_source() -> None:
    found = rights("na->eu.topics = orders", "na")
    assert {'Write on topic "mm2-offset-syncs.eu.internal"', 'Write on topic "heartbeats"'} <= found
    assert "Describe on the cluster" in found  # sync.topic.acls.enabled
    assert "Alter on the cluster" in rights("na->eu.topics = orders", "eu")


def test_access_rules_of_groups_alone_ask_for_the_same_rights() -> None:
    keys = "na->eu.topics = orders\nsync.topic.acls.enabled = false\n"
    assert "Alter on the cluster" not in rights(keys, "eu")
    keys += "sync.group.acls.enabled = true\n"
    assert "Describe on the cluster" in rights(keys, "na")
    assert "Alter on the cluster" in rights(keys, "eu")


def test_prefix_naming_moves_the_rights_on_the_target() -> None:
    assert 'Write on topic "na.orders"' in rights("na->eu.topics = orders", "eu")
    assert 'Write on all topics that begin with "na."' in rights("na->eu.topics = .*", "eu")


def test_each_user_gets_the_rights_of_its_roles() -> None:
    settings = settings_of(PASSIVE)
    users: dict[tuple[str, str], str] = {("na->eu", role): f"User:{role.kind}" for role in Role}
    found = rights_of(settings, users)
    assert {str(right) for right in found["na", "User:consumer"]} == {'Read on all topics that begin with "LH."'}
    assert 'Describe on all topics that begin with "LH."' in {str(right) for right in found["na", "User:admin"]}
    assert not any(right.operation is Operation.CREATE for right in found["eu", "User:producer"])


@pytest.mark.parametrize(
    ("pattern", "name", "kind"),
    [
        ("orders", "orders", Pattern.LITERAL),
        ("my.topic", "my.topic", Pattern.LITERAL),
        ("my\\.topic", "my.topic", Pattern.LITERAL),
        ("LH.*", "LH", Pattern.PREFIXED),
        ("LH\\..*", "LH.", Pattern.PREFIXED),
        ("LH\\.[A-Z]+", "LH.", Pattern.PREFIXED),
        ("ab?c", "a", Pattern.PREFIXED),
        ("ab+", "ab", Pattern.PREFIXED),
        ("ab{0,2}", "a", Pattern.PREFIXED),
        (".*", "*", Pattern.LITERAL),
        ("(a|b).*", "*", Pattern.LITERAL),
        ("x(a|b)", "*", Pattern.LITERAL),
        ("(?i)abc", "*", Pattern.LITERAL),
        ("[a-c]x", "*", Pattern.LITERAL),
    ],
)
def test_a_pattern_is_covered_by_a_name_or_a_prefix(pattern: str, name: str, kind: Pattern) -> None:
    assert covering(ResourceType.TOPIC, pattern) == Resource(ResourceType.TOPIC, name, kind)


resources = st.builds(
    Resource, st.just(ResourceType.TOPIC), st.sampled_from(["*", "a", "ab", "abc", "b"]), st.sampled_from(Pattern)
).filter(lambda resource: resource != Resource(ResourceType.TOPIC, "*", Pattern.PREFIXED))
some_rights = st.lists(st.builds(Right, st.sampled_from(Operation), resources), max_size=8)


@given(some_rights)
def test_the_least_list_gives_the_same_and_none_of_it_is_superfluous(given_rights: list[Right]) -> None:
    kept = least(given_rights)
    for right in given_rights:
        assert any(other.includes(right) for other in kept)
    for right in kept:
        assert not any(other.includes(right) for other in kept if other != right)


def test_every_right_says_what_is_lost_without_it() -> None:
    settings = settings_of("")
    assert all(right.without for _, right in flow_rights(settings.flows[0], settings))


def test_commands_and_resources_for_the_administrator() -> None:
    settings = settings_of(PASSIVE)
    users: dict[tuple[str, str], str] = {("na->eu", role): "User:CN=mirror,O=x" for role in Role}
    needed = rights_of(settings, users)["eu", "User:CN=mirror,O=x"]
    found = commands(needed, "User:CN=mirror,O=x", ["b:2"])
    assert (
        "kafka-acls.sh --bootstrap-server b:2 --add --allow-principal User:CN=mirror,O=x --operation Alter "
        "--operation AlterConfigs --operation Create --operation Read --operation Write --topic LH. "
        "--resource-pattern-type prefixed" in found
    )
    document = yaml.safe_load(kafka_user(needed, "User:CN=mirror,O=x", "eu", "tls"))
    assert document["metadata"] == {"name": "mirror", "labels": {"strimzi.io/cluster": "eu"}}
    assert {"type": "topic", "name": "LH.", "patternType": "prefix"} in [
        acl["resource"] for acl in document["spec"]["authorization"]["acls"]
    ]
