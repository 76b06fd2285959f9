"""Consumer groups keep their place: one mirror carries all of them, each test has topics and groups of its own."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import pytest

from heliograph.kafka.types import TopicPartition
from heliograph.lab import LabCluster
from heliograph.ledger.mm2.internal_records import OffsetSync
from tests.cluster.carried import Carried, next_records, numbered
from tests.cluster.consumers import commit, committed, consume, consumer, delete_group, place_of, read
from tests.cluster.mirror import (
    View,
    create_topic,
    delete_records,
    delete_topic,
    partition_count,
    produce,
    producer,
    unique,
    wait_until,
)


@pytest.fixture(scope="module")
def carried(primary: LabCluster, backup: LabCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Carried]:
    world = Carried(tmp_path_factory.mktemp("carry"), primary, backup)
    with world.mirror:
        yield world


def test_groups_stand_at_their_next_record_where_the_targets_numbers_differ(carried: Carried) -> None:
    """The target begins at 30; groups stand at the start, in the middle and at the end. Metadata comes along."""
    name = unique(carried.name)
    remote = create_topic(carried.backup, f"primary.{name}")
    produce(carried.backup, remote, numbered(30))
    create_topic(carried.primary, name)
    produce(carried.primary, name, numbered(7))
    groups = {offset: carried.group() for offset in (0, 4, 7)}
    for offset, group in groups.items():
        commit(carried.primary, group, {(name, 0): offset}, metadata=f"at {offset}")
    for offset, group in groups.items():
        carried.wait_committed(group, {(remote, 0): 30 + offset})
        place = consumer(carried.backup, group).committed([_place(remote)], 30)[0]
        assert (place.metadata or "").rstrip("\0") == f"at {offset}"


def _place(topic: str) -> Any:
    from confluent_kafka import TopicPartition as Place  # the other one is ours

    return Place(topic, 0)


def test_every_offset_of_a_transactional_topic_is_translated_to_its_next_record(carried: Carried) -> None:
    """Markers and aborted records leave gaps on the source; the target has none."""
    topic = carried.topic()
    writer = producer(carried.primary, transactional_id=unique("tx"))
    writer.init_transactions()
    number = 0
    for size, is_kept in ((3, True), (2, False), (1, True), (4, True), (1, False), (5, True)):
        writer.begin_transaction()
        for _ in range(size):
            writer.produce(topic, b"%d" % number, partition=0)
            number += 1
        writer.flush()
        (writer.commit_transaction if is_kept else writer.abort_transaction)()
    remote = f"primary.{topic}"
    end = View(carried.primary, topic).counts()
    assert end is not None
    carried.mirror.wait_until(lambda: View(carried.backup, remote).counts() == [number], 30, what="the copy")
    group = carried.group()
    commit(carried.primary, group, {(topic, 0): 4})
    carried.wait_committed(group, {(remote, 0): 3})
    [source], [target] = View(carried.primary, topic).read(), View(carried.backup, remote).read()
    for offset in range(end[0] + 1):
        found = carried.client().translate_positions("primary", {(topic, 0): offset})[TopicPartition(remote, 0)]
        assert found.grade == "exact", offset
        assert next_records(target, found.offset) == next_records(source, offset), offset


def test_a_partition_without_records_keeps_offset_0_and_one_never_mirrored_is_left_alone(carried: Carried) -> None:
    topic, group = carried.topic(2), carried.group()
    elsewhere = create_topic(carried.primary, unique("elsewhere"))
    produce(carried.primary, topic, numbered(5))
    produce(carried.primary, elsewhere, numbered(5))
    commit(carried.primary, group, {(topic, 0): 5, (topic, 1): 0, (elsewhere, 0): 3})
    carried.wait_committed(group, {(f"primary.{topic}", 0): 5, (f"primary.{topic}", 1): 0})


def test_a_group_that_lives_on_the_target_keeps_its_own_offsets(carried: Carried) -> None:
    """Also when it has just left: it is further than the source's group, and none goes back."""
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(20))
    carried.wait_copied(topic)
    living = consumer(carried.backup, group)
    living.subscribe([remote])
    read(living, 3)
    living.commit(asynchronous=False)
    before = committed(carried.backup, group)
    commit(carried.primary, group, {(topic, 0): 15})
    carried.mirror.wait_for(f'group "{group}" has members on "backup"', 30)
    time.sleep(2.5)
    assert committed(carried.backup, group) == before
    read(living, 15)
    living.commit(asynchronous=False)
    ahead = committed(carried.backup, group)
    living.close()
    time.sleep(2.5)
    assert committed(carried.backup, group) == ahead
    commit(carried.primary, group, {(topic, 0): 19})
    carried.wait_committed(group, {(remote, 0): 19})


