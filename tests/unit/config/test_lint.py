"""Each rule of `heliograph check`, with its severity and the place it points at."""

from __future__ import annotations

import pytest

from heliograph.config import Finding, inspect_content
from tests.unit.helpers.samples import BASE

IDENTITY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
RESOURCE = """\
apiVersion: kafka.strimzi.io/v1beta2
kind: KafkaMirrorMaker2
metadata: {name: m}
spec:
  connectCluster: B
  clusters:
  - {alias: A, bootstrapServers: "a:9092"}
  - {alias: B, bootstrapServers: "b:9092"}
  mirrors:
  - sourceCluster: A
    targetCluster: B
    sourceConnector:
      config:
        replication.factor: 2
"""


def findings(text: str, file: str = "f.properties") -> list[Finding]:
    return list(inspect_content(text.encode(), file).findings)


def said(rule: str, text: str, file: str = "f.properties") -> list[str]:
    return [f"{finding.severity} {finding}" for finding in findings(text, file) if finding.rule == rule]


PROPERTY_RULES = [
    # errors
    ("misspelt-key", "A->B.topcs=x", 'error f.properties:5:1: "A->B.topcs" is not a known key; did you mean "topics"?'),
    (
        "misspelt-key",
        "  taks.max=1",
        'error f.properties:5:3: "taks.max" is not a known key; did you mean "tasks.max"?',
    ),
    ("bad-value", "tasks.max=two", 'error f.properties:5:1: "tasks.max" must be a whole number, not "two"'),
    ("bad-value", "tasks.max=0", 'error f.properties:5:1: "tasks.max" must be at least 1, not 0'),
    ("bad-value", "A->B.enabled=1", 'error f.properties:5:1: "A->B.enabled" must be true or false, not "1"'),
    (
        "unknown-cluster",
        "A->C.topics=x",
        'error f.properties:5:1: "A->C.topics" names the unknown cluster "C"; "clusters" has A, B',
    ),
    (
        "no-bootstrap-servers",
        "clusters=A,B,C\nA->C.enabled=true",
        'error f.properties:5:1: cluster "C" has no bootstrap servers; write "C.bootstrap.servers = host:port"',
    ),
    (
        "same-cluster",
        "B.bootstrap.servers=A:9092",
        (
            'error f.properties:5:1: "A" and "B" are the same cluster: both have A:9092; '
            "a cluster cannot be mirrored to itself"
        ),
    ),
    (
        "separator-in-alias",
        "replication.policy.separator=A",
        (
            'error f.properties:5:1: alias "A" contains the separator "A", so the source of a remote topic cannot be '
            "told; choose another alias or set replication.policy.separator"
        ),
    ),
    (
        "bad-pattern",
        "A->B.topics=ok, *x",
        (
            'error f.properties:5:1: "A->B.topics": pattern "*x" cannot be used: * has nothing to repeat; '
            "patterns follow java.util.regex.Pattern"
        ),
    ),
    (
        "identity-cycle",
        f"B->A.enabled=true\nreplication.policy.class={IDENTITY}",
        (
            "error f.properties:4:1: flows with identity naming form a cycle: A->B->A; records would be copied for "
            "ever; set provenance.headers = true for A->B and B->A, or give them topics patterns without a name in "
            "common, or give all of them the default policy"
        ),
    ),
    (
        "nothing-to-run",
        "A->B.enabled=false\nemit.heartbeats.enabled=false",
        'error f.properties:5:1: nothing to run: no flow is enabled; write "A->B.enabled = true"',
    ),
    ("flow-to-itself", "A->A.topics=x", 'error f.properties:5:1: "A->A.topics" is a flow from a cluster to itself'),
    # warnings
    (
        "only-heartbeats",
        "A->B.enabled=false",
        ('warning f.properties:5:1: no flow is enabled: only heartbeats are written; write "A->B.enabled = true"'),
    ),
    (
        "unknown-key",
        "something.else=1",
        'warning f.properties:5:1: "something.else" is not a known key; docs/configuration.md lists all keys',
    ),
    (
        "long-interval",
        "refresh.topics.interval.seconds=600000",
        (
            'warning f.properties:5:1: "refresh.topics.interval.seconds" is 6.9 days: topics or groups '
            "created in between wait that long; the unit is seconds; if milliseconds are meant, write 600"
        ),
    ),
    (
        "long-interval",
        "A->B.refresh.groups.interval.seconds=86401",
        (
            'warning f.properties:5:1: "A->B.refresh.groups.interval.seconds" is 1.0 days: '
            "topics or groups created in between wait that long; the unit is seconds"
        ),
    ),
    (
        "no-checkpoints",
        f"emit.checkpoints.enabled=false\nreplication.policy.class={IDENTITY}",
        (
            "warning f.properties:4:1: A->B syncs no consumer group, but its topics keep their names, as if for a "
            "failover; add a checkpointConnector, or set emit.checkpoints.enabled = true"
        ),
    ),
    (
        "sync-without-checkpoints",
        "emit.checkpoints.enabled=false\nsync.group.offsets.enabled=true",
        (
            'warning f.properties:6:1: "sync.group.offsets.enabled" has no effect: A->B syncs no consumer group; '
            "set emit.checkpoints.enabled = true"
        ),
    ),
    (
        "acls-not-copied",
        "sync.topic.acls.enabled=false\nwrite.on.failover=true",
        (
            'warning f.properties:6:1: "write.on.failover" has no effect: A->B syncs no ACLs of topics; '
            "set sync.topic.acls.enabled = true"
        ),
    ),
    (
        "acls-not-copied",
        "A->B.sync.topic.acls.enabled=false\nA->B.sync.topic.acls.delete=true",
        (
            'warning f.properties:6:1: "A->B.sync.topic.acls.delete" has no effect: A->B syncs no ACLs of '
            "topics; set sync.topic.acls.enabled = true"
        ),
    ),
    (
        "translation-without-syncs",
        "A->B.emit.offset-syncs.enabled=false\nA->B.offset.translation=mm2",
        (
            'warning f.properties:6:1: "A->B.offset.translation" = mm2 translates no offset: A->B writes no offset-'
            "syncs; set emit.offset-syncs.enabled = true, or remove offset.translation"
        ),
    ),
    (
        "no-checkpoints",
        "B->A.enabled=true\nB->A.sync.group.offsets.enabled=true\nA->B.emit.checkpoints.enabled=false",
        (
            "warning f.properties:4:1: A->B syncs no consumer group, but other flows of the file do; "
            "add a checkpointConnector, or set emit.checkpoints.enabled = true"
        ),
    ),
    (
        "glob",
        "topics=orders*",
        (
            'warning f.properties:5:1: "topics": in "orders*" the star repeats the character before it; '
            'it does not stand for any text; write ".*" for any text'
        ),
    ),
    (
        "posix-class",
        "A->B.groups=[[:alpha:]]+",
        (
            'warning f.properties:5:1: "A->B.groups": Java reads "[[:alpha:]]" as a set of letters; '
            "write \\p{Alpha} or a similar class"
        ),
    ),
    (
        "blank-in-pattern",
        "topics.exclude=a b",
        'warning f.properties:5:1: "topics.exclude": "a b" has a space, which no name contains',
    ),
    (
        "old-name",
        "A->B.groups.blacklist=x",
        'warning f.properties:5:1: "groups.blacklist" is an old name; write "groups.exclude"',
    ),
    (
        "wrong-place",
        "producer.acks=all",
        'warning f.properties:5:1: "producer.acks" has no effect here; write <target>.producer.acks',
    ),
    (
        "given-twice",
        "A->B.enabled=true",
        'warning f.properties:5:1: "A->B.enabled" is given twice; line 5 replaces line 4',
    ),
    (
        "dropped-backslash",
        "topics=a\\.b",
        (
            'warning f.properties:5:1: "topics": Java drops the backslash before "."; '
            'write "\\\\." to keep it, or leave it out'
        ),
    ),
    (
        "marked-remap",
        "A->B.provenance.headers=true\nA->B.partition.remap=modulo",
        (
            "error f.properties:4:1: A->B: provenance.headers and partition.remap cannot be used together; give the "
            "topics the same number of partitions on both clusters, and remove partition.remap"
        ),
    ),
    # infos
    (
        "unescaped-dot",
        "topics=a.b",
        (
            'info f.properties:5:1: "topics": a dot in "a.b" matches any character; '
            "write \\. (in a property file \\\\.) for a dot"
        ),
    ),
    (
        "many-replicas",
        "A->B.replication.factor=4",
        'info f.properties:5:1: "A->B.replication.factor" = 4 is unusually high; 3 is usual',
    ),
    (
        "many-replicas",
        "offset.storage.replication.factor=5",
        'info f.properties:5:1: "offset.storage.replication.factor" = 5 is unusually high; 3 is usual',
    ),
    ("no-effect", "B.producer.acks=1", 'info f.properties:5:1: "B.producer.acks" has no effect: '),
]


