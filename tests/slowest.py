"""Which tests took longest: printed after every run, and kept in a report, with the time of each file of tests."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

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
