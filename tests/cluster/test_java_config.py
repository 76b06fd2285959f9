"""Java is the judge of configurations: syntax of property files, MM2's layers, types and defaults of keys."""

from __future__ import annotations

import random
import re
from itertools import permutations
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from py4j.java_gateway import get_field
from py4j.protocol import Py4JJavaError

from heliograph.config.files.layers import connector_config, make_layers, pair_starts, worker_config
from heliograph.config.files.parts import Connector
from heliograph.config.files.properties import parse_properties
from heliograph.config.findings import Config, Report
from heliograph.config.keys.client_keys import CLIENT_KEYS, CONNECTION_KEYS
from heliograph.config.keys.key import Key, Where
from heliograph.config.keys.lookup import find_key
from heliograph.config.keys.table import CONNECTOR_NAMES, KEYS
from heliograph.config.keys.values import parse_value, split_list
from heliograph.errors import ConfigError
from tests.cluster.judge import MIRROR, Judge

CONFIGS = sorted((Path(__file__).parents[1] / "published_configs").glob("*.properties"))


def _values(config: Config) -> dict[str, str]:
    return {key: entry.value for key, entry in config.items()}


# -- syntax

PIECES = (
    *"abc=: \t\f\\\n\r#!", "\r\n", "\\\n", "\\\r\n  ", "key = value", "# comment", "\\\\", r"\t", r"\n", r"\ ", r"\=",
    r"\:", r"\#", r"\z", r"\u0041", r"\u00e9", r"\u20AC", r"\ud83d\ude00", r"\u12", r"\u", r"\u00zz", "é", "€",
    "\U0001f600", "\x00", "\x0b", "\x85", "\xa0", "\u2028", "\x1c",
)  # fmt: skip


# Not compared: a backslash as the very last line, from which Java makes a pair of two empty texts, and half a
# character, for which Java writes a question mark.
LEFT_OUT = re.compile(r"(?:\A|[\r\n])[ \t\f]*\\[\r\n]?\Z|\\\\ud83d")


def _java_pairs(java: Judge, text: str) -> dict[str, str] | None:
    try:
        return java.pairs(java.properties(text))
    except Py4JJavaError:
        return None


def _our_pairs(text: str) -> dict[str, str] | None:
    try:
        return _values(parse_properties(text.encode(), Report("f")))
    except ConfigError:
        return None


def test_generated_texts_have_the_pairs_that_java_reads(java: Judge) -> None:
    chance = random.Random(1)
    read = 0
    for _ in range(3000):
        text = "".join(chance.choices(PIECES, k=chance.randint(1, 25)))
        if not LEFT_OUT.search(text):
            ours = _our_pairs(text)
            read += bool(ours)
            assert ours == _java_pairs(java, text), repr(text)
    assert read > 1000


# -- layers

ALIASES = (
    ["A", "B"], ["source", "target"], ["a", "a.b", "c"], ["es-ic", "x_1", "y"], ["us.east-1", "us"], ["consumer", "B"],
    ["A", "B", "C", "D"], ["only"],
)  # fmt: skip
CLIENTS = [f"{role}.{name}" for role, keys in CLIENT_KEYS.items() for name in sorted(keys)]
CONNECTION = sorted(CONNECTION_KEYS)
# Java checks these more closely than the generator can please.
SKIPPED = {
    "clusters", "config.providers", "listeners", "dedicated.mode.enable.internal.rest", "rest.advertised.port",
    "plugin.discovery", "plugin.path", "response.http.headers.config",
}  # fmt: skip
NAMES = (
    CONNECTION,
    CLIENTS,
    [f"{side}.{name}" for side in ("source", "target") for name in CLIENTS],
    [f"{side}.cluster.{name}" for side in ("source", "target") for name in CONNECTION],
    [f"{role}.override.{name}" for role, keys in CLIENT_KEYS.items() for name in sorted(keys)],
    *2 * ([key.name.replace(".*", ".x.y") for key in KEYS if not key.own and key.name not in SKIPPED],),
    ["replication.policy.class", "replication.policy.separator", "replication.policy.x"],
    ["enabled", "emit.heartbeats.enabled", "topics", "tasks.max", "x", "x.y", "consumers", "administrator"],
    ["config.providers.file.param.a", "config.providers.b.class", "config.providersx"],
)
# Without plugin.discovery, Java looks through all jars for plugins: three seconds for every file.
QUICK = "plugin.discovery = service_load"
PROVIDER = "config.providers.file.class = org.apache.kafka.common.config.provider.FileConfigProvider"


