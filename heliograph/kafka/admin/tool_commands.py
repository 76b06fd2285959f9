"""Writes commands of Kafka's own tools, for an administrator who does by hand what we may not do. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

_ADDRESS = "<address>"


def create_topic_command(name: str, *, partitions: int, replication_factor: int, configs: Mapping[str, str]) -> str:
    """Return the command that creates a topic; a number of -1 is left to the broker."""
    words = ["kafka-topics.sh", "--bootstrap-server", _ADDRESS, "--create", "--topic", name]
    words += ["--partitions", str(partitions)] if partitions > 0 else []
    words += ["--replication-factor", str(replication_factor)] if replication_factor > 0 else []
    for key, value in configs.items():
        words += ["--config", f"{key}={value}"]
    return _joined(words)


def grow_topic_command(name: str, partitions: int) -> str:
    words = ["kafka-topics.sh", "--bootstrap-server", _ADDRESS, "--alter", "--topic", name]
    return _joined([*words, "--partitions", str(partitions)])


def alter_topic_command(name: str, changes: Mapping[str, str | None]) -> str:
    """Return the command that changes a topic's configs; None deletes the topic's own value."""
    words = ["kafka-configs.sh", "--bootstrap-server", _ADDRESS, "--alter", "--entity-type", "topics"]
    words += ["--entity-name", name]
    added = [f"{key}={_listed(value)}" for key, value in changes.items() if value is not None]
    removed = [key for key, value in changes.items() if value is None]
    words += ["--add-config", ",".join(added)] if added else []
    words += ["--delete-config", ",".join(removed)] if removed else []
    return _joined(words)


def _listed(value: str) -> str:
    """Join configs for the tool, which separates them by commas and wants a value with commas in brackets."""
    return f"[{value}]" if "," in value else value


def _joined(words: list[str]) -> str:
    return shlex.join(words).replace(f"'{_ADDRESS}'", _ADDRESS)
