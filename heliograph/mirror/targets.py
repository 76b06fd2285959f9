"""The topics of a flow on the target: made, grown, and what they accept.

A topic that the target refuses concerns that topic alone; the refusal is logged once
and tried again with every look.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from heliograph.config.settings import Flow
from heliograph.errors import ClusterError, HeliographError
from heliograph.kafka.admin import create_partitions, create_topics, topic_configs
from heliograph.kafka.cluster import Catalogue, Cluster
from heliograph.mirror.demand import new_copy
from heliograph.mirror.spells import Spell
from heliograph.mirror.store import wait_for_topics

log = logging.getLogger("heliograph")

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
_LIMITS = ("max.message.bytes", "message.timestamp.type")


@dataclass(frozen=True, slots=True)
class TargetLimits:
    """What a target topic accepts, and what it changes."""

    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    stamps_time: bool = False


class TargetTopics:
    """The target's side of the topics that a flow mirrors."""

    def __init__(self, flow: Flow, cluster: Cluster) -> None:
        self._flow = flow
        self._cluster = cluster
        self._spell = Spell()
        self._limits: dict[str, TargetLimits] = {}
        self.refused: dict[str, HeliographError] = {}
        """By name on the target."""

    def apply(self, flow: Flow) -> None:
        """New topics are made by the changed settings."""
        self._flow = flow

    def limits(self, remote: str) -> TargetLimits:
        return self._limits.get(remote, TargetLimits())

    async def ensure(self, source: Catalogue, wanted: Mapping[str, str]) -> Catalogue:
        """Create missing topics, grow short ones, read what they accept; the target's catalogue after that."""
        target = self._cluster.catalogue
        counts = {remote: len(source.topics[topic].partitions) for topic, remote in wanted.items()}
        missing = [
            new_copy(self._flow, topic, partitions=counts[remote])
            for topic, remote in wanted.items()
            if remote not in target.topics
        ]
        short = {
            remote: count
            for remote, count in counts.items()
            if remote in target.topics
            and len(target.topics[remote].partitions) < count
            and not self._flow.remaps_partitions
        }
        results: dict[str, HeliographError | None] = dict.fromkeys(counts)
        results.update(await create_topics(self._cluster, missing) if missing else {})
        results.update(await create_partitions(self._cluster, short) if short else {})
        self._note(results)
        made = [name for name in (*(topic.name for topic in missing), *short) if results[name] is None]
        if made:
            await wait_for_topics(self._cluster, made)
            target = await self._cluster.refresh()
        await self._read_limits([remote for remote in counts if remote in target.topics])
        return target

    def _note(self, results: Mapping[str, HeliographError | None]) -> None:
        for remote, error in results.items():
            if error is None:
                if self.refused.pop(remote, None) is not None:
                    log.info('%s: "%s" is as it should be now', self._flow.name, remote)
            elif str(self.refused.get(remote)) != str(error):
                self.refused[remote] = error
                log.error("%s: not mirrored in full: %s", self._flow.name, error)

    async def _read_limits(self, remotes: Sequence[str]) -> None:
        if not remotes:
            return
        try:
            configs = await topic_configs(self._cluster, remotes, _LIMITS)
        except ClusterError as error:
            if self._spell.is_news(str(error)):
                log.warning("%s: limits of the target's topics not read: %s", self._flow.name, error)
            return
        if lasted := self._spell.end():
            log.info("%s: limits of the target's topics are read again %s", self._flow.name, lasted)
        for name, values in configs.items():
            self._limits[name] = TargetLimits(
                int(values.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
                values.get("message.timestamp.type") == "LogAppendTime",
            )
