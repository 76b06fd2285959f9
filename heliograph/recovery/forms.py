"""Choices that the command line offers for acts of recovery; apart, because it needs them at once. Pure."""

from __future__ import annotations

from enum import StrEnum


class By(StrEnum):
    """What a translation goes by."""

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
