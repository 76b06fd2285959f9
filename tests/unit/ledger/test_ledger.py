"""Translation against a model that knows the fate of every single offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.counts import Past, pages_at_opening
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.partition_ledger import PartitionLedger
from heliograph.ledger.records.entry import Entry, encode_entry, encode_entry_key
from heliograph.ledger.records.page import Page, Run, encode_page
from heliograph.ledger.runs import OpenPage, OpenRun, follow
from heliograph.ledger.translation import Grade, Translation

GROUP, WHERE = "a-mm2", ("t", 0)
NEVER = object()


class Life:
    """A partition's copy, with all that may happen to it, and beside it what a translation must give.

    `fate` has for every source offset where it stands on the target, None if it had nothing to copy,
    and no entry if another tool had it. While a count copies once more what was copied before, `again` has
    the same of its own copies, from `begun` on, and `fate` counts up to `reach`.
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.ledger = Ledger(group_id=GROUP)
        self.fate: dict[int, int | None] = {}
        self.again: dict[int, int | None] | None = None
        self.begun = self.reach = 0
        self.copied: set[tuple[int, int]] = set()
        """(source, target) of every record that stands on the target and is one of the source's, whoever copied it."""
        self.flushes: list[list[tuple[bytes, bytes | None]]] = []
        self.known: Entry | None = None
        self.page: OpenPage | None = None
        self.target_end = target_start
        self._open(source_start, Past.NOTHING)
        self.fate = dict.fromkeys(range(source_start))

    @property
    def entry(self) -> Entry:
        assert self.known is not None
        return self.known

    @property
    def position(self) -> int:
        """Up to where the source is mirrored."""
        return self.entry.source_offset if self.again is None else self.reach

    def _write(self, record: tuple[bytes, bytes | None]) -> None:
        self.records.append(record)
        self.ledger.take(*record)

    def _open(self, offset: int, past: Past) -> None:
        new = Entry(
            source_topic_id="0" * 32,
            target_topic_id="0" * 32,
            count=self.known.count + 1 if self.known else 0,
            n=0,
            source_offset=offset,
            target_offset=self.target_end,
            our_end=self.target_end,
            run_source=offset,
            run_target=self.target_end,
        )
        known = self.ledger.partition(WHERE)
        pages, former = pages_at_opening(
            past, new, known=self.known, page=self.page, pages=list(known.pages), former=list(known.former)
        )
        for is_former, written in ((True, former), (False, pages)):
            for start, page in written.items():
                self._write(encode_page(GROUP, *WHERE, start, page, is_former=is_former))
        self._write((encode_entry_key(GROUP, *WHERE), encode_entry(new)))
        self.known, self.page = new, OpenPage(offset)

    def _go_on(self, offset: int, past: Past, *, unwritten: int = 0, position: int | None = None) -> None:
        """Begin a count at an offset; what was copied stays, once more up to `position`."""
        position = self.entry.source_offset if position is None else position
        unknown = self.entry.source_offset + unwritten
        self._open(offset, past)
        nothing = {} if past is Past.OTHERS else dict.fromkeys(range(unknown, offset))
        if self.again is None:
            far = self._last_copied(offset, unknown) if past is Past.SET else offset
            self.again, self.begun, self.reach = ({}, offset, far) if far > offset else (None, 0, 0)
            self.fate = {source: target for source, target in self.fate.items() if source < max(far, offset)} | nothing
            return
        reach = max(self.reach, unknown)
        is_left_out = past is not Past.OTHERS and self._last_copied(position, min(offset, reach)) > position
        is_anew = offset <= self.begun or is_left_out
        # What was left out the first time, and of which the only copy is one that was given up, is not known any more.
        given_up = {pair for pair in self.copied if pair[0] >= (self.begun if is_anew else offset)}
        self.copied -= {pair for pair in given_up if self.fate.get(pair[0], NEVER) is None}
        if is_anew:
            self.begun, self.again = offset, {}
            self.reach = self._last_copied(offset, reach)
            end = max(self.reach, offset)
            self.fate = {source: target for source, target in self.fate.items() if source < end}
            self.fate |= dict.fromkeys(range(reach, offset))
        else:
            self.again = {source: target for source, target in self.again.items() if source < offset} | nothing
            self.reach = self._last_copied(self.begun, reach)
        self._pass()

    def _last_copied(self, start: int, end: int) -> int:
        """After the last record between two offsets that was copied, or of which nothing is known."""
        copied = [source for source in range(start, end) if self.fate.get(source, NEVER) is not None]
        return copied[-1] + 1 if copied else start

    def _pass(self) -> None:
        """Once the second copies have gone as far as the first, they count."""
        if self.again is not None and self.entry.source_offset >= self.reach:
            self.fate = {source: target for source, target in self.fate.items() if source < self.begun} | self.again
            self.again = None

    def _begin_anew(self, offset: int) -> None:
        self.again = None
        self.copied.clear()
        self.fate = dict.fromkeys(range(offset))
        self._open(offset, Past.VOID)

    def _follow(self, copied: list[Run], source_end: int, *, others: int = 0) -> None:
        entry, page = self.entry, self.page
        assert page is not None
        before = OpenRun(entry.run_source, entry.run_target, entry.source_offset, entry.target_offset)
        closed, now = follow(before, copied, source_end)
        if others:
            closed.append(Run(now.source, now.target, now.source_end - now.source))
            target = now.target_end + others
            now = OpenRun(now.source_end, target, now.source_end, target)
        for run in closed:
            page.close(run)
        self.known = entry.moved(
            n=entry.n + sum(run.length for run in copied),
            source_offset=now.source_end,
            target_offset=now.target_end,
            run_source=now.source,
            run_target=now.target,
        )
        self.target_end = now.target_end

    # what may happen

    def copies(self, gap: int, records: int, trailing: int) -> None:
        start = self.entry.source_offset
        fate: dict[int, int | None] = dict.fromkeys(range(start, start + gap + records + trailing))
        fate |= {start + gap + i: self.target_end + i for i in range(records)}
        compacted = {source for source, target in fate.items() if target is None}
        self.copied = {(source, target) for source, target in self.copied if source not in compacted}
        self.copied |= {(start + gap + i, self.target_end + i) for i in range(records)}
        runs = [Run(start + gap, self.target_end, records)] if records else []
        self._follow(runs, start + gap + records + trailing)
        self.flush()
        if self.again is None:
            self.fate |= fate
            return
        self.again |= fate
        self._pass()

    def copies_much(self, gap: int, records: int, trailing: int) -> None:
        self.copies(gap, 5 * records, trailing)

    def others_write(self, gap: int, records: int, _: int) -> None:
        self._follow([], self.entry.source_offset, others=gap + records + 1)
        self.flush()

    def position_is_set(self, gap: int, records: int, trailing: int) -> None:
        """To any offset, up to a few beyond what was copied."""
        self._go_on((5 * gap + records) % (self.position + trailing + 1), Past.SET)

    def position_is_set_after_a_crash(self, gap: int, records: int, trailing: int) -> None:
        """What was copied last had not been written down, and nobody looked for it on the target.

        Only of records that had been left out before, and were being copied for the first time, is it not known then.
        """
        start = self.entry.source_offset
        known = [i for i in range(records) if self.again is None or self.fate.get(start + i, NEVER) is not None]
        self.copied |= {(start + i, self.target_end + i) for i in known}
        self.target_end += records
        reach = max(self.position, start + records)
        self._go_on((5 * gap + records) % (reach + trailing + 1), Past.SET, unwritten=records)

    def tail_is_unproven(self, *_: int) -> None:
        self._go_on(self.entry.source_offset, Past.OURS)

    def loses_records_uncopied(self, gap: int, records: int, _: int) -> None:
        self._go_on(self.entry.source_offset + gap + records, Past.OURS)

    def source_is_truncated(self, gap: int, records: int, _: int) -> None:
        offset = max(0, self.entry.source_offset - gap - records)
        self.copied = {(source, target) for source, target in self.copied if source < offset}
        if self.again is None:
            self.fate = {source: target for source, target in self.fate.items() if source < offset}
            self._open(offset, Past.OURS)
        else:
            self._go_on(offset, Past.OURS)

    def target_is_truncated(self, gap: int, records: int, expired: int) -> None:
        self.target_end = max(0, self.target_end - gap - records)
        # of copies that newer ones had replaced nothing is known any more
        everywhere = [*self.fate.items(), *(self.again or {}).items()]
        self.copied = {pair for pair in self.copied if pair[1] < self.target_end and pair in everywhere}
        lost = [source for source, target in everywhere if target is not None and target >= self.target_end]
        offset = min([*lost, self.entry.source_offset]) + expired
        twice = [source for source, target in (self.again or {}).items() if target and target >= self.target_end]
        self.fate = self._before_truncation(self.fate)
        if self.again is not None:
            self.again = self._before_truncation(self.again)
            self._go_on(offset, Past.OURS, position=min([*twice, self.entry.source_offset]))
            return
        self.fate = {source: target for source, target in self.fate.items() if source < offset}
        self.fate |= dict.fromkeys(range(self.entry.source_offset, offset))
        self._open(offset, Past.OURS)

    def _before_truncation(self, fate: dict[int, int | None]) -> dict[int, int | None]:
        return {
            source: None if target is not None and target >= self.target_end else target
            for source, target in fate.items()
        }

    def source_is_made_anew(self, _: int, __: int, start: int) -> None:
        self._begin_anew(start)

    def target_is_made_anew(self, _: int, __: int, ___: int) -> None:
        self.target_end = 0
        self._begin_anew(2)

    def another_tool_copies(self, gap: int, records: int, _: int) -> None:
        start = self.entry.source_offset + gap
        compacted = range(self.entry.source_offset, start)
        self.copied = {(source, target) for source, target in self.copied if source not in compacted}
        self.copied |= {(start + i, self.target_end + i) for i in range(records)}
        self.target_end += records
        self._go_on(start + records, Past.OTHERS)

    def source_expires(self, gap: int, records: int, _: int) -> None:
        """Old pages go; what they said is asked no more, and counts as nothing to copy."""
        log_start = max(0, self.entry.source_offset - gap - records)
        ledger = self.ledger.partition(WHERE)
        for start in ledger.outrun():
            self._write(encode_page(GROUP, *WHERE, start, None, is_former=True))
        for start, page in ledger.pruned(log_start).items():
            self._write(encode_page(GROUP, *WHERE, start, page))
        if self.again is not None:
            return  # nothing is pruned before it is clear which copies count
        first = min([page.end for page in ledger.pages if not page.number and page.start == 0], default=0)
        self.fate |= dict.fromkeys(range(first))
        self.copied = {(source, target) for source, target in self.copied if source >= first}

    def a_flush_comes_late(self, gap: int, records: int, again: int) -> None:
        """Of a lane that outlived its time; the driver may write again what it overwrote."""
        if self.flushes:
            for record in self.flushes[-1 - (5 * gap + records) % len(self.flushes)]:
                self._write(record)
        if again % 2:
            for start, page in self.ledger.partition(WHERE).overwritten().items():
                self._write(encode_page(GROUP, *WHERE, start, page))
            assert not self.ledger.partition(WHERE).overwritten()

    def restarts(self, *_: int) -> None:
        """Another driver reads the ledger."""
        self.ledger = Ledger(group_id=GROUP)
        for record in self.records:
            self.ledger.take(*record)
        self.page = self.ledger.partition(WHERE).open_page()

    def flush(self) -> None:
        entry, page = self.entry, self.page
        assert page is not None
        pages = page.pages(entry.count, entry.run_source, entry.run_target)
        records = [encode_page(GROUP, *WHERE, one.start, replace(one, by_lane=True)) for one in pages]
        records.append((encode_entry_key(GROUP, *WHERE), encode_entry(entry)))
        for record in records:
            self._write(record)
        page.written(pages)
        self.flushes.append(records)

    # what a translation must give

    def expected(self, offset: int) -> Translation:
        entry = self.entry
        if offset >= self.position:
            ahead = offset - self.position
            return Translation(entry.target_offset, Grade.AHEAD if ahead else Grade.EXACT, ahead)
        for following in range(offset, self.position):
            target = self.fate.get(following, NEVER)
            if target is NEVER:
                break
            if isinstance(target, int):
                return Translation(target)
        else:
            return Translation(entry.target_offset)
        before = [target for source, target in self.fate.items() if target is not None and source < offset]
        return Translation(max(before, default=-1) + 1, Grade.DEGRADED)

    def skipped(self, offset: int, translated: int) -> set[int]:
        """Records that a group at an offset of the source has not read and would not find from there on."""
        return {source for source, _ in self.copied if source >= offset} - {
            source for source, target in self.copied if target >= translated
        }

    def newest(self) -> dict[int, int]:
        """Where the newest copy of each record stands that the ledger knows of."""
        kept = {source: target for source, target in self.fate.items() if self.again is None or source < self.begun}
        return {source: target for source, target in (kept | (self.again or {})).items() if target is not None}


