"""One flow on the driver: it comes up, finds what to mirror, gives it to lanes and takes it back.

Owns the flow's two cluster clients and its ledger in memory. Where partitions stand is in
`partition_table`, how a count is opened in `count_opening`, what the policies say in `loss_outcomes`, what is
kept of it in `loss_book`; here is the order in which these are asked.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence

from heliograph.config.settings import Flow, Settings
from heliograph.config.start_points import BEGINNING, StartPoint
from heliograph.errors import (
    BrokerRefused,
    ClusterChanged,
    CorruptBatch,
    ForeignWrites,
    HeliographError,
    NotAuthorized,
    RecordRefused,
    RulesChanged,
    SecondWriter,
    TargetTopicLost,
    TargetTruncated,
    TopicRecreated,
)
from heliograph.flow import start_checks
from heliograph.flow.count_opening import open_counts, source_offsets, topic_ids
from heliograph.flow.discovery import as_known, counts_of, tell_gone
from heliograph.flow.flow_names import FlowNames
from heliograph.flow.lane_terms import client_id_of, terms_of
from heliograph.flow.leader_epochs import source_epochs, target_epochs
from heliograph.flow.lease_holder import LeaseHolder
from heliograph.flow.loss_book import LossBook
from heliograph.flow.partition_mapping import PartitionMapping
from heliograph.flow.partition_table import PartitionTable, past_of, place_of
from heliograph.flow.producer_memory import TargetMemory
from heliograph.flow.required_topics import internal_topics, wanted_topics
from heliograph.flow.restarts import Restarts
from heliograph.flow.start_positions import find_starts, tell_beginnings
from heliograph.flow.takeover import find_ours
from heliograph.flow.target_inspection import INSPECTED, inspect
from heliograph.flow.target_topics import TargetTopics
from heliograph.flow.throttling import Throttling
from heliograph.kafka.admin.acls import Operation
from heliograph.kafka.admin.topics import EARLIEST, LATEST, NewTopic, forgets_producers
from heliograph.kafka.catalogue import Catalogue
from heliograph.lane.batches import provenance
from heliograph.ledger import store
from heliograph.ledger.cluster_access import Role, apply_settings, cluster_of
from heliograph.ledger.counts import Past, Start, source_at
from heliograph.ledger.kept_troubles import plan_troubles
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.loss_outcomes import GoOn, Outcome, never_written_down, outcome_of
from heliograph.ledger.model import Assignment, FlowTerms, LedgerRow, PartitionName
from heliograph.ledger.partition_remap import target_partition
from heliograph.ledger.position_requests import asked_now, first_asked
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.topic_change import ChangeKind, TopicChange
from heliograph.ledger.records.trouble import WHOLE_TOPIC, Trouble
from heliograph.ledger.tail import Unsettled
from heliograph.outage_log import Outage, Unwritten, Waits
from heliograph.rights.missing_rights import MissingRights
from heliograph.side_loops import SideLoops

log = logging.getLogger("heliograph")

RESTARTABLE = (RecordRefused.code, CorruptBatch.code)
"""What stops a partition and may be mended outside; what a policy stops stays stopped."""

INSPECTIONS = 8
"""Partitions whose target's log is inspected at the same time."""


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
        self.targets = TargetTopics(flow, self.target, source=self.source)
        self.memory = TargetMemory(flow.name, self.target)
        self.names = FlowNames(self)
        self.lease_holder: LeaseHolder | None = None
        """Our part in the flow's lease; without one the flow is ours alone."""
        self._ledger_identity: tuple[str, object] | None = None
        self.is_complete = True
        """Every partition that is to be copied has its entry; else some had no leader when last looked at."""
        self._seen: dict[str, int] | None = None
        """How many partitions each topic of the source had at the last look; None before the first one."""
        self._looks_for_new = True
        """The next look is for new topics too, even if they are not to be followed: they count from there on."""
        self._refusals: dict[str, HeliographError] = {}
        """Topics that the target did not make or grow at the last look, or that can have no name there."""
        self.missed: set[str] = set()
        """Topics that lanes do not find on a cluster; each is looked at until it is there again, or gone here too."""
        self.ledger_topic = ""
        """Where the ledger is kept: in its own topic, or beside the positions where that is not allowed."""
        self.ledger = Ledger(group_id=flow.group_id)
        """As written on the target; the driver follows it."""
        self._lacks = MissingRights(flow, settings, source=self.source, target=self.target)
        self.losses = LossBook(flow, self.target, self.ledger)
        self.restarts = Restarts()
        self.failed: set[PartitionName] = set()
        """Of the stopped ones, those that a restart may help."""
        self.has_failed = asyncio.Event()
        self.throttling = Throttling(flow.name)
        self.side_loops = SideLoops(flow.name)
        """What runs beside the copying, and which of it fails."""
        self._waits, self._unwritten = Waits(flow.name), Unwritten(flow.name)
        self._absent = Outage()
        self._table = PartitionTable()
        self._remapped: dict[str, str] = {}  # what was told of topics that share their target's partitions
        self._reopening: frozenset[PartitionName] = frozenset()
        """Partitions whose new count is being opened: nobody else is to enrol them meanwhile."""
        self.carried = ""
        """What is told of its groups with its progress."""
        self.left_out = 0
        """Records that came home by their provenance, since the start."""
        self.ledger_moved = asyncio.Event()
        """Set when the lanes wrote down what they copied."""
        self.changed = asyncio.Event()
        """Set when the topics want a look before it is due: other settings, a right that is back, a count to open."""

    def apply(self, flow: Flow, settings: Settings) -> None:
        """Go on with changed settings; the next connection, look at the topics and plan take them up."""
        self.flow = flow
        self._settings = settings
        apply_settings(self.source, settings, flow, Role.SOURCE_ADMIN)
        apply_settings(self.target, settings, flow, Role.TARGET_ADMIN)
        self._lacks.apply(flow, settings)
        self.targets.apply(flow)
        self.losses.flow = flow
        self._looks_for_new = True
        self.changed.set()

    # -- start ---------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, check what would make mirroring wrong, make the internal topics, read the ledger.

        May be repeated, and a standby does it too. What was read of the ledger before stays, unless it is another one.
        """
        flow = self.flow
        source, target = await self.source.refresh(), await self.target.refresh()
        start_checks.refuse_one_cluster(flow, source, target)
        start_checks.refuse_nameless(flow, source, target)
        await start_checks.refuse_way_back(flow, self._settings, self.source, target)
        await start_checks.refuse_beside_mm2(flow, self.target)
        wanted = wanted_topics(flow, source)
        await self._lacks.look(list(wanted))
        topic = flow.offset_storage_topic if self._lacks_ledger() else flow.ledger_topic
        start_checks.refuse_too_many_replicas(flow, target, wanted.values())
        await self._ensure_internal(topic, vital={flow.offset_storage_topic, topic})
        identity = (topic, self.target.topic_meta(topic, "opening the ledger").topic_id)
        if identity == self._ledger_identity:
            await store.read_on(self.target, topic, self.ledger)
            return
        for fault in await start_checks.refuse_uncompacted(flow, source=self.source, target=self.target):
            log.warning("%s", fault)
        self.ledger = self.losses.ledger = await store.read_ledger(self.target, topic, flow.group_id)
        self.ledger_topic, self._ledger_identity = topic, identity
        store.tell_refused(self.name, self.ledger.refused)

    async def _ensure_internal(self, ledger_topic: str, *, vital: Collection[str]) -> None:
        """Have the internal topics, made by us or, where that is not wished, by others."""
        if self.flow.makes_internal_topics:
            await store.ensure_topics(self.target, self._internal(ledger_topic), vital=vital)
            return
        fault = start_checks.refuse_absent_storage(self.flow, self.target.catalogue)
        if fault is not None and self._absent.is_news(str(fault)):
            log.warning("%s", fault)

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
        await self.write_lost()
        try:
            await self._claim(row=0)
        except ClusterChanged as error:
            await self.losses.keep_changed(error, self.ledger_topic)
            raise
        await self.write_condition()
        if await forgets_producers(self.target):
            log.warning('%s: "%s" %s', self.name, flow.target, start_checks.FORGETFUL)
        if flow.provenance_headers:
            log.info('%s: records get the header "%s"; %s', self.name, provenance.KEY, provenance.SHARED)
        stored = await store.read_positions(
            self.target, flow.offset_storage_topic, flow.source, connector=flow.connector_name
        )
        store.tell_refused(self.name, stored.refused)
        await store.read_on(self.target, self.ledger_topic, self.ledger)
        self._table.begin(self.ledger, stored.found)
        self._seen, self._looks_for_new = None, True
        await self._keep_troubles(over=list(self.ledger.troubles))
        for (
            where
        ) in self.ledger.position_requests:  # a position that was set is an answer to what stopped the partition
            self.losses.stopped.pop(where, None)
        await self.discover()

    async def _claim(self, *, row: int) -> None:
        """Have a producer id for a row of the flow (`remap`)."""
        await store.claim_producer_id(
            self.target,
            self.ledger_topic,
            self.ledger,
            source_cluster_id=self.source.catalogue.cluster_id,
            target_cluster_id=self.target.catalogue.cluster_id,
            row=row,
        )

    async def write_lost(self) -> None:
        """As the flow's leader: write again what the ledger's topic lost by an unclean election.

        That includes counts which we opened, and lost before we read them there.
        """
        if self.ledger.restored != self.ledger.generation:
            self.ledger.restored = self.ledger.generation
            for where, entry in self._table.known.items():
                self.ledger.restore(where, entry)
        if number := await store.write_lost(self.target, self.ledger_topic, self.ledger):
            log.info('%s: %d records that "%s" had lost are written again', self.name, number, self.ledger_topic)

    async def look_at_rights(self) -> bool:
        """Name every right that is missing, once, and that it is back; True if one came back."""
        return await self._lacks.look(list(self.names.plan().wanted))

    async def write_condition(self) -> None:
        """For `status`: which rights are missing, and which side loops fail."""
        if self.ledger_topic:
            await self._lacks.write_down(self.ledger_topic, self.side_loops.failing())

    def leads(self) -> bool:
        """Whether this process leads the flow, for certain: who does not writes nothing."""
        return self.lease_holder is None or self.lease_holder.leads()

    @property
    def entries(self) -> dict[PartitionName, Entry]:
        """Of the partitions that are copied."""
        return self._table.entries

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
        if not is_there and not self.flow.makes_internal_topics:
            return True
        needed = (Operation.READ, Operation.WRITE) if is_there else (Operation.READ, Operation.WRITE, Operation.CREATE)
        return self._lacks.forbid(self.flow.ledger_topic, needed)

    # -- topics --------------------------------------------------------------------------

    async def discover(self) -> bool:
        """Look for topics and partitions that are new or gone, make targets, open counts; did anything change?"""
        began = time.monotonic()
        source = await self._look()
        if (storage := self.flow.offset_storage_topic) not in self.target.catalogue.topics:
            await self._ensure_internal(self.ledger_topic, vital={storage})
        wanted = self.names.plan_and_tell(source.topics).wanted
        target = await self.targets.ensure(source, wanted)
        places = PartitionMapping(self.flow, self._table.known, source=source, target=target)
        present = places.present(wanted, begun=self._table.begun)
        remapped = dict(places.remapped(wanted))
        for topic, text in remapped.items():
            if self._remapped.get(topic) != text:
                log.info("%s: %s: %s", self.name, topic, text)
        self._remapped = remapped
        gone = self._table.keep_only(present)
        for line in tell_gone(gone, source, wanted):
            log.warning("%s: %s", self.name, line)
        for where in gone:
            self._waits.forget(where)
        self._seen, self._looks_for_new = counts_of(source), False
        self.missed &= {topic for topic, _ in self.entries}
        known = self.entries.keys() | self._reopening | self.losses.stopped.keys()
        fresh = [where for where in present if where not in known]
        begun = self._table.known
        await self._claim_rows({where: begun[where].count for where in fresh if where in begun}, places)
        is_first = first_asked(self.flow, self.ledger.asked, is_new=not self._table.known)
        enrolled = await self._enrol(fresh, is_first)
        await self._note_asked({topic: len(source.topics[topic].partitions) for topic in wanted}, is_first)
        self.is_complete = enrolled == len(fresh) and not self.targets.denials.is_passing
        self._refusals = {**self.names.refused, **self.targets.refusals(wanted)}
        await self._keep_troubles(over=self.ledger.troubles.keys() - self.entries.keys())
        log.debug("%s: %d partitions looked at in %.2f s", self.name, len(present), time.monotonic() - began)
        return bool(gone or enrolled)

    async def _look(self) -> Catalogue:
        """Ask both clusters what they have; of the source without what is new, where that is not to be followed."""
        await asyncio.gather(self.source.refresh(), self.target.refresh())
        await self._heed_epochs()
        await self.memory.look()
        source = self.source.catalogue
        if self.flow.refresh_topics_enabled or self._looks_for_new or self._seen is None:
            return source
        return as_known(source, self._seen)

    async def _heed_epochs(self) -> None:
        """Believe no leader of either cluster that is older than those under which was copied."""
        entries = self._table.known
        await self.source.heed(source_epochs(entries))
        await self.target.heed(target_epochs(entries, self.flow))

    async def renew_metadata(self) -> None:
        """Ask for old metadata again; a leader that was deposed may go on answering as if it led."""
        topics = {topic for topic, _ in self.entries}
        await self.source.refresh_if_old(topics)
        await self.target.refresh_if_old({self.ledger_topic, *map(self.flow.remote_topic, topics)})

    async def _note_asked(self, partitions: Mapping[str, int], is_first: Callable[[PartitionName], bool]) -> None:
        """Write down what the flow is asked for: what appears later among it is new."""
        before, begun = self.ledger.asked, self._table.known
        asked = asked_now(self.flow, before, partitions, begun=begun, is_first=is_first)
        if asked != before:
            self._check_lead()
            await store.write_records(self.target, self.ledger_topic, self.flow.group_id, [asked])
            self.ledger.asked = asked

    # -- counts --------------------------------------------------------------------------

    async def _enrol(self, fresh: Sequence[PartitionName], is_first: Callable[[PartitionName], bool]) -> int:
        """Give partitions their entry, the ledger's or a new count; how many got one.

        `is_first` tells of one that was never copied whether it has its start position, or is new and comes whole.
        """
        table = self._table
        starts: dict[PartitionName, Start] = {}
        points: dict[PartitionName, StartPoint] = {}
        begun: dict[PartitionName, Entry] = {}
        for where in fresh:
            known, stored = table.known.get(where), table.positions.get(where)
            request = self.ledger.position_requests.get(where)
            if request is not None and request.holds(known, stored):
                points[where] = request.point(self.flow.start_positions.of(where[0]))
            elif known is not None:
                begun[where] = known
            elif stored is not None:
                starts[where] = Start(stored, Past.OTHERS)
            else:
                points[where] = self.flow.start_positions.of(where[0]) if is_first(where) else BEGINNING
        going_on = await self._place(begun, starts)
        for where, end in (await source_offsets(self.source, going_on, LATEST)).items():
            table.entries[where] = going_on[where].moved(source_end=end)
        await self.losses.flush(self.ledger_topic)
        await self._open_counts(starts)
        await self._begin(points)
        return sum(where in table.entries for where in fresh)

    async def _place(
        self, begun: Mapping[PartitionName, Entry], starts: dict[PartitionName, Start]
    ) -> dict[PartitionName, Entry]:
        """The entries with which partitions go on that were begun; those that need a new count get a start."""
        going_on: dict[PartitionName, Entry] = {}
        ahead: dict[PartitionName, tuple[Entry, Start]] = {}
        unclear: dict[PartitionName, Outcome] = {}
        for where, known in begun.items():
            if (ids := topic_ids(where, self.flow, source=self.source, target=self.target)) is None:
                continue
            place = place_of(known, self._table.positions.get(where), source_id=ids[0], target_id=ids[1])
            if isinstance(place, Outcome) and place.code in INSPECTED:
                unclear[where] = place
            elif isinstance(place, Outcome):
                self._answer(where, place, starts)
            elif self.losses.restore_stop(where, known):
                continue
            elif isinstance(place, Entry):
                going_on[where] = place
            else:
                ahead[where] = known.moved(source_topic_id=ids[0], target_topic_id=ids[1]), place
        for where, found in {**await self._told_apart(ahead), **await self._inspected(unclear)}.items():
            if isinstance(found, Outcome):
                self._answer(where, found, starts)
            elif isinstance(found, Entry):
                going_on[where] = found
            else:
                starts[where] = found
        return going_on

    async def _told_apart(
        self, ahead: Mapping[PartitionName, tuple[Entry, Start]]
    ) -> dict[PartitionName, Entry | Start]:
        """How partitions go on whose stored position is ahead of the ledger's entry: with the entry, where the ledger
        lost its newest records, else in a new count where another tool left off; the rest waits for the next look."""
        if not ahead:
            return {}
        asked = {where: (self._assignment(where, known), start.offset) for where, (known, start) in ahead.items()}
        ours = await find_ours(asked, self.terms(), source=self.source, target=self.target)
        places: dict[PartitionName, Entry | Start] = {}
        for where, is_ours in ours.items():
            known, start = ahead[where]
            places[where] = known if is_ours else start
            said = (self.name, *where, start.offset, known.source_offset)
            if is_ours:
                log.warning(
                    "%s %s-%d: the ledger lost its newest records: the stored position is %d, the ledger's %d; what "
                    "the target has beyond that is found by settling",
                    *said,
                )
            else:
                log.info(
                    "%s %s-%d: another tool had the flow: its position is %d, the ledger's %d; going on there", *said
                )
        return places

    async def _claim_rows(self, counts: Mapping[PartitionName, int], places: PartitionMapping) -> None:
        """Claim a producer id for every row that partitions stand in, before anything is sent under it."""
        for row in sorted(places.rows(counts) - self.ledger.producer_ids.keys()):
            self._check_lead()
            await self._claim(row=row)

    async def _begin(self, points: Mapping[PartitionName, StartPoint]) -> None:
        """Open counts where the ledger has no place, or somebody set another, and say where; the rest waits."""
        later = {where: point for where, point in points.items() if not point.is_earliest}
        found = await find_starts(later, self.source, read_committed=self.is_read_committed)
        offsets = {where: EARLIEST for where in points if where not in later}
        offsets |= {where: beginning.offset for where, beginning in found.items()}
        starts: dict[PartitionName, Start] = {}
        for where, offset in offsets.items():
            ids = topic_ids(where, self.flow, source=self.source, target=self.target)
            if ids is not None:
                starts[where] = Start(offset, past_of(self._table.known.get(where), *ids))
        requests = {
            where: request for where in starts if (request := self.ledger.position_requests.get(where)) is not None
        }
        await self._open_counts(starts)
        tell_beginnings(self.name, self.entries, found, points, requests)

    async def _open_counts(self, starts: Mapping[PartitionName, Start]) -> None:
        if not starts:
            return
        table = self._table
        places = PartitionMapping(self.flow, table.known, source=self.source.catalogue, target=self.target.catalogue)
        counts = {where: table.next_count(where, start.above) for where, start in starts.items()}
        await self._claim_rows(counts, places)
        used = await open_counts(
            starts,
            table,
            flow=self.flow,
            terms=self.terms(),
            source=self.source,
            target=self.target,
            ledger=self.ledger,
            check=self._check_lead,
        )
        for where, found in used.items():
            self.losses.inform(where, never_written_down(self.entries[where], found.number, found.records))
        if used:
            await self.losses.flush(self.ledger_topic)

    def _check_lead(self) -> None:
        if self.lease_holder is not None:
            self.lease_holder.check()

    # -- epochs --------------------------------------------------------------------------

    def assignments(self) -> list[Assignment]:
        result = []
        for (topic, partition), entry in self.entries.items():
            if not self.flow.is_running or not self.leads() or not self.losses.is_copied(topic, partition):
                continue
            result.append(self._assignment((topic, partition), entry))
        return result

    def _assignment(self, where: PartitionName, entry: Entry) -> Assignment:
        topic, partition = where
        remote = self.flow.remote_topic(topic)
        limits = self.targets.limits(remote)
        page = self._table.pages.get(where)
        return Assignment(
            flow=self.name,
            topic=topic,
            partition=partition,
            target_topic=remote,
            entry=self._with_target_epoch(entry, remote, partition),
            max_message_bytes=limits.max_message_bytes,
            target_stamps_time=limits.stamps_time,
            page=page.pack() if page is not None else b"",
            late_ms=self._table.late_ms(where),
            first_of_term=self._table.is_unsettled(where),
            source_leader_epoch=self.source.catalogue.leader_epoch_of(topic, partition),
        )

    def _with_target_epoch(self, entry: Entry, remote: str, partition: int) -> Entry:
        """The entry with the newest leader epoch of its copy that we know; a lane's metadata may be older."""
        known = self.target.catalogue.leader_epoch_of(remote, target_partition(partition, entry.modulo))
        return entry.moved(target_leader_epoch=known) if known > entry.target_leader_epoch else entry

    def terms(self) -> FlowTerms:
        """What lanes are told; with the secrets as they are now."""
        return terms_of(
            self.flow,
            self._settings,
            is_local=self._is_local,
            producer_ids=self.ledger.producer_ids,
            ledger_topic=self.ledger_topic,
            ledger_end=self.ledger.end,
            offset_partitions=self._offset_partitions(),
            append_bytes=self.targets.append_bytes(self.ledger_topic, self.flow.offset_storage_topic),
            term=self.lease_holder.term if self.lease_holder is not None else None,
            source_cluster_id=self.source.catalogue.cluster_id,
            target_cluster_id=self.target.catalogue.cluster_id,
            memory_ms=self.memory.doubtful_ms,
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
        self._table.take_written(self.ledger)

    async def take_rows(self, rows: Sequence[LedgerRow]) -> None:
        """Take over what the lanes report; answer what they could not decide."""
        starts: dict[PartitionName, Start] = {}
        unclear: dict[PartitionName, Outcome] = {}
        for row in rows:
            where = (row.topic, row.partition)
            self._table.take_row(row)
            self.left_out += row.left_out
            if not row.error_code:
                self._goes_on(where)
            if row.error_code == RulesChanged.code:
                log.info("%s", row.error_text)
                starts[where] = Start(row.entry.source_offset, Past.OURS)
            elif row.state == "released" and row.error_code in INSPECTED:
                unclear[where] = outcome_of(row)
            elif row.state == "released":
                self._answer(where, outcome_of(row), starts)
        if rows:
            self._unwritten.note([row.unwritten for row in rows if row.unwritten])
        reopening = starts.keys() | unclear.keys()
        for where in reopening:
            self.entries.pop(where, None)
        was_complete = self.is_complete
        self.is_complete = was_complete and not reopening  # until all have their new count
        self._reopening = frozenset(reopening)
        try:
            for where, found in (await self._inspected(unclear)).items():
                if isinstance(found, Entry):
                    self._table.entries[where] = self._table.known[where] = found
                else:
                    self._answer(where, found, starts)
            await self.losses.flush(self.ledger_topic)
            await self._keep_troubles(over={(row.topic, row.partition) for row in rows if not row.error_code})
            if starts:
                await self._go_on(starts)
                self.is_complete = was_complete and self.entries.keys() >= reopening
        finally:
            self._reopening = frozenset()
            if not self.is_complete:
                self.changed.set()  # a look at the topics sees to what failed here

    async def _go_on(self, starts: Mapping[PartitionName, Start]) -> None:
        """Open new counts where the clusters, looked at anew, still have the partitions."""
        source = await self._look()
        wanted = self.names.plan(source.topics).wanted
        target = await self.targets.ensure(source, wanted)
        places = PartitionMapping(self.flow, self._table.known, source=source, target=target)
        found = {
            where: start
            for where, start in starts.items()
            if source.leader_of(*where) is not None
            and where[0] in wanted
            and (remote := places.target(where)) is not None
            and target.leader_of(*remote) is not None
        }
        await self._open_counts(found)

    def _answer(self, where: PartitionName, outcome: Outcome, starts: dict[PartitionName, Start]) -> None:
        """Name what happened, and go on or stop as the policies say, or as somebody who acknowledged it wants."""
        answer = self.losses.answer(where, self._with_other_leader(self._with_source(where, outcome)))
        if isinstance(answer, GoOn):
            is_anew = outcome.code in (TopicRecreated.code, TargetTopicLost.code)
            past = Past.VOID if is_anew else Past.OURS
            starts[where] = Start(answer.source_offset, past, above=int(outcome.details.get("count", -1)))
        elif outcome.code in RESTARTABLE:
            self.failed.add(where)
            self.has_failed.set()

    async def _inspected(self, outcomes: Mapping[PartitionName, Outcome]) -> dict[PartitionName, Outcome | Entry]:
        """Outcomes with what the target's log tells of them, or entries of copies that go on all the same.

        Those of which it tells nothing now are left out: the next look, or the next lane, meets them again.
        """
        turn = asyncio.Semaphore(INSPECTIONS)
        found: dict[PartitionName, Outcome | Entry] = {}
        terms = self.terms() if outcomes else None

        async def look(where: PartitionName, outcome: Outcome) -> None:
            assert terms is not None
            copy = Unsettled.of(self._assignment(where, outcome.entry), outcome.entry, terms)
            page, pages = self._table.pages.get(where), list(self.ledger.partition(where).pages)
            async with turn:
                try:
                    found[where] = await inspect(
                        outcome, copy, page, pages, producer_ids=terms.ids_by_row, target=self.target
                    )
                except NotAuthorized:
                    found[where] = outcome
                except HeliographError as error:
                    log.warning("%s %s-%d: what the target lost is not known yet: %s", self.name, *where, error)

        await asyncio.gather(*(look(where, outcome) for where, outcome in outcomes.items()))
        return found

    def _with_source(self, where: PartitionName, outcome: Outcome) -> Outcome:
        """Where a target that lost records is filled again from, if the runs before the open one tell."""
        details = outcome.details
        if outcome.code != TargetTruncated.code or "target_end" not in details or "source_offset" in details:
            return outcome
        page, pages = self._table.pages.get(where), self.ledger.partition(where).pages
        found = source_at(int(outcome.details["target_end"]), outcome.entry, page, pages)
        return outcome if found is None else outcome._replace(details={**outcome.details, "source_offset": found})

    def _with_other_leader(self, outcome: Outcome) -> Outcome:
        """A second writer has a name if the lease tells it."""
        if outcome.code != SecondWriter.code or self.lease_holder is None or not (other := self.lease_holder.other()):
            return outcome
        return outcome._replace(text=f"{outcome.text}; the last other leader of the flow was {other}")

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

    def note_trouble(self, trouble: Trouble) -> None:
        """Log what keeps partitions waiting: once when it begins, once when it is over, not once a partition."""
        where = (trouble.topic, trouble.partition)
        if trouble.partition == WHOLE_TOPIC:
            return  # our own word
        if trouble.code in (ForeignWrites.code, SecondWriter.code) and not trouble.final:
            entry = self.ledger.partition(where).entry
            if entry is not None:
                outcome = Outcome(trouble.code, trouble.text, entry, trouble.details)
                self.losses.inform(where, self._with_other_leader(outcome))
            return
        if trouble.text and not trouble.final:
            self._waits.note(where, trouble.text)
        else:
            self._goes_on(where)

    async def _keep_troubles(self, *, over: Collection[PartitionName]) -> None:
        """For `topics`: what the target refuses, and of which partitions the last word does not hold any more."""
        troubles = plan_troubles(self.ledger.troubles, refused=self._refusals, over=over)
        if troubles:
            await store.write_records(self.target, self.ledger_topic, self.flow.group_id, troubles)
            self.ledger.take_troubles(troubles)

    def _goes_on(self, where: PartitionName) -> None:
        self._waits.goes_on(where)
        self.missed.discard(where[0])

    def note_change(self, change: TopicChange) -> None:
        """A lane found a topic otherwise than it was planned: the topics are looked at before that is due."""
        log.debug("%s: %s: %s", self.name, change.topic, change.what)
        if change.what is ChangeKind.GONE:
            self.missed.add(change.topic)
        self.changed.set()

    def look_at_throttling(self) -> str:
        """What the driver's own clients waited for; what goes on, for the line of progress."""
        for cluster in (self.source, self.target):
            if seconds := cluster.muted.take_s(time.monotonic()):
                self.throttling.note(cluster.alias, cluster.client_id, seconds)
        return self.throttling.look()

    async def order_end(self, owner: str, epoch_id: int) -> None:
        """Tell the lanes of this epoch, and of all before it, to end now."""
        order = Order(owner=owner, end_epoch=epoch_id)
        await store.write_records(self.target, self.ledger_topic, self.flow.group_id, [order])

    def sizes(self) -> dict[str, int]:
        """How much of what is kept could grow."""
        clients = (self.source, self.target)
        return {
            "partitions": len(self.entries),
            "ledger": len(self.ledger.partitions),
            "causes": len(self._waits),
            "missed": len(self.missed),
            "limits": len(self.targets),
            "connections": sum(client.connections for client in clients),
            "coordinators": sum(len(client.coordinators) for client in clients),
        }

    def close(self) -> None:
        self._lacks.close()
        self.source.close()
        self.target.close()
