"""Access rules of a flow from A to B, for tests to plan and carry over."""

from __future__ import annotations

from typing import Any

from heliograph.config.load import parse_settings
from heliograph.config.settings import Flow
from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType

ALL, READ, WRITE, DESCRIBE = Operation.ALL, Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
IDENTITY = "replication.policy.class=org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
PREFIXED = "sync.topic.acls.prefixed=true\n"
DELETE = "sync.topic.acls.delete=true\n"
GROUPS = "sync.group.acls.enabled=true\n"
FAILOVER = "write.on.failover=true\n"
TOPICS = ("ord", "orders", "order-lines", "audit", "private")


def flow_of(more: str = "") -> Flow:
    text = (
        "clusters=A,B\nA.bootstrap.servers=a:1\nB.bootstrap.servers=b:2\nA->B.enabled=true\n"
        "A->B.topics=ord.*,audit\nA->B.groups=billing.*,g\n"
    )
    [flow] = parse_settings(text + more).flows
    return flow


def rule(name: str, operation: Operation = READ, user: str = "app", *, deny: bool = False, **more: Any) -> Acl:
    given = {"resource_type": TOPIC, "allow": not deny, **more}
    return Acl(principal=f"User:{user}", operation=operation, name=name, **given)


def prefixed(name: str, operation: Operation = READ, **more: Any) -> Acl:
    return rule(name, operation, pattern=Pattern.PREFIXED, **more)
