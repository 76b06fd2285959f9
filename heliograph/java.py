"""Finds Java and says in one sentence what is wrong with it.

Uses the standard library only: `python -m heliograph.java` is the Makefile's check
before there is an environment. Knows nothing of Kafka or Spark.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from heliograph.errors import ConfigError

MINIMUM_VERSION = 17
_REMEDY = f"install a Java {MINIMUM_VERSION}+ runtime, or point JAVA_HOME at one"
_QUOTED_VERSION = re.compile(r'version "(\d+)(?:\.(\d+))?')


class Java(NamedTuple):
    path: str
    version: int


def parse_java_version(text: str) -> int | None:
    """Parses the feature version (8, 17, 25) from the output of `java -version`; None if there is none."""
    match = _QUOTED_VERSION.search(text)
    if match is None:
        return None
    first, second = match.groups()
    # Up to Java 8 the feature version came second: "1.8.0_392".
    return int(second) if first == "1" and second else int(first)


def find_java() -> Java:
    """Finds Java and its version; raises ConfigError."""
    path = java_path()
    try:
        answer = subprocess.run([path, "-version"], capture_output=True, text=True, timeout=30, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise ConfigError(f"{path} cannot be run", why=str(error), remedy=_REMEDY) from error
    version = parse_java_version(answer.stderr + answer.stdout)
    if version is None:
        raise ConfigError(f"{path} does not print its version", remedy=_REMEDY)
    if version < MINIMUM_VERSION:
        raise ConfigError(f"Java {version} at {path} is too old", remedy=_REMEDY)
    return Java(path, version)


def java_path() -> str:
    """Returns the path of the Java that Spark uses too, whatever its version: JAVA_HOME first, then the path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        path = Path(home) / "bin" / "java"
        if not path.is_file():
            raise ConfigError(f"JAVA_HOME is {home}, but there is no bin/java in it", remedy=_REMEDY)
        return str(path)
    found = shutil.which("java")
    if found is None:
        raise ConfigError("Java was not found: JAVA_HOME is not set and there is no java on the path", remedy=_REMEDY)
    return found


if __name__ == "__main__":
    try:
        find_java()
    except ConfigError as error:
        sys.exit(str(error))
