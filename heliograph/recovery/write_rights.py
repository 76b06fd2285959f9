"""Grants the rights to write on the target when the source is lost. Needs the target alone.

While a flow mirrors, copies get no grants to write; with `write.on.failover` they are kept in its ledger instead.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from heliograph.config.settings import Flow, Settings
from heliograph.errors import HeliographError
from heliograph.kafka.admin.acls import Acl, create_acls, describe_acls, in_lots
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, cluster_of
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.records.kept_acls import KeptAcls


@dataclass(frozen=True, slots=True, kw_only=True)
class Handover:
    """The ACLs that were to be created, and those that the target refused."""

    planned: tuple[Acl, ...]
    refused: dict[Acl, HeliographError] = field(default_factory=dict)


def plan_write_handover(kept: Iterable[KeptAcls], target: Collection[Acl]) -> tuple[Acl, ...]:
    """Plans the ACLs to create on the target: grants to write that were withheld and do not exist there."""
    there = frozenset(target)
    return tuple(sorted((acl for record in kept for acl in record.withheld - there), key=str))


async def apply_write_handover(cluster: Cluster, ledger: Ledger, planned: Collection[Acl]) -> Handover:
    """Creates the ACLs, and stores that they are ours; may be repeated."""
    refused: dict[Acl, HeliographError] = {}
    for few in in_lots(list(planned)):
        outcome = await create_acls(cluster, few)
        refused |= {acl: error for acl, error in outcome.items() if error is not None}
    made = frozenset(planned) - refused.keys()
    changed = [
        replace(record, handed=record.handed | (record.withheld & made))
        for record in ledger.acls.values()
        if record.withheld & made - record.handed
    ]
    await store.write_records(cluster, ledger.topic, ledger.group_id, changed)
    return Handover(planned=tuple(planned), refused=refused)


async def hand_write_over(settings: Settings, flow: Flow, *, dry_run: bool) -> Handover:
    """Grants the applications of a flow's source their rights to write on its target; a dry run returns the plan."""
    cluster = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{flow.name}|write-rights")
    try:
        await cluster.refresh()
        ledger = await store.find_ledger(cluster, flow)
        if ledger is None:
            return Handover(planned=())
        planned = plan_write_handover(ledger.acls.values(), await describe_acls(cluster))
        return Handover(planned=planned) if dry_run else await apply_write_handover(cluster, ledger, planned)
    finally:
        cluster.close()
