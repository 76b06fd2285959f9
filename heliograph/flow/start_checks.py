"""What would make mirroring wrong: looked for on the clusters before anything is made there.

Each raises a ConfigError with the remedy, and changes nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import NamedTuple
from uuid import UUID

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.errors import ConfigError, NotAuthorized, NotCompacted
from heliograph.flow.required_topics import (
    COMPACT,
    Compacted,
    absent_storage,
    compacted_topics,
    not_compacted,
    too_few_brokers,
)
from heliograph.kafka.admin.groups import CLASSIC, describe_groups
from heliograph.kafka.admin.topics import topic_configs
from heliograph.kafka.catalogue import Catalogue
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import NO_TOPIC_ID
from heliograph.ledger.copy_names import names_of
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import MARKED
from heliograph.ledger.records.lease import LeaseState
from heliograph.ledger.store import read_ledgers
from heliograph.names.filters import is_ledger_topic
from heliograph.names.policies import IdentityPolicy

log = logging.getLogger("heliograph")

CLEANUP_POLICY = "cleanup.policy"
ALIVE_MS = 60_000
"""Who wrote down that he leads a flow so lately is taken to live, whatever his clock."""

FORGETFUL = "has brokers before 2.5: copying is at-least-once where they forget us, behind records that are old or gone"
"""What does not keep a flow from being mirrored, and is said of its target."""


def refuse_one_cluster(flow: Flow, source: Catalogue, target: Catalogue) -> None:
    """Refuse two aliases of one cluster."""
    if source.cluster_id and source.cluster_id == target.cluster_id:
        raise ConfigError(
            f'"{flow.source}" and "{flow.target}" are the same cluster ({source.cluster_id})',
            where=flow.name,
            remedy="check the two bootstrap.servers",
        )


def refuse_nameless(flow: Flow, source: Catalogue, target: Catalogue) -> None:
    """Refuse clusters without an id, by which provenance headers name them."""
    for alias, catalogue in ((flow.source, source), (flow.target, target)):
        if flow.provenance_headers and not catalogue.cluster_id:
            raise ConfigError(
                f'"{alias}" tells no cluster id, by which records would be marked',
                where=flow.name,
                remedy="set provenance.headers = false, and let no flows with identity naming form a cycle",
            )


async def refuse_way_back(flow: Flow, settings: Settings, source: Cluster, target: Catalogue) -> None:
    """Another process that copies the same topics back under the same names; flows of the file are looked at there.

    Its ledger stands on our source. Where that may not be read, nothing is known.
    """
    known = {(other.source, other.target) for other in (*settings.flows, *settings.elsewhere)}
    if not isinstance(flow.policy, IdentityPolicy) or (flow.target, flow.source) in known:
        return
    names = {meta.topic_id: name for name, meta in source.catalogue.topics.items() if meta.topic_id != NO_TOPIC_ID}
    for topic in filter(is_ledger_topic, source.catalogue.topics):
        try:
            ledgers = await read_ledgers(source, topic)
        except NotAuthorized:
            log.info(
                '%s: "%s" may not be read on "%s": whether another process copies the same topics back is not known',
                *(flow.name, topic, flow.source),
            )
            continue
        for ledger in ledgers:
            if _leads_back(ledger, source.catalogue, target) and (back := _topic_back(flow, ledger, names)):
                raise ConfigError(
                    f'another process (group.id "{ledger.group_id}") copies "{back}" from "{flow.target}" to '
                    f'"{flow.source}" under the same name: records would go round for ever',
                    where=flow.name,
                    remedy="set provenance.headers = true for both flows, or stop the other one",
                )


def _leads_back(ledger: Ledger, source: Catalogue, target: Catalogue) -> bool:
    """Whether a ledger is that of a flow the other way, and the flow is led by somebody who lives."""
    claim, lease = ledger.claim, ledger.leadership.lease
    if claim is None or (claim.source_cluster_id, claim.target_cluster_id) != (target.cluster_id, source.cluster_id):
        return False
    is_led = lease is not None and lease.state is not LeaseState.RELEASED
    return is_led and lease is not None and lease.time_ms > wall_ms() - ALIVE_MS


def _topic_back(flow: Flow, ledger: Ledger, names: Mapping[UUID, str]) -> str:
    """Find a topic that is copied there and back without provenance headers on both ways; empty if there is none."""
    for (topic, _), entry in ledger.entries.items():
        copy = names.get(UUID(entry.target_topic_id), "")
        goes_there = names_of(flow, [copy]).get(copy) == topic
        if goes_there and not (flow.provenance_headers and entry.rule.endswith(MARKED)):
            return topic
    return ""


async def refuse_beside_mm2(flow: Flow, target: Cluster) -> None:
    """MirrorMaker 2 at work on the same flow: its workers are the members of the group."""
    try:
        described = await describe_groups(target, {flow.group_id: CLASSIC})
        members = described.the(flow.group_id).members
    except NotAuthorized:
        return  # named among the missing rights
    if members:
        raise ConfigError(
            f'the group "{flow.group_id}" is alive on "{flow.target}": '
            f"MirrorMaker 2 is running there ({', '.join(map(str, members[:3]))})",
            where=flow.name,
            remedy="stop it first, or give this flow another group.id",
        )


def refuse_too_many_replicas(flow: Flow, target: Catalogue, remotes: Collection[str]) -> None:
    """More replicas than the target has brokers.

    Of copies only before the first one is there: later some brokers may be down for a while, and the target refuses
    what it cannot make topic by topic.
    """
    has_begun = any(name in target.topics for name in remotes)
    fault = too_few_brokers(flow, target, () if has_begun else remotes)
    if fault is not None:
        raise fault


class Policies(NamedTuple):
    """The `cleanup.policy` of a flow's internal topics that exist."""

    found: dict[Compacted, str]
    unread: list[Compacted]
    """Those whose settings we may not see."""

    def faults(self, flow: Flow) -> list[tuple[Compacted, NotCompacted]]:
        return [
            (topic, not_compacted(topic, policy, where=flow.name))
            for topic, policy in self.found.items()
            if policy != COMPACT
        ]


async def read_policies(flow: Flow, *, source: Cluster, target: Cluster) -> Policies:
    policies = Policies({}, [])
    for cluster in (target, source):
        wanted = {
            item.topic: item
            for item in compacted_topics(flow)
            if item.alias == cluster.alias and item.topic in cluster.catalogue.topics
        }
        configs = await topic_configs(cluster, list(wanted), [CLEANUP_POLICY]) if wanted else {}
        for name, item in wanted.items():
            policy = configs.get(name, {}).get(CLEANUP_POLICY)
            if policy is None:
                policies.unread.append(item)
            else:
                policies.found[item] = policy
    return policies


async def refuse_uncompacted(flow: Flow, *, source: Cluster, target: Cluster) -> list[NotCompacted]:
    """Topics with the flow's state that retention would empty; gives what mirroring can do without.

    Kafka Connect refuses to start with such topics of its own. Where their settings are not shown nothing is known.
    """
    faults = (await read_policies(flow, source=source, target=target)).faults(flow)
    for topic, fault in faults:
        if topic.is_vital:
            raise fault
    return [fault for _, fault in faults]


def refuse_absent_storage(flow: Flow, target: Catalogue) -> ConfigError | None:
    """Internal topics that are missing and not to be made; gives what mirroring can do without."""
    fault = absent_storage(flow, target)
    if fault is not None and fault.details["is_vital"]:
        raise fault
    return fault
