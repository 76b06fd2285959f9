"""What the tests against Java share."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.judge import Judge, start_java


@pytest.fixture(scope="module")
def java() -> Iterator[Judge]:
    """A Java with Kafka's jars."""
    with start_java() as judge:
        yield judge
