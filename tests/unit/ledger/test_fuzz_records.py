"""Damaged records of internal topics, through every parser and through what the product does with what they give.

Depth, huge numbers, wrong types, missing and additional fields, cut and changed bytes. A parser gives a record or
None; no number in a record is beyond 64 bits; what was taken can be used, written again and read again; and honest
records beside a refused one stay as they are. A failure names seed and number of its case.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

import pytest

from heliograph.client.checkpoints import FoundCheckpoints
from heliograph.config import parse_settings
from heliograph.config.settings import Flow
from heliograph.driver.spark.arrow_rows import lanes_table
from heliograph.errors import LeaseLost
from heliograph.ledger.exposure import exposure_of
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.lineage import Lineage
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.ledger.losses import loss_of
from heliograph.ledger.lost_records import lost_records
from heliograph.ledger.mm2.internal_records import Checkpoint, Heartbeat, OffsetSync
from heliograph.ledger.mm2.offset_syncs import SyncRule, SyncStore
from heliograph.ledger.mm2.positions import (
    encode_position_key,
    encode_position_value,
    is_connect_record,
    parse_position,
)
from heliograph.ledger.model import Assignment, EpochPlan
from heliograph.ledger.position_requests import first_asked
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.lease import Lease, Process
from heliograph.ledger.records.ledger_record import LedgerRecord
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.page import Page, PageRecord
from heliograph.ledger.records.selection_seen import SelectionSeen
from heliograph.ledger.records.table import group_of, is_foreign, parse_ledger
from heliograph.ledger.records.trouble import Trouble
from tests.unit.helpers.record_samples import GROUP, Sample, ledger_samples, mm2_samples, position_samples, spoil
from tests.unit.helpers.samples import BASE
from tests.unit.kafka.test_fuzz import limits
from tests.unit.ledger.test_formats import ENTRY

FIXED_SEED = 16
WHERE = ("foo", 7)
ME = Process(owner="me", host="h", pid=1)
SAMPLES = {"ledger": ledger_samples(), "positions": position_samples(), "mm2": mm2_samples()}


def bounded(value: Any) -> bool:
    """Whether all numbers in a value fit 64 bits, and all text can be written."""
    match value:
        case bool() | None | Enum():
            return True
        case int():
            return -(2**63) <= value < 2**63
        case float():
            return value - value == 0.0
        case str():
            return bool(value.encode() or True)
        case dict():
            return all(bounded(key) and bounded(inner) for key, inner in value.items())
        case list() | tuple() | frozenset():
            return all(map(bounded, value))
        case Page():
            return bounded((value.start, value.end, value.count, value.target, *value.runs()))
        case _ if is_dataclass(value):
            return all(bounded(getattr(value, each.name)) for each in fields(value))
        case _:
            return isinstance(value, bytes)


@cache
def honest() -> tuple[Sample, ...]:
    """One record of each kind whose newest, highest or first one counts."""
    kinds = {(sample.key or b"").split(b",")[0]: sample for sample in ledger_samples()}
    return tuple(kinds[b'["' + kind + b'"'] for kind in (b"entry", b"claim", b"lease", b"outcome", b"contact"))


@cache
def flow() -> Flow:
    return parse_settings(BASE).flows[0]


def ledger_case(chance: random.Random) -> str:
    sample = spoil(chance.choice(SAMPLES["ledger"]), chance)
    ledger = Ledger(group_id=GROUP)
    for each in honest():
        ledger.take(*each)
    before = ledger.entries, ledger.claim, ledger.leadership.lease, dict(ledger.losses), ledger.contact_ms
    record = ledger.take(*sample, offset=1)
    is_connect_record(*sample)
    group_of(sample.key)
    if record is None:
        after = ledger.entries, ledger.claim, ledger.leadership.lease, dict(ledger.losses), ledger.contact_ms
        assert after == before
        is_told = sample.value is None or is_foreign(GROUP, sample.key)
        assert ledger.unreadable == (0 if is_told else 1)
        return "refused"
    assert bounded(record), record
    assert parse_ledger(GROUP, *record.encode(GROUP)) == record
    _use(ledger, record)
    return type(record).__name__


def _use(ledger: Ledger, record: LedgerRecord) -> None:
    """What drivers, lanes and views do with what stands in a ledger."""
    lost_records(ledger, Ledger(group_id=GROUP))
    exposure_of(ledger, {WHERE: 10})
    match record:
        case EntryRecord():
            _use_entry(ledger, (record.topic, record.partition))
        case PageRecord():
            known = ledger.partition((record.topic, record.partition))
            known.take_entry(ENTRY)
            _use_entry(ledger, (record.topic, record.partition))
        case Trouble():
            outcome = Outcome(record.code, record.text, ENTRY, record.details)
            loss_of(WHERE, outcome, flow="a->b", answer="", since_ms=0, now_ms=1).row()
        case Loss():
            record.row()
            record.short()
        case Lease():
            with contextlib.suppress(LeaseLost):
                ledger.leadership.next_bid(ME, lease_ms=6000, now_ms=1)
        case SelectionSeen():
            first_asked(flow(), record, is_new=False)
        case _:
            pass


def _use_entry(ledger: Ledger, where: tuple[str, int]) -> None:
    known = ledger.partition(where)
    entry = known.entry
    assert entry is not None
    rule = SyncRule(100)
    for run in known.runs_since(0):
        for upstream, downstream in rule.advance(*run):
            OffsetSync(topic="t", partition=0, upstream=upstream, downstream=downstream).encode()
    for offset in (0, 105, entry.source_offset, 2**62):
        ledger.translate(where, offset)
    known.pruned(150)
    known.outrun()
    Lineage.parse(entry.lineage).before(entry.source_offset)
    page = known.open_page().pack()
    assignment = Assignment(
        flow="a->b", topic=where[0], partition=where[1], target_topic="x", entry=entry, max_message_bytes=1, page=page
    )
    lanes_table(EpochPlan(epoch_id=1, lanes=((assignment,),)))


def positions_case(chance: random.Random) -> str:
    sample = spoil(SAMPLES["positions"][0], chance)
    is_connect_record(*sample)
    parsed = parse_position(sample.key, sample.value) if sample.key is not None else None
    if parsed is None:
        return "refused"
    where, position = parsed
    assert bounded(parsed)
    encode_position_key(*where[1:], connector=where[0])
    if position is not None:
        assert parse_position(sample.key or b"", encode_position_value(position)) == parsed
    return "position"


def mm2_case(chance: random.Random) -> str:
    sample = spoil(chance.choice(SAMPLES["mm2"]), chance)
    found = FoundCheckpoints(lambda _: True)
    found.take(*sample)
    outcome = "refused"
    for parse in (OffsetSync.parse, Checkpoint.parse, Heartbeat.parse):
        record = parse(*sample)
        if record is not None:
            assert bounded(record)
            assert parse(*record.encode()) == record
            outcome = type(record).__name__
    sync = OffsetSync.parse(*sample)
    if sync is not None:
        store = SyncStore()
        store.insert(5, 6)
        store.insert(sync.upstream, sync.downstream)
        store.translate(2**62)
    return outcome


CASES: dict[str, Callable[[random.Random], str]] = {
    "ledger": ledger_case,
    "positions": positions_case,
    "mm2": mm2_case,
}


def fuzz(kind: str, seed: int, number: int) -> Counter[str]:
    chance = random.Random()
    outcomes: Counter[str] = Counter()
    with limits():
        for index in range(number):
            chance.seed(seed << 32 | index)
            try:
                outcomes[CASES[kind](chance)] += 1
            except Exception as error:
                text = f"{type(error).__name__} in {kind} case {index} of seed {seed}: {error}"
                raise AssertionError(text[:500]) from error
    return outcomes


@pytest.mark.parametrize("kind", CASES)
@pytest.mark.parametrize("is_drawn", [False, True], ids=["fixed", "drawn"])
def test_damaged_records_are_refused_or_harmless(kind: str, is_drawn: bool, run_seed: int) -> None:
    seed = run_seed if is_drawn else FIXED_SEED
    outcomes = fuzz(kind, seed, 1_500)
    assert outcomes["refused"] > 300, (seed, outcomes)
    assert outcomes.total() - outcomes["refused"] > 50, (seed, outcomes)  # else the damage is too coarse


SHARES = {"ledger": 800_000, "positions": 100_000, "mm2": 100_000}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", CASES)
def test_a_million_damaged_records(kind: str, run_seed: int, record_property: Callable[[str, object], None]) -> None:
    record_property("cases_seed", run_seed)
    start = time.process_time()
    outcomes = fuzz(kind, run_seed, SHARES[kind])
    record_property("cases", outcomes.total())
    record_property("outcomes", dict(outcomes.most_common()))
    record_property("processor_seconds", round(time.process_time() - start, 1))
