"""What several unit tests share."""

from __future__ import annotations

from pathlib import Path

import pytest


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
