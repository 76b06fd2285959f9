"""Clusters that mirror each other under the same topic names: every record everywhere once, and no loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from heliograph.lab import LabCluster
from tests.cluster.carried import CARRY, IDENTITY
from tests.cluster.consumers import commit, committed
from tests.cluster.kills import SLOW_START_S, TWO_DAYS_MS
from tests.cluster.load import Load
from tests.cluster.mirror import MirrorProcess, Record, View, create_topic, produce, unique

pytestmark = pytest.mark.long  # some starts of Spark, minutes in all

MARK = "heliograph.from"
PARTITIONS = 2
KINDS: Mapping[str, Mapping[str, Any]] = {
    "fresh": {},
    "single": {"batch_num_messages": 1},
    "lz4": {"compression_type": "lz4"},
    "old": {"age_ms": TWO_DAYS_MS},
}
SAME_NAMES = {"replication.policy.class": IDENTITY, "provenance.headers": "true", "tasks.max": "2"}
NO_SYNC = {"sync.topic.configs.enabled": "false", "sync.topic.acls.enabled": "false"}


def own(records: list[Record]) -> list[Record]:
    """Those that were produced where they stand."""
    return [record for record in records if not record.headers]


def copies(records: list[Record]) -> list[Record]:
    return [record for record in records if record.headers]


def assert_once_on_both(here: View, there: View) -> int:
    """What `there` has of the other's is what was produced `here`, once and in order; how many records that is."""
    found = 0
    for wanted, seen in zip(here.read(), there.read(), strict=True):
        produced, arrived = own(wanted), copies(seen)
        assert [(record.timestamp, record.key, record.value) for record in arrived] == [
            (record.timestamp, record.key, record.value) for record in produced
        ]
        assert len({record.headers for record in arrived}) == 1
        [(name, value)] = arrived[0].headers
        assert name == MARK
        assert value is not None
        assert value.endswith(f"/{here.topic}".encode())
        found += len(arrived)
    return found


def is_up_to_date(mirror: MirrorProcess, flow: str) -> bool:
    lines = [line for line in mirror.stdout if f" {flow}: " in line and "lag" in line]
    return bool(lines) and "lag 0 records, up to date" in lines[-1]


@pytest.mark.timeout(600)
def test_both_ways_under_load_with_a_kill_in_the_middle(
    primary: LabCluster, backup: LabCluster, tmp_path: Path
) -> None:
    prefix = unique("names")
    topics = {kind: f"{prefix}-{kind}" for kind in KINDS}
    for topic in topics.values():
        for cluster in (primary, backup):
            create_topic(cluster, topic, PARTITIONS)
    sides = {"primary": primary, "backup": backup}
    flows = ("primary->backup", "backup->primary")
    keys = {f"{flow}.topics": f"{prefix}-.*" for flow in flows}
    keys |= {f"primary->backup.{key}": value for key, value in CARRY.items()}
    keys |= {f"backup->primary.{key}": value for key, value in NO_SYNC.items()}
    mirror = MirrorProcess(tmp_path, sides, {**keys, **SAME_NAMES, "epoch.ms": "10000"})
    loads = {
        (alias, topics[kind]): Load(cluster, [topics[kind]], partitions=PARTITIONS, per_second=400, **config)
        for alias, cluster in sides.items()
        for kind, config in KINDS.items()
    }
    views = {where: View(sides[where[0]], where[1]) for where in loads}

    with killed_under_load(mirror, loads, views, partitions=PARTITIONS, more=200):
        written = dict.fromkeys(topics.values(), 0)
        for (_, topic), load in loads.items():
            written[topic] += load.written
        mirror.wait_until(
            lambda: all(view.counts() == [written[view.topic]] * PARTITIONS for view in views.values()),
            90,
            what=f"all records on both sides: {written}",
        )
        mirror.wait_until(lambda: all(is_up_to_date(mirror, flow) for flow in flows), 30, what="no lag")
        assert_group_is_exact(mirror, primary, backup, topics["fresh"])
        refuse_a_third(tmp_path, sides, prefix)
        compared = sum(
            assert_once_on_both(View(sides[here], topic), View(sides[there], topic))
            for topic in topics.values()
            for here, there in (("primary", "backup"), ("backup", "primary"))
        )
        assert compared == PARTITIONS * sum(written.values())
        mirror.wait_until(lambda: all(came_home(mirror, flow) for flow in flows), 30, what="a word of what came home")
        assert all(view.counts() == [written[view.topic]] * PARTITIONS for view in views.values()), "nothing goes round"
    assert "UNPROVEN" not in mirror.output
    assert "FOREIGN_WRITES:" not in mirror.output
    assert "Traceback" not in mirror.output
    for flow in flows:
        assert f"{flow}: records get the header" in mirror.output


