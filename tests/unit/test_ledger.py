"""Translation against a model that knows the fate of every single offset."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from hypothesis import given
from hypothesis import strategies as st

from heliograph.mirror import formats
from heliograph.mirror.counts import Past, pages_at_opening
from heliograph.mirror.ledger import Grade, Ledger, PartitionLedger, Translation
from heliograph.mirror.model import Entry
from heliograph.mirror.runs import OpenPage, OpenRun, Page, Run, follow

GROUP, WHERE = "a-mm2", ("t", 0)
NEVER = object()


class Life:
    """A partition's copy, with all that may happen to it, and beside it what a translation must give.

    `fate` has for every source offset where it stands on the target, None if it had nothing to copy,
    and no entry if another tool had it.
    """

    def __init__(self, source_start: int, target_start: int) -> None:
        self.records: list[tuple[bytes, bytes | None]] = []
        self.ledger = Ledger(group_id=GROUP)
        self.fate: dict[int, int | None] = {}
        self.known: Entry | None = None
        self.page: OpenPage | None = None
        self.target_end = target_start
        self._open(source_start, Past.NOTHING)
        self.fate = dict.fromkeys(range(source_start))

    @property
    def entry(self) -> Entry:
        assert self.known is not None
        return self.known

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
        pages = pages_at_opening(
            past, new, known=self.known, page=self.page, pages=list(self.ledger.partition(WHERE).pages)
        )
        for start, page in pages.items():
            self._write(formats.encode_page(GROUP, *WHERE, start, page))
        self._write((formats.encode_entry_key(GROUP, *WHERE), formats.encode_entry(new)))
        self.known, self.page = new, OpenPage(offset)

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
        self.fate |= dict.fromkeys(range(start, start + gap + records + trailing))
        self.fate |= {start + gap + i: self.target_end + i for i in range(records)}
        runs = [Run(start + gap, self.target_end, records)] if records else []
        self._follow(runs, start + gap + records + trailing)
        self.flush()

    def others_write(self, gap: int, records: int, _: int) -> None:
        self._follow([], self.entry.source_offset, others=gap + records + 1)
        self.flush()

    def loses_records_uncopied(self, gap: int, records: int, _: int) -> None:
        start = self.entry.source_offset
        self.fate |= dict.fromkeys(range(start, start + gap + records))
        self._open(start + gap + records, Past.OURS)

    def source_is_truncated(self, gap: int, records: int, _: int) -> None:
        offset = max(0, self.entry.source_offset - gap - records)
        self.fate = {source: target for source, target in self.fate.items() if source < offset}
        self._open(offset, Past.OURS)

    def target_is_truncated(self, gap: int, records: int, expired: int) -> None:
        self.target_end = max(0, self.target_end - gap - records)
        lost = [source for source, target in self.fate.items() if target is not None and target >= self.target_end]
        offset = min([*lost, self.entry.source_offset]) + expired
        self.fate = {
            source: None if target is not None and target >= self.target_end else target
            for source, target in self.fate.items()
            if source < offset
        }
        for source in range(self.entry.source_offset, offset):
            self.fate[source] = None
        self._open(offset, Past.OURS)

    def source_is_made_anew(self, _: int, __: int, start: int) -> None:
        self.fate = dict.fromkeys(range(start))
        self._open(start, Past.VOID)

    def target_is_made_anew(self, _: int, __: int, ___: int) -> None:
        self.target_end = 0
        self.fate = dict.fromkeys(range(2))
        self._open(2, Past.VOID)

    def another_tool_copies(self, gap: int, records: int, _: int) -> None:
        self.target_end += records
        self._open(self.entry.source_offset + gap + records, Past.OTHERS)

    def source_expires(self, gap: int, records: int, _: int) -> None:
        """Old pages go; what they said is asked no more, and counts as nothing to copy."""
        log_start = max(0, self.entry.source_offset - gap - records)
        ledger = self.ledger.partition(WHERE)
        for start, page in ledger.pruned(log_start).items():
            self._write(formats.encode_page(GROUP, *WHERE, start, page))
        first = min([page.end for page in ledger.pages if not page.number and page.start == 0], default=0)
        self.fate |= dict.fromkeys(range(first))

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
        for item in pages:
            self._write(formats.encode_page(GROUP, *WHERE, item.start, item))
        page.written(pages)
        self._write((formats.encode_entry_key(GROUP, *WHERE), formats.encode_entry(entry)))

    # what a translation must give

    def expected(self, offset: int) -> Translation:
        entry = self.entry
        if offset >= entry.source_offset:
            ahead = offset - entry.source_offset
            return Translation(entry.target_offset, Grade.AHEAD if ahead else Grade.EXACT, ahead)
        for following in range(offset, entry.source_offset):
            target = self.fate.get(following, NEVER)
            if target is NEVER:
                break
            if isinstance(target, int):
                return Translation(target)
        else:
            return Translation(entry.target_offset)
        before = [target for source, target in self.fate.items() if target is not None and source < offset]
        return Translation(max(before, default=-1) + 1, Grade.DEGRADED)


HAPPENINGS: list[Callable[[Life, int, int, int], None]] = [
    Life.copies,
    Life.copies,
    Life.copies,
    Life.copies,
    Life.others_write,
    Life.loses_records_uncopied,
    Life.source_is_truncated,
    Life.target_is_truncated,
    Life.source_is_made_anew,
    Life.target_is_made_anew,
    Life.another_tool_copies,
    Life.source_expires,
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
        for offset in range(life.entry.source_offset + 3):
            found, wanted = known.translate(offset), life.expected(offset)
            if found is None:
                assert offset > life.entry.source_offset
                assert not any(target is not None for target in life.fate.values()) or life.entry.n == 0
            else:
                assert found == wanted, (offset, happens.__name__, list(known.pages))
        for offset in range(0, life.entry.source_offset + 3, 4):
            copied = {source: target for source, target in life.fate.items() if target is not None and source >= offset}
            assert dict(each_record(known.runs_since(offset))) == copied
        for target_end in range(life.entry.run_target):
            before = [s for s, t in life.fate.items() if t is not None and t < target_end and s < life.entry.run_source]
            assert known.source_after(target_end) == (max(before) + 1 if before else None)


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
