"""Heartbeats: a record a second on each target, by which a mirrored copy shows that a flow is alive.

Those of A->B are written into B; the flow B->A, if there is one, carries them to A. They need
no flow to be enabled, and whatever goes wrong with them never concerns the copying.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import NamedTuple

from heliograph.clock import wall_ms
from heliograph.config.files.parts import ConnectorState
from heliograph.config.settings import HeartbeatSettings, Settings
from heliograph.errors import ConfigError, HeliographError, NotAuthorized
from heliograph.kafka.admin.topics import NewTopic
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.log import append
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, admin_way, way_of
from heliograph.ledger.mm2 import internal_records
from heliograph.loop import Loop
from heliograph.names.policies import HEARTBEATS
from heliograph.outage_log import Outage

log = logging.getLogger("heliograph")

Pair = tuple[str, str]
"""(source, target)"""
CONNECTOR = "MirrorHeartbeatConnector"
FIRST_PAUSE_S = 1.0
LONGEST_PAUSE_S = 30.0
STANDBY_LOOK_S = 0.2
"""How soon a standby looks again whether it leads."""


class Schedule:
    """When each pair's next heartbeat is due. Pure: its callers bring the time, in seconds."""

    def __init__(self) -> None:
        self._intervals: dict[Pair, float] = {}
        self._due: dict[Pair, float] = {}

    def set(self, intervals: Mapping[Pair, float], now: float) -> None:
        """Go on with these pairs; a new one is due at once, one with another interval counts from its last."""
        self._due = {
            pair: self._due[pair] - self._intervals[pair] + interval if pair in self._due else now
            for pair, interval in intervals.items()
        }
        self._intervals = dict(intervals)

    def take(self, now: float, *, but_for: Callable[[Pair], bool] = lambda _: False) -> list[Pair]:
        """Take the pairs that are due, but for some that stay so; missed heartbeats are not made up for."""
        due = [pair for pair, at in self._due.items() if at <= now and not but_for(pair)]
        for pair in due:
            following = self._due[pair] + self._intervals[pair]
            self._due[pair] = following if following > now else now + self._intervals[pair]
        return due

    @property
    def next_at(self) -> float | None:
        return min(self._due.values(), default=None)


class Heartbeats:
    """Writes the heartbeats of all pairs of a configuration."""

    def __init__(self, settings: Settings, *, stands_by: Callable[[str, str], bool] = lambda *_: False) -> None:
        """`stands_by` says of a pair, by its source and target, whether another process writes its heartbeats."""
        pairs = settings.heartbeat_pairs()
        self._targets = [_Target(client, settings, pairs, stands_by) for client in _clients(settings)]

    @property
    def written(self) -> int:
        return sum(target.written for target in self._targets)

    @property
    def failed(self) -> int:
        return sum(target.failed for target in self._targets)

    def apply(self, settings: Settings) -> None:
        """Go on with changed settings of the same clusters."""
        pairs = settings.heartbeat_pairs()
        for target in self._targets:
            target.apply(settings, pairs)

    async def run(self) -> None:
        """Write until cancelled."""
        tasks = [asyncio.ensure_future(target.run()) for target in self._targets]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)


class _Client(NamedTuple):
    """Tells which pairs share a client: those into a cluster, but for flows with access of their own."""

    alias: str
    source: str = ""
    """The source of the one flow that it is for; empty: it is for all others."""
    others: frozenset[str] = frozenset()
    """The sources whose flows have a client of their own."""

    def serves(self, pair: Pair) -> bool:
        source, target = pair
        return target == self.alias and (source == self.source if self.source else source not in self.others)


def _clients(settings: Settings) -> Iterator[_Client]:
    """Make the clients; clusters without an address have none."""
    for alias in settings.clusters:
        usual = admin_way(settings, alias)
        ending = [flow for flow in settings.flows if flow.target == alias]
        apart = [flow.source for flow in ending if way_of(settings, flow, Role.TARGET_ADMIN) != usual]
        yield from (_Client(alias, source) for source in apart)
        if usual.bootstrap:
            yield _Client(alias, others=frozenset(apart))


