"""docs/configuration.md from the table of keys: `python -m heliograph.config.document > docs/configuration.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterable

from heliograph.config.table import CLIENT_KEYS, CONNECTION_KEYS, KEYS, NEVER_READ, Effect, Key, Scope

_INTRODUCTION = """\
# Configuration

Made by `python -m heliograph.config.document`; do not edit.

A configuration is a MirrorMaker 2 property file (Java's `.properties` syntax):

```
clusters = primary, backup
primary.bootstrap.servers = k1:9092, k2:9092
backup.bootstrap.servers = k3:9092
primary->backup.enabled = true
primary->backup.topics = orders, payments.*
```

Where a key may stand, by its scope:

| scope | written as |
|---|---|
| global | `key` |
| flow | `key` for all flows, `<A>-><B>.key` for one; the latter wins |
| target | `<B>.key`, where B is the target; those of the storage topics also as `key`, which then wins |
| cluster | `<X>.key`, or `key` for all clusters; the former wins |
| client | `<X>.consumer.key` of a source, `<X>.producer.key` of a target; for one flow `<A>-><B>.source.consumer.key` \
and `<A>-><B>.producer.override.key` |

A key that MM2 ignores at the place where it stands gives a warning that names the right place. An unknown key,
a value of the wrong type and a key that would change records are errors.

Effects: *honoured*; *no effect yet* (accepted, listed at start); *no effect* (pointless here, the reason is given);
*refused* (an error, except for the values given).
"""


def render() -> str:
    own = [key for key in KEYS if key.own]
    mm2 = [key for key in KEYS if not key.own]
    parts = [
        _INTRODUCTION,
        "## The whole mirror\n\n" + _table(key for key in mm2 if key.scope is Scope.GLOBAL),
        "## Flows\n\n" + _table(key for key in mm2 if key.scope.label.startswith("flow")),
        "## Targets\n\n" + _table(key for key in mm2 if key.scope.label == "target"),
        "## heliograph's own settings\n\n" + _table(own),
        "## Connections\n\n" + _table(CONNECTION_KEYS.values()),
        *(f"## Keys of {role}s\n\n" + _table(_role_keys(role)) for role in ("consumer", "producer", "admin")),
        "## Names that MM2 never reads\n\nThey stand in published files and give a warning.\n\n"
        + "".join(f"* `{name}`; it may mean {meant}\n" for name, meant in NEVER_READ.items()),
    ]
    return "\n".join(parts)


def _role_keys(role: str) -> list[Key]:
    return [key for name, key in CLIENT_KEYS[role].items() if name not in CONNECTION_KEYS]


def _table(keys: Iterable[Key]) -> str:
    rows = sorted(keys, key=lambda key: key.name)
    head = "| key | scope | type | default | effect | meaning |\n|---|---|---|---|---|---|\n"
    return head + "".join(_row(key) for key in rows)


def _row(key: Key) -> str:
    name = f"`{key.name.replace('.*', '.<...>')}`" + "".join(f", formerly `{old}`" for old in key.old_names)
    default = f"`{key.default}`" if key.default else ""
    scope = (
        "client" if key.name.startswith(("consumer.", "producer.", "admin.")) and not key.default else key.scope.label
    )
    cells = (name, scope, key.kind + _limits(key), default, key.effect, key.meaning)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


def _limits(key: Key) -> str:
    if key.choices:
        return ": " + ", ".join(f"`{choice}`" for choice in key.choices)
    if key.effect is Effect.REFUSED:
        return ", only " + ", ".join(f"`{value}`" if value else "empty" for value in key.allowed) if key.allowed else ""
    if key.low is not None:
        return f" ≥ {key.low}" + "".join(f" or {other}" for other in key.also)
    return ""


if __name__ == "__main__":
    sys.stdout.write(render())
