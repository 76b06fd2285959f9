"""Generates docs/configuration.md from the tables of keys and fields.

`python -m heliograph.config.document > docs/configuration.md` writes it; with `--check FILE` the exit code says
whether the file is up to date.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

from heliograph.config.changes import LIVE
from heliograph.config.files.resource import ANNOTATION, VERSIONS
from heliograph.config.files.resource_fields import LEVELS, FieldRole
from heliograph.config.keys.client_keys import CLIENT_KEYS, CONNECTION_KEYS
from heliograph.config.keys.key import Effect, Key, Scope
from heliograph.config.keys.table import KEYS, NEVER_READ

_ROLE_WORDS = {
    FieldRole.READ: "read",
    FieldRole.PODS: "kept for the pods",
    FieldRole.POINTLESS: "no effect",
    FieldRole.LATER: "no effect yet",
}

_FIELD_WORDS = {"replicas": "`0` pauses; another number has no effect"}
"""Explanations for fields of a resource whose role alone does not explain them."""

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

or a file of `KafkaMirrorMaker2` resources ([below](#resources)). Both give the same settings:
`heliograph config show FILE` prints them, each with the line it came from, and `heliograph config convert FILE`
writes one form as the other. `heliograph check FILE --offline` finds what is wrong or probably not meant.

Where a key of a property file may be written, by its scope:

| scope | written as |
|---|---|
| global | `key` |
| flow | `key` for all flows, `<A>-><B>.key` for one; the latter wins |
| target | `<B>.key`, where B is the target; those of the storage topics also as `key`, which then wins |
| cluster | `<X>.key`, or `key` for all clusters; the former wins; for one flow `<A>-><B>.source.cluster.key` and \
`<A>-><B>.target.cluster.key`, which win over both |
| client | `<X>.consumer.key` of a source, `<X>.producer.key` of a target; for one flow `<A>-><B>.source.consumer.key` \
and `<A>-><B>.producer.override.key`; these win over those of the cluster |

A flow's `source.cluster.*` and `target.cluster.*` hold for all of its clients, on executors too. MM2 differs in two
points: the same key of the cluster or at the top level wins over them, and the producer of the copies ignores
`target.cluster.*`. heliograph never ignores a key that asks for encryption.

A key that MM2 ignores where it is written gives a warning that names the right place; a key that resembles no known
key gives a warning too. A misspelt key, a value of the wrong type and a key that would change records are errors.

Effects: *honoured*; *no effect yet* (accepted, listed at start); *no effect* (not needed here, the reason is given);
*refused* (an error, except for the values given).

## Secrets

A value may have placeholders, which are resolved when the file is loaded. Their values are never shown.

| placeholder | stands for |
|---|---|
| `${env:NAME}` | an environment variable |
| `${file:/path/file.properties:key}` | a key of a property file |
| `${dir:/path:file}` | the content of a file |
| `${secrets:namespace/name:key}`, `${strimzisecrets:...}`, `${configmaps:...}`, `${strimziconfigmaps:...}` | the file \
`name/key` in the folder given with `--secrets` |

Other provider names work if `config.providers.<name>.class` is Kafka's `FileConfigProvider`,
`DirectoryConfigProvider` or `EnvVarConfigProvider`, or Strimzi's for secrets or config maps. A resource's references
to secrets (`passwordSecret`, `trustedCertificates`, `certificateAndKey`, ...) are looked up in the same folder: one
folder for each secret, one file for each key, as Kubernetes mounts them. `heliograph secrets check FILE --secrets DIR`
lists what is needed where and what is missing; several `--secrets` are compared by fingerprint.

## Changes while running

An edited file is read again within two seconds, and at once on SIGHUP. {live} take effect with the next plan; for any
other change the log says that it needs a restart. A file with errors changes nothing.
"""

_RESOURCES = """\
## Resources

`KafkaMirrorMaker2` of `kafka.strimzi.io` and `eventstreams.ibm.com`, versions {versions}. A file may have several
documents; those of other kinds are ignored with a notice. Settings are those that Strimzi would give to Connect, with
its defaults: group `mirrormaker2-cluster`, storage topics `mirrormaker2-cluster-offsets`, `-configs` and `-status`,
connectors named `<A>-><B>.MirrorSourceConnector` and so on. A connector whose block is absent does not run.
`replicas: 0` pauses all flows of a document; another number has no effect, because one process runs all flows.
Settings of the whole mirror are annotations, as in `{annotation}epoch.ms: "60000"`.
"""


def render() -> str:
    own = [key for key in KEYS if key.own]
    mm2 = [key for key in KEYS if not key.own]
    live = ", ".join(name.replace("_", " ") for name in sorted(LIVE))
    parts = [
        _INTRODUCTION.replace("{live}", live[0].upper() + live[1:]),
        "## The whole mirror\n\n" + _table(key for key in mm2 if key.scope is Scope.GLOBAL),
        "## Flows\n\n" + _table(key for key in mm2 if key.scope.label.startswith("flow")),
        "## Targets\n\n" + _table(key for key in mm2 if key.scope.label == "target"),
        "## heliograph's own settings\n\n" + _table(own),
        "## Connections\n\n" + _table(CONNECTION_KEYS.values()),
        *(f"## Keys of {role}s\n\n" + _table(_role_keys(role)) for role in ("consumer", "producer", "admin")),
        "## Names that MM2 never reads\n\nPublished files contain them; they give a warning.\n\n"
        + "".join(f"* `{name}`; it may mean {meant}\n" for name, meant in NEVER_READ.items()),
        _RESOURCES.replace("{versions}", ", ".join(VERSIONS)).replace("{annotation}", ANNOTATION),
        _fields_table(),
    ]
    return "\n".join(parts)


def _fields_table() -> str:
    rows = [
        f"| {level} | `{name}` | {_FIELD_WORDS.get(name, _ROLE_WORDS[role])} |\n"
        for level, fields in LEVELS.items()
        for name, role in fields.items()
    ]
    return "| part | field | effect |\n|---|---|---|\n" + "".join(rows)


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


def main(arguments: list[str]) -> int:
    if arguments[:1] != ["--check"]:
        sys.stdout.write(render())
        return 0
    if Path(arguments[1]).read_text() == render():
        return 0
    sys.stderr.write(f"{arguments[1]} is stale: python -m heliograph.config.document > {arguments[1]}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
