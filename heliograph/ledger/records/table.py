"""The table of all kinds of ledger records, and reading foreign bytes by it. Pure.

A new kind of ledger record is one new file beside this one and one line in `_KINDS`. A reader skips what it does not
know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from heliograph.kafka.batch import check_crc, iter_batches, iter_records
from heliograph.ledger.records.condition import Condition
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.group_pass import GroupPass
from heliograph.ledger.records.kept_acls import KeptAcls
from heliograph.ledger.records.lease import Lease
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.log_ends import LogEnds
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.order import Order
from heliograph.ledger.records.page import PageRecord
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.seen_group import SeenGroup
from heliograph.ledger.records.selection_seen import SelectionSeen
from heliograph.ledger.records.standby import StandbyRecord
from heliograph.ledger.records.throttle import Throttle
from heliograph.ledger.records.topic_change import TopicChange
from heliograph.ledger.records.trouble import Trouble
from heliograph.ledger.records.untrusted_json import as_list, as_text, parse_json

_KINDS: dict[str, Callable[[Sequence[Any], bytes | None], LedgerRecord | None]] = {
    Condition.KIND: Condition.parse,
    Contact.KIND: Contact.parse,
    EntryRecord.KIND: EntryRecord.parse,
    GroupPass.KIND: GroupPass.parse,
    KeptAcls.KIND: KeptAcls.parse,
    Lease.KIND: Lease.parse,
    LogEnds.KIND: LogEnds.parse,
    Loss.KIND: Loss.parse,
    Order.KIND: Order.parse,
    PageRecord.KIND: PageRecord.parse,
    PageRecord.KIND_OF_FORMER: PageRecord.parse_former,
    PositionRequest.KIND: PositionRequest.parse,
    ProducerClaim.KIND: ProducerClaim.parse,
    SeenGroup.KIND: SeenGroup.parse,
    SelectionSeen.KIND: SelectionSeen.parse,
    StandbyRecord.KIND: StandbyRecord.parse,
    Throttle.KIND: Throttle.parse,
    TopicChange.KIND: TopicChange.parse,
    Trouble.KIND: Trouble.parse,
}
"""By the kind that a key names: what makes a record of the rest of the key and of the value."""
_HEARD_BY_LANES = tuple(f'["{kind}",'.encode() for kind in (Order.KIND, Lease.KIND))


def parse_ledger(group_id: str, key: bytes | None, value: bytes | None) -> LedgerRecord | None:
    """Parse one ledger record of this group.

    None stands for another group's record, an unknown one, one that is refused, and one that was deleted where that
    means nothing.
    """
    if key is None:
        return None
    try:
        kind, group, *rest = as_list(parse_json(key))
        return _KINDS[as_text(kind)](rest, value) if group == group_id else None
    except (ValueError, KeyError):
        return None


def is_word(key: bytes | None) -> bool:
    """Tell whether a ledger record is an order or a lease of any group: a lane looks at no others."""
    return key is not None and key.startswith(_HEARD_BY_LANES)


def group_of(key: bytes | None) -> str | None:
    """Return the `group.id` that a ledger record belongs to; None if it is none."""
    try:
        _, group, *_ = as_list(parse_json(key))
        return as_text(group)
    except ValueError:
        return None


def is_foreign(group_id: str, key: bytes | None) -> bool:
    """Tell whether a record belongs to another group that shares the ledger topic, or is a position."""
    try:
        _, group, *_ = as_list(parse_json(key))
    except ValueError:
        return False
    return bool(group != group_id)


class Stored(NamedTuple):
    """A record of the ledger's topic, and the leader epoch of its batch."""

    offset: int
    key: bytes | None
    value: bytes | None
    epoch: int


def iter_ledger(records: memoryview, start: int) -> Iterator[Stored]:
    """Yield the records of a fetch answer from offset `start` on.

    Where a batch ends with none, one without key and value stands for its end.
    """
    for header, view in iter_batches(records):
        if header.next_offset <= start:
            continue
        check_crc(view)
        offset = -1
        for record in () if header.is_control else iter_records(header, view):
            offset = record.offset
            if offset >= start:
                yield Stored(offset, record.key, record.value, header.leader_epoch)
        if offset < header.next_offset - 1:
            yield Stored(header.next_offset - 1, None, None, header.leader_epoch)
