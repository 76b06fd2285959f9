"""Groups' offsets by the ledger on a target, for any offset, whether or not a checkpoint has it.

They are exact, or with `offset.translation=mm2` those of MirrorMaker 2's rule.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from heliograph.client.checkpoints import Offsets, Translated, Wanted
from heliograph.errors import BrokerRefused, ConfigError
from heliograph.kafka.admin.topics import EARLIEST, LATEST, list_offsets
from heliograph.kafka.catalogue import Catalogue
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.error_codes import Code
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.records.seen_group import GroupCommit
from heliograph.ledger.translation import Grade, JointTranslation, Syncs, Translation, lowest_translations
from heliograph.names.policies import ReplicationPolicy


async def read_ledger(cluster: Cluster, alias: str, *, group_id: str | None, topics: Iterable[str]) -> Ledger:
    """The ledger of the flow from `alias`, from the first topic that has one; the mirror's `group.id` may be given."""
    names = list(topics)
    present = (await cluster.refresh(names)).topics
    for topic in names:
        if topic not in present:
            continue
        ledgers = await store.read_ledgers(cluster, topic, group_id=group_id)
        claimed = [ledger for ledger in ledgers if ledger.claim is not None]
        if len(claimed) > 1:
            raise ConfigError(
                f'several mirrors have their ledger in "{topic}"',
                where=f'"{cluster.alias}"',
                remedy=f"choose one by group.id: {', '.join(sorted(ledger.group_id for ledger in claimed))}",
            )
        if claimed:
            return claimed[0]
    raise BrokerRefused(
        f'there is no ledger of "{alias}"',
        where=f'"{cluster.alias}"',
        why="nothing was ever mirrored from there by heliograph, or we may not read it",
        remedy="check the alias, and the right to Read the topic; checkpoints may tell more",
        error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
    )


class Knowledge(NamedTuple):
    """The data on the target by which offsets are translated."""

    ledger: Ledger
    syncs: Syncs | None
    """The offset syncs where MirrorMaker 2's rule counts; None: the ledger translates."""


async def translate_groups(
    cluster: Cluster, alias: str, known: Knowledge, policy: ReplicationPolicy, wanted: Wanted
) -> dict[str, Offsets]:
    """Return where each group goes on that was seen on the source."""
    ledger = known.ledger
    commits = {name: seen.commits for name, seen in ledger.groups.items() if seen.commits and wanted(name)}
    places = {where for found in commits.values() for where in found}
    remotes = {where: _remote(ledger, policy, alias, where) for where in places}
    bounds = await _bounds(cluster, set(remotes.values()))
    return {name: _translated(known, remotes, found, bounds) for name, found in commits.items()}


async def translate_positions(
    cluster: Cluster, alias: str, known: Knowledge, policy: ReplicationPolicy, offsets: Mapping[TopicPartition, int]
) -> Offsets:
    """Return where anybody goes on who stands at these offsets of the source; partitions never mirrored are left
    out."""
    remotes = {where: _remote(known.ledger, policy, alias, where) for where in offsets}
    bounds = await _bounds(cluster, set(remotes.values()))
    found = {where: GroupCommit(offset, "") for where, offset in offsets.items()}
    return _translated(known, remotes, found, bounds)


def _remote(ledger: Ledger, policy: ReplicationPolicy, alias: str, where: TopicPartition) -> TopicPartition:
    return TopicPartition(policy.format_remote_topic(alias, where.topic), ledger.target_partition(where))


_Bounds = dict[TopicPartition, tuple[int, int]]
_ANYWHERE = (0, 1 << 62)


async def _bounds(cluster: Cluster, partitions: set[TopicPartition]) -> _Bounds:
    """Where the logs of the target begin and end. Partitions that it does not have are left out; of one whose leader
    stays away the translation stands as it is."""
    bounds: _Bounds = {}
    for pause_s in (0.2, 0.5, 1.0, 0.0):
        catalogue = await cluster.refresh({where.topic for where in partitions})
        asked = {where for where in partitions - bounds.keys() if _is_there(catalogue, where)}
        starts, ends = await asyncio.gather(
            list_offsets(cluster, asked, EARLIEST), list_offsets(cluster, asked, LATEST)
        )
        silent = {where for where in asked if starts[where].error_code or ends[where].error_code}
        bounds |= {where: (starts[where].offset, ends[where].offset) for where in asked - silent}
        if not silent:
            return bounds
        await asyncio.sleep(pause_s)
    return bounds | dict.fromkeys(silent, _ANYWHERE)


def _is_there(catalogue: Catalogue, where: TopicPartition) -> bool:
    topic = catalogue.topics.get(where.topic)
    return topic is not None and where.partition < len(topic.partitions)


def _translated(
    known: Knowledge,
    remotes: Mapping[TopicPartition, TopicPartition],
    commits: Mapping[TopicPartition, GroupCommit],
    bounds: _Bounds,
) -> Offsets:
    """Translate the commits of one group; partitions that the target does not have are left out."""
    translations: dict[TopicPartition, Translation | None] = {}
    for where, commit in commits.items():
        found = known.ledger.translate(where, commit.offset, syncs=known.syncs)
        if found is None:
            translations[where] = None
        elif remotes[where] in bounds:
            translations[where] = found.within(*bounds[remotes[where]])
    joint = lowest_translations(translations, remotes.__getitem__)
    return {remote: _answer(known.ledger, commits[found.lowest], found) for remote, found in joint.items()}


def _answer(ledger: Ledger, commit: GroupCommit, found: JointTranslation) -> Translated:
    """Make an answer of where a group goes on in one partition of the target; `commit` is the one that counts."""
    again = ledger.reread(found) if found.is_shared else 0
    grade = found.parts[found.lowest].grade
    return Translated(
        found.offset,
        commit.metadata,
        commit.offset,
        str(Grade.SHARED if again and grade is not Grade.DEGRADED else grade),
        ahead=sum(part.ahead for part in found.parts.values()),
        reread=again,
    )
