"""Runs the whole pre-flight: connects, reads, and passes what it read to the pure checks. Changes nothing.

look_at every access --> ids --> each cluster --> each flow --> all flows together
     |                              |               |
     +-- what cannot be reached leaves out what depends on it, and nothing else
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heliograph.config.files.properties import parse_properties
from heliograph.config.findings import Report
from heliograph.config.load import read_bytes
from heliograph.config.secrets import Resolver
from heliograph.config.settings import Flow, Settings
from heliograph.errors import ConfigError, HeliographError
from heliograph.flow.producer_memory import read_expiration_ms
from heliograph.flow.required_topics import wanted_topics
from heliograph.flow.start_checks import read_policies
from heliograph.flow.topic_configs import first_configs
from heliograph.kafka.admin.allowed_operations import allowed
from heliograph.kafka.admin.topic_configs import TopicConfigs, describe_topics
from heliograph.kafka.admin.topics import (
    EARLIEST,
    LATEST,
    broker_configs,
    forgets_producers,
    list_offsets,
    topic_configs,
)
from heliograph.kafka.catalogue import Catalogue
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.security.client_security import PROTOCOLS, Security
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, admin_way
from heliograph.preflight import topics
from heliograph.preflight.applications import check_rights, mirrored_topics, questions
from heliograph.preflight.connect import Look, look_at
from heliograph.preflight.limits import BROKER_KEYS, TOPIC_KEYS, Limits, limits_of_new_topic, parse_limits
from heliograph.preflight.logins import APP, ClusterLogin, list_logins
from heliograph.preflight.rights import check_flow_rights, once
from heliograph.preflight.steps import Step, failed, warned

READ_TIMEOUT_S = 20.0
"""Timeout for all reads of one flow."""
_AT_ONCE = 500
"""Maximum number of topics in one request for their configs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterViews:
    """What the first steps found, for the later steps."""

    settings: Settings
    looks: Sequence[Look]
    """Logins of admins whose cluster returned its topics."""

    @property
    def catalogues(self) -> dict[str, Catalogue]:
        """Returns each cluster's topics, as its first admin sees them."""
        return {
            alias: self._client(look).catalogue for alias, look in reversed([(x.access.alias, x) for x in self.looks])
        }

    def admins(self, flow: Flow) -> tuple[Cluster, Cluster] | None:
        """Returns the flow's clients of its source and its target; None if one of them does not answer."""
        found = [
            self._client(look)
            for role in (Role.SOURCE_ADMIN, Role.TARGET_ADMIN)
            for look in self.looks
            if look.access.serves(flow, role)
        ]
        return (found[0], found[1]) if len(found) == 2 else None

    @staticmethod
    def _client(look: Look) -> Cluster:
        assert look.cluster is not None
        return look.cluster


async def check_clusters(settings: Settings) -> list[Step]:
    """Checks the clusters of all enabled flows."""
    looks = await asyncio.gather(*(look_at(access) for access in list_logins(settings)))
    steps = [step for look in looks for step in look.steps]
    async with _closing(looks):
        view, unread = await _view(settings, looks)
        steps += unread
        steps += topics.check_ways(
            [(look.access.alias, look.access.role, look.cluster_id) for look in looks if look.cluster]
        )
        ids: dict[str, str] = {}
        for look in _admins(looks):
            if look.cluster:
                ids.setdefault(look.access.alias, look.cluster_id)
        steps += topics.check_ids(ids)
        for alias, catalogue in view.catalogues.items():
            steps += topics.check_replicas(alias, catalogue)
        flows = settings.enabled_flows
        for found in await asyncio.gather(*(_guarded(flow, _check_flow(flow, view)) for flow in flows)):
            steps += found
        if view.catalogues:
            steps += topics.check_collisions(flows, view.catalogues)
            steps += topics.check_cycles(flows, view.catalogues)
        rights = await asyncio.gather(*(_guarded(flow, _check_rights(flow, view)) for flow in flows))
        steps += once(step for found in rights for step in found)
    return steps


async def _check_rights(flow: Flow, view: ClusterViews) -> list[Step]:
    admins = view.admins(flow)
    if admins is None:
        return []
    source, target = admins
    return await check_flow_rights(flow, view.settings, source=source, target=target, catalogue=source.catalogue)


@contextlib.asynccontextmanager
async def _closing(looks: Sequence[Look]) -> AsyncIterator[None]:
    try:
        yield
    finally:
        for look in looks:
            if look.cluster is not None:
                look.cluster.close()


