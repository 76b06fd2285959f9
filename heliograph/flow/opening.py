"""Opens one flow: connects to both clusters, checks them, makes the internal topics, reads the ledger, claims ids.

Whoever opens a flow may lead it (`lease_holder`) and write to its ledger. Knows nothing of lanes: the command line
opens flows too, to set positions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence

from heliograph.config.settings import Flow, Settings
from heliograph.errors import BrokerRefused
from heliograph.flow import start_checks
from heliograph.flow.lane_terms import client_id_of, terms_of
from heliograph.flow.lease_holder import LeaseHolder
from heliograph.flow.required_topics import internal_topics, wanted_topics
from heliograph.kafka.admin.acls import Operation
from heliograph.kafka.admin.topics import NewTopic
from heliograph.kafka.log import APPEND_BYTES
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, apply_settings, cluster_of
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import MEMORY_MS, FlowTerms, PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.loop import Failing
from heliograph.outage_log import Outage
from heliograph.rights.missing_rights import MissingRights

log = logging.getLogger("heliograph")


class OpenedFlow:
    """Holds a flow's settings, its two cluster clients, its ledger in memory and its lease."""

    def __init__(self, flow: Flow, settings: Settings, *, is_local: bool) -> None:
        self.flow = flow
        self.settings = settings
        self.is_local = is_local
        """Lanes run on this machine, with its files and environment."""
        client_id = client_id_of(flow)
        self.source = cluster_of(settings, flow, Role.SOURCE_ADMIN, client_id=f"{client_id}|replication-source-admin")
        self.target = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{client_id}|replication-target-admin")
        self.ledger = Ledger(group_id=flow.group_id)
        """As written on the target; the driver follows it."""
        self.ledger_topic = ""
        """The topic that holds the ledger: its own, or the offset-storage topic where we may not use its own."""
        self.lease_holder: LeaseHolder | None = None
        """Competes for the flow's lease; without one the flow is ours alone."""
        self.changed = asyncio.Event()
        """Set when the topics are to be refreshed before that is due: other settings, a right that is back, a count to
        open."""
        self.rights = MissingRights(flow, settings, source=self.source, target=self.target)
        self._ledger_identity: tuple[str, object] | None = None
        self._absent = Outage()

    @property
    def name(self) -> str:
        return self.flow.name

    @property
    def is_read_committed(self) -> bool:
        return self.flow.isolation_level == "read_committed"

    def apply(self, flow: Flow, settings: Settings) -> None:
        """Go on with changed settings; the next connection and the next refresh of topics use them."""
        self.flow = flow
        self.settings = settings
        apply_settings(self.source, settings, flow, Role.SOURCE_ADMIN)
        apply_settings(self.target, settings, flow, Role.TARGET_ADMIN)
        self.rights.apply(flow, settings)
        self.changed.set()

    async def open(self) -> None:
        """Connect, check what would make mirroring wrong, make the internal topics, read the ledger.

        May be repeated, and a standby does it too. The ledger in memory stays, unless its topic is another one now.
        """
        flow = self.flow
        source, target = await self.source.refresh(), await self.target.refresh()
        start_checks.refuse_one_cluster(flow, source, target)
        start_checks.refuse_nameless(flow, source, target)
        await start_checks.refuse_way_back(flow, self.settings, self.source, target)
        await start_checks.refuse_beside_mm2(flow, self.target)
        wanted = wanted_topics(flow, source)
        await self.rights.look(list(wanted))
        topic = flow.offset_storage_topic if self._lacks_ledger() else flow.ledger_topic
        start_checks.refuse_too_many_replicas(flow, target, wanted.values())
        await self._ensure_internal(topic, vital={flow.offset_storage_topic, topic})
        identity = (topic, self.target.topic_meta(topic, "opening the ledger").topic_id)
        if identity == self._ledger_identity:
            await store.read_on(self.target, topic, self.ledger)
            return
        for fault in await start_checks.refuse_uncompacted(flow, source=self.source, target=self.target):
            log.warning("%s", fault)
        self.ledger = await store.read_ledger(self.target, topic, flow.group_id)
        self.ledger_topic, self._ledger_identity = topic, identity
        store.tell_refused(self.name, self.ledger.refused)

    async def ensure_storage(self) -> None:
        """Make the offset-storage topic again if it is gone from the target."""
        if (storage := self.flow.offset_storage_topic) not in self.target.catalogue.topics:
            await self._ensure_internal(self.ledger_topic, vital={storage})

    async def _ensure_internal(self, ledger_topic: str, *, vital: Collection[str]) -> None:
        """Make the internal topics, or, where `internal.topics.automatic.creation.enable` is off, look for them."""
        if self.flow.makes_internal_topics:
            await store.ensure_topics(self.target, self._internal(ledger_topic), vital=vital)
            return
        fault = start_checks.refuse_absent_storage(self.flow, self.target.catalogue)
        if fault is not None and self._absent.is_news(str(fault)):
            log.warning("%s", fault)

    def _internal(self, ledger_topic: str) -> list[NewTopic]:
        """The internal topics to have on the target; not the ledger's own if another one holds the ledger."""
        flow = self.flow
        unused = flow.ledger_topic if ledger_topic != flow.ledger_topic else ""
        return [topic for topic in internal_topics(flow) if topic.name != unused]

    # -- the ledger ----------------------------------------------------------------------

    @property
    def wants_reopening(self) -> bool:
        """The offset-storage topic holds the ledger, and the ledger's own topic may be used now."""
        return bool(self.ledger_topic) and self.ledger_topic != self.flow.ledger_topic and not self._lacks_ledger()

    def _lacks_ledger(self) -> bool:
        """Whether we may not read, write or make the ledger's own topic."""
        is_there = self.flow.ledger_topic in self.target.catalogue.topics
        if not is_there and not self.flow.makes_internal_topics:
            return True
        needed = (Operation.READ, Operation.WRITE) if is_there else (Operation.READ, Operation.WRITE, Operation.CREATE)
        return self.rights.forbid(self.flow.ledger_topic, needed)

    async def claim_producer_id(self, *, row: int) -> None:
        """Have a producer id for a row of the flow (`partition_remap`)."""
        await store.claim_producer_id(
            self.target,
            self.ledger_topic,
            self.ledger,
            source_cluster_id=self.source.catalogue.cluster_id,
            target_cluster_id=self.target.catalogue.cluster_id,
            row=row,
        )

    async def write_lost(self, known: Mapping[PartitionName, Entry]) -> None:
        """As the flow's leader: write again what the ledger's topic lost by an unclean election.

        `known` are the entries that the leader knows: it may have opened counts, and lost them before it read them in
        the ledger.
        """
        if self.ledger.restored != self.ledger.generation:
            self.ledger.restored = self.ledger.generation
            for where, entry in known.items():
                self.ledger.restore(where, entry)
        if number := await store.write_lost(self.target, self.ledger_topic, self.ledger):
            log.info('%s: wrote %d records again that "%s" had lost', self.name, number, self.ledger_topic)

    async def write_condition(self, failing: Sequence[Failing]) -> None:
        """Write down for `status` which rights are missing and which loops fail."""
        if self.ledger_topic:
            await self.rights.write_down(self.ledger_topic, failing)

    # -- the lease -----------------------------------------------------------------------

    def leads(self) -> bool:
        """Whether this process leads the flow, for certain: who does not writes nothing."""
        return self.lease_holder is None or self.lease_holder.leads()

    def check_lead(self) -> None:
        """Raise if this process does not lead the flow for certain."""
        if self.lease_holder is not None:
            self.lease_holder.check()

    def other_leader(self) -> str:
        """Name another process that leads the flow, or led it before us; empty if none is known."""
        return self.lease_holder.other() if self.lease_holder is not None else ""

    # -- what lanes are told -------------------------------------------------------------

    def terms(self, *, append_bytes: int = APPEND_BYTES, memory_ms: int = MEMORY_MS) -> FlowTerms:
        """Make what lanes are told of the flow, with the secrets as they are now.

        `append_bytes` is the most that the internal topics take at once, `memory_ms` for how long the target's brokers
        remember a producer for certain.
        """
        return terms_of(
            self.flow,
            self.settings,
            is_local=self.is_local,
            producer_ids=self.ledger.producer_ids,
            ledger_topic=self.ledger_topic,
            ledger_end=self.ledger.end,
            offset_partitions=self._offset_partitions(),
            append_bytes=append_bytes,
            term=self.lease_holder.term if self.lease_holder is not None else None,
            source_cluster_id=self.source.catalogue.cluster_id,
            target_cluster_id=self.target.catalogue.cluster_id,
            memory_ms=memory_ms,
        )

    def _offset_partitions(self) -> int:
        topic = self.flow.offset_storage_topic
        if (meta := self.target.catalogue.topics.get(topic)) is None:
            self.changed.set()
            raise BrokerRefused(
                f'"{topic}" is gone, or may not be described any more',
                where=f'"{self.flow.target}"',
                why="positions are kept there",
                remedy="it is made again as soon as that is allowed",
            )
        return len(meta.partitions)

    def close(self) -> None:
        self.rights.close()
        self.source.close()
        self.target.close()
