"""Where a target was cut is found whatever was copied, and whatever others wrote before and since."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from heliograph.flow.target_cut import Cut, copied_of, find_cut
from heliograph.kafka.batch import BatchHeader, encode_batch, parse_header
from heliograph.ledger.model import SEQUENCE_MODULUS
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.runs import OpenPage
from tests.unit.helpers.logs import ENTRY, PRODUCER_ID, new_records

STRANGER = 99


class Target:
    """A log of batches, and what was copied there as the ledger has it."""

    def __init__(self) -> None:
        self.batches: list[BatchHeader] = []
        self.start = self.end = 0
        self.probes = 0

    def append(self, records: int, producer_id: int, epoch: int = 0, n: int = 0) -> None:
        batch = encode_batch(
            new_records(0, records), producer_id=producer_id, producer_epoch=epoch, base_sequence=n % SEQUENCE_MODULUS
        )
        self.batches.append(parse_header(batch)._replace(base_offset=self.end))
        self.end += records

    def cut(self, left: int) -> None:
        del self.batches[left:]
        self.end = self.batches[-1].next_offset if self.batches else 0

    async def batch_from(self, offset: int) -> BatchHeader | None:
        self.probes += 1
        return next((header for header in self.batches if header.next_offset > offset), None)


Step = tuple[str, int]
steps = st.lists(
    st.tuples(st.sampled_from(["copy", "copy", "copy", "gap", "others", "count"]), st.integers(1, 5)), max_size=25
)


def played(made: list[Step], first_n: int) -> tuple[Target, Entry, list[Page], list[tuple[int, int]]]:
    """The target, the entry, the pages, and (target offset, source offset) of every record copied."""
    target, source, n, count = Target(), 0, first_n, 0
    runs: dict[int, list[Run]] = {0: []}
    copied: list[tuple[int, int]] = []
    for what, size in made:
        if what == "gap":
            source += size
        elif what == "others":
            target.append(size, STRANGER)
        elif what == "count":
            count, n = count + 1, 0
            runs[count] = []
        else:
            last = runs[count][-1] if runs[count] else Run(-1, -1, 0)
            if (last.source_end, last.target_end) == (source, target.end):
                runs[count][-1] = last._replace(length=last.length + size)
            else:
                runs[count].append(Run(source, target.end, size))
            copied += ((target.end + i, source + i) for i in range(size))
            target.append(size, PRODUCER_ID, count, n)
            source, n = source + size, n + size
    pages = [Page.of(own[0].source, own[-1].source_end, number, own, target=0) for number, own in runs.items() if own]
    entry = ENTRY.moved(
        count=count, n=n, source_offset=source, target_offset=target.end, run_source=source, run_target=target.end
    )
    return target, entry, pages, copied


def found_in(target: Target, entry: Entry, pages: list[Page]) -> Cut | None:
    return asyncio.run(
        find_cut(
            copied_of(entry, OpenPage(entry.run_source), pages),
            target.batch_from,
            log_start=target.start,
            log_end=target.end,
            producer_id_of=lambda _: PRODUCER_ID,
        )
    )


@given(made=steps, first_n=st.sampled_from([0, 7, SEQUENCE_MODULUS - 3]), data=st.data())
def test_the_first_record_that_is_gone_is_found(made: list[Step], first_n: int, data: st.DataObject) -> None:
    target, entry, pages, copied = played(made, first_n)
    target.cut(data.draw(st.integers(0, len(target.batches))))
    left = target.end
    for size in data.draw(st.lists(st.integers(1, 9), max_size=6)):
        target.append(size, STRANGER)
    if data.draw(st.booleans()):  # what was on its way stands there now, further up than it should
        target.append(2, PRODUCER_ID, entry.count, entry.n)
    target.start = data.draw(st.integers(0, left))
    gone = next((where for where in copied if where[0] >= left), None)
    assert found_in(target, entry, pages) == (None if gone is None else Cut(*gone))
    assert target.probes <= 12


@given(made=steps, data=st.data())
def test_where_compaction_took_batches_nothing_that_is_gone_is_taken_for_kept(
    made: list[Step], data: st.DataObject
) -> None:
    target, entry, pages, copied = played(made, 0)
    target.cut(data.draw(st.integers(0, len(target.batches))))
    left = target.end
    target.append(50, STRANGER)
    target.batches = [header for header in target.batches if header.producer_id == STRANGER or data.draw(st.booleans())]
    found = found_in(target, entry, pages)
    gone = next((where for where in copied if where[0] >= left), None)
    assert gone is None or (found is not None and found.source_offset <= gone[1])
