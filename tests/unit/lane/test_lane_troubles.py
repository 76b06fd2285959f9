"""What one partition cannot get over, and brokers that misbehave: named, and the others go on."""

from __future__ import annotations

import asyncio
import json
from typing import Any
from uuid import UUID

import pytest

from heliograph.kafka.batch import encode_batch, parse_header
from heliograph.lane.errors import CORRUPT_TRIES
from heliograph.lane.lane import Lane
from heliograph.ledger.model import LedgerRow
from heliograph.ledger.records.entry import Entry
from heliograph.ledger.records.trouble import Trouble
from tests.fake_cluster import FETCH, LIST_OFFSETS, METADATA, PRODUCE, SILENCE, Call
from tests.fake_cluster.partition import as_transactional
from tests.unit.helpers.lanes import GROUP, HEAVY, LEDGER, OFFSETS, PRODUCER_ID, LaneOnFakes, numbers, recent, run

pytestmark = pytest.mark.usefixtures("own_worker")


# -- one partition's trouble -----------------------------------------------------------------


def test_one_failing_partition_does_not_stop_the_others() -> None:
    async def test() -> None:
        async with LaneOnFakes(partitions=3) as world:
            world.target.refuse(PRODUCE, "a.t", 1, 87, times=1_000)
            for partition in range(3):
                world.source.append("t", partition, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_trouble()
                world.source.append("t", 0, recent(3, 2))
                world.source.append("t", 2, recent(3, 2))
                await lane.until_copied(5, 0, 5)
            assert [row.state for row in lane.rows] == ["copying", "released", "copying"]
            refused = lane.rows[1]
            assert (refused.error_code, refused.entry.n) == ("RECORD_REFUSED", 0)
            assert (refused.details["source_start"], refused.details["source_end"]) == (0, 1)
            assert (world.copied(0), world.copied(1), world.copied(2)) == (numbers(5), [], numbers(5))

    run(test())


def test_what_was_released_keeps_its_cause_when_the_source_goes_away() -> None:
    async def test() -> None:
        async with LaneOnFakes(partitions=2) as world:
            world.target.refuse(PRODUCE, "a.t", 1, 87, times=1_000)
            world.source.append("t", 1, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_trouble()
                await world.source.brokers[1].stop()
                await world.source.brokers[1].start()
                world.source.append("t", 0, recent(0, 3))
                await lane.until_copied(3, 0)
            assert (lane.rows[1].state, lane.rows[1].error_code) == ("released", "RECORD_REFUSED")

    run(test())


async def released(world: LaneOnFakes, *entries: Entry, **terms: Any) -> LedgerRow:
    """The row of the first partition, which the lane gives back."""
    async with world.lane(world.assignments(*entries), **terms) as lane:
        await lane.until_trouble()
    assert lane.rows[0].state == "released"
    trouble = next(record for record in world.ledger() if isinstance(record, Trouble) and record.final)
    assert (trouble.topic, trouble.partition, trouble.code) == ("t", 0, lane.rows[0].error_code)
    assert trouble.text == lane.rows[0].error_text
    return lane.rows[0]


def test_records_that_expired_uncopied_are_data_lost() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for number in range(0, 10, 2):
                world.source.append("t", 0, recent(number, 2))
            world.source.partition("t", 0).expire(6)
            row = await released(world)
            assert row.error_code == "DATA_LOST"
            assert row.details == {"position": 0, "log_start": 6, "log_end": 10}
            assert "offsets 0 to 5 (6 records)" in row.error_text

    run(test())


def test_a_source_that_ends_before_the_position_is_log_truncated() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 4))
            row = await released(world, world.entry(source_offset=9))
            assert row.error_code == "LOG_TRUNCATED"
            assert row.details == {"position": 9, "log_start": 0, "log_end": 4}

    run(test())


def test_a_recreated_source_topic() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 4))
            async with world.lane() as lane:
                await lane.until_copied(4)
                new = world.source.create("t")
                world.source.append("t", 0, recent(0, 9))
                await lane.until_trouble()
            row = lane.rows[0]
            assert (row.state, row.error_code) == ("released", "TOPIC_RECREATED")
            assert row.details["source_topic_id"] == new.topic_id.hex
            assert world.copied() == numbers(4)

    run(test())


