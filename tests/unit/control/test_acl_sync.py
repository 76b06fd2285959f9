"""Which access rules are carried over: MM2's rule, nothing but differences, no right to write, only our own removed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.settings import Flow
from heliograph.control.acls import AclPlan, plan_acl_sync
from heliograph.errors import ConfigError
from heliograph.kafka.admin.acls import Acl, Operation, Pattern, ResourceType
from heliograph.ledger.copy_names import NameClaim, Rank, plan_groups, plan_names
from heliograph.ledger.kept_acls import keep, plan_kept
from heliograph.ledger.records.kept_acls import KeptAcls
from heliograph.names.policies import DefaultPolicy
from heliograph.recovery.write_rights import plan_write_handover
from tests.unit.helpers.access_rules import (
    ALL,
    DELETE,
    DESCRIBE,
    FAILOVER,
    GROUP,
    GROUPS,
    IDENTITY,
    PREFIXED,
    READ,
    TOPIC,
    TOPICS,
    WRITE,
    flow_of,
    prefixed,
    rule,
)


def plan_of(
    source: Iterable[Acl],
    target: Collection[Acl] = (),
    *,
    flow: Flow | None = None,
    made: Mapping[Acl, Acl] | None = None,
    topics: Collection[str] = TOPICS,
    rivals: Iterable[Mapping[str, NameClaim]] = (),
    groups: Collection[str] = (),
) -> AclPlan:
    flow = flow or flow_of()
    return plan_acl_sync(
        source,
        target,
        flow=flow,
        topics=plan_names(flow, topics, rivals=rivals),
        groups=plan_groups(flow, groups, selected=flow.topic_sync.group_acls),
        made=made or {},
    )


def created(source: Iterable[Acl], more: str = "", **given: Any) -> set[Acl]:
    return set(plan_of(source, flow=flow_of(more), **given).create)


# -- MM2's rule


def test_acl_filtering_drops_grants_to_write_and_keeps_grants_of_everything() -> None:
    """MM2's testAclFiltering."""
    assert created([rule("orders", WRITE)]) == set()
    assert created([rule("orders", ALL)]) == {rule("A.orders", READ)}


def test_acl_transformation_renames_and_turns_everything_into_reading_but_not_in_denials() -> None:
    """MM2's testAclTransformation."""
    assert created([rule("orders", ALL), rule("orders", ALL, "x", deny=True)]) == {
        rule("A.orders", READ),
        rule("A.orders", ALL, "x", deny=True),
    }


def test_all_else_is_taken_as_it_is() -> None:
    others = [operation for operation in Operation if operation not in (ALL, WRITE)]
    source = [rule("orders", operation, host="10.0.0.7") for operation in others]
    source += [rule("orders", operation, deny=True) for operation in Operation]
    assert created(source) == {replace(acl, name="A.orders") for acl in source}
    assert created(source, IDENTITY) == set(source)


def test_rules_of_topics_that_are_not_mirrored_and_of_other_things_stay_behind() -> None:
    source = [rule("private"), rule("B.orders"), rule("__consumer_offsets"), rule("mm2-offset-syncs.B.internal")]
    source += [rule("g", resource_type=kind) for kind in ResourceType if kind is not TOPIC]
    assert plan_of(source) == plan_of([])


def test_a_topic_that_is_not_there_yet_has_its_rules_already() -> None:
    assert created([rule("order-of-tomorrow")]) == {rule("A.order-of-tomorrow")}


@pytest.mark.parametrize("naming", ["", IDENTITY])
@pytest.mark.parametrize("wide", [rule("*"), prefixed("ord"), prefixed("orders", ALL)])
def test_rules_on_more_than_one_name_are_left_out_and_named_unless_asked_for(naming: str, wide: Acl) -> None:
    plan = plan_of([wide], flow=flow_of(naming))
    assert not plan.create
    assert plan.left_out == (wide,)


@pytest.mark.parametrize("wide", [prefixed("private"), prefixed("x"), rule("*", WRITE), prefixed("ord", WRITE)])
def test_what_would_not_be_copied_in_any_case_is_not_named(wide: Acl) -> None:
    assert plan_of([wide]).left_out == ()


# -- beyond it


