"""A ledger, or a target, that lost its newest records: no record is lost or repeated without a word."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from heliograph.flow import takeover
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.batch import NewRecord
from heliograph.lane import settler
from tests.fake_cluster import FETCH
from tests.unit.helpers.lanes import HEAVY, recent, run
from tests.unit.helpers.logs import new_records, row_of
from tests.unit.helpers.placed import LEDGER, OFFSETS, PositionsOnFakes, a_world, counts, places
from tests.unit.lane.test_used_up_ids import copy_until, has_given_back

pytestmark = pytest.mark.usefixtures("own_worker")

WHERE = ("t", 0)


@pytest.fixture(autouse=True)
def no_wait(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    monkeypatch.setattr(settler, "LATE_S", 0.05)
    with caplog.at_level(logging.INFO, "heliograph"):
        yield


async def copy_to(world: PositionsOnFakes, flow: FlowDriver, end: int) -> None:
    """An epoch of one lane that copies until the target's partition 0 of "t" ends there."""
    await copy_until(world, flow, lambda: world.target.partition("a.t", 0).end >= end)


def add(world: PositionsOnFakes, start: int, count: int) -> None:
    """Each record is a batch of its own."""
    for number in range(start, start + count):
        world.source.append("t", 0, recent(number, size=HEAVY))


def copied(world: PositionsOnFakes) -> list[int]:
    return [int((record.value or b"-1").split()[0]) for record in world.target.partition("a.t", 0).records()]


def ends(world: PositionsOnFakes) -> tuple[int, int]:
    return world.target.partition(LEDGER, 0).end, world.target.partition(OFFSETS, 0).end


def lose(world: PositionsOnFakes, *, ledger: int, offsets: int) -> None:
    world.target.partition(LEDGER, 0).truncate(ledger)
    world.target.partition(OFFSETS, 0).truncate(offsets)


async def lost_ledger(world: PositionsOnFakes) -> None:
    """The ledger's entry is at 10, the stored position at 15, and the target has 20."""
    async with world.leader() as flow:
        await copy_to(world, flow, 10)
        at_ten = ends(world)
        add(world, 10, 5)
        await copy_to(world, flow, 15)
        at_fifteen = ends(world)
        add(world, 15, 5)
        await copy_to(world, flow, 20)
    lose(world, ledger=at_ten[0], offsets=at_fifteen[1])


# -- the ledger ------------------------------------------------------------------------------


def test_what_our_own_count_wrote_beyond_a_ledger_that_lost_its_tail_is_not_copied_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test() -> None:
        async with a_world() as world:
            await lost_ledger(world)
            add(world, 20, 2)
            async with world.leader() as flow:
                assert (places(flow)[WHERE], counts(flow)[WHERE]) == (10, 0)
                await copy_to(world, flow, 22)
                assert (places(flow)[WHERE], counts(flow)[WHERE]) == (22, 0)
                assert not flow.losses.counts
            assert copied(world) == list(range(22))

    run(test())
    assert "another tool" not in caplog.text
    assert "a->b t-0: the ledger lost its newest records" in caplog.text


def test_a_ledger_and_a_target_that_both_lost_their_tails_lose_no_record() -> None:
    """The stored position is ahead of what the target has, and nobody else wrote there."""

    async def test(left: int) -> None:
        async with a_world() as world:
            await lost_ledger(world)
            partition = world.target.partition("a.t", 0)
            partition.truncate(left)
            partition.forget()
            async with world.leader() as flow:
                await copy_to(world, flow, 20)
            assert copied(world) == list(range(20))

    for left in (10, 12):
        run(test(left))