class _Target:
    """Writes the heartbeats of one client of one cluster."""

    def __init__(
        self,
        client: _Client,
        settings: Settings,
        pairs: Mapping[Pair, HeartbeatSettings],
        stands_by: Callable[[str, str], bool],
    ) -> None:
        self._stands_by = stands_by
        self.written = 0
        self.failed = 0
        self._client = client
        self._alias = client.alias
        self._schedule = Schedule()
        self._factor = -1
        self._is_topic_there = False
        self._spell = Outage()
        self._unforeseen = Loop("heartbeats", f'not written into "{client.alias}"')
        self._changed = asyncio.Event()
        way = admin_way(settings, client.alias, source=client.source)
        self._cluster = Cluster(client.alias, way.bootstrap, client_id="", security=way.security)
        self.apply(settings, pairs)

    def apply(self, settings: Settings, pairs: Mapping[Pair, HeartbeatSettings]) -> None:
        mine = {pair: wanted for pair, wanted in pairs.items() if self._client.serves(pair)}
        running = {
            pair: float(wanted.interval_s) for pair, wanted in mine.items() if wanted.state is ConnectorState.RUNNING
        }
        self._schedule.set(running, time.monotonic())
        self._factor = next((wanted.replication_factor for wanted in mine.values()), -1)
        self._cluster.security = admin_way(settings, self._alias, source=self._client.source).security
        self._cluster.client_id = client_id(mine)
        self._changed.set()

    async def run(self) -> None:
        pause = FIRST_PAUSE_S
        try:
            while True:
                at = self._schedule.next_at
                await self._wait(None if at is None else max(0.0, at - time.monotonic()))
                due = self._schedule.take(time.monotonic(), but_for=lambda pair: self._stands_by(*pair))
                if not due:
                    await self._wait(STANDBY_LOOK_S)
                    continue
                is_written = False
                with self._unforeseen:
                    is_written = await self._write(due)
                if is_written:
                    pause = FIRST_PAUSE_S
                    continue
                self.failed += len(due)
                await self._wait(pause * random.uniform(0.8, 1.2))
                pause = min(pause * 1.5, LONGEST_PAUSE_S)
        finally:
            self._cluster.close()

    async def _wait(self, timeout_s: float | None) -> None:
        """Wait so long, or for other settings."""
        try:
            await asyncio.wait_for(self._changed.wait(), timeout_s)
        except TimeoutError:
            return
        self._changed.clear()

    async def _write(self, due: list[Pair]) -> bool:
        """Write the pairs' heartbeats in one batch; False, and a line in the log, if that cannot be."""
        try:
            await self._ensure_topic()
            now_ms = wall_ms()
            beats = [internal_records.Heartbeat(source=source, target=target, time_ms=now_ms) for source, target in due]
            await append(self._cluster, HEARTBEATS, 0, [beat.encode() for beat in beats], now_ms=now_ms)
        except HeliographError as error:
            self._is_topic_there = False
            self._name(error)
            return False
        self.written += len(due)
        if lasted := self._spell.end():
            log.info('heartbeats into "%s" are written again %s', self._alias, lasted)
        return True

    async def _ensure_topic(self) -> None:
        if self._is_topic_there:
            return
        catalogue = await self._cluster.refresh([HEARTBEATS])
        if HEARTBEATS not in catalogue.topics:
            brokers = len(catalogue.brokers)
            if self._factor > brokers:
                raise ConfigError(
                    f'"{HEARTBEATS}" needs {self._factor} replicas, and there {"is" if brokers == 1 else "are"} '
                    f"{brokers} broker{'' if brokers == 1 else 's'}",
                    where=f'"{self._alias}"',
                    remedy="lower heartbeats.topic.replication.factor, or set emit.heartbeats.enabled = false",
                )
            topic = NewTopic(name=HEARTBEATS, partitions=1, replication_factor=self._factor, configs=store.COMPACTED)
            await store.ensure_topics(self._cluster, [topic], vital={HEARTBEATS})
        self._is_topic_there = True

    def _name(self, error: HeliographError) -> None:
        """Log each cause once, until heartbeats are written again."""
        if not self._spell.is_news(f"{error.code} {error.details.get('error_code')}"):
            return
        way_out = ", or set emit.heartbeats.enabled = false" if isinstance(error, NotAuthorized) else ""
        log.warning('heartbeats into "%s" are not written: %s%s; retrying', self._alias, error, way_out)


def client_id(pairs: Iterable[Pair]) -> str:
    """Name a client as MM2 names that of a pair; one of several pairs has a star."""
    sources = [source for source, _ in pairs]
    targets = {target for _, target in pairs}
    if not sources:
        return CONNECTOR
    source = sources[0] if len(sources) == 1 else "*"
    return f"{source}->{', '.join(targets)}|{CONNECTOR}|heartbeats-target-admin"
