"""Describes the machine and the versions for a report; without names, paths and secrets."""

from __future__ import annotations

import os
import platform
import re
import ssl
import subprocess
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psutil

from heliograph.config.keys.key_check import is_secret_name
from heliograph.driver.spark.jvm_class_archive import archive_path
from heliograph.java import find_java
from heliograph.lab import DEFAULT_VERSION

_LIBRARIES = ("pyspark", "pyarrow", "confluent-kafka", "kafka-python", "crc32c", "cramjam")
HIDDEN = "[hidden]"


def describe_machine() -> dict[str, Any]:
    return {
        "cores": psutil.cpu_count(),
        "processor": _processor(),
        "memory_gb": round(psutil.virtual_memory().total / 1e9, 1),
        "kernel": platform.release(),
        "system": platform.system(),
        "python": platform.python_version(),
        "openssl": ssl.OPENSSL_VERSION.split()[1],
        "java": _java_version(),
        "kafka": DEFAULT_VERSION,
        "spark_classes_kept": archive_path().is_file(),
        **{name: version(name) for name in _LIBRARIES},
    }


def describe_commit(repository: Path) -> dict[str, Any]:
    """Returns the commit, and whether the tree had uncommitted changes."""

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(repository), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = git("status", "--porcelain", "--untracked-files=no", "--", "heliograph", "bench")
    return {"commit": git("rev-parse", "HEAD") or "unknown", "changed": bool(changed)}


def hide_texts(text: str, hidden: Mapping[str, str]) -> str:
    """Replaces this machine's folders and secrets by their names; the longest first."""
    for found in sorted(hidden, key=len, reverse=True):
        text = text.replace(found, hidden[found])
    return text


def hide_secrets(properties: Mapping[str, str], hidden: Mapping[str, str]) -> dict[str, str]:
    """Does the same for a configuration; the values of secret keys are hidden whole."""
    return {key: HIDDEN if is_secret_name(key) else hide_texts(value, hidden) for key, value in properties.items()}


def load_average() -> float:
    return round(os.getloadavg()[0], 2)


def _processor() -> str:
    try:
        match = re.search(r"^model name\s*: (.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    except OSError:
        match = None
    return match[1] if match else platform.machine()


def _java_version() -> str:
    answer = subprocess.run([find_java().path, "-version"], capture_output=True, text=True, check=False)
    match = re.search(r'"([^"]+)"', answer.stderr + answer.stdout)
    return match[1] if match else "unknown"
