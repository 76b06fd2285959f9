"""Access rules carried over: MM2's rule, nothing but differences, no right to write, only our own are removed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.load import parse_settings
from heliograph.config.settings import Flow
from heliograph.control import acls as sync_module
from heliograph.control.acls import AclPlan, AclSync, apply_acl_sync, plan_acl_sync
from heliograph.errors import BrokerRefused, ConfigError, HeliographError, NotAuthorized
from heliograph.kafka.acls import Acl, Operation, Pattern, ResourceType
from heliograph.kafka.cluster import Catalogue, TopicMeta
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.mirror import store
from heliograph.mirror.copynames import Claim, Rank, plan_groups, plan_names
from heliograph.mirror.flow_names import FlowNames
from heliograph.mirror.kept_acls import KeptAcls, keep, plan_kept
from heliograph.mirror.ledger import Ledger
from heliograph.naming import DefaultPolicy
from heliograph.recovery import write_rights
from heliograph.recovery.write_rights import apply_write_handover, plan_write_handover
from tests.unit.logs import ENTRY

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


def plan_of(
    source: Iterable[Acl],
    target: Collection[Acl] = (),
    *,
    flow: Flow | None = None,
    made: Mapping[Acl, Acl] | None = None,
    topics: Collection[str] = TOPICS,
    rivals: Iterable[Mapping[str, Claim]] = (),
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
    rivals = [{"orders": Claim(Rank.COPIED, 1, "orders", "C->B"), "ord": Claim(Rank.COPIED, 1, "ord", "C->B")}]
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


def test_a_pass_knows_the_names_of_the_running_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(monkeypatch, "A->B.topic.rename.1.pattern=ord(?:ers)?\nA->B.topic.rename.1.replacement=one\n")
    world.rules["A"] = {rule("ord", user="ord"), rule("orders", user="orders")}
    world.flow.entries["orders", 0] = ENTRY
    world.pass_over()
    assert world.target == {rule("one", user="orders")}


def test_a_pass_asks_for_groups_where_it_matters_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def groups(_: object) -> list[str]:
        return ["billing-1", "billing-2"]

    monkeypatch.setattr(sync_module, "list_groups", groups)
    world = World(monkeypatch, GROUPS + "A->B.group.rename.1.pattern=billing-.*\nA->B.group.rename.1.replacement=app\n")
    world.rules["A"] = {rule("billing-2", resource_type=GROUP)}
    world.pass_over()
    assert not world.target


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


class World:
    """The rules of two clusters, and what was asked of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, more: str = "") -> None:
        self.rules: dict[str, set[Acl] | HeliographError | None] = {"A": set(), "B": set()}
        self.asked: list[str] = []
        self.refuse: dict[Acl, HeliographError] = {}
        self.written: list[KeptAcls] = []
        self.leads = True
        topics = {topic: TopicMeta(topic, NO_TOPIC_ID, ()) for topic in TOPICS}
        flow: Any = SimpleNamespace(
            name="A->B",
            flow=flow_of(more),
            source=SimpleNamespace(alias="A", catalogue=Catalogue(cluster_id="", brokers={}, topics=topics)),
            target=SimpleNamespace(alias="B", catalogue=Catalogue(cluster_id="", brokers={}, topics={})),
            entries={},
            ledger=Ledger(group_id="A-mm2", topic="ledger"),
            ledger_topic="ledger",
            leads=lambda: self.leads,
        )
        for module in (sync_module, write_rights):
            monkeypatch.setattr(module, "create_acls", self._create)
        monkeypatch.setattr(sync_module, "delete_acls", self._delete)
        monkeypatch.setattr(sync_module, "maybe_describe_acls", self._describe)
        monkeypatch.setattr(store, "write_acls", self._write)
        flow.names = FlowNames(flow)
        self.flow = flow
        self.sync = AclSync(flow)

    async def _describe(self, cluster: Any) -> tuple[Acl, ...] | None:
        self.asked.append(f"describe {cluster.alias}")
        found = self.rules[cluster.alias]
        if isinstance(found, HeliographError):
            raise found
        return None if found is None else tuple(found)

    async def _create(self, cluster: Any, acls: Sequence[Acl]) -> dict[Acl, HeliographError | None]:
        return self._change("create", acls, self.target.add)

    async def _delete(self, cluster: Any, acls: Sequence[Acl]) -> dict[Acl, HeliographError | None]:
        return self._change("delete", acls, self.target.discard)

    def _change(
        self, what: str, acls: Sequence[Acl], change: Callable[[Acl], None]
    ) -> dict[Acl, HeliographError | None]:
        self.asked.append(f"{what} {len(acls)}")
        for acl in acls:
            if acl not in self.refuse:
                change(acl)
        return {acl: self.refuse.get(acl) for acl in acls}

    async def _write(self, cluster: Any, topic: str, group_id: str, kept: Sequence[KeptAcls]) -> None:
        assert (topic, group_id) == ("ledger", "A-mm2")
        self.written += kept

    @property
    def target(self) -> set[Acl]:
        found = self.rules["B"]
        assert isinstance(found, set)
        return found

    def pass_over(self) -> list[str]:
        """What is asked of the clusters in one pass."""
        self.asked = []
        asyncio.run(self.sync.sync())
        return self.asked


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch, DELETE + FAILOVER)


