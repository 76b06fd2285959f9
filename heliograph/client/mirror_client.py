"""`MirrorClient`: what applications and tools ask of a target cluster, like MirrorMaker 2's class of that name.

Synchronous. Every question opens connections of its own and closes them again, so that a client may be kept for days,
used by several threads, and taken through a fork.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from heliograph.client import names
from heliograph.client.access import (
    ClientAccess,
    ClientSettings,
    SyncsPlace,
    read_config,
    read_properties,
    settings_of_flow,
)
from heliograph.client.checkpoints import FoundCheckpoints, Offsets, Wanted, read_checkpoints
from heliograph.client.ledger import Knowledge, read_ledger, translate_groups, translate_positions
from heliograph.config.settings import Flow, Settings
from heliograph.errors import Unreachable
from heliograph.kafka.cluster import Cluster
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.translation import Syncs
from heliograph.names.policies import ReplicationPolicy

CLIENT_ID = "heliograph-client"

By = Literal["checkpoint", "ledger"]
T = TypeVar("T")

logger = logging.getLogger("heliograph.client")


class MirrorClient:
    """Asks one target cluster.

        with MirrorClient({"bootstrap.servers": "backup:9092"}) as client:
            offsets = client.translate_offsets("primary", "billing")

    The properties are those of a Java client, and `replication.policy.*` if the mirror has such; under
    IdentityReplicationPolicy `source.cluster.alias` names the source of the topics.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self._begin(read_properties(properties))

    @classmethod
    def from_config(cls, path: Path | str, target_alias: str, secrets: Path | None = None) -> Self:
        """Make a client by a configuration of heliograph or MirrorMaker 2; `secrets` is the folder of mounted ones."""
        client = cls.__new__(cls)
        client._begin(read_config(path, target_alias, secrets))
        return client

    @classmethod
    def of_flow(cls, settings: Settings, flow: Flow) -> Self:
        """Make a client of a flow's target, with the rights of its administrator."""
        client = cls.__new__(cls)
        client._begin(settings_of_flow(settings, flow))
        return client

    def _begin(self, settings: ClientSettings) -> None:
        self._settings = settings
        self.skipped: Counter[str] = Counter()
        """Records that could not be read, by topic, over all questions."""
        self.incomplete: Counter[str] = Counter()
        """How often a topic could not be read to its end in time."""

    def __repr__(self) -> str:
        return f"<MirrorClient of {self._settings.admin.alias}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Do nothing: Java's client has this call, and here no connection stays open between questions."""

    @property
    def replication_policy(self) -> ReplicationPolicy:
        return self._settings.policy

    # -- by the names of topics

    def replication_hops(self, alias: str) -> int:
        """How many flows lie between that cluster and this one; -1 if its heartbeats do not arrive here."""
        return names.replication_hops(self.replication_policy, self._topics(), alias)

    def heartbeat_topics(self) -> set[str]:
        return names.heartbeat_topics(self.replication_policy, self._topics())

    def checkpoint_topics(self) -> set[str]:
        return names.checkpoint_topics(self.replication_policy, self._topics())

    def upstream_clusters(self) -> set[str]:
        """Aliases of the clusters whose heartbeats arrive here, directly or through others."""
        return names.upstream_clusters(self.replication_policy, self._topics())

    def remote_topics(self, source: str | None = None) -> set[str]:
        """The copies on this cluster; with a source, those that came from it last."""
        return names.remote_topics(self.replication_policy, self._topics(), source)

    def _topics(self) -> set[str]:
        async def list_topics(cluster: Cluster) -> set[str]:
            return set((await cluster.refresh()).topics)

        return _ask(self._settings.admin, list_topics)

    # -- by records

    @overload
    def translate_offsets(self, alias: str, group: str, timeout_s: float = ..., by: By = ...) -> Offsets: ...

    @overload
    def translate_offsets(
        self, alias: str, group: re.Pattern[str], timeout_s: float = ..., by: By = ...
    ) -> dict[str, Offsets]: ...

    def translate_offsets(
        self, alias: str, group: str | re.Pattern[str], timeout_s: float = 60.0, by: By = "checkpoint"
    ) -> Offsets | dict[str, Offsets]:
        """Return where a group that read on cluster `alias` goes on here, by partition of this cluster's topics.

        A pattern stands for all groups whose whole names match. As with Java's client, what was read when time is up
        is the answer, and older than it could be; `incomplete` counts that. Raises if there are no checkpoints of
        `alias`.
        By the ledger the answer is exact (with `offset.translation=mm2` it is that of MirrorMaker 2's rule), by the
        commits last seen on the source; it is whole or an error.
        A group that is called otherwise here may be asked for by either name; the answer has those of this cluster,
        and where two groups are meant by one name it is the one that is called so here.
        """
        if isinstance(group, str):
            here = self._name_here(alias, group)
            asked = {group} if by == "ledger" else {group, here}  # checkpoints have names of this cluster alone
            found = self.translate_groups(alias, asked.__contains__, timeout_s, by=by)
            return found[group] if group in found else found.get(here, {})
        return self.translate_groups(alias, lambda name: group.fullmatch(name) is not None, timeout_s, by=by)

    def translate_groups(
        self, alias: str, wanted: Wanted, timeout_s: float = 60.0, *, by: By = "checkpoint"
    ) -> dict[str, Offsets]:
        """The same for all groups that `wanted` says yes to, by one of their names."""
        translate = self._by_ledger if by == "ledger" else self._by_checkpoint
        return translate(alias, wanted, timeout_s)

    def _by_checkpoint(self, alias: str, wanted: Wanted, timeout_s: float) -> dict[str, Offsets]:
        topic = self.replication_policy.checkpoints_topic(alias)
        renames = self._settings.renames_of(alias)
        found = FoundCheckpoints(lambda name: wanted(name) or any(map(wanted, renames.origins(name))))

        async def read(cluster: Cluster) -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await read_checkpoints(cluster, topic, found)

        _ask(self._settings.consumer, read)
        if not found.is_begun:
            raise _too_slow(self._settings.consumer, timeout_s)
        if not found.is_complete:
            self.incomplete[topic] += 1
            logger.warning("%s was not read to its end within %g s; offsets may be older ones", topic, timeout_s)
        self._count_skipped(topic, found.skipped, "checkpoints")
        return found.groups

    def translate_positions(
        self, alias: str, offsets: Mapping[tuple[str, int], int], timeout_s: float = 60.0
    ) -> Offsets:
        """Return where somebody at these offsets of topics of cluster `alias` goes on here, by the ledger."""
        wanted = {TopicPartition(*where): offset for where, offset in offsets.items()}

        async def translate(cluster: Cluster, known: Knowledge) -> Offsets:
            return await translate_positions(cluster, alias, known, self.replication_policy, wanted)

        return self._with_ledger(alias, timeout_s, translate)

    def _by_ledger(self, alias: str, wanted: Wanted, timeout_s: float) -> dict[str, Offsets]:
        async def translate(cluster: Cluster, known: Knowledge) -> dict[str, Offsets]:
            found = await translate_groups(cluster, alias, known, self.replication_policy, either)
            return self._by_names_here(alias, found)

        def either(name: str) -> bool:
            return wanted(name) or wanted(self._name_here(alias, name))

        return self._with_ledger(alias, timeout_s, translate)

    def _name_here(self, alias: str, group: str) -> str:
        renamed = self._settings.renames_of(alias).apply(group)
        return group if renamed is None else renamed

    def _by_names_here(self, alias: str, found: Mapping[str, Offsets]) -> dict[str, Offsets]:
        """Name the answers as here; of two groups with one name the first counts, and the other is logged."""
        answers: dict[str, Offsets] = {}
        for group, offsets in sorted(found.items()):
            here = self._name_here(alias, group)
            if answers.setdefault(here, offsets) is not offsets:
                logger.warning('group "%s" of "%s" is left out: another one is called "%s" here', group, alias, here)
        return answers

    def _with_ledger(
        self, alias: str, timeout_s: float, question: Callable[[Cluster, Knowledge], Coroutine[Any, Any, T]]
    ) -> T:
        topics, group_id, syncs = self._settings.ledger_of(alias)

        async def read(cluster: Cluster) -> T:
            try:
                async with asyncio.timeout(timeout_s):
                    ledger = await read_ledger(cluster, alias, group_id=group_id, topics=topics)
                    self._count_skipped(topics[0], ledger.unreadable, "records of a ledger")
                    return await question(cluster, Knowledge(ledger, await self._read_syncs(cluster, alias, syncs)))
            except TimeoutError:
                raise _too_slow(self._settings.consumer, timeout_s) from None

        return _ask(self._settings.consumer, read)

    async def _read_syncs(self, cluster: Cluster, alias: str, place: SyncsPlace | None) -> Syncs | None:
        """Read the offset syncs to translate by; None where the ledger translates."""
        if place is None:
            return None
        if not place.is_here:
            logger.warning(
                'offset.translation=mm2, and the offset syncs stand on "%s": offsets are translated by the ledger; '
                "set offset-syncs.topic.location=target to have them here",
                alias,
            )
            return None
        found, refused = await store.read_syncs(cluster, place.topic)
        self._count_skipped(place.topic, refused.number, "offset syncs")
        return found

    def _count_skipped(self, topic: str, number: int, what: str) -> None:
        if not number:
            return
        if topic not in self.skipped:
            logger.warning("%d records of %s are no %s and are passed over", number, topic, what)
        self.skipped[topic] += number


def _too_slow(access: ClientAccess, timeout_s: float) -> Unreachable:
    return Unreachable(f"no answer within {timeout_s:g} s", where=f'"{access.alias}"')


def _ask(access: ClientAccess, question: Callable[[Cluster], Coroutine[Any, Any, T]]) -> T:
    """Put a question to a cluster, wherever we are: in a thread of its own beside an event loop that runs here."""

    async def ask() -> T:
        cluster = Cluster(access.alias, access.bootstrap, client_id=CLIENT_ID, security=access.security)
        with contextlib.closing(cluster):
            return await question(cluster)

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(ask())
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, ask()).result()
