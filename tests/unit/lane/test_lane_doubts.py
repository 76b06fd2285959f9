"""Whatever goes wrong on the target, nothing is lost and nothing comes twice."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.lane import settler
from heliograph.lane.settling_room import SETTLING_PARTITIONS
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import FETCH, LIST_OFFSETS, METADATA, PRODUCE, Call, Cut, FakeCluster
from tests.unit.helpers.lanes import HEAVY, PRODUCER_ID, LaneOnFakes, is_data, numbers, recent, run

pytestmark = pytest.mark.usefixtures("own_worker")


def old(number: int) -> list[NewRecord]:
    """A record so old that the target soon forgets its producer."""
    return [record._replace(timestamp=1_000) for record in recent(number, size=HEAVY)]


# -- doubt: settled from the target's log, nothing lost, nothing twice -----------------------


@pytest.mark.parametrize("code", [7, 19, 45, 47, 59])
def test_a_batch_refused_in_the_middle_of_the_pipeline(code: int) -> None:
    sent, answers = 0, []

    async def refuse_third(call: Call) -> Any:
        nonlocal sent
        if is_data(call):
            sent += 1
            if sent == 3:
                call.cluster.refuse(PRODUCE, "a.t", 0, code)
            await asyncio.sleep(0.005)
        response = await call.proceed()
        if is_data(call):
            answers.append(response.responses[0].partition_responses[0].error_code)
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, refuse_third)
            for number in range(20):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane() as lane:
                await lane.until_copied(20)
            assert answers[:4] == [0, 0, code, 45], "what followed in the pipeline was refused too"
            assert world.copied() == numbers(20)
            assert lane.rows[0].records == 20
            assert lane.rows[0].entry.n == 20

    run(test())


def test_a_target_that_forgets_its_producer_gets_a_new_count() -> None:
    """Brokers before 2.5 refuse every sequence but 0 then."""

    async def forget(call: Call) -> Any:
        if is_data(call) and len(world.copied()) >= 2:
            call.cluster.refuse(PRODUCE, "a.t", 0, 59)
        return await call.proceed()

    async def test(world: LaneOnFakes) -> None:
        async with world:
            world.target.control(PRODUCE, forget)
            world.source.append("t", 0, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(2)
                world.source.append("t", 0, recent(2, 2))
                await lane.until_trouble()
            [row] = lane.rows
            assert (row.state, row.error_code, row.details["records"]) == ("released", "POSITION_UNPROVEN", 0)
            assert "accepts only sequence 0" in row.error_text
            assert world.copied() == numbers(2)

    world = LaneOnFakes()
    run(test(world))


@pytest.mark.parametrize("after", [True, False], ids=["after the append", "before the append"])
@pytest.mark.parametrize("which", [1, 4])
def test_a_lost_answer(after: bool, which: int) -> None:
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if is_data(call):
            sent += 1
            await asyncio.sleep(0.002)
            if sent == which:
                if after:
                    await call.proceed()
                raise Cut
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, cut)
            for number in range(10):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane() as lane:
                await lane.until_copied(10)
            assert world.copied() == numbers(10)
            assert lane.rows[0].records == 10

    run(test())


def test_a_broker_that_forgot_us_and_lost_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Old records: the target accepts any sequence, so that only settling keeps a second copy out."""
    monkeypatch.setattr(settler, "LATE_S", 0.05)
    sent = 0

    async def cut(call: Call) -> Any:
        nonlocal sent
        if not is_data(call):
            return await call.proceed()
        call.cluster.partition("a.t", 0).forget()
        sent += 1
        response = await call.proceed()
        if sent % 3 == 0:
            raise Cut
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, cut)
            for number in range(12):
                world.source.append("t", 0, old(number))
            async with world.lane() as lane:
                await lane.until_copied(12)
            assert world.copied() == numbers(12)

    run(test())


@pytest.mark.parametrize("code", [None, 6, 7, 20], ids=["no answer", "not leader", "timed out", "too few replicas"])
def test_old_records_that_are_not_replicated_yet_and_not_acknowledged(
    code: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Consumers do not see them, and the broker has forgotten us: only the leader's log end tells."""
    monkeypatch.setattr(settler, "LATE_S", 0.0)
    sent = 0

    async def append_alone(call: Call) -> Any:
        nonlocal sent
        if not is_data(call):
            return await call.proceed()
        sent += 1
        response = await call.proceed()
        if sent != 2:
            return response
        partition = call.cluster.partition("a.t", 0)
        partition.unreplicated = 1
        partition.forget()
        if code is None:
            raise Cut
        response.responses[0].partition_responses[0].error_code = code
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, append_alone)
            for number in range(4):
                world.source.append("t", 0, old(number))
            async with world.lane() as lane:
                await lane.until_copied(2)
                await asyncio.sleep(0.3)
                assert world.copied() == numbers(2), "nothing is sent before it is known what became of the last batch"
                world.target.partition("a.t", 0).unreplicated = 0
                await lane.until_copied(4)
            assert world.copied() == numbers(4)

    run(test())


