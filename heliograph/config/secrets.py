"""Resolves placeholders in values: `${provider:path:key}` of Kafka's and Strimzi's providers, and secrets of resources.

Values come from the environment, from files, and from a folder of mounted secrets: one folder for each secret, one
file for each key. A resolved value is never shown; the text as written stands for it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from heliograph.config.files.properties import parse_properties
from heliograph.config.findings import Config, ConfigEntry, Report, Severity
from heliograph.config.keys.key_check import is_secret_name
from heliograph.errors import ConfigError, StoreUnusable

MASK = "****"
_MAX_SHOWN = 250
MAX_REFERENCES = 20_000
"""Maximum number of placeholders of a file; each may read a file."""
_BARE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_MAX_BYTES = 1024 * 1024
_QUOTES = re.compile(r'\\.|"', re.DOTALL)
_JAAS = re.compile(r'[\w.$]+\s+\w+(?:\s+[\w.]+=(?:"(?:\\.|[^"\\])*"|[^\s";]+))*\s*;?', re.DOTALL | re.ASCII)
_JAAS_OPTION = re.compile(r'([\w.]+)=("(?:\\.|[^"\\])*"|[^\s";]+)', re.DOTALL | re.ASCII)

_KUBERNETES = ("secrets", "strimzisecrets", "configmaps", "strimziconfigmaps")
_CLASSES = {
    "FileConfigProvider": "file",
    "DirectoryConfigProvider": "dir",
    "EnvVarConfigProvider": "env",
    "KubernetesSecretConfigProvider": "secrets",
    "KubernetesConfigMapConfigProvider": "configmaps",
}
"""Kafka's and Strimzi's provider classes, by the last part of their name."""


class Placeholder(NamedTuple):
    """A `${provider:path:key}` within a value."""

    text: str
    provider: str
    path: str
    key: str
    start: int
    end: int


class Unresolved(Exception):
    """Why a placeholder has no value, as the end of a sentence."""


@dataclass(frozen=True, slots=True)
class Reference:
    """One use of a secret or of another value from outside."""

    provider: str
    path: str
    key: str
    place: str
    """The key that refers to it, with its file position."""
    owner: str
    """The cluster that needs it; empty for others."""
    fingerprint: str | None
    """The fingerprint of the value, to compare folders of secrets; None if the value is missing."""
    problem: str = ""

    @property
    def name(self) -> str:
        """Returns the secret's name; for other providers the path."""
        return self.path.rpartition("/")[2] if self.provider in _KUBERNETES else self.path


