"""Positions that somebody lists, sets and resets, between two fake clusters."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest

from heliograph.cli import main
from heliograph.config.start_points import StartPoint
from heliograph.errors import ConfigError, LeaseLost
from heliograph.flow.opening import OpenedFlow
from heliograph.kafka.admin.topics import LATEST
from heliograph.ledger import store
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.lease import LeaseState
from heliograph.ledger.records.position_request import PositionRequest
from heliograph.recovery import positions
from heliograph.recovery.offsets_file import Given
from heliograph.recovery.positions import Origin, Planner, to_given, to_nothing, to_point
from tests.unit.helpers.logs import new_records
from tests.unit.helpers.placed import INTERNAL, LEDGER, PositionsOnFakes, a_world, counts, places

# -- positions that are set


def test_a_position_that_is_set_back_opens_a_new_count_there_and_translation_keeps_to_the_first_copies(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "heliograph")

    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            changed = await world.change(to_point("t", 0, 4))
            assert [change.row() for change in changed.changes] == [
                {
                    "flow": "a->b",
                    "topic": "t",
                    "partition": 0,
                    "position": 10,
                    "to": 4,
                    "copied again": 6,
                    "left out": 0,
                    "outcome": "written",
                }
            ]
            assert world.stored()["t", 0] == 4
            assert (await world.listed())["t", 0] == (4, Origin.SET)
            assert _translated(world, 7) == 7, "nothing has happened yet"
            async with world.leader() as flow:
                assert places(flow) == {("t", 0): 4, ("t", 1): 0, ("u", 0): 0}
                assert counts(flow) == {("t", 0): 1, ("t", 1): 0, ("u", 0): 0}
                assert [_translated(world, offset) for offset in (3, 7, 10)] == [3, 7, 10]
                assert not world.ledger().position_requests
                await world.copy(flow, "t", 0)
                assert [_translated(world, offset) for offset in (3, 4, 7, 10)] == [3, 10, 13, 16]
            assert (await world.listed())["t", 0] == (10, Origin.COPIED)

    asyncio.run(test())
    assert "a->b: t goes on where it was set: partition 0 at 4" in caplog.messages


def _translated(world: PositionsOnFakes, offset: int, topic: str = "t") -> int:
    found = world.ledger().translate((topic, 0), offset)
    assert found is not None
    return found.offset


def test_a_position_that_is_set_forward_leaves_records_out_and_groups_go_on_behind_them() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            world.source.append("t", 0, new_records(10, 10))
            changed = await world.change(to_point("t", None, 15))
            assert [(c.where[1], c.to, c.left_out, c.note) for c in changed.changes] == [
                (0, 15, 5, ""),
                (1, 4, 4, "15 is beyond the end of the log, 4: it begins there"),
            ]
            async with world.leader() as flow:
                assert places(flow) == {("t", 0): 15, ("t", 1): 4, ("u", 0): 0}
                await world.copy(flow, "t", 0)
                assert [_translated(world, offset) for offset in (9, 12, 16)] == [9, 10, 11]

    asyncio.run(test())


@pytest.mark.parametrize(
    ("point", "wanted"), [(StartPoint(), 0), (StartPoint(LATEST), 10), (StartPoint(1_003), 3), (StartPoint(9_999), 10)]
)
def test_a_position_is_set_to_an_end_or_a_time(point: StartPoint, wanted: int) -> None:
    async def test() -> None:
        async with a_world() as world:
            changed = await world.change(to_point("t", 0, point))
            assert [change.to for change in changed.changes] == [wanted]
            async with world.leader("start.position = latest\n") as flow:
                assert places(flow) == {("t", 0): wanted, ("t", 1): 4, ("u", 0): 3}

    asyncio.run(test())


def test_a_reset_partition_begins_as_in_a_new_flow_and_under_a_new_count(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "heliograph")

    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
                await world.copy(flow, "u", 0)
            changed = await world.change(to_nothing("t", None))
            assert [(change.where, change.to) for change in changed.changes] == [(("t", 0), None), (("t", 1), None)]
            assert world.stored() == {("u", 0): 3}
            assert (await world.listed())["t", 0] == (None, Origin.RESET)
            async with world.leader("start.position.1.topics = t\nstart.position.1.from = 0:2\n") as flow:
                assert places(flow) == {("t", 0): 2, ("t", 1): 0, ("u", 0): 3}
                assert counts(flow) == {("t", 0): 1, ("t", 1): 1, ("u", 0): 0}

    asyncio.run(test())
    assert "a->b: t was reset: 2 of its partitions begin as in a new flow" in caplog.messages


def test_a_file_sets_and_resets_with_the_meaning_of_connect() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
                await world.copy(flow, "u", 0)
            given = [Given("u", 0, None), Given("t", 0, 1), Given("t", 1, None)]
            changed = await world.change(to_given(given))
            assert [(change.where, change.to) for change in changed.changes] == [
                (("t", 0), 1),
                (("t", 1), None),
                (("u", 0), None),
            ]
            async with world.leader() as flow:
                assert places(flow) == {("t", 0): 1, ("t", 1): 0, ("u", 0): 0}

    asyncio.run(test())


def test_the_last_word_counts() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            await world.change(to_point("t", 0, 4))
            await world.change(to_point("t", 0, 6))
            assert (await world.listed())["t", 0] == (6, Origin.SET)
            async with world.leader() as flow:
                assert (places(flow)["t", 0], counts(flow)["t", 0]) == (6, 1)

    asyncio.run(test())


def test_a_tool_that_had_the_flow_since_is_not_undone() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            world.source.append("t", 0, new_records(10, 10))
            await world.change(to_point("t", 0, 4))
            world.target.append("a.t", 0, new_records(10, 4))
            world.store(14)
            assert (await world.listed())["t", 0] == (14, Origin.OTHERS)
            async with world.leader() as flow:
                assert places(flow)["t", 0] == 14
                assert not world.ledger().position_requests

    asyncio.run(test())


def test_a_position_set_for_a_topic_that_was_made_anew_makes_old_runs_void() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            world.target.create("a.t", 2)
            await world.change(to_point("t", 0, 4))
            async with world.leader() as flow:
                assert places(flow)["t", 0] == 4
                assert flow.losses.counts == {"TARGET_TOPIC_LOST": 1}, "of the other partition"
            assert _translated(world, 2) == 0

    asyncio.run(test())


def test_positions_of_mirrors_that_share_the_offset_topic_are_neither_listed_nor_reset() -> None:
    async def test() -> None:
        async with a_world() as world:
            only = "a->b.topics = t\n"
            async with world.leader(only) as flow:
                await world.copy(flow, "t", 0)
            world.store(2, "u")
            assert set(await world.listed(only)) == {("t", 0), ("t", 1)}
            await world.change(to_nothing(None, None), only)
            assert world.stored() == {("u", 0): 2}

    asyncio.run(test())


# -- who may


def test_a_plan_changes_nothing_and_says_who_leads() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            before = [world.target.partition(topic, 0).end for topic in INTERNAL]
            changed = await world.change(to_point("t", 0, 4), execute=False)
            assert [change.row()["outcome"] for change in changed.changes] == ["planned"]
            assert changed.leader == ""
            assert [world.target.partition(topic, 0).end for topic in INTERNAL] == before
            world.lease(LeaseState.HELD, time_ms=1 << 45)
            assert (await world.change(to_nothing(None, None), execute=False)).leader == "host h9 (pid 99)"

    asyncio.run(test())


def test_while_somebody_leads_nothing_is_changed_and_he_is_named() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            world.lease(LeaseState.HELD)

            async def renew() -> None:
                for time_ms in range(2, 100):
                    await asyncio.sleep(0.1)
                    world.lease(LeaseState.HELD, time_ms=time_ms)

            renewing = asyncio.ensure_future(renew())
            before = world.stored()
            with pytest.raises(LeaseLost, match=r"host h9 \(pid 99\) leads the flow"):
                await world.change(to_point("t", 0, 4))
            renewing.cancel()
            assert world.stored() == before
            assert not world.ledger().position_requests

    asyncio.run(test())


@pytest.mark.parametrize("state", [LeaseState.HELD, LeaseState.RELEASED], ids=["silent", "gave it back"])
def test_when_the_leader_is_gone_positions_are_changed_and_the_lease_is_given_back(state: LeaseState) -> None:
    async def test() -> None:
        async with a_world() as world:
            world.lease(state)
            await world.change(to_point("t", 0, 4))
            lease = world.ledger().leadership.lease
            assert lease is not None
            assert (lease.term, lease.state) == (10, LeaseState.RELEASED)
            assert lease.holder.owner != "other"

    asyncio.run(test())


def test_whoever_is_overtaken_while_writing_writes_no_wish(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test() -> None:
        async with a_world() as world:
            write = store.write_positions

            async def slowly(*given: Any) -> None:
                await write(*given)
                world.lease(LeaseState.BID, term=99)
                [driver] = drivers
                await store.read_on(driver.target, LEDGER, driver.ledger)

            drivers: list[OpenedFlow] = []
            make = OpenedFlow.__init__

            def remember(self: OpenedFlow, *given: Any, **named: Any) -> None:
                make(self, *given, **named)
                drivers.append(self)

            monkeypatch.setattr(OpenedFlow, "__init__", remember)
            monkeypatch.setattr(store, "write_positions", slowly)
            with pytest.raises(LeaseLost):
                await world.change(to_point("t", 0, 4))
            assert not world.ledger().position_requests

    asyncio.run(test())


@pytest.mark.parametrize(
    ("plan", "fault"),
    [
        (to_point("x", None, 1), 'the topic "x" is unknown, or not mirrored'),
        (to_point("a.t", None, 1), 'the topic "a.t" is unknown'),
        (to_point("t", 2, 1), "t has 2 partitions, no partition 2"),
        (to_given([Given("x", 0, 1)]), 'the topic "x" is unknown'),
        (to_nothing("x", None), 'the topic "x" is unknown'),
    ],
)
def test_what_the_source_does_not_have_is_refused(plan: Planner, fault: str) -> None:
    async def test() -> None:
        async with a_world() as world:
            with pytest.raises(ConfigError, match=fault) as caught:
                await world.change(plan)
            assert "mirrored are t, u" in str(caught.value)
            assert not world.ledger().position_requests

    asyncio.run(test())


# -- the command line


def run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> tuple[int, str, str]:
    try:
        code = main(arguments)
    except SystemExit as left:
        code = int(left.code or 0)
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_commands_list_plan_write_and_list_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            file = tmp_path / "mm2.properties"
            file.write_text(world.text())

            async def command(*arguments: str) -> tuple[int, str, str]:
                words = ["positions", arguments[0], str(file), *arguments[1:]]
                return await asyncio.to_thread(run, words, capsys)

            code, out, _ = await command("list")
            assert code == 0
            head = " ".join(out.splitlines()[0].split())
            assert head == "FLOW TOPIC PARTITION POSITION BY SOURCE START SOURCE END TO COPY"
            assert out.splitlines()[1].split() == ["a->b", "t", "0", "10", "copied", "0", "10", "0"]
            assert out.splitlines()[-1] == "3 positions, 7 records to copy"
            code, out, _ = await command("list", "--topic", "t", "-o", "csv")
            assert out == (
                "flow,topic,partition,position,by,source start,source end,to copy\n"
                "a->b,t,0,10,copied,0,10,0\na->b,t,1,0,copied,0,4,4\n"
            )
            body = json.loads((await command("list", "--flow", "a->b", "-o", "connect"))[1])
            where = {"cluster": "a", "partition": 0, "topic": "t"}
            assert body == {"offsets": [{"partition": where, "offset": {"offset": 9}}]}
            setting = ("set", "--flow", "a->b", "--topic", "t", "--partition", "0", "--to", "3")
            code, out, _ = await command(*setting)
            assert (code, out.splitlines()[-1]) == (0, "1 position; nothing was written")
            code, out, _ = await command(*setting, "--execute")
            assert (code, out.splitlines()[-1]) == (0, "1 position written; they take effect at the next start")
            assert (await world.listed())["t", 0] == (3, Origin.SET)
            given = tmp_path / "offsets.json"
            given.write_text(json.dumps({"offsets": [{"partition": where, "offset": {"offset": 0}}]}))
            code, out, _ = await command("set", "--flow", "a->b", "--from-file", str(given), "--execute", "-o", "json")
            assert (code, [row["to"] for row in json.loads(out)]) == (0, [1])
            code, out, _ = await command("reset", "--flow", "a->b", "--execute")
            assert (code, out.splitlines()[-1]) == (0, "3 positions written; they take effect at the next start")
            given.write_text(json.dumps({"offsets": [{"partition": where, "offset": {"offset": -1}}]}))
            code, _, error = await command("set", "--flow", "a->b", "--from-file", str(given), "--execute")
            assert (code, "cannot be negative" in error) == (1, True)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["set", "--flow", "a->b", "--topic", "t"], "give either --to"),
        (["set", "--flow", "a->b", "--to", "5"], "name the topic"),
        (["set", "--flow", "a->b", "--topic", "t", "--to", "-5"], "must be earliest"),
        (["set", "--flow", "a->b", "--topic", "t", "--to", "0:5"], "--partition"),
        (["set", "--flow", "a->b", "--topic", "t", "--to", "soon"], "must be earliest"),
        (["set", "--flow", "a->b", "--topic", "t", "--to", "5", "--partition", "-1"], "--partition"),
        (["set", "--flow", "b->a", "--topic", "t", "--to", "5"], "there is no flow"),
        (["set", "--topic", "t", "--to", "5"], "--flow"),
        (["reset", "--flow", "a->b", "--partition", "1"], "name the topic"),
        (["reset"], "--flow"),
    ],
)
def test_bad_arguments_are_named(
    arguments: list[str], fault: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "mm2.properties"
    file.write_text("clusters = a, b\na->b.enabled = true\na.bootstrap.servers = x:1\nb.bootstrap.servers = y:1\n")
    code, _, error = run(["positions", arguments[0], str(file), *arguments[1:]], capsys)
    assert code == 2
    assert fault in " ".join(error.replace("│", " ").split())


def test_a_source_that_is_gone_leaves_its_columns_empty(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await world.copy(flow, "t", 0)
            text = world.text()
            for broker in world.source.brokers.values():
                await broker.stop()
            file = tmp_path / "mm2.properties"
            file.write_text(text)
            code, out, error = await asyncio.to_thread(run, ["positions", "list", str(file), "-o", "json"], capsys)
            rows = json.loads(out)
            assert code == 0
            assert [(row["position"], row["source end"], row["to copy"]) for row in rows] == [
                (10, None, None),
                (0, None, None),
                (0, None, None),
            ]
            assert '"a" does not tell its topics' in error

    asyncio.run(test())


def test_entries_and_wishes_of_the_ledger_and_stored_positions_give_one_position() -> None:
    entry = Entry(
        source_topic_id="0" * 32, target_topic_id="0" * 32, count=0, n=0, source_offset=10, target_offset=0,
        our_end=0, run_source=0, run_target=0,
    )  # fmt: skip
    wish = PositionRequest(topic="t", partition=0, time_ms=1, offset=4)
    assert positions.position_of(None, None, None) == (None, Origin.NONE)
    assert positions.position_of(None, 7, None) == (7, Origin.OTHERS)
    assert positions.position_of(entry, 7, None) == (10, Origin.COPIED)
    assert positions.position_of(entry, 12, None) == (12, Origin.OTHERS)
    assert positions.position_of(entry, 4, wish) == (4, Origin.SET)
    assert positions.position_of(entry, 12, wish) == (12, Origin.OTHERS)
