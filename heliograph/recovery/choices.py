"""Defines choices of the recovery commands; apart, because the command line needs them at once. Pure."""

from __future__ import annotations

from enum import StrEnum


class By(StrEnum):
    """The basis of a translation."""

    LEDGER = "ledger"
    CHECKPOINT = "checkpoint"


class PositionsFormat(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
    CONNECT = "connect"
    """The body of Kafka Connect's `PATCH /connectors/<name>/offsets`."""


class TranslationFormat(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"
    CSV = "csv"
