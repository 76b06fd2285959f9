"""The rights that a flow lacks: named once when they go and once when they are back, and kept on its target."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.errors import NotAuthorized, UnsupportedVersion
from heliograph.kafka.admin.acls import Operation, ResourceType
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import formats, store
from heliograph.loop import Failing
from heliograph.outage_log import Outage
from heliograph.rights.granted import Grant, Grants
from heliograph.rights.required import Resource

log = logging.getLogger("heliograph")

TOPICS = 200
"""So many topics stand for all when rights are looked at again and again; a lane names the one it may not use."""


class MissingRights:
    """Of one flow, as last looked at."""

    def __init__(self, flow: Flow, settings: Settings, *, source: Cluster, target: Cluster) -> None:
        self._flow = flow
        self._source, self._target = source, target
        self._grants = Grants(flow, settings, source=source, target=target)
        self._missing: dict[str, Grant] = {}
        self._written: formats.Condition | None = None
        self._spell = Outage()

    def apply(self, flow: Flow, settings: Settings) -> None:
        self._flow = flow
        self._grants.close()
        self._grants = Grants(flow, settings, source=self._source, target=self._target)

    async def look(self, topics: Sequence[str]) -> bool:
        """Name what is missing and what is back; True if something is back."""
        try:
            found = await self._grants.look(topics[:TOPICS])
        except UnsupportedVersion as error:
            if self._spell.is_news(str(error)):
                log.warning("%s: rights are not looked at: %s", self._flow.name, error)
            return False
        if lasted := self._spell.end():
            log.info("%s: rights are looked at %s", self._flow.name, lasted)
        missing = {grant.what: grant for grant in found if grant.is_missing}
        for what, grant in missing.items():
            if what not in self._missing:
                log.warning("%s: missing right: %s", self._flow.name, grant)
        back = [grant for what, grant in self._missing.items() if what not in missing]
        for grant in back:
            log.info("%s: no longer missing: %s", self._flow.name, grant.right)
        self._missing = missing
        return bool(back)

    async def write_down(self, ledger_topic: str, failing: Sequence[Failing]) -> None:
        """For `status`, if it has changed, with the side loops that fail; where that is not allowed the log alone has
        it."""
        blocked = any(grant.right.is_vital for grant in self._missing.values())
        condition = formats.Condition(
            lacks=tuple(self._missing),
            is_blocked=blocked,
            failing=tuple(map(str, failing)),
            time_ms=wall_ms(),
        )
        if self._written is not None and replace(self._written, time_ms=condition.time_ms) == condition:
            return
        try:
            await store.write_condition(self._target, ledger_topic, self._flow.group_id, condition)
        except NotAuthorized:
            return
        self._written = condition

    def forbid(self, topic: str, operations: Collection[Operation]) -> bool:
        """Whether one of the operations on a target's topic is among what is missing."""
        wanted = Resource(ResourceType.TOPIC, topic)
        return any(
            grant.cluster == self._flow.target
            and grant.right.operation in operations
            and grant.right.resource.covers(wanted)
            for grant in self._missing.values()
        )

    def close(self) -> None:
        self._grants.close()
