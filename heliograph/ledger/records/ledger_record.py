"""The shape that all ledger records share: which bytes are their key and their value. Pure.

The key is a JSON array: the kind, the flow's `group.id` (two instances may share a target), and what tells the records
of one kind apart. The value is a compact JSON object, versioned by "v". A record without a value is deleted.

Whoever may write the ledger's topic may write anything there. A record counts only if every number is in its own range
and every value of its own type (`untrusted_json`). One that is not is refused as a whole, so that it never outranks an
honest one: parsing raises ValueError or KeyError, and `table` catches these.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Self

from heliograph.kafka.log import KeyValue
from heliograph.ledger.records.untrusted_json import INT32_MAX, as_fields, as_int, as_text, parse_json, take

VERSION = 1
NO_PARTITION = -1
"""Stands for the whole topic, or the whole flow, where a partition's number is expected."""


class LedgerRecord(ABC):
    """A record of a flow's ledger; every kind is a subclass with a file of its own."""

    __slots__ = ()

    @abstractmethod
    def encode(self, group_id: str) -> KeyValue:
        """Return key and value; without a value the record is deleted."""

    @classmethod
    @abstractmethod
    def parse(cls, rest: Sequence[Any], value: bytes | None) -> Self | None:
        """Return the record, by the elements of its key after kind and group and by its value.

        None stands for a version that is not known, and for a deletion that means nothing. Raises ValueError or
        KeyError.
        """


class JsonRecord(LedgerRecord):
    """A record whose value is a JSON object."""

    __slots__ = ()
    KIND: ClassVar[str]
    """The first element of the key."""

    @abstractmethod
    def key_parts(self) -> Sequence[Any]:
        """Return the key's elements after kind and group."""

    @abstractmethod
    def fields(self) -> Mapping[str, Any] | None:
        """Return the value's fields but for the version; None deletes the record."""

    @classmethod
    @abstractmethod
    def parse_fields(cls, rest: Sequence[Any], fields: Mapping[str, Any]) -> Self:
        """Return the record, by the elements of its key after kind and group and by its value's fields."""

    @classmethod
    def parse_deleted(cls, rest: Sequence[Any]) -> Self | None:  # noqa: ARG003 (kinds that keep it read it)
        """Return the record that says that one was deleted; None where a deletion means nothing."""
        return None

    def encode(self, group_id: str) -> KeyValue:
        fields = self.fields()
        value = compact({"v": VERSION, **fields}) if fields is not None else None
        return encode_key(self.KIND, group_id, *self.key_parts()), value

    @classmethod
    def parse(cls, rest: Sequence[Any], value: bytes | None) -> Self | None:
        if value is None:
            return cls.parse_deleted(rest)
        fields = parse_known_version(value)
        return cls.parse_fields(rest, fields) if fields is not None else None


def parse_known_version(value: bytes) -> dict[str, Any] | None:
    """Return the fields of a JSON value; None if their version is not known."""
    fields = as_fields(parse_json(value))
    return fields if as_int(fields["v"], 0, INT32_MAX) == VERSION else None


def compact(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def encode_key(*elements: Any) -> bytes:
    return compact(elements)


def one_text(rest: Sequence[Any]) -> str:
    """Return the one text that follows in a key."""
    [text] = take(rest, 1)
    return as_text(text)


def as_partition_or_none(value: Any) -> int:
    """Return a partition, or NO_PARTITION."""
    return as_int(value, NO_PARTITION, INT32_MAX)
