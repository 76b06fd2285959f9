"""Which tests took longest: printed after every run, and kept in a report, with the time of each file of tests.

The two lists here are made from such reports: they need not be exact.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

LONGEST_FIRST = (
    "tests/fault/test_faults.py",
    "tests/cluster/test_spark.py",
    "tests/cluster/test_run.py",
    "tests/cluster/test_security.py",
    "tests/cluster/test_carry.py",
    "tests/cluster/test_java_carry.py",
    "tests/cluster/test_topic_configs.py",
    "tests/cluster/test_mm2_counterparts.py",
    "tests/cluster/test_examples.py",
    "tests/cluster/test_secrets_of_spark.py",
    "tests/fault/test_hard_cases.py",
    "tests/cluster/test_exactly_once.py",
    "tests/cluster/test_heal.py",
    "tests/cluster/test_life.py",
    "tests/cluster/test_flows.py",
    "tests/cluster/test_fidelity.py",
    "tests/cluster/test_truncation.py",
    "tests/cluster/test_lab.py",
)
"""Files that take a minute and more: processes that share the files end together when these come first."""

SLOW_UNIT_TESTS = frozenset(
    {
        "test_a_bare_interpreter_loads_a_lane_from_what_is_packed",
        "test_a_mesh_of_many_clusters_is_looked_through_in_time",
        "test_a_skipped_test_fails_the_run_only_if_asked",
        "test_a_thousand_flows_load_in_a_second",
        "test_after_a_crash_partitions_settle_a_few_at_a_time_and_all_of_them_go_on",
        "test_commands_from_the_shell",
        "test_copying_gives_exactly_what_a_reader_sees",
        "test_damaged_answers_are_harmless_or_typed_errors",
        "test_damaged_records_are_refused_or_harmless",
        "test_document_of_the_commands_is_not_stale",
        "test_every_error_that_is_raised_has_a_heading_in_the_runbook",
        "test_lanes_outlive_damaged_answers_and_copy_every_record_once",
        "test_leaving_a_broker_costs_each_partition_the_same_however_many_there_are",
        "test_mutated_files_load_or_say_what_is_wrong",
        "test_nothing_is_asked_for_that_a_lane_does_not_import",
        "test_reencode_equals_the_model",
        "test_the_chunks_hold_exactly_the_records_from_the_position_on",
    }
)
"""Tests of tests/unit that take over two seconds: they get the marker `slow`, and `make test-fast` leaves them out."""

_MOST = 25


class Slowest:
    """A pytest plug-in: adds up the time of each test's set-up, call and teardown."""

    def __init__(self, report: Path) -> None:
        self._report = report
        self._seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._seconds:
            return
        slowest = _lines(self._seconds, _MOST)
        terminalreporter.section(f"{len(slowest)} slowest tests, also in {self._report}")
        for line in slowest:
            terminalreporter.write_line(line)
        self._report.parent.mkdir(parents=True, exist_ok=True)
        files: dict[str, float] = defaultdict(float)
        for test, seconds in self._seconds.items():
            files[test.partition("::")[0]] += seconds
        self._report.write_text("\n".join([*slowest, "", "all files", *_lines(files)]) + "\n")


def _lines(seconds: Mapping[str, float], most: int | None = None) -> list[str]:
    slowest_first = sorted(seconds.items(), key=lambda item: -item[1])
    return [f"{taken:8.1f} s  {name}" for name, taken in slowest_first[:most]]