BOTH = ["describe A", "describe B"]


def test_a_pass_sends_differences_and_the_next_one_nothing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    world.rules["A"] = {rule("orders", ALL), rule("audit")}
    world.target.add(rule("A.audit"))
    assert world.pass_over() == [*BOTH, "create 1"]
    assert world.target == {rule("A.audit"), rule("A.orders")}
    assert world.flow.ledger.acls.keys() == {rule("A.orders").resource}
    assert world.pass_over() == BOTH
    assert caplog.messages == [
        'A->B: 1 access rule made on "B": allow User:app from * Read on Topic "A.orders" (Literal)',
        'A->B: kept on "B" for a failover: 1 write grant',
    ]
    world.rules["A"] = set()
    assert world.pass_over() == [*BOTH, "delete 1"]
    assert world.target == {rule("A.audit")}
    assert world.flow.ledger.acls == {}
    assert (world.sync.created, world.sync.deleted) == (1, 1)


def test_no_broker_acl_authorizer(world: World, caplog: pytest.LogCaptureFixture) -> None:
    """MM2's testNoBrokerAclAuthorizer: said once, later passes are silent, the target is not touched."""
    caplog.set_level(logging.INFO, "heliograph")
    world.rules["A"] = None
    assert [world.pass_over(), world.pass_over()] == [["describe A"], ["describe A"]]
    assert caplog.messages == ['A->B: no access rules are copied: "A" has no authorizer']
    world.rules["A"] = {rule("orders")}
    assert world.pass_over() == [*BOTH, "create 1"]
    assert caplog.messages[1] == 'A->B: "A" has an authorizer now: access rules are copied'


