"""Looks up what a key means at the level where it was written, and which key a mistyped one may mean."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass, replace

from heliograph.config.keys.client_keys import CLIENT_KEYS, CONNECTION_KEYS
from heliograph.config.keys.key import Effect, Key, Where
from heliograph.config.keys.table import KEYS, MEANT, NEVER_READ


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyLookup:
    """The result of a lookup: known (`key`), ignored at this level (`hint` says where it works), or neither."""

    key: Key | None = None
    hint: str = ""
    replaced_by: str = ""
    nearest: str = ""


_BY_NAME: dict[str, list[Key]] = {}
for _row in KEYS:
    for _name in (_row.name, *_row.old_names):
        _BY_NAME.setdefault(_name, []).append(_row)
_FAMILIES = [(key.name[:-1], key) for key in KEYS if key.name.endswith(".*")]

_FLOW_SIDES = ("source.", "target.")


def find_key(where: Where, name: str) -> KeyLookup:
    """Looks up a key at a level; `name` is without the prefix of its flow or cluster."""
    rows = _BY_NAME.get(name) or [key for prefix, key in _FAMILIES if name.startswith(prefix) and name != prefix]
    for row in rows:
        if where in row.scope.places:
            return KeyLookup(key=row, replaced_by=row.name if name in row.old_names else "")
    client = _find_client(where, name)
    if client is not None and (client.key is not None or not rows):
        return client
    if rows:
        return KeyLookup(hint=_place_hint(rows[0], name))
    if name in NEVER_READ:
        return KeyLookup(hint=f"MM2 never reads it; it may mean {NEVER_READ[name]}")
    return KeyLookup(nearest=_nearest(where, name))


def _find_client(where: Where, name: str) -> KeyLookup | None:
    """Looks up a key of Kafka's clients, with the prefixes that are allowed at this level."""
    if where is not Where.FLOW and name in CONNECTION_KEYS:
        return KeyLookup(key=CONNECTION_KEYS[name])
    if where is Where.CLUSTER and (worker := CLIENT_KEYS["admin"].get(name)) is not None:
        return KeyLookup(key=_of_worker(worker))
    role, rest, prefixed = _split_role(name)
    if prefixed and where is not Where.FLOW and name.startswith(_FLOW_SIDES):
        return KeyLookup(hint=f"write <A>-><B>.{name}")
    if role == "cluster" and where is Where.FLOW:
        return KeyLookup(key=CONNECTION_KEYS[rest]) if rest in CONNECTION_KEYS else None
    if role in CLIENT_KEYS and rest in CLIENT_KEYS[role]:
        if where is Where.TOP:
            return KeyLookup(hint=f"write {_side(role)}{role}.{rest}")
        if where is Where.CLUSTER and ".override." in name:
            return KeyLookup(hint=f"write <A>-><B>.{name}")
        return KeyLookup(
            key=_at_flow(name, CLIENT_KEYS[role][rest]) if where is Where.FLOW else CLIENT_KEYS[role][rest]
        )
    if name in CONNECTION_KEYS:
        return KeyLookup(hint=f"write <X>.{name}")
    for role, keys in CLIENT_KEYS.items():
        if name in keys:
            return KeyLookup(hint=f"write {_side(role)}{role}.{name}")
    return None


def _of_worker(key: Key) -> Key:
    """Marks a key as one of Connect's workers: directly under a cluster it reaches no client of a mirror."""
    meaning = f"it configures Connect's workers; write <X>.{key.name}, or put consumer. or producer. in front"
    return replace(key, effect=Effect.POINTLESS, meaning=meaning) if key.effect is Effect.HONOURED else key


def _at_flow(name: str, key: Key) -> Key:
    """Returns the key as it works under a flow: `producer.` there means the producer of offset-syncs."""
    if name.startswith(("consumer.override.", "admin.override.")):
        meaning = "Connect's workers have no such client of a mirror; write it without `override.`"
        return replace(key, effect=Effect.POINTLESS, meaning=meaning) if key.effect is Effect.HONOURED else key
    admins = ("admin.", "source.admin.", "target.admin.")
    reaches = name.startswith(("consumer.", "source.consumer.", "producer.override.", *admins))
    return key if reaches or key.effect is not Effect.HONOURED else replace(key, effect=Effect.LATER)


def _split_role(name: str) -> tuple[str, str, bool]:
    """Splits `source.consumer.x` or `producer.override.x` into role and rest; also tells if a side was named."""
    sided = name.startswith(_FLOW_SIDES)
    rest = name.split(".", 1)[1] if sided else name
    role, _, key = rest.partition(".")
    return role, key if sided else key.removeprefix("override."), sided


def _side(role: str) -> str:
    return {"consumer": "<source>.", "producer": "<target>."}.get(role, "<X>.")


def _place_hint(row: Key, name: str) -> str:
    places = {
        Where.TOP: f"{name} at the top level",
        Where.FLOW: f"<A>-><B>.{name}",
        Where.CLUSTER: f"<target>.{name}",
    }
    return "write " + " or ".join(places[place] for place in row.scope.places)


def _nearest(where: Where, name: str) -> str:
    if name in MEANT:
        return MEANT[name]
    role, rest, sided = _split_role(name)
    if role in CLIENT_KEYS and where is not Where.TOP:
        prefix = name[: len(name) - len(rest)]
        return prefix + best if (best := _closest(rest, CLIENT_KEYS[role])) else ""
    if sided and role == "cluster":
        return name[: len(name) - len(rest)] + best if (best := _closest(rest, CONNECTION_KEYS)) else ""
    names = [key.name for key in KEYS if where in key.scope.places]  # never an old name
    if where is not Where.FLOW:
        names += CONNECTION_KEYS
    return _closest(name, (n for n in names if not n.endswith(".*")))


def _closest(name: str, candidates: Iterable[str]) -> str:
    best = difflib.get_close_matches(name, list(candidates), n=1, cutoff=0.6)
    return best[0] if best else ""
