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

SLOW_UNIT_TESTS: frozenset[str] = frozenset()
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
