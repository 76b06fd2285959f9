"""More source than target partitions: who stands where, how copies that share one settle, where groups go on."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Mapping
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from heliograph.client.checkpoints import Translated
from heliograph.client.ledger import Knowledge, _translated
from heliograph.config import parse_settings
from heliograph.config.settings import Flow
from heliograph.control.checkpoints import GroupPosition, group_position, last_of, plan_checkpoints
from heliograph.driver.plan import plan_epoch, together, useful_lanes
from heliograph.errors import DataError
from heliograph.flow.partition_mapping import PartitionMapping
from heliograph.kafka.admin.commits import Commit
from heliograph.kafka.catalogue import Catalogue, PartitionMeta, TopicMeta
from heliograph.kafka.types import TopicPartition
from heliograph.lane.partition_copy import PartitionCopy
from heliograph.lane.settling import Settled, settle
from heliograph.lane.shared_target import share_targets
from heliograph.ledger.counts import source_at
from heliograph.ledger.ledger import Ledger
from heliograph.ledger.mm2.internal_records import Checkpoint
from heliograph.ledger.model import Assignment, PartitionName
from heliograph.ledger.partition_remap import ROWS_OF_A_TURN, SAME, plan_modulo, row_of, target_partition
from heliograph.ledger.records.entry import Entry, EntryRecord, encode_entry, encode_entry_key
from heliograph.ledger.records.page import encode_page
from heliograph.ledger.records.seen_group import GroupCommit
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.tail import Unsettled, read_tails
from heliograph.ledger.translation import Grade, JointTranslation, Translation, neighbours_in, uncommitted
from tests.unit.helpers.logs import ENTRY, MemoryLog, plain_batch

GROUP, LEDGER, OFFSETS = "a-mm2", "mm2-ledger.a.internal", "mm2-offsets.a.internal"
CHECKPOINTS = "a.checkpoints.internal"
CONFIG = """\
clusters = a, b
a.bootstrap.servers = a:9092
b.bootstrap.servers = b:9092
a->b.enabled = true
a->b.topics = t
"""


# -- the rule ------------------------------------------------------------------------------


@given(sources=st.integers(1, 60), targets=st.integers(1, 20))
def test_copies_of_one_target_partition_stand_in_different_rows(sources: int, targets: int) -> None:
    places = [(target_partition(p, targets), row_of(p, targets)) for p in range(sources)]
    assert len(set(places)) == sources
    assert all(target < targets for target, _ in places)
    assert places[:targets] == [(p, 0) for p in range(min(sources, targets))], "the first row is where it always was"


partitions = st.integers(0, 9) | st.integers(0, (1 << 31) - 1)
copies = st.tuples(partitions, st.integers(0, 3))


@given(one=copies, other=copies, modulo=st.integers(0, 4) | st.integers(0, (1 << 31) - 1))
def test_in_a_target_partition_every_copy_has_a_row_of_its_own_in_every_turn(
    one: tuple[int, int], other: tuple[int, int], modulo: int
) -> None:
    """Whatever the topic grows to: the same id in the same place is the same copy in the same turn."""
    places = [(target_partition(p, modulo), row_of(p, modulo, turn)) for p, turn in (one, other)]
    assert (places[0] == places[1]) is (one == other)


def test_without_the_setting_a_partition_that_the_target_lacks_has_no_place() -> None:
    wanted = [plan_modulo(p, sources=7, targets=3, in_use=SAME, remaps=False) for p in range(7)]
    assert wanted == [SAME] * 3 + [None] * 4


def test_with_it_a_target_that_has_as_many_is_used_as_ever() -> None:
    assert {plan_modulo(p, sources=3, targets=5, in_use=SAME, remaps=True) for p in range(3)} == {SAME}
    assert {plan_modulo(p, sources=7, targets=3, in_use=SAME, remaps=True) for p in range(7)} == {3}


def flow_of(remap: str) -> Flow:
    return parse_settings(CONFIG + f"partition.remap = {remap}\n").flows[0]


def catalogue(name: str, partitions: int, topic_id: int) -> Catalogue:
    meta = TopicMeta(name, UUID(int=topic_id), tuple(PartitionMeta(0, 0, (0,), (0,)) for _ in range(partitions)))
    return Catalogue(cluster_id="c", brokers={}, topics={name: meta})


steps = st.lists(
    st.tuples(
        st.sampled_from(["modulo", "modulo", "none"]),
        st.integers(0, 4),
        st.integers(0, 3),
        st.booleans(),
        st.sets(st.integers(0, 20)),
    ),
    min_size=1,
    max_size=8,
)


@given(steps=steps, sources=st.integers(1, 8), targets=st.integers(1, 4))
def test_whatever_grows_and_whatever_is_set_no_two_copies_meet_under_one_id_and_none_moves(
    steps: list[tuple[str, int, int, bool, set[int]]], sources: int, targets: int
) -> None:
    known: dict[PartitionName, Entry] = {}
    target_id = 1
    for setting, more_sources, more_targets, is_anew, late in steps:
        sources, targets = sources + more_sources, targets + more_targets
        if is_anew:
            target_id, targets = target_id + 1, max(1, targets - 3)
        if setting == "none":
            targets = max(targets, sources - 1)  # grown, and then the source grew again
        target = catalogue("a.t", targets, target_id)
        places = PartitionMapping(flow_of(setting), known, source=catalogue("t", sources, 99), target=target)
        current = UUID(int=target_id).hex
        for where in places.present(["t"], begun=known):
            modulo, entry = places.modulo(where), known.get(where)
            assert modulo is not None
            if entry is not None and entry.target_topic_id == current:
                assert modulo == entry.modulo
            elif where[1] not in late:  # those have no leader now, and are seen to later
                known[where] = ENTRY.moved(target_topic_id=current, modulo=modulo)
        rows = places.rows({where: entry.count for where, entry in known.items()})
        assert rows >= {row_of(p, entry.modulo) for (_, p), entry in known.items() if entry.target_topic_id == current}
        taken = [
            (target_partition(p, entry.modulo), row_of(p, entry.modulo))
            for (_, p), entry in known.items()
            if entry.target_topic_id == current
        ]
        assert len(set(taken)) == len(taken)
        assert all(place < targets for place, _ in taken)


def test_a_target_that_grows_leaves_copies_where_they_are_and_that_is_said() -> None:
    known = {("t", p): ENTRY.moved(target_topic_id=UUID(int=1).hex, modulo=3) for p in range(7)}
    places = PartitionMapping(flow_of("modulo"), known, source=catalogue("t", 8, 9), target=catalogue("a.t", 5, 1))
    assert [places.target(("t", p)) for p in (4, 7)] == [TopicPartition("a.t", 1), TopicPartition("a.t", 1)]
    assert places.rows({("t", 7): 0, ("t", 1): 32767}) == {2, 0}
    assert places.rows({("t", 7): 32768}) == {ROWS_OF_A_TURN + 2}
    [(topic, text)] = places.remapped(["t"])
    assert topic == "t"
    assert "8 partitions are copied into 3" in text
    assert "has 5 by now" in text


def test_an_entry_of_an_older_release_has_the_number_of_its_source() -> None:
    entry = ENTRY.moved(modulo=3)
    assert b'"mod":3' in encode_entry(entry)
    key = encode_entry_key(GROUP, "t", 4)
    for one in (entry, ENTRY):
        word = parse_ledger(GROUP, key, encode_entry(one))
        assert isinstance(word, EntryRecord)
        assert word.entry == one
    assert b"mod" not in encode_entry(ENTRY)
    assert parse_ledger(GROUP, key, encode_entry(ENTRY.moved(modulo=-3))) is None
    assert [row_of(p, m) for p, m in itertools.product((4, 7), (0, 3))] == [0, 1, 0, 2]


# -- plan ----------------------------------------------------------------------------------


def spread(sources: int, targets: int) -> list[Assignment]:
    return [
        Assignment(
            flow="a->b",
            topic="t",
            partition=p,
            target_topic="a.t",
            entry=ENTRY.moved(modulo=targets),
            max_message_bytes=1 << 20,
        )
        for p in range(sources)
    ]


@given(sources=st.integers(1, 30), targets=st.integers(1, 8), tasks=st.integers(1, 8), slots=st.integers(1, 8))
def test_copies_into_one_target_partition_are_in_one_lane(sources: int, targets: int, tasks: int, slots: int) -> None:
    items = spread(sources, targets)
    plan = plan_epoch(1, items, rates={}, tasks_max={"a->b": tasks}, slots=slots)
    lanes = [{item.target for item in lane} for lane in plan.lanes]
    assert sum(map(len, lanes)) == len(set().union(*lanes))
    assert sorted(item.partition for lane in plan.lanes for item in lane) == list(range(sources))
    assert len(plan.lanes) == min(slots, useful_lanes({"a->b": len(together(items))}, {"a->b": tasks}))


# -- settling together ---------------------------------------------------------------------

IDS = [4711, 5001, 5002]


def copies_of(count: int, entries: Mapping[int, Entry] | None = None) -> list[PartitionCopy]:
    made = []
    for assignment in spread(count, 1):
        entry = (entries or {}).get(assignment.partition, assignment.entry)
        copy = PartitionCopy(assignment, producer_id=IDS[assignment.partition], read_committed=False, codec=None)
        copy.settled(entry)
        made.append(copy)
    share_targets(made)
    return made


def copy_in_turns(order: list[int], sources: list[MemoryLog], target: MemoryLog) -> list[dict[int, Entry]]:
    """Copy by an order of turns into one partition of the target; all entries after every piece."""
    copies = copies_of(len(sources))
    for copy, source in zip(copies, sources, strict=True):
        copy.take(source.fetched(0))
    history = [{index: copy.entry for index, copy in enumerate(copies)}]
    for index in order:
        piece = copies[index].next_piece(now_ms=0, small_bytes=0)
        if piece is None:
            continue
        copies[index].acknowledged(target.append(piece.data))
        if (shared := copies[0].shared) is not None:
            shared.offset = target.end
        history.append({at: copy.entry for at, copy in enumerate(copies)})
    return history


def settle_all(entries: Mapping[int, Entry], sources: list[MemoryLog], target: MemoryLog) -> list[Settled]:
    async def settled() -> list[Settled]:
        copies = [Unsettled(item, entries[item.partition], IDS[item.partition]) for item in spread(len(sources), 1)]
        tails = await read_tails(copies, target.end, ours=IDS, target=target)
        found = []
        for copy, tail, source in zip(copies, tails, sources, strict=True):
            assert not isinstance(tail, DataError), tail
            found.append(await settle(copy, tail, target.end, source))
        return found

    return asyncio.run(settled())


def make_sources(shapes: list[list[int]]) -> list[MemoryLog]:
    sources = []
    for counts in shapes:
        source, number = MemoryLog(), 0
        for count in counts:
            source.append(plain_batch(number, count))
            number += count
        sources.append(source)
    return sources


shapes_of_sources = st.lists(st.lists(st.integers(1, 4), min_size=0, max_size=6), min_size=2, max_size=3)
orders = st.lists(st.integers(0, 2), max_size=24)


@given(shapes=shapes_of_sources, order=orders, strangers=st.booleans(), data=st.data())
def test_whatever_entry_each_copy_has_settling_finds_how_far_all_of_them_got(
    shapes: list[list[int]], order: list[int], strangers: bool, data: st.DataObject
) -> None:
    sources, target = make_sources(shapes), MemoryLog()
    history = copy_in_turns([index % len(sources) for index in order], sources, target)
    last = history[-1]
    if strangers:
        target.append(plain_batch(0, 2))
    entries = {}
    for index in last:
        entry = history[data.draw(st.integers(0, len(history) - 1))][index]
        if data.draw(st.booleans()):  # it kept up with its neighbours, as far as some later moment
            at = data.draw(st.integers(0, len(history) - 1))
            others = max(history[at][other].target_offset for other in last)
            if history[at][index].n == entry.n and others > entry.target_offset:
                entry = entry.moved(run_source=entry.source_offset, run_target=others, target_offset=others)
        entries[index] = entry
    for index, settled in enumerate(settle_all(entries, sources, target)):
        assert settled.entry.n == last[index].n
        assert settled.entry.source_offset == last[index].source_offset
        assert settled.entry.target_offset == target.end
        assert settled.foreign == (2 if strangers else 0)
        assert settled.found == last[index].n - entries[index].n


def test_a_copy_that_settles_while_others_copy_leaves_the_end_to_their_answers() -> None:
    first, second, third = copies_of(3)
    shared = first.shared
    assert shared is not None
    second.doubt(DataError("x"))
    third.doubt(DataError("x"))
    shared.settled(first)
    assert shared.offset == 0
    shared.offset = 50
    second.entry = ENTRY.moved(target_offset=20)
    shared.settled(second)
    assert shared.offset == 50
    first.doubt(DataError("x"))
    shared.settled(second)
    assert shared.offset == 20, "nobody else copies: what the target says counts"


# -- translation ---------------------------------------------------------------------------


class Shared:
    """Source partitions copied into one of the target in some order; the ledger beside the model of every record."""

    def __init__(self, turns: list[tuple[int, int]], sources: int) -> None:
        self.log: list[tuple[int, int]] = []
        """(source partition, source offset), by target offset."""
        self.ledger = Ledger(group_id=GROUP)
        self.ends = [0] * sources
        copies = copies_of(sources) if sources <= len(IDS) else []
        for partition, count in turns:
            copy, start = copies[partition], self.ends[partition]
            log = MemoryLog()
            log.end = start
            log.append(plain_batch(start, count))
            copy.take(log.fetched(start))
            piece = copy.next_piece(now_ms=0, small_bytes=0)
            assert piece is not None
            copy.acknowledged(len(self.log))
            self.log += ((partition, start + i) for i in range(count))
            self.ends[partition] += count
            shared = copy.shared
            assert shared is not None
            shared.offset = len(self.log)
        self.copies = copies

    def flush(self, *, level: bool) -> None:
        if level and (shared := self.copies[0].shared) is not None:
            shared.advance_idle_copies()
        for partition, copy in enumerate(self.copies):
            where = ("t", partition)
            for page in copy.pages():
                self.ledger.take(*encode_page(GROUP, *where, page.start, page))
            self.ledger.take(encode_entry_key(GROUP, *where), encode_entry(copy.entry))

    def goes_on(self, commits: Mapping[int, int]) -> Translated:
        found = {TopicPartition("t", p): GroupCommit(offset, "") for p, offset in commits.items()}
        remote = TopicPartition("a.t", 0)
        offsets = _translated(
            Knowledge(self.ledger, None), dict.fromkeys(found, remote), found, {remote: (0, len(self.log))}
        )
        return offsets[remote]


turns_of = st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), min_size=1, max_size=20)


@given(turns=turns_of, level=st.booleans(), data=st.data())
def test_a_group_on_shared_partitions_skips_nothing_and_what_it_reads_again_is_counted(
    turns: list[tuple[int, int]], level: bool, data: st.DataObject
) -> None:
    shared = Shared(turns, 3)
    shared.flush(level=level)
    commits = {p: data.draw(st.integers(0, end)) for p, end in enumerate(shared.ends)}
    found = shared.goes_on(commits)
    before, behind = shared.log[: found.offset], shared.log[found.offset :]
    assert all(offset < commits[p] for p, offset in before), "nothing that it has not read stands before"
    assert found.offset <= len(shared.log)
    assert found.reread == sum(offset < commits[p] for p, offset in behind)
    if found.reread:
        assert found.grade == "shared"
    unread = [at for at, (p, offset) in enumerate(shared.log) if offset >= commits[p]]
    if unread:
        assert found.offset == unread[0] or all(
            offset < commits[p] for p, offset in shared.log[found.offset : unread[0]]
        )
    elif level:
        assert (found.offset, found.reread) == (len(shared.log), 0), "who has read all goes on at the end"


@given(turns=turns_of, data=st.data())
def test_records_between_two_target_offsets_are_counted_by_source_partition(
    turns: list[tuple[int, int]], data: st.DataObject
) -> None:
    shared = Shared(turns, 3)
    shared.flush(level=data.draw(st.booleans()))
    start = data.draw(st.integers(0, len(shared.log)))
    ends = {("t", p): data.draw(st.integers(0, len(shared.log))) for p in range(3)}
    expected = sum(p == where[1] for where, end in ends.items() for p, _ in shared.log[start:end])
    copied = {where: shared.ledger.partition(where).copied_between(start, end) for where, end in ends.items()}
    assert sum(copied.values()) == expected


@given(turns=turns_of, data=st.data())
def test_a_target_that_lost_its_end_is_filled_again_from_the_first_record_it_lost(
    turns: list[tuple[int, int]], data: st.DataObject
) -> None:
    shared = Shared(turns, 3)
    shared.flush(level=data.draw(st.booleans()))
    end = data.draw(st.integers(0, len(shared.log)))
    for p, copy in enumerate(shared.copies):
        pages = shared.ledger.partition(("t", p)).pages
        found = source_at(end, copy.entry, copy.page, pages)
        kept = [offset for partition, offset in shared.log[:end] if partition == p]
        assert (found or 0) == len(kept)


def ledger_with(moduli: Mapping[int, int]) -> Ledger:
    ledger = Ledger(group_id=GROUP)
    for p, modulo in moduli.items():
        ledger.partition(("t", p)).take_entry(ENTRY.moved(modulo=modulo))
    return ledger


def test_neighbours_are_those_that_share_a_target_partition_also_if_some_came_before_remapping() -> None:
    ledger = ledger_with({0: 0, 1: 0, 2: 0, 3: 3, 4: 3, 6: 3})
    assert neighbours_in(ledger.entries) == {
        ("t", 0): (("t", 0), ("t", 3), ("t", 6)),
        ("t", 3): (("t", 0), ("t", 3), ("t", 6)),
        ("t", 6): (("t", 0), ("t", 3), ("t", 6)),
        ("t", 1): (("t", 1), ("t", 4)),
        ("t", 4): (("t", 1), ("t", 4)),
    }
    assert neighbours_in(ledger_with({0: 0, 1: 0}).entries) == {}


def test_a_group_without_a_commit_beside_one_is_to_be_given_a_place() -> None:
    near = neighbours_in(ledger_with(dict.fromkeys(range(7), 3)).entries)
    assert uncommitted([TopicPartition("t", 3), TopicPartition("t", 6)], near) == {TopicPartition("t", 0)}
    assert uncommitted([TopicPartition("t", 3)], {}) == set()


def test_a_shared_checkpoint_goes_back_with_any_of_its_partitions() -> None:
    where = TopicPartition("a.t", 0)
    before = Checkpoint(group="g", topic="a.t", partition=0, upstream=5, downstream=105, metadata="")
    low_at, high_at = TopicPartition("t", 0), TopicPartition("t", 3)
    found = JointTranslation(low_at, {high_at: Translation(140), low_at: Translation(90, Grade.DEGRADED)})
    low = group_position({high_at: Commit(40), low_at: Commit(9)}, found, {high_at: 300, low_at: 200})
    assert low == GroupPosition(9, 90, "", 300, is_shared=True)
    assert [item.downstream for item in plan_checkpoints({("g", where): low}, last_of([before]))] == [90]
    alone = GroupPosition(9, 90, "", 300)
    assert plan_checkpoints({("g", where): alone}, last_of([before])) == [], "MirrorMaker 2's rule, where it is one"
