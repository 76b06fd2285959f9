"""The pre-flight's rules on topics: tables of cases, no cluster."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from uuid import UUID

import pytest

from heliograph.config.load import parse_settings
from heliograph.config.settings import Settings
from heliograph.kafka.catalogue import Catalogue, PartitionMeta, TopicMeta
from heliograph.kafka.types import BrokerAddress
from heliograph.preflight import topics
from heliograph.preflight.applications import check_rights, mirrored_topics, questions
from heliograph.preflight.limits import Limits, compare_limits, limits_of_new_topic, parse_limits
from heliograph.preflight.steps import Step, Verdict, count_verdicts
from tests.unit.helpers.samples import BASE

PASS, WARN, FAIL = Verdict.PASS, Verdict.WARN, Verdict.FAIL
IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
SINGLE = "".join(f"{kind}.storage.replication.factor = 1\n" for kind in ("offset", "config", "status"))
SINGLE += "".join(f"{kind}.topic.replication.factor = 1\n" for kind in ("offset-syncs", "checkpoints", "heartbeats"))
MARKS = "provenance.headers = true\n"
NO_SYNC = "sync.topic.configs.enabled = false\nsync.topic.acls.enabled = false\n"
DAY_MS = 86_400_000


def settings_of(more: str = "", base: str = BASE) -> Settings:
    return parse_settings(base + "replication.factor = 1\n" + SINGLE + more)


def catalogue(names: Mapping[str, int] | Iterable[str] = (), *, brokers: int = 1, leader: int = 1) -> Catalogue:
    counts = names if isinstance(names, Mapping) else dict.fromkeys(names, 1)
    partition = PartitionMeta(leader, 0, (leader,), (leader,))
    return Catalogue(
        cluster_id="id",
        brokers={node: BrokerAddress("h", node) for node in range(1, brokers + 1)},
        topics={name: TopicMeta(name, UUID(int=1), (partition,) * count) for name, count in counts.items()},
    )


def only(steps: list[Step]) -> Step:
    [step] = steps
    return step


def test_one_id_under_two_aliases_fails() -> None:
    good, bad = topics.check_ids({"A": "x", "B": "x"})
    assert (good.verdict, bad.verdict, bad.cluster) == (PASS, FAIL, "B")
    assert bad.what == 'is the same cluster as "A" (x)'
    assert {step.verdict for step in topics.check_ids({"A": "x", "B": "y"})} == {PASS}
    assert {step.verdict for step in topics.check_ids({"A": "", "B": ""})} == {PASS}


def test_brokers_that_are_down_are_named() -> None:
    assert only(topics.check_replicas("A", catalogue({"t": 2}))).verdict is PASS
    down, leaderless = topics.check_replicas("A", catalogue({"t": 2}, leader=7))
    assert (down.verdict, leaderless.verdict) == (WARN, FAIL)
    assert "broker 7 is down; 2 partitions" in down.what
    assert "t-0, t-1" in leaderless.what


@pytest.mark.parametrize(
    ("more", "brokers", "verdict", "text"),
    [
        ("", 1, PASS, "at most 1, 1 on the target"),
        ("A->B.replication.factor = 3\n", 1, FAIL, '"A.t" needs 3'),
        ("A->B.replication.factor = 3\n", 3, PASS, "at most 3, 3 on the target"),
        ("offset.storage.replication.factor = 2\n", 1, FAIL, "needs 2"),
    ],
)
def test_replication_factors_against_brokers(more: str, brokers: int, verdict: Verdict, text: str) -> None:
    [flow] = settings_of(more).enabled_flows
    step = only(topics.check_factors(flow, catalogue(["t"]), catalogue(brokers=brokers)))
    assert step.verdict is verdict
    assert text in step.what
    assert bool(step.remedy) == (verdict is FAIL)


@pytest.mark.parametrize("kind", ["offset-syncs", "checkpoints", "heartbeats"])
def test_topics_beside_the_copies_that_cannot_be_made_are_a_warning(kind: str) -> None:
    [flow] = settings_of(f"{kind}.topic.replication.factor = 2\n").enabled_flows
    good, bad = topics.check_factors(flow, catalogue(["t"]), catalogue())
    assert (good.verdict, bad.verdict) == (PASS, WARN)
    assert f'cannot be created: it needs 2 brokers, and "{"A" if kind == "offset-syncs" else "B"}" has 1' in bad.what
    assert f"lower {kind}.topic.replication.factor" in bad.remedy
    assert len(topics.check_factors(flow, catalogue(["t"], brokers=2), catalogue(brokers=2))) == 1


@pytest.mark.parametrize(
    ("here", "there", "verdict", "text"),
    [(2, 2, PASS, "equal numbers"), (4, 2, WARN, "it gets the missing ones at the start"), (2, 4, WARN, "stay empty")],
)
def test_partition_counts(here: int, there: int, verdict: Verdict, text: str) -> None:
    [flow] = settings_of().enabled_flows
    step = only(topics.check_partitions(flow, catalogue({"t": here, "new": 3}), catalogue({"A.t": there})))
    assert step.verdict is verdict
    assert text in step.what
    assert step.subject == ("" if verdict is PASS else "A.t")


def test_equal_faults_of_many_topics_are_one_step() -> None:
    [flow] = settings_of().enabled_flows
    names = [f"t{n}" for n in range(9)]
    step = only(topics.check_partitions(flow, catalogue(dict.fromkeys(names, 2)), catalogue(f"A.{n}" for n in names)))
    assert step.subject == "A.t0, A.t1, A.t2 and 6 more"


@pytest.mark.parametrize(
    ("source", "target", "expected"),
    [
        ({}, {}, []),
        ({"max.message.bytes": "10"}, {"max.message.bytes": "10"}, []),
        ({"max.message.bytes": "10"}, {"max.message.bytes": "9"}, ["accepts 9 bytes, the source 10"]),
        ({}, {"message.timestamp.type": "LogAppendTime"}, ["replaces timestamps"]),
        ({}, {"message.timestamp.type": "LogAppendTime", "message.timestamp.before.max.ms": "5"}, ["replaces"]),
        ({}, {"message.timestamp.before.max.ms": "5"}, ["older than 5 ms"]),
        ({}, {"message.timestamp.difference.max.ms": "5"}, ["older than 5 ms", "further in the future than 5"]),
        ({}, {"message.timestamp.after.max.ms": "3600000"}, ["further in the future than 3600000 ms"]),
        ({"message.timestamp.after.max.ms": "3600000"}, {"message.timestamp.after.max.ms": "3600000"}, []),
        ({"message.timestamp.type": "LogAppendTime"}, {"message.timestamp.after.max.ms": "1"}, []),
        (
            {"message.timestamp.type": "LogAppendTime", "retention.ms": str(DAY_MS)},
            {"message.timestamp.before.max.ms": str(DAY_MS)},
            [],
        ),
        (
            {"message.timestamp.type": "LogAppendTime", "retention.ms": str(DAY_MS), "cleanup.policy": "compact"},
            {"message.timestamp.before.max.ms": str(DAY_MS)},
            ["older"],
        ),
        (
            {"message.timestamp.before.max.ms": "10", "retention.ms": "5"},
            {"message.timestamp.before.max.ms": "14"},
            ["older"],
        ),
        (
            {"message.timestamp.before.max.ms": "10", "retention.ms": "-1"},
            {"message.timestamp.before.max.ms": "14"},
            ["older"],
        ),
        ({}, {"message.timestamp.before.max.ms": str(2**63 - 1)}, []),
    ],
)
def test_limits(source: dict[str, str], target: dict[str, str], expected: list[str]) -> None:
    notes = list(compare_limits(parse_limits(source), parse_limits(target)))
    assert len(notes) == len(expected)
    for note, text in zip(notes, expected, strict=True):
        assert note.verdict is WARN
        assert text in note.what
        assert note.remedy


def test_new_topics_have_the_brokers_limits() -> None:
    broker = {"message.max.bytes": "7", "log.message.timestamp.after.max.ms": "5", "log.retention.ms": "3"}
    assert limits_of_new_topic(broker, {}) == Limits(max_message_bytes=7, after_ms=5)


def test_settings_that_are_not_shown_are_said() -> None:
    [flow] = settings_of().enabled_flows
    step = only(topics.check_limits(flow, {"t": (Limits(), Limits())}, ["u"]))
    assert (step.verdict, step.subject) == (WARN, "u")
    assert only(topics.check_limits(flow, {"t": (Limits(), Limits())}, [])).verdict is PASS


@pytest.mark.parametrize(
    ("records", "ours", "verdict"),
    [({"A.t": 5}, [], WARN), ({"A.t": 5}, ["A.t"], PASS), ({"A.t": 0}, [], PASS), ({}, [], PASS)],
)
def test_a_topic_of_others_is_named(records: dict[str, int], ours: list[str], verdict: Verdict) -> None:
    [flow] = settings_of().enabled_flows
    assert only(topics.check_foreign(flow, records, ours)).verdict is verdict


def test_topics_that_others_write_too_are_as_they_should_be_where_records_are_marked() -> None:
    [flow] = settings_of(MARKS).enabled_flows
    assert only(topics.check_foreign(flow, {"A.t": 5}, [])).verdict is PASS


THREE = """\
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
"""


def test_two_sources_of_one_target_topic_fail() -> None:
    settings = settings_of("A->C.enabled = true\nB->C.enabled = true\n" + IDENTITY, THREE)
    catalogues = {"A": catalogue(["t", "u"]), "B": catalogue(["t", "v"]), "C": catalogue()}
    step = only(topics.check_collisions(settings.enabled_flows, catalogues))
    assert (step.verdict, step.cluster, step.subject) == (FAIL, "C", "t")
    assert "A:t and B:t" in step.what
    assert only(topics.check_collisions(settings.enabled_flows, {"A": catalogues["A"]})).verdict is PASS
    one = settings_of("A->C.enabled = true\nB->C.enabled = true\nA->C." + MARKS + IDENTITY, THREE)
    assert only(topics.check_collisions(one.enabled_flows, catalogues)).verdict is FAIL
    both = settings_of("A->C.enabled = true\nB->C.enabled = true\n" + MARKS + NO_SYNC + IDENTITY, THREE)
    step = only(topics.check_collisions(both.enabled_flows, catalogues))
    assert (step.verdict, step.what) == (
        PASS,
        "3 target topics, each with one source, but 1 with several, whose records have provenance headers",
    )


def test_two_topics_of_one_flow_with_one_name_fail_with_marks_too() -> None:
    rule = "A->B.topic.rename.1.pattern = (?:old|new)-(.*)\nA->B.topic.rename.1.replacement = $1\n"
    step = only(topics.check_collisions(settings_of(MARKS + rule).enabled_flows, {"A": catalogue(["old-a", "new-a"])}))
    assert (step.verdict, step.subject) == (FAIL, "a")


@pytest.mark.parametrize(
    ("flows", "policy", "verdict"),
    [
        (("A->B", "B->A"), IDENTITY, FAIL),
        (("A->B", "B->A"), "", PASS),
        (("A->B", "B->C", "C->A"), IDENTITY, FAIL),
        (("A->B", "B->C", "C->A"), "", PASS),
        (("A->B", "A->C"), IDENTITY, PASS),
        (("A->B", "B->C"), IDENTITY, PASS),
        (("A->B", "B->A"), IDENTITY + MARKS, PASS),
        (("A->B", "B->C", "C->A"), IDENTITY + MARKS, PASS),
        (("A->B", "B->A"), IDENTITY + MARKS + "A->B.provenance.headers = false\n", FAIL),
        (("A->B", "B->C", "C->A"), IDENTITY + MARKS + "C->A.provenance.headers = false\n", FAIL),
    ],
)
def test_cycles(flows: tuple[str, ...], policy: str, verdict: Verdict) -> None:
    """One flow is paused: a cycle of running ones is an error of the file already."""
    keys = "".join(f"{flow}.enabled = true\n{flow}.topics = t\n" for flow in flows) + f"{flows[0]}.state = paused\n"
    settings = settings_of(keys + policy, THREE)
    catalogues = {alias: catalogue(["t", "other"]) for alias in "ABC"}
    step = only(topics.check_cycles(settings.enabled_flows, catalogues))
    assert step.verdict is verdict
    if verdict is FAIL:
        assert step.subject == "t"
        assert "A:t -> B:t -> " in step.what


def test_mirrored_topics_are_known_by_their_names() -> None:
    [flow] = settings_of("A->B.topics = t, u\n").enabled_flows
    assert mirrored_topics([flow], ["A.t", "A.x", "t", "C.t", "A.u", "A.checkpoints.internal"]) == ["A.t", "A.u"]
    [flow] = settings_of("A->B.topics = t, u\n" + IDENTITY).enabled_flows
    assert mirrored_topics([flow], ["A.t", "t", "x"]) == ["t"]


@pytest.mark.parametrize(
    ("may", "expected"),
    [
        ({}, [WARN]),
        ({"t": "RW"}, [PASS, PASS]),
        ({"t": "R"}, [PASS, WARN]),
        ({"t": "R", "u": ""}, [WARN, WARN]),
        ({"t": "W", "u": ""}, [FAIL, WARN]),
    ],
)
def test_what_an_application_may_do(may: dict[str, str], expected: list[Verdict]) -> None:
    there = {question: question[2][0] in may[question[1]] for question in questions(list(may))}
    assert [step.verdict for step in check_rights("B", list(may), there)] == expected


def test_every_verdict_is_counted() -> None:
    assert count_verdicts([]) == {PASS: 0, WARN: 0, FAIL: 0}
