"""Spark's side of an epoch, without Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from heliograph.errors import SparkFailed
from heliograph.mirror.epoch import SparkEpochs


@pytest.mark.parametrize(
    "error", [Py4JNetworkError("Answer from Java side is empty"), ConnectionRefusedError("refused")]
)
def test_a_jvm_that_is_gone_is_a_typed_error(error: Exception) -> None:
    def ask() -> None:
        raise error

    epochs = SparkEpochs(master="local[1]", slots=1, conf={})
    session: Any = SimpleNamespace(sparkContext=SimpleNamespace(_jsc=SimpleNamespace(sc=ask)))
    epochs._session = session
    try:
        with pytest.raises(SparkFailed, match="JVM is gone") as caught:
            _ = epochs.slots
        assert str(epochs.log_path) in caught.value.remedy
        assert caught.value.why
    finally:
        epochs._log_wanted = False
        epochs.abandon()