def _generated_file(seed: int) -> str:
    chance = random.Random(seed)
    aliases = chance.choice(ALIASES)
    pairs = [f"{a}->{b}." for a, b in permutations(aliases, 2)]
    # Flows and clusters that do not exist, too.
    places = [""] * 3 + [f"{a}." for a in aliases] * 2 + pairs * 2
    places += [
        f"{aliases[0]}->{aliases[0]}.",
        f"{aliases[0]}->nobody.",
        "nobody.",
        f"{aliases[0]}..",
        f"{aliases[-1]}x.",
    ]
    lines = [f"clusters{chance.choice((' = ', '=', ': '))}{chance.choice((', ', ',', ' , ')).join(aliases)}", QUICK]
    if chance.random() < 0.2:
        lines += ["config.providers = file", PROVIDER]
    if chance.random() < 0.3:
        lines.append(f"emit.heartbeats.enabled = {chance.choice(('true', 'false'))}")
    for _ in range(60 if seed % 50 == 0 else chance.randint(2, 16)):
        name = chance.choice(chance.choice(NAMES))
        lines.append(_written(chance.choice(places) + name, _value(name, chance), chance))
        if chance.random() < 0.2:
            lines.append(chance.choice(("", "  \t", "# topics = none", "  ! x \\", "#\\")))
    return chance.choice(("\n", "\n", "\r\n", "\r")).join(lines)


def _value(name: str, chance: random.Random) -> str:
    """A value that MirrorMakerConfig accepts: it checks the types of connection keys."""
    fixed = {"security.protocol": "PLAINTEXT", "client.auth": "none", "include": "true", "urlencode": "true"}
    fixed |= {"class": "java.lang.String", "jitter": "0.1", "window.factor": "0.8", "algorithm": "RS256"}
    fixed |= dict.fromkeys(("ms", "seconds", "factor", "relogin"), "1")
    if name.endswith("enabled"):
        return chance.choice(("true", "false", "TRUE", "no"))
    free = chance.choice((f"v{chance.randint(1, 9)}", "a, b", "k=v:w", "é $1", "back\\slash", ""))
    return next((value for end, value in fixed.items() if name.endswith(end)), free)


def _written(key: str, value: str, chance: random.Random) -> str:
    """One of the ways in which Java allows to write a key and its value."""
    return (
        chance.choice(("", "", "  ", "\t"))
        + _escaped(key, "=: ", chance)
        + chance.choice(("=", " = ", ":", " : ", " ", "\t", " =\\\n  "))
        + _escaped(value, "", chance)
    )


def _escaped(text: str, special: str, chance: random.Random) -> str:
    made = ""
    for char in text:
        if char == "\\" or char in special:
            made += f"\\{char}"
        elif chance.random() < 0.01:
            made += f"\\u{ord(char):04x}"
        else:
            made += char
        if chance.random() < 0.01:
            made += "\\\n" + chance.choice(("", "    ")) * (not made.endswith(" "))
    return made


