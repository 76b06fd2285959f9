"""How the benchmark samples: windows, end offsets, process trees, delays, and what is run in which order."""

from __future__ import annotations

import struct
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.end_offsets import OffsetsError, encode_request, parse_answers
from bench.fill import make_values
from bench.latency import Arrival, delays_in_window, summarise_delays
from bench.machine import HIDDEN, hide_secrets, hide_texts
from bench.measure import Sample, find_window, summarise_samples
from bench.process_tree import ProcessTree
from bench.systems import SYSTEMS, SystemFailed, plan_order, plan_properties
from bench.works import REFERENCE_WORK, WORKS, Work
from heliograph.kafka import messages
from heliograph.lab import Authority, Secured
from heliograph.lab.listeners import LISTENERS


def sample(at_s: float, records: int, cpu_s: float) -> Sample:
    return Sample(at_s, records, cpu_s, 500.0, 100.0)


SAMPLES = [sample(9.0, 0, 5.0), sample(9.1, 0, 5.5), sample(9.2, 10, 6.0), sample(9.3, 90, 7.0), sample(9.4, 100, 8.0)]


def test_window_begins_with_the_last_sample_without_records() -> None:
    window = find_window(SAMPLES, 100)
    assert window is not None
    assert (window.start_s, window.end_s, window.records) == (9.1, 9.4, 100)
    assert window.cpu_s == pytest.approx(2.5)
    assert window.seconds == pytest.approx(0.3)


def test_no_window_without_a_sample_before_or_without_all_records() -> None:
    assert find_window(SAMPLES[2:], 100) is None
    assert find_window(SAMPLES, 101) is None
    assert find_window([], 1) is None


def test_summary_of_samples_keeps_first_and_last_of_the_copy() -> None:
    samples = [sample(index / 10, index, 0.0) for index in range(500)]
    summary = summarise_samples(samples)
    assert summary["count"] == 500
    assert summary["interval_ms_median"] == 100.0
    assert summary["curve"][0][1] == 1
    assert summary["curve"][-1][1] == 499
    assert len(summary["curve"]) <= 42


def test_list_offsets_request_is_what_kafka_python_writes() -> None:
    topic = messages.ListOffsetsRequest.ListOffsetsTopic
    theirs = messages.ListOffsetsRequest(
        replica_id=-1,
        topics=[
            topic(
                name="t",
                partitions=[topic.ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(3)],
            )
        ],
    )
    assert encode_request("t", 3) == messages.encode_request(theirs, version=1, correlation_id=1, client_id="bench")


def list_offsets_answer(rows: list[tuple[int, int, int]]) -> bytes:
    head = struct.pack(">iih", 1, 1, 1) + b"t" + struct.pack(">i", len(rows))
    return head + b"".join(struct.pack(">ihqq", partition, error, -1, offset) for partition, error, offset in rows)


def test_end_offsets_are_put_in_the_order_of_partitions() -> None:
    offsets = parse_answers([list_offsets_answer([(1, 0, 20), (0, 0, 10)])], "t", 2)
    assert offsets is not None
    assert offsets.tolist() == [10, 20]


def test_each_partition_is_told_by_its_leader() -> None:
    one, other = list_offsets_answer([(0, 6, -1), (1, 0, 20)]), list_offsets_answer([(0, 0, 10), (1, 6, -1)])
    assert (found := parse_answers([one, other], "t", 2)) is not None
    assert found.tolist() == [10, 20]
    assert parse_answers([one, one], "t", 2) is None


def test_end_offsets_of_an_unknown_topic_are_none() -> None:
    assert parse_answers([list_offsets_answer([(0, 3, -1), (1, 3, -1)])], "t", 2) is None


def test_end_offsets_refuse_other_errors_and_short_answers() -> None:
    with pytest.raises(OffsetsError, match="29"):
        parse_answers([list_offsets_answer([(0, 29, -1)])], "t", 1)
    with pytest.raises(OffsetsError, match="bytes"):
        parse_answers([list_offsets_answer([(0, 0, 1)])], "t", 2)


def test_tree_counts_the_cpu_of_a_child_that_has_ended() -> None:
    burn = "import time\nend = time.process_time() + 0.3\nwhile time.process_time() < end: pass"
    wait = "print(flush=True)\ntime.sleep(60)"
    script = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {burn!r}])\n{wait}"
    with subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        tree = ProcessTree(process.pid)
        process.stdout.readline()
        measured = tree.sample()
        process.kill()
    assert measured.cpu_s >= 0.3
    assert measured.processes == 1
    assert measured.rss_mb > 1
    assert measured.lane_rss_mb == 0


