"""The last word of a run: secrets that were used are seen nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from heliograph.lab import Lab
from tests.cluster.planted import NAMES, Planted
from tests.evidence import Evidence, find_leaks, forms_of, read_files


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_secret_is_needed(name: str, planted: Planted) -> None:
    planted.use(name)


@pytest.mark.last
@pytest.mark.timeout(300)
def test_no_secret_is_seen_in_anything_that_the_run_has_produced(
    planted: Planted, lab: Lab, evidence: Evidence, tmp_path_factory: pytest.TempPathFactory
) -> None:
    for name in NAMES:
        planted.use(name)
    secrets = planted.secrets()
    assert set(planted.rows) == planted.used
    different = len({row.secret for row in planted.rows.values()})
    assert different == len(planted.rows) >= 10
    for cluster in lab.clusters:
        if cluster.secured is not None:
            secrets |= {f"{cluster.alias}: {name}": text for name, text in cluster.secured.secrets().items()}
    found = list(evidence.collect(tmp_path_factory.getbasetemp(), without=[lab.folder.data]))
    logs = {Path(where).name for where, content in found if Path(where).parent == lab.folder.logs and content}
    assert any(name.startswith("north") for name in logs), "the logs of the brokers are searched"
    assert any("expected error" in where for where, _ in found), "exceptions are searched"
    assert find_leaks(found, secrets) == []


def test_a_deliberate_leak_is_found_in_every_form(planted: Planted, tmp_path: Path) -> None:
    for name, secret in planted.secrets().items():
        for form, text in forms_of(secret).items():
            (tmp_path / "mirror.log").write_bytes(b"12:00:00 INFO nothing\n12:00:01 ERROR refused: " + text + b"\n")
            leaks = find_leaks(read_files(tmp_path), {name: secret})
            assert f"{tmp_path / 'mirror.log'}: {name}, {form}" in leaks
            assert not any(str(secret) in leak for leak in leaks)
            (tmp_path / "mirror.log").write_bytes(b"12:00:01 ERROR refused: " + text[:-1] + b"\n")
            assert find_leaks(read_files(tmp_path), {name: secret}) == []