def test_a_prefix_stays_one_with_the_names_of_the_copies() -> None:
    source = [prefixed("ord"), prefixed("ord", ALL, user="all"), prefixed("ord", ALL, user="x", deny=True)]
    wanted = [prefixed("ord"), prefixed("ord", READ, user="all"), prefixed("ord", ALL, user="x", deny=True)]
    assert created(source, PREFIXED) == {replace(acl, name="A.ord") for acl in wanted}
    assert created(source, PREFIXED + IDENTITY) == set(wanted)
    assert created([*source, prefixed("ord", WRITE)], PREFIXED + IDENTITY) == set(wanted)


def test_a_prefix_of_which_nothing_is_mirrored_stays_behind() -> None:
    assert created([prefixed("private"), prefixed("x")], PREFIXED + IDENTITY) == set()


def test_a_rule_on_everything_is_on_all_copies_and_on_nothing_else() -> None:
    assert created([rule("*")], PREFIXED) == {prefixed("A.")}
    assert created([rule("*")], PREFIXED + IDENTITY) == {
        rule(name) for name in ("ord", "orders", "order-lines", "audit")
    }


class Renaming(DefaultPolicy):
    """One of somebody's own, which turns names round."""

    def format_remote_topic(self, source_alias: str, topic: str) -> str:
        return topic[::-1]


def test_where_names_keep_no_prefix_a_rule_on_one_becomes_rules_on_the_topics_that_exist() -> None:
    flow = replace(flow_of(PREFIXED), policy=Renaming())
    assert set(plan_of([prefixed("order"), rule("audit")], flow=flow).create) == {
        rule("sredro"),
        rule("senil-redro"),
        rule("tidua"),
    }


def test_rules_of_groups_are_copied_under_their_own_names_to_read_and_describe() -> None:
    def group(operation: Operation, name: str = "billing-1", **more: Any) -> Acl:
        return rule(name, operation, resource_type=GROUP, **more)

    source = [group(operation) for operation in (ALL, READ, DESCRIBE, Operation.DELETE, Operation.ALTER_CONFIGS)]
    source += [group(Operation.DELETE, deny=True), group(READ, "other"), group(READ, "g")]
    wanted = {group(READ), group(DESCRIBE), group(Operation.DELETE, deny=True), group(READ, "g")}
    assert created(source, GROUPS) == wanted
    assert created([*source, rule("orders")], GROUPS + "sync.topic.acls.enabled=false\n") == wanted
    assert created(source) == set()


def test_wide_rules_of_groups_are_on_the_same_prefix_or_on_the_groups_that_are_carried_over() -> None:
    groups = ("billing-1", "billing-2", "other")
    many, every = prefixed("bill", resource_type=GROUP), rule("*", resource_type=GROUP)
    assert created([many], GROUPS + PREFIXED, groups=groups) == {many}
    assert created([many], GROUPS + PREFIXED, groups=("other",)) == set()
    assert created([every], GROUPS + PREFIXED, groups=groups) == {
        rule(name, resource_type=GROUP) for name in ("billing-1", "billing-2")
    }
    assert plan_of([many, every], flow=flow_of(GROUPS), groups=groups).left_out == (many, every)


def test_groups_have_their_names_on_the_target() -> None:
    def group(name: str, **more: Any) -> Acl:
        return rule(name, resource_type=GROUP, **more)

    renaming = GROUPS + PREFIXED + "A->B.group.rename.1.pattern=billing-(.*)\nA->B.group.rename.1.replacement=eu-$1\n"
    groups = ("billing-1", "billing-2", "g", "other")
    assert created([group("billing-7"), group("g")], renaming, groups=groups) == {group("eu-7"), group("g")}
    wide = group("bill", pattern=Pattern.PREFIXED)
    assert created([wide], renaming, groups=groups) == {group("eu-1"), group("eu-2")}
    assert created([group("*")], renaming, groups=groups) == {group("eu-1"), group("eu-2"), group("g")}


def test_rules_of_a_group_that_has_no_name_are_not_made_on_the_one_that_has_it() -> None:
    def group(name: str) -> Acl:
        return rule(name, resource_type=GROUP)

    one = GROUPS + "A->B.group.rename.1.pattern=billing-.*\nA->B.group.rename.1.replacement=app\n"
    source = [group("billing-2"), group("billing-9")]
    assert created(source, one, groups=("billing-1", "billing-2")) == set()
    assert created([*source, group("billing-1")], one, groups=("billing-1", "billing-2")) == {group("app")}


# -- names that are others'

VERSIONS = "A->B.topic.rename.1.pattern=(orders)-v.\nA->B.topic.rename.1.replacement=$1\n"


