"""The ledger of a flow in memory: all that is known of it, and what that makes of a committed offset. Pure.

Translation of a group's committed offset on the source:

    in a run                        where the run says
    in a gap that had no records    the start of the next run
    at the end of what is mirrored  where the next copy will stand
    beyond that                     the same, and by how much the group is ahead
    where nothing is known          after the last record known before it: records may be read again, none is skipped

Where a count copies once more what counts before it copied, theirs is what is mirrored until it has gone as far
(`counts`).
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from enum import StrEnum
from typing import NamedTuple

from heliograph.clock import Clock, host_clock
from heliograph.kafka.admin.acls import AclResource
from heliograph.ledger import formats
from heliograph.ledger.counts import reach_of
from heliograph.ledger.kept_acls import KeptAcls, keep
from heliograph.ledger.kept_troubles import is_lasting
from heliograph.ledger.lease import Leadership, Lease
from heliograph.ledger.losses import Loss, LossKey, newest
from heliograph.ledger.model import Entry
from heliograph.ledger.partition_remap import SAME, target_partition
from heliograph.ledger.position_requests import PositionRequest, SelectionSeen
from heliograph.ledger.runs import OpenPage, Page, Run
from heliograph.ledger.source_snapshot import Contact, GroupPass, LogEnd, LogEnds, PassKind, SeenGroup
from heliograph.ledger.unreadable_records import RefusedRecords

PartitionName = tuple[str, int]
"""(source topic, partition)"""


class Grade(StrEnum):
    """How good a translation is."""

    EXACT = "exact"
    AHEAD = "ahead"
    """The group has read more than is mirrored: it goes on at the end."""
    DEGRADED = "degraded"
    """The ledger does not know this stretch: some records are read again."""
    SHARED = "shared"
    """The target's partition has copies of several: what the group has read beyond the lowest is read again."""


class Translation(NamedTuple):
    offset: int
    """On the target; not below its log start nor beyond its end only after `within`."""
    grade: Grade = Grade.EXACT
    ahead: int = 0
    """Source offsets between what is mirrored and the group."""

    def within(self, log_start: int, log_end: int) -> Translation:
        """As far as the target's log goes now."""
        return self._replace(offset=max(log_start, min(self.offset, log_end)))


