"""Access rules: our words stand for Kafka's numbers."""

from __future__ import annotations

import pytest
from kafka.protocol.admin import ACLOperation, ACLResourcePatternType, ACLResourceType

from heliograph.kafka.admin import acls
from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType


@pytest.mark.parametrize(
    ("words", "theirs"),
    [
        (acls._OPERATIONS, ACLOperation),
        (acls._RESOURCE_TYPES, ACLResourceType),
        (acls._PATTERNS, ACLResourcePatternType),
    ],
)
def test_numbers_are_those_of_the_library(words: dict[int, object], theirs: type) -> None:
    known = {int(item): item.name for item in theirs if item.name not in ("UNKNOWN", "ANY", "MATCH")}  # type: ignore[attr-defined]
    assert {number: words[number].name for number in known} == known  # type: ignore[attr-defined]


def test_words_are_those_of_kafkas_tools() -> None:
    assert [Operation.READ, Operation.DESCRIBE_CONFIGS, Operation.ALL] == ["Read", "DescribeConfigs", "All"]
    assert list(ResourceType)[:4] == ["Topic", "Group", "Cluster", "TransactionalId"]
    assert list(Pattern) == ["Literal", "Prefixed"]


def test_a_rule_reads_as_a_sentence() -> None:
    rule = Acl(principal="User:app", operation=Operation.READ, resource_type=ResourceType.TOPIC, name="x", allow=False)
    assert str(rule) == 'deny User:app from * Read on Topic "x" (Literal)'