def test_rules_of_a_topic_that_was_refused_its_name_are_not_made_on_its_rivals_copy() -> None:
    topics = ("orders-v1", "orders-v2")
    source = [rule("orders-v1", user="one"), rule("orders-v2", user="two")]
    assert created(source, VERSIONS, topics=topics) == {rule("orders", user="one")}
    assert created(source, VERSIONS, topics=topics[1:]) == {rule("orders", user="two")}, "nor if it does not exist"
    wide = prefixed("orders-v2", user="two")
    assert created([wide], VERSIONS + PREFIXED, topics=topics) == set()


def test_rules_are_not_made_on_copies_of_other_flows() -> None:
    rivals = [{"orders": NameClaim(Rank.COPIED, 1, "orders", "C->B"), "ord": NameClaim(Rank.COPIED, 1, "ord", "C->B")}]
    source = [rule("orders"), rule("ord"), rule("order-lines"), prefixed("ord", user="many")]
    assert created(source, IDENTITY + PREFIXED, topics=("orders", "order-lines"), rivals=rivals) == {
        rule("order-lines"),
        rule("order-lines", user="many"),
    }


def test_a_rule_on_a_name_that_a_class_fails_for_stays_behind_alone() -> None:
    class Failing:
        def accepts(self, name: str) -> bool:
            if name == "bad":
                raise ConfigError("no luck")
            return True

    flow = replace(flow_of(), topics=Failing())
    for topics in (("orders",), ("orders", "bad")):
        plan = plan_of([rule("bad"), rule("orders")], flow=flow, topics=topics)
        assert set(plan.create) == {rule("A.orders")}


# -- removal


MADE = {rule("A.orders"): rule("orders")}


def test_what_we_made_is_removed_when_it_has_gone_from_the_source_and_only_if_asked_for() -> None:
    target = [rule("A.orders"), rule("A.orders", user="other"), rule("A.orders", DESCRIBE)]
    assert plan_of([], target, made=MADE).delete == ()
    assert plan_of([], target, made=MADE, flow=flow_of(DELETE)).delete == (rule("A.orders"),)
    assert plan_of([rule("orders")], target, made=MADE, flow=flow_of(DELETE)).delete == ()


@pytest.mark.parametrize(
    ("source", "made"),
    [
        (rule("private"), {rule("A.private"): rule("private")}),
        (prefixed("ord"), {prefixed("A.ord"): prefixed("ord")}),
        (rule("*", ALL), {prefixed("A."): rule("*")}),
        (rule("orders"), {rule("orders"): rule("orders")}),
        (rule("g", resource_type=GROUP), {rule("g", resource_type=GROUP): rule("g", resource_type=GROUP)}),
    ],
    ids=["topic deselected", "prefixes switched off", "the same of everything", "named otherwise", "groups off"],
)
def test_what_is_only_deselected_stays(source: Acl, made: dict[Acl, Acl]) -> None:
    plan = plan_of([source], list(made), made=made, flow=flow_of(DELETE))
    assert plan.delete == ()
    assert plan.made == made
    assert plan_of([], list(made), made=made, flow=flow_of(DELETE)).delete == tuple(made)


def test_a_rule_that_two_of_the_source_ask_for_stays_until_both_are_gone() -> None:
    source = [rule("orders"), rule("*")]
    flow = flow_of(DELETE + PREFIXED + IDENTITY)
    made = {rule("orders"): rule("orders")}
    plan = plan_of(source[1:], [rule("orders")], made=made, flow=flow)
    assert plan.delete == ()
    assert plan.made == {rule("orders"): rule("*")}
    assert plan_of([], [rule("orders")], made=plan.made, flow=flow).delete == (rule("orders"),)


def test_a_rule_of_ours_that_somebody_removed_is_made_again_or_is_ours_no_more() -> None:
    assert plan_of([rule("orders")], [], made=MADE).create == MADE
    assert plan_of([], [], made=MADE).made == {}


# -- properties

