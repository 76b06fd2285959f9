"""Access rules follow the source: by MM2's rule, with what goes beyond it, and no right to write before its time."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import pytest

from heliograph.config import load_settings
from heliograph.lab import LabCluster
from heliograph.recovery.write_rights import Handover, hand_write_over
from tests.cluster.mirror import MirrorProcess, View, create_topic, produce, unique, wait_until
from tests.cluster.rules import Rule, add_rules, can_read, can_write, remove_rules, rules_of
from tests.cluster.test_rights import IDENTITY, Guarded

VALUES = [b"%d" % number for number in range(20)]
SOON = {"sync.topic.acls.interval.seconds": "1"}


def wait_for_rules(mirror: MirrorProcess, cluster: LabCluster, users: Iterable[str], wanted: set[Rule]) -> None:
    """Until a cluster has exactly these rules about the users."""
    try:
        mirror.wait_until(lambda: rules_of(cluster, users) == wanted, 60, what="the rules wanted")
    except AssertionError as error:
        found = rules_of(cluster, users)
        raise AssertionError(f"too many: {found - wanted}, missing: {wanted - found}\n{error}") from None


def lines(mirror: MirrorProcess, text: str) -> list[str]:
    return [line for line in mirror.stderr if text in line]


@pytest.mark.timeout(300)
def test_sync_topic_acls_both_ways_by_mm2s_rule(
    north: LabCluster, south: LabCluster, primary: LabCluster, tmp_path: Path
) -> None:
    """The outcome of MM2's testSyncTopicACLsUseProvidedForwardingAdmin, testAclFiltering and testAclTransformation."""
    prefix, users = unique("acl"), [unique(name) for name in ("app", "boss", "mallory")]
    app, boss, mallory = users
    orders = create_topic(north, f"{prefix}.orders")
    stock = create_topic(south, f"{prefix}.stock")
    other = create_topic(north, unique("other"))
    produce(north, orders, VALUES)
    there = [
        Rule(app, "DESCRIBE", orders),
        Rule(app, "READ", orders),
        Rule(app, "WRITE", orders),
        Rule(boss, "ALL", orders),
        Rule(mallory, "ALL", orders, permission="DENY"),
        Rule(mallory, "WRITE", orders, host="10.0.0.7", permission="DENY"),
        Rule(boss, "ALTER_CONFIGS", orders),
    ]
    stay = [
        Rule(app, "READ", other),
        Rule(app, "READ", f"{prefix}.", "PREFIXED"),
        Rule(mallory, "READ", "*", permission="DENY"),
        Rule(app, "READ", unique("group"), kind="GROUP"),
    ]
    add_rules(north, *there, *stay)
    add_rules(south, Rule(app, "DESCRIBE", stock), Rule(app, "WRITE", stock))
    copy = f"north.{orders}"
    add_rules(south, Rule(boss, "READ", copy))  # before us
    own = {Rule(app, "DESCRIBE", stock), Rule(app, "WRITE", stock)}
    copied = {
        Rule(app, "DESCRIBE", copy),
        Rule(app, "READ", copy),
        Rule(boss, "READ", copy),
        Rule(mallory, "ALL", copy, permission="DENY"),
        Rule(mallory, "WRITE", copy, host="10.0.0.7", permission="DENY"),
        Rule(boss, "ALTER_CONFIGS", copy),
    }
    keys = {
        "north->south.topics": f"{prefix}.*",
        "south->north.topics": f"{prefix}.*",
        "primary->south.topics": unique("nothing"),
        "heartbeats.replication.enabled": "false",
        **SOON,
    }
    with MirrorProcess(tmp_path, {"north": north, "south": south, "primary": primary}, keys) as mirror:
        wait_for_rules(mirror, south, users, own | copied)
        wait_for_rules(mirror, north, users, {*there, *stay, Rule(app, "DESCRIBE", f"south.{stock}")})
        mirror.wait_mirrored(View(north, orders), View(south, copy))
        wait_until(lambda: can_read(south, app, copy), 20, what="reading by the rules that were copied")
        assert can_write(north, app, orders)
        assert not can_write(south, app, copy)
        assert not can_write(south, boss, copy)
        assert not can_read(south, mallory, copy)
        # A rule that comes is copied, one that goes stays on the target, one that somebody removed there comes back.
        add_rules(north, Rule(boss, "DESCRIBE_CONFIGS", orders))
        wait_for_rules(mirror, south, users, own | copied | {Rule(boss, "DESCRIBE_CONFIGS", copy)})
        remove_rules(north, Rule(app, "DESCRIBE", orders))
        remove_rules(south, Rule(boss, "ALTER_CONFIGS", copy))
        mirror.wait_until(lambda: len(lines(mirror, 'made on "south"')) == 3, 30, what="the removed rule")
        add_rules(north, Rule(app, "DESCRIBE_CONFIGS", orders))
        after = own | copied | {Rule(boss, "DESCRIBE_CONFIGS", copy), Rule(app, "DESCRIBE_CONFIGS", copy)}
        wait_for_rules(mirror, south, users, after)
        mirror.wait_for('primary->south: no access rules are copied: "primary" has no authorizer')
        assert len(lines(mirror, "has no authorizer")) == 1
        assert len(lines(mirror, "removed on")) == 0
        assert len(lines(mirror, "north->south: not copied without sync.topic.acls.prefixed=true")) == 1
        made = lines(mirror, 'made on "south"')
        assert [line.partition("north->south: ")[2].partition(" on ")[0] for line in made] == [
            "5 access rules made",  # of the six one was there before us
            *["1 access rule made"] * 3,
        ]
        assert "access rules:" not in mirror.output, mirror.output
    remove_rules(north, *stay)  # other tests' mirrors would name them


