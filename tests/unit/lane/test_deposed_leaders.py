"""Leaders that were deposed and do not know it: lanes between fake clusters of which one broker is cut off.

Broker 1 leads, is cut off from its controllers and replicas, and goes on answering clients as it did. Broker 2 is
elected and goes on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from heliograph.control.source_watch import LogEndSync
from heliograph.kafka import cluster as cluster_module
from heliograph.kafka.batch import NewRecord, encode_batch, rewrite_header
from heliograph.kafka.types import BrokerAddress
from heliograph.lane import leader_watch
from heliograph.ledger import store
from heliograph.ledger.records.entry import Entry
from tests.fake_cluster import FETCH, LIST_OFFSETS, PRODUCE, Call, FakeCluster
from tests.unit.helpers.flows import flow_between
from tests.unit.helpers.lanes import PRODUCER_ID, LaneOnFakes, numbers, recent, run

VERSIONS = pytest.mark.parametrize("fetch_version", [11, 16])
SHORT_AGE_MS = 50


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lanes without a lease listen for the driver's word for 5 s at a time, also at a deposed leader."""
    monkeypatch.setattr(leader_watch, "LISTEN_WAIT_MS", 100)


def world_of(fetch_version: int, **fields: Any) -> LaneOnFakes:
    """A source whose brokers are as old as this version of Fetch."""
    world = LaneOnFakes(**{"brokers": 2, **fields})
    world.source.versions[FETCH] = (4, fetch_version)
    return world


def first_broker(cluster: FakeCluster) -> tuple[BrokerAddress, ...]:
    return (cluster.brokers[1].address,)


async def copy_of_both_epochs(world: LaneOnFakes) -> Entry:
    """Copy three records of each of the source's two leader epochs; the second is broker 2's alone."""
    world.source.append("t", 0, recent(0, 3))
    world.source.cut_off(1)
    world.source.append("t", 0, recent(3, 3))
    async with world.lane(source_bootstrap=(world.source.brokers[2].address,)) as lane:
        await lane.until_copied(6)
    entry = lane.rows[0].entry
    assert entry.lineage == "0:0 1:3"
    return entry


# -- the source ----------------------------------------------------------------------------


