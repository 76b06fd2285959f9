"""What several unit tests share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from heliograph.lane import fetcher, flow_lane, leader_watch, settler
from heliograph.lane import lane as lane_module
from heliograph.logs import log


@pytest.fixture
def secrets(tmp_path: Path) -> Path:
    """A folder of mounted secrets with one, `mine`."""
    for name, value in (
        ("password", 'fake "word'),
        ("user.crt", "fake certificate"),
        ("user.key", "fake key"),
        ("ca.crt", "fake ca"),
        ("old.crt", "fake old ca"),
        ("token", "fake-token"),
    ):
        (tmp_path / "mine").mkdir(exist_ok=True)
        (tmp_path / "mine" / name).write_text(f"{value}\n")
    return tmp_path


@pytest.fixture
def own_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has connections of its own, and waits for moments only."""
    monkeypatch.setattr(lane_module, "_worker", lane_module._Worker())
    monkeypatch.setattr(settler, "MIN_PAUSE_S", 0.005)
    monkeypatch.setattr(leader_watch, "PAUSE_S", 0.005)
    monkeypatch.setattr(flow_lane, "DRAIN_S", 0.2)
    monkeypatch.setattr(lane_module, "PARENT_CHECK_S", 0.05)
    monkeypatch.setattr(fetcher, "_MIN_PAUSE_S", 0.005)


@pytest.fixture
def own_log() -> Iterator[None]:
    """The log is as it was when the test is over."""
    handlers, level, propagates = list(log.handlers), log.level, log.propagate
    yield
    for handler in [handler for handler in log.handlers if handler not in handlers]:
        log.removeHandler(handler)
        handler.close()
    log.setLevel(level)
    log.propagate = propagates
