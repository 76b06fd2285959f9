"""Talks to the keeper for the owner of a lab: requests over a pipe."""

from __future__ import annotations

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil

from heliograph.errors import LabError
from heliograph.lab import keeper
from heliograph.lab.folder import LabFolder, RunningProcess
from heliograph.lab.jars import JavaCommand, cache_folder


class KeeperClient:
    """Starts a keeper for a folder and talks to it. Any thread may call."""

    def __init__(self, folder: LabFolder) -> None:
        lock = folder.acquire()
        try:
            self._process = self._start_keeper(folder, lock)
        finally:
            os.close(lock)
        self.process = running_process(self._process.pid)
        self._ids = itertools.count(1)
        self._mutex = threading.Lock()

    @staticmethod
    def _start_keeper(folder: LabFolder, lock: int) -> subprocess.Popen[bytes]:
        arguments = (str(folder.data), str(cache_folder() / "ports.lock"), str(lock))
        with (folder.logs / "keeper.log").open("ab") as log:
            return subprocess.Popen(
                # Run by its path and isolated: the keeper needs the standard library only.
                [sys.executable, "-I", keeper.__file__, *arguments],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=(lock,),
                start_new_session=True,
            )

    def take_ports(self, count: int) -> list[int]:
        ports: list[int] = self._ask("ports", count=count)["ports"]
        return ports

    def start(self, name: str, command: JavaCommand, *, cwd: Path, log: Path, last: bool = False) -> RunningProcess:
        """Starts a server; `last` is one that must outlive the others when the lab ends."""
        files = {"cwd": str(cwd), "log": str(log)}
        return running_process(
            self._ask("start", name=name, argv=command.argv, env=command.env, last=last, **files)["pid"]
        )

    def send_signal(self, name: str, number: int) -> None:
        self._ask("signal", name=name, signal=int(number))

    def exit_codes(self) -> dict[str, int]:
        """Returns exit codes of the servers that have ended, by name."""
        codes: dict[str, int] = self._ask("poll")["exited"]
        return codes

    def stop(self, name: str, *, timeout_s: float) -> None:
        """Sends SIGTERM, then SIGKILL if needed; returns when the server has ended."""
        self.send_signal(name, signal.SIGTERM)
        if not self._wait(name, timeout_s):
            self.kill(name)

    def kill(self, name: str) -> None:
        self.send_signal(name, signal.SIGKILL)
        self._wait(name, 30.0)

    def discard(self, names: list[str]) -> None:
        """Kills servers that may or may not have been started."""
        self._ask("discard", names=names)

    def detach(self) -> None:
        """Lets the lab live on when this process ends."""
        self._ask("detach")
        self._close()

    def end(self, *, grace_s: float) -> None:
        """Stops all servers and removes the data. Ignores a keeper that has ended."""
        try:
            self._ask("end", grace_s=grace_s)
        except LabError:
            self._process.kill()
        finally:
            self._close()
        self._process.wait()

    def _wait(self, name: str, timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while name not in self.exit_codes():
            if time.monotonic() > deadline:
                return False
            time.sleep(0.05)
        return True

    def _ask(self, action: str, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._mutex:
            request_id = next(self._ids)
            request = json.dumps({"id": request_id, "do": action, **arguments})
            try:
                self._process.stdin.write(request.encode() + b"\n")
                self._process.stdin.flush()
                reply = self._next_reply(request_id)
            except (OSError, ValueError) as error:
                raise LabError("the lab's keeper has ended", why=str(error), remedy="start the lab again") from error
        if "error" in reply:
            raise LabError(f'the lab\'s keeper could not do "{action}"', why=reply["error"])
        return reply

    def _next_reply(self, request_id: int) -> dict[str, Any]:
        """Returns the answer to this request; answers to earlier, interrupted requests are skipped."""
        assert self._process.stdout is not None
        while True:
            line = self._process.stdout.readline()
            if not line:
                raise ConnectionResetError(f"process {self._process.pid} ended")
            reply: dict[str, Any] = json.loads(line)
            if reply["id"] == request_id:
                return reply

    def _close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except OSError:
                continue


def running_process(pid: int) -> RunningProcess:
    return RunningProcess(pid=pid, started_at=psutil.Process(pid).create_time())
