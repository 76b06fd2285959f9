"""What copies are called: names that cannot be, two for one name, and that the others go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client import MirrorClient
from heliograph.config import parse_settings
from heliograph.config.settings import Flow, Settings
from heliograph.control.checkpoints import GroupCheckpoints, GroupPosition
from heliograph.control.offset_syncs import OffsetSyncSync
from heliograph.driver.driver import Driver
from heliograph.flow.flow import FlowDriver
from heliograph.flow.flow_names import NAMED
from heliograph.kafka.admin.commits import Commit
from heliograph.kafka.admin.groups import CLASSIC, GroupListing
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.copy_names import Rank, claims_of, may_clash, names_of, plan_groups, plan_names
from heliograph.preflight import topics as preflight
from heliograph.preflight.applications import mirrored_topics
from heliograph.recovery.choices import By
from heliograph.recovery.translate import plan_moves
from heliograph.rights.required import flow_rights
from tests.unit.helpers.logs import ENTRY
from tests.unit.helpers.samples import BASE
from tests.unit.preflight.test_topics import FAIL, MARKS, NO_SYNC, catalogue

IDENTITY = "replication.policy.class = org.apache.kafka.connect.mirror.IdentityReplicationPolicy\n"
THREE = """\
clusters = A, B, C
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
C.bootstrap.servers = c:9092
A->C.enabled = true
B->C.enabled = true
"""


def rule(pattern: str, replacement: str, number: int = 1, *, of: str = "topic", flow: str = "A->B") -> str:
    escaped = pattern.replace("\\", "\\\\")
    return f"{flow}.{of}.rename.{number}.pattern = {escaped}\n{flow}.{of}.rename.{number}.replacement = {replacement}\n"


def flow_of(more: str = "") -> Flow:
    return parse_settings(BASE + more).flows[0]


def reasons(flow: Flow, topics: Iterable[str], **more: Any) -> dict[str, str]:
    return {name: error.why for name, error in plan_names(flow, topics, **more).refused.items()}


# -- names that cannot be


@pytest.mark.parametrize(
    ("replacement", "why"),
    [
        ("", "no topic can be called so"),
        (".", "no topic can be called so"),
        ("..", "no topic can be called so"),
        ("x" * 250, "it has 250 characters, and a topic's name has at most 249"),
        ("a b", "letters, digits, dot, _ and - alone"),
        ("straße", "letters, digits, dot, _ and - alone"),
        ("__consumer_offsets", "internal to Kafka or to a mirror"),
        (".hidden", "internal to Kafka or to a mirror"),
        ("mm2-offsets.Z.internal", "internal to Kafka or to a mirror"),
        ("mm2-ledger.Z.internal", "internal to Kafka or to a mirror"),
        ("mm2-ledger.A.internal", "the mirror keeps its own records there"),
        ("mm2-offsets.A.internal", "the mirror keeps its own records there"),
        ("A.checkpoints.internal", "the mirror keeps its own records there"),
        ("heartbeats", "heartbeats are called so"),
        ("Z.heartbeats", "heartbeats are called so"),
    ],
)
def test_a_name_that_cannot_be_concerns_its_own_topic(replacement: str, why: str) -> None:
    plan = plan_names(flow_of(rule("bad", replacement)), ["a", "bad", "c", "heartbeats"])
    assert plan.wanted == {"a": "A.a", "c": "A.c", "heartbeats": "A.heartbeats"}
    [error] = plan.refused.values()
    assert (error.code, error.where) == ("NAME_REFUSED", "A->B")
    assert why in error.why
    assert f'"bad" would be called "{replacement}" on "B"' in error.what


def test_names_of_mm2s_policies_are_checked_too() -> None:
    assert list(reasons(flow_of(), ["x" * 248, "y" * 247])) == ["x" * 248]
    assert reasons(flow_of(), ["checkpoints.internal"]) == {
        "checkpoints.internal": "the mirror keeps its own records there"
    }
    assert reasons(flow_of("B->A.enabled = false\n"), ["a", "_x", "x.heartbeats"]) == {}


def test_brokers_do_not_make_two_names_that_differ_in_dots_alone() -> None:
    flow = flow_of(rule("(.*)", "$1"))
    assert list(reasons(flow, ["a.b", "a_b", "c"])) == ["a_b"]
    assert list(reasons(flow, ["a.b", "c"], there=["a_b"])) == ["a.b"]
    assert list(reasons(flow, ["a.b", "c"], there=["a_b", "a.b"])) == []
    assert list(reasons(flow, ["a.b", "a_b"], ranks={"a_b": Rank.COPIED})) == ["a.b"]


# -- two for one name


def test_of_two_topics_with_one_name_both_are_named_and_the_rest_goes_on() -> None:
    flow = flow_of(rule("(?:old|new)-(.*)", "$1"))
    plan = plan_names(flow, ["old-a", "new-a", "old-b", "c"])
    assert plan.wanted == {"new-a": "a", "old-b": "b", "c": "A.c"}
    [error] = plan.refused.values()
    assert error.what == '"old-a" would be called "a" on "B", as "new-a" is'
    assert error.why == "their records would mix"


def test_a_renamed_topic_may_collide_with_one_that_is_not() -> None:
    plan = plan_names(flow_of(rule("x", "A.y")), ["x", "y"])
    assert (plan.wanted, list(plan.refused)) == ({"x": "A.y"}, ["y"])


@pytest.mark.parametrize(
    ("ranks", "kept"),
    [
        ({}, "new-a"),
        ({"old-a": Rank.COPIED}, "old-a"),
        ({"old-a": Rank.KNOWN}, "old-a"),
        ({"old-a": Rank.KNOWN, "new-a": Rank.COPIED}, "new-a"),
        ({"old-a": Rank.COPIED, "new-a": Rank.KNOWN}, "old-a"),
    ],
)
def test_who_has_a_name_keeps_it(ranks: dict[str, Rank], kept: str) -> None:
    plan = plan_names(flow_of(rule("(?:old|new)-(.*)", "$1")), ["old-a", "new-a"], ranks=ranks)
    assert list(plan.wanted) == [kept]


@given(st.permutations(["old-a", "new-a", "old-b", "a", "b"]))
def test_a_plan_does_not_depend_on_the_order_of_topics(topics: list[str]) -> None:
    flow = flow_of(IDENTITY + rule("(?:old|new)-(.*)", "$1"))
    plan = plan_names(flow, topics)
    assert plan.wanted == {"a": "a", "b": "b"}
    assert sorted(plan.refused) == ["new-a", "old-a", "old-b"]


def test_two_flows_into_one_target_do_not_share_a_name() -> None:
    first, second = parse_settings(THREE + IDENTITY).flows
    claims = claims_of(first, names_of(first, ["x", "y"]), order=0)
    plan = plan_names(second, ["x", "z"], order=1, rivals=[claims])
    assert plan.wanted == {"z": "z"}
    [error] = plan.refused.values()
    assert error.what == '"x" would be called "x" on "C", as "x" of A->C is'
    copied = plan_names(second, ["x"], order=1, rivals=[claims], ranks={"x": Rank.COPIED})
    assert copied.wanted == {"x": "x"}


def test_with_aliases_in_front_flows_need_not_be_compared() -> None:
    def clash(more: str) -> bool:
        first, second = parse_settings(THREE + more).flows
        return may_clash(first, second)

    assert not clash("")
    assert clash(IDENTITY)
    assert clash("B->C.replication.policy.separator = _\n")
    assert clash(rule("a", "b", flow="A->C"))
    assert not clash(IDENTITY + MARKS + NO_SYNC)
    assert clash(IDENTITY + "A->C." + MARKS)
    one, two = parse_settings(THREE.replace("B->C", "A->B")).flows
    assert not may_clash(one, two)


# -- on the driver


def drivers(text: str) -> list[FlowDriver]:
    settings = parse_settings(text)
    return Driver(settings, SimpleNamespace(is_local=True), report=print)._flows


def test_a_refusal_is_told_once_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    [flow] = drivers(BASE + rule("(?:old|new)-(.*)", "$1"))
    flow.source.catalogue = catalogue(["old-a", "new-a", "c"])
    with caplog.at_level(logging.INFO, "heliograph"):
        for _ in range(3):
            assert flow.topics.names.plan_and_tell().wanted == {"new-a": "a", "c": "A.c"}
        flow.source.catalogue = catalogue(["old-a", "c"])
        flow.topics.names.plan_and_tell()
    assert [record.getMessage() for record in caplog.records] == [
        (
            'A->B: not mirrored: NAME_REFUSED: A->B: "old-a" would be called "a" on "B", as "new-a" is; their records '
            "would mix; give one of them another name by a rule (topic.rename.<n>), or leave one out of topics"
        ),
        "A->B: no longer refused: old-a",
    ]


def test_of_very_many_refusals_some_are_told(caplog: pytest.LogCaptureFixture) -> None:
    [flow] = drivers(BASE + rule(".*", "one"))
    flow.source.catalogue = catalogue([f"t{number:02}" for number in range(NAMED + 6)])
    flow.topics.names.plan_and_tell()
    assert len(caplog.records) == NAMED + 1
    assert caplog.records[-1].getMessage() == "A->B: 5 more topics not mirrored (see above)"


def test_flows_of_a_process_know_what_the_others_copy() -> None:
    first, second = drivers(THREE + IDENTITY)
    first.source.catalogue = second.source.catalogue = catalogue(["x"])
    assert (first.topics.names.plan().wanted, second.topics.names.plan().wanted) == ({"x": "x"}, {})
    second.entries["x", 0] = ENTRY
    assert (first.topics.names.plan().wanted, second.topics.names.plan().wanted) == ({}, {"x": "x"})
    second.entries.clear()
    second.ledger.partition(("x", 0)).entry = ENTRY
    assert (first.topics.names.plan().wanted, second.topics.names.plan().wanted) == ({}, {"x": "x"})
    first.ledger.partition(("x", 0)).entry = ENTRY
    assert (first.topics.names.plan().wanted, second.topics.names.plan().wanted) == ({"x": "x"}, {})


def test_flows_that_mark_records_share_a_topic_and_one_flow_does_not_with_itself() -> None:
    """As where a chain goes in both directions, and both its ends write to the middle."""
    first, second = drivers(THREE + IDENTITY + MARKS + NO_SYNC + rule("old-(.*)", "$1", flow="A->C"))
    first.source.catalogue, second.source.catalogue = catalogue(["x", "old-x"]), catalogue(["x"])
    assert (first.topics.names.plan().wanted, second.topics.names.plan().wanted) == ({"old-x": "x"}, {"x": "x"})
    assert list(first.topics.names.plan().refused) == ["x"]


# -- cycles


BOTH = rule("orders-(.+)", "$1.eu") + rule(r"(.+)\.us", "us-$1", flow="B->A") + "B->A.enabled = true\n"


def test_what_came_by_a_rule_does_not_go_back_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    there, back = drivers(BASE + BOTH)
    back.source.catalogue = catalogue(["x.eu", "native", "y.us", "A.z"])
    with caplog.at_level(logging.INFO, "heliograph"):
        for _ in range(2):
            assert back.topics.names.plan_and_tell().wanted == {"native": "B.native", "y.us": "us-y"}
    [record] = caplog.records
    assert record.getMessage().endswith("by the naming of other flows they are copies of the target's own topics: x.eu")
    there.source.catalogue = catalogue(["orders-x", "us-y", "B.native"])
    assert there.topics.names.plan().wanted == {"orders-x": "x.eu"}


def test_a_disabled_flow_has_no_copies() -> None:
    there, _ = parse_settings(BASE + rule("(.*)", "dr-$1") + rule("dr-(.*)", "$1", flow="B->A")).flows
    assert plan_names(there, ["a", "b"]).wanted == {"a": "dr-a", "b": "dr-b"}


def test_the_way_round_is_the_same_with_only_one_end_started() -> None:
    [back] = parse_settings(BASE + BOTH, only_targets=["A"]).flows
    assert plan_names(back, ["x.eu", "native"]).wanted == {"native": "B.native"}


def names_after(flows: dict[tuple[str, str], Flow], start: dict[str, set[str]], rounds: int) -> dict[str, set[str]]:
    there = {alias: set(names) for alias, names in start.items()}
    for _ in range(rounds):
        for (source, target), flow in flows.items():
            there[target] |= set(plan_names(flow, sorted(there[source]), there=there[target]).wanted.values())
    return there


@given(
    st.lists(
        st.sampled_from(
            [(r"(.+)-x", "$1"), ("(.+)", "$1-x"), ("(.+)", "$1"), (r"([^.]+)\.(.+)", "$2.$1"), ("a(.*)", "b$1")]
        ),
        min_size=6,
        max_size=6,
    )
)
def test_a_mesh_with_rules_comes_to_rest(rules: list[tuple[str, str]]) -> None:
    """Whatever the rules are: after some rounds nothing new appears."""
    pairs = [(a, b) for a in "ABC" for b in "ABC" if a != b]
    text = "clusters = A, B, C\n" + "".join(f"{alias}.bootstrap.servers = {alias}:9092\n" for alias in "ABC")
    text += "".join(f"{a}->{b}.enabled = true\n" for a, b in pairs)
    text += "".join(rule(*made, flow=f"{a}->{b}") for made, (a, b) in zip(rules, pairs, strict=True))
    loaded = parse_settings(text)
    flows = {(flow.source, flow.target): flow for flow in loaded.flows}
    start = {"A": {"a", "a.b"}, "B": {"q"}, "C": {"a-x"}}
    some = names_after(flows, start, 8)
    assert names_after(flows, some, 2) == some


# -- what goes by names


def test_applications_and_the_pre_flight_know_renamed_copies() -> None:
    flow = flow_of(rule(r"legacy\.(.+)", "$1.v1"))
    assert mirrored_topics([flow], ["orders.v1", "orders", "A.x", "mm2-ledger.A.internal"]) == ["A.x", "orders.v1"]


def test_the_pre_flight_finds_names_that_cannot_be_and_collisions() -> None:
    flow = flow_of(rule("bad", "a b") + rule("(?:old|new)-(.*)", "$1", 2))
    source = catalogue(["bad", "old-a", "new-a"])
    [step] = preflight.check_names(flow, source, catalogue())
    assert (step.verdict, step.subject) == (FAIL, "bad")
    assert step.what.startswith('would be called "a b" on "B": a topic')
    [step] = preflight.check_collisions([flow], {"A": source})
    assert (step.verdict, step.subject) == (FAIL, "a")
    assert "A:old-a and A:new-a" in step.what


@pytest.mark.parametrize(
    ("more", "there"),
    [
        ("", {"prefixed A."}),
        (rule("a.*", "x-$0"), {"prefixed A.", "prefixed x-"}),
        (rule("a.*", "$0-x"), {"prefixed A.", "literal *"}),
        (rule("orders", "bestellungen"), {"prefixed A.", "literal bestellungen"}),
        ("topics = orders\n" + rule("orders", "x"), {"literal x"}),
    ],
)
def test_rights_are_on_the_names_that_rules_make(more: str, there: set[str]) -> None:
    settings = parse_settings(BASE + more)
    found = {
        f"{right.resource.pattern.lower()} {right.resource.name}"
        for _, right in flow_rights(settings.flows[0], settings)
        if right.without == "nothing is copied into it"
    }
    assert found == there


# -- groups

EU = rule("(.+)", "eu-$1", of="group")


def test_groups_keep_their_names_but_for_rules() -> None:
    assert plan_groups(flow_of(), ["a", "console-consumer-1"]).wanted == {"a": "a"}
    assert plan_groups(flow_of(EU), ["a", "b"]).wanted == {"a": "eu-a", "b": "eu-b"}


def test_of_two_groups_with_one_name_both_are_named() -> None:
    flow = flow_of(rule("app-[0-9]+", "app", of="group"))
    plan = plan_groups(flow, ["app-2", "app-1", "other"])
    assert plan.wanted == {"app-1": "app", "other": "other"}
    assert plan.refused["app-2"].what == 'the group "app-2" would be called "app" on "B"'
    assert plan.refused["app-2"].why == '"app-1" is called so: their offsets would mix'
    assert plan_groups(flow, ["app-2", "app-1"], known=["app-2"]).wanted == {"app-2": "app"}


def test_no_group_has_an_empty_name_or_an_endless_one() -> None:
    flow = flow_of(rule("a", "", of="group") + rule("b", "$0" * 400, 2, of="group"))
    plan = plan_groups(flow, ["a", "b", "c"])
    assert plan.wanted == {"b": "b" * 400, "c": "c"}
    assert plan.refused["a"].why == "no group can be called so"


class Groups:
    """A carrier whose source has these groups."""

    def __init__(self, text: str, names: list[str], patch: pytest.MonkeyPatch) -> None:
        [self.flow] = drivers(BASE + text)
        self.there = names
        self.carrier = GroupCheckpoints(self.flow, OffsetSyncSync(self.flow))

        async def list_groups(_: object) -> dict[str, GroupListing]:
            return {name: GroupListing(group_id=name, state="Empty", kind=CLASSIC) for name in self.there}

        async def describe_groups(_: object, __: object) -> Any:
            return SimpleNamespace(found={}, failed={})

        patch.setattr("heliograph.control.checkpoints.list_groups", list_groups)
        patch.setattr("heliograph.control.checkpoints.describe_groups", describe_groups)

    def refresh(self) -> dict[str, str]:
        asyncio.run(self.carrier.refresh_groups())
        return self.carrier._names


def test_the_carrier_tells_of_a_group_without_a_name_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    groups = Groups(rule("app-[0-9]+", "app", of="group"), ["app-2", "other"], monkeypatch)
    assert groups.refresh() == {"app-2": "app", "other": "other"}
    groups.there = ["app-1", "app-2", "other"]
    for _ in range(2):
        assert groups.refresh() == {"app-2": "app", "other": "other"}
    [record] = caplog.records
    assert record.getMessage().startswith('A->B: not synced: NAME_REFUSED: A->B: the group "app-1" would be')


def test_checkpoints_and_offsets_have_the_name_on_the_target(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = Groups(EU, ["billing"], monkeypatch)
    groups.refresh()
    copied = ENTRY.moved(n=40, source_offset=40, target_offset=50, run_source=0, run_target=10)
    groups.flow.ledger.partition(("t", 0)).entry = copied
    where, remote = TopicPartition("t", 0), TopicPartition("A.t", 0)
    found = groups.carrier._standings({"billing": {where: Commit(5, "m")}}, {where: (remote, 0)})
    assert found == {("eu-billing", remote): GroupPosition(5, 15, "m", 50, is_exact=True)}


# -- translate

PLACE = {TopicPartition("A.t", 0): SimpleNamespace(offset=1, metadata="", grade="exact", upstream=1, reread=0)}


@pytest.mark.parametrize(
    ("names", "found", "moved", "unknown"),
    [
        (["app"], ["eu-app"], ["eu-app"], []),
        (["eu-app"], ["eu-app"], ["eu-app"], []),
        (["eu-app"], ["eu-app", "eu-eu-app"], ["eu-app"], []),
        (["eu-app", "eu-eu-app"], ["eu-app", "eu-eu-app"], ["eu-app", "eu-eu-app"], []),
        (["absent"], [], [], ["absent"]),
    ],
)
def test_a_group_is_moved_that_is_named_by_either_name(
    names: list[str], found: list[str], moved: list[str], unknown: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    settings: Settings = parse_settings(BASE + EU)
    client = SimpleNamespace(translate_groups=lambda *_, **__: dict.fromkeys(found, PLACE))
    monkeypatch.setattr(MirrorClient, "of_flow", lambda *_: client)
    plan = plan_moves(settings, settings.flows[0], names=names, wanted=None, by=By.LEDGER)
    assert ([move.group for move in plan.moves], plan.unknown) == (moved, unknown)
