"""Formats the mirror's log: one line format on both streams and in the file of LOG_DIR.

    2026-10-03T12:00:00.123+02:00 WARNING backup: ...

Progress goes to the standard output, everything else to the standard error.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from datetime import datetime
from enum import StrEnum
from logging.handlers import RotatingFileHandler
from pathlib import Path
from types import TracebackType

from heliograph.text import printable, printable_lines

FILE = "heliograph.log"
MAX_BYTES = 50 * 1024 * 1024
KEPT = 5
"""Number of old log files that are kept."""

log = logging.getLogger("heliograph")
progress = logging.getLogger("heliograph.progress")


class LogLevel(StrEnum):
    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class LineFormatter(logging.Formatter):
    """Formats time with its zone, level and message in one line; a traceback follows on its own lines."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 (logging's name)
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(  # noqa: N802 (logging's name)
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None] | tuple[None, None, None],
    ) -> str:
        return printable_lines(super().formatException(ei))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:  # noqa: ARG002, N802
        return datetime.fromtimestamp(record.created).astimezone().isoformat(timespec="milliseconds")


class _File(RotatingFileHandler):
    """A log file; once it cannot be written, that is logged and the file is no longer used."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / FILE, maxBytes=MAX_BYTES, backupCount=KEPT, encoding="utf-8", errors="replace")
        self._folder = folder

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: ARG002, N802
        error = sys.exc_info()[1]
        log.removeHandler(self)
        with contextlib.suppress(OSError):
            self.close()
        _warn_of_folder(self._folder, error)


def start_log(*, level: LogLevel = LogLevel.INFO, folder: Path | None = None) -> None:
    """Starts logging; `folder` is LOG_DIR, and one that cannot be used is reported."""
    log.setLevel(level.upper())
    log.propagate = False
    console, out = logging.StreamHandler(sys.stderr), logging.StreamHandler(sys.stdout)
    console.addFilter(lambda record: record.name != progress.name)
    out.addFilter(lambda record: record.name == progress.name)
    for handler in (console, out):
        _add(handler)
    if folder is not None:
        try:
            _add(_File(folder))
        except OSError as error:
            _warn_of_folder(folder, error)


def _add(handler: logging.Handler) -> None:
    handler.setFormatter(LineFormatter())
    log.addHandler(handler)


def _warn_of_folder(folder: Path, error: BaseException | None) -> None:
    why = getattr(error, "strerror", None) or error
    log.warning('LOG_DIR: nothing is written to "%s": %s; check that it is a writable folder', folder, why)