def test_a_lost_answer_while_others_write_all_the_time() -> None:
    """The followers never have all: what we wait for is what stood there when we first looked."""
    is_lost = False

    async def lose_first(call: Call) -> Any:
        nonlocal is_lost
        response = await call.proceed()
        if is_data(call):
            partition = call.cluster.partition("a.t", 0)
            partition.unreplicated = 0 if is_lost else 1
            if not is_lost:
                is_lost = True
                raise Cut
        return response

    async def write(call: Call) -> Any:
        if is_lost and call.request.replica_id >= 0:
            call.cluster.append("a.t", 0, recent(900))
            call.cluster.partition("a.t", 0).unreplicated = 1
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, lose_first)
            world.target.control(LIST_OFFSETS, write)
            world.source.append("t", 0, recent(0, 5))
            async with world.lane() as lane:
                await lane.until(lambda: is_lost)
                await lane.until_entry(5)
                world.source.append("t", 0, recent(5, 5))
                await lane.until_entry(10)
            world.target.partition("a.t", 0).unreplicated = 0
            assert [number for number in world.copied() if number < 900] == numbers(10)

    run(test())


@pytest.mark.parametrize("is_other_lane", [False, True], ids=["the same lane", "the next lane"])
def test_a_batch_of_old_records_that_arrives_late(is_other_lane: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its connection is gone, the broker has forgotten us, and it comes when we have looked already."""
    monkeypatch.setattr(settler, "LATE_S", 0.5)
    held: list[Call] = []

    async def hold(call: Call) -> Any:
        if held or not is_data(call) or not world.copied():
            return await call.proceed()
        held.append(call)
        raise Cut

    async def test(world: LaneOnFakes) -> None:
        async with world:
            world.target.control(PRODUCE, hold)
            for number in range(4):
                world.source.append("t", 0, old(number))
            async with world.lane() as lane:
                await lane.until(lambda: bool(held))
                if not is_other_lane:
                    await arrive(world)
                    await lane.until_copied(4)
            if is_other_lane:
                row = lane.rows[0]
                assert row.late_ms >= 0
                async with world.lane(world.assignments(row.entry, late_ms=row.late_ms)) as lane:
                    await arrive(world)
                    await lane.until_copied(4)
            assert world.copied() == numbers(4)

    async def arrive(world: LaneOnFakes) -> None:
        await asyncio.sleep(0.2)
        world.target.partition("a.t", 0).forget()
        await held[0].proceed()
        world.target.partition("a.t", 0).forget()

    world = LaneOnFakes()
    run(test(world))


def test_an_entry_that_is_behind_is_settled_from_the_targets_tail() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 6))
            async with world.lane() as lane:
                await lane.until_copied(6)
            world.source.append("t", 0, recent(6, 2))
            async with world.lane() as lane:  # the driver knows nothing of the first lane
                await lane.until_copied(8)
            assert world.copied() == numbers(8)
            assert lane.rows[0].entry.n == 8
            assert lane.rows[0].records == 8

    run(test())


def test_after_a_crash_partitions_settle_a_few_at_a_time_and_all_of_them_go_on() -> None:
    tails: set[int] = set()

    async def note_tail(call: Call) -> Any:
        for topic in call.request.topics:
            if call.sight.name_of(topic.topic_id) == "a.t":
                tails.update(partition.partition for partition in topic.partitions)
        return await call.proceed()

    async def test() -> None:
        count = 2 * SETTLING_PARTITIONS
        async with LaneOnFakes(partitions=count) as world:
            for index in range(count):
                world.source.append("t", index, recent(0, 2))
            async with world.lane() as lane:
                await lane.until_copied(*[2] * count)
            may_read = asyncio.Event()

            async def hold(call: Call) -> Any:
                await may_read.wait()
                return await call.proceed()

            world.target.control(FETCH, note_tail)
            world.source.control(FETCH, hold)
            for index in range(count):
                world.source.append("t", index, recent(2))
            async with world.lane() as lane:  # the driver knows nothing of the first lane
                await lane.until(lambda: len(tails) >= SETTLING_PARTITIONS)
                seen = len(world.target.calls)
                await lane.until(lambda: len(world.target.calls) >= seen + 5)  # it goes on listening for orders
                assert len(tails) == SETTLING_PARTITIONS
                may_read.set()
                await lane.until_copied(*[3] * count)
            assert all(world.copied(index) == numbers(3) for index in range(count))

    run(test())


def test_two_lanes_on_one_partition_do_not_double_records() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            async with world.lane() as first, world.lane() as second:
                for number in range(30):
                    world.source.append("t", 0, recent(number, size=HEAVY))
                    await asyncio.sleep(0.001)
                await first.until_copied(30)
            assert world.copied() == numbers(30)
            assert {row.state for lane in (first, second) for row in lane.rows} != {"released"}

    run(test())


def test_foreign_records_in_the_target() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.append("a.t", 0, recent(1000, 2))
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(5)
                world.target.append("a.t", 0, recent(2000, 2))
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(10)
                await lane.until_entry(6)
            copied = world.copied()
            assert [number for number in copied if number < 1000] == numbers(6)
            assert len(copied) == 10
            entry = lane.rows[0].entry
            assert (entry.n, entry.source_offset, entry.target_offset) == (6, 6, 10)

    run(test())


@pytest.mark.parametrize("copied", [0, 3])
def test_foreign_records_that_are_gone_and_as_many_of_ours_in_their_place(copied: int) -> None:
    """The target's log then ends where the entry says, and our batch stands before that."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            for number in range(copied):
                world.source.append("t", 0, recent(number))
            async with world.lane() as lane:
                await lane.until_copied(copied)
            entry = lane.rows[0].entry
            world.target.append("a.t", 0, recent(1000, 2))
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until(lambda: any(isinstance(word, Trouble) for word in world.ledger()))
                world.target.partition("a.t", 0).truncate(copied)
                world.source.append("t", 0, recent(copied, 2))
                await lane.until_entry(copied + 2)
            assert world.copied() == numbers(copied + 2)
            assert lane.rows[0].entry.target_offset == copied + 2

    run(test())


@pytest.mark.parametrize(("side", "topic"), [("source", "t"), ("target", "a.t")])
def test_a_leader_that_moves_is_followed(side: str, topic: str) -> None:
    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            moving = world.source if side == "source" else world.target
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                for leader in (2, 1, 2):
                    moving.move_leader(topic, 0, leader)
                    at = len(world.copied())
                    world.source.append("t", 0, recent(at, 2))
                    await lane.until_copied(at + 2)
            assert world.copied() == numbers(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")

    run(test())


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_broker_that_goes_and_comes_back(side: str) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            cluster: FakeCluster = getattr(world, side)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                await cluster.brokers[1].stop()
                world.source.append("t", 0, recent(3, 3))
                await asyncio.sleep(0.05)
                await cluster.brokers[1].start()
                await lane.until_copied(6)
            assert world.copied() == numbers(6)

    run(test())


@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, LIST_OFFSETS, METADATA])
def test_connections_cut_again_and_again(api_key: int) -> None:
    seen = 0

    async def cut(call: Call) -> Any:
        nonlocal seen
        seen += 1
        response = await call.proceed()
        if seen % 3 == 2:
            raise Cut
        return response

    async def test() -> None:
        async with LaneOnFakes(partitions=2) as world:
            for cluster in (world.source, world.target):
                cluster.control(api_key, cut)
            async with world.lane() as lane:
                for number in range(10):
                    world.source.append("t", number % 2, recent(number // 2, size=HEAVY))
                await lane.until_copied(5, 5)
            assert (world.copied(0), world.copied(1)) == (numbers(5), numbers(5))

    run(test())


# -- a count whose number was used before ----------------------------------------------------


def _written_before(world: LaneOnFakes, epoch: int) -> None:
    """Six batches of our id, more than the broker remembers one by one."""
    for number in range(6):
        batch = encode_batch(recent(number), producer_id=PRODUCER_ID, producer_epoch=epoch, base_sequence=number)
        assert world.target.partition("a.t", 0).produce(bytes(batch)).error_code == 0


@pytest.mark.parametrize(("epoch", "code"), [(1, 45), (2, 47)])
def test_a_few_refusals_of_a_count_at_an_unchanged_end_give_the_partition_back(epoch: int, code: int) -> None:
    codes = []

    async def note(call: Call) -> Any:
        response = await call.proceed()
        if is_data(call):
            codes.append(response.responses[0].partition_responses[0].error_code)
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, note)
            _written_before(world, epoch)
            world.source.append("t", 0, recent(0, 9))
            async with world.lane(world.assignments(world.entry(count=1, source_offset=6, target_offset=6))) as lane:
                await lane.until_trouble()
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "SECOND_WRITER")
            assert codes == [code] * 3
            assert "was used before" in row.error_text
            assert world.copied() == numbers(6)

    run(test())


