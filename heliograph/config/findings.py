"""What can be said of a configuration: entries with their places, and findings about them. No rules here."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from heliograph.errors import ConfigError

MAX_FAULTS = 200
"""Errors and unknown keys of a file that is still looked at to its end: each takes a search among all keys."""
_MAX_TEXT = 2000
"""Of a finding; one may quote a value of a megabyte."""


@dataclass(frozen=True, slots=True, order=True)
class FilePlace:
    """Where something is written; line and column begin at 1."""

    file: str
    line: int
    column: int = 1

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}"


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """A key with its value; `place` is None for a default."""

    key: str
    value: str = field(repr=False)
    place: FilePlace | None = None
    reference: str = field(default="", repr=False)
    """The value as written, if it has placeholders: what may be shown instead of the value."""
    is_missing: bool = False
    """A placeholder in it could not be resolved; the value is still the text as written."""


Config = dict[str, ConfigEntry]
"""The keys that one reader gets."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something to say about a configuration, with its place; `rule` is a stable name for it."""

    severity: Severity
    rule: str
    what: str
    place: FilePlace | None = None
    remedy: str = ""
    key: str = ""

    @property
    def text(self) -> str:
        return f"{self.what}; {self.remedy}" if self.remedy else self.what

    def __str__(self) -> str:
        return f"{self.place}: {self.text}" if self.place else self.text


class Report:
    """Gathers the findings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._findings: dict[Finding, None] = {}  # an ordered set: several flows may find the same fault
        self._errors = 0
        self._faults = 0

    def add(
        self, severity: Severity, rule: str, what: str, at: ConfigEntry | FilePlace | None = None, *, remedy: str = ""
    ) -> None:
        place = at.place if isinstance(at, ConfigEntry) else at
        key = at.key if isinstance(at, ConfigEntry) else ""
        finding = Finding(
            severity=severity, rule=rule, what=_shortened(what), place=place, remedy=_shortened(remedy), key=key
        )
        if finding in self._findings:
            return
        self._findings[finding] = None
        self._errors += severity is Severity.ERROR
        self._faults += severity is Severity.ERROR or rule == "unknown-key"
        if self._faults > MAX_FAULTS:
            raise ConfigError(
                f"more than {MAX_FAULTS} errors and unknown keys",
                where=self.file,
                remedy="is it a configuration of MirrorMaker 2?",
                findings=self.findings,
            )

    def error(self, rule: str, what: str, at: ConfigEntry | FilePlace | None = None, *, remedy: str = "") -> None:
        self.add(Severity.ERROR, rule, what, at, remedy=remedy)

    def warn(self, rule: str, what: str, at: ConfigEntry | FilePlace | None = None, *, remedy: str = "") -> None:
        self.add(Severity.WARNING, rule, what, at, remedy=remedy)

    def inform(self, rule: str, what: str, at: ConfigEntry | FilePlace | None = None, *, remedy: str = "") -> None:
        self.add(Severity.INFO, rule, what, at, remedy=remedy)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """In the order of the file; what has no place comes first."""
        return tuple(sorted(self._findings, key=lambda finding: finding.place or FilePlace("", 0, 0)))

    def of(self, severity: Severity) -> tuple[Finding, ...]:
        return tuple(finding for finding in self.findings if finding.severity is severity)

    @property
    def has_errors(self) -> bool:
        return self._errors > 0

    def raise_errors(self) -> None:
        raise_errors(self.file, self.of(Severity.ERROR))


def _shortened(text: str) -> str:
    return text if len(text) <= _MAX_TEXT else f"{text[:_MAX_TEXT]}... ({len(text)} characters)"


def raise_errors(file: str, errors: Iterable[Finding]) -> None:
    """One ConfigError with everything that is wrong, if anything is."""
    found = tuple(errors)
    if len(found) == 1:
        only = found[0]
        raise ConfigError(only.what, where=str(only.place or file), remedy=only.remedy, findings=found)
    if found:
        lines = "".join(f"\n  {finding}" for finding in found)
        raise ConfigError(f"{len(found)} errors{lines}", where=file, findings=found)
