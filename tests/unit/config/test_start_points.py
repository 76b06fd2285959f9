"""Where partitions begin: the configuration's word, its offset in a log, and for whom it counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.cli import main
from heliograph.config import inspect_content, parse_settings
from heliograph.config.convert import convert
from heliograph.config.keys.values import BadValue
from heliograph.config.settings import Flow
from heliograph.config.start_points import BEGINNING, StartPoint, parse_point
from heliograph.errors import ConfigError
from heliograph.flow.start_positions import NONE, place_start
from heliograph.kafka.admin.topics import EARLIEST, LATEST
from heliograph.ledger.position_requests import asked_now, first_asked
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.ledger.records.selection_seen import SelectionSeen
from tests.unit.helpers.logs import ENTRY
from tests.unit.helpers.samples import BASE, patterns_of

NEW_YEAR_MS = 1_767_225_600_000


def flow(more: str = "") -> Flow:
    return parse_settings(BASE + more).flows[0]


# -- the configuration


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("earliest", BEGINNING),
        (" Latest ", StartPoint(LATEST)),
        ("2026-01-01", StartPoint(NEW_YEAR_MS)),
        ("2026-01-01T00:00:00Z", StartPoint(NEW_YEAR_MS)),
        ("2026-01-01T00:00:00.250", StartPoint(NEW_YEAR_MS + 250)),
        ("2026-01-01T02:00:00+02:00", StartPoint(NEW_YEAR_MS)),
        ("1:77, 0:120", StartPoint(offsets=((0, 120), (1, 77)))),
        ("3:0", StartPoint(offsets=((3, 0),))),
    ],
)
def test_a_start_position_is_an_end_a_time_or_offsets(text: str, point: StartPoint) -> None:
    assert parse_point(text) == point
    assert parse_point(str(point)) == point


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("first", "must be earliest, latest or a time"),
        ("120", "must be earliest, latest or a time"),
        ("20260101", "must be earliest, latest or a time"),
        ("2026-13-01", "must be earliest, latest or a time"),
        ("1969-12-31", "must not be before 1970"),
        ("0:1,0:2", "names a partition twice"),
        ("0:-1", "must be earliest, latest or a time"),
        ("", "must be earliest, latest or a time"),
    ],
)
def test_anything_else_is_none(text: str, fault: str) -> None:
    with pytest.raises(BadValue, match=fault):
        parse_point(text)


@pytest.mark.parametrize(
    ("more", "points"),
    [
        ("", ["earliest", "earliest"]),
        ("A.consumer.auto.offset.reset = latest\n", ["latest", "latest"]),
        ("A.consumer.auto.offset.reset = latest\nstart.position = earliest\n", ["earliest", "earliest"]),
        ("start.position = latest\nA->B.start.position = earliest\n", ["earliest", "earliest"]),
        ("start.position = latest\nA->B.start.position.1.topics = pay.*, x\nA->B.start.position.1.from = 0:5\n", None),
        ("start.position = latest\nstart.position.7.topics = pay.*\nstart.position.7.from = 0:5\n", None),
        (
            (
                "start.position.10.topics = pay.*\nstart.position.10.from = earliest\nstart.position = latest\n"
                "start.position.9.topics = payments\nstart.position.9.from = 0:5\n"
            ),
            None,
        ),
    ],
)
def test_rules_come_before_the_flows_own_start_by_number(more: str, points: list[str] | None) -> None:
    starts = flow(more).start_positions
    assert [str(starts.of(topic)) for topic in ("orders", "payments")] == (points or ["latest", "0:5"])


@pytest.mark.parametrize(
    ("more", "fault"),
    [
        ("A->B.start.position = soon\n", '"A->B.start.position" must be earliest'),
        ("start.position = 0:5\n", '"start.position" has offsets, which only make sense for single topics'),
        ("start.position.1.topics = x\n", '"start.position.1.topics" has no start.position.1.from beside it'),
        ("start.position.1.from = latest\n", '"start.position.1.from" has no start.position.1.topics beside it'),
        ("start.position.1.topics = (\nstart.position.1.from = latest\n", '"start.position.1.topics": '),
        ("start.position.1.topics = x\nstart.position.1.from = 5\n", '"start.position.1.from" must be'),
        ("start.position.one.from = latest\n", '"start.position.one.from" is not a known key'),
        ("start.position.1.form = latest\n", '"start.position.1.form" is not a known key'),
    ],
)
def test_a_faulty_start_position_is_named_with_its_line(more: str, fault: str) -> None:
    with pytest.raises(ConfigError) as caught:
        flow(more)
    assert fault in str(caught.value)
    assert "mm2.properties:" in str(caught.value)


def test_rules_stand_in_either_form_of_a_configuration_and_are_shown(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    text = BASE + "start.position.3.topics = pay.*\nA->B.start.position.3.from = 0:5\nstart.position = latest\n"
    resource = convert(inspect_content(text.encode(), "mm2.properties")).text
    assert parse_settings(text).flows == inspect_content(resource.encode(), "x.yaml").valid_settings().flows
    back = convert(inspect_content(resource.encode(), "x.yaml")).text
    assert "A->B.start.position.3.topics" in back.replace("\\", "")
    file = tmp_path / "mm2.properties"
    file.write_text(text)
    with pytest.raises(SystemExit) as left:
        main(["config", "show", str(file), "-o", "properties"])
    assert left.value.code == 0
    assert "A->B.start.position.3.from=0:5" in capsys.readouterr().out.replace("\\", "").replace(" ", "")


# -- its offset


@given(
    st.sampled_from([EARLIEST, LATEST, 1_000]),
    st.none() | st.integers(0, 60),
    st.integers(0, 20),
    st.integers(0, 20),
    st.integers(0, 20) | st.none(),
)
def test_a_partition_begins_within_its_log_wherever_it_is_told_to(
    moment: int, offset: int | None, log_start: int, length: int, at: int | None
) -> None:
    log_end = log_start + length
    at_time = NONE if at is None or at >= length else log_start + at
    point = StartPoint(moment) if offset is None else StartPoint(offsets=((3, offset),))
    found = place_start(point, 3, log_start=log_start, log_end=log_end, at_time=at_time)
    assert log_start <= found.offset <= log_end
    assert found.left_out == found.offset - log_start
    assert bool(found.note) == (found.asked != found.offset)
    if offset is not None:
        assert found.asked == offset
    elif moment == EARLIEST:
        assert found.offset == log_start
    elif moment == LATEST or at_time == NONE:
        assert found.offset == log_end
    else:
        assert found.offset == at_time


def test_a_partition_that_offsets_do_not_name_begins_at_its_first_record() -> None:
    point = StartPoint(offsets=((0, 9), (1, 2), (2, 7)))
    places = [place_start(point, index, log_start=5, log_end=8, at_time=NONE) for index in range(4)]
    assert [place.offset for place in places] == [8, 5, 7, 5]
    assert places[0].note == "9 is beyond the end of the log, 8: it begins there"
    assert places[1].note == "2 is before the start of the log, 5: it begins there"


# -- for whom it counts


def test_a_flow_that_has_copied_nothing_yet_is_asked_for_all_the_first_time() -> None:
    assert first_asked(flow(), None, is_new=True)(("orders", 3))
    assert not first_asked(flow(), None, is_new=False)(("orders", 3)), "a ledger of an older release"


def test_what_appears_among_what_was_asked_for_is_new() -> None:
    now = flow("start.position = latest\nA->B.topics = orders.*, payments\n")
    before = SelectionSeen(include=("orders.*",), exclude=patterns_of(now.topics).exclude)
    is_first = first_asked(now, before, is_new=False)
    assert [is_first((topic, 0)) for topic in ("orders", "orders2", "payments")] == [False, False, True]
    before = asked_now(now, before, {"orders": 2, "payments": 2}, begun={("orders", 0)}, is_first=is_first)
    assert before == SelectionSeen(
        include=("orders.*", "payments"), exclude=patterns_of(now.topics).exclude, waiting={"payments": 2}
    )
    is_first = first_asked(now, before, is_new=False)
    places = [("payments", 0), ("payments", 1), ("payments", 2), ("orders", 1)]
    assert [is_first(where) for where in places] == [True, True, False, False]
    grown = {"orders": 2, "payments": 5}
    later = asked_now(now, before, grown, begun={("payments", 0)}, is_first=is_first)
    assert later == before, "partitions that came since do not wait for their start"
    begun = {("payments", 0), ("payments", 1)}
    assert asked_now(now, before, grown, begun=begun, is_first=is_first).waiting == {}


def test_where_all_begins_at_its_first_record_nobody_is_written_down_as_waiting() -> None:
    now = flow()
    asked = asked_now(now, None, {"orders": 9}, begun=(), is_first=first_asked(now, None, is_new=True))
    assert asked == SelectionSeen(include=patterns_of(now.topics).include, exclude=patterns_of(now.topics).exclude)


@pytest.mark.parametrize(
    ("wish", "stored", "holds"),
    [
        *((50, 50, True), (50, None, True), (50, 97, True), (50, 101, False), (150, 150, True), (150, 151, False)),
        *((None, None, True), (None, 100, True), (None, 101, False)),
    ],
)
def test_a_wish_holds_until_another_tool_has_gone_past_it_and_past_our_copy(
    wish: int | None, stored: int | None, holds: bool
) -> None:
    asked = PositionRequest(topic="t", partition=0, time_ms=1, offset=wish)
    assert asked.holds(ENTRY.moved(source_offset=100), stored) is holds