class Failover:
    """A flow under the same names, with all that goes beyond MM2, and what became of its write grants."""

    def __init__(self, north: LabCluster, south: LabCluster, folder: Path) -> None:
        self.prefix = unique("fail")
        keys = {
            "north->south.topics": f"{self.prefix}.*",
            "north->south.groups": f"{self.prefix}.*",
            "replication.policy.class": IDENTITY,
            "heartbeats.replication.enabled": "false",
            "sync.topic.acls.prefixed": "true",
            "sync.topic.acls.delete": "true",
            "sync.group.acls.enabled": "true",
            "write.on.failover": "true",
            **SOON,
        }
        self.mirror = MirrorProcess(folder, {"north": north, "south": south}, keys)

    def hand_over(self, *, dry_run: bool) -> Handover:
        settings = load_settings(self.mirror.config)
        [flow] = settings.enabled_flows
        handover = asyncio.run(hand_write_over(settings, flow, dry_run=dry_run))
        assert handover.refused == {}
        return handover


@pytest.mark.timeout(300)
def test_wide_rules_groups_removal_and_the_hand_over_of_writing(
    north: LabCluster, south: LabCluster, tmp_path: Path
) -> None:
    world = Failover(north, south, tmp_path)
    mirror, prefix = world.mirror, world.prefix
    users = [unique(name) for name in ("app", "team", "auditor", "veteran", "boss")]
    app, team, auditor, veteran, boss = users
    orders, audit = create_topic(north, f"{prefix}.orders"), create_topic(north, f"{prefix}.audit")
    for topic in (orders, audit):
        produce(north, topic, VALUES)
    billing = f"{prefix}-billing"
    lasting = [
        Rule(app, "READ", orders),
        Rule(app, "READ", billing, kind="GROUP"),
        Rule(team, "READ", f"{prefix}.", "PREFIXED"),
    ]
    passing = [
        Rule(auditor, "READ", "*"),
        Rule(veteran, "READ", orders),
        Rule(app, "DESCRIBE", billing, kind="GROUP"),
        Rule(team, "DESCRIBE_CONFIGS", f"{prefix}.", "PREFIXED"),
    ]
    writing = [
        Rule(app, "WRITE", orders),
        Rule(team, "WRITE", f"{prefix}.", "PREFIXED"),
        Rule(boss, "ALL", audit),
    ]
    stay = [Rule(app, "DELETE", billing, kind="GROUP"), Rule(app, "READ", unique("other"), kind="GROUP")]
    add_rules(north, *lasting, *passing, *writing, *stay)
    before = [Rule(veteran, "READ", orders), Rule(boss, "DESCRIBE", audit), Rule(auditor, "WRITE", audit)]
    add_rules(south, *before)
    copied = {*lasting, *passing[1:], Rule(boss, "READ", audit), *before}
    with mirror:
        every = {Rule(auditor, "READ", name) for name in (orders, audit)}
        wait_for_rules(mirror, south, users, copied | every)
        later = create_topic(north, f"{prefix}.later")
        wait_for_rules(mirror, south, users, copied | every | {Rule(auditor, "READ", later)})
        mirror.wait_for('kept on "south" for a failover: ')
        mirror.wait_mirrored(View(north, orders), View(south, orders))
        wait_until(lambda: can_read(south, app, orders), 20, what="reading by the rules that were copied")
        assert not can_write(south, app, orders)
        mirror.kill()
        # What was made is known from the target alone; what stood there before us stays.
        remove_rules(north, *passing)
        mirror.start()
        remaining = {*lasting, Rule(boss, "READ", audit), *before}
        wait_for_rules(mirror, south, users, remaining)
        wait_until(lambda: can_read(south, team, audit), 20, what="reading by a rule on a prefix")
        assert not can_write(south, team, audit)
        mirror.wait_mirrored(View(north, audit), View(south, audit))
    assert len(lines(mirror, "access rules removed")) == 1
    planned = world.hand_over(dry_run=True).planned
    principals = {f"User:{user}" for user in users}
    assert len([acl for acl in planned if acl.principal in principals]) == len(writing)
    assert rules_of(south, users) == remaining
    assert not can_write(south, app, orders)
    assert world.hand_over(dry_run=False).planned == planned
    wait_until(lambda: rules_of(south, users) == {*remaining, *writing}, 20, what="the grants to write")
    for user, topic in ((app, orders), (team, audit), (boss, audit)):
        wait_until(partial(can_write, south, user, topic), 20, what=f"{user} writing {topic}")
    assert not can_write(south, app, audit)
    assert world.hand_over(dry_run=False).planned == ()


