"""Settings of topics: the target's follow the source's. `plan_config_sync` decides, `ConfigSync` asks and acts.

Only differences are sent, so a target that is as it should be gets no order at all, and what somebody changes there
is set right with the next pass. Settings that are excluded, or that the source does not know, are never touched.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping, Sequence

from heliograph.clock import Clock
from heliograph.config.settings import TopicSync
from heliograph.errors import HeliographError, UnsupportedVersion
from heliograph.flow.flow import FlowDriver
from heliograph.flow.target_topics import LIMITS
from heliograph.flow.topic_configs import (
    ConfigChange,
    follows_configs,
    plan_config_sync,
    unjudged_configs,
    unknown_configs,
)
from heliograph.flow.topic_refusals import TopicRefusals, advised
from heliograph.kafka.admin.topic_configs import AT_ONCE, alter_topics, describe_topics
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.error_codes import Code
from heliograph.outage_log import Outage
from heliograph.text import some_of

log = logging.getLogger("heliograph")

LOOK_S = 1.0
"""How soon a topic that is new to the flow is looked at."""


async def apply_config_sync(
    target: Cluster, plans: Mapping[str, Sequence[ConfigChange]]
) -> dict[str, HeliographError | None]:
    """Make the changes, by topic of the target; what became of each topic. All changes of a topic are made, or none."""
    wanted = {remote: {change.key: change.new for change in changes} for remote, changes in plans.items()}
    results = await alter_topics(target, wanted)
    return {remote: error and advised(error) for remote, error in results.items()}


class ConfigSync:
    """Syncs the topic configs of one flow."""

    def __init__(self, flow: FlowDriver, clock: Clock = time.monotonic) -> None:
        self._flow = flow
        self._clock = clock
        self._due = 0.0
        self._by: TopicSync | None = None
        """The settings of the last pass over all topics."""
        self._seen: set[str] = set()
        """Topics that were synced before."""
        self._denials = TopicRefusals()
        self._unread: set[str] = set()
        """Reasons for which settings are not shown to us."""
        self._unknown: set[str] = set()
        self._unsupported = Outage()
        self.changed = 0
        """Settings of the target's topics, since the start."""

    def interval_s(self) -> float | None:
        flow = self._flow.flow
        return LOOK_S if flow.is_running and flow.topic_sync.configs_enabled else None

    async def sync(self) -> None:
        """Sync all topics if that is due or the settings changed, else those that are new to the flow."""
        now, sync, topics = self._clock(), self._flow.flow.topic_sync, self._topics()
        is_due = now >= self._due or sync != self._by
        try:
            await self._pass(sorted(topics if is_due else topics - self._seen), is_whole=is_due)
        except UnsupportedVersion as error:
            if self._unsupported.is_news(str(error)):
                log.warning("%s: settings of topics are not copied: %s", self._flow.name, error)
        self._seen = topics
        if is_due:
            self._due, self._by = now + sync.configs_interval_s, sync

    def _topics(self) -> set[str]:
        """Return the topics that are mirrored, also those that a policy has stopped."""
        flow = self._flow
        names = {topic for topic, _ in flow.entries} | {topic for topic, _ in flow.losses.stopped}
        return {topic for topic in names if follows_configs(flow.flow, topic)}

    async def _pass(self, topics: Sequence[str], *, is_whole: bool) -> None:
        unread: dict[str, list[str]] = {}
        for at in range(0, len(topics), AT_ONCE):
            for topic, error in (await self._sync_some(topics[at : at + AT_ONCE])).items():
                unread.setdefault(str(error), []).append(topic)
        for reason in unread.keys() - self._unread:
            log.warning("%s: settings of %s are not copied: %s", self._flow.name, some_of(unread[reason]), reason)
        for reason in self._unread - unread.keys() if is_whole else ():
            log.info("%s: settings are copied again; this no longer happens: %s", self._flow.name, reason)
        self._unread = set(unread) if is_whole else self._unread | unread.keys()

    async def _sync_some(self, topics: Sequence[str]) -> dict[str, HeliographError]:
        """Sync these topics; return those of either side whose configs are not shown to us."""
        flow, sync = self._flow, self._flow.flow.topic_sync
        remotes = {topic: flow.flow.remote_topic(topic) for topic in topics}
        source = await describe_topics(flow.source, topics)
        target = await describe_topics(flow.target, [remotes[topic] for topic in source.found])
        plans: dict[str, list[ConfigChange]] = {}
        for topic, configs in source.found.items():
            flow.topics.targets.tell_unjudged(unjudged_configs(configs, sync))
            if (there := target.found.get(remotes[topic])) is not None:
                plans[remotes[topic]] = plan_config_sync(configs, there, sync)
                self._tell_unknown(unknown_configs(configs, there, sync))
        if flow.opening.leads():
            await self._apply(plans)
        refused = {**source.refused, **target.refused}
        return {
            topic: error
            for topic, error in refused.items()
            if error.details["error_code"] != Code.UNKNOWN_TOPIC_OR_PARTITION
        }

    async def _apply(self, plans: Mapping[str, Sequence[ConfigChange]]) -> None:
        flow = self._flow
        due = {remote: changes for remote, changes in plans.items() if changes}
        results: dict[str, HeliographError | None] = dict.fromkeys(plans)
        results |= await apply_config_sync(flow.target, due) if due else {}
        news = self._denials.note(results)
        for remote, error in news.denied.items():
            log.warning('%s: settings of "%s" stay as they are (%s): %s', flow.name, remote, _all(due[remote]), error)
        for remote in news.granted:
            log.info('%s: settings of "%s" follow the source again', flow.name, remote)
        made = {remote: changes for remote, changes in due.items() if results[remote] is None}
        for remote, changes in made.items():
            self.changed += len(changes)
            log.info('%s: settings of "%s": %s', flow.name, remote, _all(changes))
        if limited := [remote for remote, changes in made.items() if any(change.key in LIMITS for change in changes)]:
            flow.topics.targets.forget_limits(limited)
            flow.opening.changed.set()  # a look at the topics tells lanes

    def _tell_unknown(self, keys: set[str]) -> None:
        if news := keys - self._unknown:
            self._unknown |= news
            log.warning(
                '%s: settings that "%s" does not know are not copied: %s',
                *(self._flow.name, self._flow.flow.target, ", ".join(sorted(news))),
            )


def _all(changes: Sequence[ConfigChange]) -> str:
    return "; ".join(map(str, changes))
