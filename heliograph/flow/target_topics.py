"""The topics of a flow on the target: made, grown, and what they accept.

A topic that the target refuses concerns that topic alone; the refusal is logged once
and tried again with every look.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from heliograph.config.settings import Flow
from heliograph.errors import BrokerRefused, ClusterError, ConfigError, HeliographError, NotAuthorized
from heliograph.flow.required_topics import new_copy
from heliograph.flow.topic_configs import follows_configs, unjudged_configs
from heliograph.flow.topic_refusals import TopicRefusals, advised
from heliograph.kafka.admin.topic_configs import describe_topics
from heliograph.kafka.admin.topics import create_partitions, create_topics, topic_configs
from heliograph.kafka.catalogue import Catalogue
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.error_codes import Code
from heliograph.kafka.log import APPEND_BYTES
from heliograph.ledger.store import wait_for_topics
from heliograph.outage_log import Outage

log = logging.getLogger("heliograph")

DEFAULT_MAX_MESSAGE_BYTES = 1_048_588
LIMITS = ("max.message.bytes", "message.timestamp.type")
"""Settings of a target's topics that lanes are told."""
LIMITS_S = 30.0
"""How often what all topics accept is read again; of a topic that is new, with the next look."""


@dataclass(frozen=True, slots=True)
class TargetLimits:
    """What a target topic accepts, and what it changes."""

    max_message_bytes: int = DEFAULT_MAX_MESSAGE_BYTES
    stamps_time: bool = False