@pytest.mark.parametrize(("rule", "more", "expected"), PROPERTY_RULES)
def test_rule_of_property_files(rule: str, more: str, expected: str) -> None:
    [line] = said(rule, BASE + more)
    assert line == expected or (expected.endswith(": ") and line.startswith(expected))


RESOURCE_RULES = [
    (
        "connectors-differ",
        f"    checkpointConnector: {{config: {{replication.policy.class: {IDENTITY}}}}}",
        (
            f"error f.yaml:15:36: replication.policy.class of A->B is "
            f"org.apache.kafka.connect.mirror.DefaultReplicationPolicy for the source connector and {IDENTITY} for "
            "MirrorCheckpointConnector; write the same value in all connectors of the flow"
        ),
    ),
    (
        "connectors-differ",
        "    heartbeatConnector: {config: {replication.policy.separator: _}}",
        (
            "error f.yaml:15:35: replication.policy.separator of A->B is . for the source connector and _ for "
            "MirrorHeartbeatConnector; write the same value in all connectors of the flow"
        ),
    ),
    (
        "connectors-differ",
        "    checkpointConnector: {config: {offset-syncs.topic.location: target}}",
        (
            "error f.yaml:15:36: offset-syncs.topic.location of A->B is source for the source connector and target for "
            "MirrorCheckpointConnector; write the same value in all connectors of the flow"
        ),
    ),
    (
        "misspelt-key",
        "    topicPattern: x",
        'error f.yaml:15:5: "topicPattern" is not a field of spec.mirrors[0]; did you mean "topicsPattern"?',
    ),
    (
        "long-interval",
        "        refresh.topics.interval.seconds: 600000",
        (
            'warning f.yaml:15:9: "refresh.topics.interval.seconds" is 6.9 days: topics or groups created '
            "in between wait that long; the unit is seconds; if milliseconds are meant, write 600"
        ),
    ),
    ("old-name", "    topicsBlacklistPattern: x", 'warning f.yaml:15:5: "topicsBlacklistPattern" is an old name; '),
    (
        "unescaped-dot",
        "    topicsPattern: a.b",
        (
            'info f.yaml:15:20: "topicsPattern": a dot in "a.b" matches any character; '
            "write \\. (in a property file \\\\.) for a dot"
        ),
    ),
]


