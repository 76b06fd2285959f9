"""A flow with more source than target partitions: its claims, its places, and the groups that it carries."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from heliograph.client.ledger import Knowledge, translate_groups
from heliograph.config import parse_settings
from heliograph.config.settings import Settings
from heliograph.control.checkpoints import GroupCheckpoints
from heliograph.control.offset_syncs import OffsetSyncSync
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.batch import NewRecord
from heliograph.lane.lane import Lane
from heliograph.ledger import store
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.ledger.model import EpochTerms
from heliograph.ledger.partition_remap import SAME
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.table import parse_ledger
from heliograph.views.groups import read_groups
from tests.fake_cluster import FakeCluster
from tests.fake_cluster.group import FakeGroup
from tests.unit.helpers.logs import new_records

GROUP, LEDGER, OFFSETS = "a-mm2", "mm2-ledger.a.internal", "mm2-offsets.a.internal"
CHECKPOINTS = "a.checkpoints.internal"


class RemappedFlow:
    """Topic `t` with seven partitions on "a", its mirror with three on "b"."""

    def __init__(self, remap: str = "modulo") -> None:
        self.remap = remap
        self.source = FakeCluster("a", topics={"t": 7})
        self.target = FakeCluster("b", topics={"a.t": 3, LEDGER: 1, OFFSETS: 1, CHECKPOINTS: 1})

    def settings(self) -> Settings:
        source, target = (cluster.bootstrap[0].port for cluster in (self.source, self.target))
        return parse_settings(
            f"clusters = a, b\na->b.enabled = true\na->b.topics = t\na->b.partition.remap = {self.remap}\n"
            f"a.bootstrap.servers = 127.0.0.1:{source}\nb.bootstrap.servers = 127.0.0.1:{target}\n"
            "a->b.sync.group.offsets.enabled = true\n"
        )

    @asynccontextmanager
    async def leader(self) -> AsyncIterator[FlowDriver]:
        settings = self.settings()
        flow = FlowDriver(settings.flows[0], settings, is_local=True)
        try:
            await flow.source.refresh()
            await flow.target.refresh()
            flow.opening.ledger_topic = LEDGER
            flow.opening.ledger = await store.read_ledger(flow.target, LEDGER, GROUP)
            await flow.prepare()
            yield flow
        finally:
            flow.close()

    def claims(self) -> list[ProducerClaim]:
        found = [parse_ledger(GROUP, r.key, r.value) for r in self.target.partition(LEDGER, 0).records()]
        return [word for word in found if isinstance(word, ProducerClaim)]


@asynccontextmanager
async def a_world(**fields: Any) -> AsyncIterator[RemappedFlow]:
    world = RemappedFlow(**fields)
    async with world.source, world.target:
        world.target.append("a.t", 1, new_records(0, 4))
        yield world


def test_a_flow_claims_an_id_for_every_row_once_and_the_next_leader_goes_on_with_them() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                assert {where[1]: entry.modulo for where, entry in flow.entries.items()} == dict.fromkeys(range(7), 3)
                assert [flow.entries["t", p].target_offset for p in range(7)] == [0, 4, 0, 0, 4, 0, 0]
                ids = flow.assignments.terms().producer_ids
                assert len(set(ids)) == 3
                used = {(item.target, flow.assignments.terms().producer_id_of(item)) for item in flow.assignments.all()}
                assert len(used) == 7
            async with world.leader() as flow:
                assert flow.assignments.terms().producer_ids == ids
            assert sorted(claim.row for claim in world.claims()) == [0, 1, 2]

    asyncio.run(test())


HAS_READ = {0: 4, 3: 9, 6: 1, 1: 7}
"""How far a group is on the source; of partition 4, beside 1, it has committed nothing, nor of 2 and 5."""


async def copy_all(world: RemappedFlow, flow: FlowDriver, count: int, partitions: Sequence[int] = range(7)) -> None:
    """So many records in each partition, one batch after the other, through a lane."""
    now_ms = int(time.time() * 1000)
    for number in range(count):
        for p in partitions:
            world.source.append("t", p, [NewRecord(now_ms, b"%d" % p, b"%d" % number + bytes(40_000))])
    lane = Lane(
        0,
        flow.assignments.all(),
        EpochTerms(owner="o", epoch_id=1, duration_ms=20_000, flows=(flow.assignments.terms(),)),
    )
    task = asyncio.ensure_future(lane.run())
    wanted = len(partitions) * count + 4
    await world.target.wait_until(lambda: sum(world.target.partition("a.t", q).end for q in range(3)) >= wanted)
    lane.end()
    await flow.epochs.take_rows(await task)
    await store.read_on(flow.target, LEDGER, flow.ledger)


@pytest.mark.usefixtures("own_worker")
def test_a_group_is_carried_to_the_same_places_by_sync_checkpoints_translate_and_groups() -> None:
    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            await copy_all(world, flow, 10)
            commits = {("t", p): (offset, "", -1) for p, offset in HAS_READ.items()}
            world.source.groups["g"] = FakeGroup(commits=commits)
            checkpoints = GroupCheckpoints(flow, OffsetSyncSync(flow))
            await checkpoints.sync()
            await checkpoints.read()
            found = {where[1]: offset for where, (offset, _, _) in world.target.groups["g"].commits.items()}
            assert found.keys() == {0, 1}, "of the partitions copied into the third it has committed nothing"
            again = 0
            for q, offset in found.items():
                for record in world.target.partition("a.t", q).records():
                    if record.key is not None and record.key.isdigit():
                        is_read = int((record.value or b"").rstrip(b"\0")) < HAS_READ.get(int(record.key), 0)
                        assert is_read or record.offset >= offset, "nothing is skipped"
                        again += is_read and record.offset >= offset
            written = [Checkpoint.parse(r.key, r.value) for r in world.target.partition(CHECKPOINTS, 0).records()]
            assert {item.partition: item.downstream for item in written if item is not None} == found
            await store.read_on(flow.target, LEDGER, flow.ledger)
            known = Knowledge(flow.ledger, None)
            offsets = (await translate_groups(flow.target, "a", known, flow.flow.policy, lambda _: True))["g"]
            assert {where.partition: place.offset for where, place in offsets.items()} == found
            assert sum(place.reread for place in offsets.values()) == again
            [view] = (await read_groups(world.settings())).views
            assert view.reread == again
            assert {place.target_partition: place.translated for place in view.places} == found
            assert {place.partition for place in view.places} == {0, 1, 3, 4, 6}

    asyncio.run(test())


@pytest.mark.usefixtures("own_worker")
def test_a_group_has_no_place_on_a_shared_partition_before_all_that_share_it_tell_one() -> None:
    """Of partition 6 nothing is copied yet, and the group has read on: it would be led past what comes of it."""

    async def test() -> None:
        async with a_world() as world, world.leader() as flow:
            await copy_all(world, flow, 3, partitions=(0, 1, 3))
            world.source.append("t", 6, new_records(0, 10))
            commits = {("t", p): (offset, "", -1) for p, offset in {0: 3, 3: 3, 6: 5, 1: 2, 4: 0}.items()}
            world.source.groups["g"] = FakeGroup(commits=commits)
            checkpoints = GroupCheckpoints(flow, OffsetSyncSync(flow))
            await checkpoints.sync()
            await checkpoints.read()
            found = {where[1]: offset for where, (offset, _, _) in world.target.groups["g"].commits.items()}
            assert found.keys() == {1}
            await store.read_on(flow.target, LEDGER, flow.ledger)
            known = Knowledge(flow.ledger, None)
            offsets = (await translate_groups(flow.target, "a", known, flow.flow.policy, lambda _: True))["g"]
            assert {where.partition: place.offset for where, place in offsets.items()} == found
            [view] = (await read_groups(world.settings())).views
            assert {place.target_partition: place.translated for place in view.places} == {0: None, **found}

    asyncio.run(test())


def test_of_two_claims_of_a_row_the_first_counts() -> None:
    ledger = Ledger(group_id=GROUP)
    for token, producer_id, row in (("a", 1, 0), ("b", 2, 1), ("c", 3, 1), ("d", 4, 0)):
        claim = ProducerClaim(
            token=token, producer_id=producer_id, source_cluster_id="S", target_cluster_id="T", row=row
        )
        ledger.take(*claim.encode(GROUP))
    found = [ledger.claim_of(row) for row in range(3)]
    assert [claim.producer_id if claim else None for claim in found] == [1, 2, None]


def test_source_partitions_that_come_later_stand_beside_those_that_were_there() -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader() as flow:
                world.source.topics["t"].partitions += world.source.create("more", 3).partitions
                await flow.topics.discover()
                moduli = [flow.entries["t", p].modulo for p in range(10)]
                assert moduli == [3] * 10
                assert len(flow.assignments.terms().producer_ids) == 4
            assert len(world.target.topics["a.t"].partitions) == 3

    asyncio.run(test())


@pytest.mark.parametrize("remap", ["none", "modulo"])
def test_a_target_that_was_made_anew_is_spread_by_its_own_number(remap: str) -> None:
    async def test() -> None:
        async with a_world() as world:
            async with world.leader():
                pass
            world.target.create("a.t", 7 if remap == "none" else 4)
            world.remap = remap
            async with world.leader() as flow:
                moduli = {entry.modulo for entry in flow.entries.values()}
                assert moduli == ({SAME} if remap == "none" else {4})
                assert {entry.count for entry in flow.entries.values()} == {1}
                targets = [item.target.partition for item in flow.assignments.all()]
                assert targets == (list(range(7)) if remap == "none" else [0, 1, 2, 3, 0, 1, 2])

    asyncio.run(test())
