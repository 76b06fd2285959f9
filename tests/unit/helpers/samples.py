"""The smallest configuration that mirrors, for tests to add to, and what tests ask of settings."""

from __future__ import annotations

from heliograph.names.filters import Filter, NameFilter

BASE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""


def patterns_of(found: Filter) -> NameFilter:
    """A filter that is no class of somebody's own."""
    assert isinstance(found, NameFilter)
    return found