def came_home(mirror: MirrorProcess, flow: str) -> bool:
    """Lanes tell it at the end of an epoch."""
    return any(f" {flow}: " in line and "not copied back" in line for line in mirror.stdout)


def assert_group_is_exact(mirror: MirrorProcess, primary: LabCluster, backup: LabCluster, topic: str) -> None:
    """Groups between records that came from the other side go on at the copy of the next one that did not."""
    source, target = View(primary, topic).read()[0], View(backup, topic).read()[0]
    produced, arrived = own(source), copies(target)
    place_of = {one.offset: other.offset for one, other in zip(produced, arrived, strict=True)}
    at_home = [record.offset for record in copies(source)]
    after_home = next(offset for one, offset in pairwise(at_home) if offset == one + 1)
    expected: dict[str, int] = {}
    for offset in (at_home[0], after_home, produced[len(produced) // 2].offset, at_home[len(at_home) // 2], 0):
        following = [record.offset for record in produced if record.offset >= offset]
        if following:
            group = unique("same")
            commit(primary, group, {(topic, 0): offset})
            expected[group] = place_of[following[0]]
    assert len(expected) >= 4
    mirror.wait_until(
        lambda: {group: committed(backup, group).get((topic, 0)) for group in expected} == expected,
        60,
        what=f"{expected}",
    )


def refuse_a_third(folder: Path, sides: Mapping[str, LabCluster], prefix: str) -> None:
    """A process with a file of its own that knows nothing of the others, and does not mark its records."""
    keys = {"primary->backup.topics": f"{prefix}-.*", "replication.policy.class": IDENTITY}
    with MirrorProcess(folder, sides, keys) as third:
        assert third.wait_exit(90) == 3
        assert "under the same name: records would go round for ever; set provenance.headers = true" in third.output


def test_a_cycle_without_marks_is_refused(primary: LabCluster, backup: LabCluster, tmp_path: Path) -> None:
    keys = {"primary->backup.topics": ".*", "backup->primary.topics": "orders", "replication.policy.class": IDENTITY}
    with MirrorProcess(tmp_path, {"primary": primary, "backup": backup}, keys) as mirror:
        assert mirror.wait_exit() == 3
        assert "flows with identity naming form a cycle: " in mirror.output
        assert f"{mirror.config}:" in mirror.output


def test_one_cluster_under_two_aliases_is_refused(primary: LabCluster, tmp_path: Path) -> None:
    other_name = primary.bootstrap.replace("127.0.0.1", "localhost")
    assert other_name != primary.bootstrap
    keys = {"one->two.topics": unique("same")}
    with MirrorProcess(tmp_path, {"one": primary, "two": other_name}, keys) as mirror:
        assert mirror.wait_exit(90) == 3
        assert '"one" and "two" are the same cluster' in mirror.output


@pytest.mark.timeout(300)
def test_a_ring_of_three_brings_every_record_everywhere_once(
    primary: LabCluster, backup: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    topic = unique("ring")
    sides = {"primary": primary, "backup": backup, "trio": trio}
    for index, cluster in enumerate(sides.values()):
        create_topic(cluster, topic)
        produce(cluster, topic, [b"%d of %d" % (number, index) for number in range(300)])
    flows = ("primary->backup", "backup->trio", "trio->primary")
    keys = {f"{flow}.topics": topic for flow in flows} | {
        f"trio->primary.{key}": value for key, value in NO_SYNC.items()
    }
    with MirrorProcess(tmp_path, sides, {**keys, **SAME_NAMES}) as mirror:
        views = [View(cluster, topic) for cluster in sides.values()]
        mirror.wait_until(lambda: all(view.counts() == [900] for view in views), SLOW_START_S, what="900 on each")
        mirror.wait_until(lambda: all(is_up_to_date(mirror, flow) for flow in flows), 30, what="no lag")
        assert [view.counts() for view in views] == [[900]] * 3, "nothing goes round"
        for view in views:
            [records] = view.read()
            for index in range(3):
                of_one = [record for record in records if (record.value or b"").endswith(b" of %d" % index)]
                assert [record.value for record in of_one] == [b"%d of %d" % (number, index) for number in range(300)]
            assert sorted({len(record.headers) for record in records}) == [0, 1, 2]


@contextmanager
def killed_under_load(
    mirror: MirrorProcess,
    loads: Mapping[tuple[str, str], Load],
    views: Mapping[tuple[str, str], View],
    *,
    partitions: int,
    more: int,
) -> Iterator[None]:
    """The mirror at work again, behind a kill that came while all loads were written, and so many more copies."""

    def arrived(where: tuple[str, str]) -> int:
        """Copies on one side, at least so many."""
        return sum(views[where].counts() or []) - partitions * loads[where].written

    with ExitStack() as running:
        for load in loads.values():
            running.enter_context(load)
        with mirror.until_killed():
            mirror.wait_until(lambda: min(map(arrived, loads)) > 100, SLOW_START_S, what="copies on all sides")
        before = {where: arrived(where) for where in loads}
        running.enter_context(mirror)
        mirror.wait_until(
            lambda: all(arrived(where) > count + more for where, count in before.items()),
            SLOW_START_S,
            what="more copies after the kill",
        )
        for load in loads.values():
            load.stop()
        yield


@pytest.mark.timeout(400)
def test_a_chain_in_both_directions_brings_every_record_everywhere_once_through_a_kill(
    primary: LabCluster, backup: LabCluster, trio: LabCluster, tmp_path: Path
) -> None:
    """Both ends write to the topics in the middle, as applications do there."""
    prefix = unique("chain")
    sides = {"primary": primary, "backup": backup, "trio": trio}
    ages_ms = {f"{prefix}-fresh": 0, f"{prefix}-old": TWO_DAYS_MS}
    for cluster in sides.values():
        for topic in ages_ms:
            create_topic(cluster, topic)
    flows = {"primary->backup": {}, "backup->trio": {}, "backup->primary": NO_SYNC, "trio->backup": NO_SYNC}
    keys = {f"{flow}.topics": f"{prefix}-.*" for flow in flows}
    keys |= {f"{flow}.{key}": value for flow, more in flows.items() for key, value in more.items()}
    mirror = MirrorProcess(tmp_path, sides, {**keys, **SAME_NAMES, "epoch.ms": "10000"})
    loads = {
        (alias, topic): Load(cluster, [topic], partitions=1, per_second=40, age_ms=age_ms)
        for alias, cluster in sides.items()
        for topic, age_ms in ages_ms.items()
    }
    views = {where: View(sides[where[0]], where[1]) for where in loads}

    with killed_under_load(mirror, loads, views, partitions=1, more=100):
        written = {topic: sum(loads[alias, topic].written for alias in sides) for topic in ages_ms}
        mirror.wait_until(
            lambda: all(view.counts() == [written[view.topic]] for view in views.values()),
            90,
            what=f"all records on all sides: {written}",
        )
        mirror.wait_until(lambda: all(is_up_to_date(mirror, flow) for flow in flows), 30, what="no lag")
        for (alias, topic), view in views.items():
            assert view.counts() == [written[topic]], "nothing goes round"
            [records] = view.read()
            assert_all_once_by_origin(records, [loads[other, topic].written for other in sides])
            assert {len(record.headers) for record in records} == ({0, 1} if alias == "backup" else {0, 1, 2})
    assert "NAME_REFUSED" not in mirror.output
    assert "UNPROVEN" not in mirror.output
    assert "Traceback" not in mirror.output


def assert_all_once_by_origin(records: list[Record], written: list[int]) -> None:
    """Of each cluster's, by the first mark, all numbers in their order."""
    numbers: dict[object, list[int]] = {}
    for record in records:
        origin = record.headers[0] if record.headers else None
        numbers.setdefault(origin, []).append(int((record.value or b"").rstrip(b".")))
    assert all(found == list(range(len(found))) for found in numbers.values())
    assert sorted(map(len, numbers.values())) == sorted(written)