class TargetTopics:
    """Makes and grows the target's side of the topics that a flow mirrors, and reads what they accept."""

    def __init__(self, flow: Flow, cluster: Cluster, *, source: Cluster) -> None:
        self._flow = flow
        self._cluster = cluster
        self._source = source
        self._spell = Outage()
        self._unread = Outage()
        self._limits: dict[str, TargetLimits] = {}
        self._limits_of: dict[str, UUID] = {}
        """The ids of the topics whose limits are known."""
        self._limits_read_at = 0.0
        self._unjudged: set[str] = set()
        self.denials = TopicRefusals()
        """By name on the target."""

    def apply(self, flow: Flow) -> None:
        """Make new topics by changed settings."""
        self._flow = flow

    def __len__(self) -> int:
        """Count the topics whose limits are known."""
        return len(self._limits)

    def limits(self, remote: str) -> TargetLimits:
        return self._limits.get(remote, TargetLimits())

    def append_bytes(self, *internal: str) -> int:
        """Give the most bytes of one batch that all of these internal topics take and that is worth sending."""
        return min(APPEND_BYTES, *(self.limits(topic).max_message_bytes for topic in internal))

    @property
    def refused(self) -> Mapping[str, HeliographError]:
        """By name on the target, the topics that it did not make or grow."""
        return self.denials.errors

    def refusals(self, wanted: Mapping[str, str]) -> dict[str, HeliographError]:
        """Give the topics, by their names on the source, that the target did not make or grow."""
        return {topic: self.refused[remote] for topic, remote in wanted.items() if remote in self.refused}

    def forget_limits(self, remotes: Iterable[str]) -> None:
        """Read with the next refresh what these topics accept: it has changed."""
        for remote in remotes:
            self._limits_of.pop(remote, None)

    async def ensure(self, source: Catalogue, wanted: Mapping[str, str]) -> Catalogue:
        """Create missing topics, grow short ones, read what they accept; the target's catalogue after that.

        A topic that somebody else makes at the same moment, with other partitions, is grown like any other.
        """
        counts = {remote: len(source.topics[topic].partitions) for topic, remote in wanted.items()}
        results: dict[str, HeliographError | None] = dict.fromkeys(counts)
        missing = [topic for topic, remote in wanted.items() if remote not in self._cluster.catalogue.topics]
        results |= await self._create(source, missing) if missing else {}
        short = {remote: count for remote, count in counts.items() if 0 < self._partitions(remote) < count}
        if self._flow.remaps_partitions:
            short = {}
        results |= await self._grow(short) if short else {}
        self._note(results)
        target = self._cluster.catalogue
        written = (*counts, self._flow.ledger_topic, self._flow.offset_storage_topic)
        await self._read_limits({name: target.topics[name].topic_id for name in written if name in target.topics})
        return target

    def _partitions(self, remote: str) -> int:
        """Count the partitions of a target topic as of the last refresh; 0 if there is no such topic."""
        meta = self._cluster.catalogue.topics.get(remote)
        return len(meta.partitions) if meta is not None else 0

    async def _create(self, source: Catalogue, missing: Sequence[str]) -> dict[str, HeliographError | None]:
        flow = self._flow
        followed = [topic for topic in missing if follows_configs(flow, topic)]
        described = await describe_topics(self._source, followed)
        forbidden = {topic for topic, error in described.refused.items() if isinstance(error, NotAuthorized)}
        self._tell_unread([described.refused[topic] for topic in forbidden])
        for configs in described.found.values():
            self.tell_unjudged(unjudged_configs(configs, flow.topic_sync))
        results: dict[str, HeliographError | None] = {
            flow.remote_topic(topic): error for topic, error in described.refused.items() if topic not in forbidden
        }
        topics = [
            new_copy(flow, topic, partitions=len(source.topics[topic].partitions), source=described.found.get(topic))
            for topic in missing
            if flow.remote_topic(topic) not in results
        ]
        results |= await create_topics(self._cluster, topics)
        made = [topic.name for topic in topics if results.get(topic.name) is None]
        if made:
            await wait_for_topics(self._cluster, dict.fromkeys(made, 1))
        return results

    async def _grow(self, short: Mapping[str, int]) -> dict[str, HeliographError | None]:
        results = await create_partitions(self._cluster, short)
        grown = {remote: count for remote, count in short.items() if results.get(remote) is None}
        if grown:
            await wait_for_topics(self._cluster, grown)
        for remote, count in grown.items():
            if (found := self._partitions(remote)) < count:
                results[remote] = BrokerRefused(
                    f'"{remote}" still has {found} of {count} partitions',
                    where=f'"{self._flow.target}"',
                    error_code=Code.UNKNOWN_TOPIC_OR_PARTITION,
                )
        return results

    def _tell_unread(self, errors: Sequence[HeliographError]) -> None:
        if not errors:
            self._unread.end()
        elif self._unread.is_news(str(errors[0])):
            log.warning("%s: new topics are made with the target's own settings: %s", self._flow.name, errors[0])

    def tell_unjudged(self, errors: Mapping[str, ConfigError]) -> None:
        """Log, once for each, configs for which a filter class of one's own fails."""
        for key in errors.keys() - self._unjudged:
            log.warning('%s: the setting "%s" of topics is not copied: %s', self._flow.name, key, errors[key])
        self._unjudged |= errors.keys()

    def _note(self, results: Mapping[str, HeliographError | None]) -> None:
        self.denials.forget_all_but(results)
        news = self.denials.note({remote: error and advised(error) for remote, error in results.items()})
        for remote, error in news.denied.items():
            if self._partitions(remote):
                what = "has too few partitions, and those that are not copied yet are left out"
            else:
                what = "is not mirrored"
            log.error('%s: "%s" %s: %s', self._flow.name, remote, what, error)
        for remote in news.granted:
            log.info('%s: "%s" is as it should be now', self._flow.name, remote)

    async def _read_limits(self, topics: Mapping[str, UUID]) -> None:
        """Read the limits of new topics, and now and then of all."""
        now = time.monotonic()
        all_due = now - self._limits_read_at >= LIMITS_S
        wanted = [name for name, topic_id in topics.items() if all_due or self._limits_of.get(name) != topic_id]
        if not wanted:
            return
        try:
            configs = await topic_configs(self._cluster, wanted, LIMITS)
        except ClusterError as error:
            if self._spell.is_news(str(error)):
                log.warning("%s: limits of the target's topics not read: %s", self._flow.name, error)
            return
        if lasted := self._spell.end():
            log.info("%s: limits of the target's topics are read again %s", self._flow.name, lasted)
        if all_due:
            self._limits_read_at = now
            self._limits = {name: limits for name, limits in self._limits.items() if name in topics}
            self._limits_of = {name: topic_id for name, topic_id in self._limits_of.items() if name in topics}
        for name, values in configs.items():
            self._limits_of[name] = topics[name]
            self._limits[name] = TargetLimits(
                int(values.get("max.message.bytes", DEFAULT_MAX_MESSAGE_BYTES)),
                values.get("message.timestamp.type") == "LogAppendTime",
            )
