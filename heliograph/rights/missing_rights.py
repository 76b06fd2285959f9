"""Tracks the rights that a flow lacks: logs each once when it is missing and once when it is back, and stores them."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import replace

from heliograph.clock import wall_ms
from heliograph.config.settings import Flow, Settings
from heliograph.errors import NotAuthorized, UnsupportedVersion
from heliograph.kafka.admin.acls import Operation, ResourceType
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.records.condition import Condition
from heliograph.loop import Failing
from heliograph.outage_log import Outage
from heliograph.rights.granted import Grant, Grants
from heliograph.rights.required import Resource

log = logging.getLogger("heliograph")

TOPICS = 200
"""Maximum number of topics for which rights are checked repeatedly; a lane reports any other topic it may not use."""


class MissingRights:
    """Tracks the missing rights of one flow, as of the last check."""

    def __init__(self, flow: Flow, settings: Settings, *, source: Cluster, target: Cluster) -> None:
        self._flow = flow
        self._source, self._target = source, target
        self._grants = Grants(flow, settings, source=source, target=target)
        self._missing: dict[str, Grant] = {}
        self._written: Condition | None = None
        self._outage = Outage()

    def apply(self, flow: Flow, settings: Settings) -> None:
        self._flow = flow
        self._grants.close()
        self._grants = Grants(flow, settings, source=self._source, target=self._target)

    async def look(self, topics: Sequence[str]) -> bool:
        """Check the rights, log what is missing and what is back; return True if something is back."""
        try:
            found = await self._grants.look(topics[:TOPICS])
        except UnsupportedVersion as error:
            if self._outage.is_news(str(error)):
                log.warning("%s: rights are not checked: %s", self._flow.name, error)
            return False
        if lasted := self._outage.end():
            log.info("%s: rights are checked %s", self._flow.name, lasted)
        missing = {grant.what: grant for grant in found if grant.is_missing}
        for what, grant in missing.items():
            if what not in self._missing:
                log.warning("%s: missing right: %s", self._flow.name, grant)
        back = [grant for what, grant in self._missing.items() if what not in missing]
        for grant in back:
            log.info("%s: right no longer missing: %s", self._flow.name, grant.right)
        self._missing = missing
        return bool(back)

    async def write_down(self, ledger_topic: str, failing: Sequence[Failing]) -> None:
        """Store the missing rights and the failing side loops in the ledger for `status`, if they changed.

        Without the right to write there they are in the log only.
        """
        blocked = any(grant.right.is_vital for grant in self._missing.values())
        condition = Condition(
            lacks=tuple(self._missing),
            is_blocked=blocked,
            failing=tuple(map(str, failing)),
            time_ms=wall_ms(),
        )
        if self._written is not None and replace(self._written, time_ms=condition.time_ms) == condition:
            return
        try:
            await store.write_records(self._target, ledger_topic, self._flow.group_id, [condition])
        except NotAuthorized:
            return
        self._written = condition

    def forbid(self, topic: str, operations: Collection[Operation]) -> bool:
        """Return whether the right for one of these operations on a target topic is missing."""
        wanted = Resource(ResourceType.TOPIC, topic)
        return any(
            grant.cluster == self._flow.target
            and grant.right.operation in operations
            and grant.right.resource.covers(wanted)
            for grant in self._missing.values()
        )

    def close(self) -> None:
        self._grants.close()
