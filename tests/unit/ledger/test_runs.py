"""Runs and pages: packed and unpacked, followed record by record, joined from both sides."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.runs import PAGE_RUNS, OpenPage, OpenRun, follow, join_spans

gaps = st.sampled_from([0, 0, 1, 2, 127, 128, 20_000, 2**35])
steps = st.lists(st.tuples(gaps, gaps, st.integers(1, 300)), max_size=300)


def laid_out(shape: list[tuple[int, int, int]], source: int, target: int) -> list[Run]:
    """Runs from the distances between them; the first distance to a neighbour is never 0 on both sides."""
    runs = []
    for source_gap, target_gap, length in shape:
        source, target = source + source_gap + (not target_gap), target + target_gap
        runs.append(Run(source, target, length))
        source, target = source + length, target + length
    return runs


@given(steps, st.integers(0, 2**40), st.integers(0, 2**40), st.integers(0, 32767), st.booleans())
def test_a_page_comes_back_as_it_was(
    shape: list[tuple[int, int, int]], source: int, target: int, count: int, is_rebuilt: bool
) -> None:
    runs = laid_out(shape, source, target)
    page = Page.of(source, source + 2**50, count, runs, target=target, is_rebuilt=is_rebuilt)
    assert page.runs() == runs
    assert Page.parse(source, page.encode()) == page


@given(steps, st.data())
def test_a_page_that_is_cut_off_is_none(shape: list[tuple[int, int, int]], data: st.DataObject) -> None:
    value = Page.of(0, 2**50, 3, laid_out(shape, 0, 0), target=0).encode()
    assert Page.parse(0, value[: data.draw(st.integers(0, len(value) - 1))]) is None
    assert Page.parse(0, b"\x02" + value[1:]) is None


@given(st.binary(max_size=40))
def test_garbage_is_no_page_or_one_that_can_be_unpacked(value: bytes) -> None:
    page = Page.parse(0, value)
    assert page is None or len(page.runs()) == page.number


@given(steps, st.lists(st.integers(1, 200), min_size=1, max_size=5), st.data())
def test_an_open_page_writes_every_run_once_and_covers_everything(
    shape: list[tuple[int, int, int]], cuts: list[int], data: st.DataObject
) -> None:
    runs = laid_out(shape, 0, 0)
    open_page = OpenPage(0)
    stored: dict[int, Page] = {}
    for at, run in enumerate(runs):
        open_page.close(run)
        if at % data.draw(st.sampled_from(cuts)) == 0:
            pages = open_page.pages(1, runs[at + 1].source if at + 1 < len(runs) else run.source_end, 0)
            stored |= {page.start: page for page in pages}
            open_page.written(pages)
            assert open_page.pages(1, pages[-1].end, 0) == []
    end = (runs[-1].source_end if runs else 0) + 1
    stored |= {page.start: page for page in open_page.pages(1, end, 0)}
    pages = [stored[start] for start in sorted(stored)]
    assert [run for page in pages for run in page.runs()] == runs
    assert [page.start for page in pages] == [0, *(page.end for page in pages[:-1])]
    assert pages[-1].end == end
    assert all(page.number <= PAGE_RUNS for page in pages)


def test_a_run_without_records_is_not_kept() -> None:
    page = OpenPage(0)
    page.close(Run(5, 7, 0))
    assert page.runs == []
    assert page.pages(1, 0, 0) == []


@given(
    st.lists(st.tuples(st.sampled_from([0, 0, 1, 3]), st.sampled_from([0, 0, 2]), st.integers(1, 5)), max_size=20),
    st.lists(st.integers(0, 4), max_size=25),
)
def test_following_pieces_gives_the_same_runs_as_looking_at_every_record(
    shape: list[tuple[int, int, int]], trailing: list[int]
) -> None:
    source, target, open_run = 10, 20, OpenRun(10, 20, 10, 20)
    closed: list[Run] = []
    where: dict[int, int] = {}
    for index, (source_gap, target_gap, length) in enumerate(shape):
        source, target = source + source_gap, target + target_gap
        run = Run(source, target, length)
        where |= {source + i: target + i for i in range(length)}
        source, target = source + length, target + length
        source += trailing[index] if index < len(trailing) else 0
        broken, open_run = follow(open_run, [run], source)
        closed += broken
        assert (open_run.source_end, open_run.target_end) == (source, target)
        assert open_run.source_end - open_run.source == open_run.target_end - open_run.target
    last = Run(open_run.source, open_run.target, open_run.source_end - open_run.source)
    assert {run.source + i: run.target + i for run in (*closed, last) for i in range(run.length)} == where
    assert all(
        (first.source_end, first.target_end) != (second.source, second.target)
        for first, second in itertools.pairwise(closed)
    )


spans = st.lists(st.tuples(st.integers(0, 3), st.integers(1, 6)), max_size=12)


@given(spans, spans)
def test_joined_spans_pair_the_nth_record_with_the_nth(
    source_shape: list[tuple[int, int]], target_shape: list[tuple[int, int]]
) -> None:
    def offsets(shape: list[tuple[int, int]]) -> tuple[list[tuple[int, int]], list[int]]:
        at, made = 0, []
        each: list[int] = []
        for gap, length in shape:
            made.append((at + gap, length))
            each += range(at + gap, at + gap + length)
            at += gap + length
        return made, each

    sources, source_offsets = offsets(source_shape)
    targets, target_offsets = offsets(target_shape)
    runs = join_spans(sources, targets)
    pairs = list(zip(source_offsets, target_offsets, strict=False))
    assert [(run.source + i, run.target + i) for run in runs for i in range(run.length)] == pairs
