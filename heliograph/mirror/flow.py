"""One flow on the driver: what it mirrors, where each partition stands, what went wrong.

Owns the flow's two cluster clients and its ledger in memory. It opens counts (the
driver alone does), creates target topics, and answers a lane's troubles by policy.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence

from heliograph.config.settings import ClusterSettings, Flow, Settings
from heliograph.errors import (
    ClusterChanged,
    ConfigError,
    CorruptBatch,
    ForeignWrites,
    HeliographError,
    NotAuthorized,
    RecordRefused,
    RulesChanged,
    SecondWriter,
    TargetTopicLost,
    TopicRecreated,
)
from heliograph.kafka.acls import Operation
from heliograph.kafka.admin import EARLIEST, LATEST, list_offsets
from heliograph.kafka.cluster import Catalogue, Cluster
from heliograph.kafka.compression import Codec
from heliograph.kafka.groups import CLASSIC, describe_groups
from heliograph.kafka.security import Security
from heliograph.kafka.types import NO_TOPIC_ID, BrokerAddress, TopicPartition
from heliograph.mirror import formats, store
from heliograph.mirror.access import Role, for_executors, security_of
from heliograph.mirror.counts import Past, Start, lineage_at_opening, pages_at_opening
from heliograph.mirror.demand import internal_topics, too_few_brokers, wanted_topics
from heliograph.mirror.lacks import Lacks
from heliograph.mirror.ledger import Ledger, PartitionName
from heliograph.mirror.loss_book import Losses
from heliograph.mirror.losses import Loss
from heliograph.mirror.mm2 import OffsetSync
from heliograph.mirror.model import Assignment, Entry, FlowTerms, LedgerRow, counting_rule
from heliograph.mirror.outcomes import GoOn, Outcome, outcome_of, source_made_anew, target_made_anew
from heliograph.mirror.rebuild import rebuild_pages
from heliograph.mirror.restarts import Restarts
from heliograph.mirror.runs import OpenPage, Page
from heliograph.mirror.spells import Spell, Waits
from heliograph.mirror.targets import TargetTopics
from heliograph.mirror.tenure import Tenure
from heliograph.mirror.throttling import Throttling

log = logging.getLogger("heliograph")

MAX_COUNT = 32767
FETCH_MAX_BYTES = 8 * 1024 * 1024
PARTITION_BYTES = 2 * 1024 * 1024
"""Larger fetches bring no more speed and cost the lane's memory: these are the upper limits of Kafka's keys."""
LEADER_PAUSE_S = 0.5
RESTARTABLE = (RecordRefused.code, CorruptBatch.code)
"""What stops a partition and may be mended outside; what a policy stops stays stopped."""


class FlowDriver:
    """The driver's side of one flow."""

    def __init__(self, flow: Flow, settings: Settings, *, is_local: bool) -> None:
        self.flow = flow
        self.name = flow.name
        self._settings = settings
        self._is_local = is_local
        user = "" if flow.client_id == flow.name else f"{flow.client_id}|"
        self._client_id = f"{user}{flow.name}|{flow.connector_name}"
        self._source_bootstrap = _addresses(settings.clusters[flow.source])
        self._target_bootstrap = _addresses(settings.clusters[flow.target])
        self.source = Cluster(
            flow.source,
            self._source_bootstrap,
            client_id=f"{self._client_id}|replication-source-admin",
            security=security_of(settings, flow, Role.SOURCE_ADMIN),
        )
        self.target = Cluster(
            flow.target,
            self._target_bootstrap,
            client_id=f"{self._client_id}|replication-target-admin",
            security=security_of(settings, flow, Role.TARGET_ADMIN),
        )
        self.targets = TargetTopics(flow, self.target)
        self.entries: dict[PartitionName, Entry] = {}
        self.tenure: Tenure | None = None
        """Our part in the flow's lease; without one the flow is ours alone."""
        self._ledger_identity: tuple[str, object] | None = None
        self.is_complete = True
        """Every partition has its entry; else some had no leader when last looked at."""
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
        self._unwritten = Spell()
        self._producer_id = -1
        self._positions: dict[PartitionName, int] = {}
        self._answered: set[PartitionName] = set()
        """Partitions of which nothing is on its way to the target: all that lanes sent was answered."""
        self._known: dict[PartitionName, Entry] = {}
        self._pages: dict[PartitionName, OpenPage] = {}
        """The pages being filled, as the lanes gave them back."""
        self._reset = EARLIEST if flow.auto_offset_reset == "earliest" else LATEST
        self.carried = ""
        """What is told of its groups with its progress."""
        self.ledger_moved = asyncio.Event()
        """Set when the lanes wrote down what they copied."""
        self.changed = asyncio.Event()
        """Set when the flow has other settings than at the last look."""

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
        if source.cluster_id and source.cluster_id == target.cluster_id:
            raise ConfigError(
                f'"{flow.source}" and "{flow.target}" are the same cluster ({source.cluster_id})',
                where=self.name,
                remedy="check the two bootstrap.servers",
            )
        await self._refuse_beside_mm2()
        await self._lacks.look(list(self._wanted_topics(source)))
        topic = flow.offset_storage_topic if self._lacks_ledger() else flow.ledger_topic
        self._check_factors(target, self._wanted_topics(source))
        kept_elsewhere = flow.ledger_topic if topic != flow.ledger_topic else ""
        internal = [wanted for wanted in internal_topics(flow) if wanted.name != kept_elsewhere]
        await store.ensure_topics(self.target, internal, vital={flow.offset_storage_topic, topic})
        identity = (topic, self.target.catalogue.topics[topic].topic_id)
        if identity == self._ledger_identity:
            await store.read_on(self.target, topic, self.ledger)
            return
        self.ledger = self.losses.ledger = await store.read_ledger(self.target, topic, flow.group_id)
        self.ledger_topic, self._ledger_identity = topic, identity
        store.tell_unread(self.name, topic, self.ledger.unreadable)

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
        stored = await store.read_positions(
            self.target, flow.offset_storage_topic, flow.source, connector=flow.connector_name
        )
        store.tell_unread(self.name, flow.offset_storage_topic, stored.unreadable)
        await store.read_on(self.target, self.ledger_topic, self.ledger)
        self._producer_id = claim.producer_id
        self._positions = stored.found
        self.entries.clear()
        self._answered.clear()
        self._known = self.ledger.entries
        self._pages = {where: self.ledger.partitions[where].open_page() for where in self._known}
        await self.discover()

    async def look_at_rights(self) -> bool:
        """Name every right that is missing, once, and that it is back; True if one came back."""
        came_back = await self._lacks.look(list(self._wanted_topics(self.source.catalogue)))
        if self.ledger_topic:
            await self._lacks.write_down(self.ledger_topic)
        return came_back

    def leads(self) -> bool:
        """Whether this process leads the flow, for certain: who does not writes nothing."""
        return self.tenure is None or self.tenure.leads()

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

    async def _refuse_beside_mm2(self) -> None:
        try:
            described = await describe_groups(self.target, {self.flow.group_id: CLASSIC})
            members = described.the(self.flow.group_id).members
        except NotAuthorized:
            return  # named among the missing rights
        if members:
            raise ConfigError(
                f'the group "{self.flow.group_id}" is alive on "{self.flow.target}": '
                f"MirrorMaker 2 is running there ({', '.join(map(str, members[:3]))})",
                where=self.name,
                remedy="stop it first, or give this flow another group.id",
            )

    def _check_factors(self, target: Catalogue, wanted: Mapping[str, str]) -> None:
        """Before anything is made: does the target have brokers enough?"""
        fault = too_few_brokers(self.flow, target, wanted.values())
        if fault is not None:
            raise fault

    # -- topics --------------------------------------------------------------------------

    def _wanted_topics(self, source: Catalogue) -> dict[str, str]:
        return wanted_topics(self.flow, source)

    async def discover(self) -> bool:
        """Look for new topics and partitions, make their targets, open their counts; did anything change?"""
        source, _ = await asyncio.gather(self.source.refresh(), self.target.refresh())
        wanted = self._wanted_topics(source)
        target = await self.targets.ensure(source, wanted)
        present = [
            (topic, partition)
            for topic, remote in wanted.items()
            if remote in target.topics
            for partition in range(min(len(source.topics[topic].partitions), len(target.topics[remote].partitions)))
        ]
        gone = self.entries.keys() - set(present)
        for where in gone:
            del self.entries[where]
        if gone:
            log.warning(
                "%s: no longer mirrored: %s (deleted, or not selected any more); what was copied stays",
                *(self.name, ", ".join(sorted({topic for topic, _ in gone}))),
            )
        fresh = [where for where in present if where not in self.entries and where not in self.losses.stopped]
        enrolled = await self._enrol(fresh)
        self.is_complete = enrolled == len(fresh)
        return bool(gone or enrolled)

    # -- counts --------------------------------------------------------------------------

    async def _enrol(self, fresh: Sequence[PartitionName]) -> int:
        """Give partitions their entry, the ledger's or a new count; how many got one."""
        starts: dict[PartitionName, Start] = {}
        known_ones: dict[PartitionName, Entry] = {}
        for where in fresh:
            known = self._known.get(where)
            if known is None:
                stored = self._positions.get(where)
                starts[where] = Start(self._reset, Past.NOTHING) if stored is None else Start(stored, Past.OTHERS)
                continue
            source_id, target_id = self._topic_ids(where)
            if not _same_id(known.source_topic_id, source_id):
                self._answer(where, source_made_anew(known, source_id), starts)
            elif not _same_id(known.target_topic_id, target_id):
                self._answer(where, target_made_anew(known, target_id), starts)
            elif self.losses.stand(where, known):
                continue
            elif self._positions.get(where, 0) > known.source_offset:
                starts[where] = Start(self._positions[where], Past.OTHERS)
                log.info(
                    "%s %s-%d: another tool had the flow: its position is %d, the ledger's %d; going on there",
                    *(self.name, *where, starts[where].offset, known.source_offset),
                )
            else:
                known_ones[where] = known.moved(source_topic_id=source_id, target_topic_id=target_id)
        for where, end in (await self._offsets(self.source, known_ones, LATEST)).items():
            self.entries[where] = known_ones[where].moved(source_end=end)
        await self.losses.keep(self.ledger_topic)
        await self._open_counts(starts)
        return sum(where in self.entries for where in fresh)

    async def _open_counts(self, starts: Mapping[PartitionName, Start]) -> None:
        """Begin a new count for each partition at a source offset; EARLIEST and LATEST are the ends of its log.

        The counts are in the ledger before any lane can send a batch of theirs. Their positions
        are stored before that: a position ahead of its entry would look like another tool's.
        A partition without a leader is left for the next look.
        """
        if not starts:
            return
        firsts = await self._offsets(self.source, starts, EARLIEST)
        lasts = await self._offsets(self.source, starts, LATEST)
        ends = await self._offsets(self.target, starts, LATEST)
        opened: dict[PartitionName, Entry] = {}
        pages: dict[PartitionName, dict[int, Page | None]] = {}
        for where in firsts.keys() & lasts.keys() & ends.keys():
            wanted, past = starts[where]
            offset = {EARLIEST: firsts[where], LATEST: lasts[where]}.get(wanted, wanted)
            source_id, target_id = self._topic_ids(where)
            opened[where] = Entry(
                source_topic_id=source_id,
                target_topic_id=target_id,
                count=self._next_count(where),
                n=0,
                source_offset=offset,
                target_offset=ends[where],
                our_end=ends[where],
                run_source=offset,
                run_target=ends[where],
                source_end=lasts[where],
                lineage=lineage_at_opening(past, offset, self._known.get(where)),
                rule=counting_rule(read_committed=self.is_read_committed),
            )
            pages[where] = pages_at_opening(
                past,
                opened[where],
                known=self._known.get(where),
                page=self._pages.get(where),
                pages=self.ledger.partition(where).pages,
            )
        await self._rebuild({where: opened[where] for where in opened if starts[where].past is Past.OTHERS}, pages)
        if self.tenure is not None:
            self.tenure.check()
        await store.write_positions(self.target, self.terms(), opened)
        await store.write_entries(self.target, self.ledger_topic, self.flow.group_id, opened, pages)
        self.entries.update(opened)
        self._answered.update(where for where in opened if starts[where].past is Past.NOTHING)
        self._known.update(opened)
        self._pages.update({where: OpenPage(entry.run_source) for where, entry in opened.items()})
        self._positions.update({where: entry.source_offset for where, entry in opened.items()})

    async def _rebuild(
        self, opened: Mapping[PartitionName, Entry], pages: dict[PartitionName, dict[int, Page | None]]
    ) -> None:
        """Add what offset syncs prove about records that the ledger does not know; translations there are degraded."""
        unknown = {where: entry for where, entry in opened.items() if entry.source_offset}
        if not unknown:
            return
        cluster = self.source if self.flow.offset_syncs.location == "source" else self.target
        topic = self.flow.offset_syncs_topic
        syncs: list[OffsetSync] = []
        skipped = 0
        try:
            if topic in cluster.catalogue.topics:
                syncs, skipped = await store.read_parsed(cluster, topic, OffsetSync.parse)
        except HeliographError as error:
            log.warning('%s: the offset syncs in "%s" cannot be read: %s', self.name, topic, error)
        by_partition: dict[PartitionName, list[tuple[int, int]]] = {}
        for sync in syncs:
            by_partition.setdefault((sync.topic, sync.partition), []).append((sync.upstream, sync.downstream))
        for where, entry in unknown.items():
            pages[where] |= await rebuild_pages(
                self.target,
                TopicPartition(self.flow.remote_topic(where[0]), where[1]),
                by_partition.get(where, []),
                position=entry.source_offset,
                target_end=entry.target_offset,
                count=entry.count,
            )
        log.warning(
            "%s: %d partitions were copied before, and the ledger does not say how: it was rebuilt from %d offset "
            "syncs (%d records were none); groups that stand there may read records again, and their translation is "
            "said to be degraded",
            *(self.name, len(unknown), len(syncs), skipped),
        )

    def _next_count(self, where: PartitionName) -> int:
        previous = self.entries.get(where) or self._known.get(where)
        count = previous.count + 1 if previous else 0
        if count > MAX_COUNT:
            raise ConfigError(
                f"{where[0]}-{where[1]} has used up its {MAX_COUNT} counts",
                where=self.name,
                remedy="give the flow another group.id",
            )
        return count

    def _topic_ids(self, where: PartitionName) -> tuple[str, str]:
        source = self.source.catalogue.topics[where[0]]
        target = self.target.catalogue.topics[self.flow.remote_topic(where[0])]
        return source.topic_id.hex, target.topic_id.hex

    async def _offsets(self, cluster: Cluster, wanted: Iterable[PartitionName], which: int) -> dict[PartitionName, int]:
        """An end of the log of each partition; those whose leader does not answer are left out."""
        if cluster is self.source:
            names = {TopicPartition(*where): where for where in wanted}
        else:
            names = {TopicPartition(self.flow.remote_topic(where[0]), where[1]): where for where in wanted}
        answers = await list_offsets(cluster, names, which)
        silent = [name for name, answer in answers.items() if answer.error_code]
        if silent:
            await asyncio.sleep(LEADER_PAUSE_S)
            await cluster.refresh({name.topic for name in silent})
            answers.update(await list_offsets(cluster, silent, which))
        return {names[name]: answer.offset for name, answer in answers.items() if not answer.error_code}

    # -- epochs --------------------------------------------------------------------------

    def assignments(self) -> list[Assignment]:
        result = []
        for (topic, partition), entry in self.entries.items():
            if not self.flow.is_running or not self.leads() or not self.losses.let(topic, partition):
                continue
            remote = self.flow.remote_topic(topic)
            limits = self.targets.limits(remote)
            page = self._pages.get((topic, partition))
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
                    may_be_late=(topic, partition) not in self._answered,
                )
            )
        return result

    def terms(self) -> FlowTerms:
        flow = self.flow
        consumer = flow.source_consumer
        return FlowTerms(
            name=self.name,
            source=flow.source,
            target=flow.target,
            source_bootstrap=self._source_bootstrap,
            target_bootstrap=self._target_bootstrap,
            group_id=flow.group_id,
            connector=flow.connector_name,
            client_id=self._client_id,
            producer_id=self._producer_id,
            ledger_topic=self.ledger_topic,
            ledger_end=self.ledger.end,
            offset_topic=flow.offset_storage_topic,
            offset_partitions=len(self.target.catalogue.topics[flow.offset_storage_topic].partitions),
            flush_ms=flow.offset_flush_interval_ms,
            read_committed=self.is_read_committed,
            client_rack=consumer.get("client.rack", ""),
            fetch_max_wait_ms=int(consumer.get("fetch.max.wait.ms", 500)),
            fetch_min_bytes=int(consumer.get("fetch.min.bytes", 1)),
            fetch_max_bytes=min(FETCH_MAX_BYTES, int(consumer.get("fetch.max.bytes", FETCH_MAX_BYTES))),
            partition_bytes=min(PARTITION_BYTES, int(consumer.get("max.partition.fetch.bytes", PARTITION_BYTES))),
            compression=None if flow.compression == "none" else int(Codec[flow.compression.upper()]),
            source_security=self._lane_security(Role.SOURCE_CONSUMER),
            target_security=self._lane_security(Role.TARGET_PRODUCER),
            term=self.tenure.term if self.tenure is not None else 0,
            lease_ms=self._settings.lease_ms if self.tenure is not None else 0,
        )

    def _lane_security(self, role: Role) -> Security:
        """With the secrets as they are now; in each epoch's terms anew."""
        security = security_of(self._settings, self.flow, role)
        return for_executors(security, self._settings, is_local=self._is_local, where=f'"{role.alias(self.flow)}"')

    def take_written(self) -> None:
        """After a job without rows: what its lanes wrote down leaves less to settle than what they were given."""
        self._answered.clear()
        for where, entry in self.entries.items():
            ledger = self.ledger.partitions.get(where)
            written = ledger.entry if ledger is not None else None
            if ledger is not None and written is not None and written.count == entry.count and written.n > entry.n:
                self.entries[where] = self._known[where] = written
                self._pages[where] = ledger.open_page()

    async def take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Take over what the lanes report; answer what they could not decide."""
        starts: dict[PartitionName, Start] = {}
        for row in rows:
            where = (row.topic, row.partition)
            self._known[where] = row.entry
            self._pages[where] = OpenPage.unpack(row.page)
            (self._answered.discard if row.may_be_late else self._answered.add)(where)
            if where in self.entries:  # else it was deselected meanwhile
                self.entries[where] = row.entry
            if not row.error_code:
                self._waits.goes_on(where)
            if row.error_code == RulesChanged.code:
                log.info("%s", row.error_text)
                starts[where] = Start(row.entry.source_offset, Past.OURS)
            elif row.state == "released":
                self._answer(where, outcome_of(row), starts)
        self._note_unwritten(rows)
        for where in starts:
            self.entries.pop(where, None)
        if starts:
            self.is_complete = False  # until all have their new count; a later look sees to what fails here
        await self.losses.keep(self.ledger_topic)
        if starts:
            await self._go_on(starts)

    async def _go_on(self, starts: Mapping[PartitionName, Start]) -> None:
        """Open new counts where the clusters, looked at anew, still have the partitions."""
        source, _ = await asyncio.gather(self.source.refresh(), self.target.refresh())
        wanted = self._wanted_topics(source)
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
        self.is_complete = self.entries.keys() >= starts.keys()

    def _answer(self, where: PartitionName, outcome: Outcome, starts: dict[PartitionName, Start]) -> None:
        """Name what happened, and go on or stop as the policies say, or as somebody who acknowledged it wants."""
        answer = self.losses.answer(where, self._with_other_leader(outcome))
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

    def _note_unwritten(self, rows: Sequence[LedgerRow]) -> None:
        """Lanes that could not write positions down may not have been able to say so in the ledger either."""
        behind = [row for row in rows if row.unwritten]
        if not behind:
            if rows and (lasted := self._unwritten.end()):
                log.info("%s: stored positions are up to date again %s", self.name, lasted)
        elif self._unwritten.is_news(""):
            log.warning(
                "%s: the stored positions of %d partitions are %d records behind what is copied: they could not be "
                "written; no data is at risk, the next start finds the rest in the target's log",
                *(self.name, len(behind), sum(row.unwritten for row in behind)),
            )

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


def _addresses(cluster: ClusterSettings) -> tuple[BrokerAddress, ...]:
    return tuple(BrokerAddress.parse(text) for text in cluster.bootstrap_servers)


def _same_id(known: str, found: str) -> bool:
    """Whether two topic ids may be the same topic's; clusters before 2.8 have none."""
    return known == found or NO_TOPIC_ID.hex in (known, found)
