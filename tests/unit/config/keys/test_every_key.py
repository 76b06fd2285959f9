"""Every key that the loader accepts, at every place that it accepts it, changes the settings and is shown, or is
talked about. A key that is taken in silence and has no effect may be the one that asked for encryption."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import pytest

from heliograph.config import Loaded, inspect_content
from heliograph.config.keys.client_settings import ADMIN, CONNECTION, ROLES, ValueKind
from heliograph.config.keys.key import Effect, Key, Where
from heliograph.config.keys.lookup import find_key
from heliograph.config.keys.table import KEYS
from heliograph.config.secrets import MASK
from heliograph.config.show import effective

FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"
OWN_CLASS = "python:tests.unit.config.keys.test_every_key.SomeNames"
FAMILIES = {
    "config.providers.*": ("config.providers.own.class", FILE_PROVIDER),
    "spark.*": ("spark.executor.memory", "1g"),
    "topic.rename.*": ("topic.rename.1.pattern", "x"),
    "group.rename.*": ("group.rename.1.pattern", "x"),
    "start.position.*": ("start.position.1.topics", "x"),
    "python.*": ("python.size", "3"),
}
"""Families of keys: one of each, with a value."""
COMPANIONS = {
    "topic.rename.1.pattern": {"topic.rename.1.replacement": "y"},
    "group.rename.1.pattern": {"group.rename.1.replacement": "y"},
    "start.position.1.topics": {"start.position.1.from": "latest"},
    "python.size": {"topic.filter.class": OWN_CLASS},
    "replication.policy.internal.topic.separator.enabled": {"replication.policy.separator": "_"},
    "auto.restart.max.restarts": {"auto.restart.enabled": "true"},
    "auto.restart.max.backoff.minutes": {"auto.restart.enabled": "true"},
}
"""Keys that are read together with others."""
VALUES = {
    "topics": "orders",
    "groups": "billing",
    "start.position": "latest",
    "bootstrap.servers": "other:9093",
    "security.protocol": "SASL_SSL",
    "enabled": "false",
    "emit.heartbeats.enabled": "false",
    "replication.policy.class": "org.apache.kafka.connect.mirror.IdentityReplicationPolicy",
    "topic.filter.class": OWN_CLASS,
    "group.filter.class": OWN_CLASS,
    "config.property.filter.class": OWN_CLASS,
    "max.bytes.per.second": "1000",
    "auto.restart.max.restarts": "3",
}
CLIENT_PREFIXES = tuple(
    f"{side}{role}.{way}"
    for side in ("", "source.", "target.")
    for role in ROLES
    for way in (("",) if side else ("", "override."))
)


class SomeNames:
    """A filter of one's own."""

    def __init__(self, properties: dict[str, str]) -> None:
        self.properties = properties

    def accepts(self, name: str) -> bool:
        return name != "secret"


class Written(NamedTuple):
    """A key as it is called at a place, with a value that must make a difference."""

    name: str
    value: str
    key: Key


def names() -> Iterator[str]:
    """All names that may be known somewhere."""
    for key in KEYS:
        yield FAMILIES[key.name][0] if key.name in FAMILIES else key.name
        yield from key.old_names
    for prefix in ("", "source.cluster.", "target.cluster."):
        yield from (prefix + name for name in CONNECTION)
    yield from ADMIN
    for prefix in CLIENT_PREFIXES:
        yield from (prefix + name for known in ROLES.values() for name in known)


def value_of(key: Key) -> str:
    """A valid value that is not the default."""
    bare = key.name.partition(".")[2] if key.name.startswith(tuple(f"{role}." for role in ROLES)) else key.name
    if bare in VALUES:
        return VALUES[bare]
    if key.name in FAMILIES:
        return FAMILIES[key.name][1]
    if key.choices:
        return next(choice for choice in reversed(key.choices) if choice != key.default)
    if key.kind is ValueKind.BOOLEAN:
        return "false" if key.default == "true" else "true"
    if key.kind in (ValueKind.SHORT, ValueKind.INT, ValueKind.LONG):
        return str(int(key.default or "6") + 1)
    return "something"


