"""Manages a lab's folder: its files, its lock, and the record of what runs in it.

data/      servers' files, removed with the lab        logs/      kept, one file per server
lab.json   what runs, for `lab status` and `lab down`  lab.lock   held by the keeper while it lives
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from heliograph.errors import LabError
from heliograph.lab.probe import fetch_broker_ids

_STOP_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningProcess:
    """A process that can be recognised again: pids are reused, pid and start time together are not."""

    pid: int
    started_at: float

    @property
    def is_alive(self) -> bool:
        try:
            process = psutil.Process(self.pid)
            return process.create_time() == self.started_at and process.status() != psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            return False


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRecord:
    """A broker as lab.json keeps it."""

    alias: str
    broker: int
    port: int
    version: str
    process: RunningProcess | None

    @property
    def state(self) -> str:
        if self.process is None or not self.process.is_alive:
            return "stopped"
        return "running" if fetch_broker_ids(self.port) is not None else "not answering"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabRecord:
    """The contents of lab.json."""

    keeper: RunningProcess
    brokers: tuple[BrokerRecord, ...]

    def bootstrap(self, alias: str) -> str:
        """Returns `bootstrap.servers` of a cluster; empty if the lab has none of that name."""
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers if broker.alias == alias)

    def status_rows(self) -> list[dict[str, str | int | None]]:
        """Returns a row for each broker with its current state; those in trouble first."""
        rows: list[dict[str, str | int | None]] = [
            {
                "alias": broker.alias,
                "broker": broker.broker,
                "port": broker.port,
                "pid": broker.process.pid if broker.process else None,
                "state": broker.state,
                "version": broker.version,
            }
            for broker in self.brokers
        ]
        return sorted(rows, key=lambda row: row["state"] == "running")


class LabFolder:
    """The files of one lab."""

    def __init__(self, path: Path | str) -> None:
        self.path = Path(path).absolute()
        self.data = self.path / "data"
        self.logs = self.path / "logs"
        self._record_file = self.path / "lab.json"
        self._lock_file = self.path / "lab.lock"

    def acquire(self) -> int:
        """Locks the folder for a new lab and returns the lock's descriptor, for the keeper. Raises LabError."""
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise LabError("the folder cannot be used", where=str(self.path), why=str(error)) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            raise LabError(
                "a lab runs in this folder already",
                where=str(self.path),
                why=self._describe_contents(),
                remedy=f'stop it with "heliograph lab down --folder {self.path}", or choose another folder',
            ) from None
        # Removes what a killed keeper left behind.
        shutil.rmtree(self.data, ignore_errors=True)
        self._record_file.unlink(missing_ok=True)
        self.data.mkdir()
        self.logs.mkdir(exist_ok=True)
        return lock

    @property
    def is_held(self) -> bool:
        try:
            lock = os.open(self._lock_file, os.O_RDWR)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(lock)
        return False

    def write_record(self, record: LabRecord) -> None:
        draft = self._record_file.with_suffix(".draft")
        draft.write_text(json.dumps(asdict(record), indent=2))
        draft.rename(self._record_file)

    def maybe_read_record(self) -> LabRecord | None:
        """Returns what runs here, or None if no lab is up."""
        if not self.is_held:
            return None
        try:
            fields = json.loads(self._record_file.read_text())
        except FileNotFoundError:
            return None
        brokers = tuple(
            BrokerRecord(**{**broker, "process": broker["process"] and RunningProcess(**broker["process"])})
            for broker in fields["brokers"]
        )
        return LabRecord(keeper=RunningProcess(**fields["keeper"]), brokers=brokers)

    def remove_record(self) -> None:
        self._record_file.unlink(missing_ok=True)

    def _describe_contents(self) -> str:
        record = self.maybe_read_record()
        if record is None:
            return "it is still starting"
        aliases = dict.fromkeys(broker.alias for broker in record.brokers)
        return f"clusters {', '.join(aliases)}, keeper process {record.keeper.pid}"


def read_lab(path: Path | str) -> LabRecord:
    """Returns what runs in a folder. Raises LabError if nothing does."""
    folder = LabFolder(path)
    record = folder.maybe_read_record()
    if record is None:
        raise LabError("no lab is up", where=str(folder.path), remedy='start one with "heliograph lab up"')
    return record


def stop_lab(path: Path | str, *, purge: bool = False) -> int:
    """Stops the detached lab in a folder and removes its data, with `purge` its logs too; counts the brokers."""
    folder = LabFolder(path)
    record = folder.maybe_read_record()
    if record is None and not (purge and folder.logs.is_dir()):
        raise LabError("no lab is up", where=str(folder.path), remedy="name its folder with --folder")
    if record is not None:
        _end_keeper(folder, record)
    folder.remove_record()
    if purge:
        shutil.rmtree(folder.logs, ignore_errors=True)
        folder.path.joinpath("lab.lock").unlink(missing_ok=True)
        _remove_if_empty(folder.path)
    return len(record.brokers) if record else 0


def _end_keeper(folder: LabFolder, record: LabRecord) -> None:
    if record.keeper.is_alive:
        psutil.Process(record.keeper.pid).terminate()
    deadline = time.monotonic() + _STOP_TIMEOUT_S
    while folder.is_held:
        if time.monotonic() > deadline:
            raise LabError(
                f"the keeper, process {record.keeper.pid}, does not end",
                where=str(folder.path),
                remedy="kill it; its brokers die with it",
            )
        time.sleep(0.1)


def _remove_if_empty(path: Path) -> None:
    if not any(path.iterdir()):
        path.rmdir()