def test_tree_keeps_a_grandchild_whose_parent_has_ended() -> None:
    script = "import subprocess, sys, time\nsubprocess.Popen(['sleep', '60'])\ninput()"
    outer = f"import subprocess, sys, time\nsubprocess.run([sys.executable, '-c', {script!r}])\ntime.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", outer], stdin=subprocess.PIPE)
    try:
        tree = ProcessTree(process.pid)
        deadline = time.monotonic() + 30
        while len(tree.alive()) < 3 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        while len(tree.alive()) > 2 and time.monotonic() < deadline:
            time.sleep(0.05)
        assert "sleep" in [member.name() for member in tree.alive()]
    finally:
        for member in tree.alive():
            member.kill()
        process.wait()


def test_delays_are_those_of_records_sent_in_the_window() -> None:
    sent = [0, 1_000_000, 2_000_000, 3_000_000]
    arrivals = [Arrival(number, at + 5_000_000) for number, at in enumerate(sent)]
    assert delays_in_window(sent, arrivals, start_ns=1_000_000, end_ns=3_000_000) == [5.0, 5.0]


@pytest.mark.parametrize(
    ("numbers", "text"), [([0, 1], "1 records missing, 0 twice"), ([0, 1, 2, 2], "0 records missing, 1 twice")]
)
def test_delays_fail_unless_each_record_came_once(numbers: list[int], text: str) -> None:
    with pytest.raises(SystemFailed, match=text):
        delays_in_window([0, 1, 2], [Arrival(number, 9) for number in numbers], start_ns=0, end_ns=9)


def test_percentiles() -> None:
    summary = summarise_delays([float(number) for number in range(101)])
    assert (summary["p50_ms"], summary["p99_ms"], summary["max_ms"]) == (50.0, 99.0, 100.0)


def test_order_is_once_first_then_in_turns() -> None:
    order = [(system.name, turn) for system, turn in plan_order(2)]
    assert order == [("mm2-default", 1), ("mm2-tuned", 1), ("heliograph", 1), ("mm2-tuned", 2), ("heliograph", 2)]


def test_properties_belong_to_the_run() -> None:
    tuned = SYSTEMS[1]
    keys = {"bootstrap.servers": "a:1", "security.protocol": "SSL"}
    properties = plan_properties(tuned, source="r07", source_keys=keys, target_keys={**keys, "x": "y"}, topic="t")
    assert properties["r07->tgt.topics"] == "t"
    assert properties["r07.bootstrap.servers"] == properties["tgt.bootstrap.servers"] == "a:1"
    assert properties["r07.security.protocol"] == properties["tgt.security.protocol"] == "SSL"
    assert properties["tgt.x"] == "y"
    assert properties["r07.consumer.max.poll.records"] == "10000"
    assert properties["tgt.group.id"] == "r07-mm2"
    assert properties["tgt.offset.storage.topic"] == "mm2-offsets.r07.internal"
    assert not any("SOURCE" in key for key in properties)


def test_paths_are_hidden_longest_first() -> None:
    places = {"/home/a": "$HOME", "/home/a/project": "$REPOSITORY"}
    assert hide_texts("/home/a/project/x /home/a/y", places) == "$REPOSITORY/x $HOME/y"


@pytest.mark.parametrize("work", [work for work in WORKS if work.security], ids=lambda work: work.name)
def test_no_secret_of_a_secured_work_is_in_its_report(work: Work, tmp_path: Path) -> None:
    secured = Secured("src", tmp_path, Authority(), proxy_port=1)
    secured.locate({1: dict.fromkeys(LISTENERS, 2)})
    shown = hide_secrets(secured.client_properties(work.security, stores="PKCS12"), {str(tmp_path): "$BENCH"})
    assert shown["security.protocol"] in ("SSL", "SASL_SSL")
    assert shown["ssl.truststore.location"] == "$BENCH/ca.p12"
    assert shown["ssl.truststore.password"] == HIDDEN
    assert not [name for name, secret in secured.secrets().items() if secret in str(shown)]


def test_secured_works_differ_from_the_plain_one_in_nothing_else() -> None:
    plain, *others = (work for work in WORKS if work.name == REFERENCE_WORK or work.security)
    for work in others:
        same: dict[str, Any] = {
            "name": plain.name,
            "security": "",
            "min_wall": plain.min_wall,
            "min_cpu": plain.min_cpu,
        }
        assert replace(work, **same) == plain


def test_scaled_volume_has_a_record_for_each_partition() -> None:
    assert [work.scaled_records(0.000001) for work in WORKS] == [8, 8, 8, 8, 8, 8, 1000, 8, 8]
    assert len({work.topic for work in WORKS}) == len(WORKS)


def test_values_have_their_length_and_differ() -> None:
    values = make_values(100, 50)
    assert {len(value) for value in values} == {100}
    assert len(set(values)) == 50
