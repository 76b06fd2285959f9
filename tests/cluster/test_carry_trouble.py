"""Groups keep their place through kills, a lost ledger, and garbage in every internal topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.kafka.types import TopicPartition
from heliograph.lab import LabCluster
from heliograph.ledger.records.page import Page, PageRecord
from heliograph.ledger.records.table import parse_ledger
from heliograph.ledger.runs import PAGE_RUNS
from tests.cluster.carried import Carried, next_records, numbered
from tests.cluster.consumers import commit
from tests.cluster.mirror import View, delete_records, delete_topic, produce, producer, unique

LEDGER = "mm2-ledger.primary.internal"


@pytest.fixture
def carried(primary: LabCluster, backup: LabCluster, tmp_path: Path) -> Iterator[Carried]:
    world = Carried(tmp_path, primary, backup)
    yield world
    world.mirror.__exit__(None, None, None)


def transactions(cluster: LabCluster, topic: str, start: int, count: int) -> None:
    """So many records, two in a transaction: a run of two, a marker, a run of two, ..."""
    writer = producer(cluster, transactional_id=unique("tx"))
    writer.init_transactions()
    for number in range(start, start + count, 2):
        writer.begin_transaction()
        for value in (number, number + 1):
            writer.produce(topic, b"%d" % value, partition=0)
        writer.commit_transaction()


def check_translations(carried: Carried, topic: str, *, grade: str | None) -> list[int]:
    """Every offset leads to its next record, or degraded to one before it, never past it; the offsets not exact."""
    remote = f"primary.{topic}"
    [source], [target] = View(carried.primary, topic).read(), View(carried.backup, remote).read()
    degraded = []
    with carried.client() as client:
        for offset in range(source[-1].offset + 2):
            found = client.translate_positions("primary", {(topic, 0): offset})[TopicPartition(remote, 0)]
            wanted = next_records(source, offset)
            if found.grade == "exact":
                assert next_records(target, found.offset) == wanted, offset
            else:
                assert found.grade == "degraded"
                assert next_records(target, found.offset)[-len(wanted) or len(target) :] == wanted, offset
                degraded.append(offset)
    assert grade is None or bool(degraded) == (grade == "degraded")
    return degraded


def page_runs(carried: Carried, topic: str) -> dict[int, int]:
    """How many runs each page has that stands in the ledger, by the source offset that it begins at."""
    [records] = View(carried.backup, LEDGER).read()
    own = carried.mirror.keys["backup.group.id"]
    pages: dict[int, Page | None] = {}
    for record in records:
        match parse_ledger(own, record.key, record.value):
            case PageRecord(topic=of, start=start, page=page) if of == topic:
                pages[start] = page
    return {start: page.number for start, page in pages.items() if page is not None}


def test_a_killed_mirror_goes_on_and_so_do_its_checkpoints(carried: Carried) -> None:
    """What the source deletes meanwhile is pruned from the ledger, and translations are as before."""
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    first_page = 3 * PAGE_RUNS
    transactions(carried.primary, topic, 0, 280)
    commit(carried.primary, group, {(topic, 0): 10})
    carried.mirror.start()
    carried.wait_committed(group, {(remote, 0): 7})
    carried.mirror.wait_until(lambda: first_page in page_runs(carried, topic), 30, what="a second page")
    assert page_runs(carried, topic)[0] == PAGE_RUNS
    transactions(carried.primary, topic, 280, 20)
    carried.mirror.kill()
    transactions(carried.primary, topic, 300, 20)
    delete_records(carried.primary, topic, first_page)
    commit(carried.primary, group, {(topic, 0): 480})
    carried.mirror.start()
    carried.wait_committed(group, {(remote, 0): 320})
    carried.mirror.wait_until(lambda: page_runs(carried, topic)[0] == 0, 30, what="the pruning")
    check_translations(carried, topic, grade="exact")
    check_exposure(carried, topic)
    found = [item.downstream for item in carried.checkpoints(group)]
    assert (found[0], found[-1], sorted(found)) == (7, 320, found)


def check_exposure(carried: Carried, topic: str) -> None:
    """What comes to a paused flow is told as exposed, also when the mirror and the source are gone. Ends the mirror."""

    def exposed() -> tuple[int, bool, bool]:
        [row] = carried.rows("status")
        return row["exposed records"], row["exposed bytes"] > 0, row["exposed seconds"] > 0

    keys = carried.mirror.keys
    carried.mirror.write({**keys, "primary->backup.state": "paused"})
    carried.mirror.wait_for("primary->backup: paused", 30)
    assert exposed() == (0, False, False)
    produce(carried.primary, topic, numbered(50))
    carried.mirror.wait_until(lambda: exposed() == (50, True, True), 30, what="the exposure")
    carried.mirror.kill()
    carried.mirror.write({**keys, "primary.bootstrap.servers": "127.0.0.1:1"})
    assert exposed() == (50, True, True)
    carried.mirror.write(keys)


def test_a_lost_ledger_is_rebuilt_and_says_that_it_is_degraded(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(300))
    transactions(carried.primary, topic, 300, 10)
    commit(carried.primary, group, {(topic, 0): 120})
    carried.mirror.start()
    carried.wait_committed(group, {(remote, 0): 120})
    carried.mirror.wait_until(lambda: View(carried.backup, remote).counts() == [310], 30, what="the copy")
    carried.mirror.stop()
    delete_topic(carried.backup, LEDGER)
    produce(carried.primary, topic, numbered(20, 310))
    carried.mirror.start()
    carried.mirror.wait_for("the ledger does not say how: it was rebuilt from", 60)
    carried.mirror.wait_until(lambda: View(carried.backup, remote).counts() == [330], 60, what="the copy")
    commit(carried.primary, group, {(topic, 0): 320})
    carried.wait_committed(group, {(remote, 0): 315})
    carried.mirror.stop()
    degraded = check_translations(carried, topic, grade="degraded")
    assert max(degraded) < 316, "what was copied since is exact"
    found = [item.downstream for item in carried.checkpoints(group)]
    assert (found[0], found[-1], sorted(found)) == (120, 315, found)


def test_garbage_in_internal_topics_is_passed_over_counted_and_named(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(50))
    commit(carried.primary, group, {(topic, 0): 20})
    carried.mirror.start()
    carried.wait_committed(group, {(remote, 0): 20})
    carried.mirror.stop()
    checkpoints, syncs = "primary.checkpoints.internal", "mm2-offset-syncs.backup.internal"
    own = carried.mirror.keys["backup.group.id"]
    for name in (checkpoints, LEDGER, "mm2-offsets.primary.internal"):
        produce(carried.backup, name, [b"\x00\x01", b"", b"{}"], keys=[b"\xff\xff\xff", b"", b"[]"])
    broken = f'["entry","{own}","{topic}",0]'.encode(), f'["runs","{own}","{topic}",0,5]'.encode()
    produce(carried.backup, LEDGER, [b'{"v":1,"s":', b"\x01\x00\x00\xff"], keys=list(broken))
    produce(carried.primary, syncs, [b"\x00", b"12345678"], keys=[b"\x00\x01", b"x"])
    produce(carried.primary, topic, numbered(10, 50))
    carried.mirror.start()
    for name in (LEDGER, "mm2-offsets.primary.internal"):
        carried.mirror.wait_for(f'records of "{name}" could not be read', 60)
    carried.mirror.wait_for(f'3 records of "{checkpoints}" could not be read', 60)
    commit(carried.primary, group, {(topic, 0): 55})
    carried.wait_committed(group, {(remote, 0): 55})
    carried.mirror.stop()
    check_translations(carried, topic, grade="exact")
    client = carried.client()
    assert client.translate_offsets("primary", group)[TopicPartition(remote, 0)].offset == 55
    assert client.skipped[checkpoints] == 3
    assert client.translate_offsets("primary", group, by="ledger")[TopicPartition(remote, 0)].offset == 55
    assert client.skipped[LEDGER] >= 2
