"""`heliograph topics`: how topics stand on both clusters, with the source alive and dead."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph import cli
from heliograph.cli.render import OutputFormat, render_rows
from heliograph.config import parse_settings
from heliograph.config.settings import Flow
from heliograph.kafka.admin.topic_configs import OF_TOPIC, ConfigEntry
from heliograph.kafka.batch import NewRecord
from heliograph.ledger.loss_outcomes import FLOW_STOPPED, PARTITION_STOPPED
from heliograph.ledger.model import PartitionName
from heliograph.ledger.records.contact import Contact
from heliograph.ledger.records.entry import Entry, EntryRecord, encode_entry, encode_entry_key
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.ledger.records.log_ends import LogEnd, LogEnds
from heliograph.ledger.records.loss import Loss
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.records.trouble import WHOLE_TOPIC, Trouble
from heliograph.views import topics as module
from heliograph.views.differences import ConfigDifference, compared, differences_of
from heliograph.views.topic_views import Reading, TopicSide, TopicState, TopicView, topic_views, why_not_mirrored
from heliograph.views.topics import TopicViews, read_topics
from tests.fake_cluster import DESCRIBE_CONFIGS
from tests.unit.flow.test_discovery import TopicsOnFakes, a_world
from tests.unit.helpers.logs import ENTRY, new_records

CONFIG = "clusters = a, b\na.bootstrap.servers = a:1\nb.bootstrap.servers = b:1\na->b.enabled = true\n"
LOSS = Loss(topic="t", partition=0, code="DATA_LOST", text="DATA_LOST: 7 records", mark="m", first_ms=1, last_ms=5)
WAITING = Trouble(topic="t", partition=1, code="UNREACHABLE", text="no connection", final=False)
RENAMED_BACK = (
    "a->b.topics = .*\nb->a.enabled = true\nb->a.topics = x\nb->a.topic.rename.1.pattern = (.+)\n"
    "b->a.topic.rename.1.replacement = eu-$1\n"
)
REFUSED = Trouble(topic="t", partition=WHOLE_TOPIC, code="NOT_AUTHORIZED", text="may not create", final=False)


def a_flow(more: str = "a->b.topics = t.*\n") -> Flow:
    return parse_settings(CONFIG + more).flows[0]


def reading(**fields: Any) -> Reading:
    """Topic t with two partitions that are copied."""
    entries = {("t", 0): ENTRY.moved(source_offset=90), ("t", 1): ENTRY.moved(source_offset=100)}
    return Reading(
        **{
            "source": TopicSide({"t": 2}, {("t", 0): 100, ("t", 1): 100}),
            "seen_s": None,
            "target": TopicSide({"a.t": 2}, {}),
            "before": entries,
            "entries": entries,
            "troubles": {},
            "losses": (),
            "is_led": True,
            "differing": {},
            **fields,
        }
    )


def only(found: Reading, flow: Flow | None = None) -> TopicView:
    [view] = topic_views(flow or a_flow(), found)
    return view


def test_a_topic_that_is_copied_shows_sums_of_its_partitions() -> None:
    row = only(reading()).row()
    assert (row["state"], row["position"], row["source end"], row["lag"]) == ("copying", 190, 200, 10)
    assert (row["source partitions"], row["target partitions"], row["target topic"]) == (2, 2, "a.t")
    assert (row["source seen"], row["last error"], row["configs that differ"]) == ("now", None, None)


@pytest.mark.parametrize(
    ("changes", "state", "parts"),
    [
        ({}, TopicState.COPYING, [TopicState.COPYING, TopicState.COPYING]),
        ({"troubles": {("t", 1): WAITING}}, TopicState.WAITING, [TopicState.COPYING, TopicState.WAITING]),
        ({"entries": {("t", 0): ENTRY}}, TopicState.WAITING, [TopicState.COPYING, TopicState.WAITING]),
        (
            {"losses": [replace(LOSS, answer=PARTITION_STOPPED)], "troubles": {("t", 1): WAITING}},
            TopicState.STOPPED,
            [TopicState.STOPPED, TopicState.WAITING],
        ),
        (
            {"losses": [replace(LOSS, topic="u", answer=FLOW_STOPPED)]},
            TopicState.STOPPED,
            [TopicState.STOPPED, TopicState.STOPPED],
        ),
        (
            {"losses": [replace(LOSS, answer=PARTITION_STOPPED, acknowledged_ms=7)]},
            TopicState.COPYING,
            [TopicState.COPYING, TopicState.COPYING],
        ),
        (
            {"losses": [replace(LOSS, answer="went on at 7")]},
            TopicState.COPYING,
            [TopicState.COPYING, TopicState.COPYING],
        ),
        (
            {"troubles": {("t", WHOLE_TOPIC): REFUSED}, "target": TopicSide({"a.t": 1}, {})},
            TopicState.REFUSED,
            [TopicState.COPYING, TopicState.REFUSED],
        ),
        ({"is_led": False}, TopicState.NOT_LED, [TopicState.NOT_LED, TopicState.NOT_LED]),
        ({"source": TopicSide({}, {})}, TopicState.DELETED, [TopicState.DELETED, TopicState.DELETED]),
        ({"source": TopicSide({"t": 1}, {})}, TopicState.COPYING, [TopicState.COPYING, TopicState.DELETED]),
    ],
)
def test_the_state_of_a_topic_is_that_of_its_worst_partition(
    changes: dict[str, Any], state: TopicState, parts: list[TopicState]
) -> None:
    view = only(reading(**changes))
    assert view.state is state
    assert [part.state for part in view.partitions] == parts


def test_partitions_that_share_one_of_the_target_are_not_refused_for_its_number() -> None:
    shared = ENTRY.moved(modulo=1)
    troubles = {("t", WHOLE_TOPIC): REFUSED}
    view = only(
        reading(entries={("t", 0): shared, ("t", 1): shared}, troubles=troubles, target=TopicSide({"a.t": 1}, {}))
    )
    assert [part.state for part in view.partitions] == [TopicState.COPYING, TopicState.COPYING]
    assert [row["target partition"] for row in view.partition_rows()] == [0, 0]


def test_a_paused_flow_copies_nothing_and_says_so() -> None:
    assert only(reading(), a_flow("a->b.topics = t.*\na->b.state = paused\n")).state is TopicState.PAUSED


def test_the_last_error_is_what_keeps_it_waiting_else_what_happened_last() -> None:
    older, newer = LOSS, replace(LOSS, partition=1, text="LOG_TRUNCATED: x", code="LOG_TRUNCATED", last_ms=9)
    both = (older, newer)
    assert only(reading(losses=both)).error == "LOG_TRUNCATED: x"
    assert [part.error for part in only(reading(losses=both)).partitions] == [older.text, newer.text]
    waiting = {("t", 1): WAITING, ("t", 0): replace(WAITING, partition=0)}
    assert only(reading(losses=both, troubles=waiting)).error == "no connection (and 1 more partitions)"
    refused = {**waiting, ("t", WHOLE_TOPIC): REFUSED}
    assert only(reading(losses=both, troubles=refused)).error == "may not create"


@pytest.mark.parametrize(
    ("before", "now", "rate"),
    [
        ({"n": 100, "time_ms": 1000}, {"n": 400, "time_ms": 2500}, 200.0),
        ({"n": 100, "time_ms": 1000}, {"n": 100, "time_ms": 1000}, 0.0),
        ({"n": 100, "time_ms": 1000}, {"n": 30, "time_ms": 2000, "count": ENTRY.count + 1}, 30.0),
    ],
)
def test_a_rate_is_told_by_two_looks(before: dict[str, int], now: dict[str, int], rate: float) -> None:
    looks = {"before": {("t", 0): ENTRY.moved(**before)}, "entries": {("t", 0): ENTRY.moved(**now)}}
    assert only(reading(**looks)).partitions[0].records_per_s == rate
    assert only(reading(**looks, is_led=False)).partitions[0].records_per_s is None
    assert only(reading(**looks)).row()["records/s"] == rate


def test_what_is_not_mirrored_is_told_with_the_reason_and_internal_topics_are_left_out() -> None:
    flow = a_flow("a->b.topics = t.*\na->b.topics.exclude = t-secret\n")
    counts = {"t": 2, "t-secret": 1, "b.t": 1, "other": 3, "__consumer_offsets": 50, "mm2-offset-syncs.b.internal": 1}
    views = topic_views(flow, reading(source=TopicSide(counts, {})))
    assert [(view.topic, view.row()["state"], view.target_topic) for view in views] == [
        ("t", "copying", "a.t"),
        ("b.t", 'not mirrored: it came from "b"', None),
        ("other", "not mirrored: not selected by topics", None),
        ("t-secret", "not mirrored: excluded by topics.exclude", None),
    ]


def test_a_topic_that_is_not_selected_any_more_keeps_its_copy() -> None:
    flow = a_flow("a->b.topics = u\n")
    view = only(reading(), flow)
    assert (view.state, view.target_topic, view.target_partitions) == (TopicState.NOT_MIRRORED, "a.t", 2)


def test_a_renamed_copy_that_comes_home_is_said_to_have_come_from_the_target() -> None:
    flow = a_flow(RENAMED_BACK + "a->b.topics.exclude = eu-.*\n")
    assert why_not_mirrored(flow, "eu-x") == 'it came from "b"'
    assert only(reading(source=TopicSide({"eu-x": 1}, {}), entries={}, before={}), flow).why == 'it came from "b"'


NAME_TAKEN = Trouble(topic="t2", partition=WHOLE_TOPIC, code="NAME_REFUSED", text="as t1 is", final=False)
ONE_NAME = "a->b.topic.rename.1.pattern = t.\na->b.topic.rename.1.replacement = one\n"


@pytest.mark.parametrize(
    ("entries", "troubles", "kept"),
    [
        ({}, {}, "t1"),
        ({("t2", 0): ENTRY}, {}, "t2"),
        ({("t1", 0): ENTRY}, {("t2", WHOLE_TOPIC): NAME_TAKEN}, "t1"),
        ({("t1", 0): ENTRY, ("t2", 0): ENTRY}, {("t1", WHOLE_TOPIC): replace(NAME_TAKEN, topic="t1")}, "t2"),
    ],
)
def test_of_two_topics_with_one_name_the_one_that_has_it_is_shown_with_the_copy(
    entries: dict[PartitionName, Entry], troubles: dict[PartitionName, Trouble], kept: str
) -> None:
    sides = {"source": TopicSide({"t1": 1, "t2": 1}, {}), "target": TopicSide({"one": 1}, {})}
    flow = a_flow(ONE_NAME)
    views = {view.topic: view for view in topic_views(flow, reading(**sides, entries=entries, troubles=troubles))}
    [other] = views.keys() - {kept}
    assert (views[kept].target_topic, views[kept].target_partitions) == ("one", 1)
    assert (views[other].target_topic, views[other].target_partitions) == (None, None)
    assert (views[other].state, [part.state for part in views[other].partitions]) == (
        TopicState.REFUSED,
        [TopicState.REFUSED],
    )
    assert views[other].error


def test_a_refusal_of_a_topic_that_is_not_selected_any_more_is_none() -> None:
    troubles = {("t2", WHOLE_TOPIC): NAME_TAKEN}
    view = only(reading(source=TopicSide({"t2": 1}, {}), entries={}, troubles=troubles), a_flow("a->b.topics = u\n"))
    assert view.state is TopicState.NOT_MIRRORED


def test_a_source_that_never_answered_has_no_age() -> None:
    assert only(reading(seen_s=inf)).row()["source seen"] == "never"


@given(st.sampled_from(["t", "t-secret", "b.t", "x", "a.t", "heartbeats", "b.heartbeats"]))
def test_every_topic_is_mirrored_or_not_for_a_reason(topic: str) -> None:
    flow = a_flow("a->b.topics = t.*\na->b.topics.exclude = t-secret\n")
    views = topic_views(flow, reading(source=TopicSide({topic: 1}, {}), entries={}, before={}))
    assert [view.state is TopicState.NOT_MIRRORED for view in views] == [not flow.mirrors(topic)]
    assert all(bool(view.why) is (view.state is TopicState.NOT_MIRRORED) for view in views)
    assert flow.mirrors(topic) or why_not_mirrored(flow, topic)


def test_the_worst_comes_first() -> None:
    counts = {"t1": 1, "t2": 1, "t3": 1, "x": 1}
    entries = {("t1", 0): ENTRY, ("t2", 0): ENTRY, ("t3", 0): ENTRY}
    trouble = {("t3", 0): replace(WAITING, topic="t3", partition=0)}
    views = topic_views(a_flow(), reading(source=TopicSide(counts, {}), entries=entries, troubles=trouble))
    assert [view.topic for view in views] == ["t3", "t1", "t2", "x"]


# -- settings --------------------------------------------------------------------------------

OWN, DEFAULT = ConfigEntry("1", OF_TOPIC), ConfigEntry("7")


@pytest.mark.parametrize(
    ("source", "target", "defaults", "expected"),
    [
        (OWN, OWN, "target", []),
        (OWN, OWN._replace(value="2"), "target", [("1", "2", "set")]),
        (OWN, DEFAULT, "target", [("1", "7", "set")]),
        (DEFAULT, DEFAULT._replace(value="8"), "target", []),
        (DEFAULT, OWN, "target", [("7", "1", "remove")]),
        (DEFAULT, OWN, "source", [("7", "1", "set")]),
        (DEFAULT, OWN._replace(value="7"), "source", []),
        (OWN._replace(is_sensitive=True), DEFAULT, "target", []),
        (OWN, DEFAULT._replace(is_read_only=True), "target", []),
        (OWN, None, "target", []),
    ],
)
def test_settings_that_would_be_changed(
    source: ConfigEntry, target: ConfigEntry | None, defaults: str, expected: list[tuple[str, str, str]]
) -> None:
    flow = a_flow(f"a->b.use.defaults.from = {defaults}\n")
    there = {} if target is None else {"retention.ms": target}
    found = differences_of(flow, "t", {"retention.ms": source, "min.insync.replicas": OWN}, there)
    assert [(item.source, item.target, item.action) for item in found] == expected
    assert all((item.topic, item.key) == ("t", "retention.ms") for item in found)


def test_settings_are_compared_of_topics_that_sync_looks_at() -> None:
    """Not of those that the target refuses as a whole, but for what was begun before."""
    names = {"t": "a.t", "t1": "a.t1", "t2": "a.t2", "t3": "a.t3"}
    troubles = {(topic, WHOLE_TOPIC): replace(REFUSED, topic=topic) for topic in ("t", "t1")}
    there = ("a.t", "a.t1", "a.t2")
    found = compared(names, there=there, entries={("t", 0): ENTRY}, troubles=troubles)
    assert found == {"t": "a.t", "t2": "a.t2"}


def test_differences_are_shown_with_the_topic_and_row_by_row() -> None:
    differing = (ConfigDifference("t", "retention.ms", "1", "7", "set"), ConfigDifference("t", "x", "2", "3", "remove"))
    view = only(reading(differing={"t": differing}))
    assert view.row()["configs that differ"] == "retention.ms, x"
    assert view.difference_rows()[1] == {
        "flow": "a->b",
        "topic": "t",
        "target topic": "a.t",
        "setting": "x",
        "source": "2",
        "target": "3",
        "action": "remove",
    }
    assert only(reading(differing={"t": ()})).row()["configs that differ"] == "none"


# -- read from clusters ------------------------------------------------------------------------


def lease(*, time_ms: int) -> tuple[bytes, bytes | None]:
    holder = Process(owner="me", host="h", pid=1)
    held = Lease(holder=holder, term=1, state=LeaseState.HELD, since_ms=1, time_ms=time_ms, lease_ms=6000)
    return held.encode("a-mm2")


def write(world: TopicsOnFakes, *records: tuple[bytes, bytes | None]) -> None:
    world.target.append("mm2-ledger.a.internal", 0, [NewRecord(0, key, value) for key, value in records])


def shown(work: Callable[[TopicsOnFakes], None] = lambda world: None, *, source_dies: bool = False) -> TopicViews:
    """What is read of two topics, the first of which has 10 records and 4 copies."""

    async def test() -> TopicViews:
        async with a_world() as world:
            world.source.append("t", 0, new_records(0, 10))
            async with world.leader() as flow:
                entry = flow.entries["t", 0].moved(n=4, source_offset=4, target_offset=4, time_ms=5_000)
            write(
                world,
                (encode_entry_key("a-mm2", "t", 0), encode_entry(entry)),
                Contact(time_ms=int(time.time() * 1000) - 90_000).encode("a-mm2"),
                LogEnds(topic="t", time_ms=1, ends=(LogEnd(12, 1), LogEnd(0, 0))).encode("a-mm2"),
            )
            work(world)
            settings = parse_settings(world.settings(""))
            if source_dies:
                await world.source.brokers[1].stop()
            return await read_topics(settings, settings.flows)

    return asyncio.run(test())


def row_of_t(found: TopicViews) -> Any:
    assert not found.problems
    [view] = [view for view in found.views if view.topic == "t"]
    return view.row()


def test_a_living_source_is_asked_for_its_partitions_ends_and_settings() -> None:
    def change(world: TopicsOnFakes) -> None:
        world.source.topics["t"].configs["retention.ms"] = "1000"
        world.source.grow("t", 3)
        world.source.create("elsewhere")

    found = shown(change)
    row = row_of_t(found)
    assert (row["source partitions"], row["target partitions"], row["source end"], row["lag"]) == (3, 2, 10, 6)
    assert (row["configs that differ"], row["source seen"]) == ("retention.ms", "now")
    assert row["state"] == "nobody leads the flow"
    assert [(view.topic, view.state) for view in found.views][1:] == [
        ("u", TopicState.NOT_LED),
        ("elsewhere", TopicState.NOT_MIRRORED),
    ]


def test_the_target_is_asked_for_the_partition_that_a_copy_stands_in() -> None:
    def share(world: TopicsOnFakes) -> None:
        world.target.append("a.t", 0, new_records(0, 7))
        entry = ENTRY.moved(modulo=1)
        write(world, (encode_entry_key("a-mm2", "t", 1), encode_entry(entry)))

    [view] = [view for view in shown(share).views if view.topic == "t"]
    assert [row["target end"] for row in view.partition_rows()] == [7, 7]


def test_a_dead_source_is_shown_as_it_was_last_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCE_PATIENCE_S", 2.0)
    row = row_of_t(shown(source_dies=True))
    assert (row["source partitions"], row["source end"], row["position"], row["lag"]) == (2, 12, 4, 8)
    assert row["configs that differ"] is None
    assert row["source seen"] in ("90 s ago", "91 s ago", "92 s ago", "93 s ago")


def test_a_dead_source_that_never_answered_was_never_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SOURCE_PATIENCE_S", 2.0)

    def forget(world: TopicsOnFakes) -> None:
        write(world, Contact(time_ms=0).encode("a-mm2"))

    assert row_of_t(shown(forget, source_dies=True))["source seen"] == "never"


def test_only_the_topic_that_has_a_name_is_compared_with_the_copy() -> None:
    async def test() -> TopicViews:
        async with a_world() as world:
            rule = "a->b.topic.rename.1.pattern = .*\na->b.topic.rename.1.replacement = one\n"
            async with world.leader(rule):
                pass
            world.source.topics["t"].configs["retention.ms"] = "1000"
            world.source.topics["u"].configs["retention.ms"] = "2000"
            settings = parse_settings(world.settings(rule))
            return await read_topics(settings, settings.flows)

    views = {view.topic: view for view in asyncio.run(test()).views}
    assert [(item.source, item.action) for item in views["t"].differing or ()] == [("1000", "set")]
    assert (views["u"].differing, views["u"].state) == (None, TopicState.REFUSED)


def test_what_is_written_between_two_looks_tells_the_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MIN_RATE_S", 0.0)
    monkeypatch.setattr(module, "FLUSHES", 0.0)

    def lead(world: TopicsOnFakes) -> None:
        write(world, lease(time_ms=int(time.time() * 1000)))
        seen = False

        async def move(call: Any) -> Any:
            """Between the looks, when settings are asked for."""
            nonlocal seen
            if not seen:
                seen = True
                partition = world.target.partition("mm2-ledger.a.internal", 0)
                words = [parse_ledger("a-mm2", record.key, record.value) for record in partition.records()]
                entry = [w for w in words if isinstance(w, EntryRecord) and (w.topic, w.partition) == ("t", 0)]
                moved = entry[-1].entry.moved(n=9, source_offset=9, time_ms=7_000)
                write(world, (encode_entry_key("a-mm2", "t", 0), encode_entry(moved)))
            return await call.proceed()

        world.source.control(DESCRIBE_CONFIGS, move)

    row = row_of_t(shown(lead))
    assert (row["records/s"], row["position"], row["lag"], row["state"]) == (2.5, 9, 1, "copying")


def test_a_flow_that_never_ran_shows_what_it_would_mirror() -> None:
    async def test() -> TopicViews:
        async with a_world() as world:
            settings = parse_settings(world.settings(""))
            return await read_topics(settings, settings.flows)

    found = asyncio.run(test())
    assert [(view.topic, view.state, view.target_partitions) for view in found.views] == [
        ("t", TopicState.NOT_LED, None),
        ("u", TopicState.NOT_LED, None),
    ]


def test_settings_that_are_not_shown_to_us_hide_nothing_else() -> None:
    def forbid(world: TopicsOnFakes) -> None:
        async def refuse(call: Any) -> Any:
            answer = await call.proceed()
            for result in answer.results:
                result.error_code, result.configs = 29, []
            return answer

        world.source.control(DESCRIBE_CONFIGS, refuse)

    found = shown(forbid)
    assert row_of_t(found)["configs that differ"] is None
    assert len(found.unread) == 1
    assert found.unread[0].startswith("a->b: settings of t, u are not shown to us: NOT_AUTHORIZED")


def test_a_target_that_does_not_answer_is_a_problem() -> None:
    async def test() -> TopicViews:
        async with a_world() as world:
            settings = parse_settings(world.settings(""))
            await world.target.brokers[1].stop()
            return await read_topics(settings, settings.flows)

    found = asyncio.run(test())
    assert not found.views
    assert "UNREACHABLE" in found.problems[0]


# -- forms -----------------------------------------------------------------------------------


def test_csv_has_the_fields_of_json_and_lists_as_json() -> None:
    rows = [view.row() for view in topic_views(a_flow(), reading())]
    [line] = csv.DictReader(io.StringIO(render_rows(rows, OutputFormat.CSV)))
    assert list(line) == list(rows[0])
    assert (line["lag"], line["last error"]) == ("10", "")
    text = render_rows([{"a": 'x,"y"', "b": [{"c": 1}]}], OutputFormat.CSV, conclusion="no")
    assert list(csv.reader(io.StringIO(text))) == [["a", "b"], ['x,"y"', json.dumps([{"c": 1}])]]
    assert render_rows([], OutputFormat.CSV) == ""


# -- the command -----------------------------------------------------------------------------


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A file of which the clusters are as `reading` says, one setting apart."""
    path = tmp_path / "mm2.properties"
    path.write_text(CONFIG + "a->b.topics = t.*\nsync.topic.configs.enabled = false\n")
    differing = {"t": (ConfigDifference("t", "retention.ms", "1", "7", "set"),)}

    async def read(_: object, flows: Sequence[Flow]) -> TopicViews:
        return TopicViews([view for flow in flows for view in topic_views(flow, reading(differing=differing))], [], [])

    monkeypatch.setattr(module, "read_topics", read)
    return path


