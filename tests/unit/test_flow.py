"""A flow on the driver, without clusters: what its answers do to its partitions, and what it says."""

from __future__ import annotations

import asyncio
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.mirror import store
from heliograph.mirror.counts import Past, Start
from heliograph.mirror.flow import FlowDriver
from heliograph.mirror.formats import Trouble
from heliograph.mirror.outcomes import Outcome
from tests.unit.logs import ENTRY

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
    driver.entries = {("t", partition): ENTRY for partition in range(partitions)}
    return driver


def given_out(flow: FlowDriver) -> list[int]:
    return [assignment.partition for assignment in flow.assignments()]


def test_a_partition_that_goes_on_gets_a_new_start() -> None:
    flow = driver()
    starts: dict[tuple[str, int], Start] = {}
    flow._answer(("t", 0), Outcome("DATA_LOST", "text", ENTRY, LOST), starts)
    assert starts == {("t", 0): Start(6, Past.OURS)}
    assert not flow.stopped
    assert flow.outcomes == {"DATA_LOST": 1}


def test_a_stopped_partition_is_given_to_no_lane() -> None:
    flow = driver("on.data.loss = stop-partition\n")
    starts: dict[tuple[str, int], Start] = {}
    flow._answer(("t", 0), Outcome("DATA_LOST", "text", ENTRY, LOST), starts)
    assert not starts
    assert given_out(flow) == [1]


def test_a_halted_flow_gives_nothing_out() -> None:
    flow = driver("on.data.loss = stop-flow\n")
    flow._answer(("t", 0), Outcome("DATA_LOST", "text", ENTRY, LOST), {})
    assert flow.halted
    assert given_out(flow) == []


def test_an_outcome_is_logged_with_its_code_and_place_once(caplog: pytest.LogCaptureFixture) -> None:
    flow = driver()
    flow._answer(("t", 1), Outcome("TARGET_TOPIC_LOST", "the target topic was made anew", ENTRY), {})
    flow._answer(("t", 1), Outcome("DATA_LOST", "DATA_LOST: a->b t-1: gone", ENTRY, LOST), {})
    assert [record.getMessage() for record in caplog.records] == [
        "TARGET_TOPIC_LOST: a->b t-1: the target topic was made anew",
        "DATA_LOST: a->b t-1: gone",
    ]


def test_what_keeps_partitions_waiting_is_said_once_and_once_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")
    flow = driver()

    def tell(partition: int, text: str) -> None:
        flow.note_trouble(
            Trouble(topic="t", partition=partition, code="UNREACHABLE" if text else "", text=text, final=False)
        )

    for partition in (0, 1):
        tell(partition, "no connection")
    tell(0, "")
    assert [record.getMessage() for record in caplog.records] == ["a->b: waiting: no connection"]
    tell(1, "")
    assert caplog.records[-1].getMessage() == "a->b: over: no connection"
    tell(1, "no connection")
    assert len(caplog.records) == 3


def test_lanes_that_still_write_are_not_taken_for_another_tool(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a killed driver do: whichever is read first, they have moved when the other is read."""
    flow = driver(partitions=0)
    written = iter(range(100, 1000, 10))

    async def read_positions(*_: Any, **__: Any) -> store.Positions:
        return store.Positions({("t", 0): next(written)}, 0)

    async def read_ledger(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(
            claim=SimpleNamespace(producer_id=1),
            unreadable=0,
            entries={("t", 0): ENTRY.moved(source_offset=next(written))},
            partitions={("t", 0): SimpleNamespace(open_page=lambda: None)},
        )

    async def nothing(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(cluster_id="", topics={})

    monkeypatch.setattr(store, "read_positions", read_positions)
    monkeypatch.setattr(store, "claim_producer_id", read_ledger)
    monkeypatch.setattr(store, "ensure_topics", nothing)
    monkeypatch.setattr(flow._lacks, "write_down", nothing)
    monkeypatch.setattr(flow.source, "refresh", nothing)
    monkeypatch.setattr(flow.target, "refresh", nothing)
    for name in ("_refuse_beside_mm2", "look_at_rights", "discover"):
        monkeypatch.setattr(FlowDriver, name, nothing)
    monkeypatch.setattr(FlowDriver, "_lacks_ledger", lambda _: False)
    monkeypatch.setattr(FlowDriver, "_check_factors", lambda *_: None)
    monkeypatch.setattr(FlowDriver, "_wanted_topics", lambda *_: {})
    asyncio.run(flow.prepare())
    assert flow._positions["t", 0] < flow._known["t", 0].source_offset
