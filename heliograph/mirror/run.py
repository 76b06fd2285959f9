"""`heliograph run`: from a configuration file to a mirror, and a quick way out of it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import NoReturn

from heliograph.config.settings import Settings, load_settings
from heliograph.java import find_java
from heliograph.mirror.driver import Driver
from heliograph.mirror.epoch import SparkEpochs

EXIT_AFTER_S = 1.8
"""A second line of defence: from the stop signal on, the process ends within two seconds whatever hangs."""

log = logging.getLogger("heliograph")


def run_mirror(
    path: Path, *, only_targets: Sequence[str] = (), master: str | None = None, conf: Mapping[str, str] | None = None
) -> None:
    """Mirror until SIGINT or SIGTERM. Raises ConfigError before anything was changed, if the file is no good."""
    settings = load_settings(path, only_targets=only_targets)
    find_java()
    _start_log()
    _say_notes(settings)
    spark_conf = {**settings.spark, **(conf or {})}
    slots = sum(flow.tasks_max for flow in settings.enabled_flows)
    epochs = SparkEpochs(master=master or spark_conf.get("spark.master"), slots=slots, conf=spark_conf)
    try:
        asyncio.run(_run(settings, epochs))
    finally:
        epochs.abandon()


def leave(code: int) -> NoReturn:
    """End the process now, without waiting for threads that wait for Spark; its JVM ends when we are gone."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


async def _run(settings: Settings, epochs: SparkEpochs) -> None:
    driver = Driver(settings, epochs, report=_report)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        log.info("stopping")
        timer = threading.Timer(EXIT_AFTER_S, _give_up, args=(epochs,))
        timer.daemon = True
        timer.start()
        driver.stop()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    await driver.run()


def _give_up(epochs: SparkEpochs) -> NoReturn:
    epochs.abandon()
    leave(0)


def _start_log() -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s", datefmt="%H:%M:%S"))
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


def _say_notes(settings: Settings) -> None:
    for finding in settings.warnings:
        log.warning("%s", finding)
    if settings.notes:
        keys = ", ".join(sorted({finding.key for finding in settings.notes}))
        log.info("accepted without effect so far: %s", keys)


def _report(line: str) -> None:
    sys.stdout.write(f"{datetime.now():%H:%M:%S} {line}\n")
    sys.stdout.flush()
