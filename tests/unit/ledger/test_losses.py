"""Losses as they are kept: what adds up, what counts once, what an acknowledgement covers, and who goes on after it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import parse_settings
from heliograph.flow.loss_book import LossBook
from heliograph.kafka.admin.topics import EARLIEST
from heliograph.kafka.cluster import Cluster
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.loss_outcomes import GoOn, Outcome, Stop, outcome_of, source_made_anew, target_made_anew
from heliograph.ledger.losses import acknowledged, loss_of, merge, newest
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.rejected_record import Rejected
from tests.unit.helpers.logs import ENTRY

AT = ENTRY.moved(count=3, n=40, source_offset=40, target_offset=140, source_end=200)
LOST = {"position": 40, "log_start": 160, "log_end": 200}
CONFIG = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
"""


def kept(**fields: Any) -> Loss:
    known = {"topic": "t", "partition": 0, "code": "DATA_LOST", "text": "x", "mark": "m", "first_ms": 5, "last_ms": 5}
    return Loss(**{**known, "records": 10, "latest": 10, "start": 0, "end": 10, **fields})


@st.composite
def occurrences(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """What happens to a partition, in order: mark, first offset and number of records lost; some are met again."""
    found, at = [], 0
    for number in range(draw(st.integers(1, 6))):
        at += draw(st.integers(0, 50))
        size = draw(st.integers(1, 50))
        found += [(f"{number}@{at}", at, size)] * draw(st.integers(1, 3))
        at += size
    return found


@given(occurrences())
def test_an_occurrence_counts_once_however_often_it_is_met(seen: list[tuple[str, int, int]]) -> None:
    loss = None
    for time_ms, (mark, start, size) in enumerate(seen, 1):
        new = kept(
            mark=mark, records=size, latest=size, start=start, end=start + size, first_ms=time_ms, last_ms=time_ms
        )
        loss = merge(loss, new)
    assert loss is not None
    once = list(dict.fromkeys(seen))
    assert loss.times == len(once)
    assert loss.records == sum(size for _, _, size in once)
    assert (loss.start, loss.end) == (once[0][1], once[-1][1] + once[-1][2])
    assert (loss.first_ms, loss.last_ms) == (1, 1 + seen.index(once[-1]))


@given(occurrences(), st.data())
def test_what_is_not_acknowledged_is_what_happened_since(seen: list[tuple[str, int, int]], data: st.DataObject) -> None:
    when = data.draw(st.integers(1, len(seen)))
    loss = None
    for index, (mark, start, size) in enumerate(seen):
        if index == when and loss is not None:
            (loss,) = acknowledged([loss], topic=None, now_ms=99)
        loss = merge(loss, kept(mark=mark, records=size, latest=size, start=start, end=start + size))
    assert loss is not None
    before = dict.fromkeys(seen[:when])
    since = [item for item in dict.fromkeys(seen[when:]) if item not in before]
    assert loss.times == len(set(seen))
    if since:
        assert loss.is_open
        assert (loss.records, loss.start) == (sum(size for _, _, size in since), since[0][1])
    else:
        assert loss.is_open == (when == len(seen))


def test_what_grew_after_it_was_acknowledged_is_open_again_for_the_rest() -> None:
    loss = merge(kept(acknowledged_ms=7), kept(records=15, latest=15, end=15))
    assert (loss.is_open, loss.records, loss.start, loss.end, loss.times) == (True, 5, 10, 15, 1)


def test_unknown_numbers_stay_unknown() -> None:
    unknown = kept(mark="other", records=-1, latest=-1, start=-1, end=-1)
    assert merge(kept(), unknown).records == merge(unknown, kept()).records == -1
    assert (merge(kept(), unknown).start, merge(kept(), unknown).end) == (0, 10)


def test_an_acknowledgement_of_less_than_there_is_does_not_count() -> None:
    twice = merge(kept(), kept(mark="other", start=20, end=30))
    late = replace(kept(), acknowledged_ms=9)
    assert newest(twice, late) == twice
    assert newest(kept(), late) == late
    assert newest(late, twice) == twice


def test_only_what_is_open_is_acknowledged_and_only_of_the_topic() -> None:
    losses = [kept(), kept(topic="u"), kept(partition=1, acknowledged_ms=3)]
    assert [loss.topic for loss in acknowledged(losses, topic=None, now_ms=9)] == ["t", "u"]
    (one,) = acknowledged(losses, topic="u", now_ms=9)
    assert one == kept(topic="u", acknowledged_ms=9)


@pytest.mark.parametrize(
    ("loss", "text"),
    [
        (kept(topic="orders", partition=3, records=120, start=40, end=160),
         "DATA_LOST orders-3: 120 records (offsets 40 to 159)"),
        (kept(records=1, start=7, end=8, times=2), "DATA_LOST t-0: 1 record (offset 7), 2 times"),
        (kept(records=3, start=7, end=10, on_target=True), "DATA_LOST t-0: 3 records (target offsets 7 to 9)"),
        (kept(records=-1, start=7, end=-1), "DATA_LOST t-0: offset 7 on"),
        (kept(topic="", partition=-1, text="CLUSTER_CHANGED: x"), "CLUSTER_CHANGED: x"),
    ],
)  # fmt: skip
def test_the_short_text_of_a_table(loss: Loss, text: str) -> None:
    assert loss.short() == text


def lost(code: str, details: dict[str, Any] | None = None) -> Loss:
    outcome = Outcome(code, "text", AT, details or {})
    return loss_of(("t", 0), outcome, flow="a->b", answer="went on at 160", since_ms=1_700_000_000_000, now_ms=5)


@pytest.mark.parametrize(
    ("code", "details", "numbers"),
    [
        ("DATA_LOST", LOST, (120, 40, 160, False)),
        ("LOG_TRUNCATED", {"log_end": 30}, (10, 30, 40, False)),
        ("TOPIC_RECREATED", {"source_topic_id": "ab"}, (160, 40, 200, False)),
        ("TARGET_TRUNCATED", {"target_end": 130}, (10, 130, 140, True)),
        ("TARGET_TOPIC_LOST", {"target_topic_id": "ab"}, (140, 0, 140, True)),
        ("FOREIGN_WRITES", {"target_start": 140, "target_end": 150, "records": 4}, (4, 140, 150, True)),
        ("SECOND_WRITER", {"target_start": 140, "target_end": 150, "records": 4}, (4, 140, 150, True)),
        ("SECOND_WRITER", {"records": 5}, (5, 40, 45, False)),
        ("POSITION_UNPROVEN", {"records": 5}, (5, 40, 45, False)),
        ("RECORD_REFUSED", {"source_start": 44, "source_end": 46, "records": 2}, (2, 44, 46, False)),
        ("RECORD_REFUSED", {}, (-1, 40, -1, False)),
    ],
)
def test_every_outcome_has_its_numbers(code: str, details: dict[str, Any], numbers: tuple[int, ...]) -> None:
    loss = lost(code, details)
    assert (loss.records, loss.start, loss.end, loss.on_target) == numbers
    assert loss.text == f"{code}: a->b t-0: text; all was well at 2023-11-14 22:13:20 UTC; went on at 160"
    assert loss.blocks == (code not in ("FOREIGN_WRITES", "SECOND_WRITER"))


def test_topics_made_anew_are_named_with_both_ids() -> None:
    known = AT.moved(source_topic_id="01", target_topic_id="02")
    assert "(id 01 before, 0a now)" in source_made_anew(known, "0a").text
    assert "up to offset 39 of 199" in source_made_anew(known, "0a").text
    assert "(id 02 before, 0b now): its offsets up to 139 are gone" in target_made_anew(known, "0b").text


def test_without_topic_ids_a_log_that_begins_at_0_and_ends_early_was_made_anew() -> None:
    row = LedgerRow(
        flow="a->b",
        topic="t",
        partition=0,
        lane=0,
        entry=AT.moved(source_topic_id="0" * 32),
        records=0,
        bytes=0,
        active_ms=1,
        host="h",
        state="released",
        error_code="LOG_TRUNCATED",
        error_text="LOG_TRUNCATED: x",
    )
    assert outcome_of(replace(row, details={"log_start": 0})).code == "TOPIC_RECREATED"
    assert outcome_of(replace(row, details={"log_start": 0})).text == "TOPIC_RECREATED: x"
    assert outcome_of(replace(row, details={"log_start": 7})).code == "LOG_TRUNCATED"
    known = replace(row, entry=AT.moved(source_topic_id="1" * 32), details={"log_start": 0})
    assert outcome_of(known).code == "LOG_TRUNCATED"


# -- on the driver -------------------------------------------------------------------------


class Book:
    """A flow's losses on a driver, and what it wrote to the target."""

    def __init__(self, more: str = "", *, ledger: Ledger | None = None) -> None:
        settings = parse_settings(CONFIG + more)
        self.ledger = ledger or Ledger(group_id="g")
        opening: Any = SimpleNamespace(
            flow=settings.flows[0],
            target=Cluster("b", (), client_id="test"),
            ledger=self.ledger,
            ledger_topic="ledger",
        )
        self.losses = LossBook(opening)

    def meets(self, code: str = "DATA_LOST", details: dict[str, Any] | None = None) -> GoOn | Stop:
        return self.losses.answer(("t", 0), Outcome(code, "text", AT, LOST if details is None else details))

    def keep(self) -> None:
        asyncio.run(self.losses.flush())

    def acknowledge(self) -> list[bool]:
        """As the command does, and as the driver then reads it; whether it goes on."""
        found = []
        for loss in acknowledged(self.ledger.losses.values(), topic=None, now_ms=77):
            self.ledger.losses[loss.key] = newest(self.ledger.losses.get(loss.key), loss)
            found.append(self.losses.take(loss))
        return found


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Loss | Rejected]:
    found: list[Loss | Rejected] = []

    async def losses(_cluster: Any, _topic: str, _group: str, losses: Any, *, now_ms: int) -> None:
        await asyncio.sleep(0)
        found.extend(losses)

    async def rejected(_cluster: Any, _flow: Any, rejected: Any, *, now_ms: int) -> None:
        await asyncio.sleep(0)
        found.extend(rejected)

    monkeypatch.setattr(store, "write_records", losses)
    monkeypatch.setattr(store, "write_rejected", rejected)
    return found