@dataclass(slots=True)
class Resolver:
    """Resolves placeholders; remembers every reference it met."""

    folder: Path | None = None
    """The folder of the mounted secrets."""
    environment: Mapping[str, str] = field(default_factory=lambda: os.environ, repr=False)
    offline: bool = False
    """Whether a missing value is a warning instead of an error."""
    given: Mapping[tuple[str, str], str] = field(default_factory=dict, repr=False)
    """Secrets that are already known, by name and key, and need not be mounted."""
    references: list[Reference] = field(default_factory=list)
    _kinds: dict[str, str] = field(default_factory=dict)

    def reader(self) -> SecretReader:
        """Returns a reader that looks up the same placeholders later."""
        return SecretReader(self.folder, dict(self._kinds))

    def declare(self, entries: Mapping[str, ConfigEntry]) -> None:
        """Learns the providers that a file names: `config.providers.<name>.class`, at the top or of a cluster."""
        for key, entry in entries.items():
            prefix, dot, last = key.rpartition(".")
            _, found, name = prefix.rpartition("config.providers.")
            if found and dot and last == "class":
                kind = _CLASSES.get(entry.value.strip().rpartition(".")[2])
                if kind is not None:
                    self._kinds[name] = kind

    def resolve_all(self, entries: Config, report: Report, aliases: Iterable[str] = ()) -> Config:
        """Resolves the placeholders of all entries of a property file."""
        self.declare(entries)
        known = frozenset(aliases)
        return {
            key: self.resolve(entry, report, owner=_owner(key, known)) if "${" in entry.value else entry
            for key, entry in entries.items()
        }

    def resolve(self, entry: ConfigEntry, report: Report, *, owner: str = "") -> ConfigEntry:
        """Resolves the placeholders of an entry; a missing value is reported and the text left as written."""
        pieces: list[str] = []
        at, is_found, is_missing = 0, False, False
        quoted = _Quoted(entry.value)
        for placeholder in find_placeholders(entry.value):
            kind = self._kinds.get(placeholder.provider, placeholder.provider)
            if kind not in _PROVIDERS:
                _warn_of_provider(entry, placeholder, report)
                continue
            value, problem = self._look_up(kind, placeholder.path, placeholder.key)
            self._note(entry, kind, placeholder, value=value, problem=problem, owner=owner)
            is_found = True
            if value is None:
                is_missing = True
                self._report_missing(entry, kind, placeholder, problem, report)
                continue
            inside = quoted.contains(placeholder)
            pieces += [entry.value[at : placeholder.start], _escaped(value) if inside else value]
            at = placeholder.end
        if not is_found:
            _warn_of_bare(entry, report)
            return entry
        pieces.append(entry.value[at:])
        return replace(entry, value="".join(pieces), reference=entry.value, is_missing=is_missing)

    def _report_missing(
        self, entry: ConfigEntry, kind: str, placeholder: Placeholder, problem: str, report: Report
    ) -> None:
        severity = Severity.WARNING if self.offline else Severity.ERROR
        what = f'"{entry.key}" needs {_describe(kind, placeholder.path, placeholder.key)} {problem}'
        report.add(severity, "missing-secret", what, entry, remedy=self._remedy(kind))

    def _look_up(self, kind: str, path: str, key: str) -> tuple[str | None, str]:
        try:
            return _PROVIDERS[kind](self, path, key), ""
        except Unresolved as problem:
            return None, str(problem)
        except (OSError, ValueError) as error:  # a name that is too long or has a zero byte, a folder without rights
            return None, f"cannot be read: {getattr(error, 'strerror', None) or 'not a file name'}"

    def _note(
        self, entry: ConfigEntry, kind: str, placeholder: Placeholder, *, value: str | None, problem: str, owner: str
    ) -> None:
        place = f"{entry.key} ({entry.place})" if entry.place else entry.key
        if len(self.references) >= MAX_REFERENCES:
            raise ConfigError(f"more than {MAX_REFERENCES} placeholders", where=str(entry.place or ""))
        mark = None if value is None else fingerprint(value)
        self.references.append(Reference(kind, placeholder.path, placeholder.key, place, owner, mark, problem))

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
        name = path.rpartition("/")[2]
        if (name, key) in self.given:
            return self.given[name, key]
        if self.folder is None:
            raise Unresolved("is not mounted")
        secret = self.folder / _plain(name)
        if not secret.is_dir():
            raise Unresolved(f"is missing: there is no folder {secret.name}")
        files = sorted(_visible(secret))
        names = [file for file in files if fnmatch.fnmatchcase(file, key)] if "*" in key else [_plain(key)]
        if not names or names[0] not in files:
            raise Unresolved(f"is missing: the folder has {', '.join(files[:20]) or 'no file'}")
        texts = [_read(secret / name).decode("utf-8", "replace") for name in names]
        return texts[0].removesuffix("\n") if len(texts) == 1 else "\n".join(texts)


_PROVIDERS: dict[str, Callable[[Resolver, str, str], str]] = {
    "env": Resolver._from_environment,
    "file": Resolver._from_file,
    "dir": Resolver._from_folder,
    **dict.fromkeys(_KUBERNETES, Resolver._from_secret),
}


@dataclass(frozen=True, slots=True)
class SecretReader:
    """Looks placeholders up again after the configuration was read, here or on an executor."""

    folder: Path | None = None
    kinds: Mapping[str, str] = field(default_factory=dict)

    def read(self, key: str, text: str) -> str:
        """Returns the current value of a key; raises StoreUnusable if one of its placeholders has no value."""
        report = Report("")
        resolver = Resolver(folder=self.folder, _kinds=dict(self.kinds))
        value = resolver.resolve(ConfigEntry(key, text), report).value
        for finding in report.of(Severity.ERROR):
            raise StoreUnusable(finding.what, remedy=finding.remedy)
        return value


def secret_reference(name: str, key: str) -> str:
    """Writes a resource's reference to a secret as a placeholder."""
    return f"${{secrets:{name}:{key}}}"


def find_placeholders(text: str) -> Iterator[Placeholder]:
    """Finds placeholders by Kafka's rule: from `${` to the next `}`, with a colon in between. Reads the text once."""
    at = text.find("${")
    while at >= 0:
        end = text.find("}", at)
        if end < 0:
            return
        provider, colon, rest = text[at + 2 : end].partition(":")
        if colon:
            path, second, key = rest.partition(":")
            yield Placeholder(
                text[at : end + 1], provider, path if second else "", key if second else rest, at, end + 1
            )
        at = text.find("${", end + 1)


