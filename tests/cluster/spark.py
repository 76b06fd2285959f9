"""A real Spark standalone cluster from the installed PySpark, on loopback, for tests."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import venv
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil
import pyspark

from heliograph.config.files.properties import property_line
from heliograph.lab.keeper import die_with_parent
from heliograph.lab.pki import write_private
from tests.cluster.mirror import java_options, wait_until


class Standalone:
    """A master; workers come and go with `start_worker` and `kill_tree`. `conf` is for master and workers."""

    def __init__(self, folder: Path, conf: Mapping[str, str] | None = None) -> None:
        self._folder = folder
        self._port = free_port()
        self._started: list[subprocess.Popen[bytes]] = []
        self.master = f"spark://127.0.0.1:{self._port}"
        self.pages: list[str] = []
        """Where master and workers show themselves."""
        lines = (f"{property_line(*pair)}\n" for pair in (conf or {}).items())
        self._conf = write_private(folder / "daemons.properties", "".join(lines))

    def __enter__(self) -> Self:
        self._start("master", "org.apache.spark.deploy.master.Master", "--port", str(self._port))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self._started:
            kill_tree(process.pid)
            process.wait(10)

    def start_worker(self, name: str, *, cores: int = 1) -> int:
        """Start a worker and wait until the master knows it; its process id."""
        process = self._start(
            name,
            "org.apache.spark.deploy.worker.Worker",
            *("--cores", str(cores), "--memory", "1g", "--work-dir", str(self._folder / "work"), self.master),
        )
        wait_until(lambda: "Successfully registered with master" in self._log(name), 180, what=f"worker {name}")
        return process.pid

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = Path(pyspark.__file__).parent
        own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # finds nothing by luck
        environment = {
            **own,
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_LOCAL_DIRS": str(self._folder / "local"),
            "PYSPARK_PYTHON": sys.executable,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": java_options(self._folder),
        }
        page = free_port()
        self.pages.append(f"http://127.0.0.1:{page}/")
        common = ("--host", "127.0.0.1", "--webui-port", str(page), "--properties-file", str(self._conf))
        with (self._folder / f"{name}.log").open("ab") as log:
            process = subprocess.Popen(
                [str(home / "bin" / "spark-class"), main, *common, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
                preexec_fn=die_with_parent,  # noqa: PLW1509 (calls the kernel, and takes no lock)
            )
        self._started.append(process)
        return process

    def _log(self, name: str) -> str:
        return re.sub(r"\s+", " ", (self._folder / f"{name}.log").read_text(errors="replace"))


def bare_python(folder: Path) -> str:
    """An interpreter like this one that has no packages at all."""
    venv.create(folder / "bare", with_pip=False, symlinks=True)
    return str(folder / "bare" / "bin" / "python")


def executors_of(worker: int) -> list[int]:
    """Process ids of the executors that a worker has started."""
    found = []
    for process in psutil.Process(worker).children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if any("CoarseGrainedExecutorBackend" in word for word in process.cmdline()):
                found.append(process.pid)
    return found


def kill_tree(pid: int) -> None:
    """kill -9 of a process and all that it started."""
    try:
        root = psutil.Process(pid)
        tree = [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return
    for process in tree:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