def _admins(looks: Sequence[Look]) -> list[Look]:
    return [look for look in looks if look.access.is_admin]


async def _view(settings: Settings, looks: Sequence[Look]) -> tuple[ClusterViews, list[Step]]:
    """Reads the topics with each admin login; adds a step for each that fails."""
    admins = [look for look in _admins(looks) if look.cluster is not None]
    answers = await asyncio.gather(
        *(look.cluster.refresh() for look in admins if look.cluster is not None), return_exceptions=True
    )
    seen: list[Look] = []
    steps: list[Step] = []
    for look, answer in zip(admins, answers, strict=True):
        if isinstance(answer, HeliographError):
            steps.append(failed("topics", answer).of(look.access.alias, look.access.role))
        elif isinstance(answer, BaseException):
            raise answer
        else:
            seen.append(look)
    return ClusterViews(settings=settings, looks=seen), steps


# -- one flow


async def _guarded(flow: Flow, work: Awaitable[list[Step]]) -> list[Step]:
    """Limits the time of one flow's check, and keeps its errors from the other flows."""
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            return await work
    except HeliographError as error:
        return [failed("topics", error).of(flow.name)]
    except TimeoutError:
        what = f"topics and settings could not be read within {READ_TIMEOUT_S:g} s"
        return [failed("topics", what, "check whether a broker is overloaded or has no controller").of(flow.name)]


async def _check_flow(flow: Flow, view: ClusterViews) -> list[Step]:
    admins = view.admins(flow)
    if admins is None:
        return []
    source_cluster, target_cluster = admins
    source, target = source_cluster.catalogue, target_cluster.catalogue
    wanted = wanted_topics(flow, source)
    steps = topics.check_factors(flow, source, target)
    steps += topics.check_storage(flow, target)
    policies = await read_policies(flow, source=source_cluster, target=target_cluster)
    steps += topics.check_policies(flow, policies)
    steps += topics.check_names(flow, source, target)
    steps += topics.check_partitions(flow, source, target)
    steps += topics.check_memory(
        flow,
        is_short=await forgets_producers(target_cluster),
        expiration_ms=await read_expiration_ms(target_cluster),
    )
    limits, unread = await _read_limits(flow, source_cluster, target_cluster, wanted)
    steps += topics.check_limits(flow, limits, unread)
    records = await _count_records(target_cluster, [r for r in wanted.values() if r in target.topics])
    try:
        ours = await _own_topics(flow, target_cluster) if any(records.values()) else set[str]()
    except HeliographError as error:
        what = f"the topics that this flow wrote cannot be read: {error.what}"
        return [*steps, warned("names", what, error.remedy).of(flow.name)]
    return steps + topics.check_foreign(flow, records, ours)


async def _read_limits(
    flow: Flow, source: Cluster, target: Cluster, wanted: Mapping[str, str]
) -> tuple[dict[str, tuple[Limits, Limits]], list[str]]:
    """Returns limits by source topic, and the topics whose configs one side does not show."""
    there = [remote for remote in wanted.values() if remote in target.catalogue.topics]
    described = (await describe_topics(source, list(wanted))).found
    ours = {name: parse_limits(_values(configs)) for name, configs in described.items()}
    theirs = await _topic_limits(target, there)
    is_any_new = len(there) < len(wanted)
    defaults = await broker_configs(target, list(BROKER_KEYS.values())) if is_any_new else None
    if defaults is not None:
        theirs |= {
            remote: limits_of_new_topic(defaults, first_configs(described.get(name, {}), flow.topic_sync))
            for name, remote in wanted.items()
            if remote not in target.catalogue.topics
        }
    found = {name: (ours[name], theirs[remote]) for name, remote in wanted.items() if name in ours and remote in theirs}
    # Limits of topics that do not exist yet are the broker's own configs, which a mirror may not be allowed to see.
    known = [name for name, remote in wanted.items() if remote in there or name not in ours]
    return found, [name for name in known if name not in found]


def _values(configs: TopicConfigs) -> dict[str, str]:
    return {key: entry.value for key, entry in configs.items() if entry.value is not None}


