"""What a test run leaves behind, and a search of all of it for secrets, at the end of the run.

Where several pytest processes share a run, each searches what its tests have left for the secrets they used. Files come
from its temporary folder: outputs of mirrors, logs of brokers, proxies and Spark, event logs, pages of Spark's UI. What
is in no file is noted while the tests run: outputs of other processes, texts and tracebacks of exceptions, those that
tests expect too, and what pytest has captured.
"""

from __future__ import annotations

import base64
import fnmatch
import html
import json
import os
import subprocess
import traceback
import urllib.parse
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import javaproperties
import numpy as np
import pytest
from numpy.typing import NDArray

MADE_OF_SECRETS = (
    *("*.properties", "*.yaml", "*.pem", "*.key", "*.p12", "*.jks"),
    *("*.token", "token", "*.secret", "password"),
)
"""Names of the files by which tests give secrets to whom they are for: the only ones not searched."""
_SHORTEST = 8

Found = tuple[str, bytes]


class Evidence:
    """A pytest plug-in: takes down what is in no file."""

    def __init__(self) -> None:
        self._noted: list[Found] = []
        self._secrets: dict[str, str | bytes] = {}
        self._patches = pytest.MonkeyPatch()

    def note(self, where: str, text: str | bytes | None) -> None:
        if text:
            self._noted.append((where, text.encode(errors="surrogateescape") if isinstance(text, str) else text))

    def note_error(self, where: str, error: BaseException) -> None:
        self.note(where, "\n".join([str(error), repr(error), *traceback.format_exception(error)]))

    def add_secrets(self, secrets: Mapping[str, str | bytes]) -> None:
        """Secrets that were in use: none of them may be seen in anything."""
        self._secrets |= secrets

    def find_leaks(self, folder: Path, *, without: Collection[Path] = ()) -> list[str]:
        """Searches everything noted, and the files in the folder, for every secret that was in use."""
        return find_leaks(self.collect(folder, without=without), self._secrets)

    def collect(self, folder: Path, *, without: Collection[Path] = ()) -> Iterator[Found]:
        """Everything noted and every file in the folder, but not in the folders `without`."""
        yield from self._noted
        yield from read_files(folder, without=without)

    def pytest_configure(self) -> None:
        self._listen_to_processes()
        self._listen_to_expected_errors()

    def pytest_unconfigure(self) -> None:
        self._patches.undo()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":  # has the sections of all three phases
            for title, text in report.sections:
                self.note(f"{report.nodeid}: {title}", text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> None:
        # A failed assertion shows what the test compared: the test's own words.
        if call.excinfo is not None and not isinstance(call.excinfo.value, AssertionError):
            self.note_error(f"{item.nodeid}: error", call.excinfo.value)

    def _listen_to_processes(self) -> None:
        plain = subprocess.Popen.communicate

        def communicate(process: subprocess.Popen[Any], *arguments: Any, **named: Any) -> tuple[Any, Any]:
            outputs = plain(process, *arguments, **named)
            for output in outputs:
                self.note("output of a process", output)
            return outputs

        self._patches.setattr(subprocess.Popen, "communicate", communicate)

    def _listen_to_expected_errors(self) -> None:
        plain = pytest.RaisesExc.__exit__

        def leave(raises: Any, kind: Any, error: BaseException | None, trace: Any) -> bool:
            if error is not None:
                self.note_error(f"{os.environ.get('PYTEST_CURRENT_TEST', 'a test')}: expected error", error)
            return plain(raises, kind, error, trace)

        self._patches.setattr(pytest.RaisesExc, "__exit__", leave)


def read_files(folder: Path, *, without: Collection[Path] = ()) -> Iterator[Found]:
    for where, folders, names in os.walk(folder):
        folders[:] = [name for name in folders if Path(where, name) not in without]
        for name in names:
            path = Path(where, name)
            if path.is_file() and not path.is_symlink() and not is_made_of_secrets(name):
                yield str(path), path.read_bytes()


def is_made_of_secrets(name: str) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in MADE_OF_SECRETS)


