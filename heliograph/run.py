"""Runs the mirror of a configuration file until it is stopped, and ends quickly."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn, Protocol

from heliograph.config.changes import compare
from heliograph.config.load import load_settings
from heliograph.config.settings import Settings
from heliograph.control.flow_loops import loops_beside
from heliograph.control.heartbeats import Heartbeats
from heliograph.driver.driver import Driver
from heliograph.driver.spark.epochs import SparkEpochs, is_local
from heliograph.errors import HeliographError
from heliograph.java import find_java
from heliograph.kafka.host_names import give_threads
from heliograph.kafka.open_files import raise_limit
from heliograph.ledger.cluster_access import check_security, unchecked_hosts
from heliograph.logs import LogLevel, log, progress, start_log
from heliograph.loop import Loop

WATCH_S = 2.0
EXIT_AFTER_S = 1.8
"""The process ends this long after the stop signal, even if something hangs; the limit is two seconds."""


def run_mirror(
    path: Path,
    *,
    only_targets: Sequence[str] = (),
    master: str | None = None,
    conf: Mapping[str, str] | None = None,
    secrets: Path | None = None,
    log_level: LogLevel = LogLevel.INFO,
) -> None:
    """Mirrors until SIGINT or SIGTERM. Raises ConfigError before anything is changed, if the file has errors."""

    def load() -> Settings:
        settings = load_settings(path, only_targets=only_targets, secrets=secrets)
        spark = {**settings.spark, **(conf or {})}
        check_security(settings, spark, is_local=is_local(master or spark.get("spark.master")))
        return settings

    settings = load()
    if settings.enabled_flows:
        find_java()
    start_log(level=log_level, folder=Path(os.environ["LOG_DIR"]) if os.environ.get("LOG_DIR") else None)
    raise_limit()
    _say_notes(settings)
    spark_conf = {**settings.spark, **(conf or {})}
    slots = sum(flow.tasks_max for flow in settings.enabled_flows)
    epochs = SparkEpochs(
        master=master or spark_conf.get("spark.master"),
        slots=slots,
        conf=spark_conf,
        ships=settings.executor_packages == "ship",
    )
    try:
        asyncio.run(_run(settings, epochs, _Watched(path, load)))
    finally:
        epochs.abandon()


class _Work(Protocol):
    """Work that runs until it is told to stop."""

    async def run(self) -> None: ...
    def stop(self) -> None: ...
    def apply(self, settings: Settings) -> None: ...


class _Idle:
    """Replaces the driver when no flow is enabled: Spark is not started for heartbeats alone."""

    def __init__(self) -> None:
        self._stopping = asyncio.Event()

    async def run(self) -> None:
        await self._stopping.wait()

    def stop(self) -> None:
        self._stopping.set()

    def stands_by(self, *_: str) -> bool:
        """Returns False: nothing is known of other processes with the same configuration."""
        return False

    def apply(self, settings: Settings) -> None:
        """Does nothing: enabling a flow needs a restart, which is logged elsewhere."""


def leave(code: int) -> NoReturn:
    """Ends the process now, without waiting for threads that wait for Spark; its JVM ends with the process."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


@dataclass(frozen=True, slots=True)
class _Watched:
    """The configuration file, polled for changes."""

    path: Path
    load: Callable[[], Settings]

    def stamp(self) -> tuple[int, int, int] | None:
        """Returns a value that changes with the file, also when a mounted one is swapped; None while it is missing."""
        try:
            found = self.path.stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


async def _watch(
    file: _Watched, running: Settings, appliers: Sequence[Callable[[Settings], None]], hang_up: asyncio.Event
) -> None:
    """Applies changes of the file, on SIGHUP or by polling; a file with errors changes nothing."""
    seen, taking_up = file.stamp(), Loop("configuration", "change not applied")
    while True:
        try:
            await asyncio.wait_for(hang_up.wait(), WATCH_S)
        except TimeoutError:
            stamp = file.stamp()
            if stamp is None or stamp == seen:
                continue
        hang_up.clear()
        seen = file.stamp()
        with taking_up:
            running = _apply_change(file, running, appliers)


def _apply_change(file: _Watched, running: Settings, appliers: Sequence[Callable[[Settings], None]]) -> Settings:
    """Loads the file again, applies what can change, and returns the settings that now run."""
    try:
        changes = compare(running, file.load())
    except HeliographError as error:
        log.error("the configuration file has changed but has errors, the running one is kept: %s", error)
        return running
    for what in changes.applied:
        log.info("configuration: %s: takes effect now", what)
    for what in changes.need_restart:
        log.warning("configuration: %s: needs a restart", what)
    if not changes.applied and not changes.need_restart:
        log.info("configuration: read again, no change")
    for apply in appliers:
        apply(changes.settings)
    return changes.settings


async def _run(settings: Settings, epochs: SparkEpochs, file: _Watched) -> None:
    driver: Driver | _Idle = _Idle()
    if settings.enabled_flows:
        driver = Driver(settings, epochs, report=_report, beside=loops_beside)
    heartbeats = Heartbeats(settings, stands_by=driver.stands_by)
    loop = asyncio.get_running_loop()
    give_threads(loop)
    hang_up = asyncio.Event()
    loop.add_signal_handler(signal.SIGHUP, hang_up.set)
    appliers = (driver.apply, heartbeats.apply)

    def stop() -> None:
        log.info("stopping")
        timer = threading.Timer(EXIT_AFTER_S, _give_up, args=(epochs,))
        timer.daemon = True
        timer.start()
        driver.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await _run_beside(driver, _watch(file, settings, appliers, hang_up), heartbeats.run())


async def _run_beside(driver: _Work, *others: Coroutine[Any, Any, None]) -> None:
    """Runs the driver to its end; another task that ends before it is a bug, which ends the driver too."""
    main = asyncio.ensure_future(driver.run())
    beside = [asyncio.ensure_future(other) for other in others]
    try:
        done, _ = await asyncio.wait([main, *beside], return_when=asyncio.FIRST_COMPLETED)
        driver.stop()
        await main
        for task in done:
            task.result()
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)


def _give_up(epochs: SparkEpochs) -> NoReturn:
    epochs.abandon()
    leave(0)


def _say_notes(settings: Settings) -> None:
    for finding in settings.warnings:
        log.warning("%s", finding)
    for alias in sorted(unchecked_hosts(settings)):
        log.warning(
            'cluster "%s": host names are not checked: any certificate of a trusted authority is accepted', alias
        )
    if settings.notes:
        keys = ", ".join(sorted({finding.key for finding in settings.notes}))
        log.info("keys without effect: %s", keys)


def _report(line: str) -> None:
    progress.info("%s", line)
