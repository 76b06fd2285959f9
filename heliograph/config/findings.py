"""Defines findings about a configuration, and entries with their file positions. Decides nothing."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from heliograph.errors import ConfigError

MAX_FAULTS = 200
"""Maximum number of errors and unknown keys before the file is given up: each needs a search among all keys."""
_MAX_TEXT = 2000
"""Maximum length of a finding's text; it may quote a value of a megabyte."""


@dataclass(frozen=True, slots=True, order=True)
class FilePlace:
    """Where something is written in a file; line and column begin at 1."""

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
    """The value as written, if it has placeholders; shown instead of the value."""
    is_missing: bool = False
    """Whether a placeholder could not be resolved; the value is then still the text as written."""


Config = dict[str, ConfigEntry]
"""The keys that one reader gets."""


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    INFO = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One finding about a configuration; `rule` is its stable code."""

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
    """Collects the findings of one file."""

    def __init__(self, file: str) -> None:
        self.file = file
        self._findings: dict[Finding, None] = {}  # an ordered set: several flows may report the same fault
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
                remedy="check that the file is a MirrorMaker 2 configuration",
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
        """Returns the findings in the order of the file; those without a file position come first."""
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
    """Raises one ConfigError with all errors, if there are any."""
    found = tuple(errors)
    if len(found) == 1:
        only = found[0]
        raise ConfigError(only.what, where=str(only.place or file), remedy=only.remedy, findings=found)
    if found:
        lines = "".join(f"\n  {finding}" for finding in found)
        raise ConfigError(f"{len(found)} errors{lines}", where=file, findings=found)
