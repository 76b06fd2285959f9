"""Computes what would be lost if the source were gone now, by what the target knows of it. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heliograph.ledger.ledger import Ledger
from heliograph.ledger.model import PartitionName


@dataclass(frozen=True, slots=True, kw_only=True)
class Exposure:
    """Produced on the source by the last contact, and not on the target."""

    records: int
    bytes: int
    """By the mean size of the records copied so far."""
    seconds: float
    """How long before the last contact the oldest of them may have come."""


def exposure_of(ledger: Ledger, target_ends: Mapping[PartitionName, int]) -> Exposure:
    """`target_ends` are the target's log ends now: what was copied and not yet written down counts as copied."""
    records = size = 0
    since = ledger.contact_ms
    mean = _mean_bytes(ledger)
    for where, entry in ledger.entries.items():
        seen = ledger.log_ends.get(where)
        end = max(entry.source_end, seen.offset if seen is not None else -1)
        unwritten = max(0, target_ends.get(where, 0) - entry.target_offset)
        copied = max(entry.source_offset + unwritten, ledger.partition(where).reach)
        behind = end - copied
        if behind <= 0:
            continue
        records += behind
        size += int(behind * (entry.bytes_copied / entry.n if entry.n else mean))
        began = seen.since_ms if seen is not None and seen.since_ms else entry.time_ms
        since = min(since, began or since)
    return Exposure(records=records, bytes=size, seconds=max(0, ledger.contact_ms - since) / 1000 if records else 0.0)


def _mean_bytes(ledger: Ledger) -> float:
    entries = ledger.entries.values()
    copied = sum(entry.n for entry in entries)
    return sum(entry.bytes_copied for entry in entries) / copied if copied else 0.0
