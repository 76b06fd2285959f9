"""Secrets that tests plant are needed, and the search at the end of a run finds them in whatever shows them."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest

from heliograph.lab import Lab
from tests.cluster.planted import NAMES, Planted
from tests.evidence import Evidence, find_leaks, forms_of


@pytest.mark.parametrize("name", NAMES)
def test_a_planted_secret_is_needed(name: str, planted: Planted) -> None:
    planted.use(name)


def test_planted_secrets_are_many_and_different(planted: Planted) -> None:
    assert set(planted.rows) >= set(NAMES)
    assert len({row.secret for row in planted.rows.values()}) == len(planted.rows) >= 10


def test_the_search_sees_logs_of_brokers_and_expected_errors(planted: Planted, lab: Lab, evidence: Evidence) -> None:
    planted.use(NAMES[0])
    found = list(evidence.collect(lab.folder.logs))
    assert any(Path(where).parent == lab.folder.logs and content for where, content in found)
    assert any("expected error" in where for where, _ in found)


def test_a_deliberate_leak_makes_the_search_fail(planted: Planted, evidence: Evidence, tmp_path: Path) -> None:
    evidence.add_secrets(planted.secrets())
    log = tmp_path / "stderr"
    log.write_text(f"12:00:00 ERROR refused: {planted.rows['OAuth client secret'].secret}\n")
    try:
        assert f"{log}: OAuth client secret, plain" in evidence.find_leaks(tmp_path)
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