def test_a_count_that_begins_with_a_batch_which_the_target_has_is_given_back() -> None:
    """The broker answers with the old offset, as to a batch that comes again."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            _written_before(world, 1)
            world.target.partition("a.t", 0).producers[PRODUCER_ID].recent.clear()
            batch = encode_batch(recent(6, 2), producer_id=PRODUCER_ID, producer_epoch=1, base_sequence=0)
            world.target.partition("a.t", 0).produce(bytes(batch))
            world.source.append("t", 0, recent(0, 2))
            async with world.lane(world.assignments(world.entry(count=1, target_offset=8))) as lane:
                await lane.until_trouble()
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("released", "SECOND_WRITER")
            assert world.copied() == numbers(8)

    run(test())


def test_refusals_while_the_log_moves_on_give_nothing_back() -> None:
    """Others write behind each of our batches that is refused: the end is another one every time."""
    refused = 0

    async def refuse(call: Call) -> Any:
        nonlocal refused
        if is_data(call) and refused < 6:
            refused += 1
            call.cluster.refuse(PRODUCE, "a.t", 0, 45)
            call.cluster.append("a.t", 0, recent(900))
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, refuse)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_entry(3)
            assert lane.rows[0].state == "copying"
            assert [number for number in world.copied() if number < 900] == numbers(3)

    run(test())
