"""One epoch is one Spark job: the only file of the pipeline that imports pyspark.

The plan goes out as a DataFrame with a row for each lane (its assignments as an
array of structs), `mapInArrow` runs `copy_lane` on it, and what comes back is a
DataFrame with a ledger row for each assignment.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shlex
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO, Any, TypeVar

import psutil
import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext, TaskContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

import heliograph
from heliograph.config.files.properties import property_line
from heliograph.driver.plan import Workforce
from heliograph.driver.spark import jvm_class_archive
from heliograph.driver.spark.arrow_rows import ROW_SCHEMA_SQL, assignments_of, lanes_table, ledger_rows, rows_batch
from heliograph.driver.spark.executor_check import ExecutorCheck, abi_here, describe_lacks, equipment_here, is_shippable
from heliograph.driver.spark.executor_packages import pack_modules, pack_package
from heliograph.errors import SparkFailed
from heliograph.lane.lane import copy_lane
from heliograph.ledger.model import EpochPlan, EpochTerms, LedgerRow
from heliograph.outage_log import Outage

log = logging.getLogger("heliograph")
Result = TypeVar("Result")

JAVA_OPTIONS = "spark.driver.extraJavaOptions"
WARM_UP_JOBS = "spark.heliograph.warmUpJobs"
DEFAULTS = {
    "spark.app.name": "heliograph",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "512m",
    # The JVM only hands plans out: a small heap and a quick compiler save seconds of CPU at every start.
    JAVA_OPTIONS: "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.codegen.wholeStage": "false",
    "spark.speculation": "false",
    WARM_UP_JOBS: "8",
    "spark.python.worker.reuse": "true",
    "spark.python.use.daemon": "true",
    "spark.task.maxFailures": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.executor.processTreeMetrics.enabled": "false",
    # What Spark remembers for its UI, which we do not show: epochs go on for weeks.
    "spark.ui.retainedJobs": "20",
    "spark.ui.retainedStages": "20",
    "spark.ui.retainedTasks": "1000",
    "spark.ui.retainedDeadExecutors": "20",
    "spark.ui.dagGraph.retainedRootRDDs": "20",
    "spark.sql.ui.retainedExecutions": "20",
    # Spark's own default knows no keys, credentials and JAAS lines.
    "spark.redaction.regex": r"(?i)secret|password|passphrase|token|credential|jaas|access[.]?key|[._-]key\b",
}
WARM_UP_ATTEMPTS = 3
_SUBMIT_ARGUMENTS = "PYSPARK_SUBMIT_ARGS"
_MODULES = "heliograph_modules"
"""The folder beside an executor in which shipped modules are unpacked."""
_LOST_TASK = re.compile(r"\(TID \d+\) \((\S+) executor (\S+)\): (.*)")
LOCAL_DEFAULTS = {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}


class SparkEpochs:
    """A Spark session that runs epochs. Blocking: one thread starts it and runs them, others may watch and equip
    executors meanwhile; every call into the JVM waits for as long as that stands still.

    What these threads share has one writer, and is replaced as a whole: who reads it sees the value before or after.
    """

    def __init__(self, *, master: str | None, slots: int, conf: Mapping[str, str], ships: bool = True) -> None:
        self.is_local = is_local(master)
        self._folder = Path(tempfile.mkdtemp(prefix="heliograph-spark-"))
        self.log_path = self._folder / "spark.log"
        settings = {**DEFAULTS, **(LOCAL_DEFAULTS if self.is_local else {}), "spark.local.dir": str(self._folder)}
        settings[JAVA_OPTIONS] = (
            f"{DEFAULTS[JAVA_OPTIONS]} {jvm_class_archive.option_to_use(jvm_class_archive.archive_path())}".rstrip()
        )
        settings.update(conf)
        settings["spark.master"] = master or conf.get("spark.master") or f"local[{slots}]"
        self.settings = settings
        self._session: SparkSession | None = None
        """Written by `start`, before any other thread comes."""
        self._log: IO[bytes] | None = None
        self._log_wanted = False
        """Any thread may set it when something failed; `abandon` reads it at the end."""
        self._ships = ships
        self._equipping = threading.Lock()
        """Held by whoever makes executors ready: it owns `_equipped` and `_losses`."""
        self._equipped: frozenset[str] = frozenset()
        self._lanes_running = 0
        """Written by the thread that runs epochs; `equip` leaves these slots alone."""
        self._losses = Outage()

    def start(self) -> None:
        """Start the JVM; its chatter goes to a log file."""
        if "spark.pyspark.python" in self.settings:  # PySpark itself reads the environment alone
            os.environ["PYSPARK_PYTHON"] = self.settings["spark.pyspark.python"]
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
        self._log = self.log_path.open("ab")
        tempfile.tempdir = str(self._folder)  # PySpark's own temporary files go with ours, whenever that is
        conf = SparkConf(loadDefaults=False).setAll(list(self.settings.items()))
        try:
            with self._as_submit_arguments():
                gateway = launch_gateway(None, {"stdout": self._log, "stderr": self._log})  # type: ignore[no-untyped-call]
            context = SparkContext(conf=conf, gateway=gateway)
            context.setLogLevel("WARN")
            self._session = SparkSession(context)
            if self.is_local:
                jobs = int(self.settings[WARM_UP_JOBS])
                self._warm_up(min(self.workforce.slots, os.cpu_count() or 1), jobs=jobs)
            else:
                context.addPyFile(str(pack_package(self._folder / "heliograph.zip")))
        except Exception as error:
            self._log_wanted = True
            raise SparkFailed(
                "Spark did not start",
                where=self.settings["spark.master"],
                why=_last_line(self.log_path) or str(error).splitlines()[0],
                remedy=f"its log is {self.log_path}",
            ) from error
        if not self.is_local:
            self._log_wanted = True
            self.equip()
            self._log_wanted = False

    @contextlib.contextmanager
    def _as_submit_arguments(self) -> Iterator[None]:
        """Settings for the JVM's launch, in a file that only we can read and that is gone when they were read:
        a command line, where PySpark puts them, is seen by every user of the machine."""
        path = self._folder / "spark.properties"
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="utf-8") as file:
            file.writelines(f"{property_line(key, value)}\n" for key, value in self.settings.items())
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

    def _warm_up(self, tasks: int, *, jobs: int) -> None:
        """Run epochs without partitions: the first jobs of a JVM are slow, and so are the first lanes of a Python
        process; a turnover takes 1.2 s without them, 0.4 s after two, 0.3 s after eight. In a session of its
        own, because an epoch may run beside it."""
        assert self._session is not None
        session = self._session.newSession()
        terms = EpochTerms(owner="warm-up", epoch_id=0, duration_ms=0, flows=())
        plan = EpochPlan(epoch_id=0, lanes=((),) * tasks)
        for _ in range(jobs):
            self._run_again_when_lost(lambda: self._run_lanes(session, plan, terms))

    @property
    def workforce(self) -> Workforce:
        """The executors that live now and are ready for lanes."""
        now = self._alive()
        ready = now.executors if self.is_local else now.executors & self._equipped
        return Workforce(ready, now.slots * len(ready) // max(1, len(now.executors)))

    def _alive(self) -> Workforce:
        """All executors; without one there is no slot."""
        assert self._session is not None
        try:
            context = self._session.sparkContext._jsc.sc()  # PySpark has no public way to ask
            slots = int(context.maxNumConcurrentTasks(context.resourceProfileManager().defaultResourceProfile()))
            ids = "driver" if self.is_local else str(context.getExecutorIds().mkString(","))
        except (Py4JError, OSError) as error:
            self._log_wanted = True
            raise SparkFailed(
                "Spark's JVM is gone",
                where=self.settings["spark.master"],
                why=str(error).partition("\n")[0],
                remedy=f"start heliograph again; Spark's log is {self.log_path}",
            ) from error
        return Workforce(frozenset(filter(None, ids.split(","))), slots)

    def equip(self) -> None:
        """See that executors not yet seen can run a lane: ship what they lack, or name it."""
        with self._equipping:
            now = self._alive()
            if self.is_local or (now.executors and now.executors <= self._equipped):
                return
            free = max(1, now.slots - self._lanes_running)
            found = self._inspect(free)
            if self._ships and is_shippable(found, abi_here()):
                self._ship_modules(found)
                found = self._inspect(free)
            if lacks := describe_lacks(found, abi_here()):
                raise SparkFailed(
                    "lanes cannot run on all of Spark's executors",
                    where=self.settings["spark.master"],
                    why=lacks,
                    remedy=f"pip install heliograph=={heliograph.__version__} there, or name an interpreter that has "
                    "it (spark.pyspark.python), or give executors a packed environment (spark.archives)",
                )
            self._warm_up(free, jobs=1)
            self._equipped = now.executors

    def _inspect(self, slots: int) -> list[ExecutorCheck]:
        """Ask as many slots as are free, and so every executor that runs no lane yet."""
        assert self._session is not None
        context = self._session.sparkContext
        context.setJobDescription("heliograph warm-up: what executors have")
        return self._run_again_when_lost(lambda: self._ask(context, slots))

    def _ask(self, context: SparkContext, slots: int) -> list[ExecutorCheck]:
        try:
            return list(context.parallelize(range(slots), slots).map(lambda _: equipment_here()).collect())
        except Exception as error:
            raise SparkFailed(
                "Spark's executors could not be asked what they have",
                where=self.settings["spark.master"],
                why=_root_cause(error),
                remedy=f"Spark's log is {self.log_path}",
            ) from error

    def _ship_modules(self, found: Iterable[ExecutorCheck]) -> None:
        assert self._session is not None
        context = self._session.sparkContext
        assert context._python_includes is not None
        if _MODULES in context._python_includes:
            return
        began = time.monotonic()
        archive = pack_modules(self._folder / f"{_MODULES}.tar.gz")
        context.addArchive(f"{archive}#{_MODULES}")
        context._python_includes.append(_MODULES)  # as addPyFile does: workers then look for modules there
        log.info(
            "Spark: %s; packages of this machine are shipped, %.0f MB packed in %.1f s",
            *(describe_lacks(found, abi_here()), archive.stat().st_size / 1e6, time.monotonic() - began),
        )

    def run(self, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
        """Run one epoch to its end. *Runs* on the driver; one Spark job."""
        assert self._session is not None
        if not self.workforce.executors:
            self.equip()  # those that come later are made ready beside the epochs
        self._lanes_running = len(plan.lanes)
        try:
            return self._run_lanes(self._session, plan, terms)
        finally:
            self._lanes_running = 0

    def _run_lanes(self, session: SparkSession, plan: EpochPlan, terms: EpochTerms) -> list[LedgerRow]:
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
                f"epoch {terms.epoch_id} failed",
                why=_root_cause(error),
                remedy=f"Spark's log is {self.log_path}",
                lanes_may_live=True,
            ) from error
        return ledger_rows(table)

    def _run_again_when_lost(self, job: Callable[[], Result]) -> Result:
        """Run a job that copies nothing; one that fails is run again, a few times, because a start should not fail by
        a killed worker, which an epoch survives. What keeps failing is said once."""
        for attempt in range(1, WARM_UP_ATTEMPTS + 1):
            try:
                result = job()
            except SparkFailed as error:
                if attempt == WARM_UP_ATTEMPTS:
                    raise
                if self._losses.is_news(error.why):
                    log.warning("Spark: %s; running it again", error.why)
            else:
                self._losses.end()
                return result
        raise AssertionError("unreachable")

    def cancel(self) -> None:
        if self._session is not None:
            self._session.sparkContext.cancelAllJobs()

    def end(self) -> None:
        """Stop Spark and wait until its JVM has ended."""
        assert self._session is not None
        gateway = self._session.sparkContext._gateway
        assert gateway is not None
        self._session.stop()
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()
        shutil.rmtree(self._folder, ignore_errors=True)

    def abandon(self) -> None:
        """Leave Spark to end by itself: its JVM does when this process is gone, and cleans up behind it.

        A regular stop takes a second longer than a user who pressed Ctrl-C wants to wait. A JVM
        that is still starting would miss its files and hang, so that one is killed.
        """
        if self._session is None:
            _kill_children()
        if not self._log_wanted:
            shutil.rmtree(self._folder, ignore_errors=True)


def _kill_children() -> None:
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            child.kill()


def make_archive(archive: Path) -> None:
    """Start Spark once, run lanes without partitions, and keep the classes that it loaded.

    After a KeyboardInterrupt no process and no archive is left; the caller should end, because PySpark's threads go on.
    """
    part = archive.with_suffix(f".{os.getpid()}")
    thread = ThreadPoolExecutor(max_workers=1)  # in the main thread PySpark takes Ctrl-C for itself
    try:
        thread.submit(_make_archive, archive, part).result()
    except KeyboardInterrupt:
        _kill_children()
        part.unlink(missing_ok=True)
        raise


def _make_archive(archive: Path, part: Path) -> None:
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _not_kept(archive, str(error)) from error
    options = f"{DEFAULTS[JAVA_OPTIONS]} {jvm_class_archive.option_to_make(part)}"
    epochs = SparkEpochs(master=None, slots=os.cpu_count() or 1, conf={JAVA_OPTIONS: options})
    try:
        epochs.start()
        epochs.end()
        if not part.is_file():
            raise _not_kept(archive, "Java wrote no archive")
        part.replace(archive)
    finally:
        part.unlink(missing_ok=True)


def _not_kept(archive: Path, why: str) -> SparkFailed:
    return SparkFailed(
        "Spark's classes were not kept",
        where=str(archive),
        why=why,
        remedy="run it as who may write there, with 200 MB left; without it starts are slower and nothing else",
    )


def is_local(master: str | None) -> bool:
    """Whether lanes run in this process's own Spark."""
    return master is None or master.startswith("local")


def _lane_task(terms: EpochTerms) -> Any:
    """The function that Spark ships to its tasks. *Pickles* the epoch's terms."""

    def run_lanes(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        context = TaskContext.get()
        if context is not None and context.attemptNumber():
            # Spark does not count a task that is lost with its worker as failed, and starts it again.
            raise RuntimeError("the lane was lost with its executor; the next epoch has all of it")
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
    """The line of a Spark error that tells something, and the host it comes from: Python's last line in the task,
    or the first of Java's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    lost = next((found for line in lines if (found := _LOST_TASK.search(line))), None)
    own = [line for line in lines if "Error" in line and not line.startswith(("at ", "File "))]
    own = [line for line in own if lost is None or lost[0] not in line]
    if lost is None:
        return (own or lines or [type(error).__name__])[-1][:300]
    return f"{lost[1]} (executor {lost[2]}): {(own or [lost[3]])[-1][:300]}"
