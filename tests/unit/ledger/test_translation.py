"""Where groups go on: the lowest translation where partitions share one, MirrorMaker 2's rule where that is set."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.client import MirrorClient, Translated
from heliograph.config import parse_settings
from heliograph.config.settings import Settings
from heliograph.kafka.batch import NewRecord
from heliograph.kafka.types import TopicPartition
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import OffsetSync
from heliograph.ledger.mm2.offset_syncs import SyncStore
from heliograph.ledger.records.entry import EntryRecord
from heliograph.ledger.records.producer_claim import ProducerClaim
from heliograph.ledger.records.seen_group import GroupCommit, SeenGroup
from heliograph.ledger.translation import Grade, Translation, keep_syncs, lowest_translations
from heliograph.views import groups as module
from heliograph.views.groups import GroupPlace, GroupViews, read_groups
from tests.fake_cluster import FakeCluster
from tests.fake_cluster.group import FakeGroup
from tests.unit.helpers.logs import ENTRY, new_records

GROUP, LEDGER = "a-mm2", "mm2-ledger.a.internal"
ON_SOURCE, ON_TARGET = "mm2-offset-syncs.b.internal", "mm2-offset-syncs.a.internal"
COMMITTED, BY_LEDGER, BY_SYNCS = 57, 57, 51
"""The group has read 57 of 100 copied records; the nearest sync is at 50, and what follows it is read again."""
ALL_COPIED = ENTRY.moved(n=100, source_offset=100, target_offset=100, our_end=100, run_source=0, run_target=0)
CLAIM = ProducerClaim(token="t", producer_id=5, source_cluster_id="cluster-a", target_cluster_id="cluster-b")
SEEN = SeenGroup(
    group="g", state="Empty", kind="classic", time_ms=1, commits={TopicPartition("t", 0): GroupCommit(COMMITTED, "m")}
)
SYNCS = [OffsetSync(topic="t", partition=0, upstream=offset, downstream=offset) for offset in (0, 50)]


# -- the lowest of several ---------------------------------------------------------------------


def targets(where: TopicPartition) -> TopicPartition:
    return TopicPartition("a.t", where.partition % 2)


def test_the_lowest_translation_counts_where_source_partitions_share_a_target_partition() -> None:
    zero, one, two = (TopicPartition("t", partition) for partition in range(3))
    parts = {zero: Translation(90), one: Translation(7), two: Translation(40, Grade.AHEAD, 3)}
    found = lowest_translations(parts, targets)
    assert {where.partition: (item.lowest, item.offset, item.is_shared) for where, item in found.items()} == {
        0: (two, 40, True),
        1: (one, 7, False),
    }


def test_a_target_partition_has_no_place_before_all_that_share_it_have_one() -> None:
    parts = {
        TopicPartition("t", 0): Translation(90),
        TopicPartition("t", 1): Translation(7),
        TopicPartition("t", 2): None,
    }
    assert {where.partition for where in lowest_translations(parts, targets)} == {1}


@given(st.dictionaries(st.integers(0, 9), st.none() | st.integers(0, 9)))
def test_no_group_is_led_past_the_translation_of_any_of_its_partitions(offsets: dict[int, int | None]) -> None:
    parts = {
        TopicPartition("t", p): Translation(offset) if offset is not None else None for p, offset in offsets.items()
    }
    found = lowest_translations(parts, targets)
    for where, part in parts.items():
        joint = found.get(targets(where))
        assert joint is None or (part is not None and joint.offset <= part.offset)
    for joint in found.values():
        assert joint.offset in [part.offset for part in joint.parts.values()]


# -- MirrorMaker 2's rule ----------------------------------------------------------------------


def known() -> Ledger:
    ledger = Ledger(group_id=GROUP)
    ledger.take(*EntryRecord(topic="t", partition=0, entry=ALL_COPIED).encode(GROUP))
    ledger.take(*EntryRecord(topic="t", partition=1, entry=ALL_COPIED.moved(modulo=1)).encode(GROUP))
    return ledger


def test_offset_syncs_translate_where_they_are_given_but_for_remapped_partitions() -> None:
    stores: dict[tuple[str, int], SyncStore] = {}
    keep_syncs(stores, SYNCS)
    assert known().translate(("t", 0), COMMITTED) == Translation(BY_LEDGER)
    assert known().translate(("t", 0), COMMITTED, syncs=stores) == Translation(BY_SYNCS, Grade.DEGRADED)
    assert known().translate(("t", 0), COMMITTED, syncs={}) is None
    assert known().translate(("t", 1), COMMITTED, syncs=stores) == Translation(BY_LEDGER)


class MirroredGroup:
    """A group that has read 57 of 100 records on "a", all of them copied to "b"; offset syncs stand on both."""

    def __init__(self) -> None:
        self.source = FakeCluster("a", topics={"t": 1, ON_SOURCE: 1})
        self.target = FakeCluster("b", topics={"a.t": 1, LEDGER: 1, ON_TARGET: 1})
        self.source.groups["g"] = FakeGroup(commits={("t", 0): (COMMITTED, "m", -1)})
        self.source.append("t", 0, new_records(0, 100))
        self.target.append("a.t", 0, new_records(0, 100))
        ledger = [CLAIM, EntryRecord(topic="t", partition=0, entry=ALL_COPIED), SEEN]
        self.target.append(LEDGER, 0, [NewRecord(0, *record.encode(GROUP)) for record in ledger])
        for cluster, topic in ((self.source, ON_SOURCE), (self.target, ON_TARGET)):
            cluster.append(topic, 0, [NewRecord(0, *sync.encode()) for sync in SYNCS])

    def settings(self, more: str) -> Settings:
        source, target = (cluster.bootstrap[0].port for cluster in (self.source, self.target))
        return parse_settings(
            f"clusters = a, b\na->b.enabled = true\na->b.topics = t\nb.group.id = {GROUP}\n"
            f"a.bootstrap.servers = 127.0.0.1:{source}\nb.bootstrap.servers = 127.0.0.1:{target}\n{more}"
        )


@asynccontextmanager
async def mirrored_group() -> AsyncIterator[MirroredGroup]:
    world = MirroredGroup()
    async with world.source, world.target:
        yield world


MM2 = "a->b.offset.translation = mm2\n"
MM2_ON_TARGET = f"{MM2}a->b.offset-syncs.topic.location = target\n"


def translated_by_client(more: str) -> tuple[Translated, Translated]:
    """Return what the client says of the group, and of its offset."""

    async def test() -> tuple[Translated, Translated]:
        async with mirrored_group() as world:
            settings = world.settings(more)
            client = MirrorClient.of_flow(settings, settings.flows[0])
            [group] = (await asyncio.to_thread(client.translate_offsets, "a", "g", 10.0, "ledger")).values()
            [position] = (await asyncio.to_thread(client.translate_positions, "a", {("t", 0): COMMITTED})).values()
            return group, position

    return asyncio.run(test())


def shown(more: str, *, source_dies: bool = False) -> tuple[GroupPlace, GroupViews]:
    async def test() -> GroupViews:
        async with mirrored_group() as world:
            settings = world.settings(more)
            if source_dies:
                await world.source.brokers[1].stop()
            return await read_groups(settings)

    found = asyncio.run(test())
    [view] = found.views
    [place] = view.places
    return place, found


@pytest.mark.parametrize(("more", "offset", "grade"), [("", BY_LEDGER, "exact"), (MM2_ON_TARGET, BY_SYNCS, "degraded")])
def test_the_client_translates_by_the_rule_that_is_set(more: str, offset: int, grade: str) -> None:
    for found in translated_by_client(more):
        assert (found.offset, found.grade, found.upstream) == (offset, grade, COMMITTED)


def test_a_client_that_has_the_target_alone_says_that_it_cannot_read_the_offset_syncs(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        group, position = translated_by_client(MM2)
    assert (group.offset, position.offset) == (BY_LEDGER, BY_LEDGER)
    assert 'the offset syncs stand on "a": offsets are translated by the ledger' in caplog.text


@pytest.mark.parametrize(
    ("more", "offset", "grade"),
    [("", BY_LEDGER, "exact"), (MM2, BY_SYNCS, "degraded"), (MM2_ON_TARGET, BY_SYNCS, "degraded")],
    ids=["exact", "mm2, syncs on the source", "mm2, syncs on the target"],
)
def test_groups_are_shown_where_the_rule_that_is_set_leads_them(more: str, offset: int, grade: str) -> None:
    place, found = shown(more)
    assert (place.translated, place.grade) == (offset, grade)
    assert not found.problems


def test_groups_of_a_dead_source_that_has_the_offset_syncs_are_translated_by_the_ledger(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "SOURCE_PATIENCE_S", 1.0)
    place, found = shown(MM2, source_dies=True)
    assert (place.translated, place.grade) == (BY_LEDGER, "exact")
    assert found.problems == ['a->b: offset syncs on "a" cannot be read, so the ledger translates: it does not answer']