def keys_at(where: Where) -> list[Written]:
    """Every key that is said to act at a place."""
    found: dict[str, Written] = {}
    for name in names():
        key = find_key(where, name).key
        if key is not None and key.effect is Effect.HONOURED and name != "clusters" and not name.endswith(".alias"):
            found[name] = Written(name, value_of(key), key)
    return list(found.values())


def complaint(base: Loaded, loaded: Loaded, item: Written) -> str:
    """What is wrong with how a key was taken; empty if nothing is."""
    shown = f"{item.name} = {item.value}"
    if loaded.settings is None or any(f'{item.name}"' in finding.what for finding in loaded.findings):
        return ""
    before, after = base.settings, loaded.settings
    if before is not None and (after, after.secrets) == (before, before.secrets):
        return f"{shown}: nothing has changed and nothing was said"
    rows = [row for row in effective(loaded.parts) if row.origin.startswith(loaded.file)]
    is_shown = any(row.key.endswith((item.name, item.key.name)) and row.value in (item.value, MASK) for row in rows)
    return "" if is_shown else f"{shown}: is not shown"


def complaints(where: Where, write: Callable[[dict[str, str]], Loaded], besides: Mapping[str, str] = {}) -> list[str]:
    """Of all keys at one place; `write` makes a configuration with some keys there, and loads it.

    `besides` has the values of keys whose default is another there.
    """
    bare, found = write({}), []
    for known in keys_at(where):
        item = known._replace(value=besides.get(known.name, known.value))
        companions = COMPANIONS.get(item.name, {})
        base = write(companions) if companions else bare
        found.append(complaint(base, write({**companions, item.name: item.value}), item))
    return [text for text in found if text]


def property_file(prefix: str, keys: dict[str, str]) -> Loaded:
    lines = {
        "clusters": "a, b",
        "a.bootstrap.servers": "a:9092",
        "b.bootstrap.servers": "b:9092",
        "a->b.enabled": "true",
    }
    if not prefix and "bootstrap.servers" in keys:
        del lines["b.bootstrap.servers"]
    if not prefix and "enabled" in keys:
        del lines["a->b.enabled"]
    lines |= {f"{prefix}{name}": value for name, value in keys.items()}
    text = "".join(f"{name} = {value}\n" for name, value in lines.items())
    return inspect_content(text.encode(), "mm2.properties")


@pytest.mark.parametrize("prefix", ["", "a->b.", "a.", "b."])
def test_every_key_of_a_property_file_is_read_and_shown_or_talked_about(prefix: str) -> None:
    where = Where.FLOW if "->" in prefix else Where.CLUSTER if prefix else Where.TOP
    assert complaints(where, lambda keys: property_file(prefix, keys)) == []


def resource(place: str, keys: dict[str, str]) -> Loaded:
    at = {name: keys if name == place else {} for name in ("annotations", "source", "target", *BLOCKS)}
    document = {
        "apiVersion": "kafka.strimzi.io/v1beta2",
        "kind": "KafkaMirrorMaker2",
        "metadata": {"annotations": {f"heliograph/{key}": value for key, value in at["annotations"].items()}},
        "spec": {
            "connectCluster": "b",
            "clusters": [
                {"alias": "a", "bootstrapServers": "a:9092", "config": at["source"]},
                {"alias": "b", "bootstrapServers": "b:9092", "config": at["target"]},
            ],
            "mirrors": [
                {"sourceCluster": "a", "targetCluster": "b", **{name: {"config": at[name]} for name in BLOCKS}}
            ],
        },
    }
    return inspect_content(json.dumps(document).encode(), "mirror.yaml")


BLOCKS = ("sourceConnector", "checkpointConnector", "heartbeatConnector")


@pytest.mark.parametrize("place", ["annotations", "source", "target", *BLOCKS])
def test_every_key_of_a_resource_is_read_and_shown_or_talked_about(place: str) -> None:
    where = Where.TOP if place == "annotations" else Where.CLUSTER if place in ("source", "target") else Where.FLOW
    besides = {"emit.heartbeats.enabled": "true"} if place == "annotations" else {}
    assert complaints(where, lambda keys: resource(place, keys), besides) == []