def _assert_same_layers(java: Judge, text: str, label: str, most_pairs: int) -> None:
    theirs = java.mirror("MirrorMakerConfig")(java.properties(text))
    entries = parse_properties(text.encode(), Report("f"))
    aliases = split_list(entries["clusters"].value)
    layers = make_layers(entries, aliases, _connector_names(java))
    pairs = list(permutations(aliases, 2))
    expected = str(theirs.clusterPairs().toString())
    started = {f"{a}->{b}" for a, b in pairs if pair_starts(layers, a, b)}
    assert started == set(split_list(expected[1:-1])), label
    for source, target in random.Random(label).sample(pairs, min(most_pairs, len(pairs))):
        pair = java.mirror("SourceAndTarget")(source, target)
        worker = java.pairs(theirs.workerConfig(pair))
        assert _values(worker_config(layers, source, target)) == worker, label
        for connector in Connector:
            kind = java.class_of(MIRROR + connector.value)
            config = java.pairs(theirs.connectorBaseConfig(pair, kind))
            assert _values(connector_config(layers, source, target, connector)) == config, label


def test_generated_files_have_the_layers_of_mirror_maker_config(java: Judge) -> None:
    for seed in range(1000):
        _assert_same_layers(java, _generated_file(seed), f"seed {seed}", most_pairs=2)


def test_there_are_files() -> None:
    assert len(CONFIGS) >= 5


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.stem)
def test_files_have_the_layers_of_mirror_maker_config(java: Judge, path: Path) -> None:
    # Java would resolve the worker's placeholders: layers are compared before that.
    text = path.read_text().replace("${", "$(")
    _assert_same_layers(java, f"{text}\n{QUICK}\n", path.name, most_pairs=20)


# -- keys


class JavaKey(NamedTuple):
    kind: str
    default: str | None


def _java_keys(java: Judge, definition: Any) -> dict[str, JavaKey]:
    """The keys of a `ConfigDef` that are not internal."""
    keys = {}
    for name, key in definition.configKeys().items():
        if not get_field(key, "internalConfig"):
            kind = key.type()
            default = get_field(key, "defaultValue") if key.hasDefault() else None
            text = java.jvm.org.apache.kafka.common.config.ConfigDef.convertToString(default, kind)
            keys[name] = JavaKey(kind.toString().lower(), text)
    return keys


def _static_field(java: Judge, class_name: str, name: str) -> Any:
    field = java.class_of(class_name).getDeclaredField(name)
    field.setAccessible(True)
    return field.get(None)


def _connector_definition(java: Judge, kind: str) -> Any:
    return _static_field(java, f"{MIRROR}Mirror{kind}Config", "CONNECTOR_CONFIG_DEF")


def _worker_definition(java: Judge) -> Any:
    package = "org.apache.kafka.connect.runtime.distributed."
    kinds = java.array(java.jvm.Class, [java.class_of(f"{package}Crypto")])
    method = java.class_of(f"{package}DistributedConfig").getDeclaredMethod("config", kinds)
    method.setAccessible(True)
    system = _static_field(java, f"{package}Crypto", "SYSTEM")
    return method.invoke(None, java.array(java.jvm.Object, [system]))


def _client_definition(java: Judge, role: str) -> Any:
    name = {"admin": "admin.AdminClient", "consumer": "consumer.Consumer", "producer": "producer.Producer"}[role]
    method = java.class_of(f"org.apache.kafka.clients.{name}Config").getMethod(
        "configDef", java.array(java.jvm.Class, [])
    )
    return method.invoke(None, java.array(java.jvm.Object, []))


def _connector_names(java: Judge) -> frozenset[str]:
    """Names that Kafka 4.3 takes from the top level; ours hold older and newer ones besides."""
    if java not in _CONNECTOR_NAMES:
        definitions = (_connector_definition(java, kind) for kind in ("Source", "Checkpoint", "Heartbeat"))
        _CONNECTOR_NAMES[java] = frozenset(name for d in definitions for name in java.texts(d.names()))
    return _CONNECTOR_NAMES[java]


_CONNECTOR_NAMES: dict[Judge, frozenset[str]] = {}


