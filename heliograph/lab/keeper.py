"""Runs the keeper: a process that owns a lab's servers and ends them with the owner of the lab.

    owner (a test, the demo, `lab up`)  ==pipe==>  keeper  --parent of-->  brokers

* The owner sends requests to the keeper's stdin, one JSON object a line, and gets one line back for each.
* When the owner ends, for whatever reason, the pipe ends: the keeper stops every server and removes the data.
* When the keeper is killed, the kernel kills its servers (PR_SET_PDEATHSIG, Linux).
* After `detach` the end of the pipe means nothing; SIGTERM ends the lab. A control socket in the data folder then
  lets other processes of the same user signal servers and start them again, and nothing else.

The keeper holds two locks for as long as it lives: the folder's (given by the owner, so that a folder has one
lab) and one for each port. It is in a session of its own, out of the reach of Ctrl-C, and has one thread,
because PR_SET_PDEATHSIG counts from the thread that started the child. It imports nothing of ours.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONTROL_SOCKET = "keeper.sock"
_CONTROL_REQUESTS = ("signal", "poll", "restart")
"""The requests that other processes than the owner may send."""
_CONTROL_TIMEOUT_S = 2.0
"""How long the keeper waits for a request on a control connection."""
_PR_SET_PDEATHSIG = 1
_LIBRARY = ctypes.CDLL(None)
"""Loaded here: between fork and exec nothing may take a lock."""
_LOWEST_PORT = 15000
_USUAL_EPHEMERAL_PORTS = 32768
_ATTEMPTS_PER_PORT = 200
# The data is removed anyway, so a lab whose owner has ended gets little time for a clean shutdown.
_GRACE_AFTER_OWNER_S = 2.0


def die_with_parent() -> None:
    """Asks the kernel to kill this process when its parent ends; runs between fork and exec. Linux only."""
    if sys.platform == "linux":
        _LIBRARY.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def short_path(directory: int, path: Path) -> str:
    """Returns a socket's path by its folder's descriptor, where possible: socket paths have at most 100 characters."""
    by_descriptor = Path(f"/proc/self/fd/{directory}")
    return str(by_descriptor / path.name) if by_descriptor.exists() else str(path)


class Ports:
    """Takes free ports on 127.0.0.1; no two labs of a user get the same one.

    Taken below the range of the kernel's own choices, so that no outgoing connection sits on a port between the
    choice and the broker's bind, nor while a broker is down. Byte N of the lock file stands for port N; POSIX record
    locks end with the process.
    """

    def __init__(self, lock_file: Path) -> None:
        lock_file.parent.mkdir(parents=True, exist_ok=True)
        # Never closed before the process ends: closing any handle of the file drops all its locks.
        self._lock_file = os.open(lock_file, os.O_RDWR | os.O_CREAT, 0o644)
        self._taken: set[int] = set()

    def take(self, count: int) -> list[int]:
        return [self._take_one() for _ in range(count)]

    def _take_one(self) -> int:
        upper = max(_ephemeral_start(), _LOWEST_PORT + 1000)
        for _ in range(_ATTEMPTS_PER_PORT):
            port = random.randrange(_LOWEST_PORT, upper)
            if port not in self._taken and self._lock(port) and _is_free(port):
                self._taken.add(port)
                return port
        raise OSError(f"no free port between {_LOWEST_PORT} and {upper}")

    def _lock(self, port: int) -> bool:
        try:
            fcntl.lockf(self._lock_file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        return True


def _ephemeral_start() -> int:
    try:
        return int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return _USUAL_EPHEMERAL_PORTS


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


class Keeper:
    """Holds the servers of one lab, and answers the owner's requests."""

    def __init__(self, data: Path, ports: Ports) -> None:
        self._data = data
        self._ports = ports
        self._children: dict[str, subprocess.Popen[bytes]] = {}
        self._started: dict[str, dict[str, Any]] = {}
        """The request with which each server was started."""
        self.control: socket.socket | None = None
        self._last: set[str] = set()
        self.detached = False
        self.ended = False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        handlers: dict[str, Callable[..., dict[str, Any]]] = {
            "ports": self._take_ports,
            "start": self._start,
            "restart": self._restart,
            "signal": self._signal,
            "poll": self._poll,
            "discard": self._discard,
            "detach": self._detach,
            "end": self.end,
        }
        arguments = {key: value for key, value in request.items() if key not in ("id", "do")}
        try:
            reply = handlers[request["do"]](**arguments)
        except (OSError, KeyError, ValueError) as error:
            reply = {"error": f"{type(error).__name__}: {error}"}
        return {"id": request["id"], **reply}

    def _take_ports(self, *, count: int) -> dict[str, Any]:
        return {"ports": self._ports.take(count)}

    def _start(
        self, *, name: str, argv: list[str], env: dict[str, str], cwd: str, log: str, last: bool
    ) -> dict[str, Any]:
        if last:
            self._last.add(name)
        self._started[name] = {"argv": argv, "env": env, "cwd": cwd, "log": log, "last": last}
        with open(log, "ab") as output:
            self._children[name] = subprocess.Popen(
                argv,
                env={**os.environ, **env},
                cwd=cwd,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=die_with_parent,  # noqa: PLW1509 - one thread only, see above
            )
        return {"pid": self._children[name].pid}

    def _restart(self, *, name: str) -> dict[str, Any]:
        """Starts a server that has ended, as it was started."""
        if self._children[name].poll() is None:
            raise ValueError(f"{name} is running")
        return self._start(name=name, **self._started[name])

    def _signal(self, *, name: str, signal: int) -> dict[str, Any]:
        self._children[name].send_signal(signal)
        return {}

    def _poll(self) -> dict[str, Any]:
        exits = {name: child.poll() for name, child in self._children.items()}
        return {"exited": {name: code for name, code in exits.items() if code is not None}}

    def _discard(self, *, names: list[str]) -> dict[str, Any]:
        for name in names:
            child = self._children.pop(name, None)
            if child is not None:
                child.kill()
                child.wait()
        return {}

    def _detach(self) -> dict[str, Any]:
        self.control = _open_control_socket(self._data)
        self.detached = True
        return {}

    def answer_control_request(self) -> None:
        """Answers one request on the control socket; a slow client gets no answer."""
        assert self.control is not None
        client, _ = self.control.accept()
        with client, contextlib.suppress(OSError, ValueError):
            client.settimeout(_CONTROL_TIMEOUT_S)
            with client.makefile("rb") as lines:
                request = json.loads(lines.readline(65536))
            if request.get("do") not in _CONTROL_REQUESTS:
                request["do"] = ""
            client.sendall(json.dumps(self.answer({"id": 0, **request})).encode() + b"\n")

    def end(self, *, grace_s: float) -> dict[str, Any]:
        """Stops every server, kills it after `grace_s`, and removes the data."""
        deadline = time.monotonic() + grace_s
        # A broker waits long for a ZooKeeper that stopped before it.
        _stop([child for name, child in self._children.items() if name not in self._last], deadline)
        _stop([child for name, child in self._children.items() if name in self._last], deadline)
        shutil.rmtree(self._data, ignore_errors=True)
        self.ended = True
        return {}


