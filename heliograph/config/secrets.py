"""Placeholders in values: `${provider:path:key}` of Kafka's providers and Strimzi's, and references of resources.

Resolved from the environment, from files, and from a folder of mounted secrets: one folder for each
secret, one file for each key. What is resolved is never shown; the text as written stands for it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from heliograph.config.findings import Config, Entry, Report, Severity
from heliograph.config.properties import parse_properties
from heliograph.errors import ConfigError

_PLACEHOLDER = re.compile(r"\$\{([^}:]*):(?:([^}]*?):)?([^}]*?)\}")
_BARE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_BYTES = 1024 * 1024

_KUBERNETES = ("secrets", "strimzisecrets", "configmaps", "strimziconfigmaps")
_CLASSES = {
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
    "EnvVarConfigProvider": "env",
    "KubernetesSecretConfigProvider": "secrets",
    "KubernetesConfigMapConfigProvider": "configmaps",
}
"""Kafka's and Strimzi's provider classes, by the last part of their name."""


class Unresolved(Exception):
    """Why a placeholder has no value, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One use of a secret or of another value from outside."""

    provider: str
    path: str
    key: str
    place: str
    """The key that refers to it, and where that stands."""
    owner: str
    """The cluster that needs it; empty for others."""
    fingerprint: str | None
    """Of the value, to compare places; None if it is missing."""
    problem: str = ""

    @property
    def name(self) -> str:
        """The secret's name; of other providers the path."""
        return self.path.rpartition("/")[2] if self.provider in _KUBERNETES else self.path


@dataclass(slots=True)
class Resolver:
    """Resolves placeholders; remembers every reference it met."""

    folder: Path | None = None
    """Where the secrets are mounted."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ)
    offline: bool = False
    """What is missing is a warning, not an error."""
    references: list[Reference] = field(default_factory=list)
    _kinds: dict[str, str] = field(default_factory=dict)

    def declare(self, entries: Mapping[str, Entry]) -> None:
        """Learn the providers that a file names: `config.providers.<name>.class`, at the top or of a cluster."""
        for key, entry in entries.items():
            prefix, dot, last = key.rpartition(".")
            _, found, name = prefix.rpartition("config.providers.")
            if found and dot and last == "class":
                kind = _CLASSES.get(entry.value.strip().rpartition(".")[2])
                if kind is not None:
                    self._kinds[name] = kind

    def resolve_all(self, entries: Config, report: Report, aliases: Iterable[str] = ()) -> Config:
        """All entries of a property file with their placeholders resolved."""
        self.declare(entries)
        prefixes = [(f"{alias}.", alias) for alias in aliases]
        return {
            key: self.resolve(entry, report, owner=next((a for prefix, a in prefixes if key.startswith(prefix)), ""))
            if "${" in entry.value
            else entry
            for key, entry in entries.items()
        }

    def resolve(self, entry: Entry, report: Report, *, owner: str = "") -> Entry:
        """An entry with its placeholders resolved; what is missing is reported and left as written."""
        if "${" not in entry.value:
            return entry
        problems: list[tuple[str, str]] = []

        def substitute(match: re.Match[str]) -> str:
            provider, path, key = match[1], match[2] or "", match[3]
            kind = self._kinds.get(provider, provider)
            if kind not in _PROVIDERS:
                report.warn(
                    "unknown-provider",
                    f'"{entry.key}": nothing resolves "{match[0]}"',
                    entry,
                    remedy=f"the providers are {', '.join(_PROVIDERS)}",
                )
                return match[0]
            value, problem = self._look_up(kind, path, key)
            self._note(entry, kind, path, key, value=value, problem=problem, owner=owner)
            if value is None:
                problems.append((f"{_describe(kind, path, key)} {problem}", self._remedy(kind)))
                return match[0]
            return _escaped(value) if _is_quoted(match) else value

        text = _PLACEHOLDER.sub(substitute, entry.value)
        for problem, remedy in problems:
            severity = Severity.WARNING if self.offline else Severity.ERROR
            report.add(severity, "missing-secret", f'"{entry.key}" needs {problem}', entry, remedy=remedy)
        if text == entry.value and not problems:
            _warn_of_bare(entry, report)
            return entry
        return replace(entry, value=text, reference=entry.value, is_missing=bool(problems))

    def _look_up(self, kind: str, path: str, key: str) -> tuple[str | None, str]:
        try:
            return _PROVIDERS[kind](self, path, key), ""
        except Unresolved as problem:
            return None, str(problem)

    def _note(
        self, entry: Entry, kind: str, path: str, key: str, *, value: str | None, problem: str, owner: str
    ) -> None:
        place = f"{entry.key} ({entry.place})" if entry.place else entry.key
        mark = None if value is None else fingerprint(value)
        self.references.append(Reference(kind, path, key, place, owner, mark, problem))

    def _remedy(self, kind: str) -> str:
        return (
            "give the folder of the mounted secrets with --secrets" if kind in _KUBERNETES and not self.folder else ""
        )

    def _from_environment(self, path: str, key: str) -> str:
        name = key or path
        if name not in self.environment:
            raise Unresolved("is not set")
        return self.environment[name]

    def _from_file(self, path: str, key: str) -> str:
        try:
            entries = parse_properties(_read(Path(path)), Report(path))
        except ConfigError as error:
            raise Unresolved(f"is in a file that cannot be read: {error.what}") from error
        if key not in entries:
            raise Unresolved("is not in the file")
        return entries[key].value

    def _from_folder(self, path: str, key: str) -> str:
        return _read(Path(path) / _plain(key)).decode("utf-8", "replace")

    def _from_secret(self, path: str, key: str) -> str:
        if self.folder is None:
            raise Unresolved("is not mounted")
        secret = self.folder / _plain(path.rpartition("/")[2])
        if not secret.is_dir():
            raise Unresolved(f"is missing: there is no folder {secret.name}")
        names = sorted(file.name for file in secret.iterdir() if fnmatch.fnmatchcase(file.name, key))
        if not names or ("*" not in key and key not in names):
            raise Unresolved(f"is missing: the folder has {', '.join(sorted(_visible(secret))) or 'no file'}")
        texts = [_read(secret / name).decode("utf-8", "replace") for name in names]
        return texts[0].removesuffix("\n") if len(texts) == 1 else "\n".join(texts)


_PROVIDERS: dict[str, Callable[[Resolver, str, str], str]] = {
    "env": Resolver._from_environment,
    "file": Resolver._from_file,
    "dir": Resolver._from_folder,
    **dict.fromkeys(_KUBERNETES, Resolver._from_secret),
}


def secret_reference(name: str, key: str) -> str:
    """How a resource's reference to a secret is written as a placeholder."""
    return f"${{secrets:{name}:{key}}}"