# Where our default is not that of Kafka's definition, and why.
DEFAULTS_BY_CHOICE = {
    **dict.fromkeys(
        (
            "name", "connector.class", "key.converter", "value.converter", "header.converter", "enabled",
            "source.cluster.alias", "target.cluster.alias", "group.id", "client.id", "offset.storage.topic",
            "config.storage.topic", "status.storage.topic",
        ),
        "MirrorMakerConfig gives another one; the layers are compared above",
    ),
    "offset.flush.interval.ms": "positions are written more often here, which costs little",
    "refresh.topics.interval.seconds": "10 for 600: a topic younger than that is lost with the source",
    "refresh.groups.interval.seconds": "5 for 600: a group younger than that is lost with the source",
    "emit.checkpoints.interval.seconds": "5 for 60: what a group commits between two passes is read again",
    "sync.group.offsets.interval.seconds": "5 for 60: what a group commits between two passes is read again",
}  # fmt: skip
# Connect's workers have them, but MM2 reads them at the top level only.
ONLY_AT_TOP = {
    "rest.advertised.host.name", "rest.advertised.port", "rest.advertised.listener", "access.control.allow.origin",
    "access.control.allow.methods", "response.http.headers.config", "ssl.client.auth",
}  # fmt: skip
# What connectors take from the top level besides: names of older Kafkas, and proposals for newer ones.
OTHER_RELEASES = {
    "topics.blacklist", "groups.blacklist", "config.properties.blacklist", "add.source.alias.to.metrics",
    "auto.include.jmx.reporter", "use.incremental.alter.configs", "group.mirroring.policy.class",
    "reverse.checkpointing.enabled",
}  # fmt: skip


def _assert_same_key(name: str, ours: Key | None, theirs: JavaKey) -> None:
    assert ours is not None, name
    if ours.name.endswith(".*"):  # one row for many keys
        return
    assert ours.kind == theirs.kind, name
    if name in DEFAULTS_BY_CHOICE and (told := re.search(r"\(MM2: (\d+)\)", ours.meaning)) is not None:
        assert told[1] == theirs.default, name
    if ours.default is None or name in DEFAULTS_BY_CHOICE:
        return
    assert theirs.default is not None, name
    assert parse_value(ours, ours.default) == parse_value(ours, theirs.default), name


@pytest.mark.parametrize("kind", ["Source", "Checkpoint", "Heartbeat"])
def test_keys_of_connectors_have_kafkas_types_and_defaults(java: Judge, kind: str) -> None:
    for name, key in _java_keys(java, _connector_definition(java, kind)).items():
        # A connector knows connection settings, but gives its clients those of the clusters.
        _assert_same_key(name, find_key(Where.TOP if name in CONNECTION_KEYS else Where.FLOW, name).key, key)


@pytest.mark.parametrize(
    "name",
    [
        "DefaultTopicFilter$TopicFilterConfig",
        "DefaultGroupFilter$GroupFilterConfig",
        "DefaultConfigPropertyFilter$ConfigPropertyFilterConfig",
    ],
)
def test_keys_of_filters_have_kafkas_types_and_defaults(java: Judge, name: str) -> None:
    for key, expected in _java_keys(java, _static_field(java, MIRROR + name, "DEF")).items():
        _assert_same_key(key, find_key(Where.FLOW, key).key, expected)


def test_keys_of_workers_have_kafkas_types_and_defaults(java: Judge) -> None:
    for name, key in _java_keys(java, _worker_definition(java)).items():
        _assert_same_key(name, find_key(Where.TOP if name in ONLY_AT_TOP else Where.CLUSTER, name).key, key)


@pytest.mark.parametrize("role", ["admin", "consumer", "producer"])
def test_keys_of_clients_are_kafkas_with_its_types(java: Judge, role: str) -> None:
    theirs = _java_keys(java, _client_definition(java, role))
    assert {name: key.kind for name, key in theirs.items()} == {n: k.kind for n, k in CLIENT_KEYS[role].items()}


def test_connectors_take_kafkas_names_from_the_top_level(java: Judge) -> None:
    assert _connector_names(java) - CONNECTOR_NAMES == set()
    own = {key.name for key in KEYS if key.own}
    assert CONNECTOR_NAMES - _connector_names(java) - own == OTHER_RELEASES