def test_a_target_that_is_shorter_than_the_ledger_says() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.append("a.t", 0, recent(0, 3))
            row = await released(world, world.entry(n=5, source_offset=5, target_offset=5))
            assert row.error_code == "TARGET_TRUNCATED"
            assert row.details["target_end"] == 3

    run(test())


def test_a_recreated_target_topic() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            row = await released(world, world.entry(target_topic_id=UUID(int=5).hex))
            assert row.error_code == "TARGET_TOPIC_LOST"

    run(test())


def test_a_worker_that_knew_the_topic_before_it_was_made_anew_looks_again() -> None:
    """The driver has opened a count in the new topic; a worker's knowledge from the last epoch must not void it."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            world.target.create("a.t")
            async with world.lane(world.assignments(world.entry(count=1))) as lane:
                await lane.until_copied(3)
            assert (lane.rows[0].state, world.copied()) == ("copying", numbers(3))

    run(test())


def test_a_topic_made_anew_under_a_lane_is_not_taken_for_a_truncated_one() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            entry = lane.rows[0].entry
            world.target.create("a.t")
            row = await released(world, entry)
            assert row.error_code == "TARGET_TOPIC_LOST"
            assert row.details["target_topic_id"] == world.target.topics["a.t"].topic_id.hex

    run(test())


def test_a_tail_that_the_source_does_not_have_is_unproven() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            forged = encode_batch(recent(70, 3), producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=0)
            world.target.partition("a.t", 0).produce(bytes(forged))
            row = await released(world)
            assert (row.error_code, row.details["records"]) == ("POSITION_UNPROVEN", 3)

    run(test())


def test_a_batch_that_is_corrupt_once_is_fetched_again() -> None:
    spoilt = 0

    async def spoil(call: Call) -> Any:
        nonlocal spoilt
        response = await call.proceed()
        answer = response.responses[0].partitions[0]
        if answer.records and spoilt < CORRUPT_TRIES:
            spoilt += 1
            answer.records = answer.records[:-1] + bytes([answer.records[-1] ^ 1])
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.control(FETCH, spoil)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            assert spoilt == CORRUPT_TRIES
            assert world.copied() == numbers(3)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")

    run(test())


def test_a_batch_that_stays_corrupt_is_given_back() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3, size=HEAVY))
            world.source.append("t", 0, recent(3, 3, size=HEAVY))
            world.source.partition("t", 0).batches[1][-1] ^= 1
            row = await released(world)
            assert row.error_code == "RECORD_REFUSED"
            assert (row.details["source_start"], row.details["source_end"], row.details["records"]) == (3, 6, 3)
            assert "wrong checksum" in row.details["cause"]
            assert world.copied() == numbers(3)
            assert (row.entry.n, row.entry.source_offset) == (3, 3)

    run(test())


# -- brokers that misbehave: the lane goes on, and says what keeps it ----------------------


async def reported(world: LaneOnFakes, *, duration_ms: int = 250) -> LedgerRow:
    """The row of a lane that ran to its deadline."""
    (row,) = await Lane(0, world.assignments(), world.terms(duration_ms=duration_ms)).run()
    return row


@pytest.mark.parametrize("side", ["source", "target"])
def test_a_cluster_that_is_away_is_named_in_the_row(side: str) -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            await getattr(world, side).brokers[1].stop()
            row = await reported(world)
            assert row.error_code == "UNREACHABLE"
            assert row.entry == world.entry()

    run(test())


@pytest.mark.parametrize("side", ["source", "target"])
@pytest.mark.parametrize("api_key", [PRODUCE, FETCH, LIST_OFFSETS, METADATA])
def test_nonsense_from_a_broker_never_ends_a_lane(side: str, api_key: int) -> None:
    async def garble(call: Call) -> bytes:
        frame = call.encode(await call.proceed())
        return frame[:8] + bytes(byte ^ 0xA5 for byte in frame[8:])

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            world.source.partition("t", 0).expire(1)
            getattr(world, side).control(api_key, garble)
            row = await reported(world)
            assert row.entry.n in (0, 3)

    run(test())


def test_a_lost_source_offset_that_cannot_be_diagnosed_yet() -> None:
    async def forget(call: Call) -> Any:
        response = await call.proceed()
        response.topics = []
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 3))
            world.source.partition("t", 0).expire(3)
            world.source.control(LIST_OFFSETS, forget)
            row = await reported(world)
            assert row.state == "copying"
            assert row.error_code == "PROTOCOL"

    run(test())


def test_a_target_without_a_common_produce_version_is_named_in_the_row() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.versions[PRODUCE] = (0, 7)
            world.source.append("t", 0, recent(0, 3))
            row = await reported(world)
            assert row.error_code == "UNSUPPORTED_VERSION"

    run(test())


def test_a_silent_source_is_waited_for_without_a_crash() -> None:
    async def silent(call: Call) -> bytes:
        return SILENCE

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.control(FETCH, silent)
            row = await reported(world)
            assert row.state == "copying"

    run(test())


def test_keys_in_the_ledger_name_the_group() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0))
            async with world.lane() as lane:
                await lane.until_copied(1)
            keys = {record.key for record in world.target.partition(LEDGER, 0).records()}
            kinds = {tuple(json.loads(key or b"[]")[:2]) for key in keys}
            assert kinds == {("entry", GROUP), ("order", GROUP)}
            assert all(parse_header(batch).producer_id == -1 for batch in world.target.partition(LEDGER, 0).batches)

    run(test())


# -- rights ------------------------------------------------------------------------------

NOT_AUTHORIZED = 29


def test_a_target_that_may_not_be_read_is_copied_at_least_once() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.append("t", 0, recent(0, 5))
            world.target.append("a.t", 0, recent(0, 3))
            world.target.refuse(FETCH, "a.t", 0, NOT_AUTHORIZED, times=1_000)
            row = await released(world)
            assert (row.error_code, row.details["records"]) == ("POSITION_UNPROVEN", 3)
            assert "3 records are on the target beyond the ledger's entry" in row.error_text
            assert "at-least-once; grant Read" in row.error_text

    run(test())


def test_a_source_that_may_not_be_read_for_a_while_is_named_and_goes_on() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.refuse(FETCH, "t", 0, NOT_AUTHORIZED, times=1_000)
            world.source.append("t", 0, recent(0, 5))
            async with world.lane() as lane:
                await lane.until(lambda: any(text.startswith("NOT_AUTHORIZED") for text in told(world)))
                world.source.relent()
                await lane.until_copied(5)
            assert told(world)[-1] == ""

    run(test())


def test_each_partition_backs_off_by_itself() -> None:
    """One that is refused again and again is asked for less and less; another's moving leader is followed at once."""
    asked = 0

    async def count(call: Call) -> Any:
        nonlocal asked
        asked += any(wanted.partition == 0 for topic in call.request.topics for wanted in topic.partitions)
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes(partitions=2, brokers=2) as world:
            world.source.refuse(FETCH, "t", 0, NOT_AUTHORIZED, times=10_000)
            world.source.control(FETCH, count)
            async with world.lane() as lane:
                await asyncio.sleep(1.5)
                assert 3 < asked < 20
                for leader in (1, 2, 1, 2):
                    world.source.move_leader("t", 1, leader)
                    at = len(world.copied(1))
                    world.source.append("t", 1, recent(at, 2))
                    await lane.until_copied(0, at + 2)
                assert asked < 40
                world.source.relent()
                world.source.append("t", 0, recent(0, 2))
                await lane.until_copied(2, 8)
            assert (world.copied(0), world.copied(1)) == (numbers(2), numbers(8))

    run(test())