def test_a_consumer_that_comes_and_goes_is_never_set_back(carried: Carried) -> None:
    """The race that MM2 loses: a group that is read as alive and is empty when its offsets are written."""
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(60))
    commit(carried.primary, group, {(topic, 0): 1})
    carried.wait_committed(group, {(remote, 0): 1})
    carried.wait_copied(topic)
    stood = 1
    for turn in range(8):
        found = consume(carried.backup, group, remote, 5)
        assert found[0].offset() == stood, f"set back before turn {turn}"
        stood = place_of(found[-1])[1] + 1
        commit(carried.primary, group, {(topic, 0): stood - 3})
        time.sleep(0.3 * (turn % 4))
    time.sleep(1.5)
    assert committed(carried.backup, group) == {(remote, 0): stood}


def test_groups_of_the_new_protocol_are_carried_and_left_alone_when_they_live(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(20))
    consume(carried.primary, group, topic, 7, group_protocol="consumer")
    carried.wait_committed(group, {(remote, 0): 7})
    living = consumer(carried.backup, group, group_protocol="consumer")
    living.subscribe([remote])
    assert [message.offset() for message in read(living, 2)] == [7, 8]
    living.commit(asynchronous=False)
    commit(carried.primary, group, {(topic, 0): 15})
    carried.mirror.wait_for(f'group "{group}" has members on "backup"', 30)
    time.sleep(2.5)
    assert committed(carried.backup, group) == {(remote, 0): 9}
    living.close()
    carried.wait_committed(group, {(remote, 0): 15})


def test_checkpoints_go_back_with_the_group_and_the_targets_offsets_do_not(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(20))
    for offset in (10, 15):
        commit(carried.primary, group, {(topic, 0): offset})
        carried.wait_committed(group, {(remote, 0): offset})
    commit(carried.primary, group, {(topic, 0): 3})
    carried.mirror.wait_until(lambda: carried.checkpoints(group)[-1].downstream == 3, 20, what="the checkpoint at 3")
    assert [item.upstream for item in carried.checkpoints(group)] == [10, 15, 3]
    time.sleep(1.5)
    assert committed(carried.backup, group) == {(remote, 0): 15}


def test_a_deleted_group_is_reported_and_its_place_stays(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    produce(carried.primary, topic, numbered(5))
    commit(carried.primary, group, {(topic, 0): 4})
    carried.wait_committed(group, {(f"primary.{topic}", 0): 4})
    delete_group(carried.primary, group)
    carried.mirror.wait_for(f'group "{group}" is gone from "primary"', 30)
    assert committed(carried.backup, group) == {(f"primary.{topic}", 0): 4}
    [row] = [row for row in carried.rows("groups", "--groups", group) if row["kind"] == "group"]
    assert (row["source state"], row["target state"]) == ("Deleted", "Empty")


def test_a_group_before_the_start_of_the_targets_log_stands_at_that_start(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(9))
    carried.wait_copied(topic)
    delete_records(carried.backup, remote, 5)
    commit(carried.primary, group, {(topic, 0): 2})
    carried.wait_committed(group, {(remote, 0): 5})
    assert carried.client().translate_offsets("primary", group)[TopicPartition(remote, 0)].offset == 5


def test_a_topic_made_anew_is_translated_anew(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(9))
    commit(carried.primary, group, {(topic, 0): 5})
    carried.wait_committed(group, {(remote, 0): 5})
    delete_topic(carried.primary, topic)
    create_topic(carried.primary, topic)
    produce(carried.primary, topic, numbered(4, 100))
    carried.mirror.wait_until(lambda: View(carried.backup, remote).counts() == [13], 40, what="the new topic's copy")
    commit(carried.primary, group, {(topic, 0): 2})
    carried.wait_committed(group, {(remote, 0): 11})


def test_a_target_with_records_of_others_in_between_is_translated_exactly(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(5))
    carried.wait_copied(topic)
    produce(carried.backup, remote, [b"other"] * 3)
    produce(carried.primary, topic, numbered(5, 5))
    carried.mirror.wait_until(lambda: View(carried.backup, remote).counts() == [13], 40, what="the copy")
    for source, target in ((4, 4), (5, 8), (9, 12), (10, 13)):
        commit(carried.primary, group, {(topic, 0): source})
        carried.wait_committed(group, {(remote, 0): target})


def test_offset_syncs_are_on_the_source_as_the_rule_asks(carried: Carried) -> None:
    """A sync for the first record, then one at least every 101 records, and one for the last of each flush."""
    topic = carried.topic()
    produce(carried.primary, topic, numbered(1000))
    syncs = "mm2-offset-syncs.backup.internal"

    def found() -> list[tuple[int, int]]:
        if not partition_count(carried.primary, syncs):
            return []
        parsed = [OffsetSync.parse(record.key, record.value) for record in View(carried.primary, syncs).read()[0]]
        return [(item.upstream, item.downstream) for item in parsed if item is not None and item.topic == topic]

    carried.mirror.wait_until(lambda: found() and found()[-1] == (999, 999), 30, what="the sync of the last record")
    pairs = found()
    assert pairs[0] == (0, 0)
    assert all(source == target for source, target in pairs)
    assert all(0 < after[0] - before[0] <= 101 for before, after in itertools.pairwise(pairs)), pairs


def test_views_show_both_clusters_side_by_side_and_translate_writes_a_reset_file(carried: Carried) -> None:
    topic, group = carried.topic(2), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(30))
    produce(carried.primary, topic, numbered(10), partition=1)
    commit(carried.primary, group, {(topic, 0): 12, (topic, 1): 10})
    carried.wait_committed(group, {(remote, 0): 12, (remote, 1): 10})
    rows = carried.rows("groups", "--groups", group)
    [view] = [row for row in rows if row["kind"] == "group"]
    assert (view["source state"], view["members"], view["unconsumed partitions"]) == ("Empty", 0, 2)
    assert (view["target state"], view["would re-read now"], view["seen"]) == ("Empty", 0, "now")
    places = {row["partition"]: row for row in rows if row["kind"] == "partition"}
    first = places[0]
    assert (first["source committed"], first["source end"], first["source lag"], first["mirrored"]) == (12, 30, 18, 30)
    assert (first["translated"], first["translation"]) == (12, "exact")
    assert (first["target committed"], first["target end"], first["target lag"]) == (12, 30, 18)
    table = carried.run("groups", "--groups", group).stdout
    assert "1 group, 0 records would be read again" in table
    plan = carried.run("translate", "--from", "primary", "--group", group, "-o", "csv")
    assert plan.stdout == f"{remote},0,12\n{remote},1,10\n"
    assert carried.run("acknowledge", "--flow", "primary->backup").returncode == 0  # what other tests did to topics
    [status] = carried.rows("status")
    assert status["ready"] == "yes"
    assert status["exposed records"] == 0
    assert int(status["checkpoint"].split()[0]) < 60
    assert int(status["source answered"].split()[0]) < 30


