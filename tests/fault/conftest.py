from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial

import pytest

from heliograph.lab import ClusterSpec, Lab
from tests.fault.network import Network, start_divisible

Start = Callable[[Sequence[ClusterSpec]], dict[str, Network]]


@pytest.fixture(scope="module")
def start_clusters(lab: Lab) -> Iterator[Start]:
    """Starts clusters; the networks among their brokers stay until the module's tests are over."""
    with ExitStack() as stack:
        yield partial(start_divisible, lab, stack=stack)
