"""One flow on the driver: joins its parts.

`opening` connects it and holds its ledger, `topics` finds what to mirror, `epochs` answers what lanes report,
`assignments` makes what lanes are told; `partition_table` and `loss_book` are what these have in common.
"""

from __future__ import annotations

import logging
import time

from heliograph.config.settings import Flow, Settings
from heliograph.errors import ClusterChanged
from heliograph.flow import start_checks
from heliograph.flow.assignments import LaneAssignments
from heliograph.flow.enrolment import Enrolment
from heliograph.flow.epochs import FlowEpochs
from heliograph.flow.flow_names import FlowNames
from heliograph.flow.loss_answers import LossAnswers
from heliograph.flow.loss_book import LossBook
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_table import PartitionTable
from heliograph.flow.producer_memory import TargetMemory
from heliograph.flow.target_topics import TargetTopics
from heliograph.flow.throttling import Throttling
from heliograph.flow.topics import FlowTopics
from heliograph.kafka.admin.topics import forgets_producers
from heliograph.kafka.cluster import Cluster
from heliograph.lane.batches import provenance
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.entry import Entry
from heliograph.loop import Loops

log = logging.getLogger("heliograph")


class FlowDriver:
    """Owns the parts of one flow, and begins and ends its work."""

    def __init__(self, flow: Flow, settings: Settings, *, is_local: bool) -> None:
        self.opening = opening = OpenedFlow(flow, settings, is_local=is_local)
        self.table = table = PartitionTable()
        self.losses = losses = LossBook(opening)
        targets = TargetTopics(flow, opening.target, source=opening.source)
        memory = TargetMemory(flow.name, opening.target)
        self.assignments = LaneAssignments(opening, table, losses, targets=targets, memory=memory)
        self.answers = LossAnswers(opening, table, losses, self.assignments)
        self.topics = FlowTopics(
            opening,
            table,
            losses,
            names=FlowNames(opening, table),
            targets=targets,
            memory=memory,
            enrolment=Enrolment(opening, table, losses, answers=self.answers, assignments=self.assignments),
        )
        self.epochs = FlowEpochs(opening, table, losses, answers=self.answers, topics=self.topics)
        self.throttling = Throttling(flow.name)
        self.loops = Loops(flow.name)
        """The loops that run beside the copying."""
        self.groups_told = ""
        """What the progress line says of the flow's groups."""

    @property
    def name(self) -> str:
        return self.opening.name

    @property
    def flow(self) -> Flow:
        """The flow's settings."""
        return self.opening.flow

    @property
    def source(self) -> Cluster:
        return self.opening.source

    @property
    def target(self) -> Cluster:
        return self.opening.target

    @property
    def ledger(self) -> Ledger:
        return self.opening.ledger

    @property
    def ledger_topic(self) -> str:
        return self.opening.ledger_topic

    @property
    def entries(self) -> dict[PartitionName, Entry]:
        """The entries of the partitions that are copied."""
        return self.table.entries

    def apply(self, flow: Flow, settings: Settings) -> None:
        """Go on with changed settings; the next connection, refresh of topics and plan use them."""
        self.opening.apply(flow, settings)
        self.topics.targets.apply(flow)
        self.topics.look_for_new()

    async def prepare(self) -> None:
        """As the flow's leader: claim the producer id, read how far everything is copied, open counts for what is new.

        Lanes write an entry before its position, so positions are read first: one that is ahead of what the ledger
        says after that is another tool's, also while lanes of a dead leader still write.
        """
        flow, opening = self.flow, self.opening
        await opening.write_lost(self.table.known)
        try:
            await opening.claim_producer_id(row=0)
        except ClusterChanged as error:
            await self.losses.keep_changed(error)
            raise
        await opening.write_condition(self.loops.failing())
        if await forgets_producers(opening.target):
            log.warning('%s: "%s" %s', self.name, flow.target, start_checks.FORGETFUL)
        if flow.provenance_headers:
            log.info('%s: records get the header "%s"; %s', self.name, provenance.KEY, provenance.SHARED)
        stored = await store.read_positions(
            opening.target, flow.offset_storage_topic, flow.source, connector=flow.connector_name
        )
        store.tell_refused(self.name, stored.refused)
        await store.read_on(opening.target, opening.ledger_topic, opening.ledger)
        self.table.begin(opening.ledger, stored.found)
        for where in opening.ledger.position_requests:  # whoever sets a position answers what stopped the partition
            self.losses.stopped.pop(where, None)
        await self.topics.begin()

    def look_at_throttling(self) -> str:
        """Note for how long the driver's own clients were throttled; return what the progress line says of it."""
        for cluster in (self.source, self.target):
            if seconds := cluster.muted.take_s(time.monotonic()):
                self.throttling.note(cluster.alias, cluster.client_id, seconds)
        return self.throttling.look()

    def sizes(self) -> dict[str, int]:
        """Count what is kept in memory and could grow."""
        clients = (self.source, self.target)
        return {
            "partitions": len(self.entries),
            "ledger": len(self.ledger.partitions),
            "causes": len(self.topics.waits),
            "missed": len(self.topics.missed),
            "limits": len(self.topics.targets),
            "connections": sum(client.connections for client in clients),
            "coordinators": sum(len(client.coordinators) for client in clients),
        }

    def close(self) -> None:
        self.opening.close()
