"""Loads a file: chooses the reader, resolves secrets, builds settings, lints. All IO of configurations is here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from heliograph.config.build import build_settings
from heliograph.config.files.parts import Parts
from heliograph.config.files.properties import parse_properties
from heliograph.config.files.property_file import read_mm2_file
from heliograph.config.files.resource import read_resources
from heliograph.config.files.yaml_tree import parse_documents
from heliograph.config.findings import Config, FilePlace, Finding, Report, Severity, raise_errors
from heliograph.config.keys.keys_read import report_unread
from heliograph.config.keys.values import split_list
from heliograph.config.lint import lint
from heliograph.config.secrets import Reference, Resolver
from heliograph.config.settings import Settings
from heliograph.errors import ConfigError

MAX_BYTES = 2 * 1024 * 1024
"""Maximum size of a file; 1,000 flows need 200 KB, and Kubernetes accepts no resource above 1.5 MB."""
MAX_LINES = 30_000
"""Maximum number of lines of a property file; 20,000 take half a second."""
MAX_KEY = 500
"""Maximum length of a key in characters; a topic's name has at most 249."""
_RESOURCE = re.compile(rb"^[ \t]*(?:apiVersion|kind)[ \t]*:", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A file as far as it could be understood."""

    file: str
    is_resource: bool = False
    parts: tuple[Parts, ...] = ()
    settings: Settings | None = None
    """The settings; None if there are errors."""
    findings: tuple[Finding, ...] = ()
    references: tuple[Reference, ...] = field(default=(), repr=False)

    def raise_errors(self) -> None:
        """Raises one ConfigError with all errors, if there are any."""
        raise_errors(self.file, (finding for finding in self.findings if finding.severity is Severity.ERROR))

    def valid_settings(self) -> Settings:
        self.raise_errors()
        assert self.settings is not None
        return self.settings


def load_settings(
    path: Path | str, *, only_targets: Sequence[str] = (), secrets: Path | None = None, offline: bool = False
) -> Settings:
    """Reads and validates a file; `only_targets` keeps the flows that end in these clusters."""
    return inspect_file(path, only_targets=only_targets, secrets=secrets, offline=offline).valid_settings()


def parse_settings(content: bytes | str, file: str = "mm2.properties", *, only_targets: Sequence[str] = ()) -> Settings:
    """Parses settings from a text; raises ConfigError like `load_settings`."""
    content = content.encode() if isinstance(content, str) else content
    return inspect_content(content, file, only_targets=only_targets).valid_settings()


def inspect_file(
    path: Path | str, *, only_targets: Sequence[str] = (), secrets: Path | None = None, offline: bool = False
) -> Loaded:
    """Reads a file and collects every finding about it; raises only if it cannot be read or parsed."""
    content = read_bytes(Path(path))
    resolver = Resolver(folder=secrets, offline=offline)
    return inspect_content(content, str(path), resolver=resolver, only_targets=only_targets)


def inspect_content(
    content: bytes, file: str, *, resolver: Resolver | None = None, only_targets: Sequence[str] = ()
) -> Loaded:
    _check_size(content, file)
    report = Report(file)
    resolver = resolver or Resolver()
    parts = _read_parts(content, report, resolver)
    settings: Settings | None = None
    if parts:
        settings = build_settings(parts, report, only_targets=only_targets)
        lint(parts, settings, report)
        report_unread(parts, report)
        found = replace(settings, findings=report.findings, secrets=resolver.reader())
        settings = None if report.has_errors else found
    return Loaded(
        file=file,
        is_resource=is_resource(content, file),
        parts=tuple(parts),
        settings=settings,
        findings=report.findings,
        references=tuple(resolver.references),
    )


def read_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise ConfigError(
            f'cannot read "{path}"', why=error.strerror or str(error), remedy="give the path of a readable file"
        ) from error
    _check_size(content, str(path))
    return content


def _check_size(content: bytes, file: str) -> None:
    if len(content) > MAX_BYTES:
        raise ConfigError(
            f'"{file}" is larger than {MAX_BYTES // 1024 // 1024} MB', remedy="check that it is a configuration"
        )


def is_resource(content: bytes, file: str) -> bool:
    """Tells whether a file has resources, by its name, else by its content."""
    suffix = Path(file).suffix.lower()
    return suffix in (".yaml", ".yml", ".json") or (suffix != ".properties" and bool(_RESOURCE.search(content)))


def _read_parts(content: bytes, report: Report, resolver: Resolver) -> list[Parts]:
    if is_resource(content, report.file):
        return read_resources(parse_documents(_yaml_text(content, report), report.file), report, resolver)
    if max(content.count(b"\n"), content.count(b"\r")) > MAX_LINES:
        raise ConfigError(f'"{report.file}" has more than {MAX_LINES} lines', remedy="check that it is a configuration")
    entries = parse_properties(content, report)
    _check_keys(entries)
    clusters = entries.get("clusters")
    aliases = split_list(clusters.value) if clusters is not None else ()
    parts = read_mm2_file(resolver.resolve_all(entries, report, aliases), report)
    return [parts] if parts is not None else []


def _check_keys(entries: Config) -> None:
    """Refuses very long keys: searching for what a key may mean takes long."""
    for key, entry in entries.items():
        if len(key) > MAX_KEY:
            what = f"a key of {len(key)} characters"
            raise ConfigError(what, where=str(entry.place), remedy="check the line ends", place=entry.place)


def _yaml_text(content: bytes, report: Report) -> str:
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        place = FilePlace(report.file, line)
        # Not chained: that error contains the whole file.
        raise ConfigError("not UTF-8", where=str(place), remedy="save the file as UTF-8", place=place) from None