def fingerprint(value: str) -> str:
    """Short and one-way: tells whether two places have the same value, and nothing else."""
    return hashlib.sha256(b"heliograph secret " + value.encode()).hexdigest()[:12]


def _describe(kind: str, path: str, key: str) -> str:
    if kind == "env":
        return f'the environment variable "{key or path}", which'
    if kind in _KUBERNETES:
        return f'key "{key}" of secret "{path.rpartition("/")[2]}", which'
    return f'"{key}" of {path}, which'


def _read(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Unresolved(f"cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise Unresolved("is larger than a megabyte")
    return content


def _plain(name: str) -> str:
    """A file name that stays in its folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Unresolved("is no name of a file")
    return name


def _visible(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir() if not file.name.startswith(".")]


def _is_quoted(match: re.Match[str]) -> bool:
    """Within double quotes, as a password in a JAAS line."""
    text = match.string
    return match.start() > 0 and text[match.start() - 1] == '"' and text[match.end() : match.end() + 1] == '"'


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _warn_of_bare(entry: Entry, report: Report) -> None:
    bare = _BARE.search(entry.value)
    if bare is not None:
        report.warn(
            "bare-placeholder",
            f'"{entry.key}": "{bare[0]}" is left as it is',
            entry,
            remedy=f'write "${{env:{bare[1]}}}"',
        )


def compare_places(
    by_place: Mapping[str, Sequence[Reference]], literals: Sequence[Reference] = ()
) -> list[dict[str, str]]:
    """A row for each secret and key: who needs it, where it is missing, and whether the places have the same."""
    uses: dict[tuple[str, str, str], dict[str, Reference]] = {}
    needed_by: dict[tuple[str, str, str], dict[str, str]] = {}
    for place, references in by_place.items():
        for reference in references:
            what = (reference.provider, reference.name, reference.key)
            uses.setdefault(what, {})[place] = reference
            needed_by.setdefault(what, {})[reference.place] = reference.owner
    rows = []
    for what, found in uses.items():
        marks = {reference.fingerprint for reference in found.values()}
        missing = [place for place, reference in found.items() if reference.fingerprint is None]
        state = "missing" if missing else "differs" if len(marks) > 1 else "present"
        rows.append(
            {
                "clusters": ", ".join(sorted({owner for owner in needed_by[what].values() if owner})),
                "secret": f"{what[0]}:{what[1]}" if what[1] else what[0],
                "key": what[2],
                "needed_by": ", ".join(needed_by[what]),
                "state": f"missing in {', '.join(missing)}" if missing and len(found) > 1 else state,
                "fingerprints": ", ".join(reference.fingerprint or "-" for reference in found.values()),
            }
        )
    rows += [
        {
            "clusters": literal.owner,
            "secret": "in the file",
            "key": literal.key,
            "needed_by": literal.place,
            "state": "in clear",
            "fingerprints": literal.fingerprint or "-",
        }
        for literal in literals
    ]
    return sorted(rows, key=lambda row: (row["clusters"], row["secret"], row["key"]))