HAPPENINGS: list[Callable[[Life, int, int, int], None]] = [
    Life.copies,
    Life.copies,
    Life.copies,
    Life.copies_much,
    Life.others_write,
    Life.position_is_set,
    Life.position_is_set,
    Life.position_is_set_after_a_crash,
    Life.tail_is_unproven,
    Life.loses_records_uncopied,
    Life.source_is_truncated,
    Life.target_is_truncated,
    Life.source_is_made_anew,
    Life.target_is_made_anew,
    Life.another_tool_copies,
    Life.source_expires,
    Life.a_flush_comes_late,
    Life.restarts,
]
numbers = st.integers(0, 4)
lives = st.lists(st.tuples(st.sampled_from(HAPPENINGS), numbers, numbers, numbers), max_size=25)


@given(numbers, st.sampled_from([0, 30]), lives)
def test_every_offset_is_translated_as_a_model_of_every_record_does(
    source_start: int, target_start: int, happenings: list[tuple[Callable[[Life, int, int, int], None], int, int, int]]
) -> None:
    life = Life(source_start, target_start)
    for happens, *sizes in happenings:
        happens(life, *sizes)
        known = life.ledger.partition(WHERE)
        for offset in range(life.position + 3):
            found, wanted = known.translate(offset), life.expected(offset)
            if found is None:
                assert offset > life.position
                assert not any(target is not None for target in life.fate.values()) or life.entry.n == 0
            else:
                assert found == wanted, (offset, happens.__name__, list(known.pages), list(known.former))
                assert not life.skipped(offset, found.offset), (offset, happens.__name__)
                assert found.offset <= life.target_end, "never past what is mirrored"
        for offset in range(0, life.position + 3, 4):
            copied = {source: target for source, target in life.newest().items() if source >= offset}
            assert dict(each_record(known.runs_since(offset))) == copied


