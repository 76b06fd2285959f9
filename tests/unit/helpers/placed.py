"""A flow between two fake clusters, of which positions are asked, set and begun with."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from heliograph.config import Settings, parse_settings
from heliograph.flow.flow import FlowDriver
from heliograph.kafka.batch import NewRecord, encode_batch
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.positions import encode_position_key, encode_position_value, parse_position
from heliograph.ledger.records.entry import encode_entry, encode_entry_key
from heliograph.ledger.records.lease import Lease, LeaseState, Process
from heliograph.recovery import positions
from heliograph.recovery.positions import Origin, Planner
from tests.fake_cluster import FakeCluster
from tests.unit.helpers.logs import new_records, row_of

GROUP, LEDGER, OFFSETS = "a-mm2", "mm2-ledger.a.internal", "mm2-offsets.a.internal"
INTERNAL = {LEDGER: 1, OFFSETS: 1, "mm2-configs.a.internal": 1, "mm2-status.a.internal": 1}


@asynccontextmanager
async def leading(settings: Settings) -> AsyncIterator[FlowDriver]:
    """The first flow, just come to lead, with nothing in memory but the ledger."""
    flow = FlowDriver(settings.flows[0], settings, is_local=True)
    try:
        await flow.source.refresh()
        await flow.target.refresh()
        flow.opening.ledger_topic = LEDGER
        await flow.prepare()
        yield flow
    finally:
        flow.close()


class PositionsOnFakes:
    """Topics `t`, with two partitions and ten and four records, and `u`, with three, on "a"; their mirrors on "b"."""

    def __init__(self) -> None:
        self.source = FakeCluster("a", topics={"t": 2, "u": 1})
        self.target = FakeCluster("b", topics={"a.t": 2, "a.u": 1, **INTERNAL})
        self.source.append("t", 0, new_records(0, 10))
        self.source.append("t", 1, new_records(0, 4))
        self.source.append("u", 0, new_records(0, 3))

    def text(self, more: str = "") -> str:
        source, target = (cluster.bootstrap[0].port for cluster in (self.source, self.target))
        return (
            "clusters = a, b\na->b.enabled = true\nreplication.factor = 1\noffset.storage.replication.factor = 1\n"
            "config.storage.replication.factor = 1\nstatus.storage.replication.factor = 1\n"
            f"a.bootstrap.servers = 127.0.0.1:{source}\nb.bootstrap.servers = 127.0.0.1:{target}\n{more}"
        )

    def settings(self, more: str = "") -> Settings:
        return parse_settings(self.text(more))

    @asynccontextmanager
    async def leader(self, more: str = "") -> AsyncIterator[FlowDriver]:
        """One that has just come to lead, with the ledger read."""
        async with leading(self.settings(more)) as flow:
            yield flow

    async def copy(self, flow: FlowDriver, topic: str, partition: int) -> None:
        """As a lane does, up to the end of the log."""
        where = (topic, partition)
        entry = flow.entries[where]
        records = list(self.source.partition(topic, partition).records())[entry.source_offset :]
        batch = encode_batch(
            [NewRecord(r.timestamp, r.key, r.value) for r in records],
            producer_id=flow.assignments.terms().producer_id,
            producer_epoch=entry.producer_epoch,
            base_sequence=entry.n,
        )
        self.target.partition(f"a.{topic}", partition).store(batch)
        end = entry.target_offset + len(records)
        moved = entry.moved(
            n=entry.n + len(records), source_offset=entry.source_offset + len(records), target_offset=end, our_end=end
        )
        key, value = encode_entry_key(GROUP, *where), encode_entry(moved)
        self.target.append(LEDGER, 0, [NewRecord(0, key, value)])
        self.store(moved.source_offset, topic, partition)
        await flow.epochs.take_rows([row_of(topic=topic, partition=partition, entry=moved, records=len(records))])

    def store(self, position: int, topic: str = "t", partition: int = 0) -> None:
        key = encode_position_key("a", topic, partition)
        self.target.append(OFFSETS, 0, [NewRecord(0, key, encode_position_value(position))])

    def stored(self) -> dict[tuple[str, int], int]:
        found: dict[tuple[str, int], int] = {}
        for record in self.target.partition(OFFSETS, 0).records():
            assert record.key is not None
            parsed = parse_position(record.key, record.value)
            assert parsed is not None
            (_, _, topic, partition), position = parsed
            found.pop((topic, partition), None)
            if position is not None:
                found[topic, partition] = position
        return found

    def ledger(self) -> Ledger:
        ledger = Ledger(group_id=GROUP)
        for record in self.target.partition(LEDGER, 0).records():
            ledger.take(record.key, record.value)
        assert not ledger.unreadable
        return ledger

    def lease(self, state: LeaseState, *, time_ms: int = 1, term: int = 9) -> None:
        """Somebody else's, of another host."""
        who = Process(owner="other", host="h9", pid=99)
        lease = Lease(holder=who, term=term, state=state, since_ms=0, time_ms=time_ms, lease_ms=400)
        self.target.append(LEDGER, 0, [NewRecord(0, *lease.encode(GROUP))])

    async def change(self, plan: Planner, more: str = "", *, execute: bool = True) -> positions.ChangedPositions:
        settings = self.settings(more)
        act = positions.apply_changes if execute else positions.plan_changes
        return await act(settings, settings.flows[0], plan)

    async def listed(self, more: str = "") -> dict[tuple[str, int], tuple[int | None, Origin]]:
        settings = self.settings(more)
        places, problem = await positions.list_places(settings, settings.flows[0])
        assert not problem
        return {(place.topic, place.partition): (place.position, place.origin) for place in places}


@asynccontextmanager
async def a_world() -> AsyncIterator[PositionsOnFakes]:
    world = PositionsOnFakes()
    async with world.source, world.target:
        yield world


def places(flow: FlowDriver) -> dict[tuple[str, int], int]:
    return {where: entry.source_offset for where, entry in sorted(flow.entries.items())}


def counts(flow: FlowDriver) -> dict[tuple[str, int], int]:
    return {where: entry.count for where, entry in sorted(flow.entries.items())}
