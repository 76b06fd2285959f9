"""What would make mirroring wrong: looked for on the clusters before anything is made there.

Each raises a ConfigError with the remedy, and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from heliograph.config.settings import Flow
from heliograph.errors import ConfigError, NotAuthorized
from heliograph.kafka.cluster import Catalogue, Cluster
from heliograph.kafka.groups import CLASSIC, describe_groups
from heliograph.mirror.demand import absent_storage, too_few_brokers

FORGETFUL = "has brokers before 2.5: copying is at-least-once where they forget us, behind records that are old or gone"
"""What does not keep a flow from being mirrored, and is said of its target."""


def refuse_one_cluster(flow: Flow, source: Catalogue, target: Catalogue) -> None:
    """Two aliases of one cluster."""
    if source.cluster_id and source.cluster_id == target.cluster_id:
        raise ConfigError(
            f'"{flow.source}" and "{flow.target}" are the same cluster ({source.cluster_id})',
            where=flow.name,
            remedy="check the two bootstrap.servers",
        )


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


def refuse_too_many_replicas(flow: Flow, target: Catalogue, remotes: Iterable[str]) -> None:
    """More replicas than the target has brokers."""
    fault = too_few_brokers(flow, target, remotes)
    if fault is not None:
        raise fault


def refuse_absent_storage(flow: Flow, target: Catalogue) -> ConfigError | None:
    """Internal topics that are missing and not to be made; gives what mirroring can do without."""
    fault = absent_storage(flow, target)
    if fault is not None and fault.details["is_vital"]:
        raise fault
    return fault
