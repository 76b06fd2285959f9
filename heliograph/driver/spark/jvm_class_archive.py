"""Spark's classes, kept from one start to the next: Java's class data sharing.

Most of a start is the JVM's loading and checking of some ten thousand classes. One that finds them in an archive
needs less than half of the CPU. The archive is made by `heliograph prepare`, lies in the Python environment that has
Spark, and is for one Java: it is named after it, and a JVM that finds that it does not fit goes on without it.
"""

from __future__ import annotations

import hashlib
import shlex
import sys
from importlib.metadata import version
from pathlib import Path

from heliograph.java import java_path


def archive_path() -> Path:
    """Where the archive is, or would be, for the Java and the Spark that a start would use."""
    java = Path(java_path()).resolve()
    digest = hashlib.sha256(f"{java} {java.stat().st_mtime_ns}".encode()).hexdigest()[:12]
    return Path(sys.prefix) / "share" / "heliograph" / f"spark-{version('pyspark')}-{digest}.jsa"


def option_to_use(archive: Path) -> str:
    """For the JVM's command line; empty if there is no archive."""
    return shlex.quote(f"-XX:SharedArchiveFile={archive}") if archive.is_file() else ""


def option_to_make(archive: Path) -> str:
    """With it the JVM writes the archive when it ends."""
    return shlex.quote(f"-XX:ArchiveClassesAtExit={archive}")