@VERSIONS
def test_a_deposed_leaders_shorter_log_is_no_truncation(fetch_version: int) -> None:
    """All that the lane hears at first is what the deposed leader says."""

    async def test() -> None:
        async with world_of(fetch_version) as world:
            entry = await copy_of_both_epochs(world)
            async with world.lane(world.assignments(entry), source_bootstrap=first_broker(world.source)) as lane:
                world.source.append("t", 0, recent(6, 3))
                await lane.until_copied(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")
            assert world.copied() == numbers(9)

    run(test())


@VERSIONS
def test_where_no_epoch_of_the_copy_is_known_another_broker_is_asked_before_a_log_is_called_truncated(
    fetch_version: int,
) -> None:
    """An entry of an early release has no lineage."""

    async def test() -> None:
        async with world_of(fetch_version) as world:
            entry = (await copy_of_both_epochs(world)).moved(lineage="")
            async with world.lane(world.assignments(entry), source_bootstrap=first_broker(world.source)) as lane:
                world.source.append("t", 0, recent(6, 3))
                await lane.until_copied(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")
            assert world.copied() == numbers(9)

    run(test())


@VERSIONS
def test_nothing_is_judged_while_only_the_deposed_leader_answers(fetch_version: int) -> None:
    async def test() -> None:
        async with world_of(fetch_version) as world:
            entry = await copy_of_both_epochs(world)
            await world.source.brokers[2].stop()
            async with world.lane(world.assignments(entry), source_bootstrap=first_broker(world.source)) as lane:
                seen = len(world.source.calls)
                await lane.until(lambda: len(world.source.calls) > seen + 4)
                assert not any(call.api_key == FETCH and call.node_id == 1 for call in world.source.calls[seen:])
                await world.source.brokers[2].start()
                world.source.append("t", 0, recent(6, 3))
                await lane.until_copied(9)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")
            assert world.copied() == numbers(9)

    run(test())


@VERSIONS
def test_empty_answers_of_a_deposed_leader_do_not_pass_for_being_up_to_date(fetch_version: int) -> None:
    async def test() -> None:
        async with world_of(fetch_version) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane(source_metadata_max_age_ms=SHORT_AGE_MS) as lane:
                await lane.until_copied(3)
                world.source.cut_off(1)
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(6)
            assert lane.rows[0].entry.source_end == 6
            assert world.copied() == numbers(6)

    run(test())


def test_a_lane_hears_of_new_leaders_from_the_driver_with_its_next_epoch() -> None:
    """Whatever the age of its own metadata."""

    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            world.source.cut_off(1)
            world.source.append("t", 0, recent(3, 3))
            assignments = world.assignments(lane.rows[0].entry, source_leader_epoch=1)
            async with world.lane(assignments) as lane:
                await lane.until_copied(6)
            assert world.copied() == numbers(6)

    run(test())


def test_a_near_replica_that_is_cut_off_from_its_leader_is_left_when_the_metadata_is_renewed() -> None:
    """It leads nothing, so that no epoch tells: its answers stay empty."""
    is_frozen = False

    async def freeze(call: Call) -> Any:
        response = await call.proceed()
        if call.node_id == 2 and is_frozen:
            for partition in response.responses[0].partitions:
                partition.records, partition.high_watermark = b"", 3
        return response

    async def test() -> None:
        nonlocal is_frozen
        async with LaneOnFakes(brokers=2) as world:
            world.source.control(FETCH, freeze)
            log = world.source.partition("t", 0)
            log.preferred_replica = 2
            world.source.append("t", 0, recent(0, 3))
            async with world.lane(client_rack="near", source_metadata_max_age_ms=SHORT_AGE_MS) as lane:
                await lane.until_copied(3)
                is_frozen, log.preferred_replica = True, -1
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(6)
            assert world.copied() == numbers(6)

    run(test())


def test_fetches_name_the_leader_epoch_of_the_metadata() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.source.partition("t", 0).begin_epoch(5)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            fetched = [call.request.topics for call in world.source.calls if call.api_key == FETCH]
            assert {part.current_leader_epoch for [topic] in fetched for part in topic.partitions} == {5}

    run(test())


def test_an_unclean_election_is_believed_by_its_higher_epoch() -> None:
    """The cut-off broker had what the elected one never got: that is lost, and named."""

    async def test() -> None:
        async with world_of(16) as world:
            for number in range(0, 6, 2):
                world.source.append("t", 0, recent(number, 2))
            async with world.lane(source_metadata_max_age_ms=SHORT_AGE_MS) as lane:
                await lane.until_copied(6)
                world.source.cut_off(1)
                log = world.source.partition("t", 0)
                log.truncate(4)
                log.begin_epoch()
                world.source.append("t", 0, recent(100, 1))
                await lane.until_trouble()
            assert (lane.rows[0].error_code, lane.rows[0].details["log_end"]) == ("LOG_TRUNCATED", 4)

    run(test())


@VERSIONS
def test_leader_epochs_that_went_back_in_the_whole_cluster_are_believed(fetch_version: int) -> None:
    """A cluster that was restored from a backup: all its brokers say so."""

    async def test() -> None:
        async with world_of(fetch_version) as world:
            world.source.append("t", 0, recent(0, 3))
            entry = world.entry(source_offset=6, lineage="0:0 7:3")
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until_trouble()
            assert (lane.rows[0].error_code, lane.rows[0].details["log_end"]) == ("LOG_TRUNCATED", 3)

    run(test())


# -- the target ----------------------------------------------------------------------------


def target_entry(world: LaneOnFakes, **fields: Any) -> Entry:
    """Six records stand on the target; the last three under broker 2, which leads in epoch 1."""
    world.target.partition("a.t", 0).produce(_batch(0, 3))
    world.target.cut_off(1)
    world.target.partition("a.t", 0).produce(_batch(3, 3))
    return world.entry(
        **{"n": 6, "source_offset": 6, "target_offset": 6, "run_source": 0, "run_target": 0, "our_end": 6, **fields}
    )


def test_what_stands_on_the_target_is_proved_by_the_sources_new_leader() -> None:
    """The deposed one does not have the records any more that the tail consists of."""

    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            records = recent(0, 6)
            log = world.target.partition("a.t", 0)
            world.source.append("t", 0, records[:3])
            log.produce(_batch(0, 3, records))
            world.source.cut_off(1)
            world.source.append("t", 0, records[3:])
            log.produce(_batch(3, 3, records[3:]))
            entry = world.entry(n=3, source_offset=3, target_offset=3, run_source=0, our_end=3, lineage="0:0")
            entry = entry.moved(run_target=0)
            async with world.lane(world.assignments(entry), source_bootstrap=first_broker(world.source)) as lane:
                world.source.append("t", 0, recent(6, 3))
                await lane.until_copied(9)
            assert (lane.rows[0].state, lane.rows[0].error_code, lane.rows[0].entry.n) == ("copying", "", 9)
            assert world.copied() == numbers(9)

    run(test())


def _batch(start: int, count: int, records: Sequence[NewRecord] = ()) -> bytes:
    batch = encode_batch(list(records)[:count] or recent(start, count))
    rewrite_header(memoryview(batch), producer_id=PRODUCER_ID, producer_epoch=0, base_sequence=start)
    return bytes(batch)


@pytest.mark.parametrize("known_epoch", [1, -1], ids=["epoch kept", "entry of an earlier release"])
def test_a_deposed_leaders_shorter_log_on_the_target_is_no_truncation(known_epoch: int) -> None:
    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            world.source.append("t", 0, recent(0, 9))
            entry = target_entry(world, target_leader_epoch=known_epoch)
            async with world.lane(world.assignments(entry), target_bootstrap=first_broker(world.target)) as lane:
                await lane.until_copied(9)
            row = lane.rows[0]
            assert (row.state, row.error_code, row.entry.target_leader_epoch) == ("copying", "", 1)
            assert world.copied() == numbers(9)

    run(test())


def test_what_a_deposed_leader_does_not_commit_is_copied_once_by_the_new_one() -> None:
    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
                alone = world.target.cut_off(1)
                world.source.append("t", 0, recent(3, 3))
                await lane.until(lambda: alone.topics["a.t"].partitions[0].end > 3 or len(world.copied()) >= 6)
                await lane.until_copied(6)
            assert (lane.rows[0].state, lane.rows[0].error_code) == ("copying", "")
            assert (lane.rows[0].entry.n, lane.rows[0].entry.target_leader_epoch) == (6, 1)
            assert world.copied() == numbers(6)

    run(test())


def test_records_go_to_the_new_leader_once_the_metadata_names_it() -> None:
    """Without a word from the old one, which would take 20 s to say that it commits nothing."""

    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            world.source.append("t", 0, recent(0, 3))
            async with world.lane(target_metadata_max_age_ms=SHORT_AGE_MS) as lane:
                await lane.until_copied(3)
                alone = world.target.cut_off(1)
                asked = len(world.target.calls)
                await lane.until(lambda: any(call.node_id == 2 for call in metadata(world.target, asked)))
                world.source.append("t", 0, recent(3, 3))
                await lane.until_copied(6)
            assert alone.topics["a.t"].partitions[0].end == 3
            assert world.copied() == numbers(6)

    run(test())


def metadata(cluster: FakeCluster, since: int) -> list[Any]:
    return [call for call in cluster.calls[since:] if call.api_key == 3]


@pytest.mark.parametrize("epoch", [0, 5], ids=["restored from a backup", "unclean election"])
def test_a_target_that_lost_records_is_named(epoch: int) -> None:
    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            world.source.append("t", 0, recent(0, 9))
            log = world.target.partition("a.t", 0)
            log.produce(_batch(0, 3))
            log.begin_epoch(epoch)
            entry = world.entry(n=6, source_offset=6, target_offset=6, run_source=0, our_end=6, target_leader_epoch=3)
            async with world.lane(world.assignments(entry.moved(run_target=0))) as lane:
                await lane.until_trouble()
            assert lane.rows[0].error_code == "TARGET_TRUNCATED"

    run(test())


def test_a_target_topic_made_anew_begins_with_epoch_0_and_is_named() -> None:
    async def test() -> None:
        async with LaneOnFakes(brokers=2) as world:
            entry = target_entry(world, target_leader_epoch=1)
            world.target.rejoin(1)
            world.target.create("a.t")
            async with world.lane(world.assignments(entry)) as lane:
                await lane.until_trouble()
            assert lane.rows[0].error_code == "TARGET_TOPIC_LOST"

    run(test())


def test_log_ends_of_the_target_are_asked_under_its_leader_epoch() -> None:
    async def test() -> None:
        async with LaneOnFakes() as world:
            world.target.partition("a.t", 0).begin_epoch(5)
            world.source.append("t", 0, recent(0, 3))
            async with world.lane() as lane:
                await lane.until_copied(3)
            asked = [call.request.topics for call in world.target.calls if call.api_key == LIST_OFFSETS]
            epochs = {
                p.current_leader_epoch for topics in asked for t in topics if t.name == "a.t" for p in t.partitions
            }
            assert epochs == {5}
            assert lane.rows[0].entry.target_leader_epoch == 5
            assert any(call.api_key == PRODUCE for call in world.target.calls)

    run(test())


# -- the driver ----------------------------------------------------------------------------


def test_the_drivers_log_ends_come_from_leaders_that_still_lead() -> None:
    """Of both clusters it hears at first what a broker says that is cut off."""

    async def test() -> None:
        async with flow_between({"t": 1}, {"a.t": 1}, "a->b.topics = t", brokers=2) as world:
            source, target, flow = world.source, world.target, world.flow
            source.append("t", 0, recent(0, 3))
            target.append("a.t", 0, recent(0, 3))
            await flow.opening.open()
            await flow.prepare()
            [(where, entry)] = flow.entries.items()
            ids = source.topics["t"].topic_id.hex, target.topics["a.t"].topic_id.hex
            assert (entry.source_topic_id, entry.target_topic_id) == ids
            flow.entries[where] = flow.table.known[where] = entry.moved(
                source_offset=5, lineage="0:0 1:3", target_leader_epoch=1
            )
            source.cut_off(1)
            target.cut_off(1)
            source.append("t", 0, recent(3, 3))
            target.append("a.t", 0, recent(3, 3))
            for cluster in (flow.source, flow.target):
                cluster._last_metadata_broker = None
                cluster._bootstrap = cluster._bootstrap[:1]
                cluster.catalogue = cluster_module._NOTHING
            await flow.topics.refresh()
            [assignment] = flow.assignments.all()
            assert (assignment.source_leader_epoch, assignment.entry.target_leader_epoch) == (1, 1)
            assert flow.source.catalogue.leadership_of("t", 0) == (2, 1)
            assert flow.target.catalogue.leadership_of("a.t", 0) == (2, 1)
            await LogEndSync(flow).sync()
            await store.read_on(flow.target, flow.ledger_topic, flow.ledger)
            assert flow.ledger.log_ends[where].offset == 6

    run(test())


def test_the_drivers_metadata_ages() -> None:
    ages = {"a.admin": 50, "a.consumer": 60, "b.producer": 70}
    more = "\n".join(["a->b.topics = t", *(f"{client}.metadata.max.age.ms = {age}" for client, age in ages.items())])

    async def test() -> None:
        async with flow_between({"t": 1}, {"a.t": 1}, more, brokers=2) as world:
            await world.flow.opening.open()
            await world.flow.prepare()
            world.source.cut_off(1)
            world.source.append("t", 0, recent(0, 3))

            async def look() -> bool:
                await LogEndSync(world.flow).sync()
                return world.flow.source.catalogue.leader_of("t", 0) == 2

            while not await look():
                await asyncio.sleep(0.02)
            assert world.flow.target.metadata_max_age_s == 300
            terms = world.flow.assignments.terms()
            assert (terms.source_metadata_max_age_ms, terms.target_metadata_max_age_ms) == (60, 70)

    run(test())