def test_a_target_without_an_authorizer_is_named_once(world: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    world.rules |= {"A": {rule("orders")}, "B": None}
    assert [world.pass_over(), world.pass_over()] == [BOTH, BOTH]
    assert caplog.messages == ['A->B: no access rules are copied: "B" has no authorizer']


def test_missing_rights_are_an_error_with_operation_and_cluster(world: World) -> None:
    world.rules["A"] = {rule("orders"), rule("audit")}
    missing = NotAuthorized("CreateAcls to x refused", where='"B"', remedy="grant Alter on the cluster")
    world.refuse = {rule("A.orders"): missing, rule("A.audit"): missing}
    for _ in range(2):
        with pytest.raises(NotAuthorized) as caught:
            world.pass_over()
        assert str(caught.value) == 'NOT_AUTHORIZED: "B": CreateAcls refused; grant Alter on the cluster'
    assert world.flow.ledger.acls == {}


def test_a_target_that_does_not_show_its_rules_is_to_let_us_change_them(world: World) -> None:
    world.rules |= {"A": {rule("orders")}, "B": NotAuthorized("DescribeAcls refused", where='"B"', remedy="Describe")}
    with pytest.raises(NotAuthorized) as caught:
        world.pass_over()
    assert str(caught.value) == 'NOT_AUTHORIZED: "B": DescribeAcls refused; grant Alter on the cluster'


def test_a_rule_that_is_refused_is_named_once_and_the_others_are_made(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    world.rules["A"] = {rule("orders"), *(rule("audit", user=f"u{number}") for number in range(7))}
    bad = {rule("A.audit", user=f"u{number}") for number in range(7)}
    world.refuse = {acl: BrokerRefused(f"{acl} refused") for acl in bad}
    world.pass_over()
    world.pass_over()
    assert world.target == {rule("A.orders")}
    assert sum("an access rule is not copied: BROKER_REFUSED" in line for line in caplog.messages) == 5
    assert caplog.messages[-1] == "A->B: 2 more access rules are refused"
    world.refuse = {}
    world.pass_over()
    assert world.target == {rule("A.orders"), *bad}
    assert caplog.messages[-1] == "A->B: over: access rules were refused"


def test_rules_left_out_are_named_once_and_a_denial_is_a_warning(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    world.rules["A"] = {rule("*")}
    world.pass_over()
    world.pass_over()
    world.rules["A"] = {rule("*"), prefixed("ord", deny=True)}
    world.pass_over()
    world.rules["A"] = {rule("*")}
    world.pass_over()
    assert [record.levelname for record in caplog.records] == ["INFO", "WARNING"]
    every, denial = map(str, (rule("*"), prefixed("ord", deny=True)))
    assert caplog.messages[0] == (
        'A->B: not copied without sync.topic.acls.prefixed=true: 1 access rule of "A" on prefixes or on everything: '
        f"{every}"
    )
    assert "2 access rules" in caplog.messages[1]
    assert "(1 deny: copies are more open than their source without them)" in caplog.messages[1]
    assert denial in caplog.messages[1]


def test_who_does_not_lead_any_more_changes_nothing(world: World) -> None:
    world.rules["A"] = {rule("orders")}
    world.leads = False
    assert world.pass_over() == BOTH
    assert world.written == []


def test_many_rules_go_in_lots_and_each_lot_is_kept_before_the_next(world: World) -> None:
    world.rules["A"] = {rule("orders", user=f"u{number}") for number in range(1200)}
    assert world.pass_over() == [*BOTH, "create 500", "create 500", "create 200"]
    assert [len(kept.made) for kept in world.written] == [500, 1000, 1200]


def test_a_paused_flow_and_one_without_access_rules_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert World(monkeypatch).sync.interval_s() == 600
    assert World(monkeypatch, "sync.topic.acls.interval.seconds=7\n").sync.interval_s() == 7
    assert World(monkeypatch, "A->B.state=paused\n").sync.interval_s() is None
    off = "sync.topic.acls.enabled=false\n"
    assert World(monkeypatch, off).sync.interval_s() is None
    assert World(monkeypatch, off + GROUPS).sync.interval_s() == 600


def test_what_is_handed_over_is_kept_as_ours_and_the_sync_leaves_it(world: World) -> None:
    world.rules["A"] = {rule("orders", ALL), rule("orders", WRITE), rule("audit", WRITE)}
    world.target.add(rule("A.audit", WRITE))
    world.pass_over()
    ledger = world.flow.ledger
    planned = plan_write_handover(ledger.acls.values(), world.target)
    assert set(planned) == {rule("A.orders", ALL), rule("A.orders", WRITE)}
    world.refuse = {rule("A.orders", ALL): BrokerRefused("no")}
    world.written.clear()
    done = asyncio.run(apply_write_handover(world.flow.target, ledger, planned))
    assert done.refused.keys() == {rule("A.orders", ALL)}
    [record] = world.written
    assert record.handed == {rule("A.orders", WRITE)}
    keep(ledger.acls, record)
    world.refuse = {}
    world.rules["A"] = set()
    world.pass_over()
    assert world.target == {rule("A.orders", WRITE), rule("A.audit", WRITE)}
    assert [kept.handed for kept in ledger.acls.values()] == [{rule("A.orders", WRITE)}]


def test_an_error_between_two_lots_leaves_what_is_made_known(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    made = {rule("A.orders", user=f"u{number}"): rule("orders", user=f"u{number}") for number in range(600)}
    plan = AclPlan(create=made, delete=(), made={}, withheld=frozenset(), left_out=())
    kept: list[int] = []

    async def keep_made(found: Mapping[Acl, Acl]) -> None:
        kept.append(len(found))
        if len(found) == 500:
            raise BrokerRefused("the ledger is away")

    with pytest.raises(BrokerRefused):
        asyncio.run(apply_acl_sync(world.flow.target, plan, keep_made=keep_made))
    assert kept == [0, 500]
    assert len(world.target) == 500