async def _topic_limits(cluster: Cluster, names: Sequence[str]) -> dict[str, Limits]:
    found: dict[str, Limits] = {}
    for at in range(0, len(names), _AT_ONCE):
        configs = await topic_configs(cluster, names[at : at + _AT_ONCE], TOPIC_KEYS)
        found |= {name: parse_limits(values) for name, values in configs.items()}
    return found


async def _count_records(cluster: Cluster, names: Sequence[str]) -> dict[str, int]:
    """Counts offsets between the ends of each topic's logs; partitions without a leader count as empty."""
    wanted = [
        TopicPartition(name, index) for name in names for index in range(len(cluster.catalogue.topics[name].partitions))
    ]
    starts, ends = await list_offsets(cluster, wanted, EARLIEST), await list_offsets(cluster, wanted, LATEST)
    counts = dict.fromkeys(names, 0)
    for where in wanted:
        if not starts[where].error_code and not ends[where].error_code:
            counts[where.topic] += ends[where].offset - starts[where].offset
    return counts


async def _own_topics(flow: Flow, target: Cluster) -> set[str]:
    """Returns the target topics into which the flow, or MirrorMaker 2 before it, has written."""
    known: set[str] = set()
    if flow.ledger_topic in target.catalogue.topics:
        ledger = await store.read_ledger(target, flow.ledger_topic, flow.group_id)
        known |= {topic for topic, _ in ledger.entries}
    if flow.offset_storage_topic in target.catalogue.topics:
        stored = await store.read_positions(
            target, flow.offset_storage_topic, flow.source, connector=flow.connector_name
        )
        known |= {topic for topic, _ in stored.found}
    return {flow.remote_topic(topic) for topic in known}


# -- an application


async def check_app_user(settings: Settings, properties_file: Path) -> list[Step]:
    """Checks whether an application's client properties would work on the targets of the enabled flows.

    Its `bootstrap.servers` are those of the source, so the configuration's are used instead: a failover should need
    nothing but another address.
    """
    security = read_app_security(properties_file)
    flows = settings.enabled_flows
    aliases = [alias for alias in settings.clusters if any(flow.target == alias for flow in flows)]
    found = await asyncio.gather(*(_check_app(settings, alias, security) for alias in aliases))
    return [step for steps in found for step in steps]


def read_app_security(properties_file: Path) -> Security:
    """Reads the security settings of a Java client's properties; raises ConfigError."""
    report = Report(str(properties_file))
    entries = parse_properties(read_bytes(properties_file), report)
    entries = Resolver().resolve_all(entries, report)
    report.raise_errors()
    values = {key: entry.value for key, entry in entries.items()}
    protocol = values.pop("security.protocol", "PLAINTEXT").strip().upper()
    if protocol not in PROTOCOLS:
        raise ConfigError(
            f'security.protocol "{protocol}" is not known',
            where=str(properties_file),
            remedy=f"one of {', '.join(PROTOCOLS)}",
        )
    return Security(protocol, {key: value for key, value in values.items() if key.startswith(("ssl.", "sasl."))})


async def _check_app(settings: Settings, alias: str, security: Security) -> list[Step]:
    bootstrap = admin_way(settings, alias).bootstrap
    look = await look_at(ClusterLogin(alias=alias, roles=(APP,), bootstrap=bootstrap, security=security))
    steps = list(look.steps)
    async with _closing([look]):
        if look.cluster is None:
            return steps
        try:
            async with asyncio.timeout(READ_TIMEOUT_S):
                names = mirrored_topics(
                    [flow for flow in settings.enabled_flows if flow.target == alias],
                    await _topics_seen_by_admin(settings, alias) or (await look.cluster.refresh()).topics,
                )
                there = await allowed(look.cluster, questions(names))
        except HeliographError as error:
            return [*steps, failed("rights", error).of(alias, APP)]
        except TimeoutError:
            what = f"no answer within {READ_TIMEOUT_S:g} s"
            return [*steps, failed("rights", what, "check whether a broker is overloaded").of(alias, APP)]
        return [*steps, *check_rights(alias, names, there)]


async def _topics_seen_by_admin(settings: Settings, alias: str) -> list[str]:
    """Lists all topics; the application sees only those that it may use. Empty if the admin cannot log in."""
    access = next(access for access in list_logins(settings) if access.alias == alias)
    cluster = Cluster(alias, access.bootstrap, client_id="heliograph-check", timeout_s=5.0, security=access.security)
    with contextlib.closing(cluster):
        try:
            return list((await cluster.refresh()).topics)
        except HeliographError:
            return []
