"""This process, and whether another one of this host still lives."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from uuid import uuid4

from heliograph.ledger.records.lease import Process

_PROC = Path("/proc")


def this_process() -> Process:
    pid = os.getpid()
    return Process(owner=uuid4().hex, host=socket.gethostname(), pid=pid, place=_place(), born=_born(pid) or 0)


def is_gone(process: Process, here: Process) -> bool:
    """Whether a process is certainly dead: it ran in the place where we run, and is not there any more.

    A new process may have its id: that one was born at another time. False where nothing can be known.
    """
    if not process.place or not process.born or process.place != here.place:
        return False
    return _born(process.pid) != process.born


def _place() -> str:
    """This boot of this kernel and this space of process ids: two containers of one host see different ones."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot}/{(_PROC / 'self/ns/pid').stat().st_ino}"
    except OSError:
        return ""


def _born(pid: int) -> int | None:
    """When a process began, in clock ticks since the boot; None if it is not there, or dead and not yet buried."""
    try:
        text = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return None
    state, *fields = text[text.rindex(")") + 2 :].split()
    return None if state in ("Z", "X") else int(fields[18])
