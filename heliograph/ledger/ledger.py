"""The ledger of a flow in memory: all that its records say, as far as they were read. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from heliograph.clock import Clock, host_clock
from heliograph.kafka.admin.acls import AclResource
from heliograph.ledger.kept_acls import keep
from heliograph.ledger.kept_troubles import is_lasting
from heliograph.ledger.lease import Leadership
from heliograph.ledger.losses import newest
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_ledger import PartitionLedger
from heliograph.ledger.partition_remap import SAME, target_partition
from heliograph.ledger.records.condition import Condition
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.entry import Entry, EntryRecord, encode_entry, encode_entry_key
from heliograph.ledger.records.group_pass import GroupPass, PassKind
from heliograph.ledger.records.kept_acls import KeptAcls
from heliograph.ledger.records.lease import Lease
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.log_ends import LogEnd, LogEnds
from heliograph.ledger.records.loss import Loss, LossKey
from heliograph.ledger.records.page import PageRecord
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.seen_group import SeenGroup
from heliograph.ledger.records.selection_seen import SelectionSeen
from heliograph.ledger.records.standby import StandbyRecord
from heliograph.ledger.records.table import Stored, is_foreign, parse_ledger
from heliograph.ledger.records.throttle import Throttle
from heliograph.ledger.records.trouble import Trouble
from heliograph.ledger.records.unreadable_records import RefusedRecords
from heliograph.ledger.translation import JointTranslation, Syncs, Translation, translate_by_syncs


@dataclass(slots=True, kw_only=True)
class Ledger:
    """The ledger of one flow, as read from the target so far."""

    group_id: str
    claim: ProducerClaim | None = None
    further_claims: dict[int, ProducerClaim] = field(default_factory=dict)
    """The claims of the rows after the first, by row (`partition_remap`)."""
    condition: Condition | None = None
    partitions: dict[PartitionName, PartitionLedger] = field(default_factory=dict)
    contact: Contact | None = None
    """The last answer of the source; None if it never answered."""
    log_ends: dict[PartitionName, LogEnd] = field(default_factory=dict)
    groups: dict[str, SeenGroup] = field(default_factory=dict)
    passes: dict[PassKind, GroupPass] = field(default_factory=dict)
    """The last pass of each kind over the groups."""
    leadership: Leadership = field(default_factory=Leadership)
    standbys: dict[str, StandbyRecord] = field(default_factory=dict)
    """By owner; who waited when that was written."""
    throttles: dict[tuple[str, str], Throttle] = field(default_factory=dict)
    """The last word of each client, by (cluster, client id)."""
    troubles: dict[PartitionName, Trouble] = field(default_factory=dict)
    """What keeps partitions waiting, or, with `WHOLE_TOPIC`, what the target refuses of a topic."""
    losses: dict[LossKey, Loss] = field(default_factory=dict)
    acls: dict[AclResource, KeptAcls] = field(default_factory=dict)
    """By resource of the target: the access rules that we made there, and those kept for a failover."""
    position_requests: dict[PartitionName, PositionRequest] = field(default_factory=dict)
    """Positions that were set, and no leader has taken up yet."""
    asked: SelectionSeen | None = None
    topic: str = ""
    """The topic that the ledger was read from."""
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

    def claim_of(self, row: int) -> ProducerClaim | None:
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

    def read(self, record: Stored) -> LedgerRecord | None:
        """Take over the next record of the topic; what it says."""
        self.end, self.last_epoch = record.offset + 1, record.epoch
        if self.lost and record.key is not None:
            self.lost.pop(record.key, None)
        return self.take(record.key, record.value, offset=record.offset)

    def take(self, key: bytes | None, value: bytes | None, *, offset: int = -1) -> LedgerRecord | None:
        """Take over one record of the ledger's topic; what it says. Others' records are passed over."""
        record = parse_ledger(self.group_id, key, value)
        match record:
            case EntryRecord():
                self.partition((record.topic, record.partition)).take_entry(record.entry)
            case PageRecord(is_former=True):
                self.partition((record.topic, record.partition)).take_former(record.start, record.page)
            case PageRecord():
                self.partition((record.topic, record.partition)).take_page(record.start, record.page)
            case ProducerClaim():
                self._take_claim(record)
            case Condition():
                self.condition = record
            case Loss():
                self.losses[record.key] = newest(self.losses.get(record.key), record)
            case Contact() | LogEnds() | SeenGroup() | GroupPass():
                self._take_seen(record)
            case None if value is not None and not is_foreign(self.group_id, key):
                self.refused.note(0, offset)
            case PositionRequest() | SelectionSeen() | KeptAcls():
                self._take_wanted(record)
            case _:
                self._take_of_processes(record)
        return record

    def _take_claim(self, claim: ProducerClaim) -> None:
        """The first one of a row counts."""
        if claim.row:
            self.further_claims.setdefault(claim.row, claim)
        else:
            self.claim = self.claim or claim

    def _take_seen(self, record: Contact | LogEnds | SeenGroup | GroupPass) -> None:
        """Keep what was last seen of the source."""
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
        """Keep what people asked of the flow, and the access rules that it made."""
        if isinstance(record, SelectionSeen):
            self.asked = record
        elif isinstance(record, KeptAcls):
            keep(self.acls, record)
        elif record.time_ms:
            self.position_requests[record.topic, record.partition] = record
        else:
            self.position_requests.pop((record.topic, record.partition), None)

    def _take_of_processes(self, record: LedgerRecord | None) -> None:
        """Keep what records say of processes: leases, standbys, throttles, troubles."""
        match record:
            case Lease():
                self.leadership.take(record, self.clock())
            case StandbyRecord(time_ms=0):
                self.standbys.pop(record.owner, None)
            case StandbyRecord():
                self.standbys[record.owner] = record
            case Throttle():
                self.throttles[record.cluster, record.client_id] = record
            case Trouble():
                self.take_troubles([record])

    def take_troubles(self, troubles: Iterable[Trouble]) -> None:
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
            self.lost[encode_entry_key(self.group_id, *where)] = encode_entry(entry)

    def target_partition(self, where: PartitionName) -> int:
        """Into which one of the target a partition is copied."""
        known = self.partitions.get(where)
        return target_partition(where[1], known.entry.modulo if known is not None and known.entry is not None else SAME)

    def translate(self, where: PartitionName, offset: int, *, syncs: Syncs | None = None) -> Translation | None:
        """Return where a group goes on that committed `offset` on the source; None if nobody can say.

        With `syncs` by MirrorMaker 2's rule, which has no word for a copy of another number than its source's.
        """
        if syncs is not None and self.target_partition(where) == where[1]:
            return translate_by_syncs(syncs, where, offset)
        known = self.partitions.get(where)
        return known.translate(offset) if known is not None else None

    def reread(self, found: JointTranslation) -> int:
        """Return how many records a group reads again that goes on at the lowest of several translations."""
        return sum(
            self.partition(where).copied_between(found.offset, translation.offset)
            for where, translation in found.parts.items()
        )