@pytest.mark.parametrize("written", [10, 13])
def test_a_tool_that_had_the_flow_is_told_by_its_records_behind_ours(
    written: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Ours reach beyond the entry by what a crash kept from being written down; the other began at the position."""

    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await copy_to(world, flow, 10)
                at_ten = ends(world)
                add(world, 10, 8)
                if written > 10:
                    await copy_to(world, flow, 18)
            lose(world, ledger=at_ten[0], offsets=at_ten[1])
            world.target.partition("a.t", 0).truncate(written)
            world.target.append("a.t", 0, new_records(10, 8))
            world.store(18)
            async with world.leader() as flow:
                assert (places(flow)[WHERE], counts(flow)[WHERE]) == (18, 1)
                add(world, 18, 1)
                await copy_to(world, flow, written + 9)
            assert copied(world)[-9:] == list(range(10, 19))

    run(test())
    assert (
        "a->b t-0: another tool mirrored this partition: its position is 18, the ledger's 10; resuming at its position"
        in caplog.messages
    )


def test_records_of_strangers_behind_ours_are_no_tool_that_had_the_flow() -> None:
    async def test() -> None:
        async with a_world() as world:
            await lost_ledger(world)
            world.target.append("a.t", 0, new_records(900, 2))
            add(world, 20, 1)
            async with world.leader() as flow:
                assert (places(flow)[WHERE], counts(flow)[WHERE]) == (10, 0)
                await copy_to(world, flow, 23)
            assert [number for number in copied(world) if number < 900] == list(range(21))

    run(test())


def test_a_target_that_another_tool_filled_for_long_is_not_read_to_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(takeover, "MOST_STRANGE_BYTES", 5_000)
    monkeypatch.setattr(takeover, "READ_BYTES", 1_000)

    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await copy_to(world, flow, 10)
            for _ in range(100):
                world.target.append("a.t", 0, [NewRecord(0, b"", bytes(1_000))])
            world.store(110)
            world.target.calls.clear()
            async with world.leader() as flow:
                assert places(flow)[WHERE] == 110
            assert sum(call.api_key == FETCH for call in world.target.calls) < 30

    run(test())


def test_a_target_that_may_not_be_read_goes_by_the_stored_position() -> None:
    async def test() -> None:
        async with a_world() as world:
            await lost_ledger(world)
            world.target.refuse(FETCH, "a.t", 0, 29, times=1000)
            async with world.leader() as flow:
                assert (places(flow)[WHERE], counts(flow)[WHERE]) == (15, 1)

    run(test())


def test_a_target_that_does_not_answer_leaves_the_partition_for_the_next_look() -> None:
    async def test() -> None:
        async with a_world() as world:
            await lost_ledger(world)
            world.target.refuse(FETCH, "a.t", 0, 35)
            async with world.leader() as flow:
                assert WHERE not in places(flow)
                assert not flow.topics.is_complete
                await flow.topics.discover()
                assert (places(flow)[WHERE], counts(flow)[WHERE]) == (10, 0)

    run(test())


# -- counts that were used before ------------------------------------------------------------


async def begin_count(flow: FlowDriver) -> None:
    """The driver opens the partition's next count where its copy stands."""
    row = row_of(entry=flow.entries[WHERE], state="released", error_code="POSITION_UNPROVEN", details={"records": 0})
    await flow.epochs.take_rows([row])
    flow.losses.counts.clear()


@pytest.mark.parametrize("lost", ["ledger", "ledger and positions"])
@pytest.mark.parametrize("later", [1, 3])
def test_behind_a_later_count_whose_opening_the_ledger_lost_the_next_one_is_opened_and_repeats_are_counted(
    lost: str, later: int
) -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                await copy_to(world, flow, 10)
                at_ten = ends(world)
                for _ in range(later):
                    await begin_count(flow)
                add(world, 10, 5)
                await copy_to(world, flow, 15)
                assert counts(flow)[WHERE] == later
            lose(world, ledger=at_ten[0], offsets=at_ten[1] if "positions" in lost else ends(world)[1])
            async with world.leader() as flow:
                assert counts(flow)[WHERE] == 0
                await copy_until(world, flow, lambda: has_given_back(world))
                assert counts(flow)[WHERE] == later + 1, "the number that was found is not used again"
                [loss] = [loss for loss in world.ledger().losses.values() if loss.code == "SECOND_WRITER"]
                assert loss.records == 5
                add(world, 15, 1)
                await copy_to(world, flow, 21)
            assert copied(world) == [*range(15), *range(10, 16)]

    run(test())


@pytest.mark.parametrize("is_stored", [True, False])
def test_a_first_count_whose_opening_the_ledger_lost_is_not_opened_again_and_repeats_are_counted(
    is_stored: bool,
) -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                claimed = world.target.partition(LEDGER, 0).headers()[0].next_offset
                await copy_to(world, flow, 10)
            lose(world, ledger=claimed, offsets=ends(world)[1] if is_stored else 0)
            add(world, 10, 1)
            async with world.leader() as flow:
                assert counts(flow)[WHERE] == 1
                [loss] = [loss for loss in world.ledger().losses.values() if (loss.topic, loss.partition) == WHERE]
                assert (loss.code, loss.records) == ("POSITION_UNPROVEN", 10)
                await copy_until(world, flow, lambda: copied(world)[-1] == 10)
            assert copied(world) == ([*range(11)] if is_stored else [*range(10), *range(11)])

    run(test())


def test_what_others_wrote_before_a_first_count_is_nothing_to_tell() -> None:
    async def test() -> None:
        async with a_world() as world:
            world.target.append("a.t", 0, new_records(900, 2))
            async with world.leader() as flow:
                assert counts(flow)[WHERE] == 0
                assert not world.ledger().losses

    run(test())
