"""One flow on the driver: it comes up, finds what to mirror, gives it to lanes and takes it back.

Owns the flow's two cluster clients and its ledger in memory. Where partitions stand is in
`standing`, how a count is opened in `opening`, what the policies say in `outcomes`, what is
kept of it in `loss_book`; here is the order in which these are asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping, Sequence

from heliograph.config.settings import Flow, Settings
from heliograph.errors import (
    BrokerRefused,
    ClusterChanged,
    CorruptBatch,
    ForeignWrites,
    RecordRefused,
    RulesChanged,
    SecondWriter,
    TargetTopicLost,
    TargetTruncated,
    TopicRecreated,
)
from heliograph.kafka.acls import Operation
from heliograph.kafka.admin import EARLIEST, LATEST, NewTopic, forgets_producers
from heliograph.mirror import formats, marks, obstacles, store
from heliograph.mirror.access import Role, cluster_of, security_of
from heliograph.mirror.counts import Past, Start
from heliograph.mirror.demand import internal_topics, wanted_topics
from heliograph.mirror.lacks import Lacks
from heliograph.mirror.ledger import Ledger, PartitionName
from heliograph.mirror.loss_book import Losses
from heliograph.mirror.losses import Loss
from heliograph.mirror.model import Assignment, Entry, FlowTerms, LedgerRow
from heliograph.mirror.opening import open_counts, source_offsets, topic_ids
from heliograph.mirror.outcomes import GoOn, Outcome, outcome_of
from heliograph.mirror.restarts import Restarts
from heliograph.mirror.spells import Unwritten, Waits
from heliograph.mirror.standing import Standing, place_of
from heliograph.mirror.targets import TargetTopics
from heliograph.mirror.tenure import Tenure
from heliograph.mirror.terms import client_id_of, terms_of
from heliograph.mirror.throttling import Throttling

log = logging.getLogger("heliograph")

RESTARTABLE = (RecordRefused.code, CorruptBatch.code)
"""What stops a partition and may be mended outside; what a policy stops stays stopped."""


class FlowDriver:
    """The driver's side of one flow."""

    def __init__(self, flow: Flow, settings: Settings, *, is_local: bool) -> None:
        self.flow = flow
        self.name = flow.name
        self._settings = settings
        self._is_local = is_local
        client_id = client_id_of(flow)
        self.source = cluster_of(settings, flow, Role.SOURCE_ADMIN, client_id=f"{client_id}|replication-source-admin")
        self.target = cluster_of(settings, flow, Role.TARGET_ADMIN, client_id=f"{client_id}|replication-target-admin")
        self.targets = TargetTopics(flow, self.target)
        self.tenure: Tenure | None = None
        """Our part in the flow's lease; without one the flow is ours alone."""
        self._ledger_identity: tuple[str, object] | None = None
        self.is_complete = True
        """Every partition that is to be copied has its entry; else some had no leader when last looked at."""
        self.ledger_topic = ""
        """Where the ledger is kept: in its own topic, or beside the positions where that is not allowed."""
        self.ledger = Ledger(group_id=flow.group_id)
        """As written on the target; the driver follows it."""
        self._lacks = Lacks(flow, settings, source=self.source, target=self.target)
        self.losses = Losses(flow, self.target, self.ledger)
        self.restarts = Restarts()
        self.failed: set[PartitionName] = set()
        """Of the stopped ones, those that a restart may help."""
        self.has_failed = asyncio.Event()
        self.throttling = Throttling(flow.name)
        self._waits = Waits(flow.name)
        self._unwritten = Unwritten(flow.name)
        self._producer_id = -1
        self._standing = Standing(flow.name)
        self._reopening: frozenset[PartitionName] = frozenset()
        """Partitions whose new count is being opened: nobody else is to enrol them meanwhile."""
        self.carried = ""
        """What is told of its groups with its progress."""
        self.left_out = 0
        """Records that came home by their marks, since the start."""
        self.ledger_moved = asyncio.Event()
        """Set when the lanes wrote down what they copied."""
        self.changed = asyncio.Event()
        """Set when the topics want a look before it is due: other settings, a right that is back, a count to open."""

    def apply(self, flow: Flow, settings: Settings) -> None:
        """Go on with changed settings; the next connection, look at the topics and plan take them up."""
        self.flow = flow
        self._settings = settings
        self.source.security = security_of(settings, flow, Role.SOURCE_ADMIN)
        self.target.security = security_of(settings, flow, Role.TARGET_ADMIN)
        self._lacks.apply(flow, settings)
        self.targets.apply(flow)
        self.losses.flow = flow
        self.changed.set()

    # -- start ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, check what would make mirroring wrong, make the internal topics, read the ledger.

        May be repeated, and a standby does it too. What was read of the ledger before stays, unless it is another one.
        """
        flow = self.flow
        source, target = await self.source.refresh(), await self.target.refresh()
        obstacles.refuse_one_cluster(flow, source, target)
        obstacles.refuse_nameless(flow, source, target)
        await obstacles.refuse_way_back(flow, self._settings, self.source, target)
        await obstacles.refuse_beside_mm2(flow, self.target)
        wanted = wanted_topics(flow, source)
        await self._lacks.look(list(wanted))
        topic = flow.offset_storage_topic if self._lacks_ledger() else flow.ledger_topic
        obstacles.refuse_too_many_replicas(flow, target, wanted.values())
        await store.ensure_topics(self.target, self._internal(topic), vital={flow.offset_storage_topic, topic})
        identity = (topic, self.target.catalogue.topics[topic].topic_id)
        if identity == self._ledger_identity:
            await store.read_on(self.target, topic, self.ledger)
            return
        self.ledger = self.losses.ledger = await store.read_ledger(self.target, topic, flow.group_id)
        self.ledger_topic, self._ledger_identity = topic, identity
        store.tell_unread(self.name, topic, self.ledger.unreadable)

    def _internal(self, ledger_topic: str) -> list[NewTopic]:
        """Those to have on the target; without the ledger's own where that is kept elsewhere."""
        flow = self.flow
        unused = flow.ledger_topic if ledger_topic != flow.ledger_topic else ""
        return [topic for topic in internal_topics(flow) if topic.name != unused]

    async def prepare(self) -> None:
        """As the flow's leader: claim the producer id, see where all stands, open counts for what is new.

        Lanes write an entry before its position, so positions are read first: one that is ahead of what the ledger
        says after that is another tool's, also while lanes of a dead leader still write.
        """
        flow = self.flow
        try:
            claim = await store.claim_producer_id(
                self.target,
                self.ledger_topic,
                self.ledger,
                source_cluster_id=self.source.catalogue.cluster_id,
                target_cluster_id=self.target.catalogue.cluster_id,
            )
        except ClusterChanged as error:
            await self.losses.keep_changed(error, self.ledger_topic)
            raise
        await self._lacks.write_down(self.ledger_topic)
        if await forgets_producers(self.target):
            log.warning('%s: "%s" %s', self.name, flow.target, obstacles.FORGETFUL)
        if flow.provenance_headers:
            log.info('%s: records get the header "%s"; %s', self.name, marks.KEY, marks.SHARED)
        stored = await store.read_positions(
            self.target, flow.offset_storage_topic, flow.source, connector=flow.connector_name
        )
        store.tell_unread(self.name, flow.offset_storage_topic, stored.unreadable)
        await store.read_on(self.target, self.ledger_topic, self.ledger)
        self._producer_id = claim.producer_id
        self._standing.begin(self.ledger, stored.found)
        await self.discover()

    async def look_at_rights(self) -> bool:
        """Name every right that is missing, once, and that it is back; True if one came back."""
        came_back = await self._lacks.look(list(wanted_topics(self.flow, self.source.catalogue)))
        if self.ledger_topic:
            await self._lacks.write_down(self.ledger_topic)
        return came_back

    def leads(self) -> bool:
        """Whether this process leads the flow, for certain: who does not writes nothing."""
        return self.tenure is None or self.tenure.leads()

    @property
    def entries(self) -> dict[PartitionName, Entry]:
        """Of the partitions that are copied."""
        return self._standing.entries

    @property
    def is_read_committed(self) -> bool:
        return self.flow.isolation_level == "read_committed"

    @property
    def wants_reopening(self) -> bool:
        """The ledger stands in the offset-storage topic and need not any more."""
        return bool(self.ledger_topic) and self.ledger_topic != self.flow.ledger_topic and not self._lacks_ledger()

    def _lacks_ledger(self) -> bool:
        """Whether we may not read, write or make the ledger's own topic."""
        is_there = self.flow.ledger_topic in self.target.catalogue.topics
        needed = (Operation.READ, Operation.WRITE) if is_there else (Operation.READ, Operation.WRITE, Operation.CREATE)
        return self._lacks.forbid(self.flow.ledger_topic, needed)

    # -- topics --------------------------------------------------------------------------

    async def discover(self) -> bool:
        """Look for new topics and partitions, make their targets, open their counts; did anything change?"""
        source, target = await asyncio.gather(self.source.refresh(), self.target.refresh())
        if (storage := self.flow.offset_storage_topic) not in target.topics:
            await store.ensure_topics(self.target, self._internal(self.ledger_topic), vital={storage})
        wanted = wanted_topics(self.flow, source)
        target = await self.targets.ensure(source, wanted)
        present = [
            (topic, partition)
            for topic, remote in wanted.items()
            if remote in target.topics
            for partition in range(min(len(source.topics[topic].partitions), len(target.topics[remote].partitions)))
        ]
        gone = self._standing.keep_only(present)
        if gone:
            log.warning(
                "%s: no longer mirrored: %s (deleted, or not selected any more); what was copied stays",
                *(self.name, ", ".join(sorted({topic for topic, _ in gone}))),
            )
        known = self.entries.keys() | self._reopening | self.losses.stopped.keys()
        fresh = [where for where in present if where not in known]
        enrolled = await self._enrol(fresh)
        self.is_complete = enrolled == len(fresh)
        return bool(gone or enrolled)

    # -- counts --------------------------------------------------------------------------

    async def _enrol(self, fresh: Sequence[PartitionName]) -> int:
        """Give partitions their entry, the ledger's or a new count; how many got one."""
        standing = self._standing
        starts: dict[PartitionName, Start] = {}
        going_on: dict[PartitionName, Entry] = {}
        for where in fresh:
            known, stored = standing.known.get(where), standing.positions.get(where)
            if known is None:
                starts[where] = self._first_start() if stored is None else Start(stored, Past.OTHERS)
                continue
            if (ids := topic_ids(where, self.flow, source=self.source, target=self.target)) is None:
                continue
            place = place_of(known, stored, source_id=ids[0], target_id=ids[1])
            if isinstance(place, Outcome):
                self._answer(where, place, starts)
            elif self.losses.stand(where, known):
                continue
            elif isinstance(place, Entry):
                going_on[where] = place
            else:
                starts[where] = place
                log.info(
                    "%s %s-%d: another tool had the flow: its position is %d, the ledger's %d; going on there",
                    *(self.name, *where, place.offset, known.source_offset),
                )
        for where, end in (await source_offsets(self.source, going_on, LATEST)).items():
            standing.entries[where] = going_on[where].moved(source_end=end)
        await self.losses.keep(self.ledger_topic)
        await self._open_counts(starts)
        return sum(where in standing.entries for where in fresh)

    def _first_start(self) -> Start:
        """Where a partition begins that nobody has copied yet."""
        return Start(EARLIEST if self.flow.auto_offset_reset == "earliest" else LATEST, Past.NOTHING)

    async def _open_counts(self, starts: Mapping[PartitionName, Start]) -> None:
        if starts:
            await open_counts(
                starts,
                self._standing,
                flow=self.flow,
                terms=self.terms(),
                source=self.source,
                target=self.target,
                ledger=self.ledger,
                check=self._check_lead,
            )

    def _check_lead(self) -> None:
        if self.tenure is not None:
            self.tenure.check()

    # -- epochs --------------------------------------------------------------------------

    def assignments(self) -> list[Assignment]:
        result = []
        for (topic, partition), entry in self.entries.items():
            if not self.flow.is_running or not self.leads() or not self.losses.let(topic, partition):
                continue
            remote = self.flow.remote_topic(topic)
            limits = self.targets.limits(remote)
            page = self._standing.pages.get((topic, partition))
            result.append(
                Assignment(
                    flow=self.name,
                    topic=topic,
                    partition=partition,
                    target_topic=remote,
                    entry=entry,
                    max_message_bytes=limits.max_message_bytes,
                    target_stamps_time=limits.stamps_time,
                    page=page.pack() if page is not None else b"",
                    late_ms=self._standing.late_ms((topic, partition)),
                )
            )
        return result

    def terms(self) -> FlowTerms:
        """What lanes are told; with the secrets as they are now."""
        return terms_of(
            self.flow,
            self._settings,
            is_local=self._is_local,
            producer_id=self._producer_id,
            ledger_topic=self.ledger_topic,
            ledger_end=self.ledger.end,
            offset_partitions=self._offset_partitions(),
            term=self.tenure.term if self.tenure is not None else None,
            source_cluster_id=self.source.catalogue.cluster_id,
            target_cluster_id=self.target.catalogue.cluster_id,
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

    def take_written(self) -> None:
        """After a job without rows: go on with what its lanes wrote down."""
        self._standing.take_written(self.ledger)

    async def take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Take over what the lanes report; answer what they could not decide."""
        starts: dict[PartitionName, Start] = {}
        for row in rows:
            where = (row.topic, row.partition)
            self._standing.take_row(row)
            self.left_out += row.left_out
            if not row.error_code:
                self._waits.goes_on(where)
            if row.error_code == RulesChanged.code:
                log.info("%s", row.error_text)
                starts[where] = Start(row.entry.source_offset, Past.OURS)
            elif row.state == "released":
                self._answer(where, outcome_of(row), starts)
        if rows:
            self._unwritten.note([row.unwritten for row in rows if row.unwritten])
        for where in starts:
            self.entries.pop(where, None)
        was_complete = self.is_complete
        self.is_complete = was_complete and not starts  # until all have their new count
        self._reopening = frozenset(starts)
        try:
            await self.losses.keep(self.ledger_topic)
            if starts:
                await self._go_on(starts)
                self.is_complete = was_complete and self.entries.keys() >= starts.keys()
        finally:
            self._reopening = frozenset()
            if not self.is_complete:
                self.changed.set()  # a look at the topics sees to what failed here

    async def _go_on(self, starts: Mapping[PartitionName, Start]) -> None:
        """Open new counts where the clusters, looked at anew, still have the partitions."""
        source, _ = await asyncio.gather(self.source.refresh(), self.target.refresh())
        wanted = wanted_topics(self.flow, source)
        target = await self.targets.ensure(source, wanted)
        await self._open_counts(
            {
                (topic, partition): start
                for (topic, partition), start in starts.items()
                if source.leader_of(topic, partition) is not None
                and topic in wanted
                and target.leader_of(wanted[topic], partition) is not None
            }
        )

    def _answer(self, where: PartitionName, outcome: Outcome, starts: dict[PartitionName, Start]) -> None:
        """Name what happened, and go on or stop as the policies say, or as somebody who acknowledged it wants."""
        answer = self.losses.answer(where, self._with_place(where, self._with_other_leader(outcome)))
        if isinstance(answer, GoOn):
            is_anew = outcome.code in (TopicRecreated.code, TargetTopicLost.code)
            starts[where] = Start(answer.source_offset, Past.VOID if is_anew else Past.OURS)
        elif outcome.code in RESTARTABLE:
            self.failed.add(where)
            self.has_failed.set()

    def _with_other_leader(self, outcome: Outcome) -> Outcome:
        """A second writer has a name if the lease tells it."""
        if outcome.code != SecondWriter.code or self.tenure is None or not (other := self.tenure.other()):
            return outcome
        return outcome._replace(text=f"{outcome.text}; the flow's other leader is {other}")

    def _with_place(self, where: PartitionName, outcome: Outcome) -> Outcome:
        """Where the copy of what a target lost begins, if that lies before the open run and the ledger knows it."""
        if outcome.code != TargetTruncated.code or outcome.details["target_end"] >= outcome.entry.run_target:
            return outcome
        place = self.ledger.partition(where).source_after(int(outcome.details["target_end"]))
        return outcome if place is None else outcome._replace(details={**outcome.details, "source_offset": place})

    def restart(self) -> None:
        """Copy again what failed; the next plan and look at the topics take it up."""
        for where in self.failed:
            self.losses.stopped.pop(where, None)
        self.failed.clear()
        self.changed.set()

    def note_loss(self, loss: Loss) -> bool:
        """The ledger has a word about a loss; True if a partition that stood still for it goes on."""
        goes_on = self.losses.take(loss)
        if goes_on:
            self.changed.set()
        return goes_on

    def note_trouble(self, trouble: formats.Trouble) -> None:
        """Log what keeps partitions waiting: once when it begins, once when it is over, not once a partition."""
        where = (trouble.topic, trouble.partition)
        if trouble.code in (ForeignWrites.code, SecondWriter.code) and not trouble.final:
            entry = self.ledger.partition(where).entry
            if entry is not None:
                outcome = Outcome(trouble.code, trouble.text, entry, trouble.details)
                self.losses.inform(where, self._with_other_leader(outcome))
            return
        if trouble.text and not trouble.final:
            self._waits.note(where, trouble.text)
        else:
            self._waits.goes_on(where)

    def look_at_throttling(self) -> str:
        """What the driver's own clients waited for; what goes on, for the line of progress."""
        for cluster in (self.source, self.target):
            if seconds := cluster.muted.take_s(time.monotonic()):
                self.throttling.note(cluster.alias, cluster.client_id, seconds)
        return self.throttling.look()

    async def order_end(self, owner: str, epoch_id: int) -> None:
        """Tell the lanes of this epoch, and of all before it, to end now."""
        order = formats.Order(owner=owner, end_epoch=epoch_id)
        await store.write_order(self.target, self.ledger_topic, self.flow.group_id, order)

    def close(self) -> None:
        self._lacks.close()
        self.source.close()
        self.target.close()