def test_a_flush_that_fails_is_told_with_its_counts_and_partitions_until_one_succeeds() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            for partition in range(5):
                world.target.refuse(PRODUCE, OFFSETS, partition, NOT_AUTHORIZED, times=6)
            world.source.append("t", 0, recent(0, 5))
            async with world.lane() as lane:
                await lane.until_copied(5)
                await lane.until(lambda: told(world)[-1:] == [""])
            texts = told(world)
            assert "positions of 1 partitions (t-0) were not stored, 5 records since the last flush" in texts[0]
            assert "NOT_AUTHORIZED" in texts[0]
            assert texts[-1] == ""

    run(test())


@pytest.mark.parametrize(
    ("code", "name", "remedy"), [(56, "KAFKA_STORAGE_ERROR", "disk full"), (19, "NOT_ENOUGH_REPLICAS", "min.insync")]
)
def test_a_full_target_and_one_short_of_replicas_are_waited_for_and_named(code: int, name: str, remedy: str) -> None:
    async def test() -> None:
        async with LaneOnFakes(partitions=2) as world:
            world.target.refuse(PRODUCE, "a.t", 0, code, times=1_000)
            for partition in range(2):
                world.source.append("t", partition, recent(0, 5))
            async with world.lane() as lane:
                await lane.until(lambda: any(name in text for text in told(world)))
                world.source.append("t", 1, recent(5, 2))
                await lane.until_copied(0, 7)
                world.target.relent()
                await lane.until_copied(5, 7)
                await lane.until(lambda: told(world)[-1] == "")
            assert remedy in told(world)[0]
            assert len(told(world)) == 2, "once when it begins, once when it is over"
            assert (world.copied(0), world.copied(1)) == (numbers(5), numbers(7))

    run(test())