class PartitionLedger:
    """What is known of one partition."""

    __slots__ = ("_by_start", "_former", "_former_reach", "_overwritten", "_pages", "entry")

    def __init__(self) -> None:
        self.entry: Entry | None = None
        self._pages: dict[int, Page] = {}
        self._former: dict[int, Page] = {}
        self._former_reach = 0
        self._by_start: list[Page] | None = None
        self._overwritten: set[int] = set()
        """Where a page came late: the topic has it on top of the one that counts."""

    def take_entry(self, entry: Entry) -> None:
        """An older one, of a lane that outlived its time, changes nothing."""
        if self.entry is None or _age(entry) >= _age(self.entry):
            self.entry = entry

    def take_page(self, start: int, page: Page | None) -> None:
        """None: it was deleted. An older one, of a lane that outlived its time, changes nothing."""
        if page is not None and self.entry is not None and _is_late(page, self.entry):
            self._overwritten.add(start)
            return
        self._by_start = None
        self._overwritten.discard(start)
        if page is None:
            self._pages.pop(start, None)
        else:
            self._pages[start] = page

    def take_former(self, start: int, page: Page | None) -> None:
        """None: it was deleted."""
        if page is None:
            self._former.pop(start, None)
        else:
            self._former[start] = page
        self._former_reach = reach_of(self._former.values())

    @property
    def pages(self) -> Iterable[Page]:
        return self._pages.values()

    @property
    def former(self) -> Iterable[Page]:
        """What counts before copied from where the present one began."""
        return self._former.values()

    @property
    def reach(self) -> int:
        """Up to where the source is mirrored; the present count may be copying once more what lies before."""
        return max(self.entry.source_offset if self.entry is not None else 0, self._former_reach)

    @property
    def _is_again(self) -> bool:
        return self.entry is not None and self.entry.source_offset < self._former_reach

    def outrun(self) -> dict[int, Page | None]:
        """What to write so that former pages are gone that the present count has passed."""
        return {} if self._is_again else dict.fromkeys(self._former)

    def open_page(self) -> OpenPage:
        """The page that goes on being filled; a new one if none ends where the entry's open run begins."""
        assert self.entry is not None
        entry = self.entry
        for page in self._pages.values():
            if page.count == entry.count and page.end == entry.run_source and not page.is_rebuilt:
                return OpenPage(page.start, page.runs())
        return OpenPage(entry.run_source)

    def overwritten(self) -> dict[int, Page | None]:
        """What to write again because a page that came late stands on top of it: compaction would leave that one."""
        pages = {start: self._pages.get(start) for start in self._overwritten}
        return {start: page if page is None else replace(page, by_lane=False) for start, page in pages.items()}

    def pruned(self, log_start: int) -> dict[int, Page | None]:
        """What to write so that pages wholly below the source's log start are gone; never the one being filled.

        Of what they said remains that there is nothing: a group that stands there goes on at the first run left.
        """
        entry = self.entry
        if entry is None or self._is_again:
            return {}
        limit = min(log_start, entry.run_source - 1)
        gone = [page for page in self._sorted() if page.end <= limit]
        if not any(page.number for page in gone):
            return {}
        nothing = Page.of(0, gone[-1].end, gone[-1].count, (), target=gone[-1].target)
        return {page.start: None for page in gone} | {0: nothing}

    def runs_since(self, offset: int) -> Iterator[Run]:
        """What was copied of the source from an offset on, in order."""
        pages = self._sorted()
        for page in itertools.islice(pages, max(0, bisect_right(pages, offset, key=_start_of) - 1), None):
            if page.end > offset:
                yield from (part for run in page.runs() if (part := _from(run, offset)).length > 0)
        if self.entry is not None:
            entry = self.entry
            part = _from(Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source), offset)
            if part.length > 0:
                yield part

    def copied_between(self, target_start: int, target_end: int) -> int:
        """How many records were copied to target offsets from one up to another."""
        entry, pages = self.entry, self._sorted()
        if entry is None or target_end <= target_start:
            return 0
        runs = [Run(entry.run_source, entry.run_target, entry.source_offset - entry.run_source)]
        for page in reversed(pages):
            if runs[-1].target <= target_start:
                break
            runs += reversed(page.runs())
        return sum(max(0, min(run.target_end, target_end) - max(run.target, target_start)) for run in runs)

    # -- translation -----------------------------------------------------------------------

    def translate(self, offset: int) -> Translation | None:
        """Where a group that committed `offset` on the source goes on; None if nothing was ever copied."""
        entry = self.entry
        if entry is None:
            return None
        if offset >= self.reach:
            ahead = offset - self.reach
            if ahead and not self._has_copied(entry):
                return None
            return Translation(entry.target_offset, Grade.AHEAD if ahead else Grade.EXACT, ahead)
        if self._is_again:
            former = sorted(self._former.values(), key=_start_of)
            first = (page for page in self._sorted() if page.start < former[0].start)
            found = _by_pages([*first, *former], offset, (self._former_reach, entry.target_offset))
        elif offset >= entry.run_source:
            return Translation(entry.run_target + offset - entry.run_source)
        else:
            found = _by_pages(self._sorted(), offset, (entry.run_source, entry.run_target))
        return found._replace(offset=min(found.offset, entry.target_offset))

    def _has_copied(self, entry: Entry) -> bool:
        return entry.n > 0 or any(page.number for page in (*self._pages.values(), *self._former.values()))

    def _sorted(self) -> list[Page]:
        if self._by_start is None:
            self._by_start = sorted(self._pages.values(), key=_start_of)
        return self._by_start


def _by_pages(pages: Sequence[Page], offset: int, following: tuple[int, int]) -> Translation:
    """By pages in their order, and by what comes after them: the source offset where that begins, and the target's."""
    at = bisect_right(pages, offset, key=_start_of) - 1
    if at < 0:
        return Translation(0, Grade.DEGRADED)
    page = pages[at]
    if offset < page.end:
        grade = Grade.DEGRADED if page.is_rebuilt else Grade.EXACT
        for run in page.runs():
            if offset < run.source_end:
                return Translation(run.target + max(0, offset - run.source), grade)
        start = _start_after(following, pages, at)
        if start is not None:
            return Translation(start, grade)
    return Translation(_end_before(pages, at), Grade.DEGRADED)


def _age(entry: Entry) -> tuple[int, int, int]:
    """Counts follow each other, and in a count nothing goes back."""
    return entry.count, entry.n, entry.source_offset


def _is_late(page: Page, entry: Entry) -> bool:
    """Whether a page is older than an entry that stands before it: a lane writes both at once, and the page ends where
    the entry's open run begins."""
    return page.by_lane and (page.count, page.end) < (entry.count, entry.run_source)


