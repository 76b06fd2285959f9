from __future__ import annotations

from pathlib import Path

import pytest

import heliograph
from heliograph import cli
from heliograph.errors import DataLost


def run(*arguments: str) -> int:
    """The exit code, however the command ended."""
    try:
        return cli.main(list(arguments))
    except SystemExit as ended:
        return int(ended.code or 0)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0
    assert capsys.readouterr().out == f"heliograph {heliograph.__version__}\n"


@pytest.mark.parametrize("arguments", [["nonsense"], ["lab", "up", "--cluster", "a:x"], ["lab", "status", "-o", "xml"]])
def test_bad_arguments_exit_2(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(*arguments) == 2
    assert "Traceback" not in capsys.readouterr().err


def test_errors_are_a_line_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("lab", "status", "--folder", str(tmp_path)) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == f'LAB: {tmp_path}: no lab is up; start one with "heliograph lab up"\n'
    assert run("lab", "down", "--folder", str(tmp_path)) == 1


def test_any_error_of_ours_becomes_its_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_arguments: list[str]) -> None:
        raise DataLost("offsets 3 to 5", where="a->b orders-0")

    monkeypatch.setattr(cli, "app", fail)
    assert run("anything") == 1
    assert capsys.readouterr().err == "DATA_LOST: a->b orders-0: offsets 3 to 5\n"


def test_interrupt_is_quiet(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(_folder: Path) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "read_lab", interrupt)
    assert run("lab", "status") == 130
    captured = capsys.readouterr()
    assert captured.out + captured.err == ""


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        (["run", "f", "--clusters", "a", "b"], ["run", "f", "--clusters", "a", "--clusters", "b"]),
        (["run", "f", "--clusters", "a", "b", "-x"], ["run", "f", "--clusters", "a", "--clusters", "b", "-x"]),
        (["run", "--clusters", "a", "f"], ["run", "--clusters", "a", "f"]),
        (["run", "f"], ["run", "f"]),
    ],
)
def test_clusters_takes_a_list_as_mm2_does(given: list[str], meant: list[str]) -> None:
    assert cli.spread_clusters(given) == meant