def test_a_loss_is_written_once(written: list[Loss]) -> None:
    book = Book()
    assert book.meets() == GoOn(160)
    book.keep()
    book.keep()
    assert [(loss.code, loss.records, loss.answer) for loss in written] == [("DATA_LOST", 120, "went on at 160")]


def test_two_who_keep_at_the_same_time_write_once(written: list[Loss | Rejected]) -> None:
    book = Book("on.record.error = skip\n")
    book.meets("RECORD_REFUSED", REFUSED)

    async def both() -> None:
        await asyncio.gather(book.losses.flush(), book.losses.flush())

    asyncio.run(both())
    assert [type(item) for item in written] == [Rejected, Loss]


def test_a_stopped_partition_goes_on_when_its_loss_is_acknowledged(written: list[Loss]) -> None:
    book = Book("on.data.loss = stop-partition\n")
    assert book.meets() == Stop()
    assert not book.losses.is_copied("t", 0)
    assert book.losses.is_copied("t", 1)
    assert book.acknowledge() == [True]
    assert book.losses.is_copied("t", 0)
    assert book.meets() == GoOn(160)
    book.keep()
    assert (written[-1].times, written[-1].acknowledged_ms) == (1, 77)
    assert book.losses.counts == {"DATA_LOST": 1}


@pytest.mark.usefixtures("written")
def test_a_restarted_driver_stops_again_until_it_is_acknowledged_and_counts_once() -> None:
    before = Book("on.data.loss = stop-partition\n")
    before.meets()
    after = Book("on.data.loss = stop-partition\n", ledger=before.ledger)
    assert after.meets() == Stop()
    assert [loss.times for loss in after.ledger.losses.values()] == [1]
    after.acknowledge()
    later = Book("on.data.loss = stop-partition\n", ledger=after.ledger)
    assert later.meets() == GoOn(160)