def _start_of(page: Page) -> int:
    return page.start


def _from(run: Run, offset: int) -> Run:
    """The part of a run from a source offset on; its length is not positive if there is none."""
    skipped = max(0, offset - run.source)
    return Run(run.source + skipped, run.target + skipped, run.length - skipped)


def _start_after(following: tuple[int, int], pages: Sequence[Page], at: int) -> int | None:
    """The target offset of the first record after a page; None if what follows it is not known."""
    end = pages[at].end
    for page in itertools.islice(pages, at + 1, None):
        if page.start != end:
            return None
        if page.number:
            return page.target
        end = page.end
    return following[1] if end == following[0] else None


def _end_before(pages: Sequence[Page], at: int) -> int:
    """The target offset after the last record that is known up to a page, that one included."""
    for index in range(at, -1, -1):
        if pages[index].number:
            return pages[index].runs()[-1].target_end
    return 0


# -- a whole flow --------------------------------------------------------------------------


@dataclass(slots=True, kw_only=True)
class Ledger:
    """Of one flow, as read from the target so far."""

    group_id: str
    claim: formats.ProducerClaim | None = None
    further_claims: dict[int, formats.ProducerClaim] = field(default_factory=dict)
    """By row, of those after the first (`remap`)."""
    condition: formats.Condition | None = None
    partitions: dict[PartitionName, PartitionLedger] = field(default_factory=dict)
    contact: Contact | None = None
    """The last answer of the source; None if it never answered."""
    log_ends: dict[PartitionName, LogEnd] = field(default_factory=dict)
    groups: dict[str, SeenGroup] = field(default_factory=dict)
    passes: dict[PassKind, GroupPass] = field(default_factory=dict)
    """The last pass of each kind over the groups."""
    leadership: Leadership = field(default_factory=Leadership)
    standbys: dict[str, formats.StandbyRecord] = field(default_factory=dict)
    """By owner; who waited when that was written."""
    throttles: dict[tuple[str, str], formats.Throttle] = field(default_factory=dict)
    """The last word of each client, by (cluster, client id)."""
    troubles: dict[PartitionName, formats.Trouble] = field(default_factory=dict)
    """What keeps partitions waiting, or, with `WHOLE_TOPIC`, what the target refuses of a topic."""
    losses: dict[LossKey, Loss] = field(default_factory=dict)
    acls: dict[AclResource, KeptAcls] = field(default_factory=dict)
    """By resource of the target: the access rules that we made there, and those kept for a failover."""
    position_requests: dict[PartitionName, PositionRequest] = field(default_factory=dict)
    """Positions that were set, and no leader has taken up yet."""
    asked: SelectionSeen | None = None
    topic: str = ""
    """Where it was read."""
    end: int = 0
    last_epoch: int = -1
    """The leader epoch of the last batch that was read; -1: not known."""
    generation: int = 0
    """How often it was read again from the start of its topic, because that was truncated."""
    restored: int = 0
    """The generation of which the leader has looked at what was lost."""
    lost: dict[bytes, bytes | None] = field(default_factory=dict)
    """What the topic lost and is known here: the flow's leader writes it again (`lost_records`)."""
    refused: RefusedRecords = field(default_factory=RefusedRecords)
    clock: Clock = host_clock

    @property
    def entries(self) -> dict[PartitionName, Entry]:
        return {where: known.entry for where, known in self.partitions.items() if known.entry is not None}

    @property
    def contact_ms(self) -> int:
        """When the source last answered; 0 if it never did."""
        return self.contact.time_ms if self.contact is not None else 0

    def claim_of(self, row: int) -> formats.ProducerClaim | None:
        return self.further_claims.get(row) if row else self.claim

    @property
    def producer_ids(self) -> dict[int, int]:
        """By row, as far as they are claimed."""
        first = {} if self.claim is None else {0: self.claim.producer_id}
        return first | {row: claim.producer_id for row, claim in self.further_claims.items()}

    def partition(self, where: PartitionName) -> PartitionLedger:
        found = self.partitions.get(where)
        if found is None:
            found = self.partitions[where] = PartitionLedger()
        return found

    @property
    def unreadable(self) -> int:
        """How many records of the topic were refused."""
        return self.refused.number

    def read(self, record: formats.Stored) -> formats.LedgerRecord | None:
        """Take over the next record of the topic; what it says."""
        self.end, self.last_epoch = record.offset + 1, record.epoch
        if self.lost and record.key is not None:
            self.lost.pop(record.key, None)
        return self.take(record.key, record.value, offset=record.offset)

    def take(self, key: bytes | None, value: bytes | None, *, offset: int = -1) -> formats.LedgerRecord | None:
        """Take over one record of the ledger's topic; what it says. Others' records are passed over."""
        record = formats.parse_ledger(self.group_id, key, value)
        match record:
            case formats.EntryRecord():
                self.partition((record.topic, record.partition)).take_entry(record.entry)
            case formats.PageRecord(is_former=True):
                self.partition((record.topic, record.partition)).take_former(record.start, record.page)
            case formats.PageRecord():
                self.partition((record.topic, record.partition)).take_page(record.start, record.page)
            case formats.ProducerClaim():
                self._take_claim(record)
            case formats.Condition():
                self.condition = record
            case Loss():
                self.losses[record.key] = newest(self.losses.get(record.key), record)
            case Contact() | LogEnds() | SeenGroup() | GroupPass():
                self._take_seen(record)
            case None if value is not None and not formats.is_foreign(self.group_id, key):
                self.refused.note(0, offset)
            case PositionRequest() | SelectionSeen() | KeptAcls():
                self._take_wanted(record)
            case _:
                self._take_of_processes(record)
        return record

    def _take_claim(self, claim: formats.ProducerClaim) -> None:
        """The first one of a row counts."""
        if claim.row:
            self.further_claims.setdefault(claim.row, claim)
        else:
            self.claim = self.claim or claim

    def _take_seen(self, record: Contact | LogEnds | SeenGroup | GroupPass) -> None:
        """What was last seen of the source."""
        match record:
            case Contact():
                self.contact = record
            case LogEnds():
                self.log_ends |= {(record.topic, index): end for index, end in enumerate(record.ends)}
            case SeenGroup():
                self.groups[record.group] = record
            case GroupPass():
                self.passes[record.kind] = record

    def _take_wanted(self, record: PositionRequest | SelectionSeen | KeptAcls) -> None:
        """What people want of the flow, and what it gave them."""
        if isinstance(record, SelectionSeen):
            self.asked = record
        elif isinstance(record, KeptAcls):
            keep(self.acls, record)
        elif record.time_ms:
            self.position_requests[record.topic, record.partition] = record
        else:
            self.position_requests.pop((record.topic, record.partition), None)

    def _take_of_processes(self, record: formats.LedgerRecord | None) -> None:
        """What is said of those who copy, not of what is copied."""
        match record:
            case Lease():
                self.leadership.take(record, self.clock())
            case formats.StandbyRecord(time_ms=0):
                self.standbys.pop(record.owner, None)
            case formats.StandbyRecord():
                self.standbys[record.owner] = record
            case formats.Throttle():
                self.throttles[record.cluster, record.client_id] = record
            case formats.Trouble():
                self.take_troubles([record])

    def take_troubles(self, troubles: Iterable[formats.Trouble]) -> None:
        for trouble in troubles:
            where = (trouble.topic, trouble.partition)
            if is_lasting(trouble):
                self.troubles[where] = trouble
            else:
                self.troubles.pop(where, None)

    def begin_again(self, found: Ledger, lost: Iterable[tuple[bytes, bytes | None]]) -> None:
        """Go on with what was read from the start of the topic, and with what it lost and we know.

        Who leads is not forgotten: terms only go up, so what was seen of a lease counts although its record is gone.
        """
        lease = found.leadership.lease
        if lease is not None:
            self.leadership.take(lease, found.leadership.seen_at)
        for key, value in lost:
            found.take(key, value)
            found.lost[key] = value
        found.leadership, found.refused, found.generation = self.leadership, self.refused, self.generation + 1
        for each in fields(self):
            setattr(self, each.name, getattr(found, each.name))

    def restore(self, where: PartitionName, entry: Entry) -> None:
        """A count that was opened: its entry is to be written again if the ledger knows none as late as that."""
        known = self.partition(where).entry
        if known is None or known.count < entry.count:
            key = formats.encode_entry_key(self.group_id, *where)
            self.lost[key] = formats.encode_entry(entry)

    def target_partition(self, where: PartitionName) -> int:
        """Into which one of the target a partition is copied."""
        known = self.partitions.get(where)
        return target_partition(where[1], known.entry.modulo if known is not None and known.entry is not None else SAME)

    def translate(self, where: PartitionName, offset: int) -> Translation | None:
        known = self.partitions.get(where)
        return known.translate(offset) if known is not None else None