def each_record(runs: Iterable[Run]) -> Iterator[tuple[int, int]]:
    return ((run.source + i, run.target + i) for run in runs for i in range(run.length))


def ledger_of(entry: Entry, *pages: Page) -> PartitionLedger:
    known = PartitionLedger()
    known.entry = entry
    for page in pages:
        known.take_page(page.start, page)
    return known


ENTRY = Entry(
    source_topic_id="0" * 32,
    target_topic_id="0" * 32,
    count=0,
    n=7,
    source_offset=7,
    target_offset=37,
    our_end=37,
    run_source=0,
    run_target=30,
)


def test_a_group_at_4_of_7_goes_on_at_34_where_the_target_begins_at_30() -> None:
    assert ledger_of(ENTRY).translate(4) == Translation(34)


def test_a_group_at_the_end_goes_on_where_the_next_copy_will_stand() -> None:
    assert ledger_of(ENTRY).translate(7) == Translation(37)


def test_a_group_that_is_ahead_goes_on_at_the_end_and_is_said_to_be_ahead() -> None:
    assert ledger_of(ENTRY).translate(10) == Translation(37, Grade.AHEAD, 3)


def test_a_partition_of_which_nothing_was_copied_has_no_translation_but_of_its_start() -> None:
    empty = ENTRY.moved(n=0, source_offset=0, target_offset=0, run_target=0)
    assert ledger_of(empty).translate(0) == Translation(0)
    assert ledger_of(empty).translate(5) is None
    assert PartitionLedger().translate(0) is None


