"""Raises this process's limit of open files and sockets, and names the error of too many."""

from __future__ import annotations

import contextlib
import errno
import resource

from heliograph.errors import TooManyOpenFiles


def raise_limit() -> None:
    """Raise this process's limit of open files as far as allowed.

    A lane has several connections to every broker of every flow; the usual limit of 1,024 is too low.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):  # some systems call a limit unlimited, and refuse that number
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shortage_of(error: OSError, *, where: str) -> TooManyOpenFiles | None:
    """Return the error's name if it says that no more files or sockets can be opened."""
    if error.errno == errno.EMFILE:
        limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        return TooManyOpenFiles(
            f"this process may have {limit} files and sockets open, and has them",
            where=where,
            remedy="raise its hard limit: ulimit -Hn, LimitNOFILE= of a systemd unit, ulimits of a container",
        )
    if error.errno == errno.ENFILE:
        return TooManyOpenFiles(
            "this machine may have no more files and sockets open",
            where=where,
            remedy="raise its limit: sysctl fs.file-max",
        )
    return None
