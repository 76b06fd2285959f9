"""`heliograph` with lanes in forked processes instead of Spark's tasks: for tests whose subject is not Spark.

The driver, the plan, its Arrow rows and `copy_lane` are the product's own; only what stands between the driver and a
lane is another: a start takes a second instead of ten. As with Spark, a process of its own forks the workers, a worker
lives from epoch to epoch, and all of them end with the driver. `pytest --spark` runs the same tests on Spark.

    python tests/forked.py run mm2.properties
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection, Pipe
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from unittest.mock import patch

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).parent.parent)

import pyarrow as pa

from heliograph.driver.plan import Workforce
from heliograph.driver.spark.arrow_rows import assignments_of, lanes_table, ledger_rows, rows_batch
from heliograph.errors import SparkFailed
from heliograph.lane.lane import copy_lane

if TYPE_CHECKING:
    from heliograph.ledger.model import EpochPlan, EpochTerms, LedgerRow


class Forker:
    """A process that forks workers when it is asked to: it has one thread, as a process that forks should."""

    def __init__(self) -> None:
        """Forks: to be called before the first thread is started."""
        self._socket, theirs = socket.socketpair()
        if os.fork() == 0:
            self._socket.close()
            _fork_workers(theirs)
        theirs.close()

    def start_worker(self) -> Connection[Any, Any]:
        ours, theirs = Pipe()
        socket.send_fds(self._socket, [b"."], [theirs.fileno()])
        theirs.close()
        return ours


def _fork_workers(asked: socket.socket) -> NoReturn:
    for number in (signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_IGN)  # the driver's affair; and nobody waits for dead workers
    while True:
        word, fds, _, _ = socket.recv_fds(asked, 1, 1)
        if not word:
            os._exit(0)  # the driver is gone
        if os.fork() == 0:
            asked.close()
            _work(Connection(fds[0]))
        os.close(fds[0])


def _work(pipe: Connection[Any, Any]) -> NoReturn:
    """The life of a worker process: lanes, one after the other, until the driver is gone."""
    with contextlib.suppress(EOFError, OSError):
        while True:
            batch, terms = pipe.recv()
            try:
                [(lane, assignments)] = assignments_of(batch)
                answer: object = rows_batch(copy_lane(lane, assignments, terms))
            except Exception as error:  # noqa: BLE001 (as in Spark: the task has failed, and the driver is told)
                answer = RuntimeError(repr(error))
            pipe.send(answer)
    os._exit(0)


class ForkedEpochs:
    """Runs epochs as `SparkEpochs` does. Blocking: one thread runs them."""

    is_local = True
    forker: Forker

    def __init__(self, *, master: str | None, slots: int, conf: Mapping[str, str], ships: bool = True) -> None:
        assert master is None, "a test that names a master runs on Spark"
        self.workforce = Workforce(frozenset({"driver"}), slots)
        self._workers: dict[int, Connection[Any, Any]] = {}
        self.log_path = Path(tempfile.gettempdir()) / "none"

    def start(self) -> None:
        """Workers are forked when there is a lane for them."""

    def equip(self) -> None:
        """Forked processes have what their parent has."""

    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
        lanes = lanes_table(plan).combine_chunks()
        for lane in range(len(plan.lanes)):
            self._worker(lane).send((lanes.slice(lane, 1).to_batches()[0], terms))
        return ledger_rows(pa.Table.from_batches([self._answer(lane, terms) for lane in range(len(plan.lanes))]))

    def cancel(self) -> None:
        """Lanes end by the driver's order."""

    def abandon(self) -> None:
        """Workers end with the driver."""

    def _worker(self, lane: int) -> Connection[Any, Any]:
        pipe = self._workers.get(lane)
        if pipe is None or pipe.poll():  # nothing is to come from a worker that lives: this one has ended
            pipe = self._workers[lane] = self.forker.start_worker()
        return pipe

    def _answer(self, lane: int, terms: EpochTerms) -> pa.RecordBatch:
        try:
            answer = self._workers[lane].recv()
        except (EOFError, OSError) as error:
            answer = error
        if isinstance(answer, BaseException):
            why = f"lane {lane}: {answer!r}"
            raise SparkFailed(f"epoch {terms.epoch_id} failed", why=why, lanes_may_live=True) from answer
        return answer


def main() -> int:
    """Fork the forker first: the rest may start threads."""
    ForkedEpochs.forker = Forker()

    from heliograph import cli

    with patch("heliograph.run.SparkEpochs", ForkedEpochs):
        return cli.main()


if __name__ == "__main__":
    sys.exit(main())
