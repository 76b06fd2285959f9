"""Finds the records that a truncated ledger topic lost and its reader still knows. Pure.

An unclean election on the target takes the newest records of the ledger with it. Readers then read it again from its
start, and keep what they knew: the leader of the flow writes these records once more. Left out is what is written
again by itself: the lease, log ends, troubles, throttles, standbys.
"""

from __future__ import annotations

from collections.abc import Iterator

from heliograph.kafka.log import KeyValue
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.losses import newest
from heliograph.ledger.model import PartitionName
from heliograph.ledger.partition_ledger import PartitionLedger
from heliograph.ledger.records.entry import Entry, encode_entry, encode_entry_key
from heliograph.ledger.records.page import Page, encode_page


def lost_records(before: Ledger, now: Ledger) -> list[KeyValue]:
    """The records to write so that the ledger says what it said before; what it says that is newer stays.

    Pages stand before the entries that end them, as everywhere.
    """
    return [
        *_claims(before, now),
        *(record for where, known in before.partitions.items() for record in _partition(where, known, now)),
        *_of_the_flow(before, now),
    ]


def _claims(before: Ledger, now: Ledger) -> Iterator[KeyValue]:
    """A claim that was made meanwhile counts: it stands first."""
    for row in before.producer_ids:
        claim = before.claim_of(row)
        if claim is not None and now.claim_of(row) is None:
            yield claim.encode(before.group_id)


def _partition(where: PartitionName, before: PartitionLedger, ledger: Ledger) -> Iterator[KeyValue]:
    now = ledger.partitions.get(where) or PartitionLedger()
    entry, group_id = before.entry, ledger.group_id
    is_current = entry is not None and (now.entry is None or now.entry.count <= entry.count)
    for is_former, had, has in ((True, before.former, now.former), (False, before.pages, now.pages)):
        known, found = {page.start: page for page in had}, {page.start: page for page in has}
        for start, page in known.items():
            if start not in found or _age(page) > _age(found[start]):
                yield encode_page(group_id, *where, start, page, is_former=is_former)
        for start in found.keys() - known.keys() if is_current else ():
            assert entry is not None
            if is_former or _is_outdated(found[start], entry):
                yield encode_page(group_id, *where, start, None, is_former=is_former)
    if entry is not None and (now.entry is None or _progress(entry) > _progress(now.entry)):
        yield encode_entry_key(group_id, *where), encode_entry(entry)


def _age(page: Page) -> tuple[int, int]:
    return page.count, page.end


def _progress(entry: Entry) -> tuple[int, int, int]:
    return entry.count, entry.n, entry.source_offset


def _is_outdated(page: Page, entry: Entry) -> bool:
    """A page that was deleted before, and came back with the truncation; lanes write newer ones behind the entry."""
    return page.count < entry.count or page.end <= entry.run_source


def _of_the_flow(before: Ledger, now: Ledger) -> Iterator[KeyValue]:
    group_id = before.group_id
    for key, loss in before.losses.items():
        kept = now.losses.get(key)
        if kept != loss and newest(kept, loss) is loss:
            yield loss.encode(group_id)
    for resource, acls in before.acls.items():
        if now.acls.get(resource) != acls:
            yield acls.encode(group_id)
    for name, group in before.groups.items():
        seen = now.groups.get(name)
        if seen is None or seen.time_ms < group.time_ms:
            yield group.encode(group_id)
    if before.condition is not None and before.condition != now.condition:
        yield before.condition.encode(group_id)
    if before.asked is not None and before.asked != now.asked:
        yield before.asked.encode(group_id)
    yield from _wishes(before, now)


def _wishes(before: Ledger, now: Ledger) -> Iterator[KeyValue]:
    """A request that was fulfilled must not come back: it would set the position back once more.

    One that somebody wrote meanwhile is newer than all that was copied before.
    """
    for where, request in before.position_requests.items():
        if where not in now.position_requests:
            yield request.encode(before.group_id)
    for where, request in now.position_requests.items():
        known = before.partitions.get(where)
        entry = known.entry if known is not None else None
        if where not in before.position_requests and entry is not None and request.time_ms <= entry.time_ms:
            key, _ = request.encode(before.group_id)
            yield key, None