def test_a_later_loss_stops_again_though_an_earlier_one_was_acknowledged() -> None:
    book = Book("on.data.loss = stop-partition\n")
    book.meets()
    book.acknowledge()
    later = Outcome("DATA_LOST", "text", AT.moved(count=4, source_offset=170), {**LOST, "log_start": 180})
    assert book.losses.answer(("t", 0), later) == Stop()
    (loss,) = book.ledger.losses.values()
    assert (loss.times, loss.records, loss.is_open) == (2, 10, True)


def test_a_stopped_flow_stays_stopped_over_a_restart_until_it_is_acknowledged() -> None:
    book = Book("on.data.loss = stop-flow\n")
    assert book.meets() == Stop(whole_flow=True)
    assert not book.losses.is_copied("t", 1)
    after = Book("on.data.loss = stop-flow\n", ledger=book.ledger)
    assert after.losses.is_copied("t", 1)
    assert after.losses.restore_stop(("t", 0), AT)
    assert not after.losses.is_copied("t", 1)
    assert after.acknowledge() == [True]
    assert after.losses.is_copied("t", 1)
    assert not Book("on.data.loss = stop-flow\n", ledger=after.ledger).losses.restore_stop(("t", 0), AT)


def test_a_truncated_log_that_has_grown_again_keeps_its_partition_stopped() -> None:
    book = Book("on.data.loss = stop-partition\n")
    book.meets("LOG_TRUNCATED", {"log_start": 0, "log_end": 30})
    assert Book("on.data.loss = stop-partition\n", ledger=book.ledger).losses.restore_stop(("t", 0), AT)
    assert not Book("", ledger=book.ledger).losses.restore_stop(("t", 0), AT)
    assert not Book("on.data.loss = stop-partition\n", ledger=book.ledger).losses.restore_stop(
        ("t", 0), AT.moved(count=4)
    )