def test_a_batch_that_was_appended_with_too_few_replicas_does_not_come_twice() -> None:
    left = 2  # the rest may go out in one request

    async def unsure(call: Call) -> Any:
        nonlocal left
        response = await call.proceed()
        if call.version >= 13 and left:
            left -= 1
            response.responses[0].partition_responses[0].error_code = 20
            response.responses[0].partition_responses[0].base_offset = -1
        return response

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, unsure)
            for number in range(10):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane() as lane:
                await lane.until_copied(10)
            assert left == 0
            assert world.copied() == numbers(10)

    run(test())


def test_a_slow_target_is_waited_for() -> None:
    async def slow(call: Call) -> Any:
        await asyncio.sleep(0.3)
        return await call.proceed()

    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.control(PRODUCE, slow)
            for number in range(8):
                world.source.append("t", 0, recent(number, size=HEAVY))
            async with world.lane() as lane:
                await lane.until_copied(8)
            assert world.copied() == numbers(8)
            assert lane.rows[0].error_code == ""

    run(test())


def test_a_row_says_how_far_the_stored_position_lags() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.refuse(PRODUCE, LEDGER, 0, NOT_AUTHORIZED, times=1_000)
            world.source.append("t", 0, recent(0, 5))
            async with world.lane(duration_ms=1_500) as lane:
                await lane.until_copied(5)
                await lane.end()
            (row,) = lane.rows
            assert (row.state, row.entry.n, row.unwritten) == ("copying", 5, 5)

    run(test())


def told(world: LaneOnFakes) -> list[str]:
    """What the lane said of its troubles; nothing means that one is over."""
    return [record.text for record in world.ledger() if isinstance(record, Trouble)]


def test_a_count_of_another_rule_is_settled_by_its_own_and_given_back() -> None:
    """Its tail has a record of a transaction that was aborted, which the flow would not copy any more."""

    async def test() -> None:
        async with LaneOnFakes() as world:
            log = world.source.partition("t", 0)
            log.store(as_transactional(encode_batch(recent(0, 2)), 8))
            log.end_transaction(8, commit=False)
            world.source.append("t", 0, recent(2, 2))
            before = world.assignments(world.entry(rule="all"))
            async with world.lane(before) as lane:
                await lane.until_copied(4)
            async with world.lane(before, read_committed=True) as lane:
                await lane.until(lambda: "RULES_CHANGED" in [record.code for record in troubles(world)])
            [row] = lane.rows
            assert (row.state, row.error_code) == ("released", "RULES_CHANGED")
            assert (row.entry.source_offset, row.entry.n, row.entry.count) == (5, 4, 0)
            assert world.copied() == numbers(4)

    def troubles(world: LaneOnFakes) -> list[Trouble]:
        return [record for record in world.ledger() if isinstance(record, Trouble)]

    run(test())
