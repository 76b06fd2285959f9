"""What groups commit on the source stands in the ledger soon, whatever the intervals of the file are."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.config import parse_settings
from heliograph.control import checkpoints
from heliograph.control.checkpoints import READ_S, READ_SHARE, GroupCheckpoints, is_news
from heliograph.control.flow_loops import loops_beside
from heliograph.control.offset_syncs import OffsetSyncSync
from heliograph.kafka.types import TopicPartition
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.records.group_pass import PassKind
from heliograph.ledger.records.seen_group import DELETED, GroupCommit, SeenGroup
from heliograph.processor_time import Cost, stretched_s
from tests.fake_cluster import LIST_GROUPS, OFFSET_FETCH, PRODUCE, FakeGroup
from tests.unit.helpers.flows import FlowOnFakes, flow_between

HOURS = "\n".join(
    f"{name}.interval.seconds = 36000"
    for name in ("refresh.topics", "refresh.groups", "emit.checkpoints", "sync.group.offsets")
)
BASE = "clusters = a, b\na.bootstrap.servers = x:1\nb.bootstrap.servers = y:1\na->b.enabled = true\n"


def group(offset: int, **more: Any) -> FakeGroup:
    return FakeGroup(commits={("t", 0): (offset, "m", -1)}, **more)


def offsets(ledger: Ledger) -> dict[str, int]:
    return {name: seen.commits[TopicPartition("t", 0)].offset for name, seen in ledger.groups.items() if seen.commits}


@asynccontextmanager
async def prepared(more: str = "") -> AsyncIterator[FlowOnFakes]:
    async with flow_between({"t": 1}, more=more) as world:
        await world.flow.opening.open()
        await world.flow.prepare()
        await follow(world)
        yield world


async def follow(world: FlowOnFakes) -> Ledger:
    """What the target has, as the driver follows it."""
    await store.read_on(world.flow.target, world.flow.ledger_topic, world.flow.ledger)
    return world.flow.ledger


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


# -- defaults


def test_where_the_file_is_silent_groups_and_topics_are_looked_for_within_seconds() -> None:
    [flow] = parse_settings(BASE).flows
    assert flow.refresh_topics_interval_s == 10
    assert flow.checkpoints is not None
    assert flow.checkpoints.refresh_groups_interval_s == 5
    assert flow.checkpoints.interval_s == 5
    assert flow.checkpoints.sync_group_offsets_interval_s == 5
    assert flow.heartbeats is not None
    assert flow.heartbeats.interval_s == 1


# -- pace


@pytest.mark.parametrize(("cost_s", "pause_s"), [(0.0, 1.0), (0.03, 1.0), (0.06, 2.0), (0.27, 9.0), (3.0, 100.0)])
def test_reading_commits_takes_at_most_its_share_of_a_core(cost_s: float, pause_s: float) -> None:
    assert stretched_s(READ_S, cost_s=cost_s, share=READ_SHARE) == pytest.approx(pause_s)


def test_a_cost_is_what_was_spent_also_when_the_job_failed() -> None:
    times = iter([1.0, 1.25, 3.0, 3.5])
    cost = Cost(lambda: next(times))
    with cost.measure():
        pass
    assert cost.last_s == 0.25
    with pytest.raises(ValueError, match="x"), cost.measure():
        raise ValueError("x")
    assert cost.last_s == 0.5


def test_an_expensive_pass_stretches_the_next_and_the_ledger_tells_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "TOLD_S", 0.0)

    async def test() -> None:
        async with prepared(HOURS) as world:
            carrier = GroupCheckpoints(world.flow, OffsetSyncSync(world.flow))
            assert carrier.read_interval_s() == READ_S
            carrier._read_cost.last_s = 0.6
            assert carrier.read_interval_s() == pytest.approx(20.0)
            world.source.groups["g"] = group(3)
            await carrier.read()
            told = (await follow(world)).passes[PassKind.COMMITS]
            assert (told.every_ms, told.groups) == (20_000, 1)
            assert carrier.read_interval_s() == READ_S

    run(test())


@pytest.mark.parametrize(
    ("more", "is_read"),
    [
        ("", True),
        ("a->b.checkpoints.state = paused", True),
        ("a->b.checkpoints.state = stopped", False),
        ("a->b.emit.checkpoints.enabled = false", False),
    ],
)
def test_commits_are_read_as_long_as_groups_are_to_be_carried_over(more: str, is_read: bool) -> None:
    async def test() -> None:
        async with flow_between(more=more) as world:
            assert (GroupCheckpoints(world.flow, OffsetSyncSync(world.flow)).read_interval_s() is not None) is is_read

    run(test())


# -- content


async def until(is_so: Callable[[Ledger], bool], world: FlowOnFakes, timeout_s: float) -> float:
    began = time.monotonic()
    while not is_so(await follow(world)):
        assert time.monotonic() - began < timeout_s
        await asyncio.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.parametrize("groups", [1, 100])
def test_a_new_group_and_a_new_commit_stand_in_the_ledger_within_two_seconds(groups: int) -> None:
    """With intervals of ten hours: checkpoints and syncs obey them, knowing the groups does not depend on them."""

    async def test() -> None:
        async with prepared(HOURS) as world:
            tasks = [asyncio.ensure_future(loop) for loop in loops_beside(world.flow)]
            await until(lambda ledger: PassKind.COMMITS in ledger.passes, world, 5)
            for offset in (3, 5):
                wanted = {f"g{number}": offset for number in range(groups)}
                world.source.groups |= {name: group(offset) for name in wanted}
                await until(lambda ledger, wanted=wanted: offsets(ledger) == wanted, world, 2)  # type: ignore[misc]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    run(test())


def test_many_groups_are_one_request_and_only_what_changed_is_written() -> None:
    async def test() -> None:
        async with prepared(HOURS) as world:
            carrier = GroupCheckpoints(world.flow, OffsetSyncSync(world.flow))
            world.source.groups |= {f"g{number}": group(1) for number in range(300)}
            await carrier.read()
            await follow(world)
            calls = [call.api_key for call in world.source.calls]
            assert (calls.count(OFFSET_FETCH), calls.count(LIST_GROUPS)) == (1, 1)
            end = world.flow.ledger.end
            world.source.groups["g7"] = group(2)
            await carrier.read()
            assert (await follow(world)).end == end + 1
            assert world.flow.ledger.groups["g7"].commits[TopicPartition("t", 0)] == GroupCommit(2, "m")
            produced = world.calls(PRODUCE)
            await carrier.read()
            assert world.calls(PRODUCE) == produced, "nothing changed"

    run(test())


def test_only_groups_that_are_selected_are_read() -> None:
    async def test() -> None:
        async with prepared(f"{HOURS}\na->b.groups = app.*") as world:
            carrier = GroupCheckpoints(world.flow, OffsetSyncSync(world.flow))
            world.source.groups |= {"app-1": group(4), "other": group(5)}
            await carrier.read()
            assert offsets(await follow(world)) == {"app-1": 4}

    run(test())


def test_without_refresh_the_groups_that_were_there_first_are_read() -> None:
    async def test() -> None:
        async with prepared(f"{HOURS}\nrefresh.groups.enabled = false") as world:
            carrier = GroupCheckpoints(world.flow, OffsetSyncSync(world.flow))
            world.source.groups["old"] = group(4)
            await carrier.read()
            world.source.groups |= {"new": group(5), "old": group(6)}
            await carrier.read()
            assert offsets(await follow(world)) == {"old": 6}

    run(test())


def test_members_that_were_described_stay_known_and_the_state_is_the_listed_one() -> None:
    async def test() -> None:
        async with prepared(HOURS) as world:
            carrier = GroupCheckpoints(world.flow, OffsetSyncSync(world.flow))
            world.source.groups["g"] = group(4, members=2)
            await carrier.refresh_groups()
            await carrier.read()
            seen = (await follow(world)).groups["g"]
            assert (seen.state, len(seen.members)) == ("Stable", 2)
            world.source.groups["g"] = group(4)
            await carrier.read()
            assert (await follow(world)).groups["g"].state == "Empty"

    run(test())


def test_a_group_deleted_since_it_was_looked_at_stays_deleted() -> None:
    found = SeenGroup(group="g", state="Empty", kind="", time_ms=5)
    assert not is_news(found, SeenGroup(group="g", state=DELETED, kind="", time_ms=6))
    assert is_news(found, SeenGroup(group="g", state=DELETED, kind="", time_ms=4))
    assert is_news(found, None)
    assert not is_news(found, SeenGroup(group="g", state="Empty", kind="", time_ms=1))
