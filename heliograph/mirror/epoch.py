"""One epoch is one Spark job: the only file of the pipeline that imports pyspark.

The plan goes out as a DataFrame with a row for each lane (its assignments as an
array of structs), `mapInArrow` runs `copy_lane` on it, and what comes back is a
DataFrame with a ledger row for each assignment.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import psutil
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from heliograph.config.properties import property_line
from heliograph.errors import SparkFailed
from heliograph.mirror.lane import copy_lane
from heliograph.mirror.model import EpochPlan, EpochTerms, LedgerRow
from heliograph.mirror.rows import ROW_SCHEMA_SQL, assignments_of, lanes_table, ledger_rows, rows_batch

DEFAULTS = {
    "spark.app.name": "heliograph",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    # The JVM only hands plans out: a small heap and a quick compiler save seconds of CPU at every start.
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.speculation": "false",
    "spark.python.worker.reuse": "true",
    "spark.python.use.daemon": "true",
    "spark.task.maxFailures": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.executor.processTreeMetrics.enabled": "false",
    # Spark's own default knows no keys, credentials and JAAS lines.
    "spark.redaction.regex": r"(?i)secret|password|passphrase|token|credential|jaas|access[.]?key|[._-]key\b",
}
WARM_UP_JOBS = 8
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SparkEpochs:
    """A Spark session that runs epochs; blocking, to be called from one thread."""

    def __init__(self, *, master: str | None, slots: int, conf: Mapping[str, str]) -> None:
        self.is_local = is_local(master)
        self._folder = Path(tempfile.mkdtemp(prefix="heliograph-spark-"))
        self.log_path = self._folder / "spark.log"
        settings = {**DEFAULTS, **(LOCAL_DEFAULTS if self.is_local else {}), "spark.local.dir": str(self._folder)}
        settings.update(conf)
        settings["spark.master"] = master or conf.get("spark.master") or f"local[{slots}]"
        self._settings = settings
        self._session: SparkSession | None = None
        self._log: IO[bytes] | None = None
        self._log_wanted = False

    def start(self) -> None:
        """Start the JVM; its chatter goes to a log file."""
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        self._log = self.log_path.open("ab")
        tempfile.tempdir = str(self._folder)  # PySpark's own temporary files go with ours, whenever that is
        conf = SparkConf(loadDefaults=False).setAll(list(self._settings.items()))
        try:
            with self._as_submit_arguments():
                gateway = launch_gateway(None, {"stdout": self._log, "stderr": self._log})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
            context.setLogLevel("WARN")
            self._session = SparkSession(context)
            if self.is_local:
                self._warm_up()
        except Exception as error:
            self._log_wanted = True
            raise SparkFailed(
                "Spark did not start",
                where=self._settings["spark.master"],
                why=_last_line(self.log_path) or str(error).splitlines()[0],
                remedy=f"its log is {self.log_path}",
            ) from error

    @contextlib.contextmanager
    def _as_submit_arguments(self) -> Iterator[None]:
        """Settings for the JVM's launch, in a file that only we can read and that is gone when they were read:
        a command line, where PySpark puts them, is seen by every user of the machine."""
        path = self._folder / "spark.properties"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{property_line(key, value)}\n" for key, value in self._settings.items())
        before = os.environ.get(_SUBMIT_ARGUMENTS)
        further = before or "pyspark-shell"
        os.environ[_SUBMIT_ARGUMENTS] = f"--properties-file {shlex.quote(str(path))} --load-spark-defaults {further}"
        try:
            yield
        finally:
            if before is None:
                del os.environ[_SUBMIT_ARGUMENTS]
            else:
                os.environ[_SUBMIT_ARGUMENTS] = before
            path.unlink(missing_ok=True)

    def _warm_up(self) -> None:
        """Run epochs without partitions: the first jobs of a JVM are slow, and the turnover after the first
        real epoch must not be: 1.2 s without them, 0.4 s with two, 0.3 s with eight."""
        terms = EpochTerms(owner="warm-up", epoch_id=0, duration_ms=0, flows=())
        for _ in range(WARM_UP_JOBS):
            self.run(EpochPlan(epoch_id=0, lanes=((),) * min(self.slots, os.cpu_count() or 1)), terms)

    @property
    def slots(self) -> int:
        """How many lanes can run at the same time now; 0 while there is no executor. Raises SparkFailed."""
        assert self._session is not None
        try:
            context = self._session.sparkContext._jsc.sc()  # PySpark has no public way to ask
            return int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
        except (Py4JError, OSError) as error:
            self._log_wanted = True
            raise SparkFailed(
                "Spark's JVM is gone",
                where=self._settings["spark.master"],
                why=str(error).partition("\n")[0],
                remedy=f"start heliograph again; Spark's log is {self.log_path}",
            ) from error

    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
        """Run one epoch to its end. *Runs* on the driver; one Spark job."""
        assert self._session is not None
        session = self._session
        partitions = sum(map(len, plan.lanes))
        flows = ", ".join(flow.name for flow in terms.flows) or "warm-up"
        session.conf.set("spark.sql.leafNodeDefaultParallelism", str(len(plan.lanes)))
        session.sparkContext.setJobGroup(
            f"heliograph-{terms.owner}-{terms.epoch_id}",
            f"heliograph epoch {terms.epoch_id}: {flows}: {partitions} partitions in {len(plan.lanes)} lanes",
            interruptOnCancel=True,
        )
        try:
            lanes = session.createDataFrame(lanes_table(plan))
            table = lanes.mapInArrow(_lane_task(terms), ROW_SCHEMA_SQL).toArrow()
        except Exception as error:
            raise SparkFailed(
                f"epoch {terms.epoch_id} failed", why=_root_cause(error), remedy=f"Spark's log is {self.log_path}"
            ) from error
        return ledger_rows(table)

    def cancel(self) -> None:
        if self._session is not None:
            self._session.sparkContext.cancelAllJobs()

    def abandon(self) -> None:
        """Leave Spark to end by itself: its JVM does when this process is gone, and cleans up behind it.

        A regular stop takes a second longer than a user who pressed Ctrl-C wants to wait. A JVM
        that is still starting would miss its files and hang, so that one is killed.
        """
        if self._session is None:
            for child in psutil.Process().children(recursive=True):
                with contextlib.suppress(psutil.NoSuchProcess):
                    child.kill()
        if not self._log_wanted:
            shutil.rmtree(self._folder, ignore_errors=True)


def is_local(master: str | None) -> bool:
    """Whether lanes run in this process's own Spark."""
    return master is None or master.startswith("local")


def _lane_task(terms: EpochTerms) -> Any:
    """The function that Spark ships to its tasks. *Pickles* the epoch's terms."""

    def run_lanes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for lane, assignments in assignments_of(batch):
                yield rows_batch(copy_lane(lane, assignments, terms))

    return run_lanes


def _last_line(path: Path) -> str:
    try:
        lines = [line for line in path.read_text(errors="replace").splitlines() if line.strip()]
    except OSError:
        return ""
    return lines[-1] if lines else ""


def _root_cause(error: BaseException) -> str:
    """The line of a Spark error that tells something: Python's last line in the task, or the first of Java's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [line for line in lines if "Error" in line and not line.startswith(("at ", "File "))]
    return (telling or lines or [type(error).__name__])[-1][:300]
