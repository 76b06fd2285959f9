"""The report of the slowest tests, and the lists that are made from it."""

from __future__ import annotations

import re
from pathlib import Path
from unittest.mock import Mock

import pytest

from tests.slowest import LONGEST_FIRST, SLOW_UNIT_TESTS, Slowest

CHECKOUT = Path(__file__).parents[2]


def phase(test: str, when: str, seconds: float) -> pytest.TestReport:
    return Mock(spec=pytest.TestReport, nodeid=test, when=when, duration=seconds)


def test_the_slowest_come_first_with_all_their_phases_and_so_do_their_files(tmp_path: Path) -> None:
    report, terminal = tmp_path / "build" / "slowest.txt", Mock(spec=pytest.TerminalReporter)
    slowest = Slowest(report)
    for number in range(40):
        slowest.pytest_runtest_logreport(phase(f"a.py::test_{number}", "call", 0.1))
    slowest.pytest_runtest_logreport(phase("b.py::test_slow", "setup", 1.0))
    slowest.pytest_runtest_logreport(phase("b.py::test_slow", "call", 2.5))
    slowest.pytest_terminal_summary(terminal)
    tests, files = report.read_text().split("\n\nall files\n")
    assert tests.splitlines()[0] == "     3.5 s  b.py::test_slow"
    assert len(tests.splitlines()) == 25
    assert files.splitlines() == ["     4.0 s  a.py", "     3.5 s  b.py"]
    assert [call.args[0] for call in terminal.write_line.call_args_list] == tests.splitlines()


def test_a_run_without_tests_leaves_the_report_as_it_is(tmp_path: Path) -> None:
    Slowest(tmp_path / "slowest.txt").pytest_terminal_summary(Mock(spec=pytest.TerminalReporter))
    assert list(tmp_path.iterdir()) == []


def test_the_lists_name_what_there_is() -> None:
    assert [name for name in LONGEST_FIRST if not (CHECKOUT / name).is_file()] == []
    text = "\n".join(file.read_text() for file in (CHECKOUT / "tests" / "unit").rglob("test_*.py"))
    assert set(re.findall(r"def (test_\w+)", text)) >= SLOW_UNIT_TESTS