def test_what_the_ledger_does_not_know_is_read_again_and_said_to_be_degraded() -> None:
    later = ENTRY.moved(run_source=5, run_target=35)
    assert ledger_of(later).translate(3) == Translation(0, Grade.DEGRADED)
    rebuilt = Page.of(0, 3, 0, [Run(0, 30, 3)], target=0, is_rebuilt=True)
    assert ledger_of(later, rebuilt).translate(2) == Translation(32, Grade.DEGRADED)
    assert ledger_of(later, rebuilt).translate(4) == Translation(33, Grade.DEGRADED)
    assert ledger_of(later, rebuilt).translate(5) == Translation(35)


def test_a_page_that_contradicts_the_entry_never_leads_past_what_is_mirrored() -> None:
    wrong = Page.of(0, 5, 0, [Run(0, 5_000, 5)], target=0)
    assert ledger_of(ENTRY.moved(run_source=5, run_target=35), wrong).translate(2) == Translation(37)


def test_a_translation_stays_within_the_targets_log() -> None:
    assert Translation(4).within(10, 20).offset == 10
    assert Translation(40).within(10, 20).offset == 20
    assert Translation(14).within(10, 20).offset == 14


def test_an_older_entry_of_a_late_lane_changes_nothing_and_a_new_count_does() -> None:
    known = ledger_of(ENTRY)
    known.take_entry(ENTRY.moved(n=6, source_offset=6))
    assert known.entry == ENTRY
    known.take_entry(ENTRY.moved(source_offset=9))
    assert known.entry == ENTRY.moved(source_offset=9)
    known.take_entry(ENTRY.moved(count=1, n=0, source_offset=3))
    assert known.entry == ENTRY.moved(count=1, n=0, source_offset=3)


