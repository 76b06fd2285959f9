"""What a flow asks of its target."""

from __future__ import annotations

import pytest

from heliograph.config import parse_settings
from heliograph.flow.required_topics import new_copy
from heliograph.kafka.admin.topics import NewTopic

CONFIG = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
replication.factor = 3
"""
IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"


@pytest.mark.parametrize(
    ("more", "topic", "remote", "configs"),
    [
        ("", "orders", "a.orders", {}),
        ("", "heartbeats", "a.heartbeats", {"cleanup.policy": "compact"}),
        ("", "c.heartbeats", "a.c.heartbeats", {"cleanup.policy": "compact"}),
        (IDENTITY, "heartbeats", "a.heartbeats", {"cleanup.policy": "compact"}),
        (IDENTITY, "orders", "orders", {}),
    ],
)
def test_a_new_copy_is_compacted_if_it_is_of_heartbeats(
    more: str, topic: str, remote: str, configs: dict[str, str]
) -> None:
    [flow] = parse_settings(CONFIG + more).flows
    made = new_copy(flow, topic, partitions=2)
    assert made == NewTopic(name=remote, partitions=2, replication_factor=3, configs=configs)
