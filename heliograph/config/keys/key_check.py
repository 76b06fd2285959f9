"""Checks one written key: known, ignored at its level, misspelt or unknown; then its value by its type."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Sequence

from heliograph.config.findings import ConfigEntry, Report
from heliograph.config.keys.key import Effect, Key, Where
from heliograph.config.keys.lookup import find_key
from heliograph.config.keys.values import BadValue, parse_value

_SECRET = re.compile(
    r"pas+w|pas+phrase|pwd|secret|token(?!\.endpoint)|jaas|credential|private|keystore\.key|(?:api|access).?key",
    re.IGNORECASE,
)


def is_secret_name(name: str) -> bool:
    """Tells whether the value of a key of this name must not be shown."""
    return _SECRET.search(name) is not None


def check_entry(
    entry: ConfigEntry, places: Sequence[tuple[Where, str]], aliases: Collection[str], report: Report
) -> None:
    """Checks a key that may belong to one of several levels, the likeliest first."""
    for where, name in places:
        found = find_key(where, name)
        if found.key is not None:
            if found.replaced_by:
                report.warn("old-name", f'"{name}" is an old name', entry, remedy=f'write "{found.replaced_by}"')
            check_value(found.key, entry, report)
            return
    hints = [found.hint for found in (find_key(where, name) for where, name in places) if found.hint]
    if hints:
        report.warn("wrong-place", f'"{entry.key}" has no effect here', entry, remedy=hints[0])
        return
    where, name = places[0]
    nearest = find_key(where, name).nearest
    written = entry.key[: len(entry.key) - len(name)] + nearest if nearest else ""
    meant = (nearest if where is Where.FLOW else written) or _nearest_alias(entry.key, aliases)
    if meant:
        report.error("misspelt-key", f'"{entry.key}" is not a known key', entry, remedy=f'did you mean "{meant}"?')
    else:
        report.warn(
            "unknown-key", f'"{entry.key}" is not a known key', entry, remedy="docs/configuration.md lists all keys"
        )


def check_value(key: Key, entry: ConfigEntry, report: Report) -> None:
    if entry.is_missing:
        return  # reported when it could not be resolved
    if key.effect is Effect.REFUSED:
        if entry.value.strip() not in key.allowed:
            report.error("refused", f'"{entry.key}" is refused: {key.meaning}', entry, remedy=_allowed(key))
        return
    try:
        parse_value(key, entry.value)
    except BadValue as error:
        hidden = bool(entry.reference) or is_secret_name(entry.key)
        report.error("bad-value", f'"{entry.key}" {error.hidden if hidden else error}', entry)
        return
    if key.effect in (Effect.LATER, Effect.POINTLESS):
        report.inform("no-effect", f'"{entry.key}" has no effect{_because(key)}', entry)


def _allowed(key: Key) -> str:
    values = [value for value in key.allowed if value]
    return f"only {values[0]} is possible" if values else "remove the key"


def _because(key: Key) -> str:
    return " yet" if key.effect is Effect.LATER else f": {key.meaning}"


def _nearest_alias(key: str, aliases: Collection[str]) -> str:
    """Finds a misspelt alias: `primry.bootstrap.servers` is not a misspelt key."""
    prefix, _, rest = key.partition(".")
    near = difflib.get_close_matches(prefix, list(aliases), n=1, cutoff=0.6)
    return f"{near[0]}.{rest}" if near and find_key(Where.CLUSTER, rest).key is not None else ""