def _open_control_socket(data: Path) -> socket.socket:
    """Opens a control socket that only the owner of the lab may use."""
    directory = os.open(data, os.O_RDONLY)
    try:
        control = socket.socket(socket.AF_UNIX)
        before = os.umask(0o177)
        try:
            control.bind(short_path(directory, data / CONTROL_SOCKET))
        finally:
            os.umask(before)
    finally:
        os.close(directory)
    control.listen()
    return control


def _stop(children: list[subprocess.Popen[bytes]], deadline: float) -> None:
    for child in children:
        child.terminate()
    for child in children:
        try:
            child.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def _serve(keeper: Keeper) -> None:
    """Answers the owner until the lab has ended."""
    terminated = False

    def on_terminate(_signal: int, _frame: object) -> None:
        nonlocal terminated
        terminated = True

    signal.signal(signal.SIGTERM, on_terminate)
    owner = os.getppid()
    inputs = [sys.stdin.fileno()]
    pending = b""
    while not keeper.ended:
        controls = [keeper.control] if keeper.control is not None else []
        readable, _, _ = select.select([*inputs, *controls], [], [], 0.25)
        if keeper.control in readable:
            keeper.answer_control_request()
        if inputs and inputs[0] in readable:
            chunk = os.read(inputs[0], 65536)
            inputs = inputs if chunk else []
            *lines, pending = (pending + chunk).split(b"\n")
            for line in lines:
                _reply(keeper.answer(json.loads(line)))
        owner_gone = not inputs or os.getppid() != owner
        if terminated:
            keeper.end(grace_s=10.0)
        elif owner_gone and not keeper.detached:
            keeper.end(grace_s=_GRACE_AFTER_OWNER_S)


def _reply(answer: dict[str, Any]) -> None:
    # A dead owner reads no answers; the end of its pipe is seen by the loop.
    with contextlib.suppress(BrokenPipeError):
        os.write(sys.stdout.fileno(), json.dumps(answer).encode() + b"\n")


def main(data: str, port_lock_file: str, folder_lock: str) -> None:
    # Servers must not inherit the folder's lock: it stands for the life of this process.
    os.set_inheritable(int(folder_lock), False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    _serve(Keeper(Path(data), Ports(Path(port_lock_file))))


if __name__ == "__main__":
    main(*sys.argv[1:])