names = st.sampled_from(["*", "ord", "orders", "audit", "private", "A.ord", "billing", "g"])
rules = st.builds(
    Acl,
    principal=st.sampled_from(["User:a", "User:b", "User:*"]),
    operation=st.sampled_from(Operation),
    resource_type=st.sampled_from([TOPIC, GROUP, ResourceType.CLUSTER]),
    name=names,
    pattern=st.sampled_from(Pattern),
    host=st.sampled_from(["*", "10.0.0.7"]),
    allow=st.booleans(),
)
rule_sets = st.frozensets(rules, max_size=12)
flows = st.lists(st.sampled_from([IDENTITY, PREFIXED, DELETE, GROUPS, FAILOVER]), unique=True).map(
    lambda keys: flow_of("".join(keys))
)
GROUP_NAMES = ("billing", "g", "other")


def apply(plan: AclPlan, target: Collection[Acl]) -> tuple[set[Acl], dict[Acl, Acl]]:
    """The target after a plan, and what is ours there."""
    made = {acl: origin for acl, origin in plan.made.items() if acl not in plan.delete} | plan.create
    return (set(target) | plan.create.keys()) - set(plan.delete), made


@given(rule_sets, rule_sets, flows)
def test_only_differences_are_asked_for_and_a_second_pass_asks_for_nothing(
    source: frozenset[Acl], target: frozenset[Acl], flow: Flow
) -> None:
    plan = plan_of(source, target, flow=flow, groups=GROUP_NAMES)
    assert not plan.create.keys() & target
    assert set(plan.delete) <= target
    after, made = apply(plan, target)
    again = plan_of(source, after, flow=flow, made=made, groups=GROUP_NAMES)
    assert (again.create, again.delete, again.made) == ({}, (), made)


@given(rule_sets, rule_sets, flows)
def test_nobody_gets_a_right_to_write_nor_one_on_everything(
    source: frozenset[Acl], target: frozenset[Acl], flow: Flow
) -> None:
    plan = plan_of(source, target, flow=flow, groups=GROUP_NAMES)
    for acl in plan.create:
        assert not acl.allow or acl.operation not in (WRITE, ALL)
        assert acl.name not in ("*", "")
        assert acl.resource_type is not ResourceType.CLUSTER
    assert all(acl.allow and acl.operation in (WRITE, ALL) and acl.resource_type is TOPIC for acl in plan.withheld)
    assert bool(plan.withheld) <= flow.topic_sync.write_on_failover


@given(st.lists(st.tuples(rule_sets, flows), min_size=1, max_size=4), rule_sets)
def test_what_stood_there_before_us_is_never_removed(
    passes: list[tuple[frozenset[Acl], Flow]], target: frozenset[Acl]
) -> None:
    there: set[Acl] = set(target)
    made: dict[Acl, Acl] = {}
    kept: dict[Any, KeptAcls] = {}
    for source, flow in passes:
        plan = plan_of(source, there, flow=flow, made=made, groups=GROUP_NAMES)
        assert set(plan.delete) <= made.keys()
        assert bool(plan.delete) <= flow.topic_sync.acls_delete
        there, made = apply(plan, there)
        assert target <= there
        for record in plan_kept(kept, made=made, withheld=plan.withheld):
            keep(kept, record)
        assert {acl: origin for record in kept.values() for acl, origin in record.made.items()} == made
        assert {acl for record in kept.values() for acl in record.withheld} == plan.withheld
        assert plan_kept(kept, made=made, withheld=plan.withheld) == []


# -- a failover


def test_rights_to_write_are_kept_only_if_asked_for_and_handed_over_where_they_are_missing() -> None:
    source = [
        rule("orders", WRITE),
        rule("audit", ALL, "boss"),
        rule("private", WRITE),
        rule("orders", WRITE, deny=True),
    ]
    assert plan_of(source).withheld == frozenset()
    plan = plan_of(source, flow=flow_of(FAILOVER))
    assert plan.withheld == {rule("A.orders", WRITE), rule("A.audit", ALL, "boss")}
    kept = plan_kept({}, made={}, withheld=plan.withheld)
    assert plan_write_handover(kept, []) == (rule("A.orders", WRITE), rule("A.audit", ALL, "boss"))
    assert plan_write_handover(kept, [rule("A.orders", WRITE)]) == (rule("A.audit", ALL, "boss"),)


def test_wide_rights_to_write_wait_too() -> None:
    source = [prefixed("ord", WRITE), rule("*", ALL)]
    assert plan_of(source, flow=flow_of(FAILOVER + PREFIXED)).withheld == {
        prefixed("A.ord", WRITE),
        prefixed("A.", ALL),
    }
    plan = plan_of(source, flow=flow_of(FAILOVER))
    assert plan.left_out == tuple(source)
    assert not plan.withheld