@pytest.mark.timeout(300)
def test_a_missing_right_is_named_once_and_access_rules_follow_when_it_comes(
    north: LabCluster, south: LabCluster, tmp_path: Path
) -> None:
    world = Guarded(north, south, tmp_path, sync_topic_acls_enabled="true", sync_topic_acls_interval_seconds="1")
    app = unique("app")
    add_rules(north, Rule(app, "READ", world.topic))
    kept_back = []
    for user, acls in world.printed().items():
        missing = [acl for acl in acls if user is world.target and acl.name == "kafka-cluster"]
        user.grant([acl for acl in acls if acl not in missing])
        kept_back += missing
    assert [acl.operation for acl in kept_back] == ["Alter"]
    world.produce()
    with world.mirror as mirror:
        world.wait_mirrored()
        refusal = 'syncing ACLs to "south": NOT_AUTHORIZED: "south": DescribeAcls refused'
        mirror.wait_for(refusal, 30)
        mirror.wait_for("lacks Alter on the cluster of", 30)
        world.produce()
        world.wait_mirrored()
        assert rules_of(south, [app]) == set()
        world.target.grant(kept_back)
        wait_for_rules(mirror, south, [app], {Rule(app, "READ", world.topic)})
        mirror.wait_for('syncing ACLs to "south": works again', 30)
        mirror.wait_for("no longer missing: Alter on the cluster", 30)
        assert len(lines(mirror, refusal)) == 1
        assert len(lines(mirror, "lacks Alter on the cluster of")) == 1