@pytest.mark.parametrize(("rule", "more", "expected"), RESOURCE_RULES)
def test_rule_of_resources(rule: str, more: str, expected: str) -> None:
    [line] = said(rule, f"{RESOURCE}{more}\n", "f.yaml")
    assert line == expected or (expected.endswith("; ") and line.startswith(expected))


def test_no_connector() -> None:
    text = RESOURCE.partition("    sourceConnector")[0]
    [line] = said("no-connector", text, "f.yaml")
    assert line.startswith("error f.yaml:10:5: no connector is enabled for the flow A->B")


def test_identity_flows_without_a_cycle_and_paused_ones_pass() -> None:
    cycle = f"B->A.enabled=true\nreplication.policy.class={IDENTITY}\n"
    assert said("identity-cycle", BASE + cycle + "B->A.state=paused\n") == []
    assert said("identity-cycle", BASE + f"replication.policy.class={IDENTITY}\n") == []
    three = "clusters=A,B,C\nC.bootstrap.servers=c:1\nB->C.enabled=true\nC->A.enabled=true\n"
    assert len(said("identity-cycle", BASE + three + f"replication.policy.class={IDENTITY}\n")) == 1


@pytest.mark.parametrize(
    ("rule", "pattern"),
    [
        ("unescaped-dot", r"a\\.b, [a.b], \\Qa.b\\E, .*, -.*"),
        ("glob", r"a.*, [a*], \\*, (ab)*, \\w*, [a-z]*, \\Qa*\\E"),
        ("posix-class", r"[a:]|\\p{Alpha}"),
        ("blank-in-pattern", "a , b"),
    ],
)
def test_patterns_that_are_fine(rule: str, pattern: str) -> None:
    assert said(rule, f"{BASE}topics={pattern}\n") == []


@pytest.mark.parametrize("days", ["86400", "600"])
def test_an_interval_up_to_a_day_is_fine(days: str) -> None:
    assert said("long-interval", f"{BASE}refresh.topics.interval.seconds={days}\n") == []


def test_every_finding_of_a_broken_file_has_a_place() -> None:
    text = BASE + "\n".join(more for _, more, _ in PROPERTY_RULES) + "\n"
    found = findings(text)
    assert {finding.rule for finding in found} > {"misspelt-key", "bad-pattern", "many-replicas", "unescaped-dot"}
    assert [finding for finding in found if finding.place is None] == []
    lines = [finding.place.line for finding in found if finding.place]
    assert lines == sorted(lines)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("topics.whitelist", "topics"),
        ("A->B.topics.whitelist", "topics"),
        ("groups.whitelist", "groups"),
        ("groups.include", "groups"),
        ("blacklist", "topics.exclude"),
        ("topics.blaclist", "topics.exclude"),
    ],
)
def test_hint_never_names_the_opposite_nor_an_old_name(key: str, meant: str) -> None:
    [finding] = inspect_content(f"{BASE}{key} = orders\n".encode(), "mm2.properties").findings
    assert (finding.rule, finding.remedy) == ("misspelt-key", f'did you mean "{meant}"?')
