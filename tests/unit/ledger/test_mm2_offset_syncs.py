"""Offset syncs: the rule of writing them, the store that translates by them, and runs rebuilt from them."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable, Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.mm2.offset_syncs import LAST_SYNCS, SLOTS, Sync, SyncRule, SyncStore, rebuild_runs
from heliograph.ledger.records.page import Run

# -- when a sync is written


def test_rule_has_mm2s_vector() -> None:
    rule = SyncRule(50)
    vector = [
        (0, 100, True), (2, 102, True), (3, 152, False), (4, 153, True), (5, 154, False), (6, 203, False),
        (7, 204, True), (2, 206, True), (3, 207, False), (4, 3, True), (5, 4, False),
    ]  # fmt: skip
    assert [(u, d, rule.note(u, d)) for u, d, _ in vector] == vector


def test_zero_lag_writes_a_sync_for_every_record() -> None:
    rule = SyncRule(0)
    assert all(rule.note(offset, offset + 7) for offset in range(20))
    assert rule.tail() is None


def test_tail_is_the_last_record_and_given_once() -> None:
    rule = SyncRule(100)
    assert rule.tail() is None
    assert rule.advance(10, 20, 5) == [(10, 20)]
    assert rule.tail() == (14, 24)
    assert rule.tail() is None
    assert rule.advance(15, 25, 1) == []
    assert rule.tail() == (15, 25)


def test_tail_does_not_put_off_the_next_sync() -> None:
    one, other = SyncRule(10), SyncRule(10)
    for rule in (one, other):
        rule.advance(0, 0, 8)
    one.tail()
    assert one.advance(8, 8, 10) == other.advance(8, 8, 10) == [(11, 11)]


def test_advance_keeps_the_first_and_the_last_syncs() -> None:
    rule = SyncRule(0)
    syncs = rule.advance(5, 1_000, 10**12)
    last = range(10**12 - LAST_SYNCS, 10**12)
    assert syncs == [(5, 1_000), *((5 + index, 1_000 + index) for index in last)]
    assert rule.tail() is None
    rule = SyncRule(2)
    rule.advance(0, 0, 1)
    syncs = rule.advance(1, 1, 300)
    assert (len(syncs), syncs[0], syncs[-1]) == (1 + LAST_SYNCS, (3, 3), (300, 300))


def test_advance_over_nothing_changes_nothing() -> None:
    rule = SyncRule(3)
    assert rule.advance(7, 7, 0) == []
    assert rule.advance(7, 7, 1) == [(7, 7)]


@st.composite
def runs_of_records(draw: st.DrawFn) -> list[Run]:
    """Most go on where the one before ended; others leave a gap or go back, on either side."""
    runs, source, target = [], draw(st.integers(0, 50)), draw(st.integers(0, 50))
    for _ in range(draw(st.integers(1, 12))):
        length = draw(st.integers(1, 250))
        runs.append(Run(source, target, length))
        step = st.sampled_from([0, 0, 0, 1, 5, 120, -3, -200])
        source = max(0, source + length + draw(step))
        target = max(0, target + length + draw(step))
    return runs


@given(runs=runs_of_records(), lag_max=st.sampled_from([0, 1, 2, 3, 7, 100]))
def test_advance_is_note_record_by_record(runs: list[Run], lag_max: int) -> None:
    by_run, by_record = SyncRule(lag_max), SyncRule(lag_max)
    for run in runs:
        wanted = [
            (run.source + index, run.target + index)
            for index in range(run.length)
            if by_record.note(run.source + index, run.target + index)
        ]
        if len(wanted) > 1 + LAST_SYNCS:
            wanted = [wanted[0], *wanted[-LAST_SYNCS:]]
        assert by_run.advance(*run) == wanted
        assert by_run.tail() == by_record.tail()


# -- what is kept and how it translates


def filled(upstreams: Iterable[int], *, alone_below: int = -1) -> SyncStore:
    store = SyncStore()
    for upstream in upstreams:
        store.insert(upstream, upstream, alone=upstream <= alone_below)
    return store


KEPT = {
    "every 10": "10000 9990 9960 9900 9840 9600 9120 8640 7680 3840 0",
    "every 10, the last of start-up": "10000 9990 9970 9940 9880 9640 9160 8680 6760 4840 1000",
    "every 10, short": "1000 990 960 900 840 720 480 0",
    "every one": """1000000 999999 999998 999996 999992 999984 999968 999936 999808 999680 999424 998400 997376
        995328 991232 983040 950272 917504 786432 524288 0""",
    "every 100": """1000000 999900 999800 999600 999200 998400 995200 992000 985600 972800 921600 819200 614400
        409600 0""",
}


@pytest.mark.parametrize(
    ("upstreams", "alone_below", "kept"),
    [
        (range(0, 10_001, 10), -1, "every 10"),
        (range(0, 10_001, 10), 1000, "every 10, the last of start-up"),
        (range(0, 1001, 10), -1, "every 10, short"),
        (range(1_000_001), -1, "every one"),
        (range(0, 1_000_001, 100), -1, "every 100"),
    ],
)
def test_store_keeps_what_mm2_keeps(upstreams: Iterable[int], alone_below: int, kept: str) -> None:
    store = filled(upstreams, alone_below=alone_below)
    assert [upstream for upstream, _ in store.syncs] == [int(text) for text in KEPT[kept].split()]


def test_nothing_is_translated_without_a_sync() -> None:
    assert SyncStore().translate(5) is None


def test_translation_is_exact_at_a_sync_and_one_further_behind_it() -> None:
    store = SyncStore()
    store.insert(100, 200)
    assert store.translate(100) == 200
    assert store.translate(101) == 201
    assert store.translate(150) == 201
    assert store.translate(99) is None


def test_downstream_reset_counts_for_what_is_newer() -> None:
    store = SyncStore()
    store.insert(150, 251)
    store.insert(200, 10)
    assert store.translate(200) == 10
    assert store.translate(201) == 11


def test_upstream_reset_forgets_all_before() -> None:
    store = filled(range(0, 1000, 10))
    store.insert(20, 5000)
    assert store.syncs == [(20, 5000)]
    assert store.translate(20) == 5000
    assert store.translate(995) == 5001
    assert store.translate(10) is None


def test_sync_written_again_changes_nothing() -> None:
    store = filled(range(0, 1000, 10))
    before = store.syncs
    store.insert(990, 990)
    assert store.syncs == before


def check_invariants(store: SyncStore, newest: int, oldest: int) -> None:
    slots = [upstream for upstream, _ in store.slots]
    assert len(slots) == SLOTS
    assert (slots[0], slots[-1]) == (newest, oldest)
    for i in range(SLOTS):
        for j in range(i + 1, SLOTS):
            assert slots[i] <= slots[j] + 2**j - 2**i, (i, j)
            assert slots[i] == slots[j] or slots[i] >= slots[j] + 2 ** max(i - 2, 0), (i, j)


def most_expired(upstreams: Iterable[int]) -> int:
    """The greatest number of syncs that one insert displaced for good."""
    store = SyncStore()
    most = 0
    before: list[Sync] = []
    for upstream in upstreams:
        store.insert(upstream, upstream)
        after = store.syncs
        most = max(most, len(before) + 1 - len(after))
        before = after
    return most


def jittered(seed: int, *, least: int, bits: int, count: int = 2000) -> Iterator[int]:
    chance = random.Random(seed)
    upstream = chance.randrange(1000)
    for _ in range(count):
        yield upstream
        upstream += least + chance.randrange(1 << bits)


@given(gaps=st.lists(st.integers(1, 5000), max_size=200), start=st.integers(0, 2**40))
def test_invariants_hold_at_any_spacing(gaps: list[int], start: int) -> None:
    store = SyncStore()
    upstream = start
    store.insert(upstream, upstream)
    for gap in gaps:
        upstream += gap
        store.insert(upstream, upstream)
    check_invariants(store, upstream, start)


@pytest.mark.parametrize("step", [1, 2, 3, 7, 10, 16, 64, 100, 1000, 1023])
def test_even_spacing_expires_one_sync_at_a_time(step: int) -> None:
    assert most_expired(range(0, 3000 * step, step)) <= 1


@pytest.mark.parametrize("bits", range(1, 14, 3))
def test_random_spacing_expires_few(bits: int) -> None:
    for least in (0, 1 << 16):
        assert most_expired(jittered(bits, least=least, bits=bits)) <= bits + 2


@pytest.mark.parametrize("seed", range(3))
def test_single_lost_syncs_expire_two_at_a_time(seed: int) -> None:
    chance = random.Random(seed)
    gaps = (100 * chance.choice([1, 2]) for _ in range(10_000))
    assert most_expired(itertools.accumulate(gaps)) <= 2


@given(gaps=st.lists(st.integers(1, 300), min_size=1, max_size=100), data=st.data())
def test_translation_never_skips_and_never_goes_back(gaps: list[int], data: st.DataObject) -> None:
    """Of a copy without gaps, at any distance: the offset itself or less, and more for a greater offset."""
    store = SyncStore()
    upstream = 1000
    for gap in gaps:
        store.insert(upstream, upstream + 77)
        upstream += gap
    offsets = sorted(data.draw(st.lists(st.integers(900, upstream + 50), min_size=2, max_size=20)))
    found = [store.translate(offset) for offset in offsets]
    known = [(offset, target) for offset, target in zip(offsets, found, strict=True) if target is not None]
    assert all(target <= offset + 77 for offset, target in known)
    assert [target for _, target in known] == sorted(target for _, target in known)
    assert all(offset >= 1000 for offset, _ in known)


# -- runs from syncs


@pytest.mark.parametrize(
    ("syncs", "foreign", "runs"),
    [
        ([], [], []),
        ([(5, 7)], [], [(5, 7, 1)]),
        ([(5, 7), (5, 7)], [], [(5, 7, 1)]),
        ([(0, 0), (100, 100), (150, 150)], [], [(0, 0, 151)]),
        ([(0, 0), (100, 90), (110, 100)], [], [(0, 0, 1), (100, 90, 11)]),
        ([(0, 10), (100, 110), (200, 210)], [(150, 152)], [(0, 10, 101), (200, 210, 1)]),
        ([(0, 10), (100, 110)], [(0, 10), (111, 200)], [(0, 10, 101)]),
        ([(0, 10), (2, 12)], [(11, 12)], [(0, 10, 1), (2, 12, 1)]),
        ([(0, 10), (1, 11)], [(50, 60), (0, 5)], [(0, 10, 2)]),
        ([(50, 50), (60, 60), (10, 70), (20, 80)], [], [(10, 70, 11)]),
        ([(50, 50), (60, 60), (70, 5), (80, 15)], [], [(70, 5, 11)]),
        ([(50, 50), (50, 90)], [], [(50, 90, 1)]),
    ],
)
def test_rebuild_runs(syncs: list[Sync], foreign: list[tuple[int, int]], runs: list[Run]) -> None:
    assert rebuild_runs(syncs, foreign) == runs


@given(data=st.data(), lag_max=st.sampled_from([0, 3, 100]))
def test_rebuilt_runs_are_true_and_none_is_missing_near_a_sync(data: st.DataObject, lag_max: int) -> None:
    """A copy with gaps on the source and foreign records on the target, told by its syncs alone."""
    rule, syncs, foreign = SyncRule(lag_max), [], []
    truth: dict[int, int] = {}
    source = target = 0
    for _ in range(data.draw(st.integers(1, 10))):
        length = data.draw(st.integers(1, 150))
        syncs += rule.advance(source, target, length)
        truth.update((source + index, target + index) for index in range(length))
        source, target = source + length + data.draw(st.integers(0, 3)), target + length
        strange = data.draw(st.integers(0, 3))
        foreign.append((target, target + strange))
        target += strange
        tail = rule.tail() if data.draw(st.booleans()) else None
        syncs += [tail] if tail else []
    runs = rebuild_runs(syncs, [span for span in foreign if span[0] < span[1]])
    told = {run.source + index: run.target + index for run in runs for index in range(run.length)}
    assert told.items() <= truth.items()
    assert dict(syncs).items() <= told.items()
    assert all(one.source + one.length <= other.source for one, other in itertools.pairwise(runs))
