"""The last word of a run: secrets that were used are seen nowhere."""

from __future__ import annotations

import base64
from collections.abc import Callable
from pathlib import Path

import pytest

from heliograph.lab import Lab
from tests.cluster.planted import NAMES, Planted
from tests.evidence import Evidence, find_leaks, forms_of


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_secret_is_needed(name: str, planted: Planted) -> None:
    planted.use(name)


@pytest.fixture(name="leaks")
def search(
    planted: Planted, lab: Lab, evidence: Evidence, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[], list[str]]:
    """Searches everything that the run has produced so far for every secret of it."""

    def find() -> list[str]:
        secrets = planted.secrets()
        for cluster in lab.clusters:
            if cluster.secured is not None:
                secrets |= {f"{cluster.alias}: {name}": text for name, text in cluster.secured.secrets().items()}
        found = list(evidence.collect(tmp_path_factory.getbasetemp(), without=[lab.folder.data]))
        assert any(Path(where).parent == lab.folder.logs and content for where, content in found), "brokers' logs"
        assert any("expected error" in where for where, _ in found), "exceptions"
        return find_leaks(found, secrets)

    for name in NAMES:
        planted.use(name)
    return find


@pytest.mark.last
@pytest.mark.timeout(300)
def test_no_secret_is_seen_in_anything_that_the_run_has_produced(
    planted: Planted, leaks: Callable[[], list[str]]
) -> None:
    different = len({row.secret for row in planted.rows.values()})
    assert set(planted.rows) == planted.used
    assert different == len(planted.rows) >= 10
    assert leaks() == []


@pytest.mark.last
@pytest.mark.timeout(300)
def test_a_deliberate_leak_makes_the_search_fail(
    planted: Planted, leaks: Callable[[], list[str]], tmp_path: Path
) -> None:
    log = tmp_path / "stderr"
    log.write_text(f"12:00:00 ERROR refused: {planted.rows['OAuth client secret'].secret}\n")
    try:
        assert f"{log}: OAuth client secret, plain" in leaks()
    finally:
        log.unlink()


def test_a_leak_is_found_in_every_form(planted: Planted) -> None:
    for name, secret in planted.secrets().items():
        for form, text in forms_of(secret).items():
            leaks = find_leaks([("a log", b"12:00:01 ERROR refused: " + text + b"\n")], {name: secret})
            assert f"a log: {name}, {form}" in leaks
            assert not any(str(secret) in leak for leak in leaks)
        assert find_leaks([("a log", b"12:00:01 ERROR refused\n")], {name: secret}) == []


def test_a_leak_in_an_error_is_found(tmp_path: Path) -> None:
    evidence = Evidence()
    try:
        raise ValueError("inner") from KeyError("planted-secret")
    except ValueError as error:
        evidence.note_error("a test", error)
    assert find_leaks(evidence.collect(tmp_path), {"one": "planted-secret"}) == ["a test: one, plain"]


@pytest.mark.parametrize("before", [b"", b"user:", b"\0u\0", b"a", b"ab"])
def test_a_leak_within_base64_is_found(before: bytes) -> None:
    text = base64.b64encode(before + b"planted-secret" + b"after")
    assert find_leaks([("a log", text)], {"one": "planted-secret"}) != []
