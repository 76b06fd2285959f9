"""Requests that name a leader epoch, on real brokers: what the belief in leaders rests on."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka.admin import NewTopic
from kafka import KafkaAdminClient, TopicPartition

from heliograph.kafka.cluster import Cluster as Client
from heliograph.kafka.security.client_security import PLAINTEXT
from heliograph.kafka.types import TopicPartition as Place
from heliograph.lab import LabCluster
from tests.cluster.limited import ask
from tests.cluster.mirror import View, admin, leader_of, unique, wait_until
from tests.leader_epochs import UNNAMED, Answered, ask_under, expected


def create_with_other_leader(cluster: LabCluster) -> Place:
    """A partition whose leader is not its first one."""
    topic = unique("epochs")
    first, *others = (broker.node_id for broker in cluster.brokers)
    admin(cluster).create_topics([NewTopic(topic, 1, replica_assignment=[[first]])])[topic].result(30)
    wait_until(lambda: View(cluster, topic).counts() == [0], what=f"the leader of {topic}")
    if others:
        client: Any = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        try:
            client.alter_partition_reassignments({TopicPartition(topic, 0): [others[0]]})
            wait_until(lambda: leader_of(cluster, topic) == others[0], 60, what="the other leader")
        finally:
            client.close()
    return Place(topic, 0)


@pytest.mark.parametrize("alias", ["trio", "old"], ids=["4.3.1", "2.4.1"])
def test_a_leader_answers_under_its_own_epoch_only(alias: str, request: pytest.FixtureRequest) -> None:
    """On the one broker of 2.4.1 the first epoch is the only one."""
    cluster: LabCluster = request.getfixturevalue(alias)
    where = create_with_other_leader(cluster)
    least = 0 if alias == "old" else 1

    async def ask_all(client: Client) -> tuple[int, dict[int, Answered]]:
        current = -1
        while current < least:  # another broker may hear of the new leader later
            await client.refresh([where.topic])
            current = client.catalogue.leader_epoch_of(*where)
        named = {UNNAMED, max(UNNAMED, current - 1), current, current + 1}
        return current, {epoch: await ask_under(client, where, epoch) for epoch in sorted(named)}

    current, answers = ask(cluster.bootstrap, PLAINTEXT, ask_all)
    assert current == 0 if alias == "old" else current > 0
    assert answers == {named: expected(named, current) for named in answers}
