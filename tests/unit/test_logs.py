"""Log lines of a mirror: their shape, their level, their file."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from heliograph import logs
from heliograph.logs import LogLevel, log, progress, start_log

LINE = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}[+-]\d\d:\d\d (DEBUG|INFO|WARNING|ERROR) \S.*")


pytestmark = pytest.mark.usefixtures("own_log")


def test_all_lines_have_one_shape_with_date_zone_and_level(capsys: pytest.CaptureFixture[str]) -> None:
    start_log()
    progress.info("a->b: 12 records/s")
    log.warning("a->b: throttled")
    logging.getLogger("heliograph.client").error("lost")
    captured = capsys.readouterr()
    assert captured.out.count("\n") == 1
    assert [LINE.fullmatch(line) is not None for line in (captured.out + captured.err).splitlines()] == [True] * 3
    assert "12 records/s" in captured.out


def test_level_is_the_least_that_is_logged(capsys: pytest.CaptureFixture[str]) -> None:
    start_log(level=LogLevel.WARNING)
    log.info("no")
    progress.info("no")
    log.warning("yes")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith("WARNING yes\n")


def test_log_folder_gets_the_same_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    start_log(folder=tmp_path / "new" / "folder")
    progress.info("moved")
    log.error("failed")
    captured = capsys.readouterr()
    assert (tmp_path / "new" / "folder" / logs.FILE).read_text() == captured.out + captured.err


def test_folder_that_cannot_be_written_is_named_and_survived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "taken").write_text("a file")
    start_log(folder=tmp_path / "taken")
    log.info("goes on")
    first, second = capsys.readouterr().err.splitlines()
    assert "WARNING LOG_DIR: nothing is written to " in first
    assert second.endswith("INFO goes on")


def test_file_that_cannot_be_written_any_more_is_named_once_and_survived(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    start_log(folder=tmp_path)

    def fail(*_: object) -> bool:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(logging.handlers.RotatingFileHandler, "shouldRollover", fail)
    log.info("first")
    log.info("second")
    lines = [line.partition(" ")[2] for line in capsys.readouterr().err.splitlines()]
    warning = f'WARNING LOG_DIR: nothing is written to "{tmp_path}": No space left on device'
    assert lines[0] == "INFO first"
    assert lines[1].startswith(warning)
    assert lines[2:] == ["INFO second"]
