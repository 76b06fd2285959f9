"""Passes over the access rules of two clusters: what is asked of them, what is said, what is kept."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.control import acls as sync_module
from heliograph.control.acls import AclPlan, AclSync, apply_acl_sync
from heliograph.errors import BrokerRefused, HeliographError, NotAuthorized
from heliograph.flow.flow_names import FlowNames
from heliograph.kafka.admin.acls import Acl
from heliograph.kafka.catalogue import Catalogue, TopicMeta
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.ledger import store
from heliograph.ledger.kept_acls import keep
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.records.kept_acls import KeptAcls
from heliograph.recovery import write_rights
from heliograph.recovery.write_rights import apply_write_handover, plan_write_handover
from tests.unit.helpers.access_rules import ALL, DELETE, FAILOVER, GROUP, GROUPS, TOPICS, WRITE, flow_of, prefixed, rule
from tests.unit.helpers.logs import ENTRY


class AclClusters:
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
            table=SimpleNamespace(entries={}),
            ledger=Ledger(group_id="A-mm2", topic="ledger"),
            ledger_topic="ledger",
            leads=lambda: self.leads,
        )
        for module in (sync_module, write_rights):
            monkeypatch.setattr(module, "create_acls", self._create)
        monkeypatch.setattr(sync_module, "delete_acls", self._delete)
        monkeypatch.setattr(sync_module, "maybe_describe_acls", self._describe)
        monkeypatch.setattr(store, "write_records", self._write)
        flow.opening = flow
        flow.topics = SimpleNamespace(names=FlowNames(flow, flow.table))
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
def world(monkeypatch: pytest.MonkeyPatch) -> AclClusters:
    return AclClusters(monkeypatch, DELETE + FAILOVER)


BOTH = ["describe A", "describe B"]


def test_a_pass_sends_differences_and_the_next_one_nothing(
    world: AclClusters, caplog: pytest.LogCaptureFixture
) -> None:
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


def test_no_broker_acl_authorizer(world: AclClusters, caplog: pytest.LogCaptureFixture) -> None:
    """MM2's testNoBrokerAclAuthorizer: said once, later passes are silent, the target is not touched."""
    caplog.set_level(logging.INFO, "heliograph")
    world.rules["A"] = None
    assert [world.pass_over(), world.pass_over()] == [["describe A"], ["describe A"]]
    assert caplog.messages == ['A->B: no access rules are copied: "A" has no authorizer']
    world.rules["A"] = {rule("orders")}
    assert world.pass_over() == [*BOTH, "create 1"]
    assert caplog.messages[1] == 'A->B: "A" has an authorizer now: access rules are copied'


def test_a_target_without_an_authorizer_is_named_once(world: AclClusters, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    world.rules |= {"A": {rule("orders")}, "B": None}
    assert [world.pass_over(), world.pass_over()] == [BOTH, BOTH]
    assert caplog.messages == ['A->B: no access rules are copied: "B" has no authorizer']


def test_missing_rights_are_an_error_with_operation_and_cluster(world: AclClusters) -> None:
    world.rules["A"] = {rule("orders"), rule("audit")}
    missing = NotAuthorized("CreateAcls to x refused", where='"B"', remedy="grant Alter on the cluster")
    world.refuse = {rule("A.orders"): missing, rule("A.audit"): missing}
    for _ in range(2):
        with pytest.raises(NotAuthorized) as caught:
            world.pass_over()
        assert str(caught.value) == 'NOT_AUTHORIZED: "B": CreateAcls refused; grant Alter on the cluster'
    assert world.flow.ledger.acls == {}


def test_a_target_that_does_not_show_its_rules_is_to_let_us_change_them(world: AclClusters) -> None:
    world.rules |= {"A": {rule("orders")}, "B": NotAuthorized("DescribeAcls refused", where='"B"', remedy="Describe")}
    with pytest.raises(NotAuthorized) as caught:
        world.pass_over()
    assert str(caught.value) == 'NOT_AUTHORIZED: "B": DescribeAcls refused; grant Alter on the cluster'


def test_a_rule_that_is_refused_is_named_once_and_the_others_are_made(
    world: AclClusters, caplog: pytest.LogCaptureFixture
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
    assert caplog.messages[-1] == "A->B: access rules are accepted again"


def test_rules_left_out_are_named_once_and_a_denial_is_a_warning(
    world: AclClusters, caplog: pytest.LogCaptureFixture
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


def test_who_does_not_lead_any_more_changes_nothing(world: AclClusters) -> None:
    world.rules["A"] = {rule("orders")}
    world.leads = False
    assert world.pass_over() == BOTH
    assert world.written == []


def test_many_rules_go_in_lots_and_each_lot_is_kept_before_the_next(world: AclClusters) -> None:
    world.rules["A"] = {rule("orders", user=f"u{number}") for number in range(1200)}
    assert world.pass_over() == [*BOTH, "create 500", "create 500", "create 200"]
    assert [len(kept.made) for kept in world.written] == [500, 1000, 1200]


def test_a_paused_flow_and_one_without_access_rules_do_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert AclClusters(monkeypatch).sync.interval_s() == 600
    assert AclClusters(monkeypatch, "sync.topic.acls.interval.seconds=7\n").sync.interval_s() == 7
    assert AclClusters(monkeypatch, "A->B.state=paused\n").sync.interval_s() is None
    off = "sync.topic.acls.enabled=false\n"
    assert AclClusters(monkeypatch, off).sync.interval_s() is None
    assert AclClusters(monkeypatch, off + GROUPS).sync.interval_s() == 600


def test_what_is_handed_over_is_kept_as_ours_and_the_sync_leaves_it(world: AclClusters) -> None:
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


def test_an_error_between_two_lots_leaves_what_is_made_known(
    world: AclClusters, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_pass_knows_the_names_of_the_running_flow(monkeypatch: pytest.MonkeyPatch) -> None:
    world = AclClusters(monkeypatch, "A->B.topic.rename.1.pattern=ord(?:ers)?\nA->B.topic.rename.1.replacement=one\n")
    world.rules["A"] = {rule("ord", user="ord"), rule("orders", user="orders")}
    world.flow.table.entries["orders", 0] = ENTRY
    world.pass_over()
    assert world.target == {rule("one", user="orders")}


def test_a_pass_asks_for_groups_where_it_matters_which_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def groups(_: object) -> list[str]:
        return ["billing-1", "billing-2"]

    monkeypatch.setattr(sync_module, "list_groups", groups)
    world = AclClusters(
        monkeypatch, GROUPS + "A->B.group.rename.1.pattern=billing-.*\nA->B.group.rename.1.replacement=app\n"
    )
    world.rules["A"] = {rule("billing-2", resource_type=GROUP)}
    world.pass_over()
    assert not world.target