def test_views_show_who_reads_on_the_source_and_translate_takes_groups_by_pattern(carried: Carried) -> None:
    topic, group, other = carried.topic(2), carried.group(), carried.group()
    remote = f"primary.{topic}"
    produce(carried.primary, topic, numbered(10))
    commit(carried.primary, other, {(topic, 0): 7})
    living = consumer(carried.primary, group, client_id="billing-1")
    living.subscribe([topic])
    read(living, 4)
    living.commit(asynchronous=False)
    carried.wait_committed(group, {(remote, 0): 4})
    carried.wait_committed(other, {(remote, 0): 7})
    [view] = [row for row in carried.rows("groups", "--groups", group) if row["kind"] == "group"]
    assert (view["source state"], view["members"], view["client ids"]) == ("Stable", 1, "billing-1")
    assert (view["unconsumed partitions"], view["target state"], view["target members"]) == (0, "Empty", 0)
    asked = ("translate", "--from", "primary", "--groups", f"{group}|{other}")
    places = sorted([(group, 4), (other, 7)])
    plan = carried.run(*asked, "-o", "csv")
    assert (plan.returncode, plan.stdout) == (0, "".join(f"{name},{remote},0,{at}\n" for name, at in places))
    assert [(row["group"], row["topic"], row["offset"], row["translation"]) for row in carried.rows(*asked)] == [
        (name, remote, at, "exact") for name, at in places
    ]
    living.close()


def test_translate_refuses_a_living_group_and_names_an_unknown_one(carried: Carried) -> None:
    topic, group = carried.topic(), carried.group()
    produce(carried.primary, topic, numbered(5))
    carried.wait_copied(topic)
    living = consumer(carried.backup, group)
    living.subscribe([f"primary.{topic}"])
    read(living, 1)
    commit(carried.primary, group, {(topic, 0): 4})
    wait_until(lambda: carried.run("translate", "--from", "primary", "--group", group).returncode == 0, 20)
    refused = carried.run("translate", "--from", "primary", "--group", group, "--execute")
    assert refused.returncode == 1
    assert "refused: the group has members there" in refused.stdout
    living.close()
    unknown = carried.run("translate", "--from", "primary", "--group", "nobody-of-this-name")
    assert unknown.returncode == 1
    assert "was never seen" in unknown.stderr
    nothing = carried.run("translate", "--from", "primary", "--groups", "nobody-.*", "-o", "csv")
    assert (nothing.returncode, nothing.stdout) == (1, "")
    assert 'no group that matches "nobody-.*" has a translated offset on "backup"' in nothing.stderr
    wrong = carried.run("translate", "--from", "nowhere", "--group", group)
    assert wrong.returncode == 2
    assert "the clusters are: primary, backup" in " ".join(wrong.stderr.replace("│", " ").split())
