"""Access rules of a secured cluster, and what its users can do by them, as confluent-kafka sees it."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import Any, NamedTuple

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
)

from heliograph.lab import LabCluster
from heliograph.lab.secured import unsigned_token
from tests.cluster.mirror import admin


class Rule(NamedTuple):
    """Words are those of Kafka's protocol."""

    user: str
    operation: str
    name: str
    pattern: str = "LITERAL"
    kind: str = "TOPIC"
    permission: str = "ALLOW"
    host: str = "*"

    def given(self) -> tuple[Any, ...]:
        return (
            ResourceType[self.kind],
            self.name,
            ResourcePatternType[self.pattern],
            f"User:{self.user}",
            self.host,
            AclOperation[self.operation],
            AclPermissionType[self.permission],
        )


def rules_of(cluster: LabCluster, users: Iterable[str]) -> set[Rule]:
    """All rules about these users."""
    nothing: Any = None  # allowed here, and not told to type checkers
    everything = AclBindingFilter(
        ResourceType.ANY, nothing, ResourcePatternType.ANY, nothing, nothing, AclOperation.ANY, AclPermissionType.ANY
    )
    wanted = {f"User:{user}": user for user in users}
    return {
        Rule(
            wanted[acl.principal],
            acl.operation.name,
            acl.name,
            acl.resource_pattern_type.name,
            acl.restype.name,
            acl.permission_type.name,
            acl.host,
        )
        for acl in admin(cluster).describe_acls(everything).result(30)
        if acl.principal in wanted
    }


def add_rules(cluster: LabCluster, *rules: Rule) -> None:
    for future in admin(cluster).create_acls([AclBinding(*rule.given()) for rule in rules]).values():
        future.result(30)


def remove_rules(cluster: LabCluster, *rules: Rule) -> None:
    for future in admin(cluster).delete_acls([AclBindingFilter(*rule.given()) for rule in rules]).values():
        assert len(future.result(30)) == 1


def access_of(cluster: LabCluster, user: str) -> dict[str, Any]:
    """Keys of librdkafka for a user who comes with a token."""
    assert cluster.secured is not None

    def token(_: str) -> tuple[str, float, str, dict[str, str]]:
        return unsigned_token(user), time.time() + 300, user, {}

    return {
        "bootstrap.servers": cluster.secured.bootstrap("SASL_PLAINTEXT"),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": token,
    }


def can_read(cluster: LabCluster, user: str, topic: str) -> bool:
    """Whether a user can read a topic whose first partition has records."""
    reader = Consumer({**access_of(cluster, user), "group.id": "unused", "enable.auto.commit": False, "log_level": 0})
    try:
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            message = reader.poll(0.5)
            error = message.error() if message is not None else None
            if message is not None and error is None:
                return True
            # librdkafka looks for the coordinator of its group too, which this user need not be allowed.
            # Of a topic that may not even be described it tells only those who ask.
            refusal = error or reader.list_topics(topic, timeout=10).topics[topic].error
            if refusal is not None and refusal.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                return False
            assert refusal is None or refusal.code() == KafkaError.GROUP_AUTHORIZATION_FAILED, refusal
    finally:
        reader.close()
    raise AssertionError(f"neither a record of {topic} nor a refusal")


def can_write(cluster: LabCluster, user: str, topic: str) -> bool:
    errors: list[KafkaError | None] = []
    sender = Producer({**access_of(cluster, user), "message.timeout.ms": 20_000, "log_level": 0})
    sender.produce(topic, b"written by an application", on_delivery=lambda error, _: errors.append(error))
    assert sender.flush(30) == 0
    [error] = errors
    assert error is None or error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED, error
    return error is None
