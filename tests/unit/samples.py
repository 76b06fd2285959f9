"""The smallest configuration that mirrors, for tests to add to."""

from __future__ import annotations

BASE = """\
clusters = A, B
A.bootstrap.servers = a:9092
B.bootstrap.servers = b:9092
A->B.enabled = true
"""