def find_leaks(evidence: Iterable[Found], secrets: Mapping[str, str | bytes]) -> list[str]:
    """Where which secret is seen in which form; the secret itself is not in the answer."""
    wanted = [(name, form, text) for name, secret in secrets.items() for form, text in forms_of(secret).items()]
    search = _Search([text for *_, text in wanted])
    leaks = []
    for where, content in evidence:
        if seen := search.seen_in(content):
            leaks += [f"{where}: {name}, {form}" for name, form, text in wanted if text in seen]
    return leaks


class _Search:
    """For a thousand texts at once: one look at every four bytes, and a closer one where a text may begin."""

    def __init__(self, texts: Iterable[bytes]) -> None:
        self._by_start: dict[bytes, set[bytes]] = {}
        for text in texts:
            self._by_start.setdefault(text[:4], set()).add(text)
        starts = np.frombuffer(b"".join(self._by_start), dtype="<u4")
        self._may_begin = np.zeros(1 << 24, dtype=bool)
        self._may_begin[_mixed(starts)] = True

    def seen_in(self, content: bytes) -> set[bytes]:
        seen: set[bytes] = set()
        for phase in range(min(4, len(content))):
            fours = np.frombuffer(content, dtype="<u4", offset=phase, count=(len(content) - phase) // 4)
            for place in np.flatnonzero(self._may_begin[_mixed(fours)]):
                at = int(place) * 4 + phase
                texts = self._by_start.get(content[at : at + 4], ())
                seen.update(text for text in texts if content.startswith(text, at))
        return seen


def _mixed(fours: NDArray[np.uint32]) -> NDArray[np.uint32]:
    return (fours * np.uint32(2654435761)) >> np.uint32(8)


def forms_of(secret: str | bytes) -> dict[str, bytes]:
    """The ways in which a log may show a secret, by name; `bytes` are those of a key, which has no text."""
    if isinstance(secret, bytes):
        return _binary_forms("", secret)
    jaas = secret.replace("\\", "\\\\").replace('"', '\\"')
    percent = urllib.parse.quote(secret, safe="")
    texts = {
        "plain": secret,
        "percent-encoded": percent,
        "percent-encoded, lower case": "".join(f"%{p[:2].lower()}{p[2:]}" for p in percent.split("%"))[1:],
        "percent-encoded form": urllib.parse.quote_plus(secret),
        "JSON": json.dumps(secret)[1:-1],
        "Python": repr(secret)[1:-1],
        "JAAS": jaas,
        "Java properties": javaproperties.escape(secret),
        "JAAS in Java properties": javaproperties.escape(jaas),
        "JAAS in JSON": json.dumps(jaas)[1:-1],
        "HTML": html.escape(secret),
        "HTML by numbers": html.escape(secret).replace("&quot;", "&#34;"),
    }
    found = {name: text.encode() for name, text in texts.items()}
    for name in ("plain", "percent-encoded", "JAAS"):
        found |= _binary_forms(f", {name}" if name != "plain" else "", found[name])
    first: dict[bytes, str] = {}
    for name, text in found.items():
        first.setdefault(text, name)
    return {name: text for text, name in first.items()}


def _binary_forms(suffix: str, content: bytes) -> dict[str, bytes]:
    found = {f"hex{suffix}": content.hex().encode(), f"upper-case hex{suffix}": content.hex().upper().encode()}
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + content).rstrip(b"=")
        # The first and the last character may have bits of what stands around.
        encoded = encoded[(0, 2, 3)[before] : len(encoded) - bool((before + len(content)) % 3)]
        if len(encoded) >= _SHORTEST:
            found[f"base64 at {before}{suffix}"] = encoded
            found[f"URL-safe base64 at {before}{suffix}"] = encoded.replace(b"+", b"-").replace(b"/", b"_")
    return found
