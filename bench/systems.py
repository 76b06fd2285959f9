"""Defines the mirrors that are measured: their settings, how each is started, and how it is surely ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from bench.process_tree import ProcessTree
from heliograph.config.files.properties import property_line
from heliograph.lab import Jvm, Lab
from heliograph.lab.keeper import die_with_parent
from heliograph.lab.pki import write_private

TARGET = "tgt"
MM2_DEFAULT = "mm2-default"
MM2_TUNED = "mm2-tuned"
HELIOGRAPH = "heliograph"

_MM2_CLASS = "org.apache.kafka.connect.mirror.MirrorMaker"
# The flags of connect-mirror-maker.sh.
_MM2_JVM = Jvm(
    heap="2g",
    flags=(
        "-Xms256m",
        "-server",
        "-XX:+UseG1GC",
        "-XX:MaxGCPauseMillis=20",
        "-XX:InitiatingHeapOccupancyPercent=35",
        "-XX:+ExplicitGCInvokesConcurrent",
    ),
)
_STOP_S = 3.0
_LOG_TAIL_LINES = 8


class SystemFailed(Exception):
    """A mirror ended by itself, stalled, or copied wrongly."""


@dataclass(frozen=True, slots=True, kw_only=True)
class System:
    """A mirror and its settings; SOURCE stands for the source's alias, which is new for each run."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    repeated: bool = True


SYSTEMS = (
    System(name=MM2_DEFAULT, repeated=False),
    System(
        name=MM2_TUNED,
        settings={
            "tgt.producer.batch.size": "524288",
            "tgt.producer.linger.ms": "20",
            "tgt.producer.buffer.memory": "134217728",
            "tgt.producer.max.in.flight.requests.per.connection": "5",
            "tgt.producer.enable.idempotence": "true",
            "SOURCE.consumer.max.poll.records": "10000",
            "SOURCE.consumer.fetch.max.bytes": "52428800",
            "SOURCE.consumer.max.partition.fetch.bytes": "5242880",
            "tasks.max": "2",
        },
    ),
    System(name=HELIOGRAPH, settings={"tasks.max": "2"}),
)


def plan_order(repetitions: int, systems: Sequence[System] = SYSTEMS) -> list[tuple[System, int]]:
    """Plans the order: systems measured once come first, on brokers still cold; the others alternate."""
    once = [(system, 1) for system in systems if not system.repeated]
    turns = [(system, turn) for turn in range(1, repetitions + 1) for system in systems if system.repeated]
    return once + turns


def plan_properties(
    system: System,
    *,
    source: str,
    source_keys: Mapping[str, str],
    target_keys: Mapping[str, str],
    topic: str,
    replicas: int = 1,
    settings: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Builds a run's configuration file, the same for every system but for its own settings.

    `source_keys` and `target_keys` are those of any Java client, addresses and security; `settings` are the work's.

    MM2 and heliograph derive the group, the storage topics and the copy's name from the source's alias, so that a new
    alias gives each run its own.
    """
    factors = ("", "checkpoints.topic.", "heartbeats.topic.", "offset-syncs.topic.")
    storages = {"offset": "mm2-offsets", "config": "mm2-configs", "status": "mm2-status"}
    properties = {
        "clusters": f"{source}, {TARGET}",
        **{f"{source}.{key}": value for key, value in source_keys.items()},
        **{f"{TARGET}.{key}": value for key, value in target_keys.items()},
        f"{source}->{TARGET}.enabled": "true",
        f"{source}->{TARGET}.topics": topic,
        f"{TARGET}.group.id": f"{source}-mm2",
        f"{TARGET}.scheduled.rebalance.max.delay.ms": "0",
        **{f"{name}replication.factor": str(replicas) for name in factors},
        **{f"{storage}.storage.replication.factor": str(replicas) for storage in storages},
        **{f"{TARGET}.{storage}.storage.topic": f"{name}.{source}.internal" for storage, name in storages.items()},
    }
    own = {key.replace("SOURCE", source): value for key, value in {**system.settings, **(settings or {})}.items()}
    return {**properties, **own}


def plan_command(system: System, lab: Lab, config: Path) -> tuple[list[str], dict[str, str]]:
    """Returns arguments and additional environment."""
    if system.name == HELIOGRAPH:
        return [str(Path(sys.executable).with_name("heliograph")), "run", str(config), "--clusters", TARGET], {}
    command = lab.java(_MM2_CLASS, str(config), "--clusters", TARGET, jvm=_MM2_JVM)
    return command.argv, command.env


class RunningSystem:
    """A running mirror with all its processes; on leaving the block none of them is left."""

    def __init__(self, system: System, lab: Lab, *, properties: Mapping[str, str], folder: Path, label: str) -> None:
        self.system = system
        folder.mkdir(parents=True, exist_ok=True)
        lines = [property_line(key, value) for key, value in sorted(properties.items())]
        config = write_private(folder / f"{label}.properties", "\n".join([*lines, ""]))
        self.command, environment = plan_command(system, lab, config)
        self._environment = {**os.environ, **environment, "TMPDIR": str(folder)}
        self.log_file = folder / f"{label}.log"
        self.log_file.unlink(missing_ok=True)
        self._start()

    def _start(self) -> None:
        self.started_at = time.monotonic()
        with self.log_file.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.log_file.parent,
                env=self._environment,
                start_new_session=True,  # this process handles Ctrl-C
                preexec_fn=die_with_parent,  # noqa: PLW1509 - a C call only, safe with threads too
            )
        self.tree = ProcessTree(self._process.pid)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def crash_and_restart(self) -> None:
        """Kills all its processes with -9 and runs the same command again; its log starts anew."""
        self._kill(self.tree.alive())
        self.log_file.unlink()
        self._start()

    def check_alive(self) -> None:
        code = self._process.poll()
        if code is not None:
            raise SystemFailed(f"{self.system.name} ended with exit code {code}: {self.log_tail()}")

    def log_tail(self) -> str:
        return " | ".join(self.log_file.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:])

    def stop(self) -> None:
        """Sends SIGTERM, then SIGKILL to whatever is left."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + _STOP_S
        while self.tree.alive() and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(0.05)
        self._kill(self.tree.alive())

    def _kill(self, left: Sequence[psutil.Process]) -> None:
        for process in left:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._process.wait()
        psutil.wait_procs(left, timeout=10)