def shown_reference(key: str, reference: str) -> str:
    """Returns a value with placeholders as it may be shown: literal parts of a secret only if known to be harmless."""
    if not is_secret_name(key):
        return reference
    if "jaas" in key.lower() and _JAAS.fullmatch(reference.strip()):
        return _JAAS_OPTION.sub(_shown_option, reference)
    return _only_placeholders(reference)


def _shown_option(match: re.Match[str]) -> str:
    name, value = match[1], match[2]
    if not is_secret_name(name):
        return match[0]
    quote = '"' if value.startswith('"') else ""
    return f"{name}={quote}{_only_placeholders(value.strip(quote) if quote else value)}{quote}"


def _only_placeholders(text: str) -> str:
    """Masks the text around placeholders; blanks alone are no secret."""
    shown, at = "", 0
    for placeholder in find_placeholders(text):
        between = text[at : placeholder.start]
        shown += (MASK if between.strip() else between) + placeholder.text
        at = placeholder.end
    rest = text[at:]
    return shown + (MASK if rest.strip() else rest)


def fingerprint(value: str) -> str:
    """Returns a short one-way hash that tells whether two values are equal, and nothing else."""
    return hashlib.sha256(b"heliograph secret " + value.encode("utf-8", "surrogatepass")).hexdigest()[:12]


def _describe(kind: str, path: str, key: str) -> str:
    path, key = (text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..." for text in (path, key))
    if kind == "env":
        return f'the environment variable "{key or path}", which'
    if kind in _KUBERNETES:
        return f'key "{key}" of secret "{path.rpartition("/")[2]}", which'
    return f'"{key}" of {path}, which'


def _read(path: Path) -> bytes:
    if path.exists() and not path.is_file():
        raise Unresolved("is not a file")  # reading a pipe could block for ever
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise Unresolved(f"cannot be read: {error.strerror}") from error
    if len(content) > _MAX_BYTES:
        raise Unresolved("is larger than a megabyte")
    return content


def _plain(name: str) -> str:
    """Checks that a file name stays in its folder."""
    if name in ("", ".", "..") or "/" in name or "\0" in name:
        raise Unresolved("is not a file name")
    return name


def _visible(folder: Path) -> list[str]:
    """Lists the files; Kubernetes keeps the versions of a mounted secret in folders that begin with dots."""
    return [file.name for file in folder.iterdir() if not file.name.startswith(".") and not file.is_dir()]


class _Quoted:
    """Tells which parts of a text are within double quotes, as a password in a JAAS line."""

    def __init__(self, text: str) -> None:
        self._marks = [match.start() for match in _QUOTES.finditer(text) if match[0] == '"'] if '"' in text else []
        self._seen = 0

    def contains(self, placeholder: Placeholder) -> bool:
        """Tells whether a placeholder is quoted; call it from left to right."""
        while self._seen < len(self._marks) and self._marks[self._seen] < placeholder.start:
            self._seen += 1
        return self._seen % 2 == 1 and self._marks[-1] >= placeholder.end


def _owner(key: str, aliases: frozenset[str]) -> str:
    """Returns the cluster that a key of a property file belongs to."""
    at = key.find(".")
    while at >= 0:
        if key[:at] in aliases:
            return key[:at]
        source, arrow, target = key[:at].partition("->")
        if arrow and source in aliases and target in aliases:
            side = key[at + 1 :].partition(".")[0]
            return {"source": source, "consumer": source, "target": target, "producer": target}.get(side, "")
        at = key.find(".", at + 1)
    return ""


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')


def _warn_of_provider(entry: ConfigEntry, placeholder: Placeholder, report: Report) -> None:
    shown = "a placeholder in it" if is_secret_name(entry.key) else f'"{placeholder.text}"'
    remedy = f"the providers are {', '.join(_PROVIDERS)}"
    report.warn("unknown-provider", f'"{entry.key}": nothing resolves {shown}', entry, remedy=remedy)


def _warn_of_bare(entry: ConfigEntry, report: Report) -> None:
    bare = _BARE.search(entry.value)
    is_meant = is_secret_name(entry.key) or entry.key.endswith(".replacement")  # a password, or a group's name
    if bare is not None and not is_meant:
        report.warn(
            "bare-placeholder",
            f'"{entry.key}": "{bare[0]}" is left as it is',
            entry,
            remedy=f'write "${{env:{bare[1]}}}"',
        )


def compare_places(
    by_place: Mapping[str, Sequence[Reference]], literals: Sequence[Reference] = ()
) -> list[dict[str, str]]:
    """Builds a row for each secret and key: who needs it, where it is missing, whether all folders agree."""
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