# -- pages that come late --------------------------------------------------------------------


def flushed(entry: Entry, *runs: Run) -> list[tuple[bytes, bytes | None]]:
    """What a lane writes whose page began at 0."""
    page = replace(Page.of(0, entry.run_source, entry.count, runs, target=30), by_lane=True)
    return [
        encode_page(GROUP, *WHERE, 0, page),
        (encode_entry_key(GROUP, *WHERE), encode_entry(entry)),
    ]


OLD = flushed(ENTRY.moved(n=3, source_offset=4, target_offset=33, run_source=4, run_target=33), Run(0, 30, 3))
NEW = flushed(
    ENTRY.moved(n=8, source_offset=9, target_offset=38, run_source=9, run_target=38), Run(0, 30, 3), Run(4, 33, 5)
)


def read(records: Iterable[tuple[bytes, bytes | None]]) -> Ledger:
    ledger = Ledger(group_id=GROUP)
    for record in records:
        ledger.take(*record)
    return ledger


def test_a_late_flush_puts_no_old_page_over_a_newer_one() -> None:
    ledger = read([*OLD, *NEW, *OLD])
    assert [ledger.translate(WHERE, offset) for offset in (2, 3, 6, 9)] == [
        Translation(32),
        Translation(33),
        Translation(35),
        Translation(38),
    ]


def test_a_late_flush_puts_no_page_over_those_of_a_later_count() -> None:
    """The target lost records, and the driver cut the page."""
    cut = Page.of(0, 2, 0, [Run(0, 30, 2)], target=30)
    count = ENTRY.moved(count=1, n=0, source_offset=2, target_offset=32, run_source=2, run_target=32)
    opening = [
        encode_page(GROUP, *WHERE, 0, cut),
        (encode_entry_key(GROUP, *WHERE), encode_entry(count)),
    ]
    known = read([*NEW, *opening, *NEW]).partition(WHERE)
    assert list(known.pages) == [cut]
    assert known.translate(6) == Translation(32, Grade.AHEAD, 4)


def test_the_page_that_counts_is_written_again_so_that_compaction_keeps_it() -> None:
    known = read([*NEW, *OLD]).partition(WHERE)
    [(start, page)] = known.overwritten().items()
    assert page is not None
    again = encode_page(GROUP, *WHERE, start, page)
    assert not read([*NEW, *OLD, again]).partition(WHERE).overwritten()
    compacted = [OLD[1], again, NEW[1]]
    assert read(compacted).translate(WHERE, 6) == Translation(35)


def test_a_deleted_page_that_a_late_flush_brought_back_is_deleted_again() -> None:
    count = ENTRY.moved(count=1, n=0, source_offset=0, target_offset=30, run_source=0, run_target=30)
    opening = [
        encode_page(GROUP, *WHERE, 0, None),
        (encode_entry_key(GROUP, *WHERE), encode_entry(count)),
    ]
    known = read([*NEW, *opening, *NEW]).partition(WHERE)
    assert list(known.pages) == []
    assert known.overwritten() == {0: None}
