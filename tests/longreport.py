"""The report of a long run: what ran, with which seed, what it measured. `make test-long` puts it in docs/reports."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from bench.machine import describe_commit, describe_machine

_REPOSITORY = Path(__file__).parent.parent


class LongReport:
    """A pytest plug-in: collects each test's outcome, time and recorded properties."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = datetime.now(UTC)
        self._commit = describe_commit(_REPOSITORY)  # what is committed while it runs is not what it ran
        self._tests: list[dict[str, Any]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            self._tests.append(
                {
                    "test": report.nodeid,
                    "outcome": report.outcome,
                    "seconds": round(report.duration, 1),
                    **dict(report.user_properties),
                }
            )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not self._tests:
            return
        report = {
            "date": self._started.strftime("%Y-%m-%d %H:%M UTC"),
            **self._commit,
            "seed": session.config.getoption("randomly_seed", None),
            "machine": describe_machine(),
            "minutes": round((datetime.now(UTC) - self._started).total_seconds() / 60, 1),
            "failed": sum(test["outcome"] == "failed" for test in self._tests),
            "tests": self._tests,
        }
        self._folder.mkdir(parents=True, exist_ok=True)
        name = f"long-{self._started:%Y-%m-%d-%H%M}-{self._commit['commit'][:7]}.json"
        (self._folder / name).write_text(json.dumps(report, indent=1, default=str) + "\n")