def test_an_acknowledgement_that_comes_too_late_is_put_right(written: list[Loss]) -> None:
    book = Book()
    book.meets()
    late = [replace(loss, acknowledged_ms=9) for loss in book.ledger.losses.values()]
    book.losses.answer(("t", 0), Outcome("DATA_LOST", "text", AT.moved(count=4, source_offset=170), {"log_start": 180}))
    book.keep()
    written.clear()
    assert not book.losses.take(late[0])
    book.keep()
    assert [(loss.times, loss.is_open) for loss in written] == [(2, True)]


REFUSED = {
    "source_start": 44, "source_end": 45, "records": 1, "error_code": 87, "cause": "no key",
    "rejected": [{"offset": 44, "last_offset": 44, "timestamp": 9, "size": 3, "key": None}],
}  # fmt: skip


def test_a_refused_record_is_left_out_only_if_the_policy_says_so_or_somebody_acknowledged_it(
    written: list[Loss | Rejected],
) -> None:
    stopping = Book()
    assert stopping.meets("RECORD_REFUSED", REFUSED) == Stop()
    stopping.keep()
    assert [type(item) for item in written] == [Loss]
    stopping.acknowledge()
    assert stopping.meets("RECORD_REFUSED", REFUSED) == GoOn(45)
    written.clear()
    stopping.keep()
    assert [type(item) for item in written] == [Rejected, Loss]
    assert Book("on.record.error = skip\n").meets("RECORD_REFUSED", REFUSED) == GoOn(45)


def test_what_cannot_be_told_apart_is_not_left_out() -> None:
    assert Book("on.record.error = skip\n").meets("RECORD_REFUSED", {"error_code": 2}) == Stop()


def test_a_recreated_topic_that_was_acknowledged_is_copied_from_its_start() -> None:
    book = Book("on.topic.recreated = stop-partition\n")
    assert book.meets("TOPIC_RECREATED", {"source_topic_id": "ab"}) == Stop()
    book.acknowledge()
    assert book.meets("TOPIC_RECREATED", {"source_topic_id": "ab"}) == GoOn(EARLIEST)
    assert book.meets("TOPIC_RECREATED", {"source_topic_id": "cd"}) == Stop()