def run(*arguments: str) -> int:
    try:
        return cli.main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def test_topics_are_a_table_that_concludes(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topics", str(config)) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split("  ")[0] == "FLOW"
    assert lines[1].startswith("a->b  t")
    assert lines[-1] == "1 topic: 1 copying"


def test_topics_by_partition_have_a_row_each(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topics", str(config), "--partitions", "-o", "json", "--flow", "a->b") == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["partition"], row["position"], row["lag"]) for row in rows] == [(0, 90, 10), (1, 100, 0)]


def test_a_diff_tells_what_would_be_changed_and_that_nothing_is_without_config_sync(
    config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run("topics", str(config), "--diff") == 0
    captured = capsys.readouterr()
    assert captured.out.splitlines()[1:] == [
        "a->b  t      a.t           retention.ms  1       7       set",
        "1 setting of 1 topic would be changed",
    ]
    assert captured.err == "a->b: sync.topic.configs.enabled is false: no topic config is changed\n"


def test_a_diff_without_the_source_fails(
    config: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def read(_: object, flows: Sequence[Flow]) -> TopicViews:
        return TopicViews(topic_views(flows[0], reading(seen_s=90.0)), [], [])

    monkeypatch.setattr(module, "read_topics", read)
    assert run("topics", str(config)) == 0
    assert "90 s ago" in capsys.readouterr().out
    assert run("topics", str(config), "--diff") == 1
    assert 'a->b: "a" does not answer: topic configs cannot be compared' in capsys.readouterr().err


def test_an_unknown_flow_is_a_bad_argument(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("topics", str(config), "--flow", "b->a") == 2
    assert "the flows are: a->b" in capsys.readouterr().err
