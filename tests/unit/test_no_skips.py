"""`make test` must not pass over a skipped test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("option", "exit_code"), [("--no-skips", 1), ("-q", 0)])
def test_a_skipped_test_fails_the_run_only_if_asked(option: str, exit_code: int, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_skipped.py").write_text("import pytest\ndef test_it():\n    pytest.skip('no broker')\n")
    root = Path(__file__).parents[2]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.conftest",
        option,
        "--rootdir",
        str(tmp_path),
        str(tmp_path),
    ]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert run.returncode == exit_code, run.stdout
