"""A flow on the driver, without clusters: what its answers do to its partitions, and what it says."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.flow import flow as flow_module
from heliograph.flow.flow import FlowDriver
from heliograph.flow.lease_holder import LeaseHolder
from heliograph.flow.topics import FlowTopics
from heliograph.kafka.admin.topics import EARLIEST
from heliograph.ledger import store
from heliograph.ledger.counts import Past, Start
from heliograph.ledger.loss_outcomes import Outcome
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.page import Page, Run
from heliograph.ledger.records.trouble import Trouble
from heliograph.ledger.records.unreadable_records import RefusedRecords
from heliograph.ledger.runs import OpenPage
from tests.unit.helpers.logs import ENTRY

LOST = {"position": 0, "log_start": 6, "log_end": 10}
CONFIG = """\
clusters = a, b
a.bootstrap.servers = a:9092, a2:9092
b.bootstrap.servers = [::1]:9092
a->b.enabled = true
"""


def driver(more: str = "", *, partitions: int = 2) -> FlowDriver:
    """A flow that copies topic t."""
    settings = parse_settings(CONFIG + more)
    driver = FlowDriver(settings.flows[0], settings, is_local=True)
    driver.entries.update({("t", partition): ENTRY for partition in range(partitions)})
    return driver


def given_out(flow: FlowDriver) -> list[int]:
    return [assignment.partition for assignment in flow.assignments.all()]


def test_a_partition_that_goes_on_gets_a_new_start() -> None:
    flow = driver()
    start = flow.answers.answer(("t", 0), Outcome("DATA_LOST", "text", ENTRY, LOST))
    assert start == Start(6, Past.OURS)
    assert not flow.losses.stopped
    assert flow.losses.counts == {"DATA_LOST": 1}


def test_what_a_target_lost_before_the_open_run_is_copied_again_from_there_and_not_from_the_start() -> None:
    flow = driver()
    entry = ENTRY.moved(n=9, source_offset=20, target_offset=40, run_source=18, run_target=38)
    runs = [Run(0, 0, 4), Run(6, 10, 3), Run(12, 20, 2)]
    flow.ledger.partition(("t", 0)).take_page(0, Page.of(0, 18, 0, runs, target=0))
    for target_end, start in ((39, 19), (21, 13), (15, 9), (11, 7), (2, 2), (0, EARLIEST)):
        outcome = Outcome("TARGET_TRUNCATED", "text", entry, {"target_end": target_end})
        assert flow.answers.answer(("t", 0), outcome) == Start(start, Past.OURS)


def test_a_stopped_partition_is_given_to_no_lane() -> None:
    flow = driver("on.data.loss = stop-partition\n")
    assert flow.answers.answer(("t", 0), Outcome("DATA_LOST", "text", ENTRY, LOST)) is None
    assert given_out(flow) == [1]


def test_a_halted_flow_gives_nothing_out() -> None:
    flow = driver("on.data.loss = stop-flow\n")
    flow.answers.answer(("t", 0), Outcome("DATA_LOST", "text", ENTRY, LOST))
    assert flow.losses.is_halted
    assert given_out(flow) == []


def test_an_outcome_is_logged_with_its_code_and_place_once(caplog: pytest.LogCaptureFixture) -> None:
    flow = driver()
    flow.answers.answer(("t", 1), Outcome("TARGET_TOPIC_LOST", "the target topic was made anew", ENTRY))
    flow.answers.answer(("t", 1), Outcome("DATA_LOST", "DATA_LOST: a->b t-1: gone", ENTRY, LOST))
    assert [record.getMessage() for record in caplog.records] == [
        "TARGET_TOPIC_LOST: a->b t-1: the target topic was made anew; went on at the start of the source log",
        "DATA_LOST: a->b t-1: gone; went on at 6",
    ]


def test_what_keeps_partitions_waiting_is_said_once_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    flow = driver()

    def tell(partition: int, text: str) -> None:
        flow.epochs.note_trouble(
            Trouble(topic="t", partition=partition, code="UNREACHABLE" if text else "", text=text, final=False)
        )

    for partition in (0, 1):
        tell(partition, "no connection")
    tell(0, "")
    assert [record.getMessage() for record in caplog.records] == ["a->b: waiting: no connection"]
    tell(1, "")
    assert caplog.records[-1].getMessage() == "a->b: over after 0.0 s: no connection"
    tell(1, "no connection")
    assert len(caplog.records) == 3


def test_a_second_writer_is_named_by_its_host(caplog: pytest.LogCaptureFixture) -> None:
    flow = driver()
    me, other = (Process(owner=name, host=f"host-{name}", pid=7) for name in ("me", "other"))
    flow.opening.lease_holder = LeaseHolder(flow.opening, me, lease_ms=lambda: 6000)
    lease = Lease(holder=other, term=1, state=LeaseState.HELD, since_ms=0, time_ms=0, lease_ms=6000)
    flow.ledger.leadership.take(lease, 0.0)
    flow.ledger.partition(("t", 0)).take_entry(ENTRY)
    flow.epochs.note_trouble(
        Trouble(topic="t", partition=0, code="SECOND_WRITER", text="SECOND_WRITER: x", final=False)
    )
    flow.answers.answer(("t", 1), Outcome("SECOND_WRITER", "another count", ENTRY))
    assert [record.getMessage() for record in caplog.records] == [
        "SECOND_WRITER: x; the last other leader of the flow was host host-other (pid 7); went on behind them",
        (
            "SECOND_WRITER: a->b t-1: another count; the last other leader of the flow was host host-other (pid 7); "
            f"went on at {ENTRY.source_offset}"
        ),
    ]
    assert flow.losses.counts == {"SECOND_WRITER": 2}


def test_a_flow_that_another_leads_gives_nothing_out() -> None:
    flow = driver()
    assert given_out(flow) == [0, 1]
    flow.opening.lease_holder = LeaseHolder(flow.opening, Process(owner="me", host="h", pid=1), lease_ms=lambda: 6000)
    assert given_out(flow) == []


def test_stored_positions_that_lag_are_said_once_and_once_when_they_are_up_to_date(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    flow = driver()

    def end_epoch(*unwritten: int) -> None:
        rows = [
            LedgerRow(
                flow="a->b",
                topic="t",
                partition=partition,
                lane=0,
                entry=ENTRY,
                records=0,
                bytes=0,
                active_ms=1,
                host="",
                state="copying",
                page=OpenPage(0).pack(),
                unwritten=number,
            )
            for partition, number in enumerate(unwritten)
        ]
        asyncio.run(flow.epochs.take_rows(rows))

    for unwritten in ((0, 0), (5, 7), (9, 7), (0, 0), (0, 0)):
        end_epoch(*unwritten)
    behind, over = caplog.messages
    assert "the stored positions of 2 partitions are 12 records behind" in behind
    assert "no data is at risk" in behind
    assert over.startswith("a->b: stored positions are up to date again after ")


def test_lanes_that_still_write_are_not_taken_for_another_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a killed driver do: whichever is read first, they have moved when the other is read."""
    flow = driver(partitions=0)
    written = iter(range(100, 1000, 10))

    async def read_positions(*_: Any, **__: Any) -> store.Positions:
        return store.Positions({("t", 0): next(written)}, RefusedRecords("o"))

    async def read_on(*_: Any, **__: Any) -> None:
        flow.ledger.partition(("t", 0)).take_entry(ENTRY.moved(source_offset=next(written)))

    async def claim(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(producer_id=1)

    async def nothing(*_: Any, **__: Any) -> None: ...

    monkeypatch.setattr(store, "read_positions", read_positions)
    monkeypatch.setattr(store, "claim_producer_id", claim)
    monkeypatch.setattr(store, "read_on", read_on)
    monkeypatch.setattr(flow.opening.rights, "write_down", nothing)
    monkeypatch.setattr(flow_module, "forgets_producers", nothing)
    monkeypatch.setattr(FlowTopics, "discover", nothing)
    asyncio.run(flow.prepare())
    assert flow.table.positions["t", 0] < flow.table.known["t", 0].source_offset
