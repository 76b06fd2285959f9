"""Refreshes the topics of one flow: finds what is new or gone on both clusters, makes targets, has counts opened."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager

from heliograph.errors import HeliographError
from heliograph.flow.discovery import as_known, counts_of, tell_gone
from heliograph.flow.enrolment import Enrolment
from heliograph.flow.flow_names import FlowNames
from heliograph.flow.leader_epochs import source_epochs, target_epochs
from heliograph.flow.loss_book import LossBook
from heliograph.flow.opening import OpenedFlow
from heliograph.flow.partition_mapping import PartitionMapping
from heliograph.flow.partition_table import PartitionTable
from heliograph.flow.producer_memory import TargetMemory
from heliograph.flow.target_topics import TargetTopics
from heliograph.kafka.catalogue import Catalogue
from heliograph.ledger import store
from heliograph.ledger.counts import Start
from heliograph.ledger.kept_troubles import plan_troubles
from heliograph.ledger.model import PartitionName
from heliograph.ledger.position_requests import asked_now, first_asked
from heliograph.outage_log import Waits

log = logging.getLogger("heliograph")


class FlowTopics:
    """Keeps what the last refresh of one flow's topics found."""

    def __init__(
        self,
        opening: OpenedFlow,
        table: PartitionTable,
        losses: LossBook,
        *,
        names: FlowNames,
        targets: TargetTopics,
        memory: TargetMemory,
        enrolment: Enrolment,
    ) -> None:
        self._opening = opening
        self._table = table
        self._losses = losses
        self._enrolment = enrolment
        self.names = names
        self.targets = targets
        self.memory = memory
        self.waits = Waits(opening.name)
        """What keeps partitions waiting."""
        self.missed: set[str] = set()
        """Topics that lanes do not find on a cluster; refreshed until they are there again, or gone here too."""
        self.is_complete = True
        """Every partition that is to be copied has its entry; else some had no leader at the last refresh."""
        self._counts: dict[str, int] | None = None
        """How many partitions each topic of the source had at the last refresh; None before the first one."""
        self._looks_for_new = True
        """The next refresh takes up new topics even if `refresh.topics.enabled` is false."""
        self._refusals: dict[str, HeliographError] = {}
        """Topics that the target did not make or grow at the last refresh, or that can have no name there."""
        self._remapped: dict[str, str] = {}
        """What was logged of topics that share their target's partitions."""
        self._reopening: frozenset[PartitionName] = frozenset()
        """Partitions whose new count is being opened: a refresh leaves them alone meanwhile."""

    def look_for_new(self) -> None:
        """Take up new topics with the next refresh, also where new ones are not followed."""
        self._looks_for_new = True

    async def begin(self) -> None:
        """Begin anew as the flow's leader: forget what was found before, then refresh."""
        self._counts, self._looks_for_new = None, True
        await self.keep_troubles(over=list(self._opening.ledger.troubles))
        await self.discover()

    async def discover(self) -> bool:
        """Find topics and partitions that are new or gone, make targets, open counts; did anything change?"""
        began = time.monotonic()
        flow, ledger, table = self._opening.flow, self._opening.ledger, self._table
        source = await self.refresh()
        await self._opening.ensure_storage()
        wanted = self.names.plan_and_tell(source.topics).wanted
        target = await self.targets.ensure(source, wanted)
        mapping = PartitionMapping(flow, table.known, source=source, target=target)
        present = mapping.present(wanted, begun=table.begun)
        self._tell_remapped(dict(mapping.remapped(wanted)))
        gone = self._drop_all_but(present, source, wanted)
        self._counts, self._looks_for_new = counts_of(source), False
        known = table.entries.keys() | self._reopening | self._losses.stopped.keys()
        fresh = [where for where in present if where not in known]
        is_first = first_asked(flow, ledger.asked, is_new=not table.known)
        enrolled = await self._enrolment.enrol(fresh, mapping, is_first)
        await self._note_asked({topic: len(source.topics[topic].partitions) for topic in wanted}, is_first)
        self.is_complete = enrolled == len(fresh) and not self.targets.denials.is_passing
        self._refusals = {**self.names.refused, **self.targets.refusals(wanted)}
        await self.keep_troubles(over=ledger.troubles.keys() - table.entries.keys())
        log.debug("%s: refreshed %d partitions in %.2f s", flow.name, len(present), time.monotonic() - began)
        return bool(gone or enrolled)

    async def refresh(self) -> Catalogue:
        """Ask both clusters for their topics; return the source's, without new ones where these are not followed."""
        opening, known = self._opening, self._table.known
        await asyncio.gather(opening.source.refresh(), opening.target.refresh())
        await opening.source.heed(source_epochs(known))  # believe no leader that was deposed before we copied
        await opening.target.heed(target_epochs(known, opening.flow))
        await self.memory.look()
        source = opening.source.catalogue
        if opening.flow.refresh_topics_enabled or self._looks_for_new or self._counts is None:
            return source
        return as_known(source, self._counts)

    async def renew_metadata(self) -> None:
        """Ask for old metadata again; a leader that was deposed may go on answering as if it led."""
        opening, topics = self._opening, {topic for topic, _ in self._table.entries}
        await opening.source.refresh_if_old(topics)
        await opening.target.refresh_if_old({opening.ledger_topic, *map(opening.flow.remote_topic, topics)})

    def _tell_remapped(self, remapped: dict[str, str]) -> None:
        for topic, text in remapped.items():
            if self._remapped.get(topic) != text:
                log.info("%s: %s: %s", self._opening.name, topic, text)
        self._remapped = remapped

    def _drop_all_but(
        self, present: Collection[PartitionName], source: Catalogue, wanted: Mapping[str, str]
    ) -> set[PartitionName]:
        """Stop copying partitions that are gone, and log why; return them."""
        gone = self._table.keep_only(present)
        for line in tell_gone(gone, source, wanted):
            log.warning("%s: %s", self._opening.name, line)
        for where in gone:
            self.waits.forget(where)
        self.missed &= {topic for topic, _ in self._table.entries}
        return gone

    async def _note_asked(self, partitions: Mapping[str, int], is_first: Callable[[PartitionName], bool]) -> None:
        """Write down which topics the flow selects: what appears later among them is new."""
        opening = self._opening
        before, begun = opening.ledger.asked, self._table.known
        asked = asked_now(opening.flow, before, partitions, begun=begun, is_first=is_first)
        if asked != before:
            opening.check_lead()
            await store.write_records(opening.target, opening.ledger_topic, opening.flow.group_id, [asked])
            opening.ledger.asked = asked

    # -- beside a refresh ----------------------------------------------------------------

    @contextmanager
    def reopening(self, partitions: Collection[PartitionName]) -> Iterator[None]:
        """Copy partitions no longer until they have a new count, and let no refresh enrol them meanwhile.

        Those that have none in the end are left to the next refresh.
        """
        was_complete, wanted = self.is_complete, frozenset(partitions)
        for where in wanted:
            self._table.drop(where)
        self.is_complete = was_complete and not wanted
        self._reopening = wanted
        try:
            yield
            self.is_complete = was_complete and self._table.entries.keys() >= wanted
        finally:
            self._reopening = frozenset()
            if not self.is_complete:
                self._opening.changed.set()

    async def reopen(self, starts: Mapping[PartitionName, Start]) -> None:
        """Open new counts where the clusters, asked again, still have the partitions."""
        source = await self.refresh()
        wanted = self.names.plan(source.topics).wanted
        target = await self.targets.ensure(source, wanted)
        mapping = PartitionMapping(self._opening.flow, self._table.known, source=source, target=target)
        found = {
            where: start
            for where, start in starts.items()
            if source.leader_of(*where) is not None
            and where[0] in wanted
            and (remote := mapping.target(where)) is not None
            and target.leader_of(*remote) is not None
        }
        await self._enrolment.open_counts(found)

    async def keep_troubles(self, *, over: Collection[PartitionName]) -> None:
        """Write down for `topics` what the target refuses, and which partitions no longer wait."""
        opening = self._opening
        troubles = plan_troubles(opening.ledger.troubles, refused=self._refusals, over=over)
        if troubles:
            await store.write_records(opening.target, opening.ledger_topic, opening.flow.group_id, troubles)
            opening.ledger.take_troubles(troubles)

    def miss(self, topic: str) -> None:
        """A lane does not find a topic: refresh until it is there again, or gone here too."""
        self.missed.add(topic)

    def goes_on(self, where: PartitionName) -> None:
        """A partition is copied again: it waits for nothing, and its topic is there."""
        self.waits.goes_on(where)
        self.missed.discard(where[0])
