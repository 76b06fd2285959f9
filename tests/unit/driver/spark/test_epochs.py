"""What is told of Spark's errors."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError

from heliograph.driver.spark.epochs import SparkEpochs, _root_cause
from heliograph.errors import SparkFailed

LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times, "
    "most recent failure: Lost task 0.0 in stage 3.0 (TID 7) (10.0.0.7 executor 2): "
)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            LOST + 'java.io.IOException: Cannot run program "/opt/python3": error=2, No such file or directory\n'
            "\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)",
            (
                '10.0.0.7 (executor 2): java.io.IOException: Cannot run program "/opt/python3": error=2, '
                "No such file or directory"
            ),
        ),
        (
            LOST + "org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n"
            '  File "worker.py", line 1, in Error\n'
            "ModuleNotFoundError: No module named 'crc32c'\n"
            "\tat org.apache.spark.api.python.Error.x(PythonRunner.scala:1)",
            "10.0.0.7 (executor 2): ModuleNotFoundError: No module named 'crc32c'",
        ),
        (
            LOST + "ExecutorLostFailure (executor 2 exited caused by one of the running tasks) Reason: Error 137",
            (
                "10.0.0.7 (executor 2): ExecutorLostFailure (executor 2 exited caused by one of the running tasks) "
                "Reason: Error 137"
            ),
        ),
        ("An error occurred\nConnection refused", "Connection refused"),
        ("", "RuntimeError"),
    ],
    ids=["no interpreter", "no module", "lost executor", "no task", "no text"],
)
def test_the_cause_of_a_failed_job_is_one_line_with_its_host(text: str, told: str) -> None:
    assert _root_cause(RuntimeError(text)) == told


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
            _ = epochs.workforce
        assert str(epochs.log_path) in caught.value.remedy
        assert caught.value.why
    finally:
        epochs._log_wanted = False
        epochs.abandon()


@pytest.mark.parametrize("losses", [0, 1, 2])
def test_a_job_that_copies_nothing_survives_a_few_killed_workers(losses: int, caplog: pytest.LogCaptureFixture) -> None:
    left = [SparkFailed("epoch 0 failed", why="worker killed")] * losses

    def job() -> str:
        if left:
            raise left.pop()
        return "warm"

    epochs = SparkEpochs(master="local[1]", slots=1, conf={})
    assert epochs._run_again_when_lost(job) == "warm"
    told = ["Spark: worker killed; running it again"] * min(losses, 1)
    assert [record.getMessage() for record in caplog.records] == told


def test_a_job_that_fails_each_time_is_not_run_for_ever() -> None:
    def job() -> None:
        raise SparkFailed("epoch 0 failed", why="no interpreter")

    epochs = SparkEpochs(master="local[1]", slots=1, conf={})
    with pytest.raises(SparkFailed, match="no interpreter"):
        epochs._run_again_when_lost(job)
