"""Which configurations would carry records round, by patterns and names alone."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.cycles import double_ways, returning_names, unmarked_cycles
from heliograph.config.load import inspect_content
from heliograph.config.settings import Flow, Settings

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
CLUSTERS = "clusters = A, B, C, D\n" + "".join(f"{alias}.bootstrap.servers = {alias}:9092\n" for alias in "ABCD")
MARKS = "provenance.headers = true\n"


def findings(text: str, *, only: tuple[str, ...] = ()) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for finding in inspect_content((CLUSTERS + text).encode(), "f.properties", only_targets=only).findings:
        found.setdefault(finding.rule, []).append(str(finding))
    return found


def flows_of(text: str) -> tuple[Flow, ...]:
    """Of a file that may have errors."""
    marked = inspect_content((CLUSTERS + text).encode(), "f.properties")
    settings = marked.settings
    assert isinstance(settings, Settings), marked.findings
    return settings.flows


def enabled(*names: str) -> str:
    return "".join(f"{name}.enabled = true\n" for name in names)


PAIR, RING, CHAIN = ("A->B", "B->A"), ("A->B", "B->C", "C->A"), ("A->B", "B->A", "B->C", "C->B")


@pytest.mark.parametrize("names", [PAIR, RING, CHAIN], ids=["pair", "ring", "chain"])
def test_a_cycle_under_kept_names_wants_marks_on_all_its_flows(names: tuple[str, ...]) -> None:
    assert "identity-cycle" in findings(enabled(*names) + IDENTITY)
    assert findings(enabled(*names) + IDENTITY + MARKS).keys() & {"identity-cycle", "arrives-twice"} == set()
    for name in names:
        [first, *_] = findings(enabled(*names) + IDENTITY + MARKS + f"{name}.provenance.headers = false\n")[
            "identity-cycle"
        ]
        assert f"set provenance.headers = true for {name}," in first


def test_the_finding_names_file_line_way_and_remedy() -> None:
    [line] = findings(enabled(*RING) + IDENTITY)["identity-cycle"]
    assert line.startswith(
        "f.properties:6:1: flows with identity naming form a cycle: A->B->C->A; records would be copied for ever; "
        "set provenance.headers = true for A->B and B->C and C->A, or "
    )


def test_prefixes_need_no_marks() -> None:
    assert "identity-cycle" not in findings(enabled(*PAIR))
    assert "identity-cycle" not in findings(enabled(*RING))


@pytest.mark.parametrize(
    ("there", "back", "overlaps"),
    [
        (".*", ".*", True),
        ("orders", "orders", True),
        ("orders", "invoices", False),
        ("orders, invoices", "invoices", True),
        ("orders", "ord.*", True),
        ("orders", "inv.*", False),
        ("east-.*", "west-.*", False),
        ("east-.*", "east-2-.*", True),
        ("east-.*|west-1", "west-.*", True),
        ("east-.*", "eas.*", True),
        ("east-+.*", "eas", False),
        ("east-?", "east", True),
        ("east-{2}", "east--", True),
        ("a\\\\.b", "a\\\\.c", False),
        ("a.b", "a-b", True),
        ("[ew]ast-.*", "west-.*", True),
        ("(east|west)-.*", "north-.*", True),
        ("(?i)EAST", "west", False),
        ("(?i)EAST", "west.*", True),
        ("\\\\Qeast\\\\E", "west", False),
        ("\\\\Qeast\\\\E", "west.*", True),
    ],
)
def test_patterns_with_a_name_in_common(there: str, back: str, overlaps: bool) -> None:
    """Where patterns have groups, classes or flags they are taken to have one with others that are no plain names."""
    text = enabled(*PAIR) + IDENTITY + f"A->B.topics = {there}\nB->A.topics = {back}\n"
    assert ("identity-cycle" in findings(text)) is overlaps


@pytest.mark.parametrize(
    ("exclude", "overlaps"),
    [("west-.*", False), ("we.*", False), ("west-1.*", True), ("west-", True), ("east-.*", True), ("west-.*x", True)],
)
def test_what_one_way_leaves_out_is_not_in_common(exclude: str, overlaps: bool) -> None:
    text = enabled(*PAIR) + IDENTITY + f"A->B.topics.exclude = {exclude}\nB->A.topics = west-.*\n"
    assert ("identity-cycle" in findings(text)) is overlaps


def test_flows_that_another_process_runs_count_too() -> None:
    assert "identity-cycle" in findings(enabled(*PAIR) + IDENTITY, only=("B",))
    assert "identity-cycle" not in findings(enabled(*PAIR) + IDENTITY + MARKS, only=("B",))


def test_a_mesh_would_bring_records_twice() -> None:
    names = [f"{one}->{other}" for one, other in permutations("ABC", 2)]
    lines = findings(enabled(*names) + IDENTITY + MARKS)["arrives-twice"]
    assert any(
        'records of "A" would reach "C" twice with the same name: over A->C and over A->B->C' in x for x in lines
    )
    assert "arrives-twice" not in findings(enabled(*names))


def test_groups_are_carried_one_way_only() -> None:
    """Else a position that a flow wrote would come back to it as one that a group has reached."""
    text = enabled(*PAIR) + IDENTITY + MARKS
    assert "group-cycle" not in findings(text + "A->B.sync.group.offsets.enabled = true\n")
    both = text + "sync.group.offsets.enabled = true\n"
    [line] = findings(both)["group-cycle"]
    assert "the flows A->B->A would push group offsets forward" in line
    assert "group-cycle" not in findings(both + "A->B.groups = east-.*\nB->A.groups = west-.*\n")
    assert "group-cycle" not in findings(both + "A->B.groups = east\nB->A.groups = west-.*\n")
    assert "group-cycle" in findings(both + "A->B.groups = west-1\nB->A.groups = west-.*\n")
    assert "group-cycle" not in findings(both + "A->B.emit.checkpoints.enabled = false\n")
    assert "group-cycle" not in findings(enabled(*PAIR) + "sync.group.offsets.enabled = true\n")
    ring = enabled(*RING) + IDENTITY + MARKS + "sync.group.offsets.enabled = true\n"
    assert "group-cycle" in findings(ring)
    assert "group-cycle" not in findings(ring + "C->A.sync.group.offsets.enabled = false\n")


CONFIGS, ACLS = "sync.topic.configs.enabled = false\n", "sync.topic.acls.enabled = false\n"


@pytest.mark.parametrize(("rule", "off"), [("config-cycle", CONFIGS), ("acl-cycle", ACLS)])
@pytest.mark.parametrize("names", [PAIR, RING, CHAIN], ids=["pair", "ring", "chain"])
def test_settings_and_access_rules_are_copied_one_way_only(names: tuple[str, ...], rule: str, off: str) -> None:
    """Else what is changed or revoked on one cluster comes back from the other."""
    text = enabled(*names) + IDENTITY + MARKS
    assert rule in findings(text)
    assert rule in findings(text, only=("B",)), "flows of other processes count"
    assert rule not in findings(text + off)
    forth = [name for name in names if name not in ("B->A", "C->B", "C->A")]
    assert rule not in findings(text + "".join(f"{name}.{off}" for name in names if name not in forth))
    assert rule not in findings(enabled(*names) + IDENTITY), "the cycle itself is the error"
    assert rule not in findings(enabled(*names) + MARKS), "copies have names of their own"
    apart = "".join(f"{name}.topics = {name[0]}-.*\n" for name in names)
    assert rule not in findings(text + apart)


def test_the_finding_says_what_to_switch_off() -> None:
    found = findings(enabled(*PAIR) + IDENTITY + MARKS)
    [line] = found["acl-cycle"]
    assert line == (
        "f.properties:6:1: an ACL deleted on one cluster would be created again from the other: A->B->A "
        "with sync.topic.acls.enabled in every flow of the cycle; set sync.topic.acls.enabled = false for the flow "
        "into the cluster where they are changed, or give them topics patterns without a name in common"
    )
    [line] = findings(enabled(*CHAIN) + IDENTITY + MARKS)["config-cycle"]
    assert "a topic config changed on one cluster would be reset from the other: A->B->A, B->C->B with" in line


def test_access_rules_of_groups_are_copied_one_way_only_whatever_topics_are_called() -> None:
    text = enabled(*PAIR) + "sync.group.acls.enabled = true\n"
    [line] = findings(text)["acl-cycle"]
    assert "set sync.group.acls.enabled = false for the flow into" in line
    assert "acl-cycle" not in findings(text + "B->A.sync.group.acls.enabled = false\n")
    assert "acl-cycle" not in findings(text + "A->B.groups = east-.*\nB->A.groups = west-.*\n")
    rule = "A->B.group.rename.1.pattern = (.+)\nA->B.group.rename.1.replacement = eu-$1\n"
    assert "acl-cycle" not in findings(text + rule)


def test_one_flow_alone_gives_a_shared_topic_its_settings() -> None:
    """Two that mark their records may write to one topic."""
    text = enabled("A->B", "C->B") + IDENTITY
    [line] = findings(text + MARKS)["config-rivals"]
    assert 'A->B and C->B would both overwrite the configs of the same topics of "B"' in line
    assert "config-rivals" not in findings(text), "only one of them copies it"
    assert "config-rivals" not in findings(text + MARKS + f"C->B.{CONFIGS}")
    assert "config-rivals" not in findings(text + MARKS + "A->B.topics = a-.*\nC->B.topics = c-.*\n")
    assert "config-rivals" not in findings(enabled("A->B", "A->C") + IDENTITY + MARKS)


def test_names_that_grow_with_every_round_are_refused_with_marks_too() -> None:
    """One way keeps names, the other puts its prefix before them."""
    text = enabled(*PAIR) + "A->B." + IDENTITY
    for more in ("", MARKS):
        [line] = findings(text + more)["returning-topic"]
        assert 'a topic such as "x" come back over A->B->A as "B.x", and are copied on under ever longer names' in line
    assert "returning-topic" not in findings(text + "A->B.topics.exclude = B\\\\..*\n")
    assert "returning-topic" not in findings(text + "A->B.topics = orders\nB->A.topics = invoices\n")


def test_a_mesh_of_many_clusters_is_looked_through_in_time() -> None:
    aliases = [f"c{number}" for number in range(20)]
    text = f"clusters = {', '.join(aliases)}\n" + "".join(f"{a}.bootstrap.servers = {a}:9092\n" for a in aliases)
    text += enabled(*(f"{one}->{other}" for one, other in permutations(aliases, 2)))
    for policy in ("", IDENTITY, IDENTITY + MARKS, f"c0->c1.{IDENTITY}"):
        found = inspect_content((text + policy).encode(), "f.properties").findings
        assert any(finding.rule.startswith(("identity", "arrives", "returning")) for finding in found) is bool(policy)


# -- against names ---------------------------------------------------------------------------

names = st.text("ab", min_size=1, max_size=3)
patterns = st.one_of(names, names.map(lambda text: text + ".*"), st.just(".*"), st.just("[ab]b*"))


@given(topics=st.lists(st.lists(patterns, min_size=1, max_size=2), min_size=3, max_size=3), name=names)
def test_a_name_that_goes_round_is_always_found(topics: list[list[str]], name: str) -> None:
    text = enabled(*RING) + IDENTITY
    text += "".join(f"{flow}.topics = {', '.join(wanted)}\n" for flow, wanted in zip(RING, topics, strict=True))
    running = flows_of(text + CONFIGS + ACLS + "".join(f"{flow}.provenance.headers = true\n" for flow in RING))
    unmarked = [_without_marks(flow) for flow in running]
    if all(flow.mirrors(name) for flow in unmarked):
        assert unmarked_cycles(unmarked)
    assert not unmarked_cycles(running)
    assert not double_ways(running)
    assert not list(returning_names(unmarked))


def _without_marks(flow: Flow) -> Flow:
    return replace(flow, provenance_headers=False)
